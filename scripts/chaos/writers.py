"""The app: threads that write through Python, SQL and HTTP, and note what they were told once they were told it."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from chaos.stage import Stage
from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners
from relevo.core.errors import RelevoError

KINDS = ("expo", "android", "iphone", "browser")
OWNERS = 12
PAUSE_S = 0.1
_SQL = "select e.event_id from relevo.enqueue(%s) e"


@dataclass
class Told:
    """What writers were told, in the order they noted it."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, **more: Any) -> None:
        """Note something that was acknowledged."""
        with self.lock:
            self.lines.append({"what": what, "at": time.time(), **more})


def register_phones(stage: Stage, told: Told) -> list[UUID]:
    """Register each owner's phones of all kinds; return those whose token may change."""
    movable = []
    with stage.connect() as conn:
        for number in range(OWNERS):
            for kind in KINDS:
                name = f"{kind}-{number}"
                phone = verbs.register(conn, _installation(stage, kind, name, owner=f"owner-{number}"))
                told.note("registered", installation=phone, owner=f"owner-{number}", phone=name)
                if kind == "expo":
                    movable.append(phone)
    return movable


def _installation(stage: Stage, kind: str, name: str, **more: Any) -> Installation:
    match kind:
        case "expo":
            return Installation(f"ExponentPushToken[{name}]", provider="expo", **more)
        case "android":
            return Installation(stage.sandbox.fcm_token(name), provider="fcm", platform="android", **more)
        case "iphone":
            return Installation(stage.sandbox.apns_token(name), provider="apns", **more)
        case _:
            return Installation(stage.sandbox.subscription(name), provider="webpush", platform="web", **more)


def _json(key: str, owner: str, once: bool, body: str) -> dict[str, Any]:
    return {
        "type": "order",
        "key": key,
        "title": "Order",
        "body": body,
        "audience": {"owners": [owner]},
        "at_most_once": once,
    }


class Writer(threading.Thread):
    """One thread of the app; what fails is not noted, and tried under another key."""

    def __init__(self, stage: Stage, told: Told, name: str, seed: str, phones: list[UUID]) -> None:
        super().__init__(name=name, daemon=True)
        self._stage, self._told, self._phones = stage, told, phones
        self._chance = random.Random(f"{seed} {name}")
        self._ended = threading.Event()
        self._number = 0
        self._recent: list[int] = []

    def stop(self) -> None:
        """Write nothing more."""
        self._ended.set()

    def run(self) -> None:
        """Write until told to stop, on a new connection after each failure."""
        while not self._ended.is_set():
            try:
                with self._stage.connect() as conn:
                    while not self._ended.wait(PAUSE_S * self._chance.random()):
                        self._write(conn)
            except (psycopg.Error, OSError, HTTPException, RelevoError, ValueError):
                self._ended.wait(0.2)

    def _write(self, conn: psycopg.Connection[Any]) -> None:
        self._number += 1
        roll = self._chance.random()
        if roll < 0.06 and self._recent:
            self._cancel(conn, self._recent.pop())
        elif roll < 0.09:
            self._move(conn)
        else:
            self._enqueue(conn, roll)

    def _enqueue(self, conn: psycopg.Connection[Any], roll: float) -> None:
        key, once = f"{self.name}-{self._number}", self._chance.random() < 0.25
        owner = f"owner-{self._chance.randrange(OWNERS)}"
        if roll < 0.3:
            [(event,)] = conn.execute(_SQL, [Jsonb(_json(key, owner, once, "By SQL"))]).fetchall()
        elif roll < 0.5:
            event = self._post(key, owner, once)
        elif roll < 0.55:
            event = verbs.enqueue(conn, Event("order", key, "Order", "To all", audience="everyone")).event_id
        else:
            made = verbs.enqueue(
                conn, Event("order", key, "Order", "By Python", audience=Owners(owner), at_most_once=once)
            )
            event = made.event_id
        self._recent.append(event)
        self._told.note("enqueued", event=event, key=key, once=once)

    def _post(self, key: str, owner: str, once: bool) -> int:
        replica = self._chance.choice(self._stage.replicas)
        event = _json(key, owner, once, "By HTTP")
        headers = {"Authorization": f"Bearer {self._stage.app_token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{replica.port}/v1/events", json.dumps(event).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(json.load(answer)["event_id"])

    def _cancel(self, conn: psycopg.Connection[Any], event: int) -> None:
        if verbs.cancel(conn, event, "chaos"):
            self._told.note("cancelled", event=event)

    def _move(self, conn: psycopg.Connection[Any]) -> None:
        phone = self._chance.choice(self._phones)
        token = f"ExponentPushToken[moved-{self.name}-{self._number}]"
        verbs.register(conn, Installation(token, installation_id=phone, provider="expo"))
        self._told.note("moved", installation=phone, phone=token[18:-1])
