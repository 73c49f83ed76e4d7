"""How support people find things at the dashboard, and where its links lead."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import quote

from relevo.app.push_services import sandbox_address
from relevo.client import values, verbs
from relevo.config import Settings
from relevo.http.dashboard import explanations, templating
from relevo.http.dashboard.templating import is_local_link
from relevo.operators import reasons
from support.dashboard_events import NOWHERE, Connection, make_event, make_phone, text_of
from support.dashboard_person import NASTY, Person
from support.http_server import Served


def test_the_latest_events(served: Served, conn: Connection, person: Person) -> None:
    """Newest first, page by page, and by type, state and project, in an address that can be shared."""
    numbers = [make_event(conn, f"e-{n}", []) for n in range(27)]
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
    assert "No event matches." in text_of(person, "/dashboard/events?type=none")
    assert re.findall(r'<option value="([^"]+)"></option>', first) == ["notice", "order.shipped"]


def lead(person: Person, asked: str) -> str:
    """Put something into the box; return where that leads, or nothing."""
    answer = person.send("/dashboard/search", q=asked)
    return answer.headers.get("location", "") if answer.status_code == 303 else ""


def test_the_box_finds_everything(served: Served, conn: Connection, person: Person) -> None:
    """An event's id or key, an owner, an installation, a tender's code lead to their page; several are listed; none says what there is."""
    one = make_phone(conn, owner="ana")
    number = make_event(conn, "order-17", [one])
    tender = conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint) values ('mp', '7-1-LE26', 'Agua', '{x}', 'x') returning id"
    ).fetchone()[0]
    other = make_event(conn, "ana", "everyone")
    conn.execute("update relevo.notification_events set licitacion_id = %s where id = %s", [tender, other])
    assert lead(person, f" {number} ") == lead(person, "order-17") == f"/dashboard/events/{number}"
    assert lead(person, "7-1-LE26") == f"/dashboard/events/{other}"
    assert lead(person, str(one)) == f"/dashboard/installations/{one}"
    assert lead(person, "ana") == "/dashboard/search?q=ana"
    said = text_of(person, "/dashboard/search?q=ana")
    assert "Events order.shipped ana" in said
    assert "Owners ana" in said
    nothing = text_of(person, lead(person, "nothing"))
    assert "No match. " in nothing
    assert "a tender's code" in nothing
    assert person.post("/dashboard/search", q="ana").status_code == 403, "a form of nobody's session"


def test_a_token_stands_in_no_address_and_on_no_page(served: Served, conn: Connection, person: Person) -> None:
    """A push token leads to its phone; one that nobody has is not repeated anywhere, however it was asked for."""
    known, unknown = "ExponentPushToken[aaaaaaaaaaaaaaaaaaaaaa]", "ExponentPushToken[bbbbbbbbbbbbbbbbbbbbbb]"
    one = make_phone(conn, token=known)
    assert lead(person, known) == f"/dashboard/installations/{one}"
    answer = person.send("/dashboard/search", q=unknown)
    assert (answer.status_code, "bbbbbb" in answer.text) == (200, False)
    for asked, place in ((known, f"/dashboard/installations/{one}"), (unknown, "/dashboard/search?nothing=1")):
        assert person.get(f"/dashboard/search?q={quote(asked)}").headers["location"] == place
    assert "No match. " in text_of(person, "/dashboard/search?nothing=1")
    assert "<script>document" not in person.send("/dashboard/search", q=NASTY).text


def test_every_error_and_every_rule_has_its_words(conn: Connection) -> None:
    """What stands in the guide as an error code, and what the door's explanations name as a rule, is told in words."""
    text = (Path(__file__).parents[3] / "server" / "docs" / "states-and-errors.md").read_text(encoding="utf-8")
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
    """Each link of a template begins with a path of ours, or is a name beside it; to another server it leads only on this machine, and where that is asked before. After a login it leads to the page asked for, which `inside` checks."""
    templates = sorted((Path(templating.__file__).parent / "templates").glob("*.html"))
    links = [
        (path.name, link)
        for path in templates
        for link in re.findall(r'(?:href|src|action)="((?:\{\{.*?\}\}|[^"])+)"', path.read_text())
    ]
    assert len(links) > 40
    others = [(name, link) for name, link in links if not re.match(r"/(?![/\\])|#|[a-z.]+$", link)]
    others = [(name, link) for name, link in others if not link.startswith(tuple(f"{{{{ {each}" for each in OURS))]
    assert others == [
        ("arrived.html", "{{ after }}"),
        ("delivery.html", "{{ sandbox }}/deliveries/{{ row.id }}"),
        ("event.html", "{{ sandbox }}/events/{{ event.id }}"),
        ("guide.html", "{{ address }}"),
        ("proof.html", "{{ sign_on }}"),
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
