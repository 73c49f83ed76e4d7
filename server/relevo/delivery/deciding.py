"""What a reply means: for each delivery an answer, for the project what it is told, and what is tried again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from relevo.core.logs import normalise_error
from relevo.core.model import Accepted, Answer, Delivery, PushRequest, Reply, Ticket
from relevo.delivery.answers import (
    LEAST_PAUSE_MS,
    MALFORMED,
    alerts,
    ambiguous,
    answer,
    not_attempted,
    reason,
    ticketed,
)
from relevo.delivery.isolating import ENOUGH, Ending, Isolation
from relevo.delivery.limits import Judgement
from relevo.delivery.sending import RequestPool
from relevo.delivery.services import Services

_NOT_SENT_PAUSE_MS = 5_000


@dataclass
class Deciding:
    """What the replies to one batch's requests mean, and what they tell of its project."""

    services: Services
    project: str
    pool: RequestPool
    isolation: Isolation
    now: datetime | None
    troubled: bool
    """Whether the project failed lately, so that a success is news."""
    watched: bool = False
    """Whether credential faults were met lately, so that it is news who did not meet one."""
    probe: bool = False
    problems: list[str] = field(default_factory=list)

    def decide(self, request: PushRequest, reply: Reply, answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Turn a reply into answers, and tell the project how it went; return the parts to send again."""
        deliveries, floor_ms = request.deliveries, self.services.settings.push_request_timeout_ms
        if reply.kind == "answered" and len(reply.tickets) != len(deliveries):
            reply = Reply("unclear", code="MismatchedTickets", message=f"{len(reply.tickets)} for {len(deliveries)}")
        blocked = True  # unless the project was told and knows better
        with self.in_passing():
            blocked = self._tell_project(deliveries, reply)
        match reply.kind:
            case "answered":
                pairs = zip(deliveries, reply.tickets, strict=True)
                answers += [ticketed(d, t, floor_ms, blocked=blocked) for d, t in pairs]
                self.problems += alerts(reply.tickets, self.problems)
                return self.isolation.took(deliveries)
            case "unclear":
                answers += [ambiguous(d, reply, max(floor_ms, reply.retry_after_ms)) for d in deliveries]
            case "mixed_projects" if moved := self._moved(deliveries, reply):
                answers += [not_attempted(d, reply)._replace(project=moved.get(d.id)) for d in deliveries]
            case "too_many" | "rejected" | "mixed_projects":
                if len(deliveries) > 1:
                    return self.isolation.split(deliveries, reply.kind)
                answers += self._refused(deliveries[0], reply)
            case _:
                answers += [not_attempted(d, reply, self._pause_ms(reply)) for d in deliveries]
        return []

    def _refused(self, delivery: Delivery, reply: Reply) -> list[Answer]:
        """Return the answer for a message that was refused alone, if it is to blame; if not, that is decided later."""
        bad = reply.code == MALFORMED
        if not bad:
            judgement = Judgement(is_bad=False, is_quiet=False, is_open=False, own_taken=False, since_s=0.0)
            with self.in_passing():
                judgement = self.services.projects.refused(
                    self.project, delivery.notification_event_id, reason(reply), self.now
                )
            self.troubled = True
            self.pool.halted |= judgement.is_open
            bad = self.isolation.refused(delivery, reply, judgement)
        return [answer(delivery, "failed", code=reply.code, message=reply.message)] if bad else []

    def unproven(self, delivery: Delivery, reply: Reply, ending: Ending) -> Answer:
        """Return the answer for what was refused, or set aside with its event, and could not be judged before."""
        settings = self.services.settings
        match ending:
            case "bad":
                return answer(delivery, "failed", code=reply.code, message=reply.message)
            case "given_up":
                why = f"Not tried: {ENOUGH} messages of its event were refused one by one. {reply.message or ''}"
                return answer(delivery, "failed", code=reply.code, message=why)._replace(attempted=False)
            case "refused" if not self.pool.halted:
                return answer(delivery, "retryable", code=reply.code, message=reply.message)
            case "refused":
                return not_attempted(delivery, reply, LEAST_PAUSE_MS)
            case "untried":  # as long again as it has been refused
                pause_ms = max(settings.outbox_retry_base_ms, int(self.isolation.since_s * 1000))
                return not_attempted(delivery, reply, min(pause_ms, settings.outbox_retry_max_ms))

    def _pause_ms(self, reply: Reply) -> int:
        """Return how long what was not sent waits; the project's own pause comes on top."""
        if reply.kind == "not_sent":
            return max(reply.retry_after_ms, _NOT_SENT_PAUSE_MS)
        if reply.code == "rescheduled":
            return LEAST_PAUSE_MS
        if reply.code == "middleware_failed":
            self.problems.append(f"a middleware held a request back: {reply.message}")
            return self.services.settings.outbox_retry_base_ms
        if reply.code == "middleware_hung":
            return self.services.settings.outbox_retry_base_ms
        if reply.code == "no_thread":
            return _NOT_SENT_PAUSE_MS
        return reply.retry_after_ms

    def _moved(self, deliveries: Sequence[Delivery], reply: Reply) -> dict[int, str]:
        """Return the deliveries that belong to another project than was thought, and remember their tokens' project."""
        named = {d.id: reply.projects.get(str(d.token)) for d in deliveries}
        moved = {key: home for key, home in named.items() if home and home != self.project}
        if moved:
            with self.in_passing():
                self.services.projects.move_tokens(self.project, reply.projects, self.now)
        return moved

    def _tell_project(self, deliveries: Sequence[Delivery], reply: Reply) -> bool:
        """Tell the project how a request went; one that may not send any more halts its request pool at once.

        Returns whether a credential fault in it is the project's, not the phones'.
        """
        projects, project, now = self.services.projects, self.project, self.now
        match reply.kind:
            case "answered":
                return self.tell_of_tickets(deliveries, reply.tickets)
            case "unauthorised":
                self.pool.halted |= projects.failed(project, reason(reply), credential=True, now=now)
            case "unclear" | "not_sent":
                self.troubled = True
                self.pool.halted |= projects.failed(project, reason(reply), credential=False, now=now)
            case "held_back":
                if self.probe:
                    projects.cancel_probe(project, now)
            case "throttled":
                self._tell_of_success()
                self.pool.halted = True
                projects.throttled(project, reply.retry_after_ms, now)
            case _:
                pass  # refused: neither well nor ill, until it is known which of its messages is
        return False

    def tell_of_tickets(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Tell the project of tickets; return whether a credential fault in them is the project's, which halts it."""
        if self._tell_of_credentials(deliveries, tickets):
            self.pool.halted = True
            return True
        self._tell_of_success({d.notification_event_id for d in deliveries})
        return False

    def _tell_of_success(self, events: Collection[int] = ()) -> None:
        if self.troubled:
            self.troubled = False
            self.services.projects.succeeded(self.project, now=self.now, taken=events)

    def _tell_of_credentials(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Tell which phones met a credential fault, if that is news; return whether it is the project's."""
        fault = None
        if not isinstance(tickets, Accepted):
            fault = next((ticket for ticket in tickets if ticket.fate == "credential"), None)
        if fault is None and not self.watched:
            return False
        said = [(d, t) for d, t in zip(deliveries, tickets, strict=True) if t.fate in ("sent", "ok", "credential")]
        if not said:
            return False
        self.watched = True
        # a retry that meets the fault again is no news: else a few bad phones, tried again together, look like all
        heard = {
            d.installation_id: t.fate == "credential" for d, t in said if t.fate != "credential" or not d.attempt_count
        }
        why = reason(fault) if fault else None
        return self.services.projects.heard(self.project, heard, why, now=self.now)

    @contextmanager
    def in_passing(self) -> Iterator[None]:
        """Let nothing that the project is told cost the answers of a wave: they are settled after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, the answers come first
            self.problems.append(f"project {self.project} was not told: {normalise_error(error, 200)}")
