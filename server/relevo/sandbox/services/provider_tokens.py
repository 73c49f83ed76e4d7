"""APNs' provider tokens: signed by a key of the team, for this environment, young, and not renewed too often."""

from __future__ import annotations

import time
from typing import Any

from relevo.sandbox.services import json_web_tokens
from relevo.sandbox.services.apns_answers import STATUS
from relevo.sandbox.services.credentials import TEAM_ID
from relevo.sandbox.services.exchange import Peer
from relevo.sandbox.services.json_web_tokens import BadToken
from relevo.sandbox.services.state import State

_LIFE_S = 3_600
_CLOCK_SKEW_S = 60
_MAX_KNOWN = 1_000


class Refusal(Exception):  # noqa: N818 an answer, not an error of ours
    """The request is refused, for a reason of Apple's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        assert reason in STATUS


class ProviderTokens:
    """The tokens that were shown; of one that is known only its age is looked at again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, dict[str, Any]] = {}
        self._updated: dict[str, float] = {}

    def check(self, authorization: str | None, environment: str, peer: Peer) -> None:
        """Accept the token of a request on a connection; raises Refusal."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal("MissingProviderToken")
        known = self._known.get(token) or self._verify(token)
        kid = known["kid"]
        if time.time() - known["iat"] > _LIFE_S:
            raise Refusal("ExpiredProviderToken")
        if self._state.credentials.apns_keys[kid].environment not in (None, environment):
            raise Refusal("BadEnvironmentKeyIdInToken")
        if peer.facts.get("kid", kid) != kid:
            raise Refusal("UnrelatedKeyIdInToken")
        if token not in self._known:
            self._remember(token, known)
        peer.facts["kid"] = kid

    def _verify(self, token: str) -> dict[str, Any]:
        try:
            header, claims = json_web_tokens.read(token)
            kid, issued = str(header.get("kid")), claims.get("iat")
            key = self._state.credentials.apns_keys.get(kid)
            if key is None or claims.get("iss") != TEAM_ID or not isinstance(issued, int | float):
                raise Refusal("InvalidProviderToken")
            json_web_tokens.verify(token, key.public)
        except BadToken:
            raise Refusal("InvalidProviderToken") from None
        if issued > time.time() + _CLOCK_SKEW_S:
            raise Refusal("InvalidProviderToken")
        return {"kid": kid, "iat": issued}

    def _remember(self, token: str, known: dict[str, Any]) -> None:
        """Take note of a new token; one that comes too soon after the last is refused."""
        now, kid = time.monotonic(), known["kid"]
        before = self._updated.get(kid)
        if before is not None and now - before < self._state.sandbox.settings.apns_token_interval_s:
            raise Refusal("TooManyProviderTokenUpdates")
        self._updated[kid] = now
        while len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[token] = known
