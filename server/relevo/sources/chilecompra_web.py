"""Mercado Público's search page: its CSV export, or its cards when the export is refused; optional, blocks nobody."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any, Literal

import structlog

from relevo.config import MINUTE, Settings
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.sources import chile, text
from relevo.sources.http import Http, Response, TimeOver, Trouble, take_turn
from relevo.sources.merging import mark, mark_of, one_each

_log = structlog.get_logger("relevo.sources.chilecompra_web")

TELLER = "web"
QUOTA = "chilecompra-web"
ITEMS_PER_FETCH = 500
PAGES_PER_FETCH = 10
_COLUMNS = ("IDLicitacion", "NombreLicitacion", "Estado")
_KNOWN_ORDER = (
    *("IDLicitacion", "NombreLicitacion", "Tipo", "Estado", "FechaPublicacion", "Descripcion"),
    *("Moneda", "TipoPresupuesto", "TipoMonto", "MontoLicitacion", "Organismo"),
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_DATE = re.compile(r"\d{1,2}/\d{1,2}/\d{4}(?: \d{1,2}:\d\d(?::\d\d)?)?")
_CURRENCY = re.compile(r"[A-Z]{3}|")
_AMOUNT = re.compile(r"\d|p[uú]blico", re.IGNORECASE)
_MAX_REPORTED = 100
_NEWEST_FIRST, _PUBLISHED = "3", "5"
# Tenders with a published amount and those without are never in one answer.
_HALVES = ("1", "0")
_OK = 200
_HIDDEN = re.compile(r"no\s+p[uú]blico", re.IGNORECASE)


@dataclass
class _Read:
    """The data that both halves of a pass return."""

    items: list[Item] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    incomplete: bool = False


class ChileCompraWeb:
    """The data of the public search: whole names, descriptions and amounts, but neither rubro nor region."""

    name = "chilecompra-web"

    def __init__(self, settings: Settings) -> None:
        self._http = Http(settings)
        self._base = settings.chilecompra_web_base_url.rstrip("/")
        self._pace_ms = settings.chilecompra_pace_ms
        self._daily_limit = settings.chilecompra_daily_limit
        self.seeds_silently = not settings.ingest_notify_first_run
        self.interval_ms = (settings.chilecompra_web_interval_minutes or settings.worker_interval_minutes) * MINUTE

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read the newest published tenders of both halves; one half that fails does not hide the other."""
        read = _Read()
        for half in _HALVES:
            try:
                self._open_session(context)
                self._half(half, read, context)
            except TimeOver:
                read.incomplete = True
                break
            except Trouble as trouble:
                read.troubles.append(trouble)
        new = _news(read.items, context)
        reported = cursor.get("rejects") or []
        rejects = [each for each in read.rejects if each.place not in reported]
        if read.troubles and not new and not rejects:
            worst = next((each for each in read.troubles if each.outcome == "rejected"), read.troubles[0])
            return Fetched(worst.outcome, dict(cursor), detail=worst.detail[:500], incomplete=True)
        outcome: Literal["ok", "unchanged"] = "ok" if new or rejects else "unchanged"
        known = [*reported, *(each.place for each in rejects)][-_MAX_REPORTED:]
        return Fetched(
            outcome,
            {"rejects": known} if known else {},
            items=tuple(replace(item, as_of=context.now()) for item in new[:ITEMS_PER_FETCH]),
            rejects=tuple(rejects),
            detail="; ".join(each.detail for each in read.troubles)[:500],
            more=len(new) > ITEMS_PER_FETCH,
            incomplete=read.incomplete or bool(read.troubles),
        )

    def _half(self, half: str, read: _Read, context: SourceContext) -> None:
        """Read one half by its export, or as many of its cards as there are pages: never known to be all of them."""
        try:
            items, rejects = self._exported(half, context)
        except TimeOver:
            raise
        except Trouble as refused:
            _log.info("export_refused", detail=refused.detail, fallback="cards")
            items, rejects = self._shown(half, context), []
            read.incomplete = True
        read.items += items
        read.rejects += rejects

    def _open_session(self, context: SourceContext) -> None:
        """Get the anonymous cookie without which every list is empty."""
        self._http.forget_cookies()
        self._turn(context)
        _accept(self._http.get(self._base))

    def _exported(self, half: str, context: SourceContext) -> tuple[list[Item], list[Reject]]:
        self._turn(context)
        made = text.loads(_accept(self._http.post(f"{self._base}/Home/GenerarArchivo", _query(half, 0))).body)
        ticket, name = text.clean(text.at(made, "FileGuid"), 100), text.clean(text.at(made, "nombreArchivo"), 200)
        if text.at(made, "estado") is not True or not ticket:
            raise Trouble("unavailable", "the search page refuses an export")
        self._turn(context)
        wanted = {"fileGuid": ticket, "nombreArchivo": name or "ListaLicitaciones.csv"}
        found, rejects = read_export(_accept(self._http.get(f"{self._base}/Home/Descargar", wanted)).body)
        if not found:
            raise Trouble("unavailable", "the export is empty, as it is for strangers")
        return found, rejects

    def _shown(self, half: str, context: SourceContext) -> list[Item]:
        """Turn the pages, newest first, until one shows nothing new."""
        found: list[Item] = []
        for page in range(PAGES_PER_FETCH):
            self._turn(context)
            cards = read_cards(_accept(self._http.post(f"{self._base}/Home/Buscar", _query(half, page))).body)
            if not cards and not page:
                raise Trouble("unavailable", "the search page shows an empty list, as it does to strangers")
            found += cards
            if not _news(cards, context):
                break
        return found

    def _turn(self, context: SourceContext) -> None:
        take_turn(context, QUOTA, pace_ms=self._pace_ms, daily_limit=self._daily_limit)


def _query(half: str, page: int) -> dict[str, Any]:
    # All sixteen fields, as the page itself sends them: other spellings are answered with an empty list.
    return {
        "textoBusqueda": "",
        "idEstado": _PUBLISHED,
        "codigoRegion": "-1",
        "idTipoLicitacion": "-1",
        "fechaInicio": None,
        "fechaFin": None,
        "registrosPorPagina": "10",
        "idTipoFecha": [],
        "idOrden": _NEWEST_FIRST,
        "compradores": [],
        "garantias": None,
        "rubros": [],
        "proveedores": [],
        "montoEstimadoTipo": [0],
        "esPublicoMontoEstimado": [half],
        "pagina": page,
    }


def _accept(reply: Response) -> Response:
    if reply.status == _OK:
        return reply
    raise Trouble("unavailable", f"the search page answers HTTP {reply.status}")


def _news(items: list[Item], context: SourceContext) -> list[Item]:
    each = one_each(items)
    known = context.known(chile.NAMESPACE, [item.external_id for item in each]) if each else {}
    return [item for item in each if mark_of(known.get(item.external_id, ""), TELLER) != item.fingerprint]


def read_export(body: bytes) -> tuple[list[Item], list[Reject]]:
    """Read the CSV export, and name the rows that cannot be read.

    An export that is none, or of which nothing can be read, is trouble and not an empty one.
    """
    lines = (line.split(";") for line in _LINE_END.split(body.decode("utf-8-sig", "replace")))  # it quotes nothing
    head, *rows = [line for line in lines if any(map(str.strip, line))] or [[]]
    names = [name.strip() for name in head]
    if not set(_COLUMNS) <= set(names):
        raise Trouble(
            "unavailable" if not body.strip() else "rejected", "the export has not the columns it used to have"
        )
    items: list[Item] = []
    rejects: list[Reject] = []
    for number, row in enumerate(rows, start=2):
        cells = row if len(row) == len(names) else _without_strays(names, row)
        item = _row(dict(zip(names, cells, strict=True))) if cells else None
        if item:
            items.append(item)
        elif len(rejects) < _MAX_REPORTED:
            code = chile.tender_code(row[0])
            place = f"export {code or hashlib.sha256(repr(row).encode('utf-8', 'replace')).hexdigest()[:12]}"
            rejects.append(
                text.reject(place, f"its row {number} has {len(row)} fields, not {len(names)}", external_id=code)
            )
    if rows and not items:
        _log.error("export_unreadable", rows=len(rows))
        raise Trouble("rejected", f"none of the export's {len(rows)} rows could be read")
    return items, rejects


def _without_strays(names: list[str], row: list[str]) -> list[str] | None:
    """Put together what a stray `;` in a name, a description or a buyer took apart; None if that is not clear.

    What lies between can be recognised: the date of publication, and a currency three fields before an amount.
    """
    if names != list(_KNOWN_ORDER) or len(row) < len(names):
        return None
    date = next((n for n, cell in enumerate(row) if n >= 4 and _DATE.fullmatch(cell.strip())), None)  # noqa: PLR2004
    if date is None:
        return None
    money = [
        n for n in range(date + 2, len(row) - 4) if _CURRENCY.fullmatch(row[n].strip()) and _AMOUNT.search(row[n + 3])
    ]
    if not money:
        return None
    at = money[-1]
    nombre, descripcion = ";".join(row[1 : date - 2]), ";".join(row[date + 1 : at])
    return [row[0], nombre, *row[date - 2 : date + 1], descripcion, *row[at : at + 4], ";".join(row[at + 4 :])]


def _row(row: Mapping[str, str]) -> Item | None:
    return _item(
        row["IDLicitacion"],
        {
            "nombre": row["NombreLicitacion"],
            "descripcion": row.get("Descripcion"),
            "organismo": row.get("Organismo"),
            "estado": row["Estado"],
            "monto": row.get("MontoLicitacion"),
            "moneda": row.get("Moneda"),
            "publicada": row.get("FechaPublicacion"),
        },
    )


def _item(given_code: object, fields: Mapping[str, str | None]) -> Item | None:
    code = chile.tender_code(given_code)
    nombre = text.clean(fields.get("nombre"), text.NOMBRE)
    if not code or not nombre:
        return None
    estado = chile.state_name(fields.get("estado"))
    label = text.clean(fields.get("monto"), text.SHORT)
    monto = text.amount(label)
    publicada_at = text.moment(fields.get("publicada"))
    cierra_at = text.moment(fields.get("cierre"), end_of_day=True)
    return Item(
        chile.NAMESPACE,
        code,
        nombre,
        mark(TELLER, code, *(text.clean(value, text.DESCRIPCION) for value in fields.values())),
        descripcion=text.clean(fields.get("descripcion"), text.DESCRIPCION),
        organismo=text.clean(fields.get("organismo"), text.ORGANISMO),
        tipo=chile.tipo_of(code),
        estado=estado,
        monto=monto,
        moneda=text.currency(fields.get("moneda")) if monto else None,
        monto_label=label if label and not monto and re.search(r"\d", label) and not _HIDDEN.search(label) else None,
        publicada_at=publicada_at,
        cierra_at=cierra_at,
        url=chile.page_of(code),
        announces=estado == chile.OPEN,
        withdrawn=estado in chile.WITHDRAWN,
        whole_days=text.midnights(publicada_at, cierra_at),
    )


def read_cards(body: bytes) -> list[Item]:
    """Read the cards of a page; cards of which none can be read are trouble."""
    reader = _Cards()
    reader.feed(body.decode("utf-8-sig", "replace"))
    reader.close()
    cards = [list(_lines(card)) for card in reader.cards]
    items = [item for lines in cards if (item := _card(lines))]
    if cards and not items:
        _log.error("cards_unreadable", cards=len(cards))
        raise Trouble("rejected", f"none of the page's {len(cards)} cards could be read")
    return items


def _card(lines: list[str]) -> Item | None:
    """Read a card by its headings: the value follows its heading."""
    fields: dict[str, str | None] = {}
    code = _after(lines, "id licitación")
    place = lines.index(code) if code else 0
    tail = lines[place + 1 :] if code else []
    fields["estado"] = next((line for line in tail[:3] if chile.tipo_of(f"1-1-{line}26") is None), None)
    body = tail[tail.index(fields["estado"]) + 1 :] if fields["estado"] in tail else []
    headings = [number for number, line in enumerate(body) if line.casefold().startswith(("monto", "fecha de"))]
    words = body[: headings[0]] if headings else body[:2]
    fields["nombre"] = words[0] if words else None
    fields["descripcion"] = " ".join(words[1:]) or None
    fields |= _amount_of(body)
    fields["publicada"] = _after(body, "fecha de publicación")
    fields["cierre"] = _after(body, "fecha de cierre")
    rest = [line for line in body[_place(body, "fecha de cierre") + 2 :] if not line.startswith("(")]
    fields["organismo"] = rest[0] if rest and not rest[0].casefold().startswith("cantidad") else None
    return _item(code, fields)


def _amount_of(lines: list[str]) -> dict[str, str | None]:
    for number, line in enumerate(lines):
        if line.casefold().startswith("monto"):
            following = lines[number + 1 : number + 3]
            sign = text.currency(following[0]) if following else None
            value = next(iter(following[1:] if sign else following), None)
            return {"monto": value, "moneda": sign or "CLP"}
    return {"monto": None, "moneda": None}


def _place(lines: list[str], heading: str) -> int:
    fitting = (number for number, line in enumerate(lines) if line.casefold().startswith(heading))
    return next(fitting, len(lines))


def _after(lines: list[str], heading: str) -> str | None:
    return next(iter(lines[_place(lines, heading) + 1 :]), None)


def _lines(chunks: list[str]) -> Iterator[str]:
    for chunk in chunks:
        if line := text.clean(chunk, text.DESCRIPCION):
            yield line


class _Cards(HTMLParser):
    """Gathers the texts of each card."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.cards: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag == "div" and "lic-bloq-wrap" in classes:
            self.cards.append([])

    def handle_data(self, data: str) -> None:
        if self.cards:
            self.cards[-1].append(data)
