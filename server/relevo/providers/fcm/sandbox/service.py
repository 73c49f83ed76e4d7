"""FCM in the sandbox: messages for one device each, sent with access tokens of its own token endpoint."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import rsa

from relevo.core.errors import InvalidInputError
from relevo.providers.fcm.sandbox import answers, messages
from relevo.providers.fcm.sandbox.account import CLIENT_EMAIL, PROJECT_ID, write_account
from relevo.providers.fcm.sandbox.tokens import SERVICE
from relevo.sandbox.answers import HttpResponse, Refused, in_json
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.push_service import Device
from relevo.sandbox.services import json_web_tokens
from relevo.sandbox.services.exchange import Peer, Request, Service
from relevo.sandbox.services.json_web_tokens import BadToken
from relevo.sandbox.services.served import Served
from relevo.sandbox.state import SandboxState
from relevo.sandbox.waiting import Kept

_SEND = re.compile(r"/v1/projects/([^/]{1,200})/messages:send")
_MINUTE_S = 60.0
_DEFAULT_TTL_S = 28 * 86_400.0
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SCOPES = {"https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform"}
GOOGLE = "https://oauth2.googleapis.com/token"
"""The audience for which Google's own libraries sign, whatever the service account's `token_uri` is."""
_LIFE_S = 3_600
_CLOCK_SKEW_S = 300
_MAX_TOKENS = 10_000


class AccessTokens:
    """Gives out access tokens, and knows those that are valid; beyond 10,000 the oldest are forgotten."""

    def __init__(self, state: SandboxState, key: rsa.RSAPublicKey, key_id: str, address: str) -> None:
        self._state = state
        self._key = key
        self._key_id = key_id
        self._address = address
        self._until: dict[str, float] = {}

    def is_valid(self, token: str) -> bool:
        """Return whether a token was given out and has not expired."""
        return self._until.get(token, 0.0) > time.time()

    def expire(self) -> None:
        """Expire every token that was given out."""
        self._until.clear()

    def answer(self, request: Request) -> Exchange:
        """Give an access token for an assertion, or say what is wrong with it."""
        fault = self._state.rule(SERVICE.name, None, "token")
        if request.method != "POST":
            return Exchange(_refused("invalid_request", "Use POST here."))
        form = {name: values[-1] for name, values in parse_qs(request.body.decode("latin-1")).items()}
        if form.get("grant_type") != _GRANT:
            return Exchange(_refused("unsupported_grant_type", f"grant_type must be {_GRANT}."))
        try:
            self._check(form.get("assertion", ""))
        except BadToken as bad:
            return Exchange(_refused("invalid_grant", str(bad)))
        return SERVICE.spoiled(fault, self._give())

    def _check(self, assertion: str) -> None:
        json_web_tokens.verify(assertion, self._key)
        header, claims = json_web_tokens.read(assertion)
        if header.get("kid") != self._key_id:
            raise BadToken("kid is not the id of the account's key.")
        if claims.get("iss") != CLIENT_EMAIL:
            raise BadToken("iss is not the account's address.")
        if claims.get("aud") not in (GOOGLE, self._address):
            raise BadToken(f"aud must be {GOOGLE} or {self._address}.")
        if not _SCOPES & set(str(claims.get("scope", "")).split()):
            raise BadToken("scope does not hold firebase.messaging.")
        _check_times(claims)

    def _give(self) -> HttpResponse:
        while len(self._until) >= _MAX_TOKENS:
            del self._until[next(iter(self._until))]
        token = f"ya29.sandbox-{secrets.token_urlsafe(32)}"
        self._until[token] = time.time() + _LIFE_S
        return in_json({"access_token": token, "expires_in": _LIFE_S - 1, "token_type": "Bearer"})


def _check_times(claims: dict[str, Any]) -> None:
    issued, expires, now = claims.get("iat"), claims.get("exp"), time.time()
    if not isinstance(issued, int | float) or not isinstance(expires, int | float):
        raise BadToken("iat and exp must be numbers.")
    if issued > now + _CLOCK_SKEW_S or expires < now - _CLOCK_SKEW_S:
        raise BadToken("iat is in the future, or exp in the past: look at the clock.")
    if expires - issued > _LIFE_S:
        raise BadToken("exp must be at most an hour after iat.")


def _refused(error: str, description: str) -> HttpResponse:
    return in_json({"error": error, "error_description": description}, 400)


class Fcm(Service):
    """The service, with the project of the sandbox's service account."""

    name = SERVICE.name
    token_path = "/token"  # noqa: S105 a path

    def __init__(self, state: SandboxState, tokens: AccessTokens) -> None:
        self._state = state
        self.tokens = tokens
        self._minute = 0.0
        self._spent = 0

    def answer(self, request: Request, peer: Peer) -> Exchange:  # noqa: ARG002 connections are alike
        """Answer at the token endpoint, or take a message; raises Refused."""
        if request.path == self.token_path:
            return self.tokens.answer(request)
        found = _SEND.fullmatch(request.path)
        if found is None or request.method != "POST":
            return Exchange(answers.CODES["404"])
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not self.tokens.is_valid(token.strip()):
            return Exchange(answers.CODES["UNAUTHENTICATED"])
        if found[1] != PROJECT_ID:
            return Exchange(answers.CODES["PERMISSION_DENIED"])
        message, dry = messages.read(request.body)
        return self._take(message, dry=dry)

    def _take(self, message: dict[str, Any], *, dry: bool) -> Exchange:
        target = str(message.get("token") or message.get("fid") or "")
        try:
            device = SERVICE.read(target) if target else Device("topic", ())
        except InvalidInputError as error:
            return Exchange(answers.error(400, "INVALID_ARGUMENT", str(error), answers.of_fcm("INVALID_ARGUMENT")))
        self._count()
        fault = self._state.fault(self.name, target, device.faults, PROJECT_ID)
        if fault is None and device.belongs_to(PROJECT_ID) != PROJECT_ID:
            return Exchange(answers.CODES["SENDER_ID_MISMATCH"])
        if target and not dry and (fault is None or fault.delivers):
            self._state.deliver(self.name, target, messages.shown(message), _kept(message))
        name = f"projects/{PROJECT_ID}/messages/0:{time.time_ns() // 1000}%{secrets.token_hex(8)}"
        return SERVICE.spoiled(fault, answers.taken(name), device.faults)

    def _count(self) -> None:
        """Count a message into the project's minute, which is none of the clock's; raises Refused if it is full."""
        limit = self._state.settings.fcm_per_minute
        now = time.monotonic()
        if now - self._minute >= _MINUTE_S:
            self._minute, self._spent = now, 0
        if limit and self._spent >= limit:
            raise Refused(answers.over_quota(PROJECT_ID, limit))
        self._spent += 1


def _kept(message: dict[str, Any]) -> Kept:
    android = message.get("android", {})
    ttl = android.get("ttl")
    return Kept(android.get("collapse_key"), _DEFAULT_TTL_S if ttl is None else float(ttl.removesuffix("s")))


class ServedFcm(Served):
    """FCM, with the account that sends to it."""

    service = SERVICE

    def __init__(self, state: SandboxState, folder: Path, addresses: Sequence[str]) -> None:
        (self._address,) = addresses
        self._file = folder / "service-account.json"
        endpoint = f"{self._address}{Fcm.token_path}"
        self._fcm = Fcm(state, AccessTokens(state, *write_account(self._file, endpoint), endpoint))

    @property
    def services(self) -> Sequence[Service]:
        """The answering application."""
        return (self._fcm,)

    @property
    def entry(self) -> Mapping[str, Any]:
        """The service's entry in PUSH_PROJECTS_FILE."""
        return {"service_account_file": self._file.name}

    @property
    def settings(self) -> Mapping[str, str]:
        """The setting of its address."""
        return {"FCM_BASE_URL": self._address}

    @property
    def files(self) -> Mapping[str, Path]:
        """The account."""
        return {"service_account_file": self._file}

    def expire_access_tokens(self) -> None:
        """Expire every access token that it gave out."""
        self._fcm.tokens.expire()


SERVED = ServedFcm
