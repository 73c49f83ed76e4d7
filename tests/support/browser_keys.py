"""A browser that subscribed, its keys, and how they are written."""

from __future__ import annotations

import base64
import json
from typing import Any

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SUBJECT = "mailto:ops@example.com"


def base64url(data: bytes) -> str:
    """Write base64url as browsers do."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Read it."""
    return base64.urlsafe_b64decode(text + "==")


class Browser:
    """A browser that subscribed."""

    def __init__(self, endpoint: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = b"0123456789abcdef"
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": base64url(point), "auth": base64url(self.secret)}
        self.token = json.dumps({"endpoint": endpoint, "keys": keys}, separators=(",", ":"))

    def read(self, body: bytes) -> dict[str, Any]:
        """Decrypt a push, by other people's code."""
        plain = http_ece.decrypt(body, private_key=self.key, auth_secret=self.secret, version="aes128gcm")
        return dict(json.loads(plain))
