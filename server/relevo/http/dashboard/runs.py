"""Runs: what the cycles did, page by page, and one run as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import (
    Hours,
    Place,
    Text,
    address,
    box,
    choice,
    facts,
    filters,
    nothing,
    older,
    part,
    since,
)
from relevo.http.dashboard.names import named
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.http.dashboard.states import state
from relevo.http.dashboard.words import ago, duration, instant, number
from relevo.http.problems import Problem
from relevo.operators import history, insights

router = APIRouter(route_class=Page, include_in_schema=False)
_OUTCOMES = ("running", "ok", "partial", "failed", "abandoned", "skipped")
_MOST_COUNTS = 4
_HERE = "/dashboard/runs"


@router.get("/dashboard/runs")
async def runs(
    request: Request,
    *,
    cycle: Text = "",
    ended: Text = "",
    worker: Text = "",
    hours: Hours = "",
    before: Place = "",
) -> Response:
    """Show runs that fit, newest first."""
    name, _, source = cycle.partition(":")
    desk = desk_of(request)
    found = await desk.ask(
        history.runs,
        cycle=name or None,
        source=source or None,
        outcome=ended or None,
        worker=worker or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    cycles = await desk.ask(insights.known_cycles)
    narrowed = filters(
        _HERE,
        choice("cycle", t("Cycle"), {"": t("all")} | {each: each for each in cycles}, cycle),
        choice("ended", t("Outcome"), {"": t("all")} | {each: t(each) for each in _OUTCOMES}, ended),
        box("worker", t("Worker"), worker),
        since(hours),
    )
    heads = [t("Began"), t("Cycle"), t("Outcome"), t("Took"), t("What it did"), t("Worker")]
    empty = nothing(found.next, t("No run fits.") if request.url.query else t("No cycle has run yet."))
    told = table(heads, [_line(row) for row in found.rows], empty=empty, label=t("Runs"))
    body = part(t("Runs"), narrowed, told, older(request, found.next), level="h1")
    return show(request, t("Runs"), body, live=not before)


def _line(row: dict[str, Any]) -> list[Child]:
    return [
        el("a", ago(row["started_at"], row["now"]), href=f"{_HERE}/{row['id']}"),
        name_of(row),
        state(row["outcome"]),
        duration(row["seconds"]),
        _did(row),
        el("a", row["worker_id"], href=address(_HERE, worker=row["worker_id"])),
    ]


def name_of(row: dict[str, Any]) -> str:
    """Name a cycle, with its source if it has one."""
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _did(row: dict[str, Any]) -> Child:
    if row["error_message"] or row["reason"]:
        return el("span", row["error_message"] or row["reason"], class_="bad" if row["error_message"] else "faint")
    counts = [(name, count) for name, count in row["counts"].items() if count]
    if not counts:
        return el("span", t("nothing"), class_="faint")
    told = [[", " if place else "", named(name), f" {number(count)}"] for place, (name, count) in enumerate(counts)]
    return [*told[:_MOST_COUNTS], " …" if len(told) > _MOST_COUNTS else ""]


@router.get("/dashboard/runs/{run_id}")
async def one_run(request: Request, run_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show one run: how it went, what it counted, what went wrong."""
    row = await desk_of(request).ask(history.run, run_id)
    if row is None:
        raise Problem(404, t("There is no run {id}.", id=run_id), hint=t("Runs are forgotten after a while."))
    title = t("Run {id} of {cycle}", id=run_id, cycle=name_of(row))
    body = [
        part(title, _facts(row), _error(row), _neighbours(row), level="h1"),
        part(t("What it counted"), _counts(row)),
    ]
    return show(request, title, body, live=row["finished_at"] is None)


def _facts(row: dict[str, Any]) -> Markup:
    return facts(
        (t("Outcome"), state(row["outcome"])),
        (t("Began"), instant(row["started_at"])),
        (t("Ended"), instant(row["finished_at"]) if row["finished_at"] else t("it is still running")),
        (t("Took"), duration(row["seconds"])),
        (t("Started by"), t(row["trigger"])),
        (t("For the slot of"), instant(row["slot_at"]) if row["slot_at"] else None),
        (t("Worker"), el("a", row["worker_id"], href=address(_HERE, worker=row["worker_id"]))),
        (t("Reason"), row["reason"]),
    )


def _error(row: dict[str, Any]) -> Markup | None:
    return el("p", row["error_message"], class_="bad error", role="alert") if row["error_message"] else None


def _counts(row: dict[str, Any]) -> Markup:
    rows: list[list[Child]] = [[named(name), number(count)] for name, count in sorted(row["counts"].items())]
    return table([t("What"), t("How many")], rows, empty=t("It counted nothing."), label=t("What it counted"))


def _neighbours(row: dict[str, Any]) -> Markup:
    return el(
        "p",
        el("a", t("The run before"), href=f"{_HERE}/{row['former']}") if row["former"] else None,
        el("a", t("The run after"), href=f"{_HERE}/{row['later']}") if row["later"] else None,
        el("a", t("All runs of {cycle}", cycle=name_of(row)), href=address(_HERE, cycle=name_of(row))),
        class_="row",
    )
