"""The environment of most rows: a database with phones, a sandbox in its own process, workers like `relevo run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from bench.measuring import Cost, Meter
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo import app, config
from relevo.app import service
from relevo.client import values, verbs
from relevo.config import Settings
from relevo.core import queries
from relevo.runtime.runs import Cycle

RELEVO = Path(sys.executable).with_name("relevo")
LIFTED = 0
"""The rate that limits nothing."""


def statements(of: str) -> queries.Statements:
    """Load the statements that lie beside a module of this package."""
    return queries.Statements(Path(of).with_suffix(".sql").read_text(encoding="utf-8"))


SQL = statements(__file__)


@contextmanager
def sandbox_settings() -> Iterator[dict[str, str]]:
    """Serve a sandbox without limits, whose receipts are there at once; yield the settings that lead to it."""
    arguments = [str(RELEVO), "sandbox", "--port", "0", "--rate", "0", "--keep-messages", "0", "--quiet"]
    arguments += ["--receipt-delay-s", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield _read_settings(process.stdout)
        finally:
            process.terminate()


def _read_settings(said: Iterable[str]) -> dict[str, str]:
    """Read what a sandbox says when it starts, up to its last line; without extras that says what is not served."""
    found: dict[str, str] = {}
    for line in said:
        found |= {name.lower(): value for name, value in re.findall(r"\b([A-Z_]+)=(\S+)", line)}
        if "push_ca_file" in found or "are not served" in line:
            break
    return found


@contextmanager
def sandbox_process() -> Iterator[str]:
    """Serve a sandbox for Expo's pushes, and yield its address."""
    with sandbox_settings() as found:
        yield found["expo_base_url"]


@contextmanager
def relevo_run(dsn: str, url: str, command: str = "run", **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process of its own, with the rate lifted; `serve` has it serve HTTP alone."""
    chosen = {"database_url": dsn, "expo_base_url": url, "log_level": "error", "push_rate_per_second": LIFTED, **more}
    environ = {"PATH": os.environ["PATH"]} | {name.upper(): str(value) for name, value in chosen.items()}
    with subprocess.Popen([RELEVO, command], env=environ) as process:
        try:
            yield process
        finally:
            process.terminate()


class Environment:
    """One database, one sandbox, and events to drain."""

    def __init__(self, dsn: str, url: str, sizes: Sizes) -> None:
        self.dsn, self.url, self.sizes = dsn, url, sizes
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.meter = Meter(self.conn)
        self._events = 0

    def load(self) -> None:
        """Make the phones; the first of them also ask for what is sent at a limited rate."""
        say(f"Loading {self.sizes.phones:,} phones …")
        self.conn.execute(SQL["load_phones"], {"phones": self.sizes.phones})
        self.conn.execute(SQL["ask_for_few"], {"few": self.sizes.rated})
        self.conn.execute(SQL["refresh"])

    def settings(self, **more: object) -> Settings:
        """Return settings with the rate lifted."""
        chosen = {"database_url": self.dsn, "expo_base_url": self.url, "push_rate_per_second": LIFTED, **more}
        return config.load({name.upper(): str(value) for name, value in chosen.items()}, None)

    @contextmanager
    def worker(self, **more: object) -> Iterator[app.App]:
        """Assemble a worker as `relevo run` does, with its heartbeat."""
        with app.build(self.settings(**more)) as built:
            built.worker.record_start("run", ["dispatch"])
            built.heartbeat.start()
            service.tune_interpreter()
            yield built
            built.worker.stopped()

    def phones(self, count: int) -> list[UUID]:
        """Return some phones, over and over if there are fewer."""
        found = [row[0] for row in self.conn.execute(SQL["list_phones"], {"count": count}).fetchall()]
        return [found[n % len(found)] for n in range(count)]

    def queue(self, built: app.App, audience: Any = "everyone") -> int:
        """Enqueue one event and fan it out; return how many deliveries that made."""
        self._events += 1
        verbs.enqueue(self.conn, values.Event("bench", str(self._events), "A title", "and a body", audience=audience))
        return self.run(built, built.registry["fanout"], "deliveries_created")

    def run(self, built: app.App, cycle: Cycle, counted: str) -> int:
        """Run a cycle until it finds nothing; return one of its counts."""
        report = built.runner.run(cycle, "manual")
        assert report.outcome == "ok", report
        return report.counts.get(counted, 0)

    def drain(self, built: app.App, cycle: Cycle | None = None) -> Cost:
        """Measure how what is queued is sent."""
        return self.meter.measure(
            lambda: self.run(built, cycle or built.registry["dispatch"], "notifications_sent"),
        )

    def send_all(self) -> Cost:
        """Queue an event for everyone, and measure how it is sent."""
        with self.worker() as built:
            self.queue(built)
            return self.drain(built)

    def forget_open(self) -> None:
        """End what a measurement left open."""
        for name in ("forget_queue", "forget_open"):
            self.conn.execute(SQL[name])


@contextmanager
def environment(sizes: Sizes) -> Iterator[Environment]:
    """Start server and sandbox, and load the phones."""
    with sandbox_process() as url, fresh_database() as (dsn, _):
        ours = Environment(dsn, url, sizes)
        try:
            ours.load()
            yield ours
        finally:
            ours.conn.close()
