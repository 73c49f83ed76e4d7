"""What goes wrong, chosen by the seed: processes, connections, the database, the push services."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg

from chaos.stage import LEASE_MS, Replica, Stage

_BACKENDS = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
SERVICES = ("fcm", "apns", "webpush")
OFTEN = ("killed", "killed", "killed", "paused beyond the lease", "paused beyond the lease")
"""These come more often than the others: they have to hit a moment of some hundredths of a second."""


class Faults:
    """Strikes one thing after the other, and counts what it did."""

    def __init__(self, stage: Stage, seed: str) -> None:
        self._stage = stage
        self._chance = random.Random(f"{seed} faults")
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], None]] = {
            "killed": self._kill,
            "paused beyond the lease": self._pause,
            "told to stop": self._stop,
            "connections ended": self._end_connections,
            "database crashed": self._crash,
            "snapshot held": self._hold_snapshot,
            "Expo down": lambda: self._befall(fault="503"),
            "Expo took it and said 500": lambda: self._befall(fault="500-delivered", share=0.5),
            "Expo took it and hung up": lambda: self._befall(fault="reset-delivered", share=0.5),
            "Expo slow": lambda: self._befall(fault="slow=1", share=0.5),
            "Expo throttles": lambda: self._befall(fault="429", share=0.5),
            "credentials refused": lambda: self._befall(fault="401", share=1.0),
            "GOAWAY": lambda: self._befall_native("goaway"),
            "GOAWAY after it was taken": lambda: self._befall_native("goaway-delivered"),
            "stream refused": lambda: self._befall_native("refused"),
            "service hung up": lambda: self._befall_native("reset-delivered"),
        }
        self._due: list[str] = []

    def strike_until(self, deadline: float) -> None:
        """Strike until the time is over; each kind comes before one comes again."""
        while time.monotonic() < deadline:
            if not self._due:
                deck = [*self._kinds, *OFTEN]
                self._due = self._chance.sample(deck, len(deck))
            kind = self._due.pop()
            with suppress(psycopg.Error):
                self._kinds[kind]()
                self.done[kind] += 1
            time.sleep(0.2 + self._chance.random())

    def calm(self) -> None:
        """Let everything be well again."""
        self._stage.sandbox.clear_faults()
        for replica in self._stage.replicas:
            replica.send(signal.SIGCONT)
            if replica.process is None or replica.process.poll() is not None:
                replica.start()

    def _running(self) -> Iterator[Replica]:
        chosen = self._chance.choice(self._stage.replicas)
        if chosen.process is not None and chosen.process.poll() is None:
            yield chosen

    def _kill(self) -> None:
        for replica in self._running():
            replica.send(signal.SIGKILL)
            replica.end()
            replica.start()

    def _pause(self) -> None:
        for replica in self._running():
            replica.send(signal.SIGSTOP)
            time.sleep(LEASE_MS / 1000 * (1.5 + self._chance.random()))
            replica.send(signal.SIGCONT)

    def _stop(self) -> None:
        for replica in self._running():
            replica.send(signal.SIGTERM)
            replica.end()
            replica.start()

    def _end_connections(self) -> None:
        with self._stage.connect() as conn:
            conn.execute(f"select pg_terminate_backend(pid) from ({_BACKENDS}) b".encode())

    def _crash(self) -> None:
        """Kill a backend: PostgreSQL ends all the others, and recovers from its log."""
        with self._stage.connect() as conn:
            pids = [pid for (pid,) in conn.execute(_BACKENDS.encode()).fetchall()]
        pids = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if pids:
            os.kill(self._chance.choice(pids), signal.SIGKILL)

    def _hold_snapshot(self) -> None:
        with self._stage.connect() as conn, conn.transaction():
            conn.execute("set transaction isolation level repeatable read")
            conn.execute("select count(*) from relevo.notification_events")
            time.sleep(2)

    def _befall(self, *, fault: str, share: float = 1.0) -> None:
        self._stage.sandbox.add_fault(fault, share=share, seconds=1.0 + self._chance.random() * 2)
        time.sleep(2)

    def _befall_native(self, fault: str) -> None:
        self._stage.sandbox.add_fault(fault, service=self._chance.choice(SERVICES), share=0.5, seconds=2.0)
        time.sleep(2)
