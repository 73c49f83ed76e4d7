"""Phones of FCM, APNs and Web Push over HTTP: what is taken, what a phone may change by itself, where its pushes may go."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.providers.webpush.credentials import make_pair
from support.http_server import Served
from support.push_tokens import BAD_TOKENS, POINT, SECRET, subscription

FIREFOX = "https://updates.push.services.mozilla.com/wpush/v2/a"
HEX = "00aa" * 16


@pytest.fixture
def stored(conn: psycopg.Connection[Any]) -> Callable[[object], tuple[str, str, str]]:
    """Read a phone's provider, part and token."""
    statement = "select provider, part, token from relevo.device_installations where installation_id = %s"

    def read(phone: object) -> tuple[str, str, str]:
        found = conn.execute(statement, [phone]).fetchone()
        assert found is not None
        return found

    return read


def test_bad_tokens_are_refused_in_the_words_of_the_door(serve: Callable[..., Served]) -> None:
    """A bad token of each provider is a 400 that says what is wrong with it, as Python and SQL do."""
    app = serve(http_rate_per_second=0, webpush_hosts="a.b,push.example.com", http_allow_private=True).client("app")
    for provider, text, *tokens in BAD_TOKENS:
        for token in tokens:
            answer = app.call("PUT", f"/v1/installations/{uuid4()}", json={"provider": provider, "token": token})
            assert answer.status_code == 400, (provider, token)
            if isinstance(token, str) and 1 <= len(token) <= 4096 and "Expo" not in token:
                assert answer.json()["detail"].startswith(text), (provider, token, answer.text)


ENDPOINTS: list[tuple[str, dict[str, Any], bool]] = [
    (FIREFOX, {}, True),
    ("https://fcm.googleapis.com/fcm/send/a", {}, True),
    ("https://web.push.apple.com/a", {}, True),
    ("https://db5p.notify.windows.com/w/?token=a", {}, True),
    ("https://FCM.GoogleAPIs.com/fcm/send/a", {}, True),
    ("https://fcm.googleapis.com.example.org/a", {}, False),
    ("https://evilnotify.windows.com/a", {}, False),
    ("https://ntfy.example.org/up", {}, False),
    ("https://x1.fcm.googleapis.com/a", {}, False),
    ("https://fcm.googleapis.com:443/a", {}, True),
    ("https://fcm.googleapis.com:8443/a", {}, False),
    ("https://ntfy.example.org/up", {"webpush_hosts": ".example.org"}, True),
    ("https://ntfy.example.org/other", {"webpush_hosts": "example.org"}, False),
    ("https://ntfy.example.org:8443/up", {"webpush_hosts": "ntfy.example.org:8443"}, True),
    ("https://169.254.169.254/latest", {}, False),
    ("https://localhost/a", {}, False),
    ("https://localhost:1/a", {"http_allow_private": True}, False),
    ("https://localhost:1/a", {"webpush_hosts": "localhost:1"}, True),
    ("https://10.0.0.1/a", {"http_allow_private": True}, False),
]


def test_pushes_go_to_push_services_alone(serve: Callable[..., Served]) -> None:
    """A browser chooses the address of its subscription: over HTTP only that of a known push service is taken, from whomever."""
    started: dict[str, Served] = {}
    for endpoint, settings, is_taken in ENDPOINTS:
        if str(settings) not in started:
            started[str(settings)] = serve(http_open_registration="default", http_rate_per_second=0, **settings)
        served = started[str(settings)]
        given = {"provider": "webpush", "token": subscription(endpoint)}
        for by in (served.client(), served.client("app")):
            answer = by.call("PUT", f"/v1/installations/{uuid4()}", json=given)
            assert answer.status_code == (201 if is_taken else 400), answer.text
            if not is_taken:
                assert answer.json()["detail"].startswith("token.endpoint must be at a known push service, not at "), (
                    endpoint
                )
                assert endpoint.partition("/")[2] not in answer.text, endpoint
            given = {"provider": "webpush", "token": subscription(endpoint, auth=f"{'a' * 21}A")}


def test_a_projects_own_push_services_are_known(serve: Callable[..., Served]) -> None:
    """What `hosts` of a project in PUSH_PROJECTS names is taken for its phones, as when it is sent, and for no others."""
    entry = {"private_key": make_pair().private_pem, "subject": "mailto:a@b.example", "hosts": ["ntfy.example.org"]}
    served = serve(http_rate_per_second=0, push_projects=json.dumps({"shop": {"webpush": entry}}))
    found = {}
    for project in ("shop", "default"):
        given = {
            "provider": "webpush",
            "project": project,
            "token": subscription(f"https://ntfy.example.org/{project}"),
        }
        found[project] = served.client("app").call("PUT", f"/v1/installations/{uuid4()}", json=given)
    assert {project: answer.status_code for project, answer in found.items()} == {"shop": 201, "default": 400}
    assert "PUSH_PROJECTS_FILE, or WEBPUSH_HOSTS" in found["default"].text


def test_a_phone_moves_by_itself(
    serve: Callable[..., Served], stored: Callable[[object], tuple[str, str, str]]
) -> None:
    """With its secret it changes from Expo to a token of its own and back; to a webhook, or halfway, it does not."""
    served = serve(http_open_registration="default", http_rate_per_second=0)
    phone = uuid4()

    def put(secret: str | None = None, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return served.client().call("PUT", f"/v1/installations/{phone}", json=body, headers=headers)

    secret = put(token="ExponentPushToken[a]").json()["secret"]
    steps: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
        ({"provider": "fcm", "token": "abc", "platform": "android"}, ("fcm", "android", "abc")),
        ({"provider": "apns", "token": HEX, "environment": "sandbox"}, ("apns", "sandbox", HEX)),
        ({"provider": "expo", "token": "ExponentPushToken[b]"}, ("expo", "", "ExponentPushToken[b]")),
    ]
    for body, kept in steps:
        assert put(**body).status_code == 401
        assert put(secret, **body).status_code == 200
        assert stored(phone) == kept
        assert put(secret, locale="es").status_code == 200
        assert stored(phone) == kept
        if kept[0] != "expo":
            assert put(token="ExponentPushToken[b]").status_code == 401
            assert "provider must be given" in put(secret, token="ExponentPushToken[b]").json()["detail"]
    assert put(secret, provider="webhook", token="billing").status_code == 403
    assert put(secret, provider="fcm").status_code == 400
    assert put(secret, token="00ff", environment="sandbox").status_code == 400
    assert stored(phone) == ("expo", "", "ExponentPushToken[b]")


def test_a_token_of_another_phone_needs_a_signature(serve: Callable[..., Served]) -> None:
    """However it is written: the form that is kept decides whose it is. Of another provider it is another token."""
    served = serve(http_open_registration="default", http_rate_per_second=0)
    taken = {"provider": "apns", "token": HEX}
    web = {"provider": "webpush", "token": subscription(FIREFOX)}
    for body, status in (
        (taken, 201),
        (taken, 403),
        (taken | {"token": HEX.upper()}, 403),
        (taken | {"environment": "production"}, 403),
        (taken | {"environment": "sandbox"}, 201),
        (taken | {"provider": "fcm"}, 201),
        (web, 201),
        (web | {"token": subscription(FIREFOX).replace(" ", "")}, 403),
        (web | {"token": subscription(FIREFOX, f"{POINT}=")}, 403),
    ):
        answer = served.client().call("PUT", f"/v1/installations/{uuid4()}", json=body)
        assert answer.status_code == status, (body, answer.text)


def test_no_log_shows_a_subscription(serve: Callable[..., Served], caplog: pytest.LogCaptureFixture) -> None:
    """Neither the path of its address nor its keys are in any line, whether it is taken or refused."""
    served = serve(http_open_registration="default", http_rate_per_second=0)
    with caplog.at_level(logging.DEBUG):
        for endpoint in (f"{FIREFOX}hunter2", "https://a.b/hunter2"):
            given = {"provider": "webpush", "token": subscription(endpoint)}
            answer = served.client().call("PUT", f"/v1/installations/{uuid4()}", json=given)
            assert "hunter2" not in answer.text
    for secret in ("hunter2", POINT, SECRET):
        assert secret not in caplog.text


def test_a_silent_push_to_browsers_alone_names_the_field(serve: Callable[..., Served]) -> None:
    """It is a 400 that names the title, in the words of the door."""
    app, phone = serve().client("app"), str(uuid4())
    app.call("PUT", f"/v1/installations/{phone}", json={"provider": "webpush", "token": subscription(FIREFOX)})
    event = {"type": "t", "key": "1", "data": {"a": 1}, "audience": "installations", "installations": [phone]}
    answer = app.post("/v1/events", event)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["title"]
    assert answer.json()["detail"].startswith("title must be given, or body")
    assert app.post("/v1/events", {**event, "body": "Hi"}).status_code == 201
