"""Phones of every push service before one sandbox: how they are registered, and what each of them got."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import psycopg

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.sandbox import Sandbox
from relevo.sandbox.push_service import phone_key

SERVICE_OF = {"expo": "expo", "android": "fcm", "iphone": "apns", "browser": "webpush"}
"""A kind of phone for each push service, and the service's name."""
ONE_OF_EACH = tuple(SERVICE_OF)
NATIVE_PHONES = tuple(kind for kind in ONE_OF_EACH if kind != "expo")
PARTS = {
    "expo": "default",
    "android": "fcm::default::android",
    "iphone by fcm": "fcm::default::ios",
    "iphone": "apns::default::production",
    "old iphone": "apns::default::sandbox",
    "browser": "webpush::default::127.0.0.1",
}
"""The sending project of each kind of phone."""


def addresses(sandbox: Sandbox) -> dict[str, object]:
    """Return the settings of a worker that sends to the sandbox by every push service."""
    return {
        "expo_base_url": sandbox.url,
        "fcm_base_url": sandbox.fcm,
        "apns_base_url": sandbox.apns,
        "apns_sandbox_base_url": sandbox.apns_sandbox,
        "push_ca_file": sandbox.ca_file,
        "push_projects_file": sandbox.projects_file,
    }


def installation(sandbox: Sandbox, kind: str, name: str, *words: str, **more: Any) -> Installation:
    """Return a phone of a kind; words are faults of its push service in the sandbox."""
    match kind:
        case "expo":
            return Installation("ExponentPushToken[" + "!".join([name, *words]) + "]", provider="expo", **more)
        case "android":
            return Installation(sandbox.fcm_token(name, *words), provider="fcm", platform="android", **more)
        case "iphone by fcm":
            return Installation(sandbox.fcm_token(name, *words), provider="fcm", platform="ios", **more)
        case "iphone":
            return Installation(sandbox.apns_token(name, *words), provider="apns", **more)
        case "browser":
            return Installation(sandbox.subscription(name, *words), provider="webpush", platform="web", **more)
        case _:
            token = sandbox.apns_token(name, *words, environment="sandbox")
            return Installation(token, provider="apns", environment="sandbox", **more)


def register(
    conn: psycopg.Connection[Any], sandbox: Sandbox, kinds: Iterable[str], name: str, *words: str, **more: Any
) -> dict[str, UUID]:
    """Register a phone of each kind, and return them by kind."""
    return {
        kind: verbs.register(conn, installation(sandbox, kind, f"{name}-{kind.replace(' ', '-')}", *words, **more))
        for kind in kinds
    }


def received(sandbox: Sandbox, token: str) -> int:
    """Count the pushes that the phone with this token got."""
    return int(sandbox.phones().get(phone_key(token), {"received": 0})["received"])
