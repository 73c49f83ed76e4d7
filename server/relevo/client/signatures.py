"""Signatures by which an app's server vouches for a phone, and by which it knows that a webhook is Relevo's.

For a phone: which installation, token and owner; good once, for minutes. HMAC-SHA256 over version, project,
installation, owner, provider, the token's hash, issue, expiry and nonce, one a line; the key is named, so that two are
valid while one takes over from the other.
A webhook is signed as Standard Webhooks say: HMAC-SHA256 over id, time and body, once for each secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from relevo.core.errors import InvalidInputError, InvalidSignatureError

MAX_LIFETIME_S = 600
FORM = "v2.KEY.ISSUED.EXPIRES.NONCE.HEX"
_VERSION = "v2"
_AHEAD_S = 60  # so far a signer's clock may be ahead of ours
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_WRITTEN = re.compile(
    r"v2\.(?P<key>[A-Za-z0-9_-]{1,50})\.(?P<issued>[0-9]{1,12})\.(?P<expires>[0-9]{1,12})"
    r"\.(?P<nonce>[A-Za-z0-9_-]{16,64})\.(?P<digest>[0-9a-f]{64})"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LEAST_BYTES, _MOST_BYTES = 32, 64
_LEAST_WEBHOOK_BYTES = 24
_FORM = "whsec_…, base64 of 24 to 64 bytes"
_MOST_SIGNATURES = 20


@dataclass(frozen=True)
class SigningKey:
    """A secret that an app's server signs with; for one project alone, if it says so."""

    secret: bytes = field(repr=False)
    project: str | None = None


@dataclass(frozen=True)
class Claim:
    """The values that a signature covers, as the phone sends them; None for a value that the phone does not send."""

    project: str
    installation_id: UUID
    owner: str | None
    provider: str | None
    token: str | None = field(repr=False)


@dataclass(frozen=True)
class Signed:
    """A signature that holds: what it is known by when it comes again, and how long it would hold."""

    digest: bytes = field(repr=False)
    expires: int


def sign_installation(
    key_name: str,
    secret: str,
    *,
    installation_id: UUID,
    token: str | None,
    owner: str | None = None,
    provider: str | None = None,
    project: str = "default",
    lifetime_s: int = MAX_LIFETIME_S,
    now: float | None = None,
) -> str:
    """Sign, on the app's server, for a phone whose user it knows; the phone sends it once, as X-Relevo-Signature.

    `key_name` and `secret` are those of HTTP_SIGNING_KEYS_FILE; `secret` is base64 of 32 to 64 bytes. Token, owner and
    provider are those the phone sends in the same call: None for what it leaves out.
    """
    if not _KEY_NAME.fullmatch(key_name):
        raise InvalidInputError("key_name must be letters, digits, dashes and underscores.", hint="At most 50.")
    if not 0 < lifetime_s <= MAX_LIFETIME_S:
        raise InvalidInputError(f"lifetime_s must be between 1 and {MAX_LIFETIME_S}.", hint="Sign when it is needed.")
    claim = Claim(project, installation_id, owner, provider, token)
    if not project or "" in (owner, provider, token) or not _is_plain(claim):
        raise InvalidInputError(
            "project, owner, provider and token must be text without control characters.", hint="Mend and sign."
        )
    issued = int(time.time() if now is None else now)
    expires, nonce = issued + lifetime_s, secrets.token_urlsafe(16)
    digest = _digest(_secret_bytes(secret), claim, issued, expires, nonce)
    return f"{_VERSION}.{key_name}.{issued}.{expires}.{nonce}.{digest}"


def is_of_old_form(signature: str) -> bool:
    """Return whether this is of the first form, which covered neither provider nor token."""
    return signature.startswith("v1.")


def could_hold(keys: Mapping[str, SigningKey], signature: str, now: float) -> bool:
    """Return whether a signature is of our form, of one of our keys, and in time: all but whether it fits a claim."""
    found = _WRITTEN.fullmatch(signature)
    return found is not None and found["key"] in keys and _is_in_time(int(found["issued"]), int(found["expires"]), now)


def _is_in_time(issued: int, expires: int, now: float) -> bool:
    return issued - _AHEAD_S <= now < expires <= issued + MAX_LIFETIME_S


def check_signature(keys: Mapping[str, SigningKey], signature: str, claim: Claim, now: float) -> Signed | None:
    """Return a signature that vouches for just this, of one of our keys, neither too old nor too new; else None."""
    found = _WRITTEN.fullmatch(signature)
    if found is None or not _is_plain(claim):
        return None
    key = keys.get(found["key"])
    issued, expires = int(found["issued"]), int(found["expires"])
    wanted = _digest(key.secret if key else b"", claim, issued, expires, found["nonce"])
    fits = hmac.compare_digest(wanted, found["digest"]) and key is not None
    if fits and _is_in_time(issued, expires, now) and key is not None and key.project in (None, claim.project):
        return Signed(bytes.fromhex(wanted), expires)
    return None


def read_keys(text: str) -> dict[str, SigningKey]:
    """Read HTTP_SIGNING_KEYS_FILE: {"2026-11": {"secret": "…", "project": "…"}}; raises ValueError in a sentence."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict) or not document:
        raise ValueError("it must be an object of keys by name")
    return {name: _key(name, given) for name, given in document.items()}


def _key(name: str, given: object) -> SigningKey:
    if not _KEY_NAME.fullmatch(name):
        raise ValueError("a key's name must be 1 to 50 letters, digits, dashes and underscores")
    secret, project = (given.get("secret"), given.get("project")) if isinstance(given, dict) else (None, None)
    if not isinstance(secret, str) or not isinstance(project, str | None):
        raise ValueError(f"{name} needs a secret, base64 of 32 to 64 bytes, and may have a project")  # noqa: TRY004
    try:
        return SigningKey(_secret_bytes(secret), project)
    except InvalidInputError:
        raise ValueError(f"{name} needs a secret, base64 of 32 to 64 bytes") from None


def _secret_bytes(secret: str) -> bytes:
    if (raw := _decoded(secret, _LEAST_BYTES)) is None:
        raise InvalidInputError("secret must be base64 of 32 to 64 bytes.", hint="openssl rand -base64 32 makes one.")
    return raw


def _decoded(secret: str, least: int) -> bytes | None:
    """Return what base64 holds, if it is that and of a fitting length."""
    try:
        raw = base64.b64decode(secret, validate=True)
    except ValueError:
        return None
    return raw if least <= len(raw) <= _MOST_BYTES else None


def _is_plain(claim: Claim) -> bool:
    """Return whether no line of what is signed can hold another."""
    return not any(_CONTROL.search(each or "") for each in (claim.project, claim.owner, claim.provider, claim.token))


def _digest(secret: bytes, claim: Claim, issued: int, expires: int, nonce: str) -> str:
    token = hashlib.sha256(claim.token.encode()).hexdigest() if claim.token is not None else ""
    whose = (claim.project, str(claim.installation_id), claim.owner or "", claim.provider or "", token)
    lines = (_VERSION, *whose, str(issued), str(expires), nonce)
    return hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def verify_webhook(
    body: bytes, headers: Mapping[str, str], *secrets: str, tolerance_s: int = 300, now: float | None = None
) -> dict[str, Any]:
    """Return what a webhook of Relevo says, on the app's server, or raise InvalidSignatureError.

    `body` is what was received, byte by byte, before any JSON was read of it. `secrets` are those of WEBHOOKS_FILE that
    this server knows (whsec_…): two while one takes over from the other. A repeat has the same `webhook-id`.
    """
    if not secrets:
        raise InvalidInputError("verify_webhook needs a secret.", hint="It is the one of WEBHOOKS_FILE, whsec_….")
    keys = [_known_secret(secret) for secret in secrets]
    given = {name.lower(): value for name, value in headers.items()}
    name, at, signed = (given.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    if not name or not re.fullmatch("[0-9]{1,12}", at):
        raise InvalidSignatureError(
            "This is not a webhook: webhook-id or webhook-timestamp is missing.", hint="Refuse it."
        )
    if abs(int(at) - (time.time() if now is None else now)) > tolerance_s:
        raise InvalidSignatureError(
            "The webhook was signed too long ago, or in the future.",
            hint="Refuse the request, and check this server's clock.",
        )
    wanted = [sign_webhook(key, name, at, body).encode() for key in keys]
    offered = [each.encode() for each in signed.split(" ")[:_MOST_SIGNATURES]]
    if not any(hmac.compare_digest(one, other) for one in wanted for other in offered):
        raise InvalidSignatureError("The webhook is signed with none of these secrets.", hint="Refuse it.")
    return _json_object(body)


def sign_webhook(secret: bytes, name: str, at: str, body: bytes) -> str:
    """Return the signature of a webhook with one secret."""
    digest = hmac.new(secret, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def webhook_secret(secret: object) -> bytes:
    """Read a webhook's secret; raises ValueError with the form that it must have."""
    given = secret.removeprefix("whsec_") if isinstance(secret, str) and secret.startswith("whsec_") else ""
    if (raw := _decoded(given, _LEAST_WEBHOOK_BYTES)) is None:
        raise ValueError(_FORM)
    return raw


def _known_secret(secret: str) -> bytes:
    try:
        return webhook_secret(secret)
    except ValueError as error:
        raise InvalidInputError(f"a secret must be like {error}.", hint="It is that of WEBHOOKS_FILE.") from None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidSignatureError("The webhook is signed, and no JSON object.", hint="Refuse it.")
    return document
