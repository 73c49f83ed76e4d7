"""The first page: is it well, and if not, why; who can be reached, what arrives, and of which kinds."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from relevo.core.i18n import fill_phrase, gettext
from relevo.http.dashboard.formats import sentence
from relevo.http.dashboard.guide import RUNBOOK
from relevo.http.dashboard.page import Page, render
from relevo.http.database_threads import threads_of
from relevo.operators import fleet, reasons
from relevo.operators.fleet import MOST_EVENTS
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.health import problem as problems
from relevo.operators.health.problem import Problem

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """Show what people ask first."""
    seen = await threads_of(request).run(fleet.overview, request.app.state.relevo.settings)
    return render(
        request,
        "overview.html",
        seen=seen,
        problems=[_problem(each) for each in seen.status.problems],
        held=seen.status.held[:MOST_COUNTED],
        most_counted=MOST_COUNTED,
        most_events=MOST_EVENTS,
        runbook=RUNBOOK,
    )


def _problem(problem: Problem) -> dict[str, Any]:
    """Return a problem in three sentences: what, why, what to do; why a project is stopped in words, too."""
    if problem.code == "project_stopped":
        why = reasons.because(str(problem.parts["why"]))
        problem = Problem(problem.code, problem.template, **{**problem.parts, "why": why})
    what, why, remedy = (_sentence(fill_phrase(each, problem)) for each in problems.in_three(gettext(problem.template)))
    return {"what": what, "why": why, "remedy": remedy, "problem": problem}


def _sentence(told: str) -> Markup | str:
    """Write what is part of a sentence as one of its own; nothing stays nothing."""
    return sentence(f"{told[:1].upper()}{told[1:].removesuffix('.')}.") if told else ""
