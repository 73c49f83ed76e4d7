"""One event with a picture, a link, buttons and fields of one platform, as a phone of each push service gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import relevo
from relevo import Event
from relevo.client.values import Owners
from relevo.core.push_fields import ROUTES, TABLE
from relevo.sandbox import Sandbox
from relevo.sandbox.push_service import phone_key
from support import mixed_phones
from support.sending_worker import Relay

WITHOUT_BUTTONS = [
    route.label for route, cell in zip(ROUTES, TABLE["push.actions"], strict=True) if cell.where == "data.actions"
]
ACTIONS = [{"id": "track", "title": "Track it", "link": "https://shop.example/17/track"}]
PUSH: dict[str, Any] = {
    "image": "https://shop.example/17.png",
    "link": "https://shop.example/17",
    "actions": ACTIONS,
    "icon": "common",
    "sound": "ding",
    "android": {"icon": "ic_order", "color": "#2244ff", "link": "shop://17"},
    "apns": {"sound": "bell.caf", "launchImage": "order", "categoryId": "order"},
    "web": {"icon": "/order.png", "requireInteraction": True},
}


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


def test_each_phone_gets_its_platform_s_fields(relay, sandbox: Sandbox) -> None:
    """An icon for Android and one for browsers, a sound for iPhones; each has the picture, its link and the buttons."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox))
    phones = {
        kind: mixed_phones.installation(sandbox, kind, f"ana-{kind}", owner="ana") for kind in mixed_phones.ONE_OF_EACH
    }
    for phone in phones.values():
        relevo.register(worker.conn, phone)
    preview = relevo.preview(worker.conn, Event("order", "1", "A", audience=Owners("ana"), push=PUSH))
    assert preview.warnings == (
        "push.icon does not reach APNs.",
        "push.sound does not reach Web Push.",
        "push.android.color does not reach Expo, Android.",
        f"{'; '.join(WITHOUT_BUTTONS)} show no buttons by themselves: data has the actions.",
        "Expo, Android show the buttons of push.categoryId, and none without it.",
    )
    worker.enqueue(audience=Owners("ana"), push=PUSH, data={"order": "17"})
    worker.fan_out()
    worker.drain()
    got = {kind: sandbox.received(phone_key(str(phone.token)))[-1] for kind, phone in phones.items()}

    expo = got["expo"]
    assert (expo["icon"], expo["sound"], expo["richContent"]) == ("ic_order", "ding", {"image": PUSH["image"]})
    assert (expo["data"]["url"], expo["data"]["actions"]) == ("shop://17", ACTIONS)
    assert not expo.keys() & {"android", "apns", "web", "link", "actions", "image", "color"}

    shown = got["android"]["fcm"]["android"]["notification"]
    assert (shown["icon"], shown["color"], shown["image"]) == ("ic_order", "#2244ff", PUSH["image"])
    assert (got["android"]["data"]["url"], json.loads(got["android"]["data"]["actions"])) == ("shop://17", ACTIONS)

    text = json.dumps(got["iphone"])
    assert '"sound": "bell.caf"' in text
    assert '"launch-image": "order"' in text
    assert '"category": "order"' in text
    assert got["iphone"]["data"]["url"] == PUSH["link"]

    browser = got["browser"]
    assert (browser["icon"], browser["requireInteraction"], browser["image"]) == ("/order.png", True, PUSH["image"])
    assert (browser["actions"], browser["data"]["url"]) == (ACTIONS, PUSH["link"])
    assert "actions" not in browser["data"]
