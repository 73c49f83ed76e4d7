"""The audience of an event, as the SQL functions read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from relevo.client.checks import check_storable, quoted
from relevo.client.values import Everyone, Matching, Owners, Phones, Topic
from relevo.core.errors import InvalidInputError

_AUDIENCE = "audience must hold UUIDs of installations"


def as_audience(audience: object) -> dict[str, Any]:
    """Return the audience of an event as the SQL functions read it."""
    if type(audience) is list:  # as most are given: `match` costs a lot more
        return {
            "audience": "installations",
            "installations": [id_of_installation(each, _AUDIENCE) for each in audience],
        }
    match audience:
        case Everyone():
            said: dict[str, Any] = {"audience": "everyone"}
        case Owners():
            check_storable("owners", audience.names)
            said = {"audience": "owners", "owners": list(audience.names)}
        case Topic():
            check_storable("topics", audience.names)
            said = {"audience": "matching", "topics": list(audience.names)}
        case Phones():
            said = as_audience(list(audience.ids))
        case Matching():
            return _matching(audience)
        case "everyone":
            return {"audience": "everyone"}
        case Iterable() if not isinstance(audience, str | bytes | Mapping):
            return as_audience(list(audience))
        case _:
            raise InvalidInputError(
                f"audience must be Everyone, Owners, Phones, Topic or Matching, got {quoted(audience)}.",
                hint="Write Everyone(), Owners('user-7'), Phones(id), Topic('football') or Matching(text='…').",
            )
    return said | _narrowed(audience.where)


def _matching(audience: Matching) -> dict[str, Any]:
    """Return the matching fields of an event, or the attributes that a phone must have, or both."""
    check_storable("matching", vars(audience))
    asked = {name: plain_number(value) for name, value in vars(audience).items() if value is not None}
    narrowed = _narrowed(asked.pop("where", None))
    if narrowed and not any(value != [] for value in asked.values()):
        return {"audience": "attributes"} | narrowed
    return {"audience": "matching", "matching": asked} | narrowed


def _narrowed(where: object) -> dict[str, Any]:
    """Return the attributes that a phone must have, if the audience names any."""
    if where is None:
        return {}
    check_storable("where", where)
    return {"where": plain_numbers(where)}


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


def plain_numbers(attributes: object) -> object:
    """Return attributes as JSON has them: exact numbers, too."""
    if not isinstance(attributes, Mapping):
        return attributes
    return {name: plain_number(value) for name, value in attributes.items()}
