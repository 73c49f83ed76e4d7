"""Which claims a run makes side by side: two projects, each with two lanes."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.core.model import Lane
from relevo.cycles.dispatch.claiming import Claiming, PendingClaim
from relevo.delivery.claiming.due_lanes import DueLane
from relevo.delivery.report import Report

NOBODY: Any = None


def lane(project: str, name: Lane) -> DueLane:
    """Return a lane with something due."""
    return DueLane(project, name, 0.0)


def claiming(*pending: DueLane) -> Claiming:
    """Return a run's claims, some of which are being made."""
    return Claiming(NOBODY, NOBODY, Report(), [PendingClaim(each, 10) for each in pending])


SHOP, SHOP_URGENT, BANK, BANK_URGENT = (
    lane(project, name) for project in ("shop", "bank") for name in ("bulk", "urgent")
)  # type: ignore[arg-type]
CAFE = lane("cafe", "bulk")


@pytest.mark.parametrize(
    ("pending", "before", "waits_for", "has_room"),
    [
        ((), SHOP, (), True),
        ((SHOP,), SHOP, (SHOP,), False),
        ((SHOP,), SHOP_URGENT, (SHOP,), True),
        ((SHOP,), BANK, (), True),
        ((SHOP, BANK), BANK_URGENT, (BANK,), True),
        ((SHOP, SHOP_URGENT, BANK), SHOP, (SHOP, SHOP_URGENT), False),
        ((SHOP, SHOP_URGENT, BANK), BANK_URGENT, (BANK,), False),
        ((SHOP, SHOP_URGENT, BANK), CAFE, (SHOP, SHOP_URGENT, BANK), False),
    ],
)
def test_what_a_claim_waits_for(
    pending: tuple[DueLane, ...], before: DueLane, waits_for: tuple[DueLane, ...], has_room: bool
) -> None:
    """For those of its project, of either lane, and for all where three are being made; a lane is claimed once at a time."""
    made = claiming(*pending)
    assert tuple(each.lane for each in made.in_the_way(before)) == waits_for
    assert made.has_room(before) == has_room
