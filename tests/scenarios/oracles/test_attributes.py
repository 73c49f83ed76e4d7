"""Random attributes of owners and phones, set in any order, and random audiences: the phones are those that the guide's page on attributes names."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo import Event, Everyone, Installation, Matching, Owners, Phones
from support import soak
from support.phones import fan_out_to_the_end

PROJECTS = ("shop", "bank")
OWNERS = ("ana", "bea", None)
NAMES = ("plan", "city", "device.theme", "n")
VALUES: tuple[Any, ...] = ("pro", "1", 1, 1.0, 2.5, True, False, ["pro", "free"], ["a"], "true", "a")
STEPS = 25


class World:
    """What the page says, in plain Python: what each owner and phone has, and who has one of the values of every attribute."""

    def __init__(self) -> None:
        self.phones: dict[UUID, tuple[str, str | None]] = {}
        self.owners: dict[tuple[str, str], dict[str, Any]] = {}
        self.own: dict[UUID, dict[str, Any]] = {}

    def known(self, phone: UUID) -> dict[str, Any]:
        """Return the attributes that hold for a phone: its own go before its owner's."""
        project, owner = self.phones[phone]
        return {**(self.owners.get((project, owner), {}) if owner else {}), **self.own[phone]}

    def has(self, phone: UUID, where: dict[str, Any]) -> bool:
        """Return whether a phone has one of the values of every attribute."""
        known = self.known(phone)
        return all(
            name in known and any(_same(a, b) for a in _all(known[name]) for b in _all(values))
            for name, values in where.items()
        )


def _all(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same: `"42"` and `42` differ, `1` and `1.0` do not, and true is no number."""
    kinds = [(isinstance(each, bool), isinstance(each, str)) for each in (one, other)]
    return kinds[0] == kinds[1] and one == other


def put(kept: dict[str, Any], given: dict[str, Any]) -> None:
    """Set attributes as the page says: what is left out stays, None removes."""
    kept.update(given)
    for name in [name for name, value in kept.items() if value is None]:
        del kept[name]


def some(dice: random.Random, least: int = 1) -> dict[str, Any]:
    """Draw attributes."""
    return {name: dice.choice(VALUES) for name in dice.sample(NAMES, dice.randint(least, 2))}


@pytest.mark.parametrize("seed", soak.cases(range(8), whole=range(200)))
def test_random_attributes(build: Any, conn: psycopg.Connection[Any], seed: int) -> None:
    """After any sequence of settings, removals and changes of owner, preview, explanation and fan-out name the page's phones."""
    dice, world = random.Random(seed), World()
    for n in range(6):
        _register(conn, world, None, dice, n)
    for n in range(STEPS):
        _step(conn, world, dice, n)
        for phone in world.phones:
            assert relevo.get_attributes(conn, installation_id=phone) == world.known(phone), seed
    for n in range(4):
        where, project = some(dice), dice.choice((*PROJECTS, None))
        named = dice.sample(sorted(world.phones), 3)
        audience, meant = dice.choice(
            [
                (Matching(where=where), set(world.phones)),
                (Everyone(where=where), set(world.phones)),
                (Phones(*named, where=where), set(named)),
                (Owners("ana", where=where), {phone for phone, (_, owner) in world.phones.items() if owner == "ana"}),
            ]
        )
        if isinstance(audience, Owners):
            project = project or "shop"
        right = {p for p in meant if world.has(p, where) and project in (None, world.phones[p][0])}
        event = Event("news", f"{n}", "Hello", audience=audience, project=project)
        assert set(relevo.preview(conn, event, sample=100).sample) == right, (seed, where)
        assert {phone for phone in world.phones if relevo.explain(conn, event, phone).gets_it} == right, (seed, where)
        done = relevo.enqueue(conn, event)
        fan_out_to_the_end(build(fanout_slice_size=dice.choice((1, 2, 100))))
        rows = conn.execute(
            "select installation_id from relevo.notification_deliveries where notification_event_id = %s",
            [done.event_id],
        ).fetchall()
        assert sorted(row[0] for row in rows) == sorted(right), (seed, where)


def _step(conn: psycopg.Connection[Any], world: World, dice: random.Random, n: int) -> None:
    """Set or remove attributes of an owner or a phone, or give a phone to another owner or project."""
    what = dice.random()
    phone = dice.choice(sorted(world.phones))
    given = {name: dice.choice((value, value, None)) for name, value in some(dice).items()}
    if what < 0.4:
        relevo.set_attributes(conn, given, installation_id=phone)
        put(world.own[phone], given)
    elif what < 0.8:
        owner, project = dice.choice(("ana", "bea")), dice.choice(PROJECTS)
        relevo.set_attributes(conn, given, owner=owner, project=project)
        put(world.owners.setdefault((project, owner), {}), given)
    else:
        _register(conn, world, phone, dice, n)


def _register(conn: psycopg.Connection[Any], world: World, phone: UUID | None, dice: random.Random, n: int) -> None:
    """Register a phone, anew or for the first time: a former owner or another project takes its own attributes along."""
    owner, project = dice.choice(OWNERS), dice.choice(PROJECTS)
    made = relevo.register(conn, Installation(f"ExponentPushToken[{phone or n}]", phone, owner=owner, project=project))
    before_in, before = world.phones.get(made, (None, None))
    holder = owner or before  # what a registration does not name stays
    if before_in != project or (before is not None and before != holder):
        world.own[made] = {}
    world.phones[made] = (project, holder)
