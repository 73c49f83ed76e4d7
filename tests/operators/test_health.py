"""What status calls a problem, and what not: by table, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo import config
from relevo.cycles import facts
from relevo.operators.health import find_problems
from relevo.operators.health.problem import Observed
from relevo.operators.health.waiting import stopped, tried_again, why_it_waits

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
EVENT = {"event_type": "digest", "now": NOW, "scheduled_at": NOW, "fanout_failures": None}
SETTINGS = config.load({"DATABASE_URL": "postgresql://nowhere/x"}, None)


def cycle(name: str, quiet_s: float = 5.0, **more: Any) -> dict[str, Any]:
    """Make a cycle's line, as a worker with the usual settings describes it."""
    crons = {"cleanup": SETTINGS.cleanup_cron, "archive-export": SETTINGS.archive_export_cron}
    return {
        "every_ms": None if name in crons else 10_000 if name == "reaper" else 60_000,
        "cron": crons.get(name),
        "timezone": SETTINGS.worker_timezone if name in crons else None,
        "off": "",
        "cycle": name,
        "source": "",
        "quiet_s": quiet_s,
        "last_round_at": NOW - timedelta(seconds=quiet_s),
        "round_gap_s": 2.0,
        "failures": 0,
        "error_message": None,
        "paused_reason": None,
        "paused_at": None,
        "paused_source": "",
    } | more


def paused(source: str, by: str) -> dict[str, Any]:
    """Make the line of a source of ingest that was paused for days, alone or with all others."""
    return cycle("ingest", source=source, paused_source=by, paused_reason="x", paused_at=NOW - timedelta(days=3))


def worker(state: str, **more: Any) -> dict[str, Any]:
    """Make a worker's line."""
    reported = {"silent_s": 120.0, "started_at": NOW - timedelta(hours=1), "last_seen_at": NOW - timedelta(seconds=120)}
    return (
        {"worker_id": "w", "state": state, "role": "run", "hostname": "h", "cycles": ["reaper", "dispatch"], "hung": []}
        | reported
        | more
    )


HUNG = {"what": "the composer of notice", "project": "app", "calls": 2, "since": "2026-11-15T11:00:00.5+00:00"}


def source(**more: Any) -> dict[str, Any]:
    """Make a source's line."""
    healthy = {"last_outcome": "ok", "last_detail": "", "since_ok_s": 60.0, "since_news_s": 600.0, "news_gap_s": 900.0}
    return {"source": "folder", "problems": [], "given_up": 0} | healthy | more


def project(**more: Any) -> dict[str, Any]:
    """Make a project's line."""
    well = {"breaker": "closed", "breaker_reason": None, "pruning_stopped_at": None, "rest_until": None}
    well |= {"failures": 0, "asked_at": NOW}
    times = {"breaker_since": NOW - timedelta(hours=1), "probe_at": NOW + timedelta(minutes=1)}
    return {"project": "app", "connections": 0} | times | well | more


def problems(**seen: Any) -> list[str]:
    """Judge a fleet whose reaper is well."""
    nothing: dict[str, Any] = {name: [] for name in ("workers", "due", "sources", "projects", "archive")}
    reaper = [] if "no_reaper" in seen else [cycle("reaper")]
    seen.pop("no_reaper", None)
    cycles = [*reaper, *seen.pop("cycles", [])]
    return find_problems(Observed(**{"now": NOW, "cycles": cycles} | nothing | seen), SETTINGS, facts)


WELL: list[dict[str, Any]] = [
    {},
    {"workers": [worker("alive"), worker("stopped"), worker("lost", silent_s=1_000.0), worker("lost", role="tick")]},
    {"workers": [worker("lost"), worker("alive", started_at=NOW)]},
    {"workers": [worker("stopped", rests_because="it was number 1"), worker("alive", rests_because=None)]},
    {"workers": [worker("stopped", hung=[HUNG]), worker("lost", hung=[HUNG], silent_s=1_000.0), worker("stopping")]},
    {"workers": [worker("stopped"), worker("stopped", role="tick", silent_s=800.0)]},
    {"workers": [worker("stopped", silent_s=9_000.0), worker("stopped", role="tick", silent_s=3_000.0)]},
    {"workers": [worker("stopped", role="tick"), worker("stopped", role="run-cycle")]},
    {"workers": [worker("alive", is_late=True, silent_s=13.0), worker("alive", is_late=False)]},
    {"workers": [worker("alive", is_late=True), worker("alive", worker_id="in-its-place", started_at=NOW)]},
    {"workers": [worker("alive", is_late=True, silent_s=13.0), worker("stopped", role="tick", silent_s=40.0)]},
    {
        "projects": [
            project(project="webhook::app", failures=4),
            project(
                project="webhook::other",
                breaker="open",
                breaker_reason="NoConnection",
                breaker_since=NOW - timedelta(seconds=60),
            ),
        ]
    },
    {"cycles": [cycle("dispatch", 100)]},
    {"cycles": [cycle("dispatch", 1_000, round_gap_s=300.0)]},
    {"cycles": [cycle("ingest", 8 * 86_400, source="removed")]},
    {"cycles": [cycle("cleanup", 4 * 3600)]},
    {"cycles": [cycle("dispatch", failures=1, error_message="once")]},
    {"cycles": [cycle("dispatch", paused_reason="on purpose", paused_at=NOW)]},
    {"due": [{"project": "app", "lane": "bulk", "due": 5, "oldest_s": 30.0}]},
    {"projects": [project(failures=1), project(failures=4, asked_at=NOW - timedelta(hours=1))]},
    {"sources": [source()]},
    {"sources": [source(last_outcome="unavailable", since_ok_s=600.0)]},
    {"sources": [source(since_news_s=2 * 86_400.0)]},
    {"sources": [source(since_news_s=20 * 86_400.0, news_gap_s=10 * 86_400.0)]},
]


@pytest.mark.parametrize("seen", WELL)
def test_what_is_well_is_not_a_problem(seen: dict[str, Any]) -> None:
    """A fleet run by cron is healthy between ticks, a removed source is not missed, and a weekend is no silence."""
    assert problems(**seen) == []


REASON = "it belongs to the instance production, and RELEVO_INSTANCE is unset here"


def trouble(kind: str, name: str) -> dict[str, Any]:
    """Make the line of a thing that is left alone."""
    since, at = NOW - timedelta(hours=1), NOW + timedelta(minutes=1)
    return {"kind": kind, "name": name, "error": "no.", "failures": 3, "first_at": since, "retry_at": at}


ILL: list[tuple[dict[str, Any], str]] = [
    ({"copied": "this database looks like a copy"}, "this database looks like a copy"),
    (
        {"workers": [worker("alive", unusable=["PUSH_PROJECTS_FILE, shop, apns: its key is broken"])]},
        "PUSH_PROJECTS_FILE, shop, apns: its key is broken; Relevo keeps using the last valid credential; correct the entry, then",
    ),
    (
        {"copied": "any", "misnamed": {"here": None, "home": "production", "worker": "v"}},
        "RELEVO_INSTANCE is unset here, and production for worker v, which is running; nothing is sent from here until",
    ),
    (
        {
            "workers": [
                worker("stopped", worker_id="u"),
                worker("alive", rests_because=REASON),
                worker("alive", worker_id="v"),
            ]
        },
        (
            f"worker w rests and sends nothing, because the database looks like a copy: {REASON}; set its "
            "RELEVO_INSTANCE to that of worker v, then restart it"
        ),
    ),
    (
        {"workers": [worker("alive", rests_because=REASON)]},
        (
            f"worker w rests and sends nothing, because the database looks like a copy: {REASON}; set its former "
            "RELEVO_INSTANCE, or run `relevo adopt` there"
        ),
    ),
    (
        {"projects": [project(failures=2)]},
        "the last 2 requests of project app to its push service failed; Relevo retries them, and after 5 in a row",
    ),
    ({"no_reaper": True}, "no reaper has ever run; start `relevo run`"),
    (
        {"workers": [worker("stopped", silent_s=1.0)]},
        "no worker is running; start `relevo run`, or schedule `relevo tick`",
    ),
    (
        {"workers": [worker("stopped"), worker("alive", cycles=[]), worker("stopped", role="tick", silent_s=2_000.0)]},
        "no worker is running; start `relevo run`",
    ),
    (
        {"workers": [worker("stopped")], "cycles": [cycle("dispatch", 1_000)]},
        "no worker is running; start `relevo run`",
    ),
    (
        {"workers": [worker("silent"), worker("alive")]},
        "worker w has not been seen for 120 s; if it hangs, end its process on h: its deliveries return to the queue",
    ),
    (
        {
            "workers": [
                worker("alive", is_late=True, silent_s=16.0),
                worker("alive", worker_id="o", started_at=NOW - timedelta(days=1)),
            ]
        },
        "worker w has not been seen for 16 s; if it hangs, end its process on h: its deliveries return to the queue",
    ),
    (
        {"workers": [worker("alive", is_late=True, silent_s=13.0), worker("stopped", silent_s=500.0)]},
        "no worker is running: worker w, the last one, has not been seen for 13 s; start `relevo run`",
    ),
    (
        {"workers": [worker("stopping", is_late=True, silent_s=14.0)]},
        "no worker is running: worker w, the last one, has not been seen for 14 s; start `relevo run`",
    ),
    (
        {"cycles": [cycle("reaper", 9 * 86_400), cycle("ingest", 9 * 86_400, source="removed")]},
        "reaper has made no round for 9 days",
    ),
    (
        {"workers": [worker("alive", is_late=True)], "cycles": [cycle("dispatch", 1_000)]},
        "no worker is running: worker w, the last one, has not been seen for 120 s; start `relevo run`",
    ),
    (
        {"projects": [project(project="webhook::app", breaker="open", breaker_reason="NoConnection")]},
        "project webhook::app has sent only probes since 2026-11-15 11:00:00Z",
    ),
    (
        {"workers": [worker("alive", hung=[HUNG])]},
        "worker w: the composer of notice (project app) has not returned since 2026-11-15 11:00:00Z (2 calls given up);",
    ),
    (
        {"workers": [worker("alive", hung=[HUNG | {"project": ""}])]},
        "worker w: the composer of notice has not returned since",
    ),
    (
        {"workers": [worker("lost"), worker("alive", worker_id="o")]},
        "worker w has not been seen for 120 s, and its deliveries are back",
    ),
    (
        {"workers": [worker("lost"), worker("alive", hostname="o", started_at=NOW)]},
        "worker w has not been seen for 120 s",
    ),
    ({"cycles": [cycle("dispatch", 1_000)]}, "dispatch has made no round for 17 min (usual: within 200 s)"),
    (
        {"cycles": [cycle("dispatch", 1_000)], "workers": [worker("alive")]},
        "(usual: within 200 s); worker w is alive and should run it: read its log",
    ),
    ({"cycles": [cycle("dispatch", 3_000, round_gap_s=300.0)]}, "dispatch has made no round for 50 min"),
    (
        {"cycles": [cycle("ingest", source="folder", failures=2, error_message="it is gone")]},
        "ingest:folder has failed 2 times in a row: it is gone; `relevo runs --cycle ingest`",
    ),
    ({"cycles": [cycle("cleanup", 3600, failures=1, error_message="no")]}, "cleanup has failed: no; `relevo runs"),
    (
        {"cycles": [cycle("cleanup", 40 * 3600)]},
        "cleanup missed its slot of 2026-11-14 06:17Z; `relevo run-cycle cleanup` runs it now",
    ),
    (
        {
            "cycles": [cycle("dispatch", paused_reason="a test", paused_at=NOW - timedelta(hours=1))],
            "due": [{"project": "app", "lane": "bulk", "due": 5, "oldest_s": 3_600.0}],
        },
        "dispatch has been paused for 60 min (a test), and 5 deliveries are due; `relevo resume dispatch`",
    ),
    (
        {
            "cycles": [cycle("dispatch", paused_reason="a test.", paused_at=NOW)],
            "due": [{"project": "app", "lane": "bulk", "due": 1, "oldest_s": 3_600.0}],
        },
        "(a test), and 1 delivery is due;",
    ),
    (
        {
            "cycles": [cycle("cleanup", paused_reason="a test", paused_at=NOW), cycle("dispatch")],
            "due": [{"project": "app", "lane": "bulk", "due": 1, "oldest_s": 3_600.0}],
        },
        "`relevo runs --cycle dispatch` shows what dispatch does",  # another cycle's pause explains nothing
    ),
    (
        {"cycles": [cycle("fanout", paused_reason="x", paused_at=NOW)], "events_waiting": 3},
        "and 3 events wait; `relevo resume fanout`",
    ),
    ({"cycles": [cycle("fanout", paused_reason="x", paused_at=NOW)], "events_waiting": 1}, "and 1 event waits;"),
    (
        {"cycles": [cycle("fanout", paused_reason="x", paused_at=NOW)], "events_waiting": 10_000},
        "and 10,000 or more events wait;",
    ),
    (
        {"cycles": [cycle("reaper", paused_reason="x", paused_at=NOW)]},
        "no replica returns the deliveries of lost workers",
    ),
    (
        {"cycles": [cycle("receipt", paused_reason="x", paused_at=NOW)], "receipts_due": True},
        "receipts are due",
    ),
    (
        {"cycles": [paused("ocds", "ocds")]},
        "ingest:ocds has been paused for 3 days (x), and it does not run; `relevo resume ingest:ocds`",
    ),
    (
        {"cycles": [paused("", ""), paused("folder", ""), paused("ocds", "")]},
        "ingest has been paused for 3 days (x), and it does not run; `relevo resume ingest` switches it on",
    ),
    (
        {"due": [{"project": "app", "lane": "bulk", "due": 5, "oldest_s": 3_600.0}]},
        "5 bulk deliveries of project app are due, the oldest for 60 min",
    ),
    (
        {"due": [{"project": "app", "lane": "bulk", "due": 1, "oldest_s": 3_600.0}]},
        "1 bulk delivery of project app is due, the oldest for 60 min; `relevo runs --cycle dispatch`",
    ),
    (
        {"due": [{"project": "app", "lane": "urgent", "due": 10_000, "oldest_s": 3_600.0}]},
        "10,000 or more urgent deliveries of project app are due",
    ),
    (
        {
            "due": [{"project": "app", "lane": "bulk", "due": 5, "oldest_s": 3_600.0}],
            "projects": [project(rest_until=NOW + timedelta(minutes=1))],
        },
        "60 min; the push service asked Relevo to wait until 2026-11-15 12:01:00Z",
    ),
    (
        {"oldest_expired_s": 300.0},
        "an expired claim has been waiting for the reaper for 300 s; `relevo run-cycle reaper` returns",
    ),
    *(
        ({"oldest_expired_s": 300.0 if kind == "claim" else None, "troubles": [trouble(kind, name)]}, words)
        for kind, name, words in (
            (
                "lane",
                "bulk app",
                "the bulk lane of project app has failed 3 times since 2026-11-15 11:00:00Z (everything else continues): no;",
            ),
            ("claim", "c1", "expired claim c1 has failed 3 times since 2026-11-15 11:00:00Z"),
            ("delivery", "7", "delivery 7 has failed"),
            ("receipts", "app", "fetching the receipts of project app has failed"),
            ("subscription", "crm", "sending news for subscription crm has failed"),
            ("part", "cleanup prune_runs", "the step prune_runs of cleanup has failed"),
            ("lane", "urgent app", "correct the cause; Relevo tries again at 2026-11-15 12:01:00Z"),
        )
    ),
    ({"sources": [source(problems=["the list of yesterday"])]}, "source folder: the list of yesterday"),
    (
        {"sources": [source(given_up=2)]},
        "source folder: 2 rejects were tried 20 times and given up; `relevo rejects --source folder` lists",
    ),
    ({"sources": [source(given_up=1)]}, "source folder: 1 reject was tried"),
    (
        {"sources": [source(last_outcome="rejected", last_detail="bad ticket.", since_ok_s=7_200.0)]},
        "source folder has not been read for 2 h: bad ticket; `relevo runs --cycle ingest` shows the runs",
    ),
    ({"sources": [source(last_outcome="rejected", since_ok_s=None)]}, "source folder has not been read yet: rejected"),
    ({"sources": [source(since_news_s=5 * 86_400.0)]}, "source folder has had nothing new for 5 days"),
    (
        {"projects": [project(breaker="open", breaker_reason="It said 403.")]},
        (
            "project app has sent only probes since 2026-11-15 11:00:00Z (next probe at 2026-11-15 12:01:00Z): It said 403; "
            "see Expo's status page: there is nothing to set here; then `relevo release app` sends a probe at once"
        ),
    ),
    *(
        ({"projects": [project(project=f"{part}::shop", breaker="open", breaker_reason=f"{code}: no")]}, words)
        for part, code, words in (
            ("fcm", "UNAVAILABLE", "see the status page of FCM: there is nothing to set here"),
            ("fcm", "QUOTA_EXCEEDED", "see the status page of FCM: there is nothing to set here"),
            ("apns", "GoAway", "see the status page of APNs: there is nothing to set here"),
            ("webpush", "ServiceUnavailable", "see the status page of Web Push: there is nothing to set here"),
            ("webpush", "HTTP_500", "see the status page of Web Push: there is nothing to set here"),
            ("fcm", "THIRD_PARTY_AUTH_ERROR", "check this project's FCM credentials in PUSH_PROJECTS_FILE"),
            ("apns", "UNAVAILABLE", "check this project's APNs credentials in PUSH_PROJECTS_FILE"),
        )
    ),
    (
        {"projects": [project(breaker="open", breaker_reason="UNAUTHORIZED: Insufficient permissions")]},
        "set EXPO_ACCESS_TOKEN, or this project's token in EXPO_ACCESS_TOKENS_FILE, to one that Expo accepts; then",
    ),
    (
        {"projects": [project(breaker="open", breaker_reason="InvalidCredentials: the key")]},
        "renew the app's FCM or APNs key in its Expo project; then",
    ),
    (
        {"projects": [project(breaker="open", breaker_reason="NoConnection: refused")]},
        "check this machine's network (DNS, firewall, HTTPS_PROXY) and EXPO_BASE_URL; then",
    ),
    (
        {"projects": [project(breaker="probing", breaker_reason="403")]},
        "since 2026-11-15 11:00:00Z (next probe at 2026-11-15 12:01:00Z): 403; see",
    ),
    (
        {"projects": [project(breaker="open", breaker_reason="403", probe_at=NOW)]},
        "since 2026-11-15 11:00:00Z (the next due push is a probe): 403; see",
    ),
    (
        {"projects": [project(breaker="probing", breaker_reason="403", connections=1)]},
        "since 2026-11-15 11:00:00Z (a probe is being sent): 403; see",
    ),
    (
        {"projects": [project(pruning_stopped_at=NOW)]},
        "that Relevo has disabled none since 2026-11-15 12:00:00Z; check the project's push credentials, then run `relevo release",
    ),
    (
        {"archive": [{"entity": "events", "month": NOW, "last_error": "No bucket."}]},
        "events 2026-11 is not archived: No bucket; archive-export tries again in its next slot, `relevo run-cycle",
    ),
    (
        {"held": [{"event_type": "digest", "origin": "app", "events": 1, "reason": "it came"}]},
        (
            "the runaway brake holds 1 event of digest from app: it came; run `relevo release --type digest --origin app` "
            "to send it, or add --drop to discard it"
        ),
    ),
    (
        {"held": [{"event_type": "digest", "origin": "app", "events": 7, "reason": "it came 8 times"}]},
        "the runaway brake holds 7 events of digest from app: it came 8 times; run `relevo release --type digest --origin app` to",
    ),
]


@pytest.mark.parametrize(("seen", "words"), ILL)
def test_each_trouble_is_one_sentence(seen: dict[str, Any], words: str) -> None:
    """What is wrong is told once, with what to do about it."""
    [problem] = problems(**seen)
    assert words in problem


def test_a_project_that_is_held_up_is_told_once() -> None:
    """What waits for a breaker is the breaker's problem, not the queue's as well."""
    due = [{"project": "app", "lane": "bulk", "due": 5, "oldest_s": 3_600.0}]
    [problem] = problems(due=due, projects=[project(breaker="open", breaker_reason="403")])
    assert problem.startswith("project app")


def wait(**more: Any) -> dict[str, Any]:
    """Make the line of what waits in one project."""
    free = {
        "breaker": "closed",
        "breaker_reason": None,
        "probe_at": None,
        "rest_until": None,
        "repeats_held": False,
        "is_quiet": False,
        "quiet_zone": None,
    }
    return {"project": "app", "lane": "bulk", "deliveries": 3, "next_attempt_at": NOW, "claimed": False} | free | more


LATER = NOW + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("event", "waits", "paused", "words"),
    [
        ({"state": "waiting", "scheduled_at": LATER}, [], {}, "scheduled for 2026-11-15 12:05:00Z"),
        ({"state": "waiting"}, [], {"fanout": "ill"}, "fanout is paused (ill)"),
        ({"state": "waiting"}, [], {}, "it waits for fan-out"),
        ({"state": "fanned"}, [wait()], {"dispatch": "ill"}, "3 pushes of app (bulk): dispatch is paused (ill)"),
        (
            {"state": "fanned"},
            [wait(breaker="open", breaker_reason="403", probe_at=LATER)],
            {},
            "the breaker is open (403), next probe at 2026",
        ),
        (
            {"state": "fanned"},
            [wait(breaker="open", breaker_reason="403", probe_at=NOW)],
            {},
            "the breaker is open (403), the next push is a probe",
        ),
        ({"state": "fanned"}, [wait(rest_until=LATER)], {}, "asked Relevo to wait until 2026-11-15 12:05:00Z"),
        ({"state": "held"}, [], {}, "held by the runaway brake; `relevo release --type digest` sends"),
        (
            {"state": "fanned"},
            [wait(repeats_held=True)],
            {},
            "3 pushes of app (bulk): held by the runaway brake; `relevo release",
        ),
        ({"state": "fanned"}, [wait(next_attempt_at=LATER)], {}, "to be retried from 2026-11-15 12:05:00Z on"),
        (
            {"state": "fanned"},
            [wait(next_attempt_at=LATER, is_quiet=True, quiet_zone="America/Santiago")],
            {},
            "quiet hours, the first until 2026-11-15 12:05:00Z (America/Santiago)",
        ),
        ({"state": "fanned"}, [wait(claimed=True)], {}, "being sent"),
        ({"state": "fanned"}, [wait()], {}, "due; waiting for the project's rate limit"),
    ],
)
def test_an_event_says_why_it_waits(
    event: dict[str, Any], waits: list[Any], paused: dict[str, str], words: str
) -> None:
    """Scheduled, paused, held by a breaker, resting, waiting for its next try: each with its time."""
    [said] = why_it_waits(EVENT | event, waits, paused)
    assert words in said


def test_an_event_with_nothing_open_waits_for_nothing() -> None:
    """What is finished says nothing."""
    assert why_it_waits(EVENT | {"state": "fanned"}, [], {}) == []


@pytest.mark.parametrize(
    ("due", "breaker", "words"),
    [
        (None, "open", ""),
        (LATER, "open", ", tried again at 12:05:00"),
        (NOW, "open", ", tried again when project app sends again"),
        (NOW, "closed", ", due to be tried again"),
    ],
)
def test_nothing_is_tried_again_in_the_past(due: datetime | None, breaker: str, words: str) -> None:
    """What is due and held up by a breaker waits for its project, not for a time that has passed."""
    assert tried_again(due, NOW, stopped([wait(breaker=breaker), wait(breaker=breaker)])) == words
