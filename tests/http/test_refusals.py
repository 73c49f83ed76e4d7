"""Who is refused at the dashboard is recorded, in a bounded number of entries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from browsing import Person
from relevo.access import api_tokens
from relevo.http.dashboard.refusals import Refusals
from relevo.operators import audit
from serving import Served


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
    """Of one caller one refusal in ten minutes is told, with how many came since; of all callers so many an hour; memory is bounded."""
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    assert [refusals.take("x", "a") for _ in range(5)] == [1, 0, 0, 0, 0]
    now[0] += 600
    assert refusals.take("x", "a") == 5
    assert sum(refusals.take("x", f"from {number}") > 0 for number in range(5_000)) == 98
    now[0] += 3_600
    assert refusals.take("x", "b") == 1


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
