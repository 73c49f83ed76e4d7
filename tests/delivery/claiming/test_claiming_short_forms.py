"""The short forms of journal, look, settle and receipts write and answer what the careful ones do, or leave it to them: cases by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from threading import Event as Flag
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import relevo
from relevo.app import App
from relevo.core import queries
from relevo.core.errors import OwnershipLostError
from relevo.core.model import (
    Accepted,
    Answer,
    Awaiting,
    Budget,
    Delivery,
    PushRequest,
    ReceiptAnswer,
    Reply,
    SentRequest,
    TakenFate,
    Ticket,
)
from relevo.database.pool import Connection
from relevo.delivery.claim_sender import ClaimSender
from relevo.delivery.claiming import columns
from relevo.delivery.claiming.claim import Claim, Verdicts
from relevo.delivery.claiming.claims import Claims
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.projects.pauses import TurnedAway
from relevo.delivery.projects.rate_and_breaker import Grant
from relevo.delivery.sending.in_flight import RequestResult
from relevo.delivery.worker_services import ClaimContext
from relevo.runtime.runs import Run, RunContext
from support.claim_steps import MINUTE, NOW, SECOND, add
from support.deliveries import TODAY
from support.soak import cases
from support.written_rows import picture, summed

CASES = cases(100, whole=1_500)
RECEIPTS = queries.load("receipts")
YESTERDAY = TODAY - timedelta(days=1)
ROWS = """
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.at_most_once, d.status,
       d.attempt_count, d.lapse_count, d.deadline_at, i.token, i.token_version, i.platform, i.locale, null, null, d.created_at, null
  from relevo.notification_deliveries d join relevo.device_installations i using (installation_id) order by d.event_day, d.id
"""
CLAIM = """
insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
values (%(token)s, 'me', %(cycle)s, %(now)s, 60000, %(until)s, %(days)s, %(ids)s)
"""
LATE = "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at) values (%s, %s, %s, %s, %s)"
JOURNAL = """
insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
values (%s, %s, %s, 'me', 'default', %s, %s, %s)
"""
AWAITED = """
insert into relevo.awaited_receipts (project, look_at, sent_at, claim_token, days, ids, installations, tickets, versions, attempts)
values ('default', %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


@dataclass
class Within:
    """A database with one connection, whose transactions are savepoints: all that a case writes can be undone."""

    conn: psycopg.Connection[Any]

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend the connection."""
        yield self.conn

    @contextmanager
    def transaction(self, *_: object) -> Iterator[psycopg.Connection[Any]]:
        """Lend it inside a savepoint."""
        with self.conn.transaction():
            yield self.conn

    @contextmanager
    def begin(self, connection: Connection, *_: object) -> Iterator[None]:
        """Set a savepoint."""
        with connection.transaction():
            yield

    def execute(self, statement: bytes, parameters: Any = None, *_: object) -> psycopg.Cursor[Any]:
        """Send a statement."""
        return self.conn.execute(statement, parameters)


@dataclass
class World:
    """Deliveries of several events, and what is done with some of them by chance."""

    conn: psycopg.Connection[Any]
    claims: Claims
    deliveries: list[Delivery]
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    seen: Counter[str] = field(default_factory=Counter)

    def once_in(self, times: int) -> bool:
        """Return true once in so many times."""
        return self.chance.randrange(times) == 0

    def some(self) -> list[Delivery]:
        """Return some deliveries, in the order of their keys."""
        return sorted(self.chance.sample(self.deliveries, self.chance.randint(1, 8)), key=lambda d: (d.event_day, d.id))

    def claim(self, held: list[Delivery], cycle: str = "dispatch", until: timedelta = MINUTE) -> UUID:
        """Write the row of a claim."""
        token = uuid4()
        values = {"token": token, "cycle": cycle, "now": NOW, "until": NOW + until}
        self.conn.execute(CLAIM, values | {"days": [d.event_day for d in held], "ids": [d.id for d in held]})
        return token

    def wave(self, of: list[Delivery]) -> list[PushRequest]:
        """Cut deliveries into requests."""
        size = self.chance.randint(1, 4)
        return [PushRequest(uuid4(), tuple(of[n : n + size])) for n in range(0, len(of), size)]

    def write(self, statement: str, *values: object) -> None:
        """Send a statement."""
        self.conn.execute(statement.encode(), values)

    def outcome(self, act: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """Return an answer, and all that was written; undo it."""
        with self.conn.transaction(force_rollback=True):
            return act(), summed(picture(self.conn))

    def each(self, one: Callable[[], None], times: int = CASES) -> None:
        """Play cases, each undone."""
        for _ in range(times):
            with self.conn.transaction(force_rollback=True):
                one()


@pytest.fixture
def world(build: Callable[..., App], conn: psycopg.Connection[Any]) -> World:
    """Deliveries of three events on two days, some of which were tried before."""
    add(conn, 5, event=70)
    add(conn, 4, event=71, attempts=2)
    add(conn, 3, event=72, day=YESTERDAY)
    conn.execute("delete from relevo.due_chunks")
    conn.execute("update relevo.notification_deliveries set created_at = %s", [NOW - MINUTE])
    conn.execute("update relevo.notification_events set category = 'tips' where id = 71")
    conn.execute("update relevo.notification_events set first_sent_at = %s where id = 72", [NOW])
    worker = build(outbox_retry_jitter_ms=0)
    found = [Delivery(*row) for row in conn.execute(ROWS.encode()).fetchall()]
    return World(conn, Claims(Within(conn), worker.settings, "me", worker.heartbeat), found)  # type: ignore[arg-type]


def claim_of(token: UUID, held: list[Delivery]) -> Claim:
    """Return a claim as its worker knows it."""
    return Claim(token, "dispatch", "default", 60_000, tuple(held))


def change_events(world: World) -> None:
    """End, delay or delete an event by chance, or let a ticket have come late."""
    one = world.chance.choice(world.deliveries)
    if world.once_in(8):
        world.write("update relevo.notification_events set state = 'cancelled', ended_at = %s where id = %s", NOW, one.notification_event_id)  # fmt: skip
    if world.once_in(8):
        at = NOW + world.chance.choice((-1, 0, 1)) * SECOND
        world.write("update relevo.notification_events set scheduled_at = %s, deadline_at = %s where id = %s", at - MINUTE, at, one.notification_event_id)  # fmt: skip
    if world.once_in(15):
        world.write("delete from relevo.notification_events where id = %s", one.notification_event_id)
    if world.once_in(5):
        world.write(LATE, one.event_day, one.id, "late", uuid4(), NOW)


def test_both_journals_write_the_same(world: World) -> None:
    """What is journalled plainly is what the careful journal lets go, row by row; of all else the plain one writes nothing."""

    def case() -> None:
        held = world.some()
        token = world.claim(held, until=5 * SECOND if world.once_in(20) else MINUTE)
        asked = held[: world.chance.randint(1, len(held))]
        if world.once_in(12):
            asked = world.chance.choice((held[1:] or held, held[::-1], world.some()))
        change_events(world)
        if world.once_in(30):
            world.write("delete from relevo.claims")
        wave = world.wave(asked)

        def carefully() -> Verdicts | None:
            try:
                numbers = columns.numbers(asked, NOW)
                return world.claims._journal_carefully(claim_of(token, held), wave, numbers)
            except OwnershipLostError:
                return None

        claim = claim_of(token, held)
        went, plainly = world.outcome(
            lambda: world.claims._journal_plainly(world.conn, claim, claim.wave_of(wave), NOW)
        )
        verdicts, written = world.outcome(carefully)
        world.seen["went" if went else "left"] += 1
        if went:
            assert verdicts is not None
            assert verdicts.all_go
            assert plainly == written
        else:
            assert plainly["journal"] == []

    world.each(case)
    assert min(world.seen["went"], world.seen["left"]) > CASES / 5


PHONE_CHANGES = (
    "token_version = token_version + 1",
    "active = false",
    "blocked = true",
    "permission = 'denied'",
    "push_capable = false",
    "invalidated_at = now(), invalid_reason = 'x'",
    "opt_outs = '{tips}'",
    "opt_outs = '{other}'",
    "refused = '{tips}'",
    "accepted = '{tips}'",
    f"handled_before = timestamptz '{NOW - MINUTE}'",
    f"handled_before = timestamptz '{NOW - 2 * MINUTE}'",
    "owner = 'ana', owner_since = now()",
)


def test_both_looks_at_the_phones_say_the_same(world: World) -> None:
    """Of phones that the short look calls unchanged the careful one holds back none."""
    around = [f"{NOW - timedelta(hours=1):%H:%M}-{NOW + timedelta(hours=1):%H:%M}"]
    apart = [f"{NOW + timedelta(hours=3):%H:%M}-{NOW + timedelta(hours=4):%H:%M}"]

    def case() -> None:
        asked = world.some()
        for _ in range(world.chance.choice((0, 1, 2))):
            one = world.chance.choice(asked)
            change = world.chance.choice(PHONE_CHANGES)
            world.write(
                f"update relevo.device_installations set {change} where installation_id = %s", one.installation_id
            )
        if world.once_in(3):
            rule = world.chance.choice(("on", "off", "mandatory"))
            world.write("insert into relevo.categories (category, rule) values ('tips', %s)", rule)
        if world.once_in(8):
            world.write("update relevo.device_installations set owner = 'ana', owner_since = now() where installation_id = %s", asked[0].installation_id)  # fmt: skip
            world.write("insert into relevo.event_completions (event_id, owner, reason) values (%s, 'ana', 'done')", world.chance.choice(world.deliveries).notification_event_id)  # fmt: skip
        if world.once_in(4):
            windows = world.chance.choice((around, apart))
            whose = world.chance.choice(({"project": "default"}, {"installation_id": asked[-1].installation_id}))
            relevo.set_quiet(world.conn, windows, zone="UTC", **whose)  # type: ignore[arg-type]
        if world.once_in(8):
            world.write("update relevo.notification_events set lane = 'urgent'")
        if world.once_in(20):
            world.write("delete from relevo.device_installations where installation_id = %s", asked[0].installation_id)
        claim = claim_of(uuid4(), asked)
        wave = world.wave(asked)
        unchanged = world.claims._are_unchanged(world.conn, claim.wave_of(wave), NOW)
        verdicts = world.claims._hold_back_changed(claim, wave, Verdicts(wave), columns.numbers(asked, NOW))
        world.seen["unchanged" if unchanged else "changed" if verdicts.held else "looked at"] += 1
        assert not unchanged or verdicts.all_go, verdicts.held

    world.each(case, 2 * CASES)
    assert min(world.seen["unchanged"], world.seen["changed"]) > CASES / 5


def test_both_settles_write_the_same(world: World) -> None:
    """What is settled as sent whole, or around what was not sent, is what the careful settle writes; of all else the short one writes nothing."""

    def case() -> None:
        held = world.some()
        token = world.claim(held)
        fate: TakenFate = world.chance.choice(("sent", "sent", "ok"))
        sent = held[: world.chance.randint(1, len(held))]
        if world.once_in(4):
            sent = [each for each in sent if not world.once_in(3)] or sent
        if world.once_in(12):
            sent = world.chance.choice((held[1:] or held, held[::-1], world.some()))
        requests = world.wave(sent)
        for request in requests:
            ids = [d.id for d in request.deliveries]
            world.write(JOURNAL, TODAY, request.id, token, NOW, [d.event_day for d in request.deliveries], ids)
        one = world.chance.choice(held)
        if world.once_in(6):
            world.write(LATE, one.event_day, one.id, world.chance.choice(("late", f"ticket-{one.id}")), uuid4(), NOW)
        if world.once_in(20):
            world.write("delete from relevo.notification_deliveries where id = %s", one.id)
        if world.once_in(20):
            world.write("delete from relevo.claims")
        if world.once_in(5):
            world.write(
                "update relevo.notification_deliveries set last_error_code = 'x', last_error_message = 'y', lapse_count = 1"
            )
        gone = {d.id for d in sent}
        finish = len(gone) == len(held)
        last = max((place for place, d in enumerate(held, 1) if d.id in gone), default=0)
        unsent = [place for place, d in enumerate(held[:last], 1) if d.id not in gone]
        taken = [SentRequest(r, [f"ticket-{d.id}" for d in r.deliveries], fate=fate) for r in requests]
        answers = [
            Answer(d.event_day, d.id, fate, ticket_id=f"ticket-{d.id}", token_version=d.token_version) for d in sent
        ]
        settle = partial(
            world.claims.settle, answers=answers, requests=[r.id for r in requests], now=NOW, finish=finish
        )
        before = summed(picture(world.conn))
        told, plainly = world.outcome(
            lambda: world.claims.settle_sent(claim_of(token, held), taken, NOW, unsent=unsent, finish=finish)
        )
        settled, written = world.outcome(lambda: settle(claim_of(token, held)))
        world.seen["left" if told is None else "around" if unsent else "whole"] += 1
        if told is None:
            assert plainly == before
        else:
            assert told == settled
            assert plainly == written

    world.each(case)
    assert world.seen["whole"] > CASES / 3
    assert min(world.seen["around"], world.seen["left"]) > CASES / 30


def replies(world: World, requests: list[PushRequest]) -> list[RequestResult]:
    """Return the replies to some requests, most of which were taken as a whole."""
    results: list[RequestResult] = []
    fate: TakenFate = world.chance.choice(("sent", "ok"))
    for request in requests:
        names = [f"ticket-{d.id}" for d in request.deliveries]
        tickets = [Ticket(fate, id=name) for name in names]
        if world.once_in(6):
            tickets[-1] = Ticket(world.chance.choice(("failed", "retryable", "unclear")), code="x", message="no")
        if world.once_in(20):
            tickets.pop()
        plain = all(ticket.fate == fate for ticket in tickets) and len(tickets) == len(names) and not world.once_in(6)
        reply = Reply("answered", Accepted(names, fate) if plain else tuple(tickets))
        results.append(RequestResult(request, None if world.once_in(30) else reply))
    return results


def test_both_ways_to_take_replies_do_the_same(world: World, build: Callable[..., App]) -> None:
    """Requests that were taken as a whole are counted, reported and written as they are where each ticket is looked at."""
    app = build()

    def careful(*_: object) -> list[SentRequest]:
        return []

    careful_sender = type("CarefulSender", (ClaimSender,), {"_all_sent": careful})

    def case() -> None:
        held = world.some()
        token = world.claim(held)
        requests = world.wave(held[: world.chance.randint(1, len(held))])
        for request in requests:
            ids = [d.id for d in request.deliveries]
            world.write(JOURNAL, TODAY, request.id, token, NOW, [d.event_day for d in request.deliveries], ids)
        results = replies(world, requests)
        before = held[:1] if world.once_in(10) else []

        def taken(kind: type[ClaimSender]) -> Any:
            of_run = RunContext(0, "dispatch", "", "manual", "me", None, NOW)
            run = Run(of_run, app.settings, app.database, Budget(60_000, 1_000), None, None, Flag(), clock=lambda: NOW)
            services = replace(app.services, claims=world.claims, turned_away=TurnedAway())
            allowance = Allowance(Grant(5))
            sender = kind(
                ClaimContext(services, run, claim_of(token, held), "bulk", services.pools["default"], allowance)
            )
            sender.recorder.settled |= {d.id for d in before}
            again = sender._take_results(results, [])
            return again, sender.context.report, sender.tokens, sender.recorder.settled, sender.replies.troubled

        short, plainly = world.outcome(partial(taken, ClaimSender))
        careful, written = world.outcome(partial(taken, careful_sender))
        whole = all(each.reply is not None and isinstance(each.reply.tickets, Accepted) for each in results)
        world.seen["whole" if whole and not before else "mixed"] += 1
        assert short == careful
        assert plainly == written

    world.each(case)
    assert min(world.seen["whole"], world.seen["mixed"]) > CASES / 5


def test_both_settles_of_receipts_write_the_same(world: World) -> None:
    """What is confirmed all at once is what the careful settle writes of as many receipts, each of which says ok."""
    world.write(
        "update relevo.notification_deliveries set status = 'sent', provider_ticket_id = 'ticket-' || id, attempt_count = 1"
    )

    def case() -> None:
        held = world.some()
        token = world.claim(held, "receipt")
        size = world.chance.randint(1, 4)
        for part in (held[n : n + size] for n in range(0, len(held), size)):
            each = [[d.event_day, d.id, d.installation_id, f"ticket-{d.id}", d.token_version, 1] for d in part]
            world.write(AWAITED, NOW, NOW - MINUTE, token, *map(list, zip(*each, strict=True)))
        one = world.chance.choice(held)
        if world.once_in(5):
            change = world.chance.choice(
                ("status = 'ok', completed_at = now()", "last_error_code = 'x', lapse_count = 1", "project = 'shop'")
            )
            world.write(f"update relevo.notification_deliveries set {change} where id = %s", one.id)
        if world.once_in(15):
            world.write("delete from relevo.notification_deliveries where id = %s", one.id)
        if world.once_in(15):
            world.write("update relevo.awaited_receipts set claim_token = null where %s = any (ids)", one.id)
        if world.once_in(15):
            world.write("delete from relevo.claims")
        if world.once_in(6):
            world.write(LATE, one.event_day, one.id, world.chance.choice(("late", f"ticket-{one.id}")), uuid4(), NOW)
        asked = [Awaiting(d.event_day, d.id, d.installation_id, f"ticket-{d.id}", d.token_version, NOW) for d in held]
        claim = Claim(token, "receipt", "default", 60_000, tuple(asked))
        answers = [ReceiptAnswer(each, "ok") for each in asked]

        def carefully() -> dict[str, int]:
            given = world.claims._common(claim, NOW) | columns.received(answers) | {"give_up_ms": 86_400_000}
            return dict(world.conn.execute(RECEIPTS["settle_receipts"], given).fetchall())

        before = summed(picture(world.conn))
        confirmed, plainly = world.outcome(lambda: world.claims._confirm(claim, len(answers), NOW))
        settled, written = world.outcome(carefully)
        world.seen["left" if confirmed is None else "confirmed"] += 1
        if confirmed is None:
            assert plainly == before
        else:
            assert settled == ({"ok": confirmed} if confirmed else {})
            assert plainly == written

    world.each(case)
    assert world.seen["confirmed"] > CASES / 2
    assert world.seen["left"] > 0
