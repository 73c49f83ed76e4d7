"""Digest: what preferences do not want at once is told together when its time comes, slice by slice with a cursor.

The window of a slot is what was fanned out until it began to close; an event that commits later falls into the next.
"""

from __future__ import annotations

import psycopg

from relevo.config import MINUTE, Settings
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.database.arrays import text_array
from relevo.database.pool import Connection
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

_SQL = queries.load("digest")
_MOST_PHONES = 2_000  # each may be told hundreds of events
_MOST_MOVED = 1_000


def cycle(settings: Settings) -> Cycle:
    """Return the closing of digests for the schedule: on every replica, each at another slot."""
    return Cycle("digest", Every(settings.digest_interval_minutes * MINUTE), step, feeds="dispatch")


def step(run: Run) -> Step:
    """Begin to close the slots that are due, and tell the next phones of one that closes.

    Once none closes, phones of a project whose time zone changed are brought to other slots.
    """
    run.execute(_SQL["open_digests"], {"now": run.now}, "bound_unflushed")
    slot: tuple[str, str, str] | None = None
    try:
        with run.transaction("bound_unflushed") as connection:
            given_up = {"given_up": text_array(sorted(run.given_up.parts))}
            slot = connection.execute(_SQL["pick_closing_slot"], given_up).fetchone()
            return _move_some(connection) if slot is None else _tell_some(run, connection, slot)
    except psycopg.Error as error:
        if slot is None:
            raise
        name = " ".join(slot)
        run.given_up.parts.add(name)  # the next run tries again: it must not hold up those behind it
        return Step(problems=(f"digest {name}: {normalise_error(error, 200)}",), more=True)


def _move_some(connection: Connection) -> Step:
    row = connection.execute(_SQL["move_followers"], {"most": _MOST_MOVED}).fetchone()
    return Step() if row is None else Step({"phones_looked_at": row[0]}, items=max(1, row[0]), more=True)


def _tell_some(run: Run, connection: Connection, slot: tuple[str, str, str]) -> Step:
    project, delivery, zone = slot
    most = min(_MOST_PHONES, run.settings.fanout_slice_size)
    asked = {"project": project, "delivery": delivery, "zone": zone, "most": most, "now": run.now}
    row = connection.execute(_SQL["close_digest_slice"], asked).fetchone()
    is_last, phones, items = row or (True, 0, 0)
    counts = {"digests_closed": int(is_last), "deliveries_created": phones, "events_digested": items}
    done = {name: count for name, count in counts.items() if count}
    return Step(done, items=max(1, phones), more=True, wakes="dispatch" if phones else "")
