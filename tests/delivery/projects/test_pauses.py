"""What a worker leaves alone for a while, by itself."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from relevo.core.model import Delivery
from relevo.delivery.projects.pauses import PhonePauses, TurnedAway

PHONE = UUID(int=1)
DELIVERY = Delivery(
    date(2026, 11, 15),
    1,
    1,
    PHONE,
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


def test_a_shorter_pause_of_a_phone_does_not_cut_a_longer_one() -> None:
    """Of two answers that ask for pauses of a phone the one that ends later holds, whichever came first."""
    for pauses_ms in ((0, 60_000), (60_000, 0)):
        pauses = PhonePauses()
        for each in pauses_ms:
            pauses.pause(PHONE, each)
        assert pauses.any_of([DELIVERY])
        assert pauses.left_ms(PHONE) is not None, pauses_ms


def test_a_delivery_that_was_forgotten_is_counted_anew() -> None:
    """What became of a delivery otherwise ends its count: it is named once, and turned away later it begins at one."""
    turned_away = TurnedAway()
    assert [turned_away.met(1), turned_away.met(1), turned_away.met(2)] == [1, 2, 1]
    assert turned_away.forget([1, 3]) == [1]
    assert turned_away.forget([1]) == []
    assert [turned_away.met(1), turned_away.met(2)] == [1, 2]
