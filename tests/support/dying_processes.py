"""Processes that die while they send, and what phones and journal tell about it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event
from relevo.sandbox.push_service import phone_key
from relevo.sandbox.server import Sandbox
from support.phones import fan_out
from support.processes import eventually

SIGKILL = 9
PROGRAM = Path(__file__).parent / "programs" / "dispatching.py"
FINAL = ("ok", "unconfirmed", "invalid", "failed", "expired", "skipped", "cancelled", "unknown")


@dataclass
class DyingProcesses:
    """The program whose processes are struck: one line asks, two lines answer."""

    process: subprocess.Popen[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    """The processes whose end was not waited for yet."""

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Self]:
        """Start the program; it has loaded all it needs before its first task."""
        command = [sys.executable, str(PROGRAM)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def on(self, **environ: str) -> Self:
        """Return the same program with settings for one test."""
        assert not self.pending, "a test before this one left a process behind"
        return replace(self, environ=environ)

    def begin(
        self, cycle: str, *strikes: Mapping[str, Any] | None, heartbeat: bool = False, **settings: object
    ) -> DyingProcess:
        """Begin a run of a cycle in a process of its own, which is struck at some moments."""
        chosen = {**self.environ, **{name.upper(): str(value) for name, value in settings.items()}}
        task = {
            "cycle": cycle,
            "strikes": [each for each in strikes if each],
            "heartbeat": heartbeat,
            "settings": chosen,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        self.pending.append(self.listen()["pid"])
        return DyingProcess(self.pending[-1], self)

    def run(self, cycle: str, strike: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
        """Run a cycle to its end, or to the process's."""
        return self.begin(cycle, strike, **how).ends()

    def listen(self) -> dict[str, Any]:
        """Read the program's next word."""
        assert self.process.stdout is not None
        word: dict[str, Any] = json.loads(self.process.stdout.readline())
        return word


@dataclass
class DyingProcess:
    """One process that runs a cycle."""

    pid: int
    program: DyingProcesses

    def stands(self) -> None:
        """Wait until it has stopped itself."""
        stat = Path(f"/proc/{self.pid}/stat")
        eventually(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "the process stands still")

    def goes_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def ends(self) -> dict[str, Any]:
        """Wait for its end; a run that nobody struck must not have failed."""
        reported = self.program.listen()
        self.program.pending.remove(self.pid)
        assert reported["signal"] or "counts" in reported, "the run raised; its process said why"
        return reported


def install(conn: psycopg.Connection[Any], words: Sequence[str], project: str) -> dict[UUID, str]:
    """Register one phone per word, whose token's name holds that word for the sandbox; return their tokens."""
    phones: dict[UUID, str] = {}
    for word in words:
        token = f"ExponentPushToken[{uuid4().hex}{word}]"
        [(phone,)] = conn.execute(
            "insert into relevo.device_installations (token, project) values (%s, %s) returning installation_id",
            [token, project],
        ).fetchall()
        phones[phone] = token
    return phones


def enqueue(conn: psycopg.Connection[Any], phones: Sequence[UUID], **how: Any) -> int:
    """Enqueue an event for some phones and return its id."""
    event = Event(how.pop("type", "chaos"), uuid4().hex, "Title", "Body", audience=list(phones), **how)
    return verbs.enqueue(conn, event).event_id


def run(app: App, cycle: str) -> dict[str, int]:
    """Run a cycle once, as by hand; return what it counted."""
    report = app.runner.run(app.registry[cycle], "manual")
    assert report.outcome in ("ok", "idle", "partial"), report
    return dict(report.counts)


def make_deliveries(app: App, conn: psycopg.Connection[Any], phones: Mapping[UUID, str], **how: Any) -> int:
    """Enqueue an event and fan it out."""
    event = enqueue(conn, list(phones), **how)
    fan_out(app)
    return event


@dataclass(frozen=True)
class Fate:
    """What became of one delivery: how often its phone got it, and what its row says."""

    token: str
    received: int
    status: str
    attempts: int
    lapses: int
    error: str | None
    requests: int
    """How many journalled requests it was in."""


def fates(conn: psycopg.Connection[Any], sandbox: Sandbox, event_id: int) -> list[Fate]:
    """Tell what became of an event's deliveries, in the order of their phones."""
    seen = sandbox.phones()
    rows = conn.execute(
        """
        select i.token, d.status, d.attempt_count, d.lapse_count, d.last_error_code,
               (select count(*) from relevo.push_requests r where d.id = any (r.ids))
          from relevo.notification_deliveries d join relevo.device_installations i using (installation_id)
         where d.notification_event_id = %s order by i.seq
        """,
        [event_id],
    ).fetchall()
    return [
        Fate(token, seen.get(phone_key(token), {"received": 0})["received"], status, attempts, lapses, error, requests)
        for token, status, attempts, lapses, error, requests in rows
    ]


def outwait_lease(conn: psycopg.Connection[Any]) -> None:
    """Wait until the lease of whoever holds a claim, and stands still, is over."""
    held = "select from relevo.claims where ids <> '{}' and leased_until > now()"
    eventually(lambda: not conn.execute(held).fetchall(), "its lease is over", every=0.1)


def needless_resends(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """List what must not be: requests journalled for a delivery after the answer of an earlier one was recorded.

    An answer is a ticket, or the word that the request was not taken; `unclear` is none.
    """
    return conn.execute(
        """
        with sent as (
          select k.event_day, k.id, r.id as request, r.journalled_at, r.answered_at, r.outcome
            from relevo.push_requests r cross join unnest(r.days, r.ids) as k(event_day, id))
        select a.id, a.journalled_at, a.answered_at, b.journalled_at
          from sent a join sent b on b.event_day = a.event_day and b.id = a.id and b.request <> a.request
         where a.journalled_at <= b.journalled_at and a.answered_at <= b.journalled_at and a.outcome = 'answered'
        """
    ).fetchall()


def unanswered(conn: psycopg.Connection[Any], event_id: int) -> int:
    """Count how often a delivery of an event was in a request whose answer was never recorded."""
    [(count,)] = conn.execute(
        """
        select count(*) from relevo.push_requests r cross join unnest(r.days, r.ids) as k(event_day, id)
          join relevo.notification_deliveries d on d.event_day = k.event_day and d.id = k.id
         where d.notification_event_id = %s and (r.answered_at is null or r.outcome = 'unclear')
        """,
        [event_id],
    ).fetchall()
    return int(count)


@dataclass
class World:
    """The test's database, its push service, its dying_processes, and a worker that clears up some minutes later."""

    conn: psycopg.Connection[Any]
    sandbox: Sandbox
    dying_processes: DyingProcesses
    survivor: App
    clock: Any
    settings: Mapping[str, object]

    def kill(self, cycle: str, strike: Mapping[str, Any] | None) -> dict[str, Any]:
        """Run a cycle in a process that is killed, and let the fleet forget that process."""
        reported = self.dying_processes.run(cycle, strike, **self.settings)
        self.conn.execute("update relevo.workers set stopped_at = now() where role = 'run-cycle'")
        self.conn.execute("delete from relevo.push_connections")
        return reported

    def clear_up(self, *cycles: str) -> None:
        """Let the survivor run, minutes later, until nothing is claimed and nothing is left to do."""
        open_ones = "status in ('pending', 'retryable')" if "receipt" not in cycles else "completed_at is null"
        left = f"""select (select count(*) from relevo.notification_deliveries where {open_ones})
                        + (select count(*) from relevo.claims where ids <> '{{}}')"""

        def nothing_left() -> bool:
            self.clock.ahead += timedelta(minutes=2)
            for cycle in ("reaper", *cycles):
                run(self.survivor, cycle)
            return self.conn.execute(left).fetchall() == [(0,)]

        # PostgreSQL may take a moment to notice that the dead process is gone, and hold its locks until then.
        eventually(nothing_left, "everything comes to its end")
        self.clock.ahead = timedelta()
        self.conn.execute("update relevo.cycle_state set shared_at = null")  # no clock was set back
        self.conn.execute("update relevo.projects set filled_at = now() where filled_at > now()")
