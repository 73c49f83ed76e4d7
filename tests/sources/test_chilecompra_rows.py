"""ChileCompra's real answers: what is read from lists and details."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from relevo.sources import text
from relevo.sources.chilecompra import judge
from relevo.sources.chilecompra_rows import read_detail, read_summary
from relevo.sources.http import Response
from support.source_context import FIXTURES

NOW = datetime(2017, 1, 1, tzinfo=UTC)


def real_details() -> list[Any]:
    """Return every real detail, as its place and the detail."""
    found = []
    for path in sorted((FIXTURES / "detail").iterdir()):
        documents = path.read_text(encoding="utf-8")
        lines = documents.splitlines() if path.suffix == ".jsonl" else [documents]
        for line in lines:
            detail = text.loads(line.encode())["Listado"][0]
            found.append(pytest.param(detail, id=f"{path.stem}:{detail['CodigoExterno']}"))
    return found


class TestRealAnswers:
    """What the service really said."""

    @pytest.mark.parametrize("detail", real_details())
    def test_nothing_that_matters_is_lost(self, detail: dict[str, Any]) -> None:
        """Every real detail gives name, state, type, buyer, region, dates, amount and the rubros of all its items."""
        item = read_detail(detail, NOW)
        assert item
        assert item.external_id == detail["CodigoExterno"]
        assert item.nombre == " ".join(detail["Nombre"].split())
        assert item.estado == detail["Estado"].partition(" ")[0]
        assert item.tipo == detail["Tipo"]
        assert item.organismo == " ".join(detail["Comprador"]["NombreOrganismo"].split())
        assert item.region == detail["Comprador"]["RegionUnidad"].strip()
        assert item.descripcion
        for product in detail["Items"]["Listado"]:
            assert str(product["CodigoProducto"]) in item.rubros
            assert product["CodigoCategoria"] in item.rubros
        assert item.rubro_scheme == "UNSPSC"
        assert (item.monto is None) == (detail["MontoEstimado"] is None)
        assert item.moneda == "CLP"
        assert item.cierra_at
        assert item.publicada_at
        closes = datetime.fromisoformat(detail["Fechas"]["FechaCierre"])
        assert item.cierra_at.astimezone(text.SANTIAGO).replace(tzinfo=None) == closes
        assert item.announces == (detail["CodigoEstado"] == 5)

    @pytest.mark.parametrize("detail", real_details())
    def test_no_people_are_kept(self, detail: dict[str, Any]) -> None:
        """Nothing of the redacted fields, which hold people, gets into an item."""
        assert "REDACTED" not in repr(read_detail(detail, NOW))

    @pytest.mark.parametrize("name", [path.name for path in sorted((FIXTURES / "summary").iterdir())])
    def test_every_row_of_real_lists_is_read(self, name: str) -> None:
        """Each row of each real list is a summary with a clean name, whatever its state."""
        body = (FIXTURES / "summary" / name).read_bytes()
        said = judge(Response(200, {}, body))
        assert said.kind == "ok"
        assert len(said.rows) == json.loads(body)["Cantidad"]
        for row in said.rows:
            summary = read_summary(row)
            assert summary
            assert summary.code == row["CodigoExterno"]
            assert summary.nombre == " ".join(row["Nombre"].split())
            assert (summary.cierra_at is not None) == (row["CodigoEstado"] == 5 and row["FechaCierre"] is not None)

    def test_the_time_is_chiles(self) -> None:
        """A naive time is Santiago's, in summer three hours behind UTC, in winter four."""
        summer, winter = (
            {"CodigoExterno": "1-1-LE26", "CodigoEstado": 5, "FechaCierre": at}
            for at in ("2026-02-19T15:00:00.1234567", "2026-07-19T15:00:00")
        )
        assert read_summary(summer).cierra_at == datetime(2026, 2, 19, 18, 0, 0, 123456, tzinfo=UTC)  # type: ignore[union-attr]
        assert read_summary(winter).cierra_at == datetime(2026, 7, 19, 19, 0, tzinfo=UTC)  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        "items",
        [
            {"Listado": {"CodigoProducto": 72141003, "CodigoCategoria": "72141000"}},
            {"Listado": {"Item": {"CodigoProducto": "72141003", "CodigoCategoria": 72141000}}},
            {"Item": [{"CodigoProducto": 72141003.0, "CodigoCategoria": "72141000"}]},
            [{"CodigoProducto": 72141003, "CodigoCategoria": " 72141000 "}],
        ],
    )
    def test_a_lone_item_counts(self, items: object) -> None:
        """However a translation from XML wraps the items, their rubros are found, as text."""
        body = json.dumps({"CodigoExterno": "1-1-LE26", "CodigoEstado": 5, "Items": items}).encode()
        item = read_detail(text.loads(body), NOW)
        assert item
        assert item.rubros == ("72141003", "72141000")

    @pytest.mark.parametrize(
        ("changes", "wanted"),
        [
            ({"MontoEstimado": "1500,5", "Moneda": "CLF"}, (Decimal("1500.50"), "CLF")),
            ({"MontoEstimado": "43050000", "Moneda": "USD "}, (Decimal(43050000), "USD")),
            ({"MontoEstimado": 0}, (None, "CLP")),
            ({"MontoEstimado": -5}, (None, "CLP")),
            ({"MontoEstimado": "a convenir", "Moneda": None}, (None, None)),
            ({"MontoEstimado": Decimal("1e400")}, (None, "CLP")),
        ],
    )
    def test_amounts_keep_their_currency(self, changes: dict[str, Any], wanted: tuple[Any, Any]) -> None:
        """Amounts are exact and carry their currency; what is no amount is none."""
        item = read_detail({"CodigoExterno": "1-1-LE26", "Moneda": "CLP"} | changes, NOW)
        assert item
        assert (item.monto, item.moneda) == wanted

    @pytest.mark.parametrize("value", [None, [], "x", {"a": 1}, 5, "\x00", "\ud800", True])
    def test_fields_may_be_anything(self, value: object) -> None:
        """A field of another kind than ever seen is left out; the rest is read."""
        names = (
            "Nombre",
            "Descripcion",
            "CodigoEstado",
            "Comprador",
            "Fechas",
            "Items",
            "MontoEstimado",
            "Moneda",
            "Tipo",
        )
        item = read_detail({"CodigoExterno": "1-1-LE26"} | dict.fromkeys(names, value), NOW)
        assert item
        assert item.tipo == "LE"
        repr(item).encode()

    @pytest.mark.parametrize(("state", "name", "withdrawn"), [
        (15, "Revocada", True), (18, "Revocada", True), (19, "Suspendida", True), (16, "16", False), (99, "99", False),
        ("8", "Adjudicada", False),
    ])  # fmt: skip
    def test_states(self, state: object, name: str, withdrawn: bool) -> None:
        """Revoked and suspended ones are withdrawn; states nobody documented are accepted and not open."""
        summary = read_summary({"CodigoExterno": "1-1-LE26", "CodigoEstado": state, "FechaCierre": None})
        assert summary
        assert not summary.is_open(NOW)
        assert (summary.item(NOW).estado, summary.item(NOW).withdrawn) == (name, withdrawn)
