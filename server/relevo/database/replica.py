"""Reading from a replica: lists, histories and reports that may be some seconds old.

Nothing that claims, waits or decides comes from here, and whoever reads what he just wrote asks the primary.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

import psycopg

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
_AGAIN_S = 10.0  # a replica that did not answer is not asked again before that
_CONNECT_MS = 2_000
_STATEMENT_MS = 5_000
_MARGIN_MS = 1_000  # requests of apps wait for the same threads


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What was read, and how old it is at most; of the primary it is not old at all."""

    value: T
    age_s: float | None = None


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
        self._replica = replica
        self._most_behind_s = most_behind_s
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = -math.inf
        self._age_s: float | None = None
        self._is_used: bool | None = None
        self._again_at = -math.inf

    def read(self, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs) -> Answer[T]:
        """Call a function that only reads; what the replica does not know yet, or cannot say, the primary is asked.

        Nothing, and an empty list, may be what it does not know yet.
        """
        if self._replica is not None and (age_s := self._age()) is not None:
            try:
                value = function(self._replica, *args, **kwargs)
            except DatabaseUnavailableError as error:
                self._leave(str(error))
            except (psycopg.Error, RelevoError):
                pass  # in the way of what is replayed, too slow, not migrated yet; what is wrong on both, it says
            else:
                if value:
                    return Answer(value, age_s)
        return Answer(function(self.primary, *args, **kwargs))

    def close(self) -> None:
        """Close what was opened beside the primary."""
        if self._replica is not None:
            self._replica.close()

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
        """Ask the replica how far behind it is; None if it does not answer."""
        assert self._replica is not None
        try:
            with self._replica.connection() as connection:
                row = connection.execute(_SQL["ask_age"]).fetchone()
        except (DatabaseUnavailableError, psycopg.Error) as error:
            self._leave(str(error))
            return None
        return None if row is None or row[0] is None else max(0.0, float(row[0]))

    def _leave(self, why: str, for_s: float = _AGAIN_S) -> None:
        """Read from the primary for a while, and say so once."""
        with self._lock:
            self._again_at = self._clock() + for_s
            is_news, self._is_used = self._is_used is not False, False
        if is_news:
            _log.warning("read_replica_left", why=why, hint="Lists are read from the primary meanwhile.")


def open_reader(primary: Database, settings: Settings, application_name: str, pool_size: int) -> Reader:
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


@contextmanager
def opened_reader(primary: Database, settings: Settings, application_name: str = "relevo") -> Iterator[Reader]:
    """Lend a reader for as long as a command takes."""
    reader = open_reader(primary, settings, application_name, pool_size=1)
    try:
        yield reader
    finally:
        reader.close()
