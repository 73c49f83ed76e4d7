"""A provider of identities that tests bend: it signs what it is told to sign, also what no provider may."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

CLIENT, SECRET = "relevo", "s3cret-of-the-client"
PLACE = "/login/oidc/callback"


class IdentityProvider:
    """Answers as a provider on loopback; each login is one call of `log_in`."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
        self.signs_with: Any = None
        """Another key than the published one."""
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.claims: dict[str, Any] = {}
        """What the next ID token says besides, or other than, what is right; None leaves a claim out."""
        self.about: dict[str, Any] = {}
        """What the next answer about the person says; nothing: there is no such answer."""
        self.metadata: dict[str, Any] = {}
        self.refuses = ""
        """The error with which the next code is refused."""
        self.delay_s = 0.0
        self.challenge = self.nonce = ""
        self.asked: list[str] = []
        self.authorised: list[str] = []
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request of Relevo's."""
        if path == "/.well-known/openid-configuration":
            return 200, self._describe()
        if path == "/keys":
            return 200, {"keys": [self.key.as_dict(private=False)]}
        if path == "/me":
            return 200, self.about
        if self.refuses:
            return 400, {"error": self.refuses}
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if proof != self.challenge:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": self.sign()}

    def _describe(self) -> dict[str, Any]:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        }
        return told | ({"userinfo_endpoint": f"{self.url}/me"} if self.about else {}) | self.metadata

    def sign(self) -> str:
        """Return an ID token."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url, "aud": CLIENT, "sub": "ana-1", "name": "Ana Díaz", "groups": ["ops"], "nonce": self.nonce,
            "iat": now, "exp": now + 300,
        }  # fmt: skip
        claims = {name: value for name, value in (claims | self.claims).items() if value is not None}
        if self.header["alg"] == "none":
            parts = (json.dumps(each).encode() for each in (self.header, claims))
            return ".".join([*(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts), ""])
        key = self.signs_with or self.key
        return jwt.encode(self.header, claims, key, algorithms=[self.header["alg"]])


class _Handler(BaseHTTPRequestHandler):
    provider: IdentityProvider

    def _answer(self) -> None:
        provider = self.provider
        time.sleep(provider.delay_s)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        provider.asked.append(urlsplit(self.path).path)
        provider.authorised.append(self.headers.get("Authorization", ""))
        form = {name: values[0] for name, values in parse_qs(body).items()}
        status, told = provider.answer(urlsplit(self.path).path, form)
        written = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    do_GET = do_POST = _answer  # noqa: N815 names of the standard library

    def log_message(self, *_args: object) -> None:
        """Write no log."""


def symmetric_key() -> OctKey:
    """Return the client's secret as a key: whoever knows it could sign."""
    return OctKey.import_key(SECRET)


def another_key() -> RSAKey:
    """Return a key that the provider did not publish."""
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


def elliptic_key() -> ECKey:
    """Return the key of a provider that changed its kind of keys."""
    return ECKey.generate_key("P-256", {"kid": "two", "use": "sig", "alg": "ES256"})
