"""How long somebody waits: from a commit to the POST while all is quiet, and urgent ones beside much bulk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg

from bench.measuring import Goal, Row, latency
from bench.stand import Stand, relevo_run, statements
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


def wakeups(stand: Stand) -> Iterator[Row]:
    """Time the way of an event to a phone, each to another: one that got many is weighed; and of a plain NOTIFY."""
    few = max(1, stand.sizes.wakeups // _ASLEEP_SHARE)
    phones = iter(stand.phones(_WARM + stand.sizes.wakeups + few))
    arrived: list[float] = []
    with (
        Sandbox(rate_per_s=0, tell=lambda _line: arrived.append(time.perf_counter())) as sandbox,
        relevo_run(stand.dsn, sandbox.url, worker_cycles=_CYCLES) as worker,
    ):
        for _ in range(_WARM):
            _wake_once(stand, next(phones), _UNTIL_ASLEEP_S, arrived)
        finish = stand.meter.begin(worker.pid)
        waits = [_wake_once(stand, next(phones), _UNTIL_IDLE_S, arrived) for _ in range(stand.sizes.wakeups)]
        cost, finish = finish(len(waits)), stand.meter.begin(worker.pid)
        asleep = [_wake_once(stand, next(phones), _UNTIL_ASLEEP_S, arrived) for _ in range(few)]
        cost_asleep = finish(few)
    goals = Goal("p50_ms", 10, "ms p50"), Goal("p99_ms", 40, "ms p99")
    yield latency("wakeup", f"commit to POST, {_UNTIL_IDLE_S:g} s after the last", waits, *goals, cost=cost)
    yield latency("asleep", f"commit to POST, {_UNTIL_ASLEEP_S:g} s after the last", asleep, cost=cost_asleep)
    yield latency("notify", "a plain NOTIFY, for comparison", _notify(stand.dsn, stand.sizes.wakeups))


def _wake_once(stand: Stand, phone: UUID, after_s: float, arrived: list[float]) -> float:
    """Enqueue one event for one phone, a while after the last; return the milliseconds until its POST arrived."""
    time.sleep(after_s)
    arrived.clear()
    verbs.enqueue(stand.conn, values.Event("bench.wake", str(uuid4()), "Wake up", audience=[phone]))
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


def urgent(stand: Stand) -> Iterator[Row]:
    """Queue much bulk, and time urgent events that come while it is sent."""
    sizes = stand.sizes
    queue_bulk(stand, _FIRST_EVENT)
    [phone] = stand.phones(1)
    with relevo_run(stand.dsn, stand.url, worker_cycles=_CYCLES) as worker:
        await_first(stand)
        alone = bulk_rate(stand, lambda: time.sleep(sizes.urgent * _BETWEEN_URGENT_S))
        finish, before = stand.meter.begin(worker.pid), _sent(stand)
        beside = bulk_rate(stand, lambda: _overtake(stand, phone))
        waits = _waits(stand)
        cost = finish(_sent(stand) - before + len(waits))
    stand.forget_open()
    goal = Goal("p50_ms", 150, "ms p50")
    yield latency("urgent", f"urgent beside {sizes.bulk:,} bulk, to the settled push", waits, goal, cost=cost)
    share = beside / alone if alone else 0.0
    what = "bulk meanwhile, of its rate alone"
    yield Row("bulk", what, f"{share:.2f} x", None, {"share": share})


def queue_bulk(stand: Stand, first_event: int) -> None:
    """Queue much bulk, as fan-out does, of events that are numbered from there."""
    bulk = {"event": first_event, "rounds": max(1, stand.sizes.bulk // stand.sizes.phones)}
    stand.conn.execute(_SQL["queue_events"], bulk)
    stand.conn.execute(_SQL["queue_bulk"], bulk)


def await_first(stand: Stand) -> None:
    """Wait until some of it was sent."""
    before, deadline = _sent(stand), time.monotonic() + _PATIENCE_S
    while _sent(stand) == before:
        assert time.monotonic() < deadline, "nothing was sent"
        time.sleep(0.05)


def _waits(stand: Stand) -> list[float]:
    """Wait for the last urgent event; return how many milliseconds each one waited."""
    deadline = time.monotonic() + _PATIENCE_S
    while len(rows := stand.conn.execute(_SQL["urgent_waits"]).fetchall()) < stand.sizes.urgent:
        assert time.monotonic() < deadline, f"only {len(rows)} of {stand.sizes.urgent} urgent events were sent"
        time.sleep(0.2)
    return [row[0] for row in rows]


def _overtake(stand: Stand, phone: UUID) -> None:
    for n in range(stand.sizes.urgent):
        verbs.enqueue(stand.conn, values.Event("bench.urgent", str(n), "Now", audience=[phone], lane="urgent"))
        time.sleep(_BETWEEN_URGENT_S)


def bulk_rate(stand: Stand, meanwhile: Callable[[], None]) -> float:
    """Return how many bulk deliveries a second are sent while something else is done."""
    before, started = _sent(stand), time.perf_counter()
    meanwhile()
    return (_sent(stand) - before) / (time.perf_counter() - started)


def _sent(stand: Stand) -> int:
    row = stand.conn.execute(_SQL["count_sent"]).fetchone()
    return int(row[0]) if row else 0
