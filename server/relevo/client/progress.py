"""How far an event is, in the one word that all faces use."""

from __future__ import annotations

from collections.abc import Mapping

from relevo.core.statuses import EventState, Progress


def progress_of(state: EventState, deliveries: Mapping[str, int]) -> Progress:
    """Return in a word how far an event is: its state, and once its deliveries are made, what is left to do with them.

    It is finished when nothing of it is left to send or to confirm, as in the news `event.finished`.
    """
    if state != "fanned":
        return state
    if deliveries.get("pending") or deliveries.get("retryable"):
        return "sending"
    return "sent" if deliveries.get("sent") else "finished"
