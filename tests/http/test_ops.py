"""What operators read and do over HTTP, and the record of it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relevo.app import App
from relevo.core.model import Report, Step
from relevo.http import ops
from relevo.http.server import HttpServer
from relevo.operators import actions, audit, fleet
from relevo.operators.actions import DeadLetters
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.sandbox import Sandbox
from support.http_server import EVENT, Served, phone
from support.processes import eventually

SHAPE = {
    "generated_at": {},
    "queue": {
        "total",
        "due_now",
        "oldest_pending_age_seconds",
        "stuck_processing",
        "pending",
        "processing",
        "sent",
        "failed",
    },
    "runtime": {
        "is_running",
        "ticks_total",
        "processed_total",
        "retried_total",
        "dead_letter_total",
        "recovered_stuck_total",
        "last_error",
    },
    "config": {"poll_ms", "batch_size", "max_attempts", "processing_timeout_ms", "retry_base_ms", "retry_max_ms"},
}
KINDS = (
    *("pending", "processing", "stuck_processing", "sent", "failed"),
    *("expired", "invalid", "skipped", "cancelled", "unknown"),
)


def check_shape(stats: dict[str, Any]) -> None:
    """The fields have the names that were agreed upon, and the kinds add up."""
    assert set(stats) == set(SHAPE)
    for part, names in SHAPE.items():
        assert not names or names <= set(stats[part]), part
    queue = stats["queue"]
    assert sum(queue[kind] for kind in KINDS) == queue["total"]
    assert sum(queue["statuses"].values()) == queue["total"]


def register(conn: psycopg.Connection[Any], name: str) -> None:
    """Register a phone whose token says what befalls it in the sandbox."""
    conn.execute("select relevo.register_installation(%s)", [Jsonb({"token": f"ExponentPushToken[{name}]"})])


def test_an_operator_runs_the_fleet(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], sandbox: Sandbox
) -> None:
    """Fan-out and dispatch by hand, numbers that add up at every moment, dead letters sent again, all of it recorded."""
    served = serve(expo_base_url=sandbox.url, push_runaway_brake="false", outbox_max_attempts=1)
    operator, viewer = served.client("operator"), served.client("viewer")
    for name in ("ana", "bea", "carla!MessageTooBig", "dora!DeviceNotRegistered"):
        register(conn, name)
    check_shape(viewer.get("/v1/ops/stats").json())
    event_id = operator.post("/v1/events", EVENT).json()["event_id"]
    ran = operator.post("/v1/ops/cycles/fanout/run")
    assert (ran.status_code, ran.json()["summary"]["outcome"]) == (200, "ok")
    assert ran.json()["summary"]["counts"]["deliveries_created"] == 4
    stats = viewer.get("/v1/ops/stats").json()
    check_shape(stats)
    assert (stats["queue"]["total"], stats["queue"]["pending"], stats["queue"]["due_now"]) == (4, 4, 4)
    assert stats["queue"]["oldest_pending_age_seconds"] >= 0

    operator.post("/v1/ops/cycles/dispatch/run")
    operator.post("/v1/ops/cycles/reaper/run")  # folds the counts
    stats = viewer.get("/v1/ops/stats").json()
    check_shape(stats)
    assert [stats["queue"][kind] for kind in ("sent", "failed", "invalid", "pending")] == [2, 1, 1, 0]
    assert stats["runtime"]["dead_letter_total"] == 1
    assert stats["runtime"]["processed_total"] == 4
    assert stats["runtime"]["is_running"] is True
    done = viewer.get(f"/v1/events/{event_id}")
    assert (done.status_code, done.json()["counts"]) == (200, {"sent": 2, "failed": 1, "invalid": 1})

    assert operator.post("/v1/ops/redrive", {}).status_code == 400
    dry = operator.post("/v1/ops/redrive", {"dry_run": True}).json()
    assert (dry["redriven"], dry["found"][0]["error_code"], dry["found"][0]["deliveries"]) == (0, "MessageTooBig", 1)
    for others in ({"project": "nobody's"}, {"event_type": "another"}):
        assert operator.post("/v1/ops/redrive", {"event_id": event_id, **others}).json()["redriven"] == 0
    assert operator.post("/v1/ops/redrive", {"event_id": event_id}).json()["redriven"] == 1
    stats = viewer.get("/v1/ops/stats").json()
    check_shape(stats)
    assert (stats["queue"]["failed"], stats["queue"]["pending"]) == (0, 1)

    entries = viewer.get("/v1/ops/audit").json()["items"]
    assert [entry["action"] for entry in entries][:2] == ["redrive", "run_cycle"]  # what found nothing did nothing
    assert entries[0]["result"] == {"answer": 1}
    assert entries[0]["target"] == {"event_id": event_id}
    assert {entry["outcome"] for entry in entries} == {"ok"}
    assert entries[0]["actor"].startswith("a operator (")
    assert {entry["face"] for entry in entries if entry["action"] != "make_token"} == {"http"}
    page = viewer.get("/v1/ops/audit", params={"limit": 2}).json()
    rest = viewer.get("/v1/ops/audit", params={"limit": 200, "cursor": page["next"]}).json()
    assert [each["id"] for each in page["items"] + rest["items"]] == [each["id"] for each in entries]


def test_each_setting_is_told_under_its_name(build: Callable[..., App]) -> None:
    """What a monitor reads as configuration is what each setting says, and no other's value."""
    app = build(
        dispatch_interval_minutes=3,
        outbox_batch_size=321,
        outbox_max_attempts=7,
        outbox_lease_duration_ms=61_000,
        outbox_retry_base_ms=1_234,
        outbox_retry_max_ms=98_765,
        outbox_retry_jitter_ms=55,
        outbox_concurrency=4,
        push_rate_per_second=77,
    )
    assert fleet.stats(app.database, app.settings)["config"] == {
        "poll_ms": 180_000,
        "batch_size": 321,
        "max_attempts": 7,
        "processing_timeout_ms": 61_000,
        "retry_base_ms": 1_234,
        "retry_max_ms": 98_765,
        "retry_jitter_ms": 55,
        "concurrency": 4,
        "rate_per_second": 77,
    }


def test_counts_follow_claims_and_deletions(
    served: Served, conn: psycopg.Connection[Any], build: Callable[..., App]
) -> None:
    """What is claimed is processing, what expired is stuck, and a deleted event takes its deliveries along."""
    phone(conn), phone(conn), phone(conn)
    operator = served.client("operator")
    event_id = operator.post("/v1/events", EVENT).json()["event_id"]
    operator.post("/v1/ops/cycles/fanout/run")
    claim = served.app.claims.claim("dispatch", project="default", lane="bulk", limit=2)
    assert claim is not None
    kinds = ("pending", "processing", "stuck_processing", "total")
    assert [fleet.queue(served.app.database)[kind] for kind in kinds] == [1, 2, 0, 3]
    conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")
    assert [fleet.queue(served.app.database)[kind] for kind in kinds] == [1, 0, 2, 3]
    operator.post("/v1/ops/cycles/reaper/run")
    check_shape(served.client("viewer").get("/v1/ops/stats").json())
    conn.execute("select relevo.delete_events(%s)", [[event_id]])
    assert fleet.queue(served.app.database)["total"] == 0


def test_a_cycle_is_paused_and_resumed(served: Served) -> None:
    """A paused cycle tells so when it is run; resumed, it runs; an unknown one is a 404 that names the others."""
    operator = served.client("operator")
    assert operator.post("/v1/ops/cycles/reaper/pause", {"reason": " "}).status_code == 400
    assert operator.post("/v1/ops/cycles/reaper/pause", {"reason": "a drill"}).json()["paused"] is True
    again = operator.post("/v1/ops/cycles/reaper/pause", {"reason": "another"}).json()
    assert (again["changed"], again["paused_because"]) == (False, "a drill"), "the first reason stays"
    skipped = operator.post("/v1/ops/cycles/reaper/run").json()["summary"]
    assert (skipped["outcome"], skipped["runs"][0]["reason"]) == ("skipped", "paused: a drill")
    assert operator.post("/v1/ops/cycles/reaper/resume").json() == {"cycle": "reaper", "paused": False, "changed": True}
    assert operator.post("/v1/ops/cycles/reaper/resume").json()["changed"] is False
    assert operator.post("/v1/ops/cycles/reaper/run").json()["summary"]["outcome"] in ("ok", "idle")
    for verb in ("run", "pause", "resume"):
        answer = operator.post(f"/v1/ops/cycles/nobody/{verb}", {"reason": "x"} if verb == "pause" else None)
        assert answer.status_code == 404, verb
    assert "reaper" in answer.json()["hint"]


def test_a_run_by_hand_goes_by_the_same_lock(build: Callable[..., App]) -> None:
    """While a cycle runs, a run by hand is skipped and says why; a third at once is told to come back."""
    go = threading.Event()

    def slow(run: Run) -> Step:
        go.wait(60)
        return Step()

    built = build(cycles=[Cycle("slow", Every(60_000), slow)])
    server = HttpServer(built, scheduled=False)
    served = Served(built, server)
    served.start()
    operator = served.client("operator")
    try:
        with ThreadPoolExecutor(1) as other:
            first = other.submit(operator.post, "/v1/ops/cycles/slow/run")
            eventually(lambda: built.runner._locks.get("slow") and built.runner._locks["slow"].locked(), "it runs")
            second = served.client("operator").post("/v1/ops/cycles/slow/run").json()["summary"]
            assert (second["outcome"], second["runs"][0]["reason"]) == ("skipped", "already running in this process")
            go.set()
            assert first.result().json()["summary"]["outcome"] in ("ok", "idle")
    finally:
        go.set()
        served.close()


def test_counts_of_several_sources_are_summed() -> None:
    """A cycle that runs for each source reports what all of them counted, together."""
    reports = [Report("ingest:a", "ok", counts={"read": 2, "new": 1}), Report("ingest:b", "ok", counts={"read": 3})]
    assert ops._summary("ingest", reports, 5)["counts"] == {"read": 5, "new": 1}


def test_what_is_held_is_released(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A project with an open breaker is let go; what is unknown is a 404; neither or both is refused."""
    operator = served.client("operator")
    conn.execute(
        "insert into relevo.projects (project, breaker, breaker_since, breaker_reason, breaker_by, probe_at, trips, filled_at) "
        "values ('@acme/app', 'open', now(), 'outage', 'request', now() + interval '1 hour', 1, now())"
    )
    answer = operator.post("/v1/ops/release", {"project": "@acme/app"})
    assert answer.json() == {"released": True, "events": 0, "project": "@acme/app", "what": ["breaker"]}
    assert operator.post("/v1/ops/release", {"project": "nobody"}).status_code == 404
    assert operator.post("/v1/ops/release", {"event_type": "never.seen"}).status_code == 404
    for wrong in ({}, {"project": "a", "event_type": "b"}, {"project": "a", "drop": True}):
        assert operator.post("/v1/ops/release", wrong).status_code == 400


def test_what_was_released_is_named(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Events that the runaway brake held are named with where they came from, of many the first; so in the audit."""
    operator, app = served.client("operator"), served.client("app")
    ids = [app.post("/v1/events", EVENT | {"key": str(n)}).json()["event_id"] for n in range(25)]
    conn.execute("update relevo.notification_events set state = 'held'")
    conn.execute(
        "insert into relevo.event_streams (event_type, origin, known_since, held_at, held_reason) "
        "values ('order.shipped', 'app', now(), now(), 'x'), ('order.shipped', 'folder', now(), null, null)"
    )
    conn.execute(
        "insert into relevo.held_events (event_id, stream_id, held_at, reason) select e.id, s.id, now(), 'x' "
        "from relevo.notification_events e, relevo.event_streams s where s.origin = 'app'"
    )
    told = operator.post("/v1/ops/release", {"event_type": "order.shipped"}).json()
    named = {"events": 25, "first_ids": ids[:20], "origins": ["app"]}
    assert told == {"released": True, "event_type": "order.shipped", **named, "dropped": False}
    [entry] = audit.latest(served.app.database, action="release_events")
    assert entry["result"] == named


def test_whoever_lacks_a_token_hears_which_to_make(served: Served) -> None:
    """401 and 403 name the role of the token that does, and how it is made."""
    none = served.client().get("/v1/ops/stats")
    little = served.client("viewer").post("/v1/events", EVENT)
    much = served.client("viewer").post("/v1/ops/release", {"project": "x"})
    assert [each.status_code for each in (none, little, much)] == [401, 403, 403]
    for answer, role in ((none, "viewer"), (little, "app"), (much, "operator")):
        assert f"`relevo token make NAME --role {role}` makes one" in answer.json()["hint"]


def test_every_verb_of_operators_is_recorded() -> None:
    """Each public function of `actions` that changes something records itself; reads do not."""
    reads = {"event_types", "dead_letters", "try_redrive", "unknown_installations"}
    verbs = {
        name: function
        for name, function in vars(actions).items()
        if inspect.isfunction(function)
        and function.__module__ == "relevo.operators.actions"
        and not name.startswith("_")
    }
    silent = [
        name
        for name, function in verbs.items()
        if name not in reads
        and not hasattr(function, "__wrapped__")
        and not any(word in inspect.getsource(function) for word in ("audit.recorded", "_change_subscription"))
    ]
    assert silent == []


def test_a_failure_is_recorded_too(served: Served) -> None:
    """What was tried in vain is in the record, with the reason, by a program's name as by a caller's."""
    with pytest.raises(Exception, match="no project"), audit.acting_as("ana@host", "cli"):
        actions.release_project(served.app.database, "nobody")
    [entry] = audit.latest(served.app.database)
    assert (entry["actor"], entry["face"], entry["outcome"]) == ("ana@host", "cli", "failed")
    assert "no project" in entry["error_message"]
    actions.redrive(served.app.database, DeadLetters(error_code="x"))
    assert audit.latest(served.app.database)[0]["actor"] == "a program"


def test_an_interrupted_action_is_recorded_as_failed(served: Served) -> None:
    """Whoever interrupts a command, or a process that is told to stop in its midst, leaves no entry that has only begun."""
    with pytest.raises(KeyboardInterrupt), audit.recorded(served.app.database, "redrive"):
        raise KeyboardInterrupt
    assert [entry["outcome"] for entry in audit.latest(served.app.database)] == ["failed"]


def test_an_entry_that_ended_stays_as_it_is(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Nobody ends an entry of the audit log a second time, with another outcome."""
    actions.redrive(served.app.database, DeadLetters(error_code="x"))
    conn.execute("select relevo.finish_audit(a.id, 'failed', '{}', 'forged') from relevo.audit_log a")
    [entry] = audit.latest(served.app.database)
    assert (entry["outcome"], entry["error_message"]) == ("ok", None)


def test_the_record_is_kept_for_its_time(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Cleanup forgets what is older than AUDIT_RETENTION_DAYS, and nothing younger."""
    actions.resume(served.app.database, "reaper")
    actions.resume(served.app.database, "fanout")
    conn.execute("update relevo.audit_log set at = now() - interval '401 days' where target ->> 'cycle' = 'reaper'")
    served.app.runner.run(served.app.registry["cleanup"], "manual")
    assert [each["target"]["cycle"] for each in audit.latest(served.app.database)] == ["fanout"]
