"""Decides at the head of each request whether it is worked at once, in a line, or only to be refused.

Proven callers (a token, a session or a phone's secret that was found good here before) have a budget each. All others
share the budget of their address, and all strangers together one more. Each request takes its weight from its caller's
budget. A request beyond the budget waits in a line of which a bounded number is worked each second, so that whoever
sends faster than that waits, and costs no more CPU. Nothing of a request but its head is read for this.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relevo.client.signatures import SigningKey, could_hold
from relevo.http.rules import PHONE_BODY, weight_of

_MOST_CALLERS = 10_000
_BURST = 2
_ALL_STRANGERS = "strangers"
_SHARE_OF_STRANGERS = 4
"""How many times the rate of one address all strangers together may use."""
_DOUBTED_TIMES, _STRANGER_TIMES = 2, 4
"""How many times its weight a request takes whose proof is still to be checked, and one without any proof."""
_BYTES_PER_UNIT = 8_192
"""A body of somebody unproven costs one unit more for each of these."""
_REFUSED_PER_S, _DOUBTED_PER_S, _ALWAYS_PER_S = 50, 50, 50
_MOST_DOUBTED = 500
"""How many requests of one kind of proof may wait until it is checked."""
_BEARER = b"bearer "
_TOKEN = re.compile(rb"(?:relevo_[0-9a-f]{12}|device_[0-9a-f]{32})_[A-Za-z0-9_-]{43}")
_HEALTH = b"/health/"
_LONGEST_TOKEN = 200

Headers = Sequence[tuple[bytes, bytes]]
"""Names in small letters, and values."""


class Waiting(Protocol):
    """A request that can wait in a line."""

    def let_in(self) -> None:
        """Go on with the request."""


class Line:
    """Lets so many requests in each second: one of each kind in turn, each kind in the order in which they came.

    Who leaves takes up no turn.
    """

    def __init__(self, per_second: int) -> None:
        self._every_s = 1 / per_second
        self._free_at = -math.inf
        self._waiting: dict[str, dict[Waiting, None]] = {}
        """By kind, whose turn is next first; kinds of which nobody waits are not there."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def count(self, kind: str) -> int:
        """Return how many requests of a kind wait."""
        return len(self._waiting.get(kind, ()))

    def has_room(self, now: float) -> bool:
        """Return whether a request may go on at once, and count it if it may."""
        if self._waiting or now < self._free_at:
            return False
        self._free_at = now + self._every_s
        return True

    def join(self, request: Waiting, kind: str = "") -> None:
        """Wait for a turn."""
        if not self._waiting:
            self._set_timer()
        self._waiting.setdefault(kind, {})[request] = None

    def leave(self, request: Waiting) -> None:
        """Wait no longer."""
        kind = next((kind for kind, here in self._waiting.items() if request in here), None)
        if kind is not None:
            self._take(kind, request)

    def _take(self, kind: str, request: Waiting) -> None:
        del self._waiting[kind][request]
        if not self._waiting[kind]:
            del self._waiting[kind]

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, self._free_at - loop.time()), self._let_next_in)

    def _let_next_in(self) -> None:
        kind = next(iter(self._waiting), None)
        if kind is None:
            return
        first = next(iter(self._waiting[kind]))
        self._waiting[kind] = self._waiting.pop(kind)  # the next turn is another kind's
        self._take(kind, first)
        self._free_at = asyncio.get_running_loop().time() + self._every_s
        if self._waiting:
            self._set_timer()
        first.let_in()


class RateLimiter:
    """Twice a second's worth at once, then the rate; callers that were not seen for long are forgotten first."""

    def __init__(self, rate_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate_per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, caller: str, weight: int = 1, times: int = 1) -> int:
        """Take units of the caller's bucket; return 0, or after how many seconds there are enough if there are not."""
        if not self.rate:
            return 0
        rate = self.rate * times
        now, full = self._clock(), float(rate * _BURST)
        wanted = min(weight, full)
        left, at = self._buckets.pop(caller, (full, now))
        left = min(full, left + (now - at) * rate)
        granted = left >= wanted
        self._buckets[caller] = (left - wanted if granted else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0 if granted else max(1, math.ceil((wanted - left) / rate))


class ProvenCallers(Protocol):
    """Knows who proved before who they are."""

    def known_as(self, digest: bytes) -> str | None:
        """Return by what somebody is counted whose token, session or secret has this hash; None if it is unknown."""


@dataclass(frozen=True)
class Verdict:
    """The decision on a request."""

    line: Line | None = None
    """Where it waits; None if it goes on at once."""
    kind: str = ""
    """As which kind it waits there."""
    refuse_for_s: int = 0
    """If it is only to be refused: when its caller may come back."""


_AT_ONCE = Verdict()


class Admission:
    """The budgets of all callers, and the lines of those beyond them."""

    def __init__(
        self,
        callers: ProvenCallers,
        limiter: RateLimiter,
        cookie: str,
        keys: Mapping[str, SigningKey],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._callers = callers
        self._limiter = limiter
        self._keys = keys
        self._wall_clock = wall_clock
        self._session = re.compile(rb"(?:^|;\s*)(?:__Host-)?" + cookie.encode() + rb"=([A-Za-z0-9_-]{43})(?:;|$)")
        self.refused = Line(_REFUSED_PER_S)
        self.doubted = Line(_DOUBTED_PER_S)
        """Of requests that bring a proof which is still to be checked; each kind of proof is one of its kinds."""
        self.always = Line(_ALWAYS_PER_S)
        """Of what is never refused: whether the process is healthy, and what browsers ask before they call."""

    def judge(self, address: str, method: bytes, url: bytes, headers: Headers) -> Verdict:
        """Take a request's weight from its caller's budget; say what becomes of the request."""
        if not self._limiter.rate:
            return _AT_ONCE
        path = url.partition(b"?")[0]
        named = dict(headers)
        caller, proof = self._identify(method, named)
        weight = weight_of(path)
        if caller is None:
            weight += _body_bytes(named) // _BYTES_PER_UNIT
            weight *= _DOUBTED_TIMES if proof else _STRANGER_TIMES
        wait_s = self._limiter.spend(caller or f"from {address}", weight)
        if not wait_s and caller is None and not proof:
            wait_s = self._limiter.spend(_ALL_STRANGERS, weight, _SHARE_OF_STRANGERS)
        if not wait_s:
            return _AT_ONCE
        if path.startswith(_HEALTH) or (method == b"OPTIONS" and b"access-control-request-method" in named):
            return Verdict(self.always)
        if proof and self.doubted.count(proof) < _MOST_DOUBTED:
            return Verdict(self.doubted, proof)
        return Verdict(self.refused, refuse_for_s=wait_s)

    def _identify(self, method: bytes, headers: Mapping[bytes, bytes]) -> tuple[str | None, str]:
        """Return by what a caller is counted that proved before who it is, and what may prove another: its kind."""
        given = headers.get(b"authorization", b"")
        if given[: len(_BEARER)].lower() == _BEARER:
            written = given[len(_BEARER) : _LONGEST_TOKEN].strip()
            known = self._callers.known_as(hashlib.sha256(written).digest())
            may_be_proven = known is None and _TOKEN.fullmatch(written) is not None
            return known, written.partition(b"_")[0].decode() if may_be_proven else ""
        if (session := self._session.search(headers.get(b"cookie", b""))) is not None:
            known = self._callers.known_as(hashlib.sha256(session[1]).digest())
            return known, "session" if known is None else ""
        signature = headers.get(b"x-relevo-signature", b"") if method == b"PUT" else b""
        may_hold = bool(signature) and could_hold(self._keys, signature.decode("latin-1"), self._wall_clock())
        return None, "signature" if may_hold else ""


def _body_bytes(headers: Mapping[bytes, bytes]) -> int:
    """Return how long a body is, as its caller says; one that does not say so is taken for a long one."""
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        return PHONE_BODY
    return min(int(length), PHONE_BODY)
