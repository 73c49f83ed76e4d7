"""Test pushes: to chosen phones, asked first, and then a page that shows what became of each."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from relevo.client import verbs
from relevo.client.values import Event, Explanation
from relevo.core.errors import InvalidInputError
from relevo.core.i18n import gettext as _
from relevo.core.i18n import ngettext
from relevo.http.dashboard import compose, explanations
from relevo.http.dashboard.actions import Action, FormInput, Question
from relevo.http.dashboard.formats import address, number
from relevo.http.dashboard.page import Page, render
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem, of_error
from relevo.operators import test_pushes
from relevo.operators.phones import installations, owners_of
from relevo.operators.test_pushes import MOST_PHONES, Trial

router = APIRouter(route_class=Page, include_in_schema=False)
_GOOD = ("ok", "unconfirmed", "sent")


async def _chosen(request: Request, form: FormInput) -> list[UUID]:
    """Return the phones that are named, and those of the owner that is."""
    phones = form.uuids("phones", MOST_PHONES)
    if owner := form.text("owner", 200):
        rows = await threads_of(request).run(installations, owner=owner, limit=MOST_PHONES + 1)
        phones = list(dict.fromkeys([*phones, *(row["installation_id"] for row in rows)]))
    if not phones:
        raise Problem(
            404,
            _("No phone is entered, and the owner has none."),
            hint=_("Enter an installation id, or an owner with phones."),
        )
    if len(phones) > MOST_PHONES:
        raise Problem(400, _("Too many phones: %(most)s at most.", most=MOST_PHONES))
    return phones


def _made(form: FormInput, phones: list[UUID], key: str) -> Event:
    return test_pushes.make(key, phones, form.text("title", 500), form.text("body", 2_000), compose.read_data(form))


async def _ask_test(request: Request, form: FormInput) -> Question | Response:
    """Ask with whom it would reach; where something is wrong with the form, show it again as it was filled in."""
    try:
        return await _question(request, form)
    except (Problem, InvalidInputError) as error:
        return await compose.show(request, form, test_problem=of_error(error))


async def _question(request: Request, form: FormInput) -> Question:
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
        _("Send"),
        hidden={**typed, "key": event.key},
        back=address(compose.HERE, **typed) + "#test",
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


async def _test(request: Request, form: FormInput) -> Response:
    phones = form.uuids("phones", MOST_PHONES)
    keys = form.uuids("key", 1)
    if not keys or not phones:
        raise Problem(
            400,
            _("No phone is entered, and the owner has none."),
            hint=_("Enter an installation id, or an owner with phones."),
        )
    event_id = await threads_of(request).run(test_pushes.send, _made(form, phones, str(keys[0])), phones)
    return RedirectResponse(f"{compose.HERE}/{event_id}", 303)


ACTIONS = {"test": Action(_ask_test, _test)}


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
    """Return a sentence on for how many phones it was accepted, and its colour."""
    phones, taken = ngettext("%(n)s phone", "%(n)s phones", len(seen.answers)), seen.count("ok", "unconfirmed")
    if not seen.is_over:
        if sent := seen.count(*_GOOD):
            return _("Sent to %(n)s of %(phones)s; waiting for receipts.", n=number(sent), phones=phones), ""
        return _under_way(seen, phones), ""
    if taken:
        return _("Accepted for %(n)s of %(phones)s.", n=number(taken), phones=phones), "good"
    return _("Accepted for none of %(phones)s.", phones=phones), "bad"


def _under_way(seen: Trial, phones: str) -> str:
    """Return to how many of the chosen phones it goes."""
    getting = sum(each.delivery is not None or each.explanation.gets_it for each in seen.answers)
    if getting == len(seen.answers):
        return _("On its way to %(phones)s.", phones=phones)
    return _("On its way to %(n)s of %(phones)s.", n=number(getting), phones=phones)


def _rule(explained: Explanation) -> str:
    """Return by which rule a phone gets it, or not."""
    if explained.rule == "installation_gone":
        return _("The phone is not registered, or it was forgotten.")
    return explanations.rule(explained)
