"""Owners, whom the app knows by name: their phones, their log-out, what they handled, and forgetting them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.core.known_services import LABELS, SERVICES, WITH_ENVIRONMENT, listed
from relevo.http import event_schema
from relevo.http.fields import Body, Reason, Text, Text200
from relevo.http.guard import Guarded, call
from relevo.http.json_response import Json
from relevo.verbs import owners

router = APIRouter(route_class=Guarded, tags=["owners"])

Owner = Annotated[
    Text, Field(min_length=1, max_length=200, description="The owner's name, as the app registered the phones.")
]


class OwnerIn(Body):
    """The owner, in the body, because addresses end up in the logs of proxies."""

    owner: Owner


class OwnerCompleteIn(OwnerIn):
    """The owner, and the reason."""

    reason: Reason = ""


class OwnerAttributesIn(OwnerIn):
    """Attributes of an owner. An attribute that is left out stays as it is; null removes it."""

    attributes: Annotated[dict[str, Any], Field(max_length=50, json_schema_extra=event_schema.ATTRIBUTES)]
    project: Text200 | None = Field(None, description="Of a token of all projects: in which; default without it.")


class OwnerChanged(BaseModel):
    """Whether something changed."""

    changed: bool


class LoggedOut(BaseModel):
    """How many phones were registered until now."""

    installations: int


class OwnerCompleted(BaseModel):
    """Whether there was a phone of theirs."""

    completed: bool


class Forgotten(BaseModel):
    """How many phones there were."""

    installations: int


class OwnedInstallation(BaseModel):
    """A phone as it is registered, and whether pushes go there."""

    installation_id: str
    owner: str | None
    project: str
    provider: str
    platform: str
    environment: str | None = Field(
        description=f"Of {listed(LABELS[name] for name in WITH_ENVIRONMENT)}: production or sandbox."
    )
    part: str = Field(
        description="Which of its provider's services its pushes go to: "
        f"{', '.join(f'of {each.label} the {each.part}' for each in SERVICES.values() if each.part)}; else empty."
    )
    locale: str | None
    timezone: str | None
    opt_outs: list[str]
    receives: bool
    why_not: str | None = Field(description="Why pushes do not go there, if they do not.")
    preferences: list[str] = Field(description="The names of those that are on.")
    registered_at: str
    updated_at: str


class OwnedInstallations(BaseModel):
    """An owner's phones, newest first."""

    items: list[OwnedInstallation]
    next: None


@router.get("/v1/installations", responses={200: {"model": OwnedInstallations}})
async def list_installations(
    request: Request,
    owner: Annotated[Text, Query(min_length=1, max_length=200, description="The owner of the phones.")],
    limit: Annotated[int, Query(ge=1, le=1_000, description="The maximum number of items.")] = 100,
) -> Response:
    """Return an owner's phones, newest first. A token of one project gets those in its project."""
    return Json({"items": await call(request, owners.list_phones, owner, limit), "next": None})


@router.post("/v1/owners/log-out", responses={200: {"model": LoggedOut}})
async def log_out_owner(request: Request, whose: OwnerIn) -> Response:
    """Log an owner out everywhere: Relevo sends nothing to the owner's phones until they register again, and their
    secrets end.

    A token of one project logs out the phones in its project.
    """
    return Json({"installations": await call(request, owners.log_out, whose.owner)})


@router.post("/v1/owners/complete", responses={200: {"model": OwnerCompleted}})
async def complete_owner(request: Request, whose: OwnerCompleteIn) -> Response:
    """Complete all events for an owner until now: their unsent pushes to the owner's phones end."""
    return Json({"completed": await call(request, owners.complete, **dict(whose))})


@router.post("/v1/owners/attributes", responses={200: {"model": OwnerChanged}})
async def set_owner_attributes(request: Request, whose: OwnerAttributesIn) -> Response:
    """Set attributes of an owner, by which events choose the owner's phones, also later ones."""
    return Json({"changed": await call(request, owners.set_attributes, **dict(whose))})


@router.post("/v1/owners/forget", responses={200: {"model": Forgotten}})
async def forget_owner(request: Request, whose: OwnerIn) -> Response:
    """Forget an owner: delete all phones with tokens and preferences, and the texts of events for this owner alone.

    A token of one project forgets the owner's phones and events in its project.
    """
    return Json({"installations": await call(request, owners.forget, whose.owner)})
