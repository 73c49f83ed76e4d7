"""The messages of a claim, one for each of its deliveries. Nothing that kills the worker here was journalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from relevo.client.checks import is_blank
from relevo.core.errors import Reschedule
from relevo.core.logs import normalise_error
from relevo.core.messages import Message, WrittenMessage
from relevo.core.model import NEWS, Answer, Delivery, Reply
from relevo.core.ports import ChecksTokens, Composer, ProviderFacts, WritesMessages
from relevo.delivery.composing import webhook_messages
from relevo.delivery.composing.drafts import Drafts, Kind
from relevo.delivery.sending.reply_checks import checked_ticket
from relevo.delivery.settling.outcomes import LEAST_PAUSE_MS, MALFORMED, answer, not_attempted, obstructed, ticketed
from relevo.delivery.worker_services import ClaimContext, WorkerServices
from relevo.runtime import threads
from relevo.runtime.hung_calls import MOST_CALLS, HungCall

Writer = Callable[[Delivery], WrittenMessage]
SHOWS_NOTHING = "shows_nothing"
_MOST_HUNG_HERE = 4


class _Hanging(NamedTuple):
    """A delivery whose composer takes its time."""

    delivery: Delivery
    call: HungCall
    answer: Future[Answer | None]


class Built(NamedTuple):
    """Messages that are ready to be sent, and the answers of the other deliveries."""

    ready: list[Delivery]
    answers: list[Answer]

    @classmethod
    def of(cls, composed: Iterable[tuple[Delivery, Answer | None]]) -> Built:
        """Divide deliveries into those that are answered already and the others."""
        built = cls([], [])
        for delivery, answered in composed:
            if answered is None:
                built.ready.append(delivery)
            else:
                built.answers.append(answered)
        return built


@dataclass
class MessageBuilder:
    """The messages of one claim: most are an event's draft with a phone's names in it, some are a composer's own."""

    context: ClaimContext
    messages: dict[int, Message] = field(default_factory=dict)
    """Messages to be sent, by the delivery's id."""
    hanging: list[_Hanging] = field(default_factory=list)
    drafts: Drafts = field(init=False)
    _names: webhook_messages.Names = field(default_factory=webhook_messages.Names)

    def __post_init__(self) -> None:
        """Begin with nothing read."""
        self.drafts = Drafts(self.context)

    @property
    def _services(self) -> WorkerServices:
        return self.context.services

    def build(self, deliveries: Sequence[Delivery]) -> Built:
        """Write every delivery's message; what must not be sent is answered already."""
        self.drafts.read(deliveries)
        if self._compose_plainly(deliveries):
            return Built(list(deliveries), [])
        self._names = webhook_messages.read_names(self._services.database, deliveries, self.drafts.contents)

        def compose(delivery: Delivery) -> Answer | None:
            return (
                obstructed(delivery, delivery.obstacle)
                or self._paused(delivery)
                or self._held_up(delivery)
                or self._left_to_others(delivery)
                or self._compose_one(delivery)
            )

        composed = threads.in_turn(
            "relevo-composing", deliveries, compose, patience_s=self.context.patience_s, leave=self._leave
        )
        return Built.of(composed)

    def _compose_plainly(self, deliveries: Sequence[Delivery]) -> bool:
        """Write all messages at once, if no code of others is called and nothing stands in the way of any delivery.

        The adapter checks tokens at once, without waiting for anything. It earns 13 % of the row fcm of
        `make bench ARGS="--only fcm --set native=2000"`, run with it and with `_compose_one` in turns.
        """
        provider = self.context.provider
        if self._services.phone_pauses.any_of(deliveries):
            return False
        if not isinstance(provider, ChecksTokens) or provider.refuses_any([delivery.token for delivery in deliveries]):
            return False
        writers: dict[Kind, Writer] = {}
        messages: dict[int, Message] = {}
        for delivery in deliveries:
            kind = self.drafts.kind(delivery)
            write = writers.get(kind)
            if write is None:
                write = self._writer(delivery)
                if write is None:
                    return False
                writers[kind] = write
            if delivery.obstacle is not None:
                return False
            messages[delivery.id] = write(delivery)
        self.messages.update(messages)
        return True

    def _writer(self, delivery: Delivery) -> Writer | None:
        """Return what writes the pushes of a delivery's event to such phones, unless each has to be checked."""
        content, provider = self.drafts.contents.get(delivery.notification_event_id), self._message_writer
        if content is None or provider is None or delivery.event_type in self._services.composers:
            return None
        if self.drafts.lacks_words(content) or self.drafts.is_over(delivery):
            return None
        try:
            draft, light = self.drafts.draft(content, delivery)
        except (ArithmeticError, TypeError, ValueError, RecursionError):
            return None
        if not light or (draft.is_silent and not self._takes_silent):
            return None
        return provider.writer(draft, delivery.platform)

    def returned(self, timeout_s: float) -> Built:
        """Wait a moment for what hangs, and return what its composer brought after all."""
        wait([each.answer for each in self.hanging], timeout=timeout_s, return_when=FIRST_COMPLETED)
        back = [each for each in self.hanging if each.answer.done()]
        self.hanging = [each for each in self.hanging if each not in back]
        return Built.of((each.delivery, each.answer.result()) for each in back)

    def give_up(self) -> list[Answer]:
        """Wait for no composer any more, and report that; return the answers: one that hangs costs an attempt."""
        hanging, self.hanging = self.hanging, []
        self.context.report.add_hung(*(self._services.hung.give_up(each.call) for each in hanging))
        return [
            answer(each.delivery, "retryable", code="composer_hung", message=f"{each.call.what} did not return")
            for each in hanging
        ]

    def _composer_of(self, delivery: Delivery) -> str:
        """Name whose code writes a delivery's message, for people."""
        known = delivery.event_type in self._services.composers
        return f"the composer of {delivery.event_type}" if known else "the check of the push service"

    def _paused(self, delivery: Delivery) -> Answer | None:
        """Return the answer of a delivery whose phone pauses: it waits, and nothing was tried."""
        left_ms = self._services.phone_pauses.left_ms(delivery.installation_id)
        return None if left_ms is None else not_attempted(delivery, Reply("held_back", code="phone_paused"), left_ms)

    def _held_up(self, delivery: Delivery) -> Answer | None:
        """Return the answer of a delivery whose composer hangs so often that it is not called any more."""
        if self._services.hung.none and not self.hanging:
            return None
        what = self._composer_of(delivery)
        here = sum(each.call.what == what for each in self.hanging)
        if here < _MOST_HUNG_HERE and self._services.hung.count(what) < MOST_CALLS:
            return None
        reply = Reply("held_back", code="composer_hung", message=f"Calls of {what} have not come back.")
        return not_attempted(delivery, reply, self._services.settings.outbox_retry_base_ms)

    def _left_to_others(self, delivery: Delivery) -> Answer | None:
        """Return the answer of a delivery whose text is still to be rendered, if this worker cannot."""
        content = self.drafts.contents.get(delivery.notification_event_id)
        if content is None or not self.drafts.lacks_words(content):
            return None
        reply = Reply("held_back", code="words_missing", message="This worker cannot render texts of event types.")
        return not_attempted(delivery, reply, self._services.settings.outbox_retry_base_ms)

    def _leave(self, delivery: Delivery, since: float, answered: Future[Answer | None]) -> None:
        """Leave a delivery to its composer, and go on with the others."""
        what = self._composer_of(delivery)
        call = self._services.hung.add(what, self.context.project, since, self.context.claim.lasts_s, answered)
        self.hanging.append(_Hanging(delivery, call, answered))

    def _compose_one(self, delivery: Delivery) -> Answer | None:
        content, is_over = self.drafts.contents.get(delivery.notification_event_id), self.drafts.is_over(delivery)
        if content is None or is_over:
            return answer(delivery, "cancelled", code="event_ended" if is_over else "event_gone")
        if delivery.event_type == NEWS:
            return self._accept(delivery, webhook_messages.message(delivery, content, self._names))
        try:
            draft, light = self.drafts.draft(content, delivery)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            return answer(delivery, "failed", code=MALFORMED, message=normalise_error(error))
        message: Message = draft.message(delivery)
        composer = self._services.composers.get(delivery.event_type)
        if composer is not None:
            light = False
            try:
                message = _composed(composer, message, delivery)
            except Reschedule as wish:
                reply = Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
                return not_attempted(delivery, reply, LEAST_PAUSE_MS)
            except (Exception, SystemExit) as error:  # noqa: BLE001 a composer may raise anything; attempts bound it
                return answer(delivery, "retryable", code="composer_failed", message=normalise_error(error))
        return self._accept(delivery, message, light=light)

    @cached_property
    def _message_writer(self) -> WritesMessages | None:
        """The push service, if it writes messages by itself; asked once a claim, for the question is dear."""
        provider = self.context.provider
        return provider if isinstance(provider, WritesMessages) else None

    @cached_property
    def _takes_silent(self) -> bool:
        facts = getattr(self.context.provider, "facts", None)
        return not isinstance(facts, ProviderFacts) or facts.takes_silent

    def _accept(self, delivery: Delivery, message: Message, *, light: bool = False) -> Answer | None:
        """Keep what is to be sent, unless the push service refuses it."""
        if not self._takes_silent and _shows_nothing(message):
            return answer(delivery, "skipped", code=SHOWS_NOTHING)
        refused = self.context.provider.refuse_token(delivery.token) if light else self.context.provider.refuse(message)
        if refused is not None:
            return ticketed(delivery, checked_ticket(refused), attempted=False)
        self.messages[delivery.id] = message
        return None


def _shows_nothing(message: Message) -> bool:
    """Return whether a message is for the app alone."""
    texts = (message.get("title"), message.get("body"))
    return all(is_blank(text) if isinstance(text, str) else not text for text in texts)


def _composed(compose: Composer, message: Message, delivery: Delivery) -> Message:
    composed: object = compose(dict(message), delivery)
    if not isinstance(composed, Mapping):
        raise TypeError(f"a composer must return the message, not {type(composed).__name__}")
    return composed
