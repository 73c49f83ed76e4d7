"""What people choose, for callers outside the database: categories and quiet hours, of owners and on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from relevo.access.api_tokens import Token
from relevo.access.phones import Known, NotAllowedError
from relevo.client import consent, quiet
from relevo.client.checks import check_storable
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.core import queries
from relevo.database.pool import Connection

Face = Literal["app", "phone", "operator"]
"""Who reported a choice: the app's server, the person's phone, or an operator."""

_SQL = queries.load("phone_access")


@verb
def list_categories(owner: str | None, project: str | None, locale: str | None) -> Call[list[Mapping[str, Any]]]:
    """List the categories in the words of a locale, with what an owner chose, as JSON has them."""
    given = {"owner": owner, "project": project, "locale": locale}
    asked = {name: value for name, value in given.items() if value is not None}
    for name, value in asked.items():
        check_storable(name, value)
    return Call("list_categories", {"asked": as_json("categories", asked)}, one(from_json))


@verb
def choose(face: Face, **given: Any) -> Call[bool]:
    """Record what an owner chose, as `relevo.choose` does, under the face that the caller proved."""
    return Call("choose_as", {"asked": consent.choice(**given), "face": face}, one(bool))


@verb
def get_quiet(asked: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
    """Return quiet hours, as JSON has them."""
    return Call("get_quiet", {"asked": as_json("quiet hours", asked)}, one(from_json))


def face_of(token: Token | None) -> Face:
    """Return the face under which a caller's choices are recorded; a caller without a token proved to be a phone."""
    if token is None:
        return "phone"
    return "operator" if token.role == "operator" else "app"


def choose_on_phone(connection: Connection, phone: Known, face: Face, given: Mapping[str, Any]) -> bool:
    """Record what the owner of a phone chose; return whether the record grew."""
    return choose(connection, face, **given, owner=_owner_of(phone), project=phone.project)


def set_quiet_on_phone(connection: Connection, phone: Known, asked: Mapping[str, Any], *, all_phones: bool) -> bool:
    """Set the quiet hours of a phone, or of all phones of its owner, by this phone's zone unless another is given."""
    if not all_phones:
        return quiet.set_quiet(connection, installation_id=phone.installation_id, **asked)
    owner = {"owner": _owner_of(phone), "project": phone.project}
    (here,) = connection.execute(_SQL["find_timezone"], {"installation_id": phone.installation_id}).fetchone() or (
        None,
    )
    zone = {} if here is None or quiet.get_quiet(connection, **owner).zone else {"zone": here}
    return quiet.set_quiet(connection, **{**zone, **asked, **owner})


def _owner_of(phone: Known) -> str:
    """Return the owner of a phone; raises NotAllowedError if it has none."""
    if phone.owner is None:
        raise NotAllowedError(
            "This phone has no owner who could choose.",
            hint="Register it with an owner, or with opt_outs of its own.",
        )
    return phone.owner
