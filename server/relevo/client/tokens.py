"""Checks of a push token, by its provider; the SQL functions make the same checks with the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from relevo.core.known_services import EXPO, NATIVE, SERVICES, WITH_ENVIRONMENT, WITH_HOST, listed

_MOST_BYTES = 4096
_MOST_ENDPOINT, _MOST_HOST = 2048, 253
_NO_TEXT = f"token must be text of 1 to {_MOST_BYTES} bytes without control characters"
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ENVIRONMENTS = ("production", "sandbox")
_EXPO_WORD = re.compile(r"Expo(nent)?PushToken")
_FORMS = {each.name: re.compile(each.token.form) for each in SERVICES.values() if each.token.form}
_PROJECT = re.compile(r"[^:]{1,100}", re.DOTALL)
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ENDPOINT = re.compile(
    rf"(https://(?P<host>{_LABEL}(\.{_LABEL})*|\[[0-9a-f:.]+\])|http://(?P<near>localhost|127\.0\.0\.1|\[::1\]))"
    r"(:(?P<port>[0-9]{1,5}))?(/[!#-\[\]-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_P256DH = re.compile("B[A-P][A-Za-z0-9_-]{84}[AEIMQUYcgkosw048]")
_AUTH = re.compile("[A-Za-z0-9_-]{21}[AQgw]")
_BASE64URL = str.maketrans("+/", "-_")


class Subscription(NamedTuple):
    """A Web Push subscription: where its pushes go, and its keys in base64url."""

    endpoint: str
    p256dh: str
    auth: str

    @property
    def host(self) -> str:
        """Return the host of the endpoint in small letters; empty if it is no address."""
        found = _ENDPOINT.fullmatch(self.endpoint)
        host = (found["host"] or found["near"]).lower() if found else ""
        return host if len(host) <= _MOST_HOST else ""

    @property
    def port(self) -> int | None:
        """Return the port of the endpoint, if it names one."""
        found = _ENDPOINT.fullmatch(self.endpoint)
        return int(found["port"]) if found and found["port"] else None


def complaints(given: Mapping[str, Any]) -> Iterator[str]:
    """Complain about an installation's token and what goes with it; what only the database knows is left to it."""
    provider, environment = given.get("provider"), given.get("environment")
    if "token" in given:
        yield from _token(given["token"], provider)
    if environment is not None and environment not in _ENVIRONMENTS:
        yield "environment must be production or sandbox"
    elif environment is not None and provider not in (None, *WITH_ENVIRONMENT):
        yield f"environment goes with provider {listed(WITH_ENVIRONMENT)} alone"
    if provider in NATIVE and "project" in given and not _PROJECT.fullmatch(given["project"]):
        yield f"project must be text of 1 to 100 characters without a colon, with provider {provider}"


def subscription(token: str) -> Subscription | None:
    """Read a Web Push subscription in JSON, as a browser's `toJSON()` writes it; None if it is none."""
    try:
        given = json.loads(token)
        parts = [given["endpoint"], *(given["keys"][name] for name in ("p256dh", "auth"))]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not all(isinstance(part, str) for part in parts):
        return None
    endpoint, *keys = parts
    return Subscription(endpoint, *(key.translate(_BASE64URL).rstrip("=") for key in keys))


def _token(token: object, provider: str | None) -> Iterator[str]:
    """Complain about a token; where no provider is said it is that of before, which the database knows.

    A token that begins as Expo's do is no other provider's, though.
    """
    if not isinstance(token, str) or not 1 <= len(token.encode("utf-8", "replace")) <= _MOST_BYTES:
        yield _NO_TEXT
        return
    whose = EXPO if provider is None and _EXPO_WORD.match(token) else provider
    is_malformed = whose in _FORMS and not _FORMS[whose].fullmatch(token)
    if whose == EXPO and is_malformed:
        yield SERVICES[EXPO].token.complaint
    elif whose not in WITH_HOST and _CONTROL.search(token):
        yield _NO_TEXT
    elif whose in _FORMS and is_malformed:
        yield SERVICES[whose].token.complaint
    elif whose in WITH_HOST:
        yield from _subscription(subscription(token))


def _subscription(given: Subscription | None) -> Iterator[str]:
    if given is None:
        yield "token must be a Web Push subscription in JSON, with endpoint, keys.p256dh and keys.auth"
    elif len(given.endpoint) > _MOST_ENDPOINT or not given.host:
        yield f"token.endpoint must be an https address of at most {_MOST_ENDPOINT} characters"
    elif not _P256DH.fullmatch(given.p256dh):
        yield "token.keys.p256dh must be a P-256 point: 65 bytes in base64url, the first of them 4"
    elif not _AUTH.fullmatch(given.auth):
        yield "token.keys.auth must be 16 bytes in base64url"
