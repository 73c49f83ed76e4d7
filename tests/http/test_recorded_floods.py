"""Nobody fills the audit log or the log: callers have a share of entries, and what is beyond it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from relevo.access import api_tokens
from relevo.access.api_tokens import Token
from relevo.http import recorded
from relevo.http.recorded import RecordedActions
from relevo.http.rules import RULES
from relevo.operators import audit
from support.dashboard_person import Person
from support.http_server import Served

SHOP, BANK = Token("a" * 12, "shop", "app", "shop"), Token("b" * 12, "bank", "app", "bank")


def entries(served: Served, action: str) -> list[dict[str, Any]]:
    """Return the entries of one action, newest first."""
    return audit.latest(served.app.database, action=action, limit=100)


def test_a_loop_of_blocks_is_a_bounded_number_of_entries(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that blocks and unblocks in a loop has its share of entries; the rest is counted in one, and every call works."""
    monkeypatch.setattr(recorded, "MOST_AN_HOUR", 3)
    served = serve(http_rate_per_second=0)
    shop, bank = (served.client("app", project=each) for each in ("shop", "bank"))
    for _ in range(10):
        assert shop.post("/v1/owners/block", {"owner": "ana"}).status_code == 200
        assert shop.post("/v1/owners/unblock", {"owner": "ana"}).status_code == 200
    assert bank.post("/v1/owners/block", {"owner": "ana"}).status_code == 200
    assert shop.post("/v1/owners/export", {"owner": "ana", "kind": "rules"}).status_code == 200
    kinds = ("block_owner", "unblock_owner", "export_owner")
    assert [len(entries(served, kind)) for kind in kinds] == [3 + 1, 3, 1]
    assert conn.execute("select project from relevo.owner_rules where blocked_at is not null").fetchall() == [("bank",)]
    assert served.server._loop is not None
    state = served.server.api.state  # type: ignore[union-attr]
    for _ in range(2):
        asyncio.run_coroutine_threadsafe(state.recorded.tell(state.threads), served.server._loop).result(60)
    [more] = entries(served, "more_actions")
    assert (more["result"], more["outcome"], more["face"]) == ({"block_owner": 7, "unblock_owner": 7}, "ok", "http")
    assert more["actor"].startswith("a app (")


def test_what_an_operator_enqueues_is_recorded(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event, or a batch, of an operator's token is an entry without its texts and people; beyond the share it is counted, and an app's is none."""
    monkeypatch.setattr(recorded, "MOST_AN_HOUR", 3)
    served = serve(http_rate_per_second=0)
    operator, app = served.client("operator"), served.client("app")
    event = {"type": "order.shipped", "title": "Psst", "audience": "owners", "owners": ["ana", "bea"]}
    made = operator.post("/v1/events", event | {"key": "1"})
    assert (made.status_code, made.json()["created"]) == (201, True)
    assert operator.post("/v1/events", event | {"key": "1", "title": "Other"}).status_code == 409
    batch = [event | {"key": key, "type": kind} for key, kind in (("1", "order.shipped"), ("2", "order.late"))]
    assert operator.post("/v1/events/batch", {"events": batch}).status_code == 200
    assert app.post("/v1/events", event | {"key": "of the app"}).status_code == 201
    assert app.post("/v1/events/batch", {"events": [event | {"key": "of the app, too"}]}).status_code == 200
    told = [(each["outcome"], each["target"], each["result"]) for each in entries(served, "enqueue_event")][::-1]
    one = {"event_type": "order.shipped", "audience": "owners", "owners": 2}
    assert told == [
        ("ok", one, {"event_id": made.json()["event_id"], "created": True}),
        ("failed", one, {}),
        ("ok", {"events": 2, "event_types": ["order.late", "order.shipped"]}, {"created": 1}),
    ]
    assert not any(word in str(entries(served, "enqueue_event")) for word in ("Psst", "Other", "ana", "bea"))
    for key in ("4", "5"):
        assert operator.post("/v1/events", event | {"key": key}).status_code == 201
    assert operator.post("/v1/events/batch", {"events": [event | {"key": "6"}]}).status_code == 200
    assert len(entries(served, "enqueue_event")) == 3
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (7,)
    state = served.server.api.state  # type: ignore[union-attr]
    asyncio.run_coroutine_threadsafe(state.recorded.tell(state.threads), served.server._loop).result(60)
    [more] = entries(served, "more_actions")
    assert more["result"] == {"enqueue_event": 3}


def test_an_operator_s_actions_are_all_recorded(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each action of an operator is an entry of its own, however many there are."""
    monkeypatch.setattr(recorded, "MOST_AN_HOUR", 3)
    served = serve(http_rate_per_second=0)
    operator = served.client("operator")
    for _ in range(5):
        assert operator.post("/v1/owners/block", {"owner": "ana"}).status_code == 200
    assert len(entries(served, "block_owner")) == 5


def test_each_token_and_kind_has_a_share_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token's flood of one kind leaves other kinds and other tokens their entries; the share comes back after an hour."""
    monkeypatch.setattr(recorded, "MOST_AN_HOUR", 2)
    now = [0.0]
    kept = RecordedActions(lambda: now[0])
    assert [kept.take(SHOP, "block_owner") for _ in range(4)] == [True, True, False, False]
    assert kept.take(SHOP, "export_owner")
    assert kept.take(BANK, "block_owner")
    now[0] += 3_600
    assert kept.take(SHOP, "block_owner")


def test_a_stranger_s_refusals_are_a_line_and_not_a_log(served: Served) -> None:
    """A hundred wrong logins, forged forms and pages that are not there leave one line of each kind; a token has its own."""
    person = Person(served, None)
    with capture_logs() as lines:
        for _ in range(10):
            person.log_in("relevo_0123456789ab_secret")
            person.post("/login", token="x", form="forged")
            person.get("/login?code=wrong")
            person.get("/guide/nothing")
        assert Person(served, "app").log_in().status_code == 403
    loud = [line for line in lines if line["log_level"] != "debug" and line["event"] != "http_request"]
    told = sorted((line["event"], line["who"].split(" (")[0]) for line in loud)
    assert told == [
        ("refused_form", "nobody, from 127.0.0.1"),
        ("refused_login", "a app"),
        ("refused_login", "nobody, from 127.0.0.1"),
    ]


def test_a_viewer_s_loop_of_logins_is_bounded(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins, and ends of sessions that are not there, have a viewer's share of entries, and work beyond it."""
    monkeypatch.setattr(recorded, "MOST_AN_HOUR", 2)
    served = serve(http_rate_per_second=0)
    viewer = Person(served, "viewer")
    for _ in range(5):
        assert viewer.log_in().status_code == 303
        assert viewer.send("/dashboard/sessions/end", session="0123456789ab").status_code == 404
    assert viewer.send("/dashboard/sessions/end-own").status_code == 303
    assert [len(entries(served, each)) for each in ("login", "end_session", "end_sessions")] == [2, 2, 1]


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_every_form_needs_the_session_s_own_mark(served: Served, conn: psycopg.Connection[Any], role: str) -> None:
    """Each address that takes a form refuses one without a mark, with another session's, or from another site, and does nothing."""
    person, other = Person(served, role), Person(served, role)
    person.log_in(), other.log_in()
    own, others = (api_tokens.form_mark(each.cookies["relevo_session"]) for each in (person, other))
    count = "select count(*) from relevo.audit_log where action not like 'refused%%'"
    before = conn.execute(count).fetchone()
    forged: list[tuple[dict[str, str], dict[str, str]]] = [({}, {}), ({"form": others}, {})]
    forged += [({"form": own}, {"Sec-Fetch-Site": site}) for site in ("cross-site", "same-site")]
    paths = [path for (method, path), rule in RULES.items() if method == "POST" and rule.page and path != "/login"]
    assert len(paths) >= 7
    for path in paths:
        for fields, headers in forged:
            cookies, asked = dict(person.cookies), {"cycle": "dispatch", "reason": "x", **fields}
            place = path.replace("{verb}", "pause")
            answer = person.client.call("POST", place, data=asked, headers=headers, cookies=cookies)
            assert answer.status_code == 403, (path, fields, headers)
    assert conn.execute(count).fetchone() == before
    assert person.get("/dashboard").status_code == 200
