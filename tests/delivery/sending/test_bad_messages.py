"""Isolating bad messages: against push services that refuse certain messages, all, or all for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from uuid import UUID

import pytest

from relevo.core.model import Delivery, Reply
from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.rate_and_breaker import Project, Refusal
from relevo.delivery.sending.bad_messages import ENOUGH, BadMessageSearch

NOW = datetime(2026, 11, 15, tzinfo=UTC)
QUIET = Project("p", 0, 0, NOW, 1, None, "closed", None, None, None, None, 0, 0, None, None)


def deliveries(number: int, events: int = 1) -> list[Delivery]:
    """Make deliveries, the events taking turns; ids of installations tell nothing of the order."""
    return [
        Delivery(
            date(2026, 11, 15),
            n,
            n % events,
            UUID(int=n * 7919 % 100_003),
            "t",
            "expo",
            "p",
            "bulk",
            at_most_once=False,
            status="pending",
            attempt_count=0,
            lapse_count=0,
            deadline_at=None,
        )
        for n in range(number)
    ]


class Service:
    """A batch's way through a push service that refuses what it is told to, and what was learnt of it."""

    def __init__(self, refuses: Callable[[Delivery, int], bool]) -> None:
        self.refuses = refuses
        self.requests = 0
        self.isolation = BadMessageSearch(100)
        self.sent: set[int] = set()
        self.bad: set[int] = set()
        self.known: dict[int, Refusal] = {}
        self.in_a_row: set[int] = set()

    def take(self, chunks: Sequence[Sequence[Delivery]]) -> dict[str, set[int]]:
        """Send all, as a batch does, and return what is left at the end, by what became of it."""
        waiting = deque(chunks)
        while waiting:
            if chunk := self.isolation.next_of(waiting):
                waiting.extendleft(reversed(self._send(chunk)))
            if not waiting:
                waiting.extend(self.isolation.last_tries())
        left: dict[str, set[int]] = {}
        for delivery, _, ending in self.isolation.endings():
            left.setdefault(ending, set()).add(delivery.id)
        return left

    def _send(self, chunk: Sequence[Delivery]) -> list[Sequence[Delivery]]:
        self.requests += 1
        assert len(chunk) <= 100
        if not any(self.refuses(delivery, self.requests) for delivery in chunk):
            self.sent.update(delivery.id for delivery in chunk)
            self._taken({delivery.notification_event_id for delivery in chunk})
            return self.isolation.took(chunk)
        if len(chunk) > 1:
            return self.isolation.split(chunk, "rejected")
        self._refused(chunk[0])
        return []

    def _taken(self, events: set[int]) -> None:
        self.in_a_row.clear()
        for event, known in self.known.items():
            self.known[event] = Refusal(NOW, taken_since=True, own_taken=known.own_taken or event in events)

    def _refused(self, delivery: Delivery) -> None:
        event = delivery.notification_event_id
        before = self.known.get(event)
        self.in_a_row.add(event)
        state = Project(**{**vars(QUIET), "failures": len(self.in_a_row)})
        self.known[event] = Refusal(NOW, taken_since=False, own_taken=before.own_taken if before else False)
        if self.isolation.refused(delivery, Reply("rejected", code="X"), rate_and_breaker.judge(before, state, NOW)):
            self.bad.add(delivery.id)


@pytest.mark.parametrize("culprits", [{0}, {99}, {50}, {3, 4, 5, 6}, {0, 20, 40, 60, 80, 99}, set(range(0, 100, 3))])
def test_culprits_are_found_and_nobody_else(culprits: set[int]) -> None:
    """Wherever they stand and however many they are: they are bad, all others are sent."""
    service = Service(lambda delivery, _: delivery.id in culprits)
    assert service.take([deliveries(100)]) == {}
    assert (service.bad, service.sent) == (culprits, set(range(100)) - culprits)
    assert service.requests <= 100 + 2 * len(culprits) + 20


def test_a_single_culprit_costs_few_requests() -> None:
    """Twice the logarithm, and once more to be sure."""
    for culprit in range(100):
        service = Service(lambda delivery, _, culprit=culprit: delivery.id == culprit)
        service.take([deliveries(100)])
        assert (service.bad, service.requests <= 16) == ({culprit}, True), culprit


@pytest.mark.parametrize("events", [2, 4])
def test_a_bad_event_costs_the_others_of_its_request_little(events: int) -> None:
    """What is refused is sent in halves with each event's messages together: those of good events leave in a few
    requests."""
    service = Service(lambda delivery, _: delivery.notification_event_id == 1)
    service.take([deliveries(100, events)])
    assert service.sent == {each.id for each in deliveries(100, events) if each.notification_event_id != 1}
    assert service.requests <= 20


def test_a_storm_blames_nobody() -> None:
    """Nothing is taken: nothing is bad, a few of each event were tried, and the rest is set aside."""
    service = Service(lambda *_: True)
    left = service.take([deliveries(300, events=3)[start : start + 100] for start in (0, 100, 200)])
    assert service.bad == set()
    assert left.keys() == {"refused", "untried"}
    assert len(left["refused"]) == 3 * ENOUGH
    assert service.requests < 50


@pytest.mark.parametrize("until", range(1, 30))
def test_a_storm_that_passes_blames_nobody(until: int) -> None:
    """Whenever it ends, as long as something is left to send, all that was refused in it is tried again and sent."""
    service = Service(lambda _, request: request <= until)
    by_event = [[d for d in deliveries(900, events=3) if d.notification_event_id == event] for event in range(3)]
    left = service.take([chunk[start : start + 100] for chunk in by_event for start in (0, 100, 200)])
    assert service.bad == set()
    if until < 22:  # so many requests find out that nothing is taken
        assert (left, service.sent) == ({}, set(range(900)))
    else:
        assert left.keys() <= {"refused", "untried"}


@pytest.mark.parametrize("begins", range(1, 60))
def test_a_storm_that_begins_amid_a_search_costs_little(begins: int) -> None:
    """A bad message was found, others were taken, then all are refused: a handful is blamed, and none tried again."""
    service = Service(lambda delivery, request: delivery.id == 7 or request >= begins)
    service.take([deliveries(100), deliveries(200)[100:]])
    assert len(service.bad - {7}) < ENOUGH
    assert service.requests < begins + 200


def test_a_bad_event_is_given_up_after_a_few() -> None:
    """Five of it were refused one by one, another event was taken, and they were refused again."""
    service = Service(lambda delivery, _: delivery.notification_event_id == 0)
    by_event = [[d for d in deliveries(200, events=2) if d.notification_event_id == event] for event in (0, 1)]
    left = service.take(by_event)
    ids = [{delivery.id for delivery in each} for each in by_event]
    assert (service.sent, left.keys()) == (ids[1], {"given_up"})
    assert service.bad | left["given_up"] == ids[0]
    assert len(service.bad) == ENOUGH
    assert service.requests < 30


def test_an_event_of_which_one_was_ever_taken_is_not_given_up() -> None:
    """Not even in an earlier batch: then it is not the event that is bad."""
    service = Service(lambda delivery, _: delivery.notification_event_id == 0)
    service.known[0] = Refusal(NOW, taken_since=True, own_taken=True)
    left = service.take(
        [[d for d in deliveries(200, events=2) if d.notification_event_id == event] for event in (0, 1)]
    )
    assert left.keys() == {"untried"}
