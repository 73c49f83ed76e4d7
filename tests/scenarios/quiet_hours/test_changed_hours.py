"""Quiet hours that change while pushes wait for them: what is personal follows, and each wait is explained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Explanation, Installation, Owners
from relevo.operators import owners
from relevo.verbs.callers import operator
from relevo.verbs.owners import block
from support.sending_worker import Relay, token

PROJECTS = ("default", "shop")


def hours_at(now: datetime, begins: float, ends: float) -> str:
    """Return a window of UTC that begins and ends in so many hours."""
    return "-".join(f"{now + timedelta(hours=each):%H:%M}" for each in (begins, ends))


def now_quiet() -> list[str]:
    """Return windows of UTC that began an hour ago and end in two."""
    return [hours_at(datetime.now(UTC), -1, 2)]


def owner_of(project: str) -> str:
    """Return the owner of the phone in a project."""
    return f"ana of {project}"


def share_owners(worker: Relay) -> None:
    """Let an event for owners reach their phones in both projects."""
    owners.share(worker.app.database, shared=True)


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with a phone in each of two projects that have quiet hours now, by a zone set with the hours."""
    made: Relay = relay()
    share_owners(made)
    for project in PROJECTS:
        quiet.set_quiet(made.conn, now_quiet(), project=project, zone="UTC")
        phone = Installation(token(project), owner=owner_of(project), project=project)
        made.phones[project] = verbs.register(made.conn, phone)
    return made


def send(worker: Relay, *, audience: Any, **more: Any) -> int:
    """Enqueue an event, fan it out, and send what may be sent."""
    event_id = worker.enqueue(audience=audience, **more)
    worker.fan_out()
    worker.dispatch()
    return event_id


def received(worker: Relay) -> list[int]:
    """Return how many pushes the phone of each project got."""
    return [worker.received(project) for project in PROJECTS]


def explained(worker: Relay, event_id: int, project: str) -> Explanation:
    """Return why the phone of a project has not got an event yet."""
    return verbs.explain(worker.conn, event_id, worker.phones[project])


AUDIENCES = {"owners": Owners(*map(owner_of, PROJECTS)), "everyone": "everyone"}


@pytest.mark.parametrize("audience", ["owners", "everyone"])
def test_hours_of_a_project_that_are_removed(worker: Relay, audience: str) -> None:
    """Personal events of that project go after the reaper's next round; events for many wait for the former end; both are explained."""
    event_id = send(worker, audience=AUDIENCES[audience])
    assert quiet.set_quiet(worker.conn, None, project="default")
    told = explained(worker, event_id, "default")
    assert (told.gets_it, told.rule) == (True, "quiet_hours"), "it still waits"
    values = told.raw["values"]
    until = datetime.fromisoformat(values["until"]) - datetime.now(UTC)
    assert timedelta(hours=2, minutes=-2) < until < timedelta(hours=2, minutes=6)
    assert (values["zone"], values["zone_of"], values["former"]) == ("UTC", "none", True)
    assert "were changed meanwhile" in told.reason
    worker.reap()
    worker.dispatch()
    personal = audience == "owners"
    assert received(worker) == [1 if personal else 0, 0]
    rules = [explained(worker, event_id, project).rule for project in PROJECTS]
    assert rules == ["owner" if personal else "quiet_hours", "quiet_hours"]
    worker.travel(hours=2, minutes=6)
    worker.dispatch()
    assert received(worker) == [1, 1]


def test_hours_of_a_project_that_end_sooner(worker: Relay) -> None:
    """A push for many that waits for the former, later end says so until then; a personal one waits for the new end."""
    event_id = send(worker, audience="everyone")
    quiet.set_quiet(worker.conn, [hours_at(datetime.now(UTC), -1, 1)], project="default")
    values = explained(worker, event_id, "default").raw["values"]
    assert datetime.fromisoformat(values["due_at"]) > datetime.now(UTC) + timedelta(hours=1, minutes=50)
    personal = send(worker, audience=AUDIENCES["owners"])
    values = explained(worker, personal, "default").raw["values"]
    assert datetime.fromisoformat(values["due_at"]) < datetime.now(UTC) + timedelta(hours=1, minutes=6)
    assert "former" not in values


def test_a_flight_into_daytime(worker: Relay) -> None:
    """Personal events go as soon as the phone registers in a zone where it is day; events for many wait, and both are explained."""
    personal = send(worker, audience=AUDIENCES["owners"])
    for_many = send(worker, audience="everyone")
    there = Installation(
        token("default"), worker.phones["default"], owner=owner_of("default"), timezone="Asia/Kathmandu"
    )
    verbs.register(worker.conn, there)
    worker.dispatch()
    assert received(worker) == [1, 0]
    told = [explained(worker, event_id, "default") for event_id in (personal, for_many)]
    assert [each.rule for each in told] == ["owner", "quiet_hours"]
    values = told[1].raw["values"]
    assert (values["zone"], values["zone_of"], values["former"]) == ("Asia/Kathmandu", "phone", True)
    assert explained(worker, personal, "shop").rule == "quiet_hours"


def test_a_flight_into_the_night(worker: Relay) -> None:
    """A phone that registers where it is night is left in peace, though the push was due before."""
    quiet.set_quiet(worker.conn, None, project="default")
    there = datetime.now(UTC) + timedelta(hours=5, minutes=45)
    quiet.set_quiet(worker.conn, [hours_at(there, -1, 2)], owner=owner_of("default"), zone="UTC")
    event_id = worker.enqueue(audience=AUDIENCES["owners"])
    worker.fan_out()
    phone = worker.phones["default"]
    verbs.register(
        worker.conn, Installation(token("default"), phone, owner=owner_of("default"), timezone="Asia/Kathmandu")
    )
    worker.dispatch()
    assert received(worker) == [0, 0]
    told = explained(worker, event_id, "default")
    assert (told.rule, told.raw["values"]["zone"]) == ("quiet_hours", "Asia/Kathmandu")


def test_a_retry_that_waits_follows_too(worker: Relay) -> None:
    """A push that was tried before and slid into quiet hours goes once its owner's hours are removed."""
    quiet.set_quiet(worker.conn, None, project="default")
    worker.phones["busy"] = verbs.register(worker.conn, Installation(token("busy!rate-exceeded"), owner="busy"))
    worker.enqueue(audience=Owners("busy"))
    worker.fan_out()
    worker.dispatch()
    assert worker.delivery("busy")["attempt_count"] == 1
    quiet.set_quiet(worker.conn, now_quiet(), owner="busy", zone="UTC")
    worker.conn.execute("update relevo.due_chunks set due_at = now() where attempt_count = 1")
    worker.app.services.projects.lanes._full_read_at = 0.0
    worker.dispatch()
    assert worker.delivery("busy")["last_error_code"] == "quiet_hours"
    assert explained(
        worker, worker.rows("select max(id) as id from relevo.notification_events")[0]["id"], "busy"
    ).rule == ("quiet_hours")
    quiet.set_quiet(worker.conn, None, owner="busy")
    assert worker.rows("select due_at <= now() as due from relevo.due_chunks where attempt_count = 1") == [
        {"due": True}
    ]


def test_a_project_is_gone_through_in_batches(worker: Relay) -> None:
    """The caller writes one row; each batch looks at so many chunks, and after a minute all are looked at once more."""
    for _ in range(3):
        send(worker, audience=AUDIENCES["owners"])
    worker.conn.execute("delete from relevo.quiet_changes")
    assert quiet.set_quiet(worker.conn, None, project="default")
    waiting = "select count(*) as n from relevo.due_chunks where due_at > now()"
    recheck = "select relevo.recheck_projects(%s, %s) as did"
    seen = [worker.rows(waiting)[0]["n"]]
    while worker.rows(recheck, 1, None) == [{"did": 1}]:
        seen.append(worker.rows(waiting)[0]["n"])
    assert seen == sorted(seen, reverse=True), "one by one"
    assert (seen[0], seen[-1], len(seen) >= 7) == (6, 3, True)
    [change] = worker.rows("select project, look_at > changed_at as later from relevo.quiet_changes")
    assert change == {"project": "default", "later": True}
    late = "update relevo.due_chunks set due_at = now() + interval '1 hour' where id = (select max(id) from relevo.due_chunks)"
    worker.conn.execute(late.encode())  # a fan-out that read the former hours
    minute_later = datetime.now(UTC) + timedelta(minutes=1, seconds=1)
    while worker.rows(recheck, 1_000, minute_later) == [{"did": 1}]:
        pass
    assert worker.rows(waiting) == [{"n": 3}]
    assert worker.rows("select from relevo.quiet_changes") == []


@pytest.mark.parametrize(
    ("rule", "event", "expected"),
    [
        ("ignore", {}, 1),
        ("wait", {"lane": "urgent"}, 0),
        ("silent", {}, 1),
        (None, {}, 0),
        (None, {"lane": "urgent"}, 1),
    ],
)
def test_a_category_has_a_rule_of_its_own(worker: Relay, rule: Any, event: dict[str, Any], expected: int) -> None:
    """The rule of a mandatory category comes before that of the event type and the lane, and the explanation names it."""
    worker.conn.execute("insert into relevo.event_types (event_type) values ('notice')")
    consent.set_category(worker.conn, "alarms", rule="mandatory", quiet=rule)
    event_id = send(worker, audience=AUDIENCES["owners"], category="alarms", **event)
    assert received(worker) == [expected] * 2
    if rule == "silent":
        assert [each.get("interruptionLevel") for each in worker.messages("shop")] == ["passive"]
    draft = Event("notice", "new", title="Hello", audience="everyone", category="alarms", **event)
    told = verbs.explain(worker.conn, draft, worker.phones["shop"])
    values = told.raw["values"].get("quiet") or told.raw["values"]
    assert values["rule_of"] == ("category" if rule else "lane")
    assert ("The category alarms sets this rule" in told.reason) == bool(rule)
    assert event_id


def test_a_category_that_is_changed_keeps_its_rule(worker: Relay) -> None:
    """What is left out stays as it is, and None leaves the decision to the event type again."""
    consent.set_category(worker.conn, "alarms", quiet="ignore")
    consent.set_category(worker.conn, "alarms", rule="mandatory")
    [found] = consent.list_categories(worker.conn)
    assert (found.rule, found.quiet) == ("mandatory", "ignore")
    consent.set_category(worker.conn, "alarms", quiet=None)
    [found] = consent.list_categories(worker.conn)
    assert (found.rule, found.quiet) == ("mandatory", None)


@pytest.mark.parametrize("audience", ["owners", "everyone"])
def test_a_push_that_an_outage_delayed_into_the_night_waits(relay: Any, audience: str) -> None:
    """A bulk event that was due by day and is claimed only at night rings for nobody whose zone has night then."""
    worker: Relay = relay()
    share_owners(worker)
    for project, zone in zip(PROJECTS, ("UTC", "Asia/Kathmandu"), strict=True):
        quiet.set_quiet(worker.conn, [hours_at(datetime.now(UTC), 1, 4)], project=project, zone="UTC")
        phone = Installation(token(project), owner=owner_of(project), project=project, timezone=zone)
        worker.phones[project] = verbs.register(worker.conn, phone)
    worker.enqueue(audience=AUDIENCES[audience])
    worker.fan_out()
    worker.travel(hours=2)  # nobody sends meanwhile
    worker.dispatch()
    assert received(worker) == [0, 1], "in Kathmandu these hours are at another time"
    assert worker.delivery("default")["last_error_code"] == "quiet_hours"
    worker.travel(hours=2, minutes=6)
    worker.dispatch()
    assert received(worker) == [1, 1]


def test_hours_that_are_removed_leave_an_owner_blocked(worker: Relay) -> None:
    """An owner who was blocked stays so when the owner's quiet hours are set and removed."""
    for project in PROJECTS:
        quiet.set_quiet(worker.conn, None, project=project)
    block(operator(worker.app.database), "ana", "asked", "shop")
    quiet.set_quiet(worker.conn, now_quiet(), owner="ana", project="shop", zone="UTC")
    quiet.set_quiet(worker.conn, None, owner="ana", project="shop")
    [row] = worker.rows("select blocked_at is not null as blocked from relevo.owner_rules where owner = 'ana'")
    assert row["blocked"]
    worker.register("anas", owner="ana", project="shop")
    send(worker, audience=Owners("ana"), project="shop")
    assert worker.received("anas") == 0


def test_doctor_names_what_wakes_people(worker: Relay, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It warns of Android phones without a quiet channel, and of phones whose hours no zone is set for."""
    assert "PUSH_QUIET_CHANNEL is not set" not in command("doctor").out, "there is no Android phone"
    worker.register("droid", platform="android", project="shop")
    said = " ".join(command("doctor").out.split())
    assert "PUSH_QUIET_CHANNEL is not set" in said
    assert "no time zone" not in said
    monkeypatch.setenv("PUSH_QUIET_CHANNEL", "night")
    worker.conn.execute("update relevo.quiet_profiles set zone = ''")  # as before zones were needed
    said = " ".join(command("doctor").out.split())
    assert "PUSH_QUIET_CHANNEL is not set" not in said
    assert "3 phones have quiet hours and no time zone: UTC applies" in said
    shown = command("quiet", "show", "--phone", worker.phones["droid"])
    assert "no time zone, so UTC applies" in " ".join(shown.err.split())
