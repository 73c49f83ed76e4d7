"""What support people ask at the dashboard: what became of an event, of one push, of one phone, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.types.json import Jsonb

from browsing import NASTY, Person
from deliveries import mark_failed, mark_sent
from phones import add_phones, fan_out
from relevo.client import inboxes, opens, quiet, values, verbs
from relevo.config import Settings
from relevo.http.dashboard import explanations, templating
from relevo.http.dashboard.templating import is_local_link
from relevo.operators import actions, events, reasons
from relevo.push_services import sandbox_address
from serving import Served

Connection = psycopg.Connection[Any]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def person(served: Served) -> Person:
    """Somebody who may look at everything."""
    someone = Person(served, "viewer")
    someone.log_in()
    return someone


def told(person: Person, path: str) -> str:
    """Open a page and return what it says, without its markup."""
    answer = person.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    main = answer.text.split("<main", 1)[1].split("</main>")[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def phone(conn: Connection, **given: object) -> UUID:
    """Register a phone with an owner and a token."""
    asked = {"token": f"ExponentPushToken[{uuid4().hex[:22]}]", **given}
    return conn.execute("select relevo.register_installation(%s)", [Jsonb(asked)]).fetchone()[0]


def event(conn: Connection, key: str, audience: Any, **more: Any) -> int:
    """Enqueue an event."""
    return verbs.enqueue(conn, values.Event("order.shipped", key, "On its way", audience=audience, **more)).event_id


def deliveries_of(conn: Connection, event_id: int) -> dict[UUID, int]:
    """Return an event's deliveries by installation."""
    found = "select installation_id, id from relevo.notification_deliveries where notification_event_id = %s"
    return dict(conn.execute(found, [event_id]).fetchall())


def journal(conn: Connection, ids: list[int], outcome: str) -> None:
    """Have a request with some deliveries answered."""
    conn.execute(
        "insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids) "
        "select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), 'w-7', 'default', now(), now() + interval '2 s', %s, "
        "array_agg(d.event_day), array_agg(d.id) from relevo.notification_deliveries d where d.id = any (%s)",
        [outcome, ids],
    )


def attempted(conn: Connection, ids: list[int]) -> None:
    """Note that deliveries were tried just now."""
    conn.execute(
        "update relevo.notification_deliveries set last_attempt_at = clock_timestamp() where id = any (%s)", [ids]
    )


def counted(conn: Connection, event_id: int, **became: int) -> None:
    """Have an event's deliveries counted by status, as settles do."""
    for status, count in became.items():
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, %s)",
            [event_id, status, count],
        )


def test_the_saga_of_an_event(served: Served, conn: Connection, person: Person) -> None:
    """From its enqueueing over the requests to what failed and what it waits for, in words; each delivery one click away."""
    one, two = phone(conn, owner="ana"), phone(conn, owner="ana")
    number = event(conn, "order-17", values.Owners("ana"))
    fan_out(served.app)
    ids = deliveries_of(conn, number)
    journal(conn, [ids[one]], "answered")
    mark_failed(conn, [ids[one]], code="MessageTooBig")
    attempted(conn, [ids[one]])
    counted(conn, number, pending=-1, failed=1)
    actions.pause(served.app.database, "dispatch", "a drill")
    said = told(person, f"/dashboard/events/{number}")
    for words in (
        "On its way waiting It waits: 1 of 2 is not sent yet, because sending is paused.",
        "Enqueued by the app, or by hand.",
        "2 phones get it, because they belong to its owners: 2 deliveries.",
        "went out with 1 of its pushes, from worker w-7.",
        "After 2.0 s: the push service answered: not taken.",
        "The message is too long: 4,096 bytes are the most.",
        "1 delivery of project default: sending is paused (a drill).",
    ):
        assert words in said, words
    page = person.get(f"/dashboard/events/{number}").text
    assert {f"/dashboard/deliveries/{each}" for each in ids.values()} <= set(re.findall(r'href="([^"#]+)', page))
    assert f"/dashboard/installations/{two}" in page
    assert f'href="{NOWHERE}/events/{number}"' in page, "the push service of tests is on this machine, as a sandbox is"
    listed = person.get(f"/dashboard/events/{number}?status=failed").text
    assert re.findall(r'href="/dashboard/deliveries/(\d+)"', listed) == [str(ids[one])]


@pytest.mark.parametrize("known", [events._KNOWN, 10], ids=["known", "by-key"])
def test_an_event_is_told_request_by_request(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """The first twenty requests with what became of them, then how many more and where; pushes of others in them are not counted."""
    monkeypatch.setattr(events, "_KNOWN", known)
    phones = add_phones(conn, 46)
    number, other = event(conn, "many", "everyone"), event(conn, "other", phones[:4])
    fan_out(served.app)
    mine, theirs = list(deliveries_of(conn, number).values()), list(deliveries_of(conn, other).values())
    journal(conn, theirs[:2], "answered")
    journal(conn, [*mine[:2], theirs[2]], "not_sent")
    journal(conn, [*mine[:4], theirs[3]], "answered")
    for first in range(4, 46, 2):
        journal(conn, mine[first : first + 2], "answered")
    mark_sent(conn, mine[1:])
    attempted(conn, mine)
    page = person.get(f"/dashboard/events/{number}").text
    said = told(person, f"/dashboard/events/{number}").split(" Deliveries ")[0]
    assert said.count("went out with 2 of its pushes") == 19
    assert said.count("went out with 4 of its pushes") == 1
    assert "there was no connection." in said
    assert "the push service answered: 3 taken, 1 not." in said
    assert said.count("the push service answered: all 2 taken.") == 18
    assert "and 3 more requests" in said
    more = re.search(r'href="([^"#]+requests=[^"#]+)', page)
    assert more is not None
    rest = told(person, unescape(more[1])).split(" Deliveries ")[0]
    assert rest.count("went out with 2 of its pushes") == 3
    assert "more request" not in rest
    assert person.get(f"/dashboard/events/{number}?requests=x").status_code == 200


@pytest.mark.parametrize("known", [events._KNOWN, 1], ids=["known", "by-key"])
def test_what_was_said_of_a_request_stays_true(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Once pushes of a request were sent anew, how many it took is not known any more, and nothing false is said of it."""
    monkeypatch.setattr(events, "_KNOWN", known)
    number = event(conn, "anew", add_phones(conn, 4))
    fan_out(served.app)
    mine = list(deliveries_of(conn, number).values())
    journal(conn, mine, "answered")
    mark_sent(conn, mine[:3])
    attempted(conn, mine)
    failed = "update relevo.notification_deliveries set status = 'retryable', attempt_count = 1 where id = any (%s)"
    for _ in ("the receipts are awaited", "two of them said that it did not arrive"):
        assert "answered: 3 taken, 1 not." in told(person, f"/dashboard/events/{number}")
        conn.execute(failed, [mine[:2]])
    journal(conn, mine[:2], "answered")
    journal(conn, mine[3:], "unclear")
    attempted(conn, mine[:2])
    said = told(person, f"/dashboard/events/{number}")
    assert "with 4 of its pushes, from worker w-7. After 2.0 s: the push service answered. " in said
    assert "with 2 of its pushes, from worker w-7. After 2.0 s: the push service answered. " in said
    assert "After 2.0 s: no clear answer came, so it is not known what was taken. " in said
    mark_sent(conn, mine[:2])
    assert "answered: all 2 taken." in told(person, f"/dashboard/events/{number}")


def test_a_request_is_told_alike_after_a_retry(served: Served, conn: Connection, person: Person) -> None:
    """What a request took stays told of it when what it refused was sent by another, and when a receipt refused more."""
    number = event(conn, "retried", add_phones(conn, 6))
    fan_out(served.app)
    mine, page = list(deliveries_of(conn, number).values()), f"/dashboard/events/{number}"
    journal(conn, mine, "answered")
    mark_sent(conn, mine[:4])
    attempted(conn, mine)
    row = {"n": 1, "became": "retryable", "code": "MessageRateExceeded", "said": None}
    for each in mine[4:]:
        conn.execute(FAILED, row | {"id": each, "by": "dispatch"})
    assert "answered: 4 taken, 2 not." in told(person, page)
    conn.execute(FAILED, row | {"id": mine[0], "by": "receipt"})
    again = [mine[0], *mine[4:]]
    journal(conn, again, "answered")
    mark_sent(conn, again)
    attempted(conn, again)
    said = told(person, page)
    assert "answered: 4 taken, 2 not." in said
    assert "answered: all 3 taken." in said


def test_an_event_behind_an_open_breaker(served: Served, conn: Connection, person: Person) -> None:
    """It says that it waits and for what; the breaker opened once, and each time after that a probe failed."""
    number = event(conn, "stopped", add_phones(conn, 5), ttl_s=3600)
    fan_out(served.app)
    page = f"/dashboard/events/{number}"
    assert "On its way sending It is going out: 5 of 5 are still to be sent." in told(person, page)
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
    said = told(person, page)
    assert (
        "On its way waiting It waits: 5 of 5 are not sent yet, because the breaker of project default is open." in said
    )
    assert said.count("The breaker of project default opened: sending stopped but for probes.") == 1
    assert said.count("A probe of project default failed: its breaker stays open.") == 2
    spanish = person.get(page, headers={"accept-language": "es"}).text
    assert "5 de 5 aún no se han enviado, porque el cortacircuitos del proyecto default está abierto." in spanish
    assert "Its deadline: what is not sent by then is not sent." in said
    counted(conn, number, pending=-5, ok=5)
    assert "Its deadline" not in told(person, page)


def test_an_event_for_nobody_says_why(served: Served, conn: Connection, person: Person) -> None:
    """That an owner is unknown, has no phone that may receive, or that nobody matches, is told, also in Spanish."""
    phone(conn, owner="ana", permission="denied")
    asked: dict[str, Any] = {
        "bo": values.Owners("bo"),
        "ana": values.Owners("ana"),
        "m": values.Matching(region="Maule"),
    }
    asked |= {"named": [uuid4()], "all": "everyone"}
    made = {key: event(conn, key, audience) for key, audience in asked.items()}
    fan_out(served.app)
    silent = "the phone does not permit notifications."
    for key, why in {
        "bo": "unknown owner, no phone belongs to bo.",
        "ana": f"no phone of ana may receive it: {silent}",
        "m": "no phone's preferences match.",
        "named": "no phone that it names is registered.",
        "all": f"no phone may receive it: {silent}",
    }.items():
        said = told(person, f"/dashboard/events/{made[key]}")
        assert f"It went out to nobody: {why}" in said, key
        assert f"Nobody gets it: {why}" in said, key
    verbs.set_preference(conn, phone(conn), "default", values.Preference(region="Maule", delivery="hourly"))
    conn.commit()
    assert "no phone wants it at once; those that want digests are told" in told(
        person, f"/dashboard/events/{made['m']}"
    )
    spanish = person.get(f"/dashboard/events/{made['bo']}", headers={"accept-language": "es"}).text
    assert "No se envió a nadie: dueño desconocido, ningún teléfono es de bo." in spanish


def settled(conn: Connection, push: int, event_id: int, was: str, **became: object) -> None:
    """Give a delivery of an event some values, and have it counted by its new status."""
    columns = ", ".join(f"{name} = %({name})s" for name in became)
    conn.execute(
        f"update relevo.notification_deliveries set updated_at = clock_timestamp(), {columns} where id = %(id)s",
        {**became, "id": push},
    )
    counted(conn, event_id, **{was: -1, str(became["status"]): 1})


def test_an_event_of_one_push_in_good_grammar(served: Served, conn: Connection, person: Person) -> None:
    """One is one, what is told of the first request is not told twice, a failed receipt is told, and nothing is "so far" at the end."""
    phone(conn, owner="ana")
    number = event(conn, "one", values.Owners("ana"))
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    page, own = f"/dashboard/events/{number}", f"/dashboard/deliveries/{push}"
    said = told(person, page)
    assert "1 phone gets it, because it belongs to an owner who is meant: 1 delivery." in said
    assert "It is going out: 1 of 1 is still to be sent." in said
    journal(conn, [push], "not_sent")
    journal(conn, [push], "answered")
    mark_sent(conn, [push])
    attempted(conn, [push])
    conn.execute("update relevo.notification_events set first_sent_at = clock_timestamp() where id = %s", [number])
    settled(conn, push, number, "pending", status="sent", attempt_count=1)
    said = told(person, page)
    assert "All is sent; 1 of 1 waits to be confirmed." in said
    assert "1 delivery waits for the push service to say what became of it." in said
    assert "the push service answered: taken." in said
    assert "The first push was handed" not in said
    assert "Attempts 1 that counts, in 2 requests" in told(person, own)
    failed = {"provider_receipt_id": "t", "last_error_code": "MessageRateExceeded", "attempt_count": 2}
    settled(conn, push, number, "sent", status="retryable", **failed)
    said = told(person, page)
    assert "A receipt says that one of its pushes did not arrive." in said
    assert "The last attempt so far. One of its pushes was tried 2 times." in said
    settled(conn, push, number, "retryable", status="ok", completed_at=datetime.now(UTC), last_error_code=None)
    said = told(person, page)
    assert "It is done: 1 of 1 was confirmed." in said
    assert "The last of its deliveries ended. One of its pushes was tried 2 times." in said
    assert "so far" not in said
    assert "A receipt says" not in said
    assert "The receipt says: taken by Apple or Google." in told(person, own)


def test_requests_are_found_behind_those_of_others(
    served: Served, conn: Connection, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event whose turn came late is found around its first push; where a look ends before the end, it can be gone on with."""
    monkeypatch.setattr(events, "_REQUESTS_LOOKED_AT", {False: 3, True: 3})
    number, other = event(conn, "late", add_phones(conn, 8)), event(conn, "first", add_phones(conn, 1))
    fan_out(served.app)
    mine, (theirs,) = list(deliveries_of(conn, number).values()), deliveries_of(conn, other).values()
    for _ in range(4):
        journal(conn, [theirs], "answered")
    later = "update relevo.push_requests set journalled_at = journalled_at - interval '10 minutes', answered_at = null"
    conn.execute(later)
    started = "update relevo.notification_events set fanout_started_at = now() - interval '20 minutes', first_sent_at = now() where id = %s"
    conn.execute(started, [number])
    for each in mine[:6]:
        journal(conn, [each], "answered")
    page = person.get(f"/dashboard/events/{number}").text
    assert page.count("went out with 1 of its pushes") == 3
    more = re.search(r'href="([^"#]+requests=[^"#]+)[^"]*"[^>]*>look at later requests', page)
    assert more is not None
    assert person.get(unescape(more[1])).text.count("went out with 1 of its pushes") == 3


def test_a_tender_scheduled_held_cancelled_and_expired(served: Served, conn: Connection, person: Person) -> None:
    """Where it came from, what it waits for, and how it ended stand in the timeline."""
    tender = conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, organismo, sources, fingerprint, publicada_at) "
        "values ('mp', '7-1-LE26', 'Agua', 'Quillota', '{feed}', 'x', now()) returning id"
    ).fetchone()[0]
    conn.execute(
        "insert into relevo.licitacion_registry (namespace, external_id, source) values ('mp', '7-1-LE26', 'feed')"
    )
    number = event(conn, "t", "everyone", scheduled_at=datetime.now(UTC) + timedelta(hours=5), ttl_s=60)
    conn.execute("update relevo.notification_events set licitacion_id = %s where id = %s", [tender, number])
    said = told(person, f"/dashboard/events/{number}")
    for words in (
        "The tender 7-1-LE26 was published by Quillota.",
        "Enqueued: the source feed had something new.",
        "Scheduled for this time; before it nothing happens.",
        "Its deadline: what is not sent by then is not sent.",
        "It waits for its time, in 5 h .",
    ):
        assert words in said, words
    verbs.cancel(conn, number, "wrong date")
    said = told(person, f"/dashboard/events/{number}")
    assert "It was cancelled. wrong date" in said
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
    assert "(event 7, archived)" in told(person, "/dashboard/search?q=old")
    lost = person.get("/dashboard/<script>")
    assert (lost.status_code, "There is no page /dashboard/&lt;script&gt;." in lost.text) == (404, True)


def test_one_delivery(served: Served, conn: Connection, person: Person) -> None:
    """Why it was made, each request it was in, its ticket, its error in words, and what it waits for now."""
    one = phone(conn)
    number = event(conn, "order-18", [one])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    assert "It waits: due, and waiting in line." in told(person, f"/dashboard/deliveries/{push}")
    journal(conn, [push], "not_sent")
    conn.execute(
        "update relevo.notification_deliveries set status = 'retryable', attempt_count = 2, last_attempt_at = clock_timestamp(), "
        "last_error_code = 'NoConnection', last_error_message = 'refused' where id = %s",
        [push],
    )
    conn.execute(
        "update relevo.due_chunks set due_at = now() + interval '4 min', attempt_count = 2, had_error = true where event_id = %s",
        [number],
    )
    said = told(person, f"/dashboard/deliveries/{push}")
    for words in (
        "The event names this phone.",
        "with this push alone, from worker w-7.",
        "After 2.0 s: there was no connection.",
        "Attempt 2 did not get through.",
        "The push service could not be reached; nothing was sent. (NoConnection: refused)",
        "the next attempt comes in 4 min",
    ):
        assert words in said, words
    conn.execute(
        "update relevo.notification_deliveries set last_error_code = null, last_error_message = null where id = %s",
        [push],
    )
    mark_sent(conn, [push], ticket="ticket-7")
    said = told(person, f"/dashboard/deliveries/{push}")
    assert "The push service took it: ticket ticket-7." in said
    assert "It waits for its receipt, which is asked for in 15 min" in said
    assert person.get("/dashboard/deliveries/99999").status_code == 404


def test_what_quiet_hours_and_batches_keep_back(served: Served, conn: Connection, person: Person) -> None:
    """The delivery's page says in which zone quiet hours are; an event that a batch tells is not called lost."""
    one = phone(conn, owner="ana", timezone="America/Santiago")
    there = datetime.now(ZoneInfo("America/Santiago"))
    window = "-".join(f"{there + timedelta(hours=hours):%H:%M}" for hours in (-1, 2))
    quiet.set_quiet(conn, [window], owner="ana")
    conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('comment', 3600)")
    comment = verbs.enqueue(conn, values.Event("comment", "1", "Bo commented", audience=values.Owners("ana"))).event_id
    number = event(conn, "order-19", [one])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    assert "It waits: quiet hours (America/Santiago); they end" in told(person, f"/dashboard/deliveries/{push}")
    said = told(person, f"/dashboard/events/{comment}")
    assert "It is gathered with others of its kind" in said
    assert "Why it was not pushed" in said
    assert "reached nobody" not in said
    said = told(person, f"/dashboard/owners/ana?event={comment}")
    assert "Not by itself. It is told together with others of its kind:" in said


def test_peace_in_the_readers_language(served: Served, conn: Connection, person: Person) -> None:
    """Caps, digests, silence and who looks are told in Spanish; an owner's latest events are not those of others."""
    one, _other = phone(conn, owner="ana"), phone(conn, owner="eva")
    quiet.set_cap(conn, 1, per="day", category="ads")
    first, above = (event(conn, f"ad-{n}", [one], category="ads") for n in range(2))
    others = event(conn, "not for ana", values.Owners("eva"))
    verbs.set_preference(conn, one, "default", values.Preference(delivery="hourly"))
    fan_out(served.app)
    (push,) = deliveries_of(conn, first).values()
    conn.execute("insert into relevo.silent_pushes values (%s, %s, now())", [first, push])

    def spanish(path: str) -> str:
        page = person.get(path, headers={"accept-language": "es"}).text
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))

    said = spanish(f"/dashboard/events/{above}")
    assert "como máximo 1 al día de la categoría ads" in said
    assert "at most" not in said
    assert "Está destinado a 1 teléfono" in said
    assert "Se envió sin sonido" in spanish(f"/dashboard/events/{first}")
    assert "Se envió sin sonido" in spanish(f"/dashboard/deliveries/{push}")
    said = spanish("/dashboard/owners/ana")
    assert "en un resumen, cada hora" in said
    assert "(lector)" in said
    page = person.get("/dashboard/owners/ana").text
    assert (f"/dashboard/events/{above}" in page, f"/dashboard/events/{others}" in page) == (True, False)


def test_why_a_push_that_was_made_may_not_go(served: Served, conn: Connection, person: Person) -> None:
    """The page of a push names the reason for which its phone gets none any more, and the category it opted out of."""
    one = phone(conn)
    number = event(conn, "order-21", [one], category="ads")
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    own = f"/dashboard/deliveries/{push}"
    changed = "update relevo.device_installations set permission = %s, opt_outs = '{ads}' where installation_id = %s"
    conn.execute(changed, ["denied", one])
    assert "Pushes may not go to this phone: the phone does not permit notifications." in told(person, own)
    spanish = person.get(own, headers={"accept-language": "es"}).text
    assert "No se pueden enviar notificaciones a este teléfono: el teléfono no permite" in spanish
    conn.execute(changed, ["granted", one])
    assert "This phone opted out of the event's category, ads." in told(person, own)


FAILED = """
insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
select d.event_day, d.id, %(n)s, clock_timestamp(), %(n)s, %(by)s, %(became)s, %(code)s, %(said)s,
       (select r.id from relevo.push_requests r where d.id = any (r.ids) and %(by)s <> 'receipt' order by r.journalled_at desc limit 1)
  from relevo.notification_deliveries d where d.id = %(id)s
"""


def test_each_try_of_one_delivery(served: Served, conn: Connection, person: Person) -> None:
    """What was said of each try stands with it, also in Spanish, escaped; a death before a redrive is told; the event tells codes apart."""
    number = event(conn, "order-19", [phone(conn)])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    row: dict[str, Any] = {"id": push, "by": "dispatch", "became": "retryable"}
    for n, (outcome, code, said) in enumerate(
        [
            ("unclear", "HTTP_500", "oops"),
            ("unclear", "ConnectionBroken", NASTY[:400]),
            ("answered", "MessageTooBig", None),
        ],
        1,
    ):
        journal(conn, [push], outcome)
        conn.execute(FAILED, row | {"n": n, "code": code, "said": said, "became": "failed" if n == 3 else "retryable"})
    attempted(conn, [push])
    conn.execute(FAILED, row | {"n": 4, "by": "receipt", "code": "ExpoError", "said": None})
    own = f"/dashboard/deliveries/{push}"
    said = told(person, own)
    for words in (
        "Try 1. Request",
        "not known what was taken. The push service failed: it answered 500. (HTTP_500: oops)",
        "The connection was cut before the whole answer came. (ConnectionBroken",
        "the push service answered. The message is too long: 4,096 bytes are the most. (MessageTooBig)",
        "It had failed for good, and lay among the dead letters.",
        "The receipt says that it did not arrive. The push service had a problem of its own. (ExpoError)",
    ):
        assert words in said, words
    assert said.index("Try 1.") < said.index("Try 2.") < said.index("Try 3.") < said.index("It had failed for good")
    assert "<script>document" not in person.get(own).text
    both = told(person, f"/dashboard/events/{number}")
    assert "not known what was taken. The push service failed: it answered 500. " in both
    assert "not known what was taken. The connection was cut before the whole answer came" in both
    spanish = person.get(own, headers={"accept-language": "es"}).text
    assert "Intento 1." in spanish
    assert "respondió 500" in spanish
    assert "entregas fallidas" in spanish


def test_equal_tries_are_told_at_once(served: Served, conn: Connection, person: Person) -> None:
    """Seven tries that went alike are one line; the one that went otherwise stands alone."""
    number = event(conn, "order-20", [phone(conn)])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    for n in range(1, 9):
        code = "HTTP_500" if n < 8 else "MessageTooBig"
        journal(conn, [push], "unclear" if n < 8 else "answered")
        row = {"id": push, "by": "dispatch", "became": "retryable", "n": n, "code": code, "said": "oops"}
        conn.execute(FAILED, row)
    attempted(conn, [push])
    said = told(person, f"/dashboard/deliveries/{push}")
    assert said.count("7 tries, each: no clear answer came") == 1
    assert "it answered with an error of its own, 500" in said or "it answered 500" in said
    assert "Try 7." not in said
    assert "Try 8. Request" in said


def test_a_person_and_why_they_got_nothing(served: Served, conn: Connection, person: Person) -> None:
    """People are listed by name; a person's page tells of the latest events why each came or not; lists say names, not ids."""
    one = phone(conn, owner="ana")
    phone(conn, owner="<b>benja</b>")
    conn.execute("update relevo.device_installations set permission = 'denied' where owner = '<b>benja</b>'")
    number = event(conn, "order-21", "everyone")
    fan_out(served.app)
    listed = told(person, "/dashboard/people")
    assert listed.index("<b>benja</b>") < listed.index("ana")
    assert "none of their phones may get pushes" in listed
    assert "<b>benja" not in person.get("/dashboard/people").text
    assert "benja" not in told(person, "/dashboard/people?name=a")
    assert "Nobody is called that" in told(person, "/dashboard/people?name=zoe")
    assert "Not yet. It is to be sent." in told(person, "/dashboard/owners/ana")
    assert "No. Pushes may not go to this phone: the phone does not permit" in told(
        person, f"/dashboard/owners/{quote('<b>benja</b>')}"
    )
    assert f'title="{one}">ana</a>' in person.get(f"/dashboard/events/{number}").text
    assert f'title="{one}">ana</a>' in person.get("/dashboard/compose?audience=owners&whom=ana").text
    assert "Phone of ana" in told(person, f"/dashboard/installations/{one}")


def test_a_pause_that_is_over(served: Served, conn: Connection, person: Person) -> None:
    """What waited through a pause tells who paused what and why, and who had it go on; one that lasts is told as what it waits for."""
    number = event(conn, "order-20", [phone(conn)])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    actions.pause(served.app.database, "dispatch", f"a drill {NASTY[:50]}")
    assert "a drill" in actions.pause(served.app.database, "dispatch", "another")["paused_because"]
    page, own = f"/dashboard/events/{number}", f"/dashboard/deliveries/{push}"
    assert "paused sending." not in told(person, page)
    actions.resume(served.app.database, "dispatch")
    for each in (page, own):
        said = told(person, each)
        assert "a program paused sending. a drill " in said
        assert "a program had sending go on, after " in said
        assert "<script>document" not in person.get(each).text
    assert "puso en pausa los envíos." in person.get(page, headers={"accept-language": "es"}).text


WHY = [
    ({"permission": "denied"}, {}, "No. Pushes may not go to this phone: the phone does not permit notifications."),
    ({"opt_outs": ["ads"]}, {"category": "ads"}, "No. This phone opted out of the event's category, ads."),
    ({}, {"audience": "others"}, "No. The event is for others: it names neither this phone nor its owner."),
    ({}, {"audience": "matching"}, "No. None of this phone's preferences matches: mine: another region."),
    ({}, {}, "Not yet. The event is for everyone."),
]


@pytest.mark.parametrize(
    ("phone_is", "event_is", "answer"), WHY, ids=["denied", "opted-out", "others", "differs", "gets-it"]
)
def test_why_not(
    served: Served, conn: Connection, person: Person, phone_is: dict[str, Any], event_is: dict[str, Any], answer: str
) -> None:
    """The rule that decided is told for one phone and for its owner, by the event's id or its key."""
    one = phone(conn, owner="ana/b c", **phone_is)
    verbs.set_preference(conn, one, "default", None)
    verbs.set_preference(conn, one, "mine", values.Preference(region="Valparaíso"))
    audience = {"others": add_phones(conn, 1), "matching": values.Matching(region="Maule")}.get(
        event_is.get("audience", ""), "everyone"
    )
    number = event(conn, "k-1", audience, category=event_is.get("category"))
    fan_out(served.app)
    assert answer in told(person, f"/dashboard/installations/{one}?event={number}")
    assert answer in told(person, f"/dashboard/owners/{quote('ana/b c', safe='')}?event=k-1")


def why(person: Person, one: UUID, number: int) -> str:
    """Ask why a phone got an event, or not, and return the answer, in words."""
    said = told(person, f"/dashboard/installations/{one}?event={number}")
    return said.split(" Explain ", 1)[1].split(" Asks for ")[0]


def test_what_changed_since_is_told(served: Served, conn: Connection, person: Person) -> None:
    """A past event is judged by today's phone: what was registered, disabled, changed since is said with its time, nothing else."""
    quiet, disabled, other, wish, gone = (phone(conn, owner="ana") for _ in range(5))
    region = values.Matching(region="Maule")
    everyone, matching, named = event(conn, "1", "everyone"), event(conn, "2", region), event(conn, "3", [quiet])
    owned = event(conn, "4", values.Owners("ana"))
    for each in (quiet, wish, gone):
        verbs.set_preference(conn, each, "default", values.Preference(region="Ñuble"))
    fan_out(served.app)
    late = phone(conn, owner="ana")
    conn.execute(
        "update relevo.device_installations set invalidated_at = now(), invalid_reason = 'DeviceNotRegistered' where installation_id = %s",
        [disabled],
    )
    verbs.register(conn, values.Installation(None, installation_id=other, permission="denied"))
    verbs.register(conn, values.Installation(None, installation_id=gone, owner="bea"))
    verbs.set_preference(conn, wish, "default", values.Preference(region="Maule"))
    for number in (everyone, matching, owned):
        assert "No. It was registered only afterwards: 20" in why(person, late, number)
    assert "No. The event is for others" in why(person, late, named)
    assert ". That is so only since 20" in why(person, disabled, everyone)
    assert "UTC , after the event had gone out; how it was then is not kept." in why(person, disabled, everyone)
    assert "The phone was changed, or registered itself again, since: 20" in why(person, other, everyone)
    assert "Its preferences were changed since: 20" in why(person, wish, matching)
    assert "UTC ; it is judged as it is today." in why(person, wish, matching)
    assert "A preference that was removed since would leave no trace." in why(person, quiet, matching)
    assert "It changed its owner since: 20" in why(person, gone, owned)
    for number in (everyone, named, owned):
        assert "since" not in why(person, quiet, number)
    assert "it was meant to get it: a delivery was made." in why(person, other, everyone)
    (push,) = [deliveries_of(conn, owned)[gone]]
    assert "It changed its owner since: 20" in told(person, f"/dashboard/deliveries/{push}")


def test_a_phone_and_its_owner(served: Served, conn: Connection, person: Person) -> None:
    """What a phone asks for in words, its history page by page, its token shortened; its owner has them all."""
    token = f"ExponentPushToken[{uuid4().hex[:22]}]"
    one = phone(conn, owner="ana", token=token)
    wish = values.Preference(keywords=["agua"], region="Maule", monto_min=1000000, moneda="CLP")
    verbs.set_preference(conn, one, "mine", wish)
    for n in range(27):
        event(conn, f"e-{n}", "everyone")
    phone(conn, owner="bo", provider="fcm", token=f"{uuid4().hex}:{'a' * 120}")
    fan_out(served.app)
    assert " bo FCM pending" in told(person, "/dashboard/events/1")
    for path in (f"/dashboard/installations/{one}", "/dashboard/owners/ana"):
        said = told(person, path)
        assert "Push service Expo" in said
        assert "mine : with one of the words agua; region Maule; from 1,000,000 CLP" in said
        assert token not in person.get(path).text
        more = re.search(r'href="([^"]+before=[^"]+)"', person.get(path).text)
        assert more is not None
        assert len(re.findall('href="/dashboard/deliveries/', person.get(unescape(more[1])).text)) == 2
    assert "There is no event with this id or key." in told(person, f"/dashboard/installations/{one}?event=nothing")
    assert person.get(f"/dashboard/installations/{UUID(int=9)}").status_code == 404
    assert person.get("/dashboard/owners/nobody").status_code == 404
    verbs.forget(conn, one)
    assert "This phone was forgotten" in told(person, f"/dashboard/installations/{one}")


def test_the_latest_events(served: Served, conn: Connection, person: Person) -> None:
    """Newest first, page by page, and by type, state and project, in an address that can be shared."""
    numbers = [event(conn, f"e-{n}", []) for n in range(27)]
    other = verbs.enqueue(conn, values.Event("notice", "n", "A notice", audience="everyone")).event_id
    conn.execute("update relevo.notification_events set project = 'shop' where id = %s", [other])
    verbs.cancel(conn, numbers[3])
    first = person.get("/dashboard/events").text
    assert f"/dashboard/events/{other}" in first
    more = re.search(r'href="([^"]+before=[^"]+)"', first)
    assert more is not None
    assert re.findall(r"/dashboard/events/(\d+)", person.get(unescape(more[1])).text) == [
        str(each) for each in (3, 2, 1)
    ]
    for query, fits in (("type=notice", other), ("status=cancelled", numbers[3]), ("project=shop", other)):
        assert re.findall(r'events/(\d+)"', person.get(f"/dashboard/events?{query}").text) == [str(fits)], query
    assert "No event fits." in told(person, "/dashboard/events?type=none")
    assert re.findall(r'<option value="([^"]+)"></option>', first) == ["notice", "order.shipped"]


def lead(person: Person, asked: str) -> str:
    """Put something into the box; return where that leads, or nothing."""
    answer = person.send("/dashboard/search", q=asked)
    return answer.headers.get("location", "") if answer.status_code == 303 else ""


def test_the_box_finds_everything(served: Served, conn: Connection, person: Person) -> None:
    """An event's id or key, an owner, an installation, a tender's code lead to their page; several are listed; none says what there is."""
    one = phone(conn, owner="ana")
    number = event(conn, "order-17", [one])
    tender = conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint) values ('mp', '7-1-LE26', 'Agua', '{x}', 'x') returning id"
    ).fetchone()[0]
    other = event(conn, "ana", "everyone")
    conn.execute("update relevo.notification_events set licitacion_id = %s where id = %s", [tender, other])
    assert lead(person, f" {number} ") == lead(person, "order-17") == f"/dashboard/events/{number}"
    assert lead(person, "7-1-LE26") == f"/dashboard/events/{other}"
    assert lead(person, str(one)) == f"/dashboard/installations/{one}"
    assert lead(person, "ana") == "/dashboard/search?q=ana"
    said = told(person, "/dashboard/search?q=ana")
    assert "Events order.shipped ana" in said
    assert "Owners ana" in said
    nothing = told(person, lead(person, "nothing"))
    assert "Nothing fits." in nothing
    assert "a tender's code" in nothing
    assert person.post("/dashboard/search", q="ana").status_code == 403, "a form of nobody's session"


def test_a_token_stands_in_no_address_and_on_no_page(served: Served, conn: Connection, person: Person) -> None:
    """A push token leads to its phone; one that nobody has is not repeated anywhere, however it was asked for."""
    known, unknown = "ExponentPushToken[aaaaaaaaaaaaaaaaaaaaaa]", "ExponentPushToken[bbbbbbbbbbbbbbbbbbbbbb]"
    one = phone(conn, token=known)
    assert lead(person, known) == f"/dashboard/installations/{one}"
    answer = person.send("/dashboard/search", q=unknown)
    assert (answer.status_code, "bbbbbb" in answer.text) == (200, False)
    for asked, place in ((known, f"/dashboard/installations/{one}"), (unknown, "/dashboard/search?nothing=1")):
        assert person.get(f"/dashboard/search?q={quote(asked)}").headers["location"] == place
    assert "Nothing fits." in told(person, "/dashboard/search?nothing=1")
    assert "<script>document" not in person.send("/dashboard/search", q=NASTY).text


def test_every_error_and_every_rule_has_its_words(conn: Connection) -> None:
    """What stands in the guide as an error code, and what the door's explanations name as a rule, is told in words."""
    text = (Path(__file__).parents[2] / "server" / "docs" / "states-and-errors.md").read_text(encoding="utf-8")
    listed = text.split("## Error codes of a delivery")[1].split("## Errors in Python")[0]
    rows = [line.split("|")[1] for line in listed.splitlines() if line.startswith("| `")]
    codes = {code for row in rows for code in re.findall(r"`([^`]+)`", row) if not re.fullmatch(r"HTTP_\d*", code)}
    assert sorted(codes - reasons.ERRORS.keys()) == []
    source = conn.execute("select prosrc from pg_proc where proname = 'explain_draft'").fetchone()[0]
    rules = set(re.findall(r"(?:rule := |then |else )'([a-z_]+)'", source)) - {"disabled"}
    assert {"preference_differs", "came_later", "owner"} <= rules
    assert sorted(rules - explanations.RULES.keys()) == []
    mismatch = conn.execute("select pg_get_functiondef('relevo.preference_mismatch'::regproc)").fetchone()[0]
    assert sorted(set(re.findall(r"THEN '([a-z_]+)'", mismatch)) - explanations.DIMENSIONS.keys()) == []


OURS = (
    *("path", "address(path", "address(request.url.path", 'address("/', "owner_path(", "question.back", "result.back"),
    *("runbook", "each.address", "before[1]", "after[1]", "to"),
)
"""How links begin that are put together here, of a path of ours."""


def test_pages_lead_to_pages_of_ours_and_to_this_machine_alone() -> None:
    """Each link of a template begins with a path of ours; to another server it leads only on this machine, and where that is asked before."""
    templates = sorted((Path(templating.__file__).parent / "templates").glob("*.html"))
    links = [
        (path.name, link)
        for path in templates
        for link in re.findall(r'(?:href|src|action)="((?:\{\{.*?\}\}|[^"])+)"', path.read_text())
    ]
    assert len(links) > 40
    others = [(name, link) for name, link in links if not re.match(r"/(?![/\\])|#", link)]
    others = [(name, link) for name, link in others if not link.startswith(tuple(f"{{{{ {each}" for each in OURS))]
    assert others == [
        (f"{name}.html", "{{ sandbox }}/" + place)
        for name, place in (("delivery", "deliveries/{{ row.id }}"), ("event", "events/{{ event.id }}"))
    ]
    assert is_local_link("http://127.0.0.1:9/x")
    for address in (
        "http://evil.example/127.0.0.1",
        "http://127.0.0.1@evil.example",
        "javascript://127.0.0.1/%0aalert(1)",
        "//127.0.0.1",
        "",
    ):
        assert not is_local_link(address), address


def test_a_real_push_service_is_no_sandbox(make_settings: Callable[..., Settings]) -> None:
    """Only a push service on this machine, or the embedded one, is taken for a sandbox that shows what phones got."""
    assert sandbox_address(make_settings()) == NOWHERE
    assert sandbox_address(make_settings(expo_base_url="http://localhost:19000/")) == "http://localhost:19000"
    assert sandbox_address(make_settings(expo_base_url="https://exp.host")) is None


def test_what_was_opened_and_what_took_anothers_place(person: Person, conn: Connection, served: Served) -> None:
    """An event's page counts taken, opened and read, in both languages; a push says by which button, and who took its place."""
    conn.execute("insert into relevo.event_types (event_type, opens) values ('order.shipped', true)")
    phones = [phone(conn, owner=name) for name in ("ana", "bob")]
    former = event(conn, "1", values.Owners("ana"), collapse="order-7")
    opened = event(conn, "2", values.Owners("ana", "bob"), collapse="order-7")
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
    said = told(person, f"/dashboard/events/{opened}")
    assert "taken by a push service 2 opened, as phones reported 1 (50 %) read in the inbox 1 (50 %)" in said
    assert "The first of its pushes was opened, as its phone reported." in said
    assert "Collapse key order-7" in said
    assert "It was opened by the button reply, as the phone reported." in told(
        person, f"/dashboard/deliveries/{ids[phones[0]]}"
    )
    assert "A later event of the same type and collapse key took its place." in told(
        person, f"/dashboard/events/{former}"
    )
    assert "A later event of the same type and collapse key took its place." in told(
        person, f"/dashboard/deliveries/{waited}"
    )
    person.get("/dashboard/language/es")
    said = told(person, f"/dashboard/events/{opened}")
    assert "aceptadas por un servicio de notificaciones 2 abiertas, según informaron los teléfonos 1 (50 %)" in said
    assert "Un evento posterior del mismo tipo y clave de reemplazo ocupó su lugar." in told(
        person, f"/dashboard/events/{former}"
    )
