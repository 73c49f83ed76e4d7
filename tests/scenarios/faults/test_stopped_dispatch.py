"""A worker that is stopped in its tracks beyond its lease, and goes on when others have done its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.sandbox.server import Sandbox
from support import soak
from support.dying_processes import (
    SIGKILL,
    DyingProcesses,
    Fate,
    enqueue,
    fates,
    install,
    needless_resends,
    outwait_lease,
    run,
)
from support.phones import fan_out
from support.processes import eventually

REPLAYED = True
"""`make test`, too, holds the model against what these tests do: most of what they do comes late."""
# Two requests of four, one after the other; a lease that a test can outwait, and that a busy machine can keep.
SETTINGS = {
    "outbox_lease_duration_ms": 4_500,
    "push_request_timeout_ms": 1_500,
    "push_chunk_size": 4,
    "outbox_concurrency": 1,
    "push_rate_per_second": 0,
}


@dataclass
class Scene:
    """A worker stands still in its first of two requests; another one finishes all, then the first one goes on."""

    conn: psycopg.Connection[Any]
    sandbox: Sandbox
    dying_processes: DyingProcesses
    survivor: App

    def __post_init__(self) -> None:
        events = [({"at_most_once": True}, 2), ({}, 2), ({}, 4)]
        phones = [(how, list(install(self.conn, [""] * count, "default"))) for how, count in events]
        self.once, self.again, self.rest = (enqueue(self.conn, each, **how) for how, each in phones)
        fan_out(self.survivor)

    def play(self, name: str, when: str, killed: tuple[str, str] | None = None) -> dict[str, Any]:
        """Stop at the first such moment, and die at another; return what the process told of its run in the end."""
        stop = {"name": name, "when": when, "nth": 1, "signal": "SIGSTOP"}
        kill = {"name": killed[0], "when": killed[1], "nth": 1} if killed else None
        dying = self.dying_processes.begin("dispatch", stop, kill, heartbeat=True, **SETTINGS)
        dying.stands()
        if name == "POST written":
            eventually(self._posts, "the request that was under way arrives")
        self.posts_before = self._posts()
        self.take_over()
        self.posts_taken_over = self._posts()
        self.rows_taken_over = self._rows()
        dying.goes_on()
        reported = dying.ends()
        assert reported["signal"] == (SIGKILL if killed else 0)
        return reported

    def take_over(self) -> None:
        """Let the other worker do what is there to do."""
        outwait_lease(self.conn)
        eventually(self._all_taken_over, "the other worker takes over")

    def _all_taken_over(self) -> bool:
        run(self.survivor, "reaper")
        run(self.survivor, "dispatch")
        left = "select from relevo.due_chunks union all select from relevo.claims where ids <> '{}'"
        return not self.conn.execute(left).fetchall()

    def _posts(self) -> int:
        return int(self.sandbox.totals()["sendRequests"])

    def _rows(self) -> list[Any]:
        return self.conn.execute("select d.* from relevo.notification_deliveries d order by d.id").fetchall()

    def check(self, *, posts: int = 0, settled: bool = False) -> None:
        """Look at what holds wherever it stood: it gave up, sent no more than it had begun, and wrote nothing."""
        assert self._posts() == self.posts_taken_over + posts
        assert (self._rows() == self.rows_taken_over) is not settled
        assert all(fate.received <= 1 for fate in self.of(self.once))
        assert [(fate.status, fate.received) for fate in self.of(self.rest)] == [("sent", 1)] * 4
        assert needless_resends(self.conn) == []
        assert self.conn.execute("select from relevo.claims where ids <> '{}'").fetchall() == []

    def of(self, event: int) -> list[Fate]:
        """Tell what became of an event's deliveries."""
        return fates(self.conn, self.sandbox, event)


@pytest.fixture
def scene(conn, sandbox, dying_processes, build) -> Scene:
    """Phones and events, a push service, a worker that will be stopped and one that will not."""
    return Scene(conn, sandbox, dying_processes, build(expo_base_url=sandbox.url, **SETTINGS))


@pytest.mark.needs("kits")
def test_each_step_is_written_down_for_the_model(scene, steps, conn) -> None:
    """Where Node.js is, the database writes down each step of each delivery; the end of this file replays them."""
    assert steps is not None, "nobody replays what these tests do"
    written = conn.execute("select count(distinct delivery_id), count(*) from relevo_trace.steps").fetchone()
    assert written == (8, 8)


def test_stopped_between_journal_and_request(scene) -> None:
    """It does not send what it had journalled once it goes on: at least once came from the other alone, and at most once,
    given up as unknown, is opened again, for now it is known that it was never begun, and comes once."""
    scene.play("COMMIT of journal.journal_plain_wave", "after")
    assert scene.posts_before == 0
    scene.take_over()
    scene.check(posts=1, settled=True)
    for event in (scene.once, scene.again):
        # how many requests it journals and holds back until it has its connection again is the machine's mood
        assert [(fate.status, fate.received) for fate in scene.of(event)] == [("sent", 1)] * 2


MOMENTS = [("COMMIT of claims.queue_deliveries", "before"), ("COMMIT of claims.queue_deliveries", "after")]
# All of these are one transaction, of which a kill before its COMMIT leaves nothing.
BESIDES = [(name, when) for name in ("journal.mark_unsent", "claims.queue_deliveries") for when in ("before", "after")]


@pytest.mark.parametrize("killed", soak.cases(MOMENTS, whole=[*MOMENTS, *BESIDES]), ids=" ".join)
def test_killed_while_it_opens_again_what_was_never_begun(scene, killed) -> None:
    """It goes on too late, and dies while it says that nothing was begun: that is said, and at most once comes once, or
    it is not, and at most once stays unsent and unknown. Nothing is open without being in the queue."""
    scene.play("COMMIT of journal.journal_plain_wave", "after", killed)
    said = killed == ("COMMIT of claims.queue_deliveries", "after")
    scene.take_over()
    scene.check(posts=int(said), settled=said)
    expected = ("sent", 1, 2) if said else ("unknown", 0, 1)
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.once)] == [expected] * 2
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.again)] == [("sent", 1, 2)] * 2


def test_stopped_during_a_request(scene) -> None:
    """What was sent is not sent again at most once; at least once comes again, for nobody knew; nothing else is sent."""
    scene.play("POST written", "after")
    eventually(lambda: scene.sandbox.totals()["delivered"] >= 4, "what it holds is delivered")
    scene.check(settled=scene.of(scene.once)[0].status == "sent")
    assert {(fate.received, fate.requests) for fate in scene.of(scene.once)} == {(1, 1)}
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.again)] == [("sent", 2, 2)] * 2
    assert scene.sandbox.totals()["duplicates"] == 2


def test_stopped_between_answer_and_settle(scene, conn) -> None:
    """Its late tickets are evidence: they turn unknown into sent; beside a resend that was quicker they are only kept."""
    reported = scene.play("POST send", "after")
    assert reported["done"]["late_tickets"] == 4
    scene.check(settled=True)
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.once)] == [("sent", 1, 1)] * 2
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.again)] == [("sent", 2, 2)] * 2
    resent = "select id from relevo.notification_deliveries where notification_event_id = %s order by id"
    kept = conn.execute("select delivery_id from relevo.late_tickets order by 1").fetchall()
    assert kept == conn.execute(resent, [scene.again]).fetchall()


def test_stopped_in_the_instant_before_a_request(scene) -> None:
    """Between its last look at the lease and the request no check is possible: that one request goes out late, at most
    once is still one, at least once is two only because the first was not answered, and nothing follows."""
    scene.play("POST send", "before")
    assert scene.posts_before == 0
    scene.check(posts=1, settled=True)
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.once)] == [("sent", 1, 1)] * 2
    assert [(fate.status, fate.received, fate.requests) for fate in scene.of(scene.again)] == [("sent", 2, 2)] * 2


def test_a_late_ticket_stops_the_resend(scene) -> None:
    """If it goes on after the other took its claim over and before the other sends, its tickets close the deliveries."""
    strike = {"name": "POST send", "when": "after", "nth": 1, "signal": "SIGSTOP"}
    dying = scene.dying_processes.begin("dispatch", strike, heartbeat=True, **SETTINGS)
    dying.stands()
    outwait_lease(scene.conn)
    eventually(lambda: run(scene.survivor, "reaper").get("claims_reaped"), "its claim is taken back")
    dying.goes_on()
    assert dying.ends()["done"]["late_tickets"] == 4
    scene.take_over()
    for event in (scene.once, scene.again):
        assert {(fate.status, fate.received, fate.requests) for fate in scene.of(event)} == {("sent", 1, 1)}
    assert {(fate.status, fate.received) for fate in scene.of(scene.rest)} == {("sent", 1)}
