"""The meaning of a reply: an answer for each delivery, notes on the project, and the parts to try again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relevo.core.model import SHADOW, Accepted, Answer, Delivery, PushRequest, Reply, Ticket
from relevo.delivery.projects.pauses import TurnedAwayError, pause_ms
from relevo.delivery.projects.rate_and_breaker import Judgement
from relevo.delivery.projects.unreachable import is_unreached
from relevo.delivery.sending.bad_messages import ENOUGH, BadMessageSearch, Ending
from relevo.delivery.settling.outcomes import (
    LEAST_PAUSE_MS,
    MALFORMED,
    alerts,
    ambiguous,
    answer,
    not_attempted,
    reason,
    ticketed,
)
from relevo.delivery.worker_services import ClaimContext
from relevo.runtime.troubles import Thing

_OUTAGE_PAUSE_MS = 60_000
_NOT_SENT_PAUSE_MS = 5_000
_OFTEN = 5
_NOT_BEGUN = "NotBegun"
"""Codes of deliveries that waited for their turn: they were not refused, and their next try is soon."""
_SILENCE = "ReadTimeout"
_WAITING = ("retryable", "not_sent", "unclear")


class Handled(NamedTuple):
    """The meaning of a reply: the answers of deliveries, and the parts to send again."""

    answers: list[Answer]
    again: Sequence[Sequence[Delivery]] = ()


@dataclass
class ReplyHandler:
    """The meaning of the replies to one claim's requests, and their evidence about its project."""

    context: ClaimContext
    bad_messages: BadMessageSearch
    troubled: bool
    """Whether the project failed lately, so that a success is news."""
    watched: bool = False
    """Whether credential faults were met lately, so that it is news who did not meet one."""
    left_to_others: bool = False
    """Whether this worker cannot reach the push service and another worker may, so that the pushes need not wait."""

    def handle_shadow(self, request: PushRequest) -> Handled:
        """Return the answers of what only shadow mode kept from being sent; it counts as taken for the project."""
        with self.context.report.in_passing(self.context.project):
            self._note_success({d.notification_event_id for d in request.deliveries})
        return Handled([answer(d, "skipped", code=SHADOW) for d in request.deliveries])

    def handle(self, request: PushRequest, reply: Reply) -> Handled:
        """Turn a reply into answers, and note on the project how it went."""
        deliveries, floor_ms = request.deliveries, self.context.services.settings.push_request_timeout_ms
        if reply.kind == "answered" and len(reply.tickets) != len(deliveries):
            reply = Reply("unclear", code="MismatchedTickets", message=f"{len(reply.tickets)} for {len(deliveries)}")
        blocked = True  # unless the project knows better
        with self.context.report.in_passing(self.context.project):
            blocked = self._note_on_project(deliveries, reply)
        if failure := _failure_of(reply, blocked=blocked):
            self.context.report.add_failure(self.context.project, reason(failure))
        elif reply.kind == "throttled":
            self.context.report.turned_away.setdefault(self.context.project, reason(reply))
        elif reply.kind == "answered":
            self.context.report.answered.add(self.context.project)
        match reply.kind:
            case "answered":
                return self._ticketed(deliveries, reply.tickets, floor_ms, blocked=blocked)
            case "unclear":
                floor_ms = max(floor_ms, self.context.rules.least_retry_ms, reply.retry_after_ms)
                return Handled([ambiguous(d, reply, floor_ms) for d in deliveries])
            case "mixed_projects" if by_project := self._by_project(deliveries, reply):
                return by_project
            case "too_many" | "rejected" | "mixed_projects" if len(deliveries) > 1:
                return Handled([], self.bad_messages.split(deliveries, reply.kind))
            case "too_many" | "rejected" | "mixed_projects":
                return Handled(self._refused(deliveries[0], reply))
            case _:
                return Handled([not_attempted(d, reply, self._pause_ms(d, reply)) for d in deliveries])

    def _ticketed(
        self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket], floor_ms: int, *, blocked: bool
    ) -> Handled:
        """Return what tickets mean, each for its delivery."""
        self.context.report.add(*alerts(tickets))
        again = () if _failure(tickets) else self.bad_messages.took(deliveries)
        tickets = self._slower(deliveries, self._not_gone(deliveries, tickets))
        for delivery, ticket in zip(deliveries, tickets, strict=True):
            if ticket.pauses == "phone" and ticket.retry_after_ms:
                self.context.services.phone_pauses.pause(delivery.installation_id, ticket.retry_after_ms)
        pairs, least_ms = zip(deliveries, tickets, strict=True), self.context.rules.least_retry_ms
        return Handled([ticketed(d, t, floor_ms, least_ms=least_ms, blocked=blocked) for d, t in pairs], again)

    def _not_gone(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """Return tickets in which a phone that has another token by now, or confirmed its own since, is tried again."""
        if isinstance(tickets, Accepted):
            return tickets
        pairs = list(zip(deliveries, tickets, strict=True))
        gone = [(d.installation_id, d.token_version, t.gone_at) for d, t in pairs if t.fate == "invalid"]
        if not gone:
            return tickets
        back = {
            (phone, version): False for phone, version, gone_at in gone if gone_at
        }  # unless the database knows better
        with self.context.report.in_passing(self.context.project):
            back = self.context.services.claims.returned(gone)
        return [
            _returned(t, has_moved=back.get((d.installation_id, d.token_version))) if t.fate == "invalid" else t
            for d, t in pairs
        ]

    def _slower(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """Return tickets in which what is turned away again and again waits ever longer."""
        pairs = list(zip(deliveries, tickets, strict=True)) if not isinstance(tickets, Accepted) else ()
        unsent = {d.id for d, ticket in pairs if ticket.fate == "not_sent" and ticket.code != _NOT_BEGUN}
        self.forget_turned_away([delivery for delivery in deliveries if delivery.id not in unsent])
        if not unsent:
            return tickets
        return [
            t._replace(retry_after_ms=max(t.retry_after_ms, self._turned_away_ms(d, t))) if d.id in unsent else t
            for d, t in pairs
        ]

    def forget_turned_away(self, deliveries: Sequence[Delivery]) -> None:
        """Note that deliveries are not turned away any more."""
        for known in self.context.services.turned_away.forget(delivery.id for delivery in deliveries):
            self.context.run.troubles.went_well(Thing("delivery", str(known)))

    def _turned_away_ms(self, delivery: Delivery, said: Reply | Ticket) -> int:
        """Return how long a delivery waits that was certainly not taken, the longer the more often that was so."""
        services = self.context.services
        times = services.turned_away.met(delivery.id)
        wait_ms = pause_ms(times, services.settings.outbox_retry_max_ms)
        if times >= _OFTEN:
            with self.context.report.in_passing(self.context.project):
                why = TurnedAwayError(f"its push service turned it away {times} times in a row, {reason(said)}")
                self.context.run.troubles.met(Thing("delivery", str(delivery.id)), why, rests_s=wait_ms / 1000)
        return wait_ms

    def _refused(self, delivery: Delivery, reply: Reply) -> list[Answer]:
        """Return the answer for a message that was refused alone, if it is to blame; if not, that is decided later."""
        bad = reply.code == MALFORMED
        if not bad:
            judgement = Judgement(is_bad=False, is_quiet=False, is_open=False, own_taken=False, since_s=0.0)
            with self.context.report.in_passing(self.context.project):
                judgement = self.context.projects.refused(
                    self.context.project, delivery.notification_event_id, reason(reply), self.context.now
                )
            self.troubled = True
            self.context.pool.halted |= judgement.is_open
            bad = self.bad_messages.refused(delivery, reply, judgement)
        return [answer(delivery, "failed", code=reply.code, message=reply.message)] if bad else []

    def unproven(self, delivery: Delivery, reply: Reply, ending: Ending) -> Answer:
        """Return the answer for what was refused, or set aside with its event, and could not be judged before."""
        settings = self.context.services.settings
        match ending:
            case "bad":
                return answer(delivery, "failed", code=reply.code, message=reply.message)
            case "given_up":
                why = f"Not tried: {ENOUGH} messages of its event were refused one by one. {reply.message or ''}"
                return answer(delivery, "failed", code=reply.code, message=why)._replace(attempted=False)
            case "refused" if not self.context.pool.halted:
                return answer(delivery, "retryable", code=reply.code, message=reply.message)
            case "refused":
                return not_attempted(delivery, reply, LEAST_PAUSE_MS)
            case "untried":  # as long again as it has been refused
                wait_ms = max(settings.outbox_retry_base_ms, int(self.bad_messages.since_s * 1000))
                return not_attempted(delivery, reply, min(wait_ms, settings.outbox_retry_max_ms))

    def _pause_ms(self, delivery: Delivery, reply: Reply) -> int:
        """Return how long what was not sent waits; the project's own pause comes on top."""
        if self.left_to_others and is_unreached(reply):
            return 0
        if reply.kind == "not_sent":
            own_ms = min(self._turned_away_ms(delivery, reply), _OUTAGE_PAUSE_MS)  # it may be an outage, and end soon
            return max(reply.retry_after_ms, _NOT_SENT_PAUSE_MS, own_ms)
        if reply.code == "rescheduled":
            return LEAST_PAUSE_MS
        if reply.code == "middleware_failed":
            self.context.report.add(f"a middleware held a request back: {reply.message}")
        if reply.code in ("middleware_failed", "middleware_hung"):
            return self.context.services.settings.outbox_retry_base_ms
        if reply.code == "no_thread":
            return _NOT_SENT_PAUSE_MS
        return reply.retry_after_ms

    def _by_project(self, deliveries: Sequence[Delivery], reply: Reply) -> Handled | None:
        """Return what moved to its token's project as to be sent there, and the rest, sorted, as to be sent again.

        What stays goes by this project's rate, breaker and credentials, whoever its token belongs to. Returns None if
        that parts nothing.
        """
        homes: Mapping[str, str] = {}  # unless the database knows better
        with self.context.report.in_passing(self.context.project):
            homes = self.context.projects.move_tokens(self.context.project, reply.projects, self.context.now)
        moved: list[Answer] = []
        staying: defaultdict[str | None, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            home = homes.get(str(delivery.token), self.context.project)
            if home != self.context.project:
                moved.append(not_attempted(delivery, reply)._replace(project=home))
            else:
                staying[reply.projects.get(str(delivery.token))].append(delivery)
        return Handled(moved, list(staying.values())) if moved or len(staying) > 1 else None

    def _note_on_project(self, deliveries: Sequence[Delivery], reply: Reply) -> bool:
        """Note on the project how a request went; one that may not send any more halts its request pool at once.

        Returns whether a credential fault in it is the project's, not the phones'.
        """
        projects, project, now = self.context.projects, self.context.project, self.context.now
        if is_unreached(reply):
            self._note_unreached(reply)
            return False
        if reply.kind not in ("held_back", "unclear"):
            projects.unreachable.reached(project)
        match reply.kind:
            case "answered":
                return self._note_tickets(deliveries, reply.tickets)
            case "unauthorised":
                self.context.pool.halted |= projects.failed(project, reason(reply), credential=True, now=now)
            case "unclear" if self.context.claim.is_lost:
                pass  # this process stood still: that it missed the answer tells nothing of the push service
            case "unclear" | "not_sent":
                self.troubled = True
                self.context.pool.halted |= projects.failed(project, reason(reply), credential=False, now=now)
            case "held_back":
                if self.context.probe:
                    projects.cancel_probe(project, now)
            case "throttled":
                self._note_success()
                self.context.pool.halted = True
                projects.throttled(project, reply.retry_after_ms, now)
            case _:
                pass  # refused: neither well nor ill, until it is known which of its messages is
        return False

    def _note_tickets(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Note what tickets say of the project: that it failed, or that it is well, and that it is to go slower.

        Returns whether a credential fault in them is the project's.
        """
        projects, project, now = self.context.projects, self.context.project, self.context.now
        blocked = False
        failure = _failure(tickets)
        if failure and self._is_known_silence(deliveries, failure):
            return False
        if failure and is_unreached(failure):
            self._note_unreached(failure)
        elif failure:
            self.troubled = True
            self.context.pool.halted |= projects.failed(project, reason(failure), credential=False, now=now)
        else:
            blocked = self.report_tickets(deliveries, tickets)
        if rest_ms := _project_pause_ms(tickets):
            self.context.pool.halted = True
            projects.throttled(project, rest_ms, now)
        return blocked

    def _note_unreached(self, said: Reply | Ticket) -> None:
        """Note that this worker cannot reach the push service: nothing more is sent from here if another worker may.

        Otherwise the failure is the project's, and counts for the breaker of the fleet.
        """
        project, now = self.context.project, self.context.now
        self.troubled = True
        self.left_to_others = self.context.projects.unreachable.met(project, reason(said))
        if self.left_to_others:
            self.context.pool.halted = True
            if self.context.probe:
                self.context.projects.cancel_probe(project, now)
        else:
            self.context.pool.halted |= self.context.projects.failed(project, reason(said), credential=False, now=now)

    def _is_known_silence(self, deliveries: Sequence[Delivery], failure: Ticket) -> bool:
        """Return whether nothing but phones that were tried before had no answer: that tells nothing of the service."""
        return failure.code == _SILENCE and not self.context.probe and all(d.attempt_count for d in deliveries)

    def report_tickets(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Note tickets on the project; return whether a credential fault in them is the project's, which halts it."""
        self.context.projects.unreachable.reached(self.context.project)
        if self._note_credentials(deliveries, tickets):
            self.context.pool.halted = True
            return True
        if isinstance(tickets, Accepted) or any(ticket.fate != "credential" for ticket in tickets):
            self._note_success({d.notification_event_id for d in deliveries})
        return False

    def _note_success(self, events: Collection[int] = ()) -> None:
        if self.troubled:
            self.troubled = False
            self.context.projects.succeeded(self.context.project, now=self.context.now, taken=events)

    def _note_credentials(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Note which phones met a credential fault, if that is news; return whether it is the project's."""
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
        return self.context.projects.heard(self.context.project, heard, why, now=self.context.now)


def _returned(ticket: Ticket, *, has_moved: bool | None) -> Ticket:
    """Return the ticket of a gone token as it is for a phone that moved to another, or came back; None: it is gone."""
    if has_moved is None:
        return ticket
    return ticket._replace(fate="retryable", code="token_changed" if has_moved else ticket.code)


def _failure_of(reply: Reply, *, blocked: bool) -> Reply | Ticket | None:
    """Return why a request failed as a whole: by its reply, by all of its tickets, or by the project's credentials."""
    if reply.kind in ("unauthorised", "unclear", "not_sent"):
        return reply
    if reply.kind != "answered" or isinstance(reply.tickets, Accepted):
        return None
    credential = next((ticket for ticket in reply.tickets if blocked and ticket.fate == "credential"), None)
    return _failure(reply.tickets) or credential


def _failure(tickets: Sequence[Ticket]) -> Ticket | None:
    """Return the first of tickets none of which is an answer: nobody knows of any message, or it was not sent."""
    if not tickets or isinstance(tickets, Accepted) or any(t.fate not in ("unclear", "not_sent") for t in tickets):
        return None
    return next((ticket for ticket in tickets if ticket.fate == "unclear"), tickets[0])


def _project_pause_ms(tickets: Sequence[Ticket]) -> int:
    """Return how long the project has to rest; 0 if nothing says so."""
    if isinstance(tickets, Accepted):
        return 0
    return max((max(1, t.retry_after_ms) for t in tickets if t.pauses == "project" and t.fate in _WAITING), default=0)
