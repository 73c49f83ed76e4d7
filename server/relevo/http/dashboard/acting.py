"""Doing something: it is asked for, confirmed, done, told and recorded; by operators alone, without any script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from relevo.app import App
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address
from relevo.http.dashboard.page import is_operator
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem

T = TypeVar("T")
PLACE = "/dashboard/actions"
_MOST_ID = 2**63 - 1
_LONGEST = 4_000


@dataclass(frozen=True)
class Question:
    """What is asked before something is done: what will happen, and what else has to be said."""

    title: str
    button: str
    told: Child = None
    fields: Child = None
    kept: Mapping[str, object] | None = None
    """What the form carries along unseen."""
    back: str = "/dashboard"
    grave: bool = False
    """Whether it cannot be taken back."""
    possible: bool = True


@dataclass(frozen=True)
class Told:
    """What was done, in a sentence, and where one goes from there."""

    title: str
    body: Child = None
    back: str = "/dashboard"
    good: bool = True
    to: str = ""
    """The page that tells it instead."""


class Given:
    """What a question or a form came with, each read with its bounds."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def text(self, name: str, most: int = 300) -> str:
        """Return a text, or nothing."""
        value = self._fields.get(name, "").strip()
        if len(value) > min(most, _LONGEST):
            raise Problem(400, t("{name} is too long: {most} characters at most.", name=name, most=most))
        return value

    def typed(self, name: str, most: int = 300) -> str:
        """Return what was typed, to be shown again whatever is wrong with it."""
        return self._fields.get(name, "")[:most]

    def id(self, name: str) -> int | None:
        """Return a number by which something is known, or None."""
        value = self.text(name, 20)
        if not value:
            return None
        if not value.isascii() or not value.isdigit() or not 0 < int(value) <= _MOST_ID:
            raise Problem(400, t("{value} is no number of anything.", value=value))
        return int(value)

    def uuids(self, name: str, most: int) -> list[UUID]:
        """Return the installations that are named, one a line or apart by commas."""
        words = list(dict.fromkeys(self.text(name, _LONGEST).replace(",", " ").split()))
        if len(words) > most:
            raise Problem(400, t("These are too many: {most} at most.", most=most))
        try:
            return [UUID(each) for each in words]
        except ValueError:
            raise Problem(
                400, t("One of these is no installation's id."), hint=t("An id looks like {id}.", id=UUID(int=7))
            ) from None


Ask = Callable[[Request, Given], Awaitable[Question]]
Again = Callable[[Request, Given, Problem], Response]
Do = Callable[[Request, Given], Awaitable[Told]]


@dataclass(frozen=True)
class Deed:
    """Something an operator can do: how it is asked, and how it is done."""

    ask: Ask
    do: Do
    again: Again | None = None
    """Shows the form again, as it was filled in, with what is wrong with it."""


def offer(request: Request, verb: str, label: str, *, grave: bool = False, **fields: object) -> Markup | None:
    """Write the button that leads to the question, for whoever may do it."""
    if not is_operator(request):
        return None
    return el(
        "a", label, href=address(f"{PLACE}/{verb}", **fields), class_="button plain" + (" grave" if grave else "")
    )


def app_of(request: Request) -> App:
    """Return the cycles of this process."""
    app: App | None = request.app.state.relevo
    if app is None:
        raise Problem(503, t("This process runs no cycles."))
    return app


async def at_length(request: Request, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Do what may take long, with the database, beside everything else."""
    done: T = await request.app.state.long_work.do(partial(work, threads_of(request).database, *args, **kwargs))
    return done
