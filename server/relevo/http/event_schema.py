"""What the SQL functions require of an event besides the kinds of its fields, as the API's document says it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from relevo.http.fields import Text

SOMETHING: dict[str, JsonValue] = {"pattern": r"\S"}
_TELLS_ITSELF: dict[str, JsonValue] = {"arguments": {"type": "null"}}
_SAYS_SOMETHING: list[JsonValue] = [
    {"required": ["title"], "properties": {"title": {"type": "string", **SOMETHING}, **_TELLS_ITSELF}},
    {"required": ["body"], "properties": {"body": {"type": "string", **SOMETHING}, **_TELLS_ITSELF}},
    {"required": ["data"], "properties": {"data": {"type": "object", "minProperties": 1}, **_TELLS_ITSELF}},
    {
        "required": ["arguments"],
        "properties": {
            "arguments": {"type": "object"},
            "title": {"type": ["string", "null"], "maxLength": 0},
            "body": {"type": ["string", "null"], "maxLength": 0},
        },
    },
]
_NAMES_NOBODY: dict[str, JsonValue] = {"installations": {"type": "null"}, "owners": {"type": "null"}}
_ABOUT_NOTHING: dict[str, JsonValue] = {
    "topics": {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]},
    "matching": {"type": "null"},
}
_AUDIENCES: list[JsonValue] = [
    {"properties": {"audience": {"const": "everyone"}, **_NAMES_NOBODY, **_ABOUT_NOTHING}},
    {
        "required": ["installations"],
        "properties": {
            "audience": {"const": "installations"},
            "installations": {"type": "array"},
            "owners": {"type": "null"},
            **_ABOUT_NOTHING,
        },
    },
    {
        "required": ["owners"],
        "properties": {
            "audience": {"const": "owners"},
            "owners": {"type": "array"},
            "installations": {"type": "null"},
            **_ABOUT_NOTHING,
        },
    },
    {
        "required": ["matching"],
        "properties": {"audience": {"const": "matching"}, "matching": {"type": "object"}, **_NAMES_NOBODY},
    },
    {
        "required": ["topics"],
        "properties": {
            "audience": {"const": "matching"},
            "topics": {"type": "array", "minItems": 1},
            **_NAMES_NOBODY,
        },
    },
]
BATCH: dict[str, JsonValue] = {
    "additionalProperties": False,
    "properties": {
        "key": {"type": ["string", "null"], "minLength": 1, "maxLength": 64},
        "title": {"type": ["string", "null"], "maxLength": 500},
        "body": {"type": ["string", "null"], "maxLength": 2_000},
    },
}
MATCHING: dict[str, JsonValue] = {
    "additionalProperties": False,
    "properties": {
        "rubros": {
            "type": ["array", "null"],
            "maxItems": 2000,
            "items": {"type": "string", "minLength": 1, "maxLength": 100},
        },
        "region": {"type": ["string", "null"], "maxLength": 200},
        "tipo": {"type": ["string", "null"], "maxLength": 100},
        "text": {"type": ["string", "null"], "maxLength": 20_000},
        "monto": {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 10**18},
        "moneda": {"type": ["string", "null"], "pattern": "^[A-Z]{3}$"},
    },
}

_KEYED: JsonValue = {"required": ["key"], "properties": {"key": {"type": "string"}}}

EVENT: dict[str, JsonValue] = {
    "examples": [{"type": "order.shipped", "key": "order-40", "title": "On its way", "audience": "everyone"}],
    "additionalProperties": False,
    "allOf": [{"anyOf": _SAYS_SOMETHING}, {"anyOf": _AUDIENCES}],
}
"""It says something, and its audience has what it needs and no more."""

KEYED_EVENT = EVENT | {"allOf": [{"anyOf": _SAYS_SOMETHING}, {"anyOf": _AUDIENCES}, _KEYED]}
"""And it has its key with it."""

Moment = Annotated[Text, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
