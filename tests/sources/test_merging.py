"""Two tellings of one item: field by field, the more complete value wins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.core.items import Item
from relevo.sources.merging import join_marks, mark, mark_of, merge, one_each

SANTIAGO = ZoneInfo("America/Santiago")
LONG = "Suministro de neumáticos para camiones pesados de la provincia"


def item(**fields: Any) -> Item:
    """Make an item."""
    return Item(**{"namespace": "n", "external_id": "1", "nombre": "Compra", "fingerprint": "api:1"} | fields)


def at(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """Make a moment in Santiago."""
    return datetime(2026, 2, day, hour, minute, second, tzinfo=SANTIAGO)


@pytest.mark.parametrize(
    ("stored", "reported", "merged"),
    [
        pytest.param({"region": "Maule"}, {}, {"region": "Maule"}, id="nothing told erases nothing"),
        pytest.param({}, {"region": "Maule"}, {"region": "Maule"}, id="what was missing is filled in"),
        pytest.param({"region": "Maule"}, {"region": "Ñuble"}, {"region": "Ñuble"}, id="the newer telling wins"),
        pytest.param({"region": "Maule"}, {"region": ""}, {"region": "Maule"}, id="empty is not told"),
        pytest.param({"nombre": LONG}, {"nombre": LONG[:50]}, {"nombre": LONG}, id="a name cut short is no new name"),
        pytest.param({"nombre": LONG[:50]}, {"nombre": LONG}, {"nombre": LONG}, id="a whole name replaces a cut one"),
        pytest.param({"nombre": LONG}, {"nombre": "Otra"}, {"nombre": "Otra"}, id="another name is a new name"),
        pytest.param({"nombre": LONG}, {"nombre": ""}, {"nombre": LONG}, id="no name is no new name"),
        pytest.param({"descripcion": "larga"}, {"descripcion": "lar"}, {"descripcion": "larga"}, id="text"),
        pytest.param(
            {"estado": "Publicada", "announces": True},
            {"estado": "Revocada", "announces": False, "withdrawn": True},
            {"estado": "Revocada", "announces": False, "withdrawn": True},
            id="state and its judgement are the newer's",
        ),
        pytest.param(
            {"estado": "Suspendida", "announces": False, "withdrawn": True},
            {"estado": "Publicada"},
            {"estado": "Publicada", "announces": True, "withdrawn": False},
            id="a tender may open again",
        ),
        pytest.param(
            {"monto": Decimal(5), "moneda": "CLP"},
            {"moneda": "USD"},
            {"monto": Decimal(5), "moneda": "CLP"},
            id="an amount keeps its own currency",
        ),
        pytest.param(
            {"monto": Decimal(5), "moneda": "CLP", "monto_label": "cinco"},
            {"monto": Decimal(7), "moneda": "CLF"},
            {"monto": Decimal(7), "moneda": "CLF", "monto_label": None},
            id="a new amount does not keep the old one's label",
        ),
        pytest.param(
            {"monto": Decimal(5), "moneda": "CLP", "monto_label": "cinco"},
            {"monto": Decimal(5), "moneda": "CLP"},
            {"monto": Decimal(5), "moneda": "CLP", "monto_label": "cinco"},
            id="the same amount keeps its label",
        ),
        pytest.param(
            {"monto": Decimal(5), "moneda": "CLP"},
            {"monto_label": "más de 5.000 UTM"},
            {"monto": Decimal(5), "moneda": "CLP", "monto_label": None},
            id="a label does not replace an amount",
        ),
        pytest.param(
            {"monto_label": "más de 5.000 UTM", "moneda": "CLP"},
            {},
            {"monto": None, "moneda": "CLP", "monto_label": "más de 5.000 UTM"},
            id="a label is better than nothing",
        ),
        pytest.param(
            {"rubros": ("1", "2", "3"), "rubro_scheme": "UNSPSC"},
            {"rubros": ("4", "2"), "rubro_scheme": "UNSPSC"},
            {"rubros": ("1", "2", "3", "4"), "rubro_scheme": "UNSPSC"},
            id="rubros are joined, the longer list first",
        ),
        pytest.param(
            {"rubros": ("1",), "rubro_scheme": "UNSPSC"},
            {},
            {"rubros": ("1",), "rubro_scheme": "UNSPSC"},
            id="rubros stay",
        ),
        pytest.param(
            {"rubros": ("1", "2"), "rubro_scheme": "UNSPSC"},
            {"rubros": ("9",), "rubro_scheme": "CPV"},
            {"rubros": ("1", "2"), "rubro_scheme": "UNSPSC"},
            id="schemes are not mixed",
        ),
        pytest.param({"cierra_at": at(9, 15)}, {"cierra_at": at(12, 16)}, {"cierra_at": at(12, 16)}, id="a new time"),
        pytest.param({"cierra_at": at(9, 15)}, {}, {"cierra_at": at(9, 15)}, id="a time not told stays"),
        pytest.param(
            {"cierra_at": at(9, 15)},
            {"cierra_at": at(9, 23, 59, 59), "whole_days": ("cierra_at",)},
            {"cierra_at": at(9, 15), "whole_days": ()},
            id="a day says less",
        ),
        pytest.param(
            {"publicada_at": at(9, 15)},
            {"publicada_at": at(9), "whole_days": ("publicada_at",)},
            {"publicada_at": at(9, 15), "whole_days": ()},
            id="so does its start",
        ),
        pytest.param(
            {"cierra_at": at(9, 15)}, {"cierra_at": at(9, 23, 59, 59)}, {"cierra_at": at(9, 23, 59, 59)}, id="the last second"
        ),
        pytest.param(
            {"cierra_at": at(9, 15)},
            {"cierra_at": at(12), "whole_days": ("cierra_at",)},
            {"cierra_at": at(12), "whole_days": ("cierra_at",)},
            id="another day is news",
        ),
        pytest.param(
            {"cierra_at": datetime(2026, 2, 10, 2, 30, tzinfo=UTC)},
            {"cierra_at": at(9, 23, 59, 59), "whole_days": ("cierra_at",)},
            {"cierra_at": datetime(2026, 2, 10, 2, 30, tzinfo=UTC), "whole_days": ()},
            id="a day says less of a time that was told in another zone",
        ),
        pytest.param(
            {"fingerprint": "api:1 web:2"}, {"fingerprint": "web:3"}, {"fingerprint": "web:3 api:1"}, id="each its mark"
        ),
    ],
)  # fmt: skip
def test_field_by_field(stored: dict[str, Any], reported: dict[str, Any], merged: dict[str, Any]) -> None:
    """Each field is decided for itself, as the table says."""
    result = merge(item(**stored), item(**reported))
    assert {name: getattr(result, name) for name in merged} == merged


@pytest.mark.parametrize(
    ("stored", "reported", "merged"),
    [
        pytest.param(
            {"as_of": at(9), "estado": "Cerrada"},
            {"as_of": at(8), "estado": "Publicada", "region": "Maule"},
            {"as_of": at(9), "estado": "Cerrada", "region": "Maule"},
            id="what is older fills blanks",
        ),
        pytest.param(
            {"as_of": at(9), "estado": "Publicada"},
            {"as_of": at(9), "estado": "Cerrada"},
            {"as_of": at(9), "estado": "Cerrada"},
            id="of one moment the last telling wins, as in one file",
        ),
        pytest.param(
            {"as_of": at(9), "estado": "Publicada"},
            {"estado": "Cerrada"},
            {"as_of": at(9), "estado": "Cerrada"},
            id="who does not say when leaves it known",
        ),
        pytest.param(
            {"as_of": at(9), "estado": "Revocada", "withdrawn": True},
            {"estado": "Publicada"},
            {"as_of": at(9), "estado": "Revocada", "withdrawn": True},
            id="and does not bring back what was withdrawn",
        ),
        pytest.param(
            {"as_of": at(9), "monto_label": "más de 5.000 UTM"},
            {"as_of": at(8), "monto": Decimal(5), "moneda": "CLP"},
            {"monto": None, "moneda": None, "monto_label": "más de 5.000 UTM"},
            id="an older amount is not put beside a newer label",
        ),
        pytest.param(
            {"as_of": at(9)},
            {"as_of": at(8), "monto": Decimal(5), "moneda": "CLP", "monto_label": "cinco"},
            {"monto": Decimal(5), "moneda": "CLP", "monto_label": "cinco"},
            id="older money fills a blank as a whole",
        ),
        pytest.param(
            {"as_of": at(9)},
            {"as_of": at(8), "rubros": ("1", "2"), "rubro_scheme": "CPV"},
            {"rubros": ("1", "2"), "rubro_scheme": "CPV"},
            id="older rubros fill a blank with their scheme",
        ),
        pytest.param(
            {"as_of": at(9), "rubros": ("1",), "rubro_scheme": "UNSPSC"},
            {"as_of": at(8), "rubros": ("2", "3"), "rubro_scheme": "CPV"},
            {"rubros": ("1",), "rubro_scheme": "UNSPSC"},
            id="and change none that were told since",
        ),
    ],
)
def test_by_when_it_was_said(stored: dict[str, Any], reported: dict[str, Any], merged: dict[str, Any]) -> None:
    """What is known to be older changes nothing that was said since, as the table says."""
    result = merge(item(**stored), item(**reported))
    assert {name: getattr(result, name) for name in merged} == merged


def test_the_name_stays() -> None:
    """An item is known by what it was stored under."""
    result = merge(item(), item(namespace="other", external_id="2"))
    assert (result.namespace, result.external_id) == ("n", "1")


words = st.none() | st.sampled_from(["a", "ab", "abc", "b"])
items = st.builds(
    item,
    nombre=st.sampled_from(["a", "ab", "b"]),
    descripcion=words,
    region=words,
    estado=words,
    monto=st.none() | st.integers(1, 3).map(Decimal),
    moneda=st.sampled_from([None, "CLP", "CLF"]),
    monto_label=words,
    rubros=st.lists(st.sampled_from("12345"), unique=True).map(tuple),
    cierra_at=st.none() | st.sampled_from([at(1), at(1, 5), at(2, 5), at(1) + timedelta(seconds=86_399)]),
)


@given(items, items)
def test_it_forgets_nothing(stored: Item, reported: Item) -> None:
    """What either told is told by the merged one, and merging the same again changes nothing."""
    merged = merge(stored, reported)
    for name in ("descripcion", "region", "estado", "monto", "cierra_at"):
        assert (getattr(merged, name) is None) == (getattr(stored, name) is None and getattr(reported, name) is None)
    assert set(merged.rubros) == {*stored.rubros, *reported.rubros}
    assert merge(merged, reported) == merged
    assert merge(stored, stored) == stored


def test_one_each() -> None:
    """Tellings of the same item become one, in the order they were told; the same id in another namespace is another item."""
    other = item(namespace="m", region="Ñuble")
    reported = [item(region="Maule"), item(external_id="2"), other, item(monto=Decimal(5), moneda="CLP")]
    first, second, third = one_each(reported)
    assert (first.region, first.monto, second.external_id) == ("Maule", Decimal(5), "2")
    assert third == other


def test_marks() -> None:
    """A mark is short, the same for the same words, and found again among others."""
    mine = mark("api", 5, "Compra", None)
    assert mine == mark("api", "5", "Compra", "")
    assert mine != mark("api", 5, "Compra", "x")
    assert mark("api", "a", "bc") != mark("api", "ab", "c")
    joined = join_marks(mine, "ocds:0123456f.89abcdef")
    assert mark_of(joined, "api") == mine
    assert mark_of(joined, "web") is None


def test_marks_of_all_tellers_fit() -> None:
    """Four tellers' marks fit into a fingerprint of 64 characters; beyond that the oldest goes."""
    joined = ""
    for reported in ("api:12345678", "web:12345678", "file:12345678", "ocds:01234567.12345678"):
        joined = join_marks(joined, reported)
    assert len(joined.split()) == 4
    assert len(joined) <= 64
    assert "api:12345678" not in join_marks(joined, "another:12345678")
    assert len(join_marks("", "x" * 99)) == 64
