"""Random callers of several projects register, enqueue and read: each gets and sees exactly what the guide's rules say."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from relevo.access import phones
from relevo.access.api_tokens import Token
from relevo.access.phones import DeviceRules, Proof
from relevo.app import App
from relevo.client.values import Installation
from relevo.core.errors import InvalidInputError, NotFoundError
from relevo.operators import owners
from relevo.verbs import events, inboxes
from relevo.verbs.callers import Caller
from relevo.verbs.inboxes import Whose
from relevo.verbs.owners import list_phones
from support import soak
from support.phones import fan_out

sys.path.insert(0, str(Path(__file__).parent))
from support.projects_oracle import SEVERAL, Phone, World

PROJECTS = ("shop", "bank", "default")
SCOPES = (*PROJECTS, None)
OWNERS = ("ana", "bob", "cleo")
KEYS = ("k1", "k2", "k3")
EMPTIED = """
delete from relevo.notification_deliveries; delete from relevo.due_chunks; delete from relevo.notification_events;
delete from relevo.device_installations; delete from relevo.inboxes
"""


class Player:
    """Does the same in the product and in the oracle, and compares all that anybody may read."""

    def __init__(self, app: App, conn: psycopg.Connection[Any], seed: int) -> None:
        self.app = app
        self.conn = conn
        self.dice = random.Random(seed)
        self.world = World()
        self.log: list[str] = [f"seed {seed}"]
        conn.execute(EMPTIED)
        owners.share(app.database, shared=False)

    def token(self, scope: str | None) -> Token:
        """Return a token of the app, of one project or of all."""
        return Token("0" * 12, "app", "app", scope)

    def caller(self, scope: str | None) -> Caller:
        """Return a caller with such a token."""
        return Caller(self.app.database, Proof(token=self.token(scope)))

    def play(self, steps: int) -> None:
        """Take some steps, and compare."""
        for _ in range(steps):
            self.dice.choices((self.register, self.enqueue, self.share), (4, 6, 1))[0]()
        self.compare()

    def register(self) -> None:
        """Register a phone, by a token of one project, or of all with or without naming a project."""
        scope, owner = self.dice.choice(SCOPES), self.dice.choice((*OWNERS, None))
        named = self.dice.choice((*PROJECTS, None)) if scope is None else self.dice.choice((scope, None))
        asked = Installation(f"ExponentPushToken[{uuid4().hex}]", owner=owner, project=named, installation_id=uuid4())
        with self.conn.transaction():
            phones.register(self.conn, DeviceRules(), asked, Proof(token=self.token(scope)), 0)
        assert asked.installation_id is not None
        self.world.phones.append(Phone(asked.installation_id, scope or named or "default", owner))
        self.log.append(f"register {scope} {named} {owner}")

    def enqueue(self) -> None:
        """Enqueue an event for everyone, some owners, or some phones, and fan it out."""
        scope, key, title = self.dice.choice(SCOPES), self.dice.choice(KEYS), uuid4().hex
        project = self.dice.choice((*PROJECTS, None)) if scope is None else None
        audience = self.dice.choice(("everyone", "owners", "owners", "installations"))
        people = set(self.dice.sample(OWNERS, self.dice.randint(1, 2))) if audience == "owners" else set()
        named = (
            {each.id for each in self.world.phones if self.dice.random() < 0.5}
            if audience == "installations"
            else set()
        )
        event: dict[str, Any] = {"type": "t", "key": key, "title": title, "audience": audience, "on_conflict": "keep"}
        event |= {"owners": sorted(people)} if people else {}
        event |= {"installations": [str(each) for each in named]} if audience == "installations" else {}
        event |= {"project": project} if project else {}
        beside = {"type": "x", "key": title, "title": "-", "audience": "owners", "owners": ["zoe"]}
        [done] = events.enqueue(self.caller(scope), [event])
        if self.dice.random() < 0.5:  # small events that are due together are fanned out together, by another function
            events.enqueue(self.caller(None), [beside])
        fan_out(self.app)
        self.log.append(f"enqueue {scope} {project} {key} {audience} {sorted(people)} {len(named)} -> {done.event_id}")
        known = self.world.known(scope or project, key)
        assert (done.created, known in (None, done.event_id)) == (known is None, True), "\n".join(self.log)
        if known is None:
            others = {
                each.id
                for each in self.world.phones
                if each.id in named and (scope or project) not in (None, each.project)
            }
            assert set(done.unknown_installations) == others, "\n".join(self.log)
            self.world.add(done.event_id, scope or project, key, title, audience == "everyone", people, named)

    def share(self) -> None:
        """Say that equal names are one person, or not."""
        self.world.shared = not self.world.shared
        owners.share(self.app.database, shared=self.world.shared)
        self.log.append(f"shared {self.world.shared}")

    def compare(self) -> None:
        """Let every caller read everything it can name."""
        for scope in SCOPES:
            seen = {event.id for event in self.world.events if self._finds(event.id, scope)}
            assert seen == self.world.sees(scope), (scope, "\n".join(self.log))
            for key in KEYS:
                for project in (None, *(PROJECTS if scope is None else ())):
                    found = self._by_key(key, scope or project)
                    assert found == self.world.by_key(scope, project, key), (scope, project, key, "\n".join(self.log))
            for owner in OWNERS:
                found = list_phones(self.caller(scope), owner, 1000)
                listed = {UUID(str(each["installation_id"])) for each in found}
                assert listed == self.world.owned(scope, owner), (scope, owner, "\n".join(self.log))
                for project in PROJECTS if scope is None else (scope,):
                    inbox = self._inbox(Whose(owner, project=project), scope)
                    assert inbox == self.world.inbox(project, owner), (scope, project, owner, "\n".join(self.log))
            for phone in (each for each in self.world.phones if each.owner is None):
                mine = self.world.inbox_of_phone(phone) if scope in (None, phone.project) else None
                assert self._inbox(Whose(installation_id=phone.id), scope) == mine, (scope, phone, "\n".join(self.log))

    def _finds(self, event_id: int, scope: str | None) -> bool:
        try:
            return events.find(self.caller(scope), event_id).id == event_id
        except NotFoundError:
            return False

    def _by_key(self, key: str, project: str | None) -> int | str | None:
        try:
            return events.find_by_key(self.caller(None), "t", key, project).id
        except NotFoundError:
            return None
        except InvalidInputError:
            return SEVERAL

    def _inbox(self, whose: Whose, scope: str | None) -> set[str] | None:
        try:
            page = inboxes.read(self.caller(scope), whose, {"limit": 200})
        except NotFoundError:
            return None
        return {item["title"] for item in page.told["items"]}


@pytest.mark.parametrize("part", range(soak.cases(2, whole=40)))
def test_each_caller_sees_what_the_rules_say(
    build: Callable[..., App], conn: psycopg.Connection[Any], part: int
) -> None:
    """After any sequence of registrations, events and changes of sharing every caller reads exactly what the rules give it."""
    app = build()
    for case in range(soak.cases(20, whole=100)):
        Player(app, conn, seed=part * 100_000 + case).play(steps=10)
