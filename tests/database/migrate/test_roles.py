"""Roles with few rights: who may not create can still work, and who owns the schema needs no right on the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relevo.core.errors import MigrationError
from relevo.database import functions, migrate

ROLE = "relevo_plain"


@pytest.fixture
def as_plain(admin: psycopg.Connection[Any], server) -> Iterator[Callable[[str], str]]:
    """Return a database's DSN for a role that may log in and, by itself, do nothing else."""
    admin.execute(sql.SQL("create role {} login password 'plain'").format(sql.Identifier(ROLE)))
    used: list[str] = []

    def make(dsn: str) -> str:
        used.append(dsn)
        return make_conninfo(dsn, user=ROLE, password="plain")

    yield make
    for dsn in used:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(ROLE)))
    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(ROLE)))


def test_a_role_that_may_not_create_can_run_on_a_migrated_database(dsn, conn, as_plain, open_database, command) -> None:
    """After `relevo grant ROLE --worker` prepare changes nothing and the cycles run, nightly cleanup included."""
    plain = as_plain(dsn)
    granted = command("grant", ROLE, "--worker", database_url=dsn)
    assert (granted.ends(), "may now run Relevo" in granted.stdout) == (0, True), granted.stderr
    with psycopg.connect(plain) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("create table relevo.mine (id int)")
    assert migrate.prepare(open_database(plain)) == []
    ran = command("tick", database_url=plain)
    assert ran.ends() == 0, ran.stderr
    rounds = dict(conn.execute("select cycle, rounds from relevo.cycle_state where rounds > 0").fetchall())
    assert rounds == {"reaper": 1, "fanout": 1, "digest": 1, "dispatch": 1, "receipt": 1, "cleanup": 1}


FORGED = (
    "delete from relevo.audit_log",
    "update relevo.audit_log set actor = 'somebody else'",
    "update relevo.audit_log set outcome = 'ok', finished_at = now()",
    "truncate relevo.audit_log",
    "insert into relevo.audit_log (at, actor, face, action) values (now() - interval '9 years', 'x', 'cli', 'pause')",
    "insert into relevo.audit_log (actor, face, action, outcome, finished_at) values ('x', 'cli', 'pause', 'ok', now())",
)


def test_the_workers_role_cannot_forge_the_audit_log(dsn, conn, as_plain, open_database, command) -> None:
    """The worker's role adds entries and ends each once; it changes and deletes none, but for those past retention, which is 30 days at least.
    A second grant, and one to the owner itself, change nothing of this. (The app's role reaches no table: tests/client/test_client_privileges.py.)"""
    plain = as_plain(dsn)
    for _ in range(2):
        assert command("grant", ROLE, "--worker", database_url=dsn).ends() == 0
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("select relevo.grant_worker(current_user::text)")
        owner.execute("update relevo.audit_log set actor = actor")
    assert command("token", "make", "x", "--role", "viewer", database_url=plain).ends() == 0
    before = conn.execute("select * from relevo.audit_log order by id").fetchall()
    assert [row[6] for row in before] == ["ok"] * 3
    with psycopg.connect(plain, autocommit=True) as worker:
        for forged in FORGED:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(forged)
        worker.execute("select relevo.finish_audit(id, 'failed', '{}', 'forged') from relevo.audit_log")
        assert worker.execute("select relevo.prune_audit(-1000000, 1000)").fetchall() == []
        assert conn.execute("select * from relevo.audit_log order by id").fetchall() == before
        conn.execute("update relevo.audit_log set at = now() - interval '31 days' where id = %s", [before[0][0]])
        assert worker.execute("select relevo.prune_audit(1, 1000)").fetchall() == [(before[0][0],)]
    assert found(command, plain) & {"rights_missing", "audit_unprotected"} == set()
    conn.execute(f"grant update, delete on relevo.audit_log to {ROLE}")  # as 0.3.0 did
    assert found(command, plain) & {"rights_missing", "audit_unprotected"} == {"audit_unprotected"}
    assert "audit_unprotected" not in found(command, dsn)
    conn.execute("select relevo.grant_worker(%s)", [ROLE])
    asked = "select has_table_privilege(%s, 'relevo.audit_log', p) from unnest(array['update', 'delete', 'truncate', 'trigger', 'references']) p"
    assert set(conn.execute(asked, [ROLE]).fetchall()) == {(False,)}


def found(command: Any, url: str) -> set[str]:
    """Return what doctor finds as the role of an address."""
    doctor = command("doctor", "--json", database_url=url)
    doctor.ends()
    return {json.loads(line).get("kind") for line in doctor.stdout.splitlines()}


def test_a_role_that_may_not_create_is_told_who_may(empty_database, as_plain, open_database) -> None:
    """On a database that needs migrating, the role gets a sentence and a next step."""
    with pytest.raises(MigrationError, match=r"may not make the schema relevo.*permission denied.*as a role that may"):
        migrate.prepare(open_database(as_plain(empty_database)))


def test_a_new_version_on_an_old_schema_names_the_owner(
    migrated: Any, empty_database: str, as_plain: Any, open_database: Any, beyond: Any, look: Any
) -> None:
    """A worker's role that starts a newer version before the schema was migrated is told who has to migrate it."""
    look.execute("select relevo.grant_worker(%s)", [ROLE])
    more = beyond("alter table relevo.workers add column more int;")
    [owner] = look.execute("select nspowner::regrole::text from pg_namespace where nspname = 'relevo'").fetchone()
    said = rf"the role {ROLE} may not migrate it: .*Run `relevo migrate` of this version as {owner}, the owner"
    with pytest.raises(MigrationError, match=said):
        migrate.prepare(open_database(as_plain(empty_database)), more)


def test_changed_functions_name_the_owner_too(
    migrated: Any, empty_database: str, as_plain: Any, open_database: Any, look: Any
) -> None:
    """A worker's role that brings changed functions is told who has to migrate, and changes none."""
    look.execute("select relevo.grant_worker(%s)", [ROLE])
    [first, *others] = functions.available()
    changed = [functions.Function(first.name, f"{first.text}\n-- changed\n"), *others]
    with pytest.raises(
        MigrationError, match=rf"the role {ROLE} may not migrate it: .*permission denied for schema relevo"
    ):
        migrate.prepare(open_database(as_plain(empty_database)), files=changed)
    [plan] = migrate.plan(open_database(as_plain(empty_database)), files=changed)
    assert str(plan) == f"functions: 1 changed ({first.name})"


def test_who_owns_the_schema_needs_no_right_on_the_database(
    empty_database, look, as_plain, open_database, beyond
) -> None:
    """An administrator may make an empty schema for the role, which then migrates now and at every upgrade."""
    plain = open_database(as_plain(empty_database))
    look.execute(f"create schema relevo authorization {ROLE}")
    assert [str(done) for done in migrate.migrate(plain)] == ["baseline"]
    more = beyond("create table relevo.more (id int);")
    assert migrate.prepare(plain, more) == more[-1:]
