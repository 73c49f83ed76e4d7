"""The cost of looks and steps as tables grow: CPU of the one backend at each size, and the exponent fitted to it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench import growth_held, processes
from bench.environment import statements
from bench.measuring import Goal, Row
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo import app
from relevo.app import App
from relevo.core import queries
from relevo.core.model import Delivery, PushRequest
from relevo.database.pool import Connection, Manner
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.claiming.claims import Claims

GROWTH, AT = "growth: ", "us_at_"
"""How the names of these rows begin, and those of their figures at each size."""
_SQL = statements(__file__)
_MOST = 0.05
_LONG_MICROS = 200_000  # what takes longer than this is asked less often
_GROWING = (
    *("grow_phones", "grow_dead_phones", "grow_words", "grow_chunks", "grow_awaited", "grow_events", "grow_items"),
    *("grow_runs", "grow_workers", "grow_requests"),
)
_WORDS = " ".join(f"word{n}" for n in range(2_000))
_WAITING: dict[str, dict[str, str | None]] = {
    "fan-out to 10 phones beside dead ones": {"audience": "matching", "project": None, "text": "hello"},
    "fan-out to 10 phones of a project": {"audience": "everyone", "project": "small", "text": ""},
    "fan-out of 2,000 words, a slice of 500": {"audience": "matching", "project": None, "text": _WORDS},
}
"""Events that wait, by the name of what is measured of them."""
_QUEUE = "queue"


@dataclass(frozen=True)
class Asked:
    """Statements that are asked together, as a worker asks them."""

    step: str
    names: tuple[str, ...]
    parameters: dict[str, Any]
    manner: Manner = "bound_transaction"


@dataclass
class Growth:
    """A database that grows, and what was measured at each size."""

    worker: App
    conn: psycopg.Connection[Any]
    looked: int
    costs: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    size: int = 0
    queue_event: int = 0
    waiting: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Make what does not grow."""
        for (statement,) in self.conn.execute(_SQL["leave_statistics_alone"], {}).fetchall():
            self.conn.execute(statement.encode())
        self.conn.execute(_SQL["add_short_type"])
        self.conn.execute(_SQL["add_projects"])
        self.conn.execute(_SQL["add_replicas"])
        self.conn.execute(_SQL["add_small_project"])
        self.queue_event = self._event("bulk", "the queue")
        for name, about in _WAITING.items():
            row = self.conn.execute(_SQL["add_waiting_event"], {"key": name} | about).fetchone()
            assert row is not None
            self.waiting[name] = int(row[0])

    def grow(self, size: int) -> int:
        """Bring every table up to a size; return the event of just that size which is to be swept."""
        span = {"from": self.size + 1, "to": size}
        for name in _GROWING:
            say(f"  {name} to {size:,}")
            self.conn.execute(_SQL[name], span)
        self.conn.execute(_SQL["queue_event"], span | {"event": self.queue_event, "type": "bulk", "project": _QUEUE})
        swept = self._event("bulk", f"swept {size}")
        self.conn.execute(
            _SQL["queue_event"], {"from": 1, "to": size, "event": swept, "type": "bulk", "project": "swept"}
        )
        self.size = size
        self.conn.execute(_SQL["take_stock"])
        self.conn.execute(_SQL["write_out"])
        return swept

    def _event(self, of_type: str, key: str) -> int:
        row = self.conn.execute(_SQL["add_event"], {"type": of_type, "key": key}).fetchone()
        assert row is not None
        return int(row[0])

    def note(self, name: str, micros: float) -> None:
        """Write down what something cost at this size."""
        say(f"  {name}: {micros:,.1f} µs at {self.size:,}")
        self.costs.setdefault(name, []).append((self.size, micros))

    def measure(self, name: str, work: Callable[[], Any], times: int) -> None:
        """Note the least CPU that the backend took for some work, per time, out of several rounds."""
        work()  # plans are made, catalogs read
        times = max(1, min(times, int(_LONG_MICROS / self._cpu(work, 1))))
        rounds = 2 if times == 1 else self.looked
        self.note(name, min(self._cpu(work, times) for _ in range(rounds)) / times)

    def _cpu(self, work: Callable[[], Any], times: int) -> float:
        with self.worker.database.connection() as connection:
            pid = connection.info.backend_pid
        before = processes.backend_us(pid)
        for _ in range(times):
            work()
        return processes.backend_us(pid) - before

    def ask(self, name: str, asked: Sequence[Asked], times: int = 20) -> None:
        """Measure statements whose work is undone."""

        def work() -> None:
            for each in asked:
                with self._undone(each.manner) as connection:
                    for statement in each.names:
                        connection.execute(queries.load(each.step)[statement], each.parameters)

        self.measure(name, work, times)

    def ask_one(self, name: str, step: str, names: tuple[str, ...], asked: dict[str, Any], manner: Manner) -> None:
        """Measure statements of one step."""
        self.ask(name, [Asked(step, names, asked, manner)])

    @contextmanager
    def _undone(self, manner: Manner) -> Iterator[Connection]:
        with self.worker.database.transaction(manner) as connection:
            yield connection
            raise psycopg.Rollback

    def sweep(self, event: int) -> None:
        """End an event of just this size, step by step as fan-out does, and note the cost per delivery."""
        self.conn.execute(_SQL["end_event"], {"event_id": event})
        steps = queries.load("fanout")
        ending = {"event_id": event, "limit": self.worker.settings.fanout_slice_size, "now": None}

        def work() -> None:
            taken = 1
            while taken:
                with self.worker.database.transaction() as connection:
                    row = connection.execute(steps["cancel_deliveries"], ending).fetchone()
                    taken = row[1] if row else 0
            with self.worker.database.transaction() as connection:
                connection.execute(steps["mark_swept"], ending)

        self.note("a cancelled event swept, per delivery", self._cpu(work, 1) / self.size)

    def claims(self) -> None:
        """Measure a claim, its journal with the look at its phones, and a claim behind a type with a short lease."""
        claims = self.worker.claims
        cost: dict[str, list[float]] = {"claim": [], "journal": []}
        for _ in range(self.looked):
            held: list[Claim | None] = []
            cost["claim"].append(self._cpu(partial(_claim_into, held, claims), 1))
            claim = held[0]
            assert claim is not None
            going = [each for each in claim.deliveries if isinstance(each, Delivery)]
            wave = [PushRequest(uuid4(), tuple(going[n : n + 100])) for n in range(0, len(going), 100)]
            cost["journal"].append(self._cpu(partial(claims.journal, claim, wave), 1))
            claims.mark_unsent(claim, [request.id for request in wave])
            claims.release(claim)
        self.note("a claim of 1,000, per delivery", min(cost["claim"]) / 1_000)
        self.note("journal and look at phones, per delivery", min(cost["journal"]) / 1_000)
        self.conn.execute(_SQL["queue_short"], {"project": _QUEUE, "event": self.queue_event})
        claiming = {
            "worker_id": "growth", "cycle": "dispatch", "project": _QUEUE, "lane": "bulk", "limit": 1_000, "now": None,
            "shard_index": None, "shard_count": None, "only_types": None, "not_types": None, "not_worded": None,
            "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000, "token": uuid4(),
        }  # fmt: skip
        self.ask("a claim of one type with a short lease", [Asked("claims", ("claim_due",), claiming, "bound_by_key")])
        self._forget_short()

    def _forget_short(self) -> None:
        short = self.worker.claims.claim("dispatch", _QUEUE, "bulk")
        assert short is not None
        assert len(short.deliveries) == 1
        self.worker.claims.release(short)  # of no row, so that it goes nowhere

    def looks(self) -> None:
        """Measure the looks that find what is there, and those that find nothing."""
        look: dict[str, Any] = {
            "now": None, "after_id": 2**62, "most_new": 1_000, "again_projects": ["p1"], "again_lanes": ["bulk"],
            "again_since": [None], "after_project": "", "after_lane": "",
        }  # fmt: skip
        full = Asked("projects", ("list_due_lanes",), look | {"limit": 1_000}, "bound_by_key")
        self.ask("due lanes of 1,000 projects", [full], 5)
        brief = Asked("projects", ("list_due_lanes",), look | {"limit": 0}, "bound_by_key")
        self.ask("a look beside 1,000 projects, nothing is new", [brief], 5)
        receipts = Asked("projects", ("list_due_receipts",), {"now": None, "after": "", "limit": 1_000}, "bound_by_key")
        self.ask("awaited receipts of 1,000 projects", [receipts], 5)
        old: dict[str, Any] = {"now": None, "retention_days": 60, "hot_months": 12, "hot_days": None, "given_up": []}
        self.ask("old events, none is", [Asked("retire", ("find_old_events",), old)])
        self.ask("old items, none is", [Asked("retire", ("find_old_items",), old)])
        self.ask("runs and slots", _runs(self.conn))
        self.ask("workers", _workers())
        self.ask("nothing to prune among runs and workers", [_pruning()])
        self.slices()
        self.forget()
        self.page()

    def look_beside_writer(self, dsn: str) -> None:
        """Measure dispatch's look while a transaction is open that queued a chunk before all that are new."""
        lanes = self.worker.services.projects.lanes
        lanes.read()
        with psycopg.connect(dsn) as writer:
            writer.execute(_SQL["queue_short"], {"project": "writer", "event": self.queue_event})
            self.conn.execute(_SQL["queue_beside"], {"many": self.size, "project": _QUEUE, "event": self.queue_event})
            self.measure("dispatch's look beside a long writing transaction", lanes.read, 300)
            writer.rollback()
        self.conn.execute(_SQL["forget_beside"])

    def slices(self) -> None:
        """Measure one slice of each event that waits: what it makes does not grow."""
        for name, event_id in self.waiting.items():
            slice_of = {
                "event_id": event_id, "most": 500, "watched": False, "step_aside": False, "enough": 100, "now": None,
            }  # fmt: skip
            self.ask(name, [Asked("fanout", ("fan_out_slice",), slice_of, "bound_relaxed")], 10)

    def forget(self) -> None:
        """Measure how one phone is forgotten."""
        phone = UUID(int=self.size // 2)
        self.ask("forget", [Asked("client", ("forget_installation",), {"installation_id": phone})])

    def page(self) -> None:
        """Measure what a delivery's page reads of the journal: what was written in its minute."""
        row = self.conn.execute(_SQL["find_minute"]).fetchone()
        assert row is not None
        day, since, until = row
        asked = {"id": self.size, "first_day": day, "last_day": day, "since": since, "until": until}
        self.ask("a delivery's page", [Asked("deliveries", ("list_delivery_requests",), asked)])


def _claim_into(held: list[Claim | None], claims: Claims) -> None:
    held.append(claims.claim("dispatch", _QUEUE, "bulk"))


def _runs(conn: psycopg.Connection[Any]) -> list[Asked]:
    """Return what the runner asks about the runs of a singleton, of a round and of a slot."""
    row = conn.execute("select date_trunc('second', now()) + interval '1 hour', now()").fetchone()
    assert row is not None
    ours = {
        "cycle": "cleanup", "source": "", "slot_at": row[0], "started_at": row[1], "trigger": "schedule", "now": None,
        "worker_id": "replica-1", "error_base_ms": 1_000, "error_max_ms": 60_000, "slot_ms": 60_000,
        "run_id": 2_000_000_000, "outcome": "ok",
        "reason": None, "counts": "{}", "error_message": None, "idle": False, "failed": False, "always": False,
        "lease_ms": 60_000, "holder": uuid4(), "holders": [uuid4()], "term": 1, "instance": None,
    }  # fmt: skip
    told = ours | {"reason": "it was paused", "run_id": 2_000_000_001}
    leasing = ("acquire_lease", "raise_term", "hold_term", "read_lease", "renew_leases")
    taking = ("open_round", "abandon_running", "free_repeated_slots", "read_slot_wait", "begin_slot_run")
    return [
        Asked("singleton", leasing, ours),
        Asked("runner", (*taking, "finish_run", "count_round"), ours),
        Asked("runner", ("tell_skip",), told),
        Asked("reaper", ("abandon_runs",), ours),
    ]


def _workers() -> list[Asked]:
    """Return what is asked of the workers that live."""
    ours = {
        "worker_id": "replica-1", "hostname": "host", "pid": 1, "version": "0", "role": "run", "cycles": ["dispatch"],
        "composers": [], "lease_ms": 60_000, "now": None, "hung": "[]", "http": None, "rests_because": None,
        "unusable": [], "unwritable": "[]", "project": "p1", "most": 6, "clock": time.time(), "next_ms": 4_000,
        "under_way": 1,
    }  # fmt: skip
    return [
        Asked("workers", ("register_worker", "beat_worker"), ours),
        Asked("reaper", ("mark_lost_workers",), ours),
        Asked("claims", ("list_composed_types",), ours, "bound_by_key"),
        Asked("projects", ("lease_connections",), ours, "bound_relaxed"),
    ]


def _pruning() -> Asked:
    return Asked("cleanup", ("prune_runs", "prune_workers"), {"retention_days": 365, "limit": 1_000, "now": None})


def exponent(costs: Sequence[tuple[int, float]]) -> float:
    """Fit cost ~ size ** exponent."""
    sizes, measured = zip(*((math.log(size), math.log(cost)) for size, cost in costs), strict=True)
    return statistics.linear_regression(sizes, measured).slope


def rows(sizes: Sizes) -> Iterator[Row]:
    """Grow by steps of ten, measure at each, and fit."""
    if not processes.are_counted():
        say("  growth is left out; it needs /proc/PID/schedstat, as Linux has it.")
        return
    with (
        fresh_database() as (dsn, settings),
        app.build(settings) as worker,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        growth = Growth(worker, conn, sizes.looks)
        growth.begin()
        for size in _steps(sizes):
            swept = growth.grow(size)
            growth.looks()
            growth.claims()
            growth.sweep(swept)
            growth.look_beside_writer(dsn)
            growth_held.measure(conn, dsn, size, list(growth.waiting.values()), growth.ask_one)
    for name, costs in growth.costs.items():
        yield _row(name, costs)


def _steps(sizes: Sizes) -> Iterator[int]:
    size = sizes.smallest
    while size <= sizes.largest:
        yield size
        size *= 10


def _row(name: str, costs: Sequence[tuple[int, float]]) -> Row:
    fitted = exponent(costs)
    figures = {f"{AT}{size}": cost for size, cost in costs} | {"exponent": fitted}
    said = f"{' / '.join(f'{cost:,.1f}' for _, cost in costs)} µs, exponent {fitted:+.3f}"
    return Row(GROWTH + name, name, said, None, figures, [Goal("exponent", _MOST)])
