"""The sandbox's facts about a push service without serving it: tokens, their faults, and messages kept for a phone.

Each push service has a `PushService` in `providers/<name>/sandbox/tokens.py`. A fault is a word, in a token's name
after a `!`, or in a rule:

- a code of the service: `UNREGISTERED` (FCM), `BadDeviceToken` (APNs), `410` (Web Push); with `-delivered` behind it
  the phone gets its message nevertheless;
- a fault of the stream or the connection: see `WAYS`;
- `slow=SECONDS`, `streams=N` (from now on at most N streams at once on this connection);
- `retry-after=SECONDS`: the header, beside a code;
- `project=NAME` (FCM), `topic=NAME` (APNs): not a fault but the app that a token belongs to.

`*N` at the end limits a word to the first N times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from relevo.core.errors import InvalidInputError
from relevo.core.known_services import EXPO, NATIVE, SERVICES, listed
from relevo.providers.facts import Platform
from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.faults import expo, tokens
from relevo.sandbox.faults.expo import Exchange, Fault, Place, Rule
from relevo.sandbox.waiting import Keeping

_ONCE = ("hang", "reset", "goaway", "stream-error")
WAYS = (*_ONCE, *(f"{word}-delivered" for word in _ONCE), "refused", "truncated", "garbage")
"""Without `-delivered` nothing was taken; `goaway-delivered` takes its own stream and never answers it."""
_MAX_STREAMS = 1_000


class Device(NamedTuple):
    """The contents of a token: the phone's name and its faults; `home` is the environment (APNs) or key (Web Push)."""

    name: str
    faults: tuple[Fault, ...]
    home: str = ""

    def belongs_to(self, default: str) -> str:
        """Return the project or topic this phone's app is of."""
        return next((fault.value for fault in self.faults if fault.kind == "project"), default)


class Trial(NamedTuple):
    """How those who try a push service try it: tests, `make chaos`, `make bench`. Faults are words of the service."""

    phone: str
    """The name of its usual phone."""
    platform: Platform
    """The registration of that phone."""
    part: str
    """The part of the service that its pushes go to; empty where there are none."""
    gone: str
    """The phone is gone."""
    broken: str
    """The service fails."""
    throttled: tuple[str, ...]
    """A push has to come later, in seven seconds or more."""
    dead: str
    """The push is refused for good, for what it says."""
    refused: str
    """The sender's credentials are refused."""
    gone_code: str = ""
    dead_code: str = ""
    """The codes of these two, where they are called otherwise."""


class PushService(ABC):
    """A push service's tokens and the faults that they may name; a token holds its phone's name, and these faults."""

    name: str
    addresses: tuple[str, ...]
    """The service's addresses in the sandbox, by name: each has its own port."""
    answers: Mapping[str, HttpResponse]
    """By code what the service answers, for each code that may be asked for as a fault."""
    app_word = ""
    """The word that says in a token which app it belongs to; nothing where apps are not told apart."""
    has_token_endpoint = False
    """Whether it gives out access tokens, so that faults may be asked for `on` that."""
    home_option = ""
    """How a call for a token names the phone's home, where it has one: its environment (APNs) or key (Web Push)."""
    keeping = Keeping()
    keeps: str
    """The same in words, for the guide."""
    checks: str
    """The sandbox's checks of a request, in Markdown for the guide."""
    trial: Trial

    @abstractmethod
    def token(self, name: str, *words: str, home: str | None = None) -> str:
        """Return the token of a phone of this name, maybe of a home, that meets these faults."""

    @abstractmethod
    def owns(self, key: str) -> bool:
        """Return whether a phone is of this service, by what it is known by; those listed later are asked first."""

    def key(self, token: str) -> str:
        """Return by what a phone is known: its token."""
        return token

    def label(self, key: str) -> str | None:  # noqa: ARG002 most show their tokens as they are
        """Return how people call a phone, if its token was made here and does not say so itself."""
        return None

    def answer(self, code: str) -> HttpResponse | None:
        """Return what the service answers for a code, if it has that code."""
        return self.answers.get(code)

    def text(self, name: str, words: tuple[str, ...]) -> str:
        """Return what a token holds: a name, and words that the service knows; raises InvalidInputError."""
        if not name or "!" in name:
            raise InvalidInputError(
                f"A phone cannot be called {name[:100]!r}.", hint="Its faults are words of their own."
            )
        text = "!".join([name, *words])
        self.device(text)
        return text

    def device(self, text: str, home: str = "") -> Device:
        """Read what a token holds; raises InvalidInputError for a word that does not exist."""
        return Device(*_read(self.name, text), home)

    def fault(self, text: str) -> Fault:
        """Understand a word; raises InvalidInputError for one that does not exist."""
        word, times = expo.split_times(text)
        name, equals, value = word.partition("=")
        if equals:
            return self._with_value(word, name, value, times)
        if word in WAYS or word.removesuffix("-delivered") in self.answers:
            return Fault(word, "request", word, 0.0, times)
        raise self._unknown(word)

    def _with_value(self, word: str, name: str, value: str, times: int | None) -> Fault:
        if self.app_word and name == self.app_word and value:
            return Fault(word, "project", value, 0.0, times)
        if name == "slow":
            return Fault(word, "request", name, expo.number_in(word, expo.MAX_SECONDS), times)
        if name == "streams":
            return Fault(word, "request", name, int(expo.number_in(word, _MAX_STREAMS)), times)
        if name == "retry-after":
            return Fault(word, "header", str(int(expo.number_in(word, 86_400))), 0.0, times)
        raise self._unknown(word)

    def _unknown(self, word: str) -> InvalidInputError:
        known = [*self.answers, *WAYS, "slow=SECONDS", "streams=N", "retry-after=SECONDS"]
        return InvalidInputError(f"{self.name} has no fault {word[:100]!r}.", hint=f"Known: {', '.join(known)}.")

    def spoiled(self, fault: Fault | None, good: HttpResponse, named: tuple[Fault, ...] = ()) -> Exchange:
        """Return a good answer as a fault leaves it, with the headers that the device's token names."""
        answer = None if fault is None else self._answer_of(fault)
        if answer is None:
            return Exchange(good, fault)
        headers = answer.headers | {name: value for name, value in good.headers.items() if name == "apns-id"}
        for each in named:
            if each.kind == "header":
                headers["retry-after"] = each.value
        return Exchange(replace(answer, headers=headers), fault)

    def _answer_of(self, fault: Fault) -> HttpResponse | None:
        if fault.value == "garbage":
            return HttpResponse(200, b"<<< this is no JSON {")
        return self.answer(fault.value.removesuffix("-delivered"))


@lru_cache(maxsize=10_000)
def _read(service: str, text: str) -> tuple[str, tuple[Fault, ...]]:
    name, *words = text.split("!")
    return name, tuple(of(service).fault(word) for word in words)


@cache
def of(name: str) -> PushService:
    """Return what the sandbox knows of a push service, by its name."""
    found = import_module(f"relevo.providers.{name}.sandbox.tokens").SERVICE
    assert isinstance(found, PushService)
    return found


def known() -> tuple[PushService, ...]:
    """Return those that stand beside Expo, in the order of their ports."""
    return tuple(of(name) for name in NATIVE)


def addresses() -> tuple[str, ...]:
    """Return the names of all addresses, in the order of their ports."""
    return tuple(address for each in known() for address in each.addresses)


def named(name: Any) -> PushService:
    """Return the push service that somebody asked for; raises InvalidInputError."""
    if name not in NATIVE:
        raise InvalidInputError(f"There is no service {str(name)[:50]!r}.", hint=f"Use {listed(NATIVE)}.")
    return of(name)


def phone_key(token: str) -> str:
    """Return by what a phone is known: its token, of a browser the endpoint alone."""
    return next((key for each in known() if (key := each.key(token)) != token), token)


def kind_of(key: str) -> str:
    """Return the service of a phone by what it is known by."""
    if tokens.is_token(key):
        return EXPO
    return next(each.name for each in reversed(known()) if each.owns(key))


def label_of(key: str) -> str:
    """Return how people call a phone: the name in its token, with its faults, if the token was made here."""
    return next((label for each in known() if (label := each.label(key)) is not None), key)


def keeping_of(kind: str) -> Keeping:
    """Return what is kept for a phone that is off; for Expo's what the first service of the table keeps."""
    return of(NATIVE[0] if kind == EXPO else kind).keeping


def make_rule(given: Any) -> tuple[str, Rule]:
    """Understand a rule of an admin call: `{"service", "fault": word, "share", "times", "project", "seconds", "on"}`.

    Return whose it is, and the rule; without a service it is Expo's.
    """
    if not isinstance(given, dict) or not isinstance(given.get("fault"), str):
        raise InvalidInputError('A fault must be an object like {"service": "expo", "fault": "500", "share": 0.01}.')
    service, on = given.get("service", EXPO), given.get("on", "send")
    if service not in tuple(SERVICES):  # whatever somebody sent
        raise InvalidInputError(f"There is no service {str(service)[:50]!r}.", hint=f"Known: {', '.join(SERVICES)}.")
    fault = expo.parse(given["fault"]) if service == EXPO else of(service).fault(given["fault"])
    if fault.kind in ("project", "header"):
        raise InvalidInputError(f"{fault.word} belongs into a token's name.", hint="`project` limits a fault to one.")
    if on != "send" and (on not in _places(service) or fault.kind != "request"):
        raise InvalidInputError("`on` must be send, token for FCM's token endpoint, or receipts for Expo's requests.")
    if on == "receipts" and given.get("project") is not None:
        raise InvalidInputError("A fault on receipts cannot be limited by `project`: ticket ids do not tell it.")
    return service, expo.limited_rule(fault, on, given)


def _places(service: str) -> tuple[Place, ...]:
    """Return on what else than messages a service's faults may be asked for."""
    if service == EXPO:
        return ("receipts",)
    return ("token",) if of(service).has_token_endpoint else ()
