"""Old months for tests: deliveries, journal, events and items as they would be a while ago, and cleanup by hand."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

from relevo import config
from relevo.app import App, archive_store
from relevo.core.model import Report
from relevo.core.ports import ArchiveStore
from relevo.cycles import cleanup
from relevo.cycles.export import Export
from relevo.runtime.runs import BUDGET, Run, RunContext

TODAY = datetime.now(UTC).date()

# Where deliveries stand that are not final, or failed for good.
QUEUED = """
select relevo.queue_deliveries(%(days)s::date[], %(ids)s::bigint[], array_fill(now(), array[cardinality(%(ids)s::bigint[])]))
"""
AWAITED = """
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select d.project, now(), max(d.last_attempt_at), array_agg(d.event_day), array_agg(d.id), array_agg(d.installation_id),
       array_agg(d.provider_ticket_id), array_agg(d.token_version), array_agg(d.attempt_count)
  from unnest(%(days)s::date[], %(ids)s::bigint[]) with ordinality as k(event_day, id, n)
  join relevo.notification_deliveries d on d.event_day = k.event_day and d.id = k.id and d.status = 'sent'
 group by d.project, k.n / 100
"""
DEAD = """
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select d.event_day, d.id, d.notification_event_id, d.project, d.last_error_code, d.completed_at
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  join relevo.notification_deliveries d on d.event_day = k.event_day and d.id = k.id and d.status = 'failed'
"""


def month_ago(months: int) -> date:
    """Return the first day of the month so many months ago."""
    count = TODAY.year * 12 + TODAY.month - 1 - months
    return date(count // 12, count % 12 + 1, 1)


def add_partitions(conn: psycopg.Connection[Any], month: date) -> None:
    """Make the partitions of one month."""
    conn.execute("select relevo.ensure_partitions(%s, 1)", [month])


def add_old_deliveries(
    conn: psycopg.Connection[Any], month: date, count: int, *, status: str = "ok", event: int = 1
) -> None:
    """Insert deliveries of a month, each in its place, one in seven failed with words in several alphabets."""
    add_partitions(conn, month)
    made = conn.execute(
        """
        insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
          last_attempt_at, completed_at, created_at, updated_at, provider_ticket_id, last_error_code, last_error_message)
        select %(month)s::date + g %% 28, %(event)s, gen_random_uuid(), 'tender.new',
               case when g %% 7 = 0 and %(status)s = 'ok' then 'failed' else %(status)s end, 1, %(month)s::timestamptz + g * interval '1 ms',
               case when %(status)s not in ('pending', 'retryable', 'sent') then %(month)s::timestamptz + g * interval '7 ms' end,
               %(month)s, %(month)s, gen_random_uuid()::text,
               case when g %% 7 = 0 then 'MessageRateExceeded' end,
               case when g %% 7 = 0 then E'demasiados, "ñandú" \\n 📋 \\\\ {a,b} \\t ' || g end
          from generate_series(1, %(count)s) g
        returning event_day, id
        """,
        {"month": month, "count": count, "status": status, "event": event},
    ).fetchall()
    days, ids = [row[0] for row in made], [row[1] for row in made]
    conn.execute(QUEUED, {"days": days, "ids": ids})
    for place in (AWAITED, DEAD):
        conn.execute(place, {"days": days, "ids": ids})


def add_old_requests(conn: psycopg.Connection[Any], month: date, count: int) -> None:
    """Insert answered requests of a month."""
    add_partitions(conn, month)
    conn.execute(
        """
        insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, answered_at, days, ids)
        select %(month)s::date + g %% 28, gen_random_uuid(), gen_random_uuid(), 'w', %(month)s, %(month)s,
               array[%(month)s::date, %(month)s::date + 1], array[g, g + 1]
          from generate_series(1, %(count)s) g
        """,
        {"month": month, "count": count},
    )


def add_old_items(conn: psycopg.Connection[Any], month: date, count: int) -> None:
    """Insert tenders first stored in a month."""
    conn.execute(
        """
        insert into relevo.licitaciones (namespace, external_id, nombre, fingerprint, monto, moneda, rubros, sources, created_at, cierra_at)
        select 'ns', %(month)s::text || '-' || g, 'Ñandú 📋 "x", ' || g, 'f', case when g %% 3 = 0 then null else g * 1.25 end,
               case when g %% 3 = 0 then null else 'CLP' end,
               case when g %% 2 = 0 then '{}' else array['72', 'a "b" \\ {c}', '', 'NULL', 'é,📋'] end, '{folder}',
               %(month)s::timestamp at time zone 'UTC' + g * interval '1 second', '2199-12-31Z'
          from generate_series(1, %(count)s) g
        """,
        {"month": month, "count": count},
    )


def add_old_event(conn: psycopg.Connection[Any], month: date, key: str, **columns: Any) -> int:
    """Insert a fanned-out event of a month."""
    given = {
        "event_type": "tender.new",
        "event_key": key,
        "title": "Puente 📋",
        "body": "ñ",
        "audience": "everyone",
        "content_hash": "hash",
        "state": "fanned",
        "event_day": month + timedelta(days=3),
        "fanout_started_at": month,
        "fanout_finished_at": month,
        "fanout_upto": 0,
        "scheduled_at": month,
        "created_at": month,
        "updated_at": month,
    } | columns
    names = ", ".join(given)
    places = ", ".join(f"%({name})s" for name in given)
    row = conn.execute(
        f"insert into relevo.notification_events ({names}) values ({places}) returning id", given
    ).fetchone()
    assert row is not None
    return int(row[0])


def clean_up(app: App) -> Report:
    """Run cleanup once, as by hand."""
    return app.runner.run(app.registry["cleanup"], "manual")


def a_run(app: App, cycle: str, now: datetime | None = None) -> Run:
    """Make a run without a lease, for steps taken one by one, at a time of one's choice."""
    context = RunContext(0, cycle, "", "manual", app.worker.worker_id, None, datetime.now(UTC))
    return Run(context, app.settings, app.database, BUDGET, None, None, threading.Event(), clock=lambda: now)


def clean_up_step(app: App, now: datetime | None = None) -> Any:
    """Take one step of cleanup, at a time of one's choice."""
    return cleanup.step(a_run(app, "cleanup", now))


def exports(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], str]:
    """Return the state of every month that left the hot tables."""
    rows = conn.execute(
        "select entity, to_char(month, 'YYYY-MM'), state from relevo.archive_exports order by 1, 2"
    ).fetchall()
    return {(entity, month): state for entity, month, state in rows}


def token() -> str:
    """Return a push token like a real one."""
    return f"ExponentPushToken[{uuid4().hex[:22]}]"


def open_store(**changes: Any) -> ArchiveStore:
    """Make the store that these settings lead to."""
    environ = {name.upper(): str(value) for name, value in changes.items()}
    store = archive_store(config.load({"DATABASE_URL": "postgresql://nowhere/x"} | environ, None))
    assert store is not None
    return store


def export(app: App) -> Report:
    """Run archive-export once, as by hand."""
    return app.runner.run(app.registry["archive-export"], "manual")


def export_later(app: App, days: int) -> None:
    """Take export's steps so many days from now, until there is nothing to do."""
    store = archive_store(app.settings)
    assert store is not None
    steps = Export(a_run(app, "archive-export", datetime.now(UTC) + timedelta(days=days)), store)
    for _ in range(100):
        if not steps.step().more:
            return
    raise AssertionError("it did not come to an end")
