"""The outcome of a delivery, as one value: pure functions from a ticket, a verdict or a reply to its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relevo.core.model import Answer, Delivery, Obstacle, ReceiptReply, Reply, Ticket, Verdict
from relevo.core.phrases import release_command
from relevo.core.statuses import Status
from relevo.database.arrays import storable

LEAST_PAUSE_MS = 1_000
"""A composer that reschedules to the past is not called again and again in the same moment."""
MALFORMED = "MalformedMessage"
"""Our own word: such a message cannot even be written."""

_ENDINGS: Mapping[Obstacle, Status] = {
    "deadline_passed": "expired",
    **dict.fromkeys(("event_gone", "event_ended", "handled_elsewhere", "superseded"), "cancelled"),
}
_LONGEST_TICKET = 200
_LOOK_AGAIN_MS, _MINUTE_MS = 15 * 60_000, 60_000


def alerts(tickets: Iterable[Ticket]) -> list[str]:
    """Return what operators have to mend; credential faults are the breaker's to report."""
    return sorted({f"{t.code}: {t.message}" for t in tickets if t.alert and t.fate != "credential"})


def answer(
    delivery: Delivery, status: Status, *, code: str | None, message: str | None = None, ticket: str | None = None
) -> Answer:
    """Return the answer of a delivery; a failure or a retry spent an attempt."""
    attempted = status in ("failed", "retryable")
    return Answer(delivery.event_day, delivery.id, status, attempted, ticket, code, message)


def judged(delivery: Delivery, verdict: Verdict) -> Answer | None:
    """Return the answer for a delivery that the journal holds back."""
    if verdict.verdict == "send":
        return None
    if verdict.verdict == "sent":
        return answer(delivery, "sent", ticket=verdict.ticket_id, code=None)
    if verdict.not_before is not None:
        delivery = delivery._replace(quiet_until=verdict.not_before)
    return obstructed(delivery, verdict.verdict)


def obstructed(delivery: Delivery, obstacle: Obstacle | None) -> Answer | None:
    """Return the answer for a delivery that must not be sent any more; to a phone's new token it may be, next time."""
    if obstacle is None:
        return None
    if obstacle == "token_changed":
        return not_attempted(delivery, Reply("held_back", code=obstacle))
    if obstacle == "repeats_held":
        why = f"It was tried again too often. `{release_command(delivery.event_type)}` sends it."
        return not_attempted(delivery, Reply("held_back", code=obstacle, message=why), _held_ms(delivery))
    if obstacle == "quiet_hours":
        return not_attempted(delivery, Reply("held_back", code=obstacle, not_before=delivery.quiet_until))
    if obstacle == "quiet_expired":
        return answer(delivery, "expired", code="quiet_hours")
    return answer(delivery, _ENDINGS.get(obstacle, "skipped"), code=obstacle)


def _held_ms(delivery: Delivery) -> int:
    """Return how long a delivery of a held event waits: it is looked at once more before its deadline."""
    if delivery.seconds_left is None:
        return _LOOK_AGAIN_MS
    return min(_LOOK_AGAIN_MS, max(_MINUTE_MS, int(delivery.seconds_left * 1000) - _MINUTE_MS))


def reason(said: Reply | ReceiptReply | Ticket) -> str:
    """Return a fault in words: its code, and its message if there is one."""
    return f"{said.code}: {said.message}" if said.message else str(said.code)


def ticketed(
    delivery: Delivery,
    ticket: Ticket,
    floor_ms: int = 0,
    *,
    least_ms: int = 0,
    attempted: bool = True,
    blocked: bool = False,
) -> Answer:
    """Return what a ticket means for its delivery; what is the project's fault, or pauses it, costs it nothing.

    What nobody knows of waits `floor_ms` at least; what was tried, `least_ms`.
    """
    fate, ticket_id, code, message = ticket[:4]
    accepted = fate in ("sent", "ok")
    if fate == "unclear" or (accepted and not _is_usable(ticket_id)):
        reply = Reply("unclear", code=code, message=message)
        return ambiguous(delivery, reply, max(floor_ms, least_ms, ticket.retry_after_ms))
    if fate == "not_sent":
        reply = Reply("not_sent", code=code, message=message)
        return not_attempted(delivery, reply, max(LEAST_PAUSE_MS, ticket.retry_after_ms))._replace(not_sent=True)
    free = blocked if fate == "credential" else fate == "retryable" and ticket.pauses == "project"
    pause_ms = LEAST_PAUSE_MS if free else least_ms  # behind those that wait already
    return Answer(
        delivery.event_day,
        delivery.id,
        "retryable" if fate == "credential" else fate,
        attempted and not free,
        ticket_id if accepted else None,
        code,
        message,
        max(pause_ms, ticket.retry_after_ms) if fate in ("retryable", "credential") else 0,
        delivery.installation_id,
        delivery.token_version,
    )


def _is_usable(ticket_id: object) -> bool:
    """Return whether a ticket's id can be written down as it is."""
    return isinstance(ticket_id, str) and ticket_id != "" and storable(ticket_id, _LONGEST_TICKET) == ticket_id


def ambiguous(delivery: Delivery, reply: Reply, floor_ms: int) -> Answer:
    """Return what an answer that was not seen means: at most once is rather none than two."""
    status: Status = "unknown" if delivery.at_most_once else "retryable"
    said = answer(delivery, status, code=reply.code, message=reply.message)
    return said._replace(attempted=True, retry_after_ms=floor_ms, unclear=True)


def not_attempted(delivery: Delivery, reply: Reply, pause_ms: int = 0) -> Answer:
    """Return the answer for a push that was definitely not accepted, through no fault of its own."""
    said = answer(delivery, "retryable", code=reply.code, message=reply.message)
    return said._replace(attempted=False, retry_after_ms=pause_ms, not_before=reply.not_before)
