"""FCM: messages for one device each, sent with access tokens of its own token endpoint."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

from relevo.core.errors import InvalidInputError
from relevo.sandbox.answers import Answer
from relevo.sandbox.services import device_tokens, fcm_answers, fcm_messages
from relevo.sandbox.services.access_tokens import AccessTokens
from relevo.sandbox.services.credentials import PROJECT_ID
from relevo.sandbox.services.exchange import Outcome, Peer, Request, Service
from relevo.sandbox.services.faults import delivers
from relevo.sandbox.services.state import State, spoiled
from relevo.sandbox.waiting import Kept

_SEND = re.compile(r"/v1/projects/([^/]{1,200})/messages:send")
_MINUTE_S = 60.0
_DEFAULT_TTL_S = 28 * 86_400.0


class Fcm(Service):
    """The service, with the project of the sandbox's service account."""

    name = "fcm"

    def __init__(self, state: State, origin: str) -> None:
        self._state = state
        self.tokens = AccessTokens(state, f"{origin}/token")
        self._minute = 0.0
        self._spent = 0

    def answer(self, request: Request, peer: Peer) -> Outcome:  # noqa: ARG002 connections are alike
        """Answer at the token endpoint, or take a message."""
        if request.path == "/token":
            return self.tokens.answer(request)
        found = _SEND.fullmatch(request.path)
        if found is None or request.method != "POST":
            return Outcome(fcm_answers.CODES["404"])
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not self.tokens.is_valid(token.strip()):
            return Outcome(fcm_answers.CODES["UNAUTHENTICATED"])
        if found[1] != PROJECT_ID:
            return Outcome(fcm_answers.CODES["PERMISSION_DENIED"])
        try:
            message, dry = fcm_messages.read(request.body)
        except fcm_messages.BadMessage as bad:
            return Outcome(fcm_answers.bad_request(bad.field, bad.description))
        return self._take(message, dry=dry)

    def _take(self, message: dict[str, Any], *, dry: bool) -> Outcome:
        target = str(message.get("token") or message.get("fid") or "")
        try:
            device = device_tokens.read_fcm(target) if target else device_tokens.Device("topic", ())
        except InvalidInputError as error:
            return Outcome(
                fcm_answers.error(400, "INVALID_ARGUMENT", str(error), fcm_answers.of_fcm("INVALID_ARGUMENT"))
            )
        if (refused := self._over_quota()) is not None:
            return Outcome(refused)
        fault = self._state.fault("fcm", target, device.faults, PROJECT_ID)
        if fault is None and device.belongs_to(PROJECT_ID) != PROJECT_ID:
            return Outcome(fcm_answers.CODES["SENDER_ID_MISMATCH"])
        if target and not dry and delivers(fault):
            self._state.deliver("fcm", target, fcm_messages.shown(message), _kept(message))
        name = f"projects/{PROJECT_ID}/messages/0:{time.time_ns() // 1000}%{secrets.token_hex(8)}"
        return spoiled("fcm", fault, fcm_answers.taken(name), device)

    def _over_quota(self) -> Answer | None:
        """Count a message into the project's minute; it is not aligned to the clock's."""
        limit = self._state.sandbox.settings.fcm_per_minute
        now = time.monotonic()
        if now - self._minute >= _MINUTE_S:
            self._minute, self._spent = now, 0
        if limit and self._spent >= limit:
            return fcm_answers.over_quota(PROJECT_ID, limit)
        self._spent += 1
        return None


def _kept(message: dict[str, Any]) -> Kept:
    android = message.get("android", {})
    ttl = android.get("ttl")
    return Kept(android.get("collapse_key"), _DEFAULT_TTL_S if ttl is None else float(ttl.removesuffix("s")))
