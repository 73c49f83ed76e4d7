"""Phones over HTTP: what the first call returns, what later ones may do, and what nobody else learns."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import uuid4

import psycopg

import relevo
from relevo.client import verbs
from relevo.core import queries
from relevo.http.installations import INSTALLATION
from relevo.http.rules import RULES
from support.deliveries import TODAY
from support.http_phones import TOKEN, Phones, sign
from support.query_plans import rows_read_by_table


def test_a_phone_s_life(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """It registers by a signature, keeps its secret, says what it asks for, reads what it got, and is forgotten."""
    phone = uuid4()
    token = TOKEN.format("a")
    first = phones.put(phone, signed=sign(phone, "ana", token=token), owner="ana", token=token, platform="ios")
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert first.headers["cache-control"] == "no-store"
    secret = first.json()["secret"]
    assert secret not in str(conn.execute("select * from relevo.device_secrets").fetchall())
    again = phones.put(phone, secret, token=TOKEN.format("b"), locale="es-CL")
    assert (again.status_code, again.json()) == (
        200,
        {"installation_id": str(phone), "created": False, "secret": None},
    )
    row = conn.execute("select owner, token, locale, platform from relevo.device_installations").fetchone()
    assert row == ("ana", TOKEN.format("b"), "es-CL", "ios")
    base = f"/v1/installations/{phone}"
    wanted = {"keywords": ["puente"], "monto_min": 1000}
    assert phones.call("PUT", f"{base}/preferences/work", secret, json=wanted).json()["keywords"] == ["puente"]
    assert phones.call("GET", f"{base}/preferences/work", secret).json()["moneda"] == "CLP"
    assert phones.call("DELETE", f"{base}/preferences/default", secret).status_code == 204
    assert phones.call("DELETE", f"{base}/preferences/default", secret).status_code == 404
    listed = phones.call("GET", f"{base}/preferences", secret).json()["items"]
    assert [each["name"] for each in listed] == ["work"]
    assert phones.call("PUT", f"{base}/preferences/x", secret, json={"monto_min": 2, "monto_max": 1}).status_code == 400
    assert phones.call("DELETE", base, secret).status_code == 204
    assert phones.call("GET", f"{base}/preferences", secret).status_code == 401
    assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)


def test_why_did_i_get_this(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """The history tells, page by page and newest first, what came and why; not what a former owner got."""
    phone, secret = phones.new(owner="ana")
    conn.execute("select relevo.ensure_partitions((now() at time zone 'UTC')::date, 1)")
    events = [
        verbs.enqueue(conn, relevo.Event("t", str(n), f"Hi {n}", audience=audience)).event_id
        for n, audience in enumerate(
            ["everyone", [phone], relevo.Matching(text="un puente"), relevo.Matching(text="x")]
        )
    ]
    verbs.set_preference(conn, phone, "bridges", relevo.Preference(keywords=["puente"]))
    verbs.set_preference(conn, phone, "default", None)
    for event in events:
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
            " values (%s, %s, %s, 't')",
            [TODAY, event, phone],
        )
    path = f"/v1/installations/{phone}/deliveries"
    page = phones.call("GET", path, secret, params={"limit": 3}).json()
    rest = phones.call("GET", path, secret, params={"limit": 3, "cursor": page["next"]}).json()
    assert [each["title"] for each in page["items"] + rest["items"]] == ["Hi 3", "Hi 2", "Hi 1", "Hi 0"]
    assert rest["next"] is None
    assert [each["why"]["words"] for each in page["items"] + rest["items"]] == [
        "It matched a preference that was changed or removed since.",
        "It matches what this phone asks for: bridges.",
        "It was sent to this phone or its owner.",
        "It was sent to everyone.",
    ]
    changed = phones.put(phone, signed=sign(phone, "eva"), owner="eva").json()
    assert phones.call("GET", path, changed["secret"]).json()["items"] == []
    assert len(phones.call("GET", path, phones.app).json()["items"]) == 4


def test_a_project_sees_what_was_its_own(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A phone came from the bank with what waited for it: a token of the shop sees the shop's events and those of all
    projects that came in the shop, and none of the bank's; a token of all projects sees them all."""
    phone, _ = phones.new(owner="ana", project="shop")
    conn.execute("select relevo.ensure_partitions((now() at time zone 'UTC')::date, 1)")
    cases = [("shop", "shop"), ("bank", "shop"), ("shop", "bank"), ("bank", "bank"), (None, "shop"), (None, "bank")]
    cases += [("shop", "fcm::shop::ios"), ("bank", "fcm::shop::ios"), (None, "fcm::shopping::ios")]
    for n, (of_event, sent_in) in enumerate(cases):
        said = relevo.Event("t", str(n), f"{of_event} in {sent_in}", audience="everyone", project=of_event)
        event = verbs.enqueue(conn, said).event_id
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project, provider)"
            " values (%s, %s, %s, 't', %s, %s)",
            [TODAY, event, phone, sent_in, "fcm" if "::" in sent_in else "expo"],
        )
    path = f"/v1/installations/{phone}/deliveries"

    def seen(by: Any) -> list[str]:
        return [each["title"] for each in phones.call("GET", path, by).json()["items"]][::-1]

    assert seen(phones.app) == [f"{of_event} in {sent_in}" for of_event, sent_in in cases]
    of_shop = phones.served.client("app", project="shop")
    assert seen(of_shop) == ["shop in shop", "None in shop", "shop in fcm::shop::ios"]


def test_who_may_claim_what(phones: Phones) -> None:
    """Without token or signature nothing is registered; owner and provider are the app's to say."""
    phone, secret = phones.new(owner="ana")
    assert phones.put(uuid4()).status_code == 401
    assert phones.put(phone).status_code == 401
    assert phones.put(phone, secret + "x").status_code == 401
    assert phones.put(uuid4(), secret).status_code == 401, "one phone's secret is no other's"
    assert phones.put(phone, secret, owner="eva").status_code == 403
    assert phones.put(phone, secret, provider="webhook", token="billing").status_code == 403
    assert phones.put(phone, secret, project="other").status_code == 403
    assert phones.put(phone, secret, owner="ana").status_code == 200
    viewer = phones.served.client("viewer")
    assert phones.put(uuid4(), viewer).status_code == 403
    scoped = phones.served.client("app", project="shop")
    assert phones.put(phone, scoped).status_code == 404
    assert phones.put(uuid4(), scoped, project="other").status_code == 403
    assert phones.put(uuid4(), scoped, owner="eva").status_code == 201
    assert phones.call("GET", f"/v1/installations/{phone}/preferences", scoped).status_code == 404
    assert phones.call("DELETE", f"/v1/installations/{phone}", scoped).status_code == 404


def test_a_phone_s_routes_take_no_secret_but_its_own(phones: Phones) -> None:
    """Whoever brings no proof, or another phone's secret, is refused by each route of a phone, and has changed nothing."""
    phone, secret = phones.new(owner="ana")
    _, another = phones.new(owner="ana")
    routes = [key for key in RULES if key[1].startswith(INSTALLATION)]
    assert len(routes) >= 13
    for method, path in routes:
        written = path.format(installation_id=phone, name="default", category="news")
        for proof in (None, another):
            assert phones.call(method, written, proof, json={"delivery_id": 1}).status_code == 401, (method, path)
    [kept] = phones.call("GET", f"/v1/installations/{phone}/preferences", secret).json()["items"]
    assert kept["name"] == "default"


def test_webhooks_are_the_app_s_alone(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Neither a phone's secret nor a signature names a webhook, takes its token, or touches its installation."""
    hook = uuid4()
    made = phones.put(hook, phones.app, provider="webhook", token="billing")
    assert (made.status_code, made.json()["secret"]) == (201, None)
    row = "select installation_id, provider, token, owner from relevo.device_installations where provider = 'webhook'"
    before = conn.execute(row).fetchall()
    webhook, billing = {"provider": "webhook"}, {"token": "billing"}
    for phone in (uuid4(), phones.new()[0], hook):
        for body in (webhook | billing, webhook, billing, billing | {"provider": "expo"}):
            answer = phones.put(phone, signed=sign(phone, "eva", **body), owner="eva", **body)
            names_it = phone == hook or body.get("provider") == "webhook"
            assert answer.status_code == (403 if names_it else 400), (body, answer.text)  # among Expo's it is no token
    assert phones.put(hook, signed=sign(hook, provider="expo"), provider="expo").status_code == 403
    conn.execute(
        "insert into relevo.device_secrets (installation_id, secret_hash) values (%s, %s)",
        [hook, hashlib.sha256(f"device_{hook.hex}_{'a' * 43}".encode()).digest()],
    )
    secret = f"device_{hook.hex}_{'a' * 43}"
    assert phones.put(hook, secret).status_code == 403
    for method, path in (("GET", "/preferences"), ("GET", "/deliveries"), ("DELETE", "")):
        assert phones.call(method, f"/v1/installations/{hook}{path}", secret).status_code == 403
    assert conn.execute(row).fetchall() == before
    assert phones.put(hook, phones.app, provider="webhook", token="billing").status_code == 200
    assert phones.call("DELETE", f"/v1/installations/{hook}", phones.app).status_code == 204


def test_secrets_of_phones_that_exist(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """One made through SQL gets a secret by token or signature; it keeps it until it asks, or has another owner."""
    phone = verbs.register(conn, relevo.Installation(TOKEN.format("a"), owner="ana"))
    assert phones.put(phone).status_code == 401
    assert phones.put(phone, signed=sign(phone)).status_code == 403, "it has an owner, whom the signature must name"
    first = phones.put(phone, signed=sign(phone, "ana"), owner="ana").json()["secret"]
    assert phones.put(phone, phones.app).json()["secret"] is None
    assert phones.put(phone, signed=sign(phone, "ana"), owner="ana").json()["secret"] is None
    assert phones.put(phone, first).status_code == 200, "nobody asked for another"
    assert phones.put(phone, first, renew_secret=True).status_code == 403
    second = phones.put(phone, phones.app, renew_secret=True).json()["secret"]
    assert phones.put(phone, first).status_code == 401
    assert phones.put(phone, second, signed=sign(phone, "ana"), owner="ana").json()["secret"] is None
    verbs.register(conn, relevo.Installation(TOKEN.format("a"), installation_id=phone, locale="es"))
    assert phones.put(phone, second).status_code == 200
    verbs.register(conn, relevo.Installation(TOKEN.format("a"), installation_id=phone, owner="eva"))
    assert phones.put(phone, second).status_code == 401
    third = phones.put(phone, phones.app).json()["secret"]
    conn.execute("update relevo.device_installations set active = false")
    assert phones.put(phone, third).status_code == 401


def test_a_token_moves_by_signature_alone(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Neither a phone nor the app's token takes a token away from another installation, and no secret is told for it."""
    token = TOKEN.format("a")
    first, _ = phones.new(token=token, owner="ana")
    second, secret = phones.new(owner="ana")
    for answer in (phones.put(second, secret, token=token), phones.put(second, phones.app, token=token)):
        assert answer.status_code == 403
        assert "secret" not in answer.json()
    other = uuid4()
    elsewhere = phones.put(other, signed=sign(other, project="other", token=token), project="other", token=token)
    assert elsewhere.status_code == 403, "a signature for one project takes nothing from another"
    assert phones.put(second, signed=sign(second, "ana", token=token), owner="ana", token=token).status_code == 200
    found = conn.execute("select installation_id from relevo.device_installations where token = %s", [token]).fetchall()
    assert found == [(second,)]
    assert first != second


def test_null_is_no_way_to_say_nothing(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A field that is null is refused by name, and nothing is changed: it neither clears nor is it ignored."""
    phone, _ = phones.new(owner="ana", token=TOKEN.format("a"))
    before = conn.execute("select * from relevo.device_installations").fetchall()
    for name in (
        "token",
        "project",
        "provider",
        "platform",
        "owner",
        "push_capable",
        "permission",
        "opt_outs",
        "attributes",
    ):
        refused = phones.put(phone, phones.app, **{name: None})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, name)
    assert conn.execute("select * from relevo.device_installations").fetchall() == before
    schema = phones.client.get("/openapi.json").json()["components"]["schemas"]["InstallationBody"]["properties"]
    removable = {name for name, field in schema.items() if "null" in str(field)}
    assert removable == {"locale", "timezone", "attributes"}, "and of attributes each, not all of them"


def test_null_removes_locale_and_time_zone(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Each is removed by null alone, from an app or the phone, also where there is none; left out, it stays."""
    stored = "select locale, timezone from relevo.device_installations where installation_id = %s"
    given = {"locale": "es-CL", "timezone": "America/Santiago"}
    phone, secret = phones.new(owner="ana", token=TOKEN.format("a"), **given)
    for caller in (phones.app, secret):
        assert phones.put(phone, caller).status_code == 200
        assert conn.execute(stored, [phone]).fetchall() == [tuple(given.values())], "they stay"
        for name in given:
            for _ in range(2):
                assert phones.put(phone, caller, **{name: None}).status_code == 200
            (row,) = conn.execute(stored, [phone]).fetchall()
            assert row == tuple(None if each == name else value for each, value in given.items())
            assert phones.put(phone, caller, **given).status_code == 200
    new, _ = phones.new(owner="eva", token=TOKEN.format("b"), locale=None, timezone=None)
    assert conn.execute(stored, [new]).fetchall() == [(None, None)]


def test_a_phone_logs_out_and_says_what_was_handled(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """With its secret, or the app's token; a log-out ends the secret; nobody else may."""
    phone, secret = phones.new(owner="ana", token=TOKEN.format("a"))
    base = f"/v1/installations/{phone}"
    for verb in ("log-out", "complete"):
        assert phones.call("POST", f"{base}/{verb}").status_code == 401
        scoped = phones.served.client("app", project="shop")
        assert phones.call("POST", f"{base}/{verb}", scoped).status_code == 404
        assert phones.call("POST", f"{base}/{verb}", phones.served.client("viewer")).status_code == 403
    assert phones.call("POST", f"{base}/complete", secret, json={"reason": "read"}).json() == {"completed": True}
    row = "select handled_before is not null, handled_reason, active from relevo.device_installations"
    assert conn.execute(row).fetchone() == (True, "read", True)
    assert phones.call("POST", f"{base}/log-out", secret).json() == {"logged_out": True}
    assert conn.execute(row).fetchone() == (True, "read", False)
    assert phones.call("POST", f"{base}/log-out", secret).status_code == 401
    assert phones.call("POST", f"{base}/log-out", phones.app).json() == {"logged_out": False}


def test_a_phone_reports_what_was_opened(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Its own pushes alone, once each; the app may for any phone of its project; what is wrong is named."""
    phone, secret = phones.new(token=TOKEN.format("a"))
    other, _ = phones.new(token=TOKEN.format("b"))
    conn.execute("insert into relevo.event_types (event_type, opens) values ('t', true)")
    conn.execute("select relevo.ensure_partitions(%s, 1)", [TODAY])
    made = conn.execute(
        "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, created_at,"
        " status, provider_ticket_id)"
        " select %s, 1, p, 't', now() - interval '1 hour', 'sent', 'x' from unnest(%s::uuid[]) p returning installation_id, id",
        [TODAY, [phone, other]],
    ).fetchall()
    ids = dict(made)
    path = f"/v1/installations/{phone}/opened"
    at = "2020-01-01T00:00:00Z"
    assert phones.call("POST", path, json={"delivery_id": ids[phone]}).status_code == 401
    assert (
        phones.call("POST", f"/v1/installations/{other}/opened", secret, json={"delivery_id": ids[other]}).status_code
        == 401
    )
    assert phones.call("POST", path, secret, json={"delivery_id": ids[other]}).status_code == 404
    told = phones.call("POST", path, secret, json={"delivery_id": ids[phone], "at": at, "action": "reply"})
    assert (told.status_code, told.json()) == (200, {"outcome": "noted"})
    assert phones.call("POST", path, secret, json={"delivery_id": ids[phone]}).json() == {"outcome": "known"}
    by_app = phones.call("POST", f"/v1/installations/{other}/opened", phones.app, json={"delivery_id": ids[other]})
    assert by_app.json() == {"outcome": "noted"}
    for wrong in (
        {},
        {"delivery_id": "7"},
        {"delivery_id": 1, "at": 1_700_000_000},
        {"delivery_id": 1, "at": "2026-11-17T09:30:00"},
        {"delivery_id": 1, "action": ""},
        {"delivery_id": 1, "action": None},
        {"delivery_id": 1, "more": 1},
    ):
        answer = phones.call("POST", path, secret, json=wrong)
        assert answer.status_code == 400, wrong
    row = conn.execute(
        "select opened_at = created_at, opened_action from relevo.notification_deliveries where id = %s", [ids[phone]]
    ).fetchone()
    assert row == (True, "reply")


def test_bounds(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """What is too long, too many or unknown is named, with its field."""
    phone, secret = phones.new()
    refused: dict[str, Any] = {
        "token": "x" * 201,
        "opt_outs": ["a"] * 101,
        "platform": "fridge",
        "nope": 1,
        "locale": "\0",
        "timezone": "x" * 65,
    }
    for name, value in refused.items():
        answer = phones.put(phone, secret, **{name: value})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, name)
    base = f"/v1/installations/{phone}/preferences"
    for number in range(48):
        verbs.set_preference(conn, phone, f"p{number}", relevo.Preference())
    assert phones.call("PUT", f"{base}/one", secret, json={}).status_code == 200
    assert phones.call("PUT", f"{base}/two", secret, json={}).status_code == 400
    assert phones.call("PUT", f"{base}/one", secret, json={"enabled": False}).status_code == 200
    assert phones.call("PUT", "/v1/installations/7", secret, json={}).status_code == 400


def test_the_history_reads_what_it_shows(conn: psycopg.Connection[Any]) -> None:
    """However much there is, a page of history is found by its key."""
    conn.execute("select relevo.ensure_partitions((now() at time zone 'UTC')::date, 1)")
    phone = uuid4()
    conn.execute(
        "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
        " select %s, n, case when n %% 1000 = 0 then %s else gen_random_uuid() end, 't' from generate_series(1, 20000) n",
        [TODAY, phone],
    )
    conn.execute("analyze relevo.notification_deliveries")
    for caller in ({"own": True, "project": None}, {"own": False, "project": "default"}):
        asked = {"installation_id": phone, "before": 2**63 - 1, "limit": 10} | caller
        read = rows_read_by_table(conn, queries.load("phone_access")["list_history"], asked)
        assert sum(read.values()) <= 40, read


def test_an_amount_comes_back_as_it_was_given(phones: Phones) -> None:
    """What is read can be handed in again: the largest amount there is to its last digit, cents as they are."""
    phone = uuid4()
    secret = phones.put(phone, phones.app, token=TOKEN.format("amount")).json()["secret"]
    path = f"/v1/installations/{phone}/preferences/default"
    for amount in (999_999_999_999_999_999, 1500.75, 0):
        told = phones.call("PUT", path, secret, json={"monto_min": amount})
        assert (told.status_code, told.json()["monto_min"]) == (200, amount)
        assert phones.call("PUT", path, secret, json={"monto_min": told.json()["monto_min"]}).status_code == 200


def test_a_text_that_is_too_long_has_characters(phones: Phones) -> None:
    """Lengths are told in characters, and a fault that we found without ceremony."""
    phone = uuid4()
    path = f"/v1/installations/{phone}/preferences/"
    told = [phones.call("PUT", path + name, phones.app, json={}).json()["errors"] for name in ("x" * 101, "%00")]
    assert told == [
        [{"field": "name", "reason": "must have at most 100 characters"}],
        [{"field": "name", "reason": "must not hold a NUL character"}],
    ]
