"""Pages in two languages: none of their texts is missing in either."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.pofile import read_po

import collect_texts
import relevo
from collect_texts import COUNTERS, WORDS
from relevo.core.i18n import LANGUAGES, translated, use_language
from relevo.core.statuses import STATUSES
from relevo.http.dashboard.formats import ACTIONS, KINDS
from relevo.http.dashboard.templating import ENVIRONMENT
from relevo.operators.formats import in_numbers, in_words
from relevo.operators.health.problem import Problem, in_three
from support.dashboard_person import Person
from support.http_server import Served

CATALOG = read_po(BytesIO(collect_texts.PO.read_bytes()))


def places(text: str) -> set[str]:
    """Return the names of a text's parts, in either of both ways of writing them."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name} | set(re.findall(r"%\((\w+)\)s", text))


def forms() -> Iterator[tuple[str, str]]:
    """Return every text with its Spanish; those with a count in singular and plural."""
    for each in CATALOG:
        if each.id:
            several = isinstance(each.id, tuple)
            yield from zip(each.id, each.string, strict=True) if several else [(each.id, each.string)]


def test_every_text_of_the_pages_is_collected_translated_and_compiled() -> None:
    """The catalog holds exactly the texts that code and templates say, none is missing or a guess, and what gettext reads is made of it: else `make texts`."""
    collected = collect_texts.collect()
    assert {each.id for each in collected} == {each.id for each in CATALOG}
    assert collect_texts.untranslated(collected) == []
    assert collect_texts.compiled(collected) == collect_texts.MO.read_bytes()


def test_a_translation_has_the_same_parts() -> None:
    """What is filled into a text is filled into its Spanish, in singular and plural."""
    assert len([*forms()]) > 100
    assert [text for text, spanish in forms() if places(text) != places(spanish)] == []


def test_a_template_is_compiled_for_every_language() -> None:
    """Nothing that depends on the reader's language is computed when a template is compiled."""
    template = ENVIRONMENT.from_string('{{ "paused" | state }} {{ 1234 | number }} {{ _("never") }}')
    told = []
    for language in LANGUAGES:
        use_language(language)
        told.append(template.render())
    use_language("en")
    assert told == [
        '<span class="badge warn">paused</span> 1,234 never',
        '<span class="badge warn">en pausa</span> 1.234 nunca',
    ]


def listed() -> set[str]:
    """Find every word that the schema allows for a state, a status, an outcome and their kin."""
    sql = Path(__file__).parents[3] / "sql"
    tables = "".join(path.read_text() for path in (sql / "tables").glob("*.sql"))
    named = r"\((?:state|status|outcome|last_outcome|breaker|trigger|lane|permission) in (\([^)]+\))"
    checks = "".join(path.read_text() for path in (sql / "functions").glob("*/is_possible_*.sql"))
    tested = r"\b(?:(?:state|status|breaker) (?:in|=)|case state|when) (\([^)]+\)|'[^']+')"
    return set(re.findall(r"'([^']+)'", " ".join(re.findall(named, tables) + re.findall(tested, checks))))


def test_every_state_is_there_in_spanish() -> None:
    """Whatever a state, a status or an outcome may be has its word, and colours are of words that exist."""
    assert {"fanned", "unconfirmed", "abandoned", "probing", "dropped"} <= listed()
    assert sorted(listed() - WORDS) == []
    assert sorted(KINDS.keys() - WORDS) == []


_NAMED_AT = {"audit.recorded": 1, "caller.acting": 0, "caller.acting_on_phone": 0}
"""By which argument each names the action that it records."""


def recorded() -> Iterator[str]:
    """Find every action that code records: functions that are audited, and what is recorded by name."""
    files = [path.read_text() for path in sorted(Path(relevo.__file__).parent.rglob("*.py"))]
    for text in files:
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.FunctionDef) and any(
                ast.unparse(by) == "audit.audited" for by in each.decorator_list
            ):
                yield each.name
            if isinstance(each, ast.Call) and (place := _NAMED_AT.get(ast.unparse(each.func))) is not None:
                yield from (name.value for name in each.args[place : place + 1] if isinstance(name, ast.Constant))


def test_names_of_counters_and_actions_are_those_of_the_code() -> None:
    """Whatever a run counts or the record names has its words, and none is of what nobody counts or does."""
    assert sorted(set(recorded()) - ACTIONS) == []
    code = "".join(path.read_text() for path in Path(relevo.__file__).parent.rglob("*.py"))
    by_status = {f"{of}_{each}" for each in STATUSES for of in ("notifications", "news")}
    assert sorted(COUNTERS - by_status - set(re.findall(r"\w+", code))) == []


def test_one_spanish_word_for_one_thing() -> None:
    """Dead letters, the breaker, the brake, news and the push service have one name each, and clumsy ones are gone."""
    told = " ".join(spanish for _, spanish in forms()).lower()
    clumsy = ("cartas muertas", "carta muerta", "le necesita", "desbocad", "avalancha", "interruptor", "noticia")
    assert [each for each in (*clumsy, "servicio de push") if each in told] == []


def test_health_is_told_in_spanish() -> None:
    """A sentence about health is in Spanish with its parts, counts and times."""
    use_language("es")
    waits = in_numbers(12_345, "event waits", "events wait")
    paused = Problem(
        "cycle_paused",
        "{cycle} has been paused for {time} ({reason}), and {what}; `relevo resume {cycle}` switches it on",
        cycle="fanout",
        time=in_words(3 * 86_400),
        reason="maintenance",
        what=waits,
    )
    assert "10,000 or more events wait" in paused
    assert translated(paused) == (
        "fanout está en pausa desde hace 3 días (maintenance), y 10.000 o más eventos esperan; "
        "`relevo resume fanout` lo reanuda"
    )
    late = "{cycle} has made no round for {time} (usual: within {usual}); {advice}"
    lately = Problem("x", late, cycle="reaper", time="9.26 s", usual=in_words(0.26), advice="…")
    assert translated(lately) == "reaper no ha completado una ronda desde hace 9,26 s (lo habitual: en 0,26 s); …"
    use_language("en")
    assert translated(paused) == paused


def problems() -> Iterator[str]:
    """Find the sentences of all problems."""
    for path in collect_texts.BELOW:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Problem":
                yield from (each.value for each in call.args[1:2] if isinstance(each, ast.Constant))


def test_a_problem_is_told_in_three_parts_in_both_languages() -> None:
    """What is wrong, why, and what to do are apart, and the same of them are there in Spanish; nothing is lost between them."""
    spanish = dict(forms())
    shapes = {each: [bool(part) for part in in_three(each)] for each in problems()}
    assert {each: shape for each, shape in shapes.items() if shape != [bool(p) for p in in_three(spanish[each])]} == {}
    told_apart = [each for each, shape in shapes.items() if shape[2]]
    assert [each for each in shapes if each not in told_apart and "{problem}" not in each] == []
    assert in_three("a ({why}; b) is off: {why}; mend; then go") == (
        "a ({why}; b) is off",
        "{why}",
        "mend; then go",
    )
    assert in_three("off ({reason}), and x; do") == ("off, and x", "{reason}", "do")
    assert in_three("late; it waits; look") == ("late; it waits", "", "look")


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
