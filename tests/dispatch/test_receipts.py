"""Receipts: when they are asked for, what they mean, and that asking can never lose or double a push."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from relaying import Relay, at_once, seconds_from

from deliveries import put_off_receipts
from relevo.core.model import ReceiptAnswer, ReceiptReply
from relevo.sandbox import answers, faults, messages

MINUTE, HOUR = 60, 3_600
FIRST_MS = 15 * 60_000


def asked(worker: Relay) -> int:
    """Count the receipts that were asked for."""
    return int(worker.sandbox.totals()["receiptsAsked"])


def requests(worker: Relay) -> int:
    """Count the requests for receipts."""
    return int(worker.sandbox.totals()["receiptRequests"])


def ask_later(worker: Relay, name: str) -> None:
    """Put a delivery's next look off for a while."""
    put_off_receipts(worker.conn, [worker.delivery(name)["id"]], timedelta(days=10))


def ask_now(worker: Relay, name: str) -> None:
    """Make a delivery's next look due."""
    put_off_receipts(worker.conn, [worker.delivery(name)["id"]], -timedelta(days=20))


WRITTEN = """
select d.id, d.status, d.attempt_count, d.lapse_count, d.completed_at = d.updated_at as at_once, d.last_error_code, d.last_error_message,
       d.provider_receipt_id = d.provider_ticket_id as told,
       (select array_agg((p.status, p.deliveries)::text order by p.status, p.deliveries)
          from relevo.event_progress_deltas p where p.event_id = e.id) as progress,
       (select array_agg((t.answers, t.confirmed, t.failed, t.at = d.completed_at)::text order by t.at) from relevo.push_tallies t where t.project = d.project) as tallied,
       (select count(*) from relevo.claims) as claims, (select count(*) from relevo.awaited_receipts) as awaited
  from relevo.notification_deliveries d join relevo.notification_events e on e.id = d.notification_event_id
 order by d.id
"""


class TestConfirmed:
    """All that a claim holds arrived: the usual answer, which has a statement of its own."""

    def test_writes_what_the_general_statement_writes(self, relay, monkeypatch) -> None:
        """Whichever of the two settles it, the tables say the same afterwards."""
        worker = relay()
        told = []
        for by_hand in (False, True):
            for table in ("notification_deliveries", "event_progress_deltas", "push_tallies"):
                worker.conn.execute(f"delete from relevo.{table}")
            for name in ("ana", "bea", "cai"):
                worker.tell(name)
            worker.dispatch()
            worker.travel(seconds=1)
            worker.conn.execute("delete from relevo.push_tallies")
            worker.conn.execute("delete from relevo.event_progress_deltas")
            claim = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
            assert len(claim.deliveries) == 3
            if by_hand:
                monkeypatch.setattr(worker.app.claims, "_confirm", lambda *_: None)
            said = [ReceiptAnswer(each, "ok") for each in claim.deliveries]
            settled = worker.app.claims.settle_receipts(claim, said, worker.clock())
            assert settled.written == {"ok": 3}
            rows = worker.conn.execute(WRITTEN).fetchall()
            told.append([row[1:] for row in rows])
        assert told[0] == told[1]

    def test_what_is_confirmed_stays_on_its_page(self, relay) -> None:
        """A page that fan-out filled has room for what is sent and, of that again, for what is confirmed: the indexes
        hear of neither."""
        worker = relay()
        worker.add_phones(300)
        worker.tell_everyone()
        worker.fan_out()
        made = worker.rows("select d.id, (d.ctid::text::point)[0] as page from relevo.notification_deliveries d")
        worker.dispatch()
        worker.travel(seconds=1)
        worker.ask()
        ended = worker.rows(
            "select d.id, (d.ctid::text::point)[0] as page from relevo.notification_deliveries d where d.status = 'ok'"
        )
        assert len(made) == 300
        assert {each["id"]: each["page"] for each in ended} == {each["id"]: each["page"] for each in made}

    def test_only_of_just_what_was_asked_for(self, relay) -> None:
        """If the claim holds more than was answered, the rest goes on waiting for its receipt."""
        worker = relay()
        for name in ("ana", "bea"):
            worker.tell(name)
        worker.dispatch()
        worker.travel(seconds=1)
        claim = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
        [first, second] = claim.deliveries
        settled = worker.app.claims.settle_receipts(claim, [ReceiptAnswer(first, "ok")], worker.clock())
        assert settled.written == {"ok": 1, "sent": 1}
        again = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
        assert [each.id for each in again.deliveries] == [second.id]


class TestWhen:
    """When receipts are asked for."""

    def test_first_after_a_quarter_of_an_hour(self, relay) -> None:
        """Not before, but then; and the run before says how long it is until then."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana")
        sent = worker.clock.now()
        worker.dispatch()
        assert 899 <= seconds_from(sent, worker.delivery("ana")["next_receipt_at"]) <= 910
        report = worker.ask()
        assert report.outcome == "idle"
        assert 880 <= report.due_in_s <= 900
        worker.travel(seconds=890)
        worker.ask()
        assert asked(worker) == 0
        worker.travel(seconds=20)
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (1, "ok")
        found = worker.delivery("ana")
        assert found["provider_receipt_id"] == found["provider_ticket_id"]
        assert found["completed_at"] is not None

    def test_spaced_with_backoff_up_to_a_day_then_unconfirmed(self, relay) -> None:
        """Each look comes about twice as long after the push as the one before, the last before 24 h; then it is over."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana!no-receipt")
        sent = worker.clock.now()
        worker.dispatch()
        looks = []
        for _ in range(20):
            found = worker.delivery("ana!no-receipt")
            if found["status"] != "sent":
                break
            worker.clock.travel_to(found["next_receipt_at"])
            looks.append(seconds_from(sent, worker.clock.now()) / HOUR)
            worker.ask()
        found = worker.delivery("ana!no-receipt")
        assert (found["status"], found["attempt_count"]) == ("unconfirmed", 1)
        assert asked(worker) == len(looks) <= 10
        assert looks[:5] == pytest.approx([0.25, 0.5, 1.0, 2.0, 4.0], abs=0.05)
        assert 22 <= looks[-2] < 24, "once more shortly before receipts are cleared"
        assert 24 <= looks[-1] < 24.2

    def test_unconfirmed_is_final_and_never_resent(self, relay) -> None:
        """After 24 h without a receipt nothing more is asked or sent, however much time goes by."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana!no-receipt")
        worker.dispatch()
        worker.travel(hours=25)
        worker.ask()
        assert worker.delivery("ana!no-receipt")["status"] == "unconfirmed"
        before = (asked(worker), worker.posts())
        worker.travel(days=3)
        assert (worker.ask().outcome, worker.dispatch().outcome) == ("idle", "idle")
        worker.reap()
        assert (asked(worker), worker.posts()) == before
        assert worker.received("ana!no-receipt") == 1

    def test_nobody_asks_with_too_little_of_a_lease_left(self, relay, monkeypatch) -> None:
        """A claim that would lapse before its request can time out is left to the reaper, and another asks later."""
        worker = relay(outbox_lease_duration_ms=600_000, push_request_timeout_ms=200_000)
        worker.tell("ana")
        worker.dispatch()
        claims = worker.app.claims
        claim_awaiting = claims.claim_awaiting

        def claim_slowly(*given: Any, **more: Any) -> Any:
            claim = claim_awaiting(*given, **more)
            if claim is not None:
                claim.renewed(time.monotonic() - 500)
            return claim

        monkeypatch.setattr(claims, "claim_awaiting", claim_slowly)
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (0, "sent")
        monkeypatch.undo()
        worker.travel(minutes=11)
        worker.reap()
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (1, "ok")

    def test_missing_ones_block_nobody(self, relay) -> None:
        """With many that never come and chunks of two, the ones behind them are asked for in the same run."""
        worker = relay(receipt_chunk_size=2)
        worker.add_phones(20, "silent", "!no-receipt")
        worker.add_phones(3, "fine")
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert worker.states() == {"sent": 20, "ok": 3}
        before = asked(worker)
        worker.tell("new")
        worker.dispatch()
        worker.travel(seconds=0)
        worker.ask()
        assert worker.delivery("new")["status"] == "ok"
        assert asked(worker) < before + 23, "and those that are missing are left alone for a while"

    def test_in_chunks(self, relay) -> None:
        """No request asks for more than the chunk's size."""
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(25)
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert (asked(worker), requests(worker), worker.states()) == (25, 3, {"ok": 25})

    def test_what_was_told_counts_though_the_next_request_failed(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was sent together takes three requests; the second fails, so the third is not made; the first is settled."""
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(25)
        worker.tell_everyone()
        worker.dispatch()
        provider = worker.app.services.providers["expo"]
        fetch = provider.fetch_receipts
        replies = [fetch, lambda *_: ReceiptReply("unclear", code="500"), fetch]

        def answer(*given: Any) -> ReceiptReply:
            reply: ReceiptReply = replies.pop(0)(*given)
            return reply

        with monkeypatch.context() as patched:
            patched.setattr(provider, "fetch_receipts", answer)
            worker.travel(seconds=1)
            assert "unclear 500" in worker.ask().error
        assert (worker.states(), len(replies)) == ({"ok": 10, "sent": 15}, 1)
        worker.travel(minutes=1)
        worker.ask()
        assert (worker.states(), asked(worker), worker.claims()) == ({"ok": 25}, 25, 0)

    def test_requests_that_are_not_full_do_not_end_the_run(self, relay) -> None:
        """What was sent together is asked for together, so few requests are full: one run asks for all that is due."""
        worker = relay(receipt_chunk_size=10)
        names = worker.add_phones(84)
        for start in range(0, 84, 7):
            worker.enqueue(audience=[worker.phones[name] for name in names[start : start + 7]])
            worker.fan_out()
            worker.dispatch()
        worker.travel(seconds=1)
        worker.ask()
        assert (worker.states(), requests(worker)) == ({"ok": 84}, 12)

    def test_too_many_receipts_are_split(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """A service that answers fewer at once than we thought is asked in parts."""
        monkeypatch.setattr(messages, "MAX_RECEIPTS", 4)
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(10)
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert worker.states() == {"ok": 10}

    def test_two_workers_ask_for_each_receipt_once(self, relay, sandbox) -> None:
        """The same claims as dispatch: at once, none is asked for twice."""
        one, other = relay(receipt_chunk_size=5), relay(receipt_chunk_size=5)
        one.add_phones(60)
        one.tell_everyone()
        one.dispatch()
        sandbox.set(latency_ms=30)
        at_once(one.ask, other.ask)
        one.ask()
        assert (asked(one), one.states(), one.claims()) == (60, {"ok": 60}, 0)

    def test_a_worker_that_died_asking_lost_nothing(self, relay) -> None:
        """Its claim lapses, the delivery is still sent, no attempt is spent, and another worker asks."""
        dead, other = relay(), relay()
        dead.tell("ana")
        dead.dispatch()
        dead.travel(seconds=1)
        assert dead.app.claims.claim_awaiting("default", limit=10, now=dead.clock()) is not None
        other.ask()
        assert asked(dead) == 0, "it is held"
        dead.travel(minutes=2)
        other.reap()
        found = dead.delivery("ana")
        assert (found["status"], found["attempt_count"], found["claim_token"]) == ("sent", 1, None)
        other.ask()
        assert dead.delivery("ana")["status"] == "ok"


KEPT = (
    "status",
    "attempt_count",
    "provider_ticket_id",
    "next_attempt_at",
    "completed_at",
    "claim_token",
    "last_error_code",
)


def test_a_failed_question_changes_nothing(relay, sandbox) -> None:
    """The send state stays, no attempt is spent or given back, the run tells of it, and later the receipt is there."""
    worker = relay(push_request_timeout_ms=2_000)
    for word in ("500", "503", "504", "401", "429", "hang", "reset", "truncated", "garbage"):
        name = f"ana-{word}"
        worker.tell(name, at_most_once=True)
        worker.dispatch()
        before = worker.delivery(name)
        sandbox.add_fault(word, on="receipts")
        worker.travel(seconds=1)
        asked_at = worker.clock.now()
        assert worker.ask().error, word
        after = worker.delivery(name)
        assert [after[each] for each in KEPT] == [before[each] for each in KEPT], word
        assert after["next_receipt_at"] >= asked_at + timedelta(seconds=5), word
        sandbox.clear_faults()
        worker.travel(hours=1)
        worker.ask()
        assert (worker.delivery(name)["status"], worker.received(name)) == ("ok", 1), word


def test_a_failed_question_does_not_hold_up_other_projects(relay, sandbox) -> None:
    """Each project's questions fail for themselves."""
    worker = relay()
    worker.register("ana", project="one")
    worker.register("bob", project="two")
    worker.tell("ana", "bob")
    worker.dispatch()
    sandbox.add_fault("500", on="receipts", times=1)
    worker.ask()
    assert sorted(row["status"] for row in worker.deliveries()) == ["ok", "sent"]


class TestPauses:
    """How long a project's receipts rest after a question that failed."""

    @pytest.fixture
    def worker(self, relay) -> Relay:
        """A relay with one receipt that is due."""
        made: Relay = relay()
        made.tell("ana")
        made.dispatch()
        made.travel(seconds=1)
        return made

    def pause_s(self, worker: Relay) -> float:
        """Ask, and return how long the receipt rests then."""
        asked_at = worker.clock.now()
        worker.ask()
        return seconds_from(asked_at, worker.delivery("ana")["next_receipt_at"])

    def test_it_doubles_from_a_few_seconds_on(self, worker, sandbox) -> None:
        """5, 10, 20 … seconds, five minutes at most; one answer, and the next failure begins at the start again."""
        sandbox.add_fault("500", on="receipts")
        for expected in (5, 10, 20, 40, 80, 160, 300, 300):
            assert expected <= self.pause_s(worker) < 2 * expected
            worker.clock.travel_to(worker.delivery("ana")["next_receipt_at"])
        sandbox.clear_faults()
        worker.ask()
        assert worker.delivery("ana")["status"] == "ok"
        assert worker.project()["receipt_failures"] == 0
        worker.tell("ana")
        worker.dispatch()
        worker.travel(seconds=1)
        sandbox.add_fault("500", on="receipts")
        assert 5 <= self.pause_s(worker) < 10

    def test_requests_that_fail_together_are_one_failure(self, relay, sandbox) -> None:
        """Three requests of one wave fail: the project rests as after one."""
        worker: Relay = relay(receipt_chunk_size=1)
        worker.add_phones(1)
        for _ in range(3):  # what is sent together is asked for together
            worker.tell_everyone()
            worker.dispatch()
        worker.travel(seconds=1)
        sandbox.add_fault("500", on="receipts")
        worker.ask()
        assert (requests(worker), worker.project()["receipt_failures"]) == (3, 1)

    def test_the_service_may_ask_for_more(self, worker, sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        """Retry-After is a floor."""
        monkeypatch.setitem(faults._SPOILED, "429", answers.too_many_requests(600, 100).answer)
        sandbox.add_fault("429", on="receipts")
        assert 100 <= self.pause_s(worker) < 150

    def test_it_is_the_projects(self, worker, sandbox) -> None:
        """What falls due of the project while it rests is not asked for either, by nobody; another project's is."""
        other = worker.app.services.projects
        sandbox.add_fault("500", on="receipts", times=1)
        worker.ask()
        worker.tell("bob")
        worker.register("eva", project="two")
        worker.tell("eva")
        worker.dispatch()
        worker.travel(seconds=1)
        asked = sandbox.totals()["receiptRequests"]
        due = dict(other.due_receipts(worker.clock()))
        assert due["two"] <= 0 < due["default"]
        worker.ask()
        assert sandbox.totals()["receiptRequests"] == asked + 1
        assert (worker.delivery("bob")["status"], worker.delivery("eva")["status"]) == ("sent", "ok")
        worker.travel(seconds=6)
        worker.ask()
        assert {row["status"] for row in worker.deliveries()} == {"ok"}


def test_a_question_that_fails_for_a_day_ends_unconfirmed(relay, sandbox) -> None:
    """Even if nobody could ever be asked, nothing is sent again."""
    worker = relay(receipt_first_poll_ms=FIRST_MS)
    worker.tell("ana")
    worker.dispatch()
    sandbox.add_fault("500", on="receipts")
    worker.travel(hours=25)
    worker.ask()
    assert worker.delivery("ana")["status"] == "unconfirmed"
    assert worker.dispatch().outcome == "idle"


class TestGoingBack:
    """A retryable receipt."""

    def test_goes_back_to_dispatch(self, relay) -> None:
        """It is sent again after its pause, with the attempts it has already spent, and arrives."""
        worker = relay()
        name = "ana!receipt-ExpoError*1"
        worker.tell(name)
        worker.dispatch()
        before = worker.clock.now()
        worker.ask()
        found = worker.delivery(name)
        assert (found["status"], found["attempt_count"], found["next_receipt_at"]) == ("retryable", 1, None)
        assert 59 <= seconds_from(before, found["next_attempt_at"]) <= 65
        worker.travel(seconds=70)
        worker.dispatch()
        worker.ask()
        found = worker.delivery(name)
        assert (found["status"], found["attempt_count"], worker.received(name)) == ("ok", 2, 1)

    def test_within_its_attempts(self, relay) -> None:
        """After the last attempt it ends as failed."""
        worker = relay(outbox_max_attempts=1)
        worker.tell("ana!receipt-ExpoError")
        worker.dispatch()
        worker.ask()
        found = worker.delivery("ana!receipt-ExpoError")
        assert (found["status"], found["last_error_code"]) == ("failed", "ExpoError")

    def test_within_its_deadline(self, relay) -> None:
        """What would come too late ends as expired."""
        worker = relay()
        worker.tell("ana!receipt-ExpoError", ttl_s=30)
        worker.dispatch()
        worker.ask()
        assert worker.delivery("ana!receipt-ExpoError")["status"] == "expired"

    def test_with_its_types_policy(self, relay) -> None:
        """Pauses and attempts are those of the event's type."""
        worker = relay()
        worker.conn.execute(
            "insert into relevo.event_types (event_type, retry_base_ms, retry_max_ms, max_attempts) values ('quick', 5000, 5000, 2)"
        )
        worker.tell("ana!receipt-ExpoError", type="quick")
        worker.dispatch()
        before = worker.clock.now()
        worker.ask()
        assert seconds_from(before, worker.delivery("ana!receipt-ExpoError")["next_attempt_at"]) <= 7
        worker.travel(seconds=8)
        worker.dispatch()
        worker.ask()
        assert worker.delivery("ana!receipt-ExpoError")["status"] == "failed"


class TestTokens:
    """A receipt that says that a token is gone."""

    def test_disables_the_token_it_was_sent_to(self, relay) -> None:
        """The delivery ends as invalid, the phone gets no more pushes, and the reason is kept."""
        worker = relay()
        name = "ana!receipt-DeviceNotRegistered"
        worker.tell(name)
        worker.dispatch()
        worker.ask()
        assert worker.delivery(name)["status"] == "invalid"
        assert worker.installation(name)["invalid_reason"] == "DeviceNotRegistered"
        worker.tell_everyone()
        assert worker.dispatch().outcome == "idle"

    def test_leaves_a_token_alone_that_was_registered_meanwhile(self, relay) -> None:
        """Compare and set: the phone has a newer token than the one the receipt speaks of, and the push goes to that one."""
        worker = relay()
        name = "ana!receipt-DeviceNotRegistered"
        worker.tell(name)
        worker.dispatch()
        worker.register("new", installation_id=worker.phones[name])
        worker.ask()
        found = worker.delivery(name)
        assert (found["status"], found["last_error_code"]) == ("retryable", "token_changed")
        assert not worker.is_disabled("new")
        worker.travel(minutes=5)
        worker.dispatch()
        assert worker.received("new") == 1
        worker.ask()
        assert worker.delivery(name)["status"] == "ok"

    def test_tells_two_tokens_of_a_phone_apart(self, relay) -> None:
        """Both are gone: what went to the former one is tried again, what went to the one it has ends, and that is disabled."""
        worker = relay()
        former, latter = "ana!receipt-DeviceNotRegistered", "new!receipt-DeviceNotRegistered"
        first = worker.tell(former)
        worker.dispatch()
        worker.register(latter, installation_id=worker.phones[former])
        second = worker.tell(latter)
        worker.dispatch()
        worker.ask()
        rows = worker.rows("select notification_event_id as event, status from relevo.notification_deliveries")
        assert {row["event"]: row["status"] for row in rows} == {first: "retryable", second: "invalid"}
        assert worker.is_disabled(latter)

    def test_leaves_it_alone_while_the_brake_is_drawn(self, relay) -> None:
        """A mass of such receipts disables nothing, and operators are told."""
        worker = relay()
        worker.add_phones(60, "gone", "!receipt-DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert (worker.states(), worker.disabled()) == ({"failed": 60}, 0)
        assert worker.incidents() == ["pruning_stopped"]


class TestCredentials:
    """A credential fault in a receipt: the request went well, and yet nothing arrives."""

    def test_gives_the_attempt_back_and_opens_the_breaker(self, relay) -> None:
        """Nothing is claimed any more, nothing is spent, the token is not blamed."""
        worker = relay()
        name = "ana!receipt-InvalidCredentials*1"
        worker.tell(name)
        worker.dispatch()
        worker.ask()
        found = worker.delivery(name)
        assert (found["status"], found["attempt_count"]) == ("pending", 0)
        assert (worker.project()["breaker"], worker.project()["breaker_by"]) == ("open", "receipt")
        assert not worker.is_disabled(name)
        posts = worker.posts()
        assert worker.dispatch().outcome == "idle"
        assert worker.posts() == posts

    def test_is_closed_by_a_newer_pushs_receipt_alone(self, relay, rules) -> None:
        """Not by an accepted request, not by the receipt of an older push, but by the probe's own."""
        rules(credential_installations=1)
        worker = relay()
        name = "ana!receipt-InvalidCredentials*1"
        worker.tell("old", name)
        worker.dispatch()
        ask_later(worker, "old")
        worker.ask()
        assert worker.project()["breaker"] == "open"
        worker.tell("waiting")
        worker.travel(seconds=40)
        worker.drain()
        assert worker.project()["breaker"] == "probing", "an accepted request proves nothing"
        assert worker.states() == {"sent": 2, "pending": 1}
        probe = "waiting" if worker.delivery("waiting")["status"] == "sent" else name
        ask_later(worker, probe)
        ask_now(worker, "old")
        worker.ask()
        assert worker.delivery("old")["status"] == "ok"
        assert worker.project()["breaker"] == "probing", "nor does the receipt of a push from before"
        ask_now(worker, probe)
        worker.ask()
        assert worker.project()["breaker"] == "closed"
        worker.drain()
        worker.ask()
        assert worker.states() == {"ok": 3}
        worker.everyone_received(1)
        assert worker.incidents() == ["breaker_opened", "breaker_closed"]

    def test_opens_again_if_the_probe_meets_it_too(self, relay) -> None:
        """And the pause until the next probe is longer."""
        worker = relay(receipt_first_poll_ms=60_000)
        name = "ana!receipt-MismatchSenderId"
        worker.tell(name)
        pauses = []
        for _ in range(3):
            worker.dispatch()
            worker.travel(seconds=61)
            worker.ask()
            project = worker.project()
            assert (project["breaker"], worker.delivery(name)["attempt_count"]) == ("open", 0)
            pauses.append(round((project["probe_at"] - project["breaker_since"]).total_seconds()))
            worker.clock.travel_to(project["probe_at"])
        assert pauses == [30, 60, 120]

    def test_unauthorised_for_receipts_opens_the_breaker_too(self, relay, sandbox) -> None:
        """The credentials are at fault for whoever asks; an accepted push closes it again."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()
        sandbox.add_fault("401", on="receipts")
        worker.travel(seconds=1)
        worker.ask()
        assert (worker.project()["breaker"], worker.delivery("ana")["status"]) == ("open", "sent")
        sandbox.clear_faults()
        worker.tell("bob")
        worker.travel(minutes=2)
        worker.drain()
        assert (worker.project()["breaker"], worker.received("bob")) == ("closed", 1)
