"""Rows of ChileCompra's API: a summary of a day's list, and a tender's detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relevo.core.items import Item
from relevo.sources import chile, text
from relevo.sources.merging import mark

TELLER = "api"
_SCHEME = "UNSPSC"
_PRODUCT = frozenset({"CodigoProducto", "CodigoCategoria"})


@dataclass(frozen=True)
class Summary:
    """A row of a day's list."""

    code: str
    nombre: str
    state: int | None
    estado: str | None
    cierra_at: datetime | None
    """Known for published tenders only; for others the field means something else."""
    mark: str

    def is_open(self, now: datetime) -> bool:
        """Return whether offers can be made."""
        return self.estado == chile.OPEN and (self.cierra_at is None or self.cierra_at > now)

    def item(self, now: datetime) -> Item:
        """Return what a summary alone says now of a tender that is not open."""
        return Item(
            chile.NAMESPACE,
            self.code,
            self.nombre,
            self.mark,
            tipo=chile.tipo_of(self.code),
            estado=self.estado,
            cierra_at=self.cierra_at,
            url=chile.page_of(self.code),
            announces=False,
            withdrawn=self.estado in chile.WITHDRAWN,
            as_of=now,
            whole_days=text.midnights(None, self.cierra_at),
        )


def read_summary(row: object) -> Summary | None:
    """Read a row of a day's list; None if it names no tender."""
    code = chile.tender_code(text.at(row, "CodigoExterno"))
    if code is None:
        return None
    nombre = text.clean(text.at(row, "Nombre"), text.NOMBRE) or code
    state, closes = text.at(row, "CodigoEstado"), text.at(row, "FechaCierre")
    estado = chile.state_name(state)
    return Summary(
        code,
        nombre,
        chile.state_number(state),
        estado,
        text.moment(closes) if estado == chile.OPEN else None,
        mark(TELLER, text.clean(state, 20), nombre, text.clean(closes, 50)),
    )


def read_detail(row: Mapping[str, Any], now: datetime, known_mark: str | None = None) -> Item | None:
    """Read a tender's detail, leaving out the people in it; None if it names no tender."""
    summary = read_summary(row)
    if summary is None:
        return None
    estado = summary.estado or chile.state_name(row.get("Estado"))
    if summary.state is not None and summary.state not in chile.STATES:
        estado = text.clean(row.get("Estado"), text.SHORT) or estado
    closes = text.at(row, "Fechas", "FechaCierre") or row.get("FechaCierre")
    cierra_at = text.moment(closes)
    publicada_at = text.moment(text.at(row, "Fechas", "FechaPublicacion"))
    products = list(text.within(row.get("Items"), _PRODUCT))
    rubros = text.codes([product.get(key) for product in products for key in ("CodigoProducto", "CodigoCategoria")])
    return Item(
        chile.NAMESPACE,
        summary.code,
        summary.nombre,
        known_mark or mark(TELLER, text.clean(row.get("CodigoEstado"), 20), summary.nombre, text.clean(closes, 50)),
        descripcion=text.clean(row.get("Descripcion"), text.DESCRIPCION),
        organismo=text.clean(text.at(row, "Comprador", "NombreOrganismo"), text.ORGANISMO)
        or text.clean(text.at(row, "Comprador", "NombreUnidad"), text.ORGANISMO),
        region=text.clean(text.at(row, "Comprador", "RegionUnidad"), text.REGION),
        tipo=chile.tipo_of(summary.code) or text.clean(row.get("Tipo"), text.SHORT),
        estado=estado,
        monto=text.amount(row.get("MontoEstimado")),
        moneda=text.currency(row.get("Moneda")),
        rubros=rubros,
        rubro_scheme=_SCHEME if rubros else None,
        publicada_at=publicada_at,
        cierra_at=cierra_at,
        url=chile.page_of(summary.code),
        announces=estado == chile.OPEN and (cierra_at is None or cierra_at > now),
        withdrawn=estado in chile.WITHDRAWN,
        as_of=now,
        whole_days=text.midnights(publicada_at, cierra_at),
    )
