"""Taps: what phones report of the pushes that were opened."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast
from uuid import UUID

from relevo.client.checks import check_storable, id_of, quoted, time_of, uuid_of
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, one
from relevo.core.errors import InvalidInputError

Opened = Literal["noted", "known", "off", "too_late", "unsent", "gone"]
MOST_OF_ACTION = 100


@verb
def report_opened(
    installation_id: UUID, delivery_id: int, *, at: datetime | None = None, action: str | None = None
) -> Call[Opened]:
    """Note that the push of a delivery was opened on its phone, when, and by which of its buttons.

    `noted`, or `known` if that was reported before; `off` if the event's type does not ask for taps, `too_late` 30 days
    after it was sent or once it is archived, `unsent` if no push service can have taken it, `gone` if this phone has no
    such delivery.
    """
    asked: dict[str, str | int | None] = {
        "installation_id": uuid_of("installation_id", installation_id, "The push's data has it as installationId."),
        "delivery_id": id_of("delivery_id", delivery_id, "The push's data has it as notificationDeliveryId."),
        "at": None if at is None else time_of("at", at, "Leave it out for now."),
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
