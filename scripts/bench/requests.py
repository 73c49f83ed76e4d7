"""The CPU cost of a request in the answering process and in PostgreSQL, route by route, while all else rests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from bench.environment import Environment, relevo_run
from bench.http import Caller, await_port, free_port, later_event
from bench.measuring import Goal, Row
from relevo.access import api_tokens
from relevo.database.pool import Database

_CYCLES = "reaper,fanout,dispatch"
_CONNECTIONS = 4
_AT_ONCE = 32
_WARM = 100
_PHONES = 50  # so many that no brake looks at one of them
Ask = tuple[str, str, dict[str, Any] | None]


def rows(env: Environment) -> Iterator[Row]:
    """Ask for one thing after the other, and look at what the processes spend on it."""
    port, sizes = free_port(), env.sizes
    database = Database(env.dsn, env.dsn, env.settings())
    app, _ = api_tokens.make(database, "bench", "app")
    viewer, _ = api_tokens.make(database, "bench", "viewer")
    database.close()
    routes = _routes(later_event(env), env.phones(_PHONES))
    with relevo_run(env.dsn, env.url, worker_cycles=_CYCLES, http_port=port, http_rate_per_second=0) as worker:
        await_port(port)
        for name, ask in routes.items():
            token = viewer if name == "GET stats" else app
            _apply(port, token, ask, _WARM)
            cost = env.meter.measure(partial(_apply, port, token, ask, sizes.http_calls), worker.pid)
            yield Row(f"request_{name.lower().replace(' ', '_')}", f"1,000 x {name}", f"{cost.cpu_ms:,.0f} ms", cost)
        together = partial(_apply, port, app, routes["POST event for later"])
        together(_WARM, _AT_ONCE)
        cost = env.meter.measure(partial(together, sizes.http_calls, _AT_ONCE), worker.pid)
        goal = Goal("worker_ms_per_1000", 1_000, "ms of the process")
        what = f"1,000 x POST event for later, {_AT_ONCE} callers at once"
        yield Row("request_post_together", what, f"{cost.cpu_ms:,.0f} ms", cost, goals=(goal,))


def _routes(event_id: int, phones: Sequence[UUID]) -> Mapping[str, Callable[[int], Ask]]:
    """Return what is asked for, by its name."""
    event = {"type": "bench.http", "title": "Hello", "audience": "installations"}
    later = {"scheduled_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    begun = time.time()

    def one(kind: str, n: int) -> dict[str, Any]:
        return {"key": f"{kind}-{begun}-{n}", "installations": [str(phones[n % len(phones)])]}

    return {
        "GET live": lambda _: ("GET", "/health/live", None),
        "GET ready": lambda _: ("GET", "/health/ready", None),
        "GET stats": lambda _: ("GET", "/v1/ops/stats", None),
        "GET event": lambda _: ("GET", f"/v1/events/{event_id}?wait_ms=0", None),
        "POST event for later": lambda n: ("POST", "/v1/events", event | later | one("later", n)),
        "POST event and push": lambda n: ("POST", "/v1/events", event | one("now", n)),
    }


def _apply(port: int, token: str, ask: Callable[[int], Ask], count: int, callers: int = _CONNECTIONS) -> int:
    return asyncio.run(_call(port, token, ask, count, callers))


async def _call(port: int, token: str, ask: Callable[[int], Ask], count: int, callers: int) -> int:
    """Ask so often, one after the other on each of a few connections."""
    numbers = iter(range(first := time.perf_counter_ns(), first + count))

    async def go_on(caller: Caller) -> None:
        for number in numbers:
            status = await caller.ask(*ask(number))
            assert status in (200, 201, 202), status

    await asyncio.gather(*(go_on(Caller(port, token)) for _ in range(callers)))
    return count
