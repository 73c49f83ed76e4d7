"""Push tokens: their three shapes, and the words a token's name may hold after a `!`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from relevo.core.errors import InvalidInputError
from relevo.sandbox.answers import invalid
from relevo.sandbox.faults import expo as faults
from relevo.sandbox.faults.expo import Fault, Kind

DEFAULT_PROJECT = "@relevo/app"
_MAX_MET = 100_000

_SHAPE = re.compile(
    r"Expo(?:nent)?PushToken\[[^\[\]\x00-\x20\x7f\ud800-\udfff]{1,500}\]"
    r"|[a-zA-Z\d]{8}-[a-zA-Z\d]{4}-[a-zA-Z\d]{4}-[a-zA-Z\d]{4}-[a-zA-Z\d]{12}"
)


def is_token(value: object) -> bool:
    """Return whether a text is an Expo push token; raw FCM and APNs tokens are not."""
    return isinstance(value, str) and _SHAPE.fullmatch(value) is not None


@lru_cache(maxsize=10_000)
def words(token: str) -> tuple[Fault, ...]:
    """Return the faults in a token's name; a word that does not exist refuses the request, so that a slip is seen."""
    if not token.endswith("]"):
        return ()
    try:
        return tuple(faults.parse(word) for word in token[:-1].split("!")[1:])
    except InvalidInputError as error:
        raise invalid(str(error)) from None


def project_of(token: str) -> str:
    """Return the project a token belongs to."""
    if "!" not in token:
        return DEFAULT_PROJECT
    return next((fault.value for fault in words(token) if fault.kind == "project"), DEFAULT_PROJECT)


class Met:
    """How often each token met each of its limited faults; beyond 100,000 pairs the oldest are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def pick(self, token: str, named: Iterable[Fault], kinds: tuple[Kind, ...]) -> Fault | None:
        """Return the first fault of these kinds named by a token that is not used up, and count it."""
        for fault in named:
            if fault.kind in kinds and self._still(token, fault):
                return fault
        return None

    def _still(self, token: str, fault: Fault) -> bool:
        if fault.times is None:
            return True
        key = (token, fault.word)
        met = self._counts.get(key, 0)
        if met >= fault.times:
            return False
        if met == 0 and len(self._counts) >= _MAX_MET:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = met + 1
        return True

    def clear(self) -> None:
        """Reset the faults of every token."""
        self._counts.clear()
