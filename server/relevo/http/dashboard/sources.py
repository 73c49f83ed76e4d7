"""Sources: how far each was read, how its last answer was, its quota, and what could not be used."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.config import REJECT_ATTEMPTS
from relevo.http.dashboard.acting import offer
from relevo.http.dashboard.formats import ago, count, duration, number, sentence
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.labels import badge, in_words, state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import Place, Text, address, choice, facts, filters, nothing, older, part
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.operators import reading, sources

router = APIRouter(route_class=Page, include_in_schema=False)
_HERE = "/dashboard/sources"
_REJECTS = 20


@router.get("/dashboard/sources")
async def show_sources(request: Request, source: Text = "", before: Place = "") -> Response:
    """Show the sources, and what they offered that could not be used."""
    desk, settings = desk_of(request), request.app.state.relevo.settings
    described = await desk.ask(sources.details)
    quotas = await desk.ask(sources.quotas, settings.worker_timezone)
    found = await desk.ask(sources.page_of_rejects, source=source or None, before=before, limit=_REJECTS)
    names = await desk.ask(sources.names)
    return show(
        request,
        t("Sources"),
        part(t("Sources"), _none_yet(described), level="h1") if not described else None,
        el("h1", t("Sources")) if len(described) > 1 else None,
        el("div", [_source(request, row, alone=len(described) == 1) for row in described], class_="pair close")
        if described
        else None,
        part(t("Quotas"), _quotas(quotas, settings.chilecompra_daily_limit)) if quotas else None,
        part(
            t("What could not be used"),
            _narrowed(names, source) if len(names) > 1 else None,
            _rejects(request, found),
            older(request, found.next),
        ),
        live=not before,
    )


def _none_yet(_: list[dict[str, Any]]) -> Markup:
    told = t("No source has been asked yet. `SOURCES` names those to be read; `relevo run` asks them.")
    return el("p", sentence(told), class_="faint")


def _source(request: Request, row: dict[str, Any], *, alone: bool) -> Markup:
    return el(
        "section",
        el("h1" if alone else "h2", t("Source {name}", name=row["source"])),
        facts(
            (t("Last answer"), [state(row["last_outcome"]), " ", row["last_detail"] or ""]),
            (t("Last read"), _since(row["since_ok_s"])),
            (t("Last news"), _since(row["since_news_s"])),
            (t("Stays wrong"), el("ul", [el("li", each) for each in row["problems"]]) if row["problems"] else None),
            (t("Read up to"), _cursor(row["read_up_to"]) if row["read_up_to"] else t("the beginning")),
            (t("Not used"), _unused(row)),
        ),
        el(
            "div",
            el("a", t("Its runs"), href=address("/dashboard/runs", cycle=f"ingest:{row['source']}")),
            offer(request, "run", t("Read now"), cycle=f"ingest:{row['source']}"),
            offer(request, "retry", t("Try all rejects again"), source=row["source"]) if row["rejects"] else None,
            class_="row",
        ),
        class_="card",
    )


def _cursor(pairs: dict[str, Any]) -> Markup:
    """Write how far a source was read, each part with its name."""
    return el("ul", [el("li", _mark(name, value)) for name, value in pairs.items()], class_="bare")


def _mark(name: str, value: Any) -> Child:
    head = el(
        "span",
        f"{t(sources.CURSORS[name]) if name in sources.CURSORS else in_words(name)}: ",
        class_="faint",
        title=name,
    )
    if not isinstance(value, dict):
        return [head, str(value)]
    first = ", ".join(map(str, value["first"] or ())) + (", …" if value["entries"] > len(value["first"] or ()) else "")
    return [head, number(value["entries"]), f" ({first})" if first else ""]


def _since(seconds: float | None) -> str:
    return t("{time} ago", time=duration(seconds)) if seconds is not None else t("never")


def _unused(row: dict[str, Any]) -> Child:
    if not row["rejects"]:
        return t("nothing")
    given_up = t("{n} of them given up", n=number(row["given_up"])) if row["given_up"] else ""
    told: list[Child] = [count(row["rejects"], "reject")]
    return [*told, " ", badge(given_up, "warn")] if given_up else told


def _quotas(rows: list[dict[str, Any]], limit: int) -> Markup:
    told: list[list[Child]] = []
    for row in rows:
        ours = row["quota"].startswith("chilecompra-")
        asked = f"{number(row['requests'])} / {number(limit)}" if ours else number(row["requests"])
        rests = row["not_before"] > row["now"]
        told.append(
            [
                row["quota"],
                [asked, " ", badge(t("spent"), "bad") if ours and row["requests"] >= limit else None],
                duration(row["pace_ms"] / 1000),
                ago(row["not_before"], row["now"]) if rests else t("now"),
            ]
        )
    heads = [t("Quota"), t("Requests today"), t("One every"), t("Next may start")]
    return table(heads, told, empty="", label=t("Quotas"))


def _narrowed(names: list[str], chosen: str) -> Markup:
    return filters(_HERE, choice("source", t("Source"), {"": t("all")} | {each: each for each in names}, chosen))


def _rejects(request: Request, found: reading.Page) -> Markup:
    rows = [_reject(request, row) for row in found.rows]
    heads = [t("Source"), t("What"), t("Why not"), t("Tried"), t("Next try"), ""]
    empty = nothing(found.next, t("Everything that was offered could be used."))
    return table(heads, rows, empty=empty, label=t("What could not be used"))


def _next_try(row: dict[str, Any]) -> Child:
    if row["retry_at"] is None:
        return t("given up") if row["attempts"] >= REJECT_ATTEMPTS else "—"
    return ago(row["retry_at"], row["now"]) if row["retry_at"] > row["now"] else t("with the next pass")


def _reject(request: Request, row: dict[str, Any]) -> list[Child]:
    return [
        row["source"],
        [row["external_id"] or "", el("span", row["place"], class_="faint block")],
        row["reason"],
        [count(row["attempts"], "time"), el("span", ago(row["updated_at"], row["now"]), class_="faint block")],
        _next_try(row),
        offer(request, "retry", t("Try again"), reject=row["id"]),
    ]
