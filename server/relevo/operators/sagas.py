"""What support people ask: what became of an event, of one push, of one phone or person, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from relevo.client import verbs
from relevo.client.verbs import Explanation
from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators import history
from relevo.operators.health import MOST_COUNTED

_SQL = queries.load("sagas", "insights")
_MOST_IDS = 2**63
_LOOKED_AT = 5_000
_DELIVERIES_LOOKED_AT = 10_000
_SAMPLE = 2_000
_REQUESTS = 20
"""So many requests of an event are told of at once."""
_KNOWN = 10_000
"""The deliveries of an event with no more are all known while its requests are looked at."""
_REQUESTS_LOOKED_AT = {False: 500, True: 150}
_BEFORE_FIRST = timedelta(minutes=2)
_REQUEST_PLACE = re.compile(r"(\d{1,17})-([0-9a-f-]{36})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_PHONES = 20
_EXPLAINED_EVENTS, _EXPLAINED_PHONES = 10, 3
"""As many phones of an owner are shown."""
_MOST_PREFERENCES = 200
_MOST_FOUND = 20
_MOST_TYPES = 50
_TAKEN = ("sent", "ok", "unconfirmed")

Row = dict[str, Any]


def _rows(database: Database, statement: str, **parameters: object) -> list[Row]:
    with database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[statement], parameters).fetchall()


@dataclass(frozen=True)
class Events:
    """Some events, and before which one the next page begins; None if there is none."""

    rows: list[Row]
    next: int | None = None
    looked_at: int = 0


def events(
    database: Database,
    *,
    event_type: str | None = None,
    state: str | None = None,
    project: str | None = None,
    before: int | None = None,
    limit: int = 25,
) -> Events:
    """Return events that fit, newest first; it looks at a bounded number, so a page may hold fewer than there are."""
    filtered = event_type is not None or state is not None or project is not None
    look_at = _LOOKED_AT if filtered else limit + 1
    asked = {"event_type": event_type, "state": state, "project": project, "before": before}
    found = _rows(database, "list_recent_events", **asked, look_at=look_at, limit=limit + 1)
    rows = [row for row in found if row["id"] is not None]
    looked_at = found[0]["looked_at"]
    if len(rows) > limit:
        return Events(rows[:limit], rows[limit - 1]["id"], looked_at)
    return Events(rows, found[0]["last_looked"] if filtered and looked_at == look_at else None, looked_at)


def event_types(database: Database) -> list[str]:
    """Return the types of events there are, so many of them as one may choose from."""
    return [row["event_type"] for row in _rows(database, "list_event_types", limit=_MOST_TYPES)]


@dataclass(frozen=True)
class Requests:
    """Some of the requests in which an event was sent, and behind what the next page begins, if there is one."""

    rows: list[Row]
    more: int = 0
    """How many more were found."""
    next: str = ""
    is_all: bool = True
    """Whether the look came to the end of what there is."""


@dataclass(frozen=True)
class Nobody:
    """Why an event went out to nobody, judged by the phones as they are today."""

    why: str
    """owners_, installations_ or everyone_ with unknown (there is no such phone) or silent (none may receive); matching
    where no preference does; not_then where some phone may receive today."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why phones that are meant get nothing, and how many."""


@dataclass(frozen=True)
class Saga:
    """All that happened to one event."""

    event: Row
    counts: dict[str, int]
    """Its deliveries by status, told without counting them."""
    sample: Row
    errors: list[Row]
    waits: list[Row]
    incidents: list[Row]
    requests: Requests
    paused: dict[str, str] = field(default_factory=dict)
    """Why cycles that it waits for are paused."""
    pauses: list[Row] = field(default_factory=list)
    """The pauses on its way that are over."""
    nobody: Nobody | None = None
    """Why it went out to nobody, if it did."""


def saga(database: Database, event_id: int, *, requests_after: str = "") -> Saga | None:
    """Return all that happened to one event, or None if there is none, or it was archived.

    `requests_after` is the `next` of the page before of its requests.
    """
    if not 0 < event_id < _MOST_IDS:
        return None
    event = next(iter(_rows(database, "read_saga", event_id=event_id, most=MOST_COUNTED)), None)
    with database.connection() as connection:
        status = verbs.get(connection, event_id)
    if event is None or status is None:
        return None
    place = {"event_id": event_id, "event_day": event["event_day"]}
    sample = _rows(database, "sum_event_sample", **place, most=_SAMPLE)[0]
    return Saga(
        event,
        dict(status.deliveries),
        sample,
        _rows(database, "list_errors_of_event", **place, most=_SAMPLE),
        _rows(database, "list_event_waits", event_id=event_id),
        _rows(database, "list_event_incidents", event_id=event_id),
        _requests_of_event(database, event, _last_request(event, sample, status.deliveries), requests_after),
        _paused(database),
        history.event_pauses(database, event_id),
        _nobody(database, event),
    )


def _nobody(database: Database, event: Row) -> Nobody | None:
    if event["state"] != "fanned" or event["deliveries_created"] or event["end_reason"]:
        return None
    if event["audience"] == "matching":
        return Nobody("matching")
    named = _rows(database, "list_named", event_id=event["id"], most=MOST_COUNTED)
    found = left_out(
        database,
        installations=[str(row["installation_id"]) for row in named],
        owners=event["owners"],
        everyone=event["audience"] == "everyone",
        category=event["category"],
    )
    whom = "owners" if event["owners"] else event["audience"]
    if not found.looked_at:
        return Nobody(f"{whom}_unknown")
    silent = sum(found.reasons.values()) == found.looked_at
    return Nobody(f"{whom}_silent", found.reasons) if silent else Nobody("not_then")


def _last_request(event: Row, sample: Row, counts: Mapping[str, int]) -> datetime:
    """Return until when an event may have been in requests."""
    is_whole = sample["looked_at"] >= event["deliveries_created"] and sample["last_attempt_at"] is not None
    is_open = any(counts.get(each, 0) > 0 for each in ("pending", "retryable"))
    until: datetime = sample["last_attempt_at"] if is_whole and not is_open else event["now"]
    return until


def _requests_of_event(database: Database, event: Row, until: datetime, after: str) -> Requests:
    """Look at the requests since an event began to go out; if they were all others', at those around its first push."""
    if not event["deliveries_created"]:
        return Requests([])
    if place := _REQUEST_PLACE.fullmatch(after):
        since, former = _EPOCH + timedelta(microseconds=int(place[1])), _as_uuid(place[2])
        return _look_for_requests(database, event, since, former or UUID(int=0), until)
    found = _look_for_requests(database, event, event["fanout_started_at"], UUID(int=0), until)
    if found.rows or found.is_all or event["first_sent_at"] is None:
        return found
    since = max(event["fanout_started_at"], event["first_sent_at"] - _BEFORE_FIRST)
    return _look_for_requests(database, event, since, UUID(int=0), until)


def _look_for_requests(database: Database, event: Row, since: datetime, after: UUID, until: datetime) -> Requests:
    by_key = event["deliveries_created"] > _KNOWN
    look_at = _REQUESTS_LOOKED_AT[by_key]
    asked = {"event_id": event["id"], "event_day": event["event_day"], "since": since, "after": after, "until": until}
    bounds = {"by_key": by_key, "most": _KNOWN, "look_at": look_at, "limit": _REQUESTS}
    found = _rows(database, "list_event_requests", **asked, **bounds)
    rows = [row for row in found if row["id"] is not None]
    ends, is_all = found[0], found[0]["looked_at"] < look_at
    if ends["found"] > len(rows):
        return Requests(
            rows, ends["found"] - len(rows), _request_place(rows[-1]["journalled_at"], rows[-1]["id"]), is_all
        )
    return Requests(rows, 0, "" if is_all else _request_place(ends["last_at"], ends["last_id"]), is_all)


def _request_place(at: datetime, request_id: UUID) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{request_id}"


def _paused(database: Database) -> dict[str, str]:
    return {row["cycle"]: row["paused_reason"] for row in _rows(database, "list_cycles") if row["paused_reason"]}


@dataclass(frozen=True)
class Deliveries:
    """Some deliveries, and behind what the next page begins; None if there is none."""

    rows: list[Row]
    next: str | None = None


def event_deliveries(
    database: Database, seen: Saga, *, status: str | None = None, after: str | None = None, limit: int = 25
) -> Deliveries:
    """Return deliveries of a saga's event, by installation; those of one status out of a bounded number.

    Failed ones are all found, by number. `after` is the `next` of the page before.
    """
    if status is not None and not seen.counts.get(status):
        return Deliveries([])
    place: Row = {"event_id": seen.event["id"], "event_day": seen.event["event_day"]}
    if status == "failed":
        number = int(after) if after is not None and _is_id(after) else None
        rows = _rows(database, "list_failed_of_event", **place, after=number, limit=limit + 1)
        return Deliveries(rows[:limit], str(rows[limit - 1]["id"]) if len(rows) > limit else None)
    place |= {"after": _as_uuid(after or ""), "look_at": _DELIVERIES_LOOKED_AT if status is not None else limit + 1}
    rows = _rows(database, "list_event_deliveries_by_status", **place, status=status, limit=limit + 1)
    if len(rows) > limit:
        return Deliveries(rows[:limit], str(rows[limit - 1]["installation_id"]))
    end = _rows(database, "find_end_of_look", **place) if status is not None else []
    return Deliveries(rows, str(end[0]["installation_id"]) if end else None)


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
    """What it waits for, while it is open or its receipt is awaited."""
    why: Explanation
    changes: Row | None = None
    """What was changed of the phone since the event went out, and when."""
    redriven: list[Row] = field(default_factory=list)
    """When it was a dead letter that an operator had sent anew, and by whom, if that was noted."""
    failures: list[Row] = field(default_factory=list)
    """What went wrong with it, attempt by attempt, as far as it is kept."""
    pauses: list[Row] = field(default_factory=list)
    """The pauses on its way that are over."""
    event: Mapping[str, Any] = field(default_factory=dict)
    """Its event as the app's door tells of it; nothing once that is gone."""

    @property
    def tries(self) -> list[Try]:
        """Each request it was in, with what went wrong in it, if that is known."""
        said = {row["request_id"]: row for row in self.failures if row["request_id"] is not None}
        return [Try(row, said.get(row["id"]) if row["outcome"] != "held_back" else None) for row in self.requests]

    @property
    def apart(self) -> list[Row]:
        """What went wrong with it in no request that is known: before one, or by a receipt."""
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
        return self.delivery["status"] in _TAKEN or not refused

    @property
    def deaths(self) -> list[Row]:
        """When it failed for good, and was sent anew afterwards."""
        return [row for row in self.failures if row["became"] == "failed" and row["at"] != _ended(self.delivery)]


def push(database: Database, delivery_id: int) -> Push | None:
    """Return one delivery by its number, or None if there is none, or it was archived."""
    if not 0 < delivery_id < _MOST_IDS:
        return None
    found = next(iter(_rows(database, "find_delivery", id=delivery_id)), None)
    if found is None:
        return None
    event = next(iter(_rows(database, "find_event", event_id=found["event_id"])), None)
    with database.connection() as connection:
        why = verbs.explain(connection, found["event_id"], found["installation_id"])
        status = verbs.get(connection, found["event_id"])
    told = status.raw if status is not None else {}
    late = _rows(database, "list_late_tickets", event_day=found["event_day"], id=delivery_id)
    changes = _changes(database, found["event_id"], [found["installation_id"]]).get(found["installation_id"])
    title = event["title"] if event else ""
    requests = _requests(database, found)
    failures = _rows(database, "list_failed_attempts", event_day=found["event_day"], id=delivery_id)
    redriven = _redriven(database, found, requests, failures)
    pauses = history.pauses(database, list(_spans(found, requests)))
    return Push(found, title, requests, late, _wait(database, found), why, changes, redriven, failures, pauses, told)


def _spans(found: Row, requests: Sequence[Row]) -> Iterator[tuple[str, str, datetime, datetime]]:
    """Return between which instants a delivery waited to be sent, and for its receipt."""
    until = found["completed_at"] or found["now"]
    is_sent = found["status"] in _TAKEN
    yield (
        "dispatch",
        "",
        found["created_at"],
        found["last_attempt_at"] if is_sent and found["last_attempt_at"] else until,
    )
    if requests and found["provider_ticket_id"]:
        yield "receipt", "", requests[0]["journalled_at"], until


def _redriven(database: Database, found: Row, requests: Sequence[Row], failures: Sequence[Row]) -> list[Row]:
    """Return when, and by whom, a delivery was opened again: after a death that is known, before it was sent again.

    Of one whose death is not known: it had been sent before, and its attempts are counted since then.
    """
    asked = {"project": found["project"], "event_id": found["event_id"], "since": found["created_at"]}
    listed = _rows(database, "list_delivery_redrives", **asked)
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
    return _rows(database, "list_delivery_requests", **asked, **days)


def _wait(database: Database, found: Row) -> Row | None:
    if found["completed_at"] is not None:
        return None
    asked = {name: found[name] for name in ("id", "event_id", "project")}
    sent = {"open": found["status"] != "sent", "sent_at": found["last_attempt_at"]}
    return next(iter(_rows(database, "read_delivery_wait", **asked, **sent)))


@dataclass(frozen=True)
class Phones:
    """Some phones with what they ask for, and what was sent to them."""

    rows: list[Row]
    preferences: dict[UUID, list[Row]]
    history: list[Row]
    next: int | None = None
    """Before which delivery the next page of the history begins; None if there is none."""


def phone(database: Database, installation_id: UUID, *, before: int | None = None, limit: int = 25) -> Phones | None:
    """Return one phone, or None if there is none; of a forgotten one its history alone."""
    found = _phones(database, [installation_id], before, limit)
    return found if found.rows or found.history else None


def owner(database: Database, name: str, *, before: int | None = None, limit: int = 25) -> Phones | None:
    """Return the newest phones of an owner, or None if there is no such owner."""
    if not _storable(name) or not _rows(database, "find_owner", owner=name):
        return None
    listed = _rows(database, "list_phones_of_owner", owner=name, limit=MOST_PHONES)
    return _phones(database, [row["installation_id"] for row in listed], before, limit)


def owners(database: Database, first: str = "", *, behind: bool = False, limit: int = 25) -> tuple[list[Row], str]:
    """Return owners by their names, from one on or behind it, and behind which the next page begins, if any."""
    if first and not _storable(first):
        return [], ""
    rows = _rows(database, "list_owners", first=first, behind=behind, limit=limit + 1, most=MOST_PHONES)
    return rows[:limit], rows[limit - 1]["owner"] if len(rows) > limit else ""


def owners_of(database: Database, installations: Sequence[UUID]) -> dict[UUID, str]:
    """Return the owners of phones; those without one lack."""
    rows = _rows(database, "list_owners_of", installations=list(installations))
    return {row["installation_id"]: row["owner"] for row in rows}


@dataclass(frozen=True)
class Recent:
    """One of the latest events, and for some phones why each got it, or not."""

    event: Row
    reasons: list[Reason]


def recent(database: Database, installations: Sequence[UUID]) -> list[Recent]:
    """Tell of the latest events why some phones, a few of them, got each, or not."""
    asked = installations[:_EXPLAINED_PHONES]
    if not asked:
        return []
    latest = events(database, limit=_EXPLAINED_EVENTS).rows
    return [Recent(row, explain(database, row["id"], asked)) for row in latest]


def _phones(database: Database, installations: Sequence[UUID], before: int | None, limit: int) -> Phones:
    asked = {"installations": list(installations)}
    rows = _rows(database, "list_phones", **asked)
    preferences: dict[UUID, list[Row]] = {}
    for row in _rows(database, "list_preferences_of_phones", **asked, limit=_MOST_PREFERENCES):
        preferences.setdefault(row["installation_id"], []).append(row)
    history = _rows(database, "list_history", **asked, before=before, limit=limit + 1)
    more = history[limit - 1]["id"] if len(history) > limit else None
    return Phones(rows, preferences, history[:limit], more)


@dataclass(frozen=True)
class Reason:
    """Why a phone got an event, or not."""

    installation_id: UUID
    told: Explanation
    """By the phone as it is today."""
    changes: Row | None = None
    """What was changed of it since the event went out, and when; None if the event has not, or either is gone."""


def explain(database: Database, event_id: int, installations: Sequence[UUID]) -> list[Reason]:
    """Tell for some phones why each gets an event, or not, and what was changed since."""
    asked = installations[:MOST_PHONES]
    changes = _changes(database, event_id, asked)
    with database.connection() as connection:
        return [Reason(each, verbs.explain(connection, event_id, each), changes.get(each)) for each in asked]


def _changes(database: Database, event_id: int, installations: Sequence[UUID]) -> dict[UUID, Row]:
    rows = _rows(database, "list_changes_since", event_id=event_id, installations=list(installations))
    return {row["installation_id"]: row for row in rows}


@dataclass(frozen=True)
class LeftOut:
    """How many of the phones that are meant were looked at, and how many of them get nothing, by the reason."""

    looked_at: int
    reasons: dict[str, int]

    @property
    def is_all(self) -> bool:
        """Tell whether there were no more than were looked at."""
        return self.looked_at < MOST_COUNTED


def left_out(
    database: Database,
    *,
    installations: Sequence[str] = (),
    owners: Sequence[str] = (),
    everyone: bool = False,
    category: str | None = None,
) -> LeftOut:
    """Count who of an audience gets no push, and why; of everyone, the newest phones are looked at."""
    asked = {"installations": list(installations), "owners": list(owners), "everyone": everyone, "category": category}
    rows = _rows(database, "count_left_out", **asked, most=MOST_COUNTED)
    reasons = {row["reason"]: row["phones"] for row in rows if row["reason"] is not None}
    return LeftOut(sum(row["phones"] for row in rows), reasons)


@dataclass(frozen=True)
class Found:
    """What fits a text, by kind."""

    events: list[Row] = field(default_factory=list)
    phones: list[Row] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    tenders: list[Row] = field(default_factory=list)
    """One row for each event that told of it, and one without an event where none did."""
    by_token: bool = False
    """Whether the text is a push token, which must not be shown or put into an address."""


def find_events(database: Database, text: str) -> list[Row]:
    """Return the events of a number, or of a key, whatever their types."""
    found = _rows(database, "find_event", event_id=int(text)) if _is_id(text) else []
    if not _storable(text):
        return found
    more = _rows(database, "find_events_by_key", key=text, limit=_MOST_FOUND)
    return [*found, *(row for row in more if row["id"] not in {each["id"] for each in found})]


def find(database: Database, text: str) -> Found:
    """Return what an event's number or key, an owner, an installation, a push token or a tender's code leads to."""
    if not _storable(text):
        return Found()
    number = _as_uuid(text)
    phones = _rows(database, "find_phone", installation_id=number, token=text)
    tenders = _rows(database, "find_tenders", code=text, limit=_MOST_FOUND)
    told = {row["id"] for row in tenders}
    return Found(
        [row for row in find_events(database, text) if row["id"] not in told],
        phones,
        [row["owner"] for row in _rows(database, "find_owner", owner=text)],
        tenders,
        any(row["installation_id"] != number for row in phones),
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text[:30]) < _MOST_IDS


def _as_uuid(text: str) -> UUID | None:
    with suppress(ValueError):
        return UUID(text)
    return None


def _storable(text: str) -> bool:
    """Tell whether the database could hold a text at all."""
    return bool(text) and "\x00" not in text and text.encode("utf-8", "replace").decode() == text
