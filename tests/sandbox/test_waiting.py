"""A phone that is switched off: its push service keeps what Apple and Google keep, and hands it over later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from relevo.sandbox import Sandbox, push_service
from relevo.sandbox.waiting import Kept, Waiting
from support import senders
from support.processes import PATIENCE_S


@pytest.fixture(scope="module")
def native() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True, apns_token_interval_s=0) as sandbox:
        yield sandbox


def call(sandbox: Sandbox, method: str, path: str, **more: Any) -> requests.Response:
    """Make an admin call."""
    return requests.request(method, f"{sandbox.url}{path}", timeout=PATIENCE_S, **more)


def titles(messages: list[Any]) -> list[Any]:
    """Return the titles of messages."""
    return [message["title"] for message in messages]


@pytest.mark.parametrize(
    ("kind", "sent", "shown", "dropped"),
    [
        ("apns", [("app", 60), ("app", 60), ("app", 60)], [2], 2),
        ("apns", [("app", 60), ("app", 0)], [0], 1),
        ("fcm", [(f"key{n}", 60) for n in range(5)], [1, 2, 3, 4], 1),
        ("fcm", [("a", 60), ("b", 60), ("a", 60)], [1, 2], 1),
        ("fcm", [(None, 60)] * 100, list(range(100)), 0),
        ("fcm", [(None, 60)] * 101, [100], 100),
        ("fcm", [("a", 60)] + [(None, 60)] * 101, [0, 101], 100),
        ("fcm", [(None, 0), (None, 60)], [1], 1),
        ("fcm", [(None, 5), (None, 60)], [1], 1),
        ("webpush", [("a", 60), (None, 60), ("a", 60), ("b", 60)], [1, 2, 3], 1),
        ("webpush", [(None, 60)] * 101, list(range(1, 101)), 1),
        ("expo", [(None, 60)] * 101, [100], 100),
    ],
)
def test_what_waits(kind: str, sent: list[tuple[str | None, float]], shown: list[int], dropped: int) -> None:
    """One per app; four keys, and a hundred without one; one per topic: in the order they came, if they still count."""
    waiting = Waiting(push_service.keeping_of(kind))
    for number, (place, seconds) in enumerate(sent):
        waiting.add({"title": number}, Kept(place, seconds), now=1000.0)
    assert titles(waiting.take(now=1010.0)) == shown
    assert (waiting.dropped, len(waiting)) == (dropped, 0)


def test_an_iphone_shows_the_newest(native: Sandbox) -> None:
    """Of two notifications for a phone that is off the newer arrives when it is on again, and no more wait then."""
    token = native.apns_token("off")
    native.switch(token, on=False)
    headers = {
        "authorization": f"bearer {senders.provider_token(native.apns_key_file)}",
        "apns-topic": senders.TOPIC,
    }
    with senders.client(native) as http:
        for title in ("old", "new"):
            body = {"aps": {"alert": {"title": title}}}
            answer = http.post(f"{native.apns}/3/device/{token}", json=body, headers=headers)
            assert answer.status_code == 200
    assert native.received(token) == []
    native.switch(token, on=True)
    assert titles(native.received(token)) == ["new"]


def test_an_android_phone_shows_one_of_each_key(native: Sandbox) -> None:
    """Messages with a collapse key replace each other while the phone is off; one with a ttl of 0 is gone."""
    token = native.fcm_token("off")
    native.switch(token, on=False)
    headers = {"authorization": f"Bearer {senders.access_token(native)}"}
    with senders.client(native) as http:
        for title, android in (
            ("a", {"collapse_key": "k"}),
            ("b", {"collapse_key": "k"}),
            ("c", {}),
            ("d", {"ttl": "0s"}),
        ):
            message = {"token": token, "notification": {"title": title}, "android": android}
            url = f"{native.fcm}/v1/projects/relevo-sandbox/messages:send"
            assert http.post(url, json={"message": message}, headers=headers).status_code == 200
    native.switch(token, on=True)
    assert titles(native.received(token)) == ["b", "c"]


def test_a_browser_shows_one_of_each_topic(native: Sandbox) -> None:
    """A message replaces the one of its topic that waits; one with a TTL of 0 is gone. It is switched over HTTP."""
    subscription = native.subscription("off")
    endpoint = json.loads(subscription)["endpoint"]
    phone = f"/sandbox/phones/{endpoint}"
    assert call(native, "POST", phone, json={"on": False}).json() == {
        "token": endpoint,
        "received": 0,
        "distinct": 0,
        "kind": "webpush",
        "off": True,
        "waiting": 0,
    }
    base = {"authorization": senders.vapid(native), "content-encoding": "aes128gcm"}
    with senders.client(native) as http:
        for title, headers in (
            ("a", {"topic": "t", "ttl": "60"}),
            ("b", {"topic": "t", "ttl": "60"}),
            ("c", {"ttl": "0"}),
        ):
            _, body = senders.encrypted(subscription, json.dumps({"title": title}).encode())
            assert http.post(endpoint, content=body, headers=base | headers).status_code == 201
    assert call(native, "GET", phone).json()["waiting"] == 1
    assert call(native, "POST", phone, json={"on": True}).json()["received"] == 1
    assert titles(native.received(subscription)) == ["b"]


def test_an_expo_phone_can_be_off_too(native: Sandbox) -> None:
    """Expo's tickets are ok while the phone is off, and it gets its messages later."""
    token = "ExponentPushToken[off]"
    native.switch(token, on=False)
    answer = call(native, "POST", "/--/api/v2/push/send", json={"to": token, "title": "Hola"})
    assert answer.json()["data"]["status"] == "ok"
    assert native.received(token) == []
    native.switch(token, on=True)
    assert titles(native.received(token)) == ["Hola"]


def test_tokens_and_settings_over_http(native: Sandbox) -> None:
    """Somebody at a shell gets tokens, subscriptions and the settings for a sender; what is wrong is said."""
    for service in push_service.known():
        word, home = service.trial.gone, "sandbox" if service.home_option == "environment" else None
        given = {"service": service.name, "name": "zoe", "faults": [word]} | ({"environment": home} if home else {})
        expected = native.token(service.name, "zoe", word, home=home)
        assert call(native, "POST", "/sandbox/tokens", json=given).json() == {"token": expected}
    assert call(native, "GET", "/sandbox/services").json() == native.settings()
    for given in (
        {},
        {"service": "sms", "name": "zoe"},
        {"service": "fcm", "name": "zoe", "faults": ["x"]},
        {"name": "a!b"},
    ):
        assert call(native, "POST", "/sandbox/tokens", json=given).status_code == 400
    assert call(native, "POST", "/sandbox/phones/zoe", json={"on": "yes"}).status_code == 400


def test_faults_over_http(native: Sandbox) -> None:
    """Faults of every service are listed with it, and cleared together."""
    faults = [{"service": "apns", "fault": "goaway", "times": 1}, {"fault": "500"}]
    listed = call(native, "POST", "/sandbox/faults", json=faults).json()["faults"]
    assert [(each.get("service"), each["fault"]) for each in listed] == [(None, "500"), ("apns", "goaway")]
    assert call(native, "DELETE", "/sandbox/faults").json() == {"faults": []}
    assert call(native, "POST", "/sandbox/faults", json={"service": "fcm", "fault": "goaway!"}).status_code == 400


def test_a_folder_keeps_what_was_made(tmp_path: Any) -> None:
    """A sandbox that starts again in its folder has the same keys, addresses and browsers."""
    with Sandbox(native=True, folder=tmp_path) as first:
        before = (
            first.settings(),
            first.subscription("ana"),
            first.apns_key_file.read_bytes(),
            first.ca_file.read_bytes(),
        )
    with Sandbox(native=True, folder=tmp_path) as again:
        after = (
            again.settings(),
            again.subscription("ana"),
            again.apns_key_file.read_bytes(),
            again.ca_file.read_bytes(),
        )
    assert before == after
