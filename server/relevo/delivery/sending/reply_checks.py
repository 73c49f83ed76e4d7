"""Checks of what a push service's adapter returns, which anybody may have written, before it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from relevo.core.model import Accepted, Fate, Pauses, ReceiptReply, Reply, ReplyKind, TakenFate, Ticket

_FATES, _KINDS, _PAUSES = frozenset(get_args(Fate)), frozenset(get_args(ReplyKind)), frozenset(get_args(Pauses))
_TAKEN = frozenset(get_args(TakenFate))
_NOTHING_MORE = Ticket("ok")[2:]
_LONGEST_TEXT = 2_000
_LONGEST_PAUSE_MS = 7 * 86_400_000


def checked_reply(said: object) -> Reply | None:
    """Return a reply of which every part is what it should be; None if it is no reply at all."""
    if not isinstance(said, Reply) or said.kind not in _KINDS:
        return None
    projects = said.projects if isinstance(said.projects, Mapping) else {}
    at, tickets = said.not_before, _tickets(said.tickets)
    if said.kind == "answered" and tickets and not isinstance(tickets, Accepted):
        return _unsent(tickets) or Reply("answered", tickets)
    return Reply(
        said.kind,
        tickets,
        _text(said.code),
        _text(said.message),
        _pause_ms(said.retry_after_ms),
        {str(token): str(project) for token, project in projects.items()} if projects else {},
        at if isinstance(at, datetime) and at.tzinfo is not None else None,
    )


def _tickets(said: Sequence[Ticket]) -> Sequence[Ticket]:
    if isinstance(said, Accepted) and said.fate in _TAKEN and (accepted := Accepted.of(said.ids, said.fate)):
        return accepted
    tickets = tuple([checked_ticket(each) for each in said])
    return _all_taken(tickets) or tickets


def _all_taken(tickets: Sequence[Ticket]) -> Accepted | None:
    """Return tickets that say nothing but that their messages were taken, in the form that is settled at least cost."""
    fate = tickets[0].fate if tickets else None
    if fate not in _TAKEN or any(t.fate != fate or t[2:] != _NOTHING_MORE for t in tickets):
        return None
    return Accepted.of([ticket.id for ticket in tickets], fate)  # type: ignore[arg-type,misc] # refuses what is no text


def _unsent(tickets: Sequence[Ticket]) -> Reply | None:
    """Return the reply to a request of which no message was sent, as that is said of a whole request."""
    if any(ticket.fate != "not_sent" for ticket in tickets):
        return None
    pause_ms, first = max(ticket.retry_after_ms for ticket in tickets), tickets[0]
    paused = any(ticket.pauses == "project" for ticket in tickets)
    return Reply("throttled" if paused else "not_sent", (), first.code, first.message, pause_ms)


def checked_receipts(said: object) -> ReceiptReply | None:
    """Likewise of an answer to a question for receipts."""
    if not isinstance(said, ReceiptReply) or said.kind not in _KINDS or not isinstance(said.receipts, Mapping):
        return None
    receipts = {str(key): checked_ticket(each) for key, each in said.receipts.items()}
    return ReceiptReply(said.kind, receipts, _text(said.code), _text(said.message), _pause_ms(said.retry_after_ms))


def checked_ticket(said: object) -> Ticket:
    """Return a ticket of which every part is what it should be; what is none is `unclear`."""
    if not isinstance(said, Ticket) or not isinstance(said.fate, str) or said.fate not in _FATES:
        what = said.fate if isinstance(said, Ticket) else type(said).__name__
        return Ticket(
            "unclear", code="provider_failed", message=f"The push service's adapter said {what!r} of it."[:300]
        )
    fate, ticket_id, code, message, alert, pause_ms, pauses, gone_at = said
    if _is_text(ticket_id) and _is_text(code) and _is_text(message) and (pause_ms, gone_at) == (0, None):
        return said
    return Ticket(
        fate,
        _text(ticket_id),
        _text(code),
        _text(message),
        bool(alert),
        _pause_ms(pause_ms),
        pauses if isinstance(pauses, str) and pauses in _PAUSES else "message",
        gone_at if isinstance(gone_at, datetime) and gone_at.tzinfo is not None else None,
    )


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _text(value: Any) -> str | None:
    """Return what was said as text: a code may be a number, a message an exception."""
    return value if _is_text(value) else str(value)[:_LONGEST_TEXT]


def _pause_ms(value: Any) -> int:
    try:
        return min(max(int(value), 0), _LONGEST_PAUSE_MS)
    except (ArithmeticError, TypeError, ValueError):
        return 0
