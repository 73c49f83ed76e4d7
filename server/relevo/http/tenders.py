"""The app's feed: tenders, newest first, and what they are sorted by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.core.chile import REGIONS, RUBROS
from relevo.core.errors import NotFoundError
from relevo.http.database_threads import threads_of
from relevo.http.fields import AskedAmount, Exact, Text
from relevo.http.guard import Guarded, call
from relevo.http.installations import MISSING
from relevo.http.json_response import Json
from relevo.operators import sources
from relevo.verbs.phones import prove_any

router = APIRouter(route_class=Guarded, tags=["tenders"])

_CURSOR = "^[0-9]{1,17}-[0-9]{1,18}$"  # microseconds and an id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US = 10_413_792_000_000_000  # 2300: no tender is younger


class Tender(BaseModel):
    """A tender, as its sources tell it."""

    id: int
    namespace: str
    external_id: str
    nombre: str
    descripcion: str | None
    organismo: str | None
    region: str | None
    tipo: str | None
    estado: str | None
    monto: float | None
    moneda: str | None
    monto_label: str | None
    rubros: list[str]
    rubro_scheme: str | None
    publicada_at: str | None
    cierra_at: str | None
    url: str | None
    sources: list[str]
    withdrawn: bool | None
    created_at: str
    updated_at: str


class Tenders(BaseModel):
    """A page of tenders, newest first."""

    items: list[Tender]
    next: str | None = Field(description="Where the next page begins; a page may hold fewer than asked for, even none.")


class Filters(Exact):
    """Which tenders: those that fit all that is given."""

    limit: int = Field(50, ge=1, le=200, description="The maximum number of items.")
    cursor: str | None = Field(None, pattern=_CURSOR, description="`next` of the page before.")
    region: Text | None = Field(None, min_length=1, max_length=200)
    tipo: Text | None = Field(None, min_length=1, max_length=100)
    estado: Text | None = Field(None, min_length=1, max_length=100)
    rubro: str | None = Field(None, pattern="^[0-9A-Za-z-]{1,20}$", description="The first digits of a code.")
    monto_min: AskedAmount | None = None
    monto_max: AskedAmount | None = None
    moneda: str = Field("CLP", pattern="^[A-Z]{3}$", description="Of monto_min and monto_max.")
    q: Text | None = Field(None, min_length=2, max_length=100, description="Words of its name or description.")


class Named(BaseModel):
    """One thing to choose from."""

    code: str
    name: str


class Choices(BaseModel):
    """The values that a preference may name."""

    items: list[Named]
    next: None


@router.get("/v1/licitaciones", responses={200: {"model": Tenders}})
async def list_tenders(request: Request, asked: Annotated[Filters, Query()]) -> Response:
    """List the tenders that match all given parameters, newest first.

    Continue until `next` is null: a page may be short.
    """
    await _admit(request)
    before_at, before_id = _place(asked.cursor)
    filters = asked.model_dump(exclude={"cursor", "q"}) | {"text": asked.q}
    items, last = await threads_of(request).run(sources.tenders, before_at=before_at, before_id=before_id, **filters)
    return Json({"items": items, "next": None if last is None else _written(*last)})


@router.get("/v1/licitaciones/{licitacion_id}", responses={200: {"model": Tender}, **MISSING})
async def get_tender(request: Request, licitacion_id: Annotated[int, Path(ge=1, lt=2**63)]) -> Response:
    """Return one tender."""
    await _admit(request)
    found = await threads_of(request).run(sources.tender, licitacion_id)
    if found is None:
        raise NotFoundError(f"There is no tender {licitacion_id}.")
    return Json(found)


@router.get("/v1/rubros", responses={200: {"model": Choices}})
async def list_rubros(request: Request) -> Response:
    """List the segments of UNSPSC, the first two digits of a tender's rubros."""
    await _admit(request)
    return Json({"items": [{"code": code, "name": name} for code, name in RUBROS.items()], "next": None})


@router.get("/v1/regions", responses={200: {"model": Choices}})
async def list_regions(request: Request) -> Response:
    """List the regions of Chile from north to south, by their ISO 3166-2 codes."""
    await _admit(request)
    return Json({"items": [{"code": code, "name": name} for code, name in REGIONS.items()], "next": None})


async def _admit(request: Request) -> None:
    """Admit any token, and any phone by its secret."""
    if request.state.caller is None:
        await call(request, prove_any)


def _place(cursor: str | None) -> tuple[datetime, int]:
    if cursor is None:
        return _EPOCH + timedelta(microseconds=_LATEST_US), 2**63 - 1
    at, _, id_ = cursor.partition("-")
    return _EPOCH + timedelta(microseconds=int(at)), int(id_)


def _written(at: datetime, id_: int) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{id_}"
