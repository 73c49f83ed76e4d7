"""The first page: is it well, and if not, why, and what comes next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo import insights
from relevo.health import MOST_COUNTED, Problem, worker_state
from relevo.http.dashboard import charts, reasons
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.guide import RUNBOOK
from relevo.http.dashboard.html import Child, Markup, el, text
from relevo.http.dashboard.language import said, t
from relevo.http.dashboard.lists import address
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.http.dashboard.states import state
from relevo.http.dashboard.words import ago, count, duration, instant, number, sentence, size
from relevo.insights import Overview

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_MONTHS = 6
_DEAD = "/dashboard/dead-letters"


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """Show the fleet at a glance."""
    seen = await desk_of(request).ask(insights.overview, request.app.state.relevo.settings)
    return show(request, t("Overview"), sections(seen, request))


def sections(seen: Overview, request: Request) -> list[Markup]:
    """Write the page's parts, the most urgent first."""
    return [
        _verdict(seen, request),
        _figures(seen),
        el(
            "section",
            el("h2", t("Pushes")),
            el(
                "div",
                charts.pushes(seen.hour, title=t("The last hour"), first=t("an hour ago"), per=1),
                charts.pushes(seen.day, title=t("The last day"), first=t("a day ago"), per=15),
                class_="pair",
            ),
            class_="card",
        ),
        _part(t("Due now"), _due(seen, request)),
        _part(t("Cycles"), _cycles(seen, request)),
        _part(t("Projects"), _projects(seen, request)),
        _part(t("Sources"), _sources(seen)),
        _part(t("Replicas"), _workers(seen)),
        _part(t("Archive"), _archive(seen)),
    ]


def _part(title: str, *body: Child) -> Markup:
    return el("section", el("h2", title), body, class_="card")


def _verdict(seen: Overview, request: Request) -> Markup:
    problems = seen.status.health.problems
    if not problems:
        failed = seen.queue["failed"]
        told = t("Healthy.") if failed else t("Healthy. Nothing needs you.")
        look = el("a", count(failed, "delivery failed for good", "deliveries failed for good"), href=_DEAD)
        lines = [el("h1", told), el("p", look) if failed else None, _as_of(seen)]
        return el("section", lines, class_="card verdict good", role="status")
    first, *others = problems
    return el(
        "section",
        el("h1", el("span", t("Not healthy: "), class_="word"), _said(first)),
        el("p", _remedy(first, request), _help(first)),
        el("ul", [el("li", _said(each), " ", _remedy(each, request), _help(each)) for each in others])
        if others
        else None,
        _as_of(seen),
        class_="card verdict bad",
        role="status",
    )


def _said(problem: Problem) -> Markup:
    told = said(_explained(problem))
    return sentence(f"{told[:1].upper()}{told[1:].removesuffix('.')}.")


def _explained(problem: Problem) -> Problem:
    """Tell why a project is stopped in words before what the push service said."""
    if problem.code != "project_stopped":
        return problem
    why = reasons.because(str(problem.parts["why"]))
    return Problem(problem.code, problem.template, **{**problem.parts, "why": why})


def _remedy(problem: Problem, request: Request) -> list[Child] | None:
    """Offer an operator the button that does what a problem's sentence advises."""
    button = None
    if problem.code in ("project_stopped", "tokens_unregistered"):
        button = offer(request, "release", t("Release"), project=problem.parts["project"])
    elif problem.code == "cycle_paused":
        button = offer(request, "resume", t("Switch on"), cycle=problem.parts["cycle"])
    return [button, " "] if button else None


def _help(problem: Problem) -> Markup:
    """Lead to where the runbook explains a problem; it is written in English."""
    return el("a", t("What to do"), href=f"{RUNBOOK}#{problem.place}", hreflang="en")


def _as_of(seen: Overview) -> Markup:
    """Tell when this was seen; a script adds of which zone the page's times are, which else name it themselves."""
    return el("p", t("As of"), " ", instant(seen.now), el("span", data_zone=True), class_="faint")


def _figures(seen: Overview) -> Markup:
    queue = seen.queue
    oldest, failing, stuck = queue["oldest_pending_age_seconds"], queue["failed"], queue["stuck_processing"]
    due = number(queue["due_now"])
    told = [
        (t("Due now"), t("{n} or more", n=due) if queue["due_now_is_at_least"] else due, _waiting(queue, oldest), ""),
        (t("Being sent"), number(queue["processing"]), t("claimed by workers"), ""),
        (t("Stuck"), number(stuck), t("in expired claims"), "warn" if stuck else ""),
        (t("Failed for good"), number(failing), _dead_letters(), "bad" if failing else ""),
        (t("Sent, as they stand"), number(queue["sent"]), _of_all(queue), ""),
    ]
    return el("dl", [_figure(*each) for each in told], class_="figures")


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


def _dead_letters() -> Markup:
    return el("a", t("dead letters"), href="/dashboard/dead-letters")


def _figure(name: str, value: str, more: Child, kind: str) -> Markup:
    figures = el("dt", name), el("dd", value, class_="big"), el("dd", more, class_="faint")
    return el("div", figures, class_=f"card {kind}")


def _due(seen: Overview, request: Request) -> Markup:
    rows = [
        [row["project"], t(row["lane"]), at_most(row["due"], "delivery", "deliveries"), duration(row["oldest_s"])]
        for row in seen.status.due
    ]
    heads = [t("Project"), t("Lane"), t("Due"), t("Oldest for")]
    told = table(heads, rows, empty=t("Nothing is due."), label=t("What is due"))
    return text([told, *(_held(row, request) for row in seen.status.held[:MOST_COUNTED])])


def _held(row: dict[str, Any], request: Request) -> Markup:
    what = t("{events} of {type}", events=at_most(row["events"], "event"), type=row["event_type"])
    which = {"type": row["event_type"], "origin": row["origin"]}
    return el(
        "div",
        el("p", state("held"), f" {what}: {row['reason']}"),
        offer(request, "send-held", t("Send them"), **which),
        offer(request, "drop-held", t("End them"), grave=True, **which),
        class_="row",
    )


def at_most(value: int, one: str, many: str = "") -> str:
    """Write a count with its noun, of what is not counted beyond a bound."""
    if value < MOST_COUNTED:
        return count(value, one, many)
    return f"{t('{n} or more', n=number(MOST_COUNTED))} {t(many or one + 's')}"


def _cycles(seen: Overview, request: Request) -> Markup:
    rows = [_cycle(seen, row, request) for row in seen.status.cycles]
    heads = [t("Cycle"), t("Last outcome"), t("Took"), t("Last runs"), t("Last round"), t("Next"), t("State")]
    return table(heads, rows, empty=sentence(t("No cycle has run yet: start `relevo run`.")), label=t("Cycles"))


def _cycle(seen: Overview, row: dict[str, Any], request: Request) -> list[Child]:
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


def _next(seen: Overview, coming: datetime | None, *, paused: bool) -> Child:
    if paused:
        return t("when switched on")
    if coming is None:
        return t("when called")
    return t("now") if coming <= seen.now else ago(coming, seen.now)


def _since(moment: datetime | None, seen: Overview) -> list[Child]:
    return [f" {t('since')} ", ago(moment, seen.now)]


def name_of(row: dict[str, Any]) -> str:
    """Name a cycle, with its source if it has one."""
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _why(row: dict[str, Any]) -> Markup | None:
    return el("div", row["error_message"], class_="faint") if row["failures"] and row["error_message"] else None


def _projects(seen: Overview, request: Request) -> Markup:
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


def _brakes(seen: Overview, row: dict[str, Any]) -> bool:
    """Tell whether a project's brake is on, or it rests."""
    rests = row["rest_until"] is not None and row["rest_until"] > seen.now
    return row["pruning_stopped_at"] is not None or rests


def _release(row: dict[str, Any], request: Request) -> Markup:
    return el("span", offer(request, "release", t("Release"), project=row["project"]), class_="switches")


def _breaker(seen: Overview, row: dict[str, Any]) -> Child:
    if row["breaker"] == "closed":
        return state("closed")
    return [state(row["breaker"]), *_since(row["breaker_since"], seen), f": {reasons.because(row['breaker_reason'])}"]


def _brake(seen: Overview, row: dict[str, Any]) -> Child:
    if row["pruning_stopped_at"] is not None:
        return [state("on", "bad"), *_since(row["pruning_stopped_at"], seen)]
    if row["rest_until"] is not None and row["rest_until"] > seen.now:
        return [state("rests"), f" {t('until')} ", ago(row["rest_until"], seen.now)]
    return t("off")


def _sources(seen: Overview) -> Markup:
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


def _workers(seen: Overview) -> Markup:
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


def _archive(seen: Overview) -> Markup:
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
