"""FCM, APNs and Web Push as adapters before a sandbox, for the tests of all three."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from relevo.core.known_services import NATIVE
from relevo.core.messages import Draft
from relevo.core.model import Delivery
from relevo.providers.apns.provider import Apns
from relevo.providers.fcm.provider import Fcm
from relevo.providers.push_projects import PushProjects
from relevo.providers.webpush.provider import WebPush
from relevo.sandbox import Sandbox

ANDROID, IOS = "fcm::default::android", "fcm::default::ios"
PRODUCTION, DEVELOPMENT = "apns::default::production", "apns::default::sandbox"
BROWSER = "webpush::default::localhost"
CHECKS = {name: import_module(f"relevo.providers.{name}.credentials").check for name in NATIVE}
PHONE = UUID("8f0b5c6f-6b9e-4f0e-9d0a-72656c65766f")


def projects(sandbox: Sandbox, file: Path | None = None) -> PushProjects:
    """Return the sandbox's credentials, read once, or those of another file."""
    return PushProjects(file, checks=CHECKS) if file else _own(sandbox.projects_file)


@lru_cache(maxsize=1)
def _own(file: Path) -> PushProjects:
    return PushProjects(file, checks=CHECKS)  # to check an RSA key takes 150 ms


@contextmanager
def fcm(sandbox: Sandbox, file: Path | None = None, **more: Any) -> Iterator[Fcm]:
    """Open FCM at the sandbox."""
    usual = {
        "base_url": sandbox.fcm,
        "timeout_ms": 10_000,
        "connect_timeout_ms": 5_000,
        "ca_file": str(sandbox.ca_file),
    }
    made = Fcm(projects(sandbox, file), **usual | more)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def apns(sandbox: Sandbox, file: Path | None = None, **more: Any) -> Iterator[Apns]:
    """Open APNs at the sandbox."""
    usual = {
        "base_url": sandbox.apns,
        "sandbox_base_url": sandbox.apns_sandbox,
        "timeout_ms": 10_000,
        "connect_timeout_ms": 5_000,
        "ca_file": str(sandbox.ca_file),
    }
    made = Apns(projects(sandbox, file), **usual | more)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def webpush(sandbox: Sandbox, file: Path | None = None, **more: Any) -> Iterator[WebPush]:
    """Open Web Push for browsers of the sandbox."""
    usual = {"timeout_ms": 10_000, "connect_timeout_ms": 5_000, "ca_file": str(sandbox.ca_file)}
    made = WebPush(projects(sandbox, file), **usual | more)
    try:
        yield made
    finally:
        made.close()


class Kind(NamedTuple):
    """How the suite of providers tries a push service before the sandbox."""

    project: str
    opened: Callable[..., AbstractContextManager[Any]]
    token: str
    """The sandbox's method that makes a token of a name and faults."""
    faults: Mapping[str, tuple[str, ...]]
    """What the sandbox calls the suite's faults; `hang` and `refused` are the same for all."""


KINDS = {
    "fcm": Kind(
        ANDROID,
        fcm,
        "fcm_token",
        {"gone": ("UNREGISTERED",), "broken": ("502",), "throttled": ("QUOTA_EXCEEDED", "retry-after=7")},
    ),
    "apns": Kind(
        PRODUCTION,
        apns,
        "apns_token",
        {"gone": ("Unregistered",), "broken": ("InternalServerError",), "throttled": ("TooManyRequests",)},
    ),
    "webpush": Kind(
        BROWSER,
        webpush,
        "subscription",
        {"gone": ("410",), "broken": ("503",), "throttled": ("429", "retry-after=7")},
    ),
}
"""By push service; each of the table has one."""
assert tuple(KINDS) == NATIVE


def message(token: str, **more: Any) -> dict[str, Any]:
    """Return a push to one phone, in Expo's words."""
    return {"to": token, "title": "Hola", "body": "¿Qué tal?", "ttl": 60, "data": {"notificationDeliveryId": 7}} | more


def delivery(token: str, provider: str, number: int = 7, **more: Any) -> Delivery:
    """Return a claimed delivery to one phone."""
    made = Delivery(
        date(2026, 11, 17),
        number,
        5,
        PHONE,
        "order",
        provider,
        "default",
        "urgent",
        False,
        "claimed",
        0,
        0,
        None,
        token,
    )
    return made._replace(**more)


def draft(*, silent: bool = False, data: dict[str, Any] | None = None, **push: Any) -> Draft:
    """Return what an event says to every phone."""
    shown = {} if silent else {"title": "Hola", "body": "¿Qué tal?", "sound": "default"}
    return Draft({**shown, **push}, {"notificationEventId": 5, **(data or {})}, None, 3_600, silent)


def instant(text: str) -> datetime:
    """Read a time."""
    return datetime.fromisoformat(text)
