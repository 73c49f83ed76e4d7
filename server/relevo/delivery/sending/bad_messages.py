"""Isolating bad messages: a refused request is sent in parts, and a message is blamed for it on evidence alone.

A storm of refusals looks like bad messages, one after the other. So a message is bad only if it, or its event, was
refused, another message was taken after that, and it is refused again. The untried rest of an event is given up only
if ENOUGH messages of it were refused one by one, one of them was found bad so, and none of it was ever taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from relevo.core.model import Delivery, Reply
from relevo.delivery.projects.rate_and_breaker import Judgement

ENOUGH = 5
_IN_DOUBT = 2

Parts = list[Sequence[Delivery]]
Ending = Literal["bad", "given_up", "refused", "untried"]
"""Found bad; given up with its event; refused without proof; set aside untried without proof."""


@dataclass
class BadMessageSearch:
    """The evidence about messages in the requests of one claim, since the first one was refused."""

    most: int
    """How many messages one request may hold."""
    active: bool = False
    """Whether a request was refused: one at a time from then on, so that what one shows spares the next."""
    since_s: float = 0.0
    """For how long the events of this claim have been refused."""
    _in_a_row: int = 0
    _took_one: bool = False
    _taken: set[int] = field(default_factory=set)
    _own_taken: set[int] = field(default_factory=set)
    _bad_events: set[int] = field(default_factory=set)
    _tried: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _refused: dict[int, tuple[Delivery, Reply]] = field(default_factory=dict)
    _retried: set[int] = field(default_factory=set)
    _set_aside: list[Delivery] = field(default_factory=list)
    _replies: dict[int, Reply] = field(default_factory=dict)

    def split(self, deliveries: Sequence[Delivery], kind: str) -> Parts:
        """Return the halves of a refused request, the messages of an event together."""
        self.active = self.active or kind == "rejected"
        ordered, half = _shuffled(deliveries), len(deliveries) // 2
        return [ordered[:half], ordered[half:]]

    def next_of(self, waiting: deque[Sequence[Delivery]]) -> Sequence[Delivery]:
        """Take the next request's messages, without those of an event that looks bad; in doubt a single one."""
        if not self.active:
            return waiting.popleft()
        chunk: list[Delivery] = []
        for delivery in waiting.popleft():
            (self._set_aside if self._looks_bad(delivery) else chunk).append(delivery)
        if self._in_a_row < _IN_DOUBT or len(chunk) <= 1:
            return chunk
        chunk = _shuffled(chunk)
        waiting.appendleft(chunk[1:])
        return chunk[:1]

    def _looks_bad(self, delivery: Delivery) -> bool:
        event = delivery.notification_event_id
        return event not in self._taken and len(self._tried[event]) >= ENOUGH and delivery.id not in self._retried

    def took(self, deliveries: Sequence[Delivery]) -> Parts:
        """Note that messages were taken; return what is to be tried again, now that the push service takes some."""
        self._in_a_row = 0
        self._took_one = self._took_one or self.active
        self._taken |= {d.notification_event_id for d in deliveries}
        if not self.active:
            return []  # nothing was refused, so nothing waits for this news
        for delivery in deliveries:
            self._refused.pop(delivery.id, None)
        back = [d for d in self._set_aside if d.notification_event_id in self._taken]
        self._set_aside = [d for d in self._set_aside if d.notification_event_id not in self._taken]
        return self._once_more() + [back[start : start + self.most] for start in range(0, len(back), self.most)]

    def refused(self, delivery: Delivery, reply: Reply, judgement: Judgement) -> bool:
        """Note that a message was refused alone; return whether it is bad. If not, it is judged later."""
        event, again = delivery.notification_event_id, delivery.id in self._retried
        self.active = True
        self.since_s = max(self.since_s, judgement.since_s)
        self._in_a_row += not again
        self._tried[event].add(delivery.id)
        self._replies[event] = reply
        if judgement.own_taken:
            self._own_taken.add(event)
        confirmed = again and self._took_one and judgement.is_quiet and self._in_a_row < ENOUGH
        if judgement.is_bad or confirmed:
            self._refused.pop(delivery.id, None)
            self._bad_events.add(event)
            return True
        self._refused[delivery.id] = delivery, reply
        return False

    def last_tries(self) -> Parts:
        """Return what is to be tried once more at the end, if others were taken and only a few refused since."""
        return self._once_more() if self._took_one and self._in_a_row < ENOUGH else []

    def _once_more(self) -> Parts:
        again = [delivery for delivery, _ in self._refused.values() if delivery.id not in self._retried]
        self._retried.update(delivery.id for delivery in again)
        return [[delivery] for delivery in again]

    def endings(self) -> Iterator[tuple[Delivery, Reply, Ending]]:
        """Return what became of all that was refused or set aside and is not settled yet."""
        for delivery, reply in self._refused.values():
            yield delivery, reply, "bad" if self._is_proven(delivery) else "refused"
        for delivery in self._set_aside:
            reply = self._replies[delivery.notification_event_id]
            yield delivery, reply, "given_up" if self._is_proven(delivery) else "untried"

    def _is_proven(self, delivery: Delivery) -> bool:
        """Return whether a message's whole event is bad."""
        event = delivery.notification_event_id
        enough = event in self._bad_events and len(self._tried[event]) >= ENOUGH
        return enough and event not in self._taken | self._own_taken


def _shuffled(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Put an event's messages together, in the order of random ids: those tried first stand for the others."""
    return sorted(deliveries, key=lambda d: (d.notification_event_id, d.installation_id))
