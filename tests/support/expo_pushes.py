"""Pushes as they are handed to Expo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relevo.providers.expo.provider import Expo

Make = Callable[..., Expo]


def message(number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a push to one of many phones."""
    return {"to": f"ExponentPushToken[phone{number:017d}]", "title": "Hola", "body": "¿Qué tal?", "ttl": 60} | more


def messages(count: int, **more: Any) -> list[dict[str, Any]]:
    """Return pushes to so many phones."""
    return [message(number, **more) for number in range(count)]
