"""The record: who did what, with what result, and who was refused."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
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
    filters,
    nothing,
    older,
    part,
    since,
)
from relevo.http.dashboard.names import ACTIONS, in_words
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.http.dashboard.states import state
from relevo.http.dashboard.words import ago
from relevo.operators import history

router = APIRouter(route_class=Page, include_in_schema=False)
_OUTCOMES = ("ok", "failed", "begun")
_HERE = "/dashboard/audit"


@router.get("/dashboard/audit")
async def audit(
    request: Request, *, actor: Text = "", action: Text = "", ended: Text = "", hours: Hours = "", before: Place = ""
) -> Response:
    """Show what was done that fits, newest first."""
    found = await desk_of(request).ask(
        history.audit,
        actor=actor or None,
        action=action or None,
        outcome=ended or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    narrowed = filters(
        _HERE,
        box("actor", t("Who"), actor),
        box("action", t("Action"), action, list="actions"),
        el("datalist", [el("option", in_words(each), value=each) for each in sorted(ACTIONS)], id="actions"),
        choice("ended", t("Outcome"), {"": t("all")} | {each: t(each) for each in _OUTCOMES}, ended),
        since(hours),
    )
    heads = [t("When"), t("Who"), t("Action"), t("With what"), t("Outcome")]
    empty = nothing(found.next, t("Nothing fits.") if request.url.query else t("Nobody has done anything yet."))
    told = table(heads, [_line(row) for row in found.rows], empty=empty, label=t("Audit"))
    body = part(t("Audit"), narrowed, told, older(request, found.next), level="h1")
    return show(request, t("Audit"), body, live=not before)


def _line(row: dict[str, Any]) -> list[Child]:
    return [
        ago(row["at"], row["now"]),
        [row["actor"], el("span", t("by {face}", face=row["face"]), class_="faint block")],
        el("a", in_words(row["action"]), href=address(_HERE, action=row["action"]), title=row["action"]),
        _pairs(row["target"]),
        [state(row["outcome"]), _pairs(row["result"]), _error(row)],
    ]


def _pairs(values: dict[str, Any]) -> Markup | None:
    if not values:
        return None
    return el(
        "ul",
        [
            el("li", el("span", f"{in_words(name)}: ", class_="faint", title=name), _value(each))
            for name, each in values.items()
        ],
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _error(row: dict[str, Any]) -> Markup | None:
    return el("div", row["error_message"], class_="bad") if row["error_message"] else None
