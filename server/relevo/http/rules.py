"""Who may call what: one rule per route, declared here and nowhere else.

`app` is for the app's verbs, `viewer` reads what operators read, `operator` does everything. A route without a rule
cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relevo.access.api_tokens import Role


@dataclass(frozen=True)
class Rule:
    """Who may call a route: the holders of these roles, or anybody if there are none."""

    roles: frozenset[Role] = frozenset()
    scoped: bool = True
    """Whether a token of one project may call it; the route then has to mind that project."""
    own_check: bool = False
    """Whether the route itself proves who calls, by something else than a token: a phone's secret, a signature."""
    page: bool = False
    """Whether a person's session, in a cookie, counts as its token; nothing but pages takes cookies."""

    max_body: int | None = None
    """How many bytes a body may have at most, where HTTP_MAX_BODY_BYTES would be too many for strangers."""

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return not self.roles


PHONE_BODY = 65_536
"""The longest preference has 12,000 characters, of four bytes at most."""
FORM_BODY = 8_192

ANYBODY = Rule()
APP = Rule(frozenset({"app", "operator"}))
READ = Rule(frozenset({"app", "viewer", "operator"}))
SAVE_WORDS = replace(APP, scoped=False)
READ_WORDS = replace(READ, scoped=False)
VIEW = Rule(frozenset({"viewer", "operator"}), scoped=False)
OPERATE = Rule(frozenset({"operator"}), scoped=False)
DEVICE = Rule(own_check=True, max_body=PHONE_BODY)
LOGIN = Rule(own_check=True, page=True, max_body=FORM_BODY)
OPEN_PAGE = Rule(page=True)
VIEW_PAGE = replace(VIEW, page=True)
OPERATE_PAGE = replace(OPERATE, page=True)

RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/"): ANYBODY,
    ("GET", "/docs"): ANYBODY,
    ("GET", "/favicon.ico"): ANYBODY,
    ("GET", "/openapi.json"): ANYBODY,
    ("GET", "/health/live"): ANYBODY,
    ("GET", "/health/ready"): ANYBODY,
    ("GET", "/metrics"): VIEW,
    ("POST", "/v1/events"): APP,
    ("POST", "/v1/events/batch"): APP,
    ("POST", "/v1/events/preview"): APP,
    ("GET", "/v1/events"): READ,
    ("PUT", "/v1/events"): APP,
    ("GET", "/v1/events/{event_id}"): READ,
    ("POST", "/v1/events/{event_id}/complete"): APP,
    ("POST", "/v1/events/{event_id}/cancel"): APP,
    ("GET", "/v1/events/{event_id}/deliveries"): READ,
    ("GET", "/v1/ops/audit"): VIEW,
    ("GET", "/v1/ops/stats"): VIEW,
    ("POST", "/v1/ops/cycles/{name}/run"): OPERATE,
    ("POST", "/v1/ops/cycles/{name}/pause"): OPERATE,
    ("POST", "/v1/ops/cycles/{name}/resume"): OPERATE,
    ("POST", "/v1/ops/redrive"): OPERATE,
    ("POST", "/v1/ops/release"): OPERATE,
    ("GET", "/v1/installations"): APP,
    ("POST", "/v1/owners/log-out"): APP,
    ("POST", "/v1/owners/complete"): APP,
    ("POST", "/v1/owners/forget"): APP,
    ("POST", "/v1/owners/choices"): APP,
    ("POST", "/v1/owners/block"): APP,
    ("POST", "/v1/owners/unblock"): APP,
    ("POST", "/v1/owners/export"): APP,
    ("POST", "/v1/owners/quiet"): APP,
    ("GET", "/v1/quiet"): READ,
    ("PUT", "/v1/quiet"): APP,
    ("GET", "/v1/caps"): READ,
    ("PUT", "/v1/caps"): APP,
    ("GET", "/v1/categories"): READ,
    ("PUT", "/v1/categories/{category}"): OPERATE,
    ("POST", "/v1/words"): SAVE_WORDS,
    ("POST", "/v1/words/preview"): READ_WORDS,
    ("GET", "/v1/words"): READ_WORDS,
    ("GET", "/v1/words/{event_type}"): READ_WORDS,
    ("PUT", "/v1/news/{subscription}"): APP,
    ("GET", "/v1/news/{subscription}"): APP,
    ("POST", "/v1/news/{subscription}/acknowledge"): APP,
    ("PUT", "/v1/installations/{installation_id}"): DEVICE,
    ("POST", "/v1/installations/{installation_id}/log-out"): DEVICE,
    ("POST", "/v1/installations/{installation_id}/complete"): DEVICE,
    ("POST", "/v1/installations/{installation_id}/opened"): DEVICE,
    ("DELETE", "/v1/installations/{installation_id}"): DEVICE,
    ("GET", "/v1/installations/{installation_id}/preferences"): DEVICE,
    ("GET", "/v1/installations/{installation_id}/preferences/{name}"): DEVICE,
    ("PUT", "/v1/installations/{installation_id}/preferences/{name}"): DEVICE,
    ("DELETE", "/v1/installations/{installation_id}/preferences/{name}"): DEVICE,
    ("GET", "/v1/installations/{installation_id}/choices"): DEVICE,
    ("PUT", "/v1/installations/{installation_id}/choices/{category}"): DEVICE,
    ("GET", "/v1/installations/{installation_id}/quiet"): DEVICE,
    ("PUT", "/v1/installations/{installation_id}/quiet"): DEVICE,
    ("GET", "/v1/installations/{installation_id}/deliveries"): DEVICE,
    ("GET", "/v1/inbox"): DEVICE,
    ("GET", "/v1/inbox/counts"): DEVICE,
    ("POST", "/v1/inbox/read-before"): DEVICE,
    ("POST", "/v1/inbox/seen-before"): DEVICE,
    ("POST", "/v1/inbox/{event_id}/{mark}"): DEVICE,
    ("GET", "/v1/licitaciones"): DEVICE,
    ("GET", "/v1/licitaciones/{licitacion_id}"): DEVICE,
    ("GET", "/v1/rubros"): DEVICE,
    ("GET", "/v1/regions"): DEVICE,
    ("GET", "/login"): LOGIN,
    ("POST", "/login"): LOGIN,
    ("POST", "/logout"): LOGIN,
    ("GET", "/dashboard/static/{name}"): ANYBODY,
    ("GET", "/dashboard/language/{code}"): ANYBODY,
    ("GET", "/dashboard"): VIEW_PAGE,
    ("GET", "/dashboard/system"): VIEW_PAGE,
    ("GET", "/dashboard/people"): VIEW_PAGE,
    ("GET", "/dashboard/search"): VIEW_PAGE,
    ("POST", "/dashboard/search"): VIEW_PAGE,
    ("GET", "/dashboard/events"): VIEW_PAGE,
    ("GET", "/dashboard/events/{event_id}"): VIEW_PAGE,
    ("GET", "/dashboard/deliveries/{delivery_id}"): VIEW_PAGE,
    ("GET", "/dashboard/installations/{installation_id}"): VIEW_PAGE,
    ("GET", "/dashboard/owners/{owner:path}"): VIEW_PAGE,
    ("GET", "/dashboard/runs"): VIEW_PAGE,
    ("GET", "/dashboard/runs/{run_id}"): VIEW_PAGE,
    ("GET", "/dashboard/sources"): VIEW_PAGE,
    ("GET", "/dashboard/dead-letters"): VIEW_PAGE,
    ("GET", "/dashboard/archive"): VIEW_PAGE,
    ("GET", "/dashboard/audit"): VIEW_PAGE,
    ("GET", "/dashboard/compose"): VIEW_PAGE,
    ("POST", "/dashboard/compose"): VIEW_PAGE,
    ("POST", "/dashboard/compose/send"): OPERATE_PAGE,
    ("GET", "/dashboard/compose/{event_id}"): VIEW_PAGE,
    ("GET", "/dashboard/actions/{verb}"): OPERATE_PAGE,
    ("POST", "/dashboard/actions/{verb}"): OPERATE_PAGE,
    ("GET", "/dashboard/{place:path}"): VIEW_PAGE,
    ("GET", "/guide"): OPEN_PAGE,
    ("GET", "/guide/{name}"): OPEN_PAGE,
    ("GET", "/guide/pictures/{name}"): OPEN_PAGE,
}
"""By method and path, as the router has them."""

SIGNED = {("PUT", "/v1/installations/{installation_id}")}
"""The routes that take a signature of the app's server as a proof."""


def rule_of(method: str, path: str) -> Rule:
    """Return a route's rule; there is no route without one."""
    try:
        return RULES[method, path]
    except KeyError:
        raise LookupError(f"{method} {path} has no rule: say in http/rules.py who may call it") from None
