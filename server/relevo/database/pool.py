"""The connections to PostgreSQL: a bounded pool, bounded transactions and waits, one log line per change of its state.

How long somebody may wait for PostgreSQL, by this process's own clock, whatever the server or the network does:

    opening a connection                        DATABASE_CONNECT_TIMEOUT_MS
    getting one from the pool, its check        DATABASE_CONNECT_TIMEOUT_MS, and half of it
    a statement, COMMIT and ROLLBACK alike      DATABASE_STATEMENT_TIMEOUT_MS + DATABASE_ANSWER_MARGIN_MS
    a beat of the heartbeat                     the time until its next one
    a migration, a statement of a copy          DATABASE_LONG_STATEMENT_TIMEOUT_MS + DATABASE_ANSWER_MARGIN_MS

What takes longer closes its connection and counts as a database that does not answer.
"""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors as pg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready
from psycopg_pool import ConnectionPool, PoolTimeout

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, StoppedError
from relevo.core.logs import get_logger, normalise_error
from relevo.database.outages import GONE, explain_unavailable, is_unavailable

T = TypeVar("T")
Manner = Literal["bound_transaction", "bound_unflushed", "bound_by_key", "bound_relaxed"]
Bounds = Manner | Literal["bound_session"]

_SQL = queries.load("pool")
_MANNERS: dict[Bounds, tuple[str, ...]] = {
    "bound_transaction": ("bound_waits",),
    "bound_session": ("bound_session",),
    "bound_unflushed": ("bound_waits", "leave_unflushed"),
    "bound_by_key": ("bound_waits", "force_index_lookups"),
    "bound_relaxed": ("bound_waits", "force_index_lookups", "leave_unflushed"),
}
_log = get_logger("relevo.database.pool")

_PREPARE_AFTER = 1
_FRESH_S = 1.0
_LEAST_CHECK_S = 1.0  # a busy server may take this long to say that it is there
_RECONNECT_S = 1.0  # then whoever comes next has it tried again, at once
_CANCEL_S = 2.0
_REMIND_S = 60.0
_TELL_EVERY_S = 5.0  # a statement that costs its connection each time must not keep everybody on the run
_RESERVED = 2  # the heartbeat's and the listener's own connections


@cache
def bounds(manner: Bounds, *, statement_ms: int, lock_ms: int, idle_ms: int) -> bytes:
    """Return what bounds an open transaction in some manner, as one text of several statements."""
    texts = "\n".join(_bare(_SQL[name]) for name in _MANNERS[manner])
    return (texts % {"statement_ms": statement_ms, "lock_ms": lock_ms, "idle_ms": idle_ms}).encode()


def _bare(statement: bytes) -> str:
    """Return a statement without the sentences above it."""
    return "\n".join(line for line in statement.decode().splitlines() if not line.startswith("--"))


_BEGIN = _bare(_SQL["begin_transaction"]).encode()
_FLUSH = _bare(_SQL["flush_transaction"]).encode()
_PIN_SESSION, _PIN_TRANSACTION = (_bare(_SQL[name]).encode() for name in ("pin_session", "pin_transaction"))


def _conninfo(dsn: str, settings: Settings, application_name: str) -> str:
    """Complete a DSN with the limits every connection of ours has, leaving alone what it already says."""
    limits: dict[str, Any] = {
        "application_name": application_name[:60],
        "client_encoding": "UTF8",
        "connect_timeout": max(2, settings.database_connect_timeout_ms // 1000),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    given = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{key: value for key, value in limits.items() if key not in given})


class NoAnswerError(psycopg.OperationalError):
    """PostgreSQL was silent for longer than this process waits; the connection is closed."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection in autocommit that waits only so long for an answer; transactions are opened explicitly.

    psycopg comes back to us ten times a second while it waits for the server: there, in the waiting thread itself, we
    look whether it has waited long enough.
    """

    patience_s: float = math.inf
    """How long the server may be silent while somebody waits for it."""
    is_stopped: Callable[[], bool] = staticmethod(lambda: False)
    """Returns whether waiting is to end because this process is."""
    is_bounded: bool = False
    """Whether the server itself gives up a single statement after a while."""
    is_flushed: bool = False
    """Whether its commits wait for the disk, whatever the database's default is."""
    is_strange: bool = False
    """Whether each transaction has to pin settings that the database or the role has changed, behind a pooler."""
    _ends_at: float = math.inf

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Wait for the server no longer than so many seconds in the whole block."""
        before, self._ends_at = self._ends_at, min(self._ends_at, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._ends_at = before

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server, but not for ever."""
        try:
            return super().wait(self._bounded(gen), *args, **kwargs)
        except StoppedError:
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=_CANCEL_S)  # what nobody waits for must not go on holding locks
            self.close()
            raise
        except NoAnswerError:
            self.close()
            raise

    def _bounded(self, gen: PQGen[T]) -> PQGen[T]:
        heard_at = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == Ready.NONE:
                    self._check_patience(heard_at)
                else:
                    heard_at = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as ended:
            answer: T = ended.value
            return answer

    def _check_patience(self, heard_at: float) -> None:
        if self.is_stopped():
            raise StoppedError("This process was told to stop.")
        now = time.monotonic()
        if now - heard_at > self.patience_s or now > self._ends_at:
            raise NoAnswerError(f"no answer for {now - heard_at:.1f} s")


class Database:
    """All connections of one process: a pool for work, and single ones for the heartbeat and the listener."""

    def __init__(
        self,
        dsn: str,
        direct_dsn: str,
        settings: Settings,
        application_name: str = "relevo",
        *,
        pool_size: int | None = None,
        bounds_all: bool = False,
    ) -> None:
        self._settings = settings
        self._bounds_all = bounds_all
        self._given = (dsn, direct_dsn)
        self._dsn = _conninfo(dsn, settings, application_name)
        self.direct_dsn = _conninfo(direct_dsn, settings, application_name)
        """The address without a pooler in between, with the limits every connection has."""
        self._connect_s = settings.database_connect_timeout_ms / 1000
        margin_ms = settings.database_answer_margin_ms
        self._answer_s = (settings.database_statement_timeout_ms + margin_ms) / 1000
        self.lock_ms = settings.database_lock_timeout_ms
        self.long_statement_ms = settings.database_long_statement_timeout_ms
        self.long_answer_s = (self.long_statement_ms + margin_ms) / 1000
        """How long a migration, or a statement of an export or a restore, may go without an answer."""
        self._state = threading.Lock()
        self._reachable = threading.Event()
        self._reachable.set()
        self._since = self._reminded_at = 0.0
        self._was_read_only = False
        self.logs_outages = True
        """Whether the log tells of an outage; a command that ends with its error says it there."""
        self.is_doubted = False
        """Whether a connection was lost since a new one proved that the server answers."""
        self._told_at = -math.inf
        self._prober: Callable[[], None] | None = None
        self._on_reachable: list[Callable[[], None]] = []
        self._stop: threading.Event | None = None
        self._used: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._pool = ConnectionPool(
            self._dsn,
            connection_class=Connection,
            min_size=0,
            max_size=pool_size or settings.database_max_connections - _RESERVED,
            kwargs={"autocommit": True, "prepare_threshold": None},
            timeout=self._connect_s,
            reconnect_timeout=min(self._connect_s, _RECONNECT_S),
            max_idle=60,
            check=self._check,
            configure=self._configure,
            open=True,
            name="relevo",
        )

    def _configure(self, connection: Connection) -> None:
        """Prepare statements where a connection leads to the server itself: planning is half of a small one's cost.

        A pooler gives itself away by the backend's number, and would hand a prepared statement to another process.
        """
        self._set_up(connection, self._answer_s)
        is_direct = self._pin(connection)
        connection.prepare_threshold = _PREPARE_AFTER if is_direct else None
        if is_direct:
            connection.execute(_SQL["flush_session"])
            connection.is_flushed = True
        if self._bounds_all and is_direct:
            connection.execute(self._bounds("bound_session"))
            connection.is_bounded = True

    def _pin(self, connection: Connection) -> bool:
        """Give a connection the settings that statements rely on; return whether it leads to the server itself.

        One that a pooler shares is given them by each transaction: a setting of the session would leak to others.
        """
        with connection.within(self._connect_s):
            pid, is_strange = connection.execute(_SQL["ask_backend"], {}).fetchone() or (0, False)
            is_direct = bool(pid == connection.info.backend_pid)
            if is_strange and is_direct:
                connection.execute(_PIN_SESSION)
        connection.is_strange = is_strange and not is_direct
        return is_direct

    def _set_up(self, connection: Connection, patience_s: float) -> None:
        """Bound its waits; transactions look again after they waited for a lock, whatever the database's default is."""
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.patience_s = patience_s
        connection.is_stopped = self._is_stopped

    def _check(self, connection: Connection) -> None:
        """Ask a connection whether it is alive before it is lent, unless it just proved that."""
        if time.monotonic() - self._used.get(connection, -_FRESH_S) <= _FRESH_S:
            return
        try:
            with connection.within(max(self._connect_s / 2, _LEAST_CHECK_S)):  # the other half is for a new one
                ConnectionPool.check_connection(connection)
        except NoAnswerError:
            self._pool.drain()  # the others are as old, and each would be waited for in turn
            self._doubt()
            raise

    def beside(self, application_name: str, pool_size: int) -> Database:
        """Return a Database of the same server with a pool of its own, for those who must not starve the others.

        There a single statement is bounded as a transaction is: whoever asks over HTTP waits for a lock only so long.
        """
        return Database(*self._given, self._settings, application_name, pool_size=pool_size, bounds_all=True)

    def close(self) -> None:
        """Close the pool; connections in use are closed when they are given back."""
        self._pool.close(timeout=1)

    def pool_stats(self) -> dict[str, int]:
        """Return how many connections the pool has, how many of them are free, and how many callers wait."""
        return self._pool.get_stats()

    def single(self) -> Connection:
        """Open a connection of its own, outside the pool, for the heartbeat."""
        return self._connect(self._dsn, self._answer_s)

    def direct(self, *, long: bool = False) -> Connection:
        """Open a connection by the direct DSN: LISTEN and migrations do not work through a transaction pooler.

        A `long` one bears statements that take minutes.
        """
        return self._connect(self.direct_dsn, self.long_answer_s if long else self._answer_s)

    def _connect(self, dsn: str, patience_s: float) -> Connection:
        with self.watch(connecting=True):
            connection = Connection.connect(dsn, autocommit=True, prepare_threshold=None)
            self._set_up(connection, patience_s)
            self._pin(connection)
        return connection

    @contextmanager
    def stopped_by(self, stop: threading.Event) -> Iterator[None]:
        """End every wait in the block with StoppedError once this is set."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a pooled connection in autocommit: for a single statement."""
        with self._lend() as connection:
            if connection.is_bounded or not (self._bounds_all or connection.is_strange):
                yield connection
                return
            with self.begin(connection, "bound_transaction"):
                yield connection

    @contextmanager
    def _lend(self) -> Iterator[Connection]:
        with self.watch():
            if self._prober is not None and not self._reachable.wait(self._connect_s):
                raise DatabaseUnavailableError("PostgreSQL does not answer.", hint="Relevo keeps trying.")
            with self._pool.connection() as connection:
                yield connection
                self._used[connection] = time.monotonic()  # not by the pool's own hook, which would give it back later

    @contextmanager
    def transaction(self, manner: Manner = "bound_transaction") -> Iterator[Connection]:
        """Lend a pooled connection inside a transaction whose statements, locks and pauses are bounded.

        `bound_by_key` also has its plans use index lookups by key and the due index, whatever the statistics say;
        `bound_unflushed` commits without waiting for the disk; `bound_relaxed` does both.
        """
        with self._lend() as connection, self.begin(connection, manner):
            yield connection

    def execute(
        self, statement: bytes, parameters: Mapping[str, Any] | None = None, manner: Manner | None = None
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Send a single statement, with a manner in a transaction of its own; its rows outlast the loan."""
        with self.connection() if manner is None else self.transaction(manner) as connection:
            return connection.execute(statement, parameters)

    @contextmanager
    def begin(self, connection: Connection, manner: Manner, *, lock_ms: int | None = None) -> Iterator[None]:
        """Hold a transaction open on a connection: begun and bounded in one message, below a third of the lease."""
        try:
            flush = b"" if connection.is_flushed else _FLUSH  # first: what need not wait for the disk says so after it
            pin = _PIN_TRANSACTION if connection.is_strange else b""
            connection.execute(_BEGIN + flush + pin + self._bounds(manner, lock_ms), prepare=False)
            yield
        except psycopg.Rollback as wished:
            connection.rollback()
            if wished.transaction is not None:
                raise  # meant for one around this one
        except BaseException:
            with suppress(psycopg.OperationalError):  # the connection is lost, and the transaction with it
                connection.rollback()
            raise
        else:
            connection.commit()

    def _bounds(self, manner: Bounds, lock_ms: int | None = None) -> bytes:
        return bounds(
            manner,
            statement_ms=self._settings.database_statement_timeout_ms,
            lock_ms=self.lock_ms if lock_ms is None else lock_ms,
            idle_ms=self._settings.database_idle_transaction_timeout_ms,
        )

    def ping(self) -> int:
        """Ask the server for its version number; raises if it does not answer."""
        row = self.execute(_SQL["ask_version"]).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def watch(self, *, connecting: bool = False, probing: bool = False) -> Iterator[None]:
        """Turn every way of not answering into DatabaseUnavailableError, and say so once per change of state.

        A lost connection alone does not mean that the server is gone; opening one does not mean that it answers. Where
        somebody probes, his word alone says that it does: he writes, on a new connection, while others may be reading
        from a server of the past.
        """
        began = time.monotonic()
        try:
            yield
        except DatabaseUnavailableError:
            raise  # said further in
        except Exception as error:
            if not is_unavailable(error):
                raise
            if connecting or isinstance(error, GONE):
                raise self._unreachable(error, began) from error
            if self._reachable.is_set() and self.logs_outages:
                _log.warning("connection_lost", detail=normalise_error(error))
            self._pool.drain()  # it seldom dies alone, and the pool would find out about each of the others in turn
            self._doubt(probing=probing)
            raise DatabaseUnavailableError(
                f"The connection to PostgreSQL was lost ({normalise_error(error, 200)}).",
                hint="Relevo opens another connection at its next try.",
            ) from error
        else:
            if probing or not (connecting or self._prober):
                self._note(down=False)

    def _doubt(self, *, probing: bool = False) -> None:
        """Start a thread that proves, on a new connection, that the server answers."""
        self.is_doubted = True
        if self._prober is not None and not probing:
            self._prober()

    def _unreachable(self, error: Exception, began: float) -> DatabaseUnavailableError:
        """Note that the server cannot be used for now, and return what is to be raised.

        Who began to wait before the server came back has nothing new to tell.
        """
        cause = self._refusal() or error if isinstance(error, PoolTimeout) else error
        if isinstance(error, pg.ReadOnlySqlTransaction):
            self._was_read_only = True
            self._pool.drain()  # a new connection may find the new primary
        if began >= self._since:
            self._note(down=True, detail=normalise_error(cause, 200))
        return explain_unavailable(cause)

    def _refusal(self) -> psycopg.OperationalError | None:
        """Ask once more outside the pool, which says only that it waited in vain, for the reason."""
        if not self._reachable.is_set():
            return None  # told already
        try:
            psycopg.connect(self._dsn, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return error
        return None

    @property
    def is_reachable(self) -> bool:
        """Whether the server answered when it was last asked."""
        return self._reachable.is_set()

    def probe_by(self, prober: Callable[[], None] | None) -> None:
        """Register a check of whether the server answers, called when it seems not to.

        While it does not, all others wait for his word instead of trying on their own; None ends that.
        """
        self._prober = prober

    def on_reachable(self, action: Callable[[], None]) -> None:
        """Register a quick callback for each time the server answers again, or answers after connections were lost."""
        self._on_reachable.append(action)

    def tell_reachable(self) -> None:
        """Do what is to be done once the server answers again."""
        for action in self._on_reachable:
            action()

    def _note(self, *, down: bool, detail: str = "") -> None:
        now = time.monotonic()
        if not down and self._was_read_only:
            self._was_read_only = False
            self._pool.drain()  # what was opened in the meantime leads to the server that only reads
        with self._state:
            changed = down is self._reachable.is_set()
            if changed:
                self._since = self._reminded_at = now
            (self._reachable.clear if down else self._reachable.set)()
        if down:
            self._tell_down(now, detail, changed=changed)
        else:
            self._tell_up(now, changed=changed)

    def _tell_down(self, now: float, detail: str, *, changed: bool) -> None:
        if changed:
            if self.logs_outages:
                _log.warning("database_unreachable", detail=detail)
            if self._prober is not None:
                self._prober()
            return
        with self._state:
            remind = self.logs_outages and now - self._reminded_at > _REMIND_S
            if remind:
                self._reminded_at = now
        if remind:
            _log.warning("database_still_unreachable", for_s=round(now - self._since), detail=detail)

    def _tell_up(self, now: float, *, changed: bool) -> None:
        if changed:
            if self.logs_outages:
                _log.info("database_reachable")
        elif not self.is_doubted or now - self._told_at < _TELL_EVERY_S:
            return
        self.is_doubted, self._told_at = False, now
        self.tell_reachable()
