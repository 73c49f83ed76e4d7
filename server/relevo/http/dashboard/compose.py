"""Compose: write an event, see whom it would reach and how it looks there, and send it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from relevo.client import verbs
from relevo.client.values import Preview
from relevo.core import wordings
from relevo.core.errors import InvalidInputError, MissingPartError, NotFoundError
from relevo.core.i18n import N_, ngettext
from relevo.core.i18n import gettext as _
from relevo.core.locales import zone_named
from relevo.core.wordings import Text, Wording
from relevo.http.dashboard import proof
from relevo.http.dashboard.actions import FormInput
from relevo.http.dashboard.formats import number
from relevo.http.dashboard.page import Page, fields_of, render
from relevo.http.database_threads import rendering_of, threads_of
from relevo.http.guard import call
from relevo.http.problems import Problem, of_error
from relevo.operators import audience, reasons, words
from relevo.operators.audience import LeftOut
from relevo.operators.phones import owners_of
from relevo.operators.test_pushes import MOST_PHONES
from relevo.verbs import events

router = APIRouter(route_class=Page, include_in_schema=False)
HERE = "/dashboard/compose"
MOST_UNCONFIRMED = 1_000
"""To more phones than these nothing is sent before their number was typed."""
_SAMPLE = 10
_OURS = 500
"""From this status on a problem is not the reader's."""
_BY_CATEGORY = {
    "opted_out": N_("opted out of the category %(category)s"),
    "refused": N_("their owners refused the category %(category)s"),
    "not_accepted": N_("their owners have not accepted the category %(category)s"),
}
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
    "where": 4_000,
    "project": 200,
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
_ALIKE = 1.1
"""How far the number that was typed may be from what is counted when it is sent: phones come and go meanwhile."""
_NAMED = ("installations", "owners")
_EMPTY_MEANS = ("arguments", "where")
"""What means something, or is wrong, even as an empty object."""
_MATCHED = ("region", "tipo", "moneda", "text")
_WRONG = (InvalidInputError, MissingPartError, NotFoundError, Problem)


@dataclass(frozen=True)
class Look:
    """The preview of an event."""

    event: dict[str, Any]
    found: Preview
    """The reach of the event."""
    texts: dict[str, Text] = field(default_factory=dict)
    """The texts by locale; a text of its own has none."""
    wording: Wording | None = None
    sendable: bool = False
    """Whether it says something of its own, so that it can be sent as it is."""
    unknown_owners: list[str] = field(default_factory=list)
    owners: dict[Any, str] = field(default_factory=dict)
    heading: str = ""
    left_out: list[tuple[int, str]] = field(default_factory=list)
    are_elsewhere: bool = False
    """Whether it is for owners whose phones are all in other projects."""

    @property
    def needs_number(self) -> bool:
        """Whether the number of phones has to be typed before it is sent."""
        return self.found.count > MOST_UNCONFIRMED


@router.get(HERE)
async def compose(request: Request) -> Response:
    """Show the form, and beside an audience or a type that an address names, what would be sent to whom."""
    form = FormInput(request.query_params)
    if form.typed("audience") or form.typed("words"):
        return await _look_page(request, form)
    return await show(request, form)


@router.post(HERE)
async def look(request: Request) -> Response:
    """Show what would be sent to whom, and ask whether it shall be."""
    return await _look_page(request, FormInput(await fields_of(request)))


@router.post(HERE + "/send")
async def send(request: Request) -> Response:
    """Send what was looked at, once however often the form is sent, and lead to the event's page."""
    fields = await fields_of(request)
    if (asked := await proof.ask(request, fields)) is not None:
        return asked
    form = FormInput(fields)
    try:
        event = read_draft(form, _key(form))
        sent = await _sent_before(request, event)
        if sent is None:
            seen = await _look(request, form, event)
            _check_confirmed(form, seen)
            [done] = await call(request, events.enqueue, [event], phones=seen.found.count, key=event["key"])
            sent = done.event_id
    except _WRONG as error:
        return await _look_page(request, form, of_error(error))
    return RedirectResponse(f"/dashboard/events/{sent}", 303)


def _key(form: FormInput) -> str:
    keys = form.uuids("key", 1)
    if not keys:
        raise Problem(400, _("Preview the event first."), hint=_("The preview has the button that sends it."))
    return str(keys[0])


async def _sent_before(request: Request, event: dict[str, Any]) -> int | None:
    """Return the event that this form made before, if it did."""
    try:
        found = await call(request, events.find_by_key, event["type"], event["key"], event.get("project"))
    except NotFoundError:
        return None
    return found.id


def _check_confirmed(form: FormInput, seen: Look) -> None:
    """Refuse what says nothing, reaches nobody, or reaches many phones whose number, as it is now, was not typed."""
    if not seen.sendable:
        raise Problem(
            400, _("The event has no complete text."), hint=_("Enter a title, a body or data, or all arguments.")
        )
    if not seen.found.count:
        raise Problem(400, _("The event would reach no phone."), hint=_("Choose another audience."))
    if not seen.needs_number:
        return
    phones = ngettext("%(n)s phone", "%(n)s phones", seen.found.count)
    typed = int(re.sub(r"\D", "", form.text("confirm", 30)) or 0)
    if not typed:
        raise Problem(400, _("The event goes to %(phones)s: type this number to confirm.", phones=phones))
    if max(typed, seen.found.count) > _ALIKE * min(typed, seen.found.count):
        raise Problem(400, _("The event now goes to %(phones)s: type this number to confirm.", phones=phones))


async def _look_page(request: Request, form: FormInput, problem: Problem | None = None) -> Response:
    """Show the form as it was filled in, under what would be sent, or what is wrong with it."""
    try:
        seen = await _look(request, form, read_draft(form, str(uuid4())))
    except _WRONG as error:
        return await show(request, form, problem=problem or of_error(error))
    return await show(request, form, problem=problem, seen=seen)


async def show(
    request: Request,
    form: FormInput,
    *,
    seen: Look | None = None,
    problem: Problem | None = None,
    test_problem: Problem | None = None,
) -> Response:
    """Show both forms as they were filled in; where a test push has a problem, its form alone."""
    wrong = test_problem or (problem if request.method == "POST" or (problem and problem.status >= _OURS) else None)
    known = [] if test_problem else await threads_of(request).run(words.list_types)
    return render(
        request,
        "compose.html",
        wrong.status if wrong else 200,
        wrong.headers if wrong else None,
        live=False,
        form=form,
        fields=FIELDS,
        usual_type=USUAL_TYPE,
        types=known,
        seen=seen,
        problem=problem,
        test_problem=test_problem,
        most_phones=MOST_PHONES,
    )


async def _look(request: Request, form: FormInput, event: dict[str, Any]) -> Look:
    """Return what the page shows of an event: what it says, how many phones it reaches, and who is left out."""
    threads = threads_of(request)
    texts, wording = {"": Text(event.get("title", ""), event.get("body", ""), _subtitle(event))}, None
    sendable = _says_something(form)
    if "arguments" in event:
        wording, texts = await _said(request, form, event)
        sendable = event["arguments"].keys() >= wording.kinds.keys()
        event = event if sendable else event | {"arguments": {**wording.samples, **event["arguments"]}}
    drafted = event if sendable or wording else event | {"title": "preview"}
    found = await threads.run_in_transaction(verbs.preview_json, drafted, sample=_SAMPLE)
    if wording:
        found = replace(found, warnings=verbs.field_warnings(_heaviest(event, texts), found.raw))
    whom = {name: event.get(name, ()) for name in ("installations", "owners")}
    everyone = event["audience"] in ("everyone", "matching")
    category, project = event.get("category"), event.get("project")
    left = await threads.run(audience.left_out, **whom, everyone=everyone, category=category, project=project)
    reasons_left_out = _left_out(left, found, event)
    are_elsewhere = await threads.run(audience.are_elsewhere, whom["owners"], project)
    matching = event["audience"] == "matching"
    return Look(
        event,
        found,
        texts if sendable or wording else {},
        wording,
        sendable,
        await threads.run(audience.unknown_owners, list(whom["owners"])),
        await threads.run(owners_of, found.sample),
        _left_out_heading(left, event) if reasons_left_out or matching or event.get("where") else "",
        reasons_left_out,
        are_elsewhere,
    )


def _subtitle(event: dict[str, Any]) -> str:
    given = event.get("push", {}).get("subtitle", "")
    return given if isinstance(given, str) else ""


async def _said(request: Request, form: FormInput, event: dict[str, Any]) -> tuple[Wording, dict[str, Text]]:
    """Return what the chosen type says in every language, the default first; what is not given is the sample's."""
    wording = Wording.of_row(await threads_of(request).run(words.show, event["type"])).tried()
    wordings.need()
    said = await rendering_of(request).call(words.preview, wording, event["arguments"], _zone_of(form))
    return wording, {wording.default_locale: said[wording.default_locale], **said}


def _heaviest(event: dict[str, Any], texts: dict[str, Text]) -> dict[str, Any]:
    """Return the event with its longest text, as a push service gets it."""
    text = max(texts.values(), key=lambda each: each.bytes)
    subtitle = {"subtitle": text.subtitle} if text.subtitle else {}
    return {**event, "title": text.title, "body": text.body, "push": {**event.get("push", {}), **subtitle}}


def _left_out(left: LeftOut, found: Preview, event: dict[str, Any]) -> list[tuple[int, str]]:
    """Return how many phones are left out for which reason."""
    counted = [(phones, _why_left_out(reason, event.get("category"))) for reason, phones in left.reasons.items()]
    if unknown := len(found.unknown_installations):
        counted.append((unknown, _("not registered")))
    return counted


def _left_out_heading(left: LeftOut, event: dict[str, Any]) -> str:
    head = _("Left out")
    if event.get("where"):
        head = _("Left out (besides phones whose preferences or attributes do not match)")
    elif event["audience"] == "matching":
        head = _("Left out (besides phones whose preferences do not match)")
    return head if left.is_all else f"{head} ({_('of the newest %(n)s phones', n=number(left.looked_at))})"


def _why_left_out(reason: str, category: str | None) -> str:
    if reason in _BY_CATEGORY:
        return _(_BY_CATEGORY[reason], category=category or "")
    return reasons.not_allowed(reason).removesuffix(".")


def read_draft(form: FormInput, key: str) -> dict[str, Any]:
    """Return the event that the form describes, as far as it does; raises Problem with what is wrong."""
    event: dict[str, Any] = {"type": form.text("type", FIELDS["type"]) or USUAL_TYPE, "key": key, **_audience(form)}
    for name in ("title", "body", "project", "category", "lane"):
        event[name] = form.text(name, FIELDS[name])
    for name in ("scheduled_at", "deadline_at"):
        event[name] = _time(form, name)
    event["push"] = _json_object(form, "push", _("The further push fields are not a JSON object."), '{"badge": 3}')
    event["data"] = read_data(form)
    if form.typed("where"):
        event["where"] = _json_object(form, "where", _("The attributes are not a JSON object."), '{"plan": "pro"}')
    if words := form.text("words", FIELDS["words"]):
        if event["title"] or event["body"]:
            hint = _("Empty the title and the body, or choose no type for the texts.")
            raise Problem(
                400, _("The event has the texts of %(type)s and also a title or body.", type=words), hint=hint
            )
        event["type"] = words
        wrong = _("The arguments are not a JSON object.")
        event["arguments"] = _json_object(form, "arguments", wrong, '{"count": 3}')
    given = {name: value for name, value in event.items() if value not in ("", None)}
    return {name: value for name, value in given.items() if name in _EMPTY_MEANS or value != {}}


def _says_something(form: FormInput) -> bool:
    """Return whether the form has a text or data of its own."""
    return any(form.text(name, FIELDS[name]) for name in ("title", "body", "data"))


def read_data(form: FormInput) -> dict[str, Any]:
    """Return the data for the app."""
    return _json_object(form, "data", _("The data is not a JSON object."), '{"screen": "inbox"}')


def _zone_of(form: FormInput) -> str | None:
    """Return the time zone of the form's times, if one is given."""
    given = form.text("timezone", FIELDS["timezone"])
    if given and zone_named(given).lower() != given.lower():
        hint = _("Write it like %(example)s.", example="America/Santiago")
        raise Problem(400, _("There is no time zone %(zone)s.", zone=given), hint=hint)
    return zone_named(given) if given else None


def _json_object(form: FormInput, name: str, wrong: str, example: str) -> dict[str, Any]:
    """Read a JSON object, an empty one where nothing was typed; say what is wrong with anything else."""
    try:
        read = json.loads(form.text(name, FIELDS[name]) or "{}")
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise Problem(400, wrong, hint=_("Write it like %(example)s.", example=example))
    return read


def _audience(form: FormInput) -> dict[str, Any]:
    chosen = form.text("audience", FIELDS["audience"]) or "everyone"
    if chosen in _NAMED:
        lines = (line.strip(" ,") for line in form.text("whom", FIELDS["whom"]).splitlines())
        return {"audience": chosen, chosen: list(dict.fromkeys(line for line in lines if line))}
    if chosen == "topics":
        topics = _list(form, "topics")
        if not topics:
            raise Problem(
                400, _("No topic is entered."), hint=_("Enter at least one topic, or choose another audience.")
            )
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
            raise Problem(400, _("%(value)s is not an amount.", value=amount)) from None
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
        hint = _("Write it like %(example)s.", example="2026-12-24T18:00")
        raise Problem(400, _("%(value)s is not a time.", value=typed), hint=hint) from None
    return at.replace(tzinfo=at.tzinfo or ZoneInfo(_zone_of(form) or "UTC")).isoformat()
