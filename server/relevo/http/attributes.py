"""Attributes of a phone: set by the app's server, and by the phone itself those that it may say of itself."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.http import event_schema
from relevo.http.fields import Body
from relevo.http.guard import call
from relevo.http.installations import INSTALLATION, MISSING, PhoneRoute
from relevo.http.json_response import Json
from relevo.http.quiet import Changed
from relevo.verbs import phones

phone_router = APIRouter(prefix=INSTALLATION, route_class=PhoneRoute, tags=["devices"], responses=MISSING)


class PhoneAttributesIn(Body):
    """Attributes of a phone. An attribute that is left out stays as it is; null removes it."""

    attributes: Annotated[dict[str, Any], Field(max_length=50, json_schema_extra=event_schema.ATTRIBUTES)]


class PhoneAttributes(BaseModel):
    """Attributes as they hold for a phone: its own before those of its owner."""

    attributes: Annotated[dict[str, Any], Field(json_schema_extra=event_schema.KNOWN_ATTRIBUTES)]


@phone_router.get("/attributes", responses={200: {"model": PhoneAttributes}})
async def get_attributes(request: Request, installation_id: UUID) -> Response:
    """Return the attributes that apply to a phone.

    The phone itself gets only those whose name begins with `device.`.
    """
    return Json({"attributes": await call(request, phones.get_attributes, installation_id)})


@phone_router.post("/attributes", responses={200: {"model": Changed}})
async def set_attributes(request: Request, installation_id: UUID, body: PhoneAttributesIn) -> Response:
    """Set attributes of a phone, by which events choose it.

    The phone itself may set only attributes whose name begins with `device.`; all others need an app's token.
    """
    return Json({"changed": await call(request, phones.set_attributes, installation_id, body.attributes)})
