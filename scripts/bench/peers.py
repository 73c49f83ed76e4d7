"""Other queues on PostgreSQL draining jobs that do nothing, where ours speaks HTTP: on the same database.

procrastinate and pgqueuer need the extra `bench`; graphile-worker needs node and npm, which install it on demand.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.environment import Environment
from bench.measuring import Cost, Row, rate
from benching import RESULTS, say

_TOGETHER = 1_000
_CONCURRENT = 10
_BATCH = 100
_GRAPHILE = "0.18.0"
_INSTALL_S = 120
_NODE = RESULTS / "node"


def rows(env: Environment) -> Iterator[Row]:
    """Measure those peers that are there, and name those that are not."""
    peers: dict[str, tuple[bool, str, Callable[[Environment], Cost]]] = {
        "procrastinate": (find_spec("procrastinate") is not None, "pip install -e '.[bench]'", procrastinate),
        "pgqueuer": (find_spec("pgqueuer") is not None, "pip install -e '.[bench]'", pgqueuer),
        "graphile": (_has_graphile(), "node, npm, and a registry they reach", graphile),
    }
    names = {"graphile": "graphile-worker, local queue and batches"}
    for name, (there, needs, drain) in peers.items():
        if there:
            yield rate(name, f"{names.get(name, name)}: jobs that do nothing", drain(env))
        else:
            say(f"  {name} is left out; it needs {needs}.")


def procrastinate(env: Environment) -> Cost:
    """Drain with procrastinate, ten at a time, deleting what is done."""
    import procrastinate as peer  # noqa: PLC0415

    jobs, queue = env.sizes.procrastinate, peer.App(connector=peer.PsycopgConnector(conninfo=env.dsn))

    @queue.task(name="noop")  # type: ignore[untyped-decorator, unused-ignore]
    async def noop() -> None:
        pass

    async def drain() -> Cost:
        async with queue.open_async():
            await queue.schema_manager.apply_schema_async()
            for some in _portions(jobs):
                await noop.batch_defer_async(*[{} for _ in range(some)])
            finish = env.meter.begin()
            await queue.run_worker_async(
                concurrency=_CONCURRENT, wait=False, install_signal_handlers=False, delete_jobs="always"
            )
            return finish(jobs)

    return asyncio.run(drain())


def pgqueuer(env: Environment) -> Cost:
    """Drain with pgqueuer, in batches of a hundred."""
    import asyncpg  # noqa: PLC0415
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

    jobs = env.sizes.pgqueuer

    async def drain() -> Cost:
        connection = await asyncpg.connect(env.dsn)
        driver = AsyncpgDriver(connection)
        statements = Queries(driver)
        await statements.install()
        for some in _portions(jobs):
            await statements.enqueue(["noop"] * some, [None] * some, [0] * some)
        queue = PgQueuer(driver)

        @queue.entrypoint("noop")  # type: ignore[untyped-decorator, unused-ignore]
        async def noop(_job: Any) -> None:
            pass

        finish = env.meter.begin()
        await queue.qm.run(batch_size=_BATCH, mode=QueueExecutionMode.drain)
        cost = finish(jobs)
        await connection.close()
        return cost

    return asyncio.run(drain())


def graphile(env: Environment) -> Cost:
    """Drain with graphile-worker in a Node.js process, which is told when to begin and says when it is done."""
    program = shutil.copy(Path(__file__).with_name("graphile.mjs"), _NODE)
    jobs = env.sizes.graphile
    arguments = ["node", Path(program).name, env.dsn, str(jobs)]
    with subprocess.Popen(
        arguments, cwd=_NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        try:
            assert node.stdout.readline() == "ready\n", "graphile-worker could not be started"
            finish = env.meter.begin(node.pid)
            print(file=node.stdin, flush=True)
            assert node.stdout.readline() == "done\n", "graphile-worker gave up"
            return finish(jobs)
        finally:
            node.stdin.close()
            node.kill()


def _portions(jobs: int) -> Iterator[int]:
    return (min(_TOGETHER, jobs - start) for start in range(0, jobs, _TOGETHER))


def _has_graphile() -> bool:
    """Return whether graphile-worker is there; install it now if need be."""
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        return False
    if not (_NODE / "node_modules" / "graphile-worker").is_dir():
        _NODE.mkdir(parents=True, exist_ok=True)
        say("  installing graphile-worker …")
        wished = ["--no-save", "--no-audit", "--no-fund", "--silent", f"graphile-worker@{_GRAPHILE}"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [npm, "install", "--prefix", str(_NODE), *wished], check=False, capture_output=True, timeout=_INSTALL_S
            )
    return (_NODE / "node_modules" / "graphile-worker").is_dir()
