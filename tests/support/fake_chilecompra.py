"""A fake ChileCompra over HTTP: its API with every way to say no, and its search page."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from support.fake_http_server import Answer, Asked, FakeServer

TICKET = "F8537A18-6766-4DEF-9E59-426B4FEE2844"
REGIONS = ("Región del Biobío ", "Región de los Lagos ", "Región Metropolitana de Santiago", "Región del Ñuble")
PRODUCTS = (25172503, 72141003, 47131803, 43231513, 85101601)
STATES = {5: "Publicada", 6: "Cerrada", 7: "Desierta", 8: "Adjudicada", 15: "Revocada", 19: "Suspendida"}


@dataclass(frozen=True)
class Tender:
    """One tender of the fake register; `day` is the day of its last state event."""

    code: str
    nombre: str
    day: date
    estado: int = 5
    cierre: datetime | None = None
    monto: float | None = None
    region: str = REGIONS[0]
    products: tuple[int, ...] = (25172503,)
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the detail that differ from what is generated."""

    def summary(self) -> dict[str, Any]:
        """Return its row in a day's list, the name cut as the service cuts it."""
        closes = self.cierre.isoformat() if self.cierre else None
        return {
            "CodigoExterno": self.code,
            "Nombre": self.nombre[:50],
            "CodigoEstado": self.estado,
            "FechaCierre": closes,
        }

    def full(self) -> dict[str, Any]:
        """Return its detail, people included."""
        closes = self.cierre.isoformat() if self.cierre else None
        items = [
            {"Correlativo": n, "CodigoProducto": product, "CodigoCategoria": f"{product // 100}00", "Cantidad": 1.0}
            for n, product in enumerate(self.products, 1)
        ]
        return {
            "CodigoExterno": self.code,
            "Nombre": self.nombre,
            "CodigoEstado": self.estado,
            "Estado": STATES.get(self.estado, "Otro"),
            "Descripcion": f"{self.nombre}, según bases.",
            "FechaCierre": None,
            "Comprador": {
                "NombreOrganismo": "Municipalidad de Prueba",
                "RegionUnidad": self.region,
                "NombreUsuario": "Juana Persona",
                "RutUsuario": "11.111.111-1",
            },
            "Tipo": "LE",
            "Moneda": "CLP",
            "MontoEstimado": self.monto,
            "EmailResponsablePago": "juana@example.cl",
            "Fechas": {"FechaCierre": closes, "FechaPublicacion": f"{self.day.isoformat()}T09:00:00.123"},
            "Items": {"Cantidad": len(items), "Listado": items},
        } | dict(self.detail)


@dataclass
class Fault:
    """What to answer instead, to requests that fit, so many times (None: always)."""

    answer: Answer
    fits: Callable[[Asked], bool] = lambda _: True
    times: int | None = 1
    skip: int = 0


def envelope(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Wrap rows as the service does."""
    return {"Cantidad": len(rows), "FechaCreacion": "2026-02-09T23:03:41.3618247Z", "Version": "v1", "Listado": rows}


def as_json(document: object, status: int = 200, **headers: str) -> Answer:
    """Return a JSON answer."""
    body = json.dumps(document, ensure_ascii=False).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, body, {"Content-Type": "application/json; charset=utf-8"} | named)


def busy(status: int = 429, **headers: str) -> Answer:
    """Complain of simultaneous requests."""
    message = "Lo sentimos. Hemos detectado que existen peticiones simultáneas."
    return as_json({"Codigo": 10500, "Mensaje": message}, status, **headers)


BAD_TICKET = as_json({"Codigo": 203, "Mensaje": "Ticket no válido."}, 203)
WRONG_DATE = as_json({"Codigo": 10300, "Mensaje": "El formato del parametro fechas es incorrecto"}, 500)
WRONG_MONTH = as_json({"Codigo": 0, "Mensaje": "Mes inválido para la consulta"}, 500)
HTML = Answer(200, b"<!DOCTYPE html><html><body>Service Unavailable</body></html>", {"Content-Type": "text/html"})


class FakeChileCompra(FakeServer):
    """The API: `publish` tenders, add `faults`, read `asked`.

    With `spacing_s` two requests closer to each other (by `clock`) than that are answered 429/10500; after `quota`
    requests every further one is, until `new_day`.
    """

    def __init__(
        self,
        *,
        ticket: str = TICKET,
        clock: Callable[[], float] = time.monotonic,
        spacing_s: float = 0,
        quota: int | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self.ticket = ticket
        self.spacing_s = spacing_s
        self.quota = quota
        self.tenders: dict[str, Tender] = {}
        self.faults: list[Fault] = []
        self.refused = 0
        self._last: float | None = None
        self._used = 0

    @property
    def base_url(self) -> str:
        """The value for CHILECOMPRA_BASE_URL."""
        return f"{self.url}/servicios/v1/publico"

    def publish(self, code: str, day: date, nombre: str = "Compra de prueba", **more: Any) -> Tender:
        """Publish a tender that closes in two weeks."""
        closes = datetime.combine(day + timedelta(days=14), datetime.min.time()).replace(hour=15)
        self.tenders[code] = Tender(code, nombre, day, **{"cierre": closes} | more)
        return self.tenders[code]

    def fill(self, day: date, count: int, *, published: int | None = None, series: int = 7000) -> None:
        """Give a day so many tenders, the first `published` of them open, the rest in other states."""
        for n in range(count):
            is_open = published is None or n < published
            self.publish(
                f"{series + n}-{n % 90 + 1}-LE{day:%y}",
                day,
                f"Compra número {n} del {day:%d/%m/%Y} para la unidad de adquisiciones",
                estado=5 if is_open else (6, 7, 8)[n % 3],
                region=REGIONS[n % len(REGIONS)],
                products=(PRODUCTS[n % len(PRODUCTS)], PRODUCTS[(n + 1) % len(PRODUCTS)]),
                monto=None if n % 3 == 0 else 1_000_000.0 + n,
            )

    def change(self, code: str, **changes: Any) -> None:
        """Change a tender: a new state comes with the day it happens on."""
        self.tenders[code] = replace(self.tenders[code], **changes)

    def fail(self, answer: Answer, *, times: int | None = 1, skip: int = 0, **query: str) -> Fault:
        """Answer requests whose query holds these values with this instead (`codigo=""` means any detail)."""

        def fits(asked: Asked) -> bool:
            return all(name in asked.query and value in ("", asked.query[name]) for name, value in query.items())

        self.faults.append(Fault(answer, fits, times, skip))
        return self.faults[-1]

    def new_day(self) -> None:
        """Forget how many requests were made."""
        self._used = 0

    def lists(self) -> list[str]:
        """Return the days whose list was asked for, in order."""
        return [asked.query["fecha"] for asked in self.asked if "fecha" in asked.query]

    def details(self) -> list[str]:
        """Return the codes whose detail was asked for, in order."""
        return [asked.query["codigo"] for asked in self.asked if "codigo" in asked.query]

    def gaps(self) -> list[float]:
        """Return the seconds between requests."""
        times = [asked.at for asked in self.asked]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def answer(self, asked: Asked) -> Answer:
        """Answer as the service does."""
        if asked.path != "/servicios/v1/publico/licitaciones.json":
            return Answer(404, b"not found")
        if asked.query.get("ticket") != self.ticket:
            return BAD_TICKET
        if (last := self._last) is not None and asked.at - last < self.spacing_s - 1e-6:
            self.refused += 1
            return busy()
        self._last = asked.at
        self._used += 1
        if self.quota is not None and self._used > self.quota:
            return busy()
        for fault in self.faults:
            if fault.times != 0 and fault.fits(asked):
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times = None if fault.times is None else fault.times - 1
                return fault.answer
        return self._regular(asked.query)

    def _regular(self, query: Mapping[str, str]) -> Answer:
        if "codigo" in query:
            found = self.tenders.get(query["codigo"])
            return as_json(envelope([found.full()] if found else []))
        reported = query.get("fecha", "")
        if not re.fullmatch(r"\d{8}", reported):
            return WRONG_DATE
        if not 1 <= int(reported[2:4]) <= 12:
            return WRONG_MONTH
        wanted = f"{reported[4:]}-{reported[2:4]}-{reported[:2]}"
        rows = [tender.summary() for tender in self.tenders.values() if tender.day.isoformat() == wanted]
        if query.get("estado") == "publicada":
            rows = [row for row in rows if row["CodigoEstado"] == 5]
        return as_json(envelope(rows))


class FakeSearchPage(FakeServer):
    """Mercado Público's search page: a cookie first, then an export or cards."""

    def __init__(self, export: bytes, cards: bytes) -> None:
        super().__init__()
        self.export: dict[str, bytes] = {"1": export, "0": b""}
        self.cards = cards
        self.refuse_export = False
        self.down = False
        self._made: list[str] = []

    @property
    def base_url(self) -> str:
        """The value for CHILECOMPRA_WEB_BASE_URL."""
        return f"{self.url}/BuscarLicitacion"

    def answer(self, asked: Asked) -> Answer:
        """Answer as the page does: without its cookie with nothing at all."""
        if self.down:
            return Answer(503, b"<html>down</html>")
        if asked.path == "/BuscarLicitacion":
            return Answer(200, b"<html></html>", {"Set-Cookie": "ASP.NET_SessionId=abc123; path=/; HttpOnly"})
        if "ASP.NET_SessionId=abc123" not in asked.headers.get("cookie", ""):
            return Answer(200, b"")
        if asked.path.endswith("/Home/GenerarArchivo"):
            [half] = json.loads(asked.body)["esPublicoMontoEstimado"]
            self._made.append(half)
            name = ".csv" if self.refuse_export else "ListaLicitaciones.csv"
            return as_json({"FileGuid": f"guid-{half}", "nombreArchivo": name, "estado": not self.refuse_export})
        if asked.path.endswith("/Home/Descargar"):
            return Answer(200, self.export[asked.query["fileGuid"].removeprefix("guid-")], {"Content-Type": "text/csv"})
        first = json.loads(asked.body)["pagina"] == 0
        return Answer(200, self.cards if first else b"<div></div>", {"Content-Type": "text/html; charset=utf-8"})
