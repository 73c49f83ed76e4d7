"""Who is refused at the dashboard is recorded, in a bounded number of entries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from relevo.access import api_tokens
from relevo.http.dashboard import refusals
from relevo.http.dashboard.refusals import MOST_OF_GROUP, MOST_OF_STRANGERS, Caller, Entry, Refusals, stranger
from relevo.operators import audit
from support.dashboard_person import Person
from support.http_server import Served
from support.processes import eventually


def recorded(served: Served, action: str) -> list[dict[str, Any]]:
    """Return the refusals of one kind, newest first."""
    return audit.latest(served.app.database, action=action, limit=100)


def test_refused_logins(served: Served) -> None:
    """A wrong token, a wrong role, a used link and a forged form are in the record, without the token; a hundred tries are one entry."""
    person = Person(served, None)
    for _ in range(20):
        person.log_in("relevo_0123456789ab_secret")
    assert Person(served, "app").log_in().status_code == 403
    assert person.get("/login?code=wrong").status_code == 401
    assert person.post("/login", token="x", form="forged").status_code == 403
    role, wrong = recorded(served, "refused_login")
    assert (wrong["actor"], wrong["face"], wrong["outcome"]) == ("nobody, from 127.0.0.1", "http", "failed")
    assert wrong["error_message"] == "a token that is not good"
    assert role["actor"].startswith("a app (")
    assert "secret" not in str(recorded(served, "refused_login"))
    assert len(recorded(served, "refused_form")) == 1


def test_forms_of_strangers_and_roles_that_are_not_enough(served: Served) -> None:
    """A form from another site or with another's mark, and a viewer who claims to be an operator, change nothing and are recorded."""
    viewer, operator = Person(served, "viewer"), Person(served)
    viewer.log_in(), operator.log_in()
    asked = {"cycle": "dispatch", "reason": "x"}
    assert operator.post("/dashboard/actions/pause", form="x" * 64, **asked).status_code == 403
    headers = {"Sec-Fetch-Site": "cross-site"}
    cookies = dict(operator.cookies)
    strange = operator.client.call(
        "POST", "/dashboard/actions/pause", headers=headers, data=asked | {"form": "x"}, cookies=cookies
    )
    assert strange.status_code == 403
    [entry] = recorded(served, "refused_form")
    assert entry["actor"].startswith("a operator (")
    assert entry["target"] == {"path": "/dashboard/actions/pause", "method": "POST"}
    refused = viewer.send("/dashboard/actions/pause", role="operator", **asked)
    assert (refused.status_code, "a viewer" in refused.text) == (403, True)
    [entry] = recorded(served, "refused_role")
    assert entry["actor"].startswith("a viewer (")
    assert recorded(served, "pause") == []


@pytest.mark.parametrize("end", ["log out", "expire", "revoke"])
def test_sessions_that_have_ended(served: Served, conn: psycopg.Connection[Any], end: str) -> None:
    """After the logout, its expiry or its token's revocation a session does nothing, and the try is recorded; who never had one is not."""
    assert Person(served, None).get("/dashboard").status_code == 401
    assert recorded(served, "refused_session") == []
    person = Person(served)
    person.log_in()
    kept = person.cookies["relevo_session"]
    if end == "log out":
        person.send("/logout")
    elif end == "expire":
        conn.execute("update relevo.http_sessions set created_at = now() - interval '2 days', expires_at = now()")
    else:
        api_tokens.revoke(served.app.database, str(person.token).split("_")[1])
    person.cookies["relevo_session"] = kept
    answer = person.send("/dashboard/actions/pause", cycle="dispatch", reason="x")
    assert (answer.status_code, "Log in" in answer.text) == (401, True)
    assert len(recorded(served, "refused_session")) == 1
    assert recorded(served, "pause") == []


def test_a_flood_is_a_few_entries() -> None:
    """The first refusal of a kind and caller is an entry, further ones are counted and told at the end of the window; each is told once."""
    kept = Refusals()
    ana, eva = stranger("192.0.2.1"), stranger("198.51.100.1")
    assert [kept.take("x", ana) for _ in range(5)] == [True, False, False, False, False]
    assert kept.take("y", ana)
    assert kept.take("x", eva)
    assert kept.flush() == [Entry("nobody, from 192.0.2.1", "x", 4)]
    assert kept.flush() == []
    assert kept.take("x", ana)


def test_a_flooder_hides_nobody() -> None:
    """Strangers of one network use up their own room alone: another network and every token have theirs; nothing goes uncounted."""
    now = [0.0]
    kept = Refusals(lambda: now[0])
    flood = [stranger(f"2001:db8:0:{number:x}::1") for number in range(5_000)]
    assert sum(kept.take("x", each) for each in flood) == MOST_OF_GROUP
    assert kept.take("x", stranger("2001:db8:1::1"))
    token = Caller("shop (abc)", "token abc", is_stranger=False)
    assert kept.take("x", token)
    [summary] = kept.flush()
    assert (summary.action, summary.times) == ("refused_others", 5_000 - MOST_OF_GROUP)
    assert summary.target == {"x": 4_990, "from": ["2001:db8::/48: 4990"], "callers": 1}
    botnet = [stranger(f"10.{number // 256}.{number % 256}.1") for number in range(20_000)]
    assert sum(kept.take("x", each) for each in botnet) == MOST_OF_STRANGERS - MOST_OF_GROUP - 1
    assert kept.take("x", token)
    [summary] = kept.flush()
    assert summary.times == 20_000 - MOST_OF_STRANGERS + MOST_OF_GROUP + 1
    assert len(summary.target["from"]) == 10
    now[0] += 3_600
    assert kept.take("x", flood[0])


def counted(served: Served) -> int:
    """Return how many refused log-ins the audit log counts; an entry that has only begun has no count yet."""
    return sum(each["result"].get("times", 0) for each in recorded(served, "refused_login"))


def test_a_window_ends_by_itself(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted is written ten minutes later without another refusal, and before the server stops."""
    monkeypatch.setattr("relevo.http.dashboard.refusals.WINDOW_S", 0.5)
    served = serve()
    for _ in range(3):
        Person(served, None).log_in("relevo_0123456789ab_secret")
    eventually(lambda: counted(served) == 3)
    monkeypatch.setattr("relevo.http.dashboard.refusals.WINDOW_S", 3_600.0)
    for _ in range(5):
        Person(served, None).log_in("relevo_0123456789ab_secret")
    assert served.server._loop is not None
    closing = refusals.close(served.server.api.state)  # type: ignore[union-attr]
    asyncio.run_coroutine_threadsafe(closing, served.server._loop).result(60)
    assert counted(served) == 8


def test_who_finds_no_turn_is_told_on_a_page(serve: Callable[..., Served]) -> None:
    """While all connections are in use a page says so in its own words, also when the menu was to be looked up."""
    served = serve(http_pool_size=1, http_pool_wait_ms=100)
    person = Person(served)
    person.log_in()
    state, done = served.server.api.state, threading.Event()  # type: ignore[union-attr]
    assert served.server._loop is not None
    held = asyncio.run_coroutine_threadsafe(state.threads.run(lambda _database: done.wait(60)), served.server._loop)
    state.menu_known_until = 0.0
    answer = person.get("/dashboard/events")
    done.set()
    held.result(60)
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
