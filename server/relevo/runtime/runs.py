"""A cycle's environment: its place in the registry, the run it is in, fenced transactions, limits, when to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

import psycopg

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import CopiedDatabaseError, DatabaseUnavailableError, LostLeaseError, RunGivenUpError
from relevo.core.logs import normalise_error
from relevo.core.metrics import Metrics
from relevo.core.model import Budget, RunOutcome, Shard, Step, Trigger
from relevo.database.outages import BUSY
from relevo.database.pool import Connection, Database, Manner
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.idle_wait import IdleWait
from relevo.runtime.singleton import Held
from relevo.runtime.timing import Timing
from relevo.runtime.troubles import Kind, Thing, Troubles

_SQL = queries.load("runner")

BUDGET = Budget(max_ms=600_000, max_items=1_000_000)
"""A scheduled run hands over after this much, so that it is written down and the next begins."""


@dataclass(frozen=True)
class Cycle:
    """A cycle of the registry: its name, when it runs, who may run it at once, its budget, and one step of its work."""

    name: str
    timing: Timing
    step: Callable[[Run], Step]
    singleton: bool = False
    source: str = ""
    wakeable: bool = False
    feeds: str = ""
    """The cycle that has work once this one had some: called with it, it is ready by then."""
    budget: Budget = BUDGET
    off: str = ""
    """Why it cannot run with these settings; nothing if it can."""
    bookkeeping: bool = False
    """Whether it only keeps the tables in order, and so runs in a copied database, too."""
    stall_ms: int = 0
    """How long a run may get nowhere before it is given up; 0: three leases. See `Run.progress`."""

    @classmethod
    def of(cls, facts: CycleFacts, timing: Timing, step: Callable[[Run], Step], **more: Any) -> Cycle:
        """Make one of Relevo's own, of which FACTS say by what name, for whom and beside whom it runs."""
        return cls(
            facts.name,
            timing,
            step,
            singleton=facts.singleton,
            wakeable=facts.wakeable,
            feeds=facts.feeds,
            bookkeeping=facts.bookkeeping,
            **more,
        )

    @property
    def key(self) -> str:
        """Return its name with its source, unique in the registry."""
        return f"{self.name}:{self.source}" if self.source else self.name


@dataclass(frozen=True)
class RunContext:
    """The facts that a middleware gets about the run it wraps."""

    run_id: int
    cycle: str
    source: str
    trigger: Trigger
    worker_id: str
    slot_at: datetime | None
    started_at: datetime
    open_transactions: tuple[int, int] = (0, 0)
    """Before it began: all transactions below the first number had ended, none from the second on had begun."""


@dataclass(frozen=True)
class Ending:
    """The result of a run, before it is written down."""

    outcome: RunOutcome
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    more: bool = False
    due_in_s: float | None = None


Middleware = Callable[[RunContext, Callable[[], Ending]], Ending]
"""Wraps a run: does something, calls `next()`, does something, returns its ending."""


@dataclass
class GivenUp:
    """The failures of a run, by kind: it goes on with the rest, and a later run tries again."""

    claims: set[UUID] = field(default_factory=set)
    events: set[int] = field(default_factory=set)
    together: set[int] = field(default_factory=set)
    """Events that it could not fan out together with others, and does one by one."""
    begun: set[int] = field(default_factory=set)
    """Events of which deliveries are there already that fan-out does not know of: it makes the others."""
    parts: set[str] = field(default_factory=set)
    """Parts of a cycle's work, by name."""
    months: set[str] = field(default_factory=set)
    """By the name of their relation."""
    mismatches: set[str] = field(default_factory=set)
    """Months, by relation, that were found to differ once in this run."""
    troubled_in_a_row: int = 0
    """How many months, one after the other, met a store in trouble."""
    unregistered: set[str] = field(default_factory=set)
    """Months, by relation, that the Iceberg catalog did not take."""
    unfinished: set[tuple[str, date]] = field(default_factory=set)
    """Months of a plain table, by entity and month, of which something is not over yet."""


@dataclass
class Run:
    """A run as its steps see it: fenced transactions, limits, and when to stop."""

    context: RunContext
    settings: Settings
    database: Database
    budget: Budget
    shard: Shard | None
    held: Held | None
    stopping: threading.Event
    begun: bool = False
    items: int = 0
    given_up: GivenUp = field(default_factory=GivenUp)
    started: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)
    """When it last got on, by the monotonic clock."""
    abandoned: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], datetime | None] = lambda: None
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when somebody calls the cycle while it runs; the run may look, and clears it then."""
    wake: Callable[[str], None] = lambda _cycle: None
    """Signals a cycle of this process that there is work for it."""
    metrics: Metrics = field(default_factory=Metrics)
    trouble: Callable[[], str] = lambda: ""
    """Returns why it must stop though it is not over: the database turned out to belong elsewhere."""
    looks_since: datetime | None = field(init=False)
    """Since when it looks for everything once, by the database's clock; None: since its next look."""
    troubles: Troubles = field(default_factory=Troubles)
    """The failures on single things that this process met, and leaves alone for now."""
    left_alone: list[str] = field(default_factory=list)
    """The run's own failures, in sentences for its row."""
    idle_wait: IdleWait | None = None
    """How it waits for more once its work is done; None: it ends then."""

    def __post_init__(self) -> None:
        """Look for what was there when it began."""
        self.looks_since = self.context.started_at

    @property
    def now(self) -> datetime | None:
        """The time to hand to statements: None, the database's own, except where tests travel.

        Leases, the liveness of workers and the rows of runs always go by the database's clock.
        """
        return self.clock()

    def progress(self) -> None:
        """Report progress of the run; transactions and checks whether to go on report it themselves.

        Raises RunGivenUpError once nobody waits for it any more: it must not write or send anything then.
        """
        if self.abandoned.is_set():
            raise RunGivenUpError(f"This run of {self.context.cycle} got nowhere for too long and was given up.")
        self.moved_at = time.monotonic()

    def abandon(self) -> None:
        """Give the run up: whatever of it still hangs may do nothing when it comes back."""
        self.abandoned.set()
        if self.held is not None:
            self.held.lost.set()

    def leave_alone(self, thing: Thing, error: BaseException, *, rests_s: float | None = None) -> float:
        """Leave one thing alone on which an error was met, and say so in the run's row; return for how many seconds.

        An outage, and what ends the whole run, is nobody's own: it is raised again.
        """
        pause_s = self.troubles.met(thing, error, rests_s=rests_s)
        self.left_alone.append(f"{thing.said}: {normalise_error(error, 200)}")
        return pause_s

    @contextmanager
    def contain(self, thing: Thing, *, rests_s: float | None = None) -> Iterator[None]:
        """Limit an error in the block to one thing."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, it belongs to that thing
            self.leave_alone(thing, error, rests_s=rests_s)
        else:
            self.troubles.went_well(thing)

    def resting(self, kind: Kind) -> dict[str, float]:
        """Return what is left alone for now; whoever runs a cycle by hand wants it tried."""
        return {} if self.context.trigger == "manual" else self.troubles.resting(kind)

    @contextmanager
    def transaction(self, manner: Manner = "bound_transaction") -> Iterator[Connection]:
        """Open a bounded transaction; a singleton's first reads its term, so that a former holder writes nothing."""
        self.progress()
        with self.database.transaction(manner) as connection:
            if self.held is not None:
                self.held.fence(connection)
            yield connection
            self.progress()

    def execute(
        self, statement: bytes, parameters: Mapping[str, Any] | None = None, manner: Manner = "bound_transaction"
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Send a single statement in such a transaction of its own; its rows outlast it."""
        with self.transaction(manner) as connection:
            return connection.execute(statement, parameters)

    def ask_to_be_woken(self) -> None:
        """Write to table state that this cycle rests while its run goes on, so that work calls it."""
        with suppress(*BUSY):  # nobody calls then: it looks now and then all the same
            self.say_asleep(True)

    def say_asleep(self, asleep: bool) -> None:
        """Write to table state whether this cycle is to be called when there is work."""
        set_asleep(self.database, self.context.cycle, self.context.worker_id, asleep=asleep)

    def wait_for_work(self, *, worked: bool, took_s: float, rest_s: float, due_in_s: float | None = None) -> bool:
        """Wait for more to do; return whether to look again, see `IdleWait.for_more`."""
        if self.idle_wait is None or not self.may_go_on():
            return False
        try:
            self.looks_since = None
            return self.idle_wait.for_more(worked=worked, took_s=took_s, rest_s=rest_s, due_in_s=due_in_s)
        except (DatabaseUnavailableError, *BUSY):  # the fleet could not be told; what was done is done all the same
            self.idle_wait = None
            return False

    @property
    def is_ahead(self) -> bool:
        """Whether it was called ahead of its first work, and has had none yet."""
        return self.idle_wait is not None and self.idle_wait.ahead_s > 0 and not self.begun

    def await_call(self) -> None:
        """Wait for the call that was announced, but not for long."""
        if self.idle_wait is not None:
            self.woken.wait(self.idle_wait.ahead_s)

    def begin_work(self) -> None:
        """Report that there is work: from now on the run has a row. Another call does nothing."""
        if self.begun:
            return
        self.execute(_SQL["begin_run"], vars(self.context), "bound_unflushed")
        self.begun = True

    @property
    def items_left(self) -> int:
        """How many items this run may still process."""
        return max(0, self.budget.max_items - self.items)

    @property
    def ms_left(self) -> float:
        """How many milliseconds this run may still take."""
        return max(0.0, self.budget.max_ms - (time.monotonic() - self.started) * 1000)

    def may_go_on(self) -> bool:
        """Return whether another step may begin."""
        self.progress()
        if self.held is not None and self.held.lost.is_set():
            raise LostLeaseError(f"{self.context.cycle} lost its lease; another process may run it now.")
        if trouble := self.trouble():
            raise CopiedDatabaseError(trouble)
        return not self.stopping.is_set() and self.items_left > 0 and self.ms_left > 0


def set_asleep(database: Database, cycle: str, worker_id: str, *, asleep: bool) -> bool:
    """Write to table state whether a cycle sleeps in this process; return if it is new. Raises one of BUSY."""
    said = {"cycle": cycle, "worker_id": worker_id, "asleep": asleep, "lock_ms": database.lock_ms}
    is_new = database.execute(_SQL["set_asleep"], said).rowcount > 0
    if not asleep:
        database.execute(_SQL["mark_awake"], {"cycle": cycle})
    return is_new
