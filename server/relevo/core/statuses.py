"""The states of events and deliveries, in the words that SQL, Python, HTTP, the kits and the pages share."""

from __future__ import annotations

from typing import Literal, get_args

EventState = Literal["waiting", "held", "fanning", "fanned", "cancelled", "completed"]
"""The states of an event."""
EVENT_STATES: tuple[EventState, ...] = get_args(EventState)
Progress = Literal["waiting", "held", "fanning", "sending", "sent", "finished", "cancelled", "completed"]
"""How far an event is: its state, and in place of `fanned` what is left to do with its deliveries."""
Status = Literal[
    "retryable",
    "sent",
    "ok",
    "unconfirmed",
    "invalid",
    "failed",
    "expired",
    "skipped",
    "cancelled",
    "unknown",
]
"""The statuses of deliveries after pending."""
DeliveryStatus = Literal["pending", Status]
"""The state of a delivery."""
STATUSES: tuple[str, ...] = ("pending", *get_args(Status))
SENT: tuple[Status, ...] = ("sent", "ok", "unconfirmed")
"""Those that the push service took."""
