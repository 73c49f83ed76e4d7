"""The reaper: claims of workers that died are taken back."""

from __future__ import annotations

from collections.abc import Iterator

from bench.environment import Environment, statements
from bench.measuring import Row, rate
from relevo import app
from relevo.app import App

_SQL = statements(__file__)
_PROJECT = "default"


def rows(env: Environment) -> Iterator[Row]:
    """Claim deliveries, let the leases end, and measure how they are taken back."""
    with app.build(env.settings()) as built:  # without a heartbeat, as if it had died
        built.worker.record_start("run", ["dispatch"])
        _claim(env, built)
        env.conn.execute(_SQL["end_leases"])
        cost = env.meter.measure(lambda: env.run(built, built.registry["reaper"], "deliveries_recovered"))
        built.worker.stopped()
    env.forget_open()
    yield rate("reaper", f"reaper, {cost.count:,} deliveries in expired claims", cost)


def _claim(env: Environment, built: App) -> None:
    claimed = 0
    while claimed < env.sizes.expired:
        claim = built.claims.claim("dispatch", _PROJECT, "bulk")
        if claim is None:
            env.queue(built)
        else:
            claimed += len(claim.deliveries)
