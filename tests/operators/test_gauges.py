"""What the gauges cost: however many deliveries, events, workers and runs there are, a scrape reads the same few rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from relevo.core import queries
from relevo.operators.gauges import BOUNDS, WATCHED
from support.query_plans import rows_read_by_table

READ = queries.load("gauges")
ASKED = BOUNDS | {"watched": [f"relevo.{name}" for name in WATCHED], "instance": None}

LOAD = """
select relevo.ensure_partitions(current_date, 1);
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_upto, fanout_finished_at)
select 'notice', n::text, 'Hola', 'everyone', '', 'fanned', current_date, now(), 0, now() from generate_series(1, 5000) n;
insert into relevo.event_progress (event_id, status, deliveries) select e.id, 'ok', 5 from relevo.notification_events e;
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
  completed_at, provider_ticket_id)
select current_date, n % 5000 + 1, lpad(to_hex(n), 32, '0')::uuid, 'notice', 'ok', 1, now(), 'ticket' from generate_series(1, 20000) n;
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
  ids, installations)
select 'default', 'bulk', now() - n * interval '1 second', current_date, n, 'notice', now(), 0, 0, false, array[n],
       array[lpad(to_hex(n), 32, '0')::uuid] from generate_series(1, 5000) n;
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select 'default', now() + n * interval '1 second', now(), array[current_date], array[n], array[lpad(to_hex(n), 32, '0')::uuid], array['t'],
       array[1], array[1]::smallint[] from generate_series(1, 5000) n;
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at)
select 'w' || n, 'h', 1, '0', 'run', '{}', now() - interval '3 days', now() - interval '2 days', 60000, now() - interval '2 days'
  from generate_series(1, 5000) n;
insert into relevo.worker_runs (id, cycle, trigger, worker_id, started_at, finished_at, outcome)
select 1000000 + n, 'dispatch', 'schedule', 'a', now(), now(), 'ok' from generate_series(1, 5000) n;
"""


def test_a_scrape_scans_no_table_that_grows(conn: psycopg.Connection[Any]) -> None:
    """Of 20,000 deliveries, 5,000 events, chunks, workers and runs it reads the heads of indexes, within its bounds,
    with statistics and without."""
    conn.execute(LOAD.encode())
    for statistics in ("select", "analyze"):
        conn.execute(statistics.encode())
        read = sum((Counter(rows_read_by_table(conn, each, ASKED)) for each in READ.values()), Counter())
        grown = {table: rows for table, rows in read.items() if rows > 100}
        assert set(grown) <= {"due_chunks"}, (statistics, grown)
        assert grown["due_chunks"] <= BOUNDS["most_chunks"] + 10, statistics


def test_a_worker_that_falls_silent_names_its_machine(conn: psycopg.Connection[Any]) -> None:
    """The gauge has the machine of a worker that was not seen three times in a row, or was lost lately: not of one that
    stopped, that is seen, that is not due yet, or in whose place another was started."""

    def worker(name: str, silent_s: int, beat_s: int = 4, started_s: int = 3600, **more: Any) -> None:
        conn.execute(
            """insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, next_beat_at, lease_ms,
                                           stopped_at, lost_at)
               select %(name)s, %(hostname)s, 1, '0', 'run', '{}', now() - make_interval(secs => %(started_s)s), s.at,
                      s.at + make_interval(secs => %(beat_s)s), 60000, case when %(ended)s = 'stopped' then s.at end,
                      case when %(ended)s = 'lost' then now() end
                 from (select now() - make_interval(secs => %(silent_s)s) as at) s""",
            {
                "name": name,
                "silent_s": silent_s,
                "beat_s": beat_s,
                "started_s": started_s,
                "hostname": name,
                "ended": "",
            }
            | more,
        )

    worker("seen", 3)
    worker("late", 20)
    worker("not-due", 20, beat_s=15)
    worker("stopped", 20, ended="stopped")
    worker("lost", 300, ended="lost")
    worker("lost-long-ago", 1_200, ended="lost")
    worker("killed", 40)
    worker("killed-and-lost", 300, ended="lost", hostname="killed")
    worker("in-its-place", 3, started_s=30, hostname="killed")
    rows = conn.execute(READ["read_fleet_gauges"], ASKED).fetchall()
    found = {labels[0]: round(value) for name, labels, value in rows if name == "worker_silent_seconds"}
    assert found == {"late": 20, "lost": 300}
