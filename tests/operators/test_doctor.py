"""relevo doctor looks around the tables: each thing that can be wrong is found, named, and told how to mend."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import app, config
from relevo.access import api_tokens
from relevo.app import push_services
from relevo.database.pool import Database
from relevo.operators import actions, doctor, owners
from relevo.sandbox import Sandbox
from relevo.stores.folder import FolderStore
from support.processes import eventually
from support.sending_worker import Relay

NOWHERE = "http://127.0.0.1:9"
HEALTHY = {"version": 180_004, "has_plpgsql": True, "autovacuum": True, "flushes": True, "sees_activity": True}


@pytest.fixture(autouse=True)
def _nothing_dead(conn: psycopg.Connection[Any]) -> None:
    """The rows that tests before this one left dead in their database are no finding of this one's."""
    conn.execute("select pg_stat_reset()")


@pytest.fixture
def worker(relay) -> Relay:
    """A relay on a database that is well."""
    made: Relay = relay(relevo_instance="tests")
    return made


def kinds(worker: Relay, **more: Any) -> set[str]:
    """Look around, and return the kinds of what was found."""
    return {each.kind for each in doctor.look_around(worker.app.database, worker.app.settings, **more)}


def test_nothing_is_found_where_all_is_well(worker: Relay, sandbox, tmp_path: Path) -> None:
    """A database, a store and an Expo that are well give no finding."""
    assert kinds(worker, expo=sandbox.url, store=FolderStore(tmp_path, "relevo", ours=True)) == set()


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"version": 140_011}, "server_too_old"),
        ({"has_plpgsql": False}, "extension_missing"),
        ({"autovacuum": False}, "autovacuum_off"),
        ({"flushes": False}, "commits_unflushed"),
        ({"sees_activity": False}, "activity_hidden"),
    ],
)
def test_a_server_that_does_not_fit(row: dict[str, Any], kind: str) -> None:
    """A server that is too old, lacks plpgsql, has autovacuum off or hides its activity is told from one that is well."""
    assert [each.kind for each in doctor._version(HEALTHY)] == []
    (found,) = doctor._version(HEALTHY | row)
    assert (found.kind, bool(found.hint)) == (kind, True)


def test_commits_that_do_not_wait_for_the_disk(worker: Relay, dsn: str) -> None:
    """A role or a database whose commits do not wait for the disk is told, though a worker's own connections do wait."""
    name = conninfo_to_dict(dsn)["dbname"]
    worker.conn.execute(f"alter database {name} set synchronous_commit = off".encode())
    try:
        with app.database(worker.app.settings, "doctor") as database:
            (found,) = doctor.look_around(database, worker.app.settings)
    finally:
        worker.conn.execute(f"alter database {name} reset synchronous_commit".encode())
    assert (found.kind, found.warning) == ("commits_unflushed", True)


def test_settings(worker: Relay, dsn: str) -> None:
    """A slip in a setting's name is worth a look, a missing RELEVO_INSTANCE a warning; neither is a failure."""
    settings = config.load({"DATABASE_URL": dsn, "OUTBOX_BATCH_SIZ": "3"}, None)
    found = doctor.look_around(worker.app.database, settings)
    told = {each.kind: (each.harmless, each.warning) for each in found}
    assert told == {"setting_suspect": (True, False), "instance_unnamed": (False, True)}


def test_a_clock_that_is_wrong(worker: Relay) -> None:
    """A clock that differs from the database's by more than moments is told."""
    import time  # noqa: PLC0415

    (found,) = doctor.look_around(worker.app.database, worker.app.settings, clock=lambda: time.time() - 90)
    assert found.kind == "clock_skewed"
    assert "differ by 90 s" in found.what


def test_after_a_rollback(worker: Relay) -> None:
    """A schema of a newer version that serves this one is examined like any other."""
    row = "insert into relevo.schema_migrations (version, name, checksum, needs, applied_by) values (9999, 'later', 'x', '0.3.0', '9.0.0')"
    worker.conn.execute(row)
    try:
        assert doctor.look_around(worker.app.database, worker.app.settings) == []
    finally:
        worker.conn.execute("delete from relevo.schema_migrations where version = 9999")


@pytest.mark.parametrize("error", [pg.InsufficientPrivilege("permission denied for view pg_stat_replication")])
def test_a_hidden_view_costs_one_check(worker: Relay, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Where the role may not read a view, doctor says so, and the checks after it are made."""

    def hidden(*_: object) -> Any:
        raise error

    monkeypatch.setattr(doctor, "_vacuum", hidden)
    found = doctor.look_around(worker.app.database, worker.app.settings, expo=NOWHERE)
    assert [(each.kind, each.harmless) for each in found] == [("view_hidden", True), ("expo_unreachable", False)]
    assert "pg_stat_replication" in found[0].what


def test_a_store_and_an_expo_out_of_reach(worker: Relay, tmp_path: Path) -> None:
    """An archive whose folder is gone and an Expo nobody answers for are named with their address."""
    gone = FolderStore(tmp_path / "gone", "relevo", ours=False)
    found = doctor.look_around(worker.app.database, worker.app.settings, expo=NOWHERE, store=gone)
    assert [each.kind for each in found] == ["store_unreachable", "expo_unreachable"]
    assert NOWHERE in found[1].what


def test_an_access_token_is_tried_before_the_first_push(command, monkeypatch) -> None:
    """A token that Expo refuses is named by its setting, one that it takes is not; neither is repeated."""
    with Sandbox(access_token="good") as sandbox:
        monkeypatch.setenv("EXPO_BASE_URL", sandbox.url)
        for given, kinds in (("bad-secret", ["token_refused"]), ("good", [])):
            monkeypatch.setenv("EXPO_ACCESS_TOKEN", given)
            said = command("doctor", "--json")
            assert [line["kind"] for line in said.lines if line["kind"].startswith("token")] == kinds
            assert "bad-secret" not in said.out


def test_a_copied_database(worker: Relay) -> None:
    """A database that looks like a copy is wrong, and the next step is to adopt it."""
    worker.conn.execute("insert into relevo.instance (database_oid, name) values (1, 'tests')")
    (found,) = doctor.look_around(worker.app.database, worker.app.settings)
    assert (found.kind, found.harmless, found.hint) == (
        "database_copied",
        False,
        "If it belongs here, run `relevo adopt`.",
    )


def test_dead_rows(worker: Relay) -> None:
    """A table with far more dead rows than live ones is named, with the statement that cleans it."""
    worker.conn.execute("alter table relevo.push_minutes set (autovacuum_enabled = off)")
    try:
        worker.conn.execute(
            """insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed)
               select 'p', now() + n * interval '1 minute', 0, 0, 0, 0, 0 from generate_series(1, 12000) n"""
        )
        worker.conn.execute("delete from relevo.push_minutes")
        worker.conn.execute("select pg_stat_force_next_flush()")
        eventually(lambda: kinds(worker) == {"vacuum_behind"}, "the dead rows are counted")
    finally:
        worker.conn.execute("alter table relevo.push_minutes reset (autovacuum_enabled)")
        worker.conn.execute("vacuum relevo.push_minutes")


def test_what_keeps_dead_rows(worker: Relay, dsn: str, monkeypatch) -> None:
    """An old transaction, a prepared one and a slot that nobody reads are each named, with how to end them."""
    monkeypatch.setattr(doctor, "_LONG_S", 0.0)
    monkeypatch.setattr(doctor, "_MUCH_LOG", -1)
    with psycopg.connect(dsn, application_name="a report") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from relevo.workers")
        found = {each.kind: each for each in doctor.look_around(worker.app.database, worker.app.settings)}
        assert set(found) == {"snapshot_old"}
        assert "a report" in found["snapshot_old"].what
        assert f"pg_terminate_backend({holder.info.backend_pid})" in found["snapshot_old"].hint
    with psycopg.connect(dsn) as other:
        other.execute("create table public.left_behind (id int)")
        other.execute("prepare transaction 'forgotten'")
    worker.conn.execute("select pg_create_physical_replication_slot('unread', true)")
    try:
        assert kinds(worker) == {"prepared_old", "slot_stale"}
    finally:
        worker.conn.execute("rollback prepared 'forgotten'")
        worker.conn.execute("select pg_drop_replication_slot('unread')")


@pytest.fixture
def plain(admin: psycopg.Connection[Any], dsn: str) -> Iterator[Database]:
    """The database as a role sees it that may connect and nothing else."""
    admin.execute("create role relevo_doctor login password 'plain'")
    reached = make_conninfo(dsn, user="relevo_doctor", password="plain")
    opened = Database(reached, reached, config.load({}, None))
    yield opened
    opened.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop owned by relevo_doctor cascade")
    admin.execute("drop role relevo_doctor")


def test_rights(plain: Database, dsn: str, worker: Relay) -> None:
    """A role that may not write Relevo's tables, or not see others' transactions, learns what to grant."""
    worker.conn.execute("grant usage on schema relevo to relevo_doctor")
    worker.conn.execute("grant select on all tables in schema relevo to relevo_doctor")
    worker.conn.execute("grant execute on all functions in schema relevo to relevo_doctor")
    found = {each.kind: each for each in doctor.look_around(plain, worker.app.settings)}
    assert set(found) == {"activity_hidden", "rights_missing"}
    assert "`relevo grant ROLE --worker`" in found["rights_missing"].hint


def test_equal_owner_names_that_nobody_decided_about(worker: Relay) -> None:
    """What an upgrade assumed of owner names is named once a token of one project stands beside another project."""
    worker.conn.execute("update relevo.owner_sharing set shared = true, said_at = null")
    worker.register("ana", owner="ana", project="shop")
    api_tokens.make(worker.app.database, "shop", "app", project="shop")
    assert "owner_names_undecided" not in kinds(worker)
    worker.register("bea", owner="ana", project="bank")
    assert "owner_names_undecided" in kinds(worker)
    owners.share(worker.app.database, shared=True)
    assert "owner_names_undecided" not in kinds(worker)


def test_the_command_shows_all_of_it(worker: Relay, command, monkeypatch) -> None:
    """`relevo doctor` prints what it found around the tables, too, and leaves with 1 if something is wrong."""
    monkeypatch.setenv("EXPO_BASE_URL", NOWHERE)
    said = command("doctor")
    assert (said.code, "Wrong: Expo cannot be reached at http://127.0.0.1:9" in said.out) == (1, True)


def test_what_is_held_up(worker: Relay, sandbox, command) -> None:
    """A pause, an open breaker, a brake and what is held are each named with the way on, though nothing waits for them."""
    worker.tell("ana")
    worker.dispatch()
    assert kinds(worker) == set()
    actions.pause(worker.app.database, "dispatch", "the texts are wrong")
    actions.pause(worker.app.database, "ingest", "it is slow", source="folder")
    worker.conn.execute(
        """update relevo.projects set breaker = 'open', breaker_by = 'request', breaker_since = now(), breaker_reason = 'HTTP_503', probe_at = now(),
                                      pruning_stopped_at = now()"""
    )
    event = worker.tell("eva", type="loop")
    worker.conn.execute("update relevo.notification_events set state = 'held' where id = %s", [event])
    worker.conn.execute(
        """insert into relevo.held_events (event_id, stream_id, held_at, reason)
           select %s, s.id, now(), 'x' from relevo.event_streams s where s.event_type = 'loop'""",
        [event],
    )
    found = {f"{each.what} {each.hint}": each for each in doctor.look_around(worker.app.database, worker.app.settings)}
    assert all(each.warning for each in found.values())
    assert sorted(each.kind for each in found.values()) == [
        "cycle_paused", "cycle_paused", "project_stopped", "runaway_held", "tokens_unregistered",
    ]  # fmt: skip
    said = " ".join(" ".join(found).split())
    for each in ("dispatch has been paused for", "the texts are wrong", "relevo resume ingest:folder", "HTTP_503"):
        assert each in said
    assert "`relevo release --type loop`" in said
    assert "No faults found" not in command("doctor").out


def test_a_webhook_that_nobody_wrote_down(worker: Relay, command, monkeypatch, tmp_path: Path) -> None:
    """News for a webhook that is not in WEBHOOKS_FILE are told of, when they are subscribed to and by doctor."""
    assert "Warning:" not in command("news", "subscribe", "app").out
    file = tmp_path / "webhooks.json"
    file.write_text('{"billing": {"url": "https://example.com/hook", "secret": "whsec_%s"}}' % ("c3Nz" * 8))
    file.chmod(0o600)
    monkeypatch.setenv("WEBHOOKS_FILE", str(file))
    settings = config.load({"WEBHOOKS_FILE": str(file), "RELEVO_INSTANCE": "tests"}, None)
    trouble = partial(push_services.webhook_trouble, settings)
    assert "Warning:" not in command("news", "subscribe", "known", "--webhook", "billing").out
    assert doctor.look_around(worker.app.database, settings, webhook_trouble=trouble) == []
    assert (
        "Warning: no webhook biling is in WEBHOOKS_FILE here"
        in command("news", "subscribe", "slip", "--webhook", "biling").out
    )
    (found,) = doctor.look_around(worker.app.database, settings, webhook_trouble=trouble)
    assert (found.kind, "News for slip" in found.what, found.warning) == ("webhook_unknown", True, True)
    file.write_text("{")
    assert {each.kind for each in doctor.look_around(worker.app.database, settings, webhook_trouble=trouble)} == {
        "webhook_unknown"
    }
