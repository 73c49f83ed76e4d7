"""Which role may call what, said as principles beside the table of rules: a slip in the table breaks one of them."""

from __future__ import annotations

from relevo.http.rules import RULES
from support.who_may_call import WHO_MAY_CALL, Callers

OPEN = {
    "/", "/docs", "/favicon.ico", "/openapi.json", "/health/live", "/health/ready", "/guide", "/guide/{name}", "/guide/es/{name}", "/guide/pictures/{name}",
    "/dashboard/static/{name}", "/dashboard/language/{code}",
}  # fmt: skip
READS_BY_POST = {"/v1/words/preview", "/dashboard/search", "/dashboard/compose"}
"""A body asks, and nothing is changed."""
OWN_SESSIONS = {"/dashboard/sessions/end", "/dashboard/sessions/end-own"}
OF_ALL_PROJECTS = ("/metrics", "/v1/ops/", "/v1/config/", "/v1/words", "/v1/event-types", "/dashboard")


def test_each_route_has_the_callers_of_the_list() -> None:
    """The table of rules says of each route what the list beside the tests says: a slip in one of them shows."""
    found = {
        key: Callers(rule.roles, bool(rule.roles) and rule.scoped, rule.own_check, rule.page)
        for key, rule in RULES.items()
    }
    assert found == WHO_MAY_CALL


def test_who_comes_without_proof() -> None:
    """Only pages that say nothing of anybody are open, and only to be read."""
    found = {(method, path) for (method, path), rule in RULES.items() if rule.is_open and not rule.own_check}
    assert found == {("GET", path) for path in OPEN}


def test_a_viewer_changes_nothing() -> None:
    """A viewer reads; of what is posted, only questions and the viewer's own sessions."""
    found = {path for (method, path), rule in RULES.items() if "viewer" in rule.roles and method != "GET"}
    assert found == READS_BY_POST | OWN_SESSIONS


def test_an_observer_reads_what_a_viewer_reads_but_texts() -> None:
    """An observer opens nothing that a viewer does not, and no page or answer that is about texts or counts by them."""
    open_to = {
        role: {key for key, callers in WHO_MAY_CALL.items() if role in callers.roles} for role in ("observer", "viewer")
    }
    assert open_to["observer"] < open_to["viewer"]
    assert {path for _, path in open_to["viewer"] - open_to["observer"]} == {
        *("/v1/categories", "/v1/words", "/v1/words/preview", "/v1/words/{event_type}"),
        *("/dashboard/sources", "/dashboard/compose", "/dashboard/compose/{event_id}"),
    }


def test_an_operator_may_do_what_others_may() -> None:
    """Whatever a token opens, an operator's token opens."""
    assert [key for key, rule in RULES.items() if rule.roles and "operator" not in rule.roles] == []


def test_an_app_operates_nothing() -> None:
    """An app's token opens no page, no metrics, and no action of operators."""
    private = ("/metrics", "/v1/ops/", "/v1/config/", "/dashboard")
    assert [key for key, rule in RULES.items() if "app" in rule.roles and key[1].startswith(private)] == []
    assert {key for key, rule in RULES.items() if rule.roles == {"operator"} and key[1].startswith("/v1/")} == {
        *(("POST", f"/v1/ops/{each}") for each in ("redrive", "release")),
        *(("POST", f"/v1/ops/cycles/{{name}}/{each}") for each in ("run", "pause", "resume")),
        *(("POST", f"/v1/config/{each}") for each in ("plan", "apply")),
        ("PUT", "/v1/categories/{category}"),
        ("PUT", "/v1/event-types/{event_type}"),
        ("DELETE", "/v1/event-types/{event_type}"),
    }


def test_a_token_of_one_project_reaches_nothing_of_all() -> None:
    """What concerns every project takes a token of all projects."""
    scoped = [key for key, rule in RULES.items() if rule.roles and rule.scoped]
    assert [key for key in scoped if key[1].startswith(OF_ALL_PROJECTS)] == []
    assert ("PUT", "/v1/categories/{category}") not in scoped


def test_phones_prove_themselves() -> None:
    """Routes of phones and inboxes judge their caller themselves, and so do log-in and log-out; no other route does."""
    own = {path for (_, path), rule in RULES.items() if rule.own_check}
    of_phones = ("/v1/installations/{", "/v1/inbox", "/v1/licitaciones", "/v1/rubros", "/v1/regions")
    assert own == {path for _, path in RULES if path.startswith(of_phones)} | {
        "/login",
        "/login/oidc",
        "/login/oidc/callback",
        "/logout",
    }
