"""Small apps in the frameworks people use: an order and its event are one transaction, and a page waits for the event."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from support.phones import fan_out
from support.processes import PATIENCE_S, eventually

PROGRAMS = Path(__file__).parents[2] / "support" / "programs"


def live(program: str, dsn: str, conn: psycopg.Connection[Any], orders: list[int], worker: Any) -> Any:
    """Start an app, fan its events out once they are committed, and return what it tells at its end."""
    command = [sys.executable, "-W", "error", PROGRAMS / program, dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as app:
        try:
            eventually(lambda: app.poll() is not None or keys(conn) == orders, "the app's events")
            fan_out(worker)
            out, err = app.communicate(timeout=2 * PATIENCE_S)
        finally:
            app.kill()
    assert (app.returncode, err) == (0, "")
    assert keys(conn) == orders
    assert [order for (order,) in conn.execute("select id from orders order by id")] == orders
    return json.loads(out)


def keys(conn: psycopg.Connection[Any]) -> list[int]:
    """Return the orders that events were committed for."""
    return sorted(int(key) for (key,) in conn.execute("select event_key from relevo.notification_events"))


def told(order: int, shop: dict[str, Any], *, failed: int) -> None:
    """Check what a shop told: one order failed, one was shipped, waiting too early was refused, waiting saw the end."""
    assert shop["failed"] == failed
    assert (shop["shipped"]["state"], shop["shipped"]["title"]) == ("waiting", f"{order} is on its way")
    assert "outside a transaction" in shop["early"]["refused"]
    assert shop["ended"] == {"state": "fanned"}


def test_django(dsn: str, conn, build: Callable[..., Any]) -> None:
    """In `transaction.atomic` an event is enqueued on `django.db.connection`, and jsonb that comes as text is read."""
    told(7, live("django_shop.py", dsn, conn, [7], build()), failed=500)


def test_fastapi(dsn: str, conn, build: Callable[..., Any]) -> None:
    """An AsyncSession of SQLAlchemy and a pooled connection of asyncpg do the same, side by side in one app."""
    alchemy, asyncpg = live("fastapi_shop.py", dsn, conn, [7, 107], build())
    told(7, alchemy, failed=409)
    told(107, asyncpg, failed=409)
