"""Events for one phone each, which is what most apps send: from enqueue to sent, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import enqueue
from bench.environment import Environment
from bench.measuring import Cost, Goal, Row, rate
from relevo.app import App
from relevo.client import quiet

_OF_PLAIN = 0.5


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
    yield rate("personal_dispatch", "· their dispatch, in chunks of many events", sent)
    yield from _under_caps(env)


def _under_caps(env: Environment) -> Iterator[Row]:
    """Measure fan-out plain, beside a cap of another project, within a cap, and above one, in turns."""
    some, costs = max(1, env.sizes.personal // 5), dict[str, Cost]()
    caps = {"plain": None, "elsewhere": (1_000, "elsewhere"), "within": (1_000, "default"), "above": (1, "default")}
    with env.worker() as built:
        for name, cap in caps.items():
            if cap is not None:
                quiet.set_cap(env.conn, cap[0], per="day", project=cap[1])
            if name == "above":  # what is measured comes second, and there is room for one
                enqueue.many(env.conn, enqueue.personal(env, "caps-first", some))
                fan_out(env, built, some)
            enqueue.many(env.conn, enqueue.personal(env, f"caps-{name}", some))
            costs[name] = env.meter.measure(partial(fan_out, env, built, some))
            if cap is not None:
                quiet.set_cap(env.conn, None, per="day", project=cap[1])
        env.drain(built)
    whats = {"elsewhere": "beside a cap of another project", "within": "within a cap", "above": "above a cap"}
    for name, what in whats.items():
        ratio = costs[name].per_s / costs["plain"].per_s
        goals = [Goal("of_plain", _OF_PLAIN, " of plain", at_least=True)] if name != "above" else []
        yield rate(f"personal_cap_{name}", f"· their fan-out {what}", costs[name], *goals, of_plain=ratio)


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
