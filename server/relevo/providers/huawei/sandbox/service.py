"""Huawei Push Kit in the sandbox: messages for one app's phones, sent with access tokens of its own token endpoint."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from relevo.core.errors import InvalidInputError
from relevo.providers.huawei.sandbox import answers
from relevo.providers.huawei.sandbox.tokens import SERVICE
from relevo.sandbox.answers import HttpResponse, Refused, in_json
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.services.certificates import write_private
from relevo.sandbox.services.exchange import Peer, Request, Service
from relevo.sandbox.services.served import Served
from relevo.sandbox.state import SandboxState
from relevo.sandbox.waiting import Kept

APP_ID = "100000001"
MAX_BYTES = 4_096
_SEND = re.compile(r"/v1/([0-9]{1,20})/messages:send")
_TTL = re.compile(r"([0-9]{1,7})s")
_MOST_TTL_S, _DEFAULT_TTL_S = 1_296_000, 86_400.0
_LIFE_S = 3_600
_MAX_GIVEN = 10_000


class Huawei(Service):
    """The service, with the sandbox's app."""

    name = SERVICE.name
    token_path = "/oauth2/v3/token"  # noqa: S105 a path

    def __init__(self, state: SandboxState, secret: str) -> None:
        self._state = state
        self._secret = secret
        self._until: dict[str, float] = {}

    def expire(self) -> None:
        """Expire every access token that was given out."""
        self._until.clear()

    def answer(self, request: Request, peer: Peer) -> Exchange:  # noqa: ARG002 connections are alike
        """Answer at the token endpoint, or take a message; raises Refused."""
        if request.path == self.token_path:
            return self._give(request)
        found = _SEND.fullmatch(request.path)
        if found is None or request.method != "POST":
            return Exchange(in_json({"code": "HTTP_404", "msg": "There is no such service."}, 404))
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or self._until.get(token.strip(), 0.0) <= time.time():
            return Exchange(answers.CODES["80200003"])
        if found[1] != APP_ID:
            return Exchange(answers.CODES["80200001"])
        message, dry = _read(request.body)
        return self._take(message, dry=dry)

    def _give(self, request: Request) -> Exchange:
        """Give an access token for the app's secret."""
        fault = self._state.rule(self.name, None, "token")
        form = {name: values[-1] for name, values in parse_qs(request.body.decode("latin-1")).items()}
        if form.get("grant_type") != "client_credentials" or form.get("client_id") != APP_ID:
            return Exchange(_refused("grant_type or client_id is wrong"))
        if not secrets.compare_digest(form.get("client_secret", "").encode(), self._secret.encode()):
            return Exchange(_refused("client_secret is wrong"))
        while len(self._until) >= _MAX_GIVEN:
            del self._until[next(iter(self._until))]
        token = f"sandbox-{secrets.token_urlsafe(32)}"
        self._until[token] = time.time() + _LIFE_S
        return SERVICE.spoiled(fault, in_json({"access_token": token, "expires_in": _LIFE_S, "token_type": "Bearer"}))

    def _take(self, message: dict[str, Any], *, dry: bool) -> Exchange:
        [token] = message["token"]
        try:
            device = SERVICE.read(token)
        except InvalidInputError as error:
            return Exchange(answers.answer("80100001", str(error)))
        if not SERVICE.owns(token):
            return Exchange(answers.CODES["80300007"])
        fault = self._state.fault(self.name, token, device.faults, None)
        if not dry and (fault is None or fault.delivers):
            self._state.deliver(self.name, token, _shown(message), Kept(seconds=_ttl_s(message)))
        return SERVICE.spoiled(fault, answers.taken(), device.faults)


def _refused(words: str) -> HttpResponse:
    return in_json({"error": 1101, "sub_error": 20001, "error_description": words}, 400)


def _read(body: bytes) -> tuple[dict[str, Any], bool]:
    """Return a request's message, and whether it is only to be checked; raises Refused."""
    try:
        request = json.loads(body)
        message = request["message"]
        tokens = message["token"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise Refused(answers.answer("80100003", "Illegal payload: it must be JSON with message.token.")) from None
    if not isinstance(tokens, list) or len(tokens) != 1 or not isinstance(tokens[0], str):
        raise Refused(answers.CODES["80300010"])  # the sandbox takes one
    rest = {name: value for name, value in message.items() if name != "token"}
    if len(json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > MAX_BYTES:
        raise Refused(answers.CODES["80300008"])
    _check(message)
    return message, bool(request.get("validate_only"))


def _check(message: dict[str, Any]) -> None:
    """Refuse a message that is not as Huawei wants it."""
    android = message.get("android", {})
    shown = android.get("notification") if isinstance(android, dict) else None
    checks = (
        ("data", isinstance(message.get("data", ""), str)),
        ("android", isinstance(android, dict)),
        ("android.urgency", not isinstance(android, dict) or android.get("urgency", "NORMAL") in ("HIGH", "NORMAL")),
        ("android.ttl", not isinstance(android, dict) or _is_ttl(android.get("ttl"))),
        ("notification.click_action", shown is None or isinstance(shown.get("click_action"), dict)),
        ("notification.title", shown is None or shown.get("title") or shown.get("body")),
    )
    for place, is_good in checks:
        if not is_good:
            raise Refused(answers.answer("80100003", f"Illegal payload, {place} is wrong or missing."))


def _is_ttl(text: object) -> bool:
    found = _TTL.fullmatch(text) if isinstance(text, str) else None
    return text is None or (found is not None and 0 < int(found[1]) <= _MOST_TTL_S)


def _ttl_s(message: dict[str, Any]) -> float:
    ttl = message.get("android", {}).get("ttl")
    return _DEFAULT_TTL_S if ttl is None else float(ttl.removesuffix("s"))


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    """Return what a phone shows: title, body and data, and the message as it came."""
    notice = message.get("android", {}).get("notification") or {}
    try:
        data = json.loads(message.get("data", "{}"))
    except ValueError:
        data = {"text": message["data"]}
    rest = {name: value for name, value in message.items() if name not in ("token", "data")}
    return {"title": notice.get("title"), "body": notice.get("body"), "data": data, "huawei": rest}


class ServedHuawei(Served):
    """Huawei Push Kit, with the secret of the app that sends to it."""

    service = SERVICE

    def __init__(self, state: SandboxState, folder: Path, addresses: Sequence[str]) -> None:
        (self._address,) = addresses
        self._file = folder / "huawei-secret.txt"
        if not self._file.exists():
            write_private(self._file, secrets.token_hex(32).encode())
        self._service = Huawei(state, self._file.read_text())

    @property
    def services(self) -> Sequence[Service]:
        """The answering application."""
        return (self._service,)

    @property
    def entry(self) -> Mapping[str, Any]:
        """The service's entry in PUSH_PROJECTS_FILE."""
        return {
            "app_id": APP_ID,
            "client_secret_file": self._file.name,
            "push_url": self._address,
            "token_url": self._address,
        }

    def expire_access_tokens(self) -> None:
        """Expire every access token that it gave out."""
        self._service.expire()


SERVED = ServedHuawei
