"""Bounds what tokens add to the audit log, an operator's by enqueueing: so many entries an hour of a kind, then counts.

Each action of a token is an entry of its own until the token has had its hour's share of that kind. Further ones are
counted, and one entry for each token tells the counts ten minutes later. So no flood of one kind hides another kind.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

import psycopg
import structlog

from relevo.access.api_tokens import Token
from relevo.core.errors import RelevoError
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem
from relevo.operators import audit

_log = structlog.get_logger("relevo.http")
MOST_AN_HOUR = 1_000
SUMMARY = "more_actions"
_HOUR_S, _EVERY_S, _LAST_S = 3_600.0, 600.0, 2.0


class RecordedActions:
    """Decides which actions are entries of their own, and counts all others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()  # verbs take on the threads that call the database
        self._hour = clock()
        self._written: Counter[tuple[str, str]] = Counter()
        self._untold: dict[str, Counter[str]] = {}

    def take(self, token: Token, action: str) -> bool:
        """Count an action; return whether it is an entry of its own."""
        with self._lock:
            if self._clock() - self._hour >= _HOUR_S:
                self._hour, self._written = self._clock(), Counter()
            if self._written[token.id, action] < MOST_AN_HOUR:
                self._written[token.id, action] += 1
                return True
            self._untold.setdefault(f"{token.name} ({token.id})", Counter())[action] += 1
            return False

    @contextmanager
    def bounded(self, token: Token, action: str) -> Iterator[None]:
        """Record the actions within the block as an entry of their own, or count them."""
        if token.role == "operator" or self.take(token, action):
            yield
        else:
            with audit.unrecorded():
                yield

    async def tell(self, threads: DatabaseThreads) -> None:
        """Write what was counted; a database that is away keeps it for the next time."""
        with self._lock:
            untold, self._untold = self._untold, {}
        for who, counts in untold.items():
            try:
                with audit.acting_as(who, "http"):
                    await threads.run(audit.note_more, SUMMARY, counts)
            except (Problem, RelevoError, psycopg.Error):
                _log.warning("actions_not_recorded", who=who, **counts)
                with self._lock:
                    self._untold.setdefault(who, Counter()).update(counts)

    async def tell_on(self, threads: DatabaseThreads) -> None:
        """Write what was counted every ten minutes, as long as the server runs."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.tell(threads)

    async def close(self, threads: DatabaseThreads) -> None:
        """Write what is left before the server stops, if the database answers in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.tell(threads), _LAST_S)
