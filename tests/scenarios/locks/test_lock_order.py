"""Rows are locked in one order by all: a tender before its event, and installations by their ids, without a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.client.values import Owners
from relevo.core.items import Fetched, Item
from relevo.core.model import Answer, PushRequest, Report
from relevo.core.ports import SourceContext
from relevo.cycles.ingest import cycle
from relevo.operators import actions
from support.processes import eventually
from support.sending_worker import Relay, beside, token

WAITING = "select count(*) from pg_locks where not granted and waitstart < clock_timestamp() - interval '1.2 s'"
"""Who has waited for so long that the server has already looked for a deadlock on their behalf."""

PATIENT = {
    "outbox_lease_duration_ms": 600_000,
    "database_lock_timeout_ms": 60_000,
    "database_statement_timeout_ms": 120_000,
    "database_idle_transaction_timeout_ms": 120_000,
}
"""Nothing but a deadlock may end a wait, however slow the machine is."""


class Board:
    """A source that tells of tenders, as they stand."""

    name = "board"
    interval_ms = 60_000
    seeds_silently = False

    def __init__(self) -> None:
        self.codes = ["1-1-LE26"]
        self.withdrawn = False

    def fetch(self, _cursor: Mapping[str, Any], _context: SourceContext) -> Fetched:
        """Tell of them."""
        known = {"cierra_at": datetime.now(UTC) + timedelta(days=3), "withdrawn": self.withdrawn}
        items = [Item("cl", code, f"Puente {code}", f"v{self.withdrawn}", **known) for code in self.codes]
        return Fetched("ok", {}, items=tuple(items))


class SlowRenderer:
    """Renders tenders, and can be held up in the midst of ingest's transaction."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, item: Item) -> tuple[str, str]:
        """Return title and body, once nobody holds it up any more."""
        self.held.set()
        assert self.go_on.wait(60)
        return "Nueva", item.nombre


@pytest.fixture
def board() -> Board:
    """A source with one open tender."""
    return Board()


@pytest.fixture
def render() -> SlowRenderer:
    """A renderer that is quick until it is held up."""
    return SlowRenderer()


def ingest(worker: Relay, board: Board, render: SlowRenderer) -> Report:
    """Read the board."""
    return worker.app.runner.run(cycle(worker.app.settings, board, render), "manual")


@pytest.fixture
def worker(relay, board: Board, render: SlowRenderer) -> Relay:
    """A relay with a push of the tender that is due."""
    made: Relay = relay(**PATIENT)
    made.register("ana")
    assert ingest(made, board, render).counts["events_created"] == 1
    made.fan_out()
    assert made.delivery("ana")["status"] == "pending"
    board.withdrawn = True
    render.held.clear()
    render.go_on.clear()
    return made


def meet(conn: psycopg.Connection[Any], worker: Relay, board: Board, render: SlowRenderer, write: Any) -> list[Any]:
    """Have ingest withdraw the tender while its push is written down: each has locked something, then both go on."""
    with beside(lambda: ingest(worker, board, render)) as ingested:
        assert render.held.wait(60)
        with beside(write) as written:
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "somebody waits for the tender")
            render.go_on.set()
    assert ingested[0].outcome == "ok", ingested[0].error
    return written


def test_a_first_push_meets_a_withdrawal(worker, conn, board: Board, render: SlowRenderer) -> None:
    """Dispatch settles the first push of a tender that ingest is cancelling: both come through."""
    (report,) = meet(conn, worker, board, render, worker.dispatch)
    assert report.outcome == "ok"
    assert (worker.delivery("ana")["status"], worker.received("ana")) == ("sent", 1)
    assert worker.rows("select notificada from relevo.licitaciones") == [{"notificada": True}]
    assert worker.rows("select state from relevo.notification_events") == [{"state": "cancelled"}]


@pytest.mark.parametrize("closed_by", ["late ticket", "reaper"])
def test_a_late_ticket_meets_a_withdrawal(worker, conn, board: Board, render: SlowRenderer, closed_by: str) -> None:
    """The same where a ticket that came too late closes the delivery, at once or when its claim is taken back."""
    claims = worker.app.claims
    claim = claims.claim("dispatch", "default", "bulk")
    request = PushRequest(uuid4(), claim.deliveries)
    claims.journal(claim, [request])
    (delivery,) = claim.deliveries
    answer = Answer(delivery.event_day, delivery.id, "sent", ticket_id="late-1")
    claim.lose("error", "as if it had been held for too long")
    if closed_by == "late ticket":  # what is given up as unknown is closed by it at once
        conn.execute("update relevo.notification_events set at_most_once = true")
        worker.travel(minutes=15)
        worker.reap()
        write = lambda: claims.settle(claim, [answer], [request.id], worker.clock())  # noqa: E731
    else:
        claims.settle(claim, [answer], [request.id])
        worker.travel(minutes=15)
        write = worker.reap
    meet(conn, worker, board, render, write)
    assert worker.delivery("ana")["status"] == "sent"
    assert worker.rows("select notificada from relevo.licitaciones") == [{"notificada": True}]


def test_first_pushes_meet_withdrawals_of_several_tenders(relay, conn, dsn: str, board: Board, render: Any) -> None:
    """Two tenders, first read in the opposite of their order: both sides lock them by their key."""
    worker: Relay = relay(**PATIENT)
    worker.register("ana")
    for code in ("2-1-LE26", "1-1-LE26"):
        board.codes = [code]
        ingest(worker, board, render)
    board.codes, board.withdrawn = ["1-1-LE26", "2-1-LE26"], True
    worker.fan_out()
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.licitaciones where external_id = '1-1-LE26' for update")
        with beside(lambda: ingest(worker, board, render)) as ingested:
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "ingest waits")
            with beside(worker.dispatch) as dispatched:
                eventually(lambda: conn.execute(WAITING).fetchone() == (2,), "both wait")
                other.rollback()
    assert (ingested[0].outcome, dispatched[0].outcome) == ("ok", "ok"), (ingested, dispatched)
    assert {row["status"] for row in worker.deliveries()} == {"sent"}
    assert worker.rows("select bool_and(notificada) as all from relevo.licitaciones") == [{"all": True}]


def test_tokens_that_move_wait_for_no_phone_that_somebody_holds(relay, dsn: str) -> None:
    """The move writes the phones that are free and leaves the locked one to the next answer."""
    worker: Relay = relay(**PATIENT)
    first, second = worker.register("a", "b")
    move = {token("a"): "@acme/app", token("b"): "@acme/app"}
    projects = "select project from relevo.device_installations where installation_id = any (%s) order by project"
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.device_installations where installation_id = %s for update", [first])
        worker.app.services.projects.move_tokens("default", move)
        assert worker.rows(projects, [first, second]) == [{"project": "@acme/app"}, {"project": "default"}]
        other.rollback()
    worker.app.services.projects.move_tokens("default", move)
    assert worker.rows(projects, [first, second]) == [{"project": "@acme/app"}] * 2


@pytest.mark.parametrize("closed_by", ["late ticket", "reaper"])
def test_a_late_ticket_passes_by_an_event_that_somebody_holds(relay, conn, dsn: str, closed_by: str) -> None:
    """Whoever deletes an event locks it, then its deliveries; a ticket that closes one of them waits for neither."""
    worker: Relay = relay(**PATIENT)
    worker.register("ana")
    worker.tell("ana", at_most_once=closed_by == "late ticket")
    claims = worker.app.claims
    claim = claims.claim("dispatch", "default", "bulk")
    request = PushRequest(uuid4(), claim.deliveries)
    claims.journal(claim, [request])
    (delivery,) = claim.deliveries
    answer = Answer(delivery.event_day, delivery.id, "sent", ticket_id="late-1")
    claim.lose("error", "as if it had been held for too long")
    if closed_by == "reaper":
        claims.settle(claim, [answer], [request.id])
    worker.travel(minutes=15)
    if closed_by == "late ticket":
        worker.reap()
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.notification_events for update")
        other.execute("set local lock_timeout = '20s'")
        write = worker.reap if closed_by == "reaper" else lambda: claims.settle(claim, [answer], [], worker.clock())
        with beside(write):
            ended = "select status from relevo.notification_deliveries"
            waiting = lambda: conn.execute(WAITING).fetchone() == (1,)  # noqa: E731
            eventually(lambda: waiting() or conn.execute(ended).fetchone() == ("sent",), "it waits, or is done")
            other.execute("select from relevo.notification_deliveries order by event_day, id for update")
            other.rollback()
    assert worker.delivery("ana")["status"] == "sent"


def test_held_events_are_released_by_whoever_has_locked_them(relay, conn, dsn: str) -> None:
    """Whoever ends or deletes an event that is held locks it, then the note of that: a release does so, too."""
    worker: Relay = relay(**PATIENT, push_runaway_first_events=1)
    worker.register("ana")
    for _ in range(3):
        worker.tell("ana", type="digest")
    assert worker.rows("select count(*)::int as n from relevo.held_events") != [{"n": 0}]
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.notification_events order by id for update")
        with beside(lambda: actions.release_events(worker.app.database, "digest")) as released:
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "the release waits for the events")
            other.execute("select from relevo.held_events for update nowait")
            other.rollback()
    assert released[0]["events"] > 0
    assert worker.rows("select distinct state from relevo.notification_events where state = 'held'") == []


@pytest.mark.parametrize("whom", ["owner", "installation"])
def test_whoever_is_forgotten_loses_events_before_phones(relay, conn, dsn: str, whom: str) -> None:
    """A settle notes an event's first push, then disables phones: to forget somebody locks both in that order, too."""
    worker: Relay = relay(**PATIENT)
    (phone, _) = worker.register("ana", "ana-2", owner="ana")
    worker.enqueue(audience=Owners("ana") if whom == "owner" else [phone])
    with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as app:
        other.execute("select from relevo.notification_events for no key update")
        forget = lambda: app.execute(  # noqa: E731
            f"select relevo.forget_{whom}(%s)", ["ana" if whom == "owner" else phone]
        )
        with beside(forget):
            eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "it waits for the event")
            other.execute("select from relevo.device_installations for no key update nowait")
            other.rollback()
    assert worker.rows("select title from relevo.notification_events") == [{"title": "forgotten"}]
