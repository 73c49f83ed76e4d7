"""No regular expression of ours takes more than its share for a text that was made to slow it down."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable
from types import ModuleType

import pytest

import relevo
from relevo.core import logs
from relevo.http import problems
from relevo.http.dashboard import formats, templating
from relevo.providers.expo import provider as expo

_PIECES = (
    "://:",
    "://a:",
    "://a@",
    "://",
    "<",
    "<!--",
    "`",
    "a.",
    "a",
    "A",
    "ab-",
    "1",
    "1.",
    "1_",
    "0",
    ".000",
    " ",
    "\n",
    "\\",
    "\\'",
    '"',
    "password ",
    "password=",
    "password\\",
    "?token",
    "&key",
    "?a=",
    "x-token ",
    "x-",
    "-",
    "authorization",
    "authorization: ",
    "bearer ",
    "token = ",
    "api_",
    "ExponentPushToken[",
    "relevo_",
    "whsec_",
    " has no field ,",
    "push has no field",
    "events.1: ",
)
_LARGEST = 64_000
_ENOUGH_S = 0.1
"""Below this a cost says nothing about how it grows."""
_SEARCHED = (logs, problems, templating, formats, expo)
"""Where patterns are looked for anywhere in a text of others; elsewhere they have to fit from its beginning."""


def _patterns(module: ModuleType) -> dict[str, re.Pattern[str]]:
    tables = (value for value in vars(module).values() if isinstance(value, dict))
    inner = {str(key): value for table in tables for key, value in table.items()}
    found = {name: value for name, value in (inner | vars(module)).items() if isinstance(value, re.Pattern)}
    return {f"{module.__name__}.{name}": value for name, value in found.items() if isinstance(value.pattern, str)}


def _all() -> dict[str, re.Pattern[str]]:
    names = [each.name for each in pkgutil.walk_packages(relevo.__path__, "relevo.") if "__main__" not in each.name]
    return {name: value for each in names for name, value in _patterns(importlib.import_module(each)).items()}


SEARCHED = {name: value for module in _SEARCHED for name, value in _patterns(module).items()}


def _check_growth(costly: Callable[[str], object]) -> None:
    """Fail if four times the text costs more than nine times as much (sixteen would be quadratic), size after size."""
    for piece in _PIECES:
        before, size = 0.0, 4_000
        while size <= _LARGEST:
            text = (piece * (size // len(piece) + 1))[:size]
            cost = _cost(costly, text)
            if cost > _ENOUGH_S and cost > 9 * before:  # look again: the machine may have been busy
                cost, before = _least(costly, text), _least(costly, text[: size // 4])
            assert cost < _ENOUGH_S or cost <= 9 * before, f"{piece!r}: {before:.3f} s, then {cost:.3f} s at {size}"
            before, size = cost, size * 4


def _least(costly: Callable[[str], object], text: str) -> float:
    return min(_cost(costly, text) for _ in range(3))


def _cost(costly: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    costly(text)
    return time.thread_time() - began


@pytest.mark.parametrize("name", SEARCHED)
def test_what_is_searched_for_is_found_in_linear_time(name: str) -> None:
    """Looking for a pattern costs as much more as the text is longer, up to 64 kB of any hostile text."""
    pattern = SEARCHED[name]
    _check_growth(lambda text: pattern.sub("", text))


def test_what_must_fit_from_the_beginning_is_refused_in_linear_time() -> None:
    """The same for every other pattern, which is held against the beginning of a text, or all of it."""
    for pattern in _all().values():
        _check_growth(pattern.fullmatch)
        _check_growth(pattern.match)


def test_scrubbing_is_bounded() -> None:
    """Scrubbing two megabytes costs what scrubbing their first part costs: what is kept is far shorter."""
    for piece in _PIECES:
        short, long = ((piece * size)[:size] for size in (20_000, 2_000_000))
        if _cost(logs.scrub, long) >= _ENOUGH_S:
            assert _least(logs.scrub, long) < max(3 * _least(logs.scrub, short), _ENOUGH_S), piece
    assert len(logs.scrub("x" * 2_000_000)) < 20_000


def test_names_are_bounded_too() -> None:
    """What is logged has short names, and a value whose name is too long to be judged is not told."""
    told = logs.redact(None, "", {"found": {"x" * 1_000_000 + "password": "hunter2"}})
    assert len(str(told)) < 1_000
    assert "hunter2" not in str(told)
