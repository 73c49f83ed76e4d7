"""The reaper: claims of workers that died are taken back."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measuring import Row, rate
from bench.stand import Stand, statements
from relevo import app
from relevo.app import App

_SQL = statements(__file__)
_PROJECT = "default"


def rows(stand: Stand) -> Iterator[Row]:
    """Claim deliveries, let the leases end, and measure how they are taken back."""
    with app.build(stand.settings()) as built:  # without a heartbeat, as if it had died
        built.worker.record_start("run", ["dispatch"])
        _claim(stand, built)
        stand.conn.execute(_SQL["end_leases"])
        cost = stand.meter.measure(lambda: stand.run(built, built.registry["reaper"], "deliveries_recovered"))
        built.worker.stopped()
    stand.forget_open()
    yield rate("reaper", f"reaper, {cost.count:,} deliveries in expired claims", cost)


def _claim(stand: Stand, built: App) -> None:
    claimed = 0
    while claimed < stand.sizes.expired:
        claim = built.claims.claim("dispatch", _PROJECT, "bulk")
        if claim is None:
            stand.queue(built)
        else:
            claimed += len(claim.deliveries)
