"""Events for one phone each, which is what most apps send: from enqueue to sent, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from bench import enqueue
from bench.environment import Environment
from bench.measuring import Cost, Goal, Row, rate
from relevo.app import App


def rows(env: Environment) -> Iterator[Row]:
    """Measure the steps one after the other, and say what they come to."""
    events = enqueue.personal(env, "personal", env.sizes.personal)
    with env.worker() as built:
        enqueued = env.meter.measure(lambda: len(enqueue.many(env.conn, events)))
        fanned = env.meter.measure(lambda: fan_out(env, built, len(events)))
        sent = env.drain(built)
    assert sent.count >= len(events)
    yield rate("personal", "one-phone events, enqueue to sent", _sum(enqueued, fanned, sent))
    goal = Goal("per_s", 5_000, "/s", at_least=True)
    yield rate("personal_fanout", "· their fan-out", fanned, goal)
    yield rate("personal_dispatch", "· their dispatch, a chunk each", sent)


def fan_out(env: Environment, built: App, events: int) -> int:
    """Fan out so many events for one phone each."""
    made = 0
    while made < events:
        some = env.run(built, built.registry["fanout"], "deliveries_created")
        assert some, f"only {made} of {events} were fanned out"
        made += some
    return made


def _sum(*steps: Cost) -> Cost:
    """Return what steps come to that the same events went through."""
    return Cost(
        steps[0].count,
        sum(step.seconds for step in steps),
        sum(step.worker_ms for step in steps),
        sum(step.postgres_ms for step in steps),
        sum(step.wal_bytes for step in steps),
    )
