"""Over HTTP one learns why an event waits and until when, that it reached nobody, and why a phone gets it or not."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.client import quiet, verbs
from relevo.client.values import Installation
from support.http_phones import Phones
from support.http_server import Client, Served, fan_out
from support.two_projects import plant

_numbers = iter(range(1, 1_000))


def enqueue(client: Client, **fields: Any) -> int:
    """Enqueue an event for ana, and return its number."""
    usual = {"type": "note", "key": str(next(_numbers)), "title": "Hi", "audience": "owners", "owners": ["ana"]}
    answer = client.post("/v1/events", usual | fields)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["event_id"])


def waits(client: Client, event: int) -> dict[str, Any]:
    """Return why an event waits."""
    answer = client.get(f"/v1/events/{event}/waits")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.fixture
def app(served: Served, conn: psycopg.Connection[Any]) -> Client:
    """The app's server; ana has a phone in each of two projects."""
    for project in ("default", "other"):
        verbs.register(conn, Installation(f"ExponentPushToken[{project}]", owner="ana", project=project))
    return served.client("app")


def test_why_an_event_waits_and_until_when(app: Client, served: Served, conn: psycopg.Connection[Any]) -> None:
    """Scheduled, before fan-out, in quiet hours, behind an open breaker, paused: each with its code, time and number."""
    later = enqueue(app, scheduled_at="2099-01-01T00:00:00Z")
    [scheduled] = waits(app, later)["waits"]
    assert (scheduled["code"], scheduled["until"][:10], scheduled["deliveries"]) == ("scheduled", "2099-01-01", None)
    now = enqueue(app, project="other")
    assert [each["code"] for each in waits(app, now)["waits"]] == ["fanout"]
    fan_out(served)
    [due] = waits(app, now)["waits"]
    assert (due["code"], due["project"], due["lane"], due["deliveries"]) == ("rate", "other", "bulk", 1)
    conn.execute(
        "insert into relevo.projects (project, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips, filled_at)"
        " values ('other', 'open', 'HTTP_503', 'request', now(), '2099-02-01Z', 1, now())"
        " on conflict (project) do update set breaker = 'open', breaker_reason = 'HTTP_503', breaker_by = 'request',"
        " breaker_since = now(), probe_at = '2099-02-01Z', trips = 1"
    )
    [stopped] = waits(app, now)["waits"]
    assert (stopped["code"], stopped["until"][:10], "HTTP_503" in stopped["sentence"]) == (
        "breaker",
        "2099-02-01",
        True,
    )
    (hour,) = conn.execute("select extract(hour from now() at time zone 'UTC')::int").fetchone()
    quiet.set_quiet(conn, owner="ana", windows=[f"{(hour + 23) % 24:02}:00-{(hour + 2) % 24:02}:00"], zone="UTC")
    silent = enqueue(app, project="default")
    fan_out(served)
    codes = [(each["code"], each["until"] is not None) for each in waits(app, silent)["waits"]]
    assert codes == [("quiet_hours", True)]
    assert waits(app, silent)["nobody"] is None


def test_an_event_that_reached_nobody_says_why(app: Client, served: Served, conn: psycopg.Connection[Any]) -> None:
    """An owner nobody knows, phones that may not receive, phones in another project: told to who may know it."""
    verbs.register(conn, Installation("ExponentPushToken[bob]", owner="bob", permission="denied"))
    unknown, denied = enqueue(app, owners=["nobody"]), enqueue(app, owners=["bob"])
    elsewhere = enqueue(app, project="third")
    fan_out(served)
    assert waits(app, unknown)["nobody"] == {"why": "owners_unknown", "reasons": {}}
    assert waits(app, denied)["nobody"]["why"] == "owners_silent"
    assert sum(waits(app, denied)["nobody"]["reasons"].values()) == 1
    assert waits(app, elsewhere)["nobody"]["why"] == "owners_elsewhere"
    own = served.client("app", project="third")
    assert waits(own, elsewhere)["nobody"] == {"why": "owners_unknown", "reasons": {}}


def test_why_a_phone_gets_an_event_or_not(app: Client, conn: psycopg.Connection[Any]) -> None:
    """Of an enqueued event, and of one that is not: the rule and a sentence, as `relevo.explain` returns them."""
    [mine, other] = [
        row[0] for row in conn.execute("select installation_id from relevo.device_installations order by seq")
    ]
    event = enqueue(app, project="default")
    for phone in (mine, other):
        told = app.get(f"/v1/events/{event}/explanation?installation_id={phone}").json()
        same = verbs.explain(conn, event, phone)
        assert (told["gets_it"], told["rule"], told["reason"]) == (same.gets_it, same.rule, same.reason)
    assert verbs.explain(conn, event, mine).gets_it
    assert not verbs.explain(conn, event, other).gets_it
    draft = {"type": "note", "title": "Hi", "audience": "owners", "owners": ["ana"], "project": "other"}
    answers = [app.post(f"/v1/events/explanation?installation_id={each}", draft).json() for each in (mine, other)]
    assert [each["gets_it"] for each in answers] == [False, True]
    assert app.get(f"/v1/events/{event}/explanation?installation_id={uuid4()}").status_code == 404
    assert app.get("/v1/events/999999/waits").status_code == 404


def test_another_projects_phone_is_not_there(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A token of one project is told of another's phone what it is told of none."""
    shop, bank = plant(phones.served, conn)
    draft = {"type": "note", "title": "Hi", "audience": "owners", "owners": ["ana"]}
    for phone in (bank.phone, uuid4()):
        answers = [
            shop.app.post(f"/v1/events/explanation?installation_id={phone}", draft),
            shop.app.get(f"/v1/events/{shop.event}/explanation?installation_id={phone}"),
        ]
        assert [(each.status_code, each.json()["detail"]) for each in answers] == [
            (404, f"There is no installation {phone}.")
        ] * 2
    assert shop.app.get(f"/v1/events/{shop.event}/explanation?installation_id={shop.phone}").status_code == 200
