"""Faults on demand: the words that name them, and the rules that let them happen by rate or by an admin call.

A word stands in a token's name after a `!`, or in a rule:

- a ticket error: any code of Expo's (`DeviceNotRegistered`), any other capitalised word (a code nobody knows),
  `no-code` (an error without a code), `fcm-MismatchSenderId` (the provider's code nested in a ProviderError);
- `receipt-` and one of these: the ticket is ok, its receipt is not, and the phone gets nothing;
- `no-receipt`: delivered, but no receipt will ever appear;
- `project=@acme/other`: not a fault but the project a token belongs to;
- a fault of the whole request: see `REQUEST_FAULTS`.

`*N` at the end limits a word to the first N times.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from relevo.core.errors import InvalidInputError
from relevo.sandbox import answers
from relevo.sandbox.answers import HttpResponse

Kind = Literal["ticket", "receipt", "silence", "project", "request", "header"]
Place = Literal["send", "receipts", "token"]

MAX_RULES = 1_000
MAX_SECONDS = 120.0

_IN_DOUBT = ("500", "502", "503", "504", "hang", "reset")
_AFTERWARDS = ("truncated", "garbage", "short")
REQUEST_FAULTS = ("400", "401", "403", "429", *_IN_DOUBT, *(f"{word}-delivered" for word in _IN_DOUBT), *_AFTERWARDS)
"""Without `-delivered` phones get nothing; only the answer is spoiled by the last of them, and by `slow=SECONDS`."""
_MESSAGES = {
    "MessageTooBig": "The notification payload is larger than 4096 bytes.",
    "MessageRateExceeded": "Messages are sent too frequently to this device.",
    "MismatchSenderId": "The credentials belong to another FCM sender than the token.",
    "InvalidCredentials": "The push credentials of this app are invalid.",
    "InvalidProviderToken": "The provider refused the push key of this app.",
    "ExpoError": "An unknown error occurred within the push service.",
    "ProviderError": "The provider (FCM or APNs) failed to take the notification.",
    "DeveloperError": "The notification cannot be sent as it is.",
}
_ERROR = re.compile(r"[A-Z][A-Za-z0-9]*|no-code|(?:fcm|apns)-[A-Z][A-Za-z0-9]*")
_TIMES = re.compile(r"(.+)\*(\d{1,9})", re.DOTALL)
_HELP = "Known: an error code like DeviceNotRegistered, receipt-CODE, no-receipt, project=NAME, slow=SECONDS, " + (
    ", ".join(REQUEST_FAULTS)
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A word, understood: `value` is the code, the project or the request fault's name."""

    word: str
    kind: Kind
    value: str
    seconds: float = 0.0
    times: int | None = None

    @property
    def delivers(self) -> bool:
        """Whether phones get their messages although the request fails."""
        return self.value.endswith("-delivered") or self.value in ("slow", "streams", *_AFTERWARDS)


def parse(text: str) -> Fault:
    """Understand a word, with its `*N` if it has one; raises InvalidInputError for one that does not exist."""
    word, times = split_times(text)
    kind, value, seconds = _understand(word)
    return Fault(word, kind, value, seconds, times)


def split_times(text: str) -> tuple[str, int | None]:
    """Split a word from its `*N`, if it has one."""
    limited = _TIMES.fullmatch(text)
    return (limited[1], int(limited[2])) if limited else (text, None)


def _understand(word: str) -> tuple[Kind, str, float]:
    if _ERROR.fullmatch(word):
        return "ticket", word, 0.0
    if word.startswith("receipt-") and _ERROR.fullmatch(word.removeprefix("receipt-")):
        return "receipt", word.removeprefix("receipt-"), 0.0
    if word == "no-receipt":
        return "silence", word, 0.0
    if word.startswith("project=") and len(word) > len("project="):
        return "project", word.removeprefix("project="), 0.0
    if word.startswith("slow="):
        return "request", "slow", number_in(word, MAX_SECONDS, "seconds")
    if word in REQUEST_FAULTS:
        return "request", word, 0.0
    raise InvalidInputError(f"There is no fault {word[:100]!r}.", hint=f"{_HELP}.")


def number_in(word: str, most: float, what: str = "a number") -> float:
    """Return the number behind a word's `=`; raises InvalidInputError."""
    try:
        number = float(word.partition("=")[2])
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise InvalidInputError(f"{word[:100]!r} must hold {what} from 0 to {most:g}.", hint="As in slow=2.5.")
    return number


def error_result(code: str, token: str) -> dict[str, Any]:
    """Return the error ticket or receipt of a token for a code."""
    result: dict[str, Any] = {"status": "error", "message": _MESSAGES.get(code, f"The notification failed: {code}.")}
    provider, _, nested = code.partition("-")
    if code == "no-code":
        result["message"] = "Something went wrong, and nobody wrote down what."
    elif code == "DeviceNotRegistered":
        result["message"] = f'"{token}" is not a registered push notification recipient'
        result["details"] = {"error": code, "expoPushToken": token}
    elif nested:
        result["message"] = _MESSAGES["ProviderError"]
        result["details"] = {"error": "ProviderError", "fault": provider, provider: {"error": nested}}
    else:
        result["details"] = {"error": code}
    return result


_SPOILED = {
    "400": answers.invalid("The sandbox was told to find fault with this request.").answer,
    "401": answers.unauthorised(401).answer,
    "403": answers.unauthorised(403).answer,
    "429": answers.too_many_requests(600, 2).answer,
    "500": answers.refused(500, "INTERNAL_SERVER_ERROR", "An unknown error occurred.").answer,
    "502": answers.gateway_page(502),
    "503": answers.refused(503, "SERVICE_UNAVAILABLE", "The push service is not available.").answer,
    "504": answers.gateway_page(504),
    "garbage": HttpResponse(200, b"<<< this is no JSON {"),
}


@dataclass(slots=True)
class Exchange:
    """The outcome of a request: the answer, and the fault that spoils its way back."""

    answer: HttpResponse
    fault: Fault | None = None
    project: str | None = None
    count: int = 0


def spoil(fault: Fault, good: HttpResponse) -> HttpResponse:
    """Return what a request fault puts in the place of a good answer; some only spoil its way back."""
    return _SPOILED.get(fault.value.removesuffix("-delivered"), good)


@dataclass(slots=True)
class Rule:
    """A fault that hits a share of the requests or messages, some times, for a while; the time is real time."""

    fault: Fault
    share: float = 1.0
    times: int | None = None
    project: str | None = None
    on: Place = "send"
    until: float | None = None

    def as_json(self, now: float) -> dict[str, Any]:
        """Return it as the admin call shows it, with what is left of it."""
        return {
            "fault": self.fault.word,
            "share": self.share,
            "times": self.times,
            "project": self.project,
            "on": self.on,
            "seconds": None if self.until is None else round(max(0.0, self.until - now), 3),
        }


def limited_rule(fault: Fault, on: Place, given: dict[str, Any]) -> Rule:
    """Return a rule for a fault, limited to what else the admin call says."""
    unknown = sorted(given.keys() - {"service", "fault", "share", "times", "project", "seconds", "on"})
    if unknown:
        raise InvalidInputError(f"A fault has no {', '.join(unknown)}.")
    share, times = given.get("share", 1.0), given.get("times", fault.times)
    project, seconds = given.get("project"), given.get("seconds")
    _check("share", share, lambda it: _is_number(it) and 0 <= it <= 1, "a number from 0 to 1")
    _check("times", times, lambda it: it is None or (type(it) is int and it > 0), "a positive whole number, or null")
    _check("seconds", seconds, lambda it: it is None or (_is_number(it) and it > 0), "a positive number, or null")
    _check("project", project, lambda it: it is None or isinstance(it, str), "a name, or null")
    return Rule(fault, share, times, project, on, None if seconds is None else time.monotonic() + seconds)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(name: str, value: Any, good: Callable[[Any], bool], expected: str) -> None:
    if not good(value):
        raise InvalidInputError(f"`{name}` must be {expected}, got {str(value)[:100]!r}.")


class FaultRules:
    """The rules in force; at most MAX_RULES."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, rule: Rule) -> None:
        """Put a rule into force."""
        if len(self._rules) >= MAX_RULES:
            raise InvalidInputError(f"There can be at most {MAX_RULES} faults.", hint="Clear them first.")
        self._rules.append(rule)

    def clear(self) -> None:
        """Forget all rules."""
        self._rules.clear()

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rules as an admin call shows them."""
        now = time.monotonic()
        self._expire(now)
        return [rule.as_json(now) for rule in self._rules]

    def pick(self, kinds: tuple[Kind, ...], project: str | None, on: Place = "send") -> Fault | None:
        """Return the first fault of these kinds that hits a request or a message now, and count it."""
        self._expire(time.monotonic())
        for rule in self._rules:
            fits = rule.fault.kind in kinds and rule.on == on and rule.project in (None, project)
            if fits and random.random() < rule.share:  # noqa: S311 chance, not a secret
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times == 0:
                        self._rules.remove(rule)
                return rule.fault
        return None

    def _expire(self, now: float) -> None:
        self._rules = [rule for rule in self._rules if rule.until is None or rule.until > now]
