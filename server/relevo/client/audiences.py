"""Whom an event is for, as the SQL functions read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from relevo.client.checks import check_storable, quoted
from relevo.client.values import Everyone, Matching, Owners, Topic
from relevo.core.errors import InvalidInputError

_AUDIENCE = "audience must hold UUIDs of installations"


def as_audience(audience: object) -> dict[str, Any]:
    """Say whom an event is for as the SQL functions read it."""
    if type(audience) is list:  # as most are given: `match` costs a lot more
        return {
            "audience": "installations",
            "installations": [id_of_installation(each, _AUDIENCE) for each in audience],
        }
    match audience:
        case "everyone" | Everyone():
            return {"audience": "everyone"}
        case Matching():
            return _matching(audience)
        case Owners():
            check_storable("owners", audience.names)
            return {"audience": "owners", "owners": list(audience.names)}
        case Topic():
            check_storable("topics", audience.names)
            return {"audience": "matching", "topics": list(audience.names)}
        case str() | bytes() | Mapping():
            pass
        case Iterable():  # Phones, too
            return as_audience(list(audience))
    raise InvalidInputError(
        f"audience must be Everyone, Owners, Phones, Topic or Matching, got {quoted(audience)}.",
        hint="Write Everyone(), Owners('user-7'), Phones(id), Topic('football') or Matching(text='…').",
    )


def _matching(audience: Matching) -> dict[str, Any]:
    """Say what an event is about, or which attributes a phone must have."""
    check_storable("matching", vars(audience))
    asked = {name: plain_number(value) for name, value in vars(audience).items() if value is not None}
    where = asked.pop("where", None)
    if where is None:
        return {"audience": "matching", "matching": asked}
    if also := [name for name, value in asked.items() if value != []]:
        also_named = ", ".join(also)
        raise InvalidInputError(f"where stands alone in Matching, got {also_named} beside it.", hint="Leave it out.")
    return {"audience": "attributes", "where": where}


def id_of_installation(value: object, said: str = "installation_id must be the UUID of an installation") -> str:
    """Return the text of an installation's id; refuse what is none."""
    if not isinstance(value, UUID):
        as_text = isinstance(value, str)
        hint = "register() returns it; of its text, uuid.UUID(…) makes it." if as_text else "register() returns it."
        raise InvalidInputError(f"{said}, got {quoted(value)}.", hint=hint)
    return str(value)


def plain_number(value: Any) -> Any:
    """Return a value as JSON has it, if it is an exact number or a list."""
    if isinstance(value, Decimal):
        return float(value) if value % 1 else int(value)
    return list(value) if isinstance(value, tuple | list) else value
