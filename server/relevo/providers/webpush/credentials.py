"""VAPID (RFC 8292): how push services know who sends, by a token signed for each of them with the project's key."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from relevo.providers import es256
from relevo.providers.push_projects import PushProject
from relevo.providers.webpush.entry import WebPushEntry

KEPT_S = 12 * 3_600
"""How long a token is used."""
_LIVES_S = 18 * 3_600
"""How long it is valid: at most 24 hours are allowed, and clocks differ."""


class KeyPair(NamedTuple):
    """A new pair: the private key for the server, the public one for the web page that subscribes."""

    private_pem: str
    public: str


def make_pair() -> KeyPair:
    """Make a pair of keys."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(pem.decode(), public_key(key))


def check(project: PushProject[WebPushEntry]) -> None:
    """Raise ValueError if a project's key cannot sign, or nobody could be reached by its subject."""
    load_key(project.secret)
    host = project.entry.subject.rpartition("@" if project.entry.subject.startswith("mailto:") else "//")[2]
    if host.partition("/")[0].partition(":")[0] in ("", "localhost"):
        raise ValueError("its subject must be an address where somebody can be reached: Apple refuses localhost")


@lru_cache(maxsize=1_000)
def load_key(secret: str) -> ec.EllipticCurvePrivateKey:
    """Return a private key, in PEM or as other tools write it (32 bytes in base64url); raises ValueError."""
    text = secret.strip()
    try:
        key: ec.EllipticCurvePrivateKey
        key = es256.from_pem(text) if text.startswith("-----") else _from_number(es256.unpadded(text))
    except es256.UNREADABLE:
        raise ValueError(
            "its private key is neither PEM nor 32 bytes in base64url; relevo webpush keys makes one"
        ) from None
    if not es256.is_p256(key):
        raise ValueError("its private key is none of the curve P-256; relevo webpush keys makes one")
    return key


def _from_number(number: bytes) -> ec.EllipticCurvePrivateKey:
    if len(number) != es256.NUMBER_BYTES:
        raise ValueError("not 32 bytes")
    return ec.derive_private_key(int.from_bytes(number, "big"), ec.SECP256R1())


def public_key(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public half as browsers take it (`applicationServerKey`)."""
    return es256.base64url(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))


def header(project: PushProject[WebPushEntry], origin: str, now: float) -> str:
    """Return what a project says of itself to a push service at a time: the same header for 12 hours."""
    return _header(project.secret, project.entry.subject, origin, int(now) // KEPT_S * KEPT_S)


@lru_cache(maxsize=1_000)
def _header(secret: str, subject: str, origin: str, made_at: int) -> str:
    key, claims = load_key(secret), {"aud": origin, "exp": made_at + _LIVES_S, "sub": subject}
    return f"vapid t={es256.signed(key, {'typ': 'JWT', 'alg': 'ES256'}, claims)}, k={public_key(key)}"
