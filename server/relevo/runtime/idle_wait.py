"""How a run waits for more work: a busy time is one run with one row, and what comes next finds it ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_LONGEST_S = 5.0  # then it is written down, and the next begins
_LOOK_BESIDE_S = 0.25  # who enqueued before the fleet was told that we can be called calls nobody
_PRESSED = 10
_RESTS_AS_LONG = 10  # times what its work took: what comes meanwhile is done together


@dataclass
class IdleWait:
    """A run's behaviour between two pieces of work: it sleeps and waits for a call; without one for long it ends."""

    call: threading.Event
    stopping: threading.Event
    say_asleep: Callable[[bool], None]
    """Tells the fleet whether to call this cycle when there is work."""
    asleep: bool
    """Whether the fleet was told so."""
    lasts_s: float
    longest_rest_s: float
    ahead_s: float = 0.0
    """How long it waits for its first work: it was called ahead of it."""
    has_worked: bool = False
    began_at: float = field(default_factory=time.monotonic)
    worked_at: float = field(default_factory=time.monotonic)
    pressed: int = 0
    """How often in a row a call was there before the rest was over."""
    was_awake: bool = field(init=False)
    """Whether the fleet was told meanwhile not to call; those who heard that and are still at it call nobody."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.was_awake = not self.asleep

    def for_more(self, *, worked: bool, took_s: float, rest_s: float, due_in_s: float | None = None) -> bool:
        """Wait until it is worth to look for work again, and return whether it is; else the run is to end.

        `took_s` is how long the last work took, `rest_s` how long it rests at least, though called.
        """
        if worked:
            self.worked_at, self.has_worked = time.monotonic(), True
        lasts_s = self.lasts_s if self.has_worked else self.ahead_s
        ends_at = min(self.worked_at + lasts_s, self.began_at + _LONGEST_S)
        self.is_over = self.is_over or self.stopping.is_set() or time.monotonic() >= ends_at
        if self.is_over:
            return False
        going = self._called(worked, ends_at, rest_s, due_in_s) if self.asleep else self._looking(worked, took_s)
        self.is_over = not going or self.stopping.is_set()
        self.call.clear()  # before the look: a call that comes during it is worth another
        return not self.is_over

    @property
    def is_asleep(self) -> bool:
        """Whether it ended, after its work, because no call came, though the fleet was told to make them."""
        return self.is_over and self.has_worked and self.asleep and not self.stopping.is_set()

    def _looking(self, worked: bool, took_s: float) -> bool:
        """Look again after a rest, since most who enqueue call nobody now; once nothing is found, have them call."""
        if worked:
            self.call.wait(min(took_s * _RESTS_AS_LONG, self.longest_rest_s))
        else:
            self._say(asleep=True)
        return True

    def _called(self, worked: bool, ends_at: float, rest_s: float, due_in_s: float | None) -> bool:
        """Wait for a call, for what is known to fall due, or to look beside; where calls press, have no more made."""
        if worked:
            self.stopping.wait(rest_s)
            self.pressed = self.pressed + 1 if self.call.is_set() else 0
            if self.pressed >= _PRESSED:
                self._say(asleep=False)
                return True
        now = time.monotonic()
        look_at = min(self.worked_at + _LOOK_BESIDE_S, ends_at) if now < self.worked_at + _LOOK_BESIDE_S else ends_at
        due_at = now + due_in_s if due_in_s is not None else ends_at
        return self.call.wait(min(look_at, due_at) - now) or min(look_at, due_at) < ends_at

    def _say(self, *, asleep: bool) -> None:
        self.say_asleep(asleep)
        self.asleep, self.pressed = asleep, 0
        self.was_awake = self.was_awake or not asleep
