"""Taps: what phones report of the pushes that were opened."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast
from uuid import UUID

from relevo.client.checks import check_storable, quoted
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, one
from relevo.core.errors import InvalidInputError

Opened = Literal["noted", "known", "off", "too_late", "gone"]
MOST_OF_ACTION = 100
_MOST_IDS = 2**63


@verb
def report_opened(
    installation_id: UUID, delivery_id: int, *, at: datetime | None = None, action: str | None = None
) -> Call[Opened]:
    """Note that the push of a delivery was opened on its phone, when, and by which of its buttons.

    `noted`, or `known` if that was reported before; `off` if the event's type does not ask for taps, `too_late` 30 days
    after it was sent or once it is archived, `gone` if this phone has no such delivery.
    """
    if not isinstance(installation_id, UUID):
        raise InvalidInputError(
            f"installation_id must be the UUID of an installation, got {quoted(installation_id)}.",
            hint="The push's data has it as installationId.",
        )
    if isinstance(delivery_id, bool) or not isinstance(delivery_id, int) or not 0 < delivery_id < _MOST_IDS:
        raise InvalidInputError(
            f"delivery_id must be a whole number above 0, got {quoted(delivery_id)}.",
            hint="The push's data has it as notificationDeliveryId.",
        )
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidInputError(f"at must be a datetime with its zone, got {quoted(at)}.", hint="Leave it out for now.")
    told = None if at is None else at.isoformat()
    asked: dict[str, str | int | None] = {
        "installation_id": str(installation_id),
        "delivery_id": delivery_id,
        "at": told,
        "action": _action(action),
    }
    return Call("report_opened", asked, one(lambda told: cast("Opened", told)))


def _action(value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_OF_ACTION:
        raise InvalidInputError(
            f"action must be text of 1 to {MOST_OF_ACTION} characters, got {quoted(value)}.",
            hint="Leave it out for a tap on the push itself.",
        )
    check_storable("action", value)
    return value
