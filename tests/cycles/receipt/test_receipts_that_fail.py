"""Receipts that tell of a failure: another try, a token that is gone, credentials that are wrong."""

from __future__ import annotations

from support.receipt_requests import ask_later, ask_now
from support.sending_worker import seconds_from


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
        assert worker.dispatch().counts == {"projects_stopped": 1}
        assert worker.posts() == posts

    def test_is_closed_by_a_newer_pushs_receipt_alone(self, relay, rules) -> None:
        """Not by an accepted request, not by the receipt of an older push, but by the probe's own."""
        rules(credential_installations=1, credential_owners=1)
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
