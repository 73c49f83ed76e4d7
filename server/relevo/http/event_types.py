"""Settings of event types over HTTP: read, set, or remove them."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, StrictBool, create_model
from starlette.responses import Response

from relevo.http.database_threads import threads_of
from relevo.http.fields import NO_TEXT, Body, Text
from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.quiet_warnings import Warned, warnings_of
from relevo.operators import event_types, quiet_channel
from relevo.operators.event_types import TypeSettings

router = APIRouter(route_class=Guarded, tags=["event types"])

TypeName = Annotated[Text, Path(min_length=1, max_length=100, description="The event type.")]


def _fields() -> dict[str, Any]:
    """Return each setting as a field of a body, with its meaning and bounds."""
    hints = get_type_hints(TypeSettings)
    made: dict[str, Any] = {}
    for each in fields(TypeSettings):
        kind, least = hints[each.name], each.metadata.get("least")
        if kind in (int | None, float | None):
            number = int if kind == int | None else float
            kind = Annotated[number, Field(ge=least, le=each.metadata["most"]), NO_TEXT] | None
        elif kind == bool | None:
            kind = StrictBool | None
        made[each.name] = kind, Field(None, description=each.metadata.get("meaning", "Its lane."))
    return made


_FIELDS = _fields()


class _EventTypeIn(Body):
    """Settings of one event type. A field that is left out keeps its value; null stands for the general setting."""

    removable = frozenset(_FIELDS)


EventTypeIn: Any = create_model("EventTypeIn", __base__=_EventTypeIn, __doc__=_EventTypeIn.__doc__, **_FIELDS)
_TOLD: dict[str, Any] = {
    "event_type": (str, ...),
    **{name: (kind, Field(description=field.description)) for name, (kind, field) in _FIELDS.items()},
    "updated_at": (str, ...),
}
EventTypeOut: Any = create_model(
    "EventTypeOut", __doc__="Settings of one event type; null: the general setting applies.", **_TOLD
)


EventTypeSet: Any = create_model("EventTypeSet", __base__=(EventTypeOut, Warned), __doc__=EventTypeOut.__doc__)


class EventTypes(BaseModel):
    """The event types that differ from the settings."""

    items: list[EventTypeOut]
    next: None


class EventTypeReset(BaseModel):
    """Whether it differed."""

    changed: bool


@router.get("/v1/event-types", responses={200: {"model": EventTypes}})
async def list_event_types(request: Request) -> Response:
    """List event types and their own settings: lease and retries, time to live, lane, inbox, quiet hours, batches."""
    return Json({"items": await threads_of(request).run(event_types.list_event_types), "next": None})


@router.put("/v1/event-types/{event_type}", responses={200: {"model": EventTypeSet}})
async def put_event_type(request: Request, event_type: TypeName, body: EventTypeIn) -> Response:
    """Set settings of one event type. They apply at once, also to waiting events."""
    given = body.model_dump(exclude_unset=True)
    removed = [name for name, value in given.items() if value is None]
    settings = request.app.state.relevo.settings
    threads = threads_of(request)
    own = TypeSettings(**given)
    await threads.run(event_types.set_event_type, settings, event_type, own, removed)
    rows = await threads.run(event_types.list_event_types)
    row = next(row for row in rows if row["event_type"] == event_type)
    return Json(row | warnings_of(request, silently=quiet_channel.lets_go_silently(own)))


@router.delete("/v1/event-types/{event_type}", responses={200: {"model": EventTypeReset}})
async def reset_event_type(request: Request, event_type: TypeName) -> Response:
    """Remove all settings of an event type, which then follows the general settings."""
    return Json({"changed": await threads_of(request).run(event_types.reset_event_type, event_type)})
