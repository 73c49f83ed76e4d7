"""Mercado Público's search page: its export, its cards, and failing loudly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from relevo.sources.chilecompra_web import QUOTA, ChileCompraWeb, read_cards, read_export
from relevo.sources.http import Trouble
from support.fake_chilecompra import FakeSearchPage
from support.source_context import FIXTURES, MemorySourceContext, settings_for

EXPORT = (FIXTURES / "web" / "export_lista_licitaciones_7rows_PARTIAL.csv").read_bytes()
CARDS = (FIXTURES / "web" / "buscar_fragment_2cards_PARTIAL.html").read_bytes()


@pytest.fixture
def page() -> Iterator[FakeSearchPage]:
    """A fake search page."""
    with FakeSearchPage(EXPORT, CARDS) as server:
        server.export["0"] = EXPORT
        yield server


@pytest.fixture
def source(page: FakeSearchPage) -> ChileCompraWeb:
    """The adapter, pointed at it."""
    return ChileCompraWeb(settings_for(chilecompra_web_enabled="true", chilecompra_web_base_url=page.base_url))


def test_a_real_export() -> None:
    """Every row of a real export is read: whole name, state, type, time, buyer, amount or the words for it."""
    read, rejects = read_export(EXPORT)
    items = {item.external_id: item for item in read}
    assert rejects == []
    assert len(items) == 7
    first = items["1017312-18-LP26"]
    assert first.nombre.endswith("EN LA REGIÓN DE AYSEN")
    assert (first.monto, first.moneda, first.monto_label) == (Decimal(140_000_000), "CLP", None)
    assert (first.tipo, first.estado, first.announces) == ("LP", "Publicada", True)
    assert first.publicada_at == datetime(2026, 9, 24, 15, 34, 46, tzinfo=UTC)
    assert first.organismo == "DIRECCION DE ABASTECIMIENTO DE LA ARMADA"
    hidden = items["976-16-O126"]
    assert (hidden.monto, hidden.moneda, hidden.monto_label, hidden.tipo) == (None, None, None, "O1")
    assert items["3656-161-LR26"].monto_label == "Igual o superior a 5.000 UTM"


def test_real_cards() -> None:
    """Every card is read: what the export tells, and the closing day besides."""
    first, second = read_cards(CARDS)
    assert (first.external_id, second.external_id) == ("4886-34-L126", "2448-136-LE26")
    assert second.nombre == "DISPOSITIVO AUTOMÁTICO DE MEDICIÓN DE PRESIÓN ARTERIAL"
    assert second.descripcion
    assert second.descripcion.startswith("La reposición de dispositivo")
    assert (second.monto, second.moneda, second.tipo, second.estado) == (Decimal(20_000_000), "CLP", "LE", "Publicada")
    assert second.organismo == "I MUNICIPALIDAD DE COQUIMBO"
    assert second.cierra_at == datetime(2026, 10, 1, 2, 59, 59, tzinfo=UTC)
    assert second.publicada_at == datetime(2026, 9, 24, 3, tzinfo=UTC)


def test_both_halves_are_asked(page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext) -> None:
    """Tenders without a published amount need a query of their own; every request has its turn."""
    page.export["0"] = EXPORT.replace(b"1017312-18-LP26", b"1-1-LE26")
    [answer] = context.run(source)
    assert (answer.outcome, len(answer.items)) == ("ok", 8)
    assert [quota for quota, _ in context.turns] == [QUOTA] * len(page.asked)


def test_a_refused_export_falls_back_to_the_cards(
    page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext
) -> None:
    """`estado: false` at HTTP 200 is a refusal, and the cards are read instead."""
    page.refuse_export = True
    [answer] = context.run(source)
    assert context.codes() == {"4886-34-L126", "2448-136-LE26"}
    assert answer.outcome == "ok"


@pytest.mark.parametrize("empty", [b"", (FIXTURES / "web" / "export_header_only.csv").read_bytes()])
def test_an_empty_list_is_not_nothing_new(
    page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext, empty: bytes
) -> None:
    """To strangers the page shows empty lists: they are unavailable, never the end of all tenders."""
    page.export = dict.fromkeys("10", empty)
    page.cards = b"<div></div>"
    [answer] = context.run(source)
    assert answer.outcome == "unavailable"


def test_cards_that_cannot_be_read_are_loud() -> None:
    """When the page's form changes, the reader says so instead of telling nothing."""
    changed = b"<div class='lic-bloq-wrap x'><b>otra cosa</b></div>" * 3
    with capture_logs() as logs, pytest.raises(Trouble) as caught:
        read_cards(changed)
    assert (caught.value.outcome, caught.value.detail) == ("rejected", "none of the page's 3 cards could be read")
    assert [line["log_level"] for line in logs] == ["error"]


@pytest.mark.parametrize(
    "changed", [b"a;b;c\r\n1;2;3\r\n", b"<html>no</html>", EXPORT.splitlines()[0] + b"\r\nx;y\r\n"]
)
def test_an_export_that_cannot_be_read_is_loud(changed: bytes) -> None:
    """Other columns, or rows none of which fits, are trouble that a person must see."""
    with pytest.raises(Trouble) as caught:
        read_export(changed)
    assert caught.value.outcome == "rejected"


def test_one_half_that_fails_does_not_hide_the_other(
    page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext
) -> None:
    """What one half tells is kept, with the trouble of the other beside it; without news the trouble is the outcome."""
    page.export["0"] = b"a;b\r\n"
    page.cards = b"<div></div>"
    [answer] = context.run(source)
    assert (answer.outcome, len(answer.items), bool(answer.detail)) == ("ok", 7, True)
    [again] = context.run(source)
    assert (again.outcome, again.items) == ("unavailable", ())


STRAY = [
    (b"SALUD NAVAL EN LA", b"SALUD; NAVAL EN; LA", "nombre", "SALUD; NAVAL EN; LA"),
    (b"que otorguen el Servicio", b"que; otorguen el Servicio", "descripcion", "que; otorguen el Servicio"),
    (b"DIRECCION DE ABASTECIMIENTO", b"DIRECCION; DE ABASTECIMIENTO", "organismo", "DIRECCION; DE ABASTECIMIENTO"),
]


@pytest.mark.parametrize(("plain", "stray", "field", "kept"), STRAY)
def test_a_stray_semicolon_loses_no_row(plain: bytes, stray: bytes, field: str, kept: str) -> None:
    """A `;` inside a name, a description or a buyer is part of it; the other fields stay in their places."""
    (before, _), (after, rejects) = read_export(EXPORT), read_export(EXPORT.replace(plain, stray))
    assert (len(after), rejects) == (7, [])
    was, now = before[0], after[0]
    assert kept in getattr(now, field)
    for other in {"nombre", "descripcion", "organismo", "monto", "moneda", "publicada_at", "estado"} - {field}:
        assert getattr(now, other) == getattr(was, other)


def test_a_row_that_cannot_be_put_together_is_a_reject(
    page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext
) -> None:
    """It is named once, and the others are read."""
    cut = EXPORT.rstrip().rpartition(b"\n")[0] + b"\n1-1-LE26;cut short\r\n"
    page.export = dict.fromkeys("10", cut)
    context.run(source)
    assert len(context.items) == 6
    assert {place: reject.external_id for place, reject in context.rejects.items()} == {"export 1-1-LE26": "1-1-LE26"}
    assert context.run(source)[-1].outcome == "unchanged"


def test_a_huge_field_costs_no_other_row() -> None:
    """A description of a megabyte is cut short like any other, and the rest of the export is read."""
    lines = EXPORT.split(b"\r\n")
    fields = lines[1].split(b";")
    fields[5] = b"x" * 1_000_000
    items, rejects = read_export(b"\r\n".join([lines[0], b";".join(fields), *lines[2:]]))
    assert (len(items), rejects) == (7, [])
    assert items[0].descripcion == "x" * 20_000


def test_only_what_was_read_whole_is_a_pass(
    page: FakeSearchPage, source: ChileCompraWeb, context: MemorySourceContext
) -> None:
    """A pass with one half failed, or with cards instead of an export, says that it is incomplete."""
    assert context.run(source)[-1].incomplete is False
    page.export["0"] = b"a;b\r\n"
    page.cards = b"<div></div>"
    assert context.run(source)[-1].incomplete is True
    page.export["0"] = EXPORT
    page.refuse_export, page.cards = True, CARDS
    assert context.run(source)[-1].incomplete is True
