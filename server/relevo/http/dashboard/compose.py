"""Compose: whom an event would reach, and a test push to chosen phones that shows what became of it."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.client import verbs
from relevo.client.values import Event, Explanation, Preview
from relevo.core import wordings
from relevo.core.errors import InvalidInputError, MissingPartError, NotFoundError
from relevo.core.wordings import Wording
from relevo.http.dashboard import reasons
from relevo.http.dashboard.actions import Action, FormInput, Question, Result
from relevo.http.dashboard.formats import address, number
from relevo.http.dashboard.i18n import gettext as _
from relevo.http.dashboard.i18n import ngettext
from relevo.http.dashboard.page import Page, render
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import audience, test_pushes, words
from relevo.operators.audience import LeftOut
from relevo.operators.phones import installations, owners_of
from relevo.operators.test_pushes import MOST_PHONES, Trial

router = APIRouter(route_class=Page, include_in_schema=False)
HERE = "/dashboard/compose"
_SAMPLE = 10
_LISTS = ("rubros",)
_WORDS = ("region", "tipo", "moneda", "text")
_GOOD = ("ok", "unconfirmed", "sent")


@router.get("/dashboard/compose")
async def compose(request: Request) -> Response:
    """Show whom an event would reach, once its audience is given, and the form of a test push."""
    form = FormInput(request.query_params)
    preview, wrong = None, ""
    if form.typed("audience"):
        try:
            preview = await _preview(request, _event(form))
        except (InvalidInputError, Problem) as error:
            wrong = str(error)
    said, wrong_words = None, ""
    types = {row["event_type"]: row["event_type"] for row in await threads_of(request).run(words.list_words)}
    if form.typed("words"):
        try:
            said = await _said(request, form)
        except (InvalidInputError, MissingPartError, NotFoundError, Problem) as error:
            wrong_words = str(error)
    shown = {"said": said, "wrong": wrong_words, "types": types}
    return _page(request, form, preview=preview, wrong_audience=wrong, words=shown)


async def _said(request: Request, form: FormInput) -> dict[str, Any]:
    """Return what the chosen type says in every language, with the arguments and for the time zone of the form."""
    row = await threads_of(request).run(words.show, form.text("words", 100))
    wording = Wording.of_row(row)
    given = _json_object(form.text("arguments", 2_000), _("The arguments must be a JSON object."), '{"count": 3}')
    wordings.need()
    texts = words.preview(wording, given, form.text("timezone", 64) or None)
    return {"version": wording.version, "default": wording.default_locale, "samples": wording.samples, "texts": texts}


def _page(
    request: Request,
    form: FormInput,
    *,
    preview: dict[str, Any] | None = None,
    wrong_audience: str = "",
    problem: Problem | None = None,
    words: dict[str, Any] | None = None,
) -> Response:
    """Show both forms as they were filled in; where a test push has a problem, its form alone."""
    return render(
        request,
        "compose.html",
        problem.status if problem else 200,
        live=False,
        form=form,
        preview=preview,
        wrong_audience=wrong_audience,
        problem=problem,
        most_phones=MOST_PHONES,
        words=words,
    )


def _again(request: Request, form: FormInput, problem: Problem) -> Response:
    """Show the form of a test push again, as it was filled in, with what is wrong with it."""
    return _page(request, form, problem=problem)


async def _preview(request: Request, event: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of an audience: how many phones, some of them, and who is left out."""
    threads = threads_of(request)
    found = await threads.run_in_transaction(verbs.preview_json, event, sample=_SAMPLE)
    whom = {name: event.get(name, ()) for name in ("installations", "owners")}
    everyone = event["audience"] in ("everyone", "matching")
    left = await threads.run(audience.left_out, **whom, everyone=everyone, category=event.get("category"))
    reasons_left_out = _left_out(left, found, event)
    matching = event["audience"] == "matching"
    return {
        "found": found,
        "unknown_owners": await threads.run(audience.unknown_owners, list(whom["owners"])),
        "owners": await threads.run(owners_of, found.sample),
        "heading": _left_out_heading(left, matching=matching) if reasons_left_out or matching else "",
        "left_out": reasons_left_out,
    }


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
    if reason == "opted_out":
        return _("opted out of the category %(category)s", category=category or "")
    if reason == "refused":
        return _("their owners refused the category %(category)s", category=category or "")
    if reason == "not_accepted":
        return _("their owners have not accepted the category %(category)s", category=category or "")
    return reasons.not_allowed(reason).removesuffix(".")


def _event(form: FormInput) -> dict[str, Any]:
    """Return an event for the audience of the form, as the SQL functions take it."""
    audience = form.text("audience", 20)
    event: dict[str, Any] = {"type": "preview", "key": "preview", "title": "preview", "audience": audience}
    if audience in ("installations", "owners"):
        lines = (line.strip(" ,") for line in form.text("whom", 4_000).splitlines())
        event[audience] = list(dict.fromkeys(line for line in lines if line))
    if audience == "matching":
        event["matching"] = _matching(form)
        event["topics"] = _words(form, "topics") or None
    event["category"] = form.text("category", 100) or None
    event["push"] = _json_object(
        form.text("push", 2_000), _("The further fields must be a JSON object."), '{"badge": 3}'
    )
    return {name: value for name, value in event.items() if value is not None}


def _matching(form: FormInput) -> dict[str, Any]:
    asked: dict[str, Any] = {name: _words(form, name) for name in _LISTS}
    asked |= {name: form.text(name, 2_000) for name in _WORDS}
    if amount := form.text("monto", 30):
        try:
            asked["monto"] = float(Decimal(amount))
        except InvalidOperation:
            raise Problem(400, _("%(value)s is no amount.", value=amount)) from None
    return {name: value for name, value in asked.items() if value}


def _words(form: FormInput, name: str) -> list[str]:
    return [each.strip() for each in form.text(name, 2_000).split(",") if each.strip()]


async def _chosen(request: Request, form: FormInput) -> list[UUID]:
    """Return the phones that are named, and those of the owner that is."""
    phones = form.uuids("phones", MOST_PHONES)
    if owner := form.text("owner", 200):
        rows = await threads_of(request).run(installations, owner=owner, limit=MOST_PHONES + 1)
        phones = list(dict.fromkeys([*phones, *(row["installation_id"] for row in rows)]))
    if not phones:
        raise Problem(404, _("No phone is named, and the owner has none."), hint=_("Name one by its id."))
    if len(phones) > MOST_PHONES:
        raise Problem(400, _("These are too many: %(most)s at most.", most=MOST_PHONES))
    return phones


def _json_object(text: str, wrong: str, example: str) -> dict[str, Any]:
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise Problem(400, wrong, hint=_("It must look like %(example)s.", example=example))
    return read


def _made(form: FormInput, phones: list[UUID], key: str) -> Event:
    data = _json_object(form.text("data", 2_000), _("The data must be a JSON object."), '{"screen": "inbox"}')
    return test_pushes.make(key, phones, form.text("title", 500), form.text("body", 2_000), data)


async def _ask_test(request: Request, form: FormInput) -> Question:
    threads = threads_of(request)
    phones = await _chosen(request, form)
    event = _made(form, phones, str(uuid4()))
    judged = await threads.run_in_transaction(partial(test_pushes.judge, event=event, phones=phones))
    found = await threads.run_in_transaction(verbs.preview, event)
    left_out = Counter(_rule(each) for _phone, each in judged if not each.gets_it)
    getting = len(phones) - left_out.total()
    typed = {
        "phones": "\n".join(map(str, phones)),
        "title": event.title,
        "body": event.body,
        "data": json.dumps(event.data) if event.data else "",
    }
    return Question(
        _how_many(getting, len(phones)),
        _("Send it"),
        hidden={**typed, "key": event.key},
        back=address(HERE, **typed) + "#test",
        possible=getting > 0,
        template="test_push_question.html",
        context={
            "event": event,
            "judged": judged,
            "left_out": left_out.most_common(),
            "warnings": found.warnings,
            "owners": await threads.run(owners_of, phones),
            "rule": _rule,
        },
    )


def _how_many(getting: int, chosen: int) -> str:
    phones = ngettext("%(n)s phone", "%(n)s phones", chosen)
    if getting == chosen:
        return _("Send this test push to %(phones)s?", phones=phones)
    if not getting:
        return _("None of %(phones)s would get this test push.", phones=phones)
    return _("Send this test push to %(n)s of %(phones)s?", n=number(getting), phones=phones)


async def _test(request: Request, form: FormInput) -> Result:
    phones = form.uuids("phones", MOST_PHONES)
    keys = form.uuids("key", 1)
    if not keys or not phones:
        raise Problem(400, _("No phone is named, and the owner has none."), hint=_("Name one by its id."))
    event_id = await threads_of(request).run(test_pushes.send, _made(form, phones, str(keys[0])), phones)
    return Result("", redirect=f"{HERE}/{event_id}")


ACTIONS = {"test": Action(_ask_test, _test, _again)}


@router.get("/dashboard/compose/{event_id}")
async def trial(request: Request, event_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show how far a test push is, until it has ended."""
    seen = await threads_of(request).run(test_pushes.follow, event_id)
    owners = await threads_of(request).run(owners_of, [each.phone for each in seen.answers])
    verdict, kind = _verdict(seen)
    return render(
        request,
        "test_push.html",
        live=not seen.is_over,
        event_id=event_id,
        seen=seen,
        owners=owners,
        verdict=verdict,
        kind=kind,
        rule=_rule,
    )


def _verdict(seen: Trial) -> tuple[str, str]:
    """Return a sentence on how many phones took it, and its colour."""
    phones, taken = ngettext("%(n)s phone", "%(n)s phones", len(seen.answers)), seen.count("ok", "unconfirmed")
    if not seen.is_over:
        if sent := seen.count(*_GOOD):
            return _("Sent to %(n)s of %(phones)s; the receipts are awaited.", n=number(sent), phones=phones), ""
        return _under_way(seen, phones), ""
    if taken:
        return _("Taken by %(n)s of %(phones)s.", n=number(taken), phones=phones), "good"
    return _("Taken by none of %(phones)s.", phones=phones), "bad"


def _under_way(seen: Trial, phones: str) -> str:
    """Return to how many of the chosen phones it goes."""
    getting = sum(each.delivery is not None or each.explanation.gets_it for each in seen.answers)
    if getting == len(seen.answers):
        return _("On its way to %(phones)s.", phones=phones)
    return _("On its way to %(n)s of %(phones)s.", n=number(getting), phones=phones)


def _rule(explained: Explanation) -> str:
    """Return by which rule a phone gets it, or not."""
    if explained.rule == "installation_gone":
        return _("Nobody registered it, or it was forgotten.")
    return reasons.rule(explained)
