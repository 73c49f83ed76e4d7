"""The requests of one batch on their way: waited for as long as they get on, then left behind, at last given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from relevo.core.errors import OwnershipLostError
from relevo.core.logs import normalise_error
from relevo.core.model import Lane, PushRequest, Reply
from relevo.delivery.sending import PoolCall, RequestPool, Sending
from relevo.runtime.hung import HungCall, HungCalls

_log = structlog.get_logger("relevo.dispatch")

MIDDLEWARE = "a push middleware"
SERVICE = "the push service"


class Posted(NamedTuple):
    """What became of a request; without a reply it was not sent, for the claim was lost."""

    request: PushRequest
    reply: Reply | None
    lost: OwnershipLostError | None = None


@dataclass(eq=False)
class Post:
    """A request on its way."""

    request: PushRequest
    sending: Sending
    call: PoolCall[Reply]
    hung: HungCall | None = None
    looks: int = 0
    """How often it was found in the push service's hands; a process that stood still did not look meanwhile."""
    looks_late: int = 0
    """How often so when the whole batch should have been settled."""

    def since(self) -> float | None:
        """Since when it is where it is: in the push service's hands, or in a middleware's; None while it waits."""
        return self.sending.answered_at or self.sending.begun_at or self.call.taken_at


@dataclass
class Posts:
    """The requests of one batch that are under way, and those that hang."""

    pool: RequestPool
    lane: Lane
    project: str
    hung: HungCalls
    patience_s: float
    """How long a middleware may take before the others no longer wait for it."""
    request_s: float
    """How long the push service may take."""
    lasts_s: float
    """How long anything may take before it is given up."""
    give_up_at: float
    stopping: threading.Event
    send: Callable[[PushRequest, Sending], Reply]
    may_send: Callable[[], bool]
    """Tells, in the last moment, whether a request may still be sent; raises if the claim is gone."""
    hand_in: Callable[[PushRequest, Reply], None]
    """Takes an answer for which nobody waits any more."""
    hanging: list[Post] = field(default_factory=list)
    """Those that are left behind: in a middleware, or in the push service's hands for longer than it may take."""

    def send_all(self, requests: Sequence[PushRequest], *, submitted: Callable[[], None]) -> list[Posted]:
        """Send requests at once, tell when they are on their way, and wait for their answers; what hangs is left."""
        going: list[Post] = []
        posted: list[Posted] = []
        for request in requests:
            try:
                going.append(self._submit(request))
            except RuntimeError as error:  # no thread could be started
                posted.append(Posted(request, Reply("held_back", code="no_thread", message=normalise_error(error))))
        submitted()
        while going:
            wait([post.call for post in going], timeout=self.patience_s)
            still: list[Post] = []
            for post in going:
                if (result := self._result(post)) is not None:
                    posted.append(result)
                elif not self._is_hanging(post):
                    still.append(post)
            going = still
            if going:
                self.pool.staff()
        return posted

    def _submit(self, request: PushRequest) -> Post:
        sending = Sending(lambda: self.may_send() and self.pool.may_connect(call))
        call = PoolCall(self.lane, partial(self.send, request, sending))
        self.pool.add(call)
        return Post(request, sending, call)

    def _result(self, post: Post) -> Posted | None:
        """Return what became of a request: its answer counts even while a middleware has not returned."""
        if post.call.done():
            return self._ended(post)
        answered_at = post.sending.answered_at
        if answered_at is None or time.monotonic() - answered_at < self.patience_s:
            return None
        self._note(post, MIDDLEWARE)
        self.pool.leave(post.call)
        return Posted(post.request, post.sending.reply)

    def _ended(self, post: Post) -> Posted:
        """Return what became of a request whose call is over; a thread of a middleware's may bring its answer later."""
        begun = post.sending.begun_at is not None
        reply = post.sending.give_up(partial(self.hand_in, post.request)) if begun else None
        return Posted(post.request, reply) if reply else _result(post)

    def _is_hanging(self, post: Post) -> bool:
        """Tell whether a request hangs, and count on its thread no longer if it has no connection."""
        now, since = time.monotonic(), post.since()
        if since is None:  # it waits for a thread
            hangs = now > self.give_up_at or self.stopping.is_set()
        elif post.sending.begun_at is None:
            hangs = now - since > self.patience_s
            if hangs:
                self._note(post, MIDDLEWARE)
                self.pool.leave(post.call)
        else:
            post.looks += 1
            post.looks_late += now > self.give_up_at
            hangs = post.looks * self.patience_s > self.request_s + self.patience_s or post.looks_late > 1
            if hangs:
                self._note(post, SERVICE)
        if hangs:
            self.hanging.append(post)
        return hangs

    def _note(self, post: Post, what: str) -> None:
        since = post.since()
        if post.hung is None and since is not None:
            post.hung = self.hung.add(what, self.project, since, self.lasts_s, post.call)

    def returned(self, timeout_s: float) -> list[Posted]:
        """Wait a moment for a request that hangs, and return those that came back after all."""
        wait([post.call for post in self.hanging], timeout=timeout_s, return_when=FIRST_COMPLETED)
        posted = {post: result for post in self.hanging if (result := self._result(post)) is not None}
        self.hanging = [post for post in self.hanging if post not in posted]
        return list(posted.values())

    def give_up(self) -> tuple[list[Posted], list[str]]:
        """Wait for nothing any more: what was not begun never will be, what was begun may have been sent.

        A connection that may still be open counts for as long again as it was waited for.
        """
        posts, self.hanging = self.hanging, []
        posted: list[Posted] = []
        reported: list[str] = []
        for post in posts:
            posted.append(self._ended(post) if post.call.done() else Posted(post.request, self._withdraw(post)))
            if post.hung is not None:
                reported.append(self.hung.give_up(post.hung))
        return posted, reported

    def _withdraw(self, post: Post) -> Reply:
        if post.sending.withdraw():
            waited = post.call.taken_at is None
            self.pool.leave(post.call)
            if waited:
                return Reply("held_back", code="no_thread", message="No thread came free to send it.")
            return Reply("held_back", code="middleware_hung", message="A push middleware has not returned.")
        reply = post.sending.give_up(partial(self.hand_in, post.request))
        self.pool.leave(post.call, connected_s=0.0 if reply else self.lasts_s)
        return reply or Reply("unclear", code="request_hung", message="The push service's call has not returned.")


def _result(post: Post) -> Posted:
    try:
        return Posted(post.request, post.call.result())
    except OwnershipLostError as lost:
        return Posted(post.request, None, lost)
    except BaseException as error:  # noqa: BLE001 one request's surprise must not cost the answers of the others
        _log.error("push_request_failed", exc_info=error)
        why = normalise_error(error)
        return Posted(post.request, Reply("unclear", code="request_failed", message=why))
