"""Configuration by Python and HTTP: the plan is what applying does, all or nothing, again without effect; secrets are told once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import relevo
from relevo.core.errors import UsageError
from support.http_server import Served

CONFIG: dict[str, Any] = {
    "event_types": {
        "order.shipped": {"lane": "urgent", "words": {"default": "en", "texts": {"en": {"title": "It is on its way"}}}}
    },
    "categories": {"offers": {"rule": "off", "texts": {"en": {"name": "Offers"}}}},
    "projects": {"default": {"caps": [{"per": "day", "most": 5}], "tokens": {"billing": "app"}}},
    "tokens": {"grafana": "viewer"},
}
WRONG: list[tuple[Any, str]] = [
    ({"event_types": {"a": {"lan": "urgent"}}}, "event_types.a.lan is an unknown key"),
    ({"event_types": {"a": {"lane": "fast"}}}, "lane"),
    ({"tokens": {"a": "king"}}, "tokens.a must be the name of a role"),
    ({"projects": {"p": {"caps": [{"per": "day"}]}}}, r"projects.p.caps\[0\] must have most"),
    ({"categories": {"a\0": {"rule": "on"}}}, "has a key that is not text"),
    ({"categories": {"a": {"rule": 10**400}}}, "too large a number"),
    ({"categories": {"a": {"rule": {"b"}}}}, "of type set"),
    ({"categories": {n: {"rule": "on"} for n in range(3)}}, "has a key that is not text"),
    ({"event_types": [[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]}, "deeper than"),
    ({"owns": ["caps"] * 60_000}, "more than 50,000 values"),
    ({"categories": {"a": {"rule": "x" * 1_000_001}}}, "more than 1,000,000 characters"),
]


def state(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return what such a configuration writes."""
    return conn.execute(
        "select event_type, null from relevo.event_types union all select category, rule from relevo.categories"
        " union all select name, role from relevo.api_tokens where name in ('billing', 'grafana') union all select per, most::text from relevo.caps"
        " union all select event_type, version::text from relevo.wordings order by 1, 2"
    ).fetchall()


def test_python(conn: psycopg.Connection[Any]) -> None:
    """The plan changes nothing and tells what applying does; a rollback takes it back, and the same again changes nothing."""
    before = state(conn)
    planned = relevo.plan_config(conn, CONFIG)
    assert state(conn) == before
    with conn.transaction(force_rollback=True):
        relevo.apply_config(conn, CONFIG)
        assert state(conn) != before
    assert state(conn) == before
    conn.row_factory = dict_row  # type: ignore[assignment]
    applied = relevo.apply_config(conn, CONFIG)
    assert conn.row_factory is dict_row
    assert list(applied.changes) == planned
    assert {(key.project, key.name) for key in applied.secrets} == {("default", "billing"), (None, "grafana")}
    assert not any(secret in repr(applied) for secret in applied.secrets.values())
    again = relevo.apply_config(conn, CONFIG)
    assert (list(again.changes), dict(again.secrets), relevo.plan_config(conn, CONFIG)) == ([], {}, [])


@pytest.mark.parametrize(("wrong", "complaint"), WRONG)
def test_nothing_half_written(conn: psycopg.Connection[Any], wrong: Any, complaint: str) -> None:
    """What is wrong is named by its key, and nothing beside it is written, also in a transaction that goes on."""
    before = state(conn)
    with conn.transaction():
        for verb in (relevo.plan_config, relevo.apply_config):
            with pytest.raises(UsageError, match=complaint):
                verb(conn, {**CONFIG, **wrong})
    assert state(conn) == before


def test_the_caller_commits(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Over a connection that has begun nothing, what was applied is the caller's to commit or to take back; so is the end of a plan's transaction."""
    before = state(conn)
    with psycopg.connect(dsn) as program:
        relevo.plan_config(program, CONFIG)
        relevo.apply_config(program, CONFIG)
        assert state(conn) == before
        program.rollback()
        assert state(conn) == before
        relevo.apply_config(program, CONFIG)
        program.commit()
    assert state(conn) != before


def test_another_connection_is_refused() -> None:
    """What is no connection of psycopg is refused by its type, before anything happens."""
    with pytest.raises(UsageError, match="connection of psycopg is needed, got str"):
        relevo.apply_config("postgresql://", CONFIG)  # type: ignore[arg-type]


def test_http(served: Served, conn: psycopg.Connection[Any], capfd: pytest.CaptureFixture[str]) -> None:
    """An operator plans and applies; secrets are in the answer alone, let somebody in, and stand neither in logs nor in the record."""
    operator = served.client("operator")
    before = state(conn)
    planned = operator.post("/v1/config/plan", {"config": CONFIG}).json()
    assert state(conn) == before
    answer = operator.post("/v1/config/apply", {"config": CONFIG})
    applied = answer.json()
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert applied["changes"] == planned["changes"]
    assert {(each["project"], each["name"]) for each in applied["tokens"]} == {
        ("default", "billing"),
        (None, "grafana"),
    }
    [secret] = [each["secret"] for each in applied["tokens"] if each["name"] == "grafana"]
    assert served.client().get("/v1/ops/stats", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    again = operator.post("/v1/config/apply", {"config": CONFIG}).json()
    assert again == {"changes": [], "tokens": []}
    told = capfd.readouterr()
    record = str(conn.execute("select to_jsonb(a) from relevo.audit_log a").fetchall())
    assert "apply_configuration" in record
    for each in applied["tokens"]:
        assert each["secret"] not in told.out + told.err + record


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_who_may(served: Served, conn: psycopg.Connection[Any], verb: str) -> None:
    """Only an operator of all projects may; a body that is too large or wrong changes nothing and is refused by its key."""
    before = state(conn)
    path, body = f"/v1/config/{verb}", {"config": CONFIG}
    for caller, status in (
        (served.client(), 401),
        (served.client("app"), 403),
        (served.client("viewer"), 403),
        (served.client("operator", project="default"), 403),
    ):
        assert caller.post(path, body).status_code == status
    operator = served.client("operator")
    for wrong in ({}, {"config": []}, {"config": None}, {"config": {}, "more": 1}):
        assert operator.post(path, wrong).status_code == 400
    refused = operator.post(path, {"config": {"event_types": {"a": {"lan": "urgent"}}}})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "config")
    assert "event_types.a.lan" in refused.json()["detail"]
    large = {"categories": {"a": {"rule": "on", "texts": {"en": {"name": "x" * 3_000_000}}}}}
    assert operator.post(path, {"config": large}).status_code in (400, 413)
    assert state(conn) == before
