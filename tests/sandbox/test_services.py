"""FCM, APNs and Web Push of the sandbox take what a sender sends, over HTTP/2 and TLS, and the phones get it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from relevo.sandbox import Sandbox
from relevo.sandbox.services import running
from support import senders
from support.processes import eventually


@pytest.fixture(scope="module")
def native() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True) as sandbox:
        yield sandbox


def test_fcm_takes_a_message(native: Sandbox) -> None:
    """A message with an access token of the token endpoint reaches its phone."""
    message = {"token": native.fcm_token("ana"), "notification": {"title": "Hola"}, "data": {"order": "17"}}
    with senders.client(native) as http:
        answer = http.post(
            f"{native.fcm}/v1/projects/relevo-sandbox/messages:send",
            json={"message": message},
            headers={"authorization": f"Bearer {senders.access_token(native)}"},
        )
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200), answer.text
    assert answer.json()["name"].startswith("projects/relevo-sandbox/messages/")
    [got] = native.received(native.fcm_token("ana"))
    assert (got["title"], got["data"]) == ("Hola", {"order": "17"})


@pytest.mark.parametrize("environment", ["production", "sandbox"])
def test_apns_takes_a_notification(native: Sandbox, environment: str) -> None:
    """A notification with a provider token reaches its phone, in either environment, and its id comes back."""
    native.set(apns_token_interval_s=0)
    token = native.apns_token("ana", environment=environment)
    apns_id = "8f0b5c6f-6b9e-4f0e-9d0a-72656c65766f"
    with senders.client(native) as http:
        answer = http.post(
            f"{native.apns if environment == 'production' else native.apns_sandbox}/3/device/{token}",
            json={"aps": {"alert": {"title": "Hola", "body": "x"}}, "order": 17},
            headers={
                "authorization": f"bearer {senders.provider_token(native.apns_key_file)}",
                "apns-topic": senders.TOPIC,
                "apns-id": apns_id,
            },
        )
    assert (answer.status_code, answer.content, answer.headers["apns-id"]) == (200, b"", apns_id)
    [got] = native.received(token)
    assert (got["title"], got["body"], got["data"]) == ("Hola", "x", {"order": 17})


def test_web_push_takes_a_message(native: Sandbox) -> None:
    """A message encrypted for a browser is read by it."""
    subscription = native.subscription("ana")
    endpoint, body = senders.encrypted(subscription, json.dumps({"title": "Hola", "data": {"order": 17}}).encode())
    headers = {"authorization": senders.vapid(native), "ttl": "60", "content-encoding": "aes128gcm"}
    with senders.client(native) as http:
        answer = http.post(endpoint, content=body, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"].startswith(f"{native.webpush}/message/")
    [got] = native.received(subscription)
    assert (got["title"], got["data"]) == ("Hola", {"order": 17})
    again = senders.http1_post(native, endpoint, data=body, headers=headers)
    assert again.status_code == 201, again.text


def test_connections_are_bounded_and_forgotten(native: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """While as many are open as may be, the next is hung up on; one that was closed makes room."""
    monkeypatch.setattr(running, "_MAX_CONNECTIONS", 1)

    def is_answered(http: httpx.Client) -> bool:
        try:
            return http.get(native.fcm).status_code == 404
        except httpx.TransportError:
            return False

    with senders.client(native) as second:
        with senders.client(native) as first:
            eventually(lambda: is_answered(first), "those of earlier tests are forgotten")
            assert not is_answered(second)
        eventually(lambda: is_answered(second), "the first made room")
    native.reset()
    assert (native.totals()["services"]["fcm"], native.totals()["requests"]) == ({}, 0)


def test_the_files_fit_a_sender(native: Sandbox) -> None:
    """The projects file names the key files beside it, and no stranger may read any of them."""
    project = json.loads(native.projects_file.read_text())["default"]
    folder = native.projects_file.parent
    named = [
        project["fcm"]["service_account_file"],
        project["apns"]["key_file"],
        project["webpush"]["private_key_file"],
    ]
    assert [folder / name for name in named] == [
        native.service_account_file,
        native.apns_key_file,
        native.vapid_key_file,
    ]
    assert {file.stat().st_mode & 0o077 for file in folder.iterdir() if file != native.ca_file} == {0}


def test_a_sandbox_of_expo_alone_says_so() -> None:
    """Without `native` there are no services, and nothing of them is made."""
    with Sandbox() as sandbox, pytest.raises(Exception, match="Expo alone"):
        sandbox.subscription("ana")
