"""Device tokens of APNs in the sandbox: in hexadecimal an environment, a phone's name, and its faults."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from relevo.core.errors import InvalidInputError
from relevo.providers.apns.facts import SERVICE as FACTS
from relevo.providers.apns.sandbox.answers import CODES, STATUS, refused
from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.push_service import Device, PushService, Trial
from relevo.sandbox.waiting import Keeping

ENVIRONMENTS = ("production", "sandbox")
_MARK = b"relevo:"
_LEAST_BYTES = 32


class ApnsInSandbox(PushService):
    """APNs, whose tokens are the text in hexadecimal."""

    name = FACTS.name
    addresses = ("apns", "apns_sandbox")
    answers = CODES
    app_word = "topic"
    home_option = "environment"
    keeping = Keeping(needs_place=True)
    keeps = "the newest notification of an app"
    checks = (
        "allows one stream until a connection showed a valid provider token; refuses tokens that are old "
        "or renewed within 20 minutes; checks environment, topic (`com.example.relevo`), push type and "
        "priority"
    )
    trial = Trial(
        "iphone",
        "ios",
        ENVIRONMENTS[0],
        gone="BadDeviceToken",
        broken="InternalServerError",
        throttled=("TooManyRequests",),
        dead="PayloadTooLarge",
        refused="ExpiredProviderToken",
    )

    def token(self, name: str, *words: str, home: str | None = None) -> str:
        """Return a device token of an environment."""
        environment = ENVIRONMENTS[0] if home is None else home
        if environment not in ENVIRONMENTS:
            raise InvalidInputError(f"There is no environment {environment!r}.", hint="Use production or sandbox.")
        return (_MARK + f"{environment}:{self.text(name, words)}".encode()).ljust(_LEAST_BYTES, b"\0").hex()

    def read(self, token: str) -> Device:
        """Read a device token; one not made here is a phone of any environment. Raises ValueError if it is none."""
        found = _inside(token)
        return Device(token, ()) if found is None else self.device(found[1], found[0])

    def owns(self, key: str) -> bool:
        """Return whether it is hexadecimal."""
        with suppress(ValueError):
            self.read(key)
            return True
        return False

    def label(self, key: str) -> str | None:
        """Return the phone's name with its faults, and its environment if that is not the usual one."""
        with suppress(ValueError):
            if (found := _inside(key)) is not None:
                return f"{found[1]} ({found[0]})" if found[0] != ENVIRONMENTS[0] else found[1]
        return None

    def answer(self, code: str) -> HttpResponse | None:
        """Return what Apple answers for a reason: a token that is gone is so since now."""
        return refused(code) if code in STATUS else None


@lru_cache(maxsize=10_000)
def _inside(token: str) -> tuple[str, str] | None:
    """Return environment and text of a token that was made here; raises ValueError if it is not hexadecimal."""
    raw = bytes.fromhex(token)
    if not raw or not token.isalnum():
        raise ValueError("A device token is hexadecimal.")
    if not raw.startswith(_MARK):
        return None
    environment, _, text = raw.removeprefix(_MARK).rstrip(b"\0").decode("utf-8", "replace").partition(":")
    return environment, text


SERVICE = ApnsInSandbox()
