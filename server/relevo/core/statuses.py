"""The states of a delivery."""

from __future__ import annotations

from typing import Literal, get_args

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
STATUSES: tuple[str, ...] = ("pending", *get_args(Status))
SENT: tuple[Status, ...] = ("sent", "ok", "unconfirmed")
"""Those that the push service took."""
