"""Quiet hours: when phones are left in peace, and the caps on how much they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from relevo.client.checks import check_storable
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one

Whose = Literal["phone", "owner", "project", "none"]


@dataclass(frozen=True)
class QuietHours:
    """Quiet hours as they were set for an owner or a project, or as they hold for a phone."""

    windows: tuple[str, ...] | None
    """Such as 22:00-07:00, or sat,sun 07:00-10:00; None if none are set."""
    zone: str | None
    """The time zone of a phone; of an owner or a project that of phones that did not say theirs."""
    hours_of: Whose | None = None
    """Of a phone: whose hours hold, its own, its owner's or its project's."""
    zone_of: Whose | None = None
    """Of a phone: who said the zone; if nobody did, it is UTC."""
    quiet_until: datetime | None = None
    """Of a phone: when it may be sent to again; None if it may be now."""


Period = Literal["hour", "day", "week"]
Over = Literal["skip", "digest"]


@dataclass(frozen=True)
class Cap:
    """How many events an owner is sent at most by the phones of a project."""

    project: str
    category: str | None
    """Of which category; None: of all together."""
    per: Period
    """In an hour, a day or a week of their calendar."""
    most: int
    over: Over = "skip"
    """What becomes of what is over it: found in the inbox alone, or told in the next digest, too."""


@verb
def set_cap(
    most: int | None,
    *,
    per: Period,
    category: str | None = None,
    project: str | None = None,
    over: Over | None = None,
) -> Call[bool]:
    """Set how many events of a category, or of all, an owner is sent at most in an hour, a day or a week.

    What is over it is skipped, or told in the next digest. None takes the cap away. Urgent events and mandatory
    categories neither count nor are held. The same again changes nothing: False.
    """
    given = {"project": project, "category": category, "per": per, "most": most, "over": over}
    asked = {name: value for name, value in given.items() if value is not None}
    check_storable("cap", asked)
    return Call("set_cap", {"asked": as_json("cap", asked)}, one(bool))


@verb
def list_caps(*, project: str | None = None) -> Call[list[Cap]]:
    """List the caps, of one project or of all."""
    return Call("list_caps", {"project": project}, one(lambda told: [Cap(**raw) for raw in from_json(told)]))


@verb
def set_quiet(
    windows: Sequence[str] | None,
    *,
    owner: str | None = None,
    installation_id: UUID | str | None = None,
    project: str | None = None,
    zone: str | None = None,
) -> Call[bool]:
    """Set quiet hours: of an owner's phones, of one phone, or of a project's phones that have no others.

    Windows are like 22:00-07:00 or sat,sun 07:00-10:00. None takes the hours back, an empty list means never quiet.
    The zone is for phones that did not say theirs. The same again changes nothing: False.
    """
    asked = _asked(owner, installation_id, project)
    asked |= {"windows": None if windows is None else list(windows)} | ({} if zone is None else {"zone": zone})
    check_storable("quiet hours", asked)
    return Call("set_quiet", {"asked": as_json("quiet hours", asked)}, one(bool))


@verb
def get_quiet(
    *, owner: str | None = None, installation_id: UUID | str | None = None, project: str | None = None
) -> Call[QuietHours]:
    """Return the quiet hours that were set for an owner or a project, or those that hold for a phone."""
    asked = _asked(owner, installation_id, project)
    check_storable("quiet hours", asked)
    return Call("get_quiet", {"asked": as_json("quiet hours", asked)}, one(_hours))


def _asked(owner: str | None, installation_id: UUID | str | None, project: str | None) -> dict[str, Any]:
    installation = None if installation_id is None else str(installation_id)
    given = {"owner": owner, "installation": installation, "project": project}
    return {name: value for name, value in given.items() if value is not None}


def _hours(told: Any) -> QuietHours:
    raw = from_json(told)
    until, windows = raw["quiet_until"], raw["windows"]
    return QuietHours(
        **raw
        | {
            "windows": None if windows is None else tuple(windows),
            "quiet_until": until and datetime.fromisoformat(until),
        }
    )
