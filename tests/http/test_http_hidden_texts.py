"""An observer sees that something was said, and never what: no answer of any route, and of no tool, has a text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from mcp import Client as AssistantClient

from relevo.cli.assistant.serving import Session, server
from relevo.core.hidden_texts import hides, hiding, shown, without_texts
from support.dashboard_person import Person
from support.http_server import Client, Served
from support.marked_database import MARK, OWNER, World, fill
from support.who_may_call import WHO_MAY_CALL

QUERIES = {
    "/v1/events": ["type=order.shipped&key=order-17&wait_ms=0"],
    "/v1/events/{event_id}": ["wait_ms=0", "wait_ms=0&until=confirmed"],
    "/v1/events/{event_id}/explanation": ["installation_id={installation}"],
    "/dashboard/events": ["", "type=offer"],
    "/dashboard/events/{event_id}": ["", "status=failed"],
    "/dashboard/installations/{installation_id}": ["event={event}", "event=offer-1"],
    "/dashboard/owners/{owner:path}": ["event={event}", "event={other}", "event=n"],
    "/dashboard/search": ["q=order-17", "q=1-2-LE26", "q={owner}"],
}
"""What is asked of a route that needs more than its path; names in braces are those of the marked database."""
SEEN_BY_VIEWERS = {
    "qqtitle", "qqbody", "qqonlybody", "qqnews", "qqtender", "qqnombre", "qqorganismo", "qqdetail", "qqproblem", "qqreject", "qqkeyword",
    "qqplan", "qqwanted", "qqanswer", "qqattempt", "qqbreaker", "qqfanout", "qqaudited", "qqtarget", "qqresult", "qqarchive",
    "qqrun", "qqbatchtitle", "qqbatchbody", "qqcategory", "qqsentence", "qqpattern", "qqsample",
}  # fmt: skip
"""The texts that routes do tell whoever may read them: the walk would find them."""


@pytest.fixture
def world(served: Served, conn: psycopg.Connection[Any]) -> World:
    """A database full of marked words."""
    return fill(conn, served.app)


def addresses(world: World) -> Iterator[tuple[str, str, str]]:
    """Yield method, route and address of all that a viewer may call, with ids of the marked database."""
    names: dict[str, Any] = {**vars(world), "owner": OWNER}
    for (method, path), callers in sorted(WHO_MAY_CALL.items()):
        if "viewer" not in callers.roles or "/sessions/end" in path:
            continue
        for event in (world.event, world.other, world.tender) if "{event_id}" in path else (world.event,):
            filled = path.replace(":path}", "}").format(
                event_id=event, delivery_id=world.delivery, installation_id=world.installation, owner=OWNER,
                run_id=world.run, event_type="worded", place="nowhere",
            )  # fmt: skip
            for query in QUERIES.get(path, [""]):
                yield method, path, f"{filled}?{query.format(**names)}"


def told(client: Client, method: str, address: str) -> tuple[int, str]:
    """Call, and return the status and all that is said, headers included."""
    answer = client.call(method, address, **({} if method == "GET" else {"data": {"q": "order-17"}}))
    return answer.status_code, f"{answer.headers} {answer.text}"


def test_no_route_tells_an_observer_a_text(served: Served, world: World) -> None:
    """Of every route a viewer may call, an observer gets 403 or an answer without any text; a viewer is told each text."""
    observer, viewer = served.client("observer"), served.client("viewer")
    seen, leaks = set[str](), []
    for method, path, address in addresses(world):
        seen |= set(MARK.findall(told(viewer, method, address)[1]))
        status, said = told(observer, method, address)
        leaks += [(method, address, word) for word in MARK.findall(said)]
        assert (status == 403) == ("observer" not in WHO_MAY_CALL[method, path].roles), (method, address, status)
        assert status < 500, (method, address, status)
    assert leaks == []
    assert seen >= SEEN_BY_VIEWERS


def test_no_page_shows_an_observer_a_text(served: Served, world: World) -> None:
    """A logged-in observer sees what an observer's token reads: states, keys, owners, and (hidden) for each text."""
    person = Person(served, "observer")
    person.log_in()
    page = person.get(f"/dashboard/events/{world.event}").text
    assert "Your role sees no texts." in page
    assert "(hidden)" in page
    assert "order-17" in page
    assert 'href="/dashboard/compose"' not in page
    assert 'href="/dashboard/sources"' not in page
    for method, _path, address in addresses(world):
        if method == "GET" and address.startswith("/dashboard"):
            assert MARK.findall(person.get(address).text) == [], address


def test_no_text_is_found_by_an_observer(served: Served, world: World) -> None:
    """A search for a text finds nothing, in the box, by a key, or by a filter: what is there cannot be guessed."""
    observer = served.client("observer")
    for word in sorted(SEEN_BY_VIEWERS):
        answer = observer.get(f"/dashboard/search?q={word}")
        assert answer.status_code == 200, word
        assert "No match." in answer.text, word
        assert "/dashboard/events/" not in observer.get(f"/dashboard/events?type={word}").text
        assert observer.get(f"/v1/events?type=order.shipped&key={word}").status_code == 404


def test_an_explanation_names_the_attribute_without_its_values(served: Served, world: World) -> None:
    """Why a phone did not get an event stays told: by which rule and attribute, not by which values."""
    address = f"/v1/events/{world.other}/explanation?installation_id={world.installation}"
    body = served.client("observer").get(address).json()
    assert body["rule"] == "attribute_differs"
    assert body["reason"] == "One of its attributes differs."
    assert body["values"] == {"attribute": "plan", "has": "(hidden)", "wanted": "(hidden)"}
    assert "qqwanted" in served.client("viewer").get(address).json()["reason"]


def test_what_an_observer_asked_first_is_whole_for_others(served: Served, world: World) -> None:
    """An answer that callers share for a second is not found without its texts because an observer asked first."""
    observer, operator = served.client("observer"), served.client("operator")
    served.server.api.state.stats.forget()  # type: ignore[union-attr]
    assert "qqrun" not in observer.get("/v1/ops/stats").text
    assert "qqrun" in operator.get("/v1/ops/stats").text


def test_no_tool_tells_an_observers_assistant_a_text(served: Served, world: World) -> None:
    """With an observer's token, or with texts hidden, no tool of an assistant tells a text, and a preview is refused."""
    token = served.client("observer").token
    assert token
    settings = served.app.settings
    asked = [
        ("status", {}),
        ("runs", {}),
        ("event", {"event": "order-17"}),
        ("event", {"event": str(world.other)}),
        ("event", {"event": str(world.tender)}),
        ("why", {"event": "order-17", "who": OWNER}),
        ("why", {"event": "offer-1", "who": OWNER}),
        ("person", {"owner": OWNER}),
        ("search", {"text": "1-2-LE26"}),
        ("preview", {"event": {"type": "x", "audience": "attributes", "where": {"plan": "free"}, "title": "x"}}),
    ]
    hidden = (Session(served.app.database, settings, token), Session(served.app.database, settings, hides_texts=True))
    for session in hidden:
        answers = [_call(session, tool, given) for tool, given in asked]
        assert MARK.findall(json.dumps(answers)) == []
        assert "Texts are hidden here" in answers[-1]
        assert all("Error executing" not in each for each in answers[:-1])
    whole = [_call(Session(served.app.database, settings), tool, given) for tool, given in asked[:-1]]
    assert {"qqtitle", "qqbody", "qqwanted", "qqnombre"} <= set(MARK.findall(json.dumps(whole)))


def _call(session: Session, tool: str, given: dict[str, Any]) -> str:
    async def called() -> str:
        async with AssistantClient(server(session)) as client:
            return "".join(each.text for each in (await client.call_tool(tool, given)).content)  # type: ignore[union-attr]

    return asyncio.run(called())


def test_what_is_hidden_keeps_its_shape() -> None:
    """Texts become a word, lists of them one word, objects are empty; attributes keep names, errors a known code."""
    given = {
        "title": "x", "body": "", "data": {"x": 1}, "keywords": ["x"], "where": {"plan": True}, "id": 7, "counts": {"ok": 1},
        "items": [{"title": "x", "error_message": "MessageTooBig: x"}, {"error": "x: y", "message": "ValueError: x"}], "error": "EVENT_NOT_SENT",
    }  # fmt: skip
    assert without_texts(given) == {
        "title": "(hidden)", "body": "", "data": {}, "keywords": ["(hidden)"], "where": {"plan": "(hidden)"}, "id": 7, "counts": {"ok": 1},
        "items": [{"title": "(hidden)", "error_message": "MessageTooBig: (hidden)"}, {"error": "(hidden)", "message": "ValueError: (hidden)"}],
        "error": "EVENT_NOT_SENT",
    }  # fmt: skip
    assert shown(given) is given
    with hiding():
        assert hides()
        assert shown(given) == without_texts(given)
    assert not hides()
