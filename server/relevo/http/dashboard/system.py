"""The first page, and those of the machinery: what is due, who works on it, runs, sources, archive and record."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from markupsafe import Markup
from starlette.responses import Response

from relevo import cycles
from relevo.config import REJECT_ATTEMPTS
from relevo.core.i18n import N_, fill_phrase
from relevo.core.i18n import gettext as _
from relevo.http.dashboard.formats import ACTIONS, sentence
from relevo.http.dashboard.guide import RUNBOOK
from relevo.http.dashboard.page import ARCHIVE, SOURCES, SYSTEM, Hours, Page, Place, Text, read, render
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import archive, audit, fleet, reasons, runs, sources
from relevo.operators.fleet import MOST_EVENTS
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.health import problem as health_problem
from relevo.operators.health.workers import worker_state

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_MONTHS = 6
_REJECTS = 20
_SHORT = {
    "notification_events": N_("events"),
    "notification_deliveries": N_("deliveries"),
    "push_requests": N_("journal"),
    "licitaciones": N_("licitaciones"),
}


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """Show what people ask first."""
    seen = await threads_of(request).run(fleet.overview, request.app.state.relevo.settings, cycles.facts)
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


def _problem(problem: health_problem.Problem) -> dict[str, Any]:
    """Return a problem in three sentences: what, why, what to do; why a project is stopped in words, too."""
    if problem.code == "project_stopped":
        why = reasons.because(str(problem.parts["why"]))
        problem = health_problem.Problem(problem.code, problem.template, **{**problem.parts, "why": why})
    what, why, remedy = (_sentence(fill_phrase(each, problem)) for each in health_problem.in_three(_(problem.template)))
    return {"what": what, "why": why, "remedy": remedy, "problem": problem}


def _sentence(told: str) -> Markup | str:
    """Write what is part of a sentence as one of its own; nothing stays nothing."""
    return sentence(f"{told[:1].upper()}{told[1:].removesuffix('.')}.") if told else ""


@router.get(SYSTEM)
async def system(request: Request) -> Response:
    """Show the machinery behind the pushes."""
    seen = await threads_of(request).run(fleet.system, request.app.state.relevo.settings, cycles.facts)
    return render(
        request,
        "system.html",
        seen=seen,
        queue=seen.queue,
        running=[row for row in seen.status.workers if row["state"] != "stopped"],
        months=list(reversed(seen.status.archive))[:_MOST_MONTHS],
        most_counted=MOST_COUNTED,
        worker_state=worker_state,
    )


@router.get("/dashboard/runs")
async def show_runs(
    request: Request, *, cycle: Text = "", ended: Text = "", worker: Text = "", hours: Hours = "", before: Place = ""
) -> Response:
    """Show runs that fit, newest first."""
    name, _colon, source = cycle.partition(":")
    found = await read(
        request,
        runs.page,
        cycle=name or None,
        source=source or None,
        outcome=ended or None,
        worker=worker or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    known = await read(request, runs.known_cycles, cycles.names())
    chosen = {"cycle": cycle, "ended": ended, "worker": worker, "hours": hours}
    return render(request, "runs.html", live=not before, found=found, chosen=chosen, cycles=known)


@router.get("/dashboard/runs/{run_id}")
async def one_run(request: Request, run_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show one run: how it went, what it counted, what went wrong."""
    row = await read(request, runs.run, run_id)
    if row is None:
        raise Problem(404, _("There is no run %(id)s.", id=run_id), hint=_("Old runs are deleted."))
    return render(request, "run.html", live=row["finished_at"] is None, row=row)


@router.get(SOURCES)
async def show_sources(request: Request, source: Text = "", before: Place = "") -> Response:
    """Show the sources, and what they offered that could not be used."""
    settings = request.app.state.relevo.settings
    return render(
        request,
        "sources.html",
        live=not before,
        sources=await read(request, sources.details),
        cursor_names=sources.CURSORS,
        quotas=await read(request, sources.quotas, settings.worker_timezone),
        daily_limit=settings.chilecompra_daily_limit,
        rejects=await read(request, sources.page_of_rejects, source=source or None, before=before, limit=_REJECTS),
        most_attempts=REJECT_ATTEMPTS,
        names=await read(request, sources.names),
        chosen=source,
    )


@router.get(ARCHIVE)
async def show_archive(request: Request, before: Annotated[date | None, Query()] = None) -> Response:
    """Show the months in the archive, and those in the hot tables."""
    settings = request.app.state.relevo.settings
    months, next_month = await read(request, archive.page, before=before)
    return render(
        request,
        "archive.html",
        months=months,
        next_month=str(next_month or ""),
        partitions=await read(request, archive.partitions),
        short_names=_SHORT,
        has_store=bool(settings.archive_bucket or settings.archive_folder),
        retention_days=settings.deliveries_retention_days,
    )


@router.get("/dashboard/audit")
async def show_audit(
    request: Request, *, actor: Text = "", action: Text = "", ended: Text = "", hours: Hours = "", before: Place = ""
) -> Response:
    """Show what was done that fits, newest first."""
    found = await read(
        request,
        audit.page,
        actor=actor or None,
        action=action or None,
        outcome=ended or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    chosen = {"actor": actor, "action": action, "ended": ended, "hours": hours}
    return render(request, "audit.html", live=not before, found=found, chosen=chosen, actions=sorted(ACTIONS))
