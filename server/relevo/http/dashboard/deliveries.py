"""One delivery: why it was made, each attempt, and what it waits for; and dead letters, which can be sent again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.app.push_services import sandbox_address
from relevo.core.i18n import gettext as _
from relevo.core.i18n import ngettext
from relevo.http.dashboard.actions import Action, FormInput, Question, Result
from relevo.http.dashboard.formats import KINDS, number
from relevo.http.dashboard.page import Id, Page, read, render
from relevo.http.database_threads import long_work_of, threads_of
from relevo.http.problems import Problem
from relevo.operators import actions, deliveries, reasons
from relevo.operators.actions import DeadLetters
from relevo.operators.deliveries import Push, Try
from relevo.operators.timeline import Moment, of_pauses

router = APIRouter(route_class=Page, include_in_schema=False)
_MANY_TRIES = 3
_DEAD_LETTERS = "/dashboard/dead-letters"


@router.get("/dashboard/deliveries/{delivery_id}")
async def delivery(request: Request, delivery_id: Id) -> Response:
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


@router.get(_DEAD_LETTERS)
async def dead_letters(request: Request) -> Response:
    """Show what failed for good, by error, project and type."""
    groups = await read(request, deliveries.dead_letters)
    return render(request, "dead_letters.html", groups=groups, most=deliveries.MOST_DEAD)


def _which(form: FormInput) -> DeadLetters:
    ids = form.id("delivery")
    return DeadLetters(
        (ids,) if ids else (),
        form.text("code", 100) or None,
        form.id("event"),
        form.text("project", 250) or None,
        form.text("type", 100) or None,
    )


async def _ask_redrive(request: Request, form: FormInput) -> Question:
    """Ask with what a redrive would do, without doing it."""
    which = _which(form)
    tried = await threads_of(request).run(actions.try_redrive, which)
    found, again = tried["found"], tried["found"] - tried["too_late"] - tried["archived"]
    more = found >= actions.MOST_TRIED
    letters = ngettext("%(n)s dead letter", "%(n)s dead letters", again)
    return Question(
        _("Send all these dead letters again?") if more else _("Send %(n)s again?", n=letters),
        _("Send them again") if more else _("Send %(n)s again", n=number(again)),
        hidden={
            "code": which.error_code or "",
            "project": which.project or "",
            "type": which.event_type or "",
            "event": which.event_id or "",
            "delivery": which.ids[0] if which.ids else "",
        },
        back=_DEAD_LETTERS,
        possible=again > 0,
        template="redrive_question.html",
        context={
            "which": which,
            "found": found,
            "more": more,
            "sent": max(0, again - tried["ended"] - tried["silent"]),
            "left_out": [(tried[name], why) for name, why in _why_not(tried, again).items() if tried[name]],
        },
    )


def _why_not(tried: dict[str, int], again: int) -> dict[str, str]:
    """Return why dead letters would not be sent again, by what they are counted under."""
    silent = _("would be reopened and end unsent: the phone takes no pushes any more.")
    if tried["looked"] < again - tried["ended"]:
        silent = _(
            "would be reopened and end unsent: the phone takes no pushes any more (of the first %(n)s checked).",
            n=number(tried["looked"]),
        )
    return {
        "too_late": _("would not be sent: their deadline has passed."),
        "archived": _("would not be sent: their month is on its way to the archive."),
        "ended": _("would be reopened and end unsent: their event was cancelled or completed."),
        "silent": silent,
    }


async def _redrive(request: Request, form: FormInput) -> Result:
    opened = await long_work_of(request).run(actions.redrive, _which(form))
    letters = ngettext("%(n)s dead letter", "%(n)s dead letters", opened)
    title = _("%(n)s will be sent again.", n=letters) if opened else _("No dead letter matches any more.")
    return Result(title, back=_DEAD_LETTERS)


ACTIONS = {"redrive": Action(_ask_redrive, _redrive, grave=True)}
