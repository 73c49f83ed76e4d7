"""A relay under test: phones with telling names, events, cycles run by hand, what became of it all, travel in time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event, Installation
from relevo.core.model import Budget, Reply, Report
from relevo.sandbox import Sandbox
from support.processes import PATIENCE_S

T = TypeVar("T")

_numbers = count(1)


class Clock:
    """The database's time, until somebody travels: from then on now, so much later."""

    def __init__(self) -> None:
        self.offset: timedelta | None = None
        self.stopped_at: datetime | None = None

    def __call__(self) -> datetime | None:
        """Return the time to hand to statements: None means the database's."""
        return None if self.offset is None else self.now()

    def now(self) -> datetime:
        """The time it is here."""
        return (self.stopped_at or datetime.now(UTC)) + (self.offset or timedelta())

    def stop(self) -> None:
        """Let time stand still: from here on it passes by travelling alone, however slow the machine is."""
        self.offset, self.stopped_at = self.offset or timedelta(), datetime.now(UTC)

    def travel(self, **by: float) -> None:
        """Go on into the future: `travel(minutes=1)`."""
        self.offset = (self.offset or timedelta()) + timedelta(**by)

    def travel_to(self, then: datetime) -> None:
        """Go to a moment, or just behind it."""
        self.offset = then - (self.stopped_at or datetime.now(UTC)) + timedelta(milliseconds=1)


def token(name: str) -> str:
    """Return the push token of a phone's name; what stands behind a ! is a fault of the sandbox's."""
    return f"ExponentPushToken[{name}]"


@dataclass
class Relay:
    """A worker, its database, its push service and its clock."""

    app: App
    conn: psycopg.Connection[Any]
    sandbox: Sandbox
    clock: Clock
    phones: dict[str, UUID] = field(default_factory=dict)

    # Who and what

    def register(self, *names: str, **installation: Any) -> list[UUID]:
        """Register a phone per name, as an app does."""
        for name in names:
            self.phones[name] = verbs.register(self.conn, Installation(token(name), **installation))
        return [self.phones[name] for name in names]

    def add_phones(self, number: int, prefix: str = "p", suffix: str = "", **columns: object) -> list[str]:
        """Insert many phones at once and return their names: p0, p1, …"""
        names = [f"{prefix}{each}{suffix}" for each in range(number)]
        given = {"project": "default"} | columns
        rows = self.conn.execute(
            f"""
            insert into relevo.device_installations (token, {", ".join(given)})
            select u.token, {", ".join(f"%({name})s" for name in given)} from unnest(%(tokens)s::text[]) as u(token)
            returning token, installation_id
            """,
            given | {"tokens": [token(name) for name in names]},
        ).fetchall()
        found = dict(rows)
        self.phones |= {name: found[token(name)] for name in names}
        return names

    def enqueue(self, **fields: Any) -> int:
        """Enqueue an event, by default for everyone."""
        usual = {
            "type": "notice",
            "key": str(next(_numbers)),
            "title": "Hola",
            "body": "¿Qué tal?",
            "audience": "everyone",
        }
        return verbs.enqueue(self.conn, Event(**usual | fields)).event_id

    def tell(self, *names: str, **fields: Any) -> int:
        """Register phones, enqueue an event for them alone, and fan it out."""
        new = [name for name in names if name not in self.phones]
        self.register(*new)
        event_id = self.enqueue(audience=[self.phones[name] for name in names], **fields)
        self.fan_out()
        return event_id

    def tell_everyone(self, **fields: Any) -> int:
        """Enqueue an event for everyone, and fan it out."""
        event_id = self.enqueue(**fields)
        self.fan_out()
        return event_id

    # Cycles by hand

    def run(self, cycle: str, *, at_most_s: float = 60, at_most: int = 1_000_000) -> Report:
        """Run a cycle once, for so long and for so many items."""
        return self.app.runner.run(self.app.registry[cycle], "manual", budget=Budget(int(at_most_s * 1000), at_most))

    def fan_out(self) -> Report:
        """Fan out all that is due."""
        report = self.run("fanout")
        assert report.outcome in ("ok", "idle"), report
        return report

    def dispatch(self, **at_most: Any) -> Report:
        """Send what is due and may be sent: `dispatch(at_most=10)` claims ten deliveries and waits for no others."""
        return self.run("dispatch", **at_most)

    def drain(self, rounds: int = 3) -> None:
        """Send round after round, as a scheduler does: after a probe the rest goes out with the next one."""
        for _ in range(rounds):
            self.dispatch()

    def ask(self) -> Report:
        """Ask for the receipts that are due."""
        return self.run("receipt")

    def reap(self) -> Report:
        """Take back what the dead held, fold counts."""
        return self.run("reaper")

    def travel(self, **by: float) -> None:
        """Go on into the future."""
        self.clock.travel(**by)

    # What became of it

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Read rows."""
        with self.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), values).fetchall()

    def deliveries(self) -> list[dict[str, Any]]:
        """Read all deliveries, in the order they were made."""
        return self.rows("select * from relevo.deliveries order by id")

    def delivery(self, name: str) -> dict[str, Any]:
        """Read the last delivery to a phone."""
        found = self.rows(
            "select * from relevo.deliveries where installation_id = %s order by id desc limit 1", self.phones[name]
        )
        assert found, f"nothing was made for {name}"
        return found[0]

    def states(self) -> dict[str, int]:
        """Count the deliveries per status."""
        return dict(Counter(row["status"] for row in self.deliveries()))

    def installation(self, name: str) -> dict[str, Any]:
        """Read a phone's row."""
        (row,) = self.rows("select * from relevo.device_installations where installation_id = %s", self.phones[name])
        return row

    def is_disabled(self, name: str) -> bool:
        """Tell whether a phone's token was given up."""
        return self.installation(name)["invalidated_at"] is not None

    def disabled(self) -> int:
        """Count the tokens that were given up."""
        return len(self.rows("select from relevo.device_installations where invalidated_at is not null"))

    def project(self, name: str = "default") -> dict[str, Any]:
        """Read a project's row."""
        (row,) = self.rows("select * from relevo.projects where project = %s", name)
        return row

    def incidents(self) -> list[str]:
        """List what happened to projects."""
        return [row["what"] for row in self.rows("select what from relevo.project_incidents order by id")]

    def claims(self) -> int:
        """Count the claims that stand."""
        return len(self.rows("select from relevo.claims"))

    def received(self, name: str) -> int:
        """Count the messages a phone received."""
        return self.sandbox.phones().get(token(name), {"received": 0})["received"]

    def messages(self, name: str) -> list[dict[str, Any]]:
        """Return the messages a phone received."""
        return self.sandbox.received(token(name))

    def posts(self) -> int:
        """Count the send requests."""
        return int(self.sandbox.totals()["sendRequests"])

    def everyone_received(self, times: int = 1) -> None:
        """Check that each phone received its message so many times."""
        seen = self.sandbox.phones()
        wrong = {
            name: seen.get(token(name)) for name in self.phones if seen.get(token(name), {}).get("received") != times
        }
        assert not wrong, wrong


class LateAnswers:
    """A push middleware that keeps answers back until they may come."""

    def __init__(self) -> None:
        self.come = threading.Event()

    def __call__(self, _context: object, send: Callable[[], Reply]) -> Reply:
        """Send, and wait with what is answered."""
        reply = send()
        assert self.come.wait(PATIENCE_S)
        return reply


def counted_looks(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note when a worker looks for due lanes."""
    looks: list[float] = []
    lanes = worker.app.services.projects.lanes
    look = lanes.read

    def read(now: Any = None) -> Any:
        looks.append(time.monotonic())
        return look(now)

    monkeypatch.setattr(lanes, "read", read)
    return looks


def seconds_from(moment: datetime, then: datetime) -> float:
    """Return how many seconds after a moment another is."""
    return (then - moment).total_seconds()


def at_once(*works: Callable[[], T]) -> list[T]:
    """Do several things at once, and return what each came to, in order."""
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    ready = threading.Barrier(len(works))

    def do(place: int, work: Callable[[], T]) -> None:
        try:
            ready.wait(PATIENCE_S)
            results[place] = work()
        except BaseException as error:  # noqa: BLE001 the test must fail, not its thread
            errors.append(error)

    threads = [threading.Thread(target=do, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    assert len(results) == len(works), "some did not come to an end"
    return [results[place] for place in range(len(works))]


@contextmanager
def beside(work: Callable[[], T]) -> Any:
    """Do something in another thread while the block runs; yields a list that holds its result afterwards."""
    results: list[T] = []
    errors: list[BaseException] = []

    def do() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 the test must fail, not its thread
            errors.append(error)

    thread = threading.Thread(target=do)
    thread.start()
    try:
        yield results
    finally:
        thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    assert not thread.is_alive(), "it did not come to an end"
