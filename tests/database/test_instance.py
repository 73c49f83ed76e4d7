"""A copied database pushes to nobody until a person adopts it; a failover, which keeps its identity, changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import app, config, embedded
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Step
from relevo.database import instance
from relevo.database.pool import Database
from relevo.operators import doctor, fleet
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from support import postgres_folder
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay
from support.standby import stream

COPY = "dispatch_copy"
FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": "20"}


@pytest.fixture
def copy(admin: psycopg.Connection[Any], dsn: str) -> Iterator[Callable[[], str]]:
    """Copy the test's database as a template, which ends its connections, and return the copy's DSN."""

    def make() -> str:
        name = conninfo_to_dict(dsn)["dbname"]
        admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [name])
        admin.execute(f"create database {COPY} template {name}".encode())
        return make_conninfo(dsn, dbname=COPY)

    yield make
    admin.execute(f"drop database if exists {COPY} with (force)".encode())


def started(relay: Callable[..., Relay], **settings: object) -> Relay:
    """A relay whose database knows where it belongs, as after `relevo run` started."""
    made = relay(**settings)
    instance.record(made.app.database, made.app.settings)
    return made


def outcomes(worker: Relay) -> dict[str, str]:
    """Run every cycle by hand, and return the outcomes."""
    return {name: worker.run(name).outcome for name in worker.app.registry}


def trouble(worker: Relay) -> str:
    """Return the first problem of the fleet's health."""
    return fleet.status(worker.app.database, worker.app.settings).problems[0]


def test_a_copy_rests_until_it_is_adopted(relay, copy, command, monkeypatch) -> None:
    """In a copy every cycle but the reaper is skipped and says why; adopted, it sends what was queued, and says so."""
    first = started(relay, folder_source_dir="/tmp")
    first.tell("ana")
    first.enqueue(audience=[first.phones["ana"]])
    copied = copy()
    worker = relay(database_url=copied, folder_source_dir="/tmp")
    ran = outcomes(worker)
    assert ran.pop("reaper") in ("ok", "idle")
    assert set(ran) == {"ingest:folder", "fanout", "digest", "dispatch", "receipt", "cleanup", "archive-export"}
    assert set(ran.values()) == {"skipped"}
    assert worker.received("ana") == 0
    reason = worker.run("dispatch").reason
    assert "looks like a copy" in reason
    assert "`relevo adopt`" in reason
    assert trouble(worker).startswith("this database looks like a copy, so Relevo sends nothing")

    monkeypatch.setenv("DATABASE_URL", copied)
    monkeypatch.delenv("RELEVO_INSTANCE")
    assert command("status").out.startswith("Not healthy: this database looks like a copy")
    asked = command("adopt")
    assert (asked.code, "Give --yes" in asked.err) == (2, True)
    assert "1 delivery that is due now" in asked.out
    assert "1 event that waits for its fan-out" in asked.out
    with psycopg.connect(copied, autocommit=True) as ear:
        ear.execute("listen relevo_wake")
        adopted = json.loads(command("adopt", "--yes", "--json").out)
        woken = {call.payload for call in ear.notifies(timeout=PATIENCE_S, stop_after=3)}
    assert (adopted["adopted"], woken) == (True, {"fanout", "dispatch", "receipt"})
    assert adopted["queued"].items() >= {"deliveries_due": 1, "deliveries_queued": 1, "events_waiting": 1}.items()
    with psycopg.connect(copied) as connection:
        (former, by) = connection.execute("select former, adopted_by from relevo.instance").fetchall()[0]
    assert (former["queued"], "@" in by) == (adopted["queued"], True)
    worker.drain()
    assert (worker.run("fanout").outcome, worker.run("dispatch").outcome) == ("ok", "ok")
    assert worker.received("ana") == 2
    assert "there is nothing to adopt" in command("adopt").out


def test_another_name_is_another_instance(relay) -> None:
    """A copied volume keeps server and database; RELEVO_INSTANCE tells it apart, set, changed or missing."""
    first = started(relay, relevo_instance="production")
    first.tell("ana")
    staging, nameless = relay(relevo_instance="staging"), relay()
    for other, told in ((staging, "RELEVO_INSTANCE is staging here"), (nameless, "RELEVO_INSTANCE is unset here")):
        report = other.run("dispatch")
        assert (report.outcome, told in report.reason) == ("skipped", True), report
        assert "restore the former RELEVO_INSTANCE" in trouble(other)
    assert first.received("ana") == 0
    assert first.run("dispatch").outcome == "ok"
    assert first.received("ana") == 1


def told(worker: Relay) -> dict[str, str]:
    """Return the problems that health finds with the settings of a worker, by their codes."""
    found = fleet.status(worker.app.database, worker.app.settings).problems
    return {each.code: str(each) for each in found}


@pytest.fixture
def two_workers(relay) -> tuple[Relay, Relay]:
    """A worker at home, at work, and one beside it under another name."""
    home = started(relay, relevo_instance="production")
    home.app.heartbeat.beat()
    return home, relay(relevo_instance="staging")


def test_a_worker_that_rests_is_seen(two_workers: tuple[Relay, Relay], command, monkeypatch) -> None:
    """Whoever looks from home learns which worker rests and why, from its start on, and no longer once it is mended."""
    home, other = two_workers
    monkeypatch.setenv("RELEVO_INSTANCE", "production")
    shown = dict(line.split()[:2] for line in command("status").out.splitlines() if len(line.split()) > 1)
    assert [shown[each.app.worker.worker_id] for each in two_workers] == ["alive", "rests"]
    rests, works = other.app.worker.worker_id, home.app.worker.worker_id
    why = "it belongs to the instance production, and RELEVO_INSTANCE is staging here"
    for _ in range(2):
        problem = told(home)["worker_rests"]
        assert problem.startswith(f"worker {rests} rests and sends nothing"), problem
        assert why in problem
        assert f"to that of worker {works}, " in problem
        other.app.heartbeat.beat()
    home.conn.execute("update relevo.instance set name = 'staging', recorded_at = clock_timestamp()")
    for worker in two_workers:
        worker.app.heartbeat.beat()
    assert told(other)["worker_rests"].startswith(f"worker {works} rests")


def test_a_shell_under_another_name_is_told_so(two_workers: tuple[Relay, Relay], relay) -> None:
    """While workers are at work at home, nobody is advised to adopt: not by status, the doctor or a run that is skipped."""
    works = two_workers[0].app.worker.worker_id
    for name in ("staging", None):
        shell = relay(relevo_instance=name) if name else relay()
        problem = told(shell)["instance_differs"]
        assert problem.startswith(f"RELEVO_INSTANCE is {name or 'unset'} here, and production for worker {works}")
        (found,) = doctor._instance(shell.app.database, shell.app.settings)
        skipped = shell.run("dispatch").reason
        assert found.hint.startswith("Set RELEVO_INSTANCE as that worker has it")
        assert [text for text in (problem, found.what, skipped) if "adopt" in text] == []
    assert "instance_differs" not in told(two_workers[0])


def test_an_adoption_that_would_stop_a_fleet_is_refused(two_workers, command, conn, monkeypatch) -> None:
    """It names the worker and what to do instead, changes nothing and is recorded; forced, or once the fleet stopped, it is done."""
    home, other = two_workers
    other.app.worker.stopped()
    belongs = "select name from relevo.instance"
    monkeypatch.delenv("RELEVO_INSTANCE")
    refused = command("adopt", "--yes")
    assert refused.code == 2
    assert f"Worker {home.app.worker.worker_id} is at work" in " ".join(refused.err.split())
    assert "Set RELEVO_INSTANCE=production in this shell" in " ".join(refused.err.split())
    assert conn.execute(belongs).fetchall() == [("production",)]
    assert conn.execute("select outcome from relevo.audit_log where action = 'adopt'").fetchall() == [("failed",)]

    assert command("adopt", "--yes", "--force").code == 0
    assert conn.execute(belongs).fetchall() == [(None,)]
    home.app.heartbeat.beat()
    monkeypatch.setenv("RELEVO_INSTANCE", "production")
    assert command("adopt", "--yes").code == 0, "who rests is not stopped by it"
    home.app.heartbeat.beat()
    monkeypatch.setenv("RELEVO_INSTANCE", "other")
    assert command("adopt", "--yes").code == 2
    home.app.worker.stopped()
    assert command("adopt", "--yes").code == 0


def test_a_run_under_way_stops(relay) -> None:
    """Whoever finds out with a heartbeat, because the database was exchanged under it, takes no further step."""
    steps = []

    def step(run: Run) -> Step:
        steps.append(run.context.run_id)
        worker.conn.execute("update relevo.instance set database_oid = database_oid + 1")
        worker.app.heartbeat.beat()
        return Step({"steps": 1}, 1, more=True)

    worker = started(relay)
    report = worker.app.runner.run(Cycle("probe", Every(60_000), step), "manual")
    assert (report.outcome, len(steps)) == ("failed", 1)
    assert "it was number" in report.error


def test_who_may_not_ask_for_the_server_goes_by_the_rest(relay, copy, admin) -> None:
    """Where nobody may ask for the server's identifier, the database's number and the name still tell a copy."""
    started(relay)
    copied = copy()
    with psycopg.connect(copied, autocommit=True) as connection:
        connection.execute("drop role if exists relevo_blind")
        connection.execute("create role relevo_blind")
        try:
            connection.execute("revoke execute on function pg_catalog.pg_control_system() from public")
            connection.execute("grant usage, create on schema relevo to relevo_blind")
            connection.execute("alter function relevo.system_identifier() owner to relevo_blind")
            worker = relay(database_url=copied)
            seen = fleet.standing(worker.app.database, worker.app.settings)
            assert (seen.here.system_identifier, seen.home is not None) == (None, True)
            assert worker.run("dispatch").outcome == "skipped"
            connection.execute("update relevo.instance set database_oid = %s", [seen.here.database_oid])
            assert worker.run("dispatch").outcome == "idle"
        finally:
            connection.execute("alter function relevo.system_identifier() owner to current_user")
            connection.execute("drop owned by relevo_blind cascade")
            connection.execute("drop role relevo_blind")


def test_a_failover_keeps_the_identity(prototype: Path, tmp_path: Path) -> None:
    """The same bytes on another server, as a standby has them, are at home; under another name they are a copy."""
    home, standby = tmp_path / "home" / "postgres", tmp_path / "standby" / "postgres"
    settings = config.load({"RELEVO_INSTANCE": "production"}, None)
    postgres_folder.copy(prototype, home)
    with embedded.acquire(home, settings=FAST) as server, _opened(server.dsn, settings) as database:
        instance.record(database, settings)
    eventually(lambda: not (home / "data" / "postmaster.pid").exists(), "the server ends")
    shutil.copytree(home / "data", standby / "data")
    shutil.copy(home / "password", standby / "password")
    with embedded.acquire(standby, settings=FAST) as server, _opened(server.dsn, settings) as database:
        assert fleet.standing(database, settings).differences() == []
        renamed = config.load({"RELEVO_INSTANCE": "staging"}, None)
        (told,) = fleet.standing(database, renamed).differences()
        assert told == "it belongs to the instance production, and RELEVO_INSTANCE is staging here"


def test_a_promoted_standby_is_at_home(prototype: Path, tmp_path: Path) -> None:
    """What was streamed to a standby goes on there once it is promoted: the worker that wrote here writes there, unasked."""
    home, standby = tmp_path / "home" / "postgres", tmp_path / "standby" / "postgres"
    settings = config.load({"RELEVO_INSTANCE": "production"}, None)
    postgres_folder.copy(prototype, home)
    with embedded.acquire(home, settings=FAST) as primary, _opened(primary.dsn, settings) as database:
        stream(primary.dsn, home, standby)
        with embedded.acquire(standby, settings=FAST) as second, _opened(second.dsn, settings) as follower:
            instance.record(database, settings)
            with database.connection() as connection:
                connection.execute("insert into relevo.cycle_state (cycle, source) values ('streamed', '')")
            streamed = "select from relevo.cycle_state where cycle = 'streamed'"
            with psycopg.connect(second.dsn, autocommit=True) as reader:
                eventually(lambda: reader.execute(streamed).fetchall(), "the standby has what was written")
                assert reader.execute("select pg_is_in_recovery()").fetchone() == (True,)
                with pytest.raises(DatabaseUnavailableError):
                    instance.record(follower, settings)
                assert fleet.standing(follower, settings).differences() == []
                reader.execute("select pg_promote()")
            with follower.transaction() as connection:
                assert instance.Guard(settings).look(connection) == ""
                connection.execute("update relevo.cycle_state set cycle = 'promoted' where cycle = 'streamed'")


class _opened:  # noqa: N801 a context
    def __init__(self, dsn: str, settings: config.Settings) -> None:
        self._database = Database(dsn, dsn, settings)

    def __enter__(self) -> Database:
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.close()


def test_the_first_start_records_and_later_ones_do_not(make_settings, conn) -> None:
    """The identity is written once; a start under another name leaves it as it is."""
    for name in ("production", "staging"):
        with app.build(make_settings(relevo_instance=name)) as built:
            instance.record(built.database, built.settings)
    assert conn.execute("select name, database_oid from relevo.instance").fetchall() == [
        (
            "production",
            conn.execute("select oid::bigint from pg_database where datname = current_database()").fetchall()[0][0],
        )
    ]
