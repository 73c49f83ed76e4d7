"""The system under test: a PostgreSQL of its own, a sandbox of every push service, and replicas of Relevo."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from chaos.parts import Pooler, Store, find
from chaos.server import Disk, Server
from relevo.access import api_tokens
from relevo.client import quiet
from relevo.client.news import subscribe_news
from relevo.config import load
from relevo.database.pool import Database
from relevo.sandbox import Sandbox
from support.postgres_proxy import Proxy

RELEVO = Path(sys.executable).with_name("relevo")
TRACE = Path(__file__).parents[1] / "model" / "trace.sql"
LEASE_MS, TIMEOUT_MS = 4_000, 1_500
"""Short ones, so that minutes hold many of them."""
PATIENT = {"OUTBOX_LEASE_DURATION_MS": "60000", "PUSH_REQUEST_TIMEOUT_MS": "10000"}
"""Those of every day, with which replicas finish what is left: a machine with much else to do is slow, too."""
RATE_PER_S = 30
"""Pushes to Expo; less than what is due after an outage or in a burst, so that it binds."""
OFFERS_A_WEEK = 3
NEWS = "chaos"
CONNECTIONS = 60


@dataclass
class Replica:
    """One process of Relevo, which is started again after each end."""

    name: str
    environ: dict[str, str]
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self, package: Path | None = None, **more: str) -> None:
        """Start it, maybe of another package or with other settings for this life; all its lives share a log."""
        self.starts += 1
        words = [str(RELEVO), "run"]
        if package is not None:
            words, more = [sys.executable, "-m", "relevo", "run"], more | {"PYTHONPATH": str(package)}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(words, env=self.environ | more, stdout=log, stderr=log, cwd=self.folder)

    def said(self, word: bytes) -> int:
        """Return how often its log says something."""
        return (self.folder / f"{self.name}.log").read_bytes().count(word)

    def serves(self) -> bool:
        """Return whether it has begun to work."""
        return self.said(b'"worker_started"') > 0

    def runs(self) -> bool:
        """Return whether its process is there."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; return whether it ran."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def end(self, patience_s: float = 30) -> None:
        """Wait for its end, and bring it about if need be."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
            self.process.kill()
            self.process.wait()


@dataclass
class System:
    """A run's parts."""

    folder: Path
    server: Server
    sandbox: Sandbox
    app_token: str
    wire: Proxy
    pooler: Pooler | None
    store: Store | None
    replicas: list[Replica] = field(default_factory=list)
    names: int = 1
    is_behind: bool = False
    """Whether more is due than replicas send in a while, so that the app writes less."""

    @property
    def dsn(self) -> str:
        """Where the database is, without anything in between."""
        return self.server.dsn

    @property
    def instance(self) -> str:
        """The name under which the database is worked on."""
        return f"chaos-{self.names}"

    def rename(self) -> None:
        """Set another name for replicas and commands from their next start on."""
        self.names += 1
        for replica in self.replicas:
            replica.environ["RELEVO_INSTANCE"] = self.instance

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection of the app's own, in autocommit."""
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Ask the database something, on a connection of its own."""
        with self.connect() as conn:
            return conn.execute(query.encode(), values or None).fetchall()

    def run(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a command of Relevo; what it says goes to a log of all commands."""
        environ = {"DATABASE_URL": self.dsn, "RELEVO_INSTANCE": self.instance, "LOG_FORMAT": "json"} | more
        environ["PATH"] = os.environ["PATH"]
        with (self.folder / "commands.log").open("ab") as log:
            return subprocess.Popen([str(RELEVO), *words], env=environ, stdout=log, stderr=log, cwd=self.folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def system(folder: Path, replicas: int, *, small: bool = False) -> Iterator[System]:
    """Set everything up, and take it down in the end; a small one has neither PgBouncer nor a store."""
    settings: dict[str, Any] = {
        "rate_per_s": 0,
        "receipt_delay_s": 0,
        "apns_token_interval_s": 0,
        "keep_messages": 1_000,
        "latency_ms": 150,
    }
    with ExitStack() as until_the_end:
        disk = None if small else Disk.mount(folder / "disk")
        if disk is not None:
            until_the_end.callback(disk.unmount)
        server = Server(
            folder / "postgres", {"max_connections": str(CONNECTIONS), "fsync": "off", "max_wal_size": "256MB"}, disk
        )
        until_the_end.callback(server.down)
        sandbox = until_the_end.enter_context(Sandbox(native=True, folder=folder / "sandbox", **settings))
        wire = until_the_end.enter_context(Proxy(server.dsn))
        pooler = None if small or find("pgbouncer") is None else Pooler(server.dsn, _free_port(), folder / "pgbouncer")
        if pooler is not None:
            until_the_end.callback(pooler.kill)
        store = None if small else Store(folder / "store")
        if store is not None:
            until_the_end.callback(store.kill)
        made = System(folder, server, sandbox, "", wire, pooler, store)
        _prepare(made)
        made.replicas = [_replica(made, n) for n in range(1, replicas + 1)]
        until_the_end.callback(stop_all, made)
        for replica in made.replicas:
            replica.start()
        until(lambda: all(replica.serves() for replica in made.replicas), patience_s=300)
        yield made


def _prepare(made: System) -> None:
    """Make the schema, an app's token, and what the app asks for once."""
    assert made.run("migrate").wait(300) == 0, f"relevo migrate failed: see {made.folder}/commands.log"
    database = Database(made.dsn, made.dsn, load({}, None))
    made.app_token = api_tokens.make(database, "chaos", "app")[0]
    database.close()
    with made.connect() as conn:
        subscribe_news(conn, NEWS, kinds=("event.finished", "delivery.failed"))
        quiet.set_cap(conn, OFFERS_A_WEEK, per="week", category="offers", project="default")


def trace(made: System) -> None:
    """Make the database record each step of each delivery from now on."""
    with made.connect() as conn:
        conn.execute(TRACE.read_text().encode())


def _replica(made: System, number: int) -> Replica:
    """Make one that connects through the wire that can fail, through PgBouncer, or directly."""
    port = _free_port()
    ways = [made.wire.dsn, made.pooler.dsn if made.pooler else made.wire.dsn, made.dsn]
    settings = made.sandbox.settings() | {
        "DATABASE_URL": ways[(number - 1) % len(ways)],
        "DATABASE_DIRECT_URL": made.wire.dsn if number == 1 else made.dsn,
        "RELEVO_INSTANCE": made.instance,
        "EXPO_BASE_URL": made.sandbox.url,
        "HTTP_ENABLED": "true",
        "HTTP_PORT": str(port),
        "HTTP_RATE_PER_SECOND": "0",
        "PUSH_RATE_PER_SECOND": str(RATE_PER_S),
        "OUTBOX_LEASE_DURATION_MS": str(LEASE_MS),
        "PUSH_REQUEST_TIMEOUT_MS": str(TIMEOUT_MS),
        "PUSH_CHUNK_SIZE": "10",
        "OUTBOX_RETRY_BASE_MS": "300",
        "OUTBOX_RETRY_MAX_MS": "2000",
        "OUTBOX_MAX_ATTEMPTS": "50",
        "RECEIPT_FIRST_POLL_MS": "1000",
        "WORKER_CYCLES": "fanout,digest,dispatch,receipt,reaper",
        "LOG_FORMAT": "json",
        "PATH": os.environ["PATH"],
    }
    return Replica(f"replica-{number}", settings, made.folder, port)


def stop_all(made: System) -> None:
    """Stop all replicas in an orderly way, and wait for them."""
    for replica in made.replicas:
        replica.send(signal.SIGCONT)
        replica.send(signal.SIGTERM)
    for replica in made.replicas:
        replica.end()


def until(look: Any, patience_s: float, every_s: float = 0.3) -> bool:
    """Look until something is true; return whether it became so in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with suppress(psycopg.Error):
            if look():
                return True
        time.sleep(every_s)
    return False


def write_lines(path: Path, lines: Iterator[dict[str, Any]]) -> int:
    """Write one JSON object a line; return how many."""
    count = 0
    with path.open("w") as file:
        for line in lines:
            file.write(json.dumps(line, default=str) + "\n")
            count += 1
    return count
