"""Patterns of ICU's MessageFormat: which arguments they name, and of which kind each has to be.

ICU itself prints an argument that is missing as `{name}` and does not say which there are. So they are read here, of
patterns that ICU has taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["number", "text", "time"]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_KINDS: dict[str, Kind | None] = {
    "": None,
    "number": "number",
    "plural": "number",
    "selectordinal": "number",
    "select": "text",
    "date": "time",
    "time": "time",
}
_BRANCHING = ("plural", "select", "selectordinal")


class Named(NamedTuple):
    """An argument that a pattern names, and of which kind it has to be there; None: of any."""

    name: str
    kind: Kind | None


class PatternError(ValueError):
    """A pattern names an argument in a way that is not taken; the message says why."""


def arguments(pattern: str) -> set[Named]:
    """Return the arguments that a pattern names, in all of its branches."""
    return set(_Reader(pattern).message(0, branching=False))


@dataclass
class _Reader:
    """Reads a pattern from its beginning to its end."""

    pattern: str
    at: int = 0

    def message(self, depth: int, *, branching: bool) -> Iterator[Named]:
        """Read a message up to the brace that closes it, or the end."""
        while self.at < len(self.pattern):
            letter = self.pattern[self.at]
            if letter == "}" and depth:
                return
            self.at += 1
            if letter == "'":
                self._quoted("{}#" if branching else "{}")
            elif letter == "{":
                yield from self._argument(depth)

    def _quoted(self, special: str) -> None:
        """Pass by what an apostrophe quotes: what begins with a special letter, up to the next lone apostrophe."""
        if self.pattern.startswith("'", self.at):
            self.at += 1
        elif self.at < len(self.pattern) and self.pattern[self.at] in special:
            closing = re.compile("(?:[^']|'')*'?").match(self.pattern, self.at)
            self.at = closing.end() if closing else len(self.pattern)

    def _argument(self, depth: int) -> Iterator[Named]:
        name = self._until(",}")
        kind = self._until(",}") if self._closed_by(",") else ""
        if not NAME.fullmatch(name):
            raise PatternError(
                f"{{{name[:40]}}} is no name of an argument: give it letters and digits, such as {{count}}"
            )
        if kind not in _KINDS:
            raise PatternError(f"{{{name}, {kind[:40]}}} is not taken: it may be {', '.join(filter(None, _KINDS))}")
        yield Named(name, _KINDS[kind])
        if not self._closed_by(","):
            return
        if kind in _BRANCHING:
            yield from self._branches(depth, plural=kind != "select")
        else:
            self._style()

    def _until(self, ends: str) -> str:
        """Return what stands before one of some letters, and go behind that letter."""
        start = self.at
        while self.at < len(self.pattern) and self.pattern[self.at] not in ends:
            self.at += 1
        self.at += 1
        return self.pattern[start : self.at - 1].strip()

    def _closed_by(self, letter: str) -> bool:
        """Return whether what was just read ended with a letter."""
        return self.pattern[self.at - 1 : self.at] == letter

    def _branches(self, depth: int, *, plural: bool) -> Iterator[Named]:
        while self.at < len(self.pattern):
            self._until("{}")
            if self._closed_by("}"):
                return
            yield from self.message(depth + 1, branching=plural)
            self.at += 1

    def _style(self) -> None:
        """Pass by how a number or a time is written."""
        depth = 1
        while self.at < len(self.pattern) and depth:
            letter = self.pattern[self.at]
            self.at += 1
            if letter == "'":
                self._until("'")
            depth += {"{": 1, "}": -1}.get(letter, 0)
