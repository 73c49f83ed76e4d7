"""A source context in memory: what the ingest cycle lends a source, with a clock that is turned instead of waited for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from relevo import config
from relevo.config import Settings
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import NoRequestsLeft, OutOfTime, Source
from relevo.sources.merging import merge

FIXTURES = Path(__file__).parents[1] / "sources" / "fixtures"
NOON = datetime(2026, 2, 9, 15, 0, tzinfo=UTC)


def settings_for(**values: object) -> Settings:
    """Make settings that may reach loopback."""
    given = {"HTTP_ALLOW_PRIVATE": "true", "HTTP_TIMEOUT_MS": "2000"}
    return config.load(given | {name.upper(): str(value) for name, value in values.items()}, None)


class MemorySourceContext:
    """Keeps items, rejects and quotas; `commit` does with an answer what the ingest cycle does."""

    def __init__(self, now: datetime = NOON) -> None:
        self.time = now
        self.items: dict[tuple[str, str], Item] = {}
        self.rejects: dict[str, Reject] = {}
        self.due: set[str] = set()
        self.cursor: Mapping[str, Any] = {}
        self.turns: list[tuple[str, datetime]] = []
        self.paces: dict[str, int] = {}
        self.not_before: dict[str, datetime] = {}
        self.requests_left: int | None = None
        self.turns_left: int | None = None
        """How many requests fit into this run's time."""
        self.log: list[Fetched] = []

    def now(self) -> datetime:
        """Return the time of the turned clock."""
        return self.time

    def seconds(self) -> float:
        """Return the same time as a number, for a server that measures the distance of requests."""
        return self.time.timestamp()

    def known(self, namespace: str, external_ids: Sequence[str]) -> Mapping[str, str]:
        """Return stored fingerprints."""
        keys = [(namespace, external_id) for external_id in external_ids]
        return {key[1]: self.items[key].fingerprint for key in keys if key in self.items}

    def take_turn(self, quota: str, *, pace_ms: int, daily_limit: int) -> None:
        """Turn the clock to the quota's next turn."""
        today = [turn for turn in self.turns if turn[0] == quota and turn[1].date() == self.time.date()]
        if self.requests_left == 0 or len(today) >= daily_limit:
            raise NoRequestsLeft("today's requests are spent")
        if self.turns_left == 0:
            raise OutOfTime("this run's time is over")
        if self.requests_left is not None:
            self.requests_left -= 1
        if self.turns_left is not None:
            self.turns_left -= 1
        pace = self.paces.setdefault(quota, pace_ms)
        self.time = max(self.time, self.not_before.get(quota, self.time))
        self.not_before[quota] = self.time + timedelta(milliseconds=pace)
        self.turns.append((quota, self.time))

    def slow_down(self, quota: str, *, pace_ms: int, pause_ms: int = 0) -> None:
        """Set the pace, and the earliest next turn."""
        self.paces[quota] = pace_ms
        pause = self.time + timedelta(milliseconds=pause_ms)
        self.not_before[quota] = max(self.not_before.get(quota, pause), pause)

    def pace_ms(self, quota: str, default_ms: int) -> int:
        """Return the quota's pace."""
        return self.paces.get(quota, default_ms)

    def rejects_due(self, limit: int) -> Sequence[Reject]:
        """Return the rejects a test made due."""
        return [self.rejects[place] for place in sorted(self.due) if place in self.rejects][:limit]

    def commit(self, fetched: Fetched) -> Fetched:
        """Keep an answer, its cursor through JSON and back, as a database would."""
        assert len({(item.namespace, item.external_id) for item in fetched.items}) == len(fetched.items)
        for item in fetched.items:
            key = (item.namespace, item.external_id)
            self.items[key] = merge(self.items[key], item) if key in self.items else item
        for reject in fetched.rejects:
            self.rejects[reject.place] = reject
            self.due.discard(reject.place)
        for place in fetched.resolved:
            self.rejects.pop(place, None)
            self.due.discard(place)
        self.cursor = json.loads(json.dumps(fetched.cursor))
        self.log.append(fetched)
        return fetched

    def step(self, source: Source) -> Fetched:
        """Fetch one batch and keep it."""
        return self.commit(source.fetch(self.cursor, self))

    def run(self, source: Source, most: int = 100) -> list[Fetched]:
        """Fetch until there is no more at once, as one run of the ingest cycle does."""
        answers = [self.step(source)]
        while answers[-1].more and answers[-1].outcome in ("ok", "unchanged"):
            assert len(answers) < most, "a pass must end"
            answers.append(self.step(source))
        return answers

    def codes(self) -> set[str]:
        """Return the names of all stored items."""
        return {external_id for _, external_id in self.items}
