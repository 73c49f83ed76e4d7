"""Tokens of each provider: how they are kept, whose they are, and what a phone that changes its provider keeps."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Installation
from relevo.client.tokens import subscription as read_subscription
from relevo.core.errors import InvalidInputError
from relevo.core.known_services import NATIVE, SERVICES
from support.processes import eventually
from support.push_tokens import BAD_TOKENS, POINT, SECRET, subscription
from support.query_plans import rows_read_by_table

HEX = "00aa" * 16
FCM = "cX3-x_Y:APA91b" + "x" * 130
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and state = 'active'"
PHONE = "select provider, part, platform, token, token_version, project from relevo.device_installations where installation_id = %s"


def row(conn: psycopg.Connection[Any], phone: UUID) -> dict[str, Any]:
    """Return what is kept of a phone."""
    found = conn.execute(PHONE, [phone]).fetchone()
    assert found is not None
    return dict(zip(("provider", "part", "platform", "token", "token_version", "project"), found, strict=True))


def test_the_table_of_services_holds_in_sql(conn: psycopg.Connection[Any]) -> None:
    """Each push service of the table may register, has its usual platform and words for a bad token, and its phones fall into its parts."""
    assert conn.execute("select relevo.native_services()").fetchone() == ([*NATIVE],)
    conn.execute("delete from relevo.providers where provider = any (%s)", [[*NATIVE]])
    with pytest.raises(InvalidInputError, match=", ".join(sorted([*SERVICES, "webhook"]))):
        relevo.register(conn, Installation("nobody", provider="pager"))
    for name in NATIVE:
        with pytest.raises(InvalidInputError, match="token"):
            relevo.register(conn, Installation("", provider=name))
    parts = {"platform": "android", "environment": "sandbox", "host": "push.example.com", None: ""}
    for name, service in SERVICES.items():
        usual = service.platforms[0] if len(service.platforms) == 1 else "unknown"
        part = "relevo.part_of(%(name)s, 'android', 'sandbox', relevo.normal_token(%(name)s, %(token)s))"
        asked = f"select relevo.native_platform(%(name)s), {part}"
        found = conn.execute(asked, {"name": name, "token": subscription()}).fetchone()
        assert found == (usual if name in NATIVE else None, parts[service.part])
        if service.token.form:
            [said] = conn.execute("select relevo.token_complaint(%s, 'ñ')", [name]).fetchone() or ()
            assert said == service.token.complaint, name


def test_python_says_the_same_before_a_statement_is_sent(conn: psycopg.Connection[Any]) -> None:
    """Each bad token is refused by `register` in the words of the SQL door, and the transaction survives."""
    bad = [(provider, text, token) for provider, text, *all_bad in BAD_TOKENS for token in all_bad]
    assert len(bad) > 40
    with conn.transaction():
        for provider, text, token in bad:
            with pytest.raises(InvalidInputError) as caught:
                relevo.register(conn, Installation(token, provider=provider))  # type: ignore[arg-type]
            assert str(caught.value).startswith(f"{text}."), (provider, token)
        assert conn.execute("select 1").fetchone() == (1,)


KEPT = [
    (Installation(FCM, provider="fcm", platform="android"), ("fcm", "android", "android", FCM)),
    (Installation(FCM, provider="fcm"), ("fcm", "unknown", "unknown", FCM)),
    (Installation("f" * 4096, provider="fcm", platform="web"), ("fcm", "web", "web", "f" * 4096)),
    (Installation(HEX.upper(), provider="apns"), ("apns", "production", "ios", HEX)),
    (Installation(HEX, provider="apns", environment="sandbox"), ("apns", "sandbox", "ios", HEX)),
    (Installation("ExpoPushToken[a]", platform="ios"), ("expo", "", "ios", "ExpoPushToken[a]")),
]


def test_a_token_is_kept_with_its_service(conn: psycopg.Connection[Any]) -> None:
    """Of FCM the platform, of APNs the environment says which service it is; APNs tokens are kept in small letters."""
    for given, kept in KEPT:
        conn.execute("delete from relevo.device_installations")
        found = row(conn, relevo.register(conn, given))
        assert (found["provider"], found["part"], found["platform"], found["token"]) == kept, given


ENDPOINTS = [
    ("https://fcm.googleapis.com/fcm/send/a:b", "fcm.googleapis.com"),
    ("https://updates.push.services.mozilla.com/wpush/v2/a", "updates.push.services.mozilla.com"),
    ("https://web.push.apple.com/a", "push.apple.com"),
    ("https://db5p.NOTIFY.windows.com/w/?token=a%2b", "notify.windows.com"),
    ("https://notify.windows.com/w", "notify.windows.com"),
    ("https://ntfy.example.com:8443/up?a", "ntfy.example.com"),
    ("https://localhost:1/a", "localhost"),
    ("http://127.0.0.1:8090/a", "127.0.0.1"),
    ("https://[::1]:8090/a", "[::1]"),
    ("https://example.com", "example.com"),
]


def test_subscriptions_are_kept_in_one_form(conn: psycopg.Connection[Any]) -> None:
    """However its JSON is written, a subscription is one text, and its host, folded to its maker's domain, is the part."""
    for endpoint, part in ENDPOINTS:
        texts = [
            subscription(endpoint),
            json.dumps({"keys": {"auth": f"{SECRET}==", "p256dh": f"{POINT}="}, "endpoint": endpoint}, indent=1),
            json.dumps(
                {"endpoint": endpoint, "keys": {"p256dh": POINT.replace("_", "/"), "auth": SECRET.replace("_", "/")}}
            ),
        ]
        phones = {relevo.register(conn, Installation(text, provider="webpush", owner="ana")) for text in texts}
        assert len(phones) == 1, endpoint
        found = row(conn, phones.pop())
        assert found["token"] == f'{{"endpoint":"{endpoint}","keys":{{"p256dh":"{POINT}","auth":"{SECRET}"}}}}', (
            endpoint
        )
        assert (found["part"], found["platform"], found["token_version"]) == (part, "web", 1), endpoint
        read = read_subscription(found["token"])
        assert read is not None, endpoint
        assert read == (endpoint, POINT, SECRET), endpoint
        assert endpoint.lower().partition("//")[2].startswith(read.host), endpoint


def test_a_token_is_one_phone_s_within_its_provider(conn: psycopg.Connection[Any]) -> None:
    """The same text is another token of another provider, and of Apple's other environment; else it moves."""
    given = [
        Installation(HEX, provider="apns"),
        Installation(HEX, provider="apns", environment="sandbox"),
        Installation(HEX, provider="fcm"),
        Installation(HEX, provider="webhook"),
    ]
    for register in (
        lambda: [relevo.register(conn, each) for each in given],
        lambda: relevo.register_many(conn, given),
    ):
        first = register()
        assert len(set(first)) == 4
        assert register() == first, "without an id the same token and owner is the same installation"
        conn.execute("delete from relevo.device_installations")
    for each in given:
        former = relevo.register(conn, each)
        latter = relevo.register(conn, Installation(**{**vars(each), "owner": "ana"}))
        assert row(conn, former)["token"] is None
        assert row(conn, latter)["token"] == HEX
    moved = conn.execute("select count(distinct token_key) from relevo.moved_tokens").fetchone()
    assert moved == (4,)


def test_a_batch_may_say_one_token_in_two_ways(conn: psycopg.Connection[Any]) -> None:
    """Of two that are the same once they are in the form that is kept, the later one has it."""
    ids = relevo.register_many(
        conn,
        [
            Installation(HEX.upper(), provider="apns", owner="ana"),
            Installation(HEX, provider="apns", owner="eva"),
            Installation(subscription(), provider="webpush", owner="ana"),
            Installation(subscription().replace(" ", ""), provider="webpush", owner="eva"),
        ],
    )
    assert [row(conn, phone)["token"] is None for phone in ids] == [True, False, True, False]


def test_a_phone_moves_to_another_provider(conn: psycopg.Connection[Any]) -> None:
    """With its id and another provider's token it is the same installation, and keeps all that is not said; its owner's
    list tells where its pushes go."""
    phone = relevo.register(conn, Installation("ExpoPushToken[a]", owner="ana", platform="ios", project="shop"))
    steps: list[tuple[Installation, dict[str, Any]]] = [
        (
            Installation(HEX, phone, provider="apns"),
            {"provider": "apns", "part": "production", "token": HEX, "token_version": 2},
        ),
        (Installation(HEX, phone), {}),
        (Installation(HEX, phone, environment="sandbox"), {"part": "sandbox", "token_version": 3}),
        (Installation(HEX, phone), {}),
        (Installation(None, phone, locale="es"), {}),
        (
            Installation(FCM, phone, provider="fcm"),
            {"provider": "fcm", "part": "ios", "token": FCM, "token_version": 4},
        ),
        (Installation(None, phone, platform="android"), {"platform": "android", "part": "android"}),
        (Installation(FCM, phone, provider="webhook"), {"provider": "webhook", "part": "", "token_version": 5}),
        (
            Installation("ExpoPushToken[b]", phone, provider="expo"),
            {"provider": "expo", "token": "ExpoPushToken[b]", "token_version": 6},
        ),
    ]
    for given, changed in steps:
        before = row(conn, phone)
        assert relevo.register(conn, given) == phone
        now = row(conn, phone)
        assert now == before | changed
        [listed] = relevo.list_installations(conn, owner="ana")
        environment = now["part"] if now["provider"] == "apns" else None
        assert (listed.raw["environment"], listed.raw["part"]) == (environment, now["part"])
    owner = conn.execute("select owner, locale from relevo.device_installations").fetchall()
    assert owner == [("ana", "es")]


def test_half_a_move_is_refused(conn: psycopg.Connection[Any]) -> None:
    """A provider without its token, or a token without its provider, changes nothing."""
    phone = relevo.register(conn, Installation(FCM, provider="fcm"))
    before = row(conn, phone)
    for given, complaint in [
        ({"provider": "apns"}, "token must be given, too, with another provider or environment"),
        ({"provider": "expo"}, "token must be given, too, with another provider or environment"),
        ({"token": "ExpoPushToken[b]"}, "provider must be given, too: the token is Expo's"),
        ({"environment": "sandbox"}, "environment goes with provider apns alone"),
    ]:
        with pytest.raises(InvalidInputError, match=complaint):
            relevo.register(conn, Installation(**{"token": None, "installation_id": phone, **given}))
        assert row(conn, phone) == before, given


def test_when_a_token_was_last_confirmed_is_known(conn: psycopg.Connection[Any]) -> None:
    """Each registration that gives the token confirms it; one that only changes something else does not."""
    seen = "select token_confirmed_at = updated_at, token_confirmed_at from relevo.device_installations"
    phone = relevo.register(conn, Installation(HEX, provider="apns"))
    found = conn.execute(seen).fetchall()
    for token in (None, HEX):
        relevo.register(conn, Installation(token, phone, locale="es"))
        found += conn.execute(seen).fetchall()
    assert [is_now for is_now, _ in found] == [True, False, True]
    first, second, third = (at for _, at in found)
    assert first == second < third


def test_tokens_are_found_by_their_index(conn: psycopg.Connection[Any]) -> None:
    """Registering one among 20,000 phones, of any provider, known or new, reads a handful of them."""
    conn.execute(
        "insert into relevo.device_installations (token, provider, part)"
        " select md5(n::text), p, case p when 'apns' then 'production' else '' end"
        "   from generate_series(1, 5000) n, unnest('{fcm,apns,webhook,expo}'::text[]) p"
    )
    conn.execute("analyze relevo.device_installations")
    known = "c4ca4238a0b923820dcc509a6f75849b"  # as MD5 writes 1
    for installation in (
        {"token": known, "provider": "fcm", "project": "default"},
        {"token": known, "provider": "apns", "project": "default"},
        {"token": known, "provider": "apns", "environment": "sandbox"},
        {"token": known, "provider": "webhook"},
        {"token": "ExpoPushToken[new]"},
        {"token": subscription(), "provider": "webpush"},
    ):
        read = rows_read_by_table(
            conn, b"select relevo.register_installation(%(given)s::jsonb)", {"given": json.dumps(installation)}
        )
        assert read.get("device_installations", 0) <= 20, installation


@pytest.mark.parametrize("said", [{"locale": "es-CL"}, {"token": HEX}], ids=["nothing of the token", "a token"])
def test_two_registrations_of_one_phone_at_once(conn, dsn: str, said: dict[str, Any]) -> None:
    """The second waits for the first, and what it leaves out is as the first wrote it: a token stays with its provider."""
    phone = relevo.register(conn, Installation("bb" * 32, provider="apns"))
    with (
        psycopg.connect(dsn) as first,
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(dsn, autocommit=True) as other,
    ):
        relevo.register(first, Installation("aa" * 32, installation_id=phone, provider="apns", environment="sandbox"))
        second = threads.submit(
            other.execute, "select relevo.register_many(%s)", [Jsonb([{"installation_id": str(phone)} | said])]
        )
        eventually(lambda: second.done() or conn.execute(WAITING).fetchone() == (1,), "the second waits")
        first.commit()
        second.result(60)
    kept = row(conn, phone)
    assert (kept["provider"], kept["part"], kept["token"]) == ("apns", "sandbox", said.get("token", "aa" * 32))
