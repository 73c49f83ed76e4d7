"""The load while the primary changes: an app that enqueues, a program that only writes rows, Relevo itself."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners
from relevo.core.errors import RelevoError
from relevo.sandbox import Sandbox

RELEVO = Path(sys.executable).with_name("relevo")
OWNERS = 100
WRITERS = 4
PAUSE_S = 0.05
AGAIN_S = 0.05
START_S = 180.0


@dataclass
class Series:
    """When something succeeded, in seconds of the clock on the wall."""

    name: str
    times: list[float] = field(default_factory=list)

    def silence(self, begin: float, end: float) -> float:
        """Return the longest time without a success in this stretch of time; what comes after it is not counted."""
        before = max((at for at in self.times if at <= begin), default=begin)
        within = sorted(at for at in self.times if begin < at < end)
        return max(later - sooner for sooner, later in pairwise([before, *within, end]))


class Doer(threading.Thread):
    """Does one thing again and again, on a new connection after each failure."""

    def __init__(self, dsn: str, do: Callable[[psycopg.Connection[Any], int], None], done: Series, pause_s: float):
        super().__init__(daemon=True)
        self._dsn, self._do, self._done, self._pause_s = dsn, do, done, pause_s
        self._ended = threading.Event()

    def end(self) -> None:
        """Do it no more."""
        self._ended.set()

    def run(self) -> None:
        """Do it until told to end; what fails is tried under another number."""
        number = 0
        while not self._ended.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as conn:
                    while not self._ended.wait(self._pause_s):
                        number += 1
                        self._do(conn, number)
                        self._done.times.append(time.time())
            except (psycopg.Error, RelevoError):
                self._ended.wait(AGAIN_S)


class Load:
    """All that is done, and what was acknowledged."""

    def __init__(self, dsn: str, sandbox: Sandbox, folder: Path) -> None:
        self._dsn, self.sandbox, self._folder = dsn, sandbox, folder
        self.database, self.enqueues = Series("the database"), Series("enqueue")
        self.rows: set[int] = set()
        self.events: dict[str, tuple[int, int]] = {}
        """By key the event's number and its owner's."""
        self._doers: list[Doer] = []
        self._replicas: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Make the schema, the phones, and a table for rows that Relevo has nothing to do with."""
        environ = {"DATABASE_URL": self._dsn, "PATH": os.environ["PATH"]}
        subprocess.run([str(RELEVO), "migrate"], env=environ, check=True, capture_output=True, cwd=self._folder)
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            conn.execute("create table plain_rows (n int primary key)")
            for number in range(OWNERS):
                verbs.register(conn, Installation(token(number), provider="expo", owner=f"owner-{number}"))

    def start(self, replicas: int) -> None:
        """Start the replicas, the app and the plain program; return once phones receive something."""
        names = [f"replica-{number + 1}" for number in range(replicas)]
        self._replicas = [self._replica(name) for name in names]
        self._wait(lambda: all(b'"worker_started"' in self._log(name).read_bytes() for name in names))
        app = [Doer(self._dsn, self._enqueuer(number), self.enqueues, PAUSE_S) for number in range(WRITERS)]
        self._doers = [*app, Doer(self._dsn, self._write_row, self.database, PAUSE_S / 2)]
        for each in self._doers:
            each.start()
        self._wait(lambda: bool(self.sandbox.phones()))

    def end_writing(self) -> None:
        """Write nothing more; what is under way is waited for."""
        for each in self._doers:
            each.end()
        for each in self._doers:
            each.join(60)

    def stop(self) -> None:
        """Stop the replicas."""
        for each in self._replicas:
            each.terminate()
        for each in self._replicas:
            try:
                each.wait(40)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    def pushes(self) -> tuple[Series, dict[str, int]]:
        """Return when phones received something, and how often each event's push came."""
        times: list[float] = []
        counted: dict[str, int] = {}
        for number in range(OWNERS):
            address = f"{self.sandbox.url}/sandbox/phones/{quote(token(number), safe='')}"
            with urllib.request.urlopen(address, timeout=30) as answer:
                messages = json.load(answer)["messages"]
            for each in messages:
                times.append(each["receivedAt"])
                key = each["message"]["data"]["key"]
                counted[key] = counted.get(key, 0) + 1
        return Series("pushes", times), counted

    def _write_row(self, conn: psycopg.Connection[Any], number: int) -> None:
        conn.execute("insert into plain_rows values (%s)", [number])
        self.rows.add(number)

    def _enqueuer(self, writer: int) -> Callable[[psycopg.Connection[Any], int], None]:
        chance = random.Random(writer)

        def enqueue(conn: psycopg.Connection[Any], number: int) -> None:
            key, owner = f"{writer}-{number}", chance.randrange(OWNERS)
            event = Event("order", key, "Order", "Of the app", data={"key": key}, audience=Owners(f"owner-{owner}"))
            made = verbs.enqueue(conn, event)
            self.events[key] = made.event_id, owner

        return enqueue

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait(self, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not look():
            if time.monotonic() > deadline:
                raise SystemExit(f"Relevo did not start within {START_S:.0f} s; see its logs in {self._folder}")
            time.sleep(0.2)

    def _replica(self, name: str) -> subprocess.Popen[bytes]:
        environ = {
            "DATABASE_URL": self._dsn,
            "EXPO_BASE_URL": self.sandbox.url,
            "HTTP_ENABLED": "false",
            "RECEIPT_FIRST_POLL_MS": "1000",
            "WORKER_CYCLES": "fanout,dispatch,receipt,reaper",
            "WORKER_ID": name,
            "LOG_FORMAT": "json",
            "PATH": os.environ["PATH"],
        }
        with self._log(name).open("ab") as log:
            return subprocess.Popen([str(RELEVO), "run"], env=environ, stdout=log, stderr=log, cwd=self._folder)


def token(number: int) -> str:
    """Return the token of an owner's phone."""
    return f"ExponentPushToken[phone-{number}]"
