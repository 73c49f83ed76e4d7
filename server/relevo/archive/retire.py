"""Retiring: months past their retention leave the hot tables, sealed first, whole, one small fenced step at a time."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg
from psycopg.rows import class_row

from relevo.archive.manifest import Month
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.database.outages import BUSY
from relevo.runtime.runs import Run

_SQL = queries.load("retire")
_BLOCKS = 20_000  # 160 MB a statement
_KEPT_BLOCKS = 2_000
_BATCH = 2_000
_MOVING_S = 5.0
_LOCK_MS = 200
_LONG_LOCK_MS = 1_200  # once in a while: a vacuum gives way to who has waited for a second
_TRIES = 25
_MOVED = {"licitaciones": "archived_licitaciones", "notification_events": "archived_events"}
_RETIRED = {"notification_deliveries": "archived_deliveries", "push_requests": "archived_requests"}


@dataclass(frozen=True)
class RetiringMonth(Month):
    """A month of a partitioned table that is past its retention."""

    state: str
    blocks: int
    rows: int | None
    """How many rows it has, once it was sealed and counted."""
    file: int
    kept_blocks: int
    """How many of its blocks were copied from already, as long as it is the same file."""


def retire(run: Run) -> Step:
    """Take one step with a month of deliveries or journal, else move some events or items."""
    is_there, owner = run.execute(_SQL["find_archive_schema"]).fetchone() or (False, "the owner of relevo")
    if not is_there:
        missing = "the schema relevo_archive is missing; have an administrator run: CREATE SCHEMA relevo_archive"
        return Step(problems=(f"{missing} AUTHORIZATION {owner}",))
    month = _find_month(run)
    if month is not None:
        try:
            return _retire_month(run, month)
        except psycopg.Error as error:
            return _later(run, month, 0, normalise_error(error, 300))
    for entity in ("notification_events", "licitaciones"):
        moved = _move(run, entity)
        if moved is not None:
            return moved
    return Step(problems=_foreign_partitions(run))


def _foreign_partitions(run: Run) -> tuple[str, ...]:
    """Complain of partitions that are no month's: what lies in them is never retired."""
    found = run.execute(_SQL["list_foreign_partitions"]).fetchall()
    return tuple(
        f"{partition} is a partition of {parent} and no month's: its rows are never retired, and it may keep new"
        f" partitions from being made; move its rows, and detach it"
        for parent, partition in found
    )


def _find_month(run: Run) -> RetiringMonth | None:
    asked = {
        "retention_days": run.settings.deliveries_retention_days,
        "given_up": list(run.given_up.months),
        "now": run.now,
    }
    with run.transaction() as connection, connection.cursor(row_factory=class_row(RetiringMonth)) as cursor:
        return cursor.execute(_SQL["find_retirable"], asked).fetchone()


def _retire_month(run: Run, month: RetiringMonth) -> Step:
    """Close and seal a month, or count one that was sealed, or detach one that was counted; a crash goes on there."""
    if month.rows is not None:
        if not _keep_inbox_items(run, month):
            return Step(more=True)
        return _detach(run, month, month.rows)
    if month.state == "sealed":
        return _count(run, month)
    ended = _close(run, month)
    if lost := _count_lost(run, month):
        why = (
            f"{lost} of its deliveries are neither finished nor in any queue; `relevo doctor --repair` puts them there"
        )
        return _later(run, month, ended, why)
    sealed = _briefly(run, "seal_month", month.key | {"part_rows": run.settings.archive_part_rows})
    if sealed == (True,):
        return Step({"deliveries_ended": ended} if ended else {}, items=1, more=True)
    return _later(
        run, month, ended, "somebody holds it locked" if sealed is None else "something of it is still claimed"
    )


def _count_lost(run: Run, month: RetiringMonth) -> int:
    """Count the deliveries that would be lost with their month: not final, but neither queued nor claimed."""
    if month.entity != "notification_deliveries" or _is_open(run, month):
        return 0
    lost = _count_blocks(run, month, "count_unfinished")
    return 0 if _is_open(run, month) else lost  # else something was opened meanwhile, and is in its queue


def _is_open(run: Run, month: RetiringMonth) -> bool:
    return run.execute(_SQL["look_for_open"], month.key).fetchone() == (True,)


def _count_blocks(run: Run, month: RetiringMonth, statement: str) -> int:
    """Count rows in one short transaction after the other, however large the month is."""
    rows = 0
    for from_block in range(0, month.blocks + 1, _BLOCKS):
        part = month.key | {"from_block": from_block, "blocks": _BLOCKS}
        row = run.execute(_SQL[statement], part).fetchone()
        assert row is not None
        rows += row[0]
        run.may_go_on()  # raises if the lease was lost
    return rows


def _count(run: Run, month: RetiringMonth) -> Step:
    rows = _count_blocks(run, month, "count_rows")
    run.execute(_SQL["record_rows"], month.key | {"rows": rows})
    return Step(items=1, more=True)


def _keep_inbox_items(run: Run, month: RetiringMonth) -> bool:
    """Copy what its type keeps in inboxes for longer, from where it was left off; return whether all is copied."""
    if month.entity != "notification_deliveries":
        return True
    asked = month.key | {"now": run.now}
    with run.transaction() as connection:
        if connection.execute(_SQL["keeps_inbox_items"], asked).fetchone() != (True,):
            return True
    for from_block in range(month.kept_blocks, month.blocks + 1, _KEPT_BLOCKS):
        kept = month.key | {"kept_blocks": from_block + _KEPT_BLOCKS, "file": month.file}
        with run.transaction() as connection:
            connection.execute(_SQL["keep_inbox_items"], asked | {"from_block": from_block, "blocks": _KEPT_BLOCKS})
            connection.execute(_SQL["record_kept_blocks"], kept)
        if not run.may_go_on():
            return False
    return True


def _detach(run: Run, month: RetiringMonth, rows: int) -> Step:
    """Move a month that is sealed and finished to the cold schema, in one transaction that touches no row."""
    if _briefly(run, "retire_month", month.key) is None:
        return _later(run, month, 0, "somebody holds its table locked")
    return Step({"months_retired": 1, _RETIRED[month.entity]: rows}, items=1, more=True)


def _later(run: Run, month: RetiringMonth, ended: int, why: str) -> Step:
    """Leave a month to a later run, and go on with the others."""
    run.given_up.months.add(month.relation)
    problem = f"{month.relation} could not be retired yet: {why}"
    return Step({"deliveries_ended": ended} if ended else {}, items=ended, more=True, problems=(problem,))


def _close(run: Run, month: RetiringMonth) -> int:
    """End what is still open in an old month and nobody holds; return how many that were."""
    ended = 0
    closing = month.key | {"limit": _BATCH, "now": run.now}
    while month.entity == "notification_deliveries" and _is_open(run, month):
        row = run.execute(_SQL["close_deliveries"], closing).fetchone()
        assert row is not None
        if not row[0]:
            break
        ended += row[0]
        run.may_go_on()
    return ended


def _briefly(run: Run, statement: str, asked: dict[str, Any]) -> tuple[Any, ...] | None:
    """Run a statement that needs a strong lock, asking for it often and never for long; None if it could not be had."""
    for attempt in range(_TRIES):
        lock_ms = _LONG_LOCK_MS if attempt % 10 == 9 else _LOCK_MS  # noqa: PLR2004 every tenth
        try:
            with run.transaction() as connection:
                connection.execute(_SQL["wait_briefly"], {"lock_ms": lock_ms})
                return connection.execute(_SQL[statement], asked).fetchone()
        except BUSY:
            time.sleep(random.uniform(0.02, 0.2))  # noqa: S311 jitter needs no secrecy
            run.may_go_on()
    return None


def _move(run: Run, entity: str) -> Step | None:
    """Move batches of the oldest month of a plain table for a while; seal a month of which nothing is left."""
    asked = {
        "now": run.now,
        "hot_months": run.settings.licitaciones_hot_months,
        "hot_days": run.settings.licitaciones_retention_days,
        "retention_days": run.settings.deliveries_retention_days,
        "given_up": _unfinished(run, entity),
    }
    what = "items" if entity == "licitaciones" else "events"
    row = run.execute(_SQL[f"find_old_{what}"], asked).fetchone()
    if row is None or row[0] is None:
        return _finish(run, entity)
    month: date = row[0]
    batch = {"month": month, "limit": _BATCH, "part_rows": run.settings.archive_part_rows}
    count, moved, until = 0, _BATCH, time.monotonic() + _MOVING_S
    while moved == _BATCH and time.monotonic() < until and run.may_go_on():
        try:
            answer = run.execute(_SQL[f"retire_{what}"], batch).fetchone()
        except psycopg.Error as error:
            return _move_later(run, entity, month, count, error)
        moved = answer[0] if answer else 0
        count += moved
    return Step({_MOVED[entity]: count}, items=count, more=True)


def _unfinished(run: Run, entity: str) -> list[date]:
    return [month for moved, month in run.given_up.unfinished if moved == entity]


def _finish(run: Run, entity: str) -> Step | None:
    """Seal the oldest month that is being moved, if nothing of it is left in the hot table."""
    with run.transaction() as connection:
        asked = {"entity": entity, "given_up": _unfinished(run, entity)}
        row = connection.execute(_SQL["find_moving"], asked).fetchone()
    if row is None or row[0] is None:
        return None
    month: date = row[0]
    try:
        done = run.execute(_SQL["finish_moving"], {"entity": entity, "month": month}).fetchone()
    except psycopg.Error as error:
        return _move_later(run, entity, month, 0, error)
    if done != (True,):
        run.given_up.unfinished.add((entity, month))  # something of it is not over yet; a later run looks again
    finished = int(done == (True,))
    return Step({"months_retired": finished}, items=finished, more=True)


def _move_later(run: Run, entity: str, month: date, count: int, error: Exception) -> Step:
    """Leave a month of a plain table to a later run, and go on with the others."""
    run.given_up.unfinished.add((entity, month))
    problem = f"{entity}_{month:%Y_%m} could not be moved yet: {normalise_error(error, 300)}"
    return Step({_MOVED[entity]: count}, items=count, more=True, problems=(problem,))
