"""Events: the latest, what became of one, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from relevo.client import verbs
from relevo.client.progress import progress_of
from relevo.client.values import EventStatus
from relevo.core import queries
from relevo.core.hidden_texts import shown
from relevo.core.statuses import SENT
from relevo.database.pool import Database
from relevo.operators import reading, runs, timeline
from relevo.operators.audience import Nobody, nobody
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.health.waiting import Wait, stopped, tried_again, waits_of, why_it_waits
from relevo.operators.reading import MAX_LIMIT, Page, Row, fetch, fetch_by_key, fetch_page
from relevo.operators.timeline import Moment, Requests

_SQL = queries.load("events")

_LOOKED_AT = 5_000
_SAMPLE = 2_000
_ERRORS_SAMPLE = 2_000
_SPANS_SAMPLE = 1_000
_REQUESTS = 20
"""So many requests of an event are told of at once."""
_KNOWN = 10_000
"""The deliveries of an event with no more are all known while its requests are looked at."""
_REQUESTS_LOOKED_AT = {False: 500, True: 150}
_BEFORE_FIRST = timedelta(minutes=2)
_REQUEST_PLACE = re.compile(r"(\d{1,17})-([0-9a-f-]{36})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_FOUND = 20
_MOST_TYPES = 50
TOLD_APART = ("sending", "sent", "finished")
"""How far an event can be that was fanned out."""


def latest(
    database: Database,
    *,
    event_type: str | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> Page:
    """Return events, newest first, each with how far it is in a word, which `state` may be as well.

    For such a word a bounded number of events is looked at, so that a page may have fewer than there is room for.
    """
    told_apart = state in TOLD_APART
    most = min(limit, MAX_LIMIT)
    look = MAX_LIMIT if told_apart else most
    stored = "fanned" if told_apart else state
    rows = fetch(database, _SQL["list_events"], event_type=event_type, state=stored, before=before, limit=look)
    told = [{**row, "progress": progress_of(row["state"], row["deliveries"])} for row in rows]
    fit = [row for row in told if not told_apart or row["progress"] == state]
    last = fit[most - 1] if len(fit) > most else rows[-1] if len(rows) == look else None
    return Page(fit[:most], str(last["id"]) if last else "", look if last and len(fit) < most else 0)


def page(
    database: Database,
    *,
    event_type: str | None = None,
    state: str | None = None,
    project: str | None = None,
    before: int | None = None,
    limit: int = 25,
) -> Page:
    """Return events that fit, newest first; it looks at a bounded number, so a page may hold fewer than there are."""
    asked: Row = {"event_type": event_type, "state": state, "project": project}
    look = _LOOKED_AT if any(each is not None for each in asked.values()) else 0
    return fetch_page(database, _SQL["list_recent_events"], str(before or ""), limit, look=look, **asked)


def types(database: Database) -> list[str]:
    """Return the types of events there are, so many of them as one may choose from."""
    return [row["event_type"] for row in fetch(database, _SQL["list_event_types"], limit=_MOST_TYPES)]


def is_event(database: Database, event_id: int) -> bool:
    """Return whether there is an event of this number."""
    with database.connection() as connection:
        return verbs.get(connection, event_id) is not None


def too_late_to_stop(database: Database, event_id: int) -> Row:
    """Return how many pushes of an event were sent, and how many are being sent: what a cancellation cannot stop."""
    with database.connection() as connection:
        status = verbs.get(connection, event_id)
    sent = sum(status.deliveries.get(name, 0) for name in SENT) if status else 0
    claimed = fetch(database, _SQL["count_event_claimed"], event_id=event_id)[0]["claimed"]
    return {"sent": sent, "claimed": claimed}


@dataclass(frozen=True)
class Waiting:
    """Why what is open of an event waits, and why the event reached nobody, if it did not."""

    waits: list[Wait]
    nobody: Nobody | None


def waiting(database: Database, event_id: int) -> Waiting:
    """Return what an event waits for; of one that is archived there is nothing to tell."""
    event = next(iter(fetch(database, _SQL["read_event"], event_id=event_id, most=MOST_COUNTED)), None)
    if event is None:
        return Waiting([], None)
    waits = fetch(database, _SQL["list_event_waits"], event_id=event_id)
    return Waiting(waits_of(event, waits, runs.paused(database)), nobody(database, event))


@dataclass(frozen=True)
class Story:
    """The story of one event: its timeline, how far its deliveries are, its errors, and the reason why it waits."""

    event: Row
    status: EventStatus
    """As the app's verbs return it."""
    moments: list[Moment]
    """The timeline in the order of time, with the deadline if that still counts."""
    sample: Row
    errors: list[Row]
    waits: list[Row]
    requests: Requests
    paused: dict[str, str] = field(default_factory=dict)
    """Why cycles that it waits for are paused."""
    nobody: Nobody | None = None
    """Why it went out to nobody, if it did."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The event's deliveries by status, without counting them."""
        return self.status.deliveries

    @property
    def why_it_waits(self) -> list[str]:
        """Why what is open of it waits, and until when."""
        return why_it_waits(self.event, self.waits, self.paused)

    @property
    def tried_again(self) -> list[str]:
        """When what went wrong is tried again, for each of `errors`, as the end of a sentence."""
        held = stopped(self.waits)
        return [tried_again(row["next_attempt_at"], self.event["now"], held) for row in self.errors]


def story(database: Database, event_id: int, *, requests_after: str = "") -> Story | None:
    """Return what became of one event, or None if there is none, or it was archived.

    `requests_after` is the `next` of the page before of its requests.
    """
    if not 0 < event_id < reading.MOST_IDS:
        return None
    event = next(iter(fetch(database, _SQL["read_event"], event_id=event_id, most=MOST_COUNTED)), None)
    with database.connection() as connection:
        status = shown(verbs.get(connection, event_id))
    if event is None or status is None:
        return None
    place = {"event_id": event_id, "event_day": event["event_day"]}
    counts = status.deliveries
    sample = fetch(database, _SQL["sum_event_sample"], **place, most=_SAMPLE)[0]
    requests = _requests_of_event(database, event, _last_request(event, sample, counts), requests_after)
    incidents = fetch(database, _SQL["list_event_incidents"], event_id=event_id)
    happened = timeline.of_event(event, counts, sample, requests, incidents)
    return Story(
        event,
        status,
        sorted([*happened, *timeline.of_pauses(_pauses(database, event_id))], key=lambda moment: moment.at),
        sample,
        fetch_by_key(database, _SQL["list_event_errors"], **place, most=_ERRORS_SAMPLE),
        fetch(database, _SQL["list_event_waits"], event_id=event_id),
        requests,
        runs.paused(database),
        nobody(database, event),
    )


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
        since, former = _EPOCH + timedelta(microseconds=int(place[1])), reading.as_uuid(place[2])
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
    found = fetch(database, _SQL["list_event_requests"], **asked, **bounds)
    rows = [row for row in found if row["id"] is not None]
    ends, is_all = found[0], found[0]["looked_at"] < look_at
    if ends["found"] > len(rows):
        return Requests(
            rows, ends["found"] - len(rows), _request_place(rows[-1]["journalled_at"], rows[-1]["id"]), is_all
        )
    return Requests(rows, 0, "" if is_all else _request_place(ends["last_at"], ends["last_id"]), is_all)


def _request_place(at: datetime, request_id: UUID) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{request_id}"


def _pauses(database: Database, event_id: int) -> list[Row]:
    """Return the pauses that are over and lay in the way of an event, oldest first."""
    spans = fetch_by_key(database, _SQL["find_event_spans"], event_id=event_id, most=_SPANS_SAMPLE)
    return runs.pauses(database, [(row["cycle"], row["source"], row["since"], row["until"]) for row in spans])


def find(database: Database, text: str) -> list[Row]:
    """Return the events of a number, or of a key, whatever their types."""
    found = fetch(database, _SQL["find_event"], event_id=int(text)) if reading.is_id(text) else []
    if not reading.storable(text):
        return found
    more = fetch(database, _SQL["find_events_by_key"], key=text, limit=_MOST_FOUND)
    return [*found, *(row for row in more if row["id"] not in {each["id"] for each in found})]
