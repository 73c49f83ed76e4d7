"""The token endpoint: an assertion signed by the service account's key is changed for an access token."""

from __future__ import annotations

import secrets
import time
from typing import Any
from urllib.parse import parse_qs

from relevo.sandbox.answers import Answer, in_json
from relevo.sandbox.services import json_web_tokens
from relevo.sandbox.services.credentials import CLIENT_EMAIL
from relevo.sandbox.services.exchange import Outcome, Request
from relevo.sandbox.services.json_web_tokens import BadToken
from relevo.sandbox.services.state import State, spoiled

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SCOPES = {"https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform"}
GOOGLE = "https://oauth2.googleapis.com/token"
"""What Google's own libraries sign for, whatever the service account's `token_uri` is."""
_LIFE_S = 3_600
_CLOCK_SKEW_S = 300
_MAX_TOKENS = 10_000


class AccessTokens:
    """Gives out access tokens, and knows those that are valid; beyond 10,000 the oldest are forgotten."""

    def __init__(self, state: State, address: str) -> None:
        self._state = state
        self._address = address
        self._until: dict[str, float] = {}

    def is_valid(self, token: str) -> bool:
        """Return whether a token was given out and has not expired."""
        return self._until.get(token, 0.0) > time.time()

    def expire(self) -> None:
        """Let every token that was given out expire now."""
        self._until.clear()

    def answer(self, request: Request) -> Outcome:
        """Give an access token for an assertion, or say what is wrong with it."""
        fault = self._state.rule("fcm", None, "token")
        if request.method != "POST":
            return Outcome(_refused("invalid_request", "Use POST here."))
        form = {name: values[-1] for name, values in parse_qs(request.body.decode("latin-1")).items()}
        if form.get("grant_type") != _GRANT:
            return Outcome(_refused("unsupported_grant_type", f"grant_type must be {_GRANT}."))
        try:
            self._check(form.get("assertion", ""))
        except BadToken as bad:
            return Outcome(_refused("invalid_grant", str(bad)))
        return spoiled("fcm", fault, self._give())

    def _check(self, assertion: str) -> None:
        credentials = self._state.credentials
        json_web_tokens.verify(assertion, credentials.service_account_key)
        header, claims = json_web_tokens.read(assertion)
        if header.get("kid") != credentials.service_account_key_id:
            raise BadToken("kid is not the id of the account's key.")
        if claims.get("iss") != CLIENT_EMAIL:
            raise BadToken("iss is not the account's address.")
        if claims.get("aud") not in (GOOGLE, self._address):
            raise BadToken(f"aud must be {GOOGLE} or {self._address}.")
        if not _SCOPES & set(str(claims.get("scope", "")).split()):
            raise BadToken("scope does not hold firebase.messaging.")
        _check_times(claims)

    def _give(self) -> Answer:
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


def _refused(error: str, description: str) -> Answer:
    return in_json({"error": error, "error_description": description}, 400)
