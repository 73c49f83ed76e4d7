"""Fan-out over many phones with preferences: a narrow event beside a scan, a broad one beside COPY."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.environment import statements
from bench.measuring import Cost, Goal, Meter, Row, middle, rate
from bench.sizes import Sizes
from benching import fresh_database, say, timed
from relevo import app
from relevo.client import values, verbs
from relevo.runtime.runs import BUDGET, Run, RunContext

_SQL = statements(__file__)
_NARROW = values.TenderMatching(rubros=["10007919"], region="Comuna 17", text="palabra31 y nada más")
_BROAD = values.TenderMatching(tipo="LE", text="puente")


@dataclass(frozen=True)
class _Fans:
    """A worker, and a database that many phones are registered in."""

    built: app.App
    conn: psycopg.Connection[Any]
    meter: Meter
    sizes: Sizes

    def fan_out(self, event_type: str, key: str, audience: values.Matching) -> Cost:
        """Enqueue an event and measure the cycle's steps until it is through, per delivery."""
        event_id = verbs.enqueue(self.conn, values.Event(event_type, key, "x", audience=audience)).event_id
        context = RunContext(0, "fanout", "", "manual", "bench", None, datetime.now(UTC))
        run = Run(context, self.built.settings, self.built.database, BUDGET, None, None, threading.Event())
        cost = self.meter.measure(lambda: self._step_through(run))
        status = verbs.get(self.conn, event_id)
        assert status is not None
        return replace(cost, count=status.raw["deliveries_created"])

    def _step_through(self, run: Run) -> int:
        step = self.built.registry["fanout"].step
        while not (done := step(run).counts.get("events_fanned_out", 0)):
            pass
        return done

    def empty(self) -> None:
        """Forget what was made, and let the server write it out."""
        self.conn.execute(_SQL["forget_deliveries"])
        self.conn.execute(_SQL["settle_down"])


def rows(sizes: Sizes) -> Iterator[Row]:
    """Load the phones and measure both kinds of events."""
    with fresh_database(sources="none") as (dsn, settings), psycopg.connect(dsn, autocommit=True) as conn:
        say(f"  loading {sizes.installations:,} installations with preferences …")
        conn.execute(_SQL["load_installations"], {"installations": sizes.installations})
        conn.execute(_SQL["load_preferences"], {})
        conn.execute(_SQL["refresh"])
        with app.build(settings, role="run-cycle") as built:
            fans = _Fans(built, conn, Meter(conn), sizes)
            yield narrow(fans)
            yield broad(fans)
            yield quiet(fans)


def narrow(fans: _Fans) -> Row:
    """Time an event that few asked for, and what it would take to look at all preferences."""
    for n in range(2):
        fans.fan_out("narrow", f"warm {n}", _NARROW)
    costs = [fans.fan_out("narrow", str(n), _NARROW) for n in range(fans.sizes.narrow)]
    took_ms = statistics.median(cost.seconds for cost in costs) * 1_000
    scan_ms = timed(lambda: fans.conn.execute(_SQL["scan_all"]).fetchone()) * 1_000
    spent_ms = [cost.worker_ms + cost.postgres_ms for cost in costs]
    more = {"ms": took_ms, "cpu_ms_per_event": statistics.mean(spent_ms), "times_a_scan": scan_ms / took_ms}
    what = f"a narrow event: {costs[0].count:,} of {fans.sizes.installations:,} phones"
    said = f"{took_ms:.1f} ms: a scan takes {scan_ms / took_ms:.0f} x"
    return Row("narrow", what, said, _sum(costs), more, [Goal("ms", 4, "ms")])


def _sum(costs: Sequence[Cost]) -> Cost:
    """Return what many small measurements come to: one is shorter than a tick."""
    parts = ((c.count, c.seconds, c.worker_ms, c.postgres_ms, c.wal_bytes) for c in costs)
    count, *rest = (sum(column) for column in zip(*parts, strict=True))
    return Cost(int(count), *rest)


def broad(fans: _Fans) -> Row:
    """Measure an event that half of all phones asked for, and COPY of the same rows into the same table."""
    costs, copies = [], []
    for n in range(fans.sizes.broad):
        fans.empty()
        costs.append(fans.fan_out("broad", str(n), _BROAD))
        with fans.conn.cursor() as cursor, cursor.copy(_SQL["copy_out"]) as out:
            copied = [bytes(block) for block in out]
        fans.empty()
        started = time.perf_counter()
        _copy_in(fans.conn, copied)
        copies.append(costs[-1].count / (time.perf_counter() - started))
    cost = middle(costs)
    ratio = cost.per_s / statistics.median(copies)
    row = rate("broad", f"a broad event: {cost.count:,} deliveries in slices", cost, of_copy=ratio)
    return replace(row, said=f"{row.said}: {ratio:.2f} x COPY")


def quiet(fans: _Fans) -> Row:
    """Measure a broad event of whose phones a tenth have quiet hours, beside one before any has."""
    without = [_alone(fans, f"plain {n}") for n in range(2 * fans.sizes.broad + 1)]
    fans.conn.execute(_SQL["make_quiet_hours"])
    fans.conn.execute(_SQL["give_quiet_hours"], {})
    fans.conn.execute(_SQL["tidy_phones"])
    with_hours = [_alone(fans, f"quiet {n}") for n in range(2 * fans.sizes.broad + 1)]
    spent = [min((c.worker_ms + c.postgres_ms) / c.count for c in costs) for costs in (with_hours, without)]
    times, cost = spent[0] / spent[1], middle(with_hours)
    goal = Goal("times_the_cpu", 1.15, "x")
    row = rate("quiet", "a broad event, a tenth of its phones in quiet hours", cost, goal, times_the_cpu=times)
    return replace(row, said=f"{row.said}: {times:.2f} x the CPU of one without")


def _alone(fans: _Fans, key: str) -> Cost:
    fans.empty()
    return fans.fan_out("broad", key, _BROAD)


def _copy_in(conn: psycopg.Connection[Any], copied: list[bytes]) -> None:
    with conn.cursor() as cursor, cursor.copy(_SQL["copy_in"]) as into:
        for start in range(0, len(copied), 1_000):
            into.write(b"".join(copied[start : start + 1_000]))
