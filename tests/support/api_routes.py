"""Every route of the API with who gets in, written by hand from the docs, and a call of each that is well-formed.

It is not read from `http/rules.py`: whoever adds or opens a route says so here, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Door = Literal[
    "open", "app", "read", "fleet read", "fleet do", "words", "words read", "phone", "reader", "tenders", "login"
]
"""open: anybody. app: app and operator. read: viewer, too. fleet …: not for tokens of one project. words: the app and operator of the
fleet; words read: viewer, too. phone: the phone, app and operator of its project. reader: a phone, app and operator. tenders: a phone, or any
token. login: a form."""

OWNER = {"owner": "ana"}
TEXTS = {"type": "w", "texts": {"en": {"title": "Hi"}}}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Route:
    """Who gets in, and a call: `{event}`, `{phone}` and `{delivery}` in path, query and body are ids of one of the projects."""

    door: Door
    query: str = ""
    body: Any = None
    fills: dict[str, str] = field(default_factory=dict)


EVENT = {"type": "t", "key": "k", "title": "again", "audience": "owners", "owners": ["ana"], "on_conflict": "keep"}
HOURS = {"windows": ["22:00-07:00"], "zone": "UTC"}

ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/"): Route("open"),
    ("GET", "/docs"): Route("open"),
    ("GET", "/favicon.ico"): Route("open"),
    ("GET", "/openapi.json"): Route("open"),
    ("GET", "/health/live"): Route("open"),
    ("GET", "/health/ready"): Route("open"),
    ("GET", "/guide"): Route("open"),
    ("GET", "/guide/{name}"): Route("open", fills={"name": "index"}),
    ("GET", "/guide/es/{name}"): Route("open", fills={"name": "index"}),
    ("GET", "/guide/pictures/{name}"): Route("open", fills={"name": "none.png"}),
    ("GET", "/dashboard/static/{name}"): Route("open", fills={"name": "relevo.css"}),
    ("GET", "/dashboard/language/{code}"): Route("open", fills={"code": "es"}),
    ("GET", "/metrics"): Route("fleet read"),
    ("GET", "/v1/events"): Route("read", "type=t&key=k&wait_ms=0"),
    ("POST", "/v1/events"): Route("app", body=EVENT),
    ("PUT", "/v1/events"): Route("app", body={**EVENT, "key": "later"}),
    ("POST", "/v1/events/batch"): Route("app", body={"events": [EVENT]}),
    ("POST", "/v1/events/preview"): Route("app", "sample=100", body={**EVENT, "audience": "owners"}),
    ("GET", "/v1/events/{event_id}"): Route("read", "wait_ms=0"),
    ("GET", "/v1/events/{event_id}/deliveries"): Route("read"),
    ("GET", "/v1/events/{event_id}/waits"): Route("read"),
    ("GET", "/v1/events/{event_id}/explanation"): Route("read", "installation_id={phone}"),
    ("POST", "/v1/events/explanation"): Route("app", "installation_id={phone}", body={**EVENT, "audience": "owners"}),
    ("GET", "/v1/event-types"): Route("words read"),
    ("PUT", "/v1/event-types/{event_type}"): Route("fleet do", body={}, fills={"event_type": "w"}),
    ("DELETE", "/v1/event-types/{event_type}"): Route("fleet do", fills={"event_type": "nothing"}),
    ("POST", "/v1/events/{event_id}/complete"): Route("app", body={"owner": "ana"}),
    ("POST", "/v1/events/{event_id}/cancel"): Route("app", body={}),
    ("GET", "/v1/installations"): Route("app", "owner=ana"),
    ("POST", "/v1/owners/choices"): Route("app", body={**OWNER, "category": "offers", "wanted": False}),
    ("POST", "/v1/owners/export"): Route("app", body={**OWNER, "kind": "events"}),
    ("POST", "/v1/owners/quiet"): Route("app", body={**OWNER, **HOURS}),
    ("POST", "/v1/owners/attributes"): Route("app", body={**OWNER, "attributes": {"plan": "pro"}}),
    ("POST", "/v1/owners/complete"): Route("app", body=OWNER),
    ("POST", "/v1/owners/block"): Route("app", body=OWNER),
    ("POST", "/v1/owners/unblock"): Route("app", body=OWNER),
    ("GET", "/v1/quiet"): Route("read"),
    ("PUT", "/v1/quiet"): Route("app", body=HOURS),
    ("GET", "/v1/caps"): Route("read"),
    ("PUT", "/v1/caps"): Route("app", body={"per": "day", "most": 5}),
    ("GET", "/v1/categories"): Route("read", "owner=ana"),
    ("PUT", "/v1/categories/{category}"): Route("fleet do", body={}, fills={"category": "offers"}),
    ("GET", "/v1/words"): Route("words read"),
    ("POST", "/v1/words"): Route("words", body=TEXTS),
    ("POST", "/v1/words/preview"): Route("words read", body=TEXTS),
    ("GET", "/v1/words/{event_type}"): Route("words read", fills={"event_type": "w"}),
    ("PUT", "/v1/news/{subscription}"): Route(
        "app", body={"kinds": ["token.disabled"]}, fills={"subscription": "feed"}
    ),
    ("GET", "/v1/news/{subscription}"): Route("app", fills={"subscription": "feed"}),
    ("POST", "/v1/news/{subscription}/acknowledge"): Route("app", body={"position": 1}, fills={"subscription": "feed"}),
    ("GET", "/v1/ops/audit"): Route("fleet read"),
    ("GET", "/v1/ops/stats"): Route("fleet read"),
    ("POST", "/v1/ops/cycles/{name}/run"): Route("fleet do", fills={"name": "reaper"}),
    ("POST", "/v1/ops/cycles/{name}/pause"): Route("fleet do", body={}, fills={"name": "ingest"}),
    ("POST", "/v1/ops/cycles/{name}/resume"): Route("fleet do", body={}, fills={"name": "ingest"}),
    ("POST", "/v1/ops/redrive"): Route("fleet do", body={}),
    ("POST", "/v1/ops/release"): Route("fleet do", body={"project": "nobody"}),
    ("POST", "/v1/config/plan"): Route("fleet do", body={"config": {}}),
    ("POST", "/v1/config/apply"): Route("fleet do", body={"config": {}}),
    ("GET", "/v1/inbox"): Route("reader", "owner=ana"),
    ("GET", "/v1/inbox/counts"): Route("reader", "owner=ana"),
    ("POST", "/v1/inbox/{event_id}/{mark}"): Route("reader", body=OWNER, fills={"mark": "read"}),
    ("POST", "/v1/inbox/read-before"): Route("reader", body=OWNER),
    ("POST", "/v1/inbox/seen-before"): Route("reader", body=OWNER),
    ("GET", "/v1/licitaciones"): Route("tenders"),
    ("GET", "/v1/licitaciones/{licitacion_id}"): Route("tenders", fills={"licitacion_id": "1"}),
    ("GET", "/v1/rubros"): Route("tenders"),
    ("GET", "/v1/regions"): Route("tenders"),
    ("GET", "/v1/installations/{installation_id}/preferences"): Route("phone"),
    ("GET", "/v1/installations/{installation_id}/preferences/{name}"): Route("phone", fills={"name": "default"}),
    ("PUT", "/v1/installations/{installation_id}/preferences/{name}"): Route(
        "phone", body={}, fills={"name": "default"}
    ),
    ("GET", "/v1/installations/{installation_id}/choices"): Route("phone"),
    ("PUT", "/v1/installations/{installation_id}/choices/{category}"): Route(
        "phone", body={"wanted": False}, fills={"category": "offers"}
    ),
    ("GET", "/v1/installations/{installation_id}/quiet"): Route("phone"),
    ("PUT", "/v1/installations/{installation_id}/quiet"): Route("phone", body={**HOURS, "all_phones": True}),
    ("GET", "/v1/installations/{installation_id}/attributes"): Route("phone"),
    ("POST", "/v1/installations/{installation_id}/attributes"): Route(
        "phone", body={"attributes": {"device.theme": "dark"}}
    ),
    ("GET", "/v1/installations/{installation_id}/deliveries"): Route("phone"),
    ("POST", "/v1/installations/{installation_id}/opened"): Route("phone", body={"delivery_id": "{delivery}"}),
    ("POST", "/v1/installations/{installation_id}/complete"): Route("phone", body={}),
    ("DELETE", "/v1/installations/{installation_id}/preferences/{name}"): Route("phone", fills={"name": "default"}),
    ("PUT", "/v1/installations/{installation_id}"): Route("phone", body={"locale": "es"}),
    ("POST", "/v1/owners/log-out"): Route("app", body=OWNER),
    ("POST", "/v1/owners/forget"): Route("app", body=OWNER),
    ("POST", "/v1/installations/{installation_id}/log-out"): Route("phone"),
    ("DELETE", "/v1/installations/{installation_id}"): Route("phone"),
    ("POST", "/v1/shadow/sent"): Route(
        "app", body={"sends": [{"sent_at": "2026-01-01T00:00:00Z", "owner": "ana", "title": "Hi"}]}
    ),
    ("GET", "/login"): Route("login"),
    ("POST", "/login"): Route("login"),
    ("GET", "/login/oidc"): Route("login"),
    ("GET", "/login/oidc/callback"): Route("login"),
    ("POST", "/logout"): Route("login"),
    ("GET", "/dashboard"): Route("fleet read"),
    ("GET", "/dashboard/system"): Route("fleet read"),
    ("GET", "/dashboard/people"): Route("fleet read"),
    ("GET", "/dashboard/search"): Route("fleet read", "q=ana"),
    ("POST", "/dashboard/search"): Route("fleet read"),
    ("GET", "/dashboard/events"): Route("fleet read"),
    ("GET", "/dashboard/events/{event_id}"): Route("fleet read"),
    ("GET", "/dashboard/deliveries/{delivery_id}"): Route("fleet read", fills={"delivery_id": "{delivery}"}),
    ("GET", "/dashboard/installations/{installation_id}"): Route("fleet read"),
    ("GET", "/dashboard/owners/{owner:path}"): Route("fleet read", fills={"owner": "ana"}),
    ("GET", "/dashboard/runs"): Route("fleet read"),
    ("GET", "/dashboard/runs/{run_id}"): Route("fleet read", fills={"run_id": "1"}),
    ("GET", "/dashboard/sources"): Route("fleet read"),
    ("GET", "/dashboard/dead-letters"): Route("fleet read"),
    ("GET", "/dashboard/archive"): Route("fleet read"),
    ("GET", "/dashboard/audit"): Route("fleet read"),
    ("GET", "/dashboard/sessions"): Route("fleet read"),
    ("POST", "/dashboard/sessions/end"): Route("fleet read"),
    ("POST", "/dashboard/sessions/end-own"): Route("fleet read"),
    ("GET", "/dashboard/compose"): Route("fleet read"),
    ("POST", "/dashboard/compose"): Route("fleet read"),
    ("POST", "/dashboard/compose/send"): Route("fleet do"),
    ("GET", "/dashboard/compose/{event_id}"): Route("fleet read"),
    ("GET", "/dashboard/actions/{verb}"): Route("fleet do", fills={"verb": "pause"}),
    ("POST", "/dashboard/actions/{verb}"): Route("fleet do", fills={"verb": "pause"}),
    ("GET", "/dashboard/{place:path}"): Route("fleet read", fills={"place": "nowhere"}),
}

ALL_ROLES = {"app", "viewer", "operator"}
ROLES: dict[Door, tuple[set[str], bool]] = {
    "app": ({"app", "operator"}, True),
    "read": (ALL_ROLES, True),
    "fleet read": ({"viewer", "operator"}, False),
    "fleet do": ({"operator"}, False),
    "words": ({"app", "operator"}, False),
    "words read": (ALL_ROLES, False),
    "phone": ({"app", "operator"}, True),
    "reader": ({"app", "operator"}, True),
    "tenders": (ALL_ROLES, True),
}
"""Of which roles a token gets in, and whether one of a single project does."""


def filled(path: str, route: Route, event: int, phone: str, delivery: int) -> str:
    """Return a path that can be called."""
    names = {"event_id": str(event), "installation_id": phone, **route.fills}
    path = path.replace(":path}", "}").format_map(names).replace("{delivery}", str(delivery))
    return f"{path}?{route.query.replace('{phone}', phone)}" if route.query else path


def body_of(route: Route, delivery: int) -> Any:
    """Return the body of a call, with the delivery's id."""
    if isinstance(route.body, dict) and "delivery_id" in route.body:
        return {**route.body, "delivery_id": delivery}
    return route.body
