"""The API's own page: its OpenAPI document as HTML (api.html), and where the root leads."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from relevo.http.dashboard.templating import ENVIRONMENT
from relevo.http.guard import Guarded
from relevo.http.json_response import Json

router = APIRouter(route_class=Guarded, include_in_schema=False)


@router.get("/")
async def root() -> Response:
    """Lead to the dashboard."""
    return RedirectResponse("/dashboard")


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """Return the OpenAPI document."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = Json(request.app.openapi()).body
    return Response(state.document, media_type="application/json")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Show the OpenAPI document to people."""
    if not hasattr(request.app.state, "page"):
        request.app.state.page = _render(request.app.openapi()).encode()
    return HTMLResponse(request.app.state.page)


def _render(spec: dict[str, Any]) -> str:
    operations = [(path, method, each) for path, methods in spec["paths"].items() for method, each in methods.items()]
    groups = [
        (tag, list(some)) for tag, some in groupby(operations, key=lambda each: each[-1].get("tags", ["other"])[0])
    ]
    schemas = {
        name: orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode()
        for name, schema in spec["components"]["schemas"].items()
    }
    tags = dict.fromkeys(tag for tag, _ in groups)
    return ENVIRONMENT.get_template("api.html").render(spec=spec, tags=tags, groups=groups, schemas=schemas)
