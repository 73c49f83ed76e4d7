"""How much is measured: every size of the bench, its default, and what `--quick` and `--set` make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Sizes:
    """The sizes of a whole run, which fit into fifteen minutes on two cores."""

    rounds: int = 3
    """How often ours, the ceiling and the plain loop take turns."""
    phones: int = 100_000
    """Phones that an event for everyone reaches: what one drain sends."""
    rated: int = 12_000
    """Deliveries sent at 600 a second."""
    plain_loop: int = 3_000
    """Deliveries sent by the plain loop, per round."""
    personal: int = 100_000
    """Events for one phone each."""
    singles: int = 2_000
    """Events enqueued one by one, each committed."""
    batched: int = 50_000
    """Events enqueued by the thousand."""
    expired: int = 100_000
    """Deliveries in claims whose lease ran out."""
    held: int = 200_000
    """Deliveries sent while a snapshot is held open."""
    completed: int = 1_000_000
    churned: int = 500_000
    """Deliveries that are over, and those sent, before dispatch is measured again."""
    wakeups: int = 100
    bulk: int = 500_000
    urgent: int = 100
    """Urgent events that overtake so many bulk deliveries."""
    http_requests: int = 100
    http_waiters: int = 200
    http_seconds: int = 5
    """Requests a second, and callers that wait, beside dispatch, in turns of so many seconds."""
    http_calls: int = 1_000
    """Calls of each kind of which the CPU time is told."""
    native: int = 10_000
    """Phones of FCM and of APNs, and browsers, that one event reaches."""
    starts: int = 3
    installations: int = 1_000_000
    """Phones with preferences that fan-out chooses from."""
    narrow: int = 15
    broad: int = 1
    """How often a narrow and a broad event are fanned out."""
    smallest: int = 10_000
    largest: int = 1_000_000
    """The first and the last size of the growth rows, by steps of ten."""
    looks: int = 7
    """How often each is measured, of which the least counts."""
    procrastinate: int = 5_000
    pgqueuer: int = 20_000
    graphile: int = 50_000
    """Jobs that other queues drain."""
    replicas: int = 10
    idle_seconds: int = 120
    rest_seconds: int = 75
    """How long idle replicas are measured, after so long a rest."""
    tenders: int = 1_500
    deliveries: int = 1_000_000
    pages: int = 100
    """Deliveries that the dashboard's pages are looked at with, and how many kinds of pages at most."""
    inbox_deliveries: int = 1_000_000
    inbox_looks: int = 100
    inbox_waiters: int = 2_000
    """Deliveries among which one inbox is read, how often, and how many callers wait for others."""
    digest_phones: int = 20_000
    """Phones that hear of a day's tenders in a digest."""
    night: int = 500_000
    """Deliveries that wait for the end of quiet hours."""
    scale_beside: int = 1_000_000
    scale_hot: int = 10_000_000
    """Deliveries in four hot months beside which the same is measured: few and many. A million take 0.8 GB."""
    scale_phones: int = 200_000
    scale_events: int = 10_000
    scale_month: int = 500_000
    """Phones, events for one phone each, and deliveries of the old month that leaves."""
    hostile_enqueues: int = 20
    hostile_attacks: int = 20
    """Events that a healthy caller enqueues beside each attack, and how many kinds of attacks at most."""
    neighbours: int = 50
    neighbours_stopped: int = 1_000
    neighbours_pushes: int = 20
    """Projects that are slow or locked, those whose breakers are open, and how many pushes are timed beside them."""
    neighbours_single: int = 1_000
    """Projects with one push each, sent beside as many pushes of one project."""


QUICK = Sizes(
    rounds=1,
    phones=300,
    rated=100,
    plain_loop=20,
    personal=200,
    singles=20,
    batched=200,
    expired=300,
    held=300,
    completed=1_000,
    churned=300,
    wakeups=3,
    bulk=2_000,
    urgent=5,
    http_requests=20,
    http_waiters=5,
    http_seconds=1,
    http_calls=20,
    native=300,
    starts=1,
    installations=2_000,
    narrow=2,
    broad=1,
    smallest=100,
    largest=1_000,
    looks=1,
    procrastinate=100,
    pgqueuer=100,
    graphile=100,
    replicas=1,
    idle_seconds=1,
    rest_seconds=1,
    tenders=20,
    deliveries=5_000,
    pages=8,
    inbox_deliveries=2_000,
    inbox_looks=3,
    inbox_waiters=20,
    digest_phones=50,
    night=600,
    scale_beside=2_000,
    scale_hot=8_000,
    scale_phones=300,
    scale_events=50,
    scale_month=1_000,
    hostile_enqueues=2,
    neighbours=2,
    neighbours_stopped=3,
    neighbours_pushes=2,
    neighbours_single=5,
)
"""So little that a run shows only that everything works."""


def changed(sizes: Sizes, wishes: Sequence[str]) -> Sizes:
    """Return sizes with some of them set, as in phones=1000; a wish that says nothing is refused by its name."""
    known = {field.name for field in fields(Sizes)}
    for wish in wishes:
        name, _, value = wish.partition("=")
        if name not in known or not value.isdecimal() or int(value) < 1:
            raise ValueError(f"{wish!r} is not a size; write name=number with one of {', '.join(sorted(known))}")
        sizes = replace(sizes, **{name: int(value)})
    return sizes
