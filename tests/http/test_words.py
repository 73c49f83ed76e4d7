"""Texts of event types over HTTP: saved, listed, read, previewed; and on the compose page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from requests import Response

from relevo.client import verbs
from relevo.client.inboxes import inbox
from relevo.client.values import Event, Installation, Owners
from relevo.core import wordings
from relevo.operators import words
from support.dashboard_person import Person
from support.http_server import Served

WORDS: dict[str, Any] = {
    "type": "order.shipped",
    "default": "en",
    "arguments": {"count": 2, "at": "2026-09-06T04:30:00Z"},
    "texts": {
        "en": {"title": "{count, plural, one {# parcel} other {# parcels}}", "body": "{at, date, ::EEEHHmm}"},
        "es": {"title": "{count, plural, one {# paquete} other {# paquetes}}", "body": "{at, date, ::EEEHHmm}"},
        "es-CL": "es",
    },
}


def test_a_version_is_saved_and_read(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The same again is the same version; a token of one project, and a phone, may do neither."""
    app = served.client("app")
    made = app.post("/v1/words", WORDS)
    assert (made.status_code, made.json()) == (201, {"type": "order.shipped", "version": 1, "created": True})
    again = app.post("/v1/words", WORDS)
    assert (again.status_code, again.json()["created"]) == (200, False)
    done = conn.execute(
        "select action, target ->> 'event_type', outcome, face from relevo.audit_log where face = 'http'"
    ).fetchall()
    assert done == [("save_words", "order.shipped", "ok", "http")] * 2
    read = app.get("/v1/words/order.shipped").json()
    assert read["texts"]["es-CL"] == read["texts"]["es"] == WORDS["texts"]["es"]
    assert (read["arguments"]["at"]["kind"], read["zoned"], read["version"]) == ("time", True, 1)
    assert [each["type"] for each in app.get("/v1/words").json()["items"]] == ["order.shipped"]
    assert app.get("/v1/words/order.shipped", params={"version": 7}).status_code == 404
    assert served.client("app", project="shop").post("/v1/words", WORDS).status_code == 403
    assert served.client("viewer").post("/v1/words", WORDS).status_code == 403


def test_what_is_wrong_is_a_problem(served: Served, conn: psycopg.Connection[Any], monkeypatch: Any) -> None:
    """In a sentence that names the place; without ICU what to install, and everything else goes on."""
    app = served.client("app")
    for changed, complaint in (
        ({"texts": {"en": {"title": "{total}"}}}, "en title names {total}, which is not among the arguments."),
        ({"texts": {"en": {"title": "{count"}}}, "en title: {count is not closed: add }"),
        ({"default": "fr"}, "default must be one of the locales of texts"),
    ):
        refused = app.post("/v1/words", WORDS | changed)
        assert (refused.status_code, complaint in refused.json()["detail"]) == (400, True), refused.json()
    monkeypatch.setattr(wordings, "is_available", lambda: False)
    missing = app.post("/v1/words", WORDS)
    assert (missing.status_code, "icu4py is missing" in missing.text) == (500, True)
    assert app.get("/v1/words").status_code == 200


def test_a_preview_writes_nothing(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Every language, with arguments and a time zone of one's own."""
    asked = WORDS | {"given": {"count": 1}, "timezone": "America/Santiago"}
    shown = served.client("app").post("/v1/words/preview", asked).json()["texts"]
    assert shown["es-CL"] == {"title": "1 paquete", "body": "dom, 01:30"}
    assert conn.execute("select from relevo.wordings").fetchall() == []


FREEZES = "{count, number, ::scale/1e300000000}"
"""ICU writes 300 million digits, for more than a minute, and nothing else runs in its process."""


def test_a_pattern_that_would_freeze_is_refused(served: Served, conn: psycopg.Connection[Any]) -> None:
    """By a preview, when it is saved, and by the compose page where the table has it; each names the style and the list."""
    asked = WORDS | {"arguments": {"count": 1}, "texts": {"en": {"title": FREEZES}}}
    for path in ("/v1/words/preview", "/v1/words"):
        refused = served.client("app").post(path, asked)
        said = f"en title: {FREEZES} has a style that is not accepted: use integer, percent, #,##0.00, or ::"
        assert (refused.status_code, said in refused.json()["detail"]) == (400, True), refused.json()
    row = {"type": "freezes", "default": "en", "texts": asked["texts"], "zoned": False, "bytes": 9}
    row |= {"arguments": {"count": {"kind": "number", "sample": 1}}}
    conn.execute("select relevo.save_wording(%s)", [Jsonb(row)])
    person = Person(served, "viewer")
    person.log_in()
    page = person.get("/dashboard/compose?words=freezes")
    assert "has a style that is not accepted" in page.text


@pytest.mark.parametrize("path", ["/v1/words/preview", "/dashboard/compose?words=order.shipped"])
def test_previews_keep_nobody_from_the_database(served: Served, monkeypatch: Any, path: str) -> None:
    """While a preview is rendered, more of them than the server has connections wait without one, and events are taken.

    Those that wait too long are told to come again.
    """
    app = served.client("app")
    app.post("/v1/words", WORDS)
    begun, go_on = Flag(), Flag()

    def slow(*given: Any, render: Any = words.preview) -> Any:
        begun.set()
        assert go_on.wait(60)
        return render(*given)

    monkeypatch.setattr(words, "preview", slow)

    def look() -> Response:
        if path.startswith("/v1"):
            return served.client("viewer").post(path, WORDS)
        person = Person(served, "viewer")
        person.log_in()
        return person.get(path)

    with ThreadPoolExecutor(7) as others:
        try:
            first = others.submit(look)
            assert begun.wait(60)
            waiting = [others.submit(look) for _ in range(6)]
            for key in range(8):
                event = {"type": "plain", "key": f"{key}", "audience": "everyone", "title": "x"}
                assert app.post("/v1/events", event).status_code == 201
            late = [each.result(60) for each in waiting]
        finally:
            go_on.set()
        assert first.result(60).status_code == 200
    assert {(each.status_code, bool(each.headers.get("Retry-After"))) for each in late} == {(503, True)}
    assert "Other texts are being rendered" in late[0].text


def test_an_event_over_http(served: Served, conn: psycopg.Connection[Any]) -> None:
    """It gives arguments; a missing one is a 400 that names it, and arguments beside a title, too."""
    app = served.client("app")
    app.post("/v1/words", WORDS)
    event = {"type": "order.shipped", "key": "1", "audience": "everyone"}
    assert app.post("/v1/events", event | {"arguments": WORDS["arguments"]}).status_code == 201
    refused = app.post("/v1/events", event | {"key": "2", "arguments": {"count": 1}})
    assert (refused.status_code, "argument at is missing" in refused.json()["detail"]) == (400, True)
    assert app.post("/v1/events", event | {"key": "2", "arguments": {}, "title": "x"}).status_code == 400


def test_the_compose_page_shows_every_language(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A type's texts with the given arguments, where the phone is; what is wrong is said on the page, in both languages."""
    served.client("app").post("/v1/words", WORDS)
    person = Person(served, "viewer")
    person.log_in()
    page = person.get(
        "/dashboard/compose?words=order.shipped&arguments=%7B%22count%22%3A1%7D&timezone=America/Santiago"
    ).text
    assert all(said in page for said in ("1 parcel", "1 paquete", "dom, 1:30", "es-CL"))
    wrong = person.get(
        '/dashboard/compose?words=order.shipped&arguments={"count":"x"}', headers={"Accept-Language": "es"}
    ).text
    assert "argument count cannot be read" in wrong
    assert "Textos de un tipo de evento" in wrong


def test_the_inbox_speaks_the_readers_language(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The locale that is asked for, else that of the newest phone; nothing is ever empty."""
    served.client("app").post("/v1/words", WORDS)
    verbs.register(conn, Installation("ExponentPushToken[a]", owner="ana", locale="es-CL"))
    verbs.enqueue(conn, Event("order.shipped", "1", audience=Owners("ana"), arguments=WORDS["arguments"]))
    served.app.runner.run(served.app.registry["fanout"], "manual")

    def title(**asked: Any) -> str:
        (item,) = inbox(conn, owner="ana", **asked).items
        return item.title

    assert [title(), title(locale="en-GB"), title(locale="fr")] == ["2 paquetes", "2 parcels", "2 parcels"]


def test_a_page_of_texts_ends_by_weight(served: Served) -> None:
    """However many types are asked for, a page has half a megabyte of texts, and the next one goes on behind it."""
    app = served.client("app")
    texts = {f"en-A{letter}": {"title": "x", "body": "x" * 1_900} for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    for number in range(12):
        given = {"type": f"large.{number:02}", "default": "en-AA", "texts": texts}
        assert app.post("/v1/words", given).status_code == 201
    first = app.get("/v1/words", params={"limit": 100}).json()
    assert [first["next"], len(first["items"])] == ["large.08", 9]
    rest = app.get("/v1/words", params={"limit": 100, "after": first["next"]}).json()
    assert [rest["next"], len(rest["items"])] == [None, 3]
    assert app.get("/v1/words", params={"limit": 2}).json()["next"] == "large.01"
