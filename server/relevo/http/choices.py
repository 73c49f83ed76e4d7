"""Categories of pushes and what people chose of them, by the app's server or on the phone; blocks, and exports."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from relevo.client import consent
from relevo.http.fields import Body, Reason, Text, Text35, Text100
from relevo.http.guard import Guarded, call, token_of
from relevo.http.installations import INSTALLATION, MISSING, PhoneRoute
from relevo.http.json_response import Json
from relevo.http.owners import Owner, OwnerIn
from relevo.http.quiet_warnings import Warned, warnings_of
from relevo.verbs import choices as verbs
from relevo.verbs import owners

router = APIRouter(route_class=Guarded, tags=["choices"])
phone_router = APIRouter(prefix=INSTALLATION, route_class=PhoneRoute, tags=["devices"], responses=MISSING)

_GOES_ON_S = 600.0
_MOST_EXPORTS = 1_000
Project = Annotated[Text, Field(min_length=1, max_length=200, description="Default: `default`.")]
AskedLocale = Annotated[
    Text | None,
    Query(min_length=1, max_length=35, description="The language of the texts, such as es-CL. Default: English."),
]
Name = Annotated[Text, Path(min_length=1, max_length=100, description="The category.")]
Words = Annotated[Text, Field(min_length=1, max_length=2_000, description="The text that the person saw.")]
Channel = Annotated[Literal["push", "web"], Field(description="Phones (push) or browsers (web). Default: both.")]


class CategoryText(Body):
    """The name of a category in one language, and a sentence about it that people read."""

    name: Text100
    sentence: Annotated[Text, Field(min_length=1, max_length=500)] | None = None


class CategoryIn(Body):
    """A category; what is left out stays as it is, and a new one is on."""

    removable = frozenset({"quiet"})
    rule: Literal["on", "off", "mandatory"] | None = Field(
        None,
        description="`on` is sent until it is refused, `off` to who accepted it, `mandatory` whatever was chosen.",
    )
    texts: dict[Annotated[str, Field(pattern="^[A-Za-z]{2,3}(-[0-9A-Za-z]{2,8}){0,3}$")], CategoryText] | None = Field(
        None,
        max_length=100,
        description="By locale, such as es-CL.",
        json_schema_extra={"additionalProperties": False},  # else names of another pattern may be anything
    )
    quiet: Literal["wait", "silent", "ignore"] | None = Field(
        None, description="What its events do in quiet hours, whatever their type says; null leaves it to the type."
    )


class CategorySet(Warned):
    """That it is there."""

    category: str


class CategoryBody(BaseModel):
    """A category in the words of one locale, and whether such pushes go to the owner that was named."""

    category: str
    name: str
    sentence: str | None
    rule: Literal["on", "off", "mandatory"]
    push: bool = Field(description="To the owner's phones.")
    web: bool = Field(description="To the owner's browsers.")
    chosen_at: str | None = Field(description="When the owner last chose.")
    quiet: Literal["wait", "silent", "ignore"] | None = Field(
        description="What its events do in quiet hours; null if their type decides."
    )


class Categories(BaseModel):
    """All categories."""

    items: list[CategoryBody]
    next: None


class PhoneChoiceIn(Body):
    """The choice of the phone's owner for one category."""

    wanted: StrictBool
    channel: Channel | None = None
    words: Words | None = None
    locale: Text35 | None = None


class ChoiceIn(PhoneChoiceIn):
    """The choice of an owner for one category."""

    owner: Owner
    category: Text100
    project: Project | None = None


class Chosen(BaseModel):
    """Whether this added to the record: another choice, or the same in other words."""

    changed: bool


class BlockIn(OwnerIn):
    """The owner to block, and the reason."""

    reason: Reason = ""


class Blocked(BaseModel):
    """How many phones the owner has."""

    installations: int


class ExportIn(OwnerIn):
    """The owner whose data is exported, and which part of it."""

    kind: Literal["installations", "events", "deliveries", "digests", "marks", "kept_items", "choices", "rules"]
    after: Annotated[str, Field(pattern="^[0-9]{1,18}$", description="`next` of the page before.")] | None = None
    limit: Annotated[int, Field(ge=1, le=consent.MOST_AT_ONCE)] = consent.MOST_AT_ONCE


class Exported(BaseModel):
    """A page of what is kept of an owner; push tokens are shortened."""

    items: list[dict[str, Any]]
    next: str | None


class Exports:
    """Knows which exports the audit log has, so that the further pages of one are no entries of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recorded: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def goes_on(self, token_id: str, owner: str, kind: str, *, is_first: bool) -> bool:
        """Return whether this is a further page of an export that was recorded within the last ten minutes."""
        key, now = (token_id, owner, kind), self._clock()
        if not is_first and now - self._recorded.get(key, -math.inf) < _GOES_ON_S:
            return True
        self._recorded[key] = now
        self._recorded.move_to_end(key)
        if len(self._recorded) > _MOST_EXPORTS:
            self._recorded.popitem(last=False)
        return False


@router.get("/v1/categories", responses={200: {"model": Categories}})
async def list_categories(
    request: Request,
    owner: Annotated[Text | None, Query(min_length=1, max_length=200, description="The owner of the choices.")] = None,
    project: Annotated[
        Text | None, Query(min_length=1, max_length=200, description="The project of the choices.")
    ] = None,
    locale: AskedLocale = None,
) -> Response:
    """List the categories that people may choose, with an owner's choices."""
    found = await call(request, verbs.list_categories, owner, project, locale)
    return Json({"items": found, "next": None})


@router.put("/v1/categories/{category}", responses={200: {"model": CategorySet}})
async def put_category(request: Request, category: Name, body: CategoryIn) -> Response:
    """Create or change a category. Its rule applies at once, also to waiting pushes."""
    texts = body.model_dump(exclude_none=True).get("texts", {})
    quiet = body.quiet if "quiet" in body.model_fields_set else ...
    await call(request, verbs.set_category, category, body.rule, texts, quiet=quiet)
    return Json({"category": category} | warnings_of(request, silently=quiet == "silent"))


@router.post("/v1/owners/choices", responses={200: {"model": Chosen}})
async def choose_category(request: Request, body: ChoiceIn) -> Response:
    """Record an owner's choice of a category with time and words, and apply it at once."""
    return Json({"changed": await call(request, verbs.choose, **dict(body))})


@router.post("/v1/owners/block", responses={200: {"model": Blocked}})
async def block_owner(request: Request, body: BlockIn) -> Response:
    """Block an owner: Relevo sends the owner nothing, and keeps all data.

    A token of one project blocks the owner there.
    """
    return Json({"installations": await call(request, owners.block, **dict(body))})


@router.post("/v1/owners/unblock", responses={200: {"model": Blocked}})
async def unblock_owner(request: Request, whose: OwnerIn) -> Response:
    """Unblock an owner: the owner's phones get pushes again."""
    return Json({"installations": await call(request, owners.unblock, whose.owner)})


@router.post("/v1/owners/export", responses={200: {"model": Exported}})
async def export_owner(request: Request, body: ExportIn) -> Response:
    """Return all data that Relevo stores about an owner, one kind at a time.

    A token of one project gets the data of its project.
    """
    exports: Exports = request.app.state.exports
    goes_on = exports.goes_on(token_of(request).id, body.owner, body.kind, is_first=body.after is None)
    page = await call(request, owners.export_page, **dict(body), goes_on=goes_on)
    return Json({"items": list(page.items), "next": page.next})


@phone_router.get("/choices", responses={200: {"model": Categories}})
async def list_choices(request: Request, installation_id: UUID, locale: AskedLocale = None) -> Response:
    """List the categories, with the choices of the phone's owner."""
    found = await call(request, verbs.list_choices, installation_id, locale)
    return Json({"items": found, "next": None})


@phone_router.put("/choices/{category}", responses={200: {"model": Chosen}})
async def put_choice(request: Request, installation_id: UUID, category: Name, body: PhoneChoiceIn) -> Response:
    """Record a choice of the phone's owner for a category, which applies to all phones of the owner.

    The phones of an owner may change a category 10 times within 24 hours, and all categories 100 times. A withdrawal is
    never refused.
    """
    given = {**body.model_dump(exclude_none=True), "category": category}
    return Json({"changed": await call(request, verbs.choose_on_phone, installation_id, **given)})
