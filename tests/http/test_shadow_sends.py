"""POST /v1/shadow/sent: another system reports what it sent; a token of one project reports for that project."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from support.http_server import Served

PATH = "/v1/shadow/sent"
SEND = {"sent_at": "2026-11-17T09:30:00Z", "owner": "user-7", "key": "order-17", "id": "n-1"}


def kept(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Return what is kept: of which project, of whom, and what."""
    return conn.execute("select project, owner, event_key from relevo.shadow_sends order by id").fetchall()


def test_sends_are_kept_once(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A send that is reported again with its number is not doubled; that of another project with this number is another."""
    app, shop = served.client("app"), served.client("app", project="shop")
    assert app.post(PATH, {"sends": [SEND, SEND | {"id": "n-2"}]}).json() == {"taken": 2}
    assert app.post(PATH, {"sends": [SEND]}).json() == {"taken": 0}
    assert shop.post(PATH, {"sends": [SEND]}).json() == {"taken": 1}
    assert kept(conn) == [(None, "user-7", "order-17")] * 2 + [("shop", "user-7", "order-17")]


def test_a_token_of_one_project_reports_for_no_other(served: Served, conn: psycopg.Connection[Any]) -> None:
    """It may not name another project, and a viewer may report nothing."""
    shop = served.client("app", project="shop")
    assert shop.post(PATH, {"sends": [SEND | {"project": "bank"}]}).status_code == 403
    assert served.client("viewer").post(PATH, {"sends": [SEND]}).status_code == 403
    assert served.client("operator").post(PATH, {"sends": [SEND | {"project": "bank"}]}).json() == {"taken": 1}
    assert kept(conn) == [("bank", "user-7", "order-17")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sends": []},
        {"sends": [SEND] * 1_001},
        {"sends": [SEND | {"sent_at": "yesterday"}]},
        {"sends": [SEND | {"owner": None}]},
        {"sends": [{name: value for name, value in SEND.items() if name != "key"}]},
        {"sends": [SEND | {"title": "a" * 1_001}]},
        {"sends": [SEND | {"key": "a\0b"}]},
    ],
)
def test_what_cannot_be_used_is_refused(served: Served, conn: psycopg.Connection[Any], wrong: Any) -> None:
    """Nothing is kept of a report with a send that names nobody, nothing, or no time, or of one that is too long."""
    assert served.client("app").post(PATH, wrong).status_code in (400, 422)
    assert kept(conn) == []
