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
    "no_preference": N_("This phone has no preferences, so no event matches it."),
    "preference_differs": N_("None of this phone's preferences matches: %(differs)s."),
    "attribute_differs": N_("Its attribute %(attribute)s is %(has)s, and the event is for %(wanted)s."),
    "handled_elsewhere": N_("It was handled on another phone, or elsewhere."),
    "shadow": N_("Relevo did not send this push: shadow mode was on."),
    "superseded": N_("A later event of the same type and collapse key replaced it."),
    "quiet_hours": N_("It waits for the end of quiet hours: they last until %(until)s in %(zone)s (%(whose)s)."),
    "quiet_hours_former": N_(
        "It waits until %(until)s in %(zone)s (%(whose)s). Its quiet hours were changed meanwhile; "
        "Relevo checks them again then."
    ),
    "capped": N_("It was not pushed: a cap of its owner was reached (%(reason)s). It is in the inbox."),
    "quiet_expired": N_("Its deadline fell into the quiet hours of this phone, and events of its type expire then."),
    "event_ended": N_("The event was ended: %(reason)s."),
    "deadline_passed": N_("The event's deadline had passed."),
    "in_digest": N_("The digest of %(at)s (%(delivery)s, %(zone)s) includes it."),
    "digested": N_("The digest of %(at)s (%(delivery)s, %(zone)s) included it."),
    "undigested": N_("The digest of %(at)s (%(delivery)s, %(zone)s) included it, but its push did not arrive."),
    "deadline_before_digest": N_("Its deadline comes before the digest that would include it."),
    "preference_changed": N_("No preference of this phone matches it any more."),
    "project_changed": N_("The phone moved to another project before the push was sent."),
    "batched": N_("It was gathered with other events of its kind, and handled before their push was sent."),
    "batched_until": N_("One push announces it together with other events of its kind: %(until)s."),
    "unbatched": N_("Event %(event)s announced it, but its push did not arrive."),
    "batched_into": N_("Event %(event)s announced it together with others of its kind, %(count)s in all."),
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
"""The owners of the time zone that quiet hours follow."""

HOURS = {
    "phone": N_("its own hours"),
    "owner": N_("the hours of its owner"),
    "project": N_("the hours of the project"),
}
"""The owners of a phone's quiet hours."""

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
    "everyone": N_("for everyone"),
    "installations": N_("named by the event"),
    "matching": N_("their preferences match"),
    "attributes": N_("they have the attributes"),
}
"""Why phones get an event, by its audience; owners are counted instead."""

MATCHED_ONE = MATCHED | {"matching": N_("its preferences match"), "attributes": N_("it has the attributes")}
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
    "not_then": N_("no targeted phone could receive it then"),
}
"""Why an event went out to nobody."""

_VERDICTS = {
    **dict.fromkeys(("sent", "ok", "unconfirmed"), N_("Yes, it was sent.")),
    **dict.fromkeys(("pending", "retryable"), N_("Not yet.")),
    "unknown": N_("Unknown."),
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
    """Return why an event went out to no phone, as the end of a sentence."""
    whys = [not_allowed(each).removesuffix(".") for each in told.reasons]
    said = "; ".join(f"{each[:1].lower()}{each[1:]}" for each in whys)
    return _(NOBODY[told.why], owners=clipped(", ".join(owners), 200), reasons=clipped(said, 300))


def with_others(told: Explanation) -> bool:
    """Return whether a phone has no push of its own of an event because a batch or a digest tells it."""
    status = (told.raw.get("delivery") or {}).get("status", "skipped")  # without a delivery it is told by another's
    return told.gets_it and told.rule in _TOGETHER and status == "skipped"


def verdict(told: Explanation) -> str:
    """Return in a word or two whether a phone got an event."""
    status = (told.raw.get("delivery") or {}).get("status", "")
    if status in _VERDICTS:
        return _(_VERDICTS[status])
    if with_others(told):
        return _("Together with others.")
    if told.rule == "capped":
        return _("No.")
    if status:
        return _("No: its push was not delivered.")
    return _("It will get it.") if told.gets_it else _("No.")


def rule(told: Explanation) -> Markup:
    """Return the rule by which a phone gets an event, or not, as a sentence."""
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
    """Return a sentence if a push makes, or made, no sound because of quiet hours; else nothing."""
    if quiet.get("verdict") != "silent":
        return ""
    if quiet.get("at"):
        return _("It was sent without a sound because the phone had quiet hours.")
    return _("It is sent without a sound during the phone's quiet hours.")


def _by_category(values: Mapping[str, Any]) -> str:
    """Return a sentence if the event's category, not its type, sets the rule for quiet hours; else nothing."""
    if values.get("rule_of") != "category":
        return ""
    return _("The category %(category)s sets the rule for quiet hours.", category=values["category"])


def came_afterwards(told: Explanation, changes: Mapping[str, Any] | None) -> bool:
    """Return whether a phone missed an event because it was registered only when that had gone out."""
    later = changes is not None and changes["registered_at"] is not None
    return later and not told.raw.get("delivery") and told.rule not in _STANDS


def afterwards(changes: Mapping[str, Any]) -> str:
    """Return that a phone was registered only after an event had gone out."""
    registered, went_out = instant(changes["registered_at"]), instant(changes["went_out_at"])
    return _(
        "The phone was registered after the event went out (registered: %(registered)s, went out: %(went_out)s).",
        registered=registered,
        went_out=went_out,
    )


def changed_since(told: Explanation, changes: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the changes since an event went out of the facts by which it is judged; also where changes are not kept."""
    if changes is None:
        return
    came_later = told.rule == "came_later"
    if told.raw.get("delivery") and told.rule in _AGAINST:
        yield _("The phone was a target when the event went out: fan-out created a delivery.")
    if told.rule == "not_allowed" and changes["disabled_at"]:
        at = instant(changes["disabled_at"])
        yield _("This has been so since %(at)s, after the event went out. The earlier state is not kept.", at=at)
    elif (told.rule in _BY_PHONE or came_later) and changes["changed_at"]:
        at = instant(changes["changed_at"])
        yield _("The phone was changed or registered again later (%(at)s). This answer uses its state of today.", at=at)
    if told.rule in _BY_PREFERENCES or (came_later and changes["audience"] == "matching"):
        if changes["preferences_at"]:
            at = instant(changes["preferences_at"])
            yield _("Its preferences were changed later (%(at)s). This answer uses those of today.", at=at)
        elif not told.raw.get("delivery"):
            yield _("Removed preferences are not kept: one of them may have matched then.")
    if told.rule in ("not_named", "owner") and changes["owner_since"]:
        at = instant(changes["owner_since"])
        yield _("The phone changed its owner later (%(at)s). This answer uses its owner of today.", at=at)
