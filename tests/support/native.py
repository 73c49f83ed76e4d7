"""FCM, APNs and Web Push, and any other native push service, as adapters before a sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from relevo.config import Settings
from relevo.core.known_services import NATIVE
from relevo.core.messages import Draft
from relevo.core.model import Delivery
from relevo.core.ports import PushProvider
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


@contextmanager
def opened(
    service: str,
    sandbox: Sandbox,
    *,
    file: Path | None = None,
    timeout_ms: int = 10_000,
    instead: Mapping[str, str] | None = None,
) -> Iterator[PushProvider]:
    """Open a push service at the sandbox as its folder makes it, with other credentials than the sandbox's in `file`,
    and other addresses `instead` of the sandbox's."""

    def moved(text: str) -> str:
        for before, after in (instead or {}).items():
            text = text.replace(before, after)
        return text

    given = {name.lower(): moved(value) for name, value in sandbox.settings().items()}
    settings = Settings(**given, push_request_timeout_ms=timeout_ms)  # type: ignore[arg-type]
    file = file or sandbox.projects_file
    if instead:
        file = file.with_name("moved.json")
        file.write_text(moved(sandbox.projects_file.read_text()))
    made = import_module(f"relevo.providers.{service}.provider").make(projects(sandbox, file), settings, None)
    try:
        yield made
    finally:
        made.close()


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
