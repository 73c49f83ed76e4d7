"""Patterns of texts: read as ICU reads them, in styles of a short list, at a cost that their length bounds."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from icu4py.messageformat import MessageFormat

from relevo.core import patterns, wordings
from relevo.core.errors import InvalidInputError
from relevo.core.icu_locales import ICU_LOCALES, icu_locale
from relevo.core.patterns import PatternError
from relevo.core.wordings import RenderError, Wording
from relevo.delivery.known_wordings import Wordings
from relevo.operators import words

FREEZES = "{a0, number, ::scale/1e300000000}"
"""ICU writes 300 million digits, for more than a minute, and nothing else runs in its process."""


def wording(texts: dict[str, str], **arguments: Any) -> Wording:
    """Return a type whose titles are given by locale, as `relevo words set` reads it."""
    given = {locale: {"title": text} for locale, text in texts.items()}
    return words.parse({"type": "t", "default": next(iter(texts)), "arguments": arguments, "texts": given})


def saved(text: str, kinds: dict[str, Any]) -> Wording:
    """Return a type as a row of the table has it, which nobody checked."""
    return Wording("t", "en", {"en": {"title": text}}, kinds, version=1)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("{a} and {b, number}", {("a", None), ("b", "number")}),
        ("{n, plural, offset:1 =0 {none {x}} one {# '{q}' '#' {y, date, ::EEE}} other {#}} {z}",
         {("n", "number"), ("x", None), ("y", "time"), ("z", None)}),
        ("{g, select, m {él {k, number, ::currency/CLP}} other {{y}}}", {("g", "text"), ("k", "number"), ("y", None)}),
        ("It''s d'accord {t, time, HH:mm} '{w}' {u}", {("t", "time"), ("u", None)}),
        ("{n, selectordinal, one {#st} other {#th}} l'{'a'}' {b}", {("n", "number"), ("b", None)}),
        ("no arguments", set()),
    ],
)  # fmt: skip
def test_every_argument_is_found(pattern: str, named: set[tuple[str, str | None]]) -> None:
    """In every branch, with its kind, and none that is quoted."""
    assert {(each.name, each.kind) for each in patterns.arguments(patterns.parse(pattern))} == named


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        (FREEZES, "{a0, number, ::scale/1e300000000} has a style that is not accepted: use integer, percent,"),
        ("{a0, number, ::.0000000}", "not accepted"),
        ("{a0, number, ::integer-width/*000000000000}", "not accepted"),
        ("{a0, number, ::currency/CLP currency/CLP currency/CLP percent percent percent percent}", "not accepted"),
        ("{a0, number, 000000000000000000000000}", "not accepted"),
        ("{a0, number, spellout}", "not accepted"),
        ("{a0, spellout}", "is not taken: it may be number"),
        ("{a0, date, ::yyyyyyyyyyyyyyyyyyyyyyyyy}", "use short, medium, long, full, or up to 24 of the letters"),
        ("{a0, time, full}", "use short, medium, or up to 24"),
        ("{a0, date, ::jmmzzzz}", "not accepted"),
        ("{a0, date, 'at' HH}", "not accepted"),
        ("{a0, plural, offset:1e9 other {#}}", "has a branch offset:1e9"),
        ("{a0, plural, offset:99999 other {#}}", "has a branch offset:99999"),
        ("{a0, plural, =1e300000000 {x} other {#}}", "has a branch =1e300000000: branches are =1, zero, one"),
        ("{a0, plural, =1 {x} =1 {y} other {#}}", "each once"),
        ("{a0, select, a-b {x} other {y}}", "has a branch a-b: branches are words"),
        ("{a0, plural, other {" * 5 + "}}" * 5, "nest at most 4 deep"),
        ("{a0, plural, other {" + "#" * 61 + "}}", "at most 60 arguments, branches and #"),
        ("{a0}" * 61, "at most 60 arguments, branches and #"),
        ("x" * 4_001, "at most 4000 characters, got 4001"),
        ("{a0, plural, other {x}", "is not closed"),
        ("{a0, plural}", "needs a branch other"),
        ("{a0, plural, other {x}'}", "ends with '"),
        ("{a0, number", "is not closed"),
        ("{", "is no name of an argument"),
    ],
)  # fmt: skip
def test_another_pattern_is_refused_wherever_it_comes_from(pattern: str, complaint: str) -> None:
    """A file, a request and a row that somebody wrote by hand are refused with the style and the list; ICU sees none."""
    with pytest.raises(PatternError, match=re.escape(complaint)):
        patterns.parse(pattern)
    with pytest.raises(InvalidInputError, match=r"must be text of 0 to 4000 characters|en title: "):
        wording({"en": pattern}, a0=1)
    before = wordings.kept_formatter.cache_info().misses
    with pytest.raises(RenderError, match="en title cannot be rendered"):
        saved(pattern, {"a0": "number"}).render("en", {"a0": 1})
    assert wordings.kept_formatter.cache_info().misses == before


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("number", 10**18), ("number", 1e308), ("number", 5e-324), ("number", float("inf")), ("number", float("nan")),
        ("number", True), ("number", "7"), ("text", "x" * 501), ("text", 7), ("time", "1899-12-31"),
        ("time", "2300-01-01T00:00:00Z"), ("time", "9999-12-31T23:59:59-14:00"), ("time", "2026-09-06T04:30:00"),
    ],
)  # fmt: skip
def test_an_argument_has_limits(kind: Any, value: object) -> None:
    """Digits, characters and years are bounded where a text is rendered, too, and the argument is named."""
    with pytest.raises(RenderError, match="argument v cannot be read"):
        saved("{v}", {"v": kind}).render("en", {"v": value})
    for sent in ("1E+300000000", "1E-300000000", "NaN", "sNaN", "-Infinity"):
        with pytest.raises(RenderError, match="argument v cannot be read"):
            saved("{v}", {"v": "number"}).render("en", {"v": wordings.Decimal(sent)})


def test_a_type_has_limits() -> None:
    """So many bytes and locales, where it is saved, and where a row that nobody checked is rendered."""
    large = {f"en-{one}{two}": "x" * 3_000 for one in "ABCD" for two in "ABCDEFGHIJ"}
    with pytest.raises(InvalidInputError, match="texts must have at most 100000 bytes in all languages together"):
        wording(large)
    with pytest.raises(RenderError, match=r"its patterns have [0-9]+ bytes in all languages"):
        Wording("t", "en", {name: {"title": said} for name, said in large.items()}, {}).render("en-AA", {})
    many = {f"a{one}{two}": {"title": "x"} for one in "abcdefgh" for two in "abcdefgh"}
    with pytest.raises(RenderError, match="texts have at most 50 locales and 30 arguments"):
        Wording("t", "aaa", many, {}).render("aaa", {})
    styles = {
        f"en-A{one}": "".join(f"{{n, number, ::currency/AA{two}}}" for two in "ABCDEFGHIJKLMNOP")
        for one in "ABCDEFGHIJKLMNOPQRST"
    }
    with pytest.raises(InvalidInputError, match="its texts have 320 styles of numbers and times"):
        wording(styles, n=1)


# "a" may stand between braces, as often as there are parts
_VALUES: dict[str, Any] = dict.fromkeys(("a" * n for n in range(1, 15)), "A")
_VALUES |= {"n": 21, "m": 1.5, "b": "B", "s": "one", "t": datetime(2026, 9, 6, 4, 30, tzinfo=UTC)}
_PARTS = (
    "{", "}", "'", "''", "#", "a", "{b}", "{n}", "{t}", "{n, plural, other {", "{m, plural, offset:1 one {#'#'} other {", " ",
    "{s, select, one {", "} other {", "}}", "{n, selectordinal, one {#st} few {#rd} other {", "=21 {", "{n, number}", "{m, number, ::.00}",
    "{n, number, percent}", "{n, number, ::currency/CLP}", "{t, date, full}", "{t, time, short}", "{t, date, ::EEEdMMMjmm}",
)  # fmt: skip


@settings(max_examples=300)
@example(["{n, plural, other {", "}", "'", "}"], "en")
@given(st.lists(st.sampled_from(_PARTS), max_size=14), st.sampled_from(["en", "es-CL", "pl", "ar", "ja", "zh-Hant"]))
def test_a_text_reads_as_icu_reads_it(parts: list[str], locale: str) -> None:
    """Any pattern that is accepted is rendered as ICU's own MessageFormat renders the whole of it."""
    pattern = "".join(parts)
    try:
        message = patterns.parse(pattern)
    except PatternError:
        return
    whole = MessageFormat(pattern, f"{icu_locale(locale)}@timezone=UTC")
    writer = wordings._Writer(icu_locale(locale), _VALUES, wordings.kept_formatter)
    assert writer.write(message, 0) == whole.format(_VALUES)


def test_icu_meets_only_locales_that_it_has() -> None:
    """ICU keeps every name of a locale that it met for good; so an unknown one is its language, or the root."""
    asked = ("es-CL", "es-419", "ES-cl", "zh-TW", "zh-Hant-HK", "sr-Latn-ZZ", "en-AA", "qqq", "iw")
    given = ["es_CL", "es_419", "es_CL", "zh_TW", "zh_Hant_HK", "sr_Latn", "en", "und", "iw"]
    assert [icu_locale(each) for each in asked] == given
    assert 1_000 < len(ICU_LOCALES) < 2_000


_NUMBERS = (
    "", ", integer", ", percent", ", #,##0.00", ", ::currency/CLP", ", ::compact-long currency/JPY unit-width-full-name",
    ", ::compact-short .0#####", ", ::percent scale/100 .000000 sign-always group-off latin", ", 0.######%",
)  # fmt: skip
_LETTERS = st.text(patterns._LETTERS, min_size=1, max_size=22).map(lambda letters: f", ::{letters}")
_PIECES = st.one_of(
    st.sampled_from(_NUMBERS).map(lambda style: f"{{n, number{style}}}"),
    _LETTERS.map(lambda style: f"{{t, date{style}}}"),
    st.sampled_from(["{s}", "{n, plural, one {# {s}} other {##{t, date, full}}}", "{s, select, a {{s}} other {{n}}}"]),
)
_CPU_S = 2.0
"""A hundred times what the worst one takes (under 20 ms), for a machine that does other things as well."""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_PIECES, min_size=1, max_size=20),
    st.sampled_from(sorted(ICU_LOCALES)),
    st.one_of(st.integers(-(10**18) + 1, 10**18 - 1), st.floats(-9e17, 9e17).filter(lambda v: v == 0 or abs(v) > 1e-9)),
    st.integers(1900, 2299),
)
def test_no_accepted_pattern_takes_long(pieces: list[str], locale: str, number: float, year: int) -> None:
    """Whatever the list allows is rendered, or refused, within a bounded time of this thread."""
    given = saved("".join(pieces), {"n": "number", "s": "text", "t": "time"})
    text = {locale: given.texts["en"]}
    begun = time.thread_time()
    with suppress(RenderError):  # too long, or a style that ICU rejects
        arguments = {"n": number, "s": "x" * 500, "t": f"{year}-12-31T23:59:59Z"}
        Wording("t", locale, text, given.kinds).render(locale, arguments)
    assert time.thread_time() - begun < _CPU_S


def test_distinct_texts_leave_no_memory_behind() -> None:
    """Previews of texts and locales that nobody saw before, one after the other: the process is no larger than after the first."""
    done = subprocess.run([sys.executable, "-c", _FLOOD], capture_output=True, text=True, timeout=300, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before * 1.1


_FLOOD = """
import random
from itertools import count
from pathlib import Path
from relevo.operators import words

LOCALES = "es-CL en pl ja ar zh-Hant hi ru pt-BR de fr it nl sv fi cs hu ro el tr he fa th ko uk".split()
some, number = random.Random(7), count()

def preview():
    texts = {}
    for locale in (*LOCALES, *("".join(some.choices("abcdefghijklm", k=3)) + "-Latn" for _ in range(10))):
        letters = "".join(some.choices("yMLdEhHms", k=8))
        money = "".join(some.choices("ABCDEFGHIJ", k=3))
        title = f"{next(number)} {{t, date, ::{letters}}}"
        texts[locale] = {"title": title, "body": f"{{n, number, ::currency/{money} compact-long}}" + "x" * 1000}
    given = {"type": "t", "default": "en", "arguments": {"n": 7, "t": "2026-09-06T04:30:00Z"}, "texts": texts}
    words.preview(words.parse(given), {"n": 8}, "America/Santiago")

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

for _ in range(10):
    preview()
before = pages()
for _ in range(50):
    preview()
print(before, pages())
"""


def test_versions_are_kept_by_their_weight() -> None:
    """A worker keeps the versions that it read up to a number of bytes; the ones read first go."""
    kept = Wordings()
    for version in range(40):
        kept._keep(("t", version), Wording("t", "en", {"en": {"title": "x" * 50_000}}, {}, version=version))
    assert [version for _, version in kept._known] == list(range(21, 40))
