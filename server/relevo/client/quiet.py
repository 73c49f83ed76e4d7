"""Quiet hours, in which phones make no sound, and caps on how many events an owner is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal
from uuid import UUID

from relevo.client.checks import check_storable, given_fields
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one

Whose = Literal["phone", "owner", "project", "none"]


@dataclass(frozen=True)
class QuietHours:
    """Quiet hours as they were set for an owner or a project, or as they hold for a phone."""

    windows: tuple[str, ...] | None
    """Windows such as 22:00-07:00, or sat,sun 07:00-10:00; None if none are set."""
    zone: str | None
    """Of a phone: the time zone that applies. Of an owner or a project: that of phones that registered none."""
    hours_of: Whose | None = None
    """Of a phone: whose hours hold, its own, its owner's or its project's."""
    zone_of: Whose | None = None
    """Of a phone: where the zone was set. `none`: nowhere, and UTC applies."""
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
    """Where an event above the cap goes: to the inbox alone, or also into the next digest."""


@verb
def set_cap(
    most: int | None,
    *,
    per: Period,
    category: str | None = None,
    project: str | None = None,
    over: Over | EllipsisType | None = ...,
) -> Call[bool]:
    """Set how many events of a category, or of all, an owner is sent at most in an hour, a day or a week.

    Relevo skips an event above the cap, or tells it in the next digest. Pass None as `most` to remove the cap. Without
    `over` the cap keeps the one it has. Urgent events and mandatory categories neither count nor are held. Returns
    False if nothing changed.
    """
    asked = given_fields({"project": project, "category": category, "per": per})
    asked |= _unless_left_out({"most": most, "over": over})
    check_storable("cap", asked)
    return Call("set_cap", {"asked": as_json("cap", asked)}, one(bool))


@verb
def list_caps(*, project: str | None = None) -> Call[list[Cap]]:
    """List the caps, of one project or of all."""
    return Call("list_caps", {"project": project}, one(lambda told: [Cap(**raw) for raw in from_json(told)]))


@verb
def set_quiet(
    windows: Sequence[str] | EllipsisType | None = ...,
    *,
    owner: str | None = None,
    installation_id: UUID | str | None = None,
    project: str | None = None,
    zone: str | EllipsisType | None = ...,
) -> Call[bool]:
    """Set quiet hours: of an owner's phones, of one phone, or of a project's phones that have no others.

    Windows are like 22:00-07:00 or sat,sun 07:00-10:00. Pass None to remove the hours; an empty list means never
    quiet. The zone is that of phones that registered none: an owner's or a project's hours need one, and so do those
    of a phone without a zone. An argument that is left out stays as it is set. Returns False if nothing changed.
    """
    hours = windows if windows is None or windows is ... else list(windows)
    asked = _asked(owner, installation_id, project) | _unless_left_out({"windows": hours, "zone": zone})
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


def _unless_left_out(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given of some fields: None removes, and is not the same as left out."""
    return {name: value for name, value in asked.items() if value is not ...}


def _asked(owner: str | None, installation_id: UUID | str | None, project: str | None) -> dict[str, Any]:
    installation = None if installation_id is None else str(installation_id)
    return given_fields({"owner": owner, "installation_id": installation, "project": project})


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
