"""HTTP beside dispatch in one process: what requests wait for in an open loop, and what dispatch loses by them."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from bench.environment import Environment, relevo_run, statements
from bench.latency import await_first, bulk_rate, queue_bulk
from bench.measuring import Goal, Row, latency
from benching import say
from relevo.access import api_tokens
from relevo.client import values, verbs
from relevo.database.pool import Database

_SQL = statements(__file__)
_CYCLES = "reaper,fanout,dispatch"
_FIRST_EVENTS = 6_000_000_000, 6_000_000_100, 6_000_000_200
_CONNECTIONS = 32
_TURNS = 3
_PATIENCE_S = 60.0
_SETTLE_S = 4.0


@dataclass
class Load:
    """Requests that come at their times, whether the ones before were answered or not, and callers that wait."""

    port: int
    token: str
    """An app's."""
    viewer_token: str
    """The statistics are not for apps."""
    event_id: int
    phone: str
    per_second: int
    waiters: int
    waits_ms: list[float] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)

    def apply(self, seconds: float, around: Callable[[Callable[[], None]], float]) -> float:
        """Call for so long, once the waiters wait; what is measured around the calls alone is returned."""
        ready, done = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as threads:
            calling = threads.submit(lambda: asyncio.run(self._apply(seconds, ready, done)))
            while not ready.wait(0.1) and not calling.done():
                pass
            measured = around(lambda: _until(done, calling))
            calling.result()
        return measured

    async def _apply(self, seconds: float, ready: threading.Event, done: threading.Event) -> None:
        free: asyncio.Queue[Caller] = asyncio.Queue()
        for _ in range(_CONNECTIONS):
            free.put_nowait(Caller(self.port, self.token))
        waiting = [asyncio.create_task(self._wait()) for _ in range(self.waiters)]
        await asyncio.sleep(_SETTLE_S)  # opening them all at once is another thing than having them open
        ready.set()
        began, calls = time.perf_counter(), []
        for number in range(int(seconds * self.per_second)):
            due = began + number / self.per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            calls.append(asyncio.create_task(self._call(free, number, due)))
        await asyncio.gather(*calls)
        done.set()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _wait(self) -> None:
        caller = Caller(self.port, self.token)
        while True:
            self.answers[await caller.ask("GET", f"/v1/events/{self.event_id}?wait_ms=30000")] += 1

    async def _call(self, free: asyncio.Queue[Caller], number: int, due: float) -> None:
        """Ask one thing after the other; the time a request was due counts, not the time it could be sent."""
        caller = await free.get()
        try:
            match number % 10:
                case 0:
                    status = await caller.ask("GET", "/v1/ops/stats", token=self.viewer_token)
                case 1 | 2:
                    status = await caller.ask("GET", "/health/ready")
                case 3 | 4 | 5:
                    event = {"type": "bench.http", "key": f"{due}", "title": "Hello", "installations": [self.phone]}
                    status = await caller.ask("POST", "/v1/events", event | {"audience": "installations"})
                case _:
                    status = await caller.ask("GET", f"/v1/events/{self.event_id}?wait_ms=0")
            self.answers[status] += 1
            self.waits_ms.append((time.perf_counter() - due) * 1_000)
        finally:
            free.put_nowait(caller)


class Caller(asyncio.Protocol):
    """One connection that is kept, and as little as an HTTP client can be: its CPU is taken from what is measured."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._usual_token = token
        self._transport: asyncio.WriteTransport | None = None
        self._told = b""
        self._answer: asyncio.Future[int] | None = None

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> int:
        """Return the status of the answer, of which everything is read; `token` takes the place of the usual one."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        self._told, self._answer = b"", loop.create_future()
        sent = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token or self._usual_token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        )
        self._transport.write(head.encode() + sent)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer, which is often the whole."""
        self._told += data
        head, ends, body = self._told.partition(b"\r\n\r\n")
        if ends and self._answer is not None and not self._answer.done():
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if len(body) >= int(length or 0):
                self._answer.set_result(int(head.split(b" ", 2)[1]))

    def connection_lost(self, error: Exception | None) -> None:
        """Inform the waiting caller that no answer comes."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the server hung up"))


def rows(env: Environment) -> Iterator[Row]:
    """Send much bulk in one process; in turns leave it alone, and call it.

    Dispatch slows down by itself while a day's tables grow: what it does beside HTTP is compared with its rates alone
    just before and just after.
    """
    sizes, port = env.sizes, free_port()
    for first in _FIRST_EVENTS:  # so much that it lasts
        queue_bulk(env, first)
    database = Database(env.dsn, env.dsn, env.settings())
    token, _ = api_tokens.make(database, "bench", "app")
    viewer_token, _ = api_tokens.make(database, "bench viewer", "viewer")
    database.close()
    load = Load(
        port,
        token,
        viewer_token,
        later_event(env),
        str(env.phones(1)[0]),
        sizes.http_requests,
        sizes.http_waiters,
    )
    alone, beside = list[float](), list[float]()
    with relevo_run(env.dsn, env.url, worker_cycles=_CYCLES, http_port=port, http_rate_per_second=0):
        await_first(env)
        await_port(port)
        alone.append(bulk_rate(env, lambda: time.sleep(sizes.http_seconds)))
        for _ in range(_TURNS):
            beside.append(load.apply(sizes.http_seconds, lambda work: bulk_rate(env, work)))
            alone.append(bulk_rate(env, lambda: time.sleep(sizes.http_seconds)))
        [(is_left,)] = env.conn.execute(_SQL["is_bulk_left"]).fetchall()
    env.forget_open()
    if refused := load.answers[401] + load.answers[403]:
        raise RuntimeError(f"{refused} requests were refused: a role of the bench's tokens may not make them")
    errors = sum(count for status, count in load.answers.items() if status not in (200, 201, 202))
    what = f"HTTP at {sizes.http_requests}/s beside dispatch, {sizes.http_waiters} waiters open"
    told = latency("http", what, load.waits_ms, Goal("p99_ms", 250, "ms p99"), Goal("errors", 0, "errors"))
    busy = load.answers[503]
    said = f"{told.said}, {errors} errors" + (f" ({busy} of them 503)" if busy else "")
    yield Row(told.name, what, said, None, {**told.more, "errors": errors, "busy": busy}, told.goals)
    if not is_left:
        say("  the bulk did not last: dispatch beside HTTP is not told; --set bulk=… makes it more")
        return
    share = statistics.median(
        rate / statistics.mean(around) for rate, around in zip(beside, pairwise(alone), strict=True)
    )
    said = f"{share:.2f} x (alone {_rates(alone)}/s, in turns with {_rates(beside)}/s)"
    goal = Goal("share", 0.8, "x", at_least=True)
    yield Row("beside_http", "dispatch meanwhile, of its rate alone", said, None, {"share": share}, (goal,))


def _rates(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in rates)


def _until(done: threading.Event, calling: Future[None]) -> None:
    while not done.wait(0.05) and not calling.done():
        pass


def later_event(env: Environment) -> int:
    """Enqueue an event that nobody gets before tomorrow, if it is not there; return its id."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    later = values.Event("bench.later", "1", "Later", audience="everyone", scheduled_at=tomorrow)
    return verbs.enqueue(env.conn, later).event_id


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def await_port(port: int) -> None:
    """Wait until HTTP is served there."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "HTTP is not served"
            time.sleep(0.1)
        else:
            return
