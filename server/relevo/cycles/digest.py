"""Digest: events that were gathered for phones are told together when their time comes, by slices with a cursor."""

from __future__ import annotations

import psycopg

from relevo.config import MINUTE
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.cycles import Assembled
from relevo.database.arrays import array
from relevo.database.pool import Connection
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

FACTS = CycleFacts(
    "digest",
    does="closes digests whose time has come, in slices, and makes their deliveries",
    counts={
        "digests_closed": "digests whose last phone was served",
        "deliveries_created": "deliveries made",
        "events_digested": "events in these digests",
    },
    after="fanout",
    feeds="dispatch",
)
_SQL = queries.load("digest")
_MOST_PHONES = 1_000  # for each hundreds of events may be gathered


def cycles(given: Assembled) -> list[Cycle]:
    """Return the closing of digests for the schedule: on every replica, each at another slot."""
    return [Cycle.of(FACTS, Every(given.settings.digest_interval_minutes * MINUTE), step)]


def step(run: Run) -> Step:
    """Close the digests of the next phones of a due slot."""
    slot: tuple[int, str] | None = None
    try:
        with run.transaction("bound_unflushed") as connection:
            given_up = array(sorted(int(each) for each in run.given_up.parts))
            slot = connection.execute(_SQL["pick_due_slot"], {"given_up": given_up, "now": run.now}).fetchone()
            return Step() if slot is None else _tell_some(run, connection, slot[0])
    except psycopg.Error as error:
        if slot is None:
            raise
        run.given_up.parts.add(str(slot[0]))  # the next run tries again: it must not hold up those behind it
        return Step(problems=(f"digest {slot[1]}: {normalise_error(error, 200)}",), more=True)


def _tell_some(run: Run, connection: Connection, slot: int) -> Step:
    most = min(_MOST_PHONES, run.settings.fanout_slice_size)
    row = connection.execute(_SQL["close_digest_slice"], {"slot": slot, "most": most, "now": run.now}).fetchone()
    is_last, phones, items = row or (True, 0, 0)
    counts = {"digests_closed": int(is_last), "deliveries_created": phones, "events_digested": items}
    done = {name: count for name, count in counts.items() if count}
    return Step(done, items=max(1, phones), more=True, wakes="dispatch" if phones else "")
