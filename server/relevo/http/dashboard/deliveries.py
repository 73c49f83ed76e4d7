"""One delivery: one push to one phone, why it was made, each attempt, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.core.i18n import gettext as _
from relevo.http.dashboard.labels import KINDS
from relevo.http.dashboard.page import Page, read, render
from relevo.http.problems import Problem
from relevo.operators import deliveries, reasons
from relevo.operators.deliveries import Push, Try
from relevo.operators.timeline import Moment, of_pauses
from relevo.push_services import sandbox_address

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_IDS = 2**63 - 1
_MANY_TRIES = 3


@router.get("/dashboard/deliveries/{delivery_id}")
async def delivery(request: Request, delivery_id: Annotated[int, Path(ge=0, le=_MOST_IDS)]) -> Response:
    """Show one delivery."""
    seen = await read(request, deliveries.push, delivery_id)
    if seen is None:
        raise Problem(404, _("There is no delivery %(id)s, or it was archived.", id=delivery_id))
    return render(
        request,
        "delivery.html",
        seen=seen,
        row=seen.delivery,
        now=seen.delivery["now"],
        moments=sorted(_moments(seen), key=lambda each: each.at),
        sandbox=sandbox_address(request.app.state.relevo.settings) or "",
        kinds=KINDS,
    )


def _moments(seen: Push) -> Iterator[Moment]:
    """Return what happened to a delivery; delivery.html has a macro for each code."""
    row = seen.delivery
    yield Moment(row["created_at"], "made", row)
    yield from of_pauses(seen.pauses)
    yield from _tries(seen.tries)
    yield from (Moment(each["at"], "went_wrong", each) for each in seen.apart if each["at"] != row["completed_at"])
    yield from (Moment(each["at"], "died", each) for each in seen.deaths)
    yield from (Moment(each["at"], "redriven", each) for each in seen.redriven)
    yield from (Moment(each["recorded_at"], "late_ticket", each) for each in seen.late_tickets)
    if seen.was_taken:
        yield Moment(row["last_attempt_at"], "taken", row)
    elif row["completed_at"] is None and not seen.last_is_told:
        yield Moment(row["last_attempt_at"], "attempt_failed", row)
    if row["silent_at"]:
        yield Moment(row["silent_at"], "silent", row)
    if row["opened_at"]:
        yield Moment(row["opened_at"], "opened", row)
    if row["lapse_count"]:
        yield Moment(row["updated_at"], "lapsed", row)
    if row["completed_at"] and not (seen.was_taken and row["status"] == "ok" and reasons.taken_by(row["provider"])):
        is_told = any(each.failure and each.failure["at"] == row["completed_at"] for each in seen.tries)
        yield Moment(row["completed_at"], "finished", {**row, "is_told": is_told})
    elif row["provider_receipt_id"] and not any(each["found_by"] == "receipt" for each in seen.failures):
        yield Moment(row["updated_at"], "receipt_failed", row)


def _tries(tries: Sequence[Try]) -> Iterator[Moment]:
    """Return each try; many in a row that went alike are one moment, that of the first."""
    for went, alike in groupby(enumerate(tries, 1), key=lambda each: _went(each[1])):
        same, said = list(alike), went[-1]
        if len(same) >= _MANY_TRIES:
            first, last = same[0][1].request, same[-1][1].request
            folded = {"n": len(same), "first": first, "last": last, "said": said}
            yield Moment(first["journalled_at"], "folded", folded)
        else:
            for n, each in same:
                row = {"n": n, "request": each.request, "said": said}
                yield Moment(each.request["journalled_at"], "attempt", row)


def _went(told: Try) -> tuple[object, ...]:
    """Return by what two tries are alike: what became of the request, and what was said of it."""
    request, failure = told.request, told.failure
    said = reasons.as_said(failure["error_code"], failure["error_message"]) if failure else ""
    return request["outcome"], request["answered_at"] is None, request["pushes"], said
