"""The page on the HTTP API, of the OpenAPI document: each route with one call of it; generate_docs.py writes it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
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
| a token of role `app`, `observer`, `viewer` or `operator` | `Authorization: Bearer relevo_…` |
| a phone, for its own data | `Authorization: Bearer device_…`: the [secret](recipes-http.md#register-phones) |

Each route below names the roles that may call it. A token of [one project](security-and-privacy.md#projects) reads and
changes that project only. The routes below `/v1/owners` take the owner in the body: addresses end up in the logs of
proxies.

## Errors of every route

Errors are `application/problem+json` (RFC 9457): `type`, `title`, `status`, `detail`, and where it helps `hint` (the
next step), `errors` (field and reason) and `request_id`.
"""
_REQUEST = """\
## Fields of request bodies

A star marks a required field.
"""
_ANSWERS = """\
## Fields of answers

`/docs` and `/openapi.json` of a running Relevo, and the types of [`@relevo/client`](kits.md), have the type and the
meaning of each field.

| answer | fields |
|---|---|
"""
_SHARED = """\
## Fields of several routes

A link to this table stands for the field's value and meaning.

| field | value | meaning |
|---|---|---|
"""
_OF_EACH = ("400", "401", "403", "404", "413", "429", "503")
"""The errors that many routes may answer; the page has them once."""
_NOT_THERE = "What the path names is not there, or is another project's or another caller's."
_PLAIN = "Successful Response"
_ELSEWHERE = {"PushFields": "push-fields.md"}
"""Schemas that another page describes."""
REFERENCE = {
    "EventIn": ("an [event](reference-events.md#event)", {"key", "on_conflict", "project"}),
    "EventTypeIn": ("an [event type](reference-events.md#event-type)", set()),
    "InstallationBody": (
        "an [installation](reference-events.md#installation), without `installation_id`",
        {"attributes", "owner", "project", "provider", "renew_secret"},
    ),
    "PreferenceBody": ("a [preference](reference-events.md#preference)", set()),
}
"""Schemas whose fields the reference describes, and the fields that differ over HTTP."""
_MOST_WORDS = 30
"""A schema of so many words stands where a route takes or returns it; a longer one has a section."""


def lines() -> Iterator[str]:
    """Yield the page, below its title."""
    page = HttpPage(document())
    yield from (page.linked(line) for line in page.lines())


def document() -> dict[str, Any]:
    """Return the OpenAPI document; making it asks nothing of a database."""
    return api.make().openapi()


def slug(heading: str) -> str:
    """Return the anchor of a heading, as Markdown renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain(text: str) -> str:
    """Keep what looks like HTML from being taken for it."""
    return text.replace("<", "&lt;")


class HttpPage:
    """The page of one OpenAPI document: what several routes share is described once."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """Find what the routes share."""
        self._schemas = told["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in told["paths"].items()
            for method, operation in methods.items()
        ]
        used: dict[str, None] = {}
        for _, _, operation in self._operations:
            used |= dict.fromkeys(self._named(operation.get("requestBody", {})))
        self._given: list[str] = list(used)
        for _, _, operation in self._operations:
            used |= dict.fromkeys(self._named([answer for answer in operation["responses"].values() if _top(answer)]))
        self._used: list[str] = list(used)
        nested = json.dumps([self._schemas[name] for name in self._used])
        self._nested = set(re.findall(r"#/components/schemas/(\w+)", nested))
        self._shared = self._find_shared()
        means = Counter(
            (code, answer["description"])
            for _, _, operation in self._operations
            for code, answer in operation["responses"].items()
            if code not in _OF_EACH and answer["description"] != _PLAIN
        )
        self._common_answers = {code: told for (code, told), times in means.items() if times > 1 and code != "200"}

    def lines(self) -> Iterator[str]:
        """Yield the page, below its title."""
        yield _INTRODUCTION
        common = self._operations[2][2]["responses"]
        errors = {code: _NOT_THERE if code == "404" else common[code]["description"] for code in _OF_EACH}
        yield from ("| status | meaning, unless the route has another |", "|---|---|")
        yield from (f"| {code} | {told} |" for code, told in sorted((self._common_answers | errors).items()))
        yield from ("", _SHARED.rstrip())
        yield from (f"| `{name}` | {kind} | {told} |" for name, (kind, told) in sorted(self._shared.items()))
        yield ""
        tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in self._operations))
        by_tag = sorted(self._operations, key=lambda each: tags.index(each[2]["tags"][0]))
        for tag, some in groupby(by_tag, key=lambda each: each[2]["tags"][0]):
            yield from (f"## Routes: {tag}", "")
            for operation in some:
                yield from self._operation(*operation)
        yield _REQUEST
        for name in self._given:
            if self._link(name) == _kind({"$ref": name}):
                yield from self._schema(name)
        yield _ANSWERS.rstrip()
        for name in self._used[len(self._given) :]:
            if self._link(name) == _kind({"$ref": name}):
                yield f"| `{name}` | {', '.join(self._names(name))} |"

    def linked(self, line: str) -> str:
        """Return a line of the page without links to schemas that are rows of the table of answers."""
        answers = "|".join(self._used[len(self._given) :])
        return re.sub(rf"\[({answers})\]\(#\w+\)", r"`\1`", line)

    def _operation(self, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
        told = operation.get("description", "")
        told = re.sub(r"\s*Takes a token of role [\w ]+\.", "", told)
        yield from (f"### {method} {path}", "", f"{plain(' '.join(told.split()))} Callers: {_roles(method, path)}.", "")
        if (method, path) not in EXAMPLES:
            sys.exit(f"{method} {path} has no call: add one to scripts/http_examples.py.")
        yield from ("```sh", EXAMPLES[method, path].curl(method, path), "```", "")
        asked = [each for each in operation.get("parameters", ()) if each["in"] != "path"]
        yield from self._fields({each["name"]: _parameter(each) for each in asked}, ())
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield f"- Body: {self._body(content['schema'])}"
        answers: dict[str, list[str]] = {}
        for code, answer in sorted(operation["responses"].items()):
            if code not in _OF_EACH or (code == "503" and _top(answer)):
                answers.setdefault(self._answer(code, answer), []).append(code)
        yield from (f"- {', '.join(codes)}: {told}".removesuffix(": ") for told, codes in answers.items())
        yield ""

    def _body(self, schema: Mapping[str, Any]) -> str:
        return " or ".join(self._schema_or_link(each) for each in schema.get("anyOf", [schema]))

    def _schema_or_link(self, schema: Mapping[str, Any]) -> str:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self._link(name) if name else "nothing"

    def _link(self, name: str) -> str:
        """Return the fields of a schema if they fit into the line, else a link to them."""
        if name in REFERENCE and not REFERENCE[name][1]:
            return f"the fields of {REFERENCE[name][0]}"
        return self._inline(name) or _kind({"$ref": name})

    def _answer(self, code: str, answer: Mapping[str, Any]) -> str:
        """Write what an answer means, and which body it has."""
        known = (_PLAIN, self._common_answers.get(code))
        means = "" if answer["description"] in known else plain(answer["description"])
        body = " or ".join(map(self._link, _top(answer)))
        return " ".join(filter(None, (means, body))) or ("" if code in self._common_answers else "no body")

    def _inline(self, name: str) -> str | None:
        """Return the fields of a schema in one line if it is short, and no other schema names it."""
        schema = self._schemas[name]
        if name in self._nested or name in REFERENCE or name in _ELSEWHERE:
            return None
        parts = []
        for field, told in schema.get("properties", {}).items():
            star = "\\*" if name in self._given and field in schema.get("required", ()) else ""
            means = _described(told)
            if self._is_shared(field, told):
                parts.append(f"{self._linked(field)}{star}")
            else:
                parts.append(f"`{field}`{star}, {_kind(told)}" + (f" ({means.rstrip('.')})" if means else ""))
        text = f"{'; '.join(parts)}. {'' if name in self._given else _described(schema)}".strip()
        return text if len(text.split()) <= _MOST_WORDS else None

    def _schema(self, name: str) -> Iterator[str]:
        if name in _ELSEWHERE:
            return
        schema = self._schemas[name]
        fields = dict(schema.get("properties", {}))
        stars = schema.get("required", ())
        alike = self._alike(name)
        yield from (f"### {name}", "", _described(schema), "")
        if alike:
            yield f"- the fields of {self._link(alike).removeprefix('the fields of ')}"
            fields = {field: told for field, told in fields.items() if field not in self._properties(alike)}
        elif name in REFERENCE:
            of, own = REFERENCE[name]
            yield f"- the fields of {of}"
            fields = {field: told for field, told in fields.items() if field in own}
        yield from self._fields(fields, stars)
        yield ""

    def _properties(self, name: str) -> dict[str, Any]:
        return dict(self._schemas[name].get("properties", {}))

    def _alike(self, name: str) -> str | None:
        """Return the first schema of the page whose fields this schema has, too."""
        for each in self._used[: self._used.index(name)]:
            fields = self._properties(each)
            if len(fields) > 1 and fields.items() <= self._properties(name).items() and self._inline(each) is None:
                return each
        return None

    def _fields(self, fields: Mapping[str, Any], stars: Sequence[str]) -> Iterator[str]:
        """Yield the fields that are described one by one, the others by their kind."""
        by_kind: dict[str, list[str]] = {}
        for field, told in fields.items():
            star = "\\*" if field in stars else ""
            if self._is_shared(field, told):
                by_kind.setdefault("", []).append(f"{self._linked(field)}{star}")
            elif (means := _described(told)) or "`" in _kind(told) or "[" in _kind(told):
                yield f"- `{field}`{star}, {_kind(told)}" + (f": {means}" if means else "")
            else:
                by_kind.setdefault(_kind(told), []).append(f"`{field}`{star}")
        yield from (f"- {kind}: {', '.join(names)}" for kind, names in by_kind.items() if kind)
        yield from (f"- {', '.join(names)}" for kind, names in by_kind.items() if not kind)

    def _names(self, name: str) -> Iterator[str]:
        """Yield the row of an answer: the names of its fields, each schema among them with its own row."""
        for field, told in self._properties(name).items():
            schemas = [each for each in re.findall(r"#/components/schemas/(\w+)", json.dumps(told)) if each != name]
            of = f" (`{schemas[0]}`)" if schemas and schemas[0] not in _ELSEWHERE else ""
            yield f"`{field}`{of}"

    def _find_shared(self) -> dict[str, tuple[str, str]]:
        """Return the fields that have one kind and one description in several places, by name."""
        seen = Counter(
            (each["name"], *_told(_parameter(each)))
            for _, _, operation in self._operations
            for each in operation.get("parameters", ())
            if each["in"] != "path"
        )
        for name in self._used:
            if name not in REFERENCE:
                before = [self._properties(each) for each in self._used[: self._used.index(name)]]
                known = next(
                    (each for each in before if len(each) > 1 and each.items() <= self._properties(name).items()), {}
                )
                seen.update(
                    (field, *_told(told)) for field, told in self._properties(name).items() if field not in known
                )
        return {
            name: (kind, told)
            for (name, kind, told), times in reversed(seen.most_common())
            if times > 1 and len(told.split()) > 1
        }

    def _is_shared(self, field: str, told: Mapping[str, Any]) -> bool:
        return self._shared.get(field) == _told(told)

    def _linked(self, field: str) -> str:
        return f"[`{field}`](#fields-of-several-routes)"

    def _named(self, body: Any) -> Iterator[str]:
        """Yield the schemas that a body has, each after those that name it."""
        for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(body)):
            yield name
            own = {field: told for field, told in self._properties(name).items() if _is_here(name, field)}
            yield from self._named(own) if name not in _ELSEWHERE else ()


def _is_here(name: str, field: str) -> bool:
    """Return whether this page describes the field of a schema."""
    return name not in REFERENCE or field in REFERENCE[name][1]


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter of a query or header as a schema; none of these can be null."""
    schema = parameter["schema"]
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return {**(choices[0] if len(choices) == 1 else schema), "description": parameter.get("description", "")}


def _described(told: Mapping[str, Any]) -> str:
    return plain(" ".join(told.get("description", "").split()))


def _told(told: Mapping[str, Any]) -> tuple[str, str]:
    return _kind(told), _described(told)


def _roles(method: str, path: str) -> str:
    rule = rule_of(method, path)
    if rule.own_check:
        return "the phone itself, app, operator" if "installation" in path or "inbox" in path else "a phone, any token"
    return ", ".join(sorted(rule.roles)) or "anybody"


def _top(answer: Mapping[str, Any]) -> list[str]:
    """Return the schemas that an answer may be, but for errors."""
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return [each["$ref"].rpartition("/")[2] for each in schema.get("anyOf", [schema]) if "$ref" in each]


def _kind(schema: Mapping[str, Any]) -> str:
    """Return in a few words the values of a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({_ELSEWHERE.get(name) or '#' + slug(name)})"
    if "anyOf" in schema:
        return _any_of([part for each in schema["anyOf"] for part in _choices(each)])
    if "enum" in schema or "const" in schema:
        return _any_of(_choices(schema))
    if schema.get("type") == "array":
        return f"list of{_limits(schema)} {_kind(schema.get('items', {})) or 'anything'}"
    return f"{schema.get('format') or schema.get('type', '')}{_limits(schema)}".replace("string", "text")


def _choices(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [f"`{json.dumps(each) if isinstance(each, bool) else each}`" for each in values] or [_kind(schema)]


def _any_of(choices: Sequence[str]) -> str:
    if sum(each.startswith("`") for each in choices) > 1:
        return f"one of {', '.join(choices)}"
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def _limits(schema: Mapping[str, Any]) -> str:
    """Return how long or large a value may be."""
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
