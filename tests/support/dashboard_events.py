"""What became of events, as the dashboard's tests make it happen and read it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from relevo.client import values, verbs
from support.dashboard_person import Person

Connection = psycopg.Connection[Any]
NOWHERE = "http://127.0.0.1:9"


def text_of(person: Person, path: str) -> str:
    """Open a page and return what it says, without its markup."""
    answer = person.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    main = answer.text.split("<main", 1)[1].split("</main>")[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def make_phone(conn: Connection, **given: object) -> UUID:
    """Register a phone with an owner and a token."""
    asked = {"token": f"ExponentPushToken[{uuid4().hex[:22]}]", **given}
    return conn.execute("select relevo.register_installation(%s)", [Jsonb(asked)]).fetchone()[0]


def make_event(conn: Connection, key: str, audience: Any, **more: Any) -> int:
    """Enqueue an event."""
    return verbs.enqueue(conn, values.Event("order.shipped", key, "On its way", audience=audience, **more)).event_id


def deliveries_of(conn: Connection, event_id: int) -> dict[UUID, int]:
    """Return an event's deliveries by installation."""
    found = "select installation_id, id from relevo.notification_deliveries where notification_event_id = %s"
    return dict(conn.execute(found, [event_id]).fetchall())


def answer_request(conn: Connection, ids: list[int], outcome: str) -> None:
    """Have a request with some deliveries answered."""
    conn.execute(
        "insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids) "
        "select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), 'w-7', 'default', now(), now() + interval '2 s', %s, "
        "array_agg(d.event_day), array_agg(d.id) from relevo.notification_deliveries d where d.id = any (%s)",
        [outcome, ids],
    )


def note_attempts(conn: Connection, ids: list[int]) -> None:
    """Note that deliveries were tried just now."""
    conn.execute(
        "update relevo.notification_deliveries set last_attempt_at = clock_timestamp() where id = any (%s)", [ids]
    )


def count_deliveries(conn: Connection, event_id: int, **became: int) -> None:
    """Have an event's deliveries counted by status, as settles do."""
    for status, count in became.items():
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, %s)",
            [event_id, status, count],
        )


FAILED = """
insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
select d.event_day, d.id, %(n)s, clock_timestamp(), %(n)s, %(by)s, %(became)s, %(code)s, %(said)s,
       (select r.id from relevo.push_requests r where d.id = any (r.ids) and %(by)s <> 'receipt' order by r.journalled_at desc limit 1)
  from relevo.notification_deliveries d where d.id = %(id)s
"""
