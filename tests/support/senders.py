"""What senders do, written for these tests alone: tokens signed, messages encrypted, requests over HTTP/2."""

from __future__ import annotations

import base64
import json
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import http_ece
import httpx
import requests
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from relevo.sandbox import Sandbox
from support.processes import PATIENCE_S

KEY_ID, TEAM_ID, TOPIC = "SANDBOXKEY", "SANDBOXTEA", "com.example.relevo"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"


def b64(raw: bytes) -> str:
    """Write base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    """Read base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signed(pem: bytes, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Return a token signed with the key: ES256 or RS256."""
    key: Any = serialization.load_pem_private_key(pem, None)
    algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
    text = ".".join(b64(json.dumps(part).encode()) for part in ({"alg": algorithm, **header}, claims))
    if algorithm == "RS256":
        return f"{text}.{b64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def client(sandbox: Sandbox) -> httpx.Client:
    """Return an HTTP/2 client that trusts the sandbox's authority alone."""
    context = ssl.create_default_context(cafile=str(sandbox.ca_file))
    return httpx.Client(http2=True, verify=context, trust_env=False, timeout=PATIENCE_S)


def http1_post(sandbox: Sandbox, url: str, **more: Any) -> requests.Response:
    """Send a request over HTTP/1.1."""
    with requests.Session() as session:
        session.trust_env = False
        return session.post(url, verify=str(sandbox.ca_file), timeout=PATIENCE_S, **more)


def assertion(sandbox: Sandbox, **changes: Any) -> str:
    """Return what a service account signs to get an access token."""
    account = json.loads(sandbox.service_account_file.read_text())
    now = int(time.time())
    claims = {
        "iss": account["client_email"],
        "scope": SCOPE,
        "aud": account["token_uri"],
        "iat": now,
        "exp": now + 3600,
        **changes,
    }
    return signed(account["private_key"].encode(), {"kid": account["private_key_id"]}, claims)


def access_token(sandbox: Sandbox) -> str:
    """Return a new access token."""
    answer = http1_post(sandbox, f"{sandbox.fcm}/token", data={"grant_type": GRANT, "assertion": assertion(sandbox)})
    return str(answer.json()["access_token"])


def provider_token(key_file: Path, *, kid: str = KEY_ID, team: str = TEAM_ID, age_s: float = 0) -> str:
    """Return a provider token for APNs."""
    return signed(key_file.read_bytes(), {"kid": kid}, {"iss": team, "iat": int(time.time() - age_s)})


def vapid(sandbox: Sandbox, *, key_file: Path | None = None, **changes: Any) -> str:
    """Return the header by which a sender of Web Push says who it is."""
    pem = (key_file or sandbox.vapid_key_file).read_bytes()
    key: Any = serialization.load_pem_private_key(pem, None)
    claims = {"aud": sandbox.webpush, "exp": int(time.time()) + 3600, "sub": "mailto:ops@example.com", **changes}
    return f"vapid t={signed(pem, {'typ': 'JWT'}, claims)}, k={public(key)}"


def public(key: Any) -> str:
    """Return a key's public point in base64url."""
    raw = key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    return b64(raw)


def encrypted(subscription: str, text: bytes) -> tuple[str, bytes]:
    """Return the endpoint of a subscription and a body that only its browser can read."""
    found = json.loads(subscription)
    body = http_ece.encrypt(
        text,
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=unb64(found["keys"]["p256dh"]),
        auth_secret=unb64(found["keys"]["auth"]),
        version="aes128gcm",
    )
    return found["endpoint"], body


def host_of(url: str) -> tuple[str, int]:
    """Return host and port of an address."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 443
