"""Verbs about quiet hours and caps: of owners, phones and projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from relevo.client import quiet
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.client.quiet import Cap
from relevo.core import queries
from relevo.database.pool import Connection
from relevo.verbs.callers import Caller
from relevo.verbs.choices import owner_of

_SQL = queries.load("phone_access")
_USUAL_PROJECT = "default"


def set_quiet(
    caller: Caller,
    hours: Mapping[str, Any],
    *,
    owner: str | None = None,
    phone: UUID | None = None,
    project: str | None = None,
) -> bool:
    """Set quiet hours: `windows`, `zone`, or both; return whether something changed.

    Those of a project concern all its people: the audit log has them, whoever sets them.
    """
    project, is_of_project = caller.own_project(project), owner is None and phone is None
    if is_of_project:
        project = project or _USUAL_PROJECT
    target = {"installation_id": phone and str(phone), "project": project}
    with caller.acting("set_quiet", owner=owner, recorded=is_of_project or None, **target) as act:
        return act.answer(quiet.set_quiet(act.connection, owner=owner, installation_id=phone, project=project, **hours))


def set_quiet_on_phone(caller: Caller, installation_id: UUID, hours: Mapping[str, Any], *, all_phones: bool) -> bool:
    """Set the quiet hours of a phone, or of all phones of its owner, by this phone's zone unless another is given."""
    with caller.acting_on_phone("set_quiet", installation_id) as (act, phone):
        whose: dict[str, Any] = {"installation_id": installation_id}
        if all_phones:
            whose = {"owner": owner_of(phone), "project": phone.project}
            if not quiet.get_quiet(act.connection, **whose).zone:
                hours = {**_zone_of(act.connection, installation_id), **hours}
        return act.answer(quiet.set_quiet(act.connection, **whose, **hours))


def _zone_of(connection: Connection, installation_id: UUID) -> dict[str, Any]:
    """Return the time zone that a phone registered, if it did."""
    row = connection.execute(_SQL["find_timezone"], {"installation_id": installation_id}).fetchone()
    return {"zone": row[0]} if row and row[0] else {}


def get_phone_quiet(caller: Caller, installation_id: UUID) -> Mapping[str, Any]:
    """Return the quiet hours that hold for a phone, as JSON has them."""
    with caller.reading_phone(installation_id) as (connection, _):
        return _get_quiet(connection, {"installation_id": str(installation_id)})


def get_project_quiet(caller: Caller, project: str | None) -> Mapping[str, Any]:
    """Return the quiet hours of a project's phones that have no others, as JSON has them."""
    asked = {"project": caller.own_project(project) or _USUAL_PROJECT}
    with caller.database.transaction() as connection:
        return _get_quiet(connection, asked)


@verb
def _get_quiet(asked: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
    return Call("get_quiet", {"asked": as_json("quiet hours", asked)}, one(from_json))


def set_cap(caller: Caller, /, *, project: str | None = None, **cap: Any) -> bool:
    """Set, change or remove a cap, as `relevo.set_cap` takes it; return whether something changed."""
    asked = {**cap, "project": caller.own_project(project) or _USUAL_PROJECT}
    with caller.acting("set_cap", recorded=True, **asked) as act:
        return act.answer(quiet.set_cap(act.connection, **asked))


def list_caps(caller: Caller, project: str | None) -> list[Cap]:
    """List the caps, of one project or of all."""
    project = caller.own_project(project)
    with caller.database.transaction() as connection:
        return quiet.list_caps(connection, project=project)
