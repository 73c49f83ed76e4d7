"""Browsers' endpoints in the sandbox: behind /push/ a sender's key, a browser's name, and its faults."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import suppress
from urllib.parse import quote, unquote

from relevo.core.errors import InvalidInputError, RelevoError
from relevo.providers.webpush.facts import SERVICE as FACTS
from relevo.providers.webpush.sandbox.answers import CODES
from relevo.sandbox.push_service import Device, PushService, Trial
from relevo.sandbox.waiting import Keeping

PUSH = "/push/"
_KEY_DIGITS = 22


class WebPushInSandbox(PushService):
    """Web Push, whose tokens are endpoints."""

    name = FACTS.name
    addresses = ("webpush",)
    answers = CODES
    home_option = "key"
    keeping = Keeping()
    keeps = "one message per topic, and the newest 100 without one"
    checks = (
        "requires a TTL and the VAPID key that the subscription is bound to, and decrypts with the "
        "browser's private key"
    )
    trial = Trial(
        "browser",
        "web",
        "127.0.0.1",
        gone="410",
        gone_code="SubscriptionGone",
        broken="503",
        throttled=("429", "retry-after=7"),
        dead="413",
        dead_code="HTTP_413",
        refused="401",
    )

    def token(self, name: str, *words: str, home: str | None = None) -> str:  # noqa: ARG002
        """Refuse it: a subscription holds the service's address."""
        raise RelevoError("This sandbox speaks Expo alone.", hint="Start it as Sandbox(native=True).")

    def place(self, name: str, *words: str, key: str) -> str:
        """Return the part of a browser's endpoint behind /push/, bound to a sender's public key."""
        return f"{key_digits(key)}.{quote(self.text(name, words), safe='!*=')}"

    def read(self, place: str) -> Device | None:
        """Read the part of an endpoint behind /push/; None if it was not made here."""
        key, dot, text = place.partition(".")
        if not dot or len(key) != _KEY_DIGITS or not text:
            return None
        return self.device(unquote(text), key)

    def owns(self, key: str) -> bool:
        """Return whether it is an endpoint."""
        return key.startswith("https://")

    def key(self, token: str) -> str:
        """Return the endpoint of a subscription: by it a browser is known."""
        if token.startswith("{"):
            found = json.loads(token)
            if isinstance(found, dict) and isinstance(found.get("endpoint"), str):
                return str(found["endpoint"])
        return token

    def label(self, key: str) -> str | None:
        """Return the browser's name, with its faults."""
        place = key.rpartition("/")[2]
        with suppress(InvalidInputError):
            if self.owns(key) and self.read(place) is not None:
                return unquote(place.partition(".")[2])
        return None


def key_digits(key: str) -> str:
    """Return how a sender's public key is written into an endpoint."""
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())[:_KEY_DIGITS].decode()


SERVICE = WebPushInSandbox()
