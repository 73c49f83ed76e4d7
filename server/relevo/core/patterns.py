"""Patterns of ICU's MessageFormat, read here: ICU gets single numbers and times, in a style of a short list.

A style decides how much ICU works: `::scale/1e300000000` writes 300 million digits. So ICU never sees a whole pattern.
The cost of a pattern is bounded by its own length, which is limited, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["number", "text", "time"]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
MOST_PATTERN, MOST_PLACES, MOST_DEPTH = 4_000, 60, 4
"""The limits of one pattern: its characters, its arguments, branches and `#` together, and how deep they may nest."""
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
CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_SELECTORS = {True: re.compile(rf"=[0-9]{{1,9}}|{'|'.join(CATEGORIES)}"), False: re.compile(r"\w{1,40}")}
"""The names of branches: of plurals, and of select."""
_OFFSET = re.compile(r"\s*offset:\s*([0-9]{1,4})\s")
_NUMBER_TOKEN = re.compile(
    r"currency/[A-Z]{3}|percent|scale/100|compact-short|compact-long|precision-integer|\.0{1,6}|\.0{0,5}#{1,6}"
    r"|group-off|group-min2|sign-always|sign-never|unit-width-(?:narrow|short|full-name|iso-code)|latin"
)
_MOST_TOKENS = 6
_NUMBER = re.compile(r"integer|percent|(?:#,##0|#|0)(?:\.0{1,6}|\.0{0,5}#{1,6})?%?")
_LETTERS = "yQMLdEcabBhHkKjms"
_SKELETON = re.compile(rf"::[{_LETTERS}]{{1,24}}")
_TIME_PATTERN = re.compile(rf"[{_LETTERS} .,:/-]{{1,24}}")
_NAMED_TIMES = {"date": ("short", "medium", "long", "full"), "time": ("short", "medium")}
_ALLOWED = {
    "number": "integer, percent, #,##0.00, or :: with up to 6 of currency/CLP, percent, scale/100, compact-short, "
    "compact-long, precision-integer, .00, group-off, group-min2, sign-always, sign-never, unit-width-narrow, "
    "unit-width-short, unit-width-full-name, unit-width-iso-code, latin",
    "date": f"short, medium, long, full, or up to 24 of the letters {_LETTERS}, as ::EEEdMMMjmm or dd/MM/yyyy",
    "time": f"short, medium, or up to 24 of the letters {_LETTERS}, as ::jmm or HH:mm",
}


class PatternError(ValueError):
    """A pattern is not accepted; the message names the place and what may stand there."""


class Argument(NamedTuple):
    """An argument in a pattern: its name, of which kind it has to be (None: any), and how ICU writes it."""

    name: str
    kind: Kind | None
    style: str = ""
    """As ICU reads it behind the name: `, number, ::currency/CLP`; empty for an argument that is written as it is."""


class Number(NamedTuple):
    """`#`: the number of the plural around it."""


NUMBER = Number()


class Choice(NamedTuple):
    """A plural or a select: one of its branches is written."""

    name: str
    type: str
    offset: int
    branches: dict[str, Message]

    @property
    def kind(self) -> Kind | None:
        """Of which kind its argument has to be."""
        return _KINDS[self.type]


Message = tuple["str | Argument | Number | Choice", ...]


def parse(pattern: str) -> Message:
    """Return the parts of a pattern; raises PatternError if it is not accepted."""
    if len(pattern) > MOST_PATTERN:
        raise PatternError(f"a pattern has at most {MOST_PATTERN} characters, got {len(pattern)}: shorten it")
    return _Reader(pattern).message(0, plural=False)


def arguments(message: Message) -> Iterator[Argument | Choice]:
    """List the arguments that a message names, in all of its branches."""
    for part in message:
        if isinstance(part, Argument | Choice):
            yield part
        if isinstance(part, Choice):
            for branch in part.branches.values():
                yield from arguments(branch)


def styles(message: Message) -> set[str]:
    """Return the different styles of numbers and times in a message, in all of its branches."""
    return {each.style for each in arguments(message) if isinstance(each, Argument) and each.style}


@dataclass
class _Reader:
    """Reads a pattern from its beginning to its end."""

    pattern: str
    at: int = 0
    places: int = 0

    def message(self, depth: int, *, plural: bool) -> Message:
        """Read a message up to the brace that closes it, or the end."""
        if depth > MOST_DEPTH:
            raise PatternError(f"arguments nest at most {MOST_DEPTH} deep: split the text")
        parts: list[str | Argument | Number | Choice] = []
        plain = re.compile(r"[^'{}#]+" if plural else r"[^'{}]+")
        while self.at < len(self.pattern):
            letter = self.pattern[self.at]
            if letter == "}" and depth:
                return tuple(parts)
            self.at += 1
            if letter == "'":
                parts.append(self._quoted("{}#" if plural else "{}"))
            elif letter == "{":
                parts.append(self._argument(depth))
            elif letter == "#" and plural:
                self._count_place()
                parts.append(NUMBER)
            else:
                found = plain.match(self.pattern, self.at)
                self.at = found.end() if found else self.at
                parts.append(letter + (found[0] if found else ""))
        if depth:
            raise PatternError("a brace is not closed: add }, or write '{' for a brace that is text")
        return tuple(parts)

    def _count_place(self) -> None:
        self.places += 1
        if self.places > MOST_PLACES:
            raise PatternError(
                f"a pattern has at most {MOST_PLACES} arguments, branches and # together: split the text"
            )

    def _quoted(self, special: str) -> str:
        """Return what an apostrophe quotes: what begins with a special letter, up to the next lone apostrophe."""
        if self.pattern.startswith("'", self.at):
            self.at += 1
        elif self.at < len(self.pattern) and self.pattern[self.at] in special:
            start = self.at
            closing = re.compile("(?:[^']|'')*").match(self.pattern, self.at)
            assert closing is not None
            self.at = closing.end() + 1
            return self.pattern[start : closing.end()].replace("''", "'")
        return "'"

    def _argument(self, depth: int) -> Argument | Choice:
        self._count_place()
        name = self._until(",}")
        kind = self._until(",}") if self._ended_by(",") else ""
        if not NAME.fullmatch(name):
            raise PatternError(
                f"{{{name[:40]}}} is no name of an argument: give it letters and digits, such as {{count}}"
            )
        if kind not in _KINDS:
            raise PatternError(f"{{{name}, {kind[:40]}}} is not taken: it may be {', '.join(filter(None, _KINDS))}")
        if kind in _BRANCHING:
            return self._choice(name, kind, depth)
        style = self._until("}") if self._ended_by(",") else ""
        if not self._ended_by("}"):
            raise PatternError(f"{{{name} is not closed: add }}")
        return Argument(name, _KINDS[kind], _style(name, kind, style))

    def _until(self, ends: str) -> str:
        """Return what stands before one of some letters, and go behind that letter."""
        start = self.at
        while self.at < len(self.pattern) and self.pattern[self.at] not in ends:
            self.at += 1
        self.at += 1
        return self.pattern[start : self.at - 1].strip()

    def _ended_by(self, letter: str) -> bool:
        """Return whether what was just read ended with a letter."""
        return self.pattern[self.at - 1 : self.at] == letter

    def _choice(self, name: str, kind: str, depth: int) -> Choice:
        plural = kind != "select"
        what = f"{{{name}, {kind}}}"
        offset = _OFFSET.match(self.pattern, self.at) if plural and self._ended_by(",") else None
        self.at = offset.end() if offset else self.at
        branches: dict[str, Message] = {}
        while self._ended_by(",") or branches or offset:
            selector = self._until("{}")
            if self._ended_by("}"):
                if branches and selector:
                    raise PatternError(f"{what} ends with {selector[:40]}: give it a branch, or leave it out")
                break
            if not self._ended_by("{"):
                raise PatternError(f"{what} is not closed: add }}")
            if selector in branches or not _SELECTORS[plural].fullmatch(selector):
                known = f"=1, {', '.join(CATEGORIES)}" if plural else "words"
                raise PatternError(f"{what} has a branch {selector[:40]}: branches are {known}, each once")
            self._count_place()
            branches[selector] = self.message(depth + 1, plural=plural)
            self.at += 1
        if "other" not in branches:
            raise PatternError(f"{what} needs a branch other: add other {{…}}")
        return Choice(name, kind, int(offset[1]) if offset else 0, branches)


def _style(name: str, kind: str, style: str) -> str:
    """Return how ICU is to write an argument; raises PatternError if the style is none of the list."""
    if kind == "":
        return ""
    if not style:
        return f", {kind}"
    if not _is_accepted(kind, style):
        raise PatternError(f"{{{name}, {kind}, {style[:40]}}} has a style that is not accepted: use {_ALLOWED[kind]}")
    return f", {kind},{style}"


def _is_accepted(kind: str, style: str) -> bool:
    if kind == "number":
        tokens = style.removeprefix("::").split() if style.startswith("::") else []
        listed = 1 <= len(tokens) <= _MOST_TOKENS and all(map(_NUMBER_TOKEN.fullmatch, tokens))
        return listed or _NUMBER.fullmatch(style) is not None
    forms = (_SKELETON.fullmatch(style), _TIME_PATTERN.fullmatch(style))
    return style in _NAMED_TIMES[kind] or any(forms)
