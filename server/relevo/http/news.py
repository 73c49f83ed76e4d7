"""News for the app over HTTP: subscribe to what comes of events, deliveries and phones; read it, and say how far."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.client.news import MOST_AT_ONCE, Kind
from relevo.http.fields import NO_TEXT, Body, Text200
from relevo.http.guard import Guarded, call
from relevo.http.json_response import Json
from relevo.http.problems import missing
from relevo.verbs import news

router = APIRouter(route_class=Guarded, tags=["news"])

Name = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$",
        description="The subscription's name: that of the app that hears it; unique within the token's project.",
    ),
]
_MISSING = missing("There is no such subscription of this project.")


class SubscriptionIn(Body):
    """The kinds of news of a subscription. A field that is left out stays as it is."""

    removable = frozenset({"kinds", "project", "webhook"})
    kinds: Annotated[list[Kind], Field(min_length=1, max_length=10)] | None = Field(
        None,
        description="Which news. Null, and of a new subscription left out: all but delivery.opened, with a project not "
        "event.finished either.",
    )
    project: Text200 | None = Field(
        None,
        description="Only news of this project's phones; null: of all. A token of one project has its own.",
    )
    webhook: Text200 | None = Field(
        None, description="The webhook of WEBHOOKS_FILE that gets the news; null: your app reads them."
    )


class Subscribed(BaseModel):
    """Whether the subscription is new."""

    subscription: str
    created: bool


class NewsItem(BaseModel):
    """News of an event, a delivery or a phone."""

    position: int
    at: str
    kind: str
    project: str | None
    event_id: int | None
    event_key: str | None = Field(description="As long as the event is there.")
    delivery_id: int | None
    installation_id: UUID | None
    owner: str | None = Field(description="As long as the installation is there.")
    data: dict[str, Any]


class NewsPage(BaseModel):
    """News in order, and behind which position the next are; null if none came after these yet."""

    items: list[NewsItem]
    next: int | None = Field(description="The position to go on behind (`after`), if there may be more.")


class AcknowledgeIn(Body):
    """Up to where."""

    position: Annotated[int, Field(ge=0, lt=2**63), NO_TEXT] = Field(description="The last one that was dealt with.")


class Acknowledged(BaseModel):
    """Whether that is further than before."""

    acknowledged: bool


@router.put(
    "/v1/news/{subscription}",
    responses={200: {"model": Subscribed}, 201: {"model": Subscribed, "description": "It is new."}},
)
async def subscribe_news(request: Request, subscription: Name, asked: SubscriptionIn) -> Response:
    """Subscribe to news from now on, or change a subscription."""
    created = await call(request, news.subscribe, subscription, asked.model_dump(exclude_unset=True))
    return Json({"subscription": subscription, "created": created}, 201 if created else 200)


@router.get("/v1/news/{subscription}", responses={200: {"model": NewsPage}, **_MISSING})
async def read_news(
    request: Request,
    subscription: Name,
    after: Annotated[
        int | None,
        Query(ge=0, lt=2**63, description="The position after which to read. Default: the acknowledged one."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE, description="The maximum number of items.")] = 100,
) -> Response:
    """Read the next news of a subscription, oldest first; each comes until it is acknowledged."""
    items = [vars(each) for each in await call(request, news.read, subscription, after, limit)]
    return Json({"items": items, "next": items[-1]["position"] if len(items) == limit else None})


@router.post("/v1/news/{subscription}/acknowledge", responses={200: {"model": Acknowledged}, **_MISSING})
async def acknowledge_news(request: Request, subscription: Name, upto: AcknowledgeIn) -> Response:
    """Acknowledge news up to a position: they are not returned again."""
    return Json({"acknowledged": await call(request, news.acknowledge, subscription, upto.position)})
