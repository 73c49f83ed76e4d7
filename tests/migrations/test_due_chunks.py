"""From 0.1 to 0.2: what lay in the rows of deliveries moves into chunks, claims, awaited receipts and dead letters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import psycopg
import pytest
import requests
from psycopg.rows import dict_row

from processes import PATIENCE_S, eventually
from relevo import app, config
from relevo.archive import restore
from relevo.core import queries
from relevo.core.errors import MigrationError
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.sandbox import Sandbox

BEFORE = [migration for migration in migrate.available() if str(migration) < "0019"]
THIS = next(migration for migration in migrate.available() if str(migration) == "0019_due_chunks")

WORKER = """
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at, lost_at)
values (%(id)s, 'north', 17, %(version)s, 'run', '{dispatch}', now() - interval '1 hour', now() - %(silent_s)s * interval '1 second', 60000,
        case when %(end)s = 'stopped' then now() end, case when %(end)s = 'lost' then now() end)
"""
EVENTS = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, lane, at_most_once,
                                        fanout_started_at, fanout_finished_at, fanout_upto)
select e, 'notice', e::text, 'Hello', 'everyone', '', 'fanned', (now() at time zone 'UTC')::date, 'bulk', e = 9, now(), now(), 0
  from generate_series(1, 9) e
"""
ROWS = """
with phone as (
  insert into relevo.device_installations (token) select 'ExponentPushToken[' || %(name)s || '-' || g || ']' from generate_series(1, %(count)s) g
  returning installation_id
)
insert into relevo.notification_deliveries (event_day, notification_event_id, event_type, installation_id, status, attempt_count, lapse_count,
  at_most_once, next_attempt_at, last_attempt_at, completed_at, last_error_code, provider_ticket_id, token_version, next_receipt_at)
select (now() at time zone 'UTC')::date, %(event)s, 'notice', p.installation_id, %(status)s, %(attempts)s, %(lapses)s, %(event)s = 9,
       case when %(status)s in ('pending', 'retryable') then now() - %(due_s)s * interval '1 second' end,
       case when %(attempts)s > 0 then now() - %(tried_s)s * interval '1 second' end,
       case when %(status)s not in ('pending', 'retryable', 'sent') then now() end, %(error)s,
       case when %(status)s in ('sent', 'ok') then coalesce((%(tickets)s::text[])[p.n], 'gone-' || p.n) end,
       case when %(attempts)s > 0 then 1 end,
       case when %(status)s = 'sent' and %(due_s)s is not null then now() - %(due_s)s * interval '1 second' end
  from (select installation_id, row_number() over () as n from phone) p
returning id
"""
CLAIM = """
with marked as (
  update relevo.notification_deliveries set claim_token = %(token)s where id = any (%(marked)s) returning id
)
insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
select %(token)s, 'dead', %(cycle)s, now() - interval '2 minutes', 60000, now() - interval '1 minute', array_agg(d.event_day), array_agg(d.id)
  from relevo.notification_deliveries d where d.id = any (%(ids)s)
"""
REQUEST = """
insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
select (now() at time zone 'UTC')::date, gen_random_uuid(), %(token)s, 'dead', 'default', now() - interval '90 seconds', array_agg(d.event_day),
       array_agg(d.id)
  from relevo.notification_deliveries d where d.id = any (%(ids)s)
"""
PLACES = """
select d.status, d.id, array_remove(array_agg(p.place), null) as places
  from relevo.notification_deliveries d
  left join (select 'queue' as place, unnest(q.ids) as id from relevo.due_chunks q
             union all
             select 'claim', unnest(c.ids) from relevo.claims c
             union all
             select 'awaited', unnest(r.ids) from relevo.awaited_receipts r
             union all
             select 'dead', l.delivery_id from relevo.dead_letters l) p on p.id = d.id
 group by d.status, d.id
"""
CHUNKS = """
select q.project, q.lane, q.due_at, q.event_day, q.event_id, q.event_type, q.created_at, q.attempt_count, q.lapse_count, q.had_error,
       u.id, u.installation_id
  from relevo.due_chunks q cross join unnest(q.ids, q.installations) as u(id, installation_id)
"""
AWAITED = """
select u.*, r.project, r.look_at, r.sent_at, r.claim_token
  from relevo.awaited_receipts r
  cross join unnest(r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts)
    as u(event_day, id, installation_id, ticket, version, attempt)
"""
DEAD_CLAIM = "00000000-0000-0000-0000-00000000000a"
DEAD_RECEIPTS = "00000000-0000-0000-0000-00000000000b"


@pytest.fixture
def old(database: Database, look: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """An observer's connection to a database as the migration before left it."""
    migrate.migrate(database, BEFORE)
    return look


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A push service without a rate limit and with receipts at once."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as running:
        yield running


def add(
    conn: psycopg.Connection[Any],
    name: str,
    count: int,
    event: int,
    status: str = "pending",
    *,
    attempts: int = 0,
    lapses: int = 0,
    due_s: int | None = 0,
    tried_s: int = 60,
    error: str | None = None,
    tickets: list[str] | None = None,
) -> list[int]:
    """Insert deliveries as 0.1 kept them, to new phones; return their ids."""
    asked = {
        "name": name, "count": count, "event": event, "status": status, "attempts": attempts, "lapses": lapses,
        "due_s": due_s, "tried_s": tried_s, "error": error, "tickets": tickets,
    }  # fmt: skip
    return [row[0] for row in conn.execute(ROWS, asked).fetchall()]


def by_id(conn: psycopg.Connection[Any], statement: str) -> dict[int, dict[str, Any]]:
    """Return what a statement finds, by the delivery's id."""
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement.encode()).fetchall()
    assert len({row["id"] for row in rows}) == len(rows), "a delivery stands twice"
    return {row["id"]: row for row in rows}


def tickets_for(sandbox: Sandbox, count: int) -> list[str]:
    """Push to some phones, as 0.1 did before the upgrade; return the tickets."""
    messages = [{"to": f"ExponentPushToken[sent-{n}]", "title": "Hello"} for n in range(1, count + 1)]
    answer = requests.post(f"{sandbox.url}/--/api/v2/push/send", json=messages, timeout=60)
    return [ticket["id"] for ticket in answer.json()["data"]]


class Queue:
    """What 0.1 left behind: open, claimed, sent and failed deliveries of every kind."""

    def __init__(self, conn: psycopg.Connection[Any], sandbox: Sandbox) -> None:
        conn.execute(EVENTS)
        self.waiting = [
            *add(conn, "fresh", 250, 1),
            *add(conn, "other", 3, 2),
            *add(conn, "soon", 20, 3, "retryable", attempts=2, due_s=-40, error="MessageRateExceeded"),
            *add(conn, "later", 20, 3, "retryable", attempts=2, due_s=-3600, error="MessageRateExceeded"),
            *add(conn, "past", 10, 3, "retryable", attempts=1, due_s=7200, error="answer_not_seen"),
            *add(conn, "moved", 4, 3, "pending", error="Reschedule"),
            *add(conn, "lapsed", 25, 4, lapses=1),
            *add(conn, "suspect", 3, 4, lapses=2),
        ]
        self.never_begun = add(conn, "claimed", 25, 5)
        self.begun = add(conn, "journalled", 10, 5, "retryable", attempts=1, due_s=30)
        self.begun_once = add(conn, "once", 5, 9)
        held = [*self.never_begun, *self.begun, *self.begun_once]
        self.sent = [*add(conn, "sent", 80, 6, "sent", attempts=1, due_s=-300, tickets=tickets_for(sandbox, 80))]
        self.unconfirmed = [
            *add(conn, "old", 30, 6, "sent", attempts=3, due_s=60, tried_s=90_000),
            *add(conn, "older", 5, 6, "sent", attempts=1, due_s=None, tried_s=90_000),
        ]
        self.failed = add(conn, "failed", 12, 7, "failed", attempts=9, error="MessageTooBig")
        self.done = add(conn, "done", 10, 8, "ok", attempts=1)
        conn.execute(CLAIM, {"token": DEAD_CLAIM, "cycle": "dispatch", "marked": held, "ids": [*held, *self.sent[:10]]})
        conn.execute(REQUEST, {"token": DEAD_CLAIM, "ids": [*self.begun, *self.begun_once]})
        receipts = [*self.sent[:20], *self.unconfirmed[:20]]
        conn.execute(CLAIM, {"token": DEAD_RECEIPTS, "cycle": "receipt", "marked": receipts, "ids": receipts})
        self.claimed = held
        self.rows = by_id(conn, "select * from relevo.notification_deliveries")


def test_everything_stands_in_one_place_and_comes_to_its_end(database, old, sandbox, empty_database) -> None:
    """Open, claimed, sent and failed deliveries of 0.1 stand where 0.2 looks for them, as they were, and are finished."""
    queue = Queue(old, sandbox)
    assert str(THIS) in map(str, migrate.migrate(database))
    places = by_id(old, PLACES)
    expected: Mapping[str, list[int]] = {
        "queue": queue.waiting,
        "claim": queue.claimed,
        "awaited": [*queue.sent, *queue.unconfirmed],
        "dead": queue.failed,
    }
    for place, ids in expected.items():
        assert {tuple(places[each]["places"]) for each in ids} == {(place,)}, place
    assert sum(map(len, expected.values())) + len(queue.done) == len(places)
    assert {tuple(places[each]["places"]) for each in queue.done} == {()}
    check_chunks(old, queue)
    check_claim(old, queue)
    check_awaited(old, queue)
    letters = old.execute("select event_id, project, error_code, died_at is not null from relevo.dead_letters")
    assert Counter(letters.fetchall()) == {(7, "default", "MessageTooBig", True): 12}
    bring_to_an_end(old, empty_database, sandbox)
    check_the_end(old, queue, sandbox)


def check_chunks(conn: psycopg.Connection[Any], queue: Queue) -> None:
    """Each chunk tells of its deliveries what their rows told; what lapsed lies in tenths, then alone."""
    for key, chunk in by_id(conn, CHUNKS).items():
        row = queue.rows[key]
        for name in ("project", "lane", "event_day", "event_type", "created_at", "attempt_count", "lapse_count"):
            assert chunk[name] == row[name], name
        assert (chunk["event_id"], chunk["installation_id"]) == (row["notification_event_id"], row["installation_id"])
        assert chunk["had_error"] == (row["last_error_code"] is not None)
        assert 0 <= (chunk["due_at"] - row["next_attempt_at"]).total_seconds() < 60
    sizes = conn.execute("select lapse_count, cardinality(ids) from relevo.due_chunks where event_id in (1, 4)")
    assert Counter(sizes.fetchall()) == {(0, 100): 2, (0, 50): 1, (1, 10): 2, (1, 5): 1, (2, 1): 3}


def check_claim(conn: psycopg.Connection[Any], queue: Queue) -> None:
    """The dead worker's claim holds what it has not settled, and no claim of receipts is left."""
    [(token, days, ids, events, due_at)] = conn.execute(
        "select token::text, days, ids, events, due_at from relevo.claims"
    ).fetchall()
    assert (token, sorted(ids), sorted(events)) == (DEAD_CLAIM, sorted(queue.claimed), [5, 9])
    assert [queue.rows[each]["event_day"] for each in ids] == days
    assert due_at == min(queue.rows[each]["next_attempt_at"] for each in queue.claimed)


def check_awaited(conn: psycopg.Connection[Any], queue: Queue) -> None:
    """Each receipt is awaited by nobody yet, with its own ticket, and not asked for sooner than before."""
    for key, awaited in by_id(conn, AWAITED).items():
        row = queue.rows[key]
        for name, former in {
            "ticket": "provider_ticket_id",
            "version": "token_version",
            "attempt": "attempt_count",
        }.items():
            assert awaited[name] == row[former], name
        for name in ("project", "event_day", "installation_id"):
            assert awaited[name] == row[name], name
        assert awaited["claim_token"] is None
        assert 0 <= (awaited["sent_at"] - row["last_attempt_at"]).total_seconds() < 60
        assert 0 <= (awaited["look_at"] - (row["next_receipt_at"] or row["last_attempt_at"])).total_seconds() < 60


def bring_to_an_end(conn: psycopg.Connection[Any], dsn: str, sandbox: Sandbox) -> None:
    """Let a worker of this version reap, send and ask for receipts, until nothing is left to do."""
    chosen = {
        "database_url": dsn,
        "expo_base_url": sandbox.url,
        "push_rate_per_second": 0,
        "receipt_first_poll_ms": 1,
    }
    settings = config.load({name.upper(): str(value) for name, value in chosen.items()}, None)
    with app.build(settings) as worker:
        worker.worker.record_start("run", ["dispatch"])
        for cycle in ("reaper", "dispatch", "dispatch", "receipt", "receipt", "receipt"):
            conn.execute("update relevo.due_chunks set due_at = now()")  # nobody waits for an hour here
            conn.execute("update relevo.awaited_receipts set look_at = now()")
            report = worker.runner.run(worker.registry[cycle], "manual")
            assert report.outcome in ("ok", "idle"), report


def check_the_end(conn: psycopg.Connection[Any], queue: Queue, sandbox: Sandbox) -> None:
    """What waited was sent once and confirmed; what may have been sent is sent again, or unknown where once is the most."""
    ends = dict(conn.execute("select id, status from relevo.notification_deliveries").fetchall())
    for status, ids in {
        "ok": [*queue.waiting, *queue.never_begun, *queue.begun, *queue.sent, *queue.done],
        "unknown": queue.begun_once,
        "unconfirmed": queue.unconfirmed,
        "failed": queue.failed,
    }.items():
        assert Counter(ends[each] for each in ids) == {status: len(ids)}
    pushed = Counter({token: phone["received"] for token, phone in sandbox.phones().items()})
    assert set(pushed.values()) == {1}
    assert len(pushed) == len([*queue.waiting, *queue.never_begun, *queue.begun, *queue.sent])
    for table in ("due_chunks", "claims", "awaited_receipts"):
        assert conn.execute(f"select count(*) from relevo.{table}".encode()).fetchone() == (0,), table


def test_a_row_whose_claim_does_not_know_it_is_queued(database, old) -> None:
    """A token without a claim, or one whose claim does not list the delivery, keeps nothing from the queue."""
    old.execute(EVENTS)
    ids = add(old, "phone", 3, 1)
    old.execute(CLAIM, {"token": DEAD_CLAIM, "cycle": "dispatch", "marked": ids[:2], "ids": ids[:1]})
    old.execute("update relevo.notification_deliveries set claim_token = %s where id = %s", [DEAD_RECEIPTS, ids[2]])
    migrate.migrate(database)
    places = by_id(old, PLACES)
    assert [places[each]["places"] for each in ids] == [["claim"], ["queue"], ["queue"]]


def test_dead_letters_of_a_sealed_month_stay_there(database, old) -> None:
    """What is on its way to the archive cannot be redriven, and so is no dead letter any more."""
    old.execute(EVENTS)
    old.execute("select relevo.ensure_partitions('2025-03-01', 1)")
    old.execute("update relevo.notification_events set event_day = '2025-03-05' where id = 1")
    add(old, "old", 3, 1, "failed", attempts=1, error="MessageTooBig")
    old.execute("update relevo.notification_deliveries set event_day = '2025-03-05'")
    assert old.execute("select relevo.seal_month('notification_deliveries', '2025-03-01', 100)").fetchone() == (True,)
    young = add(old, "young", 2, 2, "failed", attempts=1, error="MessageTooBig")
    migrate.migrate(database)
    letters = old.execute("select delivery_id from relevo.dead_letters order by 1").fetchall()
    assert [row[0] for row in letters] == young


def test_an_empty_month_that_is_sealed_stays_as_it_is(database, old) -> None:
    """Empty months are made anew, but not one on its way to the archive: it would never come there."""
    old.execute("select relevo.ensure_partitions('2025-03-01', 1)")
    assert old.execute("select relevo.seal_month('notification_deliveries', '2025-03-01', 100)").fetchone() == (True,)
    migrate.migrate(database)
    old.execute("update relevo.archive_exports set rows = 0")  # as cleanup counts it
    old.execute("select relevo.retire_month('notification_deliveries', '2025-03-01')")
    assert old.execute("select count(*) from relevo_archive.notification_deliveries_2025_03").fetchone() == (0,)


def test_months_that_left_before_are_exported_with_the_columns_they_had(
    database, old, empty_database, tmp_path
) -> None:
    """One that was retired keeps its old columns, one that was only sealed loses them; both are exported and are one view."""
    old.execute(EVENTS)
    for month in (RETIRED, SEALED):
        old.execute("select relevo.ensure_partitions(%s, 1)", [month])
        ids = add(old, str(month), 3, month.month, "ok", attempts=1)
        old.execute("update relevo.notification_deliveries set event_day = %s where id = any (%s)", [month, ids])
        old.execute("select relevo.seal_month('notification_deliveries', %s, 100)", [month])
    retired = {"entity": "notification_deliveries", "month": RETIRED, "rows": 3}
    for step in ("record_rows", "retire_month"):
        old.execute(queries.load("retire")[step], retired)
    migrate.migrate(database)
    settings = {"database_url": empty_database, "archive_folder": tmp_path}
    with app.build(config.load({name.upper(): str(value) for name, value in settings.items()}, None)) as worker:
        worker.worker.record_start("run", [])
        for cycle in ("cleanup", "archive-export"):
            report = worker.runner.run(worker.registry[cycle], "manual")
            assert report.outcome == "ok", report
        store = app.archive_store(worker.settings)
    assert store is not None
    for month in (RETIRED, SEALED):
        restore.verify(store, restore.read_manifest(store, "notification_deliveries", month))
    found = restore.query(store, COLUMNS, pytest.fail).to_pylist()
    assert [tuple(row.values()) for row in found] == [(RETIRED, 3, 0), (SEALED, 3, 0)]
    kept = {
        month: [column.name for column in restore.read_manifest(store, "notification_deliveries", month).columns]
        for month in (RETIRED, SEALED)
    }
    assert ("next_attempt_at" in kept[RETIRED], "next_attempt_at" in kept[SEALED]) == (True, False)


RETIRED, SEALED = date(2025, 3, 1), date(2025, 4, 1)
COLUMNS = """
select event_day, count(provider_ticket_id) as tickets, count(next_attempt_at) as due from notification_deliveries group by 1 order by 1
"""


def test_who_is_still_writing_is_waited_for(database, old, empty_database) -> None:
    """Deliveries that a worker of 0.1 is just making, having slept until now, are in the queue or are not there at all."""
    old.execute(EVENTS)
    with psycopg.connect(empty_database) as writer, ThreadPoolExecutor(1) as threads:
        late = add(writer, "late", 3, 1)
        migrating = threads.submit(migrate.migrate, database)
        waits = (
            "select count(*) from pg_locks where not granted and relation = 'relevo.notification_deliveries'::regclass"
        )
        eventually(lambda: old.execute(waits).fetchone() == (1,), "the migration waits")
        writer.commit()
        migrating.result(PATIENCE_S)
    places = by_id(old, PLACES)
    assert [places[each]["places"] for each in late] == [["queue"]] * 3


def test_a_living_worker_of_0_1_is_named(command, database, old) -> None:
    """While one runs, the migration is refused in a sentence with its name and a next step, and nothing is changed."""
    for name, version in {"alive-a": "0.1.0", "alive-b": "0.1.7", "new": "0.2.0"}.items():
        old.execute(WORKER, {"id": name, "version": version, "silent_s": 1, "end": None})
    refused = command("migrate")
    assert refused.ends() != 0
    said = " ".join(refused.stderr.split())
    assert "Migration 0019_due_chunks was not run: workers of version 0.1 are running:" in said
    assert "alive-a (on north, process 17), alive-b (on north, process 17)" in said
    assert "Stop them, and migrate again" in said
    assert "new (on" not in said
    assert "Traceback" not in said
    assert old.execute("select max(version) from relevo.schema_migrations").fetchone() == (BEFORE[-1].version,)
    with pytest.raises(MigrationError, match="alive-a"):
        migrate.prepare(database)
    old.execute("update relevo.workers set stopped_at = now() where version <> '0.2.0'")
    assert command("migrate").ends() == 0


@pytest.mark.parametrize(("silent_s", "end"), [(1, "stopped"), (1, "lost"), (61, None)])
def test_a_worker_of_0_1_that_is_gone_holds_up_nothing(database, old, silent_s, end) -> None:
    """One that said goodbye, was noticed missing, or fell silent for longer than its lease does not count."""
    old.execute(WORKER, {"id": "gone", "version": "0.1.0", "silent_s": silent_s, "end": end})
    assert THIS in migrate.migrate(database)


def test_a_large_queue_is_converted_in_chunks(database, old) -> None:
    """Some ten thousand open deliveries become chunks of a hundred, far within a migration's time; the million is timed by hand."""
    old.execute(EVENTS)
    add(old, "many", 20_000, 1)
    started = time.monotonic()
    migrate.migrate(database)
    assert time.monotonic() - started < database.long_statement_ms / 1000
    assert old.execute("select count(*), sum(cardinality(ids)) from relevo.due_chunks").fetchone() == (200, 20_000)
