"""Hides texts from a caller who may see that something was said, but not what; decides, alone, what a text is.

`hiding` sets that for a request, a call of an assistant, or any other context. Rows, answers in JSON and the values
that the app's verbs return go through `without_texts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from relevo.core.i18n import N_, gettext
from relevo.core.known_services import CODES

T = TypeVar("T")
HIDDEN = N_("(hidden)")
_TEXTS = frozenset({
    "title", "subtitle", "body", "data", "push", "arguments", "texts", "text", "words", "match_words",
    "keywords", "has", "wanted", "nombre", "descripcion", "organismo",
})  # fmt: skip
"""Names of columns and fields with texts: of events, inboxes, wordings, preferences, attributes, tenders."""
_ATTRIBUTES = frozenset({"attributes", "owner_attributes", "match_where", "where"})
"""Names of attributes by name: the names stay."""
_FROM_ELSEWHERE = frozenset({
    "error", "error_message", "last_error", "last_error_message", "fanout_error", "register_error",
    "breaker_reason", "detail", "last_detail", "example", "message", "mismatches", "problems",
})  # fmt: skip
"""Names of what errors and push services say: it may quote a text. The code at its beginning stays."""
_NAME_OF_ERROR = re.compile(r"[A-Z][A-Za-z]*Error|[A-Z]+(_[A-Z]+)+")
_hides: ContextVar[bool] = ContextVar("relevo_hides_texts", default=False)


def hides() -> bool:
    """Return whether texts are hidden from who calls."""
    return _hides.get()


@contextmanager
def hiding(hidden: bool = True) -> Iterator[None]:
    """Hide texts within the block, or show them."""
    before = _hides.set(hidden)
    try:
        yield
    finally:
        _hides.reset(before)


def shown(value: T) -> T:
    """Return a value as the caller may see it: without its texts if they are hidden."""
    return without_texts(value) if _hides.get() else value


def without_texts(value: T) -> T:
    """Return a value without the texts in it, at any depth; ids, states, counts, times, types and keys stay."""
    found: Any = value
    if isinstance(found, Mapping):
        return cast("T", _without({str(name): found[name] for name in found}, dict))
    if is_dataclass(found) and not isinstance(found, type):
        names = [each.name for each in fields(found) if each.init]
        return cast("T", _without(_values(found, names), lambda changed: replace(found, **changed)))
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        return cast("T", _without(found._asdict(), lambda changed: type(found)(**changed)))
    if isinstance(found, list | tuple):
        return cast("T", type(found)(without_texts(each) for each in found))
    return value


def _values(found: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def _without(values: dict[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
    hidden = {name: _hidden(name, each) for name, each in values.items()}
    if hidden.get("rule") == "attribute_differs":
        hidden["reason"] = "One of its attributes differs."
    return make(hidden)


def _hidden(name: str, value: Any) -> Any:
    if value is None or value in ("", [], {}, ()):
        return value
    if name in _TEXTS:
        return {} if isinstance(value, Mapping) else [_word()] if isinstance(value, list | tuple) else _word()
    if name in _ATTRIBUTES and isinstance(value, Mapping):
        return {str(each): _word() for each in value}
    if name in _FROM_ELSEWHERE and isinstance(value, str):
        return _code_of(value)
    if name in _FROM_ELSEWHERE and isinstance(value, list | tuple):
        return [_word()]
    return without_texts(value)


def _code_of(said: str) -> str:
    """Return the code with which an error begins, if Relevo knows it for one."""
    code, colon, _rest = said.partition(": ")
    if code not in CODES and not _NAME_OF_ERROR.fullmatch(code):
        return _word()
    return f"{code}: {_word()}" if colon else code


def _word() -> str:
    return gettext(HIDDEN)
