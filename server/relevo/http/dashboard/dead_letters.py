"""Dead letters: what failed for good, by error, and sending it again after a look at what that would do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.core.i18n import gettext as _
from relevo.core.i18n import ngettext
from relevo.http.dashboard.actions import Action, FormInput, Question, Result
from relevo.http.dashboard.formats import number
from relevo.http.dashboard.page import Page, read, render
from relevo.http.database_threads import long_work_of, threads_of
from relevo.operators import actions, deliveries
from relevo.operators.actions import DeadLetters

router = APIRouter(route_class=Page, include_in_schema=False)
_HERE = "/dashboard/dead-letters"


@router.get("/dashboard/dead-letters")
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
        back=_HERE,
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
    silent = _("would be opened, and end unsent: the phone takes no pushes any more.")
    if tried["looked"] < again - tried["ended"]:
        silent = _(
            "would be opened, and end unsent: the phone takes no pushes any more (of the first %(n)s looked at).",
            n=number(tried["looked"]),
        )
    return {
        "too_late": _("would not: their deadline has passed."),
        "archived": _("would not: their month is on its way to the archive."),
        "ended": _("would be opened, and end unsent: their event was cancelled or completed."),
        "silent": silent,
    }


async def _redrive(request: Request, form: FormInput) -> Result:
    opened = await long_work_of(request).run(actions.redrive, _which(form))
    letters = ngettext("%(n)s dead letter", "%(n)s dead letters", opened)
    title = _("%(n)s will be sent again.", n=letters) if opened else _("No dead letter fits any more.")
    return Result(title, back=_HERE)


ACTIONS = {"redrive": Action(_ask_redrive, _redrive)}
