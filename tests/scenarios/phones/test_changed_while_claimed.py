"""Phones that change while their delivery is claimed: nothing goes to a token's former owner, or to who wants nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from relevo.client import consent, verbs
from relevo.client.values import Installation
from relevo.core import queries
from relevo.core.model import Reply
from support.phones import add_phones
from support.processes import eventually
from support.sending_worker import Relay, at_once, beside, token

Change = Callable[[psycopg.Connection[Any], UUID, str], object]

PATIENT = {
    "outbox_lease_duration_ms": 600_000,
    "database_lock_timeout_ms": 120_000,
    "database_statement_timeout_ms": 120_000,
}
"""A journal that is held up is waited for, however busy the machine is."""


def _another_token(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    return verbs.register(conn, Installation(token(f"{name}-new"), installation_id=phone))


def _taken_over(conn: psycopg.Connection[Any], _phone: UUID, name: str) -> object:
    return verbs.register(conn, Installation(token(name), installation_id=uuid4()))


def _forgotten(conn: psycopg.Connection[Any], phone: UUID, _name: str) -> object:
    return conn.execute("select relevo.forget_installation(%s)", [phone])


def _permission_lost(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    return verbs.register(conn, Installation(token(name), installation_id=phone, permission="denied"))


def _pushes_off(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    return verbs.register(conn, Installation(token(name), installation_id=phone, push_capable=False))


def _opted_out(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    return verbs.register(conn, Installation(token(name), installation_id=phone, opt_outs=["news"]))


def _refused(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    consent.set_category(conn, "news")
    verbs.register(conn, Installation(token(name), installation_id=phone, owner=name))
    return consent.choose(conn, "news", owner=name, wanted=False)


def _blocked(conn: psycopg.Connection[Any], phone: UUID, name: str) -> object:
    verbs.register(conn, Installation(token(name), installation_id=phone, owner=name))
    return consent.block(conn, owner=name)


CHANGES: dict[str, tuple[Change, str, str | None]] = {
    "another-token": (_another_token, "sent", None),
    "taken-over": (_taken_over, "skipped", "not_allowed"),
    "forgotten": (_forgotten, "skipped", "installation_gone"),
    "permission-lost": (_permission_lost, "skipped", "not_allowed"),
    "pushes-off": (_pushes_off, "skipped", "not_allowed"),
    "opted-out": (_opted_out, "skipped", "opted_out"),
    "refused": (_refused, "skipped", "refused"),
    "blocked": (_blocked, "skipped", "not_allowed"),
}
"""What may happen to a phone, and what then becomes of its delivery and why."""


def change_all(worker: Relay) -> None:
    """Let each phone that is named after a change undergo it."""
    for name, (change, _, _) in CHANGES.items():
        change(worker.conn, worker.phones[name], name)


def check_all(worker: Relay, unchanged: Sequence[str] = ("unchanged",)) -> None:
    """Check that only who still wants the push got it, once, and that nothing else was spent."""
    received = {name: worker.received(name) for name in worker.phones}
    assert received == dict.fromkeys(unchanged, 1) | dict.fromkeys(CHANGES, 0)
    assert worker.received("another-token-new") == 1
    for name, (_, status, code) in CHANGES.items():
        found = worker.delivery(name)
        assert (found["status"], found["last_error_code"]) == (status, code), name
        assert found["attempt_count"] == (status == "sent"), name
    assert {worker.delivery(name)["status"] for name in unchanged} <= {"sent"}
    assert worker.claims() == 0


@pytest.mark.parametrize("at_most_once", [False, True])
def test_between_claim_and_journal(relay, at_most_once: bool) -> None:
    """What happens to a phone while its batch is composed is seen before the request."""
    changed: list[bool] = []

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        if not changed:
            changed.append(True)
            change_all(worker)
        return message

    worker = relay(composers={"notice": compose})
    worker.register("unchanged", *CHANGES)
    worker.tell_everyone(category="news", at_most_once=at_most_once)
    worker.dispatch()
    check_all(worker)
    rows = worker.rows("select cardinality(ids) as n from relevo.push_requests")
    assert sum(row["n"] for row in rows) == 2, "the journal holds what was sent"


@pytest.fixture
def held_journal(conn) -> Iterator[None]:
    """Hold every journal up between its look at the phones and its commit for as long as this connection likes."""
    conn.execute(
        """
        create function public.hold_journal() returns trigger language plpgsql
        as $$ begin perform pg_advisory_xact_lock_shared(42); return null; end $$;
        create trigger hold_journal after insert on relevo.push_requests
          for each statement execute function public.hold_journal();
        select pg_advisory_lock(42);
        """
    )
    yield
    conn.execute("select pg_advisory_unlock_all()")
    conn.execute("drop function public.hold_journal cascade")


@pytest.mark.usefixtures("held_journal")
@pytest.mark.parametrize("chunk", [1, 100])
def test_while_the_journal_is_written(relay, conn, chunk: int) -> None:
    """A change that commits after the journal looked and before it commits is seen as well; the journal says so."""
    worker = relay(push_chunk_size=chunk, outbox_concurrency=6, **PATIENT)
    worker.register("unchanged", *CHANGES)
    worker.tell_everyone(category="news")
    held_up = "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"
    with beside(worker.dispatch):
        eventually(lambda: worker.rows(held_up), "the journal is held up")
        change_all(worker)
        conn.execute("select pg_advisory_unlock(42)")
    check_all(worker)
    reported = worker.rows("select outcome from relevo.push_requests where answered_at is null or outcome is null")
    assert reported == [], "each request was answered, or marked as not sent"


def test_while_the_push_service_is_slow(relay) -> None:
    """What has to wait for others is journalled when its turn comes, so that a change meanwhile is seen."""
    begun, gate = threading.Event(), threading.Event()

    def hold(_context: Any, send: Any) -> Reply:
        begun.set()
        assert gate.wait(60)
        return send()

    worker = relay(push_middlewares=[hold], outbox_batch_size=1, outbox_concurrency=1)
    pool = worker.app.services.pools["default"]
    pool.latency_ms = 5_000
    worker.tell("first", category="news")
    worker.tell(*CHANGES, category="news")
    with beside(worker.dispatch):
        assert begun.wait(60)
        eventually(lambda: pool.under_way() > 1, "others wait for their turn")
        change_all(worker)
        gate.set()
    assert worker.received("first") == 1
    del worker.phones["first"]
    check_all(worker, unchanged=())


def test_in_a_race(relay, dsn) -> None:
    """However changes and journals meet: whose change had committed when the journal was written is sent nothing.

    Each phone that got another token gets its push once, there or, if the change came too late, at the former one.
    """
    worker = relay(push_chunk_size=5, outbox_batch_size=20, outbox_concurrency=2)
    names = worker.add_phones(240)
    worker.tell_everyone(category="news")
    ids = {row["id"]: row["installation_id"] for row in worker.deliveries()}
    journalled: dict[UUID, float] = {}
    write, write_plainly = worker.app.claims._journal_carefully, worker.app.claims._journal_plainly

    def note(claim: Any, wave: Any, now: Any) -> Any:
        verdicts = write(claim, wave, now)
        written = time.monotonic()
        journalled.update({ids[v.id]: written for v in verdicts if v.verdict == "send"})
        return verdicts

    def note_plainly(connection: Any, claim: Any, wave: Any, now: Any) -> Any:
        went = write_plainly(connection, claim, wave, now)
        written = time.monotonic()
        journalled.update({ids[delivery.id]: written for delivery in wave.deliveries if went})
        return went

    worker.app.claims._journal_carefully, worker.app.claims._journal_plainly = note, note_plainly
    chosen = random.Random(9)
    kinds = {name: chosen.choice(list(CHANGES)) for name in names}
    chosen.shuffle(names)
    committed: dict[str, float] = {}

    def change(mine: list[str]) -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            for name in mine:
                CHANGES[kinds[name]][0](other, worker.phones[name], name)
                committed[name] = time.monotonic()

    at_once(worker.dispatch, *(lambda part=part: change(names[part::3]) for part in range(3)))
    worker.drain()
    at_former = {name: worker.received(name) for name in names}
    in_time = [name for name in names if at_former[name] == 0]
    assert 0 < len(in_time) < len(names), "it was no race"
    for name in names:
        assert at_former[name] <= 1
        if at_former[name]:
            assert journalled[worker.phones[name]] <= committed[name], (name, kinds[name])
        else:
            assert worker.received(f"{name}-new") == (kinds[name] == "another-token"), (name, kinds[name])
    assert set(worker.states()) <= {"sent", "skipped"}


def test_a_receipt_about_a_former_token(relay) -> None:
    """A receipt that calls a token gone disables the phone that still has it, and not one that got another token meanwhile."""
    worker = relay()
    names = worker.add_phones(2, suffix="!receipt-DeviceNotRegistered")
    worker.tell(*names)
    worker.dispatch()
    verbs.register(worker.conn, Installation(token("fresh"), installation_id=worker.phones[names[0]]))
    worker.travel(hours=1)
    worker.ask()
    assert [worker.installation(name)["invalidated_at"] is None for name in names] == [True, False]


def test_a_ticket_about_a_former_token(relay) -> None:
    """A ticket that calls a token gone disables the phone that still has it, and not one that got another token during the request: it is sent again."""

    def renew(_context: Any, send: Any) -> Reply:
        reply: Reply = send()
        verbs.register(worker.conn, Installation(token("fresh"), installation_id=worker.phones[names[0]]))
        return reply

    worker = relay(push_middlewares=[renew])
    names = worker.add_phones(2, suffix="!DeviceNotRegistered")
    worker.tell(*names)
    worker.dispatch()
    assert [worker.delivery(name)["last_error_code"] for name in names] == ["token_changed", "DeviceNotRegistered"]
    assert [worker.installation(name)["invalidated_at"] is None for name in names] == [True, False]


def test_only_the_token_that_was_asked_about_is_disabled(conn) -> None:
    """A phone that got another token since the look at it keeps that one, whatever is said of the former."""
    same, other = add_phones(conn, 2)
    asked = {"installations": [same, other], "versions": [1, 1], "reasons": ["gone", "gone"], "now": None}
    conn.execute("update relevo.device_installations set token_version = 1")
    conn.execute("update relevo.device_installations set token_version = 2 where installation_id = %s", [other])
    conn.execute(queries.load("settle")["disable_tokens"], asked)
    gone = "select installation_id from relevo.device_installations where invalidated_at is not null"
    assert conn.execute(gone).fetchall() == [(same,)]
