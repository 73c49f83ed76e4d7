"""The two pages around every deed: the question before it, and what was done."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from relevo.core.errors import InvalidInputError
from relevo.http.dashboard import compose, dead_letters, deeds
from relevo.http.dashboard.acting import PLACE, Deed, Given, Question
from relevo.http.dashboard.html import Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.page import Page, fields_of, form, show
from relevo.http.problems import Problem, of_error

router = APIRouter(route_class=Page, include_in_schema=False)
_DEEDS = deeds.DEEDS | dead_letters.DEEDS | compose.DEEDS

Verb = Annotated[str, Path(max_length=40)]


def _deed(verb: str) -> Deed:
    if verb not in _DEEDS:
        raise Problem(404, t("There is nothing at this address."))
    return _DEEDS[verb]


@router.get("/dashboard/actions/{verb}")
async def ask(request: Request, verb: Verb) -> Response:
    """Ask before something is done."""
    deed, given = _deed(verb), Given(request.query_params)
    try:
        question = await deed.ask(request, given)
    except (Problem, InvalidInputError) as error:
        if deed.again is None:
            raise
        return deed.again(request, given, of_error(error))
    return show(request, question.title, _card(request, verb, question), live=False)


def _card(request: Request, verb: str, question: Question) -> Markup:
    kept = [el("input", type="hidden", name=name, value=value) for name, value in (question.kept or {}).items()]
    buttons = el(
        "div",
        el("button", question.button, class_="grave" if question.grave else None) if question.possible else None,
        el("a", t("Leave it as it is"), href=question.back),
        class_="row",
    )
    return el(
        "section",
        el("h1", question.title),
        el("div", question.told, class_="told"),
        form(request, f"{PLACE}/{verb}", kept, question.fields, buttons),
        class_="card question",
    )


@router.post("/dashboard/actions/{verb}")
async def do(request: Request, verb: Verb) -> Response:
    """Do it, and tell what was done."""
    deed = _deed(verb)
    told = await deed.do(request, Given(await fields_of(request)))
    if told.to:
        return RedirectResponse(told.to, 303)
    card = el(
        "section",
        el("h1", told.title),
        el("div", told.body, class_="told") if told.body else None,
        el(
            "p",
            el("a", t("Go on"), href=told.back),
            el("a", t("It is recorded in the audit"), href="/dashboard/audit"),
            class_="row",
        ),
        class_=f"card verdict {'good' if told.good else 'bad'}",
        role="status",
    )
    return show(request, told.title, card, live=False)
