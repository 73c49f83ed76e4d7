"""Every command that somebody needs works for a role that owns one schema and comes in through a pooler."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.fixtures.hosted_database import LIMITS, ROLE, HostedDatabase
from support.relevo_command import Command, make_command

pytestmark = pytest.mark.needs("pgbouncer")

FILE = """
event_types:
  order.shipped: {lane: urgent, ttl_s: 3600}
projects:
  default:
    language: es
    quiet_hours: {windows: ["22:00-07:00"], zone: America/Santiago}
    caps: [{per: day, most: 50}]
"""


def found(command: Command) -> dict[str, dict[str, Any]]:
    """Return what doctor finds, by its kind."""
    rows = [row for row in command("doctor", "--json").lines if "kind" in row]
    return {row["kind"]: row for row in rows}


def test_the_role_is_restricted(hosted: HostedDatabase) -> None:
    """The role is no superuser, creates neither roles nor schemas, its sessions have the limits, and LISTEN hears nothing."""
    asked = (
        "select rolsuper or rolcreaterole or rolcreatedb or rolreplication from pg_roles where rolname = current_user"
    )
    with psycopg.connect(hosted.pooled, autocommit=True, prepare_threshold=None) as role:
        assert role.execute(asked).fetchone() == (False,)
        for name, value in LIMITS.items():
            assert role.execute(f"show {name}".encode()).fetchone() == (value,)
        for refused in ("create schema more", "create role more", "create table public.more (id int)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                role.execute(refused.encode())
        role.execute("listen relevo_wake")
        with psycopg.connect(hosted.pooled, autocommit=True) as other:
            other.execute("notify relevo_wake, 'y'")
        assert list(role.notifies(timeout=0.3)) == []


def test_from_nothing_to_an_event(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    push_service: Any,
    hosted: HostedDatabase,
    tmp_path: Path,
) -> None:
    """The role migrates, applies a file, enqueues and ticks, and each command ends well, by the pooler's address alone."""
    monkeypatch.setenv("EXPO_BASE_URL", push_service.url)
    monkeypatch.setenv("RELEVO_INSTANCE", "tests")
    command = make_command(monkeypatch, capsys, hosted.pooled)
    file = tmp_path / "relevo.yaml"
    file.write_text(FILE)
    assert command("migrate").out.split() == ["ran", "baseline"]
    assert command("apply", file, "--plan").code == 3, "there is something to apply"
    assert command("apply", file).code == 0
    assert command("apply", file, "--plan").code == 0, "and nothing after it was applied"
    for words in (("grant", ROLE), ("grant", ROLE, "--worker"), ("token", "make", "shop", "--role", "app")):
        said = command(*words)
        assert said.code == 0, said.err
    assert command("enqueue", "order.shipped", "1", "--title", "On its way", "--everyone").code == 0
    ticked = command("tick", "--runners", "reaper,fanout,digest,dispatch,receipt")
    assert ticked.code == 0, ticked
    assert command("status").code == 0
    assert json.loads(command("events", "--json").out)["state"] in ("fanned", "finished")
    for words in (("event", "order.shipped", "1"), ("runs",), ("audit",), ("installations",), ("sources",)):
        assert command(*words).code == 0, words
    assert command("migrate").code == 0


def test_what_the_role_may_not_do_is_named_with_its_remedy(command: Command, conn: psycopg.Connection[Any]) -> None:
    """Without the schema for old months doctor and cleanup say which statement the service's staff has to run; then both are content."""
    told = found(command)
    assert set(told) == {"activity_hidden", "archive_schema_missing", "no_worker"}
    cleanup = command("run-cycle", "cleanup")
    assert cleanup.code == 1
    [statement] = re.findall(r"run: (CREATE SCHEMA .+?)\.?$", told["archive_schema_missing"]["hint"])
    assert statement == f"CREATE SCHEMA relevo_archive AUTHORIZATION {ROLE}"
    assert statement in " ".join(cleanup.out.split())
    conn.execute(statement.encode())
    assert set(found(command)) == {"activity_hidden", "no_worker"}
    cleanup = command("run-cycle", "cleanup")
    assert cleanup.code == 0, cleanup
