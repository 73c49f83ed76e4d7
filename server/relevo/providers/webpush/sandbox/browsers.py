"""The browsers of the sandbox: each has a private key and a secret, derived from its name."""

from __future__ import annotations

import secrets
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relevo.sandbox.services.certificates import write_private

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Browsers:
    """The browsers' keys; they all come from one random number, which is kept in a folder."""

    def __init__(self, folder: Path) -> None:
        seed_file = folder / "browsers.seed"
        if not seed_file.exists():
            write_private(seed_file, secrets.token_bytes(32))
        self._seed = seed_file.read_bytes()

    def key(self, name: str) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        """Return a browser's private key and its secret; the same name has the same ones, also tomorrow."""
        derived = HKDF(hashes.SHA256(), 64, None, name.encode("utf-8", "surrogateescape")).derive(self._seed)
        number = int.from_bytes(derived[:48], "big") % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1()), derived[48:]
