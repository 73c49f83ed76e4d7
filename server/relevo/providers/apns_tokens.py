"""APNs' provider tokens: signed so that every replica makes the same one, and none makes them too often."""

from __future__ import annotations

import threading

from cryptography.hazmat.primitives.asymmetric import ec

from relevo.providers import es256
from relevo.providers.push_projects import ApnsEntry, PushProject

LIVES_S = 2_400
"""How long a token is used: Apple takes one for an hour, and wants no new one within 20 minutes."""
SHORTEST_S = 1_200
_OLDEST_S = 3_300
"""Well below an hour: clocks differ."""
_MOST_KEPT = 1_000


def check(project: PushProject[ApnsEntry]) -> None:
    """Raise ValueError if a project's key cannot sign."""
    load_key(project)


def load_key(project: PushProject[ApnsEntry]) -> ec.EllipticCurvePrivateKey:
    """Return a project's key; raises ValueError."""
    try:
        key: ec.EllipticCurvePrivateKey = es256.from_pem(project.secret)
    except es256.UNREADABLE:
        raise ValueError("its key is no private key in PEM, as Apple's .p8 file is") from None
    if not es256.is_p256(key):
        raise ValueError("its key is none of the curve P-256, as Apple's are")
    return key


class ApnsTokens:
    """The tokens of this process. A key, its names and the time make one token, wherever it is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, str, int], tuple[str, float]] = {}
        self._younger: dict[tuple[str, str, str], tuple[str, float]] = {}
        """Of keys whose token was said to have expired, which others are used since when: this clock may be slow."""

    def get(self, project: PushProject[ApnsEntry], now: float) -> str:
        """Return a project's token at a time: the same for everybody within 40 minutes.

        One that this process began to use shortly before that is used on for 20 minutes, or until it is old.
        """
        return self._current(project, now)[0]

    def younger(self, project: PushProject[ApnsEntry], now: float) -> str:
        """Return a token for when that one is said to have expired: itself, unless it has been used for 20 minutes.

        From then on `get` returns that one, too, and another every 20 minutes.
        """
        token, since = self._current(project, now)
        return self._renew(project, now)[0] if now - since >= SHORTEST_S else token

    def _current(self, project: PushProject[ApnsEntry], now: float) -> tuple[str, float]:
        """Return the token that is used at a time, and since when this process uses it."""
        younger = self._younger.get(_named(project, now, LIVES_S)[:3])
        if younger is not None:
            return younger if now - younger[1] < SHORTEST_S else self._renew(project, now)
        earlier = self._kept.get(_named(project, now - LIVES_S, LIVES_S))
        if earlier is not None and now - earlier[1] < SHORTEST_S and now % LIVES_S < _OLDEST_S - LIVES_S:
            return earlier
        return self._token(project, now, LIVES_S)

    def _renew(self, project: PushProject[ApnsEntry], now: float) -> tuple[str, float]:
        """Use another token from now on, one of the last 20 minutes."""
        if len(self._younger) >= _MOST_KEPT:
            self._younger.clear()
        renewed = self._younger[_named(project, now, LIVES_S)[:3]] = self._token(project, now, SHORTEST_S)[0], now
        return renewed

    def _token(self, project: PushProject[ApnsEntry], now: float, step_s: int) -> tuple[str, float]:
        """Return a token, and since when this process uses it."""
        named = _named(project, now, step_s)
        with self._lock:
            found = self._kept.get(named)
            if found is None:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                found = self._kept[named] = _signed(load_key(project), *named[1:]), now
        return found


def _named(project: PushProject[ApnsEntry], now: float, step_s: int) -> tuple[str, str, str, int]:
    """Return what makes a token: the key, its names, and a time that is the same for all within a step."""
    return project.secret, project.entry.key_id, project.entry.team_id, int(now) // step_s * step_s


def _signed(key: ec.EllipticCurvePrivateKey, key_id: str, team_id: str, issued_at: int) -> str:
    return es256.signed(key, {"alg": "ES256", "kid": key_id}, {"iss": team_id, "iat": issued_at}, same=True)
