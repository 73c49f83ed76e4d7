"""A healthy caller beside hostile ones: how long an enqueue takes until its push leaves, and what is refused."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import uuid4

import psycopg

from bench import processes
from bench.environment import relevo_run
from bench.http import await_port, free_port
from bench.measuring import Goal, Row, percentile
from bench.sizes import Sizes
from bench.strangers import ATTACKS, Secrets
from benching import fresh_database, say
from relevo import config
from relevo.access import api_tokens, sessions
from relevo.client import values, verbs
from relevo.database.pool import Database
from relevo.http.guard import COOKIE
from relevo.operators import words
from relevo.sandbox import Sandbox

_CYCLES = "reaper,fanout,dispatch"
_WARM = 5
_PATIENCE_S = 60.0
_BETWEEN_S = 0.1
_SETTLE_S = 0.5
_OK = (200, 201)
_BUSY_RATIO, _MORE_MEMORY = 3.0, 10.0
_SAVED = {"type": "bench.saved", "arguments": {"a0": 1}, "texts": {"en": {"title": "{a0, plural, other {# items}}"}}}


@dataclass
class Healthy:
    """The app's server: it enqueues events for one phone over HTTP, each on a new connection."""

    port: int
    token: str
    phone: str
    arrived: list[float]
    waits_ms: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def enqueue(self) -> None:
        """Enqueue one event; note how long it took until its push arrived, or that it was refused."""
        time.sleep(_BETWEEN_S)
        self.arrived.clear()
        began = time.perf_counter()
        event = {"type": "bench.healthy", "key": str(uuid4()), "title": "Hello", "audience": "installations"}
        status = self._post(event | {"installations": [self.phone]})
        if status not in _OK:
            self.refused.append(status)
            return
        while not self.arrived:
            if time.perf_counter() > began + _PATIENCE_S:
                self.refused.append(0)
                return
            time.sleep(0.0005)
        self.waits_ms.append((self.arrived[0] - began) * 1_000)

    def _post(self, event: dict[str, object]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/events", json.dumps(event), headers)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def take(self) -> tuple[float, int]:
        """Return the middle of the waits, and how many were refused; forget them."""
        middle = percentile(self.waits_ms, 0.5) if self.waits_ms else float("inf")
        refused = len(self.refused)
        self.waits_ms.clear()
        self.refused.clear()
        return middle, refused


def rows(sizes: Sizes) -> Iterator[Row]:
    """Send pushes and serve HTTP in one process; time a healthy caller alone, then beside each hostile one."""
    with fresh_database() as (dsn, _), tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        phone, app, secrets = _prepare(dsn)
        port, arrived = free_port(), list[float]()
        with (
            Sandbox(rate_per_s=0, tell=lambda _line: arrived.append(time.perf_counter())) as sandbox,
            relevo_run(
                dsn, sandbox.url, worker_cycles=_CYCLES, http_port=port, http_signing_keys_file=_keys(Path(folder))
            ) as server,
        ):
            await_port(port)
            healthy = Healthy(port, app, phone, arrived)
            for _ in range(_WARM):
                healthy.enqueue()
            healthy.take()
            for name in [*ATTACKS][: sizes.hostile_attacks]:
                yield _beside(healthy, server.pid, name, secrets, sizes)


def _prepare(dsn: str) -> tuple[str, str, Secrets]:
    """Register a phone, save a text, and make the tokens; return the phone, the app's token and the attackers'."""
    database = Database(dsn, dsn, config.load({"DATABASE_URL": dsn}, None))
    with psycopg.connect(dsn, autocommit=True) as conn:
        phone = verbs.register(conn, values.Installation(f"ExponentPushToken[{uuid4().hex}]"))
    app, _ = api_tokens.make(database, "bench", "app")
    viewer, token = api_tokens.make(database, "bench", "viewer")
    words.save(database, words.parse(_SAVED))
    session = sessions.begin(database, token)
    database.close()
    return str(phone), app, Secrets(viewer, f"{COOKIE}={session}", api_tokens.form_mark(session))


def _keys(folder: Path) -> Path:
    file = folder / "keys.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"bench": {"secret": base64.b64encode(os.urandom(32)).decode()}}), encoding="utf-8")
    return file


def _beside(healthy: Healthy, server: int, name: str, secrets: Secrets, sizes: Sizes) -> Row:
    """Time the healthy caller alone and beside one attack."""
    for _ in range(sizes.hostile_enqueues):
        healthy.enqueue()
    alone, refused_alone = healthy.take()
    memory, spent = processes.memory_mb(server), processes.spent_ms(server)
    with _attack(name, healthy.port, secrets) as told:
        time.sleep(_SETTLE_S)
        began = time.perf_counter()
        for _ in range(sizes.hostile_enqueues):
            healthy.enqueue()
        busy_s = time.perf_counter() - began
    beside, refused = healthy.take()
    say(f"    {name}: answers to the attack {told}, CPU {(processes.spent_ms(server) - spent) / busy_s / 10:.0f} %")
    ratio, more = beside / alone, (processes.memory_mb(server) / memory - 1) * 100
    figures = {"alone_ms": alone, "beside_ms": beside, "ratio": ratio, "refused": refused + refused_alone}
    figures |= {"more_memory": more}
    said = f"{beside:,.0f} ms beside {alone:,.0f} ms alone ({ratio:.1f} x), {refused} refused, {more:+.0f} % memory"
    goals = Goal("ratio", _BUSY_RATIO, "x"), Goal("refused", 0, "refused"), Goal("more_memory", _MORE_MEMORY, "%")
    return Row(f"hostile_{name}", f"enqueue to sent beside {ATTACKS[name][0]}", said, None, figures, goals)


@contextmanager
def _attack(name: str, port: int, secrets: Secrets) -> Iterator[dict[str, int]]:
    """Run one hostile client; what it was answered is known at the end."""
    told: dict[str, int] = {}
    command = [sys.executable, "-m", "bench.strangers", name, str(port), json.dumps(asdict(secrets))]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield told
        finally:
            process.stdin.close()
            told.update(json.loads(process.stdout.readline() or "{}"))
            process.terminate()
