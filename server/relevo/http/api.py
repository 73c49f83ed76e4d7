"""The app: all routes, each with its rule, and what they share."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from relevo.access.oidc import Provider
from relevo.access.phones import OF_PHONES, DeviceRules
from relevo.app import App
from relevo.core.hidden_texts import hiding
from relevo.core.model import NEWS
from relevo.core.version import __version__
from relevo.http import (
    api_page,
    attributes,
    choices,
    config,
    dashboard,
    event_schema,
    event_types,
    events,
    explanations,
    health,
    inbox,
    installations,
    news,
    ops,
    owners,
    problems,
    quiet,
    shadow,
    tenders,
    words,
)
from relevo.http.admission import Admission, RateLimiter
from relevo.http.cached import Cached
from relevo.http.dashboard.login import LoginCodes
from relevo.http.dashboard.refusals import Refusals
from relevo.http.database_threads import DatabaseThreads, Threads
from relevo.http.guard import COOKIE, Callers, Guarded
from relevo.http.middleware import OverLimit
from relevo.http.recorded import RecordedActions
from relevo.http.shared_writes import SharedWrites
from relevo.http.waiting import EventWaiters, InboxWaiters, Places
from relevo.operators import fleet

_MOST_RUNS = 2
_RENDERING_WAIT_S = _SIGN_ON_WAIT_S = 2.0
ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    events.router,
    explanations.router,
    event_types.router,
    owners.router,
    choices.router,
    choices.phone_router,
    quiet.router,
    quiet.phone_router,
    attributes.phone_router,
    news.router,
    words.router,
    installations.router,
    inbox.router,
    tenders.router,
    ops.router,
    config.router,
    shadow.router,
    health.metrics_router,
    api_page.router,
    *dashboard.ROUTERS,
)
_DESCRIPTION = (
    "Your app's events, and tenders, delivered to phones. Bodies are JSON; errors are problem+json (RFC 9457) that "
    "name field and reason; instants are RFC 3339. Every answer has an X-Request-Id. A proxy in front of it has to "
    "bear requests of at least 35 seconds, for `wait_ms` may be 30000."
)
_PROOFS = {
    "appToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "relevo_…",
        "description": "A token that `relevo token make` made.",
    },
    "deviceSecret": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "device_…",
        "description": "The secret that a phone was told when it was registered.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Relevo-Signature",
        "description": "What the app's server signed for this one call.",
    },
}
"""How callers prove who they are."""


def make(relevo: App | None = None) -> FastAPI:
    """Put the app together; without a process behind it, it can only say what it would serve."""
    app = FastAPI(
        title="Relevo",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # else each request looks for somebody to tell
    )
    app.router.route_class = Guarded
    app.state.relevo = relevo
    app.state.has_tenders = relevo is None or any(cycle.name == "ingest" for cycle in relevo.registry.values())
    problems.install(app)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # as they are: each brings its rule, and nothing is put around it
    app.add_middleware(OverLimit)
    if relevo is not None and relevo.settings.http_cors_origins:  # around it: pages read why they are refused
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(relevo.settings.http_cors_origins),
            allow_methods=["GET", "PUT", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "X-Relevo-Signature", "X-Request-Id"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def furnish(
    app: FastAPI,
    threads: DatabaseThreads,
    places: Places,
    rules: DeviceRules,
    codes: LoginCodes,
    *,
    provider: Provider | None = None,
) -> None:
    """Give the app what its routes answer by."""
    relevo: App = app.state.relevo
    app.state.threads = threads
    app.state.long_work = DatabaseThreads(
        relevo.database, _MOST_RUNS, 0.0, busy_because=f"{_MOST_RUNS} runs by hand are under way here."
    )
    app.state.provider = provider
    app.state.sign_on_threads = Threads(2, _SIGN_ON_WAIT_S, "Other people are logging in.")
    app.state.rendering = Threads(1, _RENDERING_WAIT_S, "Other texts are being rendered.", rest=3)
    app.state.stats = Cached(lambda: _stats(threads, relevo))
    app.state.device_rules = rules
    app.state.refusals, app.state.refusals_flush = Refusals(), None
    app.state.recorded = RecordedActions()
    app.state.codes = codes
    app.state.exports = choices.Exports()
    app.state.waiters = EventWaiters(threads, places)
    app.state.inbox_waiters = InboxWaiters(threads, places)
    app.state.writes = SharedWrites(threads)
    app.state.callers = callers = Callers(threads)
    limiter = RateLimiter(relevo.settings.http_rate_per_second)
    app.state.admission = Admission(callers, limiter, COOKIE, rules.keys)


async def _stats(threads: DatabaseThreads, relevo: App) -> dict[str, Any]:
    """Find what many callers share: whole, whoever is the first to ask."""
    with hiding(False):
        return await threads.run(fleet.stats, relevo.settings)


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, in which a request that is not valid gets a 400 problem."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        document["components"]["securitySchemes"] = _PROOFS
        for unused in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(unused, None)
        for operation in (each for path in document["paths"].values() for each in path.values()):
            _tidy(operation["responses"])
        if not app.state.has_tenders:
            _leave_tenders_out(document["components"]["schemas"])
        event_schema.describe_push(document["components"]["schemas"])
        _name_providers(document, app.state.relevo)
        app.openapi_schema = _exact(document)
    return app.openapi_schema


def _exact(written: Any) -> Any:
    """Return a document with whole numbers as they are: as a float, 2^63 would be written as a little more."""
    match written:
        case dict():
            return {name: _exact(each) for name, each in written.items()}
        case list():
            return [_exact(each) for each in written]
        case float() if written.is_integer():
            return int(written)
        case _:
            return written


def _name_providers(document: dict[str, Any], relevo: App | None) -> None:
    """Add the push services to a phone's description: those of phones, and of this process, your own among them."""
    if relevo is not None:
        body = document["components"]["schemas"]["InstallationBody"]
        body["properties"]["provider"]["enum"] = sorted({*OF_PHONES, *relevo.services.providers} - {NEWS})


def _leave_tenders_out(schemas: dict[str, Any]) -> None:
    """Take the field that leads to a tender out of what events and deliveries are said to have."""
    for schema in schemas.values():
        schema.get("properties", {}).pop("licitacion_id", None)


def _tidy(answers: dict[str, Any]) -> None:
    if "HTTPValidationError" in str(answers.get("422", "")):
        del answers["422"]
    for answer in answers.values():
        content = answer.get("content", {})
        if "ProblemBody" in str(content):
            answer["content"] = {"application/problem+json": next(iter(content.values()))}
