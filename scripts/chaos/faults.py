"""Faults, chosen by the seed: processes, connections, the database, the push services, the archive."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress

import psycopg

from chaos import archive, database_faults, process_faults, server_faults, service_faults
from chaos.acknowledged import Acknowledged
from chaos.fault_context import FaultContext
from chaos.server import FaultNotMadeError
from chaos.system import PATIENT, System

OFTEN = ("killed at a request", "stopped at a request, beyond the lease")
"""These come more often than the others: most is to be lost there."""
SMALL = (*OFTEN, "answers to COMMIT lost")
"""The faults that a small run has time for."""
MOMENTS = {
    "killed": "claims taken back by a reaper",
    "killed at a request": "killed with a request under way",
    "stopped beyond the lease": "a holder that found its claim lost",
    "stopped at a request, beyond the lease": "tickets that came after their claim was lost",
    "stopped at a request, for about its lease": "stopped for about the lease with a request under way",
    "told to stop": "processes that stopped as told",
    "clock ten minutes slow": "requests of a process whose clock is ten minutes slow",
    "connections ended": "connections ended under a replica",
    "database crashed": "the database crashed under a replica",
    "snapshot held": "requests settled while a snapshot was held",
    "table locked beyond the time-outs": "statements that waited for a lock beyond their time-out",
    "statements cancelled": "statements given up in their midst",
    "out of connections": "connections refused, for none were left",
    "migration run again": "requests settled around a migration",
    "disk full": "writes refused, for the disk was full",
    "restored from a base backup": "restored databases that rested until they were adopted",
    "restored under running replicas": "restored databases on which replicas went on",
    "the last release beside this one": "requests of a process of the last release",
    "answers to COMMIT lost": "answers to COMMIT lost",
    "COMMITs lost": "COMMITs lost",
    "COMMIT late": "COMMITs that came late",
    "connections frozen": "connections that were open and silent",
    "connections slow": "requests settled beside a slow connection",
    "PgBouncer killed": "PgBouncer killed under a replica",
    "Expo down": "requests that were turned away",
    "Expo took it and said 500": "phones that got a push twice",
    "Expo took it and hung up": "answers that nobody could read",
    "Expo slow": "answers that nobody could read",
    "Expo throttles": "requests that were turned away",
    "more due than the rate": "seconds in which a rate was used up",
    "phones called gone": "tokens that push services called gone",
    "Expo refuses messages": "dead letters opened again",
    "Expo refuses credentials": "breakers that opened",
    service_faults.REFUSED: "messages refused for their credentials",
    "GOAWAY": "messages that a GOAWAY turned away",
    "GOAWAY after it was taken": "messages in doubt after a GOAWAY",
    "stream refused": "messages whose stream was refused",
    "service hung up": "messages in doubt after their connection ended",
    "export killed": "exports killed on their way",
    "store killed": "exports whose store went away",
    "store silent": "exports whose store fell silent",
}
"""The events that each fault has to meet to prove something; some are counted there, others found in the history."""


class Faults:
    """Strikes one thing after the other, and counts what it did and which moments it met."""

    def __init__(self, system: System, seed: str, acknowledged: Acknowledged, only: Collection[str] = ()) -> None:
        self._system = system
        self.context = FaultContext(system, random.Random(f"{seed} faults"), acknowledged)
        self.done: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        kinds = process_faults.kinds(self.skipped) | database_faults.kinds(self.context, self.skipped)
        kinds |= server_faults.kinds(self.context, self.skipped)
        kinds |= service_faults.KINDS | (archive.KINDS if system.store else {})
        self._kinds = {name: strike for name, strike in kinds.items() if not only or name in only}
        for kind in self._kinds:
            self.context.hits[MOMENTS[kind]] += 0  # a moment that is never met is told, too
        self._due: list[str] = []

    @property
    def kinds(self) -> list[str]:
        """The faults that are possible in this run."""
        return list(self._kinds)

    def strike_until(self, deadline: float, after_each: Callable[[], None]) -> None:
        """Strike until the time is over; each kind comes before one comes again."""
        while time.monotonic() < deadline:
            if not self._due:
                deck = [*self._kinds, *(kind for kind in OFTEN if kind in self._kinds)]
                self._due = self.context.chance.sample(deck, len(deck))
            kind = self._due.pop()
            with suppress(psycopg.Error):
                self._strike(kind)
                after_each()
            time.sleep(0.2 + self.context.chance.random())

    def _strike(self, kind: str) -> None:
        """Make one fault; one that cannot be made is told with its reason, and is no part of this run any more."""
        self.done[kind] += 1
        try:
            self._kinds[kind](self.context)
        except FaultNotMadeError as error:
            self.done[kind] -= 1
            self.skipped[kind] = str(error)
            del self._kinds[kind]
            print(f"skipped from here on: {kind}: {error}", flush=True)

    def calm(self, *, patient: bool) -> None:
        """End all faults; patient replicas are started anew with the usual time-outs."""
        self._system.sandbox.clear_faults()
        self._system.sandbox.set(latency_ms=0)
        self._system.wire.calm()
        self._system.wire.thaw()
        self._system.wire.latency_s = 0
        for replica in self._system.replicas:
            replica.send(signal.SIGCONT)
            if patient:
                replica.send(signal.SIGTERM)
        for replica in self._system.replicas:
            if patient:
                replica.end()
            if not replica.runs():
                replica.start(None, **(PATIENT if patient else {}))
