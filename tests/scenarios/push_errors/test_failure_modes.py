"""The ten ways in which push delivery is known to fail, each with the right behaviour, over HTTP."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from support.phones import one_step
from support.processes import eventually
from support.sending_worker import LateAnswers, Relay, at_once, beside, seconds_from, token


class Killed(BaseException):
    """What a worker raises here instead of being killed: nothing of it is written down."""


def kill_before_settling(worker: Relay) -> None:
    """Let a worker die between the push service's answer and its own commit, leaving its claim behind."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    worker.app.claims.settle = die  # type: ignore[method-assign]
    worker.app.claims.settle_sent = die  # type: ignore[method-assign]
    worker.app.claims.release = die  # type: ignore[method-assign]


@pytest.mark.parametrize("at_most_once", [False, True], ids=["at-least-once", "at-most-once"])
def test_1_crash_between_http_accept_and_commit(relay, at_most_once: bool) -> None:
    """The journal tells that a request was started: at least once sends again, at most once ends as unknown."""
    victim, other = relay(), relay()
    victim.tell("ana", at_most_once=at_most_once)
    kill_before_settling(victim)
    victim.dispatch()
    assert victim.received("ana") == 1
    assert len(victim.rows("select from relevo.push_requests where answered_at is null")) == 1
    assert other.dispatch().outcome == "idle", "nobody else touches it while the lease lasts"
    victim.travel(seconds=61)
    other.reap()
    found = victim.delivery("ana")
    assert (found["status"], found["attempt_count"]) == ("unknown" if at_most_once else "retryable", 1)
    assert found["last_error_code"] == "answer_not_seen"
    victim.travel(minutes=5)
    other.dispatch()
    assert victim.received("ana") == (1 if at_most_once else 2)
    assert victim.delivery("ana")["status"] == ("unknown" if at_most_once else "sent")


def test_1_crash_before_the_post_spends_nothing(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was claimed and never journalled is simply due again, whatever its policy."""
    victim, other = relay(), relay()
    victim.tell("ana", at_most_once=True)
    kill_before_settling(victim)
    monkeypatch.setattr(victim.app.claims, "journal", victim.app.claims.settle)
    victim.dispatch()
    assert victim.received("ana") == 0
    victim.travel(seconds=61)
    other.reap()
    assert victim.delivery("ana")["attempt_count"] == 0
    other.dispatch()
    assert (victim.delivery("ana")["status"], victim.received("ana")) == ("sent", 1)


def test_2_a_5xx_or_a_read_timeout_is_ambiguous(relay, sandbox) -> None:
    """Beside each other: at least once tries again and may double, at most once is never sent twice."""
    worker = relay(push_request_timeout_ms=1_000, push_chunk_size=1)
    worker.tell("ana!504-delivered*1")
    worker.tell("bob!hang-delivered*1")
    worker.tell("eva!504-delivered*1", at_most_once=True)
    for _ in range(4):
        worker.dispatch()
        worker.travel(minutes=5)
    assert [worker.received(name) for name in worker.phones] == [2, 2, 1]
    assert [worker.delivery(name)["status"] for name in worker.phones] == ["sent", "sent", "unknown"]
    assert sandbox.totals()["duplicates"] == 2


def test_3_one_bad_message_fails_a_hundred(relay, conn) -> None:
    """What can be seen to be bad never goes out; what cannot is found by bisecting; the others arrive once."""
    worker = relay()
    worker.add_phones(97)
    worker.add_phones(1, "seen-to-be-bad")
    worker.register("bad!400")
    conn.execute(
        "update relevo.device_installations set token = 'fcm:raw' where token = %s", [token("seen-to-be-bad0")]
    )
    worker.tell_everyone()
    worker.dispatch()
    assert worker.states() == {"sent": 97, "invalid": 1, "failed": 1}
    assert worker.delivery("seen-to-be-bad0")["last_error_code"] == "MalformedToken"
    assert worker.delivery("bad!400")["last_error_code"] == "VALIDATION_ERROR"
    assert all(worker.received(f"p{n}") == 1 for n in range(97))


def test_4_mixed_projects_in_a_chunk(relay) -> None:
    """Deliveries are claimed and sent by project: no request holds two of them."""
    projects: Counter[str] = Counter()
    worker = relay(push_middlewares=[lambda context, send: projects.update([context.project]) or send()])
    for name in ("one", "two", "three"):
        worker.add_phones(5, name, f"!project=@acme/{name}", project=f"@acme/{name}")
    worker.tell_everyone()
    worker.dispatch()
    worker.everyone_received(1)
    assert projects == {"@acme/one": 1, "@acme/two": 1, "@acme/three": 1}


def test_5_receipts_too_early_too_late_or_blocking(relay, sandbox) -> None:
    """First after 15 min; a missing one holds up nobody; after 24 h it is unconfirmed for good, and never resent."""
    worker = relay(receipt_first_poll_ms=15 * 60_000, receipt_chunk_size=1)
    worker.tell("silent!no-receipt", "ana")
    worker.dispatch()
    worker.travel(minutes=14)
    assert worker.ask().outcome == "idle"
    worker.travel(minutes=2)
    worker.ask()
    assert (worker.delivery("silent!no-receipt")["status"], worker.delivery("ana")["status"]) == ("sent", "ok")
    sandbox.add_fault("503", on="receipts")
    worker.travel(hours=2)
    worker.ask()
    assert worker.delivery("silent!no-receipt")["status"] == "sent"
    sandbox.clear_faults()
    worker.travel(hours=24)
    worker.ask()
    assert worker.delivery("silent!no-receipt")["status"] == "unconfirmed"
    worker.travel(hours=24)
    assert (worker.ask().outcome, worker.dispatch().outcome) == ("idle", "idle")
    worker.everyone_received(1)


def test_6_retry_storm_after_an_outage(relay, sandbox) -> None:
    """In an outage few requests are made and no queue is burnt; after it one probe goes first, and the rate ramps up."""
    worker = relay(push_chunk_size=1, push_breaker_failures=3, outbox_retry_jitter_ms=20_000)
    worker.add_phones(100)
    worker.tell_everyone()
    sandbox.add_fault("503")
    worker.dispatch()
    assert worker.posts() < 50
    assert worker.project()["breaker"] == "open"
    tried = [row for row in worker.deliveries() if row["attempt_count"]]
    assert len({row["next_attempt_at"] for row in tried}) == len(tried), "jitter spreads the retries"
    untried = len(worker.deliveries()) - len(tried)
    assert untried >= 50, "what was not tried spent nothing"
    for minutes in (2, 2, 4):  # longer than each pause
        posts = worker.posts()
        worker.travel(minutes=minutes)
        worker.dispatch()
        assert worker.posts() == posts + 1, "a half-open breaker lets one through"
    sandbox.clear_faults()
    worker.travel(minutes=20)
    worker.drain()
    worker.everyone_received(1)
    assert worker.project()["breaker"] == "closed"
    assert worker.project()["rate_share"] <= 0.3, "after an outage the rate ramps up"


def test_7_stale_notifications_after_an_outage(relay, sandbox) -> None:
    """What is past its deadline ends unsent; the rest goes out with the time to live that is left."""
    worker = relay()
    worker.add_phones(50, "stale")
    worker.tell(*worker.phones, ttl_s=120)
    worker.tell("fresh", ttl_s=3_600)
    sandbox.add_fault("401")
    worker.dispatch()
    sandbox.clear_faults()
    worker.travel(minutes=20)
    worker.drain()
    assert worker.states() == {"expired": 50, "sent": 1}, "what is stale does not use up the probes"
    assert worker.project()["breaker"] == "closed"
    (message,) = worker.messages("fresh")
    assert 2_300 <= message["ttl"] <= 2_400


def test_7_the_deadline_is_looked_at_again_before_the_post(relay, clock) -> None:
    """A deadline that passes between claim and request is seen by the journal: nothing is posted."""
    worker = relay(composers={"notice": lambda message, *_: clock.travel(seconds=30) or message})
    worker.tell("ana", ttl_s=20)
    clock.travel(seconds=0)
    worker.dispatch()
    assert (worker.delivery("ana")["status"], worker.posts()) == ("expired", 0)
    assert worker.delivery("ana")["last_error_code"] == "deadline_passed"


def test_8_a_token_that_moved_to_another_installation(relay) -> None:
    """It is looked up at dispatch: the former owner's push goes nowhere, the new owner's arrives once."""
    worker = relay()
    worker.register("old")
    worker.enqueue(title="for the former owner")
    worker.fan_out()
    worker.phones["new"] = worker.phones.pop("old")
    (taker,) = worker.register("old", owner="somebody else")
    assert taker != worker.phones["new"]
    worker.enqueue(title="for the new owner", audience=[taker])
    worker.fan_out()
    worker.dispatch()
    assert [message["title"] for message in worker.messages("old")] == ["for the new owner"]
    assert worker.delivery("new")["status"] == "skipped"
    assert worker.delivery("old")["status"] == "sent"


def test_8_a_token_that_moves_during_a_fan_out_is_told_once(relay) -> None:
    """The former holder got it by this token: the new one, whose slice comes later, is not told again; others are."""
    worker = relay(fanout_slice_size=1)
    worker.register("shared", "second", "third")
    taker = worker.phones["second"]
    worker.enqueue(audience="everyone")
    one_step(worker.app)
    worker.dispatch()
    assert worker.received("shared") == 1
    worker.register("shared", installation_id=taker)
    worker.fan_out()
    worker.dispatch()
    assert [worker.received(name) for name in ("shared", "second", "third")] == [1, 0, 1]
    (skipped,) = [row for row in worker.deliveries() if row["installation_id"] == taker]
    assert (skipped["status"], skipped["last_error_code"]) == ("skipped", "told_already")


def test_8_a_token_that_moved_before_anything_went_out_is_told(relay) -> None:
    """If the former holder's push was not sent, the new one's is: one of them arrives, in any case."""
    worker = relay(fanout_slice_size=1)
    worker.register("shared", "second")
    taker = worker.phones["second"]
    worker.enqueue(audience="everyone")
    one_step(worker.app)
    worker.register("shared", installation_id=taker)
    worker.fan_out()
    worker.dispatch()
    assert worker.received("shared") == 1
    worker.enqueue(audience="everyone")
    worker.fan_out()
    worker.dispatch()
    assert worker.received("shared") == 2, "an event that came later is told as ever"


def test_8_a_token_that_changed_is_the_one_that_is_sent_to(relay) -> None:
    """A phone that got a new token between fan-out and dispatch receives its push there."""
    worker = relay()
    worker.tell("before")
    worker.register("after", installation_id=worker.phones["before"])
    worker.dispatch()
    assert (worker.received("before"), worker.received("after")) == (0, 1)


def test_9_a_credential_fault_neither_burns_the_queue_nor_prunes(relay, sandbox) -> None:
    """Rows, attempts and tokens are kept for as long as it lasts; then everything arrives, once."""
    worker = relay(push_chunk_size=10)
    worker.add_phones(150)
    worker.tell_everyone()
    sandbox.add_fault("InvalidCredentials")
    for _ in range(5):
        worker.dispatch()
        assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("pending", 0)}
        worker.travel(hours=1)
    assert worker.disabled() == 0
    sandbox.clear_faults()
    worker.drain()
    worker.everyone_received(1)


def test_9_a_mass_of_unregistered_tokens_brakes_pruning(relay, sandbox) -> None:
    """Half of an app's tokens flipped at once: the brake keeps every one of them."""
    worker = relay()
    worker.add_phones(60, "gone", "!DeviceNotRegistered")
    worker.add_phones(60, "there")
    worker.tell_everyone()
    worker.dispatch()
    assert worker.states() == {"failed": 60, "sent": 60}
    assert worker.disabled() == 0
    assert worker.incidents() == ["pruning_stopped"]


def test_10_overlapping_workers(relay, sandbox) -> None:
    """Three workers drain one queue at once: each phone receives exactly one, and nothing stays claimed."""
    sandbox.set(latency_ms=5)
    workers = [relay(push_chunk_size=7, outbox_batch_size=30) for _ in range(3)]
    first = workers[0]
    first.add_phones(400)
    first.tell_everyone()
    at_once(*(worker.dispatch for worker in workers))
    first.everyone_received(1)
    assert first.states() == {"sent": 400}
    assert first.claims() == 0


def test_10_a_worker_that_lost_its_claim_settles_nothing(relay) -> None:
    """Its lease ran out during the request and a reaper took the claim back: its ticket waits for whoever is next."""
    late = LateAnswers()
    slow, other = relay(push_middlewares=[late]), relay()
    slow.tell("ana")
    with beside(slow.dispatch):
        eventually(lambda: slow.received("ana"), "the request is under way")
        slow.conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")
        other.reap()
        assert slow.delivery("ana")["status"] == "retryable"
        late.come.set()
    found = slow.delivery("ana")
    assert (found["status"], found["claim_token"]) == ("retryable", None), "it is in the queue, which settles nothing"
    slow.travel(hours=1)
    other.dispatch()
    found = slow.delivery("ana")
    assert (found["status"], found["attempt_count"]) == ("sent", 1), "late evidence closes instead of resending"
    assert (slow.received("ana"), slow.posts()) == (1, 1)
    assert other.dispatch().outcome == "idle"


def test_waits_between_attempts_double(relay) -> None:
    """1, 2, 4, 8 minutes: each wait is twice the one before, up to the longest."""
    worker = relay(outbox_retry_max_ms=240_000, push_breaker_failures=100)
    worker.tell("ana!ExpoError")
    waits = []
    for _ in range(5):
        before = worker.clock.now()
        worker.dispatch()
        due = worker.delivery("ana!ExpoError")["next_attempt_at"]
        waits.append(round(seconds_from(before, due) / 60))
        worker.clock.travel_to(due + timedelta(milliseconds=1))
    assert waits == [1, 2, 4, 4, 4]


def test_one_refused_phone_leaves_the_others_the_usual_way(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wave in which one phone is gone, what was sent is settled as if it had been alone, and the rest after it."""
    worker = relay()
    worker.add_phones(9)
    worker.register("gone!DeviceNotRegistered")
    worker.tell_everyone()
    usual, settled = worker.app.claims.settle_sent, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        settled.append(usual(*args, **kwargs))
        return settled[-1]

    monkeypatch.setattr(worker.app.claims, "settle_sent", watched)
    worker.dispatch()
    assert worker.states() == {"sent": 9, "invalid": 1}
    assert [each.written for each in settled] == [{"sent": 9}]
    assert worker.rows("select from relevo.claims") == []
    assert worker.rows("select from relevo.push_requests where answered_at is null") == []
