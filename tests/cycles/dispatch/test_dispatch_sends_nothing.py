"""A run of dispatch whose requests fail, or whose projects are stopped, says so: in its row, its words and exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relevo.client import verbs
from relevo.client.values import Owners
from relevo.sandbox import Sandbox
from support import mixed_phones
from support.mixed_phones import ONE_OF_EACH, PARTS
from support.sending_worker import Relay

FAILS = {"expo": "503"} | {kind: trial.broken for kind, trial in mixed_phones.TRIALS.items()}
"""How the push service of each kind of phone fails."""


@pytest.fixture(scope="module")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


def last_run(worker: Relay, trigger: str = "manual") -> dict[str, Any]:
    """Return the newest row of dispatch."""
    (row,) = worker.rows(
        "select outcome, counts, error_message from relevo.worker_runs where cycle = 'dispatch' and trigger = %s"
        " order by id desc limit 1",
        trigger,
    )
    return row


@pytest.mark.parametrize("fault", ["401", "403", "500", "502", "503", "504", "reset"])
def test_a_run_whose_requests_fail_is_partial_and_says_why(relay, sandbox, command, fault: str) -> None:
    """With Expo failing `relevo run-cycle dispatch` ends as partial, names project and reason, and exits with 1."""
    worker = relay(relevo_instance="tests")
    worker.tell("ana", "bob")
    sandbox.add_fault(fault)
    told = command("run-cycle", "dispatch", "--json")
    (report,) = told.lines
    row = last_run(worker)
    assert (told.code, report["outcome"], row["outcome"]) == (1, "partial", "partial")
    assert report["error"] == row["error_message"]
    assert row["error_message"].startswith("project default: ")
    assert worker.received("ana") == 0


def test_a_run_that_is_turned_away_throughout_is_partial(relay, sandbox, command) -> None:
    """Expo answers each request with 429: a run by hand sent nothing, says so and exits with 1; the schedule's is ok."""
    worker = relay(relevo_instance="tests")
    worker.tell("ana", "bob")
    sandbox.add_fault("429")
    told = command("run-cycle", "dispatch", "--json")
    (report,) = told.lines
    assert (told.code, report["outcome"]) == (1, "partial")
    assert report["error"].startswith("project default: ")
    worker.travel(minutes=5)
    assert worker.app.runner.run(worker.app.registry["dispatch"], "schedule").outcome == "ok"
    sandbox.clear_faults()
    worker.travel(minutes=5)
    assert (worker.dispatch().outcome, worker.received("ana")) == ("ok", 1)


def test_a_run_that_is_turned_away_once_is_not(relay, sandbox) -> None:
    """Of two requests of a project one meets a 429 and the other is taken: that is the rate at work."""
    worker = relay(push_chunk_size=1)
    worker.tell("ana", "bob")
    sandbox.add_fault("429", times=1)
    report = worker.dispatch()
    assert (report.outcome, report.counts["notifications_sent"]) == ("ok", 1)


def test_a_run_without_a_way_to_expo_is_partial(relay, command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at EXPO_BASE_URL: `relevo run-cycle dispatch` and `relevo tick` exit with 1 and say it."""
    worker = relay(relevo_instance="tests")
    worker.tell("ana")
    monkeypatch.setenv("EXPO_BASE_URL", "http://127.0.0.1:9")
    by_hand = command("run-cycle", "dispatch")
    assert (by_hand.code, "project default: " in by_hand.out) == (1, True)
    worker.tell("bob")
    by_tick = command("tick", "--runners", "fanout,dispatch")
    assert by_tick.code == 1
    assert last_run(worker, "tick")["outcome"] == "partial"


def test_every_push_service_that_fails_is_named(relay, sandbox) -> None:
    """A run names the project of each push service whose requests failed, and sends what the others take."""
    worker = relay(**mixed_phones.addresses(sandbox))
    for kind in ONE_OF_EACH:
        verbs.register(worker.conn, mixed_phones.installation(sandbox, kind, f"ana-{kind}", FAILS[kind], owner="ana"))
    well = verbs.register(worker.conn, mixed_phones.installation(sandbox, "expo", "bob", owner="bob", project="other"))
    worker.enqueue(audience=Owners("ana"))
    worker.enqueue(audience=[well])
    worker.fan_out()
    report = worker.dispatch()
    assert (report.outcome, report.counts["notifications_sent"]) == ("partial", 1)
    assert [
        part for kind, part in PARTS.items() if kind in ONE_OF_EACH and f"project {part}: " not in report.error
    ] == []
    assert "project other" not in report.error


def test_a_run_whose_project_is_stopped_says_so(relay, sandbox, command) -> None:
    """Pushes are due and their project's breaker is open: a run by hand, or a tick, exits with 1 and says until when.

    A run of the schedule found nothing to do; status tells of the project."""
    worker = relay(relevo_instance="tests")
    worker.tell("ana")
    sandbox.add_fault("401")
    worker.dispatch()
    sandbox.clear_faults()
    for words, trigger in ((("run-cycle", "dispatch"), "manual"), (("tick", "--runners", "dispatch"), "tick")):
        told = command(*words, "--json")
        (report,) = told.lines
        row = last_run(worker, trigger)
        assert (told.code, report["outcome"], row["outcome"]) == (1, "partial", "partial")
        assert "project default sends nothing until " in row["error_message"]
        assert row["counts"] == {"projects_stopped": 1}
    scheduled = worker.app.runner.run(worker.app.registry["dispatch"], "schedule")
    assert scheduled.outcome == "idle"
    assert worker.received("ana") == 0


def test_a_resting_project_is_told_only_while_something_of_it_is_due(relay, conn) -> None:
    """A project that rests, or is stopped, with nothing due concerns no run."""
    worker = relay(relevo_instance="tests")
    worker.tell("ana")
    worker.dispatch()
    conn.execute("update relevo.projects set rest_until = now() + interval '1 hour'")
    assert worker.dispatch().outcome == "idle"
    worker.tell("ana")
    report = worker.dispatch()
    assert (report.outcome, report.counts) == ("partial", {"projects_stopped": 1})
    assert "project default sends nothing until " in report.error
    assert "its push service asked for a rest" in report.error


def test_a_run_by_hand_leaves_a_row_though_it_found_nothing(relay, command) -> None:
    """Who starts a run finds its row in worker_runs, idle or not; a scheduled round without work has none."""
    worker = relay(relevo_instance="tests")
    told = command("run-cycle", "dispatch", "--json")
    (report,) = told.lines
    assert (told.code, report["outcome"]) == (0, "idle")
    rows = worker.rows("select id, outcome, trigger from relevo.worker_runs where cycle = 'dispatch'")
    assert rows == [{"id": report["run_id"], "outcome": "ok", "trigger": "manual"}]
    worker.app.runner.run(worker.app.registry["dispatch"], "schedule")
    assert len(worker.rows("select from relevo.worker_runs where cycle = 'dispatch'")) == 1
