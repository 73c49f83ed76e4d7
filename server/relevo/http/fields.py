"""Types of the fields of bodies and queries: what the API's document says of each is what is taken."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

_AMOUNT = r"^([0-9]{1,18}|[0-9]{1,17}\.[0-9]{1,2})$"
_TOO_MUCH = 10**18


def _number(value: Any) -> Any:
    if isinstance(value, str | bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 pydantic takes no other
    return value


def _amount(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and not re.fullmatch(_AMOUNT[1:-1], value)):
        raise ValueError("must be an amount below 10^18, with two decimals at most where it is given as text")
    return value


def given_one_of(*names: str) -> list[dict[str, Any]]:
    """Return, for a schema's `anyOf`, that one of these texts is given."""
    return [{"required": [name], "properties": {name: {"type": "string"}}} for name in names]


def _written(value: Any) -> Any:
    if not isinstance(value, str) or "T" not in value.upper():  # a number would be taken as seconds
        raise ValueError("must be a time with its zone, as 2026-11-17T09:30:00Z")
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_written)]
"""A time with its zone, in a body."""

NO_TEXT = BeforeValidator(_number)
"""Of a number in a body: it must not be given as text."""

Id = Annotated[int, Field(ge=1, lt=2**63), NO_TEXT]
"""The number of a row, in a body."""

_NUMBER = {"type": "number", "minimum": 0, "exclusiveMaximum": _TOO_MUCH}

Amount = Annotated[
    Decimal,
    BeforeValidator(_amount),
    Field(ge=0, lt=_TOO_MUCH),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "string", "pattern": _AMOUNT}]}),
]
"""An amount of money, in a body."""

AskedAmount = Annotated[Decimal, Field(ge=0, lt=_TOO_MUCH), WithJsonSchema(_NUMBER)]
"""An amount of money, in a query."""


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Text = Annotated[str, AfterValidator(_storable), Field(json_schema_extra={"pattern": "^[^\\u0000]*$"})]
"""A text that the database has room for."""

Text35 = Annotated[Text, Field(min_length=1, max_length=35)]
Text64 = Annotated[Text, Field(min_length=1, max_length=64)]
Text100 = Annotated[Text, Field(min_length=1, max_length=100)]
Text200 = Annotated[Text, Field(min_length=1, max_length=200)]
"""Texts that say something, in so many characters at most."""

Reason = Annotated[Text, Field(max_length=300)]
"""Why something is done; nobody has to say it."""


def without_null(schema: dict[str, Any], model: type[Body]) -> None:
    """Describe what can be sent for each field: None is its value if it was left out."""
    for name, field in schema.get("properties", {}).items():
        sent = [each for each in field.get("anyOf", ()) if each != {"type": "null"}]
        if len(sent) == 1 and name not in model.removable:
            del field["anyOf"]
            field.update(sent[0])
        if field.get("default", ...) is None:
            del field["default"]


MOST_UNKNOWN = 20
"""How many unknown fields are told; pydantic would make an error of each, and there may be a hundred thousand."""


class Exact(BaseModel):
    """A model in which nothing is unknown."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _tell_few_unknown(cls, given: Any) -> Any:
        """Leave out the unknown fields that nobody is told of."""
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields) + MOST_UNKNOWN:
            return given
        known = {each.alias or name for name, each in cls.model_fields.items()}
        told = islice((name for name in given if name not in known), MOST_UNKNOWN)
        return {name: given[name] for name in (*(known & given.keys()), *told)}


class Body(Exact):
    """A body whose fields are given, or left out (then they are None here); null removes what removable ones set."""

    removable: ClassVar[frozenset[str]] = frozenset()
    """The fields that may be null."""
    model_config = ConfigDict(extra="forbid", json_schema_extra=without_null)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name not in cls.removable:
            raise ValueError("must not be null: leave it out instead")
        return value
