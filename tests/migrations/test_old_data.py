"""Rows of the release before keep their meaning: keys, owners, and what waits for a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import released
import relevo
from relevo.access import api_tokens
from relevo.client.values import Event, Matching, Owners
from relevo.core.errors import UsageError
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.operators import owners

TOKEN = """
insert into relevo.api_tokens (id, name, role, project, secret_hash, revoked_at)
values (%s, 'app', 'app', %s, sha256('a'), %s::timestamptz)
"""


def register(conn: psycopg.Connection[Any], name: str, project: str) -> Any:
    """Register a phone of ana as an app does, and return its id."""
    phone = {"token": f"ExponentPushToken[{name}]", "owner": "ana", "project": project}
    row = conn.execute("select relevo.register_installation(%s)", [Jsonb(phone)]).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(
    ("projects", "tokens", "is_shared"),
    [
        pytest.param(["default"], [("default", None)], True, id="one project, a token of it"),
        pytest.param(["shop", "club"], [(None, None)], True, id="two projects, a token of both"),
        pytest.param(["shop", "club"], [("shop", "now")], True, id="two projects, a revoked token of one"),
        pytest.param(["shop", "club"], [("shop", None)], False, id="two projects, a token of one"),
        pytest.param(["shop"], [("shop", None), ("club", None)], False, id="a token of a project without phones"),
    ],
)
def test_whether_equal_names_are_one_person(
    empty_database: str, open_database: Callable[..., Database], projects: Any, tokens: Any, is_shared: bool
) -> None:
    """They stay one person, as they were, unless somebody holds a token of one of several projects."""
    released.make(empty_database, released.versions()[0])
    with psycopg.connect(empty_database, autocommit=True) as conn:
        for n, project in enumerate(projects):
            register(conn, str(n), project)
        for n, (project, revoked) in enumerate(tokens):
            conn.execute(TOKEN, [f"{n:012x}", project, revoked])
        database = open_database(empty_database)
        migrate.prepare(database)
        assert owners.are_shared(database) is is_shared


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_assumed_gives_no_token_a_second_project(
    empty_database: str, open_database: Callable[..., Database], shared: bool
) -> None:
    """A token of the only project is made as before. One of a second project is not made until somebody said whether equal
    names are one person, in whichever way."""
    released.make(empty_database, released.versions()[0])
    with psycopg.connect(empty_database, autocommit=True) as conn:
        register(conn, "1", "shop")
        database = open_database(empty_database)
        migrate.prepare(database)
        api_tokens.make(database, "first", "app", project="shop")
        with pytest.raises(UsageError, match="Nobody has decided"):
            api_tokens.make(database, "second", "app", project="club")
        assert owners.share(database, shared=shared) is not shared
        assert owners.share(database, shared=shared) is False
        api_tokens.make(database, "second", "app", project="club")
        assert owners.are_shared(database) is shared


def test_keys_and_events_that_wait(empty_database: str, open_database: Callable[..., Database]) -> None:
    """A key that was used before the upgrade stays used in its project alone, and an event that waits keeps its phone."""
    released.make(empty_database, released.versions()[0])
    with psycopg.connect(empty_database, autocommit=True) as conn:
        phone = register(conn, "old", "default")
        event = {
            "type": "order",
            "key": "1",
            "title": "Hello",
            "audience": "installations",
            "installations": [str(phone)],
        }
        conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])
        migrate.prepare(open_database(empty_database))
        same = Event("order", "1", "Hello", audience=[phone])
        assert not relevo.enqueue(conn, same).created
        assert relevo.enqueue(conn, Event("order", "2", "Hello", audience=[phone])).created
        for project in ("default", "shop"):
            assert relevo.enqueue(conn, Event("order", "3", "Hello", audience=Owners("ana"), project=project)).created
        waiting = conn.execute("select count(*) from relevo.event_audience where installation_id = %s", [phone])
        assert waiting.fetchone() == (2,)


def test_apps_may_call_the_functions_that_are_new(
    empty_database: str, open_database: Callable[..., Database], admin: psycopg.Connection[Any]
) -> None:
    """After an upgrade each role that could call 0.3's functions may call all of today's, without another grant; no other may."""
    released.make(empty_database, released.versions()[0])
    roles = ("shop_of_0_3", "stranger_of_0_3")
    for role in roles:
        admin.execute(f"drop role if exists {role}".encode())
        admin.execute(f"create role {role}".encode())
    try:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            conn.execute("select relevo.grant_door(%s)", roles[:1])
            migrate.prepare(open_database(empty_database))
            refused = """select f from unnest(relevo.app_functions()) as f
                          where not has_function_privilege(%s, 'relevo.' || f, 'execute')"""
            assert conn.execute(refused, roles[:1]).fetchall() == []
            everything = conn.execute("select cardinality(relevo.app_functions())").fetchone()
            assert (len(conn.execute(refused, roles[1:]).fetchall()),) == everything
            conn.execute(f"drop owned by {roles[0]}".encode())
    finally:
        for role in roles:
            admin.execute(f"drop role {role}".encode())


def test_attributes_of_before_have_their_project(empty_database: str, open_database: Callable[..., Database]) -> None:
    """Attributes that were indexed before the index knew projects are found in the phone's project, and so are those set while it learns them."""
    released.make(empty_database, released.versions()[0])
    database = open_database(empty_database)
    known = migrate.available()
    split = next(n for n, each in enumerate(known) if "projects_of_attributes" in str(each))
    migrate.migrate(database, known[:split], [])
    event = Event("offer", "1", "Hello", audience=Matching(where={"plan": "pro"}), project="shop")
    with psycopg.connect(empty_database, autocommit=True) as conn:
        first = register(conn, "1", "shop")
        conn.execute("update relevo.device_installations set attributes = %s", [Jsonb({"plan": "pro"})])
        conn.execute(
            "insert into relevo.attribute_index (word, seq) select 'plan=\"pro\"', seq from relevo.device_installations on conflict do nothing"
        )
        for count in range(split + 1, len(known) + 1):
            migrate.migrate(database, known[:count], [])
        migrate.prepare(database)
        second = register(conn, "2", "shop")
        relevo.set_attributes(conn, {"plan": "pro"}, installation_id=second)
        assert set(relevo.preview(conn, event, sample=9).sample) == {first, second}
        assert conn.execute("select distinct project from relevo.attribute_index").fetchall() == [("shop",)]
