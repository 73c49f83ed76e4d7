"""The states of a delivery: what settling writes into each, and what the schema refuses."""

from __future__ import annotations

from typing import get_args

import psycopg
import pytest

from relevo.core import queries
from relevo.core.statuses import Status
from support.claim_steps import MINUTE, NOW, SECOND, add, answers, journal, send, take
from support.deliveries import TODAY, mark_sent, one
from support.query_plans import rows_read

FINAL = {"ok", "unconfirmed", "invalid", "failed", "expired", "skipped", "cancelled", "unknown"}


@pytest.mark.parametrize("status", get_args(Status))
def test_settling_writes_a_state_with_its_timestamps(build, conn, status) -> None:
    """Each state a settle can write has the timestamps that belong to it, and the delivery is nobody's any more."""
    (delivery,) = add(conn, 1)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    ticket = "ticket" if status in ("sent", "ok", "unconfirmed") else None
    answer = answers(claim, status, ticket_id=ticket, error_code="Fault", error_message="A fault.")
    later = NOW + SECOND
    assert worker.claims.settle(claim, answer, [request.id], later).written == {status: 1}
    row = one(conn, delivery)
    assert (row["status"], row["claim_token"], row["provider_ticket_id"]) == (status, None, ticket)
    assert (row["attempt_count"], row["last_attempt_at"], row["updated_at"]) == (1, later, later)
    assert row["completed_at"] == (later if status in FINAL else None)
    if status == "retryable":
        assert MINUTE <= row["next_attempt_at"] - later <= MINUTE + SECOND / 2
    else:
        assert row["next_attempt_at"] is None
    fault = (None, None) if status in ("sent", "ok") else ("Fault", "A fault.")
    assert (row["last_error_code"], row["last_error_message"]) == fault


def test_what_was_not_attempted_counts_no_attempt(build, conn) -> None:
    """An answer without a request spends no attempt, whether it is final or asks for a later try."""
    first, second, third = add(conn, 2) + add(conn, 1, attempts=3)
    worker = build()
    claim = take(worker)
    skipped, postponed, again = answers(claim, "skipped", attempted=False)
    later = answers(claim, "retryable", attempted=False, retry_after_ms=600_000)[1:]
    assert worker.claims.settle(claim, [skipped, *later], now=NOW).written == {
        "skipped": 1,
        "pending": 1,
        "retryable": 1,
    }
    assert (one(conn, first)["attempt_count"], one(conn, first)["last_attempt_at"]) == (0, None)
    assert (one(conn, second)["status"], one(conn, second)["attempt_count"]) == ("pending", 0)
    assert one(conn, second)["next_attempt_at"] == NOW + 10 * MINUTE
    assert (one(conn, third)["status"], one(conn, third)["attempt_count"]) == ("retryable", 3)
    assert (postponed.id, again.id) == (second, third)


def test_errors_are_bounded_and_forgotten_once_sent(build, conn) -> None:
    """A long error is cut to what the schema holds; a later success leaves no trace of it."""
    (delivery,) = add(conn, 1)
    worker = build()
    send(worker, take(worker), "retryable", error_code="c" * 1000, error_message="m" * 10_000)
    row = one(conn, delivery)
    assert (row["last_error_code"], row["last_error_message"]) == ("c" * 100, "m" * 500)
    due = row["next_attempt_at"]
    send(worker, take(worker, due), "sent", due)
    row = one(conn, delivery)
    assert (row["last_error_code"], row["last_error_message"], row["attempt_count"]) == (None, None, 2)


def test_processing_is_being_claimed(build, conn) -> None:
    """A delivery is processing exactly while a claim holds it, and the view says whose and until when."""
    (delivery,) = add(conn, 1)
    worker = build(worker_id="worker-a")
    assert not one(conn, delivery)["processing"]
    claim = take(worker)
    row = one(conn, delivery)
    assert (row["processing"], row["status"], row["locked_by"]) == (True, "pending", "worker-a")
    assert (row["locked_at"], row["locked_until"]) == (NOW, NOW + MINUTE)
    worker.claims.release(claim, NOW)
    row = one(conn, delivery)
    assert (row["processing"], row["locked_by"], row["locked_at"]) == (False, None, None)


def test_one_is_looked_up_without_reading_the_others(build, conn) -> None:
    """How far one delivery is and who has it, queued, claimed or sent, and what one claim holds, is found by keys: neither
    other events' chunks nor other projects' receipts are read."""
    for event in range(1, 101):
        add(conn, 1, event=event)
    sent = [add(conn, 1, event=event, project="other")[0] for event in range(101, 201)]
    mark_sent(conn, sent)
    ((alone,), (waiting,), (claimed,)) = (add(conn, 1, event=n, project=f"p{n}") for n in (201, 202, 203))
    mark_sent(conn, [alone])
    worker = build()
    claim = take(worker, project="p203")
    by_key = queries.load("pool")["force_index_lookups"].decode()
    conn.execute(by_key.replace("set local", "set").encode())  # as it is where tables are large
    look = b"select * from relevo.deliveries where event_day = %(day)s and id = %(id)s"
    for delivery in (alone, waiting, claimed):
        assert rows_read(conn, look, {"day": TODAY, "id": delivery}) <= 10
    held = b"""select d.* from relevo.claims c cross join unnest(c.days, c.ids) as u(event_day, id)
                 join relevo.deliveries d on d.event_day = u.event_day and d.id = u.id where c.token = %(token)s"""
    assert rows_read(conn, held, {"token": claim.token}) <= 10


def test_the_view_offers_the_columns_operators_know(conn) -> None:
    """Every column the seed names can be selected from the view of deliveries."""
    conn.execute(
        """select provider, status, attempt_count, next_attempt_at, locked_at, locked_by, completed_at, last_attempt_at,
                  updated_at, last_error_code, last_error_message, provider_ticket_id, provider_receipt_id
             from relevo.deliveries"""
    )


DELIVERY, CLAIM, REQUEST = (
    "update relevo.notification_deliveries set ",
    "update relevo.claims set ",
    "update relevo.push_requests set ",
)
LATE, TYPE = "update relevo.late_tickets set ", "update relevo.event_types set "
CHUNK, AWAITED = "update relevo.due_chunks set ", "update relevo.awaited_receipts set "
IMPOSSIBLE = [
    ("delivery_is_possible", DELIVERY + "status = 'failed'"),
    ("delivery_is_possible", DELIVERY + "completed_at = now()"),
    ("delivery_is_possible", DELIVERY + "status = 'sent'"),
    ("delivery_is_possible", DELIVERY + "status = 'retryable'"),
    ("delivery_is_possible", DELIVERY + "status = 'processing'"),
    ("delivery_is_possible", DELIVERY + "attempt_count = 101"),
    ("delivery_is_possible", DELIVERY + "lapse_count = -1"),
    ("claims_lease_ms_check", CLAIM + "lease_ms = 0"),
    ("claims_check", CLAIM + "ids = ids || 1::bigint"),
    ("chunk_is_possible", CHUNK + "ids = '{}', installations = '{}'"),
    ("chunk_is_possible", CHUNK + "ids = ids || 1::bigint"),
    ("chunk_is_possible", CHUNK + "inboxes = '{}'"),
    ("chunk_is_possible", CHUNK + "events = array[1, 2]"),
    (
        "awaited_receipts_ids_check",
        AWAITED + "days = '{}', ids = '{}', installations = '{}', tickets = '{}', versions = '{}', attempts = '{}'",
    ),
    ("awaited_receipts_check", AWAITED + "tickets = tickets || 'one more'::text"),
    ("push_requests_check", REQUEST + "ids = '{}', days = '{}'"),
    ("late_tickets_ticket_id_check", LATE + "ticket_id = ''"),
    ("event_types_event_type_check", TYPE + "event_type = ''"),
    ("event_types_lease_ms_check", TYPE + "lease_ms = 99"),
    ("event_types_max_attempts_check", TYPE + "max_attempts = 101"),
    ("event_types_retry_base_ms_check", TYPE + "retry_base_ms = 0"),
    ("event_types_retry_max_ms_check", TYPE + "retry_max_ms = 0"),
    ("event_types_retry_jitter_ms_check", TYPE + "retry_jitter_ms = -1"),
    ("event_types_retry_multiplier_check", TYPE + "retry_multiplier = 0.5"),
    ("event_types_ttl_s_check", TYPE + "ttl_s = -1"),
    ("event_types_inbox_days_check", TYPE + "inbox_days = 0"),
    ("event_types_complete_on_check", TYPE + "complete_on = 'seen'"),
    ("event_types_lane_check", TYPE + "lane = 'slow'"),
    ("event_types_quiet_check", TYPE + "quiet = 'never'"),
    ("event_types_quiet_max_wait_s_check", TYPE + "quiet_max_wait_s = 59"),
    ("event_types_quiet_deadline_check", TYPE + "quiet_deadline = 'sent'"),
    ("event_types_quiet_spread_s_check", TYPE + "quiet_spread_s = -1"),
    ("event_types_batch_window_s_check", TYPE + "batch_window_s = 0"),
    ("event_types_batch_longest_s_check", TYPE + "batch_longest_s = 86401"),
    ("batches_have_a_name", TYPE + "batch_window_s = 1, event_type = repeat('x', 95)"),
    ("event_types_check", TYPE + "retry_base_ms = 2, retry_max_ms = 1"),
]


def test_the_schema_refuses_every_impossible_state(build, conn) -> None:
    """Each CHECK of deliveries, queue, claims, journal, receipts, late tickets and event types refuses what it is for."""
    worker = build()
    add(conn, 1, event=1)
    send(worker, take(worker))
    conn.execute("delete from relevo.notification_deliveries")
    add(conn, 2, event=2)
    claim = take(worker, limit=1)
    journal(worker, claim)
    conn.execute("insert into relevo.event_types (event_type) values ('tender.new')")
    conn.execute(
        "insert into relevo.late_tickets values (current_date, 1, 'ticket', gen_random_uuid(), now())",
    )
    for constraint, statement in IMPOSSIBLE:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            conn.execute(statement.encode())
        assert refused.value.diag.constraint_name == constraint
    tables = ("notification_deliveries", "due_chunks", "claims", "push_requests", "awaited_receipts", "dead_letters")
    tables += ("late_tickets", "event_types")
    checks = conn.execute(
        "select conname from pg_constraint where contype = 'c' and conrelid = any (%s::regclass[])",
        [[f"relevo.{name}" for name in tables]],
    ).fetchall()
    assert {row[0] for row in checks} == {constraint for constraint, _ in IMPOSSIBLE}


def test_one_installation_gets_an_event_once(conn) -> None:
    """A second delivery of the same event to the same installation is refused by the schema."""
    (delivery,) = add(conn, 1)
    row = one(conn, delivery)
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute(
            """insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
               values (%(event_day)s, %(notification_event_id)s, %(installation_id)s, 'other.type')""",
            row,
        )


def test_a_token_that_is_gone_is_disabled_however_long_the_reason(build, conn) -> None:
    """A push service's code may be longer than a reason can be: the token is disabled, with how the code begins."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    request, [delivery] = journal(worker, claim), claim.deliveries
    phone = {"installation_id": delivery.installation_id, "token_version": delivery.token_version}
    worker.claims.settle(claim, answers(claim, "invalid", error_code="Gone" * 50, **phone), [request.id], NOW)
    found = conn.execute("select invalidated_at, invalid_reason from relevo.device_installations").fetchall()
    assert found == [(NOW, "Gone" * 25)]
