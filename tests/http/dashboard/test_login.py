"""Logging in to the dashboard: who gets in, for how long, and whose forms are heard."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from jinja2 import UndefinedError

from relevo.access import api_tokens
from relevo.config import Settings
from relevo.http.dashboard.formats import address, owner_path
from relevo.http.dashboard.login import LoginCodes, make_token
from relevo.http.dashboard.templating import ENVIRONMENT
from relevo.http.rules import RULES
from relevo.operators import audit
from support.dashboard_person import Person
from support.http_server import Served


def test_a_session_lasts_until_the_logout(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A token opens a session that no script and no other site can use; after the logout its cookie is worth nothing."""
    person = Person(served)
    assert person.get("/dashboard").status_code == 401
    answer = person.log_in(after="/dashboard?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard?x=1")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("relevo_session=", "HttpOnly", "SameSite=strict", "Max-Age=43200"))
    page = person.get("/dashboard")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    kept = person.cookies["relevo_session"]
    assert kept not in str(conn.execute("select s::text from relevo.http_sessions s").fetchall())
    assert person.post("/logout").status_code == 403
    assert person.send("/logout").status_code == 303
    person.cookies["relevo_session"] = kept
    gone = person.get("/dashboard")
    assert (gone.status_code, "You were logged out" in gone.text) == (401, True)
    logins = [entry for entry in audit.latest(served.app.database) if entry["action"] == "login"]
    assert len(logins) == 1
    assert logins[0]["actor"].startswith("a operator (")


@pytest.mark.parametrize(
    "end",
    [
        "update relevo.api_tokens set revoked_at = now()",
        "update relevo.api_tokens set created_at = now() - interval '9 days', expires_at = now()",
        "update relevo.http_sessions set created_at = now() - interval '9 days', expires_at = now()",
    ],
)
def test_a_session_ends_with_its_token(served: Served, conn: psycopg.Connection[Any], end: str) -> None:
    """Revoked, expired, or its own time over: the next request asks for a login."""
    person = Person(served, "viewer")
    person.log_in()
    assert person.get("/dashboard").status_code == 200
    conn.execute(end)
    assert person.get("/dashboard").status_code == 401


def test_who_does_not_get_in(served: Served) -> None:
    """A wrong token, one of too little a role, and one of a single project are told why; none of them gets a cookie."""
    for person, token, status, why in (
        (Person(served, None), "relevo_0123_x", 401, "unknown, revoked or expired"),
        (Person(served, "app"), None, 403, "This token has the role app."),
        (Person(served, "viewer", project="shop"), None, 403, "This token is for project shop only."),
    ):
        answer = person.log_in(token)
        assert (answer.status_code, why in answer.text) == (status, True)
        assert "relevo_session" not in person.cookies
        assert person.token not in answer.text or not person.token


def test_forms_of_strangers_are_refused(served: Served) -> None:
    """A form without the session's mark, with another session's, or from another site does nothing."""
    person, other = Person(served), Person(served)
    person.log_in(), other.log_in()
    assert person.post("/logout", form="x").status_code == 403
    mark = {"form": other.cookies["relevo_session"]}
    assert person.post("/logout", **mark).status_code == 403
    stranger = {"Sec-Fetch-Site": "cross-site"}
    answer = person.client.call("POST", "/logout", headers=stranger, data={}, cookies=dict(person.cookies))
    assert answer.status_code == 403
    assert person.get("/dashboard").status_code == 200
    assert Person(served).post("/login", token=person.token or "", form="x").status_code == 403


@pytest.mark.parametrize("fields", [{"form": ""}, {}], ids=["an empty mark", "no mark"])
def test_a_login_form_counts_with_its_cookie_alone(served: Served, fields: dict[str, str]) -> None:
    """A browser without the form's cookie is refused, with a good token, too: nobody is logged in by another site's form."""
    person = Person(served)
    answer = person.post("/login", token=person.token, **fields)
    assert (answer.status_code, "relevo_session" in person.cookies) == (403, False)
    assert audit.latest(served.app.database, action="login") == []


def test_cookies_count_on_pages_alone(served: Served) -> None:
    """The API does not take a session, not even an operator's; and nobody is led away from the dashboard by a login."""
    person = Person(served)
    for after in ("https://evil.example/", "//evil.example/dashboard", "/dashboard\\@evil", "/docs", ""):
        assert person.log_in(after=after).headers["location"] == "/dashboard"
    for path in ("/v1/ops/stats", "/v1/ops/audit", "/metrics"):
        assert person.get(path).status_code == 401
    assert [key for key, rule in RULES.items() if rule.page and key[1].startswith("/v1/")] == []


def test_the_log_names_the_whole_command(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    """It makes a token for this very database: the embedded one by its folder, another by the settings, which are not told."""
    embedded = make_settings(database_url="", relevo_data_dir=str(tmp_path / "a b"))
    told = make_token(embedded, "/opt/x/bin/relevo")
    assert told == f"RELEVO_DATA_DIR='{tmp_path}/a b' /opt/x/bin/relevo token make me --role operator --days 1"
    assert make_token(make_settings(), "pytest") == "relevo token make me --role operator --days 1"


def test_a_login_link_is_good_once_and_on_this_machine(served: Served) -> None:
    """The printed code logs an operator in, once; not by another name of this machine, and it survives such a try."""
    code = served.server.codes.make()
    person = Person(served, None)
    rebound = person.client.get(f"/login?code={served.server.codes.make()}", headers={"Host": "evil.example"})
    assert rebound.status_code == 401
    answer = person.get(f"/login?code={code}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    assert "login link (operator)" in person.get("/dashboard").text
    assert Person(served, None).get(f"/login?code={code}").status_code == 401
    assert Person(served, None).get("/login?code=wrong").status_code == 401
    assert ">relevo token make me --role operator<" in Person(served, None).get("/login").text
    assert ">relevo token make me --role operator --days 1<" in Person(served, None).get("/login?code=wrong").text
    [row] = api_tokens.list_all(served.app.database)
    assert (row["role"], row["expires_at"] is not None) == ("operator", True)


def test_a_bad_link_tells_no_paths(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that anybody may ask for names no file or folder of this machine, not even to who seems to be at it."""
    monkeypatch.setattr(sys, "argv", ["/opt/somewhere/bin/relevo", "run"])
    told = served.client().get("/login?code=x").text
    assert "relevo token make" in told
    assert "somewhere" not in told
    assert sys.prefix not in told
    assert str(served.app.settings.relevo_data_dir.absolute()) not in told


def test_codes_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten minutes a code is good for nothing; what failed gives it back; only so many are kept."""
    codes, now = LoginCodes(), [1000.0]
    monkeypatch.setattr("relevo.http.dashboard.login.time.monotonic", lambda: now[0])
    code = codes.make()
    until = codes.take(code)
    assert until is not None
    assert codes.take(code) is None
    codes.give_back(code, until)
    now[0] += 601
    assert codes.take(code) is None
    first = codes.make()
    for _ in range(30):
        codes.make()
    assert codes.take(first) is None


def test_everything_is_escaped() -> None:
    """Text is never markup, in an element, in an attribute, in a table or in a text it is filled into; a name that is not given is an error."""
    given = "\"><b>&'"
    page = """<p title="{{ given }}">{{ given }}</p>{{ _("in %(time)s", time=given) }}{{ given | sentence }}{{ badge(given) }}
      {% call(row) table([given], [given], given, "") %}<td>{{ row }}</td>{% endcall %}"""
    written = ENVIRONMENT.from_string(page).render(given=given)
    assert "<b>" not in written
    assert written.count("&#34;&gt;&lt;b&gt;&amp;&#39;") == 9
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ nowhere }}").render()


def test_an_address_holds_what_cannot_be_encoded() -> None:
    """Half of a pair of surrogates is written as a question mark, and is no error."""
    assert address("/x", q="\ud800", empty="") == "/x?q=%3F"
    assert owner_path("\ud800/a") == "/dashboard/owners/%3F%2Fa"


def test_the_rate_holds_for_logins(serve: Callable[..., Served]) -> None:
    """Who tries token after token is told to wait."""
    served = serve(http_rate_per_second=2)
    person = Person(served, None)
    assert 429 in {person.get("/login").status_code for _ in range(12)}
