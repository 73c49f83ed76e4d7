"""A process's beginning and rest: how soon it sends, and how much memory it holds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from bench import processes
from bench.environment import Environment, relevo_run
from bench.measuring import Row
from relevo import app
from relevo.client import values, verbs
from relevo.sandbox import Sandbox

_AT_REST_S = 3.0
_PATIENCE_S = 60.0


def rows(env: Environment) -> Iterator[Row]:
    """Start workers that find something due, and look at their memory once they rest."""
    [phone] = env.phones(1)
    seen = [_start(env, phone, n) for n in range(env.sizes.starts)]
    start_s, memory = (statistics.median(each) for each in zip(*seen, strict=True))
    yield Row("start", "start-up, from exec to the first POST", f"{start_s:.2f} s", None, {"seconds": start_s})
    yield Row("memory", "memory at rest", f"{memory:.0f} MB", None, {"mb": memory})


def _start(env: Environment, phone: UUID, n: int) -> tuple[float, float]:
    arrived: list[float] = []
    verbs.enqueue(env.conn, values.Event("bench.start", str(n), "Hello", audience=[phone]))
    with Sandbox(rate_per_s=0, tell=lambda _line: arrived.append(time.perf_counter())) as sandbox:
        begun = time.perf_counter()
        with relevo_run(env.dsn, sandbox.url, sources="none") as process:
            while not arrived:
                assert time.perf_counter() < begun + _PATIENCE_S, "nothing was sent"
                time.sleep(0.001)
            time.sleep(_AT_REST_S)
            return arrived[0] - begun, processes.memory_mb(process.pid)


def growing(env: Environment) -> Iterator[Row]:
    """Return how much memory grows between the first tenth and the whole of an event."""
    seen: list[float] = []
    watch = _watching(seen, env.sizes.phones)
    with app.build(env.settings(), app.Parts(push_middlewares=[watch])) as built:
        built.worker.record_start("run", ["dispatch"])
        built.heartbeat.start()
        env.queue(built)
        env.drain(built)
        built.worker.stopped()
    grown = max(0.0, seen[-1] - seen[0])
    yield Row("memory_growth", "memory growth, first tenth to the whole", f"{grown:.1f} MB", None, {"mb": grown})


def _watching(seen: list[float], phones: int) -> Callable[[Any, Callable[[], Any]], Any]:
    """Return a middleware that notes the memory held once a tenth was sent, and once everything was."""
    marks, sent = [phones // 10, phones], 0

    def watch(context: Any, following: Callable[[], Any]) -> Any:
        nonlocal sent
        reply = following()
        sent += context.messages
        while marks and sent >= marks[0]:
            marks.pop(0)
            gc.collect()
            seen.append(processes.memory_mb())
        return reply

    return watch
