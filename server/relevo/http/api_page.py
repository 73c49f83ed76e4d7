"""The API's own page: its OpenAPI document, written as HTML here, without a script and without asking anybody else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from relevo.http.guard import Guarded
from relevo.http.json_response import Json

router = APIRouter(route_class=Guarded, include_in_schema=False)
_CODE = re.compile(r"`([^`]+)`")
_STYLE = (
    ":root{color-scheme:light dark}*{box-sizing:border-box}body{overflow-wrap:anywhere}"
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;"
    "max-width:60rem;padding:0 1rem}"
    "html{background:#f6f7f9;color:#1a1f27}a{color:#0b5cad}nav a{margin-right:1rem}"
    "@media(prefers-color-scheme:dark){html{background:#12161c;color:#e8ecf1}a{color:#7db7ff}}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{overflow-x:auto;padding:.75rem;border:1px solid #8885;border-radius:6px}"
    "h2{margin-top:2.5rem}section{border-top:1px solid #8885;padding:.5rem 0}.m{font-weight:700}"
    "table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.15rem 1rem .15rem 0}"
    "@media(max-width:40rem){body{margin:1rem auto}"
    "tr{display:block;padding:.25rem 0}td{display:inline;padding:0 .5rem 0 0}}"
)


@router.get("/")
async def root() -> Response:
    """Lead to the dashboard."""
    return RedirectResponse("/dashboard")


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Json(request.app.openapi())


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Show the OpenAPI document to people."""
    if not hasattr(request.app.state, "page"):
        request.app.state.page = render(request.app.openapi())
    return HTMLResponse(request.app.state.page)


def render(spec: Mapping[str, Any]) -> str:
    """Write an OpenAPI document as a page."""
    info = spec["info"]
    body = "".join([*_operations(spec), *_schemas(spec)])
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(info['title'])} API</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
        f"<p>{_prose(info['description'])}</p>{_contents_of(spec)}<main>{body}</main></body></html>"
    )


def _prose(text: str) -> str:
    """Write a description as HTML: what stands in backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text)).replace("\n\n", "</p><p>")


def _contents_of(spec: Mapping[str, Any]) -> str:
    """Lead to each part of the page, to the document behind it, and back to the guide."""
    tags = dict.fromkeys(_tag(each) for methods in spec["paths"].values() for each in methods.values())
    parts = "".join(f"<a href='#{escape(tag)}'>{escape(tag.capitalize())}</a> " for tag in [*tags, "schemas"])
    return f"<nav><p>{parts}</p><p><a href=openapi.json>openapi.json</a> <a href=guide>Guide</a></p></nav>"


def _tag(operation: Mapping[str, Any]) -> str:
    return str(operation.get("tags", ["other"])[0])


def _operations(spec: Mapping[str, Any]) -> Iterator[str]:
    tag = ""
    operations = [
        (_tag(each), path, method, each) for path, methods in spec["paths"].items() for method, each in methods.items()
    ]
    for now, path, method, operation in operations:
        if now != tag:
            yield f"<h2 id='{escape(now)}'>{escape(now.capitalize())}</h2>"
            tag = now
        yield _operation(path, method, operation)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    anchor = escape(operation["operationId"])
    described = _prose(operation.get("description", ""))
    head = f"<span class=m>{method.upper()}</span> <code>{escape(path)}</code>"
    parts = [f"<section id={anchor}><h3>{head}</h3><p>{described}</p>"]
    if given := operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_kind(each['schema'])}"
            f"<td>{_prose(each.get('description', ''))}"
            for each in given
        )
        parts.append(f"<h4>Parameters</h4><table>{rows}</table>")
    if sent := operation.get("requestBody"):
        parts.append(f"<h4>Body</h4><p>{_contents(sent['content'])}</p>")
    answers = "".join(
        f"<tr><td>{code}<td>{_prose(each['description'])}<td>{_contents(each.get('content', {}))}"
        for code, each in operation["responses"].items()
    )
    parts.append(f"<h4>Answers</h4><table>{answers}</table></section>")
    return "".join(parts)


def _contents(content: Mapping[str, Any]) -> str:
    return ", ".join(f"{escape(kind)} {_kind(each.get('schema', {}))}" for kind, each in content.items())


def _kind(schema: Mapping[str, Any]) -> str:
    """Name a schema in a word or two, linked where it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f"<a href='#{name}'>{name}</a>"
    if choices := schema.get("anyOf"):
        return " or ".join(_kind(each) for each in choices)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    return escape(str(schema.get("type", "anything")))


def _schemas(spec: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2 id=schemas>Schemas</h2>"
    for name, schema in spec.get("components", {}).get("schemas", {}).items():
        written = escape(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())
        yield f"<section id='{escape(name)}'><h3>{escape(name)}</h3><pre tabindex=0>{written}</pre></section>"
