"""The journal: the fence before each request, which records exactly what may be sent."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relevo.core.errors import OwnershipLostError
from relevo.core.model import PushRequest
from relevo.database import pool
from support.claim_steps import (
    HTTP_TIMEOUT,
    LEASE,
    NOW,
    SECOND,
    add,
    answers,
    claims_in,
    journal,
    late_tickets_in,
    reap,
    take,
    ticket_of,
)
from support.deliveries import one, states


def journalled(conn):
    """Return what the journal holds: the ids of each request."""
    return dict(conn.execute("select id, ids from relevo.push_requests").fetchall())


def test_it_records_a_wave_as_it_will_be_sent(build, conn) -> None:
    """One wave of several requests: each is a row with its deliveries, by whom and for which claim, unanswered."""
    add(conn, 5)
    worker = build(worker_id="worker-a")
    claim = take(worker)
    wave = [PushRequest(uuid4(), claim.deliveries[:2]), PushRequest(uuid4(), claim.deliveries[2:])]
    verdicts = worker.claims.journal(claim, wave, NOW)
    assert {(v.id, v.verdict, v.ticket_id) for v in verdicts} == {(d, "send", None) for d in claim.ids}
    assert {key: sorted(ids) for key, ids in journalled(conn).items()} == {
        request.id: sorted(d.id for d in request.deliveries) for request in wave
    }
    rows = conn.execute(
        "select distinct claim_token, worker_id, journalled_at, answered_at, request_day from relevo.push_requests"
    ).fetchall()
    assert rows == [(claim.token, "worker-a", NOW, None, NOW.date())]


def test_answers_close_their_requests_only(build, conn) -> None:
    """A settle marks the requests it brings answers for, and no other."""
    add(conn, 2)
    worker = build()
    claim = take(worker)
    first, second = (journal(worker, claim, deliveries=[delivery]) for delivery in claim.deliveries)
    worker.claims.settle(claim, answers(claim)[:1], [first.id], NOW + SECOND)
    rows = dict(conn.execute("select id, answered_at from relevo.push_requests").fetchall())
    assert rows == {first.id: NOW + SECOND, second.id: None}


def test_it_refuses_a_claim_that_was_taken_back(build, conn) -> None:
    """Nothing is journalled for a reaped claim, and its holder learns why; asking again does not change the answer."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    reap(worker, NOW + LEASE)
    for _ in range(2):
        with pytest.raises(OwnershipLostError) as lost:
            worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW + LEASE)
        assert lost.value.reason == "taken_by_another_worker"
    assert journalled(conn) == {}


def test_it_refuses_a_claim_another_claim_followed(build, conn) -> None:
    """The deliveries are in another claim of the same worker: the first one may not send them."""
    add(conn, 1)
    worker = build()
    stale = take(worker)
    reap(worker, NOW + LEASE)
    fresh = take(worker, NOW + LEASE)
    with pytest.raises(OwnershipLostError):
        worker.claims.journal(stale, [PushRequest(uuid4(), stale.deliveries)], NOW + LEASE)
    journal(worker, fresh, NOW + LEASE)


@pytest.mark.parametrize("left", [-LEASE, 0 * SECOND, SECOND, HTTP_TIMEOUT])
def test_it_needs_more_lease_than_a_request_may_take(build, conn, left) -> None:
    """With no more lease left than one HTTP timeout nothing may be sent, though the claim still stands."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    with pytest.raises(OwnershipLostError) as lost:
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW + LEASE - left)
    assert lost.value.reason == "error"
    assert "Too little of its lease is left." in str(lost.value)
    assert (journalled(conn), claims_in(conn)) == ({}, [claim.token])


def test_a_little_more_lease_is_enough(build, conn) -> None:
    """One microsecond more than an HTTP timeout is enough."""
    add(conn, 1)
    worker = build()
    journal(worker, take(worker), NOW + LEASE - HTTP_TIMEOUT - SECOND / 1_000_000)


def test_it_skips_what_has_expired(build, conn) -> None:
    """A delivery whose deadline has come is not journalled; the rest of its request is."""
    (late,) = add(conn, 1, deadline=NOW)
    (timely,) = add(conn, 1, deadline=NOW + SECOND)
    worker = build()
    claim = take(worker)
    request = PushRequest(uuid4(), claim.deliveries)
    verdicts = {v.id: v.verdict for v in worker.claims.journal(claim, [request], NOW)}
    assert verdicts == {late: "deadline_passed", timely: "send"}
    assert journalled(conn) == {request.id: [timely]}


def test_a_request_of_expired_deliveries_is_none(build, conn) -> None:
    """If nothing of a request may be sent, there is no request; settling the verdict is enough."""
    add(conn, 2, deadline=NOW)
    worker = build()
    claim = take(worker)
    verdicts = worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW)
    assert {v.verdict for v in verdicts} == {"deadline_passed"}
    assert journalled(conn) == {}
    worker.claims.settle(claim, answers(claim, "expired", attempted=False), now=NOW)
    assert states(conn) == {"expired": 2}


EVENT = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, category)
values (1, 'tender.new', '1', 'Hello', 'everyone', '', 'news')
"""
MOVE = "token = 'ExponentPushToken[new]', token_version = token_version + 1"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (f"update relevo.device_installations set {MOVE}", "token_changed"),
        ("delete from relevo.device_installations", "installation_gone"),
        ("update relevo.device_installations set token = null", "not_allowed"),
        ("update relevo.device_installations set permission = 'denied'", "not_allowed"),
        ("update relevo.device_installations set push_capable = false", "not_allowed"),
        ("update relevo.device_installations set active = false", "not_allowed"),
        ("update relevo.device_installations set invalidated_at = now(), invalid_reason = 'gone'", "not_allowed"),
        (f"update relevo.device_installations set {MOVE}, permission = 'denied'", "not_allowed"),
        ("update relevo.device_installations set opt_outs = '{other,news}'", "opted_out"),
        ("update relevo.device_installations set opt_outs = '{other}'", "send"),
        ("update relevo.device_installations set handled_before = now()", "handled_elsewhere"),
        ("update relevo.device_installations set handled_before = now() - interval '1 hour'", "send"),
        ("update relevo.device_installations set locale = 'es', updated_at = now()", "send"),
    ],
)
def test_it_looks_at_the_installation_again(build, conn, change, verdict) -> None:
    """What changed since the claim is not sent as it was claimed, which is seen after the journal; others of the request are."""
    conn.execute(EVENT)
    changed, same = add(conn, 2, event=1)
    worker = build()
    claim = take(worker)
    conn.execute(
        f"{change} where installation_id = (select installation_id from relevo.notification_deliveries where id = %s)",
        [changed],
    )
    request = PushRequest(uuid4(), claim.deliveries)
    verdicts = {v.id: v.verdict for v in worker.claims.journal(claim, [request], NOW)}
    assert verdicts == {changed: verdict, same: "send"}
    sent = [key for key, said in verdicts.items() if said == "send"]
    assert sorted(journalled(conn)[request.id]) == sorted(sent), "the journal holds what is sent"


def test_a_request_of_which_the_phones_leave_nothing_was_not_begun(build, conn) -> None:
    """If no phone of a request may get it, its journal says that it was not begun: what is handed back spends nothing."""
    held_back, sent = add(conn, 2, at_most_once=True)
    worker = build()
    claim = take(worker)
    conn.execute(
        """update relevo.device_installations set permission = 'denied'
            where installation_id = (select installation_id from relevo.notification_deliveries where id = %s)""",
        [held_back],
    )
    wave = [PushRequest(uuid4(), (delivery,)) for delivery in claim.deliveries]
    verdicts = {v.id: v.verdict for v in worker.claims.journal(claim, wave, NOW)}
    assert verdicts == {held_back: "not_allowed", sent: "send"}
    outcomes = dict(conn.execute("select ids[1], outcome from relevo.push_requests").fetchall())
    assert outcomes == {held_back: "held_back", sent: None}
    assert worker.claims.release(claim, NOW) == {"pending": 1, "unknown": 1, "ambiguous": 1}
    assert (one(conn, held_back)["status"], one(conn, sent)["status"]) == ("pending", "unknown")


def test_it_says_the_first_thing_that_stands_in_the_way(build, conn) -> None:
    """An event that ended, a deadline that passed and a phone that is gone: the delivery ends as the first of them says,
    and of an event that ended and is late the journal says what a claim says."""
    events = [1, 2, 3]
    for event in events:
        conn.execute(EVENT.replace("values (1, 'tender.new', '1'", f"values ({event}, 'tender.new', '{event}'"))
    ended, both, late = [add(conn, 1, event=event)[0] for event in events]
    worker = build()
    claim = take(worker)
    conn.execute("update relevo.notification_events set state = 'cancelled', ended_at = now() where id in (1, 2)")
    past = "update relevo.notification_events set scheduled_at = %(now)s - interval '1 day', deadline_at = %(now)s where id in (2, 3)"
    conn.execute(past, {"now": NOW})
    conn.execute("delete from relevo.device_installations")
    verdicts = worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW)
    expected = {ended: "event_ended", both: "event_ended", late: "deadline_passed"}
    assert {v.id: v.verdict for v in verdicts} == expected
    worker.claims.release(claim, NOW)
    assert {d.id: d.obstacle for d in take(worker).deliveries} == expected


def test_it_leaves_out_what_was_settled(build, conn) -> None:
    """What the claim does not hold any more is not journalled again; with the last of it the claim is lost."""
    settled, kept = add(conn, 2)
    worker = build()
    claim = take(worker)
    skipped = {answer.id: answer for answer in answers(claim, "skipped", attempted=False)}
    worker.claims.settle(claim, [skipped[settled]], now=NOW)
    request = PushRequest(uuid4(), claim.deliveries)
    assert [(v.id, v.verdict) for v in worker.claims.journal(claim, [request], NOW)] == [(kept, "send")]
    claim.check()
    worker.claims.settle(claim, [skipped[kept]], now=NOW)
    with pytest.raises(OwnershipLostError) as lost:
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW)
    assert lost.value.reason == "already_completed"
    assert journalled(conn) == {request.id: [kept]}


def test_it_leaves_out_what_the_claim_never_held(build, conn) -> None:
    """Deliveries of another claim in the wave are neither journalled nor sent."""
    add(conn, 2)
    worker = build()
    mine, other = take(worker, limit=1), take(worker, limit=1)
    request = PushRequest(uuid4(), mine.deliveries + other.deliveries)
    assert [v.id for v in worker.claims.journal(mine, [request], NOW)] == mine.ids
    assert journalled(conn) == {request.id: mine.ids}


def test_an_empty_wave_is_no_loss(build, conn) -> None:
    """Asking about nothing answers nothing."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    assert not list(worker.claims.journal(claim, [], NOW))
    claim.check()


def test_a_claim_lost_between_journal_and_settle(build, conn) -> None:
    """The answer comes after the reaper: not written, but kept as a ticket for the delivery's next claim."""
    (delivery,) = add(conn, 1)
    worker, other = build(), build()
    claim = take(worker)
    request = journal(worker, claim)
    reap(other, NOW + LEASE)
    settlement = worker.claims.settle(claim, answers(claim), [request.id], NOW + LEASE)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({}, 0, 1)
    assert late_tickets_in(conn) == [(delivery, ticket_of(claim, delivery))]
    assert one(conn, delivery)["status"] == "retryable"
    assert conn.execute("select count(*) from relevo.push_requests where answered_at is null").fetchone() == (0,)


@pytest.fixture
def commits(dsn, admin):
    """Note with which synchronous_commit claims, journal and deliveries are written, on a database that waits for its disk."""
    name = conninfo_to_dict(dsn)["dbname"]
    admin.execute(f"alter database {name} set synchronous_commit = on")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(NOTE_COMMITS)
        yield lambda: {row[0] for row in connection.execute("delete from public.commits returning mode").fetchall()}


NOTE_COMMITS = """
create table public.commits (mode text);
create function public.note_commit() returns trigger language plpgsql
as $$ begin insert into public.commits values (current_setting('synchronous_commit')); return null; end $$;
create trigger note_commit after insert on relevo.claims for each statement execute function public.note_commit();
create trigger note_commit after insert on relevo.push_requests for each statement execute function public.note_commit();
create trigger note_commit after update on relevo.notification_deliveries for each statement execute function public.note_commit();
"""


def test_what_is_sent_and_what_came_of_it_is_on_the_disk(commits, build, conn) -> None:
    """A crash of the server forgets neither a request that was started nor an answer; a claim it may forget."""
    add(conn, 2)
    worker = build()
    claim = take(worker)
    assert commits() == {"off"}
    request = journal(worker, claim, deliveries=claim.deliveries[:1])
    assert commits() == {"on"}
    worker.claims.settle(claim, answers(claim)[:1], [request.id], NOW)
    assert commits() == {"on"}
    worker.claims.release(claim, NOW)
    assert commits() == {"on"}


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_database_that_does_not_wait_for_its_disk_does_for_the_journal(
    commits, build, conn, dsn, admin, monkeypatch, is_direct
) -> None:
    """Where synchronous_commit is off for a database or a role, workers wait for the disk all the same; behind a pooler, too."""
    admin.execute(f"alter database {conninfo_to_dict(dsn)['dbname']} set synchronous_commit = off")
    if not is_direct:
        monkeypatch.setattr(pool, "_SQL", {**pool._SQL, "ask_backend": b"select 0, false"})
    add(conn, 1)
    worker = build()
    claim = take(worker)
    assert commits() == {"off"}, "a crash may forget a claim"
    request = journal(worker, claim)
    assert commits() == {"local"}
    worker.claims.settle(claim, answers(claim), [request.id], NOW)
    assert commits() == {"local"}


def test_a_reaper_cannot_end_a_claim_while_it_is_journalled(build, conn, dsn) -> None:
    """A reaper passes by a claim whose journal is being written, and takes it, ambiguous, once that is done."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    with conn.transaction():
        conn.execute("select from relevo.claims where token = %s for key share", [claim.token])
        assert reap(worker, NOW + LEASE) == {}
    assert reap(worker, NOW + LEASE)["claims_reaped"] == 1


@pytest.mark.parametrize(
    ("move", "obstacle"),
    [
        ("project = 'other'", None),
        ("provider = 'fcm', part = 'android', token = 'abc', token_version = token_version + 1", "token_changed"),
    ],
)
def test_a_phone_that_moved_before_the_claim(build, conn, move, obstacle) -> None:
    """To another provider, its deliveries follow; to another project of Expo's, they are sent where they wait, as 0.3.0 does."""
    add(conn, 1)
    conn.execute(f"update relevo.device_installations set {move}")
    [delivery] = take(build()).deliveries
    assert delivery.obstacle == obstacle


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ("state = 'cancelled', ended_at = now()", "event_ended"),
        ("scheduled_at = '2019-01-01T00:00:00Z', deadline_at = '2020-01-01T00:00:00Z'", "deadline_passed"),
    ],
)
def test_an_event_that_changed_since_the_claim_is_held_back(build, conn, change: str, verdict: str) -> None:
    """An event that ended or came too late after the claim was made is not journalled, and each of its deliveries is told why."""
    worker = build()
    add(conn, 2)
    claim = take(worker)
    conn.execute(f"update relevo.notification_events set {change}")
    verdicts = worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], NOW)
    assert [each.verdict for each in verdicts] == [verdict] * 2
    assert journalled(conn) == {}
