"""States as pages show them: a word in the reader's language, and the colour that goes with it."""

from __future__ import annotations

from typing import get_args

from relevo.core.model import Lane, ReplyKind, Trigger
from relevo.http.dashboard.html import Markup
from relevo.http.dashboard.language import t
from relevo.http.dashboard.page import badge

EVENT_STATES = ("waiting", "held", "fanning", "fanned", "cancelled", "completed")
DELIVERY_STATUSES = (
    "pending",
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
)
OUTCOMES = ("running", "idle", "ok", "partial", "failed", "skipped", "abandoned")
WORDS = frozenset(
    {
        *EVENT_STATES,
        *("sending", "finished"),
        *DELIVERY_STATUSES,
        *OUTCOMES,
        *("alive", "late", "stopped", "lost", "silent", "stopping"),
        *("closed", "open", "probing"),
        *("unchanged", "unavailable", "rejected"),
        *("moving", "sealed", "retired", "exported", "verified", "dropped", "begun"),
        *("none", "on", "off", "paused", "rests", "confirmed"),
        *("everyone", "installations", "matching", "owners"),
        *("granted", "denied", "undetermined"),
        *get_args(Lane),
        *get_args(Trigger),
        *get_args(ReplyKind),
    }
)
"""Every word of ours that stands for a state somewhere: each has its Spanish, which a test sees to."""
KINDS = {
    "ok": "good",
    "alive": "good",
    "closed": "good",
    "on": "good",
    "confirmed": "good",
    "verified": "good",
    "answered": "good",
    "partial": "warn",
    "stopping": "warn",
    "silent": "warn",
    "late": "warn",
    "probing": "warn",
    "paused": "warn",
    "rests": "warn",
    "held": "warn",
    "retryable": "warn",
    "unconfirmed": "warn",
    "unknown": "warn",
    "expired": "warn",
    "throttled": "warn",
    "unclear": "warn",
    "open": "bad",
    "failed": "bad",
    "abandoned": "bad",
    "lost": "bad",
    "unavailable": "bad",
    "rejected": "bad",
    "invalid": "bad",
    "unauthorised": "bad",
    "not_sent": "bad",
}


def state(word: str | None, kind: str | None = None) -> Markup:
    """Write a state as a badge, in its colour unless another is given."""
    word = word or "none"
    return badge(t(word).replace("_", " "), KINDS.get(word, "") if kind is None else kind)
