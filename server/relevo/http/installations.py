"""Phones: they register, say what they ask for, and read what they got; each proves which installation it is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any, Literal, ParamSpec, TypeVar
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from relevo.access.phones import NoProofError, check_form, check_signed, project_of
from relevo.client import opens
from relevo.client.checks import DELIVERY
from relevo.client.values import REMOVE, Installation, TenderPreference
from relevo.core.known_services import EXPO, NATIVE, SERVICES, WITH_ENVIRONMENT, listed
from relevo.core.statuses import DeliveryStatus
from relevo.http import event_schema
from relevo.http.fields import Amount, Body, Exact, Id, Instant, Reason, Text, Text35, Text64, Text100, Text200
from relevo.http.guard import Guarded, call, caller_of
from relevo.http.json_response import Json
from relevo.http.problems import invalid, missing
from relevo.verbs import phones

P = ParamSpec("P")
T = TypeVar("T")


INSTALLATION = "/v1/installations/{installation_id}"
_USUAL_PROJECT = "default"
_SIGNED = ("project", "owner", "provider", "token")
"""The fields of a body that a signature covers."""


class PhoneRoute(Guarded):
    """A route for phones, which prove who they are before their body is validated."""

    async def prove(self, request: Request) -> None:
        """Refuse who brings no proof, or one that does not hold; where there is no body the route itself does."""
        if self.body_field is None:
            return
        proof, may_be_new = caller_of(request).proof, self.path == INSTALLATION
        if proof.token is not None:
            return
        try:
            installation_id = UUID(request.path_params["installation_id"])
        except ValueError:
            raise invalid("installation_id", "must be a UUID") from None
        if may_be_new and proof.signature is not None:
            await _check_signature(request, installation_id, proof.signature)
        elif not may_be_new or request.app.state.device_rules.open_project is None:
            await call(request, phones.prove, installation_id)


async def _check_signature(request: Request, installation_id: UUID, signature: str) -> None:
    """Refuse a signature that does not hold: by its own words before the body is read, then by the fields it covers.

    The database is asked only where a body that may be good does not name the phone's project.
    """
    rules, now = request.app.state.device_rules, time.time()
    check_form(rules, signature, now)
    asked = Installation(installation_id=installation_id, **_signed_fields(await request.body()))
    try:
        check_signed(rules, asked, signature, now)
    except NoProofError:
        if asked.project is not None:
            raise
        project = await request.app.state.threads.run_statement(project_of, installation_id)
        check_signed(rules, replace(asked, project=project), signature, now)


def _signed_fields(body: bytes) -> dict[str, Any]:
    """Return those fields of a body that a signature covers, with the usual project if the body is no good anyway."""
    no_good = {"token": None, "project": _USUAL_PROJECT}
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return no_good
    if not isinstance(given, dict):
        return no_good
    fields = {name: given.get(name) for name in _SIGNED}
    if not all(isinstance(each, str | None) for each in fields.values()):
        return no_good
    if len(given) > len(InstallationBody.model_fields):
        return fields | {"project": fields["project"] or _USUAL_PROJECT}
    return fields


Name = Annotated[Text, Path(min_length=1, max_length=100, description="The preference's name.")]
Opaque = Annotated[str | None, Query(pattern="^[0-9]{1,19}$", description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200, description="The maximum number of items.")]
MISSING = missing("It is not there, or not for this caller to see.")
router = APIRouter(prefix=INSTALLATION, route_class=PhoneRoute, tags=["devices"], responses=MISSING)


class InstallationBody(Body):
    """An app on a phone. An omitted field keeps its value, but `push_capable` becomes true and `permission` granted.

    Null removes `locale` or `timezone`, and is refused elsewhere.
    """

    removable = frozenset({"locale", "timezone"})

    token: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        None,
        description=f"The push token: {listed((each.token.words for each in SERVICES.values()), ', or ')}.",
    )
    project: Text200 | None = Field(None, description="The project of a new phone. A known phone stays in its project.")
    provider: Annotated[Text, Field(min_length=1, max_length=40)] | None = Field(
        None,
        description=f"The push service: `{EXPO}` (the usual one), {listed(f'`{name}`' for name in NATIVE)}; another "
        "with a token or a signature of the app's, `webhook` with a token alone.",
    )
    environment: Literal["production", "sandbox"] | None = Field(
        None,
        description=f"With {listed(f'`{name}`' for name in WITH_ENVIRONMENT)}: which of Apple's services knows the "
        "token; production unless it is said.",
    )
    platform: Literal["ios", "android", "web", "unknown"] | None = Field(None)
    locale: Text35 | None = Field(None, description="Null removes it.")
    timezone: Text64 | None = Field(
        None, description="The time zone it is in, by its IANA name, such as America/Santiago. Null removes it."
    )
    owner: Text200 | None = Field(None, description="The phone's owner. It needs a token or a signature of the app.")
    push_capable: StrictBool = True
    permission: Literal["granted", "denied", "undetermined"] = "granted"
    opt_outs: list[Text100] | None = Field(None, max_length=100)
    attributes: Annotated[dict[str, Any], Field(max_length=50, json_schema_extra=event_schema.ATTRIBUTES)] | None = (
        Field(
            None,
            description="Attributes to set. One that is left out stays as it is; null removes it. Without a token of "
            "the app's only those whose name begins with `device.`.",
        )
    )
    renew_secret: StrictBool = Field(
        False,
        description="Return another secret for a phone that has one. It needs a token or a signature of the app.",
    )


class RegisteredBody(BaseModel):
    """The installation, and its secret if it was made just now: by it later calls prove that they are this phone's."""

    installation_id: UUID
    created: bool
    secret: str | None = Field(
        description="Returned only once; null if the former secret stays valid, and for webhooks."
    )


class ReasonIn(Body):
    """Why."""

    reason: Reason = ""


class LoggedOutBody(BaseModel):
    """Whether it was registered until now."""

    logged_out: bool


class CompletedBody(BaseModel):
    """That it was noted."""

    completed: bool


class OpenedIn(Body):
    """A push that was opened: which one, as its data says, when, and by which button."""

    delivery_id: Id = Field(description="`notificationDeliveryId` of the push's data.")
    at: Instant | None = Field(
        None,
        description="The instant of the tap. Default: now. Relevo moves it between the sending of the push and now.",
    )
    action: Annotated[Text, Field(min_length=1, max_length=opens.MOST_OF_ACTION)] | None = Field(
        None, description="The button. Omit it for a tap on the push itself."
    )


class OpenedBody(BaseModel):
    """The outcome of the report. The phone need not send the report again, whatever the outcome."""

    outcome: Literal["noted", "known", "off", "too_late", "unsent"] = Field(
        description="`known`: reported before; `off`: the event's type does not ask for taps; `too_late`: 30 days "
        "after it was sent, or once it is archived; `unsent`: no push service can have taken it, and it does not count."
    )


class PreferenceBody(Exact):
    """The events that an installation asks for. A field that is left out matches every value."""

    enabled: StrictBool = True
    rubro_prefix: Annotated[str, Field(pattern="^[0-9A-Za-z-]{1,20}$")] | None = None
    tipo: Text100 | None = None
    region: Text200 | None = None
    monto_min: Amount | None = None
    monto_max: Amount | None = None
    moneda: Annotated[str, Field(pattern="^[A-Z]{3}$")] | None = None
    keywords: list[Text100] | None = Field(None, max_length=20)
    topics: list[Text100] | None = Field(None, max_length=100)
    delivery: Annotated[str, Field(pattern=f"^({DELIVERY})$")] | None = None


class NamedPreference(PreferenceBody):
    """A preference with its name."""

    name: str
    updated_at: str


class Preferences(BaseModel):
    """All preferences of an installation; any one that matches is enough."""

    items: list[NamedPreference]
    next: None


class Why(BaseModel):
    """Why an installation got this."""

    audience: str | None = Field(description="everyone, installations, matching …; null once the event is archived")
    preferences: list[str] | None = Field(description="of a matching event: its preferences that match now")
    words: str


class HistoryEntry(BaseModel):
    """One delivery to this installation."""

    id: int
    event_id: int
    event_type: str
    status: DeliveryStatus
    title: str | None
    body: str | None
    licitacion_id: int | None = Field(None, description="Only where a source of tenders is on.")
    created_at: str
    last_attempt_at: str | None
    completed_at: str | None
    why: Why


class History(BaseModel):
    """The pushes that an installation got, newest first."""

    items: list[HistoryEntry]
    next: str | None


@router.put(
    "",
    responses={200: {"model": RegisteredBody}, 201: {"model": RegisteredBody, "description": "It is new."}},
)
async def register_installation(request: Request, installation_id: UUID, body: InstallationBody) -> Response:
    """Register a phone, or refresh it.

    A new phone needs an app's token, or `X-Relevo-Signature`: the signature of your server over project, installation,
    owner, provider and push token, valid once. Without owner, open registration needs neither. The answer has the
    phone's secret, which later calls send: `Authorization: Bearer device_…`. A known phone keeps its secret. With a
    token or a signature it gets a secret if it has none, or another one by `renew_secret`. A push token of another
    installation moves here only with a signature.
    """
    removed = dict.fromkeys(
        (name for name in body.removable & body.model_fields_set if getattr(body, name) is None), REMOVE
    )
    given = body.model_dump(exclude={"renew_secret"}) | removed
    asked = Installation(installation_id=installation_id, **given)
    rules = request.app.state.device_rules
    made = await call(request, phones.register, rules, asked, renew=body.renew_secret)
    return Json(vars(made), 201 if made.created else 200, {"Cache-Control": "no-store"})


@router.delete("", status_code=204)
async def delete_installation(request: Request, installation_id: UUID) -> Response:
    """Forget a phone: delete its token, owner and preferences, and the texts of events for this phone alone."""
    await call(request, phones.forget, installation_id)
    return Response(status_code=204)


@router.post("/log-out", responses={200: {"model": LoggedOutBody}})
async def log_out_installation(request: Request, installation_id: UUID) -> Response:
    """Log a phone out: Relevo sends nothing to it until it registers again, and its secret ends."""
    return Json({"logged_out": await call(request, phones.log_out, installation_id)})


@router.post("/complete", responses={200: {"model": CompletedBody}})
async def complete_installation(request: Request, installation_id: UUID, why: ReasonIn | None = None) -> Response:
    """Complete all events for a phone until now, as handled elsewhere: its waiting pushes end unsent."""
    reason = (why or ReasonIn()).reason
    return Json({"completed": await call(request, phones.complete, installation_id, reason)})


@router.post("/opened", responses={200: {"model": OpenedBody}})
async def report_opened(request: Request, installation_id: UUID, opened: OpenedIn) -> Response:
    """Report that a push was opened, at once or later; the same report again changes nothing.

    Only pushes whose data has `reportOpened` ask for it.
    """
    report = opened.model_dump(include={"at", "action"})
    return Json({"outcome": await call(request, phones.report_opened, installation_id, opened.delivery_id, **report)})


@router.get("/preferences", responses={200: {"model": Preferences}})
async def list_preferences(request: Request, installation_id: UUID) -> Response:
    """Return a phone's preferences. The phone gets an event if any of them matches."""
    found = await call(request, phones.list_preferences, installation_id)
    return Json({"items": found, "next": None})


@router.get("/preferences/{name}", responses={200: {"model": NamedPreference}})
async def get_preference(request: Request, installation_id: UUID, name: Name) -> Response:
    """Return one preference of a phone."""
    [found] = await call(request, phones.list_preferences, installation_id, name)
    return Json(found)


@router.put("/preferences/{name}", responses={200: {"model": NamedPreference}})
async def set_preference(request: Request, installation_id: UUID, name: Name, body: PreferenceBody) -> Response:
    """Set one preference of a phone. A new phone has `default`, which matches every event without topics."""
    asked = TenderPreference(**dict(body))
    return Json(await call(request, phones.set_preference, installation_id, name, asked))


@router.delete("/preferences/{name}", status_code=204)
async def delete_preference(request: Request, installation_id: UUID, name: Name) -> Response:
    """Remove one preference of a phone; one without any gets no tenders."""
    await call(request, phones.remove_preference, installation_id, name)
    return Response(status_code=204)


@router.get("/deliveries", responses={200: {"model": History}})
async def list_installation_deliveries(
    request: Request, installation_id: UUID, limit: Limit = 50, cursor: Opaque = None
) -> Response:
    """Return the deliveries to a phone with their reasons, newest first.

    The phone itself sees those since it has its owner.
    """
    before = min(int(cursor), phones.MOST_IDS) if cursor else phones.MOST_IDS
    rows = await call(request, phones.history, installation_id, before=before, limit=limit)
    items = [_told(request, dict(row)) for row in rows]
    return Json({"items": items, "next": str(items[-1]["id"]) if len(items) == limit else None})


def _told(request: Request, row: dict[str, Any]) -> dict[str, Any]:
    if not request.app.state.has_tenders:
        row.pop("licitacion_id")
    audience, names = row.pop("audience"), row.pop("preferences")
    row.pop("category")
    return row | {"why": {"audience": audience, "preferences": names, "words": _why(audience, names)}}


def _why(audience: str | None, names: list[str] | None) -> str:
    match audience:
        case None:
            return "Its event was archived or deleted."
        case "everyone":
            return "It was sent to everyone."
        case "matching" if names:
            return f"It matches what this phone asks for: {', '.join(names)}."
        case "matching":
            return "It matched a preference that was changed or removed since."
        case "attributes":
            return "It was sent to phones with some attributes."
        case _:
            return "It was sent to this phone or its owner."
