"""The archive: months that left the hot tables, how to bring one back, and the months that are still there."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import older, part
from relevo.http.dashboard.page import Page, desk_of, show, table
from relevo.http.dashboard.states import state
from relevo.http.dashboard.words import ago, count, number, sentence, size
from relevo.operators import history

router = APIRouter(route_class=Page, include_in_schema=False)
_SHORT = {"notification_events": "events", "notification_deliveries": "deliveries", "push_requests": "journal"}


@router.get("/dashboard/archive")
async def archive(request: Request, before: Annotated[date | None, Query()] = None) -> Response:
    """Show the months in the archive, and those in the hot tables."""
    desk = desk_of(request)
    rows, place = await desk.ask(history.archive, before=before)
    hot = await desk.ask(history.partitions)
    return show(
        request,
        t("Archive"),
        part(t("Archive"), _store(request), _months(rows), older(request, str(place or "")), level="h1"),
        part(t("Months in the database"), _partitions(hot)),
    )


def _store(request: Request) -> Markup:
    settings = request.app.state.relevo.settings
    if not settings.archive_bucket and not settings.archive_folder:
        told = t("No archive store is set: months stay in the database. Set `ARCHIVE_BUCKET`, or `ARCHIVE_FOLDER`.")
        return el("p", sentence(told), class_="faint")
    days = settings.deliveries_retention_days
    return el("p", t("A month leaves once its last day is {days} days old.", days=number(days)), class_="faint")


def _months(rows: list[dict[str, Any]]) -> Markup:
    heads = [t("Month"), t("What"), t("State"), t("Rows"), t("Size"), t("Verified"), t("Bring it back")]
    empty = t("No month has left the database yet.")
    return table(heads, [_month(row) for row in rows], empty=empty, label=t("Months in the archive"))


def _month(row: dict[str, Any]) -> list[Child]:
    short = _SHORT.get(row["entity"], row["entity"])
    command = f"relevo archive restore --entity {short} ", el("span", f"--month {row['month']:%Y-%m}", class_="one")
    return [
        el("strong", f"{row['month']:%Y-%m}"),
        t(short),
        [state(row["state"], "bad" if row["last_error"] else None), _why(row)],
        number(row["rows"]),
        [size(row["bytes"]), _files(row["parts"])],
        [ago(row["verified_at"], row["now"]) if row["verified_at"] else t("not yet"), _drop(row)],
        el("code", command, class_="copy") if row["verified_at"] else t("once it is verified"),
    ]


def _files(parts: int | None) -> Markup | None:
    return el("span", count(parts, "file"), class_="faint block") if parts is not None else None


def _why(row: dict[str, Any]) -> Markup | None:
    return el("div", row["last_error"], class_="bad") if row["last_error"] else None


def _drop(row: dict[str, Any]) -> Markup | None:
    if row["dropped_at"]:
        return el("span", t("dropped here "), ago(row["dropped_at"], row["now"]), class_="faint block")
    if row["drop_eligible_at"]:
        return el("span", t("to be dropped here "), ago(row["drop_eligible_at"], row["now"]), class_="faint block")
    return None


def _partitions(rows: list[dict[str, Any]]) -> Markup:
    heads = [t("Month"), t("What"), t("Table"), t("Rows, about"), t("Size")]
    told: list[list[Child]] = [
        [
            el("strong", f"{row['month']:%Y-%m}" if row["month"] else t("no month")),
            t(_SHORT.get(row["entity"], row["entity"])),
            el("code", row["name"]),
            number(row["rows_about"]),
            size(row["bytes"]),
        ]
        for row in rows
    ]
    return table(heads, told, empty=t("No month has been made yet."), label=t("Months in the database"))
