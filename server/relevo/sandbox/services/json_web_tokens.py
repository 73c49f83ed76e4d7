"""Reading signed tokens: what they say, and whether the key they name signed it."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

MAX_TOKEN = 8_192
_PARTS = 3
_HALF = 32


class BadToken(Exception):  # noqa: N818 what somebody sent, not an error of ours
    """The text is no token of this form, or another key signed it."""


def encode(raw: bytes) -> str:
    """Write bytes as base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Read base64url without padding; raises BadToken."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise BadToken("It is not base64url.") from None


def read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a token, unverified; raises BadToken."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN or len(parts) != _PARTS:
        raise BadToken("It is not a token of three parts.")
    try:
        header, claims = (json.loads(decode(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        raise BadToken("It is not JSON.") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise BadToken("It holds no objects.")
    return header, claims


def verify(token: str, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> None:
    """Check that the key signed the token: ES256 or RS256, by the kind of key; raises BadToken."""
    header, _ = read(token)
    signed, _, text = token.rpartition(".")
    signature = decode(text)
    try:
        if isinstance(key, rsa.RSAPublicKey):
            _expect(header, "RS256")
            key.verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            return
        _expect(header, "ES256")
        if len(signature) != 2 * _HALF:
            raise BadToken("Its signature is not r and s of 32 bytes each.")
        r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
        key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise BadToken("Another key signed it.") from None


def _expect(header: dict[str, Any], algorithm: str) -> None:
    if header.get("alg") != algorithm:
        raise BadToken(f"Its algorithm is not {algorithm}.")
