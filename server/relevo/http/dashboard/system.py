"""The system: what is due, the cycles, the projects and the replicas that do the work."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.http.dashboard import charts, reasons
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.formats import ago, count, duration, number, sentence, size
from relevo.http.dashboard.html import Child, Markup, el, text
from relevo.http.dashboard.i18n import translated as said
from relevo.http.dashboard.labels import state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, part
from relevo.http.dashboard.overview import at_most, figure
from relevo.http.dashboard.page import SYSTEM, Page, desk_of, show, table
from relevo.operators import fleet
from relevo.operators.fleet import System
from relevo.operators.health.workers import worker_state

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_MONTHS = 6


@router.get(SYSTEM)
async def system(request: Request) -> Response:
    """Show the machinery behind the pushes."""
    seen = await desk_of(request).ask(fleet.system, request.app.state.relevo.settings)
    return show(
        request,
        t("System"),
        el("h1", t("System")),
        _figures(seen),
        part(t("Due now"), _due(seen)),
        part(t("Cycles"), _cycles(seen, request)),
        part(t("Projects"), _projects(seen, request)),
        part(t("Sources"), _sources(seen)) if seen.status.sources else None,
        part(t("Replicas"), _workers(seen)),
        part(t("Archive"), _archive(seen)) if seen.archive else None,
    )


def _figures(seen: System) -> Markup:
    queue = seen.queue
    oldest, stuck = queue["oldest_pending_age_seconds"], queue["stuck_processing"]
    due = number(queue["due_now"])
    waits = t("{n} or more", n=due) if queue["due_now_is_at_least"] else due
    told = [
        figure(t("Due now"), waits, _waiting(queue, oldest)),
        figure(t("Being sent"), number(queue["processing"]), t("claimed by workers")),
        figure(t("Stuck"), number(stuck), t("in expired claims"), "warn" if stuck else ""),
        figure(t("Sent, as they stand"), number(queue["sent"]), _of_all(queue)),
    ]
    return el("dl", told, class_="figures")


def _waiting(queue: dict[str, Any], oldest: float | None) -> str:
    """Tell how long the oldest has been due, and how many are not due yet."""
    told = t("oldest {time}", time=duration(oldest)) if oldest is not None else t("nothing is due")
    later = queue["pending"] - queue["due_now"]
    if later <= 0 or queue["due_now_is_at_least"]:
        return told
    return f"{told}; {count(later, 'waits for its time', 'wait for their time')}"


def _of_all(queue: dict[str, Any]) -> Markup:
    """Tell of how many, and why the charts, which count acts, may tell more."""
    why = t(
        "Deliveries that are sent now, confirmed or not. The charts count each push, also of those that failed then."
    )
    return el("span", t("of {n} that are kept here", n=number(queue["total"])), title=why)


def _due(seen: System) -> Markup:
    rows: list[list[Child]] = [
        [row["project"], t(row["lane"]), at_most(row["due"], "delivery", "deliveries"), duration(row["oldest_s"])]
        for row in seen.status.due
    ]
    heads = [t("Project"), t("Lane"), t("Due"), t("Oldest for")]
    return table(heads, rows, empty=t("Nothing is due."), label=t("What is due"))


def _cycles(seen: System, request: Request) -> Markup:
    rows = [_cycle(seen, row, request) for row in seen.status.cycles]
    heads = [t("Cycle"), t("Last outcome"), t("Took"), t("Last runs"), t("Last round"), t("Next"), t("State")]
    return table(heads, rows, empty=sentence(t("No cycle has run yet: start `relevo run`.")), label=t("Cycles"))


def _cycle(seen: System, row: dict[str, Any], request: Request) -> list[Child]:
    key = (row["cycle"], row["source"])
    runs = seen.durations.get(key, [])
    switch: Child = state("on")
    if row["paused_reason"]:
        switch = [state("paused"), *_since(row["paused_at"], seen), f": {row['paused_reason']}"]
    elif row["off"]:
        switch = [state("off"), f" {said(row['off'])}"]
    return [
        el("a", el("strong", name_of(row)), href=address("/dashboard/runs", cycle=name_of(row))),
        [state(row["last_outcome"] or ("idle" if row["last_round_at"] else None)), _why(row)],
        duration(runs[-1]["seconds"]) if runs else "—",
        charts.spark(runs),
        ago(row["last_round_at"], seen.now),
        "—" if row["off"] else _next(seen, seen.next_rounds[key], paused=bool(row["paused_reason"])),
        [switch, None if row["off"] and not row["paused_reason"] else _switches(row, request)],
    ]


def _switches(row: dict[str, Any], request: Request) -> Markup:
    """Offer to switch a cycle on or off, as it is, and to run it now."""
    paused = row["paused_reason"] is not None
    whole = str(row["cycle"]) if paused and not row["paused_source"] else name_of(row)
    return el(
        "span",
        offer(request, "resume", t("Switch on"), cycle=whole)
        if paused
        else offer(request, "pause", t("Pause"), cycle=whole),
        None if paused else offer(request, "run", t("Run now"), cycle=name_of(row)),
        class_="switches",
    )


def _next(seen: System, coming: datetime | None, *, paused: bool) -> Child:
    if paused:
        return t("when switched on")
    if coming is None:
        return t("when called")
    return t("now") if coming <= seen.now else ago(coming, seen.now)


def _since(moment: datetime | None, seen: System) -> list[Child]:
    return [f" {t('since')} ", ago(moment, seen.now)]


def name_of(row: dict[str, Any]) -> str:
    """Name a cycle, with its source if it has one."""
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _why(row: dict[str, Any]) -> Markup | None:
    return el("div", row["error_message"], class_="faint") if row["failures"] and row["error_message"] else None


def _projects(seen: System, request: Request) -> Markup:
    rows: list[list[Child]] = [
        [
            el("strong", row["project"]),
            f"{row['rate_share']:.0%}",
            [_breaker(seen, row), _release(row, request) if row["breaker"] != "closed" else None],
            [_brake(seen, row), _release(row, request) if row["breaker"] == "closed" and _brakes(seen, row) else None],
            number(row["sent"]),
            number(row["unregistered"]),
        ]
        for row in seen.status.projects
    ]
    heads = [t("Project"), t("Rate"), t("Breaker"), t("Brake"), t("Sent in 15 min"), t("Unregistered")]
    return table(heads, rows, empty=t("No project has sent anything yet."), label=t("Projects"))


def _brakes(seen: System, row: dict[str, Any]) -> bool:
    """Tell whether a project's brake is on, or it rests."""
    rests = row["rest_until"] is not None and row["rest_until"] > seen.now
    return row["pruning_stopped_at"] is not None or rests


def _release(row: dict[str, Any], request: Request) -> Markup:
    return el("span", offer(request, "release", t("Release"), project=row["project"]), class_="switches")


def _breaker(seen: System, row: dict[str, Any]) -> Child:
    if row["breaker"] == "closed":
        return state("closed")
    return [state(row["breaker"]), *_since(row["breaker_since"], seen), f": {reasons.because(row['breaker_reason'])}"]


def _brake(seen: System, row: dict[str, Any]) -> Child:
    if row["pruning_stopped_at"] is not None:
        return [state("on", "bad"), *_since(row["pruning_stopped_at"], seen)]
    if row["rest_until"] is not None and row["rest_until"] > seen.now:
        return [state("rests"), f" {t('until')} ", ago(row["rest_until"], seen.now)]
    return t("off")


def _sources(seen: System) -> Markup:
    rows: list[list[Child]] = [
        [
            el("strong", row["source"]),
            state(row["last_outcome"]),
            ago(row["last_ok_at"], seen.now),
            t("{time} ago", time=duration(row["since_news_s"])) if row["since_news_s"] is not None else t("never"),
            row["last_detail"] or "",
        ]
        for row in seen.status.sources
    ]
    heads = [t("Source"), t("Last answer"), t("Last read"), t("Last news"), t("Detail")]
    return table(heads, rows, empty=t("No source has been asked yet."), label=t("Sources"))


def _workers(seen: System) -> Markup:
    alive = [row for row in seen.status.workers if row["state"] != "stopped"]
    rows: list[list[Child]] = [
        [
            el("strong", row["worker_id"]),
            state(worker_state(row)),
            row["role"],
            row["version"],
            ago(row["started_at"], seen.now),
            ago(row["last_seen_at"], seen.now),
        ]
        for row in alive
    ]
    heads = [t("Worker"), t("State"), t("Role"), t("Version"), t("Started"), t("Seen")]
    empty = sentence(t("No worker is running: start `relevo run`."))
    ended = len(seen.status.workers) - len(alive)
    more = t("Stopped in good order within the last day: {workers}.", workers=count(ended, "worker"))
    return text(
        [table(heads, rows, empty=empty, label=t("Replicas")), el("p", more, class_="faint") if ended else None]
    )


def _archive(seen: System) -> Markup:
    newest = list(reversed(seen.archive))[:_MOST_MONTHS]
    rows = [
        [
            f"{row['month']:%Y-%m}",
            row["entity"],
            [
                state(row["state"], "bad" if row["last_error"] else None),
                el("div", row["last_error"], class_="faint") if row["last_error"] else None,
            ],
            number(row["rows"]),
            size(row["bytes"]),
            ago(row["verified_at"], seen.now) if row["verified_at"] else t("not yet"),
        ]
        for row in newest
    ]
    heads = [t("Month"), t("What"), t("State"), t("Rows"), t("Size"), t("Verified")]
    return table(heads, rows, empty=t("No month has left the hot tables yet."), label=t("Archive"))
