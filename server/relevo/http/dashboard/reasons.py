"""Why things are as they are, in words that somebody understands who knows nothing of queues."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from relevo.client.values import Explanation
from relevo.core.model import NEWS
from relevo.http.dashboard.formats import instant
from relevo.http.dashboard.html import Child
from relevo.http.dashboard.language import noted, t
from relevo.http.dashboard.parts import clipped
from relevo.operators.audience import Nobody

MEANINGS = {
    "pending": noted("It is to be sent."),
    "retryable": noted("It did not get through, for a reason that may pass; it is tried again."),
    "sent": noted("The push service took it; what became of it there is asked for later."),
    "ok": noted("Apple's or Google's service took it: the phone shows it as soon as it is on."),
    "unconfirmed": noted("The push service took it and never said what became of it; most likely it arrived."),
    "invalid": noted("The app is gone from this phone, or its push token is wrong: nothing is sent to that token."),
    "failed": noted("It failed for good, and lies among the dead letters until somebody sends it anew."),
    "expired": noted("Its deadline passed before it could be sent."),
    "skipped": noted("When its turn came, this phone did not want it any more, or could not get it."),
    "cancelled": noted("The event was ended, or handled elsewhere, before this push was sent."),
    "unknown": noted("It may be sent once at most, and no answer was seen: nobody knows whether it arrived."),
}
"""What each status of a delivery means."""

_SERVERS = ("webhook", NEWS)
_PROJECTS_FAULT = noted("The push credentials of this project are wrong: renew them at the push service.")
_HALF_SEEN = noted("The request began, and its answer was not seen whole.")
_OWN_CODE = noted("Code of your own raised an error, or did not return.")
_NOT_REACHED = noted("The push service could not be reached; nothing was sent.")
ERRORS = {
    "DeviceNotRegistered": noted("The app was removed from this phone, or may show nothing any more."),
    "MessageTooBig": noted("The message is too long: 4,096 bytes are the most."),
    "MessageRateExceeded": noted("Too many pushes went to this phone within a short time."),
    "MismatchSenderId": _PROJECTS_FAULT,
    "InvalidCredentials": _PROJECTS_FAULT,
    "InvalidProviderToken": _PROJECTS_FAULT,
    "UNAUTHORIZED": noted("The push service did not accept our access token."),
    "ExpoError": noted("The push service had a problem of its own."),
    "DeveloperError": noted("The push service did not understand the message."),
    "TOO_MANY_REQUESTS": noted("The push service asked us to go slower."),
    "PUSH_TOO_MANY_EXPERIENCE_IDS": noted("Phones of several projects were in one request; they are sent apart now."),
    "Unknown": noted("The push service said something that nobody knows yet."),
    "MalformedToken": noted("This phone's push token does not look like one."),
    "MalformedMessage": noted("The message cannot be written as JSON."),
    "NoConnection": _NOT_REACHED,
    "ConnectTimeout": _NOT_REACHED,
    "ReadTimeout": noted("No whole answer came in time."),
    "ConnectionBroken": noted("The connection was cut before the whole answer came."),
    "MismatchedTickets": _HALF_SEEN,
    "request_hung": _HALF_SEEN,
    "request_failed": _HALF_SEEN,
    "provider_failed": _HALF_SEEN,
    "answer_not_seen": noted("The process that sent it died before it saw the answer."),
    "TicketWithoutId": noted("The push service took it without a number to ask by."),
    "poison": noted("Whoever tried to send it died, several times: something in it breaks the sender."),
    "composer_failed": _OWN_CODE,
    "composer_hung": _OWN_CODE,
    "middleware_failed": _OWN_CODE,
    "middleware_hung": _OWN_CODE,
    "rescheduled": noted("Code of your own asked for a later time."),
    "no_thread": noted("This machine had no room for another request."),
    "event_gone": noted("The event was deleted."),
    "event_ended": noted("The event was ended before."),
    "handled_elsewhere": noted("It was handled on another phone, or elsewhere."),
    "deadline_passed": noted("It came too late: its deadline had passed."),
    "installation_gone": noted("This phone was forgotten."),
    "not_allowed": noted("Pushes may not go to this phone."),
    "opted_out": noted("This phone opted out of the event's category."),
    "preference_changed": noted("This phone asks for something else now."),
    "told_already": noted("Its device got it already, by an installation that had its push token before."),
    "token_changed": noted("The phone got a new push token; it is sent to that one."),
    "repeats_held": noted("The runaway brake holds it: it was repeated too often."),
    "UnknownAddress": noted("There is no webhook of this name."),
    "RefusedAddress": noted("The webhook leads to a private address."),
    "HTTP_410": noted("The webhook wants no more."),
    "INTERNAL_SERVER_ERROR": noted("The push service failed: it answered with an error of its own, 500."),
    "SERVICE_UNAVAILABLE": noted("The push service is not available just now: it answered 503."),
    "BAD_GATEWAY": noted("The push service failed: what stands before it had no answer from it, 502."),
    "GATEWAY_TIMEOUT": noted("The push service failed: what stands before it had no answer in time, 504."),
    "PUSH_TOO_MANY_NOTIFICATIONS": noted("The push service wanted fewer pushes in one request."),
    "PUSH_TOO_MANY_RECEIPTS": noted("The push service wanted to be asked for fewer receipts at once."),
    "VALIDATION_ERROR": noted("The push service did not understand the request."),
    "FORBIDDEN": noted("The push service did not allow it."),
    "retired": noted("Its month went to the archive before it could be sent."),
    "none": noted("No reason was given."),
    "UnreadableAnswer": noted("The push service answered something that could not be read."),
}
"""What each error code of a delivery means."""
_STATUS = re.compile(r"HTTP_(\d{3})")
_FAILED_STATUS = 500

REPLIES = {
    "answered": noted("the push service answered"),
    "held_back": noted("it was not even begun"),
    "not_sent": noted("there was no connection"),
    "unclear": noted("no clear answer came, so it is not known what was taken"),
    "throttled": noted("the push service asked us to go slower"),
    "unauthorised": noted("the push service did not accept our credentials"),
    "too_many": noted("the push service wanted fewer at once"),
    "mixed_projects": noted("phones of several projects were in it"),
    "rejected": noted("the push service refused one of its messages"),
}
"""What became of a whole request."""

PAUSED = {
    "ingest": noted("{who} paused the asking of sources."),
    "fanout": noted("{who} paused fan-out."),
    "dispatch": noted("{who} paused sending."),
    "receipt": noted("{who} paused the asking for receipts."),
}
"""What it means that a cycle is paused."""

RESUMED = {
    "ingest": noted("{who} had sources asked again, after {time}."),
    "fanout": noted("{who} had fan-out go on, after {time}."),
    "dispatch": noted("{who} had sending go on, after {time}."),
    "receipt": noted("{who} had receipts asked for again, after {time}."),
}
"""What it means that a cycle is resumed."""

INCIDENTS = {
    "breaker_opened": noted("The breaker of project {project} opened: sending stopped but for probes."),
    "probe_failed": noted("A probe of project {project} failed: its breaker stays open."),
    "breaker_closed": noted("The breaker of project {project} closed: sending went on."),
    "rate_halved": noted("The push service asked project {project} to go slower."),
    "pruning_stopped": noted("Project {project} met so many unregistered phones that no token was disabled any more."),
    "pruning_resumed": noted("Tokens of project {project} were disabled again where phones are gone."),
    "runaway_stopped": noted("The runaway brake stopped project {project}."),
    "runaway_released": noted("The runaway brake let project {project} go."),
    "tokens_moved": noted("Phones of project {project} turned out to belong to another one."),
    "released": noted("An operator released project {project}."),
    "redriven": noted("An operator had dead letters of project {project} sent anew."),
}
"""What may happen to a project while an event is sent."""

RULES = {
    "event_gone": noted("There is no such event any more: it was archived or deleted."),
    "installation_gone": noted("There is no such phone any more."),
    "not_named": noted("The event is for others: it names neither this phone nor its owner."),
    "not_allowed": noted("Pushes may not go to this phone: {why}."),
    "opted_out": noted("This phone opted out of the event's category, {category}."),
    "no_preference": noted("This phone has no preference, and so asks for nothing."),
    "preference_differs": noted("None of this phone's preferences matches: {differs}."),
    "handled_elsewhere": noted("It was handled on another phone, or elsewhere."),
    "event_ended": noted("The event was ended: {reason}."),
    "deadline_passed": noted("The event's deadline had passed."),
    "came_later": noted("The event had gone out before this phone could receive it."),
    "preference": noted("Its preference {preference} matches."),
    "everyone": noted("The event is for everyone."),
    "named": noted("The event names this phone."),
    "owner": noted("The event is for its owner."),
}
"""The rules by which a phone gets an event, or not."""

DIMENSIONS = {
    "disabled": noted("it is switched off"),
    "topics": noted("other topics"),
    "rubro_prefix": noted("another rubro"),
    "tipo": noted("another type of tender"),
    "region": noted("another region"),
    "monto_min": noted("the amount is too small or unknown"),
    "monto_max": noted("the amount is too large or unknown"),
    "keywords": noted("none of its words is in the text"),
}
"""In what a preference may differ from an event."""

NOT_ALLOWED = {
    "unregistered": noted("it was unregistered, as at a log-out"),
    "permission denied": noted("the phone does not permit notifications"),
    "permission undetermined": noted("the phone was not asked yet whether it permits notifications"),
    "no token": noted("it has no push token"),
    "not push capable": noted("it cannot receive pushes"),
}
"""Why pushes may not go to a phone; anything else is what the push service said."""

MATCHED = {
    "everyone": noted("because it is for everyone"),
    "installations": noted("because it names them"),
    "owners": noted("because they belong to its owners"),
    "matching": noted("because their preferences match"),
}
"""Why phones get an event, by its audience."""

MATCHED_ONE = {
    "everyone": MATCHED["everyone"],
    "installations": noted("because it is named"),
    "owners": noted("because it belongs to an owner who is meant"),
    "matching": noted("because its preferences match"),
}
"""The same of one phone."""


NOBODY = {
    "owners_unknown": noted("unknown owner, no phone belongs to {owners}"),
    "owners_silent": noted("no phone of {owners} may receive it: {reasons}"),
    "installations_unknown": noted("no phone that it names is registered"),
    "installations_silent": noted("no phone that it names may receive it: {reasons}"),
    "everyone_unknown": noted("no phone is registered yet"),
    "everyone_silent": noted("no phone may receive it: {reasons}"),
    "matching": noted("no phone's preferences match"),
    "not_then": noted("no phone that was meant could receive it then"),
}
"""Why an event went out to nobody."""

_STANDS = ("event_gone", "installation_gone", "not_named")
"""Rules that hold whenever a phone was registered."""
_BY_PREFERENCES = ("no_preference", "preference_differs", "preference")
_BY_PHONE = ("not_allowed", "opted_out")
_AGAINST = ("not_named", "not_allowed", "opted_out", "no_preference", "preference_differs")
"""Rules by which no delivery is made: where there is one, they hold only since."""


def in_words(code: str | None) -> str:
    """Say what an error code means; one that is not ours stands for itself."""
    status = _STATUS.fullmatch(code or "")
    if code in ERRORS or status is None:
        return t(ERRORS.get(code or "", code or ""))
    if int(status[1]) < _FAILED_STATUS:
        return t("The push service refused the request: it answered {status}.", status=status[1])
    return t("The push service failed: it answered {status}.", status=status[1])


def as_said(code: str | None, message: str | None) -> str:
    """Say what an error means, and behind that what was said."""
    said = ": ".join(filter(None, (code, message)))
    return " ".join(filter(None, (in_words(code), f"({clipped(said, 500)})" if said else "")))


def quoted(said: str) -> str:
    """Write what others said as a quotation."""
    return t("“{said}”", said=clipped(said, 300))


def because(reason: str | None) -> str:
    """Say why a project was stopped, within a sentence: in words, then as the push service said it."""
    told = in_words((reason or "").partition(": ")[0]).removesuffix(".")
    if not reason or reason.startswith(told):
        return reason or ""
    return f"{told[:1].lower()}{told[1:]}, {quoted(reason)}"


def nobody(told: Nobody, owners: Iterable[str]) -> str:
    """Say why an event went out to nobody, as the end of a sentence."""
    whys = [not_allowed(each).removesuffix(".") for each in told.reasons]
    said = "; ".join(f"{each[:1].lower()}{each[1:]}" for each in whys)
    return t(NOBODY[told.why], owners=clipped(", ".join(owners), 200), reasons=clipped(said, 300))


def meaning(status: str, provider: str = "") -> str:
    """Say what a delivery's status means; at a webhook it is a server that takes it."""
    return (status == "ok" and taken_by_server(provider)) or t(MEANINGS.get(status, status))


def taken_by_server(provider: str) -> str:
    """Say that what was taken was taken by a server, where a push service is none."""
    return t("Your server took it.") if provider in _SERVERS else ""


def briefly(status: str, code: str | None) -> str:
    """Say in a list what is worth saying of a delivery: nothing where all is as it should be."""
    if status in ("ok", "sent", "pending"):
        return "" if status != "pending" or not code else in_words(code)
    return in_words(code) or meaning(status)


def not_allowed(why: str | None) -> str:
    """Say why pushes may not go to a phone."""
    return t(NOT_ALLOWED[why]) if why in NOT_ALLOWED else in_words(why)


def rule(told: Explanation, *, why_not: str | None = None, event: Mapping[str, Any] | None = None) -> str:
    """Say by which rule a phone gets an event, or not."""
    event = event or {}
    differs = ", ".join(
        f"{each['name']}: {t(DIMENSIONS.get(each['differs_in'], each['differs_in']))}"
        for each in told.raw.get("differing_preferences") or ()
    )
    ended = ": ".join(filter(None, (t(event.get("state") or ""), event.get("end_reason")))).removesuffix(".")
    said = RULES.get(told.rule)
    if said is None:
        return told.reason
    why = not_allowed(why_not or _told_why(told))
    if told.rule == "not_allowed" and not why:
        return t(ERRORS["not_allowed"])
    why = why[:1].lower() + why[1:].removesuffix(".")
    parts = {"why": why, "category": event.get("category") or "", "differs": differs}
    return t(said, **parts, reason=ended, preference=told.raw.get("preference") or "")


def _told_why(told: Explanation) -> str:
    """Return why pushes may not go to a phone, as the rule's own sentence tells it."""
    _, _, why = told.reason.removesuffix(".").partition("Pushes may not go to it: ")
    return why


def came_afterwards(told: Explanation, changes: Mapping[str, Any] | None) -> bool:
    """Tell whether a phone missed an event because it was registered only when that had gone out."""
    later = changes is not None and changes["registered_at"] is not None
    return later and not told.raw.get("delivery") and told.rule not in _STANDS


def afterwards(changes: Mapping[str, Any]) -> Child:
    """Say that a phone was registered only after an event had gone out."""
    went_out, registered = instant(changes["went_out_at"]), instant(changes["registered_at"])
    return [t("It was registered only afterwards:"), " ", registered, ". ", t("The event went out"), " ", went_out, "."]


def changed_since(told: Explanation, changes: Mapping[str, Any] | None) -> list[Child]:
    """Say what was changed since an event went out of that by which it is judged; where no trace is kept, say that."""
    return list(_changed_since(told, changes)) if changes is not None else []


def _changed_since(told: Explanation, changes: Mapping[str, Any]) -> Iterator[Child]:
    came_later = told.rule == "came_later"
    if told.raw.get("delivery") and told.rule in _AGAINST:
        yield t("When the event went out it was meant to get it: a delivery was made.")
    if told.rule == "not_allowed" and changes["disabled_at"]:
        since = t("That is so only since")
        yield [
            since,
            " ",
            instant(changes["disabled_at"]),
            t(", after the event had gone out; how it was then is not kept."),
        ]
    elif (told.rule in _BY_PHONE or came_later) and changes["changed_at"]:
        yield _judged(t("The phone was changed, or registered itself again, since:"), changes["changed_at"])
    if told.rule in _BY_PREFERENCES or (came_later and changes["audience"] == "matching"):
        if changes["preferences_at"]:
            yield _judged(t("Its preferences were changed since:"), changes["preferences_at"])
        elif not told.raw.get("delivery"):
            yield t("A preference that was removed since would leave no trace.")
    if told.rule in ("not_named", "owner") and changes["owner_since"]:
        yield _judged(t("It changed its owner since:"), changes["owner_since"])


def _judged(what: str, at: Any) -> Child:
    return [what, " ", instant(at), t("; it is judged as it is today.")]
