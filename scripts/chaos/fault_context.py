"""Tools of every fault: the system, chance by the seed, and the moments that it waits for and counts."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from chaos.acknowledged import Acknowledged
from chaos.system import Replica, System

_UNDER_WAY = """
select w.pid
  from relevo.push_requests r join relevo.workers w on w.worker_id = r.worker_id
 where r.answered_at is null and r.journalled_at > now() - interval '100 milliseconds'
 order by r.journalled_at desc
"""
_BY_PROCESSES = """
select count(*) from relevo.push_requests r join relevo.workers w on w.worker_id = r.worker_id
 where w.pid = any (%(pids)s)
"""
_NOTICED = (b'"connection_lost"', b'"database_unreachable"', b'"heartbeat_delayed"')


@dataclass
class FaultContext:
    """A run as its faults see it."""

    system: System
    chance: random.Random
    acknowledged: Acknowledged
    hits: Counter[str] = field(default_factory=Counter)
    """How often a fault met a moment that matters, by the moment's name."""
    slow: list[int] = field(default_factory=list)
    """The processes whose clock is slow."""

    def hit(self, moment: str, times: int = 1) -> None:
        """Count that a fault met a moment."""
        self.hits[moment] += times

    def any_replica(self) -> Replica | None:
        """Choose one of those that run."""
        running = [replica for replica in self.system.replicas if replica.runs()]
        return self.chance.choice(running) if running else None

    def one_with_a_request(self, patience_s: float = 5) -> Replica | None:
        """Wait for a request that was journalled just now and has no answer; return whose it is."""
        until = time.monotonic() + patience_s
        with self.system.connect() as conn:
            while time.monotonic() < until:
                pids = [pid for (pid,) in conn.execute(_UNDER_WAY).fetchall()]
                for replica in self.system.replicas:
                    if replica.process is not None and replica.runs() and replica.process.pid in pids:
                        return replica
                time.sleep(0.01)
        return None

    def noticed(self, strike: Callable[[], object], patience_s: float = 4) -> bool:
        """Strike, and tell whether a replica's log then says that its database was away."""
        before = self._said()
        strike()
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if self._said() > before:
                return True
            time.sleep(0.1)
        return False

    def _said(self) -> int:
        return sum(replica.said(word) for replica in self.system.replicas for word in _NOTICED)

    def count_slow(self) -> None:
        """Count what the processes with a slow clock sent, once the run is over."""
        [(count,)] = self.system.ask(_BY_PROCESSES, pids=self.slow)
        self.hit("requests of a process whose clock is ten minutes slow", count)

    def settled(self) -> int:
        """Return how many requests were answered so far."""
        try:
            [(count,)] = self.system.ask("select count(*) from relevo.push_requests where answered_at is not null")
        except psycopg.Error:
            return 0
        return int(count)
