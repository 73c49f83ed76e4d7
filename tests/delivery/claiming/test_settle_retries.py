"""Retries: when the next attempt is due, and when there is none."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.core.model import Answer, PushRequest
from relevo.operators import event_types
from relevo.operators.event_types import TypeSettings
from support.claim_steps import MINUTE, NOW, SECOND, add, answers, chunks_in, journal, send, take
from support.deliveries import one

WAITS = [1, 2, 4, 8, 16, 32, 60, 60]
JITTER = SECOND / 2


def test_waits_double_to_an_hour_and_end_with_the_ninth_attempt(build, conn) -> None:
    """1, 2, 4, 8, 16, 32, 60, 60 minutes, each with up to half a second of jitter; the ninth failure is the last."""
    (delivery,) = add(conn, 1)
    worker = build()
    now, jitters = NOW, []
    for minutes in WAITS:
        send(worker, take(worker, now), "retryable", now)
        row = one(conn, delivery)
        wait = row["next_attempt_at"] - now
        assert minutes * MINUTE <= wait <= minutes * MINUTE + JITTER
        jitters.append(wait - minutes * MINUTE)
        just_before = row["next_attempt_at"] - timedelta(microseconds=1)
        assert worker.claims.claim("dispatch", "default", "bulk", now=just_before) is None
        now = row["next_attempt_at"]
    assert len(set(jitters)) > 1
    send(worker, take(worker, now), "retryable", now, error_code="Busy")
    row = one(conn, delivery)
    assert (row["status"], row["attempt_count"], row["last_error_code"]) == ("failed", 9, "Busy")
    assert (row["completed_at"], row["next_attempt_at"]) == (now, None)


def test_what_failed_together_is_tried_again_together(build, conn) -> None:
    """Jitter is drawn for each request: what failed in one is one chunk again, of each event; another request another."""
    ids = [*add(conn, 6), *add(conn, 6)]
    worker = build(outbox_retry_jitter_ms=60_000)
    claim = take(worker)
    wave = [PushRequest(uuid4(), tuple(claim.deliveries[n : n + 4])) for n in (0, 4, 8)]
    worker.claims.journal(claim, wave, NOW)
    failed = [Answer(d.event_day, d.id, "retryable", request=each.id) for each in wave for d in each.deliveries]
    worker.claims.settle(claim, failed, [each.id for each in wave], NOW, finish=True)
    assert sorted(chunks_in(conn)) == [ids[:4], ids[4:6], ids[6:8], ids[8:]]
    due = "select count(distinct due_at) from relevo.due_chunks"
    assert conn.execute(due).fetchone() == (3,), "a time for each request"


@pytest.mark.parametrize(
    ("retry_after_ms", "wait"),
    [(0, MINUTE), (59_000, MINUTE), (90_000, 90 * SECOND), (7_200_000, 120 * MINUTE)],
)
def test_retry_after_is_a_floor(build, conn, retry_after_ms, wait) -> None:
    """A provider's Retry-After lengthens a wait, beyond the longest one too, and never shortens it."""
    (delivery,) = add(conn, 1)
    worker = build()
    send(worker, take(worker), "retryable", retry_after_ms=retry_after_ms)
    assert wait <= one(conn, delivery)["next_attempt_at"] - NOW <= wait + JITTER


@pytest.mark.parametrize(
    ("deadline", "status"), [(MINUTE, "expired"), (MINUTE + JITTER, "expired"), (MINUTE + SECOND, "retryable")]
)
def test_a_retry_after_the_deadline_is_no_retry(build, conn, deadline, status) -> None:
    """A delivery whose next attempt would come at or after its deadline expires now."""
    (delivery,) = add(conn, 1, deadline=NOW + deadline)
    worker = build(outbox_retry_jitter_ms=0) if deadline == MINUTE else build()
    if deadline == MINUTE + JITTER:
        send(worker, take(worker), "retryable", retry_after_ms=60_500)
    else:
        send(worker, take(worker), "retryable")
    row = one(conn, delivery)
    assert (row["status"], row["completed_at"] is not None) == (status, status == "expired")


def test_attempts_spent_come_before_the_deadline(build, conn) -> None:
    """A delivery out of attempts has failed, even if its deadline would have passed as well."""
    (delivery,) = add(conn, 1, attempts=8, deadline=NOW + SECOND)
    worker = build()
    send(worker, take(worker), "retryable")
    assert (one(conn, delivery)["status"], one(conn, delivery)["attempt_count"]) == ("failed", 9)


def test_a_types_retry_policy_applies_at_the_next_settle(build, conn) -> None:
    """What an operator sets for a type holds from the next settle on, in a worker that runs since before."""
    (delivery,) = add(conn, 1, event_type="code.login")
    (other,) = add(conn, 1, event_type="tender.new")
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    own = TypeSettings(max_attempts=2, retry_base_ms=5_000, retry_max_ms=7_000, retry_jitter_ms=0)
    event_types.set_event_type(worker.database, worker.settings, "code.login", own)
    worker.claims.settle(claim, answers(claim, "retryable"), [request.id], NOW)
    worker.claims.release(claim, NOW)
    assert one(conn, delivery)["next_attempt_at"] == NOW + 5 * SECOND
    assert one(conn, other)["next_attempt_at"] >= NOW + MINUTE
    now = NOW + 5 * SECOND
    send(worker, take(worker, now), "retryable", now)
    assert (one(conn, delivery)["status"], one(conn, delivery)["attempt_count"]) == ("failed", 2)


def test_a_type_may_set_one_knob_alone(build, conn) -> None:
    """A longer base than the setting's longest wait is obeyed; a shorter longest wait caps the setting's base."""
    slow, fast = add(conn, 1, event_type="slow"), add(conn, 1, event_type="fast")
    worker = build(outbox_retry_jitter_ms=0)
    event_types.set_event_type(worker.database, worker.settings, "slow", TypeSettings(retry_base_ms=7_200_000))
    event_types.set_event_type(worker.database, worker.settings, "fast", TypeSettings(retry_max_ms=30_000))
    send(worker, take(worker), "retryable")
    assert one(conn, slow[0])["next_attempt_at"] == NOW + 120 * MINUTE
    assert one(conn, fast[0])["next_attempt_at"] == NOW + 30 * SECOND


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    attempts=st.integers(0, 100),
    base=st.integers(1, 604_800_000),
    more=st.integers(0, 604_800_000),
    jitter=st.integers(0, 3_600_000),
    floor=st.integers(0, 604_800_000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_stays_within_its_bounds(conn, attempts, base, more, jitter, floor, chance) -> None:
    """For any attempt and any settings the delay lies between base (or floor) and longest wait plus jitter (or floor)."""
    ((delay,),) = conn.execute(
        "select relevo.retry_delay(%s, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::float8)",
        [attempts, base, base + more, jitter, floor, chance],
    ).fetchall()
    milliseconds = delay / timedelta(milliseconds=1)
    assert max(base, floor) - 0.01 <= milliseconds <= max(base + more + jitter, floor) + 0.01
