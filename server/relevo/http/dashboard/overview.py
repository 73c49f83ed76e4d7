"""The first page: is it well, and if not, why, and what comes next."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo import insights
from relevo.health import MOST_COUNTED, in_numbers
from relevo.http.dashboard import charts
from relevo.http.dashboard.html import Child, Markup, el, text
from relevo.http.dashboard.page import Page, badge, desk_of, show, table
from relevo.http.dashboard.words import ago, count, duration, instant, number, sentence, size
from relevo.insights import Overview

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_MONTHS = 6
_KINDS = {
    "ok": "good",
    "alive": "good",
    "closed": "good",
    "idle": "",
    "running": "",
    "stopped": "",
    "partial": "warn",
    "stopping": "warn",
    "silent": "warn",
    "probing": "warn",
    "open": "bad",
    "failed": "bad",
    "abandoned": "bad",
    "lost": "bad",
    "unavailable": "bad",
    "rejected": "bad",
}


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """Show the fleet at a glance."""
    seen = await desk_of(request).ask(insights.overview, request.app.state.relevo.settings)
    return show(request, "Overview", sections(seen))


def sections(seen: Overview) -> list[Markup]:
    """Write the page's parts, the most urgent first."""
    return [
        _verdict(seen),
        _figures(seen),
        el(
            "section",
            el("h2", "Pushes"),
            el(
                "div",
                charts.pushes(seen.hour, title="The last hour", first="an hour ago", per=1),
                charts.pushes(seen.day, title="The last day", first="a day ago", per=15),
                class_="pair",
            ),
            class_="card",
        ),
        _part("Due now", _due(seen)),
        _part("Cycles", _cycles(seen)),
        _part("Projects", _projects(seen)),
        _part("Sources", _sources(seen)),
        _part("Replicas", _workers(seen)),
        _part("Archive", _archive(seen)),
    ]


def _part(title: str, *body: Child) -> Markup:
    return el("section", el("h2", title), body, class_="card")


def _verdict(seen: Overview) -> Markup:
    problems = seen.status.health.problems
    if not problems:
        told = "Healthy. Nothing needs you."
        return el("section", el("h1", told), _as_of(seen), class_="card verdict good", role="status")
    first, *others = (f"{each[:1].upper()}{each[1:].removesuffix('.')}." for each in problems)
    return el(
        "section",
        el("h1", el("span", "Not healthy: ", class_="word"), sentence(first)),
        el("ul", [el("li", sentence(each)) for each in others]) if others else None,
        _as_of(seen),
        class_="card verdict bad",
        role="status",
    )


def _as_of(seen: Overview) -> Markup:
    return el("p", "As of ", instant(seen.now), class_="faint")


def _figures(seen: Overview) -> Markup:
    queue = seen.queue
    oldest = queue["oldest_pending_age_seconds"]
    more = " or more" if queue["due_now_is_at_least"] else ""
    failing = queue["failed"]
    told = [
        (
            "Due now",
            number(queue["due_now"]) + more,
            f"oldest {duration(oldest)}" if oldest is not None else "nothing waits",
            "",
        ),
        ("Being sent", number(queue["processing"]), f"{number(queue['pending'])} waiting in all", ""),
        ("Stuck", number(queue["stuck_processing"]), "in expired claims", "warn" if queue["stuck_processing"] else ""),
        ("Failed for good", number(failing), "dead letters", "bad" if failing else ""),
        ("Sent", number(queue["sent"]), f"of {number(queue['total'])} not archived", ""),
    ]
    return el(
        "dl",
        [
            el(
                "div",
                el("dt", name),
                el("dd", value, class_="big"),
                el("dd", more, class_="faint"),
                class_=f"card {kind}",
            )
            for name, value, more, kind in told
        ],
        class_="figures",
    )


def _due(seen: Overview) -> Markup:
    rows = [
        [row["project"], row["lane"], in_numbers(row["due"], "delivery", "deliveries"), duration(row["oldest_s"])]
        for row in seen.status.due
    ]
    held = [
        el(
            "p",
            badge("held", "warn"),
            " ",
            in_numbers(row["events"], "event"),
            f" of {row['event_type']}: {row['reason']}",
        )
        for row in seen.status.held[:MOST_COUNTED]
    ]
    told = table(["Project", "Lane", "Due", "Oldest for"], rows, empty="Nothing is due.", label="What is due")
    return text([told, *held])


def _cycles(seen: Overview) -> Markup:
    rows = [_cycle(seen, row) for row in seen.status.cycles]
    heads = ["Cycle", "Last outcome", "Took", "Last runs", "Last round", "Next", "State"]
    return table(heads, rows, empty="No cycle has run yet: start `relevo run`.", label="Cycles")


def _cycle(seen: Overview, row: dict[str, Any]) -> list[Child]:
    key = (row["cycle"], row["source"])
    runs = seen.durations.get(key, [])
    outcome = row["last_outcome"] or "none"
    state: Child = badge("paused", "warn") if row["paused_reason"] else badge("on", "good")
    if row["paused_reason"]:
        state = [state, " since ", ago(row["paused_at"], seen.now), f": {row['paused_reason']}"]
    coming = seen.next_rounds[key]
    soon = (
        text("when switched on") if row["paused_reason"] else ago(coming, seen.now) if coming else text("when called")
    )
    if coming is not None and coming <= seen.now and not row["paused_reason"]:
        soon = text("now")
    return [
        el("strong", name_of(row)),
        [badge(outcome, _KINDS.get(outcome, "")), _why(row)],
        duration(runs[-1]["seconds"]) if runs else "—",
        charts.spark(runs),
        ago(row["last_round_at"], seen.now),
        soon,
        state,
    ]


def name_of(row: dict[str, Any]) -> str:
    """Name a cycle, with its source if it has one."""
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _why(row: dict[str, Any]) -> Markup | None:
    return el("div", row["error_message"], class_="faint") if row["failures"] and row["error_message"] else None


def _projects(seen: Overview) -> Markup:
    rows = []
    for row in seen.status.projects:
        breaker: Child = badge(row["breaker"], _KINDS.get(row["breaker"], ""))
        if row["breaker"] != "closed":
            breaker = [breaker, " since ", ago(row["breaker_since"], seen.now), f": {row['breaker_reason']}"]
        brake: Child = "off"
        if row["pruning_stopped_at"] is not None:
            brake = [badge("on", "bad"), " since ", ago(row["pruning_stopped_at"], seen.now)]
        elif row["rest_until"] is not None and row["rest_until"] > seen.now:
            brake = [badge("rests", "warn"), " until ", ago(row["rest_until"], seen.now)]
        rows.append(
            [
                el("strong", row["project"]),
                f"{row['rate_share']:.0%}",
                breaker,
                brake,
                number(row["sent"]),
                number(row["unregistered"]),
            ]
        )
    heads = ["Project", "Rate", "Breaker", "Brake", "Sent in 15 min", "Unregistered"]
    return table(heads, rows, empty="No project has sent anything yet.", label="Projects")


def _sources(seen: Overview) -> Markup:
    rows = [
        [
            el("strong", row["source"]),
            badge(row["last_outcome"] or "none", _KINDS.get(row["last_outcome"] or "", "")),
            ago(row["last_ok_at"], seen.now),
            f"{duration(row['since_news_s'])} ago" if row["since_news_s"] is not None else "never",
            row["last_detail"] or "",
        ]
        for row in seen.status.sources
    ]
    heads = ["Source", "Last answer", "Last read", "Last news", "Detail"]
    return table(heads, rows, empty="No source has been asked yet.", label="Sources")


def _workers(seen: Overview) -> Markup:
    alive = [row for row in seen.status.workers if row["state"] != "stopped"]
    rows = [
        [
            el("strong", row["worker_id"]),
            badge(row["state"], _KINDS.get(row["state"], "")),
            row["role"],
            row["version"],
            ago(row["started_at"], seen.now),
            ago(row["last_seen_at"], seen.now),
        ]
        for row in alive
    ]
    heads = ["Worker", "State", "Role", "Version", "Started", "Seen"]
    ended = len(seen.status.workers) - len(alive)
    told = table(heads, rows, empty="No worker is running: start `relevo run`.", label="Replicas")
    more = (
        el("p", f"{count(ended, 'worker')} stopped in good order within the last day.", class_="faint")
        if ended
        else None
    )
    return text([told, more])


def _archive(seen: Overview) -> Markup:
    newest = list(reversed(seen.archive))[:_MOST_MONTHS]
    rows = [
        [
            f"{row['month']:%Y-%m}",
            row["entity"],
            [
                badge(row["state"], "bad" if row["last_error"] else ""),
                el("div", row["last_error"], class_="faint") if row["last_error"] else None,
            ],
            number(row["rows"]),
            size(row["bytes"]),
            ago(row["verified_at"], seen.now) if row["verified_at"] else "not yet",
        ]
        for row in newest
    ]
    heads = ["Month", "What", "State", "Rows", "Size", "Verified"]
    return table(heads, rows, empty="No month has left the hot tables yet.", label="Archive")
