"""Other queues on PostgreSQL draining jobs that do nothing: they need the extra `bench`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import procrastinate
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


def procrastinate_rate(dsn: str, jobs: int) -> float:
    """Drain no-op jobs with procrastinate."""
    queue = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))

    @queue.task(name="noop")  # type: ignore[untyped-decorator, unused-ignore]
    async def noop() -> None:
        pass

    async def drain() -> float:
        async with queue.open_async():
            await queue.schema_manager.apply_schema_async()
            for start in range(0, jobs, 1_000):
                await noop.batch_defer_async(*[{} for _ in range(start, min(start + 1_000, jobs))])
            started = time.perf_counter()
            await queue.run_worker_async(
                concurrency=10, wait=False, install_signal_handlers=False, delete_jobs="always"
            )
            return jobs / (time.perf_counter() - started)

    return asyncio.run(drain())


def pgqueuer_rate(dsn: str, jobs: int) -> float:
    """Drain no-op jobs with pgqueuer, in batches of 100."""

    async def drain() -> float:
        connection = await asyncpg.connect(dsn)
        driver = AsyncpgDriver(connection)
        statements = Queries(driver)
        await statements.install()
        for start in range(0, jobs, 1_000):
            size = min(1_000, jobs - start)
            await statements.enqueue(["noop"] * size, [None] * size, [0] * size)
        pgq = PgQueuer(driver)

        @pgq.entrypoint("noop")  # type: ignore[untyped-decorator, unused-ignore]
        async def noop(_job: Any) -> None:
            pass

        started = time.perf_counter()
        await pgq.qm.run(batch_size=100, mode=QueueExecutionMode.drain)
        took = time.perf_counter() - started
        await connection.close()
        return jobs / took

    return asyncio.run(drain())
