"""The encryption of Web Push (RFC 8291): only the browser that subscribed can read what is sent to it.

Each message has a key pair and a salt of its own; what is derived from them and from the browser's keys encrypts it in
one record of `aes128gcm` (RFC 8188).
"""

from __future__ import annotations

import hmac
import os

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAX_BODY_BYTES = 4_096
OVERHEAD_BYTES = 103
"""Salt, record size, key and its length, the mark of the end, and the seal."""
MAX_PLAIN_BYTES = MAX_BODY_BYTES - OVERHEAD_BYTES
POINT_BYTES = 65
SECRET_BYTES = 16
_SALT_BYTES = 16
_KEY_BYTES = 16
_NONCE_BYTES = 12
_END = b"\x02"
_CURVE = ec.SECP256R1()


def encrypt(
    plain: bytes,
    point: bytes,
    secret: bytes,
    *,
    own_key: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return the body for the browser with this public key and secret; raises ValueError if the key is none."""
    own_key = own_key or ec.generate_private_key(_CURVE)
    salt = salt or os.urandom(_SALT_BYTES)
    shared = own_key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point))
    own_point = own_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    material = _expand(_hmac(secret, shared), b"WebPush: info\0" + point + own_point)
    extracted = _hmac(salt, material)
    key = _expand(extracted, b"Content-Encoding: aes128gcm\0")[:_KEY_BYTES]
    nonce = _expand(extracted, b"Content-Encoding: nonce\0")[:_NONCE_BYTES]
    head = salt + MAX_BODY_BYTES.to_bytes(4, "big") + bytes([POINT_BYTES]) + own_point
    return head + AESGCM(key).encrypt(nonce, plain + _END, None)


def _expand(extracted: bytes, info: bytes) -> bytes:
    """Return the first block that HKDF derives, of which none needs more."""
    return _hmac(extracted, info + b"\x01")


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")
