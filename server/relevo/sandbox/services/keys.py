"""Keys that the sandbox makes for senders, each kept in a file for its next start."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from relevo.sandbox.services.certificates import private_pem, write_private


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as its uncompressed point of 65 bytes."""
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def ec_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key of a file; if there is none yet, a new one is written."""
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if isinstance(found, ec.EllipticCurvePrivateKey):
            return found
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(file, private_pem(key))
    return key
