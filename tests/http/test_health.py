"""Health over HTTP: alive, ready, and what is wrong if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from relevo import config
from relevo.app import App
from relevo.core.errors import MigrationError
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.http.health import Readiness, is_ready
from relevo.http.server import HttpServer
from support.http_server import Served
from support.processes import eventually


def test_a_process_that_answers_is_alive(served: Served) -> None:
    """Live asks nobody for anything, needs no token, and every answer has a request id."""
    answer = served.client().get("/health/live", headers={"X-Request-Id": "mine-1"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "alive"
    assert answer.headers["x-request-id"] == "mine-1"
    strange = served.client().get("/health/live", headers={"X-Request-Id": 'a b"c'})
    assert strange.headers["x-request-id"] not in ("", 'a b"c')


def test_a_fleet_with_a_living_worker_is_ready(served: Served) -> None:
    """With database, migrations and a worker that runs cycles, ready says so for each of them."""
    parts = ("database", "migrations", "instance", "scheduler")
    answer = served.client().get("/health/ready")
    assert answer.json() == {"status": "ready", "checks": dict.fromkeys(parts, "ok")}
    assert answer.status_code == 200


def test_what_is_missing_is_named(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """Without a living worker, then with a migration too few, ready is 503 and says what to do."""
    served = serve()
    conn.execute("update relevo.workers set stopped_at = now()")
    answer = served.client().get("/health/ready")
    assert answer.status_code == 503
    assert "relevo run" in answer.json()["checks"]["scheduler"]
    assert answer.headers["retry-after"]
    conn.execute(
        "delete from relevo.schema_migrations where version = (select max(version) from relevo.schema_migrations)"
    )
    other = serve(worker_id="other").client().get("/health/ready")
    assert other.status_code == 503
    assert "relevo migrate" in other.json()["checks"]["migrations"]


def test_a_copied_database_is_not_ready(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """A database that belongs elsewhere makes ready 503, with the way out."""
    served = serve()
    conn.execute("insert into relevo.instance (database_oid, name) values (1, 'home')")
    answer = served.client().get("/health/ready")
    assert answer.status_code == 503
    assert "relevo adopt" in answer.json()["checks"]["instance"]


def test_strangers_learn_no_names(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """What is wrong is named without workers, instances, identifiers, addresses or files; the log has them."""
    served = serve(worker_id="worker-of-ours", relevo_instance="our-instance")
    conn.execute("insert into relevo.instance (database_oid, name) values (4711, 'their-home')")
    with capture_logs() as lines:
        told = served.client().get("/health/ready").text
    for name in ("worker-of-ours", "our-instance", "their-home", "4711", conn.info.dbname):
        assert name not in told
    [line] = [each for each in lines if each["event"] == "not_ready"]
    assert "their-home" in line["problem"]
    conn.execute("delete from relevo.schema_migrations where version > 60")
    told = serve(worker_id="other").client().get("/health/ready").json()["checks"]["migrations"]
    assert ".sql" not in told
    assert "_" not in told


def test_a_lost_database_is_told_without_its_address() -> None:
    """Where PostgreSQL cannot be reached, neither host, port nor user are told."""
    nowhere = "postgresql://somebody:secret@127.0.0.1:9/somewhere"
    settings = config.load({"DATABASE_CONNECT_TIMEOUT_MS": "1000"}, None)
    database = Database(nowhere, nowhere, settings)
    try:
        found = Readiness(settings, scheduled=False).look(database)
    finally:
        database.close()
    assert not is_ready(found)
    for name in ("somebody", "secret", "127.0.0.1", "somewhere"):
        assert name not in str(found)


def test_a_database_whose_migrations_cannot_be_read_is_reached(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to be away; what is wrong is told in the log."""

    def fail(_database: Database) -> list[str]:
        raise MigrationError("They cannot be read.")

    monkeypatch.setattr(migrate, "missing", fail)
    with capture_logs() as lines:
        found = served.client().get("/health/ready").json()["checks"]
    assert (found["database"], found["migrations"]) == ("ok", "cannot be told: `relevo doctor` and the log say why")
    assert "They cannot be read." in str(lines)


def test_a_taken_port_is_told_once(build: Callable[..., App]) -> None:
    """However often it is tried, the log has one line, and health the problem as long as it lasts."""
    server = HttpServer(app := build(), scheduled=False)
    with capture_logs() as lines:
        server._complain("taken"), server._complain("taken")
    assert (len(lines), app.worker.http) == (1, {"problem": "taken"})


def test_a_server_that_stopped_holds_no_connection(build: Callable[..., App], conn: psycopg.Connection[Any]) -> None:
    """Its connections to the database go with it: those of requests, and the one that looks whether it is ready."""

    def held() -> set[str]:
        named = "select application_name from pg_stat_activity where datname = current_database()"
        return {" ".join(name.split()[:2]) for (name,) in conn.execute(named)} & {"relevo http", "relevo ready"}

    stopped = Served(build())
    stopped.start()
    assert stopped.client("viewer").get("/v1/caps").status_code == 200
    assert stopped.client().get("/health/ready").status_code == 200
    assert held() == {"relevo http", "relevo ready"}
    stopped.close()
    eventually(lambda: not held(), "its connections end")
