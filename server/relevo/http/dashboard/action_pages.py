"""The two pages around every action: the question before it, and its result."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from relevo.core.errors import InvalidInputError
from relevo.core.i18n import gettext as _
from relevo.http.dashboard import dead_letters, operator_actions, test_push
from relevo.http.dashboard.actions import Action, FormInput
from relevo.http.dashboard.page import Page, fields_of, render
from relevo.http.problems import Problem, of_error

router = APIRouter(route_class=Page, include_in_schema=False)
_ACTIONS = operator_actions.ACTIONS | dead_letters.ACTIONS | test_push.ACTIONS

Verb = Annotated[str, Path(max_length=40)]


def _action(verb: str) -> Action:
    if verb not in _ACTIONS:
        raise Problem(404, _("There is nothing at this address."))
    return _ACTIONS[verb]


@router.get("/dashboard/actions/{verb}")
async def ask(request: Request, verb: Verb) -> Response:
    """Ask before something is done."""
    action, form = _action(verb), FormInput(request.query_params)
    try:
        question = await action.ask(request, form)
    except (Problem, InvalidInputError) as error:
        if action.again is None:
            raise
        return action.again(request, form, of_error(error))
    return render(request, question.template, live=False, verb=verb, question=question, **question.context)


@router.post("/dashboard/actions/{verb}")
async def do(request: Request, verb: Verb) -> Response:
    """Do it, and show what was done."""
    action = _action(verb)
    result = await action.do(request, FormInput(await fields_of(request)))
    if result.redirect:
        return RedirectResponse(result.redirect, 303)
    return render(request, result.template, live=False, result=result, **result.context)
