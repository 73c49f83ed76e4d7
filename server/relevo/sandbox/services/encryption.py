"""Decrypting a Web Push message with the browser's private key: RFC 8291 on RFC 8188, one record."""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relevo.sandbox.services.credentials import point

_HEADER = struct.Struct("!16sIB")
_POINT_BYTES = 65
_LAST_RECORD = 2


class CannotDecrypt(Exception):  # noqa: N818 what somebody sent, not an error of ours
    """The body is not encrypted for this browser."""


def decrypt(body: bytes, private: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """Return the text of a message; raises CannotDecrypt."""
    if len(body) < _HEADER.size + _POINT_BYTES:
        raise CannotDecrypt("it is too short")
    salt, record_size, key_size = _HEADER.unpack_from(body)
    if key_size != _POINT_BYTES:
        raise CannotDecrypt("its key is no point of 65 bytes")
    sender = body[_HEADER.size : _HEADER.size + key_size]
    record = body[_HEADER.size + key_size :]
    if len(record) > record_size:
        raise CannotDecrypt("it has more than one record")
    try:
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
    except ValueError:
        raise CannotDecrypt("its key is no point of the curve") from None
    info = b"WebPush: info\0" + point(private.public_key()) + sender
    material = _derive(secret, private.exchange(ec.ECDH(), theirs), info, 32)
    key = _derive(salt, material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, material, b"Content-Encoding: nonce\0", 12)
    try:
        padded = AESGCM(key).decrypt(nonce, record, None).rstrip(b"\0")
    except InvalidTag:
        raise CannotDecrypt("it was encrypted for another key") from None
    if not padded or padded[-1] != _LAST_RECORD:
        raise CannotDecrypt("its padding is wrong")
    return padded[:-1]


def _derive(salt: bytes, material: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(material)
