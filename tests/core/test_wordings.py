"""Texts of event types: which arguments patterns name, which locale a phone is shown, what is rendered, what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relevo.core import wordings
from relevo.core.errors import InvalidInputError, MissingPartError
from relevo.core.locales import best, chain, zone_named
from relevo.core.wordings import RenderError, Wording
from relevo.operators import words

TENDERS: dict[str, Any] = {
    "type": "tenders.new",
    "default": "es",
    "arguments": {"count": 3, "worth": 120_000_000, "closes": "2026-09-06T04:30:00Z", "who": "female", "name": "Ana"},
    "texts": {
        "es": {
            "title": "{count, plural, one {# licitación nueva} other {# licitaciones nuevas}}",
            "body": "{who, select, female {Estimada {name}} other {Estimado {name}}}: {worth, number, ::currency/CLP}",
        },
        "es-CL": "es",
        "en": {
            "title": "{count, plural, one {# new tender} other {# new tenders}}",
            "body": "Closes {closes, date, ::jmm}",
        },
        "pl": {
            "title": "{count, plural, one {# przetarg} few {# przetargi} many {# przetargów} other {# przetargu}}",
            "subtitle": "{name}",
        },
    },
}


def parsed(**changed: Any) -> Wording:
    """Return the tenders' texts, some fields changed."""
    return words.parse(TENDERS | changed)


def test_a_phones_locale_leads_to_the_nearest_text() -> None:
    """es-CL → es-419 → es → the default one, however it is written; another language is the default."""
    assert chain("es-CL") == ["es-cl", "es-419", "es"]
    offered = ("en", "es", "es-419", "pt-BR", "zh-Hant")
    cases = {"es-CL": "es-419", "es_MX": "es-419", "ES-es": "es", "es-419": "es-419", "pt-PT": "en", "pt-br": "pt-BR",
             "zh-Hant-TW": "zh-Hant", "zh-Hans-CN": "en", "": "en", "*": "en"}  # fmt: skip
    assert {locale: best(locale, offered, "en") for locale in cases} == cases
    assert best(None, offered, "en") == "en"
    assert [zone_named(name) for name in ("america/santiago", "Nowhere/X", None)] == ["America/Santiago", "UTC", "UTC"]


def test_plural_gender_money_and_dates() -> None:
    """Each language has its own forms: Polish has four, and the money of es-CL is written as in Chile."""
    wording = parsed()
    said = {count: wording.render("pl", wording.samples | {"count": count}).title for count in (1, 3, 5, 22)}
    assert said == {1: "1 przetarg", 3: "3 przetargi", 5: "5 przetargów", 22: "22 przetargi"}
    assert wording.render("pl", wording.samples | {"count": 1.5}).title == "1,5 przetargu"
    assert wording.render("es", wording.samples | {"who": "male"}).body.startswith("Estimado Ana: 120.000.000")
    assert wording.render("es-CL", wording.samples).body == "Estimada Ana: $120.000.000"
    assert wording.render("pl", wording.samples).subtitle == "Ana"


@pytest.mark.parametrize(
    ("zone", "at", "shown"),
    [
        ("America/Santiago", "2026-09-06T04:30:00Z", "Sun, Sep 6, 1:30 AM"),
        ("America/Santiago", "2026-09-06T03:30:00+00:00", "Sat, Sep 5, 11:30 PM"),
        ("Asia/Tokyo", "2026-09-06T04:30:00Z", "Sun, Sep 6, 1:30 PM"),
        (None, "2026-09-06T04:30:00Z", "Sun, Sep 6, 4:30 AM"),
        ("Pacific/Apia", "2026-09-06", "Sun, Sep 6, 12:00 PM"),
        ("America/Santiago", "2026-09-06", "Sun, Sep 6, 12:00 PM"),
    ],
)  # fmt: skip
def test_times_are_those_of_the_phones_zone(
    monkeypatch: pytest.MonkeyPatch, zone: str | None, at: str, shown: str
) -> None:
    """Also on the day on which Chile has no midnight, and whatever zone this process is in; a date is that day everywhere."""
    monkeypatch.setenv("TZ", "Australia/Lord_Howe")
    wording = parsed(default="en", arguments={"at": at}, texts={"en": {"title": "{at, date, ::EEEdMMMjmm}"}})
    assert wording.zoned
    assert wording.render("en", wording.samples, zone).title.replace("\u202f", " ") == shown


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"type": ""}, "type must be given"),
        ({"type": "relevo.news"}, "type must not begin with relevo."),
        ({"title": "x"}, "texts have no field title"),
        ({"default": "fr"}, "default must be one of the locales of texts, got 'fr'"),
        ({"texts": {}}, "texts must hold 1 to 50 locales"),
        ({"texts": {"es": {"title": "a"}, "ES": {"title": "b"}}}, "texts must name every locale once"),
        ({"texts": {"spanish!": {"title": "a"}}}, "'spanish!' is no locale"),
        ({"texts": {"es": {"body": "a"}}}, "texts.es must have a title"),
        ({"texts": {"es": "en"}}, "texts.es is to be as 'en' is, which has no text of its own"),
        ({"texts": {"es": {"title": "{count"}}}, "es title: {count is not closed: add }"),
        ({"texts": {"es": {"title": "{count, plural, one {x}}"}}}, "es title: {count, plural} needs a branch other"),
        ({"texts": {"es": {"title": "{total}"}}}, "es title names {total}, which is not among the arguments"),
        ({"texts": {"es": {"title": "{0}"}}}, "{0} is no name of an argument"),
        ({"texts": {"es": {"title": "{count, choice, 0#a|1#b}"}}}, "{count, choice} is not taken"),
        ({"arguments": {"count": 3}, "texts": {"es": {"title": "{count, number} {count, date}"}}}, "argument count is named as a number and as a time"),
        ({"arguments": {"count": "three"}, "texts": {"es": {"title": "{count, number}"}}}, "the sample of argument count must be a number, got 'three'"),
        ({"arguments": {"count": True}, "texts": {"es": {"title": "{count}"}}}, "the sample of argument count must be a number, got 'True'"),
        ({"arguments": {"a": 1, "b": 2}, "texts": {"es": {"title": "{a}"}}}, "argument b is named by no text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changed: dict[str, Any], complaint: str) -> None:
    """Texts that could not be rendered, or name what is not known, are refused in a sentence that names the place."""
    with pytest.raises(InvalidInputError, match=re.escape(complaint)):
        parsed(**changed)


def test_what_does_not_render_is_refused() -> None:
    """A time that is none, a blank text, one that is too long, and one too large for the smallest push service of the fleet."""
    for texts, arguments, complaint in (
        ({"title": "{at, date}"}, {"at": "soon"}, "argument at cannot be read"),
        ({"title": "{name}", "body": "{name}"}, {"name": " "}, "es shows nothing"),
        ({"title": "{name}{name}"}, {"name": "x" * 251}, "es title has more than 500 characters once rendered"),
        ({"title": "{name}"}, {"name": "x" * 501}, "argument name cannot be read .*a text has at most 500 characters"),
    ):
        with pytest.raises(InvalidInputError, match=complaint):
            words.check(parsed(default="es", texts={"es": texts}, arguments=arguments), ["expo"])
    heavy = parsed(default="es", texts={"es": {"title": "ñ" * 500, "body": "ñ" * 1_300}}, arguments={})
    assert list(words.check(heavy, ["apns", "expo", "fcm", "webhook"])) == ["es"]
    with pytest.raises(InvalidInputError, match=r"es makes a push of \d+ bytes, and webpush takes 3993"):
        words.check(heavy, ["apns", "expo", "webpush"])
    many = {f"es-{one}{two}": {"title": "ñ" * 500, "body": "ñ" * 1_300} for one in "ABCD" for two in "ABCDE"}
    with pytest.raises(InvalidInputError, match=r"all languages together make 72\d+ bytes, and 65536 are the most"):
        words.check(parsed(default="es-AA", texts=many, arguments={}), ["expo"])


@pytest.mark.parametrize("arguments", [{}, {"count": "3"}, {"count": None}, {"count": float("nan")}])
def test_nothing_is_rendered_without_its_arguments(arguments: dict[str, Any]) -> None:
    """ICU would print {count}; here a missing or wrong argument renders nothing."""
    wording = parsed(default="es", arguments={"count": 3}, texts={"es": {"title": "{count, number}"}})
    with pytest.raises(RenderError):
        wording.render("es", arguments)


def test_without_icu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is not installed, that is said with what to install."""
    monkeypatch.setattr(wordings, "is_available", lambda: False)
    with pytest.raises(MissingPartError, match=r"pip install 'relevo\[words\]'"):
        parsed()


def test_a_bad_text_says_that_nothing_was_saved() -> None:
    """Whoever hears what is wrong with a text hears with it that it can be corrected and sent again."""
    with pytest.raises(InvalidInputError, match="es title") as refused:
        parsed(texts={"es": {"title": "{count"}}, default="es")
    assert refused.value.hint == "Nothing was saved; correct it and try again."
