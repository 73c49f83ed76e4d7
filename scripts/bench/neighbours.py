"""A project beside others in trouble: how long a push takes from its commit until it is sent, alone and beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench.environment import Environment, relevo_run, sandbox_process, statements
from bench.measuring import Goal, Row, percentile
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo.client import values, verbs
from relevo.sandbox import Sandbox

_SQL = statements(__file__)
_CYCLES = "reaper,fanout,dispatch"
_SLOW_S = 8
_MOST_RATIO = 3.0
_PATIENCE_S = 120.0
_BETWEEN_S = 0.2
_WARM = 5
_RATE = 600
_MOST_APART = 5.0


@dataclass
class Projects:
    """The healthy project, and those beside it."""

    dsn: str
    conn: psycopg.Connection[Any]
    sizes: Sizes

    def register(self, project: str, name: str) -> UUID:
        """Register a phone of a project."""
        return verbs.register(self.conn, values.Installation(f"ExponentPushToken[{name}]", project=project))

    def enqueue(self, phone: UUID) -> int:
        """Enqueue an event for one phone."""
        event = values.Event("bench", str(uuid4()), title="Hello", audience=[phone], lane="bulk")
        return verbs.enqueue(self.conn, event).event_id

    def waits_ms(self, phone: UUID, pushes: int) -> list[float]:
        """Send pushes one after the other; return how many milliseconds each took until it was written as sent."""
        waits: list[float] = []
        for _ in range(pushes):
            time.sleep(_BETWEEN_S)
            began = time.perf_counter()
            event = self.enqueue(phone)
            while self.conn.execute(_SQL["is_sent"], {"event_id": event}).fetchone() != (True,):
                if time.perf_counter() > began + _PATIENCE_S:
                    break
                time.sleep(0.001)
            waits.append((time.perf_counter() - began) * 1_000)
        return waits

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Add neighbours whose push service takes seconds for each answer, each with pushes for a minute."""
        phones = [
            self.register(f"slow-{n}", f"slow-{n}-{each}!slow={_SLOW_S}")
            for n in range(self.sizes.neighbours)
            for each in range(10)
        ]
        for phone in phones:
            self.enqueue(phone)
        time.sleep(1)
        yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Add neighbours whose rows somebody holds, each with a push that is due."""
        names = [f"locked-{n}" for n in range(self.sizes.neighbours)]
        self.conn.execute(_SQL["add_projects"], {"projects": names})
        with psycopg.connect(self.dsn) as other:
            other.execute(_SQL["hold_projects"], {"projects": names})
            for name in names:
                self.enqueue(self.register(name, name))
            time.sleep(1)
            yield
            other.rollback()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Add neighbours whose breakers are open, each with an urgent push that is due."""
        self.conn.execute(_SQL["stop_projects"], {"many": self.sizes.neighbours_stopped})
        yield


def rows(sizes: Sizes) -> Iterator[Row]:
    """Time pushes of a healthy project alone, then beside each kind of project in trouble, in one process."""
    with (
        fresh_database() as (dsn, _),
        psycopg.connect(dsn, autocommit=True) as conn,
        Sandbox(rate_per_s=0) as sandbox,
        relevo_run(dsn, sandbox.url, worker_cycles=_CYCLES, http_enabled=False),
    ):
        projects = Projects(dsn, conn, sizes)
        phone = projects.register("healthy", "healthy")
        projects.waits_ms(phone, _WARM)
        kinds: dict[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {
            "stopped": (f"{sizes.neighbours_stopped:,} stopped projects", projects.stopped),
            "locked": (f"{sizes.neighbours:,} locked projects", projects.locked),
            "slow": (f"{sizes.neighbours:,} slow projects", projects.slow),
        }
        for name, (what, trouble) in kinds.items():
            yield _beside(projects, phone, name, what, trouble())
    yield _singles(sizes)


def _singles(sizes: Sizes) -> Row:
    """Time dispatch of many projects with one push each beside that of one project with as many pushes, at its rate."""
    many = sizes.neighbours_single
    apart, together = (_sends_in_s(sizes, count) for count in (many, 1))
    figures = {"apart_s": apart, "together_s": together, "ratio": apart / together}
    said = f"{apart:.1f} s beside {together:.1f} s of one project with {many:,} ({apart / together:.1f} x)"
    return Row(
        "neighbours_single",
        f"{many:,} projects with one push each",
        said,
        None,
        figures,
        [Goal("ratio", _MOST_APART, "x")],
    )


def _sends_in_s(sizes: Sizes, projects: int) -> float:
    """Return how long one worker takes to send a push to each of many phones, which belong to so many projects."""
    many = sizes.neighbours_single
    with sandbox_process() as url, fresh_database() as (dsn, _):
        env = Environment(dsn, url, sizes)
        with closing(env.conn), env.worker(push_rate_per_second=_RATE) as built:
            beside = Projects(dsn, env.conn, sizes)
            with env.conn.transaction():
                for n in range(many):
                    beside.enqueue(beside.register(f"single-{n % projects}", f"single-{n}"))
            env.run(built, built.registry["fanout"], "deliveries_created")
            env.conn.execute(_SQL["refresh"])
            began = time.perf_counter()
            sent = env.run(built, built.registry["dispatch"], "notifications_sent")
            took_s = time.perf_counter() - began
    assert sent == many, f"{sent:,} of {many:,} were sent"
    return took_s


def _beside(projects: Projects, phone: UUID, name: str, what: str, trouble: AbstractContextManager[None]) -> Row:
    """Time the healthy project alone and beside others in one kind of trouble."""
    pushes = projects.sizes.neighbours_pushes
    alone = percentile(projects.waits_ms(phone, pushes), 0.5)
    with trouble:
        waits = projects.waits_ms(phone, pushes)
    beside, worst = percentile(waits, 0.5), max(waits)
    say(f"    {name}: {', '.join(f'{wait:,.0f}' for wait in waits)} ms")
    figures = {"alone_ms": alone, "beside_ms": beside, "worst_ms": worst, "ratio": beside / alone}
    said = f"{beside:,.0f} ms, at most {worst:,.0f}, beside {alone:,.0f} ms alone ({beside / alone:.1f} x)"
    goals = [Goal("ratio", _MOST_RATIO, "x")]
    return Row(f"neighbours_{name}", f"commit to sent beside {what}", said, None, figures, goals)
