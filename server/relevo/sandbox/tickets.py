"""Tickets and the receipts that appear for them later, on a clock that can run faster than real time.

A ticket is a number inside a UUID; only its hour of birth is kept, eight bytes, and what is special about its receipt.
At most 2,000,000 tickets are remembered; the oldest are forgotten first, and their receipts with them.
"""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Iterable
from typing import Any

from relevo.sandbox.faults.expo import Fault, error_result

MAX_TICKETS = 2_000_000
RECEIPTS_KEPT_S = 24 * 3600


class Clock:
    """Sandbox seconds: `scale` of them pass in a real one."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._base = 0.0
        self._since = time.monotonic()

    def now(self) -> float:
        """Return the sandbox's time in seconds."""
        return self._base + (time.monotonic() - self._since) * self._scale

    def set_scale(self, scale: float) -> None:
        """Run time at another speed from now on."""
        self._base, self._since, self._scale = self.now(), time.monotonic(), scale


class Tickets:
    """The tickets given out, and what became of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prefix = _prefix()
        self._born = array("d")
        self._first = 0
        self._special: dict[int, tuple[Fault, str]] = {}

    @property
    def given(self) -> int:
        """How many tickets were given out."""
        return self._first + len(self._born)

    def issue(self, count: int) -> list[str]:
        """Give out tickets and return their ids."""
        first = self.given
        self._born.extend([self._clock.now()] * count)
        if len(self._born) > MAX_TICKETS:
            self._forget(len(self._born) - MAX_TICKETS + MAX_TICKETS // 100)
        prefix = self._prefix
        return [f"{prefix}{number:012x}" for number in range(first, first + count)]

    def mark(self, ticket_id: str, fault: Fault, token: str) -> None:
        """Make a ticket's receipt an error, which may name the token, or withhold it for ever."""
        self._special[int(ticket_id[-12:], 16)] = fault, token

    def receipts(self, ids: Iterable[str], delay_s: float) -> dict[str, dict[str, Any]]:
        """Return the receipts that are there: not too young, not too old, not withheld."""
        now = self._clock.now()
        youngest, oldest = now - delay_s, now - RECEIPTS_KEPT_S
        found = {}
        for ticket_id in ids:
            number = self._number(ticket_id)
            if number is None or not oldest < self._born[number - self._first] <= youngest:
                continue
            fault, token = self._special.get(number, (None, ""))
            if fault is None:
                found[ticket_id] = {"status": "ok"}
            elif fault.kind == "receipt":
                found[ticket_id] = error_result(fault.value, token)
        return found

    def _number(self, ticket_id: str) -> int | None:
        if not ticket_id.startswith(self._prefix):
            return None
        try:
            number = int(ticket_id[len(self._prefix) :], 16)
        except ValueError:
            return None
        known = self._first <= number < self.given and ticket_id == f"{self._prefix}{number:012x}"
        return number if known else None

    def _forget(self, count: int) -> None:
        del self._born[:count]
        self._first += count
        self._special = {number: mark for number, mark in self._special.items() if number >= self._first}


def _prefix() -> str:
    """Return the first four groups of a UUID (version 7) that no other sandbox has."""
    milliseconds, chance = int(time.time() * 1000), secrets.randbits(24)
    return (
        f"{milliseconds >> 16 & 0xFFFFFFFF:08x}-{milliseconds & 0xFFFF:04x}"
        f"-7{chance & 0xFFF:03x}-8{chance >> 12 & 0xFFF:03x}-"
    )
