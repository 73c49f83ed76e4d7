"""Renders a Helm chart as `helm template` does, for the few words of Go's templates that our chart has; others are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"[^"]*"|\|=?|[^\s|]+')
_OPENING = ("if", "range", "define")


@dataclass
class _Node:
    """An action with what stands between it, its `else` and its `end`."""

    words: list[str]
    body: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)


class Chart:
    """A chart's templates and values."""

    def __init__(self, folder: Path) -> None:
        self.about = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
        self.values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
        self._named: dict[str, list[Any]] = {}
        self._files = {path.name: _parse(path.read_text(encoding="utf-8")) for path in (folder / "templates").iterdir()}
        for nodes in self._files.values():
            self._named |= {
                json.loads(node.words[1]): node.body
                for node in nodes
                if isinstance(node, _Node) and node.words[0] == "define"
            }

    def render(self, **values: Any) -> list[dict[str, Any]]:
        """Return all objects that a release named `relay` has with these values over the chart's own."""
        files = [name for name in sorted(self._files) if name.endswith(".yaml")]
        texts = [self.text(name, values) for name in files]
        return [each for text in texts for each in yaml.safe_load_all(text) if each]

    def text(self, name: str, values: Mapping[str, Any]) -> str:
        """Return one file as it is rendered."""
        about = {key[0].upper() + key[1:]: value for key, value in self.about.items()}
        release = {"Name": "relay", "Namespace": "push", "Service": "Helm"}
        root = {"Values": merged(self.values, values), "Chart": about, "Release": release}
        return self._walk(self._files[name], root, {"$": root})

    def _walk(self, nodes: list[Any], dot: Any, names: dict[str, Any]) -> str:
        return "".join(node if isinstance(node, str) else self._act(node, dot, names) for node in nodes)

    def _act(self, node: _Node, dot: Any, names: dict[str, Any]) -> str:
        match node.words:
            case ["define", _]:
                return ""
            case ["if", *condition]:
                return self._walk(node.body if self._value(condition, dot, names) else node.other, dot, names)
            case ["range", key, value, ":=", *listed]:
                found = self._value(listed, dot, names)
                pairs = sorted(found.items()) if isinstance(found, dict) else enumerate(found)
                return "".join(
                    self._walk(node.body, each, names | {key.rstrip(","): place, value: each}) for place, each in pairs
                )
            case words:
                return _written(self._value(words, dot, names))

    def _value(self, words: list[str], dot: Any, names: dict[str, Any]) -> Any:
        """Evaluate a pipeline: what stands before a | is the last argument of what stands after it."""
        calls = _split(words)
        value = self._call(calls[0], [], dot, names)
        for call in calls[1:]:
            value = self._call(call, [value], dot, names)
        return value

    def _call(self, words: list[str], piped: list[Any], dot: Any, names: dict[str, Any]) -> Any:
        name, *rest = words
        if name not in {"include", *_FUNCTIONS}:
            assert not rest, f"{words} is no call that is known here"
            return _read(name, dot, names)
        given = [*(_read(each, dot, names) for each in rest), *piped]
        if name == "include":
            return self._walk(self._named[given[0]], given[1], {"$": given[1]})
        return _FUNCTIONS[name](*given)


def merged(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others over them, objects key by key, as Helm does."""
    both = {
        name: value for name, value in given.items() if isinstance(value, dict) and isinstance(ours.get(name), dict)
    }
    return {**ours, **given, **{name: merged(ours[name], value) for name, value in both.items()}}


def _parse(text: str) -> list[Any]:
    root = _Node([])
    open_nodes, places = [root], [root.body]
    for piece in _pieces(text):
        if isinstance(piece, str):
            places[-1].append(piece)
        elif piece == ["end"]:
            open_nodes.pop()
            places.pop()
        elif piece == ["else"]:
            places[-1] = open_nodes[-1].other
        else:
            node = _Node(piece)
            places[-1].append(node)
            if piece[0] in _OPENING:
                open_nodes.append(node)
                places.append(node.body)
    assert open_nodes == [root], "an `end` is missing"
    return root.body


def _pieces(text: str) -> Iterator[str | list[str]]:
    place, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[place : found.start()]
        before = before.lstrip() if trim else before
        yield before.rstrip() if found[1] else before
        yield _WORD.findall(found[2])
        place, trim = found.end(), bool(found[3])
    yield text[place:].lstrip() if trim else text[place:]


def _split(words: list[str]) -> list[list[str]]:
    calls: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            calls.append([])
        else:
            calls[-1].append(word)
    return calls


def _read(word: str, dot: Any, names: dict[str, Any]) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word.isdigit():
        return int(word)
    first, *path = word.split(".")
    value = names[first] if first else dot
    for name in filter(None, path):
        value = value[name]
    return value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _to_yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=False)).removesuffix("...\n").rstrip("\n")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda fallback, value: value or fallback,
    "int64": int,
    "nindent": lambda width, text: "\n" + "\n".join(f"{' ' * width}{line}" for line in text.split("\n")),
    "not": lambda value: not value,
    "quote": lambda value: json.dumps(_written(value), ensure_ascii=False),
    "toYaml": _to_yaml,
}
