"""The app's verbs: enqueue, cancel, and see how far an event is, waiting for it if wished."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import Response

from relevo.client.values import Enqueued, EventStatus
from relevo.core import traceparents
from relevo.core.statuses import SENT, DeliveryStatus, Progress
from relevo.http import event_schema
from relevo.http.database_threads import threads_of
from relevo.http.fields import NO_TEXT, Body, Exact, Id, Reason, Text, Text100, Text200
from relevo.http.guard import Guarded, admit_again, call, caller_of, token_of
from relevo.http.json_response import Json
from relevo.http.problems import ProblemBody, invalid, missing
from relevo.http.shared_writes import SharedWrites
from relevo.http.waiting import EventWaiters
from relevo.operators.deliveries import of_event
from relevo.verbs import events

router = APIRouter(route_class=Guarded, tags=["events"])

DEFAULT_WAIT_MS, MAX_WAIT_MS = 15_000, 30_000
MOST_AT_ONCE = 1_000
_RETRY_MS = 1_000
_MISSING = missing("There is no such event, or it is another project's.")
_TAKEN = {
    "model": ProblemBody,
    "description": "The project has an event of this type and key with other content (`other-content`, "
    "with what differs).",
}
_STARTED = {"model": ProblemBody, "description": "It has begun, or ended, and stays as it is."}
LEFT = 499  # nobody hears it


EventId = Annotated[int, Path(ge=1, lt=2**63)]
WaitMs = Annotated[int | None, Query(ge=0, le=MAX_WAIT_MS, description="The longest wait, in ms.")]
FormerWaitMs = Annotated[int | None, Query(alias="waitMs", ge=0, le=MAX_WAIT_MS, include_in_schema=False)]
"""The parameter's former name."""
Until = Annotated[
    Literal["sent", "confirmed"], Query(description="Wait until everything is sent, or confirmed by receipts.")
]


Counts = Annotated[dict[DeliveryStatus, int], Field(description="How many deliveries there are of each state.")]
FormerCounts = Annotated[
    dict[DeliveryStatus, int], Field(description="Leaves in 0.6: the same as `deliveries`.", deprecated=True)
]


class EventIn(BaseModel):
    """An event, as the SQL functions take it: it has the last word on every field."""

    model_config = ConfigDict(extra="allow", json_schema_extra=event_schema.EVENT)

    type: str = Field(
        min_length=1, max_length=100, description="What kind of event it is.", json_schema_extra=event_schema.SOMETHING
    )
    key: str | None = Field(
        None,
        min_length=1,
        max_length=300,
        description="The same type and key again is the same event. The header Idempotency-Key may carry the key.",
        json_schema_extra=event_schema.SOMETHING,
    )
    title: Text | None = Field(None, max_length=500)
    body: Text | None = Field(None, max_length=2_000)
    arguments: dict[str, Any] | None = Field(
        None,
        description="What goes into the texts of its type, by name, in place of title and body; "
        "`{}` if they name nothing.",
        max_length=100,
    )
    data: dict[str, Any] | None = Field(None, description="For the app.")
    push: dict[str, Any] | None = Field(None, description="Further fields of the push message.")
    audience: Literal["everyone", "installations", "owners", "matching", "attributes"]
    installations: list[event_schema.Uuid] | None = Field(None, max_length=100_000)
    owners: list[Text200] | None = Field(None, max_length=100_000)
    topics: list[Text100] | None = Field(
        None, max_length=100, description="With an audience of matching: only phones that asked for one of them."
    )
    matching: dict[str, Any] | None = Field(None, json_schema_extra=event_schema.MATCHING)
    where: dict[str, Any] | None = Field(
        None,
        description="Attributes that a phone or its owner must have, of each name one value: an audience of attributes "
        "is these phones, and any other audience is narrowed to them.",
        json_schema_extra=event_schema.WHERE,
    )
    category: Text100 | None = None
    collapse: Text | None = Field(
        None, min_length=1, max_length=64, description="It takes the place of a former one of its type and this key."
    )
    batch: dict[str, Any] | None = Field(
        None,
        description="What it is gathered by, where its type gathers: a key, and the title and body of the push of "
        "several, in which {count}, {others}, {more}, {first}, {second} and {third} are filled in.",
        json_schema_extra=event_schema.BATCH,
    )
    lane: Literal["urgent", "bulk"] | None = None
    at_most_once: StrictBool | None = None
    scheduled_at: event_schema.Moment | None = Field(None, description="When to send it; now if not given.")
    deadline_at: event_schema.Moment | None = Field(None, description="When it is pointless.")
    ttl_s: Annotated[int, Field(ge=1, le=2_419_200), NO_TEXT] | None = None
    licitacion_id: Id | None = Field(None, description="The tender it is about; only where a source of tenders is on.")
    project: Text200 | None = Field(
        None,
        description="The only project whose phones it is for, and in which its key is unique; a token of one project "
        "has its own.",
    )
    traceparent: Text | None = Field(
        None,
        description="The trace it belongs to, by W3C Trace Context; the header `traceparent` if the body has none.",
    )
    on_conflict: Literal["refuse", "keep"] | None = Field(
        None, description="The action if the type and key belong to an event with other content. The default is refuse."
    )


class KeyedEventIn(EventIn):
    """An event with its key."""

    model_config = ConfigDict(json_schema_extra=event_schema.KEYED_EVENT)


class Batch(Exact):
    """Some events, enqueued all or none; each needs its key."""

    events: list[KeyedEventIn] = Field(min_length=1, max_length=MOST_AT_ONCE)


class EnqueuedOut(BaseModel):
    """The answer for one event of the request."""

    event_id: int
    created: bool
    same_content: bool | None = Field(
        description="Whether one that was there says the same; null if not known any more."
    )
    unknown_installations: list[UUID] = Field(description="Named ones that nobody registered: they get nothing.")


class EnqueuedBatch(BaseModel):
    """The answers for the events of the request, in their order."""

    items: list[EnqueuedOut]


class PreviewOut(BaseModel):
    """The reach of an event."""

    count: int
    exact: bool = Field(description="Whether `count` is exact. Beyond some 10,000 it is an estimate.")
    at_least: int = Field(description="The lower bound of an estimate, right 19 times of 20.")
    at_most: int = Field(
        description="The upper bound of an estimate, which easily misses a few phones that registered together."
    )
    waiting: int = Field(description="Phones in quiet hours then, which would get it later.")
    capped: int = Field(description="Phones above a cap, which would find it in the inbox.")
    to_digest: int = Field(description="Phones above a cap, which would get it in the next digest.")
    batched: int = Field(description="Phones that would get it in a batch with others of its type.")
    sample: list[UUID]
    unknown_installations: list[UUID]
    warnings: list[str] = Field(description="Parts of the event that would not reach some of these phones unchanged.")
    digested: int = Field(description="Further phones, which would get it in a digest; an estimate if they are many.")


class EventOut(BaseModel):
    """How far an event is."""

    status: Literal["DONE", "PENDING", "FAILED"] = Field(
        description="Leaves in 0.6, for the answer's status says the same: 200, 202 and 422. Read `progress`.",
        deprecated=True,
    )
    event_id: int
    progress: Progress = Field(
        description="How far it is, in a word: its state, and once it is fanned out: sending, sent (receipts are "
        "awaited) or finished."
    )
    deliveries: Counts
    counts: FormerCounts
    event: dict[str, Any] = Field(description="The event, as the SQL functions return it.")
    retry_after_ms: int | None = Field(None, description="With PENDING: when to ask again.")
    error: str | None = Field(None, description="With FAILED: EVENT_NOT_SENT.")
    enqueued: EnqueuedOut | None = Field(None, description="With POST: whether it was new.")


class CancelIn(Body):
    """Why."""

    reason: Reason = ""


class CancelOut(BaseModel):
    """Whether the event was ended just now, whether anything of it was left to send, and how far it came."""

    cancelled: bool
    withdrawn: bool
    event_id: int
    deliveries: Counts
    counts: FormerCounts


class ChangedOut(BaseModel):
    """The event as it is now."""

    changed: Literal[True]
    event_id: int
    event: dict[str, Any] = Field(description="The event, as the SQL functions return it.")


class CompleteIn(Body):
    """By whom, and why."""

    owner: Text200 | None = Field(None, description="Whose other phones get no more of it; everybody's if left out.")
    reason: Reason = ""


class CompleteOut(BaseModel):
    """Whether that was news, and how far the event came."""

    completed: bool
    event_id: int
    deliveries: Counts
    counts: FormerCounts


class FailedAttempt(BaseModel):
    """An attempt that did not get through, and what was said of it."""

    at: str
    attempt: int = Field(description="Its number among those that count; a redrive begins anew.")
    found_by: Literal["dispatch", "receipt", "reaper", "redrive"]
    status: DeliveryStatus = Field(description="What the delivery became by it.")
    error_code: str | None
    error_message: str | None


class DeliveryOut(BaseModel):
    """One push to one installation."""

    id: int
    installation_id: UUID
    provider: str
    project: str
    lane: str
    status: DeliveryStatus
    attempt_count: int
    created_at: str
    last_attempt_at: str | None
    completed_at: str | None
    last_error_code: str | None
    last_error_message: str | None
    failed_attempts: list[FailedAttempt] = Field(description="Oldest first, the first twenty.")


class DeliveryPage(BaseModel):
    """Deliveries by installation, and where the next page begins."""

    items: list[DeliveryOut]
    next: str | None


_WAITED: dict[int | str, dict[str, Any]] = {
    200: {"model": EventOut, "description": "Nothing is left to send: some was sent, or nobody was to get it."},
    202: {"model": EventOut, "description": "Not over yet; Retry-After says when to ask again."},
    **_MISSING,
    422: {"model": EventOut, "description": "Everything has ended, and nothing was sent."},
}


_ENQUEUED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EnqueuedOut | EventOut,
        "description": "Without wait_ms: it was there before (created is false) and says the same, or was to be kept. "
        f"With wait_ms: {_WAITED[200]['description']}",
    },
    201: {"model": EnqueuedOut, "description": "Enqueued, without waiting."},
    409: _TAKEN,
}


@router.post("/v1/events", responses={**_WAITED, **_ENQUEUED})
async def enqueue_event(
    request: Request,
    event: EventIn,
    wait_ms: WaitMs = None,
    until: Until = "sent",
    *,
    former: FormerWaitMs = None,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=300, description="The event's key, if the body has none.")
    ] = None,
) -> Response:
    """Enqueue an event.

    The same type and key again is the same event. With `wait_ms`, wait until nothing of it is left to send.
    """
    done = await _enqueued(request, _given(request, event, idempotency_key))
    headers = {"Location": f"/v1/events/{done.event_id}"}
    wait_ms = former if wait_ms is None else wait_ms
    if wait_ms is None:
        return Json(vars(done), 201 if done.created else 200, headers)
    first = await call(request, events.find, done.event_id)
    return await _waited(request, first, until, wait_ms, more={"enqueued": vars(done)}, headers=headers)


@router.post("/v1/events/batch", responses={200: {"model": EnqueuedBatch}, 409: _TAKEN})
async def enqueue_events(request: Request, batch: Batch) -> Response:
    """Enqueue many events in one transaction, all or none; each needs its key."""
    given = [_given(request, event, None, f"events.{number}.") for number, event in enumerate(batch.events)]
    done = await call(request, events.enqueue, given)
    return Json({"items": [vars(each) for each in done]})


@router.post("/v1/events/preview", responses={200: {"model": PreviewOut}})
async def preview_event(
    request: Request,
    event: EventIn,
    sample: Annotated[int, Query(ge=0, le=100, description="How many installations to name.")] = 10,
) -> Response:
    """Return how many installations an event would reach, and some of them, without enqueueing it.

    A token of one project counts only the phones of that project.
    """
    given = {"key": "preview"} | event.model_dump(exclude_none=True, exclude_unset=True)
    refuse_tender(request, given)
    found = await call(request, events.preview, given, sample=sample)
    return Json({name: getattr(found, name) for name in PreviewOut.model_fields})


@router.get("/v1/events/{event_id}", responses=_WAITED)
async def get_event(
    request: Request, event_id: EventId, wait_ms: WaitMs = None, until: Until = "sent", former: FormerWaitMs = None
) -> Response:
    """Return the progress of an event once nothing of it is left to send, or after `wait_ms` (default 15 s)."""
    first = await call(request, events.find, event_id)
    wait_ms = former if wait_ms is None else wait_ms
    return await _waited(request, first, until, DEFAULT_WAIT_MS if wait_ms is None else wait_ms)


@router.get("/v1/events", responses=_WAITED)
async def find_event(
    request: Request,
    event_type: Annotated[Text, Query(alias="type", min_length=1, max_length=100, description="The event's type.")],
    key: Annotated[Text, Query(min_length=1, max_length=300, description="The event's key.")],
    project: Annotated[
        Text200 | None,
        Query(description="Its project; without one it is the event that names none, or the only project's."),
    ] = None,
    *,
    wait_ms: WaitMs = None,
    until: Until = "sent",
) -> Response:
    """Return the progress of the event with this type and key.

    With `wait_ms`, wait until nothing of it is left to send.
    """
    first = await call(request, events.find_by_key, event_type, key, project)
    return await _waited(request, first, until, wait_ms or 0)


@router.put("/v1/events", responses={200: {"model": ChangedOut}, **_MISSING, 409: _STARTED})
async def change_event(request: Request, event: KeyedEventIn) -> Response:
    """Replace the content of an event that has not begun, found by its type and key.

    A field that is left out or null is removed.
    """
    if event.key is None:
        raise invalid("key", "must be given")
    done = await call(request, events.change, _given(request, event, None))
    return Json({"changed": True, "event_id": done.id, "event": _event(request, done.raw)})


@router.post("/v1/events/{event_id}/cancel", responses={200: {"model": CancelOut}, **_MISSING})
async def cancel_event(request: Request, event_id: EventId, why: CancelIn | None = None) -> Response:
    """Cancel an event: Relevo sends nothing more of it, and sent pushes stay sent.

    An event with nothing left to send, confirm or redrive does not change.
    """
    done = await call(request, events.cancel, event_id, (why or CancelIn()).reason)
    told = {"cancelled": done.cancelled, "withdrawn": done.withdrawn, "event_id": event_id}
    return Json(told | _counted(done.found.deliveries))


@router.post("/v1/events/{event_id}/complete", responses={200: {"model": CompleteOut}, **_MISSING})
async def complete_event(request: Request, event_id: EventId, how: CompleteIn | None = None) -> Response:
    """Complete an event that was handled elsewhere, for all phones or for one owner: its unsent pushes end.

    `completed` is false if the event had ended before.
    """
    completed, found = await call(request, events.complete, event_id, **(dict(how) if how else {}))
    return Json({"completed": completed, "event_id": event_id, **_counted(found.deliveries)})


@router.get("/v1/events/{event_id}/deliveries", responses={200: {"model": DeliveryPage}, **_MISSING})
async def list_event_deliveries(
    request: Request,
    event_id: EventId,
    limit: Annotated[int, Query(ge=1, le=200, description="The maximum number of items.")] = 50,
    cursor: Annotated[UUID | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """Return the state of each delivery of an event, by installation."""
    await call(request, events.find, event_id)
    rows = await threads_of(request).run(of_event, event_id, after=cursor, limit=limit)
    return Json({"items": rows, "next": str(rows[-1]["installation_id"]) if len(rows) == limit else None})


async def _enqueued(request: Request, event: dict[str, Any]) -> Enqueued:
    """Enqueue an event: what is recorded by itself, all others together with those of other requests."""
    token = token_of(request)
    if token.role == "operator" and caller_of(request).is_recorded("enqueue_event"):
        [done] = await call(request, events.enqueue, [event], recorded=True)
        return done
    writes: SharedWrites = request.app.state.writes
    return await writes.enqueue(token, event, len(await request.body()))


def _given(request: Request, event: EventIn, idempotency_key: str | None, place: str = "") -> dict[str, Any]:
    """Return an event as the SQL functions take it, with its key from wherever it came."""
    given = event.model_dump(exclude_unset=True)  # as it was parsed: written as JSON, NaN would become null unseen
    if idempotency_key is not None and given.get("key") not in (None, idempotency_key):
        raise invalid("Idempotency-Key", "differs from the key in the body")
    given["key"] = given.get("key") or idempotency_key
    if given["key"] is None:
        elsewhere = "" if place else ", here or as the header Idempotency-Key"  # which is no help to one of many
        raise invalid(f"{place}key", f"must be given{elsewhere}")
    refuse_tender(request, given, place)
    header = request.headers.get("traceparent") if request.method == "POST" and not given.get("traceparent") else None
    if header and (traceparent := traceparents.read_header(header)):
        given["traceparent"] = traceparent
    return given


def refuse_tender(request: Request, given: dict[str, Any], place: str = "") -> None:
    """Refuse an event about a tender where there are none."""
    if given.get("licitacion_id") is not None and not request.app.state.has_tenders:
        raise invalid(f"{place}licitacion_id", "names a tender, and no source of tenders is on: see SOURCES")


def _event(request: Request, event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event as it is told: with its tender where there are any."""
    if request.app.state.has_tenders:
        return event
    return {name: value for name, value in event.items() if name != "licitacion_id"}


async def _waited(
    request: Request,
    first: EventStatus,
    until: str,
    wait_ms: int,
    *,
    more: Mapping[str, Any] = MappingProxyType({}),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Wait for an event, and tell how far it is."""
    waiters: EventWaiters = request.app.state.waiters
    seen = await waiters.wait(request, first, until, wait_ms / 1000)
    if seen is None:
        return Response(status_code=LEFT)
    if seen is not first:
        await admit_again(request)
    event = _event(request, seen.raw)
    counted = _counted(seen.deliveries)
    told = {"event_id": event["id"], "progress": seen.progress, **counted, "event": event, **more}
    if not events.is_over(seen, until):
        pending = {"status": "PENDING", "retry_after_ms": _RETRY_MS}
        return Json(pending | told, 202, {**headers, "Retry-After": str(math.ceil(_RETRY_MS / 1000))})
    if _has_failed(seen):
        return Json({"status": "FAILED", "error": "EVENT_NOT_SENT"} | told, 422, headers)
    return Json({"status": "DONE"} | told, 200, headers)


def _counted(deliveries: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    """Return the number of deliveries by state, under today's name and the former one."""
    return {"deliveries": deliveries, "counts": deliveries}


def _has_failed(event: EventStatus) -> bool:
    """Return whether nothing of an event that is over was sent although it should have been."""
    if any(map(event.deliveries.get, SENT)):
        return False
    return bool(sum(event.deliveries.values())) or event.state == "cancelled"
