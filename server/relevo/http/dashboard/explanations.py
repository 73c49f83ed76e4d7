"""Why a phone gets an event, or not, in words that somebody understands who knows nothing of queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from relevo.client.values import Explanation
from relevo.core.i18n import N_
from relevo.core.i18n import gettext as _
from relevo.core.phrases import clipped
from relevo.http.dashboard.formats import instant
from relevo.operators.audience import Nobody
from relevo.operators.reasons import cap, not_allowed, wanted_when

RULES = {
    "event_gone": N_("There is no such event any more: it was archived or deleted."),
    "installation_gone": N_("There is no such phone any more."),
    "owner_changed": N_(
        "This phone belongs to another owner now, or to none. The event stays in the inbox of the owner it was for."
    ),
    "not_named": N_("The event is for others: it names neither this phone nor its owner."),
    "other_project": N_("The event is for the phones of project %(project)s."),
    "not_allowed": N_("Pushes may not go to this phone: %(why)s."),
    "opted_out": N_("This phone opted out of the event's category, %(category)s."),
    "refused": N_("Its owner refused the event's category, %(category)s."),
    "not_accepted": N_("Its owner has not accepted the event's category, %(category)s, which is off until then."),
    "no_preference": N_("This phone has no preference, and so asks for nothing."),
    "preference_differs": N_("None of this phone's preferences matches: %(differs)s."),
    "attribute_differs": N_("Its attribute %(attribute)s is %(has)s, and the event is for %(wanted)s."),
    "handled_elsewhere": N_("It was handled on another phone, or elsewhere."),
    "superseded": N_("A later event of the same type and collapse key took its place."),
    "quiet_hours": N_("It waits for the end of quiet hours: they last until %(until)s in %(zone)s (%(whose)s)."),
    "quiet_hours_former": N_(
        "It waits until %(until)s in %(zone)s (%(whose)s): the quiet hours that it waits for were changed since, and "
        "it is looked at again then."
    ),
    "capped": N_("It was not pushed: a cap of its owner was reached (%(reason)s). It is in the inbox."),
    "quiet_expired": N_("Its deadline lay in the quiet hours of this phone, and its type says that it expires then."),
    "event_ended": N_("The event was ended: %(reason)s."),
    "deadline_passed": N_("The event's deadline had passed."),
    "in_digest": N_("It is told in the digest of %(at)s (%(delivery)s, %(zone)s)."),
    "digested": N_("It was told in the digest of %(at)s (%(delivery)s, %(zone)s)."),
    "undigested": N_("The digest of %(at)s (%(delivery)s, %(zone)s) was to tell it, but its push did not arrive."),
    "deadline_before_digest": N_("Its deadline precedes the digest of this phone that would tell it."),
    "preference_changed": N_("No preference of this phone wants it any more."),
    "project_changed": N_("The phone moved to another project before it was told."),
    "batched": N_("It was gathered with others of its kind, and handled before they were told."),
    "batched_until": N_("It is told together with others of its kind: %(until)s."),
    "unbatched": N_("Event %(event)s was to tell it, but its push did not arrive."),
    "batched_into": N_("It was told together with others of its kind, %(count)s in all, by event %(event)s."),
    "came_later": N_("The event had gone out before this phone could receive it."),
    "preference": N_("Its preference %(preference)s matches."),
    "everyone": N_("The event is for everyone."),
    "attributes": N_("It has the attributes that the event is for."),
    "named": N_("The event names this phone."),
    "owner": N_("The event is for its owner."),
}
"""The rules by which a phone gets an event, or not."""

ZONES = {
    "phone": N_("the zone of the phone"),
    "owner": N_("the zone of its owner"),
    "project": N_("the zone of the project"),
    "none": N_("no time zone is set"),
}
"""Whose time zone quiet hours go by."""

HOURS = {
    "phone": N_("its own hours"),
    "owner": N_("the hours of its owner"),
    "project": N_("the hours of the project"),
}
"""Whose quiet hours a phone has."""

DIMENSIONS = {
    "disabled": N_("it is switched off"),
    "topics": N_("other topics"),
    "rubro_prefix": N_("another rubro"),
    "tipo": N_("another type of tender"),
    "region": N_("another region"),
    "monto_min": N_("the amount is too small or unknown"),
    "monto_max": N_("the amount is too large or unknown"),
    "keywords": N_("none of its words is in the text"),
}
"""In what a preference may differ from an event."""

MATCHED = {
    "everyone": N_("because it is for everyone"),
    "installations": N_("because it names them"),
    "owners": N_("because they belong to its owners"),
    "matching": N_("because their preferences match"),
    "attributes": N_("because they have the attributes that it is for"),
}
"""Why phones get an event, by its audience."""

MATCHED_ONE = {
    "everyone": MATCHED["everyone"],
    "installations": N_("because it is named"),
    "owners": N_("because it belongs to an owner who is meant"),
    "matching": N_("because its preferences match"),
    "attributes": N_("because it has the attributes that it is for"),
}
"""The same of one phone."""


NOBODY = {
    "owners_unknown": N_("unknown owner, no phone belongs to %(owners)s"),
    "owners_elsewhere": N_(
        "%(owners)s has phones in other projects only: give the event a project, or run `relevo owner names shared`"
    ),
    "owners_silent": N_("no phone of %(owners)s may receive it: %(reasons)s"),
    "installations_unknown": N_("no phone that it names is registered"),
    "installations_silent": N_("no phone that it names may receive it: %(reasons)s"),
    "everyone_unknown": N_("no phone is registered yet"),
    "everyone_silent": N_("no phone may receive it: %(reasons)s"),
    "matching": N_("no phone's preferences match"),
    "attributes": N_("no phone has the attributes that it is for"),
    "not_then": N_("no phone that was meant could receive it then"),
}
"""Why an event went out to nobody."""

_VERDICTS = {
    **dict.fromkeys(("sent", "ok", "unconfirmed"), N_("Yes, it was sent.")),
    **dict.fromkeys(("pending", "retryable"), N_("Not yet.")),
    "unknown": N_("Nobody knows."),
}
_LONGEST, _LONGEST_NAME = 300, 100
_STANDS = ("event_gone", "installation_gone", "not_named")
"""Rules that hold whenever a phone was registered."""
_BY_PREFERENCES = ("no_preference", "preference_differs", "preference")
_UNWANTED = ("opted_out", "refused", "not_accepted")
_BY_PHONE = ("not_allowed", *_UNWANTED)
_TOGETHER = ("batched", "in_digest", "digested")
_AGAINST = ("not_named", "not_allowed", *_UNWANTED, "no_preference", "preference_differs", "attribute_differs")
"""Rules by which no delivery is made: where there is one, they hold only since."""


def nobody(told: Nobody, owners: Iterable[str]) -> str:
    """Say why an event went out to nobody, as the end of a sentence."""
    whys = [not_allowed(each).removesuffix(".") for each in told.reasons]
    said = "; ".join(f"{each[:1].lower()}{each[1:]}" for each in whys)
    return _(NOBODY[told.why], owners=clipped(", ".join(owners), 200), reasons=clipped(said, 300))


def with_others(told: Explanation) -> bool:
    """Return whether a phone has no push of its own of an event because a batch or a digest tells it."""
    status = (told.raw.get("delivery") or {}).get("status", "skipped")  # without a delivery it is told by another's
    return told.gets_it and told.rule in _TOGETHER and status == "skipped"


def verdict(told: Explanation) -> str:
    """Say in a word or two whether a phone got an event."""
    status = (told.raw.get("delivery") or {}).get("status", "")
    if status in _VERDICTS:
        return _(_VERDICTS[status])
    if with_others(told):
        return _("Not by itself.")
    if told.rule == "capped":
        return _("No.")
    if status:
        return _("No: it was meant to, and did not.")
    return _("It will get it.") if told.gets_it else _("No.")


def rule(told: Explanation) -> Markup:
    """Say by which rule a phone gets an event, or not."""
    values = told.raw["values"]
    key = "other_project" if values.get("project") else told.rule
    if key == "batched" and told.gets_it:
        key = "batched_into" if values.get("event") else "batched_until"
    elif key == "batched" and values.get("event"):
        key = "unbatched"
    if key == "quiet_hours" and values.get("former"):
        key = "quiet_hours_former"
    if key == "digested" and not told.gets_it:
        key = "undigested"
    if key not in RULES:
        return escape(clipped(told.reason, _LONGEST))
    why = not_allowed(values.get("why_not") or "not_allowed")
    differs = ", ".join(
        f"{each['name']}: {_(DIMENSIONS.get(each['differs_in'], each['differs_in']))}"
        for each in told.raw["differing_preferences"]
    )
    state = values.get("state") or ""
    said = _(
        RULES[key],
        why=why[:1].lower() + why[1:].removesuffix("."),
        category=clipped(values.get("category"), _LONGEST_NAME),
        project=clipped(values.get("project"), _LONGEST_NAME),
        differs=clipped(differs, _LONGEST),
        reason=clipped(": ".join(filter(None, (_(state), cap(values.get("reason"))))).removesuffix("."), _LONGEST),
        preference=clipped(told.raw["preference"], _LONGEST_NAME),
        until=values.get("local") or (instant(datetime.fromisoformat(values["until"])) if values.get("until") else ""),
        count=values.get("count"),
        event=values.get("event"),
        zone=values.get("zone"),
        whose=_(ZONES.get(values.get("zone_of"), "")),
        attribute=values.get("attribute"),
        has=clipped(_("not given") if values.get("has") is None else str(values["has"]), _LONGEST_NAME),
        wanted=clipped(str(values.get("wanted")), _LONGEST_NAME),
        at=instant(datetime.fromisoformat(values["at"])) if values.get("at") else "",
        delivery=wanted_when(values.get("delivery")),
    )
    quiet = values.get("quiet") or {}
    return Markup(" ").join(filter(None, (said, _silently(quiet), _by_category({**values, **quiet}))))


def _silently(quiet: Mapping[str, Any]) -> str:
    """Say that a push makes, or made, no sound because of quiet hours; nothing if it does."""
    if quiet.get("verdict") != "silent":
        return ""
    if quiet.get("at"):
        return _("It went without a sound, for the phone had quiet hours.")
    return _("It goes without a sound as long as the phone has quiet hours.")


def _by_category(values: Mapping[str, Any]) -> str:
    """Say that the event's category, not its type, decides what quiet hours mean for it; nothing if it does not."""
    if values.get("rule_of") != "category":
        return ""
    return _("The category %(category)s sets the rule for quiet hours.", category=values["category"])


def came_afterwards(told: Explanation, changes: Mapping[str, Any] | None) -> bool:
    """Return whether a phone missed an event because it was registered only when that had gone out."""
    later = changes is not None and changes["registered_at"] is not None
    return later and not told.raw.get("delivery") and told.rule not in _STANDS


def afterwards(changes: Mapping[str, Any]) -> str:
    """Say that a phone was registered only after an event had gone out."""
    registered, went_out = instant(changes["registered_at"]), instant(changes["went_out_at"])
    return _(
        "It was registered only afterwards: %(registered)s. The event went out %(went_out)s.",
        registered=registered,
        went_out=went_out,
    )


def changed_since(told: Explanation, changes: Mapping[str, Any] | None) -> Iterator[str]:
    """Say what was changed since an event went out of that by which it is judged; where no trace is kept, say that."""
    if changes is None:
        return
    came_later = told.rule == "came_later"
    if told.raw.get("delivery") and told.rule in _AGAINST:
        yield _("When the event went out it was meant to get it: a delivery was made.")
    if told.rule == "not_allowed" and changes["disabled_at"]:
        at = instant(changes["disabled_at"])
        yield _("That is so only since %(at)s, after the event had gone out; how it was then is not kept.", at=at)
    elif (told.rule in _BY_PHONE or came_later) and changes["changed_at"]:
        at = instant(changes["changed_at"])
        yield _("The phone was changed, or registered itself again, since: %(at)s; it is judged as it is today.", at=at)
    if told.rule in _BY_PREFERENCES or (came_later and changes["audience"] == "matching"):
        if changes["preferences_at"]:
            at = instant(changes["preferences_at"])
            yield _("Its preferences were changed since: %(at)s; it is judged as it is today.", at=at)
        elif not told.raw.get("delivery"):
            yield _("A preference that was removed since would leave no trace.")
    if told.rule in ("not_named", "owner") and changes["owner_since"]:
        at = instant(changes["owner_since"])
        yield _("It changed its owner since: %(at)s; it is judged as it is today.", at=at)
