"""What the bodies of requests have in common: no unknown field, no null that is taken and then ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Text = Annotated[str, AfterValidator(_storable), Field(json_schema_extra={"pattern": "^[^\\u0000]*$"})]
"""A text that the database has room for."""


def _without_null(schema: dict[str, Any]) -> None:
    """Say of each field what can be sent: None is what it is if it was left out."""
    for field in schema.get("properties", {}).values():
        sent = [each for each in field.get("anyOf", ()) if each != {"type": "null"}]
        if len(sent) == 1:
            del field["anyOf"]
            field.update(sent[0])
        if field.get("default", ...) is None:
            del field["default"]


class Body(BaseModel):
    """A body whose fields are given, or left out (then they are None here), and never null."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_without_null)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null: leave it out instead")
        return value
