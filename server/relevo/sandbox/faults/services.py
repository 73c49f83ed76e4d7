"""Faults of FCM, APNs and Web Push on demand: the words that name them, in tokens' names and in rules.

- a code of the service: `UNREGISTERED` (FCM), `BadDeviceToken` (APNs), `410` (Web Push); with `-delivered` behind it
  the phone gets its message nevertheless;
- a fault of the stream or the connection: see `WAYS`;
- `slow=SECONDS`, `streams=N` (from now on at most N streams at once on this connection);
- `retry-after=SECONDS`: the header, beside a code;
- `project=NAME` (FCM), `topic=NAME` (APNs): not a fault but the app that a token belongs to.

`*N` at the end limits a word to the first N times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relevo.core.errors import InvalidInputError
from relevo.core.known_services import EXPO, SERVICES
from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.faults import apns_answers, expo, fcm_answers, webpush_answers
from relevo.sandbox.faults.expo import Exchange, Fault, Rule

_ONCE = ("hang", "reset", "goaway", "stream-error")
WAYS = (*_ONCE, *(f"{word}-delivered" for word in _ONCE), "refused", "truncated", "garbage")
"""Without `-delivered` nothing was taken; `goaway-delivered` takes its own stream and never answers it."""
_CODES: dict[str, dict[str, HttpResponse]] = {
    "fcm": fcm_answers.CODES,
    "apns": apns_answers.CODES,
    "webpush": webpush_answers.CODES,
}
_NAMED = {"fcm": "project", "apns": "topic"}
_MAX_STREAMS = 1_000
_ELSEWHERE = (("expo", "receipts", "request"), ("fcm", "token", "request"))


def parse(service: str, text: str) -> Fault:
    """Understand a word of a service; raises InvalidInputError for one that does not exist."""
    word, times = expo.split_times(text)
    name, equals, value = word.partition("=")
    if equals:
        return _with_value(service, word, name, value, times)
    if word in WAYS or word.removesuffix("-delivered") in _CODES[service]:
        return Fault(word, "request", word, 0.0, times)
    raise _unknown(service, word)


def _with_value(service: str, word: str, name: str, value: str, times: int | None) -> Fault:
    if name == _NAMED.get(service) and value:
        return Fault(word, "project", value, 0.0, times)
    if name == "slow":
        return Fault(word, "request", name, expo.number_in(word, expo.MAX_SECONDS), times)
    if name == "streams":
        return Fault(word, "request", name, int(expo.number_in(word, _MAX_STREAMS)), times)
    if name == "retry-after":
        return Fault(word, "header", str(int(expo.number_in(word, 86_400))), 0.0, times)
    raise _unknown(service, word)


def _unknown(service: str, word: str) -> InvalidInputError:
    known = [*_CODES[service], *WAYS, "slow=SECONDS", "streams=N", "retry-after=SECONDS"]
    return InvalidInputError(f"{service} has no fault {word[:100]!r}.", hint=f"Known: {', '.join(known)}.")


def code_answer(service: str, fault: Fault) -> HttpResponse | None:
    """Return the answer that a code stands for, if the fault is one."""
    if fault.value == "garbage":
        return HttpResponse(200, b"<<< this is no JSON {")
    code = fault.value.removesuffix("-delivered")
    if service == "apns" and code in apns_answers.STATUS:
        return apns_answers.refused(code)  # a token that is gone is so since now
    return _CODES[service].get(code)


def spoiled(service: str, fault: Fault | None, good: HttpResponse, named: tuple[Fault, ...] = ()) -> Exchange:
    """Return a good answer as a fault leaves it, with the headers that the device's token names."""
    answer = None if fault is None else code_answer(service, fault)
    if answer is None:
        return Exchange(good, fault)
    headers = answer.headers | {name: value for name, value in good.headers.items() if name == "apns-id"}
    for each in named:
        if each.kind == "header":
            headers["retry-after"] = each.value
    return Exchange(replace(answer, headers=headers), fault)


def make_rule(given: Any) -> tuple[str, Rule]:
    """Understand a rule of an admin call: `{"service", "fault": word, "share", "times", "project", "seconds", "on"}`.

    Return whose it is, and the rule; without a service it is Expo's.
    """
    if not isinstance(given, dict) or not isinstance(given.get("fault"), str):
        raise InvalidInputError('A fault must be an object like {"service": "expo", "fault": "500", "share": 0.01}.')
    service, on = given.get("service", EXPO), given.get("on", "send")
    if service not in tuple(SERVICES):  # whatever somebody sent
        raise InvalidInputError(f"There is no service {str(service)[:50]!r}.", hint=f"Known: {', '.join(SERVICES)}.")
    fault = expo.parse(given["fault"]) if service == EXPO else parse(service, given["fault"])
    if fault.kind in ("project", "header"):
        raise InvalidInputError(f"{fault.word} belongs into a token's name.", hint="`project` limits a fault to one.")
    if on != "send" and (service, on, fault.kind) not in _ELSEWHERE:
        raise InvalidInputError("`on` must be send, token for FCM's token endpoint, or receipts for Expo's requests.")
    if on == "receipts" and given.get("project") is not None:
        raise InvalidInputError("A fault on receipts cannot be limited by `project`: ticket ids do not tell it.")
    return service, expo.limited_rule(fault, on, given)
