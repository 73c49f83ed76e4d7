"""What support people ask of one push at the dashboard: each try, what was said of it, and what it waits for."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

from relevo.client import quiet, values, verbs
from relevo.operators import actions
from support.dashboard_events import (
    FAILED,
    Connection,
    answer_request,
    deliveries_of,
    make_event,
    make_phone,
    note_attempts,
    text_of,
)
from support.dashboard_person import NASTY, Person
from support.deliveries import mark_sent
from support.http_server import Served
from support.phones import fan_out


def test_one_delivery(served: Served, conn: Connection, person: Person) -> None:
    """Why it was made, each request it was in, its ticket, its error in words, and what it waits for now."""
    one = make_phone(conn)
    number = make_event(conn, "order-18", [one])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    assert "It waits: due, and waiting for its turn." in text_of(person, f"/dashboard/deliveries/{push}")
    answer_request(conn, [push], "not_sent")
    conn.execute(
        "update relevo.notification_deliveries set status = 'retryable', attempt_count = 2, last_attempt_at = clock_timestamp(), "
        "last_error_code = 'NoConnection', last_error_message = 'refused' where id = %s",
        [push],
    )
    conn.execute(
        "update relevo.due_chunks set due_at = now() + interval '4 min', attempt_count = 2, had_error = true where event_id = %s",
        [number],
    )
    said = text_of(person, f"/dashboard/deliveries/{push}")
    for words in (
        "The event names this phone.",
        "with this push alone.",
        "After 2.0 s: there was no connection.",
        "Attempt 2 failed.",
        "The push service could not be reached; nothing was sent. (NoConnection: refused)",
        "the next attempt comes in 4 min",
    ):
        assert words in said, words
    conn.execute(
        "update relevo.notification_deliveries set last_error_code = null, last_error_message = null where id = %s",
        [push],
    )
    mark_sent(conn, [push], ticket="ticket-7")
    said = text_of(person, f"/dashboard/deliveries/{push}")
    assert "The push service accepted it: ticket ticket-7." in said
    assert "It waits for its receipt; Relevo asks for it in 15 min" in said
    assert person.get("/dashboard/deliveries/99999").status_code == 404


def test_what_quiet_hours_and_batches_keep_back(served: Served, conn: Connection, person: Person) -> None:
    """The delivery's page says in which zone quiet hours are; an event that a batch tells is not called lost."""
    one = make_phone(conn, owner="ana", timezone="America/Santiago")
    there = datetime.now(ZoneInfo("America/Santiago"))
    window = "-".join(f"{there + timedelta(hours=hours):%H:%M}" for hours in (-1, 2))
    quiet.set_quiet(conn, [window], owner="ana", zone="UTC")
    conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('comment', 3600)")
    comment = verbs.enqueue(conn, values.Event("comment", "1", "Bo commented", audience=values.Owners("ana"))).event_id
    number = make_event(conn, "order-19", [one])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    assert "It waits: quiet hours (America/Santiago); they end" in text_of(person, f"/dashboard/deliveries/{push}")
    said = text_of(person, f"/dashboard/events/{comment}")
    assert "It was gathered with other events of its kind" in said
    assert "Pushes not sent" in said
    assert "none of 1 was confirmed" not in said
    said = text_of(person, f"/dashboard/owners/ana?event={comment}")
    assert "Together with others. One push announces it together with other events of its kind:" in said


def test_a_push_that_was_not_sent_says_why(served: Served, conn: Connection, person: Person) -> None:
    """Above a cap: the delivery's page names the cap at its head and as its end, and no other reason."""
    quiet.set_cap(conn, 1, per="day", category="ads")
    eva, _bo = make_phone(conn, owner="eva"), make_phone(conn, owner="bo")
    for number in range(2):
        make_event(conn, f"ad-{number}", [eva], category="ads")
    fan_out(served.app)
    (capped,) = conn.execute(
        "select id from relevo.notification_deliveries where last_error_code = 'capped'"
    ).fetchone()
    said = text_of(person, f"/dashboard/deliveries/{capped}")
    assert (
        said.count(
            "It was not pushed: a cap of its owner was reached. It is in the inbox. (at most 1 a day of category ads)"
        )
        == 2
    )
    assert "did not want it" not in said


def test_peace_in_the_readers_language(served: Served, conn: Connection, person: Person) -> None:
    """Caps, digests, silence and who looks are told in Spanish; an owner's latest events are not those of others."""
    one, _other = make_phone(conn, owner="ana"), make_phone(conn, owner="eva")
    quiet.set_cap(conn, 1, per="day", category="ads")
    first, above = (make_event(conn, f"ad-{n}", [one], category="ads") for n in range(2))
    others = make_event(conn, "not for ana", values.Owners("eva"))
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
    assert "Terminó el reparto: 1 teléfono" in said
    assert "Se envió sin sonido" in spanish(f"/dashboard/events/{first}")
    assert "Se envió sin sonido" in spanish(f"/dashboard/deliveries/{push}")
    said = spanish("/dashboard/owners/ana")
    assert "en un resumen, cada hora" in said
    assert "(lector)" in said
    page = person.get("/dashboard/owners/ana").text
    assert (f"/dashboard/events/{above}" in page, f"/dashboard/events/{others}" in page) == (True, False)


def test_why_a_push_that_was_made_may_not_go(served: Served, conn: Connection, person: Person) -> None:
    """The page of a push names the reason for which its phone gets none any more, and the category it opted out of."""
    one = make_phone(conn)
    number = make_event(conn, "order-21", [one], category="ads")
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    own = f"/dashboard/deliveries/{push}"
    changed = "update relevo.device_installations set permission = %s, opt_outs = '{ads}' where installation_id = %s"
    conn.execute(changed, ["denied", one])
    assert "Pushes may not go to this phone: the phone does not permit notifications." in text_of(person, own)
    spanish = person.get(own, headers={"accept-language": "es"}).text
    assert "No se pueden enviar notificaciones a este teléfono: el teléfono no permite" in spanish
    conn.execute(changed, ["granted", one])
    assert "This phone opted out of the event's category, ads." in text_of(person, own)


def test_each_try_of_one_delivery(served: Served, conn: Connection, person: Person) -> None:
    """What was said of each try stands with it, also in Spanish, escaped; a death before a redrive is told; the event tells codes apart."""
    number = make_event(conn, "order-19", [make_phone(conn)])
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
        answer_request(conn, [push], outcome)
        conn.execute(FAILED, row | {"n": n, "code": code, "said": said, "became": "failed" if n == 3 else "retryable"})
    note_attempts(conn, [push])
    conn.execute(FAILED, row | {"n": 4, "by": "receipt", "code": "ExpoError", "said": None})
    own = f"/dashboard/deliveries/{push}"
    said = text_of(person, own)
    for words in (
        "Try 1. Worker ",
        "unknown which pushes were accepted. The push service failed: it answered 500. (HTTP_500: oops)",
        "The connection broke before the complete answer came. (ConnectionBroken",
        "the push service answered. The message is too long: the limit is 4,096 bytes. (MessageTooBig)",
        "The delivery failed for good and became a dead letter.",
        "The receipt says that the push did not arrive. The push service had a problem of its own. (ExpoError)",
    ):
        assert words in said, words
    assert (
        said.index("Try 1.") < said.index("Try 2.") < said.index("Try 3.") < said.index("The delivery failed for good")
    )
    assert "<script>document" not in person.get(own).text
    both = text_of(person, f"/dashboard/events/{number}")
    assert "unknown which pushes were accepted. The push service failed: it answered 500. " in both
    assert "unknown which pushes were accepted. The connection broke before the complete answer came" in both
    spanish = person.get(own, headers={"accept-language": "es"}).text
    assert "Intento 1." in spanish
    assert "respondió 500" in spanish
    assert "entregas fallidas" in spanish


def test_equal_tries_are_told_at_once(served: Served, conn: Connection, person: Person) -> None:
    """Seven tries that went alike are one line; the one that went otherwise stands alone."""
    number = make_event(conn, "order-20", [make_phone(conn)])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    for n in range(1, 9):
        code = "HTTP_500" if n < 8 else "MessageTooBig"
        answer_request(conn, [push], "unclear" if n < 8 else "answered")
        row = {"id": push, "by": "dispatch", "became": "retryable", "n": n, "code": code, "said": "oops"}
        conn.execute(FAILED, row)
    note_attempts(conn, [push])
    said = text_of(person, f"/dashboard/deliveries/{push}")
    assert said.count("7 tries with the same outcome: no clear answer came") == 1
    assert "failed with an internal error (500)" in said or "it answered 500" in said
    assert "Try 7." not in said
    assert "Try 8. Worker " in said


def test_a_pause_that_is_over(served: Served, conn: Connection, person: Person) -> None:
    """What waited through a pause tells who paused what and why, and who had it go on; one that lasts is told as what it waits for."""
    number = make_event(conn, "order-20", [make_phone(conn)])
    fan_out(served.app)
    (push,) = deliveries_of(conn, number).values()
    actions.pause(served.app.database, "dispatch", f"a drill {NASTY[:50]}")
    assert "a drill" in actions.pause(served.app.database, "dispatch", "another")["paused_because"]
    page, own = f"/dashboard/events/{number}", f"/dashboard/deliveries/{push}"
    assert "paused sending." not in text_of(person, page)
    actions.resume(served.app.database, "dispatch")
    for each in (page, own):
        said = text_of(person, each)
        assert "a program paused sending. a drill " in said
        assert "a program resumed sending after " in said
        assert "<script>document" not in person.get(each).text
    assert "puso en pausa los envíos." in person.get(page, headers={"accept-language": "es"}).text
