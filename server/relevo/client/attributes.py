"""Attributes: what an app knows of owners and phones, by which it chooses whom an event is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from relevo.client.audiences import plain_numbers
from relevo.client.checks import check_attributes, check_storable, given_fields
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one

Attribute = str | float | Decimal | bool | Sequence[str]
"""A text, a number, true or false, or several texts."""


@verb
def set_attributes(
    attributes: Mapping[str, Attribute | None],
    *,
    owner: str | None = None,
    installation_id: UUID | str | None = None,
    project: str | None = None,
) -> Call[bool]:
    """Set attributes of an owner or of one phone, such as `{"plan": "pro", "tags": ["a", "b"]}`.

    An attribute that is left out stays as it is; None removes it. An owner's attributes hold for the owner's phones in
    the project, and a phone's own go before them. Returns False if nothing changed.
    """
    asked = _asked(owner, installation_id, project)
    check_storable("attributes", attributes)
    check_attributes("attributes", attributes)
    return Call(
        "set_attributes", {"asked": as_json("attributes", asked | {"attributes": plain_numbers(attributes)})}, one(bool)
    )


@verb
def get_attributes(
    *, owner: str | None = None, installation_id: UUID | str | None = None, project: str | None = None
) -> Call[Mapping[str, Any]]:
    """Return the attributes of an owner, or those that hold for a phone: its own before its owner's."""
    asked = _asked(owner, installation_id, project)
    return Call("get_attributes", {"asked": as_json("attributes", asked)}, one(from_json))


def _asked(owner: str | None, installation_id: UUID | str | None, project: str | None) -> dict[str, Any]:
    installation = None if installation_id is None else str(installation_id)
    return given_fields({"owner": owner, "installation_id": installation, "project": project})
