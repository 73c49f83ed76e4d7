"""The rights on routes: one rule per route, declared here and nowhere else.

`app` is for the app's verbs, `viewer` reads what operators read, `observer` the same without texts, `operator` does
everything. A route without a rule cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relevo.access.api_tokens import Role


@dataclass(frozen=True)
class Rule:
    """The callers of a route: the holders of these roles, or anybody if there are none."""

    roles: frozenset[Role] = frozenset()
    scoped: bool = True
    """Whether a token of one project may call it; the route then has to mind that project."""
    own_check: bool = False
    """Whether the route itself proves who calls, by something else than a token: a phone's secret, a signature."""
    page: bool = False
    """Whether a person's session, in a cookie, counts as its token; nothing but pages takes cookies."""

    max_body: int | None = None
    """How many bytes a body may have at most, where HTTP_MAX_BODY_BYTES would be too many for strangers."""
    weight: int = 1
    """How much of its caller's rate a request takes: about as many as milliseconds of CPU."""

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return not self.roles


PHONE_BODY = 65_536
"""The longest preference has 12,000 characters, of four bytes at most."""
FORM_BODY = 8_192

ANYBODY = Rule()
APP = Rule(frozenset({"app", "operator"}))
READ = Rule(frozenset({"app", "observer", "viewer", "operator"}))
READ_TEXTS = Rule(frozenset({"app", "viewer", "operator"}))
READ_TYPES = replace(READ, scoped=False)
SAVE_WORDS = replace(APP, scoped=False)
READ_WORDS = replace(READ_TEXTS, scoped=False)
VIEW = Rule(frozenset({"observer", "viewer", "operator"}), scoped=False)
OPERATE = Rule(frozenset({"operator"}), scoped=False)
CONFIGURE = replace(OPERATE, weight=10)
DEVICE = Rule(own_check=True, max_body=PHONE_BODY)
LOGIN = Rule(own_check=True, page=True, max_body=FORM_BODY)
SIGN_ON = replace(LOGIN, weight=5)
DOCUMENT = Rule(weight=2)
OPEN_PAGE = Rule(page=True, weight=3)
PREVIEW_WORDS = replace(READ_WORDS, weight=10)
VIEW_PAGE = replace(VIEW, page=True)
TEXTS_PAGE = Rule(frozenset({"viewer", "operator"}), scoped=False, page=True)
"""Pages that are about texts, or that tell by a count which phones have an attribute: not for observers."""
OPERATE_PAGE = replace(OPERATE, page=True)
COMPOSE_PAGE = replace(TEXTS_PAGE, weight=10)

_AT: dict[str, dict[str, Rule]] = {
    "/": {"GET": ANYBODY},
    "/docs": {"GET": DOCUMENT},
    "/favicon.ico": {"GET": ANYBODY},
    "/openapi.json": {"GET": DOCUMENT},
    "/health/live": {"GET": ANYBODY},
    "/health/ready": {"GET": ANYBODY},
    "/metrics": {"GET": VIEW},
    "/v1/events": {"POST": APP, "GET": READ, "PUT": APP},
    "/v1/events/batch": {"POST": APP},
    "/v1/events/preview": {"POST": APP},
    "/v1/events/{event_id}": {"GET": READ},
    "/v1/events/{event_id}/complete": {"POST": APP},
    "/v1/events/{event_id}/cancel": {"POST": APP},
    "/v1/events/{event_id}/deliveries": {"GET": READ},
    "/v1/events/{event_id}/waits": {"GET": READ},
    "/v1/events/{event_id}/explanation": {"GET": READ},
    "/v1/events/explanation": {"POST": APP},
    "/v1/event-types": {"GET": READ_TYPES},
    "/v1/event-types/{event_type}": {"PUT": OPERATE, "DELETE": OPERATE},
    "/v1/ops/audit": {"GET": VIEW},
    "/v1/ops/stats": {"GET": VIEW},
    "/v1/ops/cycles/{name}/run": {"POST": OPERATE},
    "/v1/ops/cycles/{name}/pause": {"POST": OPERATE},
    "/v1/ops/cycles/{name}/resume": {"POST": OPERATE},
    "/v1/ops/redrive": {"POST": OPERATE},
    "/v1/ops/release": {"POST": OPERATE},
    "/v1/config/plan": {"POST": CONFIGURE},
    "/v1/config/apply": {"POST": CONFIGURE},
    "/v1/shadow/sent": {"POST": APP},
    "/v1/installations": {"GET": APP},
    "/v1/owners/log-out": {"POST": APP},
    "/v1/owners/complete": {"POST": APP},
    "/v1/owners/forget": {"POST": APP},
    "/v1/owners/choices": {"POST": APP},
    "/v1/owners/block": {"POST": APP},
    "/v1/owners/unblock": {"POST": APP},
    "/v1/owners/export": {"POST": APP},
    "/v1/owners/quiet": {"POST": APP},
    "/v1/owners/attributes": {"POST": APP},
    "/v1/quiet": {"GET": READ, "PUT": APP},
    "/v1/caps": {"GET": READ, "PUT": APP},
    "/v1/categories": {"GET": READ_TEXTS},
    "/v1/categories/{category}": {"PUT": OPERATE},
    "/v1/words": {"POST": SAVE_WORDS, "GET": READ_WORDS},
    "/v1/words/preview": {"POST": PREVIEW_WORDS},
    "/v1/words/{event_type}": {"GET": READ_WORDS},
    "/v1/news/{subscription}": {"PUT": APP, "GET": APP},
    "/v1/news/{subscription}/acknowledge": {"POST": APP},
    "/v1/installations/{installation_id}": {"PUT": DEVICE, "DELETE": DEVICE},
    "/v1/installations/{installation_id}/log-out": {"POST": DEVICE},
    "/v1/installations/{installation_id}/complete": {"POST": DEVICE},
    "/v1/installations/{installation_id}/opened": {"POST": DEVICE},
    "/v1/installations/{installation_id}/preferences": {"GET": DEVICE},
    "/v1/installations/{installation_id}/preferences/{name}": {"GET": DEVICE, "PUT": DEVICE, "DELETE": DEVICE},
    "/v1/installations/{installation_id}/choices": {"GET": DEVICE},
    "/v1/installations/{installation_id}/choices/{category}": {"PUT": DEVICE},
    "/v1/installations/{installation_id}/quiet": {"GET": DEVICE, "PUT": DEVICE},
    "/v1/installations/{installation_id}/attributes": {"GET": DEVICE, "POST": DEVICE},
    "/v1/installations/{installation_id}/deliveries": {"GET": DEVICE},
    "/v1/inbox": {"GET": DEVICE},
    "/v1/inbox/counts": {"GET": DEVICE},
    "/v1/inbox/read-before": {"POST": DEVICE},
    "/v1/inbox/seen-before": {"POST": DEVICE},
    "/v1/inbox/{event_id}/{mark}": {"POST": DEVICE},
    "/v1/licitaciones": {"GET": DEVICE},
    "/v1/licitaciones/{licitacion_id}": {"GET": DEVICE},
    "/v1/rubros": {"GET": DEVICE},
    "/v1/regions": {"GET": DEVICE},
    "/login": {"GET": LOGIN, "POST": LOGIN},
    "/login/oidc": {"GET": SIGN_ON},
    "/login/oidc/callback": {"GET": SIGN_ON},
    "/logout": {"POST": LOGIN},
    "/dashboard/static/{name}": {"GET": ANYBODY},
    "/dashboard/language/{code}": {"GET": ANYBODY},
    "/dashboard": {"GET": VIEW_PAGE},
    "/dashboard/system": {"GET": VIEW_PAGE},
    "/dashboard/people": {"GET": VIEW_PAGE},
    "/dashboard/search": {"GET": VIEW_PAGE, "POST": VIEW_PAGE},
    "/dashboard/events": {"GET": VIEW_PAGE},
    "/dashboard/events/{event_id}": {"GET": VIEW_PAGE},
    "/dashboard/deliveries/{delivery_id}": {"GET": VIEW_PAGE},
    "/dashboard/installations/{installation_id}": {"GET": VIEW_PAGE},
    "/dashboard/owners/{owner:path}": {"GET": VIEW_PAGE},
    "/dashboard/runs": {"GET": VIEW_PAGE},
    "/dashboard/runs/{run_id}": {"GET": VIEW_PAGE},
    "/dashboard/sources": {"GET": TEXTS_PAGE},
    "/dashboard/dead-letters": {"GET": VIEW_PAGE},
    "/dashboard/archive": {"GET": VIEW_PAGE},
    "/dashboard/audit": {"GET": VIEW_PAGE},
    "/dashboard/sessions": {"GET": VIEW_PAGE},
    "/dashboard/sessions/end": {"POST": VIEW_PAGE},
    "/dashboard/sessions/end-own": {"POST": VIEW_PAGE},
    "/dashboard/compose": {"GET": COMPOSE_PAGE, "POST": COMPOSE_PAGE},
    "/dashboard/compose/send": {"POST": OPERATE_PAGE},
    "/dashboard/compose/{event_id}": {"GET": TEXTS_PAGE},
    "/dashboard/actions/{verb}": {"GET": OPERATE_PAGE, "POST": OPERATE_PAGE},
    "/dashboard/{place:path}": {"GET": VIEW_PAGE},
    "/guide": {"GET": OPEN_PAGE},
    "/guide/{name}": {"GET": OPEN_PAGE},
    "/guide/es/{name}": {"GET": OPEN_PAGE},
    "/guide/pictures/{name}": {"GET": replace(OPEN_PAGE, weight=1)},
}
RULES = {(method, path): rule for path, methods in _AT.items() for method, rule in methods.items()}
"""By method and path, as the router has them."""

SIGNED = {("PUT", "/v1/installations/{installation_id}")}
"""The routes that take a signature of the app's server as a proof."""


_WEIGHTS = {path.partition("{")[0].encode(): max(rule.weight for rule in _AT[path].values()) for path in _AT}
"""By the part of a path that is written out."""


def weight_of(path: bytes) -> int:
    """Return how much of its caller's rate a request takes, by its path alone: no route is looked up for it."""
    found = _WEIGHTS.get(path)
    return found if found is not None else _WEIGHTS.get(path[: path.rfind(b"/") + 1], 1)


def rule_of(method: str, path: str) -> Rule:
    """Return a route's rule; there is no route without one."""
    try:
        return RULES[method, path]
    except KeyError:
        raise LookupError(f"{method} {path} has no rule: say in http/rules.py who may call it") from None
