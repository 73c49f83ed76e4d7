"""The first page: is it well, and if not, why; who can be reached, what arrives, and of which kinds."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.http.dashboard import charts, reasons
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.formats import ago, count, instant, number, percent, sentence
from relevo.http.dashboard.guide import RUNBOOK
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.i18n import in_three
from relevo.http.dashboard.labels import state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, facts, part
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.http.dashboard.parts import clipped
from relevo.operators import fleet
from relevo.operators.fleet import MOST_EVENTS, Overview
from relevo.operators.health.problem import Problem
from relevo.operators.wording import MOST_COUNTED

router = APIRouter(route_class=Page, include_in_schema=False)
_DEAD = "/dashboard/dead-letters"
_PLATFORMS = {"ios": "iOS", "android": "Android"}


@router.get("/dashboard")
async def overview(request: Request) -> Response:
    """Show what people ask first."""
    seen = await desk_of(request).ask(fleet.overview, request.app.state.relevo.settings)
    return show(request, t("Overview"), sections(seen, request))


def sections(seen: Overview, request: Request) -> list[Markup | None]:
    """Write the page's parts, the most urgent first."""
    held = [_held(row, request) for row in seen.status.held[:MOST_COUNTED]]
    minutes = [t("{time} ago", time="60 min"), "45", "30", "15", t("now")]
    hours = [t("{time} ago", time="24 h"), "18", "12", "6", t("now")]
    return [
        _verdict(seen, request),
        _figures(seen),
        part(t("Held"), held) if held else None,
        part(
            t("Pushes"),
            el(
                "div",
                charts.pushes(seen.hour, title=t("The last hour, by 5 minutes"), ends=minutes),
                charts.pushes(seen.day, title=t("The last day, by the hour"), ends=hours),
                class_="pair",
            ),
        ),
        part(t("Event types"), _types(seen)),
    ]


def _verdict(seen: Overview, request: Request) -> Markup:
    problems = seen.status.health.problems
    if not problems:
        failed = seen.queue["failed"]
        told = t("Healthy.") if failed else t("Healthy. Nothing needs you.")
        look = el("a", count(failed, "delivery failed for good", "deliveries failed for good"), href=_DEAD)
        lines = [el("h1", told), el("p", look) if failed else None, _as_of(seen)]
        return el("section", lines, class_="card verdict good", role="status")
    return el(
        "section",
        [_problem(each, request, first=not place) for place, each in enumerate(problems)],
        _as_of(seen),
        class_="card verdict bad",
        role="status",
    )


def _problem(problem: Problem, request: Request, *, first: bool) -> Markup:
    """Tell of a problem in three parts: what, why, what to do."""
    what, why, remedy = map(_sentence, in_three(_explained(problem)))
    head = el("h1", el("span", t("Not healthy: "), class_="word"), what) if first else el("h2", what)
    todo: list[Child] = [each for each in (remedy, _remedy(problem, request), _help(problem)) if each]
    return el(
        "div",
        head,
        facts((t("Why"), why), (t("What to do"), [[each, " "] for each in todo])),
        class_="problem",
    )


def _sentence(told: str) -> Markup | str:
    """Write what is part of a sentence as one of its own; nothing stays nothing."""
    return sentence(f"{told[:1].upper()}{told[1:].removesuffix('.')}.") if told else ""


def _explained(problem: Problem) -> Problem:
    """Tell why a project is stopped in words before what the push service said."""
    if problem.code != "project_stopped":
        return problem
    why = reasons.because(str(problem.parts["why"]))
    return Problem(problem.code, problem.template, **{**problem.parts, "why": why})


def _remedy(problem: Problem, request: Request) -> Markup | None:
    """Offer an operator the button that does what a problem's sentence advises."""
    if problem.code in ("project_stopped", "tokens_unregistered"):
        return offer(request, "release", t("Release"), project=problem.parts["project"])
    if problem.code == "cycle_paused":
        return offer(request, "resume", t("Switch on"), cycle=problem.parts["cycle"])
    return None


def _help(problem: Problem) -> Markup:
    """Lead to where the runbook explains a problem; it is written in English."""
    return el("a", t("More in the runbook"), href=f"{RUNBOOK}#{problem.place}", hreflang="en")


def _as_of(seen: Overview) -> Markup:
    """Tell when this was seen; a script adds of which zone the page's times are, which else name it themselves."""
    return el("p", t("As of"), " ", instant(seen.now), el("span", data_zone=True), class_="faint")


def _figures(seen: Overview) -> Markup:
    phones, receiving = (sum(row[name] for row in seen.phones) for name in ("phones", "receiving"))
    sent, confirmed, failed = (sum(row[name] for row in seen.day) for name in ("sent", "confirmed", "failed"))
    dead = seen.queue["failed"]
    told = [
        figure(t("Reach"), percent(receiving, phones), _reach(receiving, phones)),
        figure(t("Success rate"), percent(confirmed, confirmed + failed), _success(confirmed, failed)),
        figure(t("Sent"), number(sent), t("pushes in the last day")),
        figure(t("Phones"), at_most(phones), _platforms(seen.phones)),
        figure(t("Failed for good"), number(dead), el("a", t("dead letters"), href=_DEAD), "bad" if dead else ""),
    ]
    return el("dl", told, class_="figures")


def _reach(receiving: int, phones: int) -> str:
    if not phones:
        return t("no phone is registered yet")
    told = t("{n} of {phones} may get pushes", n=number(receiving), phones=count(phones, "phone"))
    return f"{told}, {t('of the newest {n} phones', n=number(phones))}" if phones >= MOST_COUNTED else told


def _success(confirmed: int, failed: int) -> str:
    if not confirmed + failed:
        return t("nothing has ended in the last day")
    return t("{n} confirmed, {failed} failed in the last day", n=number(confirmed), failed=number(failed))


def _platforms(rows: list[dict[str, Any]]) -> str:
    told = [f"{number(row['phones'])} {_PLATFORMS.get(row['platform'], t('others'))}" for row in rows]
    return ", ".join(told) or t("none")


def figure(name: str, value: str, more: Child, kind: str = "") -> Markup:
    """Write one number with its name, and more on it."""
    figures = el("dt", name), el("dd", value, class_="big"), el("dd", more, class_="faint")
    return el("div", figures, class_=f"card {kind}")


def _types(seen: Overview) -> list[Child]:
    rows = [_type(row, seen) for row in seen.types]
    heads = [t("Type"), t("Events"), t("Pushes"), t("Confirmed"), t("Failed"), t("Success rate"), t("Last one")]
    none_yet = sentence(t("There are no events yet: `relevo enqueue` makes one."))
    looked = seen.types[0]["looked_at"] if seen.types else 0
    said = t("Of the newest {n} events.", n=number(looked)) if looked >= MOST_EVENTS else None
    told = table(heads, rows, empty=none_yet, label=t("Event types"))
    return [told, el("p", said, class_="faint") if said else None]


def _type(row: dict[str, Any], seen: Overview) -> list[Child]:
    counts = row["deliveries"]
    confirmed = int(counts.get("ok", 0))
    failed = sum(int(counts.get(each, 0)) for each in ("failed", "invalid"))
    return [
        el("a", clipped(row["event_type"], 60), href=address("/dashboard/events", type=row["event_type"])),
        number(row["events"]),
        number(sum(map(int, counts.values()))),
        number(confirmed),
        number(failed),
        percent(confirmed, confirmed + failed),
        ago(row["last_at"], seen.now),
    ]


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


def at_most(value: int, one: str = "", many: str = "") -> str:
    """Write a count, with its noun if it has one, of what is not counted beyond a bound."""
    if value < MOST_COUNTED:
        return count(value, one, many) if one else number(value)
    more = t("{n} or more", n=number(MOST_COUNTED))
    return f"{more} {t(many or one + 's')}" if one else more
