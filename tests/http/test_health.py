"""Health over HTTP: alive, ready, and what is wrong if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from serving import Served


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
