"""Which refusals at the dashboard are entries of their own: strangers of two networks, and a token."""

from __future__ import annotations

from relevo.http.dashboard.refusals import MOST_OF_GROUP, MOST_OF_STRANGERS, Caller, Refusals

TOKEN = Caller("a viewer", "a viewer", is_stranger=False)


def stranger(number: int, network: str) -> Caller:
    """Return somebody without a token."""
    return Caller(f"{network}.{number}", network, is_stranger=True)


def test_nobody_uses_up_the_room_of_another() -> None:
    """A network has so many entries an hour, its callers one each; another network and a token have their own."""
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    taken = [refusals.take("refused_login", stranger(n, "192.0.2")) for n in range(MOST_OF_GROUP + 2)]
    assert taken == [True] * MOST_OF_GROUP + [False] * 2
    assert refusals.take("refused_login", stranger(1, "198.51.100")) is True
    assert refusals.take("refused_login", stranger(1, "198.51.100")) is False, "it is counted"
    assert [refusals.take(each, TOKEN) for each in ("refused_role", "refused_role", "refused_form")] == [
        True,
        False,
        True,
    ]
    assert refusals.take("refused_login", stranger(99, "192.0.2")) is False
    now[0] = 3_600.0
    assert refusals.take("refused_login", stranger(98, "192.0.2")) is True


def test_all_strangers_together_are_bounded() -> None:
    """However many networks they come from they have so many entries an hour; a token has room all the same."""
    refusals = Refusals(lambda: 0.0)
    taken = [refusals.take("refused_login", stranger(1, f"10.{n}")) for n in range(MOST_OF_STRANGERS + 3)]
    assert sum(taken) == MOST_OF_STRANGERS
    assert refusals.take("refused_role", TOKEN) is True
