"""One vocabulary of states: SQL, Python, HTTP, the kits and the pages have the same words for the same thing."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

import psycopg
import pytest

import http_docs
from relevo.client import inboxes, values
from relevo.core.statuses import EVENT_STATES, STATUSES, Progress
from relevo.http.dashboard import explanations
from support.docs_pages import DOCS, ROOT

KITS = ROOT / "server" / "clients"
GENERATED = (KITS / "client" / "src" / "generated" / "types.gen.ts").read_text("utf-8")
OF_PG = (KITS / "pg" / "src" / "index.ts").read_text("utf-8")
PAGE = (DOCS / "states-and-errors.md").read_text("utf-8")
FUNCTIONS = ROOT / "sql" / "functions"
DEFINED = "select pg_get_functiondef(%s::regproc)"


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """What the API's document says of bodies and answers."""
    found: dict[str, Any] = http_docs.document()["components"]["schemas"]
    return found


def quoted_in(conn: psycopg.Connection[Any], function: str, pattern: str = r"'(\w+)'") -> set[str]:
    """Return the words in quotes of a SQL function."""
    ((text,),) = conn.execute(DEFINED, [f"relevo.{function}"]).fetchall()
    return set(re.findall(pattern, text.partition("AS $")[2]))


def union_in(text: str, name: str) -> set[str]:
    """Return the words of a union of TypeScript."""
    found = re.search(rf"{name}\??: ((?:['\"]\w+['\"] \| )*['\"]\w+['\"]);", text)
    return set(re.findall(r"\w+", found[1])) if found else set()


def rows_below(heading: str) -> set[str]:
    """Return the words that begin the rows of a page's table."""
    return set(re.findall(r"^\| `(\w+)` ", PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE))


def test_states_of_an_event(conn: psycopg.Connection[Any]) -> None:
    """The states that PostgreSQL lets an event have are those of Python, of the kit for PostgreSQL and of the page."""
    right = set(EVENT_STATES)
    assert quoted_in(conn, "is_possible_event", r"when '(\w+)' then") == right
    assert union_in(OF_PG.replace("export type EventState =", "EventState:"), "EventState") == right
    assert rows_below("States of an event") == right


def test_how_far_an_event_is(conn: psycopg.Connection[Any], schemas: dict[str, Any]) -> None:
    """The words for it are the states, and in place of fanned three more, in SQL, Python, HTTP, the kits and the page."""
    right = set(get_args(Progress))
    assert right == {*EVENT_STATES, "sending", "sent", "finished"} - {"fanned"}
    assert {"sending", "sent", "finished"} <= quoted_in(conn, "get_event")
    assert set(schemas["EventOut"]["properties"]["progress"]["enum"]) == right
    assert union_in(GENERATED, "progress") == right
    assert all(f"**{word}**" in PAGE for word in right - set(EVENT_STATES))


def test_states_of_a_delivery(conn: psycopg.Connection[Any], schemas: dict[str, Any]) -> None:
    """The states that PostgreSQL lets a delivery have are those of Python, HTTP, the kits and the page."""
    right = set(STATUSES)
    assert quoted_in(conn, "is_possible_delivery") == right
    for name in ("DeliveryOut", "HistoryEntry", "FailedAttempt"):
        assert set(schemas[name]["properties"]["status"]["enum"]) == right, name
    for name in ("EventOut", "CancelOut", "CompleteOut"):
        assert set(schemas[name]["properties"]["deliveries"]["propertyNames"]["enum"]) == right, name
    assert union_in(GENERATED.partition("export type DeliveryOut")[2], "status") == right
    assert rows_below("States of a delivery") == right


def test_what_stands_in_an_inbox(conn: psycopg.Connection[Any]) -> None:
    """Which items an inbox shows, and what is marked of them, have the same words in SQL, Python, HTTP and the kits."""
    shown, marks = set(inboxes.STATUSES), set(inboxes.MARKS)
    paths = http_docs.document()["paths"]
    [status] = [each for each in paths["/v1/inbox"]["get"]["parameters"] if each["name"] == "status"]
    [mark] = [each for each in paths["/v1/inbox/{event_id}/{mark}"]["post"]["parameters"] if each["name"] == "mark"]
    assert (set(status["schema"]["enum"]), set(mark["schema"]["enum"])) == (shown, marks)
    assert union_in(OF_PG, "status") == shown
    assert union_in(OF_PG.replace("export type Mark =", "Mark:"), "Mark") == marks
    assert marks <= quoted_in(conn, "mark_inbox")


def test_rules_of_explanations(conn: psycopg.Connection[Any]) -> None:
    """Each rule that SQL names has a sentence on the dashboard, and stands on the page of SQL functions or among the codes."""
    named = quoted_in(conn, "explain_draft", r"rule := '(\w+)'") | {
        "preference",
        "everyone",
        "attributes",
        "named",
        "owner",
    }
    named |= {"opted_out", "refused", "not_accepted", "quiet_hours", "quiet_expired"}
    named |= {"deadline_before_digest", "preference_changed", "project_changed"}
    page = (DOCS / "sql-functions.md").read_text("utf-8").partition("| rules | meaning |")[2].partition("\n\n")[0]
    listed = {word for row in page.splitlines() for word in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    codes = set(re.findall(r"`(\w+)`", PAGE.partition("## What kept Relevo from sending\n")[2].partition("\n## ")[0]))
    assert (listed - named, named - listed - codes) == (set(), set())
    assert named - set(explanations.RULES) == set()


def test_what_a_preview_counts(conn: psycopg.Connection[Any], schemas: dict[str, Any]) -> None:
    """What keeps phones from a push for now is counted under the same names in SQL, Python and HTTP."""
    row = conn.execute(
        """select relevo.preview('{"type": "a", "key": "b", "title": "c", "audience": "everyone"}')"""
    ).fetchone()
    assert row is not None
    of_python = {each.name for each in fields(values.Preview)} - {"raw"}
    of_http = set(schemas["PreviewOut"]["properties"])
    assert of_python == of_http
    assert of_http - {"warnings"} <= set(row[0])


def test_former_names_say_when_they_leave(schemas: dict[str, Any]) -> None:
    """What HTTP called otherwise than SQL and Python is still told, marked as deprecated."""
    former = [("EventOut", "status"), ("EventOut", "counts"), ("CancelOut", "counts"), ("CompleteOut", "counts")]
    for name, field in former:
        told = schemas[name]["properties"][field]
        assert told["deprecated"] is True
        assert "0.6" in told["description"]


@pytest.mark.parametrize("function", ["set_quiet", "get_quiet", "set_attributes", "get_attributes"])
def test_a_phone_has_one_name_in_questions(conn: psycopg.Connection[Any], function: str) -> None:
    """SQL names it installation_id, as Python and HTTP do; the former name is still understood."""
    ((phone,),) = conn.execute(
        """select relevo.register_installation('{"token": "ExponentPushToken[a]"}')"""
    ).fetchall()
    more = {"set_quiet": '"windows": []', "set_attributes": '"attributes": {"a": 1}'}.get(
        function, '"project": "default"'
    )
    for name in ("installation_id", "installation"):
        conn.execute(f"select relevo.{function}(%s)", [f'{{"{name}": "{phone}", {more}}}'])
    with pytest.raises(psycopg.errors.DataError, match="there is no field installation"):
        conn.execute(
            f"select relevo.{function}(%s)", [f'{{"installation_id": "{phone}", "installation": "{phone}", {more}}}']
        )
