"""Code of others that hangs: it is given up after three leases and told of, and nobody else notices."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from relevo.delivery.sending.in_flight import MIDDLEWARE, SERVICE
from relevo.providers.expo.provider import Expo
from relevo.runtime.hung_calls import MOST_CALLS
from support.hanging_worker import Trap, dispatching, is_told, others_flow, problems, tell
from support.processes import eventually
from support.sending_worker import Relay, beside, token


def test_a_composer_that_hangs(hanging, trap: Trap) -> None:
    """It costs its own delivery an attempt; others of its batch, lane and project, and other projects, flow meanwhile."""

    def compose(message: dict[str, Any], delivery: Any) -> dict[str, Any]:
        if delivery.token == token("bad"):
            trap()
        return message

    worker = hanging(composers={"slow": compose})
    tell(worker, "one", "bad", "good", type="slow")
    with dispatching(worker) as counts:
        others_flow(worker, trap, "a", "b")
        eventually(lambda: worker.delivery("good")["status"] == "sent", "the others of its batch are sent")
        assert trap.free == 0
    assert counts["partial"] == 1
    assert any("the composer of slow (project one) has not come back" in each for each in counts)
    assert (counts["calls_given_up"], counts["notifications_sent"]) == (1, 5)
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("retryable", 1, "composer_hung")
    assert (found["lapse_count"], worker.claims()) == (0, 0)
    is_told(worker, "the composer of slow (project one)")
    tell(worker, "one", "later")
    assert worker.dispatch().outcome == "ok", "the next run begins, and is told of nothing twice"
    posts = worker.posts()
    trap.open()
    eventually(lambda: problems(worker) == "", "it came back, and is no trouble any more")
    assert (worker.posts(), worker.received("bad")) == (posts, 0), "what woke up sends nothing"
    assert worker.delivery("bad") == found, "and writes nothing"
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


def test_a_run_whose_time_is_over_does_not_wait(hanging, trap: Trap) -> None:
    """It leaves what hangs to the next one, which counts it: what is due meanwhile is served by whatever run is on."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose}, outbox_lease_duration_ms=30_000)
    tell(worker, "one", "bad", type="slow")
    eventually(lambda: "calls_given_up" not in worker.dispatch(at_most_s=2).counts and trap.caught, "it hangs")
    assert (worker.delivery("bad")["status"], worker.claims()) == ("pending", 1)
    tell(worker, "two", "good")
    eventually(
        lambda: worker.dispatch(at_most_s=1) and worker.delivery("good")["status"] == "sent", "the next is served"
    )
    assert trap.free == 0
    trap.open()
    eventually(lambda: worker.dispatch().counts.get("notifications_sent"), "it came back, and a later run counts it")
    worker.everyone_received(1)


def test_a_composer_that_hangs_for_everyone(hanging, trap: Trap) -> None:
    """A handful of threads is all it gets: the rest of its events waits unspent, everything else flows."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose})
    worker.add_phones(120, project="one")
    worker.tell_everyone(type="slow")
    with dispatching(worker) as counts:
        others_flow(worker, trap, "a", "b")
        put_off = "select from relevo.deliveries where last_error_code = 'composer_hung'"
        eventually(lambda: len(worker.rows(put_off)) >= 116, "the others of the type are put off")
    assert trap.caught == counts["calls_given_up"] == 4
    rows = worker.rows("select * from relevo.deliveries where event_type = 'slow'")
    assert sorted(row["attempt_count"] for row in rows) == [0] * 116 + [1] * 4
    assert {row["claim_token"] for row in rows} == {None}
    trap.open()
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


def test_stopping_does_not_wait_for_what_hangs(hanging, trap: Trap) -> None:
    """Told to stop, a run leaves what hangs behind: handed back, nothing spent, long before three leases."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose}, outbox_lease_duration_ms=60_000)
    tell(worker, "one", "bad", type="slow")
    with beside(worker.dispatch) as reports:
        eventually(lambda: trap.caught, "it hangs")
        worker.app.runner.stopping.set()
    assert reports
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["lapse_count"], worker.claims()) == ("pending", 0, 0, 0)


def test_a_question_for_receipts_that_hangs(hanging, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its project's receipts wait and are asked for again; those of the others are told in the same run."""
    fetch = Expo.fetch_receipts
    worker = hanging()
    tell(worker, "one", "bad")
    tell(worker, "two", "good")
    worker.dispatch()
    bad = worker.delivery("bad")["provider_ticket_id"]

    def hang(self: Expo, ticket_ids: Any, *more: Any) -> Any:
        if bad in ticket_ids and not trap.caught:
            trap()
        return fetch(self, ticket_ids, *more)

    monkeypatch.setattr(Expo, "fetch_receipts", hang)
    with beside(worker.ask) as reports:
        eventually(lambda: trap.caught, "it hangs")
        eventually(lambda: worker.delivery("good")["status"] == "ok", "the other project is served")
        tell(worker, "two", "later")
        worker.dispatch()
        eventually(lambda: worker.delivery("later")["status"] == "ok", "also what falls due meanwhile")
        assert trap.free == 0
    (report,) = reports
    assert (report.outcome, report.counts["calls_given_up"]) == ("partial", 1)
    assert "the push service (project one) has not come back" in report.error
    assert (worker.delivery("bad")["status"], worker.claims()) == ("sent", 0)
    is_told(worker, "the push service (project one)")
    worker.ask()
    assert worker.delivery("bad")["status"] == "ok"
    trap.open()
    eventually(lambda: problems(worker) == "", "it came back")


def test_what_hangs_in_one_project_stops_no_other(relay) -> None:
    """With as many requests hanging as may, their project sends nothing here; the others send as ever."""
    worker: Relay = relay()
    names = ["ana!project=@acme/hung", "bob!project=@acme/fine"]
    for name in names:
        worker.register(name, project=name.rpartition("=")[2])
    for what in (MIDDLEWARE, SERVICE) * (MOST_CALLS // 2):
        worker.app.services.hung.add(what, "@acme/hung", time.monotonic(), 600, Future())
    worker.tell(*names)
    report = worker.dispatch()
    assert [worker.delivery(name)["status"] for name in names] == ["pending", "sent"]
    assert "project @acme/hung sends nothing in this process: 16 of its requests have not come back" in report.error
