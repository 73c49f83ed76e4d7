"""Sessions end without use, are seen and ended by others, travel in a cookie of this host alone, and are proven again before grave actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from relevo.access import api_tokens, sessions
from relevo.http.dashboard.operator_actions import ACTIONS
from relevo.operators import audit
from support.dashboard_person import Person
from support.http_server import Served

HTTPS = {"X-Forwarded-Proto": "https"}
AGE = "update relevo.http_sessions set {} = now() - interval '{} minutes'"


def recorded(served: Served, action: str) -> list[dict[str, Any]]:
    """Return the entries of one action, newest first."""
    return audit.latest(served.app.database, action=action, limit=100)


def test_a_session_ends_without_use(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """A page that renews itself is no use and keeps no session alive; whoever opens a page does. The settings say how long."""
    served = serve(http_session_idle_minutes=30, http_session_hours=2)
    person, other = Person(served, "viewer"), Person(served, "viewer")
    cookie = person.log_in().headers["set-cookie"]
    assert "Max-Age=7200" in cookie
    other.log_in()
    conn.execute(AGE.format("last_used_at", 29))
    assert person.get("/dashboard", headers={"x-relevo-renewal": "1"}).status_code == 200
    assert other.get("/dashboard").status_code == 200
    conn.execute("update relevo.http_sessions set last_used_at = last_used_at - interval '2 minutes'")
    assert (person.get("/dashboard").status_code, other.get("/dashboard").status_code) == (401, 200)


def test_a_revoked_token_takes_its_sessions_along(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Revoking deletes the sessions of the token, and of no other."""
    person, other = Person(served), Person(served)
    person.log_in(), other.log_in()
    api_tokens.revoke(served.app.database, str(person.token).split("_")[1])
    assert (person.get("/dashboard").status_code, other.get("/dashboard").status_code) == (401, 200)
    assert conn.execute("select count(*) from relevo.http_sessions").fetchone() == (1,)


def test_a_login_is_recorded_with_its_token(served: Served) -> None:
    """The audit log names the token of a login by its id and its name."""
    person = Person(served, "viewer")
    person.log_in()
    [entry] = recorded(served, "login")
    assert entry["target"] == {"id": str(person.token).split("_")[1], "name": "a viewer"}


def test_a_token_has_a_hundred_sessions_at_most(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The login after those ends the session that was not used for longest; other tokens keep theirs."""
    other = Person(served)
    other.log_in()
    token = api_tokens.make(served.app.database, "wall", "viewer")[1]
    began = [sessions.begin(served.app.database, token) for _ in range(101)]
    assert conn.execute("select count(*) from relevo.http_sessions").fetchone() == (101,)
    assert sessions.verify(served.app.database, began[-1]) == token
    assert other.get("/dashboard").status_code == 200


def test_behind_tls_the_cookie_is_of_this_host_alone(served: Served) -> None:
    """It has the prefix __Host-, Secure, Path=/ and no Domain; a cookie of the plain name, which another host might have set, is not read."""
    person = Person(served)
    assert person.log_in().headers["set-cookie"].startswith("relevo_session=")
    client = served.client()
    page = client.get("/login", headers=HTTPS)
    nonce = page.cookies["__Host-relevo_form"]
    body = {"token": person.token, "form": nonce}
    answer = client.call("POST", "/login", data=body, headers=HTTPS, cookies={"__Host-relevo_form": nonce})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-relevo_session=")
    assert all(word in cookie for word in ("Secure", "Path=/", "HttpOnly", "SameSite=strict"))
    assert "Domain" not in cookie
    session = cookie.split("=", 1)[1].split(";")[0]
    for name, status in (("__Host-relevo_session", 200), ("relevo_session", 401)):
        assert client.get("/dashboard", headers=HTTPS, cookies={name: session}).status_code == status
    mark = {"form": api_tokens.form_mark(session)}
    left = client.call("POST", "/logout", data=mark, headers=HTTPS, cookies={"__Host-relevo_session": session})
    assert left.headers["set-cookie"].startswith("__Host-relevo_session=")
    assert "Secure" in left.headers["set-cookie"]


def test_sessions_are_seen_and_ended(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An operator sees and ends all sessions, a viewer those of the own token; one's own are ended everywhere at once."""
    operator, viewer, home = Person(served), Person(served, "viewer"), Person(served, "viewer")
    home.token = viewer.token
    for person in (operator, viewer, home):
        person.log_in()
    ids = {row["name"]: row["id"] for row in sessions.list_all(served.app.database)}
    page = operator.get("/dashboard/sessions").text
    assert ("a operator" in page, page.count("127.0.0.1") >= 3, "this session" in page) == (True, True, True)
    assert viewer.cookies["relevo_session"] not in page
    seen = viewer.get("/dashboard/sessions").text
    assert (ids["a operator"] in seen, ids["a viewer"] in page) == (False, True)
    assert viewer.send("/dashboard/sessions/end", session=ids["a operator"]).status_code == 404
    assert operator.post("/dashboard/sessions/end", session=ids["a viewer"]).status_code == 403
    assert [each.get("/dashboard").status_code for each in (operator, viewer, home)] == [200] * 3
    assert operator.send("/dashboard/sessions/end", session=ids["a viewer"]).status_code == 303
    assert sorted(each.get("/dashboard").status_code for each in (viewer, home)) == [200, 401]
    left = viewer if viewer.get("/dashboard").status_code == 200 else home
    third = Person(served, "viewer")
    third.token = viewer.token
    third.log_in()
    assert left.send("/dashboard/sessions/end-own").headers["location"] == "/login"
    assert [each.get("/dashboard").status_code for each in (operator, left, third)] == [200, 401, 401]
    assert [recorded(served, "end_sessions")[0]["result"], len(recorded(served, "end_session"))] == [{"sessions": 2}, 2]


GRAVE = {"redrive", "release", "send-held", "drop-held", "cancel"}


def test_which_actions_are_grave() -> None:
    """What cannot be taken back, or concerns many, asks for a fresh proof; what is undone by its opposite does not."""
    assert {name for name, action in ACTIONS.items() if action.grave} == GRAVE


@pytest.mark.parametrize(
    ("path", "fields"), [*((f"/dashboard/actions/{name}", {"event": "1", "type": "x"}) for name in sorted(GRAVE)), ("/dashboard/compose/send", {})]
)  # fmt: skip
def test_a_grave_action_asks_for_the_token_again(
    served: Served, conn: psycopg.Connection[Any], path: str, fields: dict[str, str]
) -> None:
    """Fifteen minutes after the login the token is asked for, with all that was sent; a wrong one is recorded; the right one goes on."""
    person, other = Person(served), Person(served)
    person.log_in(), other.log_in()
    conn.execute(AGE.format("proved_at", 16))
    for given in ({}, {"proof": "wrong"}, {"proof": str(other.token)}):
        asked = person.send(path, **fields, **given)
        assert (asked.status_code, "Confirm your identity" in asked.text) == (403, True)
        assert all(f'name="{name}" value="{value}"' in asked.text for name, value in fields.items())
        assert ("not the token of your session" in asked.text) is bool(given)
        assert str(other.token) not in asked.text
    [refused] = recorded(served, "refused_proof")
    assert refused["actor"].startswith("a operator (")
    assert "Confirm your identity" not in person.send(path, **fields, proof=str(person.token)).text
    assert "Confirm your identity" not in person.send(path, **fields).text
    assert "Confirm your identity" in other.send(path, **fields).text
    assert len(recorded(served, "prove_session")) == 1


def test_an_everyday_action_asks_for_nothing(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Pausing is undone by resuming; and whoever brings the token itself has proven it."""
    person = Person(served)
    person.log_in()
    conn.execute(AGE.format("proved_at", 16))
    assert person.send("/dashboard/actions/pause", cycle="dispatch", reason="x").status_code == 200
    answer = served.client("operator").call("POST", "/dashboard/actions/release", data={"project": "default"})
    assert "Confirm your identity" not in answer.text


def test_a_session_of_a_link_is_proven_by_an_operator_s_token(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Nobody ever saw the token of a link: any operator's does, a viewer's and one of a single project do not."""
    person = Person(served, None)
    person.get(f"/login?code={served.server.codes.make()}")
    conn.execute(AGE.format("proved_at", 16))
    path, fields = "/dashboard/actions/release", {"project": "default"}
    assert "You logged in by a link" in person.send(path, **fields).text
    for refused in (served.client("viewer"), served.client("operator", project="shop")):
        assert "Confirm your identity" in person.send(path, **fields, proof=str(refused.token)).text
    assert "Confirm" not in person.send(path, **fields, proof=str(served.client("operator").token)).text
