"""The end of a night: what waited for quiet hours goes out at the project's rate, and urgent pushes pass it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import relevo
from bench.environment import Environment, relevo_run, statements
from bench.measuring import Cost, Goal, Row, latency
from benching import say
from relevo.client import values, verbs

_SQL = statements(__file__)
_CYCLES = "reaper,fanout,dispatch"
_TYPE = "bench.night"
_RATE = 2_000
_SPREAD_S = 60
_BEFORE_S = 3.0
_BETWEEN_URGENT_S = 0.25
_PATIENCE_S = 120.0
_WINDOW_S = 5


def rows(env: Environment) -> Iterator[Row]:
    """Queue many pushes for the morning, begin it, and return what was sent when."""
    _fall_asleep(env)
    due = _wake_up(env)
    cost = _send(env, len(due))
    sent = [row[0] for row in env.conn.execute(_SQL["list_sent"], {"type": _TYPE}).fetchall()]
    waits = [row[0] for row in env.conn.execute(_SQL["urgent_waits"]).fetchall()]
    relevo.set_quiet(env.conn, None, project="default")
    what = f"urgent beside {len(due):,} that waited for the morning, to the settled push"
    yield latency("morning_urgent", what, waits, Goal("p50_ms", 150, "ms p50"), cost=cost)
    yield _in_time(due, sent)


def _fall_asleep(env: Environment) -> None:
    """Fan out events for everyone while it is night."""
    sizes, spread_s = env.sizes, min(_SPREAD_S, env.sizes.night // 100)
    env.conn.execute(_SQL["spread_type"], {"type": _TYPE, "spread_s": spread_s})
    relevo.set_quiet(env.conn, [_hours_around(datetime.now(UTC))], project="default", zone="UTC")
    with env.worker() as built:
        for n in range(max(1, sizes.night // sizes.phones)):
            verbs.enqueue(env.conn, values.Event(_TYPE, str(n), "While you slept", audience="everyone"))
            env.run(built, built.registry["fanout"], "deliveries_created")
    say(f"  {_count_waiting(env):,} wait …")


def _hours_around(at: datetime) -> str:
    """Return a window of four hours that a moment is in the middle of."""
    begin, end = (f"{at + timedelta(hours=hours):%H:%M}" for hours in (-2, 2))
    return f"{begin}-{end}"


def _wake_up(env: Environment) -> list[float]:
    """End the night in a moment; return when each push is due."""
    relevo.set_quiet(env.conn, [_hours_around(datetime.now(UTC) + timedelta(hours=6))], project="default", zone="UTC")
    env.conn.execute(_SQL["end_the_night"], {"type": _TYPE, "in_s": _BEFORE_S})
    return [row[0] for row in env.conn.execute(_SQL["list_due"], {"type": _TYPE}).fetchall()]


def _send(env: Environment, many: int) -> Cost:
    """Send them by a worker, and enqueue urgent events meanwhile."""
    [phone] = env.phones(1)
    urgent, deadline = 0, time.monotonic() + many / _RATE + _SPREAD_S + _PATIENCE_S
    with relevo_run(env.dsn, env.url, worker_cycles=_CYCLES, push_rate_per_second=_RATE) as worker:
        time.sleep(_BEFORE_S)
        finish = env.meter.begin(worker.pid)
        while waiting := _count_waiting(env):
            assert time.monotonic() < deadline, f"{waiting:,} still wait"
            event = values.Event("bench.urgent", f"morning {urgent}", "Now", audience=[phone], lane="urgent")
            verbs.enqueue(env.conn, event)
            urgent += 1
            time.sleep(_BETWEEN_URGENT_S)
        return finish(many + urgent)


def _in_time(due: Sequence[float], sent: Sequence[float]) -> Row:
    """Return whether the rate held, and the whole time beside that of due times and rate."""
    busiest = max(Counter(int(at / _WINDOW_S) for at in sent).values()) / (_RATE * _WINDOW_S)
    begin = min(due)
    took_s, explained_s = max(sent) - begin, max(_explained(due)) - begin
    what = f"{len(sent):,} that waited for the morning, at {_RATE:,}/s"
    times = took_s / explained_s
    said = f"{took_s:.0f} s: {times:.2f} x what spread and rate explain; busiest {_WINDOW_S} s {busiest:.2f} x the rate"
    more = {"seconds": took_s, "times_explained": times, "busiest": busiest}
    return Row(
        "morning", what, said, None, more, (Goal("times_explained", 1.05, "x"), Goal("busiest", 1.05, "x the rate"))
    )


def _explained(due: Sequence[float]) -> Iterator[float]:
    """Yield when each would be sent if the rate were the only limit."""
    at = 0.0
    for each in sorted(due):
        at = max(each, at + 1 / _RATE)
        yield at


def _count_waiting(env: Environment) -> int:
    row = env.conn.execute(_SQL["count_waiting"], {"type": _TYPE}).fetchone()
    return int(row[0]) if row else 0
