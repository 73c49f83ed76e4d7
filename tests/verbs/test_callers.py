"""What a caller may reach, and what the audit log records of it: every route that changes something, by an operator and an app."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from relevo.access.api_tokens import Token
from relevo.access.phones import NotAllowedError, Proof
from relevo.app import App
from relevo.operators import audit
from relevo.verbs.callers import Caller, operator
from support.api_routes import ROUTES, body_of, filled
from support.http_phones import Phones
from support.two_projects import plant

OF_OPERATORS = {
    ("POST", "/v1/events"): "enqueue_event",
    ("POST", "/v1/events/batch"): "enqueue_event",
    ("PUT", "/v1/events"): "change_event",
    ("PUT", "/v1/event-types/{event_type}"): "set_event_type",
    ("DELETE", "/v1/event-types/{event_type}"): "reset_event_type",
    ("POST", "/v1/events/{event_id}/complete"): "complete_event",
    ("POST", "/v1/events/{event_id}/cancel"): "cancel_event",
    ("POST", "/v1/owners/choices"): "choose_category",
    ("POST", "/v1/owners/quiet"): "set_quiet",
    ("POST", "/v1/owners/attributes"): "set_attributes",
    ("POST", "/v1/owners/complete"): "complete_owner",
    ("PUT", "/v1/categories/{category}"): "set_category",
    ("POST", "/v1/ops/cycles/{name}/run"): "run_cycle",
    ("POST", "/v1/ops/cycles/{name}/resume"): "resume",
    ("POST", "/v1/ops/release"): "release_project",
    ("POST", "/v1/config/apply"): "apply_configuration",
    ("POST", "/v1/inbox/{event_id}/{mark}"): "mark_inbox_read",
    ("POST", "/v1/inbox/read-before"): "mark_inbox_read_before",
    ("POST", "/v1/inbox/seen-before"): "mark_inbox_seen_before",
    ("POST", "/v1/owners/log-out"): "log_out_owner",
    ("PUT", "/v1/news/{subscription}"): "subscribe_news",
    ("POST", "/v1/news/{subscription}/acknowledge"): "acknowledge_news",
    ("PUT", "/v1/installations/{installation_id}"): "register_installation",
    ("POST", "/v1/installations/{installation_id}/log-out"): "log_out_installation",
    ("POST", "/v1/installations/{installation_id}/complete"): "complete_installation",
    ("POST", "/v1/installations/{installation_id}/opened"): "report_opened",
    ("PUT", "/v1/installations/{installation_id}/preferences/{name}"): "set_preference",
    ("DELETE", "/v1/installations/{installation_id}/preferences/{name}"): "remove_preference",
    ("PUT", "/v1/installations/{installation_id}/choices/{category}"): "choose_category",
    ("PUT", "/v1/installations/{installation_id}/quiet"): "set_quiet",
    ("POST", "/v1/installations/{installation_id}/attributes"): "set_attributes",
}
OF_EVERYBODY = {
    ("POST", "/v1/owners/export"): "export_owner",
    ("POST", "/v1/owners/block"): "block_owner",
    ("POST", "/v1/owners/unblock"): "unblock_owner",
    ("PUT", "/v1/quiet"): "set_quiet",
    ("PUT", "/v1/caps"): "set_cap",
    ("POST", "/v1/words"): "save_words",
    ("POST", "/v1/owners/forget"): "forget_owner",
    ("DELETE", "/v1/installations/{installation_id}"): "forget",
}
WITHOUT_AN_ANSWER = {"remove_preference", "set_category", "set_event_type", "set_preference", "subscribe_news"}
"""What answers nothing that is not in the target already."""


@pytest.mark.parametrize(("role", "expected"), [("operator", OF_OPERATORS | OF_EVERYBODY), ("app", OF_EVERYBODY)])
def test_what_is_recorded_of_each_route(
    phones: Phones, conn: psycopg.Connection, role: str, expected: dict[tuple[str, str], str]
) -> None:
    """Of an operator the log has each action on events, owners, phones, settings and cycles; of an app what concerns a whole project,
    and who read everything of a person, silenced them or deleted them. It is written whether the action came off or not.

    Of one that came off it has what was answered, too."""
    shop, _bank = plant(phones.served, conn)
    client = phones.served.client(role)
    recorded, unanswered = {}, set()
    for (method, path), route in ROUTES.items():
        if not path.startswith("/v1/") or method == "GET":
            continue
        conn.execute("delete from relevo.audit_log")
        address = filled(path, route, shop.event, str(shop.phone), shop.delivery)
        client.call(method, address, json=body_of(route, shop.delivery))
        found = conn.execute("select action, actor, outcome, result from relevo.audit_log order by id").fetchall()
        if found:
            ((action, actor, outcome, result),) = found
            recorded[method, path] = action
            if outcome == "ok" and not result:
                unanswered.add(action)
            assert actor.startswith(f"a {role} ("), (method, path, actor)
    assert recorded == expected
    assert unanswered <= WITHOUT_AN_ANSWER


def test_what_was_not_given_is_no_part_of_the_target(build: Callable[..., App], conn: psycopg.Connection) -> None:
    """What is empty was left out; no and nought are something that was said."""
    app = build()
    given = {"none": None, "empty": "", "nobody": [], "tuple": (), "no": False, "nought": 0, "some": [1], "name": "x"}
    with audit.recorded(app.database, "probe", **given):
        pass
    found = conn.execute("select target, outcome from relevo.audit_log where action = 'probe'").fetchall()
    assert found == [({"no": False, "nought": 0, "some": [1], "name": "x"}, "ok")]


def test_a_caller_of_one_project_names_no_other(build: Callable[..., App]) -> None:
    """Without naming a project it is the caller's own; whoever has none may name any."""
    database = build().database
    shop = Caller(database, Proof(Token("1", "shop", "app", "shop")))
    assert (shop.own_project(None), shop.own_project("shop"), operator(database).own_project("bank")) == (
        "shop",
        "shop",
        "bank",
    )
    with pytest.raises(NotAllowedError, match="another project"):
        shop.own_project("bank")


def test_an_entry_has_a_hash_of_an_owner_and_what_was_answered(
    build: Callable[..., App], conn: psycopg.Connection
) -> None:
    """An operator's act on an owner is in the log without the name; of a token without room for it, and of a phone, nothing is."""
    database = build().database
    token = Token("1", "shop", "app")
    full = Caller(database, Proof(token), lambda _token, _action: False)
    for caller in (operator(database), full, Caller(database, Proof(secret="device_x"))):
        with caller.acting("forget_owner", owner="ana", project="shop") as act:
            assert act.answer(1) == 1
    [(target, result)] = conn.execute("select target, result from relevo.audit_log").fetchall()
    assert (target["project"], len(target["owner_sha256"]), result) == ("shop", 64, {"answer": 1})
    assert "ana" not in str(target)
