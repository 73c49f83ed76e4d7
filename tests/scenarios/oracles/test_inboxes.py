"""Random people pass phones on, log out, are forgotten and mark items: each inbox is what the page says, after every step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo.client import consent
from relevo.client.inboxes import Mark
from support.inbox_oracle import Event, Inboxes, Key, Status
from support.soak import cases
from support.time_machine import TimeMachine, time_machine

BEGIN = datetime(2026, 3, 2, 12, tzinfo=UTC)
PROJECTS = ("default", "shop")
OWNERS = ("ana", "bea")
REGIONS = ("Maule", "Biobío")
CATEGORIES = {"news": "on", "ads": "on", "offers": "off", "law": "mandatory"}
TYPES: dict[str, int | None] = {"plain": 90, "short": 5, "long": 400, "hidden": None}
STATUSES: tuple[Status, ...] = get_args(Status)
MARKS: tuple[Mark, ...] = get_args(Mark)


class Player:
    """Takes random steps in the product and in the oracle, and compares all inboxes."""

    def __init__(self, machine: TimeMachine, seed: int) -> None:
        self.machine, self.conn = machine, machine.conn
        self.dice = random.Random(seed)
        self.oracle = Inboxes(rules=CATEGORIES)
        self.events: dict[int, Event] = {}
        self.forgotten: set[UUID] = set()
        self.log: list[str] = []
        machine.renew(BEGIN)
        for category, rule in CATEGORIES.items():
            consent.set_category(self.conn, category, rule=rule)
        for name, days in TYPES.items():
            self.conn.execute(
                "insert into relevo.event_types (event_type, inbox, inbox_days) values (%s, %s, %s)",
                [name, days is not None, days],
            )
        self.phones = [UUID(int=self.dice.getrandbits(128), version=4) for _ in range(4)]

    def play(self, steps: int) -> None:
        """Take steps, and compare after each."""
        doings = [
            *[self.register] * 4,
            *[self.enqueue] * 7,
            self.unregister,
            self.log_out,
            self.forget_phone,
            self.forget_owner,
            *[self.choose] * 2,
            self.opt_out,
            self.prefer,
            *[self.mark] * 4,
            self.mark_before,
            self.end,
            self.wait,
        ]
        for phone in self.phones[:3]:
            self.register(phone)
        for _ in range(steps):
            self.machine.travel_to(self.machine.now + timedelta(minutes=self.dice.randint(1, 300)))
            self.dice.choice(doings)()
            self.compare(self.dice.sample(self.keys(), 2), [self.dice.choice(STATUSES)])
        self.compare(self.keys(), STATUSES)

    def say(self, *words: object) -> None:
        """Write a step down, for whoever looks why the two disagree."""
        self.log.append(" ".join(str(word) for word in (self.machine.now, *words)))

    def why(self) -> str:
        """Return all steps so far."""
        return "\n".join(["", *self.log])

    # Steps

    def register(self, phone: UUID | None = None) -> None:
        """A phone registers under an owner or nobody, in a project."""
        phone = phone or self.dice.choice([each for each in self.phones if each not in self.forgotten] or [self._new()])
        project, owner = self.dice.choice(PROJECTS), self.dice.choice((*OWNERS, *OWNERS, None))
        known = self.oracle.phones.get(phone)
        if known is not None and self.dice.random() < 0.6:
            project = known.project
        self.say("register", phone, project, owner)
        asked = {"installation_id": str(phone), "token": f"ExponentPushToken[{phone}]"}
        self.conn.execute(
            "select relevo.register_installation(%s)", [Jsonb(asked | {"project": project, "owner": owner})]
        )
        self.oracle.register(phone, project, owner)

    def _new(self) -> UUID:
        self.phones.append(UUID(int=self.dice.getrandbits(128), version=4))
        return self.phones[-1]

    def unregister(self) -> None:
        """A phone logs out."""
        if phone := self._a_phone():
            self.say("unregister", phone)
            relevo.unregister(self.conn, phone)
            self.oracle.unregister(phone, self.machine.now)

    def log_out(self) -> None:
        """An owner logs out everywhere."""
        owner = self.dice.choice(OWNERS)
        self.say("unregister", owner)
        relevo.unregister(self.conn, owner=owner)
        for number, phone in self.oracle.phones.items():
            if phone.owner == owner:
                self.oracle.unregister(number, self.machine.now)

    def forget_phone(self) -> None:
        """A phone is forgotten."""
        if self.dice.random() < 0.5 and (phone := self._a_phone()):
            self.say("forget", phone)
            relevo.forget(self.conn, phone)
            self.oracle.forget_phone(phone)
            self.forgotten.add(phone)

    def forget_owner(self) -> None:
        """An owner is forgotten."""
        if self.dice.random() < 0.4:
            owner = self.dice.choice(OWNERS)
            self.say("forget", owner)
            relevo.forget(self.conn, owner=owner)
            self.forgotten |= {number for number, phone in self.oracle.phones.items() if phone.owner == owner}
            self.oracle.forget_owner(owner)

    def choose(self) -> None:
        """An owner accepts or refuses a category in a project."""
        project, owner = self.dice.choice(PROJECTS), self.dice.choice(OWNERS)
        category, wanted = self.dice.choice(["news", "ads", "offers"]), self.dice.random() < 0.4
        self.say("choose", project, owner, category, wanted)
        consent.choose(self.conn, category, owner=owner, project=project, wanted=wanted)
        self.oracle.choices[project, owner, category] = wanted

    def opt_out(self) -> None:
        """A phone opts out of categories."""
        if phone := self._a_phone(registered=True):
            known, out = self.oracle.phones[phone], self.dice.sample(list(CATEGORIES), self.dice.randint(0, 2))
            self.say("opt out", phone, out)
            asked = {"installation_id": str(phone), "token": f"ExponentPushToken[{phone}]", "opt_outs": out}
            asked |= {"project": known.project, "owner": known.owner}
            self.conn.execute("select relevo.register_installation(%s)", [Jsonb(asked)])
            known.opt_outs = frozenset(out)

    def prefer(self) -> None:
        """A phone asks for one region, or for all."""
        if phone := self._a_phone():
            region = self.dice.choice((*REGIONS, None))
            self.say("prefer", phone, region)
            relevo.set_preference(self.conn, phone, "default", relevo.TenderPreference(region=region))
            self.oracle.phones[phone].region = region

    def enqueue(self) -> None:
        """An event is made for owners, phones, everyone or whoever matches, and fanned out."""
        kind = self.dice.choice(list(TYPES))
        event = Event(0, self.machine.now, TYPES[kind], self.dice.choice([None, None, *CATEGORIES]))
        event.project, event.shows = self.dice.choice([None, *PROJECTS]), self.dice.random() < 0.9
        audience: Any = "everyone"
        match self.dice.randrange(5):
            case 0 | 1:
                event.owners = frozenset(self.dice.sample(OWNERS, self.dice.randint(1, 2)))
                audience = relevo.Owners(*sorted(event.owners))
            case 2 if self.oracle.phones:
                known = sorted(self.oracle.phones)
                event.phones = frozenset(self.dice.sample(known, self.dice.randint(1, len(known))))
                audience = sorted(event.phones)
            case 3:
                event.region = self.dice.choice(REGIONS)
                audience = relevo.TenderMatching(region=event.region)
            case _:
                event.everyone = True
        key = f"{len(self.events)}"
        made = relevo.Event(
            kind,
            key,
            key if event.shows else "",
            audience=audience,
            category=event.category,
            project=event.project,
            data={"to": "screen"},
        )
        event.id = relevo.enqueue(self.conn, made).event_id
        self.say("enqueue", event)
        self.machine.run("fanout")
        self.events[event.id] = event
        self.oracle.fan_out(event)

    def end(self) -> None:
        """An event is cancelled, completed or deleted."""
        young = [each for each in self.events.values() if self.machine.now - each.at < timedelta(days=25)]
        if not young:
            return
        event, way = self.dice.choice(young), self.dice.choice(["cancel", "complete", "delete"])
        self.say(way, event.id)
        if way == "cancel":
            event.is_gone |= relevo.cancel(self.conn, event.id)
        elif way == "delete":
            event.is_gone |= relevo.delete(self.conn, [event.id]) == 1
        else:
            relevo.complete(self.conn, event.id)
        self.machine.run("fanout")

    def mark(self) -> None:
        """Somebody marks an item of an inbox, or an event that is in no inbox of theirs."""
        if not self.events:
            return
        key, mark = self.dice.choice(self.keys()), self.dice.choice(MARKS)
        own = list(self.oracle.items.get(key, {}))
        event = self.dice.choice(own if own and self.dice.random() < 0.85 else list(self.events))
        self.say("mark", key, event, mark)
        done = relevo.mark_inbox(self.conn, event, mark, **asked(key))
        assert done == self.oracle.mark(key, event, mark, self.machine.now), self.why()

    def mark_before(self) -> None:
        """Somebody marks all, or what came until a while ago."""
        key, mark = self.dice.choice(self.keys()), self.dice.choice(["read", "seen"])
        before = self.machine.now - timedelta(hours=self.dice.choice([0, 0, 9, 90]))
        self.say("mark until", before, key, mark)
        if relevo.mark_inbox_before(self.conn, before, mark, **asked(key)):
            self.oracle.mark_before(key, before, mark)
        else:
            assert not self.oracle.items.get(key), self.why()

    def wait(self) -> None:
        """Days or months pass, and cleanup runs at night."""
        self.machine.travel_to(self.machine.now + timedelta(days=self.dice.choice([1, 3, 10, 45, 95])))
        self.say("clean up")
        self.machine.run("cleanup")
        self.oracle.clean_up(self.machine.now)

    def _a_phone(self, *, registered: bool = False) -> UUID | None:
        found = [number for number, phone in self.oracle.phones.items() if phone.is_registered or not registered]
        return self.dice.choice(found) if found else None

    # Comparing

    def keys(self) -> list[Key]:
        """Return whose inboxes there are: of owners in projects, and of phones that have no owner now."""
        alone = [number for number, phone in self.oracle.phones.items() if phone.owner is None]
        return [*((project, owner) for project in PROJECTS for owner in OWNERS), *alone]

    def compare(self, keys: Sequence[Key], statuses: Sequence[Status]) -> None:
        """Each inbox has the items that the oracle names, in its order and with its marks, and counts them so."""
        for key in keys:
            for status in statuses:
                limit = self.dice.choice([3, 50])
                told = self._read(key, status, limit)
                right = [
                    (item.event.id, item.seen, item.read, item.archived)
                    for item in self.oracle.read(key, status, self.machine.now)
                ]
                assert told == right, f"{key} {status} {limit}: told {told}, right {right} {self.why()}"
            counts = relevo.inbox_counts(self.conn, **asked(key))
            unread, unseen = (len(self.oracle.read(key, each, self.machine.now)) for each in ("unread", "unseen"))
            assert (counts.unread, counts.unseen) == (unread, unseen), f"{key} {self.why()}"

    def _read(self, key: Key, status: Status, limit: int) -> list[tuple[int, bool, bool, bool]]:
        found, before = [], None
        while True:
            page = relevo.inbox(self.conn, status=status, limit=limit, before=before, **asked(key))
            found += [
                (item.event_id, item.seen_at is not None, item.read_at is not None, item.archived_at is not None)
                for item in page.items
            ]
            before = page.next
            if before is None:
                return found


def asked(key: Key) -> dict[str, Any]:
    """Say whose inbox it is, as the functions take it."""
    return {"installation_id": key} if isinstance(key, UUID) else {"project": key[0], "owner": key[1]}


@pytest.fixture(scope="module")
def machine(module_settings: Any) -> Iterator[TimeMachine]:
    """A worker and its database, which walk through time."""
    with time_machine(module_settings) as made:
        yield made


@pytest.mark.parametrize("seed", range(cases(3, whole=80)))
def test_each_inbox_is_its_owners(machine: TimeMachine, seed: int) -> None:
    """Through any sequence of owners, projects, logouts, erasures and marks each inbox holds what the page says, and no more."""
    Player(machine, seed).play(cases(30, whole=60))
