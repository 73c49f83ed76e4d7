"""A Web Push service in the sandbox: takes what is encrypted for a browser, and lets that browser decrypt it."""

from __future__ import annotations

import json
import re
import secrets
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relevo.core.errors import InvalidInputError
from relevo.providers.webpush.sandbox.answers import refused, taken
from relevo.providers.webpush.sandbox.browsers import Browsers
from relevo.providers.webpush.sandbox.tokens import PUSH, SERVICE, key_digits
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.push_service import Device
from relevo.sandbox.services import json_web_tokens
from relevo.sandbox.services.exchange import Peer, Request, Service
from relevo.sandbox.services.json_web_tokens import BadToken
from relevo.sandbox.services.keys import ec_key, point
from relevo.sandbox.services.served import Served
from relevo.sandbox.state import SandboxState
from relevo.sandbox.waiting import Kept

MAX_BYTES = 4_096
_MAX_TTL_S = 28 * 86_400
_LIFE_S = 86_400
_MAX_KNOWN = 1_000
_VAPID = re.compile(r"vapid\s+(.{1,10000})", re.IGNORECASE)
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,32}")
_URGENCIES = (None, "very-low", "low", "normal", "high")
_HEADER = struct.Struct("!16sIB")
_POINT_BYTES = 65
_LAST_RECORD = 2
_DECLARATIVE = 8030


class CannotDecrypt(Exception):  # noqa: N818 what somebody sent, not an error of ours
    """The body is not encrypted for this browser."""


def decrypt(body: bytes, private: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """Return the text of a message for a browser's key: RFC 8291 on RFC 8188, one record; raises CannotDecrypt."""
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


class WebPush(Service):
    """The service, and the browsers behind it."""

    name = SERVICE.name

    def __init__(self, state: SandboxState, browsers: Browsers, origin: str) -> None:
        self._state = state
        self._browsers = browsers
        self._origin = origin
        self._known: dict[tuple[str, str], float] = {}

    def answer(self, request: Request, peer: Peer) -> Exchange:  # noqa: ARG002 connections are alike
        """Take a message for a browser; raises Refused."""
        place = request.path.removeprefix(PUSH)
        device = _device(place) if request.path.startswith(PUSH) else None
        if device is None:
            raise refused(404)
        if request.method != "POST":
            raise refused(405)
        ttl = _check_headers(request)
        self._check_sender(request.header("authorization"), device)
        if len(request.body) > MAX_BYTES:
            raise refused(413)
        key = f"{self._origin}{request.path}"
        fault = self._state.fault(self.name, key, device.faults, None)
        if fault is None or fault.delivers:
            self._state.deliver(self.name, key, self._shown(place, request), Kept(request.header("topic"), ttl))
        location = f"{self._origin}/message/{secrets.token_urlsafe(16)}"
        return SERVICE.spoiled(fault, taken(location, ttl), device.faults)

    def _check_sender(self, authorization: str | None, device: Device) -> None:
        """Accept the VAPID header: signed by the key this subscription is bound to, for this origin, not for long."""
        found = _VAPID.fullmatch(authorization or "")
        parts = dict(part.strip().partition("=")[::2] for part in found[1].split(",")) if found else {}
        token, key = parts.get("t", ""), parts.get("k", "").strip('"')
        if not token or not key:
            raise refused(401, "The header must be: vapid t=<token>, k=<public key>.")
        if key_digits(key) != device.home:
            raise refused(403)
        if self._known.get((token, key), 0.0) > time.time():
            return
        try:
            until = self._verify(token, key)
        except BadToken as bad:
            raise refused(401, str(bad)) from None
        while len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[token, key] = until

    def _verify(self, token: str, key: str) -> float:
        raw = json_web_tokens.decode(key)
        try:
            json_web_tokens.verify(token, ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw))
        except ValueError:
            raise BadToken("k is no point of the curve P-256.") from None
        _, claims = json_web_tokens.read(token)
        until, now = claims.get("exp"), time.time()
        if claims.get("aud") != self._origin:
            raise BadToken(f"aud must be {self._origin}.")
        if not isinstance(until, int | float) or not now < until <= now + _LIFE_S:
            raise BadToken("exp must be a time within the next 24 hours.")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject.startswith(("mailto:", "https:")) or "localhost" in subject:
            raise BadToken("sub must be a mailto: or https: address where somebody can be reached.")
        return float(until)

    def _shown(self, place: str, request: Request) -> dict[str, Any]:
        """Return what the browser makes of a message: title, body and data, and the message as it came."""
        headers = {name: value for name, value in request.headers if name in ("ttl", "urgency", "topic")}
        private, secret = self._browsers.key(place)
        try:
            plain = decrypt(request.body, private, secret) if request.body else b""
        except CannotDecrypt as error:
            return {"title": None, "body": f"(not decrypted: {error})", "webpush": headers}
        try:
            payload = json.loads(plain)
        except (ValueError, RecursionError):
            payload = plain.decode("utf-8", "replace")
        if not isinstance(payload, dict):
            return {"title": None, "body": str(payload), "webpush": headers}
        declared = payload.get("notification")
        if payload.get("web_push") == _DECLARATIVE and isinstance(declared, dict):
            payload = {**payload, **declared}
        return {"title": None, "body": None} | payload | {"webpush": headers}


def _device(place: str) -> Device | None:
    try:
        return SERVICE.read(place)
    except InvalidInputError as error:
        raise refused(400, str(error)) from None


def _check_headers(request: Request) -> int:
    """Return how many seconds the message may wait, if all headers are as they should be."""
    ttl = request.header("ttl") or ""
    if not (ttl.isascii() and ttl.isdigit() and len(ttl) <= len(str(2**53))):
        raise refused(400, "The header TTL must be a number of seconds.")
    if request.header("urgency") not in _URGENCIES:
        raise refused(400, "The header Urgency must be very-low, low, normal or high.")
    topic = request.header("topic")
    if topic is not None and not _TOPIC.fullmatch(topic):
        raise refused(400, "The header Topic must be up to 32 characters of base64url.")
    if request.body and request.header("content-encoding") != "aes128gcm":
        raise refused(415)
    return min(int(ttl), _MAX_TTL_S)


class ServedWebPush(Served):
    """A Web Push service, its browsers, and the key pair of a site that sends to them."""

    service = SERVICE
    secret_paths = (PUSH,)

    def __init__(self, state: SandboxState, folder: Path, addresses: Sequence[str]) -> None:
        (self._address,) = addresses
        self._file = folder / "vapid.pem"
        self._vapid_key = json_web_tokens.encode(point(ec_key(self._file).public_key()))
        self._browsers = Browsers(folder)
        self._service = WebPush(state, self._browsers, self._address)

    @property
    def services(self) -> Sequence[Service]:
        """The answering application."""
        return (self._service,)

    @property
    def entry(self) -> Mapping[str, Any]:
        """The service's entry in PUSH_PROJECTS_FILE."""
        host = urlsplit(self._address).netloc
        return {"private_key_file": self._file.name, "subject": "mailto:sandbox@example.com", "hosts": [host]}

    @property
    def files(self) -> Mapping[str, Path]:
        """The private key of the site."""
        return {"vapid_key_file": self._file}

    def token(self, name: str, *words: str, home: str | None = None) -> str:
        """Return a browser's subscription as JSON text, bound to a sender's public key (by default the sandbox's)."""
        place = SERVICE.place(name, *words, key=home or self._vapid_key)
        private, secret = self._browsers.key(place)
        keys = {"p256dh": json_web_tokens.encode(point(private.public_key())), "auth": json_web_tokens.encode(secret)}
        found = {"endpoint": f"{self._address}{PUSH}{place}", "keys": keys}
        return json.dumps(found, separators=(",", ":"))


SERVED = ServedWebPush
