"""Phones of every push service before one sandbox: how they are registered, and what each of them got."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import psycopg

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.sandbox import Sandbox, push_service
from relevo.sandbox.push_service import phone_key

TRIALS = {each.trial.phone: each.trial for each in push_service.known()}
SERVICE_OF = {"expo": "expo", **{each.trial.phone: each.name for each in push_service.known()}}
"""A kind of phone for each push service, and the service's name."""
ONE_OF_EACH = tuple(SERVICE_OF)
NATIVE_PHONES = tuple(kind for kind in ONE_OF_EACH if kind != "expo")
PARTS = {
    "expo": "default",
    "iphone by fcm": "fcm::default::ios",
    "old iphone": "apns::default::sandbox",
    **{kind: "::".join(filter(None, (SERVICE_OF[kind], "default", each.part))) for kind, each in TRIALS.items()},
}
"""The sending project of each kind of phone."""


def addresses(sandbox: Sandbox) -> dict[str, object]:
    """Return the settings of a worker that sends to the sandbox by every push service."""
    files = {"push_ca_file": sandbox.ca_file, "push_projects_file": sandbox.projects_file}
    return {"expo_base_url": sandbox.url, **{k.lower(): v for k, v in sandbox.settings().items()}, **files}


def installation(sandbox: Sandbox, kind: str, name: str, *words: str, **more: Any) -> Installation:
    """Return a phone of a kind; words are faults of its push service in the sandbox."""
    match kind:
        case "expo":
            return Installation("ExponentPushToken[" + "!".join([name, *words]) + "]", provider="expo", **more)
        case "iphone by fcm":
            return Installation(sandbox.fcm_token(name, *words), provider="fcm", platform="ios", **more)
        case "old iphone":
            token = sandbox.apns_token(name, *words, environment="sandbox")
            return Installation(token, provider="apns", environment="sandbox", **more)
        case _:
            token = sandbox.token(SERVICE_OF[kind], name, *words)
            return Installation(token, provider=SERVICE_OF[kind], platform=TRIALS[kind].platform, **more)


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
