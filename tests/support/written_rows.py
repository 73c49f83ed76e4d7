"""Whatever a journal or a settle may write, read so that two ways to write it can be compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

# What differs between two claims in any case (tokens, keys of their own) is left out.
TOUCHED = {
    "deliveries": """select d.*, i.token from relevo.notification_deliveries d join relevo.device_installations i using (installation_id)
                      order by d.event_day, d.id""",
    "awaited": """select r.project, r.look_at, r.sent_at, r.claim_token, u.* from relevo.awaited_receipts r
                   cross join unnest(r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts) as u(day, id, phone, ticket, version, attempt)
                  order by u.day, u.id""",
    "progress": "select event_id, status, deliveries from relevo.event_progress_deltas order by 1, 2",
    "tallies": "select project, at, sent, answers, unregistered, confirmed, failed from relevo.push_tallies order by 1",
    "repeats": "select event_id, repeats from relevo.event_repeat_deltas order by 1",
    "events": "select * from relevo.notification_events order by id",
    "tenders": "select * from relevo.licitaciones order by id",
    "journal": "select request_day, journalled_at, answered_at, outcome, project, days, ids from relevo.push_requests order by ids",
    "late": "select event_day, delivery_id, ticket_id from relevo.late_tickets order by 1, 2, 3",
    "claims": "select cycle, claimed_at, lease_ms, leased_until, days, ids, events, due_at from relevo.claims",
    "queue": "select project, due_at, event_day, event_id, ids from relevo.due_chunks order by id",
    "dead": "select * from relevo.dead_letters",
}


def picture(conn: psycopg.Connection[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Read whatever a settle may touch."""
    with conn.pipeline():
        cursors = {name: conn.execute(statement.encode()) for name, statement in TOUCHED.items()}
    return {name: cursor.fetchall() for name, cursor in cursors.items()}


def summed(seen: dict[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    """Return what was written, with the sums of what only ever counts as sums."""
    progress: Counter[Any] = Counter()
    for event, status, deliveries in seen["progress"]:
        progress[event, status] += deliveries
    repeats: Counter[Any] = Counter()
    for event, times in seen["repeats"]:
        repeats[event] += times
    tallies: Counter[Any] = Counter()
    for project, at, *numbers in seen["tallies"]:
        tallies.update({(project, at, place): number for place, number in enumerate(numbers) if number})
    return seen | {"progress": +progress, "repeats": repeats, "tallies": tallies, "owed": -progress}
