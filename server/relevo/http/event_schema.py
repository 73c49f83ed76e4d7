"""The rules of the SQL functions for an event besides the types of its fields, as the API's document has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, JsonValue

from relevo.client.push_rules import PUSH_FIELDS, Rule
from relevo.http.fields import Text

SOMETHING: dict[str, JsonValue] = {"pattern": r"\S"}
_NULL: JsonValue = {"type": "null"}
_TEXT: JsonValue = {"type": "string", **SOMETHING}
_NO_NUL = "^[^\\u0000]*$"
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
    _case({"where": {"type": "object"}}, {**_NAMES_NOBODY, **_ABOUT_NOTHING}, "attributes"),
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
_ATTRIBUTE_TEXT: JsonValue = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": _NO_NUL}
_ATTRIBUTE: list[JsonValue] = [
    _ATTRIBUTE_TEXT,
    {"type": "number", "exclusiveMinimum": -(10**15), "exclusiveMaximum": 10**15},
    {"type": "boolean"},
    {"type": "array", "minItems": 1, "maxItems": 50, "items": _ATTRIBUTE_TEXT},
]
ATTRIBUTES: dict[str, JsonValue] = {
    "maxProperties": 50,
    "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9_.-]{0,49}$"},
    "additionalProperties": {"anyOf": [*_ATTRIBUTE, _NULL]},
}
"""Attributes to set: null removes one."""
KNOWN_ATTRIBUTES: dict[str, JsonValue] = {
    "propertyNames": ATTRIBUTES["propertyNames"],
    "additionalProperties": {"anyOf": _ATTRIBUTE},
}
"""Attributes as they hold for a phone: its own and its owner's."""
WHERE: dict[str, JsonValue] = {**ATTRIBUTES, "minProperties": 1, "additionalProperties": {"anyOf": _ATTRIBUTE}}
"""Attributes that a phone must have."""

_KEYED = _case({"key": {"type": "string"}}, {})

EVENT: dict[str, JsonValue] = {
    "examples": [{"type": "order.shipped", "key": "order-40", "title": "On its way", "audience": "everyone"}],
    "additionalProperties": False,
    "allOf": [{"anyOf": _SAYS_SOMETHING}, {"anyOf": _AUDIENCES}],
}
"""The event has content, and its audience has what it needs and no more."""

KEYED_EVENT = EVENT | {"allOf": [{"anyOf": _SAYS_SOMETHING}, {"anyOf": _AUDIENCES}, _KEYED]}
"""And it has its key with it."""

Moment = Annotated[Text, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]


def describe_push(schemas: dict[str, Any]) -> None:
    """Describe the push of every event by the table that checks it."""
    schemas["PushFields"] = {
        "title": "PushFields",
        "description": "What a push may carry beside title, body and data; objects of a platform are for its phones.",
        **_fields(PUSH_FIELDS),
    }
    for schema in schemas.values():
        if "audience" in (own := schema.get("properties", {})) and "push" in own:
            own["push"]["anyOf"] = [{"$ref": "#/components/schemas/PushFields"}, {"type": "null"}]


def _fields(rules: Mapping[str, Rule], needed: list[str] | None = None) -> dict[str, Any]:
    described = {name: _described(rule, name not in (needed or ())) for name, rule in rules.items()}
    required = {"required": needed} if needed else {}
    return {"type": "object", "additionalProperties": False, "properties": described, **required}


def _described(rule: Rule, nullable: bool = False) -> dict[str, Any]:
    """Return what a rule of the table takes; a field of null counts as missing."""
    shapes = [*_shapes(rule), *([{"type": "null"}] if nullable else ())]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _shapes(rule: Rule) -> list[dict[str, Any]]:
    kind, _, other = rule["kind"].partition(" or ")
    found: list[dict[str, Any]] = []
    match kind:
        case "text":
            found.append({"type": "string", "minLength": 1, "maxLength": rule["most"], "pattern": _NO_NUL})
        case "color":
            found.append({"type": "string", "pattern": "^#[0-9A-Fa-f]{6}$"})
        case "choice":
            found.append({"enum": rule["of"]})
        case "boolean":
            found.append({"type": "boolean"})
        case "list":
            found.append({"type": "array", "minItems": 1, "maxItems": rule["most"], "items": _described(rule["each"])})
        case "number" | "whole number":
            number = "integer" if kind == "whole number" else "number"
            found.append({"type": number, "minimum": rule["low"], "maximum": rule["high"]})
    if "object" in (kind, other):
        found.append(_fields(rule["fields"], rule.get("needs")))
    return [*found, {"const": rule["word"]}] if other == "word" else found
