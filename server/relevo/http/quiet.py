"""Quiet hours and caps: of owners and projects by the app's server, of a phone by itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import Response

from relevo.client.quiet import Whose
from relevo.http.choices import Project
from relevo.http.fields import NO_TEXT, Body, Text, Text100, without_null
from relevo.http.guard import Guarded, call
from relevo.http.installations import INSTALLATION, MISSING, PhoneRoute
from relevo.http.json_response import Json
from relevo.http.owners import Owner
from relevo.http.quiet_warnings import Warned, warnings_of
from relevo.verbs import quiet

router = APIRouter(route_class=Guarded, tags=["quiet hours"])
phone_router = APIRouter(prefix=INSTALLATION, route_class=PhoneRoute, tags=["devices"], responses=MISSING)

AskedProject = Annotated[Text | None, Query(min_length=1, max_length=200)]
_DAY = "(mon|tue|wed|thu|fri|sat|sun)"
Window = Annotated[
    str,
    Field(
        pattern=f"^({_DAY}(,{_DAY}){{0,6}} )?([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
        max_length=40,
        description="Such as 22:00-07:00, on each day, or sat,sun 07:00-10:00.",
    ),
]
Zone = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=64,
        description="The IANA name of the time zone of phones that registered none. An owner's or a project's hours "
        "need it, and so do those of a phone without a zone. If it is left out, the hours keep the one they have.",
    ),
]


def _hours_or_zone(schema: dict[str, Any], model: type[Body]) -> None:
    """Describe that `windows` or `zone` is given."""
    without_null(schema, model)
    schema["anyOf"] = [{"required": ["windows"]}, {"required": ["zone"]}]


class HoursIn(Body):
    """Quiet hours: `windows`, `zone`, or both."""

    model_config = ConfigDict(json_schema_extra=_hours_or_zone)
    removable = frozenset({"windows", "zone"})
    windows: Annotated[list[Window], Field(max_length=50)] | None = Field(
        None,
        description="Null removes the hours, and an empty list means never quiet. If they are left out, the hours stay "
        "as they are; then `zone` must be given, and there must be hours.",
    )
    zone: Zone | None = None


class OwnerHoursIn(HoursIn):
    """The quiet hours of an owner, in one project or, without it, in all."""

    owner: Owner
    project: Project | None = None


class ProjectHoursIn(HoursIn):
    """The quiet hours of a project's phones that have no others."""

    project: Project | None = None


class PhoneHoursIn(HoursIn):
    """The quiet hours of a phone."""

    all_phones: StrictBool = Field(False, description="Whether they are those of all phones of its owner.")


class Changed(BaseModel):
    """Whether something changed."""

    changed: bool


class HoursSet(Changed, Warned):
    """Whether something changed, and whether Android phones make a sound in these hours."""


class Hours(BaseModel):
    """Quiet hours as they were set; of a phone as they hold, with whose they are."""

    windows: list[str] | None
    zone: str | None
    hours_of: Whose | None
    zone_of: Whose | None
    quiet_until: str | None = Field(description="When a phone may be sent to again, if it is quiet now.")


class CapIn(Body):
    """How many events an owner is sent at most by the phones of a project."""

    removable = frozenset({"most", "over"})
    per: Literal["hour", "day", "week"]
    most: Annotated[int, Field(ge=1, le=1_000), NO_TEXT] | None = Field(
        description="How many events at most; null removes the cap."
    )
    category: Text100 | None = Field(None, description="Events of all categories together, if it is left out.")
    over: Literal["skip", "digest"] | None = Field(
        None,
        description="Whether an event above the cap is in the inbox alone (`skip`), or in the next digest, too. If it "
        "is left out, it stays as it is; null, or of a new cap, it is `skip`.",
    )
    project: Project | None = None


class CapBody(BaseModel):
    """A cap."""

    project: str
    category: str | None
    per: Literal["hour", "day", "week"]
    most: int
    over: Literal["skip", "digest"]


class Caps(BaseModel):
    """The caps."""

    items: list[CapBody]
    next: None


@router.post("/v1/owners/quiet", responses={200: {"model": HoursSet}})
async def set_owner_quiet(request: Request, body: OwnerHoursIn) -> Response:
    """Set the quiet hours of an owner's phones, also of later ones. Waiting personal events follow at once."""
    changed = await call(request, quiet.set_quiet, _hours(body), owner=body.owner, project=body.project)
    return Json({"changed": changed} | warnings_of(request, silently=bool(body.windows)))


@router.get("/v1/quiet", responses={200: {"model": Hours}})
async def get_project_quiet(request: Request, project: AskedProject = None) -> Response:
    """Return the quiet hours of a project's phones that have no others."""
    return Json(await call(request, quiet.get_project_quiet, project))


@router.put("/v1/quiet", responses={200: {"model": HoursSet}})
async def put_project_quiet(request: Request, body: ProjectHoursIn) -> Response:
    """Set the quiet hours of a project's phones that have no others. Waiting personal events follow within seconds."""
    changed = await call(request, quiet.set_quiet, _hours(body), project=body.project)
    return Json({"changed": changed} | warnings_of(request, silently=bool(body.windows)))


@router.get("/v1/caps", responses={200: {"model": Caps}})
async def list_caps(request: Request, project: AskedProject = None) -> Response:
    """List the caps, of one project or of all."""
    found = await call(request, quiet.list_caps, project)
    return Json({"items": [vars(each) for each in found], "next": None})


@router.put("/v1/caps", responses={200: {"model": Changed}})
async def put_cap(request: Request, body: CapIn) -> Response:
    """Set, change or remove a cap. Urgent events and mandatory categories neither count nor are held."""
    return Json({"changed": await call(request, quiet.set_cap, **body.model_dump(exclude_unset=True))})


@phone_router.get("/quiet", responses={200: {"model": Hours}})
async def get_quiet(request: Request, installation_id: UUID) -> Response:
    """Return the quiet hours that apply to a phone, whose they are, and until when they last if they are active now."""
    return Json(await call(request, quiet.get_phone_quiet, installation_id))


@phone_router.put("/quiet", responses={200: {"model": Changed}})
async def put_quiet(request: Request, installation_id: UUID, body: PhoneHoursIn) -> Response:
    """Set the quiet hours of a phone, or of all phones of its owner."""
    hours, all_phones = _hours(body), body.all_phones
    changed = await call(request, quiet.set_quiet_on_phone, installation_id, hours, all_phones=all_phones)
    return Json({"changed": changed})


def _hours(body: HoursIn) -> dict[str, Any]:
    """Return what was given of quiet hours: null is not the same as left out."""
    return body.model_dump(include={"windows", "zone"}, exclude_unset=True)
