"""How long somebody waits: from a commit to the POST while all is quiet, and urgent ones beside much bulk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg

from bench.environment import Environment, relevo_run, statements
from bench.measuring import Goal, Row, latency
from relevo.client import values, verbs
from relevo.sandbox import Sandbox

_SQL = statements(__file__)
_CYCLES = "reaper,fanout,dispatch"
_FIRST_EVENT = 5_000_000_000
_WARM = 3
_UNTIL_IDLE_S = 0.4
_UNTIL_ASLEEP_S = 2.0  # longer than a run stays for more
_ASLEEP_SHARE = 5
_BETWEEN_URGENT_S = 0.05
_PATIENCE_S = 60.0


def wakeups(env: Environment) -> Iterator[Row]:
    """Time the way of an event to a phone, each to another: one that got many is weighed; and of a plain NOTIFY."""
    few = max(1, env.sizes.wakeups // _ASLEEP_SHARE)
    phones = iter(env.phones(_WARM + env.sizes.wakeups + few))
    arrived: list[float] = []
    with (
        Sandbox(rate_per_s=0, tell=lambda _line: arrived.append(time.perf_counter())) as sandbox,
        relevo_run(env.dsn, sandbox.url, worker_cycles=_CYCLES) as worker,
    ):
        for _ in range(_WARM):
            _wake_once(env, next(phones), _UNTIL_ASLEEP_S, arrived)
        finish = env.meter.begin(worker.pid)
        waits = [_wake_once(env, next(phones), _UNTIL_IDLE_S, arrived) for _ in range(env.sizes.wakeups)]
        cost, finish = finish(len(waits)), env.meter.begin(worker.pid)
        asleep = [_wake_once(env, next(phones), _UNTIL_ASLEEP_S, arrived) for _ in range(few)]
        cost_asleep = finish(few)
    goals = Goal("p50_ms", 10, "ms p50"), Goal("p99_ms", 40, "ms p99")
    yield latency("wakeup", f"commit to POST, {_UNTIL_IDLE_S:g} s after the last", waits, *goals, cost=cost)
    yield latency("asleep", f"commit to POST, {_UNTIL_ASLEEP_S:g} s after the last", asleep, cost=cost_asleep)
    yield latency("notify", "a plain NOTIFY, for comparison", _notify(env.dsn, env.sizes.wakeups))


def _wake_once(env: Environment, phone: UUID, after_s: float, arrived: list[float]) -> float:
    """Enqueue one event for one phone, a while after the last; return the milliseconds until its POST arrived."""
    time.sleep(after_s)
    arrived.clear()
    verbs.enqueue(env.conn, values.Event("bench.wake", str(uuid4()), "Wake up", audience=[phone]))
    committed = time.perf_counter()
    while not arrived:
        assert time.perf_counter() < committed + _PATIENCE_S, "nobody woke up"
        time.sleep(0.0005)
    return (arrived[0] - committed) * 1_000


def _notify(dsn: str, rounds: int) -> list[float]:
    took = []
    with psycopg.connect(dsn, autocommit=True) as hears, psycopg.connect(dsn, autocommit=True) as calls:
        hears.execute("listen relevo_bench")
        for _ in range(rounds):
            calls.execute("notify relevo_bench")
            called = time.perf_counter()
            list(hears.notifies(timeout=5, stop_after=1))
            took.append((time.perf_counter() - called) * 1_000)
    return took


def urgent(env: Environment) -> Iterator[Row]:
    """Queue much bulk, and time urgent events that come while it is sent."""
    sizes = env.sizes
    queue_bulk(env, _FIRST_EVENT)
    [phone] = env.phones(1)
    with relevo_run(env.dsn, env.url, worker_cycles=_CYCLES) as worker:
        await_first(env)
        alone = bulk_rate(env, lambda: time.sleep(sizes.urgent * _BETWEEN_URGENT_S))
        finish, before = env.meter.begin(worker.pid), _sent(env)
        beside = bulk_rate(env, lambda: _overtake(env, phone))
        waits = _waits(env)
        cost = finish(_sent(env) - before + len(waits))
    env.forget_open()
    goal = Goal("p50_ms", 150, "ms p50")
    yield latency("urgent", f"urgent beside {sizes.bulk:,} bulk, to the settled push", waits, goal, cost=cost)
    share = beside / alone if alone else 0.0
    what = "bulk meanwhile, of its rate alone"
    yield Row("bulk", what, f"{share:.2f} x", None, {"share": share})


def queue_bulk(env: Environment, first_event: int) -> None:
    """Queue much bulk, as fan-out does, of events that are numbered from there."""
    bulk = {"event": first_event, "rounds": max(1, env.sizes.bulk // env.sizes.phones)}
    env.conn.execute(_SQL["queue_events"], bulk)
    env.conn.execute(_SQL["queue_bulk"], bulk)


def await_first(env: Environment) -> None:
    """Wait until some of it was sent."""
    before, deadline = _sent(env), time.monotonic() + _PATIENCE_S
    while _sent(env) == before:
        assert time.monotonic() < deadline, "nothing was sent"
        time.sleep(0.05)


def _waits(env: Environment) -> list[float]:
    """Wait for the last urgent event; return how many milliseconds each one waited."""
    deadline = time.monotonic() + _PATIENCE_S
    while len(rows := env.conn.execute(_SQL["urgent_waits"]).fetchall()) < env.sizes.urgent:
        assert time.monotonic() < deadline, f"only {len(rows)} of {env.sizes.urgent} urgent events were sent"
        time.sleep(0.2)
    return [row[0] for row in rows]


def _overtake(env: Environment, phone: UUID) -> None:
    for n in range(env.sizes.urgent):
        verbs.enqueue(env.conn, values.Event("bench.urgent", str(n), "Now", audience=[phone], lane="urgent"))
        time.sleep(_BETWEEN_URGENT_S)


def bulk_rate(env: Environment, meanwhile: Callable[[], None]) -> float:
    """Return how many bulk deliveries a second are sent while something else is done."""
    before, started = _sent(env), time.perf_counter()
    meanwhile()
    return (_sent(env) - before) / (time.perf_counter() - started)


def _sent(env: Environment) -> int:
    row = env.conn.execute(_SQL["count_sent"]).fetchone()
    return int(row[0]) if row else 0
