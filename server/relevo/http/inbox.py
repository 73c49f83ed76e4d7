"""Inboxes: what an owner was sent or would have been sent, for the app's server, and for the owner's phones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from relevo.client.inboxes import MOST_AT_ONCE, Mark, Status
from relevo.http.events import LEFT, MAX_WAIT_MS, EventId
from relevo.http.fields import Body, Exact, Text, Text100, Text200
from relevo.http.guard import Guarded, admit_again, call, caller_of
from relevo.http.installations import MISSING
from relevo.http.json_response import Json
from relevo.http.problems import invalid
from relevo.http.waiting import InboxWaiters, InboxWaiting
from relevo.verbs import inboxes
from relevo.verbs.callers import sha256_of
from relevo.verbs.inboxes import Page, Whose
from relevo.verbs.phones import prove_any

_PLACE = "^[0-9]{1,18}$"
_WAITS_OF_A_PHONE = 3
"""How many requests of one phone wait at once: the app, and what is left of those before."""


class InboxRoute(Guarded):
    """A route for the app's server and for phones; a phone proves who it is before its body is read."""

    async def prove(self, request: Request) -> None:
        """Refuse who brings neither a token nor a phone's secret; without a body the route itself does."""
        if self.body_field is not None and caller_of(request).token is None:
            await call(request, prove_any)


router = APIRouter(route_class=InboxRoute, tags=["inbox"], responses=MISSING)

_ASKED = {"status", "category", "event_type", "before", "limit", "locale", "digest"}


class WhoseIn(Body):
    """The inbox to read. A phone leaves out owner and installation_id."""

    owner: Text200 | None = Field(
        None, description="The owner of the inbox. Not for phones, which their secret identifies."
    )
    installation_id: UUID | None = Field(None, description="An installation without owner. Not for phones.")
    project: Text200 | None = Field(
        None, description="Required if the owner has phones in several projects. Not for phones."
    )


class BeforeIn(WhoseIn):
    """The inbox, and the time up to which its items are meant."""

    before: AwareDatetime | None = Field(None, description="What came until then; until now if it is left out.")


class InboxItemOut(BaseModel):
    """An event in an inbox, and what was marked of it."""

    event_id: int
    type: str
    category: str | None
    title: str
    body: str
    data: dict[str, Any]
    at: str = Field(description="The time of its arrival.")
    seen_at: str | None
    read_at: str | None
    archived_at: str | None
    cursor: str = Field(description="The item's position: pass it as `before` to continue from here.")


class InboxOut(Exact):
    """A page of an inbox, newest first."""

    items: list[InboxItemOut]
    next: str | None = Field(description="`before` of the next page; null if this is the last. A page may be short.")
    newest: str = Field(description="The position of the first item: pass it as `after` to wait for newer items.")


class InboxCountsOut(BaseModel):
    """How many items are unread and unseen: exactly up to 99, then "99+"."""

    unread: int | Literal["99+"]
    unseen: int | Literal["99+"]


class MarkedOut(BaseModel):
    """Whether there was something to mark."""

    marked: bool


class InboxQuery(WhoseIn):
    """The inbox, and which of its items."""

    status: Status = Field("current", description="Which items; `current` means all that are not archived.")
    category: Text100 | None = Field(None, description="Only this category.")
    event_type: Text | None = Field(
        None, alias="type", min_length=1, max_length=100, description="Only this event type."
    )
    before: str | None = Field(None, pattern=_PLACE, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=MOST_AT_ONCE, description="The maximum number of items.")
    locale: Text | None = Field(
        None,
        min_length=1,
        max_length=35,
        description="The language of the texts, such as es-CL. Default: that of the newest phone with one.",
    )
    digest: int | None = Field(
        None,
        ge=0,
        lt=10**18,
        description="What a digest told, by the notificationEventId of its push; the best first.",
    )
    after: str | None = Field(None, pattern=_PLACE, description="`newest` of the page that is known, with `wait_ms`.")
    wait_ms: int | None = Field(None, ge=0, le=MAX_WAIT_MS, description="The longest wait, in ms.")


@router.get("/v1/inbox", responses={200: {"model": InboxOut}})
async def read_inbox(request: Request, query: Annotated[InboxQuery, Query()]) -> Response:
    """Return a page of an inbox, newest first: any owner's for the app's server, its own owner's for a phone.

    With `wait_ms` the answer waits for an item newer than `after`, at most that long, and is the page at that moment.
    """
    if query.wait_ms and query.before is not None:
        raise invalid("wait_ms", "does not go with before: something new is on the first page")
    asked = query.model_dump(include=_ASKED)

    async def find() -> Page:
        return await call(request, inboxes.read, _whose(query), asked)

    page = await find()
    known = page.newest if query.after is None else int(query.after)
    if not query.wait_ms or page.newest > known:
        return Json(page.told)
    last = await _wait(request, page, known, query.wait_ms / 1000, find)
    return Response(status_code=LEFT) if last is None else Json(last.told)


async def _wait(
    request: Request, page: Page, known: int, wait_s: float, find: Callable[[], Awaitable[Page]]
) -> Page | None:
    """Wait for something newer than what is known; return the last page, or None if the caller left.

    Whoever was woken proves anew who it is: a phone that was logged out meanwhile, or a revoked token, gets 401.
    """
    waiters: InboxWaiters = request.app.state.inbox_waiters
    loop, token = asyncio.get_running_loop(), request.state.caller
    until = loop.time() + wait_s
    caller = token.id if token else f"phone {sha256_of(caller_of(request).proof.secret or '')}"
    one = InboxWaiting(caller, page.whose, known)
    async with waiters.enter(request, one, None if token else _WAITS_OF_A_PHONE) as left:
        while True:
            woken = await one.next(left, max(0.0, until - loop.time()))
            if woken == "caller left":
                return None
            if woken == "was let go":  # with thousands of others, maybe: nothing is read for them
                return page
            await admit_again(request)
            async with waiters.reading:
                page = await find()
            if woken == "time is over" or page.newest > known:
                return page


@router.get("/v1/inbox/counts", responses={200: {"model": InboxCountsOut}})
async def count_inbox(request: Request, query: Annotated[WhoseIn, Query()]) -> Response:
    """Count unread and unseen items of an inbox: exactly up to 99, then "99+". Archived items count in neither."""
    return Json(vars(await call(request, inboxes.count, _whose(query))))


@router.post("/v1/inbox/read-before", responses={200: {"model": MarkedOut}})
async def mark_inbox_read(request: Request, what: BeforeIn | None = None) -> Response:
    """Mark all items of an inbox until an instant, or until now, as read."""
    return await _mark_before(request, what, "read")


@router.post("/v1/inbox/seen-before", responses={200: {"model": MarkedOut}})
async def mark_inbox_seen(request: Request, what: BeforeIn | None = None) -> Response:
    """Mark all items of an inbox until an instant, or until now, as seen."""
    return await _mark_before(request, what, "seen")


@router.post("/v1/inbox/{event_id}/{mark}", responses={200: {"model": MarkedOut}})
async def mark_inbox_item(
    request: Request,
    event_id: EventId,
    mark: Annotated[Mark, Path(description="What is read was seen; what is unseen was not read.")],
    whose: WhoseIn | None = None,
) -> Response:
    """Mark one item of an inbox, or remove a mark. The same mark again changes nothing."""
    return Json({"marked": await call(request, inboxes.mark, _whose(whose), event_id, mark)})


async def _mark_before(request: Request, what: BeforeIn | None, how: Literal["read", "seen"]) -> Response:
    before = what.before if what else None
    return Json({"marked": await call(request, inboxes.mark_before, _whose(what), before, how)})


def _whose(given: WhoseIn | None) -> Whose:
    return Whose(given.owner, given.installation_id, given.project) if given else Whose()
