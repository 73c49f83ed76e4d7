"""Meanings of statuses, error codes and incidents, in words for readers who know nothing of queues."""

from __future__ import annotations

import re

from relevo.core.i18n import N_
from relevo.core.i18n import gettext as _
from relevo.core.known_services import CODES, LABELS, NATIVE
from relevo.core.model import NEWS, SHADOW
from relevo.core.phrases import clipped
from relevo.core.sending_project import SendingProject

MEANINGS = {
    "pending": N_("It waits to be sent."),
    "retryable": N_("The last attempt failed for a reason that may pass; Relevo tries again."),
    "sent": N_("The push service accepted it; Relevo asks for its receipt later."),
    "ok": N_("Apple's or Google's service accepted it: the phone shows it as soon as it is on."),
    "unconfirmed": N_("The push service accepted it but returned no receipt; most likely it arrived."),
    "invalid": N_("The app is gone from this phone, or its push token is wrong: nothing is sent to that token."),
    "failed": N_("It failed for good, and is a dead letter until somebody sends it again."),
    "expired": N_("Its deadline passed before it could be sent."),
    "skipped": N_("It was not pushed to this phone."),
    "cancelled": N_("The event was ended, or handled elsewhere, before this push was sent."),
    "unknown": N_("It may be sent only once, and no answer came: it is unknown whether it arrived."),
}
"""The meaning of each status of a delivery."""

SERVERS = ("webhook", NEWS)
_OF_SEVERAL = {
    N_("The push service could not be reached; nothing was sent."): "NoConnection ConnectTimeout",
    N_("The request began, but no complete answer came."): (
        "MismatchedTickets request_hung request_failed provider_failed BrokenAnswer AnswerTooLong"
    ),
    N_("Your own code raised an error or did not return."): (
        "composer_failed composer_hung middleware_failed middleware_hung"
    ),
}
"""Common meanings of several error codes."""
ERRORS = {
    **{code: each.means for code, each in CODES.items() if each.means},
    "MalformedToken": N_("This phone's push token is malformed."),
    "MalformedMessage": N_("The message cannot be written as JSON."),
    "ReadTimeout": N_("No complete answer came in time."),
    "ConnectionBroken": N_("The connection broke before the complete answer came."),
    "answer_not_seen": N_("The process that sent it died before it saw the answer."),
    "poison": N_("The process that tried to send it died, several times: something in this push may crash it."),
    "words_missing": N_("The process that claimed it cannot render the texts of its type; another process sends it."),
    "rescheduled": N_("Your own code postponed it."),
    "no_thread": N_("This process could not start another thread for the request."),
    "event_gone": N_("The event was deleted."),
    "event_ended": N_("The event was ended before."),
    "handled_elsewhere": N_("It was handled on another phone, or elsewhere."),
    "superseded": N_("A later event of the same type and collapse key replaced it."),
    "owner_changed": N_(
        "This phone belongs to another owner now, or to none. The event stays in the inbox of the owner it was for."
    ),
    "deadline_passed": N_("It came too late: its deadline had passed."),
    "installation_gone": N_("This phone was forgotten."),
    "not_allowed": N_("Pushes may not go to this phone."),
    "opted_out": N_("This phone opted out of the event's category."),
    "refused": N_("Its owner refused the event's category."),
    "not_accepted": N_("Its owner has not accepted the event's category, which is off until then."),
    "preference_changed": N_("The preferences of this phone do not match it any more."),
    "told_already": N_("Its device already got it through an earlier installation with this push token."),
    "token_changed": N_("The phone got a new push token; the push is sent to the new one."),
    "repeats_held": N_("The runaway brake holds it: it was repeated too often."),
    "quiet_hours": N_("This phone has quiet hours."),
    "capped": N_("It was not pushed: a cap of its owner was reached. It is in the inbox."),
    "in_digest": N_("A digest of this phone includes it."),
    "deadline_before_digest": N_("Its deadline comes before the digest that would include it."),
    "project_changed": N_("The phone moved to another project before the push was sent."),
    "batched": N_("One push announces it together with others of its kind."),
    "phone_paused": N_("The push service asked Relevo to send nothing to this phone for a while."),
    SHADOW: N_("Relevo did not send this push: shadow mode was on."),
    "shows_nothing": N_("It has neither a title nor a body, and a browser must show something."),
    "retired": N_("Its month went to the archive before it could be sent."),
    "none": N_("No reason was given."),
    **{code: said for said, codes in _OF_SEVERAL.items() for code in codes.split()},
}
"""The meaning of each error code of a delivery: those of push services by their facts, and Relevo's own."""
_STATUS = re.compile(r"HTTP_(\d{3})")
_FAILED_STATUS = 500

REPLIES = {
    "answered": N_("the push service answered"),
    "held_back": N_("the request was not begun"),
    "not_sent": N_("there was no connection"),
    "not_taken": N_("not accepted, unlike other pushes of the same request"),
    "unclear": N_("no clear answer came, so it is unknown which pushes were accepted"),
    "throttled": N_("the push service asked Relevo to slow down"),
    "unauthorised": N_("the push service did not accept the project's credentials"),
    "too_many": N_("the push service allows fewer at once"),
    "mixed_projects": N_("the request held phones of several projects"),
    "rejected": N_("the push service refused one of its messages"),
}
"""The outcomes of a whole request."""

INCIDENTS = {
    "breaker_opened": N_("The breaker of project %(project)s opened: Relevo sent only probes."),
    "probe_failed": N_("A probe of project %(project)s failed: its breaker stayed open."),
    "breaker_closed": N_("The breaker of project %(project)s closed: sending resumed."),
    "rate_halved": N_("The push service asked project %(project)s to slow down."),
    "pruning_stopped": N_("Project %(project)s met so many unregistered tokens that Relevo stopped disabling them."),
    "pruning_resumed": N_("Relevo disabled unregistered tokens of project %(project)s again."),
    "runaway_stopped": N_("The runaway brake stopped project %(project)s."),
    "runaway_released": N_("The runaway brake released project %(project)s."),
    "tokens_moved": N_("The push service answered that phones of project %(project)s belong to another project."),
    "released": N_("An operator released project %(project)s."),
    "redriven": N_("An operator sent dead letters of project %(project)s again."),
}
"""Incidents of a project while an event is sent."""

_GONE = re.compile(r"(?P<gone>\d+) of (?P<answers>\d+) answers said that the phone is gone")
_GONE_IN_WORDS = N_("%(gone)s of %(answers)s answers said that the phone is gone.")
_DETAILS = {
    "rate_halved": (re.compile(r"to (?P<share>\d+%) of the full rate"), N_("To %(share)s of the full rate.")),
    "pruning_stopped": (_GONE, _GONE_IN_WORDS),
    "pruning_resumed": (_GONE, _GONE_IN_WORDS),
    "breaker_closed": (re.compile(r"after: (?P<reason>.+)", re.DOTALL), N_("It had opened: %(reason)s")),
    "tokens_moved": (
        re.compile(r"(?P<n>\d+) tokens belong to (?P<to>.+)", re.DOTALL),
        N_("Tokens that belong to %(to)s: %(n)s."),
    ),
}
"""Texts that workers write of an incident, and their translated forms."""

NOT_ALLOWED = {
    "unregistered": N_("it was unregistered, for example by a log-out"),
    "permission denied": N_("the phone does not permit notifications"),
    "permission undetermined": N_("the phone has not been asked for its permission yet"),
    "no token": N_("it has no push token"),
    "not push capable": N_("it cannot receive pushes"),
    "owner blocked": N_("its owner is blocked"),
    "token_moved": N_("its push token belongs to another installation now"),
}
"""Why pushes may not go to a phone; anything else is what the push service said."""

_UNSENT = (
    "batched capped deadline_before_digest deadline_passed event_ended event_gone handled_elsewhere in_digest "
    "installation_gone not_accepted not_allowed opted_out owner_changed preference_changed project_changed refused "
    "shadow superseded told_already"
)
"""The codes that say all there is to say of a delivery that ended unsent."""
_OURS = ("capped", "in_digest", "batched", "deadline_before_digest", "project_changed")
NO_ROOM = "There is no room for it: "
"""As the database begins what it says of a cap."""
_CAP = re.compile(r"at most (\d+) an? (hour|day|week)(?: of category (.+?))?(?:, and (\d+) are used)?\.?")
_CAPS = {
    "hour": N_("at most %(most)s an hour"),
    "day": N_("at most %(most)s a day"),
    "week": N_("at most %(most)s a week"),
}
_DAYS = {
    "mon": N_("Monday"),
    "tue": N_("Tuesday"),
    "wed": N_("Wednesday"),
    "thu": N_("Thursday"),
    "fri": N_("Friday"),
    "sat": N_("Saturday"),
    "sun": N_("Sunday"),
}


def in_words(code: str | None) -> str:
    """Return the meaning of an error code; a foreign code is returned as it is."""
    status = _STATUS.fullmatch(code or "")
    if code in ERRORS or status is None:
        return _(ERRORS.get(code, code)) if code else ""
    if int(status[1]) < _FAILED_STATUS:
        return _("The push service refused the request: it answered %(status)s.", status=status[1])
    return _("The push service failed: it answered %(status)s.", status=status[1])


def as_said(code: str | None, message: str | None) -> str:
    """Return the meaning of an error, followed by its message."""
    if code in _OURS:
        message = example(code, message)
        return " ".join(filter(None, (in_words(code), f"({clipped(message, 500)})" if message else "")))
    said = ": ".join(filter(None, (code, message)))
    return " ".join(filter(None, (in_words(code), f"({clipped(said, 500)})" if said else "")))


def example(code: str | None, message: str | None) -> str:
    """Return what was said of an error; words of the database's own in the reader's language, or none."""
    if code not in _OURS:
        return message or ""
    return cap(message) if code in ("capped", "in_digest") else ""


def quoted(said: str) -> str:
    """Write what others said as a quotation."""
    return _("“%(said)s”", said=clipped(said, 300))


def because(reason: str | None) -> str:
    """Return why a project was stopped, within a sentence: in words, then as the push service said it."""
    told = in_words((reason or "").partition(": ")[0]).removesuffix(".")
    if not reason or reason.startswith(told):
        return reason or ""
    return f"{told[:1].lower()}{told[1:]}, {quoted(reason)}"


def happened(what: str, said: str) -> str:
    """Return a worker's text about a project's incident in the reader's language."""
    if what in ("breaker_opened", "probe_failed"):
        why = because(said)
        return why[:1].upper() + why[1:]
    text, form = _DETAILS.get(what, (None, ""))
    found = text.fullmatch(said) if text else None
    if found is None:
        return said
    told = found.groupdict()
    if "reason" in told:
        told["reason"] = because(told["reason"])
    return _(form, **told)


def meaning(status: str, provider: str = "") -> str:
    """Return the meaning of a delivery's status; without receipts the last known fact is that it was taken."""
    return (status == "ok" and taken_by(provider)) or _(MEANINGS.get(status, status))


def ending(status: str, provider: str, code: str | None, message: str | None) -> str:
    """Return how a delivery ended: by the reason why it was not sent, or else by the meaning of its status."""
    return as_said(code, message) if is_unsent(code) else meaning(status, provider)


def is_unsent(code: str | None) -> bool:
    """Return whether a code is the whole reason why a delivery was not sent."""
    return code in _UNSENT.split()


def taken_by(provider: str) -> str:
    """Return who accepted it, where that is the end: a server, or a push service that gives no receipts."""
    if provider in NATIVE:
        return _("Accepted by %(provider)s; %(provider)s gives no receipts.", provider=LABELS[provider])
    return _("Your server accepted it.") if provider in SERVERS else ""


def split_provider(project: str) -> str:
    """Return the label of the push service that a sending project is of, if it is a native one."""
    provider = SendingProject.parse(project).provider
    return LABELS[provider] if provider in NATIVE else ""


def briefly(status: str, code: str | None) -> str:
    """Return the short explanation of a delivery in a list: nothing where all is well."""
    if status in ("ok", "sent", "pending"):
        return "" if status != "pending" or not code else in_words(code)
    return in_words(code) or meaning(status)


def not_allowed(why: str | None) -> str:
    """Return why pushes may not go to a phone."""
    return _(NOT_ALLOWED[why]) if why in NOT_ALLOWED else in_words(why)


def cap(said: str | None) -> str:
    """Return the cap that was reached; other texts stay as they are."""
    told = (said or "").removeprefix(NO_ROOM)
    found = _CAP.fullmatch(told)
    if found is None:
        return told
    most, per, category, used = found.groups()
    words = _(_CAPS[per], most=most)
    if category:
        words = _("%(cap)s of category %(category)s", cap=words, category=category)
    return _("%(cap)s, and %(used)s are used", cap=words, used=used) if used else words


def wanted_when(said: str | None) -> str:
    """Return when a preference asks for delivery: hourly, daily or weekly."""
    kind, *more = (said or "now").split()
    if kind == "hourly":
        return _("hourly")
    if kind == "daily":
        return _("daily at %(time)s", time=more[0])
    if kind == "weekly":
        return _("weekly, %(day)s at %(time)s", day=_(_DAYS[more[0]]), time=more[1])
    return said or ""
