"""Pages in two languages: none of their texts is missing in either."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

import relevo
from browsing import Person
from relevo.http import dashboard
from relevo.http.dashboard.language import said, speak
from relevo.http.dashboard.names import ACTIONS, COUNTERS, DETAILS, spaced
from relevo.http.dashboard.page import PAGES
from relevo.http.dashboard.spanish import SPANISH
from relevo.http.dashboard.spanish_health import HEALTH
from relevo.http.dashboard.spanish_names import NAMES
from relevo.http.dashboard.states import DELIVERY_STATUSES, KINDS, WORDS
from relevo.operators import health
from relevo.operators.insights import CURSORS
from serving import Served

PLACE = Path(dashboard.__file__).parent
TOLD_BY = {"t": slice(0, 1), "count": slice(1, 3), "at_most": slice(1, 3), "noted": slice(0, 1)}
"""Which arguments of which functions are texts of the pages."""
HEALTH_BY = {"Phrase": slice(0, 1), "Problem": slice(1, 2), "in_numbers": slice(1, 3)}
"""Which arguments of which functions are texts of health."""


def texts(paths: Iterable[Path] = sorted(PLACE.glob("*.py")), told_by: dict[str, slice] = TOLD_BY) -> Iterator[str]:
    """Find every text that code says; a noun without a plural of its own gets an s."""
    for path in paths:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in told_by:
                said = [each.value for each in call.args[told_by[call.func.id]] if isinstance(each, ast.Constant)]
                yield from said
                if call.func.id in ("count", "at_most", "in_numbers") and len(said) == 1:
                    yield f"{said[0]}s"


def places(text: str) -> set[str]:
    """Return the names in a text's braces."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_text_is_there_in_spanish() -> None:
    """Each text of the pages has its Spanish, with the same places to fill in."""
    said = {*texts(), *PAGES.values()}
    assert len(said) > 10
    assert sorted(said - SPANISH.keys()) == []
    assert [each for each in said if places(each) != places(SPANISH[each])] == []


def listed() -> set[str]:
    """Find every word that the schema allows for a state, a status, an outcome and their kin."""
    tables = (Path(__file__).parents[2] / "sql" / "tables").glob("*.sql")
    schema = "".join(path.read_text() for path in tables)
    named = r"\((?:state|status|outcome|last_outcome|breaker|trigger|lane|permission) in \(([^)]+)\)"
    return {word for found in re.findall(named, schema) for word in re.findall(r"'([^']+)'", found)}


def test_every_state_is_there_in_spanish() -> None:
    """Whatever a state, a status or an outcome may be has its word, and colours are of words that exist."""
    assert {"fanned", "unconfirmed", "abandoned", "probing", "dropped"} <= listed()
    assert sorted(listed() - WORDS) == []
    assert sorted(WORDS - SPANISH.keys()) == []
    assert sorted(KINDS.keys() - WORDS) == []


def recorded() -> Iterator[str]:
    """Find every action that code records: functions that are audited, and what is recorded by name."""
    for path in sorted(Path(relevo.__file__).parent.rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef) and any(
                ast.unparse(by) == "audit.audited" for by in each.decorator_list
            ):
                yield each.name
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "audit.recorded":
                yield from (name.value for name in each.args[1:2] if isinstance(name, ast.Constant))


def test_names_of_counters_and_actions_are_there_in_spanish() -> None:
    """Whatever a run counts, the record names or a cursor holds has its words, and none is of what nobody counts or does."""
    said = {*CURSORS.values(), *map(spaced, COUNTERS | ACTIONS | DETAILS)}
    assert sorted(said ^ NAMES.keys()) == []
    assert sorted(set(recorded()) - ACTIONS) == []
    code = "".join(path.read_text() for path in Path(relevo.__file__).parent.rglob("*.py") if path.name != "names.py")
    by_status = {f"{of}_{each}" for each in DELIVERY_STATUSES for of in ("notifications", "news")}
    assert [each for each in sorted(COUNTERS - by_status) if not re.search(rf"\b{each}\b", code)] == []


def test_one_spanish_word_for_one_thing() -> None:
    """Dead letters, the breaker, the brake, news and the push service have one name each, and clumsy ones are gone."""
    told = " ".join([*SPANISH.values(), *HEALTH.values(), *NAMES.values()]).lower()
    clumsy = ("cartas muertas", "carta muerta", "le necesita", "desbocad", "avalancha", "interruptor", "noticia")
    assert [each for each in (*clumsy, "servicio de push") if each in told] == []


def test_health_is_told_in_spanish() -> None:
    """Each sentence about health, and about what an event waits for, has its Spanish, with its parts in Spanish too."""
    told = set(texts([Path(health.__file__)], HEALTH_BY))
    assert len(told) > 40
    assert sorted(told ^ HEALTH.keys()) == []
    assert [each for each in told if places(each) != places(HEALTH[each])] == []
    speak("es")
    waits = health.in_numbers(12_345, "event waits", "events wait")
    paused = health.Problem(
        "cycle_paused",
        "{cycle} has been paused for {time} ({reason}), and {what}; `relevo resume {cycle}` switches it on",
        cycle="fanout",
        time=health.in_words(3 * 86_400),
        reason="maintenance",
        what=waits,
    )
    assert "10,000 or more events wait" in paused
    assert said(paused) == (
        "fanout está en pausa desde hace 3 días (maintenance), y 10.000 o más eventos esperan; "
        "`relevo resume fanout` lo reanuda"
    )
    lately = health.Problem("x", "{time} ago", time=health.in_words(0.26))
    assert (lately, said(lately)) == ("0.26 s ago", "hace 0,26 s")
    speak("en")
    assert said(paused) == paused


def problems() -> Iterator[str]:
    """Find the sentences of all problems."""
    yield from texts([Path(health.__file__)], {"Problem": HEALTH_BY["Problem"]})


def test_a_problem_is_told_in_three_parts_in_both_languages() -> None:
    """What is wrong, why, and what to do are apart, and the same of them are there in Spanish; nothing is lost between them."""
    shapes = {each: [bool(part) for part in health.in_three(each)] for each in problems()}
    assert {
        each: shape for each, shape in shapes.items() if shape != [bool(p) for p in health.in_three(HEALTH[each])]
    } == {}
    told_apart = [each for each, shape in shapes.items() if shape[2]]
    assert [each for each in shapes if each not in told_apart and "{problem}" not in each] == []
    assert health.in_three("a ({why}; b) is off: {why}; mend; then go") == (
        "a ({why}; b) is off",
        "{why}",
        "mend; then go",
    )
    assert health.in_three("off ({reason}), and x; do") == ("off, and x", "{reason}", "do")
    assert health.in_three("late; it waits; look") == ("late; it waits", "", "look")


def test_the_browsers_language_and_the_readers_choice(served: Served) -> None:
    """A page is in the first of our languages that the browser asks for, until its reader chooses another."""
    person = Person(served, None)
    asked = {"Accept-Language": "pt-BR, es;q=0.8, en;q=0.5"}
    assert '<html lang="es"' in person.get("/login", headers=asked).text
    assert ">Entrar<" in person.get("/login", headers=asked).text
    assert ">Log in<" in person.get("/login").text
    assert person.get("/dashboard/language/es?back=/dashboard/x?q=1").headers["location"] == "/dashboard/x?q=1"
    assert person.get("/dashboard/language/es?back=//evil").headers["location"] == "/dashboard"
    assert ">Entrar<" in person.get("/login").text
    assert person.get("/dashboard/language/xx").status_code == 404
