"""Reading from a replica: lists, histories and reports that may be some seconds old.

Nothing that claims, waits or decides comes from here, and whoever reads what he just wrote asks the primary. A server
that is no standby of the primary's own database is not read from, whatever its address is called.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.rows import class_row

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, RelevoError
from relevo.core.logs import get_logger
from relevo.database.pool import Database

P = ParamSpec("P")
T = TypeVar("T")
_SQL = queries.load("replica")
_log = get_logger("relevo.database.replica")
_KNOWN_FOR_S = 1.0
_HOME_FOR_S = 60.0  # DATABASE_URL may lead to another server by then, as after a restore
_AGAIN_S = 10.0  # a replica that did not answer is not asked again before that
_CONNECT_MS = 2_000
_STATEMENT_MS = 5_000
_MARGIN_MS = 1_000  # requests of apps wait for the same threads
_CATCH_UP_S = 1.0
_POLL_S = 0.02


@dataclass(frozen=True)
class ReadResult(Generic[T]):
    """Rows that were read, and their age at most; rows of the primary have no age."""

    value: T
    age_s: float | None = None


class Server(NamedTuple):
    """A server's facts about itself: the identity of its database, and the age of its newest change."""

    system_identifier: str | None
    """None where this role may not read it."""
    database_oid: int
    recorded_at: datetime | None
    """When it was recorded where the database belongs; a copy that was adopted differs in it."""
    is_standby: bool
    age_s: float | None

    def differs_from(self, primary: Server) -> str:
        """Return why this is not a replica of the primary's database; nothing if it is one."""
        here, there = self.system_identifier, primary.system_identifier
        if here is not None and there is not None and here != there:
            return f"it is server {here}, and DATABASE_URL leads to server {there}"
        if self.database_oid != primary.database_oid:
            return f"it is database {self.database_oid} of its server, and DATABASE_URL leads to {primary.database_oid}"
        if self.recorded_at != primary.recorded_at:
            return "it is a copy of the database of DATABASE_URL that was adopted"
        return "" if self.is_standby else "it takes writes: it is the primary itself, or a server on its own"


def ask(database: Database) -> Server:
    """Ask a server what it is; Aurora does not say when a change was made, and is as old as a worker's sign in it."""
    try:
        return _ask(database, "ask_server")
    except pg.FeatureNotSupported:
        return _ask(database, "ask_server_by_beats")


def _ask(database: Database, statement: str) -> Server:
    with database.connection() as connection, connection.cursor(row_factory=class_row(Server)) as cursor:
        found = cursor.execute(_SQL[statement]).fetchone()
    assert found is not None  # a session is in a database
    return found


def bytes_behind(primary: Database, replica: Database) -> float | None:
    """Return how many bytes that the primary has written the replica has yet to replay; None if that is not told."""
    try:
        position = primary.execute(_SQL["ask_position"]).fetchone()
        return None if position is None else _behind(replica, position[0])
    except psycopg.Error:  # Aurora does not tell
        return None


def _behind(replica: Database, position: str) -> float | None:
    row = replica.execute(_SQL["ask_behind"], {"position": position}).fetchone()
    return None if row is None or row[0] is None else max(0.0, row[0])


def said(error: Exception) -> str:
    """Return in a clause why a replica cannot be asked."""
    if isinstance(error, (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.InsufficientPrivilege)):
        return "it has no tables of Relevo that this role may read"
    return str(error)


class Reader:
    """Reads from the replica while it is there and close enough behind, else from the primary."""

    def __init__(
        self,
        primary: Database,
        replica: Database | None = None,
        *,
        most_behind_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.primary = primary
        self.replica = replica
        self._most_behind_s = most_behind_s
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = -math.inf
        self._age_s: float | None = None
        self._is_used: bool | None = None
        self._again_at = -math.inf
        self._home: Server | None = None
        self._home_until = -math.inf

    def read(
        self, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ReadResult[T]:
        """Call a function that only reads; what the replica does not know yet, or cannot say, the primary is asked.

        Nothing, and an empty list, may be what it does not know yet.
        """
        if self.replica is not None and (age_s := self._age()) is not None:
            try:
                value = function(self.replica, *args, **kwargs)
            except DatabaseUnavailableError as error:
                self._leave(str(error))
            except (psycopg.Error, RelevoError):
                pass  # in the way of what is replayed, too slow, not migrated yet; what is wrong on both, it says
            else:
                if value:
                    return ReadResult(value, age_s)
        return ReadResult(function(self.primary, *args, **kwargs))

    def catch_up(self) -> None:
        """Wait a moment until the replica has all that was acknowledged before; else let the primary be read."""
        if self.replica is None or self._age() is None:
            return
        until = self._clock() + _CATCH_UP_S
        try:
            position = self.primary.execute(_SQL["ask_position"]).fetchone()
            assert position is not None
            while (behind := _behind(self.replica, position[0])) is None or behind > 0:
                if behind is None or self._clock() > until:
                    self._again_at = self._clock() + _AGAIN_S
                    return
                time.sleep(_POLL_S)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            self._leave(said(error))

    def close(self) -> None:
        """Close what was opened beside the primary."""
        if self.replica is not None:
            self.replica.close()

    def _age(self) -> float | None:
        """Return how old the replica's newest change is; None while it is not to be read from."""
        with self._lock:
            now = self._clock()
            if now < self._again_at:
                return None
            if now - self._looked_at < _KNOWN_FOR_S:
                return self._age_s
            self._looked_at, self._age_s = now, None  # others do not wait for this look
        age_s = self._look()
        if age_s is not None and age_s > self._most_behind_s:
            self._leave(f"it is {age_s:.0f} s behind", for_s=_KNOWN_FOR_S)
            return None
        if age_s is not None:
            with self._lock:
                self._age_s = age_s
                is_news, self._is_used = self._is_used is False, True
            if is_news:
                _log.info("read_replica_used_again", behind_s=round(age_s, 1))
        return age_s

    def _look(self) -> float | None:
        """Ask the replica how far behind it is; None if it does not answer, or is no replica of this database."""
        assert self.replica is not None
        try:
            found = ask(self.replica)
            if self._home is None or found.differs_from(self._home) or self._clock() > self._home_until:
                self._home = self._ask_home()  # it may have been adopted since
        except (DatabaseUnavailableError, psycopg.Error) as error:
            self._leave(said(error))
            return None
        if why := found.differs_from(self._home):
            self._leave(why)
            return None
        return None if found.age_s is None else max(0.0, found.age_s)

    def _ask_home(self) -> Server:
        """Ask the primary what it is; while it is not there it is what it was."""
        self._home_until = self._clock() + _HOME_FOR_S
        try:
            return ask(self.primary)
        except DatabaseUnavailableError:
            if self._home is None:
                raise
            return self._home

    def _leave(self, why: str, for_s: float = _AGAIN_S) -> None:
        """Read from the primary for a while, and say so once."""
        with self._lock:
            self._again_at = self._clock() + for_s
            is_news, self._is_used = self._is_used is not False, False
        if is_news:
            _log.warning("read_replica_not_used", why=why, hint="Relevo reads lists from the primary until then.")


def open_reader(primary: Database, settings: Settings, application_name: str = "relevo", pool_size: int = 1) -> Reader:
    """Return a reader of the primary, and of the replica that DATABASE_READ_URL names, if there is one."""
    if settings.database_read_url is None:
        return Reader(primary)
    url = settings.database_read_url
    impatient = settings.model_copy(
        update={
            "database_connect_timeout_ms": min(_CONNECT_MS, settings.database_connect_timeout_ms),
            "database_statement_timeout_ms": min(_STATEMENT_MS, settings.database_statement_timeout_ms),
            "database_answer_margin_ms": min(_MARGIN_MS, settings.database_answer_margin_ms),
        }
    )
    replica = Database(url, url, impatient, application_name, pool_size=pool_size, bounds_all=True)
    replica.logs_outages = False  # the reader says it
    return Reader(primary, replica, most_behind_s=settings.database_read_max_lag_ms / 1000)
