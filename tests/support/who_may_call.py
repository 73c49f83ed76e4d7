"""Who may call each route, as a list of its own: nothing of it is derived from `relevo.http.rules`, which it is compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Callers:
    """Who is let in."""

    roles: frozenset[str] = frozenset()
    """The roles of tokens that are let in; none: the route asks for no token."""
    of_one_project: bool = False
    """Whether a token of one project is let in, too."""
    proves_itself: bool = False
    """Whether the route judges its caller by a secret, a signature or a password form."""
    by_cookie: bool = False
    """Whether a person's session is taken."""


ANYBODY = Callers()
VIEWERS = Callers(frozenset({"observer", "operator", "viewer"}))
APPS = Callers(frozenset({"app", "operator"}), of_one_project=True)
READERS = Callers(frozenset({"app", "observer", "operator", "viewer"}), of_one_project=True)
READERS_OF_TEXTS = Callers(frozenset({"app", "operator", "viewer"}), of_one_project=True)
READERS_OF_ALL = Callers(frozenset({"app", "observer", "operator", "viewer"}))
READERS_OF_ALL_TEXTS = Callers(frozenset({"app", "operator", "viewer"}))
OPERATORS = Callers(frozenset({"operator"}))
APPS_OF_ALL = Callers(frozenset({"app", "operator"}))
PROVEN = Callers(proves_itself=True)
PROVEN_BY_COOKIE = Callers(proves_itself=True, by_cookie=True)
VIEWERS_BY_COOKIE = Callers(frozenset({"observer", "operator", "viewer"}), by_cookie=True)
VIEWERS_OF_TEXTS_BY_COOKIE = Callers(frozenset({"operator", "viewer"}), by_cookie=True)
OPERATORS_BY_COOKIE = Callers(frozenset({"operator"}), by_cookie=True)
ANYBODY_BY_COOKIE = Callers(by_cookie=True)

_LISTED = (
    (ANYBODY, """
        GET /
        GET /docs
        GET /favicon.ico
        GET /openapi.json
        GET /health/live
        GET /health/ready
        GET /dashboard/static/{name}
        GET /dashboard/language/{code}
    """),
    (VIEWERS, """
        GET /metrics
        GET /v1/ops/audit
        GET /v1/ops/stats
    """),
    (APPS, """
        POST /v1/shadow/sent
        POST /v1/events
        PUT /v1/events
        POST /v1/events/batch
        POST /v1/events/preview
        POST /v1/events/{event_id}/complete
        POST /v1/events/{event_id}/cancel
        POST /v1/events/explanation
        GET /v1/installations
        POST /v1/owners/log-out
        POST /v1/owners/complete
        POST /v1/owners/forget
        POST /v1/owners/choices
        POST /v1/owners/block
        POST /v1/owners/unblock
        POST /v1/owners/export
        POST /v1/owners/quiet
        POST /v1/owners/attributes
        PUT /v1/quiet
        PUT /v1/caps
        PUT /v1/news/{subscription}
        GET /v1/news/{subscription}
        POST /v1/news/{subscription}/acknowledge
    """),
    (READERS, """
        GET /v1/events
        GET /v1/events/{event_id}
        GET /v1/events/{event_id}/deliveries
        GET /v1/events/{event_id}/waits
        GET /v1/events/{event_id}/explanation
        GET /v1/quiet
        GET /v1/caps
    """),
    (READERS_OF_TEXTS, """
        GET /v1/categories
    """),
    (READERS_OF_ALL, """
        GET /v1/event-types
    """),
    (READERS_OF_ALL_TEXTS, """
        GET /v1/words
        POST /v1/words/preview
        GET /v1/words/{event_type}
    """),
    (OPERATORS, """
        PUT /v1/event-types/{event_type}
        DELETE /v1/event-types/{event_type}
        POST /v1/ops/cycles/{name}/run
        POST /v1/ops/cycles/{name}/pause
        POST /v1/ops/cycles/{name}/resume
        POST /v1/ops/redrive
        POST /v1/ops/release
        POST /v1/config/plan
        POST /v1/config/apply
        PUT /v1/categories/{category}
    """),
    (APPS_OF_ALL, """
        POST /v1/words
    """),
    (PROVEN, """
        PUT /v1/installations/{installation_id}
        DELETE /v1/installations/{installation_id}
        POST /v1/installations/{installation_id}/log-out
        POST /v1/installations/{installation_id}/complete
        POST /v1/installations/{installation_id}/opened
        GET /v1/installations/{installation_id}/preferences
        GET /v1/installations/{installation_id}/preferences/{name}
        PUT /v1/installations/{installation_id}/preferences/{name}
        DELETE /v1/installations/{installation_id}/preferences/{name}
        GET /v1/installations/{installation_id}/choices
        PUT /v1/installations/{installation_id}/choices/{category}
        GET /v1/installations/{installation_id}/quiet
        PUT /v1/installations/{installation_id}/quiet
        GET /v1/installations/{installation_id}/attributes
        POST /v1/installations/{installation_id}/attributes
        GET /v1/installations/{installation_id}/deliveries
        GET /v1/inbox
        GET /v1/inbox/counts
        POST /v1/inbox/read-before
        POST /v1/inbox/seen-before
        POST /v1/inbox/{event_id}/{mark}
        GET /v1/licitaciones
        GET /v1/licitaciones/{licitacion_id}
        GET /v1/rubros
        GET /v1/regions
    """),
    (PROVEN_BY_COOKIE, """
        GET /login
        POST /login
        GET /login/oidc
        GET /login/oidc/callback
        POST /logout
    """),
    (VIEWERS_BY_COOKIE, """
        GET /dashboard
        GET /dashboard/system
        GET /dashboard/people
        GET /dashboard/search
        POST /dashboard/search
        GET /dashboard/events
        GET /dashboard/events/{event_id}
        GET /dashboard/deliveries/{delivery_id}
        GET /dashboard/installations/{installation_id}
        GET /dashboard/owners/{owner:path}
        GET /dashboard/runs
        GET /dashboard/runs/{run_id}
        GET /dashboard/dead-letters
        GET /dashboard/archive
        GET /dashboard/audit
        GET /dashboard/sessions
        POST /dashboard/sessions/end
        POST /dashboard/sessions/end-own
        GET /dashboard/{place:path}
    """),
    (VIEWERS_OF_TEXTS_BY_COOKIE, """
        GET /dashboard/sources
        GET /dashboard/compose
        POST /dashboard/compose
        GET /dashboard/compose/{event_id}
    """),
    (OPERATORS_BY_COOKIE, """
        POST /dashboard/compose/send
        GET /dashboard/actions/{verb}
        POST /dashboard/actions/{verb}
    """),
    (ANYBODY_BY_COOKIE, """
        GET /guide
        GET /guide/{name}
        GET /guide/es/{name}
        GET /guide/pictures/{name}
    """),
)  # fmt: skip
WHO_MAY_CALL = {
    (method, path): callers for callers, routes in _LISTED for method, path in (line.split() for line in routes.split("\n") if line.strip())
}  # fmt: skip
"""By method and path."""
