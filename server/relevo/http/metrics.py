"""The mount point of /metrics: on the API's own port with a viewer's token, or without one on METRICS_PORT."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from relevo.http.guard import Guarded

router = APIRouter(route_class=Guarded, tags=["operators"])
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def _answer(app: FastAPI) -> Response:
    """Write all metrics of this process, and of the fleet, as Prometheus reads them."""
    written = await app.state.threads.run(lambda _database: app.state.relevo.metrics.render())
    return Response(written, media_type=_CONTENT_TYPE)


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
