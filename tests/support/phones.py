"""Phones for tests: installations and what they ask for, and fan-out by hand, one run or one step at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from relevo.app import App
from relevo.client import values, verbs
from relevo.core.model import Budget, Report, Step
from relevo.runtime.runs import Run, RunContext
from support.processes import PATIENCE_S


def add_phones(conn: psycopg.Connection[Any], count: int, **columns: object) -> list[UUID]:
    """Insert installations that may receive pushes, without a preference, and return their ids in order."""
    given = {"project": "default"} | columns
    names = "".join(f", {name}" for name in given)
    places = "".join(f", %({name})s" for name in given)
    rows = conn.execute(
        f"""
        with made as (
          insert into relevo.device_installations (token{names})
          select 'ExponentPushToken[' || gen_random_uuid() || ']'{places} from generate_series(1, %(count)s)
          returning installation_id, seq)
        select installation_id from made order by seq
        """,
        given | {"count": count},
    ).fetchall()
    return [row[0] for row in rows]


def prefer(conn: psycopg.Connection[Any], phones: Sequence[UUID], name: str = "default", **asked: Any) -> None:
    """Give each phone one named preference; nothing asked is a wildcard."""
    for phone in phones:
        verbs.set_preference(conn, phone, name, values.TenderPreference(**asked))


def fan_out(app: App) -> Report:
    """Run the fan-out cycle once, as by hand."""
    report = app.runner.run(app.registry["fanout"], "manual")
    assert report.outcome in ("ok", "idle"), report
    return report


def fan_out_to_the_end(app: App) -> None:
    """Run the fan-out cycle until it finds nothing to do."""
    for _ in range(100):
        if fan_out(app).outcome == "idle":
            return
    raise AssertionError("fan-out found work a hundred times")


def try_again(conn: psycopg.Connection[Any]) -> None:
    """Have the next try of every event whose fan-out failed come now."""
    conn.execute("update relevo.notification_events set fanout_retry_at = now() where fanout_retry_at is not null")


def one_step(app: App) -> Step:
    """Take one step of fan-out: one slice, or one batch of an ended event."""
    context = RunContext(0, "fanout", "", "manual", app.worker.worker_id, None, datetime.now(UTC))
    run = Run(context, app.settings, app.database, Budget(600_000, 1_000_000), None, None, threading.Event())
    return app.registry["fanout"].step(run)


def called_out(conn: psycopg.Connection[Any]) -> list[str]:
    """Return whom a connection that listens heard called out so far; a call of its own comes after all of them."""
    conn.execute("select pg_notify('relevo_wake', 'end')")
    heard: list[str] = []
    while heard[-1:] != ["end"]:
        heard += [call.payload for call in conn.notifies(timeout=PATIENCE_S, stop_after=1)]
    return heard[:-1]


def reached(conn: psycopg.Connection[Any], event_id: int) -> list[UUID]:
    """Return the installations of an event's deliveries, in the order of their registration, doubles included."""
    rows = conn.execute(
        """
        select d.installation_id from relevo.notification_deliveries d
          left join relevo.device_installations i using (installation_id)
         where d.notification_event_id = %s order by i.seq, d.id
        """,
        [event_id],
    ).fetchall()
    return [row[0] for row in rows]


def event_row(conn: psycopg.Connection[Any], event_id: int) -> dict[str, Any]:
    """Read an event's row."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("select * from relevo.notification_events where id = %s", [event_id]).fetchone()
    assert row is not None
    return row
