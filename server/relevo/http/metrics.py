"""The mount point of /metrics: on the API's own port with a viewer's token, or without one on METRICS_PORT."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from relevo.database.pool import Database
from relevo.http.database_threads import DatabaseThreads
from relevo.http.guard import Guarded

router = APIRouter(route_class=Guarded, tags=["operators"])
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Exposition = Callable[[Database], bytes]
"""Writes all metrics of this process, and of the fleet, as Prometheus reads them."""


def nothing_yet(_database: Database) -> bytes:
    """Write no metric at all."""
    return b"# EOF\n"


async def _answer(app: FastAPI) -> Response:
    threads: DatabaseThreads = app.state.threads
    return Response(await threads.run(app.state.exposition), media_type=CONTENT_TYPE)


@router.get("/metrics", response_class=PlainTextResponse, responses={200: {"description": "Prometheus' text format."}})
async def get_metrics(request: Request) -> Response:
    """Return everything that can be measured, in Prometheus' text format."""
    return await _answer(request.app)


def own_port(api: FastAPI) -> FastAPI:
    """Make the app that serves /metrics alone, on a port of its own, where no token is asked for."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/metrics")
    async def _metrics() -> Response:
        return await _answer(api)

    return app
