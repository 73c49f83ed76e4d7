"""The door to PostgreSQL: a bounded pool, bounded transactions, and one sentence per change of its state."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from relevo import queries
from relevo.config import Settings
from relevo.errors import DatabaseRefusedError, DatabaseUnavailableError
from relevo.logs import normalise_error

Connection = psycopg.Connection[tuple[Any, ...]]
"""A psycopg connection in autocommit; transactions are opened explicitly."""

Manner = Literal["bound_transaction", "bound_by_key", "bound_relaxed"]

_SQL = queries.load("db")
_log = structlog.get_logger("relevo.db")

# The server is gone, going, or no longer the primary.
_UNAVAILABLE = (
    DatabaseUnavailableError,
    PoolTimeout,
    PoolClosed,
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.ReadOnlySqlTransaction,
    pg.TooManyConnections,
    pg.IdleInTransactionSessionTimeout,
)
# These say that the server cannot be used for now; any other is the loss of one connection.
_GONE = (PoolTimeout, pg.CannotConnectNow, pg.ReadOnlySqlTransaction, pg.TooManyConnections)
BUSY = (pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected)
"""Somebody else is in the way, and trying again a little later is right: a lock, a timeout, a deadlock."""
_PREPARE_AFTER = 3
_FRESH_S = 1.0
_RESERVED = 2  # the heartbeat's and the listener's own connections


def is_unavailable(error: BaseException) -> bool:
    """Tell whether an error means that the server did not answer, as opposed to refusing what was asked."""
    if isinstance(error, _UNAVAILABLE):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    # Class 08 is the connection itself: it is how PgBouncer says that the server behind it is gone.
    return error.sqlstate is None or error.sqlstate.startswith("08")


_REFUSALS = (
    (r"password authentication failed|no password supplied", "the password is wrong", "the password in DATABASE_URL"),
    (
        r'database "[^"]*" does not exist',
        "there is no such database",
        "the database's name in DATABASE_URL, or create it",
    ),
    (
        r'role "[^"]*" (does not exist|is not permitted to log in)|pg_hba\.conf|permission denied for database',
        "the role may not connect",
        "the user in DATABASE_URL, its CONNECT privilege, and pg_hba.conf",
    ),
)


def explain_unavailable(error: BaseException) -> DatabaseUnavailableError:
    """Tell a server that is not there from one that does not let us in, and say which of three reasons it has."""
    reason = normalise_error(error, 200)
    for pattern, why, mend in _REFUSALS:
        if re.search(pattern, str(error)):
            said = f"PostgreSQL does not let us in: {why} ({reason})."
            return DatabaseRefusedError(said, hint=f"Check {mend}.")
    return DatabaseUnavailableError(
        f"PostgreSQL did not answer ({reason}).", hint="Is it running, and does DATABASE_URL lead to it?"
    )


def conninfo(dsn: str, settings: Settings, application_name: str) -> str:
    """Complete a DSN with the limits every connection of ours has, leaving alone what it already says."""
    limits: dict[str, Any] = {
        "application_name": application_name[:60],
        "connect_timeout": max(2, settings.database_connect_timeout_ms // 1000),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    given = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{key: value for key, value in limits.items() if key not in given})


def _configure(connection: Connection) -> None:
    """Transactions look again after they waited for a lock, whatever the database's default is.

    Statements are prepared where a connection leads to the server itself: planning is half of a small one's cost. A
    pooler gives itself away by the backend's number, and would hand a prepared statement to another server process.
    """
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    row = connection.execute(_SQL["ask_backend"]).fetchone()
    connection.prepare_threshold = _PREPARE_AFTER if row == (connection.info.backend_pid,) else None


def psql_call(dsn: str, command: str | None) -> tuple[list[str], dict[str, str]]:
    """Return psql's arguments and what its environment needs more; the password is in no argument list."""
    given = conninfo_to_dict(dsn)
    more = {"PGOPTIONS": "-c search_path=relevo,public", "PGAPPNAME": "relevo psql"}
    if password := given.pop("password", None):
        more["PGPASSWORD"] = str(password)
    return ["-d", make_conninfo("", **given), *(["-c", command] if command else [])], more


def array(values: Iterable[object]) -> str:
    """Write numbers, days or UUIDs as an array literal: five times as fast as adapting a list element by element."""
    return "{" + ",".join(map(str, values)) + "}"


def text_array(values: Iterable[str | None]) -> str:
    """Write texts as an array literal, each quoted; None is NULL."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def storable(text: str | None, limit: int) -> str | None:
    """Make what others said fit to be stored: no NUL, no half of a character, no more than there is room for."""
    if not text:
        return None
    if not text.isascii() or not text.isprintable():
        text = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return text[:limit]


class Database:
    """All connections of one process: a pool for work, and single ones for the heartbeat and the listener."""

    def __init__(self, dsn: str, direct_dsn: str, settings: Settings, application_name: str = "relevo") -> None:
        self._settings = settings
        self._dsn = conninfo(dsn, settings, application_name)
        self._direct_dsn = conninfo(direct_dsn, settings, application_name)
        self._down = False
        self._state = threading.Lock()
        self._used: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._dsn,
            min_size=0,
            max_size=settings.database_max_connections - _RESERVED,
            kwargs={"autocommit": True, "prepare_threshold": None},
            timeout=settings.database_connect_timeout_ms / 1000,
            reconnect_timeout=settings.database_connect_timeout_ms / 1000,
            max_idle=60,
            check=self._check,
            configure=_configure,
            open=True,
            name="relevo",
        )

    def _check(self, connection: Connection) -> None:
        """Ask a connection whether it is alive before it is lent, unless it just proved that."""
        if time.monotonic() - self._used.get(connection, -_FRESH_S) > _FRESH_S:
            ConnectionPool.check_connection(connection)

    def close(self) -> None:
        """Close the pool; connections in use are closed when they are given back."""
        self._pool.close(timeout=1)

    def single(self) -> Connection:
        """Open a connection of its own, outside the pool, for the heartbeat."""
        return self._connect(self._dsn)

    def direct(self) -> Connection:
        """Open a connection by the direct DSN: LISTEN and migrations do not work through a transaction pooler."""
        return self._connect(self._direct_dsn)

    def _connect(self, dsn: str) -> Connection:
        with self.watch(connecting=True):
            connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    @contextmanager
    def arrow(self) -> Iterator[Any]:
        """Lend a connection that reads and writes Arrow, by the direct DSN, in a transaction that ends with it."""
        import adbc_driver_postgresql.dbapi as adbc  # noqa: PLC0415 only export and restore need it

        try:
            connection = adbc.connect(make_conninfo(self._direct_dsn, client_encoding="UTF8"))
        except adbc.Error as error:
            raise DatabaseUnavailableError(
                f"PostgreSQL did not answer ({normalise_error(error, 200)}).",
                hint="Is it running, and does DATABASE_DIRECT_URL lead to it?",
            ) from error
        try:
            with connection.cursor() as cursor:
                cursor.execute(_SQL["bound_arrow"].decode(), [str(self._settings.database_lock_timeout_ms)])
            yield connection
        finally:
            connection.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a pooled connection in autocommit: for a single statement."""
        with self.watch(), self._pool.connection() as connection:
            yield connection
            self._used[connection] = time.monotonic()  # not by the pool's own hook, which would give it back later

    @contextmanager
    def transaction(self, manner: Manner = "bound_transaction") -> Iterator[Connection]:
        """Lend a pooled connection inside a transaction whose statements, locks and pauses are bounded.

        `bound_by_key` also makes its plans go by keys and by the due index, whatever the statistics say;
        `bound_relaxed` goes by keys and commits without waiting for the disk.
        """
        with self.connection() as connection, connection.transaction():
            self.bound(connection, manner)
            yield connection

    def bound(self, connection: Connection, manner: Manner = "bound_transaction") -> None:
        """Bound the open transaction below a third of the lease."""
        connection.execute(
            _SQL[manner],
            {
                "statement_ms": self._settings.database_statement_timeout_ms,
                "lock_ms": self._settings.database_lock_timeout_ms,
                "idle_ms": self._settings.database_idle_transaction_timeout_ms,
            },
        )

    def ping(self) -> int:
        """Ask the server for its version number; raises if it does not answer."""
        with self.connection() as connection:
            row = connection.execute(_SQL["ask_version"]).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def watch(self, *, connecting: bool = False) -> Iterator[None]:
        """Turn every way of not answering into DatabaseUnavailableError, and say so once per change of state.

        A lost connection alone does not mean that the server is gone; opening one does not mean that it answers.
        """
        try:
            yield
        except DatabaseUnavailableError:
            raise  # said further in
        except Exception as error:
            if not is_unavailable(error):
                raise
            if connecting or isinstance(error, _GONE):
                cause = self._refusal() or error if isinstance(error, PoolTimeout) else error
                self._note(down=True, detail=normalise_error(cause, 200))
                raise explain_unavailable(cause) from error
            if not self._down:
                _log.warning("connection_lost", detail=normalise_error(error))
            self._pool.drain()  # it seldom dies alone, and the pool would find out about each of the others in turn
            raise DatabaseUnavailableError(
                f"The connection to PostgreSQL was lost ({normalise_error(error, 200)}).",
                hint="The next try opens another.",
            ) from error
        else:
            if not connecting:
                self._note(down=False)

    def _refusal(self) -> psycopg.OperationalError | None:
        """Ask once more outside the pool, which says only that it waited in vain, for the reason."""
        if self._down:
            return None  # told already
        try:
            psycopg.connect(self._dsn, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return error
        return None

    def _note(self, *, down: bool, detail: str = "") -> None:
        with self._state:
            changed, self._down = down != self._down, down
        if changed and down:
            _log.warning("database_unreachable", detail=detail)
        elif changed:
            _log.info("database_reachable")
