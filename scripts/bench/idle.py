"""The cost of replicas that have nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg

from bench import processes
from bench.environment import relevo_run
from bench.measuring import Meter, Row
from bench.sizes import Sizes
from benching import fresh_database, say

_NOWHERE = "http://127.0.0.1:9"


def rows(sizes: Sizes) -> Iterator[Row]:
    """Start replicas, let them come to rest, and measure them for a while."""
    with fresh_database() as (dsn, _), psycopg.connect(dsn, autocommit=True) as conn, ExitStack() as stack:
        replicas = [stack.enter_context(relevo_run(dsn, _NOWHERE, sources="none")) for _ in range(sizes.replicas)]
        say(f"  {sizes.replicas} replicas come to rest …")
        time.sleep(sizes.rest_seconds)  # pauses between rounds that find nothing grow up to half a minute
        before = _spent([each.pid for each in replicas])
        cost = Meter(conn).measure(lambda: _rest(sizes))
        workers = _spent([each.pid for each in replicas]) - before
        for each in replicas:
            each.terminate()  # all at once
    minutes = sizes.replicas * sizes.idle_seconds / 60
    figures = {"worker_ms": workers / minutes, "postgres_ms": cost.postgres_ms / minutes}
    said = f"worker {figures['worker_ms']:,.0f} ms, PostgreSQL {figures['postgres_ms']:,.0f} ms"
    yield Row("idle", f"{sizes.replicas} idle replicas, CPU per replica and minute", said, None, figures)


def _rest(sizes: Sizes) -> int:
    time.sleep(sizes.idle_seconds)
    return sizes.replicas


def _spent(pids: list[int]) -> float:
    return sum(processes.spent_ms(pid) for pid in pids)
