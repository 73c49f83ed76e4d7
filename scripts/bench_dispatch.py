"""Dispatch against the sandbox: ours, the seed's algorithm, an unguarded loop, peers, and wake-ups."""

from __future__ import annotations

import argparse
import gc
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import requests

from benching import fresh_database, publish, say
from relevo import app, config, door, logs, queries
from relevo.config import Settings
from relevo.delivery.claims import Claim, Claims
from relevo.model import Answer, Delivery, Lane, PushRequest, Settlement, Shard, Verdict
from relevo.sandbox import Sandbox

_SQL = queries.Statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_RELEVO = Path(sys.executable).with_name("relevo")
_LIFTED = {"push_rate_per_second": 0}
_PER_CHUNK = 100


class Bare(Claims):
    """The ceiling: a loop that takes chunks off the queue, sends them, and writes the rows, without any guard.

    A chunk is gone once it is taken: there is no claim, no lease and no heartbeat that could give it back. Nothing is
    journalled, so that nobody would know what was on its way, and nothing is looked at again before the request. Rows
    are written by their key alone, whoever wrote them since. No receipt is awaited, and nothing is counted: neither an
    event's progress nor what the brakes look at. Choosing a project, its rate, rendering and HTTP are the same.
    """

    def claim(
        self,
        cycle: str,
        project: str,
        lane: Lane,
        *,
        limit: int | None = None,
        shard: Shard | None = None,  # noqa: ARG002
        now: datetime | None = None,
        probe: bool = False,  # noqa: ARG002
    ) -> Claim | None:
        """Take the next chunks in the order of the queue, and look where their deliveries go."""
        chunks = max(1, (limit or self._settings.outbox_batch_size) // _PER_CHUNK)
        asked = {"project": project, "lane": lane, "chunks": chunks, "now": now}
        with self._transaction("bound_relaxed") as connection:
            rows = connection.execute(_SQL["bare_take"], asked).fetchall()
        if not rows:
            return None
        return Claim(uuid4(), cycle, project, 60_000, tuple(Delivery._make(row) for row in rows))

    def journal(self, claim: Claim, wave: Sequence[PushRequest], now: datetime | None = None) -> list[Verdict]:  # noqa: ARG002
        """Write nothing down."""
        return [Verdict(d.event_day, d.id, "send", None) for request in wave for d in request.deliveries]

    def settle(
        self,
        claim: Claim,  # noqa: ARG002
        answers: Sequence[Answer],
        requests: Mapping[UUID, str] | Sequence[UUID] = (),  # noqa: ARG002
        now: datetime | None = None,
        **_more: Any,
    ) -> Settlement:
        """Write outcomes by key alone."""
        written = {
            "days": [answer.event_day for answer in answers],
            "ids": [answer.id for answer in answers],
            "tickets": [answer.ticket_id for answer in answers],
            "now": now,
        }
        assert all(answer.status == "sent" for answer in answers), "the ceiling knows of nothing but success"
        with self._transaction() as connection:
            return Settlement({"sent": connection.execute(_SQL["bare_write"], written).rowcount})

    def release(self, claim: Claim, now: datetime | None = None, *, lapsed: bool = False) -> Counter[str]:  # noqa: ARG002
        """Hand nothing back."""
        return Counter()


@contextmanager
def sandbox_process() -> Iterator[str]:
    """Serve a sandbox without limits in a process of its own."""
    arguments = [str(_RELEVO), "sandbox", "--port", "0", "--rate", "0", "--keep-messages", "0", "--quiet"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://[\w.]+:\d+", line)))
        finally:
            process.terminate()


def settings_for(dsn: str, url: str, **more: object) -> Settings:
    """Return settings with the limits lifted."""
    chosen = {"database_url": dsn, "expo_base_url": url, **_LIFTED, **more}
    return config.load({name.upper(): str(value) for name, value in chosen.items()}, None)


def rss_now_mb() -> float:
    """Return this process's memory, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Bench:
    """One database, one sandbox, and events to drain."""

    def __init__(self, dsn: str, url: str, phones: int) -> None:
        self.dsn, self.url, self.phones = dsn, url, phones
        self.conn = psycopg.connect(dsn, autocommit=True)
        self._events = 0

    def queue(self, built: app.App, count: int) -> None:
        """Make `count` deliveries, as fan-out does."""
        self._events += 1
        door.enqueue(self.conn, door.Event("bench", str(self._events), "A title", "and a body", audience="everyone"))
        report = built.runner.run(built.registry["fanout"], "manual")
        assert report.counts["deliveries_created"] >= count, report

    @contextmanager
    def worker(self, **more: object) -> Iterator[app.App]:
        """Assemble a worker as `relevo run` does, with its heartbeat."""
        with app.build(settings_for(self.dsn, self.url, **more)) as built:
            built.worker.record_start("run", ["dispatch"])
            built.heartbeat.start()
            yield built
            built.worker.stopped()

    def drain(self, built: app.App) -> float:
        """Dispatch what is due; return deliveries per second."""
        started = time.perf_counter()
        report = built.runner.run(built.registry["dispatch"], "manual")
        took = time.perf_counter() - started
        assert report.outcome == "ok", report
        return report.counts["notifications_sent"] / took

    def ours(self) -> float:
        """Drain one event the way Relevo does."""
        with self.worker() as built:
            self.queue(built, self.phones)
            return self.drain(built)

    def ceiling(self) -> float:
        """Drain one event without a guard, and take back what that left undone."""
        with self.worker() as built:
            self.queue(built, self.phones)
            services = built.services
            bare = Bare(built.database, built.settings, built.worker.worker_id, built.heartbeat)
            object.__setattr__(services, "claims", bare)
            rate = self.drain(built)
        self.conn.execute(_SQL["finish_bare"])
        return rate

    def seed(self, count: int) -> float:
        """Send one request and make one update per delivery, from one table that is the queue as well."""
        self.conn.execute(_SQL["seed_table"])
        self.conn.execute(_SQL["seed_load"])
        session, sent, token = requests.Session(), 0, uuid4()
        started = time.perf_counter()
        while sent < count:
            for key, to, title, body in self.conn.execute(_SQL["seed_lock"], {"limit": 50, "token": token}).fetchall():
                answer = session.post(
                    f"{self.url}/--/api/v2/push/send", json=[{"to": to, "title": title, "body": body}], timeout=10
                )
                ticket = answer.json()["data"][0]["id"]
                self.conn.execute(_SQL["seed_update"], {"ticket": ticket, "id": key})
                sent += 1
        return sent / (time.perf_counter() - started)

    def memory(self) -> float:
        """Return how much memory grows between the first tenth and the whole of an event, in MB."""
        seen: list[float] = []
        with self.worker(worker_tick_runner_max_items=1) as built:
            self.queue(built, self.phones)
            marks = iter((self.phones // 10, self.phones))
            mark, sent = next(marks), 0

            def watch(context: Any, following: Callable[[], Any]) -> Any:
                nonlocal mark, sent
                reply = following()
                sent += context.messages
                if sent >= mark:
                    gc.collect()
                    seen.append(rss_now_mb())
                    mark = next(marks, 1 << 60)
                return reply

            object.__setattr__(built.services, "middlewares", (watch,))
            self.drain(built)
        return max(0.0, seen[-1] - seen[0])


def wake_ups(dsn: str, rounds: int) -> tuple[list[float], list[float]]:
    """Return milliseconds from commit to POST with an idle `relevo run`, and those of a plain NOTIFY."""
    arrived: list[float] = []
    with (
        Sandbox(rate_per_s=0, tell=lambda _line: arrived.append(time.perf_counter())) as sandbox,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        phone = door.register(conn, door.Installation("ExponentPushToken[bench-wake]"))
        environ = {"PATH": os.environ["PATH"], "DATABASE_URL": dsn, "EXPO_BASE_URL": sandbox.url, "LOG_LEVEL": "error"}
        environ |= {"WORKER_CYCLES": "reaper,fanout,dispatch"} | {n.upper(): str(value) for n, value in _LIFTED.items()}
        with subprocess.Popen([_RELEVO, "run"], env=environ) as process:
            try:
                took = [wake_once(conn, phone, round_, arrived) for round_ in range(-3, rounds)][3:]
            finally:
                process.terminate()
    return took, notify_many(dsn, rounds)


def wake_once(conn: psycopg.Connection[Any], phone: UUID, round_: int, arrived: list[float]) -> float:
    """Enqueue one event for one phone; return the milliseconds until its POST arrived."""
    time.sleep(2.5 if round_ < 0 else 0.5)  # idle again
    arrived.clear()
    door.enqueue(conn, door.Event("bench.wake", f"{round_}-{uuid4()}", "Wake up", audience=[phone]))
    committed = time.perf_counter()
    deadline = committed + 60
    while not arrived and time.perf_counter() < deadline:
        time.sleep(0.0005)
    return (arrived[0] - committed) * 1000


def notify_many(dsn: str, rounds: int) -> list[float]:
    """Return milliseconds from a plain NOTIFY to its listener."""
    took = []
    with psycopg.connect(dsn, autocommit=True) as hears, psycopg.connect(dsn, autocommit=True) as calls:
        hears.execute("listen relevo_bench")
        for _ in range(rounds):
            calls.execute("notify relevo_bench")
            called = time.perf_counter()
            list(hears.notifies(timeout=5, stop_after=1))
            took.append((time.perf_counter() - called) * 1000)
    return took


def lanes(bench: Bench, bulk: int, urgent: int) -> tuple[list[float], float]:
    """Queue much bulk; return how long urgent ones wait beside it, and bulk's share of its rate meanwhile."""
    rounds = max(1, bulk // bench.phones)
    bench.conn.execute(_SQL["queue_events"], {"event": 5_000_000, "rounds": rounds})
    bench.conn.execute(_SQL["queue_bulk"], {"event": 5_000_000, "rounds": rounds})
    phone = bench.conn.execute(_SQL["any_phone"]).fetchone()
    assert phone is not None
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": bench.dsn, "EXPO_BASE_URL": bench.url, "LOG_LEVEL": "error"}
    environ |= {"WORKER_CYCLES": "reaper,fanout,dispatch"} | {n.upper(): str(value) for n, value in _LIFTED.items()}
    with subprocess.Popen([_RELEVO, "run"], env=environ) as process:
        try:
            time.sleep(3)
            alone = bulk_rate(bench, lambda: time.sleep(5))
            beside = bulk_rate(bench, lambda: overtake(bench, phone[0], urgent))
            waits = urgent_waits(bench, urgent)
        finally:
            process.terminate()
    bench.conn.execute(_SQL["forget_queue"])
    bench.conn.execute(_SQL["forget_open"])
    return waits, beside / alone


def urgent_waits(bench: Bench, urgent: int) -> list[float]:
    """Wait for the last urgent event; return how many milliseconds each one waited."""
    deadline = time.monotonic() + 60
    while len(rows := bench.conn.execute(_SQL["urgent_waits"]).fetchall()) < urgent:
        assert time.monotonic() < deadline, f"only {len(rows)} of {urgent} urgent events were sent"
        time.sleep(0.2)
    return [row[0] for row in rows]


def overtake(bench: Bench, phone: UUID, urgent: int) -> None:
    """Enqueue urgent events for one phone, twenty a second."""
    for n in range(urgent):
        door.enqueue(bench.conn, door.Event("bench.urgent", str(n), "Now", audience=[phone], lane="urgent"))
        time.sleep(0.05)
    time.sleep(1)


def bulk_rate(bench: Bench, meanwhile: Callable[[], None]) -> float:
    """Return how many bulk deliveries a second are sent while something else is done."""
    before, started = bench.conn.execute(_SQL["count_sent"]).fetchone(), time.perf_counter()
    meanwhile()
    after = bench.conn.execute(_SQL["count_sent"]).fetchone()
    assert before is not None
    assert after is not None
    return float(after[0] - before[0]) / (time.perf_counter() - started)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all stay at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2, help="how often ours and the ceiling take turns")
    parser.add_argument("--seed-deliveries", type=int, default=3_000)
    parser.add_argument("--completed", type=int, default=1_000_000)
    parser.add_argument("--churned", type=int, default=500_000)
    parser.add_argument("--wake-ups", type=int, default=200)
    parser.add_argument("--bulk", type=int, default=500_000, help="bulk deliveries that urgent ones overtake")
    parser.add_argument("--urgent", type=int, default=100)
    parser.add_argument("--peers", action="store_true", help="also procrastinate and pgqueuer (extra bench)")
    given = parser.parse_args()
    logs.configure("error", "console")
    gc.freeze()
    with sandbox_process() as url, fresh_database() as (dsn, _settings):
        bench = Bench(dsn, url, given.deliveries)
        say(f"Loading {given.deliveries:,} phones …")
        bench.conn.execute(_SQL["load_phones"], {"phones": given.deliveries})
        bench.conn.execute(_SQL["refresh"])
        say("Wake-ups of an idle relay …")
        wakes, notifies = wake_ups(dsn, given.wake_ups)
        say("The seed's algorithm, ours and the ceiling in turns …")
        bench.ours()  # everything is warm
        seeds, ours, ceilings = [], [], []
        for _ in range(given.rounds):
            seeds.append(bench.seed(given.seed_deliveries))
            ours.append(bench.ours())
            ceilings.append(bench.ceiling())
        growth = bench.memory()
        peers = {}
        if given.peers:
            say("Peers …")
            from bench_peers import pgqueuer_rate, procrastinate_rate  # noqa: PLC0415 they need the extra `bench`

            before = bench.ours()
            peers = {
                "ratio_procrastinate": before / procrastinate_rate(dsn, 10_000),
                "ratio_pgqueuer": before / pgqueuer_rate(dsn, 50_000),
            }
        say(f"{given.bulk:,} bulk deliveries queued, urgent ones in between …")
        waits, bulk_share = lanes(bench, given.bulk, given.urgent)
        say(f"{given.completed:,} completed rows, {given.churned:,} churned …")
        fresh = bench.ours()
        bench.conn.execute(_SQL["load_completed"], {"event": 1_000_000, "count": given.completed})
        churned = 0
        while churned < given.churned:
            bench.ours()
            churned += given.deliveries
        aged = bench.ours()
    overtaking = {
        "urgent_p50_ms": percentile(waits, 0.5),
        "urgent_p99_ms": percentile(waits, 0.99),
        "bulk_share": bulk_share,
    }
    report(ours, seeds, ceilings, growth, wakes, notifies, overtaking, peers, aged / fresh)


def report(  # noqa: PLR0917 one line per measurement
    ours: list[float],
    seeds: list[float],
    ceilings: list[float],
    growth: float,
    wakes: list[float],
    notifies: list[float],
    overtaking: dict[str, float],
    peers: dict[str, float],
    aged: float,
) -> None:
    """Publish the figures."""
    rate, seed, ceiling = statistics.median(ours), statistics.median(seeds), statistics.median(ceilings)
    figures = {
        "deliveries_per_s": rate,
        "seed_per_s": seed,
        "ceiling_per_s": ceiling,
        "ratio_seed": rate / seed,
        "ratio_ceiling": rate / ceiling,
        "ratio_aged": aged,
        "rss_growth_mb": growth,
        "wake_p50_ms": percentile(wakes, 0.5),
        "wake_p99_ms": percentile(wakes, 0.99),
        "notify_p50_ms": percentile(notifies, 0.5),
        "notify_p99_ms": percentile(notifies, 0.99),
        **overtaking,
        **peers,
    }
    rows = [
        ("ours, through HTTP", f"{rate:,.0f}/s", ""),
        ("the seed's algorithm", f"{seed:,.0f}/s: ours is {rate / seed:.1f} x", "≥ 30 x"),
        (
            "the unguarded ceiling: take chunks, send, write rows",
            f"{ceiling:,.0f}/s: ours is {rate / ceiling:.2f} x",
            "≥ 0.7 x",
        ),
        ("after a million completed, half a million churned", f"{aged:.2f} x itself", "≥ 0.8 x"),
        ("memory growth from a tenth to the whole", f"{growth:.1f} MB", "< 50 MB"),
        (
            "commit to POST, idle, p50 / p99",
            f"{figures['wake_p50_ms']:.1f} / {figures['wake_p99_ms']:.1f} ms",
            "≤ 30 / 100 ms",
        ),
        ("plain NOTIFY, p50 / p99", f"{figures['notify_p50_ms']:.1f} / {figures['notify_p99_ms']:.1f} ms", ""),
        (
            "urgent ones beside queued bulk, p50 / p99",
            f"{overtaking['urgent_p50_ms']:.0f} / {overtaking['urgent_p99_ms']:.0f} ms",
            "p99 ≤ 2,000 ms",
        ),
        ("bulk beside urgent ones, twenty a second", f"{overtaking['bulk_share']:.2f} x its rate", "≥ 0.5 x"),
        *(
            (f"against {name.removeprefix('ratio_')} draining no-ops", f"{ratio:.1f} x", "> 1 x")
            for name, ratio in peers.items()
        ),
    ]
    publish("dispatch", rows, figures)


if __name__ == "__main__":
    main()
