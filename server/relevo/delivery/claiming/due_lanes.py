"""Due lanes: those with something to send that may send it, remembered between reads of the queue.

A read finds what was added to the queue since the one before, and checks the lanes that should be due. What
waits for a time or a breaker is known from before, so that a read costs the same beside any number of those. A full
read of the whole queue is the net: it comes first, and again every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from relevo.core import queries
from relevo.core.model import Lane
from relevo.database.arrays import text_array
from relevo.database.pool import Database

_SQL = queries.load("projects")
_NEVER = float("inf")
_FULL_READ_S, _LONGEST_WITHOUT_S = 5.0, 60.0
_FULL_READS_SHARE = 0.01  # of the time, at most: beside somebody's long snapshot a full read may take long
_PAGE = 1_000
_MOST_AGAIN = 100
_MOST_NEW = 10_000
_MOST_AGAIN_NEW = 1_000  # that a read reads again while there is work; all of them take a share of the time at most
_ALL_NEW_SHARE = 0.05

Key = tuple[str, Lane]


@dataclass(frozen=True)
class DueLane:
    """A project's lane that has, or will have, something to send."""

    project: str
    lane: Lane
    due_in_s: float
    since: datetime | None = None
    """When the first thing in it falls due: nothing is before that. None if that is not known."""
    in_shadow: bool = False
    """Whether shadow mode keeps what is due first from being sent."""

    @property
    def key(self) -> Key:
        """The key of the lane."""
        return self.project, self.lane


@dataclass
class _Known:
    """The result of the last read of a lane."""

    since: datetime | None
    ready_at: float
    """When it falls due and may be sent, by the monotonic clock."""
    troubled: bool
    """Whether its breaker is open: what is well goes before a probe."""
    in_shadow: bool = False


class _Found(NamedTuple):
    """A row of a read: a lane, unless there is none, and what the next read has to know."""

    project: str | None
    lane: Lane
    since: datetime | None
    wait_s: float
    troubled: bool
    numbered: int
    oldest_xid: int
    next_xid: int
    walked: int
    last_project: str
    last_lane: str
    in_shadow: bool


class DueLanes:
    """The lanes that one worker knows of, and may send."""

    def __init__(self, database: Database, serves: Callable[[str], bool]) -> None:
        self._database = database
        self._serves = serves
        self._guard = threading.Lock()
        self._known: dict[Key, _Known] = {}
        self._changed: set[str] = set()
        """The projects that may send since the last read what they could not before."""
        self._seen_to = 0
        """Every chunk up to this number was seen, or is gone."""
        self._numbered = -1
        """The last number that was given out when the last read ended; 0 if none ever was, and -1 before the first."""
        self._waits_for: tuple[int, int] | None = None
        """A number, and the transaction before which all must have ended: then every chunk up to it was seen."""
        self._full_read_at = -_NEVER
        self._full_read_took_s = 0.0
        self._all_new_at = -_NEVER
        """When all that may be new is read again, though it is much: beside somebody's long writing transaction."""

    def read(self, now: datetime | None = None) -> list[DueLane]:
        """Return the lanes that are due and may be sent, urgent and oldest first, and the next one that will be."""
        with self._guard:
            if now is not None or self._full_read_at == -_NEVER:
                self._read_all(now)
            else:
                if not self._read_changes() and not self._due(time.monotonic()):
                    self._read_changes(all_new=True)  # whoever called it may have numbered a chunk long ago
                if self._needs_full_read():
                    self._read_all(now)
            return self._listed()

    def recheck(self, project: str) -> None:
        """Check a project's lanes with the next read: it may send now what it could not before."""
        self._changed.add(project)

    def rest(self, project: str, lane: Lane, wait_s: float) -> None:
        """Leave a lane out for so long, or until the next full read."""
        with self._guard:
            if (known := self._known.get((project, lane))) is not None:
                known.ready_at = max(known.ready_at, time.monotonic() + wait_s)

    def _listed(self) -> list[DueLane]:
        now = time.monotonic()
        later = [(known.ready_at, key) for key, known in self._known.items() if known.ready_at > now]
        keys = self._due(now) + [key for _, key in [min(later, default=(now, None))] if key is not None]
        return [
            DueLane(*key, known.ready_at - now, known.since, known.in_shadow)
            for key in keys
            for known in [self._known[key]]
        ]

    def _due(self, now: float) -> list[Key]:
        """The lanes that should be due: what is well first, then urgent and oldest first."""
        due = [(key, known) for key, known in self._known.items() if known.ready_at <= now]
        due.sort(key=lambda each: (each[1].troubled, each[0][1] != "urgent", _seconds(each[1].since)))
        return [key for key, _ in due]

    def _needs_full_read(self) -> bool:
        """Return whether it is time for one; what is due goes first, for a while."""
        now = time.monotonic()
        if now <= self._full_read_at:
            return False
        return now > self._full_read_at + self._without_s() or all(each.ready_at > now for each in self._known.values())

    def _without_s(self) -> float:
        """How long to do without a full read after one."""
        return min(max(_FULL_READ_S, self._full_read_took_s / _FULL_READS_SHARE), _LONGEST_WITHOUT_S)

    def _read_changes(self, *, all_new: bool = False) -> bool:
        """Read what is new, and check what should be due; return whether all that may be new was read."""
        began = time.monotonic()
        is_much = self._numbered - self._seen_to > _MOST_AGAIN_NEW
        reads_all = all_new or not is_much or began >= self._all_new_at
        changed = {self._changed.pop() for _ in range(len(self._changed))}  # one by one: others add to it meanwhile
        for key in [key for key in self._known if key[0] in changed] if changed else ():
            self._known[key].ready_at = -_NEVER
        again = self._due(time.monotonic())[:_MOST_AGAIN]
        after_id = self._seen_to if reads_all else self._numbered - _MOST_AGAIN_NEW
        rows = self._query(None, again=again, after_id=after_id)
        for key in again:
            self._known.pop(key, None)
        self._learn(rows)
        if is_much and reads_all:
            self._all_new_at = time.monotonic() + (time.monotonic() - began) / _ALL_NEW_SHARE
        return reads_all

    def _read_all(self, now: datetime | None) -> None:
        """Go along the whole queue, page by page, and forget whatever is not there."""
        began, self._full_read_at = time.monotonic(), -_NEVER
        self._known = {}
        self._changed.clear()
        walked, after = _PAGE, ("", "")
        while walked == _PAGE:
            rows = self._query(now, after=after)
            self._learn(rows)
            if not rows:
                return
            walked, after = rows[0].walked, (rows[0].last_project, rows[0].last_lane)
        if now is None:
            self._full_read_took_s = time.monotonic() - began
            self._full_read_at = time.monotonic() + self._without_s()

    def _query(
        self,
        now: datetime | None,
        *,
        again: Sequence[Key] = (),
        after: tuple[str, str] | None = None,
        after_id: int | None = None,
    ) -> list[_Found]:
        """Return what a read finds, and note what the next one has to know; forget all while dispatch is paused."""
        asked = {
            "now": now,
            "after_id": self._seen_to if after_id is None else after_id,
            "most_new": _MOST_NEW if self._numbered >= 0 else 0,  # the first read is a full one
            "again_projects": text_array(project for project, _ in again),
            "again_lanes": text_array(lane for _, lane in again),
            "again_since": [self._known[key].since for key in again],
            "after_project": after[0] if after else None,
            "after_lane": after[1] if after else None,
            "limit": _PAGE if after else 0,
        }
        rows = [_Found(*row) for row in self._database.execute(_SQL["list_due_lanes"], asked).fetchall()]
        if rows:
            self._note(rows[0], read_all_new=after_id is None or after_id <= self._seen_to)
        else:
            self._known, self._full_read_at = {}, -_NEVER
        return rows

    def _note(self, read: _Found, *, read_all_new: bool) -> None:
        """Move on to what is seen for good: what was numbered before a read, once all who could have done so ended.

        A transaction that lasts long holds that up, for a bounded number of chunks; while there is work, a read goes
        back to the newest of them, and now and then to all. What it adds later, and what one
        adds that had numbered a chunk and not begun to write, is found by a full read.
        """
        if read.numbered < self._numbered:  # the database was restored, or emptied
            self._numbered, self._seen_to, self._waits_for, self._full_read_at = 0, 0, None, -_NEVER
        if read_all_new and self._waits_for is not None and read.oldest_xid >= self._waits_for[1]:
            self._seen_to, self._waits_for = self._waits_for[0], None
        if self._waits_for is None:
            self._waits_for = self._numbered, read.next_xid
        self._seen_to = max(self._seen_to, read.numbered - _MOST_NEW)
        self._numbered = read.numbered

    def _learn(self, rows: Iterable[_Found]) -> None:
        """Remember what was found; of a lane that is known from before, what is earlier."""
        now = time.monotonic()
        for row in rows:
            if row.project is None or not (row.in_shadow or self._serves(row.project)):
                continue
            found = _Known(row.since, now + row.wait_s, row.troubled, row.in_shadow)
            if (known := self._known.get((row.project, row.lane))) is not None:
                found.since = min(known.since, found.since) if known.since and found.since else None
                found.ready_at = min(known.ready_at, found.ready_at)
            self._known[row.project, row.lane] = found


def _seconds(since: datetime | None) -> float:
    return since.timestamp() if since else -_NEVER
