"""A program that applies a configuration and does not commit holds up no push, no other route and no other tenant; two files take turns."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import relevo
from support.http_server import Served, phone
from support.phones import fan_out

CONFIG: dict[str, Any] = {
    "event_types": {"order.shipped": {"lane": "urgent"}},
    "categories": {"offers": {"rule": "on", "texts": {"en": {"name": "Offers"}}}},
    "projects": {
        "default": {
            "caps": [{"per": "day", "most": 5, "category": "offers"}],
            "quiet_hours": {"windows": ["22:00-07:00"], "zone": "UTC"},
            "language": "es",
            "news": {"billing": {"kinds": ["delivery.failed"]}},
        }
    },
}
ENOUGH_S = 20.0
"""Far less than a call takes that waits for the open transaction: that one is kept open for the whole test."""


@pytest.fixture
def left_open(served: Served, conn: psycopg.Connection[Any], dsn: str) -> Any:
    """A program that applied a configuration twice, each time another, and has not committed the second one."""
    relevo.apply_config(conn, CONFIG)
    with psycopg.connect(dsn) as program:
        changed = CONFIG | {"event_types": {"order.shipped": {"lane": "bulk", "inbox_days": 3}}}
        changed["categories"] = {"offers": {"rule": "mandatory", "texts": {"en": {"name": "Deals"}}}}
        relevo.apply_config(program, changed)
        yield program
        program.rollback()


def test_it_holds_up_no_push(served: Served, conn: psycopg.Connection[Any], left_open: Any, build: Any) -> None:
    """Events of the type and the category that it changed are enqueued, previewed and fanned out meanwhile, as it was before."""
    phone(conn)
    began = time.monotonic()
    event = {"type": "order.shipped", "key": "1", "title": "Hello", "audience": "everyone", "category": "offers"}
    app = served.client("app")
    assert app.post("/v1/events/preview", event).status_code == 200
    assert app.post("/v1/events", event).status_code == 201
    fan_out(build())
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (1,)
    assert conn.execute("select lane from relevo.notification_events").fetchone() == ("urgent",)
    assert time.monotonic() - began < ENOUGH_S


def test_it_holds_up_no_other_route(served: Served, left_open: Any) -> None:
    """However many plans and applies wait for it, other calls get their answers, and each of these ends with a 503."""
    operator, app = served.client("operator"), served.client("app")
    with ThreadPoolExecutor(12) as several:
        waiting = [
            several.submit(operator.post, f"/v1/config/{verb}", {"config": CONFIG}) for verb in ("plan", "apply") * 6
        ]
        time.sleep(0.3)
        began = time.monotonic()
        answers = [app.get("/v1/events").status_code, operator.get("/v1/event-types").status_code]
        assert time.monotonic() - began < 2
        assert [status for status in answers if status >= 500] == []
        assert {each.result().status_code for each in waiting} == {503}
    left_open.rollback()
    assert operator.post("/v1/config/plan", {"config": CONFIG}).json() == {"changes": []}


def test_two_files_take_turns(conn: psycopg.Connection[Any], dsn: str) -> None:
    """The second waits for the first one's commit, and then changes what the first one left, whole."""
    other = {"event_types": {"order.shipped": {"ttl_s": 60}}}
    done = threading.Event()

    def apply_the_other() -> list[Any]:
        with psycopg.connect(dsn) as second:
            changes = list(relevo.apply_config(second, other).changes)
        done.set()
        return changes

    with psycopg.connect(dsn) as first, ThreadPoolExecutor(1) as beside:
        relevo.apply_config(first, {"event_types": {"order.shipped": {"inbox_days": 3}}})
        told = beside.submit(apply_the_other)
        assert not done.wait(0.5)
        first.commit()
        [change] = told.result(ENOUGH_S)
    assert (change.before, change.after) == ({"inbox_days": 3}, {"ttl_s": 60})
