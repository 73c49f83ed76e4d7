"""What the form of the compose page says: an event, as the SQL functions take it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from relevo.core.i18n import gettext as _
from relevo.core.locales import zone_named
from relevo.http.dashboard.actions import FormInput
from relevo.http.problems import Problem

FIELDS = {
    "type": 100,
    "title": 500,
    "body": 2_000,
    "data": 2_000,
    "push": 2_000,
    "words": 100,
    "arguments": 4_000,
    "audience": 20,
    "whom": 4_000,
    "category": 100,
    "topics": 2_000,
    "rubros": 2_000,
    "region": 2_000,
    "tipo": 2_000,
    "monto": 30,
    "moneda": 2_000,
    "text": 2_000,
    "lane": 10,
    "scheduled_at": 30,
    "deadline_at": 30,
    "timezone": 64,
}
"""The fields of the form, and how long each may be."""
USUAL_TYPE = "announcement"
_NAMED = ("installations", "owners")
_MATCHED = ("region", "tipo", "moneda", "text")


def read(form: FormInput, key: str) -> dict[str, Any]:
    """Return the event that the form describes, as far as it does; raises Problem with what is wrong."""
    event: dict[str, Any] = {"type": form.text("type", FIELDS["type"]) or USUAL_TYPE, "key": key, **_audience(form)}
    for name in ("title", "body", "category", "lane"):
        event[name] = form.text(name, FIELDS[name])
    for name in ("scheduled_at", "deadline_at"):
        event[name] = _time(form, name)
    wrong = _("The further fields must be a JSON object.")
    event["push"] = json_object(form.text("push", FIELDS["push"]), wrong, '{"badge": 3}')
    event["data"] = data(form)
    if words := form.text("words", FIELDS["words"]):
        if event["title"] or event["body"]:
            hint = _("Empty title and body, or choose a text of your own.")
            raise Problem(
                400, _("It is told by the texts of %(type)s, or by a text of its own.", type=words), hint=hint
            )
        event["type"] = words
        event["arguments"] = arguments(form)
    given = {name: value for name, value in event.items() if value not in ("", None)}
    return {name: value for name, value in given.items() if name == "arguments" or value != {}}


def says_something(form: FormInput) -> bool:
    """Return whether the form has a text or data of its own."""
    return any(form.text(name, FIELDS[name]) for name in ("title", "body", "data"))


def arguments(form: FormInput) -> dict[str, Any]:
    """Return what goes into the texts of a type."""
    return json_object(
        form.text("arguments", FIELDS["arguments"]), _("The arguments must be a JSON object."), '{"count": 3}'
    )


def data(form: FormInput) -> dict[str, Any]:
    """Return the data for the app."""
    return json_object(form.text("data", FIELDS["data"]), _("The data must be a JSON object."), '{"screen": "inbox"}')


def zone_of(form: FormInput) -> str | None:
    """Return the time zone of the form's times, if one is given."""
    given = form.text("timezone", FIELDS["timezone"])
    if given and zone_named(given).lower() != given.lower():
        hint = _("It must look like %(example)s.", example="America/Santiago")
        raise Problem(400, _("There is no time zone %(zone)s.", zone=given), hint=hint)
    return zone_named(given) if given else None


def json_object(text: str, wrong: str, example: str) -> dict[str, Any]:
    """Read a JSON object, an empty one where nothing was typed; say what is wrong with anything else."""
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise Problem(400, wrong, hint=_("It must look like %(example)s.", example=example))
    return read


def _audience(form: FormInput) -> dict[str, Any]:
    chosen = form.text("audience", FIELDS["audience"]) or "everyone"
    if chosen in _NAMED:
        lines = (line.strip(" ,") for line in form.text("whom", FIELDS["whom"]).splitlines())
        return {"audience": chosen, chosen: list(dict.fromkeys(line for line in lines if line))}
    if chosen == "topics":
        topics = _list(form, "topics")
        if not topics:
            raise Problem(400, _("Which topics?"), hint=_("Name one at least, or choose another audience."))
        return {"audience": "matching", "matching": {}, "topics": topics}
    if chosen == "matching":
        topics = _list(form, "topics")
        return {"audience": chosen, "matching": _matching(form)} | ({"topics": topics} if topics else {})
    return {"audience": chosen}


def _matching(form: FormInput) -> dict[str, Any]:
    asked: dict[str, Any] = {"rubros": _list(form, "rubros")}
    asked |= {name: form.text(name, FIELDS[name]) for name in _MATCHED}
    if amount := form.text("monto", FIELDS["monto"]):
        try:
            asked["monto"] = float(Decimal(amount))
        except (InvalidOperation, ValueError):  # of a signalling NaN, the latter
            raise Problem(400, _("%(value)s is no amount.", value=amount)) from None
    return {name: value for name, value in asked.items() if value not in ("", [])}


def _list(form: FormInput, name: str) -> list[str]:
    return [each.strip() for each in form.text(name, FIELDS[name]).split(",") if each.strip()]


def _time(form: FormInput, name: str) -> str | None:
    """Return a time as it was typed, in the time zone of the form; UTC where none is given."""
    typed = form.text(name, FIELDS[name])
    if not typed:
        return None
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        hint = _("It must look like %(example)s.", example="2026-12-24T18:00")
        raise Problem(400, _("%(value)s is no time.", value=typed), hint=hint) from None
    return at.replace(tzinfo=at.tzinfo or ZoneInfo(zone_of(form) or "UTC")).isoformat()
