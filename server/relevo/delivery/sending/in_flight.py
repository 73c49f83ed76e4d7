"""The requests of one claim on their way: waited for as long as they get on, then left behind, at last given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from relevo.core.errors import OwnershipLostError
from relevo.core.logs import normalise_error
from relevo.core.messages import Message
from relevo.core.model import PushRequest, Reply, Ticket
from relevo.core.ports import PushContext
from relevo.delivery.projects.request_pool import PoolCall
from relevo.delivery.sending.one_request import Sending, send
from relevo.delivery.worker_services import ClaimContext
from relevo.runtime.hung_calls import HungCall

_log = structlog.get_logger("relevo.dispatch")

MIDDLEWARE = "a push middleware"
SERVICE = "the push service"


class RequestResult(NamedTuple):
    """The outcome of a request; without a reply it was not sent, because the claim was lost."""

    request: PushRequest
    reply: Reply | None
    lost: OwnershipLostError | None = None


@dataclass(eq=False)
class InFlightRequest:
    """A request on its way."""

    request: PushRequest
    sending: Sending
    call: PoolCall[Reply]
    hung: HungCall | None = None
    checks: int = 0
    """How often it was found in the push service's hands; a process that stood still did not check meanwhile."""
    checks_late: int = 0
    """How often so when the whole claim should have been settled."""
    accepted: int = 0
    """How many of its messages were accepted before it ended."""
    is_slow: bool = False
    """Whether some of its messages were accepted, and others are not answered yet: the next wave does not wait."""

    def since(self) -> float | None:
        """Since when it is where it is: in the push service's hands, or in a middleware's; None while it waits."""
        return self.sending.answered_at or self.sending.begun_at or self.call.taken_at


@dataclass
class InFlightRequests:
    """The requests of one claim that are under way, and those that hang."""

    context: ClaimContext
    messages: Mapping[int, Message]
    """Messages to be sent, by the delivery's id."""
    hand_in: Callable[[PushRequest, Reply], None]
    """Takes an answer for which nobody waits any more."""
    record: Callable[[PushRequest, Mapping[int, Ticket]], None]
    """Records messages of a request that were accepted, by place, while others of it are not answered yet."""
    going: list[InFlightRequest] = field(default_factory=list)
    """Those that are under way; after a wave only those that are slow."""
    ended: list[RequestResult] = field(default_factory=list)
    """The outcomes of ended requests, until they are taken."""
    hanging: list[InFlightRequest] = field(default_factory=list)
    """Those that are left behind: in a middleware, or in the push service's hands for longer than it may take."""

    def send_all(self, requests: Sequence[PushRequest], *, submitted: Callable[[], None]) -> list[RequestResult]:
        """Send requests at once, call `submitted` when they are on their way, and wait for all that is quick.

        Returns what became of those that ended, slow ones of earlier waves among them; what hangs is left behind.
        """
        for request in requests:
            try:
                self.going.append(self._submit(request))
            except RuntimeError as error:  # no thread could be started
                why = Reply("held_back", code="no_thread", message=normalise_error(error))
                self.ended.append(RequestResult(request, why))
        submitted()
        while quick := [post.call for post in self.going if not post.is_slow]:
            wait(quick, timeout=self.context.patience_s)
            self._look()
        return self._take_ended()

    def wait_for_slow(self) -> list[RequestResult]:
        """Wait for those that are slow, but for what hangs, and return what became of them."""
        while self.going:
            wait([post.call for post in self.going], timeout=self.context.patience_s)
            self._look()
        return self._take_ended()

    def look_at_slow(self) -> list[RequestResult]:
        """Return what became of slow requests that ended meanwhile."""
        self._look()
        return self._take_ended()

    def _take_ended(self) -> list[RequestResult]:
        ended, self.ended = self.ended, []
        return ended

    def _look(self) -> None:
        """Record what was accepted of requests that are under way, and find those that ended or hang."""
        for post in self.going:
            self._record_accepted(post)
        still: list[InFlightRequest] = []
        for post in self.going:
            if (result := self._result(post)) is not None:
                self.ended.append(result)
            elif not self._is_hanging(post):
                still.append(post)
        self.going = still
        if still:
            self.context.pool.staff()

    def _record_accepted(self, post: InFlightRequest) -> None:
        if post.call.done():
            return
        accepted = post.sending.take_accepted()
        post.accepted += len(accepted)
        if accepted and post.accepted < len(post.request.deliveries):  # else its reply is about to come
            post.is_slow = True
            self.record(post.request, accepted)

    def _submit(self, request: PushRequest) -> InFlightRequest:
        sending = Sending(lambda: self._may_send() and self.context.pool.may_connect(call))
        call = PoolCall(self.context.lane, partial(self._post, request, sending))
        self.context.pool.add(call)
        return InFlightRequest(request, sending, call)

    def _may_send(self) -> bool:
        """Return, in the last moment before a request, whether it may still be sent; raises if the claim is gone."""
        context, services = self.context, self.context.services
        context.claim.check(services.settings.push_request_timeout_ms)
        return not context.is_halted and context.projects.connections.may_connect(context.project)

    def _post(self, request: PushRequest, sending: Sending) -> Reply:
        """Send one request, on a pool thread; nothing is sent once the claim or the project may not be used."""
        context, services = self.context, self.context.services
        told = request.deliveries if services.middlewares else ()  # nobody else asks which events they are
        of = PushContext(
            request.id,
            context.project,
            context.lane,
            len(request.deliveries),
            services.worker_id,
            event_ids=tuple(dict.fromkeys(delivery.notification_event_id for delivery in told)),
            event_types=tuple(dict.fromkeys(delivery.event_type for delivery in told)),
            in_shadow=context.claim.in_shadow,
        )
        messages = [self.messages[delivery.id] for delivery in request.deliveries]
        with services.metrics.request_seconds.labels(context.provider.name, "send").time():
            if context.spans is None:
                return send(context.provider, messages, of, services.middlewares, sending)
            with context.spans.requested(request) as requested:
                requested.reply = send(context.provider, messages, of, services.middlewares, sending)
            return requested.reply

    def _result(self, post: InFlightRequest) -> RequestResult | None:
        """Return what became of a request: its answer counts even while a middleware has not returned."""
        if post.call.done():
            return self._ended(post)
        answered_at = post.sending.answered_at
        if answered_at is None or time.monotonic() - answered_at < self.context.patience_s:
            return None
        self._note(post, MIDDLEWARE)
        self.context.pool.leave(post.call)
        return RequestResult(post.request, post.sending.reply)

    def _ended(self, post: InFlightRequest) -> RequestResult:
        """Return what became of a request whose call is over; a thread of a middleware's may bring its answer later."""
        begun = post.sending.begun_at is not None
        if begun and (reply := post.sending.give_up(partial(self.hand_in, post.request))) is not None:
            return RequestResult(post.request, reply)
        try:
            return RequestResult(post.request, post.call.result())
        except OwnershipLostError as lost:
            return RequestResult(post.request, None, lost)
        except BaseException as error:  # noqa: BLE001 one request's surprise must not cost the answers of the others
            _log.error("push_request_failed", exc_info=error)
            why = normalise_error(error)
            return RequestResult(post.request, Reply("unclear", code="request_failed", message=why))

    def _is_hanging(self, post: InFlightRequest) -> bool:
        """Return whether a request hangs, and count on its thread no longer if it has no connection."""
        now, since = time.monotonic(), post.since()
        if since is None:  # it waits for a thread
            hangs = now > self.context.claim.give_up_at or self.context.run.stopping.is_set()
        elif post.sending.begun_at is None:
            hangs = now - since > self.context.patience_s
            if hangs:
                self._note(post, MIDDLEWARE)
                self.context.pool.leave(post.call)
        else:
            post.checks += 1
            post.checks_late += now > self.context.claim.give_up_at
            longest_s = self.context.services.settings.push_request_timeout_ms / 1000 + self.context.patience_s
            hangs = post.checks * self.context.patience_s > longest_s or post.checks_late > 1
            if hangs:
                self._note(post, SERVICE)
        if hangs:
            self.hanging.append(post)
        return hangs

    def _note(self, post: InFlightRequest, what: str) -> None:
        since = post.since()
        if post.hung is None and since is not None:
            hung, lasts_s = self.context.services.hung, self.context.claim.lasts_s
            post.hung = hung.add(what, self.context.project, since, lasts_s, post.call)

    def returned(self, timeout_s: float) -> list[RequestResult]:
        """Wait a moment for a request that hangs, and return those that came back after all."""
        wait([post.call for post in self.hanging], timeout=timeout_s, return_when=FIRST_COMPLETED)
        posted = {post: result for post in self.hanging if (result := self._result(post)) is not None}
        self.hanging = [post for post in self.hanging if post not in posted]
        return list(posted.values())

    def give_up(self) -> list[RequestResult]:
        """Wait for nothing any more, and report what hangs; return what became of each request.

        What was not begun never will be, what was begun may have been sent. A connection that may still be open
        counts for as long again as it was waited for.
        """
        posts, self.going, self.hanging = [*self.going, *self.hanging], [], []
        results = self._take_ended()
        for each in posts:
            results.append(self._ended(each) if each.call.done() else RequestResult(each.request, self._withdraw(each)))
        hung = self.context.services.hung
        self.context.report.add_hung(*(hung.give_up(each.hung) for each in posts if each.hung is not None))
        return results

    def _withdraw(self, post: InFlightRequest) -> Reply:
        if post.sending.withdraw():
            waited = post.call.taken_at is None
            self.context.pool.leave(post.call)
            if waited:
                return Reply("held_back", code="no_thread", message="No thread came free to send it.")
            return Reply("held_back", code="middleware_hung", message="A push middleware has not returned.")
        reply = post.sending.give_up(partial(self.hand_in, post.request))
        self.context.pool.leave(post.call, connected_s=0.0 if reply else self.context.claim.lasts_s)
        return reply or Reply("unclear", code="request_hung", message="The push service's call has not returned.")
