"""The settle of what was sent whole: it writes exactly what the general one writes, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event
from relevo.core.model import Answer, PushRequest, SentRequest, TakenFate
from relevo.delivery.claiming.claim import Claim
from support.claim_steps import MINUTE, NOW, SECOND, add, claims_in, take
from support.deliveries import TODAY, one
from support.processes import eventually
from support.written_rows import picture, summed

Settle = Callable[[App, Claim, Sequence[PushRequest], bool], None]

TENDER = """
with made as (
  insert into relevo.licitaciones (namespace, external_id, nombre, fingerprint, sources) values ('cl', 'a tender', 'A tender', '1', '{here}') returning id
)
update relevo.notification_events e set licitacion_id = made.id from made where e.id = %s
"""


def ticket(delivery_id: int) -> str:
    """Return the ticket that a delivery got."""
    return f"ticket-{delivery_id:08}"


def generally(worker: App, claim: Claim, wave: Sequence[PushRequest], finish: bool, fate: TakenFate = "sent") -> None:
    """Settle as every mixture of answers is settled."""
    answers = [
        Answer(d.event_day, d.id, fate, True, ticket(d.id), token_version=d.token_version)
        for request in wave
        for d in request.deliveries
    ]
    written = worker.claims.settle(claim, answers, [request.id for request in wave], NOW + SECOND, finish=finish)
    assert written.written == {fate: len(answers)}


def plainly(worker: App, claim: Claim, wave: Sequence[PushRequest], finish: bool, fate: TakenFate = "sent") -> None:
    """Settle what was sent whole."""
    settlement = worker.claims.settle_sent(claim, sent(wave, fate), NOW + SECOND, finish=finish)
    assert settlement is not None
    assert settlement.written == {fate: sum(len(request.deliveries) for request in wave)}


def sent(wave: Sequence[PushRequest], fate: TakenFate = "sent") -> list[SentRequest]:
    """Return requests with a ticket for each of their deliveries."""
    return [SentRequest(request, [ticket(d.id) for d in request.deliveries], fate=fate) for request in wave]


def waves(claim: Claim, size: int) -> list[PushRequest]:
    """Cut what a claim holds into requests."""
    deliveries = claim.deliveries
    return [PushRequest(uuid4(), tuple(deliveries[n : n + size])) for n in range(0, len(deliveries), size)]  # type: ignore[arg-type]


def settled_by(
    settle: Settle, worker: App, conn: psycopg.Connection[Any], claim: Claim, wave: Any, finish: bool
) -> Any:
    """Settle, look at all that this wrote, and undo it."""
    before = {table: conn.execute(f"select * from relevo.{table}".encode()).fetchall() for table in COPIED}
    settle(worker, claim, wave, finish)
    seen = picture(conn)
    for table in COPIED:
        conn.execute(f"delete from relevo.{table}".encode())
    for table, rows in before.items():
        for row in rows:
            places = ", ".join(["%s"] * len(row))
            conn.execute(f"insert into relevo.{table} overriding system value values ({places})".encode(), row)
    return seen


COPIED = (
    "notification_deliveries",
    "awaited_receipts",
    "event_progress_deltas",
    "push_tallies",
    "event_repeat_deltas",
    "push_requests",
    "late_tickets",
    "claims",
    "due_chunks",
    "dead_letters",
)


def many_pasts(conn: psycopg.Connection[Any]) -> None:
    """Events of two days, one of them with a tender, deliveries with and without a past, one with a ticket that came late."""
    first = add(conn, 3)
    add(conn, 3, attempts=2, event=71)
    add(conn, 2, day=TODAY - timedelta(days=1), event=72)
    conn.execute(TENDER, [71])
    conn.execute("update relevo.notification_events set first_sent_at = %s where id = 72", [NOW])
    conn.execute(
        "update relevo.notification_deliveries set last_error_code = 'x', last_error_message = 'y', lapse_count = 1"
    )
    conn.execute(
        "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at) values (%s, %s, 'other', %s, %s)",
        [TODAY, 1 << 40, uuid4(), NOW],
    )
    assert first


@pytest.mark.parametrize("fate", ["sent", "ok"])
@pytest.mark.parametrize(("requests", "finish"), [(4, True), (4, False), (2, False)])
def test_both_settles_write_the_same(build, conn, requests, finish, fate) -> None:
    """Every row of every table that a settle touches is the same, of the whole claim or of its first requests."""
    many_pasts(conn)
    worker = build()
    claim = take(worker)
    assert len(claim.deliveries) == 8
    wave = waves(claim, 2)
    worker.claims.journal(claim, wave, NOW)
    events, tenders = picture(conn)["events"], picture(conn)["tenders"]
    expected = settled_by(partial(generally, fate=fate), worker, conn, claim, wave[:requests], finish)
    conn.execute("update relevo.notification_events set first_sent_at = null where id <> 72")
    conn.execute("update relevo.licitaciones set notificada = false")
    assert (picture(conn)["events"], picture(conn)["tenders"]) == (events, tenders)
    claim.renewed(claim.taken_at)
    plainly(worker, claim, wave[:requests], finish, fate)
    found = picture(conn)
    assert found == expected
    assert any(row[-1] for row in found["repeats"])
    assert bool(claims_in(conn)) is not finish


@pytest.mark.parametrize(
    ("odd", "fate"),
    [((0,), "sent"), ((3,), "sent"), ((7,), "ok"), ((0, 1, 5), "sent"), ((0, 1, 5), "ok"), ((2, 3), "ok")],
)
def test_what_was_sent_in_a_mixture_is_settled_as_usual(build, conn, odd, fate) -> None:
    """Around what failed, the rest is settled beforehand; together that writes what the general settle writes."""
    many_pasts(conn)
    worker = build()
    claim = take(worker)
    wave = waves(claim, 2)
    failed = {claim.deliveries[place].id for place in odd}
    answers = [
        Answer(d.event_day, d.id, "failed", error_code="x")
        if d.id in failed
        else Answer(d.event_day, d.id, fate, True, ticket(d.id), token_version=d.token_version)
        for request in wave
        for d in request.deliveries
    ]

    def at_once(worker: App, claim: Claim, wave: Sequence[PushRequest], finish: bool) -> None:
        worker.claims.settle(claim, answers, [each.id for each in wave], NOW + SECOND, finish=finish)

    worker.claims.journal(claim, wave, NOW)
    expected = settled_by(at_once, worker, conn, claim, wave, finish=True)
    conn.execute("update relevo.notification_events set first_sent_at = null where id <> 72")
    conn.execute("update relevo.licitaciones set notificada = false")
    parts = [PushRequest(r.id, tuple(d for d in r.deliveries if d.id not in failed)) for r in wave]
    going = [
        SentRequest(part, [ticket(d.id) for d in part.deliveries], len(part.deliveries) == 2, fate)
        for part in parts
        if part.deliveries
    ]
    last = max(place for place, d in enumerate(claim.deliveries) if d.id not in failed)
    unsent = [place + 1 for place in odd if place < last]
    settlement = worker.claims.settle_sent(claim, going, NOW + SECOND, unsent=unsent)
    assert settlement is not None
    assert conn.execute("select ids from relevo.claims").fetchall() == [(sorted(failed),)]
    open_ones = "select count(*) from relevo.push_requests where answered_at is null"
    mixed = [request for request in wave if failed & {d.id for d in request.deliveries}]
    assert conn.execute(open_ones).fetchone() == (len(mixed),), "what failed is not answered yet"
    rest = [answer for answer in answers if answer.id in failed]
    worker.claims.settle(claim, rest, [request.id for request in mixed], NOW + SECOND, finish=True)
    assert summed(picture(conn)) == summed(expected)
    assert not claims_in(conn)


@pytest.mark.parametrize("wrong", ["not the next", "lost", "a row is gone", "settled already"])
def test_what_is_not_plain_writes_nothing(build, conn, wrong) -> None:
    """Requests that are not what the claim holds next, of a claim that ended, or of a delivery that was deleted."""
    ids = add(conn, 4)
    worker = build()
    claim = take(worker)
    wave = waves(claim, 2)
    worker.claims.journal(claim, wave, NOW)
    asked = wave[1:] if wrong == "not the next" else wave
    if wrong == "lost":
        worker.claims.release(claim, NOW)
    if wrong == "a row is gone":
        conn.execute("delete from relevo.notification_deliveries where id = %s", [ids[2]])
    if wrong == "settled already":
        plainly(worker, claim, wave, finish=True)
    before = picture(conn)
    assert worker.claims.settle_sent(claim, sent(asked), NOW + SECOND, finish=True) is None
    assert picture(conn) == before


def test_a_part_leaves_the_rest_to_the_claim(build, conn) -> None:
    """The first request of two is settled, the other one still stands in the claim, whose lease begins anew."""
    ids = add(conn, 4)
    worker = build()
    claim = take(worker)
    wave = waves(claim, 2)
    worker.claims.journal(claim, wave, NOW)
    plainly(worker, claim, wave[:1], finish=False)
    assert conn.execute("select ids, leased_until - claimed_at from relevo.claims").fetchall() == [
        (ids[2:], timedelta(milliseconds=claim.lease_ms) + SECOND)
    ]
    plainly(worker, claim, wave[1:], finish=True)
    assert claims_in(conn) == []
    assert {one(conn, key)["status"] for key in ids} == {"sent"}


def test_a_late_ticket_that_came_again_is_used(build, conn) -> None:
    """A ticket that waited as evidence, and is the one that is settled now, waits no longer."""
    (delivery,) = add(conn, 1)
    worker = build()
    claim = take(worker)
    wave = waves(claim, 1)
    worker.claims.journal(claim, wave, NOW)
    conn.execute(
        "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at) values (%s, %s, %s, %s, %s)",
        [TODAY, delivery, ticket(delivery), uuid4(), NOW],
    )
    plainly(worker, claim, wave, finish=True)
    assert picture(conn)["late"] == []


def test_a_ticket_in_other_letters_is_settled_in_a_mixture(build, conn) -> None:
    """A push service may name its tickets as it likes: what is not plain ASCII is written down as it is."""
    ids = add(conn, 2)
    worker = build()
    claim = take(worker)
    wave = waves(claim, 2)
    worker.claims.journal(claim, wave, NOW)
    part = SentRequest(PushRequest(wave[0].id, wave[0].deliveries[:1]), ["año-1"], whole=False)
    settlement = worker.claims.settle_sent(claim, [part], NOW + SECOND)
    assert settlement is not None
    assert (one(conn, ids[0])["provider_ticket_id"], one(conn, ids[1])["status"]) == ("año-1", "pending")


def test_the_first_of_two_settles_says_when(conn, dsn) -> None:
    """A settle that waited for the event's tender leaves the time that another one wrote meanwhile."""
    told = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone")).event_id
    conn.execute(TENDER, [told])
    note = "select relevo.note_sent(%s, %s)"
    with psycopg.connect(dsn) as first, psycopg.connect(dsn, autocommit=True) as second:
        first.execute(note, [[told], NOW])
        later = threading.Thread(target=second.execute, args=[note, [[told], NOW + MINUTE]])
        later.start()
        eventually(lambda: conn.execute("select from pg_locks where not granted").fetchall(), "the second waits")
        first.commit()
        later.join()
    said = "select e.first_sent_at, l.notificada from relevo.notification_events e join relevo.licitaciones l on l.id = e.licitacion_id"
    assert conn.execute(said).fetchall() == [(NOW, True)]
