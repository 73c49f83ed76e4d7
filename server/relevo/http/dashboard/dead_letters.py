"""Dead letters: what failed for good, by error, and sending it again after a look at what that would do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.http.dashboard import reasons
from relevo.http.dashboard.acting import Deed, Given, Question, Told, at_length
from relevo.http.dashboard.formats import count, number
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import facts
from relevo.http.dashboard.page import Page, render
from relevo.http.database_threads import threads_of
from relevo.operators import actions, deliveries
from relevo.operators.actions import DeadLetters

router = APIRouter(route_class=Page, include_in_schema=False)
_HERE = "/dashboard/dead-letters"


@router.get("/dashboard/dead-letters")
async def dead_letters(request: Request) -> Response:
    """Show what failed for good, by error, project and type."""
    groups = await threads_of(request).run(deliveries.dead_letters)
    return render(request, "dead_letters.html", groups=groups, most=deliveries.MOST_DEAD)


def _error(code: str, example: str | None) -> list[Child]:
    """Tell an error in words, and below them its code and what was said, as a quotation."""
    words = reasons.in_words(code)
    told = [el("code", code) if code not in (words, "none") else None, " " if example else None]
    return [
        el("strong", words),
        el("span", told, reasons.quoted(example) if example else None, class_="faint block"),
    ]


def _which(given: Given) -> DeadLetters:
    ids = given.id("delivery")
    return DeadLetters(
        (ids,) if ids else (),
        given.text("code", 100) or None,
        given.id("event"),
        given.text("project", 250) or None,
        given.text("type", 100) or None,
    )


async def _ask_redrive(request: Request, given: Given) -> Question:
    """Say what a redrive would do, without doing it."""
    which = _which(given)
    tried = await threads_of(request).run(actions.try_redrive, which)
    again = tried["found"] - tried["too_late"] - tried["archived"]
    more = tried["found"] >= actions.MOST_TRIED
    return Question(
        t("Send all these dead letters again?") if more else t("Send {n} again?", n=count(again, "dead letter")),
        t("Send them again") if more else t("Send {n} again", n=number(again)),
        [
            facts(
                (t("Error"), _error(which.error_code, None) if which.error_code else None),
                (t("Project"), which.project),
                (t("Type"), which.event_type),
                (t("Event"), which.event_id),
                (t("Found"), t("{n} or more", n=number(tried["found"])) if more else number(tried["found"])),
            ),
            el("p", t("Of the first {n}:", n=number(tried["found"]))) if more else None,
            _outlook(tried, again),
            el("p", t("Each begins with all its attempts; what fails again comes back here."), class_="faint"),
        ],
        kept={
            "code": which.error_code or "",
            "project": which.project or "",
            "type": which.event_type or "",
            "event": which.event_id or "",
            "delivery": which.ids[0] if which.ids else "",
        },
        back=_HERE,
        possible=again > 0,
    )


def _outlook(tried: dict[str, int], again: int) -> Markup:
    """Tell how many would be sent again, and how many not and why."""
    sent = max(0, again - tried["ended"] - tried["silent"])
    whole = tried["looked"] >= again - tried["ended"]
    about = "" if whole else t("of the first {n} looked at", n=number(tried["looked"]))
    return el(
        "ul",
        el("li", el("strong", count(sent, "delivery", "deliveries")), " ", t("would be sent again.")),
        [_left(number(tried[name]), why) for name, why in _reasons(about) if tried[name]],
    )


def _reasons(about: str) -> list[tuple[str, str]]:
    """Tell why a dead letter would not be sent again, by what it is counted under."""
    return [
        ("too_late", t("would not: their deadline has passed.")),
        ("archived", t("would not: their month is on its way to the archive.")),
        ("ended", t("would be opened, and end unsent: their event was cancelled or completed.")),
        (
            "silent",
            " ".join([t("would be opened, and end unsent: the phone takes no pushes any more"), about]).strip() + ".",
        ),
    ]


def _left(how_many: str, why: str) -> Markup:
    return el("li", el("strong", how_many), " ", why)


async def _redrive(request: Request, given: Given) -> Told:
    opened = await at_length(request, actions.redrive, _which(given))
    title = (
        t("{n} will be sent again.", n=count(opened, "dead letter")) if opened else t("No dead letter fits any more.")
    )
    return Told(title, back=_HERE)


DEEDS = {"redrive": Deed(_ask_redrive, _redrive)}
