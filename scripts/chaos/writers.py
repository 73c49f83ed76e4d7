"""The app: threads that write through Python, SQL and HTTP, and note what they were told once they were told it."""

from __future__ import annotations

import json
import random
import threading
import urllib.request
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from chaos.acknowledged import Acknowledged
from chaos.quiet_and_digests import QuietAndDigests
from chaos.system import NEWS, System
from relevo.client import inboxes, news, verbs
from relevo.client.values import Event, Installation, Owners
from relevo.config import load
from relevo.core.errors import RelevoError
from relevo.core.known_services import EXPO
from relevo.database.pool import Database
from relevo.operators import actions
from relevo.sandbox import push_service

SERVICES = {each.trial.phone: each for each in push_service.known()}
"""By kind of phone; Expo's have a kind of their own."""
KINDS = (EXPO, *SERVICES)
OWNERS = 12
PAUSE_S = 0.25
BEHIND = 25
"""How much longer it pauses while much is due."""
DEADLINE_S = 4
_SQL = "select e.event_id from relevo.enqueue(%s) e"


def register_phones(system: System, acknowledged: Acknowledged) -> dict[str, list[UUID]]:
    """Register each owner's phones of all kinds; return them by kind."""
    phones: dict[str, list[UUID]] = {kind: [] for kind in KINDS}
    with system.connect() as conn:
        for number in range(OWNERS):
            for kind in KINDS:
                name = f"{kind}-{number}"
                phone = verbs.register(conn, _installation(system, kind, name, owner=f"owner-{number}"))
                acknowledged.note("registered", installation=phone, owner=f"owner-{number}", phone=name)
                phones[kind].append(phone)
    return phones


def _installation(system: System, kind: str, name: str, **more: Any) -> Installation:
    if kind == EXPO:
        return Installation(f"ExponentPushToken[{name}]", provider=EXPO, **more)
    service = SERVICES[kind]
    token = system.sandbox.token(service.name, name)
    return Installation(token, provider=service.name, platform=service.trial.platform, **more)


def _json(key: str, owner: str, once: bool, body: str) -> dict[str, Any]:
    return {
        "type": "order",
        "key": key,
        "title": "Order",
        "body": body,
        "audience": "owners",
        "owners": [owner],
        "at_most_once": once,
    }


class Writer(threading.Thread):
    """One thread of the app; what fails is not noted, and tried under another key."""

    def __init__(
        self,
        system: System,
        acknowledged: Acknowledged,
        name: str,
        seed: str,
        *,
        movable: list[UUID],
        quiet: QuietAndDigests | None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._system, self._acknowledged, self._movable, self._quiet = system, acknowledged, movable, quiet
        self._chance = random.Random(f"{seed} {name}")
        self._ended = threading.Event()
        self._number = 0
        self._recent: list[tuple[int, str | None]] = []
        self._people: list[str] = []
        self._rarely = [
            (0.05, self._cancel),
            (0.08, self._move),
            (0.11, self._mark),
            (0.12, self._redrive),
            (0.15, self._write_to_a_person),
            (0.18, self._forget),
            (0.22, self._hurry),
            (0.28, self._offer),
        ]
        if quiet is not None:
            self._rarely += [
                (0.32, self._tender),
                (0.36, self._whisper),
                (0.37, self._hush),
                (0.377, self._reschedule),
            ]

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()

    def run(self) -> None:
        """Write until told to stop, on a new connection after each failure."""
        while not self._ended.is_set():
            try:
                with self._system.connect() as conn:
                    while not self._ended.wait(
                        PAUSE_S * self._chance.random() * (BEHIND if self._system.is_behind else 1)
                    ):
                        self._write(conn)
            except (psycopg.Error, OSError, HTTPException, RelevoError, ValueError):
                self._ended.wait(0.2)

    def _write(self, conn: psycopg.Connection[Any]) -> None:
        self._number += 1
        roll = self._chance.random()
        for share, act in self._rarely:
            if roll < share:
                act(conn)
                return
        self._enqueue(conn, self._chance.random())

    def _owner(self) -> str:
        return f"owner-{self._chance.randrange(OWNERS)}"

    def _noted(self, event: int, owner: str | None, *, by: str = "Python", **more: Any) -> None:
        self._recent.append((event, owner))
        self._acknowledged.note("enqueued", event=event, key=f"{self.name}-{self._number}", owner=owner, by=by, **more)

    def _enqueue(self, conn: psycopg.Connection[Any], roll: float) -> None:
        key, once = f"{self.name}-{self._number}", self._chance.random() < 0.25
        owner = self._owner()
        if roll < 0.3:
            [(event,)] = conn.execute(_SQL, [Jsonb(_json(key, owner, once, "By SQL"))]).fetchall()
            self._noted(event, owner, once=once, by="SQL")
        elif roll < 0.5:
            self._noted(self._post(key, owner, once), owner, once=once, by="HTTP")
        elif roll < 0.53:
            made = Event("order", key, "Order", "To all", audience="everyone")
            self._noted(verbs.enqueue(conn, made).event_id, None, once=False)
        else:
            made = Event("order", key, "Order", "By Python", audience=Owners(owner), at_most_once=once)
            self._noted(verbs.enqueue(conn, made).event_id, owner, once=once)

    def _post(self, key: str, owner: str, once: bool) -> int:
        replica = self._chance.choice(self._system.replicas)
        event = _json(key, owner, once, "By HTTP")
        headers = {"Authorization": f"Bearer {self._system.app_token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{replica.port}/v1/events", json.dumps(event).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(json.load(answer)["event_id"])

    def _cancel(self, conn: psycopg.Connection[Any]) -> None:
        if self._recent:
            event, _ = self._recent.pop()
            if verbs.cancel(conn, event, "chaos"):
                self._acknowledged.note("cancelled", event=event)

    def _move(self, conn: psycopg.Connection[Any]) -> None:
        phone = self._chance.choice(self._movable)
        token = f"ExponentPushToken[moved-{self.name}-{self._number}]"
        verbs.register(conn, Installation(token, installation_id=phone, provider=EXPO))
        self._acknowledged.note("moved", installation=phone, phone=token[18:-1])

    def _mark(self, conn: psycopg.Connection[Any]) -> None:
        """Mark something as read in the inbox of whom it was for."""
        event, owner = self._chance.choice(self._recent) if self._recent else (0, None)
        if owner is not None and inboxes.mark_inbox(conn, event, "read", owner=owner):
            self._acknowledged.note("marked", event=event, owner=owner)

    def _redrive(self, _: psycopg.Connection[Any]) -> None:
        """Open again what the push service refused for good."""
        database = Database(self._system.dsn, self._system.dsn, load({}, None), pool_size=1)
        try:
            opened = actions.redrive(database, actions.DeadLetters(error_code="MessageTooBig"))
        finally:
            database.close()
        self._acknowledged.note("redriven", deliveries=opened)

    def _write_to_a_person(self, conn: psycopg.Connection[Any]) -> None:
        """Register a phone of somebody new, and write to them by name."""
        person = f"person-{self.name}-{self._number}-"
        phone = verbs.register(conn, Installation(f"ExponentPushToken[{person}]", provider=EXPO, owner=person))
        self._acknowledged.note("registered", installation=phone, owner=person, phone=person)
        self._people.append(person)
        key = f"{self.name}-{self._number}"
        made = Event("letter", key, f"Dear {person}", "A letter", data={"to": person}, audience=Owners(person))
        self._noted(verbs.enqueue(conn, made).event_id, person, once=False)

    def _forget(self, conn: psycopg.Connection[Any]) -> None:
        """Forget somebody, whatever is under way for them."""
        if self._people:
            person = self._people.pop(0)
            verbs.forget(conn, owner=person)
            self._acknowledged.note("forgotten", owner=person)

    def _hurry(self, conn: psycopg.Connection[Any]) -> None:
        """Enqueue something that is worth nothing in some seconds."""
        owner, key = self._owner(), f"{self.name}-{self._number}"
        deadline = datetime.now(UTC) + timedelta(seconds=DEADLINE_S)
        made = Event("order", key, "Order", "Soon", audience=Owners(owner), deadline_at=deadline)
        self._noted(verbs.enqueue(conn, made).event_id, owner, once=False, deadline=deadline.timestamp())

    def _offer(self, conn: psycopg.Connection[Any]) -> None:
        """Enqueue something of which people get only so much."""
        owner, key = f"owner-{self._chance.randrange(2)}", f"{self.name}-{self._number}"
        made = Event("offer", key, "Offer", "An offer", audience=Owners(owner), category="offers", lane="bulk")
        self._noted(verbs.enqueue(conn, made).event_id, owner, once=False, category="offers")

    def _tender(self, conn: psycopg.Connection[Any]) -> None:
        """Enqueue something that most are told of by a digest."""
        assert self._quiet is not None
        self._noted(self._quiet.tender(conn, f"{self.name}-{self._number}"), None, once=False, topic="tenders")

    def _whisper(self, conn: psycopg.Connection[Any]) -> None:
        """Enqueue something that waits for the end of quiet hours."""
        assert self._quiet is not None
        event, owner = self._quiet.whisper(conn, f"{self.name}-{self._number}", self._chance)
        self._noted(event, owner, once=False, waits=True)

    def _hush(self, conn: psycopg.Connection[Any]) -> None:
        assert self._quiet is not None
        self._quiet.hush(conn, self._chance)

    def _reschedule(self, conn: psycopg.Connection[Any]) -> None:
        assert self._quiet is not None
        self._quiet.reschedule(conn, self._chance)


class Reader(threading.Thread):
    """Reads the news, and acknowledges what it noted."""

    def __init__(self, system: System, acknowledged: Acknowledged) -> None:
        super().__init__(name="reader", daemon=True)
        self._system, self._acknowledged = system, acknowledged
        self._ended = threading.Event()

    def stop(self) -> None:
        """Read nothing more."""
        self._ended.set()

    def run(self) -> None:
        """Read until told to stop, on a new connection after each failure."""
        while not self._ended.is_set():
            try:
                with self._system.connect() as conn:
                    while not self._ended.wait(0.3):
                        self._read(conn)
            except (psycopg.Error, RelevoError):
                self._ended.wait(0.2)

    def _read(self, conn: psycopg.Connection[Any]) -> None:
        with self._acknowledged.reading:
            found = news.read_news(conn, NEWS, limit=500)
            for each in found:
                self._acknowledged.note(
                    "news", position=each.position, kind=each.kind, event=each.event_id, delivery=each.delivery_id
                )
            if found:
                news.acknowledge_news(conn, NEWS, found[-1].position)
