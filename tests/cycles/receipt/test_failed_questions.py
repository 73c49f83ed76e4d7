"""Requests for receipts that fail: nothing is lost, nobody else waits, and the next one comes after a pause."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relevo.delivery.projects.request_pool import RequestPool
from relevo.sandbox import answers
from relevo.sandbox.faults import expo as faults
from support.receipt_requests import FIRST_MS, requests
from support.sending_worker import Relay, seconds_from

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


def test_a_run_asks_for_no_more_than_it_may(relay) -> None:
    """The bound of a run holds for all its requests together, not for each of them."""
    worker = relay(receipt_chunk_size=2, push_chunk_size=1)
    worker.add_phones(7)
    worker.tell_everyone()
    worker.dispatch()
    worker.travel(seconds=1)
    worker.run("receipt", at_most=3)
    assert worker.states() == {"sent": 4, "ok": 3}


def test_a_question_for_which_no_thread_can_be_started(relay, monkeypatch) -> None:
    """The run says so, nothing is left claimed, and the receipt is asked for later."""
    worker = relay()
    worker.tell("ana")
    worker.dispatch()
    worker.travel(seconds=1)

    def refuse(_pool: RequestPool, *_work: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(RequestPool, "submit", refuse)
        report = worker.ask()
    assert "can't start new thread" in report.error
    assert (worker.claims(), worker.delivery("ana")["status"]) == (0, "sent")
    worker.travel(hours=1)
    worker.ask()
    assert worker.delivery("ana")["status"] == "ok"


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
