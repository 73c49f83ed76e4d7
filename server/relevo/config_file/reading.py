"""A YAML file as a tree of nodes: every node knows its line and its key, so that an error names both.

Words mean what YAML 1.2 says: `on`, `no` and `22:00` are text. A file is bounded in size, depth and nodes, an alias
counting as often as it is used; a key may come once in a mapping.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from relevo.core.errors import UsageError

_MOST_BYTES, _MOST_DEPTH, _MOST_NODES = 1_000_000, 12, 50_000
_MOST_NUMBER = 10**300
_TAG = "tag:yaml.org,2002:"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


SCALARS = [
    (f"{_TAG}{kind}", re.compile(rf"(?:{pattern})\Z"), list(first))
    for kind, pattern, first in (
        ("null", r"~|null|", ["~", "n", ""]),
        ("bool", r"true|false", "tf"),
        ("int", r"[-+]?[0-9]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    )
]
"""The plain words of YAML 1.2's core schema that are no text: tag, pattern, first characters."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # PyYAML has no types
    """Reads plain words by the core schema of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 PyYAML's own name; filled below


for _each in SCALARS:
    _Loader.add_implicit_resolver(*_each)


@dataclass(frozen=True)
class Node:
    """A value of the file, with its place: a scalar, a mapping of nodes or a list of them; line 0: it is of no file."""

    value: Any
    file: str
    line: int
    path: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Where it is in the file, as `event_types.order.shipped.lane` or `projects.default.caps[0]`."""
        return "".join(each if each.startswith("[") else f".{each}" for each in self.path).removeprefix(".")

    @property
    def place(self) -> str:
        """The file, the line and the key."""
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}: {self.key}" if self.path else self.file

    def refusal(self, complaint: str, hint: str = "") -> UsageError:
        """Return an error that names the place."""
        return UsageError(f"{self.place} {complaint}", hint=hint or "Nothing was changed. Correct the file.")

    def mapping(self, known: Collection[str] = ()) -> Mapping[str, Node]:
        """Return the nodes of a mapping; without a value it is empty. An unknown key is refused, if some are known."""
        found: Any = {} if self.value is None else self.value
        if not isinstance(found, dict):
            raise self.refusal("must be a mapping of keys and values.")
        for key, node in found.items() if known else ():
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                meant = f"Did you mean `{near[0]}`? " if near else ""
                raise node.refusal("is an unknown key.", f"{meant}Keys here: {', '.join(sorted(known))}.")
        return found

    def items(self) -> list[Node]:
        """Return the nodes of a list; without a value it is empty."""
        found: Any = [] if self.value is None else self.value
        if not isinstance(found, list):
            raise self.refusal("must be a list.")
        return found

    def text(self) -> str:
        """Return the text that it is."""
        if not isinstance(self.value, str) or not self.value:
            raise self.refusal("must be text.", "Put it in quotes if it looks like a number.")
        return self.value

    def plain(self) -> Any:
        """Return it as plain values."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read(file: Path) -> Node:
    """Read a file; raises UsageError that names the line of what YAML, or a bound, does not allow."""
    try:
        with file.open("rb") as opened:
            given = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", hint="Check the path.") from error
    if len(given) > _MOST_BYTES:
        raise UsageError(f"{file} is larger than {_MOST_BYTES:,} bytes.", hint="Split it, and apply each part.")
    try:
        _bound(given, file)
        root = yaml.compose(given, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{file}{line} is not YAML: {error.problem}.", hint="Nothing was changed.") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(
            f"{file} is not YAML in UTF-8: {error}".splitlines()[0], hint="Nothing was changed."
        ) from error
    return Node(None, str(file), 1) if root is None else _Builder(str(file)).build(root, ())


def of_values(given: object, name: str = "configuration") -> Node:
    """Make nodes of plain values, such as JSON has, within the bounds of a file."""
    return _OfValues(name).build(given, ())


class _OfValues:
    """Makes nodes of plain values, within the bounds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes, self._bytes = _MOST_NODES, _MOST_BYTES

    def build(self, given: object, path: tuple[str, ...]) -> Node:
        """Make a node of a value."""
        here = Node(None, self._name, 0, path)
        self._nodes -= 1
        self._bytes -= len(given) if isinstance(given, str) else 1
        if self._nodes < 0 or self._bytes < 0:
            bound = f"{_MOST_NODES:,} values" if self._nodes < 0 else f"{_MOST_BYTES:,} characters"
            raise UsageError(f"{self._name} has more than {bound}.", hint="Split it, and apply each part.")
        if len(path) > _MOST_DEPTH:
            raise here.refusal(f"is deeper than {_MOST_DEPTH} levels.")
        if isinstance(given, Mapping):
            return replace(
                here, value={self._key(key, here): self.build(each, (*path, key)) for key, each in given.items()}
            )
        if isinstance(given, list | tuple):
            return replace(here, value=[self.build(each, (*path, f"[{n}]")) for n, each in enumerate(given)])
        if not isinstance(given, str | bool | int | float | None):
            raise here.refusal(f"is no text, number, list or mapping, but of type {type(given).__name__}.")
        if isinstance(given, str) and _UNSTORABLE.search(given):
            raise here.refusal("has a character that PostgreSQL cannot store.")
        if isinstance(given, int | float) and not abs(given) < _MOST_NUMBER:
            raise here.refusal("is too large a number.")
        return replace(here, value=given)

    def _key(self, key: object, here: Node) -> str:
        self._bytes -= len(key) if isinstance(key, str) else 0
        if not isinstance(key, str) or _UNSTORABLE.search(key):
            raise here.refusal("has a key that is not text.")
        return key


def _bound(given: bytes, file: Path) -> None:
    """Refuse a file of too many values or levels before it is read as a whole."""
    depth = count = 0
    for event in yaml.parse(given, Loader=_Loader):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if count > 2 * _MOST_NODES or depth > _MOST_DEPTH + 1:
            bound = f"{_MOST_DEPTH} levels" if depth > _MOST_DEPTH else f"{_MOST_NODES:,} values"
            line = event.start_mark.line + 1
            raise UsageError(f"{file}, line {line} has more than {bound}.", hint="Nothing was changed.")


class _Builder:
    """Makes nodes of what PyYAML composed, within the bounds."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._left = _MOST_NODES

    def build(self, given: Any, path: tuple[str, ...]) -> Node:
        """Make a node; an alias is made anew each time, so that its use counts."""
        here = Node(None, self._file, given.start_mark.line + 1, path)
        self._left -= 1
        if self._left < 0:
            raise UsageError(
                f"{self._file} has more than {_MOST_NODES:,} values.", hint="Aliases count as often as used."
            )
        if len(path) > _MOST_DEPTH:
            raise here.refusal(f"is deeper than {_MOST_DEPTH} levels.")
        if isinstance(given, yaml.MappingNode) and given.tag == f"{_TAG}map":
            return Node(dict(self._entries(given, here)), self._file, here.line, path)
        if isinstance(given, yaml.SequenceNode) and given.tag == f"{_TAG}seq":
            listed = [self.build(each, (*path, f"[{place}]")) for place, each in enumerate(given.value)]
            return Node(listed, self._file, here.line, path)
        return Node(_scalar(given, here), self._file, here.line, path)

    def _entries(self, given: Any, here: Node) -> Iterator[tuple[str, Node]]:
        seen = set()
        for key, value in given.value:
            name = _scalar(key, here) if isinstance(key, yaml.ScalarNode) else None
            name = key.value if name is not None and not isinstance(name, str) else name
            if name is None:
                raise here.refusal("has a key that is not text.", "Put it in quotes.")
            at = Node(None, self._file, key.start_mark.line + 1, (*here.path, name))
            if name in seen:
                raise at.refusal("is given twice.", "Nothing was changed. Keep one of them.")
            seen.add(name)
            yield name, self.build(value, at.path)


def _scalar(given: Any, here: Node) -> Any:
    match given.tag.removeprefix(_TAG) if isinstance(given, yaml.ScalarNode) else "":
        case "str" if _UNSTORABLE.search(given.value):
            raise here.refusal("has a character that PostgreSQL cannot store.")
        case "str":
            return given.value
        case "bool" if given.value in ("true", "false"):
            return given.value == "true"
        case "int":
            return _number(int, given, here)
        case "float":
            return _number(float, given, here)
        case "null":
            return None
    raise here.refusal(
        f"has the tag {given.tag.replace(_TAG, '!!')[:60]}, which is not supported.", "Write plain values."
    )


def _number(kind: type[int | float], given: Any, here: Node) -> int | float:
    try:
        number = kind(given.value)
        is_finite = math.isfinite(number)
    except (ValueError, OverflowError):  # hundreds of digits, or thousands
        is_finite = False
    if not is_finite:
        raise here.refusal(f"is too large a number: {given.value[:40]}.")
    return number
