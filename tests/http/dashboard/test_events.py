"""What support people ask of one event at the dashboard: what became of it, request by request, and why."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest

from relevo.client import inboxes, opens, values, verbs
from relevo.operators import actions, events
from support.dashboard_events import (
    FAILED,
    NOWHERE,
    Connection,
    answer_request,
    count_deliveries,
    deliveries_of,
    make_event,
    make_phone,
    note_attempts,
    text_of,
)
from support.dashboard_person import Person
from support.deliveries import mark_failed, mark_sent
from support.http_server import Served
from support.phones import add_phones, fan_out


def test_the_saga_of_an_event(served: Served, conn: Connection, person: Person) -> None:
    """From its enqueueing over the requests to what failed and what it waits for, in words; each delivery one click away."""
    one, two = make_phone(conn, owner="ana"), make_phone(conn, owner="ana")
    number = make_event(conn, "order-17", values.Owners("ana"))
    fan_out(served.app)
    ids = deliveries_of(conn, number)
    answer_request(conn, [ids[one]], "answered")
    mark_failed(conn, [ids[one]], code="MessageTooBig")
    note_attempts(conn, [ids[one]])
    count_deliveries(conn, number, pending=-1, failed=1)
    actions.pause(served.app.database, "dispatch", "a drill")
    said = text_of(person, f"/dashboard/events/{number}")
    for words in (
        "On its way waiting It waits: 1 of 2 is not sent yet, because sending is paused.",
        "The app or an operator enqueued it.",
        "Fan-out finished: 2 phones (of 1 owner), 2 deliveries.",
        "with 1 of its pushes.",
        "After 2.0 s: the push service answered: not accepted.",
        "The message is too long: the limit is 4,096 bytes.",
        "1 delivery of project default: sending is paused (a drill).",
    ):
        assert words in said, words
    page = person.get(f"/dashboard/events/{number}").text
    assert {f"/dashboard/deliveries/{each}" for each in ids.values()} <= set(re.findall(r'href="([^"#]+)', page))
    assert f"/dashboard/installations/{two}" in page
    assert f'href="{NOWHERE}/events/{number}"' in page, "the push service of tests is on this machine, as a sandbox is"
    listed = person.get(f"/dashboard/events/{number}?status=failed").text
    assert re.findall(r'href="/dashboard/deliveries/(\d+)"', listed) == [str(ids[one])]


def test_two_projects_and_what_waits(served: Served, conn: Connection, person: Person) -> None:
    """The page and the list of events name the project of an event; a push that waits for the end of quiet hours went not wrong."""
    for project in ("shop", "news"):
        make_phone(conn, owner="ana", project=project)
        make_event(conn, "order-17", values.Owners("ana"), project=project)
    fan_out(served.app)
    conn.execute("update relevo.notification_deliveries set last_error_code = 'quiet_hours'")
    said = text_of(person, "/dashboard/events/1")
    assert "Project shop Audience ana" in said
    assert "Waiting pushes" in said
    assert "Errors" not in said
    assert "order-17 project news" in text_of(person, "/dashboard/events")


def test_an_event_is_told_request_by_request(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first twenty requests with what became of them, then how many more and where; pushes of others in them are not counted."""
    phones = add_phones(conn, 46)
    number, other = make_event(conn, "many", "everyone"), make_event(conn, "other", phones[:4])
    fan_out(served.app)
    mine, theirs = list(deliveries_of(conn, number).values()), list(deliveries_of(conn, other).values())
    answer_request(conn, theirs[:2], "answered")
    answer_request(conn, [*mine[:2], theirs[2]], "not_sent")
    answer_request(conn, [*mine[:4], theirs[3]], "answered")
    for first in range(4, 46, 2):
        answer_request(conn, mine[first : first + 2], "answered")
    mark_sent(conn, mine[1:])
    note_attempts(conn, mine)
    for known in (events._KNOWN, 10):  # all at once, and by their keys
        monkeypatch.setattr(events, "_KNOWN", known)
        page = person.get(f"/dashboard/events/{number}").text
        said = text_of(person, f"/dashboard/events/{number}").split(" Deliveries ")[0]
        assert said.count("with 2 of its pushes") == 19, known
        assert said.count("with 4 of its pushes") == 1, known
        assert "there was no connection." in said, known
        assert "the push service answered: 3 accepted, 1 not." in said, known
        assert said.count("the push service answered: all 2 accepted.") == 18, known
        assert "and 3 more requests" in said, known
        more = re.search(r'href="([^"#]+requests=[^"#]+)', page)
        assert more is not None, known
        rest = text_of(person, unescape(more[1])).split(" Deliveries ")[0]
        assert rest.count("with 2 of its pushes") == 3, known
        assert "more request" not in rest, known
        later = person.get(f"/dashboard/events/{number}?requests=x")
        assert later.status_code == 200, known
        first = person.get(f"/dashboard/events/{number}")
        assert ("data-live" in first.text, "data-live" in later.text) == (True, False), "what was looked up stays"


def test_what_was_said_of_a_request_stays_true(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once pushes of a request were sent anew, how many it took is not known any more, and nothing false is said of it."""
    number = make_event(conn, "anew", add_phones(conn, 4))
    fan_out(served.app)

    def says(*all_words: str) -> bool:
        """Tell whether the page says so, whether its deliveries are known all at once or looked up by their keys."""
        pages = []
        for known in (events._KNOWN, 1):
            monkeypatch.setattr(events, "_KNOWN", known)
            pages.append(text_of(person, f"/dashboard/events/{number}"))
        return all(words in page for words in all_words for page in pages)

    mine = list(deliveries_of(conn, number).values())
    answer_request(conn, mine, "answered")
    mark_sent(conn, mine[:3])
    note_attempts(conn, mine)
    failed = "update relevo.notification_deliveries set status = 'retryable', attempt_count = 1 where id = any (%s)"
    for _ in ("the receipts are awaited", "two of them said that it did not arrive"):
        assert says("answered: 3 accepted, 1 not.")
        conn.execute(failed, [mine[:2]])
    answer_request(conn, mine[:2], "answered")
    answer_request(conn, mine[3:], "unclear")
    note_attempts(conn, mine[:2])
    assert says(
        "with 4 of its pushes. After 2.0 s: the push service answered. ",
        "with 2 of its pushes. After 2.0 s: the push service answered. ",
        "After 2.0 s: no clear answer came, so it is unknown which pushes were accepted. ",
    )
    mark_sent(conn, mine[:2])
    assert says("answered: all 2 accepted.")


def test_a_request_is_told_alike_after_a_retry(served: Served, conn: Connection, person: Person) -> None:
    """What a request took stays told of it when what it refused was sent by another, and when a receipt refused more."""
    number = make_event(conn, "retried", add_phones(conn, 6))
    fan_out(served.app)
    mine, page = list(deliveries_of(conn, number).values()), f"/dashboard/events/{number}"
    answer_request(conn, mine, "answered")
    mark_sent(conn, mine[:4])
    note_attempts(conn, mine)
    row = {"n": 1, "became": "retryable", "code": "MessageRateExceeded", "said": None}
    for each in mine[4:]:
        conn.execute(FAILED, row | {"id": each, "by": "dispatch"})
    assert "answered: 4 accepted, 2 not." in text_of(person, page)
    conn.execute(FAILED, row | {"id": mine[0], "by": "receipt"})
    again = [mine[0], *mine[4:]]
    answer_request(conn, again, "answered")
    mark_sent(conn, again)
    note_attempts(conn, again)
    said = text_of(person, page)
    assert "answered: 4 accepted, 2 not." in said
    assert "answered: all 3 accepted." in said


def test_an_event_behind_an_open_breaker(served: Served, conn: Connection, person: Person) -> None:
    """It says that it waits and for what; the breaker opened once, and each time after that a probe failed."""
    number = make_event(conn, "stopped", add_phones(conn, 5), ttl_s=3600)
    fan_out(served.app)
    page = f"/dashboard/events/{number}"
    assert "On its way sending Sending: 5 of 5 are still to be sent." in text_of(person, page)
    conn.execute(
        "insert into relevo.projects (project, breaker, breaker_reason, breaker_by, breaker_since, filled_at, probe_at) "
        "values ('default', 'open', 'HTTP_503', 'request', now(), now(), now() + interval '1 hour') "
        "on conflict (project) do update set breaker = 'open', breaker_reason = excluded.breaker_reason, breaker_by = 'request', "
        "breaker_since = now(), probe_at = excluded.probe_at"
    )
    for _ in range(3):
        conn.execute(
            "insert into relevo.project_incidents (project, at, what, detail) "
            "values ('default', clock_timestamp(), 'breaker_opened', 'HTTP_503')"
        )
    said = text_of(person, page)
    assert (
        "On its way waiting It waits: 5 of 5 are not sent yet, because the breaker of project default is open." in said
    )
    assert said.count("The breaker of project default opened: Relevo sent only probes.") == 1
    assert said.count("A probe of project default failed: its breaker stayed open.") == 2
    spanish = person.get(page, headers={"accept-language": "es"}).text
    assert "5 de 5 aún no se han enviado, porque el cortacircuitos del proyecto default está abierto." in spanish
    assert "Its deadline: pushes that are not sent by then stay unsent." in said
    count_deliveries(conn, number, pending=-5, ok=5)
    assert "Its deadline" not in text_of(person, page)


def test_an_event_for_nobody_says_why(served: Served, conn: Connection, person: Person) -> None:
    """That an owner is unknown, has no phone that may receive, or that nobody matches, is told, also in Spanish."""
    make_phone(conn, owner="ana", permission="denied")
    asked: dict[str, Any] = {
        "bo": values.Owners("bo"),
        "ana": values.Owners("ana"),
        "m": values.TenderMatching(region="Maule"),
    }
    asked |= {"named": [uuid4()], "all": "everyone"}
    made = {key: make_event(conn, key, audience) for key, audience in asked.items()}
    fan_out(served.app)
    silent = "the phone does not permit notifications."
    for key, why in {
        "bo": "unknown owner, no phone belongs to bo.",
        "ana": f"no phone of ana may receive it: {silent}",
        "m": "no phone's preferences match.",
        "named": "no phone that it names is registered.",
        "all": f"no phone may receive it: {silent}",
    }.items():
        said = text_of(person, f"/dashboard/events/{made[key]}")
        assert f"It went out to no phone: {why}" in said, key
        assert f"Fan-out finished without a phone: {why}" in said, key
    spanish = person.get(f"/dashboard/events/{made['bo']}", headers={"accept-language": "es"}).text
    assert "No salió a ningún teléfono: dueño desconocido, ningún teléfono es de bo." in spanish


def settled(conn: Connection, push: int, event_id: int, was: str, **became: object) -> None:
    """Give a delivery of an event some values, and have it counted by its new status."""
    columns = ", ".join(f"{name} = %({name})s" for name in became)
    conn.execute(
        f"update relevo.notification_deliveries set updated_at = clock_timestamp(), {columns} where id = %(id)s",
        {**became, "id": push},
    )
    count_deliveries(conn, event_id, **{was: -1, str(became["status"]): 1})


def test_an_event_of_one_push_in_good_grammar(served: Served, conn: Connection, person: Person) -> None:
    """One is one, what is told of the first request is not told twice, a failed receipt is told, and nothing is "so far" at the end."""
    make_phone(conn, owner="ana")
    number = make_event(conn, "one", values.Owners("ana"))
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    page, own = f"/dashboard/events/{number}", f"/dashboard/deliveries/{push}"
    said = text_of(person, page)
    assert "Fan-out finished: 1 phone (of 1 owner), 1 delivery." in said
    assert "Sending: 1 of 1 is still to be sent." in said
    answer_request(conn, [push], "not_sent")
    answer_request(conn, [push], "answered")
    mark_sent(conn, [push])
    note_attempts(conn, [push])
    conn.execute("update relevo.notification_events set first_sent_at = clock_timestamp() where id = %s", [number])
    settled(conn, push, number, "pending", status="sent", attempt_count=1)
    said = text_of(person, page)
    assert "All pushes are sent; 1 of 1 waits for confirmation." in said
    assert "1 delivery waits for its receipt." in said
    assert "the push service answered: accepted." in said
    assert "The first push was handed" not in said
    assert "Attempts 1 counted attempt, in 2 requests" in text_of(person, own)
    failed = {"provider_receipt_id": "t", "last_error_code": "MessageRateExceeded", "attempt_count": 2}
    settled(conn, push, number, "sent", status="retryable", **failed)
    said = text_of(person, page)
    assert "A receipt says that one of its pushes did not arrive." in said
    assert "The last attempt so far. One of its pushes was tried 2 times." in said
    settled(conn, push, number, "retryable", status="ok", completed_at=datetime.now(UTC), last_error_code=None)
    said = text_of(person, page)
    assert "Finished: 1 of 1 was confirmed." in said
    assert "Its last delivery ended. One of its pushes was tried 2 times." in said
    assert "so far" not in said
    assert "A receipt says" not in said
    assert "The receipt came: Apple or Google accepted the push." in text_of(person, own)


def test_requests_are_found_behind_those_of_others(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event whose turn came late is found around its first push; where a look ends before the end, it can be gone on with."""
    monkeypatch.setattr(events, "_REQUESTS_LOOKED_AT", {False: 3, True: 3})
    number, other = make_event(conn, "late", add_phones(conn, 8)), make_event(conn, "first", add_phones(conn, 1))
    fan_out(served.app)
    mine, (theirs,) = list(deliveries_of(conn, number).values()), deliveries_of(conn, other).values()
    for _ in range(4):
        answer_request(conn, [theirs], "answered")
    later = "update relevo.push_requests set journalled_at = journalled_at - interval '10 minutes', answered_at = null"
    conn.execute(later)
    started = "update relevo.notification_events set fanout_started_at = now() - interval '20 minutes', first_sent_at = now() where id = %s"
    conn.execute(started, [number])
    for each in mine[:6]:
        answer_request(conn, [each], "answered")
    page = person.get(f"/dashboard/events/{number}").text
    assert page.count("with 1 of its pushes") == 3
    more = re.search(r'href="([^"#]+requests=[^"#]+)[^"]*"[^>]*>show later requests', page)
    assert more is not None
    assert person.get(unescape(more[1])).text.count("with 1 of its pushes") == 3


def test_a_tender_scheduled_held_cancelled_and_expired(served: Served, conn: Connection, person: Person) -> None:
    """Where it came from, what it waits for, and how it ended stand in the timeline."""
    tender = conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, organismo, sources, fingerprint, publicada_at) "
        "values ('mp', '7-1-LE26', 'Agua', 'Quillota', '{feed}', 'x', now()) returning id"
    ).fetchone()[0]
    conn.execute(
        "insert into relevo.licitacion_registry (namespace, external_id, source) values ('mp', '7-1-LE26', 'feed')"
    )
    number = make_event(conn, "t", "everyone", scheduled_at=datetime.now(UTC) + timedelta(hours=5), ttl_s=60)
    conn.execute("update relevo.notification_events set licitacion_id = %s where id = %s", [tender, number])
    said = text_of(person, f"/dashboard/events/{number}")
    for words in (
        "The tender 7-1-LE26 was published by Quillota.",
        "Ingest enqueued it from the source feed.",
        "Its scheduled time: fan-out begins then.",
        "Its deadline: pushes that are not sent by then stay unsent.",
        "It waits for its scheduled time, in 5 h .",
    ):
        assert words in said, words
    verbs.cancel(conn, number, "wrong date")
    said = text_of(person, f"/dashboard/events/{number}")
    assert "The event was cancelled. wrong date" in said
    assert "It was ended; 0 of its pushes had been sent by then." in said


def test_what_is_not_there_any_more(conn: Connection, person: Person) -> None:
    """An archived event says so, with the next step; an address of nothing is a page, too."""
    conn.execute(
        "insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month) "
        "values ('t', 'old', 7, '', 'fanned', '2026-01-01')"
    )
    gone = person.get("/dashboard/events/7")
    assert (gone.status_code, "Event 7 was archived." in gone.text, "relevo archive restore" in gone.text) == (
        404,
        True,
        True,
    )
    assert "(event 7, archived)" in text_of(person, "/dashboard/search?q=old")
    lost = person.get("/dashboard/<script>")
    assert (lost.status_code, "There is no page /dashboard/&lt;script&gt;." in lost.text) == (404, True)


def test_what_was_opened_and_what_took_anothers_place(person: Person, conn: Connection, served: Served) -> None:
    """An event's page counts taken, opened and read, in both languages; a push says by which button, and who took its place."""
    conn.execute("insert into relevo.event_types (event_type, opens) values ('order.shipped', true)")
    phones = [make_phone(conn, owner=name) for name in ("ana", "bob")]
    former = make_event(conn, "1", values.Owners("ana"), collapse="order-7")
    opened = make_event(conn, "2", values.Owners("ana", "bob"), collapse="order-7")
    fan_out(served.app)
    ids = deliveries_of(conn, opened)
    mark_sent(conn, list(ids.values()))
    [waited] = deliveries_of(conn, former).values()
    conn.execute(
        "update relevo.notification_deliveries set status = 'cancelled', completed_at = now(), last_error_code = 'superseded' where id = %s",
        [waited],
    )
    conn.execute(
        "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'sent', 2)", [opened]
    )
    assert opens.report_opened(conn, phones[0], ids[phones[0]], action="reply") == "noted"
    inboxes.mark_inbox_before(conn, owner="ana")
    said = text_of(person, f"/dashboard/events/{opened}")
    assert "accepted by a push service 2 opened, as phones reported 1 (50 %) read in the inbox 1 (50 %)" in said
    assert "A phone reported that its push was opened: the first of the event." in said
    assert "Collapse key order-7" in said
    assert "The phone reported that it was opened by the button reply." in text_of(
        person, f"/dashboard/deliveries/{ids[phones[0]]}"
    )
    assert "A later event of the same type and collapse key replaced it." in text_of(
        person, f"/dashboard/events/{former}"
    )
    assert "A later event of the same type and collapse key replaced it." in text_of(
        person, f"/dashboard/deliveries/{waited}"
    )
    person.get("/dashboard/language/es")
    said = text_of(person, f"/dashboard/events/{opened}")
    assert "aceptadas por un servicio de notificaciones 2 abiertas, según informaron los teléfonos 1 (50 %)" in said
    assert "Lo reemplazó un evento posterior del mismo tipo y clave de reemplazo." in text_of(
        person, f"/dashboard/events/{former}"
    )
