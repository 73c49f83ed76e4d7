"""What the sandbox's services refuse, and how they say it: as Google, Apple and the push services of browsers do."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from relevo.sandbox import Sandbox
from relevo.sandbox.services import json_web_tokens
from support import senders

SEND = "/v1/projects/relevo-sandbox/messages:send"


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True) as sandbox:
        yield sandbox


@pytest.fixture
def native(running: Sandbox) -> Sandbox:
    """That sandbox, as new, where provider tokens may be renewed at once."""
    running.set(apns_token_interval_s=0, fcm_per_minute=600_000)
    running.clear_faults()
    running.reset()
    return running


@pytest.fixture(scope="module")
def http(running: Sandbox) -> Iterator[httpx.Client]:
    """An HTTP/2 client."""
    with senders.client(running) as client:
        yield client


@pytest.fixture(scope="module")
def access_token(running: Sandbox) -> str:
    """An access token of FCM."""
    return senders.access_token(running)


def details(answer: httpx.Response) -> list[str]:
    """Return the kinds of an error's details, without the long way to them."""
    return [each["@type"].rpartition(".")[2] for each in answer.json()["error"].get("details", [])]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"token": None}, "message"),
        ({"topic": "news"}, "message"),
        ({"data": {"order": 17}}, "message.data[order]"),
        ({"data": {"from": "x"}}, "message.data"),
        ({"data": {"google.x": "x"}}, "message.data"),
        ({"android": {"ttl": 3600}}, "message.android.ttl"),
        ({"android": {"ttl": "2419201s"}}, "message.android.ttl"),
        ({"android": {"priority": "urgent"}}, "message.android.priority"),
        ({"android": {"data": {"a": None}}}, "message.android.data[a]"),
        ({"android": {"notification": {"title": 1}}}, "message.android.notification.title"),
        ({"android": {"channel": "x"}}, "message.android.channel"),
        ({"apns": {"headers": {"apns-priority": 5}}}, "message.apns.headers[apns-priority]"),
        ({"to": "x"}, "message.to"),
        ({"data": {"text": "x" * 4096}}, "message"),
    ],
)
def test_fcm_names_the_field(
    native: Sandbox, http: httpx.Client, access_token: str, changes: dict[str, Any], field: str
) -> None:
    """A message that is not valid is refused with the field, and never as a bad token."""
    message = {"token": native.fcm_token("ana"), **changes}
    answer = http.post(native.fcm + SEND, json={"message": message}, headers=bearer(access_token))
    error = answer.json()["error"]
    assert (answer.status_code, error["status"], details(answer)) == (400, "INVALID_ARGUMENT", ["BadRequest"])
    assert error["details"][0]["fieldViolations"][0]["field"] == field
    assert native.received(native.fcm_token("ana")) == []


def test_of_a_body_that_is_too_long_nothing_is_taken(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """A body that goes on behind the most that is kept is not taken for what it began with."""
    body = json.dumps({"message": {"token": native.fcm_token("ana")}}) + " " * 65_536
    assert http.post(native.fcm + SEND, content=body, headers=bearer(access_token)).status_code == 400
    form = {"grant_type": senders.GRANT, "assertion": senders.assertion(native), "more": "x" * 65_536}
    assert senders.http1_post(native, f"{native.fcm}/token", data=form).status_code == 400
    assert native.received(native.fcm_token("ana")) == []


def test_json_that_is_too_deep_is_none(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """Brackets without end are refused as any other text is."""
    deep = b"[" * 60_000
    assert http.post(native.fcm + SEND, content=deep, headers=bearer(access_token)).status_code == 400
    headers = {"authorization": f"bearer {senders.provider_token(native.apns_key_file)}", "apns-topic": senders.TOPIC}
    answer = http.post(f"{native.apns}/3/device/{native.apns_token('ana')}", content=deep[:4_000], headers=headers)
    assert answer.json() == {"reason": "PayloadEmpty"}


def test_fcm_takes_every_part_of_a_message(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """Fields may be written as protocol buffers or as JSON has them; a message that is only checked reaches nobody."""
    message = {
        "token": native.fcm_token("ana"),
        "notification": {"title": "a", "body": "b"},
        "data": {"k": "v"},
        "android": {"collapseKey": "x", "ttl": "3.5s", "priority": "HIGH", "notification": {"channelId": "c"}},
        "apns": {"headers": {"apns-priority": "5"}, "payload": {"aps": {"badge": 3}}},
        "webpush": {"headers": {"TTL": "60"}, "notification": {"title": "w"}},
        "fcm_options": {"analytics_label": "x"},
    }
    for body in ({"message": message}, {"message": message, "validate_only": True}):
        answer = http.post(native.fcm + SEND, json=body, headers=bearer(access_token))
        assert answer.status_code == 200, answer.text
    [got] = native.received(native.fcm_token("ana"))
    assert got["fcm"]["android"]["notification"] == {"channel_id": "c"}


def test_fcm_knows_its_access_tokens(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """Without a token, with a stranger's or an expired one: 401; with another project's name: 403."""
    message = {"message": {"token": native.fcm_token("ana")}}
    for headers in ({}, bearer("ya29.stranger"), {"authorization": f"Basic {access_token}"}):
        answer = http.post(native.fcm + SEND, json=message, headers=headers)
        assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert "FcmError" not in details(answer)
    other = native.fcm + SEND.replace("relevo-sandbox", "other")
    assert http.post(other, json=message, headers=bearer(access_token)).status_code == 403
    mine = senders.access_token(native)
    assert http.post(native.fcm + SEND, json=message, headers=bearer(mine)).status_code == 200


def test_expired_access_tokens(native: Sandbox, http: httpx.Client) -> None:
    """Tokens that were let expire are refused, and a new one is taken."""
    with Sandbox(native=True) as own, senders.client(own) as client:
        before = senders.access_token(own)
        own.expire_access_tokens()
        message = {"message": {"token": own.fcm_token("ana")}}
        seen = [client.post(own.fcm + SEND, json=message, headers=bearer(each)).status_code for each in (before,)]
        assert [
            *seen,
            client.post(own.fcm + SEND, json=message, headers=bearer(senders.access_token(own))).status_code,
        ] == [
            401,
            200,
        ]


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "stranger@example.com"},
        {"aud": "https://example.com/token"},
        {"scope": "https://www.googleapis.com/auth/drive"},
        {"exp": int(time.time()) + 7200},
        {"iat": int(time.time()) + 3000, "exp": int(time.time()) + 6000},
        {"iat": int(time.time()) - 7200, "exp": int(time.time()) - 3600},
    ],
)
def test_the_token_endpoint_refuses_other_claims(native: Sandbox, changes: dict[str, Any]) -> None:
    """An assertion of somebody else, for somewhere else or for too long gives no token."""
    form = {"grant_type": senders.GRANT, "assertion": senders.assertion(native, **changes)}
    answer = senders.http1_post(native, f"{native.fcm}/token", data=form)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_the_token_endpoint_checks_the_signature(native: Sandbox) -> None:
    """An assertion whose claims were changed, or that another key signed, gives no token."""
    text, _, signature = senders.assertion(native).rpartition(".")
    _, claims, _ = senders.assertion(native, sub="x").split(".")
    for assertion in (
        f"{text.partition('.')[0]}.{claims}.{signature}",
        f"{text}.{senders.b64(b'x' * 256)}",
        "a.b.c",
        "",
    ):
        form = {"grant_type": senders.GRANT, "assertion": assertion}
        assert senders.http1_post(native, f"{native.fcm}/token", data=form).json()["error"] == "invalid_grant"


def test_the_token_endpoint_fails_on_demand(native: Sandbox) -> None:
    """A rule on the token endpoint befalls no message."""
    native.add_fault("invalid_grant", service="fcm", on="token", times=1)
    form = {"grant_type": senders.GRANT, "assertion": senders.assertion(native)}
    seen = [senders.http1_post(native, f"{native.fcm}/token", data=form).status_code for _ in range(2)]
    assert seen == [400, 200]


def test_fcm_has_a_quota(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """What is over a project's messages a minute is refused, with whose quota it is and without a Retry-After."""
    native.set(fcm_per_minute=1)
    message = {"message": {"token": native.fcm_token("ana")}}
    answers = [http.post(native.fcm + SEND, json=message, headers=bearer(access_token)) for _ in range(3)]
    refused = answers[-1]
    assert (refused.status_code, details(refused)) == (429, ["FcmError", "QuotaFailure"])
    assert "retry-after" not in refused.headers


def test_fcm_knows_whose_token_it_is(native: Sandbox, http: httpx.Client, access_token: str) -> None:
    """A token of another project is a mismatch; a slip in a token's words is a bad token."""
    for token, expected in (
        ("ana!project=other", (403, "SENDER_ID_MISMATCH")),
        ("ana!slip", (400, "INVALID_ARGUMENT")),
    ):
        answer = http.post(native.fcm + SEND, json={"message": {"token": token}}, headers=bearer(access_token))
        assert (answer.status_code, answer.json()["error"]["details"][0]["errorCode"]) == expected


ALERT = {"aps": {"alert": "Hola"}}


@pytest.mark.parametrize(
    ("headers", "payload", "expected"),
    [
        ({"apns-topic": ""}, ALERT, (400, "MissingTopic")),
        ({"apns-topic": "a b"}, ALERT, (400, "BadTopic")),
        ({"apns-topic": "org.stranger.app"}, ALERT, (400, "TopicDisallowed")),
        ({"apns-topic": "com.example.other"}, ALERT, (400, "DeviceTokenNotForTopic")),
        ({"apns-push-type": "loud"}, ALERT, (400, "InvalidPushType")),
        ({"apns-push-type": "background"}, ALERT, (400, "BadPriority")),
        ({"apns-push-type": "background", "apns-priority": "10"}, ALERT, (400, "BadPriority")),
        ({"apns-push-type": "background", "apns-priority": "5"}, ALERT, (200, None)),
        ({"apns-priority": "7"}, ALERT, (400, "BadPriority")),
        ({"apns-expiration": "soon"}, ALERT, (400, "BadExpirationDate")),
        ({"apns-id": "17"}, ALERT, (400, "BadMessageId")),
        ({"apns-collapse-id": "x" * 65}, ALERT, (400, "BadCollapseId")),
        ({"apns-collapse-id": "x" * 64}, ALERT, (200, None)),
        ({}, {"aps": {"alert": "x" * 4096}}, (413, "PayloadTooLarge")),
        ({}, {"aps": {"alert": "x" * 100_000}}, (413, "PayloadTooLarge")),
        ({}, {}, (400, "PayloadEmpty")),
        ({"authorization": ""}, ALERT, (403, "MissingProviderToken")),
        ({"authorization": "bearer a.b.c"}, ALERT, (403, "InvalidProviderToken")),
    ],
)
def test_apns_gives_its_reasons(
    native: Sandbox, http: httpx.Client, headers: dict[str, str], payload: Any, expected: tuple[int, str | None]
) -> None:
    """Each rule of Apple's headers and payload has its own reason."""
    answer = notify(native, http, native.apns_token("ana"), payload, **headers)
    assert (answer.status_code, answer.json()["reason"] if answer.content else None) == expected
    assert len(answer.headers["apns-id"]) == 36


def test_apns_keeps_environments_apart(native: Sandbox, http: httpx.Client) -> None:
    """A token of one environment is bad in the other; so is what is no token."""
    production, sandbox = native.apns_token("ana"), native.apns_token("ana", environment="sandbox")
    for url, token in ((native.apns, sandbox), (native.apns_sandbox, production), (native.apns, "xyz")):
        assert notify(native, http, token, url=url).json() == {"reason": "BadDeviceToken"}
    assert notify(native, http, "", url=native.apns).json() == {"reason": "MissingDeviceToken"}
    assert notify(native, http, "ab" * 32).status_code == 200  # a phone's own token, not made here


def test_apns_says_since_when_a_token_is_gone(native: Sandbox, http: httpx.Client) -> None:
    """With 410 comes the time, in milliseconds, and the notification's own id."""
    apns_id = "8F0B5C6F-6B9E-4F0E-9D0A-72656C65766F"
    answer = notify(native, http, native.apns_token("ana", "Unregistered"), **{"apns-id": apns_id})
    told = answer.json()
    assert (told["reason"], answer.headers["apns-id"]) == ("Unregistered", apns_id)
    assert abs(told["timestamp"] / 1000 - time.time()) < 3600


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kid": "STRANGERKE"}, "InvalidProviderToken"),
        ({"team": "OTHERTEAM1"}, "InvalidProviderToken"),
        ({"age_s": 3700}, "ExpiredProviderToken"),
        ({"age_s": -3700}, "InvalidProviderToken"),
    ],
)
def test_apns_checks_provider_tokens(native: Sandbox, http: httpx.Client, changes: dict[str, Any], reason: str) -> None:
    """Another key or team, or a token that is too old or of the future, is refused."""
    token = senders.provider_token(native.apns_key_file, **changes)
    answer = notify(native, http, native.apns_token("ana"), authorization=f"bearer {token}")
    assert (answer.status_code, answer.json()["reason"]) == (403, reason)


def test_apns_refuses_a_token_signed_by_another_key(native: Sandbox, http: httpx.Client, tmp_path: Path) -> None:
    """The signature is verified, not only what is written."""
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "stranger.p8"
    file.write_bytes(pem(key))
    answer = notify(native, http, native.apns_token("a"), authorization=f"bearer {senders.provider_token(file)}")
    assert answer.json() == {"reason": "InvalidProviderToken"}


def test_apns_wants_no_new_token_too_soon() -> None:
    """A second token of a key within 20 minutes is too many; the first one goes on."""
    with Sandbox(native=True) as own, senders.client(own) as client:
        first, second = (f"bearer {senders.provider_token(own.apns_key_file, age_s=age)}" for age in (0, 60))
        seen = [notify(own, client, own.apns_token("ana"), authorization=each) for each in (first, second, first)]
        assert [answer.status_code for answer in seen] == [200, 429, 200]
        assert seen[1].json() == {"reason": "TooManyProviderTokenUpdates"}


def test_apns_binds_keys_to_environment_and_connection(native: Sandbox) -> None:
    """A key of one environment is refused in the other, and a connection stays with the key it began with."""
    file = native.add_apns_key("OTHERKEY01", "production")
    other = f"bearer {senders.provider_token(file, kid='OTHERKEY01')}"
    with senders.client(native) as client:
        token = native.apns_token("ana", environment="sandbox")
        answer = notify(native, client, token, url=native.apns_sandbox, authorization=other)
        assert answer.json() == {"reason": "BadEnvironmentKeyIdInToken"}
        assert notify(native, client, native.apns_token("ana"), authorization=other).status_code == 200
        assert notify(native, client, native.apns_token("ana")).json() == {"reason": "UnrelatedKeyIdInToken"}


def test_apns_speaks_no_http1(native: Sandbox) -> None:
    """A client that negotiates no HTTP/2 is hung up on."""
    with pytest.raises(OSError, match=r"(?i)abort|reset|eof|violation|alert"):
        senders.http1_post(native, f"{native.apns}/3/device/ab", data=b"{}")


@pytest.mark.parametrize(
    ("headers", "claims", "status"),
    [
        ({}, {}, 201),
        ({"ttl": ""}, {}, 400),
        ({"ttl": "soon"}, {}, 400),
        ({"urgency": "now"}, {}, 400),
        ({"topic": "x" * 33}, {}, 400),
        ({"topic": "a b"}, {}, 400),
        ({"content-encoding": "aesgcm"}, {}, 415),
        ({"authorization": ""}, {}, 401),
        ({}, {"aud": "https://example.com"}, 401),
        ({}, {"exp": int(time.time()) + 100_000}, 401),
        ({}, {"exp": int(time.time()) - 10}, 401),
        ({}, {"sub": "mailto:me@localhost"}, 401),
        ({}, {"sub": ""}, 401),
    ],
)
def test_web_push_checks_headers_and_sender(
    native: Sandbox, http: httpx.Client, headers: dict[str, str], claims: dict[str, Any], status: int
) -> None:
    """TTL is required, and the sender's token must be for this origin, not for long, and from somebody."""
    endpoint, body = senders.encrypted(native.subscription("ana"), b"{}")
    good = {"ttl": "60", "content-encoding": "aes128gcm", "authorization": senders.vapid(native, **claims)}
    sent = {name: value for name, value in (good | headers).items() if value}
    answer = http.post(endpoint, content=body, headers=sent)
    assert answer.status_code == status, answer.text
    if status != 201:
        assert answer.json()["code"] == status


def test_web_push_binds_a_subscription_to_its_key(native: Sandbox, http: httpx.Client, tmp_path: Path) -> None:
    """Another key than the one a browser subscribed with is refused; a browser may subscribe with any."""
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "other.pem"
    file.write_bytes(pem(key))
    bound = {False: native.subscription("ana"), True: native.subscription("ana", key=senders.public(key))}
    headers = {"ttl": "60", "content-encoding": "aes128gcm", "authorization": senders.vapid(native, key_file=file)}
    for is_bound, subscription in bound.items():
        endpoint, body = senders.encrypted(subscription, b"{}")
        assert http.post(endpoint, content=body, headers=headers).status_code == (201 if is_bound else 403)


def test_web_push_refuses_what_is_too_big_or_nowhere(native: Sandbox, http: httpx.Client) -> None:
    """A body of more than 4,096 bytes is too big, one of exactly as many is not; an unknown endpoint is not found."""
    headers = {"ttl": "60", "content-encoding": "aes128gcm", "authorization": senders.vapid(native)}
    for size, status in ((3_993, 201), (3_994, 413)):
        endpoint, body = senders.encrypted(native.subscription("ana"), b"x" * size)
        assert http.post(endpoint, content=body, headers=headers).status_code == status
    assert http.post(f"{native.webpush}/push/nobody", content=body, headers=headers).status_code == 404


def test_web_push_shows_what_no_browser_can_read(native: Sandbox, http: httpx.Client) -> None:
    """A message that was encrypted for another browser is taken, as a push service does, and the page says so."""
    endpoint, _ = senders.encrypted(native.subscription("ana"), b"{}")
    _, other = senders.encrypted(native.subscription("eva"), b"{}")
    headers = {"ttl": "60", "content-encoding": "aes128gcm", "authorization": senders.vapid(native)}
    assert http.post(endpoint, content=other, headers=headers).status_code == 201
    assert "another key" in native.received(native.subscription("ana"))[0]["body"]


def notify(
    sandbox: Sandbox, http: httpx.Client, token: str, payload: Any = ALERT, *, url: str = "", **headers: str
) -> httpx.Response:
    """Send a notification; headers replace the good ones, empty ones are left out."""
    good = {"apns-topic": senders.TOPIC, "authorization": ""}
    if "authorization" not in headers:
        good["authorization"] = f"bearer {senders.provider_token(sandbox.apns_key_file)}"
    sent = {name: value for name, value in (good | headers).items() if value}
    return http.post(f"{url or sandbox.apns}/3/device/{token}", content=json.dumps(payload), headers=sent)


def bearer(token: str) -> dict[str, str]:
    """Return the header with an access token."""
    return {"authorization": f"Bearer {token}"}


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as a file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("a.b", "three parts"),
        ("a.b.c.d", "three parts"),
        ("a" * 20_000 + ".b.c", "three parts"),
        ("a.b.c", "not base64url"),
        (f"{_part({})}.eyI.c", "not JSON"),
        (f"{_part([])}.{_part({})}.c", "no objects"),
        (f"{_part({})}.{_part('x')}.c", "no objects"),
        (f"{_part({})}.{_part(None)}.c", "no objects"),
    ],
)
def test_what_is_no_web_token_is_refused(token: str, why: str) -> None:
    """Three parts of base64url, of which the first two are objects of JSON."""
    with pytest.raises(json_web_tokens.BadToken, match=why):
        json_web_tokens.read(token)
