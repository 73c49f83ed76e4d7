"""Deliveries: lists of them, one with all that is known of it, and those that failed for good."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from uuid import UUID

from relevo.client import verbs
from relevo.client.values import Explanation
from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.core.hidden_texts import shown
from relevo.core.statuses import SENT
from relevo.database.pool import Database
from relevo.operators import runs
from relevo.operators.events import Story
from relevo.operators.phones import changes_since
from relevo.operators.reading import MAX_LIMIT, MOST_IDS, Page, Row, as_uuid, fetch, is_id

_SQL = queries.load("deliveries", "events")

_LOOKED_AT = 5_000
_LOOKED_AT_IN_EVENT = 10_000
MOST_DEAD = 10_000
"""How many dead letters are grouped, the newest."""
_ABOUT_PAGE = ("looked_at", "last_day", "last_place")
_PLACES = {True: re.compile(r"(\d{4}-\d\d-\d\d):([0-9a-f-]{36})"), False: re.compile(r"(\d{4}-\d\d-\d\d):(\d{1,18})")}


def page(
    database: Database,
    *,
    event: int | None = None,
    installation: UUID | None = None,
    state: str | None = None,
    before: str | None = None,
    limit: int = 20,
) -> Page:
    """Return deliveries, newest first; those of one event by installation. A page of one state looks at so many rows.

    `before` is the `next` of the page before.
    """
    day, number = _place(before, by_phone=event is not None)
    asked = {"event_id": event, "installation_id": installation, "day": day, "number": number, "state": state}
    name = f"list_deliveries_of_{'event' if event else 'phone'}" if event or installation else "list_deliveries"
    limit = min(limit, MAX_LIMIT)
    look_at = _LOOKED_AT if state else limit + 1
    found = fetch(database, _SQL[name], **asked, look_at=look_at, limit=limit + 1)
    looked_at, last = found[0]["looked_at"], f"{found[0]['last_day']}:{found[0]['last_place']}"
    fitting = [{key: value for key, value in row.items() if key not in _ABOUT_PAGE} for row in found if row["id"]]
    if len(fitting) > limit:
        last = f"{fitting[limit - 1]['event_day']}:{fitting[limit - 1]['place']}"
    if len(fitting) <= limit and looked_at < look_at:
        return Page(fitting)
    return Page(fitting[:limit], last, looked_at if len(fitting) < limit else 0)


def _place(before: str | None, *, by_phone: bool) -> tuple[date | None, str | None]:
    """Read where a page begins, as its predecessor wrote it: a day, and a delivery's number or an installation."""
    if before is None:
        return None, None
    found = _PLACES[by_phone].fullmatch(before)
    with suppress(ValueError):
        if found:
            return date.fromisoformat(found[1]), str(UUID(found[2])) if by_phone else found[2]
    raise UsageError(f"{before[:60]} is no place in this list.", hint="Copy the value that the page before gave.")


def failed_attempts(database: Database, deliveries: Sequence[Row]) -> dict[int, list[Row]]:
    """Return what went wrong with these deliveries, attempt by attempt, by their numbers; those that went well lack."""
    asked = {"days": [row["event_day"] for row in deliveries], "ids": [row["id"] for row in deliveries]}
    return {row["id"]: row["failed_attempts"] for row in fetch(database, _SQL["list_failures_of"], **asked)}


def of_event(database: Database, event_id: int, *, after: UUID | None = None, limit: int = 50) -> list[Row]:
    """Return deliveries of one event, by installation."""
    return fetch(database, _SQL["list_event_deliveries"], event_id=event_id, after=after, limit=min(limit, MAX_LIMIT))


def page_of_event(
    database: Database, seen: Story, *, status: str | None = None, after: str | None = None, limit: int = 25
) -> Page:
    """Return deliveries of a story's event, by installation; those of one status out of a bounded number.

    Failed ones are all found, by number. `after` is the `next` of the page before.
    """
    if status is not None and not seen.counts.get(status):
        return Page([])
    place: Row = {"event_id": seen.event["id"], "event_day": seen.event["event_day"]}
    if status == "failed":
        number = int(after) if after is not None and is_id(after) else None
        rows = fetch(database, _SQL["list_failed_of_event"], **place, after=number, limit=limit + 1)
        return Page(rows[:limit], str(rows[limit - 1]["id"]) if len(rows) > limit else "")
    place |= {"after": as_uuid(after or ""), "look_at": _LOOKED_AT_IN_EVENT if status is not None else limit + 1}
    rows = fetch(database, _SQL["list_event_deliveries_by_status"], **place, status=status, limit=limit + 1)
    if len(rows) > limit:
        return Page(rows[:limit], str(rows[limit - 1]["installation_id"]))
    end = fetch(database, _SQL["find_end_of_look"], **place) if status is not None else []
    return Page(rows, str(end[0]["installation_id"]) if end else "")


@dataclass(frozen=True)
class Try:
    """One request that a delivery was in, and what went wrong with it there."""

    request: Row
    failure: Row | None


@dataclass(frozen=True)
class Push:
    """One delivery with all that is known of it."""

    delivery: Row
    title: str
    requests: list[Row]
    late_tickets: list[Row]
    wait: Row | None
    """The reason why it waits, while it is open or its receipt is awaited."""
    why: Explanation
    changes: Row | None = None
    """The changes of the phone since the event went out, with their times."""
    redriven: list[Row] = field(default_factory=list)
    """When it was a dead letter that an operator had sent anew, and by whom, if that was noted."""
    failures: list[Row] = field(default_factory=list)
    """The delivery's errors, attempt by attempt, as far as they are stored."""
    pauses: list[Row] = field(default_factory=list)
    """The pauses on its way that are over."""

    @property
    def tries(self) -> list[Try]:
        """Each request it was in, with what went wrong in it, if that is known."""
        said = {row["request_id"]: row for row in self.failures if row["request_id"] is not None}
        return [Try(row, said.get(row["id"]) if row["outcome"] != "held_back" else None) for row in self.requests]

    @property
    def apart(self) -> list[Row]:
        """The delivery's errors outside of known requests: before one, or by a receipt."""
        told = {row["id"] for row in self.requests}
        return [row for row in self.failures if row["request_id"] not in told]

    @property
    def last_is_told(self) -> bool:
        """Whether what went wrong with its last attempt, if something did, is among its failures."""
        last = self.delivery["last_attempt_at"]
        return last is None or any(row["at"] >= last for row in self.failures)

    @property
    def was_taken(self) -> bool:
        """Whether the push service took it at its last attempt, whatever became of it there."""
        last = self.delivery["last_attempt_at"]
        if last is None or self.delivery["provider_ticket_id"] is None:
            return False
        refused = any(row["at"] >= last and row["found_by"] != "receipt" for row in self.failures)
        return self.delivery["status"] in SENT or not refused

    @property
    def deaths(self) -> list[Row]:
        """When it failed for good, and was sent anew afterwards."""
        return [row for row in self.failures if row["became"] == "failed" and row["at"] != _ended(self.delivery)]


def push(database: Database, delivery_id: int) -> Push | None:
    """Return one delivery by its number, or None if there is none, or it was archived."""
    if not 0 < delivery_id < MOST_IDS:
        return None
    found = next(iter(fetch(database, _SQL["find_delivery"], id=delivery_id)), None)
    if found is None:
        return None
    event = next(iter(fetch(database, _SQL["find_event"], event_id=found["event_id"])), None)
    with database.connection() as connection:
        why = shown(verbs.explain(connection, found["event_id"], found["installation_id"]))
    late = fetch(database, _SQL["list_late_tickets"], event_day=found["event_day"], id=delivery_id)
    changes = changes_since(database, found["event_id"], [found["installation_id"]]).get(found["installation_id"])
    title = event["title"] if event else ""
    requests = _requests(database, found)
    failures = fetch(database, _SQL["list_failed_attempts"], event_day=found["event_day"], id=delivery_id)
    redriven = _redriven(database, found, requests, failures)
    pauses = runs.pauses(database, list(_spans(found, requests)))
    return Push(found, title, requests, late, _wait(database, found), why, changes, redriven, failures, pauses)


def _spans(found: Row, requests: Sequence[Row]) -> Iterator[tuple[str, str, datetime, datetime]]:
    """Return between which instants a delivery waited to be sent, and for its receipt."""
    until = found["completed_at"] or found["now"]
    sent_at = found["last_attempt_at"] if found["status"] in SENT else None
    yield "dispatch", "", found["created_at"], sent_at or until
    if requests and found["provider_ticket_id"]:
        yield "receipt", "", requests[0]["journalled_at"], until


def _redriven(database: Database, found: Row, requests: Sequence[Row], failures: Sequence[Row]) -> list[Row]:
    """Return when, and by whom, a delivery was opened again: after a death that is known, before it was sent again.

    Of one whose death is not known: it had been sent before, and its attempts are counted since then.
    """
    asked = {"project": found["project"], "event_id": found["event_id"], "since": found["created_at"]}
    listed = fetch(database, _SQL["list_delivery_redrives"], **asked)
    sent = [row["journalled_at"] for row in requests]
    deaths = [row["at"] for row in failures if row["became"] == "failed"]
    if deaths:
        ends = [min((each for each in sent if each > death), default=found["now"]) for death in deaths]
        spans = zip(deaths, ends, strict=True)
        opened = [[row for row in listed if death <= row["at"] <= end] for death, end in spans]
        return [each[-1] for death, each in zip(deaths, opened, strict=True) if each and death != _ended(found)]
    tried = found["attempt_count"]
    return [row for row in listed if sent and sent[0] < row["at"] and tried <= sum(each > row["at"] for each in sent)]


def _ended(found: Row) -> datetime | None:
    """Return when a delivery became the dead letter that it is."""
    return found["completed_at"] if found["status"] == "failed" else None


def _requests(database: Database, found: Row) -> list[Row]:
    until = found["last_attempt_at"] or (found["now"] if found["completed_at"] is None else found["completed_at"])
    days = {"first_day": found["created_at"].astimezone(UTC).date(), "last_day": until.astimezone(UTC).date()}
    asked = {"id": found["id"], "since": found["created_at"], "until": max(until, found["updated_at"])}
    return fetch(database, _SQL["list_delivery_requests"], **asked, **days)


def _wait(database: Database, found: Row) -> Row | None:
    if found["completed_at"] is not None:
        return None
    asked = {name: found[name] for name in ("id", "event_id", "project")}
    sent = {"open": found["status"] != "sent", "sent_at": found["last_attempt_at"]}
    return next(iter(fetch(database, _SQL["read_delivery_wait"], **asked, **sent)))


def dead_letters(database: Database) -> list[Row]:
    """Return the newest dead letters by error, project and type, the largest group first."""
    return fetch(database, _SQL["group_dead_letters"], look=MOST_DEAD)
