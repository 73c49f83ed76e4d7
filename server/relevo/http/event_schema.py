"""What the SQL functions require of an event besides the kinds of its fields, as the API's document says it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from relevo.http.fields import Text

SOMETHING: dict[str, JsonValue] = {"pattern": r"\S"}
_NULL: JsonValue = {"type": "null"}
_TEXT: JsonValue = {"type": "string", **SOMETHING}
_EMPTY: JsonValue = {"type": ["string", "null"], "maxLength": 0}


def _case(needed: dict[str, JsonValue], others: dict[str, JsonValue], audience: str = "") -> JsonValue:
    """Return one way in which an event is complete: what it needs, and how everything else then is."""
    named: dict[str, JsonValue] = {"audience": {"const": audience}} if audience else {}
    required: dict[str, JsonValue] = {"required": [*needed]} if needed else {}
    return {**required, "properties": {**named, **needed, **others}}


_SAYS_SOMETHING: list[JsonValue] = [
    _case({"title": _TEXT}, {"arguments": _NULL}),
    _case({"body": _TEXT}, {"arguments": _NULL}),
    _case({"data": {"type": "object", "minProperties": 1}}, {"arguments": _NULL}),
    _case({"arguments": {"type": "object"}}, {"title": _EMPTY, "body": _EMPTY}),
]
_NAMES_NOBODY: dict[str, JsonValue] = {"installations": _NULL, "owners": _NULL}
_ABOUT_NOTHING: dict[str, JsonValue] = {
    "topics": {"anyOf": [_NULL, {"type": "array", "maxItems": 0}]},
    "matching": _NULL,
}
_AUDIENCES: list[JsonValue] = [
    _case({}, {**_NAMES_NOBODY, **_ABOUT_NOTHING}, "everyone"),
    _case({"installations": {"type": "array"}}, {"owners": _NULL, **_ABOUT_NOTHING}, "installations"),
    _case({"owners": {"type": "array"}}, {"installations": _NULL, **_ABOUT_NOTHING}, "owners"),
    _case({"matching": {"type": "object"}}, _NAMES_NOBODY, "matching"),
    _case({"topics": {"type": "array", "minItems": 1}}, _NAMES_NOBODY, "matching"),
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

_KEYED = _case({"key": {"type": "string"}}, {})

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
