"""What a match means, in plain Python, and made-up preferences and events to try it on."""

# ruff: noqa: RUF001 look-alike signs are the point

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st

from relevo.client.values import Matching, Preference, TenderMatching, TenderPreference


def fold(text: str) -> str:
    """Take off accents and the case of plain letters."""
    bare = "".join(c for c in unicodedata.normalize("NFD", text) if not "\u0300" <= c <= "\u036f")
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in bare)


def words_of(text: str) -> list[str]:
    """Split into runs of letters and digits; Latin-1's signs below À (º, ², µ …) are no letters."""
    kept = [c if _belongs_to_a_word(c) else " " for c in fold(text)]
    return "".join(kept).split()


def _belongs_to_a_word(char: str) -> bool:
    if char < "\u00c0":
        return char.isascii() and char.isalnum()
    return unicodedata.category(char)[0] in "LN"


def region_of(name: str) -> list[str]:
    """Return a region's name proper: "Región de Los Ríos" and "Los Ríos" are one region."""
    name_proper = words_of(name)
    for leading in ({"region"}, {"de", "del"}, {"la", "los", "las", "el"}):
        if len(name_proper) > 1 and name_proper[0] in leading:
            name_proper = name_proper[1:]
    return name_proper


def says(text: str, keyword: str) -> bool:
    """Tell whether a keyword's words stand in a text, whole, side by side and in order."""
    found, asked = words_of(text), words_of(keyword)
    return bool(asked) and any(found[i : i + len(asked)] == asked for i in range(len(found)))


def topics_of(reported: Matching) -> list[str]:
    """Return the topics that an event about this carries in the tests: none, as tenders, if it names a region or a currency."""
    return ["a", "b", "C"][: len(reported.rubros)] if reported.moneda is reported.region is None else []


def matches(asked: Preference, reported: Matching) -> bool:
    """Tell whether a preference asks for an event: null is a wildcard, what is set needs a value that fits.

    An event that names topics needs one that was asked for: no topics are no wildcard.
    """
    return (
        asked.enabled
        and (bool(set(asked.topics) & set(topics_of(reported))) if asked.topics else not topics_of(reported))
        and (asked.rubro_prefix is None or any(code.startswith(asked.rubro_prefix) for code in reported.rubros))
        and (
            asked.tipo is None
            or (reported.tipo is not None and fold(asked.tipo.strip(" ")) == fold(reported.tipo.strip(" ")))
        )
        and (
            asked.region is None
            or (reported.region is not None and [] != region_of(asked.region) == region_of(reported.region))
        )
        and (asked.monto_min is None or (_comparable(asked, reported) and reported.monto >= asked.monto_min))  # type: ignore[operator]
        and (asked.monto_max is None or (_comparable(asked, reported) and reported.monto <= asked.monto_max))  # type: ignore[operator]
        and (
            asked.keywords is None
            or (reported.text is not None and any(says(reported.text, word) for word in asked.keywords))
        )
    )


def _comparable(asked: Preference, reported: Matching) -> bool:
    return reported.monto is not None and reported.moneda is not None and reported.moneda == (asked.moneda or "CLP")


_WORDS = (
    "construcción", "Construccion", "CONSTRUCCIO\u0301N", "ñuble", "ÑUBLE", "nuble", "aseo", "y", "de", "obras",
    "O´Higgins", "O'Higgins", "higgins", "señalética", "Sen\u0303aletica", "güiña", "agua", "aguas", "2026", "é",
    "K", "\u212a", "Ångström", "\u212bngstrom", "straße", "Ørsted", "Ω",
)  # fmt: skip
_PHRASES = ("obras de aseo", "Obras – DE  Aséo", "obras, de aseo", "obras de agua", "aseo de obras")
_JOINTS = (
    " ", "  ", "-", ", ", "/", "\u00a0", "\t", " – ", "’", "“", "(", ". ", "º ", "²", "€", "×", "→", "📋", "•", "_", "%",
    "\\",
)  # fmt: skip
_REGIONS = (
    "Región de Los Ríos", "Los Ríos", "región de los rios ", "Región del Ñuble", "Ñuble", "del Nuble",
    "Región Metropolitana de Santiago", "METROPOLITANA DE SANTIAGO", "Región del Libertador General Bernardo O´Higgins",
    "Libertador General Bernardo O'Higgins", "Región de la Araucanía", "La Araucanía", "Araucani\u0301a",
    "Región", "Región de", "—",
)  # fmt: skip
_CODES = ("72131500", "72", "721", "7213", "72131599", "45000000-7", "45", "4500", "A1b", "a1b", "A1")
_AMOUNTS = (0, 1, 99, 100, Decimal("100.01"), Decimal("99.99"), 120_000_000)


def _maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


def texts(most: int = 6) -> st.SearchStrategy[str]:
    """Make text out of words and what stands between them, in any case and either form of its accents."""
    word = st.one_of(
        st.sampled_from(_WORDS), st.sampled_from(_PHRASES), st.text("abñÑéÉu\u0308\u0301Z9´'- ", max_size=4)
    )
    joined = st.lists(st.tuples(word, st.sampled_from(_JOINTS)), min_size=1, max_size=most).map(
        lambda parts: "".join(word + joint for word, joint in parts)
    )
    shape = st.sampled_from((str, str.upper, str.lower, _composed, _decomposed))
    return st.tuples(joined, shape).map(lambda both: both[1](both[0]))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


_TIPOS = st.sampled_from(
    ("LE", "le", " LE ", "LP", "Licitación Pública", "LICITACION PÚBLICA", "licitacio\u0301n publica", "ñ", "N")
)
_MONEDAS = st.sampled_from(("CLP", "USD", "CLF"))


@st.composite
def preferences(draw: st.DrawFn) -> Preference:
    """Make a preference that the door accepts; most fields are often left open, so that matches happen."""
    low, high = draw(_maybe(st.sampled_from(_AMOUNTS))), draw(_maybe(st.sampled_from(_AMOUNTS)))
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        low, high = high, low
    rarely = st.integers(0, 3)
    return TenderPreference(
        enabled=draw(st.integers(0, 7)) > 0,
        rubro_prefix=draw(_maybe(st.sampled_from(_CODES))) if draw(rarely) == 0 else None,  # type: ignore[arg-type]
        tipo=draw(_TIPOS) if draw(rarely) == 0 else None,
        region=draw(st.sampled_from(_REGIONS)) if draw(rarely) == 0 else None,
        monto_min=low if draw(rarely) == 0 else None,  # type: ignore[arg-type]
        monto_max=high if draw(rarely) == 0 else None,  # type: ignore[arg-type]
        moneda=draw(_maybe(_MONEDAS)),  # type: ignore[arg-type]
        topics=draw(st.lists(st.sampled_from("abcC"), min_size=1, max_size=2)) if draw(rarely) == 0 else None,
        keywords=draw(_maybe(st.lists(texts(3), min_size=1, max_size=3))) if draw(rarely) == 0 else None,  # type: ignore[arg-type]
    )


def events() -> st.SearchStrategy[Matching]:
    """Make what an event is about."""
    return st.builds(
        TenderMatching,
        rubros=st.lists(st.sampled_from(_CODES), max_size=3),
        region=_maybe(st.sampled_from(_REGIONS)),
        tipo=_maybe(_TIPOS),
        monto=_maybe(st.sampled_from(_AMOUNTS)),
        moneda=_maybe(_MONEDAS),
        text=_maybe(texts()),
    )


_RARER = ("remove", "switch off", "switch on", "rename", "die", "forget")


@dataclass(frozen=True)
class Change:
    """One thing that happens to one named preference of one phone."""

    phone: int
    name: str
    what: str
    preference: Preference


def changes(phones: int) -> st.SearchStrategy[Change]:
    """Make something that happens: a preference set anew, removed, switched off, renamed, its phone gone or back, or forgotten."""
    return st.builds(
        Change,
        phone=st.integers(0, phones - 1),
        name=st.sampled_from(("default", "work", "night")),
        what=st.sampled_from((*["set"] * 12, *["come back"] * 4, *_RARER)),
        preference=preferences(),
    )
