"""Compose: write an event, see whom it would reach and how it looks there, and send it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from relevo.access import app_verbs
from relevo.client import verbs
from relevo.client.values import Preview
from relevo.core import wordings
from relevo.core.errors import InvalidInputError, MissingPartError, NotFoundError
from relevo.core.i18n import N_, ngettext
from relevo.core.i18n import gettext as _
from relevo.core.wordings import Text, Wording
from relevo.http.dashboard import drafts
from relevo.http.dashboard.actions import FormInput
from relevo.http.dashboard.formats import number
from relevo.http.dashboard.page import Page, fields_of, render
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem, of_error
from relevo.operators import actions, audience, reasons, words
from relevo.operators.audience import LeftOut
from relevo.operators.phones import owners_of
from relevo.operators.test_pushes import MOST_PHONES

router = APIRouter(route_class=Page, include_in_schema=False)
HERE = "/dashboard/compose"
MOST_UNCONFIRMED = 1_000
"""To more phones than these nothing is sent before their number was typed."""
_SAMPLE = 10
_BY_CATEGORY = {
    "opted_out": N_("opted out of the category %(category)s"),
    "refused": N_("their owners refused the category %(category)s"),
    "not_accepted": N_("their owners have not accepted the category %(category)s"),
}
_WRONG = (InvalidInputError, MissingPartError, NotFoundError, Problem)


@dataclass(frozen=True)
class Look:
    """What is shown of an event before it is sent."""

    event: dict[str, Any]
    found: Preview
    """Whom it would reach."""
    texts: dict[str, Text] = field(default_factory=dict)
    """What it says by locale; a text of its own has none."""
    wording: Wording | None = None
    sendable: bool = False
    """Whether it says something of its own, so that it can be sent as it is."""
    unknown_owners: list[str] = field(default_factory=list)
    owners: dict[Any, str] = field(default_factory=dict)
    heading: str = ""
    left_out: list[tuple[int, str]] = field(default_factory=list)

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
    return show(request, form, types=await _types(request))


@router.post(HERE)
async def look(request: Request) -> Response:
    """Show what would be sent to whom, and ask whether it shall be."""
    return await _look_page(request, FormInput(await fields_of(request)))


@router.post(HERE + "/send")
async def send(request: Request) -> Response:
    """Send what was looked at, once however often the form is sent, and lead to the event's page."""
    form, threads = FormInput(await fields_of(request)), threads_of(request)
    try:
        event = drafts.read(form, _key(form))
        sent = await threads.run_in_transaction(_sent_before, event)
        if sent is None:
            seen = await _look(request, form, event)
            _check_confirmed(form, seen)
            sent = await threads.run(actions.send_event, event, seen.found.count)
    except _WRONG as error:
        return await _look_page(request, form, of_error(error))
    return RedirectResponse(f"/dashboard/events/{sent}", 303)


def _key(form: FormInput) -> str:
    keys = form.uuids("key", 1)
    if not keys:
        raise Problem(400, _("Look at it first."), hint=_("The page that shows it has the button that sends it."))
    return str(keys[0])


def _sent_before(connection: Any, event: dict[str, Any]) -> int | None:
    """Return the event that this form made before, if it did."""
    try:
        return int(app_verbs.find_by_key(connection, event["type"], event["key"], None).event["id"])
    except NotFoundError:
        return None


def _check_confirmed(form: FormInput, seen: Look) -> None:
    """Refuse what says nothing, reaches nobody, or reaches many phones whose number was not typed, or many more."""
    if not seen.sendable:
        raise Problem(400, _("It does not say all yet."), hint=_("Give it a title, a body or data, or all arguments."))
    if not seen.found.count:
        raise Problem(400, _("It would reach nobody."), hint=_("Choose another audience."))
    if not seen.needs_number:
        return
    phones = ngettext("%(n)s phone", "%(n)s phones", seen.found.count)
    shown, typed = form.id("reaches") or 0, re.sub(r"\D", "", form.text("confirm", 30))
    if typed != str(shown):
        raise Problem(400, _("It goes to %(phones)s: type this number to send it.", phones=phones))
    if seen.found.count > shown * 1.1:
        raise Problem(400, _("It goes to %(phones)s by now: type this number to send it.", phones=phones))


async def _look_page(request: Request, form: FormInput, problem: Problem | None = None) -> Response:
    """Show the form as it was filled in, under what would be sent, or what is wrong with it."""
    types = await _types(request)
    try:
        seen = await _look(request, form, drafts.read(form, str(uuid4())))
    except _WRONG as error:
        return show(request, form, types=types, problem=problem or of_error(error))
    return show(request, form, types=types, problem=problem, seen=seen)


async def _types(request: Request) -> list[str]:
    return [row["event_type"] for row in await threads_of(request).run(words.list_words)]


def show(
    request: Request,
    form: FormInput,
    *,
    types: list[str] | None = None,
    seen: Look | None = None,
    problem: Problem | None = None,
    test_problem: Problem | None = None,
) -> Response:
    """Show both forms as they were filled in; where a test push has a problem, its form alone."""
    wrong = test_problem or (problem if request.method == "POST" else None)
    return render(
        request,
        "compose.html",
        wrong.status if wrong else 200,
        live=False,
        form=form,
        fields=drafts.FIELDS,
        usual_type=drafts.USUAL_TYPE,
        types=types or [],
        seen=seen,
        problem=problem,
        test_problem=test_problem,
        most_phones=MOST_PHONES,
    )


async def _look(request: Request, form: FormInput, event: dict[str, Any]) -> Look:
    """Return what the page shows of an event: what it says, how many phones it reaches, and who is left out."""
    threads = threads_of(request)
    texts, wording = {"": Text(event.get("title", ""), event.get("body", ""), _subtitle(event))}, None
    sendable = drafts.says_something(form)
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
    left = await threads.run(audience.left_out, **whom, everyone=everyone, category=event.get("category"))
    reasons_left_out = _left_out(left, found, event)
    matching = event["audience"] == "matching"
    return Look(
        event,
        found,
        texts if sendable or wording else {},
        wording,
        sendable,
        await threads.run(audience.unknown_owners, list(whom["owners"])),
        await threads.run(owners_of, found.sample),
        _left_out_heading(left, matching=matching) if reasons_left_out or matching else "",
        reasons_left_out,
    )


def _subtitle(event: dict[str, Any]) -> str:
    given = event.get("push", {}).get("subtitle", "")
    return given if isinstance(given, str) else ""


async def _said(request: Request, form: FormInput, event: dict[str, Any]) -> tuple[Wording, dict[str, Text]]:
    """Return what the chosen type says in every language, the default first; what is not given is the sample's."""
    wording = Wording.of_row(await threads_of(request).run(words.show, event["type"]))
    wordings.need()
    said = words.preview(wording, event["arguments"], drafts.zone_of(form))
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
        counted.append((unknown, _("nobody registered it")))
    return counted


def _left_out_heading(left: LeftOut, *, matching: bool) -> str:
    head = _("Left out, beside those whose preferences do not match") if matching else _("Left out")
    return head if left.is_all else f"{head} ({_('of the newest %(n)s phones', n=number(left.looked_at))})"


def _why_left_out(reason: str, category: str | None) -> str:
    if reason in _BY_CATEGORY:
        return _(_BY_CATEGORY[reason], category=category or "")
    return reasons.not_allowed(reason).removesuffix(".")
