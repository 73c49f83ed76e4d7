"""Enqueue: events enqueued one by one, each committed, and by the thousand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from bench.environment import Environment
from bench.measuring import Goal, Row, rate
from relevo.client import values, verbs

_TOGETHER = 1_000
_T = TypeVar("_T")


def personal(env: Environment, of_type: str, count: int) -> list[values.Event]:
    """Make events for one phone each."""
    return [
        values.Event(of_type, str(n), "A title", "and a body", audience=[phone])
        for n, phone in enumerate(env.phones(count))
    ]


def many(conn: psycopg.Connection[Any], events: Sequence[values.Event]) -> list[int]:
    """Enqueue events by the thousand, each thousand committed; return their ids."""
    ids: list[int] = []
    for some in _by(_TOGETHER, events):
        ids += [each.event_id for each in verbs.enqueue_many(conn, some)]
    return ids


def rows(env: Environment) -> Iterator[Row]:
    """Measure both ways, and delete the events again."""
    ids: list[int] = []

    def one_by_one() -> int:
        ids.extend(verbs.enqueue(env.conn, event).event_id for event in singles)
        return len(singles)

    def together() -> int:
        ids.extend(many(env.conn, events))
        return len(events)

    singles = personal(env, "single", env.sizes.singles)
    yield rate("enqueue", "enqueue, each committed", env.meter.measure(one_by_one))
    events = personal(env, "batch", env.sizes.batched)
    goal = Goal("per_s", 10_000, "/s", at_least=True)
    yield rate("enqueue_many", "enqueue_many, 1,000 to a call", env.meter.measure(together), goal)
    for some in _by(_TOGETHER, ids):
        verbs.delete(env.conn, some)


def _by(size: int, of: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (of[start : start + size] for start in range(0, len(of), size))
