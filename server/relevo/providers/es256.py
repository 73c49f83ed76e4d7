"""Keys of the curve P-256 and JSON Web Tokens signed with them, as APNs and Web Push ask for (RFC 7515, 7518)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

NUMBER_BYTES = 32
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
"""Errors that reading a key may raise."""


def from_pem(text: str) -> Any:
    """Return a private key, of whatever kind; raises one of UNREADABLE."""
    return serialization.load_pem_private_key(text.encode(), None)


def is_p256(key: object) -> bool:
    """Return whether this is a private key of the curve P-256."""
    return isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)


def signed(
    key: ec.EllipticCurvePrivateKey, header: Mapping[str, str], claims: Mapping[str, Any], *, same: bool = False
) -> str:
    """Return a JSON Web Token; if the same is wanted of the same input, each time it is made, by RFC 6979."""
    text = ".".join(base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    signature = key.sign(text.encode(), ec.ECDSA(hashes.SHA256(), deterministic_signing=same))
    numbers = b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in decode_dss_signature(signature))
    return f"{text}.{base64url(numbers)}"


def base64url(data: bytes) -> str:
    """Write base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpadded(text: str) -> bytes:
    """Read base64url with or without padding; raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
