"""Actions of operators: each is asked for, confirmed, done, shown and recorded, without any script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from relevo.core.i18n import gettext as _
from relevo.http.problems import Problem

_MOST_ID = 2**63 - 1
_LONGEST = 4_000


@dataclass(frozen=True)
class Question:
    """The question before an action: its effects, and further inputs."""

    title: str
    button: str
    paragraphs: Sequence[str] = ()
    """The effects of the action."""
    reason_hint: str = ""
    """The placeholder of the field for the reason; without it there is no such field."""
    hidden: Mapping[str, object] = field(default_factory=dict)
    """Hidden fields of the form."""
    back: str = "/dashboard"
    grave: bool = False
    """Whether it cannot be taken back."""
    possible: bool = True
    template: str = "question.html"
    context: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template."""


@dataclass(frozen=True)
class Result:
    """The result of an action in a sentence, and the page to continue on."""

    title: str
    paragraphs: Sequence[str] = ()
    back: str = "/dashboard"
    good: bool = True
    template: str = "result.html"
    context: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template."""


class FormInput:
    """The fields of a form or of a query, each read within its bounds."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def text(self, name: str, most: int = 300) -> str:
        """Return a text, or nothing."""
        value = self._fields.get(name, "").strip()
        if len(value) > min(most, _LONGEST):
            raise Problem(400, _("%(name)s is too long: %(most)s characters at most.", name=name, most=most))
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
            raise Problem(400, _("%(value)s is not a valid id.", value=value))
        return int(value)

    def uuids(self, name: str, most: int) -> list[UUID]:
        """Return the installations that are named, one a line or apart by commas."""
        words = list(dict.fromkeys(self.text(name, _LONGEST).replace(",", " ").split()))
        if len(words) > most:
            raise Problem(400, _("Too many phones: %(most)s at most.", most=most))
        try:
            return [UUID(each) for each in words]
        except ValueError:
            raise Problem(
                400, _("One of these is not an installation id."), hint=_("An id looks like %(id)s.", id=UUID(int=7))
            ) from None


@dataclass(frozen=True)
class Action:
    """Something an operator can do: how it is asked for, and how it is done; either may answer with its own page."""

    ask: Callable[[Request, FormInput], Awaitable[Question | Response]]
    do: Callable[[Request, FormInput], Awaitable[Result | Response]]
    grave: bool = False
    """Whether the token is asked for again before it is done, unless it was entered a few minutes ago."""
