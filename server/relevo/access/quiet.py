"""Quiet hours and caps for callers outside the database: an app's server for its owners, a phone for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from relevo.access import choices, phones
from relevo.access.phones import Proof
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.database.pool import Connection


@verb
def set_quiet(asked: Mapping[str, Any]) -> Call[bool]:
    """Set quiet hours; return whether something changed."""
    return Call("set_quiet", {"asked": as_json("quiet hours", asked)}, one(bool))


@verb
def get_quiet(asked: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
    """Return quiet hours, as JSON has them."""
    return Call("get_quiet", {"asked": as_json("quiet hours", asked)}, one(from_json))


@verb
def set_cap(asked: Mapping[str, Any]) -> Call[bool]:
    """Set, change or take away a cap; return whether something changed."""
    return Call("set_cap", {"asked": as_json("cap", asked)}, one(bool))


@verb
def list_caps(project: str | None) -> Call[list[Mapping[str, Any]]]:
    """List the caps, as JSON has them."""
    return Call("list_caps", {"project": project}, one(from_json))


def get_of_phone(connection: Connection, installation_id: UUID, proof: Proof) -> Mapping[str, Any]:
    """Return the quiet hours that hold for a phone."""
    phones.admit_known(connection, installation_id, proof)
    return get_quiet(connection, {"installation": str(installation_id)})


def set_on_phone(
    connection: Connection, installation_id: UUID, asked: Mapping[str, Any], all_phones: bool, proof: Proof
) -> bool:
    """Set the quiet hours of a phone, or of all phones of its owner."""
    known = phones.admit_known(connection, installation_id, proof)
    if all_phones:
        return set_quiet(connection, {**asked, "owner": choices.owner_of(known), "project": known.project})
    return set_quiet(connection, {**asked, "installation": str(installation_id)})
