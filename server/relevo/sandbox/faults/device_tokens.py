"""Device tokens of the three services: each holds its phone's name, and the faults it meets after a `!`."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from relevo.core.errors import InvalidInputError
from relevo.sandbox.faults import services as faults
from relevo.sandbox.faults import tokens
from relevo.sandbox.faults.expo import Fault

ENVIRONMENTS = ("production", "sandbox")
PUSH = "/push/"
_MARK = b"relevo:"
_LEAST_BYTES = 32
_KEY_DIGITS = 22


class Device(NamedTuple):
    """What a token says: the phone's name and its faults; `home` is the environment (APNs) or key (Web Push)."""

    name: str
    faults: tuple[Fault, ...]
    home: str = ""

    def belongs_to(self, default: str) -> str:
        """Return the project or topic this phone's app is of."""
        return next((fault.value for fault in self.faults if fault.kind == "project"), default)


def _text(service: str, name: str, words: tuple[str, ...]) -> str:
    """Return what a token of a service holds: a name, and words that the service knows."""
    if not name or "!" in name:
        raise InvalidInputError(f"A phone cannot be called {name[:100]!r}.", hint="Its faults are words of their own.")
    text = "!".join([name, *words])
    _read(service, text)
    return text


@lru_cache(maxsize=10_000)
def _read(service: str, text: str) -> tuple[str, tuple[Fault, ...]]:
    name, *words = text.split("!")
    return name, tuple(faults.parse(service, word) for word in words)


def fcm_token(name: str, *words: str) -> str:
    """Return a registration token, such as `ana!UNREGISTERED`."""
    return _text("fcm", name, words)


def read_fcm(token: str) -> Device:
    """Read a registration token; raises InvalidInputError for a word that does not exist."""
    return Device(*_read("fcm", token))


def apns_token(name: str, *words: str, environment: str = "production") -> str:
    """Return a device token of an environment, in hexadecimal."""
    if environment not in ENVIRONMENTS:
        raise InvalidInputError(f"There is no environment {environment!r}.", hint="Use production or sandbox.")
    text = _text("apns", name, words)
    return (_MARK + f"{environment}:{text}".encode()).ljust(_LEAST_BYTES, b"\0").hex()


@lru_cache(maxsize=10_000)
def read_apns(token: str) -> Device:
    """Read a device token; one not made here is a phone of any environment. Raises ValueError if it is none."""
    raw = bytes.fromhex(token)
    if not raw or not token.isalnum():
        raise ValueError("A device token is hexadecimal.")
    if not raw.startswith(_MARK):
        return Device(token, ())
    environment, _, text = raw.removeprefix(_MARK).rstrip(b"\0").decode("utf-8", "replace").partition(":")
    return Device(*_read("apns", text), environment)


def push_place(name: str, *words: str, key: str) -> str:
    """Return the part of a browser's endpoint behind /push/, bound to a sender's public key."""
    return f"{key_digits(key)}.{quote(_text('webpush', name, words), safe='!*=')}"


def read_push(place: str) -> Device | None:
    """Read the part of an endpoint behind /push/; None if it was not made here."""
    key, dot, text = place.partition(".")
    if not dot or len(key) != _KEY_DIGITS or not text:
        return None
    return Device(*_read("webpush", unquote(text)), key)


def key_digits(key: str) -> str:
    """Return how a sender's public key is written into an endpoint."""
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())[:_KEY_DIGITS].decode()


def phone_key(token: str) -> str:
    """Return by what a phone is known: its token, of a browser the endpoint alone."""
    if token.startswith("{"):
        found = json.loads(token)
        if isinstance(found, dict) and isinstance(found.get("endpoint"), str):
            return str(found["endpoint"])
    return token


def kind_of(key: str) -> str:
    """Return the service of a phone by what it is known by."""
    if tokens.is_token(key):
        return "expo"
    if key.startswith("https://"):
        return "webpush"
    with suppress(ValueError):
        read_apns(key)
        return "apns"
    return "fcm"


def label_of(key: str) -> str:
    """Return how people call a phone: the name in its token, with its faults, if the token was made here."""
    with suppress(ValueError, InvalidInputError):
        if key.startswith("https://") and read_push(place := key.rpartition("/")[2]) is not None:
            return unquote(place.partition(".")[2])
        if (raw := bytes.fromhex(key)).startswith(_MARK):
            environment, _, text = raw.removeprefix(_MARK).rstrip(b"\0").decode("utf-8", "replace").partition(":")
            return f"{text} ({environment})" if environment != ENVIRONMENTS[0] else text
    return key
