"""One push request: sent through the middlewares, withdrawn until it is begun, checked when it is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from relevo.core.errors import OwnershipLostError, Reschedule
from relevo.core.logs import normalise_error
from relevo.core.messages import Message
from relevo.core.model import Reply, Ticket
from relevo.core.ports import PushContext, PushMiddleware, PushProvider
from relevo.delivery.sending.reply_checks import checked_reply

_log = structlog.get_logger("relevo.sending")


class Sending:
    """How far one push request is, for whoever waits for it; it can be withdrawn until it is begun.

    `may_send` is called last of all; if it raises OwnershipLostError, so does whoever sends.
    """

    def __init__(self, may_send: Callable[[], bool] = lambda: True) -> None:
        self._may_send = may_send
        self._guard = threading.Lock()
        self._asked = False
        self._withdrawn = False
        self._hand_in: Callable[[Reply], None] | None = None
        self.begun_at: float | None = None
        self.answered_at: float | None = None
        self.reply: Reply | None = None
        """The push service's reply, even while a middleware has not returned."""
        self._accepted: dict[int, Ticket] = {}

    def begin(self) -> bool:
        """Return, in the last moment, whether the request may be sent; raises the second time."""
        with self._guard:
            if self._asked:
                raise RuntimeError("a middleware called next() twice; the request was sent once")
            self._asked = True
        allowed = self._may_send()
        with self._guard:
            if self._withdrawn:
                raise OwnershipLostError("error", "The request was given up before it was begun.")
            self.begun_at = time.monotonic() if allowed else None
        return allowed

    def withdraw(self) -> bool:
        """Keep the request from being sent; False if it was begun already."""
        with self._guard:
            self._withdrawn = self.begun_at is None
            return self._withdrawn

    def answer(self, reply: Reply) -> None:
        """Take the push service's word, and hand it in if nobody waits for it any more."""
        with self._guard:
            self.reply, self.answered_at = reply, time.monotonic()
            hand_in = self._hand_in
        if hand_in is not None:
            hand_in(reply)

    def accept(self, place: int, ticket: Ticket) -> None:
        """Take the ticket of one message that the push service accepted, while it has not answered others."""
        self._accepted[place] = ticket

    def take_accepted(self) -> dict[int, Ticket]:
        """Return the tickets that came since the last call, by place; one that is missed stands in the reply."""
        taken, self._accepted = self._accepted, {}
        return taken

    def give_up(self, hand_in: Callable[[Reply], None]) -> Reply | None:
        """Wait no longer: return the answer if it is there after all; what comes later is handed in."""
        with self._guard:
            if self.reply is None:
                self._hand_in = hand_in
            return self.reply


def send(
    provider: PushProvider,
    messages: Sequence[Message],
    context: PushContext,
    middlewares: Sequence[PushMiddleware],
    sending: Sending,
) -> Reply:
    """Send one request through the middlewares: raising before it holds it back, raising after it loses no answer."""
    lost: list[OwnershipLostError] = []

    def post() -> Reply:
        try:
            allowed = sending.begin()
        except OwnershipLostError as error:
            lost.append(error)
            raise
        reply = _post(provider, messages, context.project, sending) if allowed else Reply("held_back")
        sending.answer(reply)
        return reply

    call: Callable[[], Reply] = post
    for middleware in reversed(middlewares):
        call = partial(middleware, context, call)
    reply = Reply("held_back", code="middleware_failed", message="next() was not called")
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 a middleware may raise anything
        if not lost:
            reply = _held_back(error, context, sent=sending.reply is not None)
    if lost:  # whatever became of that on its way out
        raise lost[0]
    if sending.reply is None and not sending.withdraw():  # a thread of a middleware's own is still at it
        reply = Reply("unclear", code="middleware_failed", message="A push middleware did not wait for the answer.")
    return sending.reply or reply


def _held_back(error: BaseException, context: PushContext, *, sent: bool) -> Reply:
    """Return what a middleware that raised means for a request that was not sent."""
    if isinstance(error, Reschedule):
        return _rescheduled(error)
    why = normalise_error(error)
    _log.error("push_middleware_failed", request=str(context.request_id), sent=sent, error=why)
    return Reply("held_back", code="middleware_failed", message=why)


def _post(provider: PushProvider, messages: Sequence[Message], project: str, sending: Sending) -> Reply:
    """Send; a provider that raises what is no wish, or does not return a reply, may have sent."""
    try:
        accept = (sending.accept,) if getattr(provider, "answers_in_parts", False) else ()
        call: Callable[..., object] = provider.send
        said = call(messages, project, *accept)
        reply = checked_reply(said)
    except Reschedule as wish:
        return _rescheduled(wish)
    except BaseException as error:  # noqa: BLE001 nobody knows how far it came
        _log.exception("provider_failed", provider=provider.name)
        return Reply("unclear", code="provider_failed", message=normalise_error(error))
    if reply is not None:
        return reply
    _log.error("provider_failed", provider=provider.name, returned=type(said).__name__)
    return Reply("unclear", code="provider_failed", message="The push service's adapter returned no reply.")


def _rescheduled(wish: Reschedule) -> Reply:
    return Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
