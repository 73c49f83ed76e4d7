"""The page on the HTTP API, of the OpenAPI document: each route with one call of it; generate_docs.py writes it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from http_examples import EXAMPLES
from relevo.http import api
from relevo.http.rules import rule_of

_INTRODUCTION = """\
After this page you can call each route of Relevo's HTTP API. Make a token with
`relevo token make shop --role app`, and set what the examples need:

```sh
export RELEVO=http://127.0.0.1:8080 AUTH="Authorization: Bearer relevo_…"
export PHONE=018f3c1e-7c1a-4a58-9d43-6a2f0c9b1d11 EVENT=1 DELIVERY=1 TENDER=1
curl -H "$AUTH" "$RELEVO/v1/events/$EVENT"
```

`relevo run` serves the API on `HTTP_HOST` and `HTTP_PORT`; `relevo serve` serves the API alone. A running Relevo
shows the same at `/docs`, and as an OpenAPI document at `/openapi.json`. Bodies are JSON (`--json` of curl 7.82 and
newer), instants are RFC 3339, and every answer has an `X-Request-Id`. A proxy in front of Relevo must allow requests
of 35 seconds.

## Who may call a route

| caller | header |
|---|---|
| a token of role `app`, `viewer` or `operator` | `Authorization: Bearer relevo_…` |
| a phone, for its own data | `Authorization: Bearer device_…`: the [secret](recipes-http.md#register-phones) |

Each route below names the roles that may call it. A token of [one project](security-and-privacy.md#projects) reads and
changes that project only.

## Errors of every route

Errors are `application/problem+json` (RFC 9457): `type`, `title`, `status`, `detail`, and where it helps `hint` (the
next step), `errors` (field and reason) and `request_id`.
"""
_REQUEST = """\
## Fields of request bodies

A star marks a required field. [Events, installations, preferences](reference-events.md) and
[fields of a push](push-fields.md) explain the fields of events and phones.
"""
_OF_EACH = ("400", "401", "403", "404", "413", "429", "503")
"""The errors that many routes may answer; the page has them once."""
_NOT_THERE = "What the path names is not there, or is another project's or another caller's."
_PLAIN = "Successful Response"
_ELSEWHERE = {"PushFields": "push-fields.md"}
"""Schemas that another page describes."""


def lines() -> Iterator[str]:
    """Yield the page, below its title."""
    told = document()
    schemas = told["components"]["schemas"]
    yield _INTRODUCTION
    operations = [
        (method.upper(), path, operation)
        for path, methods in told["paths"].items()
        for method, operation in methods.items()
    ]
    common = operations[2][2]["responses"]
    yield from ("| status | meaning |", "|---|---|")
    yield from (f"| {code} | {_NOT_THERE if code == '404' else common[code]['description']} |" for code in _OF_EACH)
    yield ""
    given: dict[str, None] = {}
    returned: dict[str, None] = {}
    tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in operations))
    by_tag = sorted(operations, key=lambda each: tags.index(each[2]["tags"][0]))
    for tag, some in groupby(by_tag, key=lambda each: each[2]["tags"][0]):
        yield from (f"## Routes: {tag}", "")
        for method, path, operation in some:
            yield from _operation(method, path, operation)
            given |= dict.fromkeys(_named(operation.get("requestBody", {}), schemas))
            answers = [answer for answer in operation["responses"].values() if _top(answer)]
            returned |= dict.fromkeys(_named(answers, schemas))
    yield _REQUEST
    for place, name in enumerate(given):
        yield from _schema(name, schemas, list(given)[:place])
    yield from ("## Fields of answers", "")
    every = list(given | returned)
    for name in every[len(given) :]:
        yield from _schema(name, schemas, every[: every.index(name)], starred=False)


def document() -> dict[str, Any]:
    """Return the OpenAPI document; making it asks nothing of a database."""
    return api.make().openapi()


def slug(heading: str) -> str:
    """Return the anchor of a heading, as Markdown renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain(text: str) -> str:
    """Keep what looks like HTML from being taken for it."""
    return text.replace("<", "&lt;")


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    told = operation.get("description", "")
    told = re.sub(r"\s*Takes a token of role [\w ]+\.", "", told)
    yield from (f"### {method} {path}", "", f"{plain(' '.join(told.split()))} Callers: {_roles(method, path)}.", "")
    if (method, path) not in EXAMPLES:
        sys.exit(f"{method} {path} has no call: add one to scripts/http_examples.py.")
    yield from ("```sh", EXAMPLES[method, path].curl(method, path), "```", "")
    for each in operation.get("parameters", ()):
        if each["in"] != "path":
            yield f"- `{each['name']}`, {_kind(each['schema'])}: {plain(each.get('description', ''))}".rstrip(": ")
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield f"- Body: {_kind(content['schema'])}"
    yield from (
        f"- {code}: {_answer(answer)}"
        for code, answer in sorted(operation["responses"].items())
        if code not in _OF_EACH or (code == "503" and _top(answer))
    )
    yield ""


def _roles(method: str, path: str) -> str:
    rule = rule_of(method, path)
    if rule.own_check:
        return "the phone itself, app, operator" if "installation" in path or "inbox" in path else "a phone, any token"
    return ", ".join(sorted(rule.roles)) or "anybody"


def _answer(answer: Mapping[str, Any]) -> str:
    """Write what an answer means, and which body it has."""
    means = "" if answer["description"] == _PLAIN else plain(answer["description"])
    body = " or ".join(f"[{name}](#{slug(name)})" for name in _top(answer))
    return " ".join(filter(None, (means, body))) or "no body"


def _top(answer: Mapping[str, Any]) -> list[str]:
    """Return the schemas that an answer may be, but for errors."""
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return [each["$ref"].rpartition("/")[2] for each in schema.get("anyOf", [schema]) if "$ref" in each]


def _named(body: Any, schemas: Mapping[str, Any]) -> Iterator[str]:
    """Yield the schemas that a body has, each after those that name it."""
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(body)):
        yield name
        yield from _named(schemas[name], schemas) if name not in _ELSEWHERE else ()


def _schema(name: str, schemas: Mapping[str, Any], before: Sequence[str], *, starred: bool = True) -> Iterator[str]:
    if name in _ELSEWHERE:
        return
    schema, required = schemas[name], schemas[name].get("required", ())
    fields = dict(schema.get("properties", {}))
    alike = [
        each
        for each in before
        if len(schemas[each]["properties"]) > 1 and schemas[each]["properties"].items() <= fields.items()
    ]
    yield from (f"### {name}", "", plain(" ".join(schema.get("description", "").split())), "")
    if alike:
        yield f"- the fields of [{alike[0]}](#{slug(alike[0])})"
        fields = {field: told for field, told in fields.items() if field not in schemas[alike[0]]["properties"]}
    for field, told in fields.items():
        star = "\\*" if starred and field in required else ""
        said = plain(" ".join(told.get("description", "").split()))
        yield f"- `{field}`{star}, {_kind(told)}" + (f": {said}" if said else "")
    yield ""


def _kind(schema: Mapping[str, Any]) -> str:
    """Say in a few words what a schema takes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({_ELSEWHERE.get(name) or '#' + slug(name)})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of{_limits(schema)} {_kind(schema.get('items', {})) or 'anything'}"
    return f"{schema.get('format') or schema.get('type', '')}{_limits(schema)}".replace("string", "text")


def _limits(schema: Mapping[str, Any]) -> str:
    """Say how long or large a value may be."""
    for low, high, what in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", ""),
    ):
        if high in schema:
            least = schema.get(low, 0)
            return f" {least} to {schema[high]}{what}" if least else f" up to {schema[high]}{what}"
    if "exclusiveMaximum" in schema:
        return f" {schema.get('minimum', 0)} to {schema['exclusiveMaximum'] - 1}"
    return ""
