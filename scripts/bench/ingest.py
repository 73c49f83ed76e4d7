"""A day of ingest from a fake ChileCompra: bound by the pace that it asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from bench.measuring import Row
from bench.sizes import Sizes
from benching import fresh_database, timed
from relevo import app, config

_PACE_MS = 25


def rows(sizes: Sizes) -> Iterator[Row]:
    """Read a full day, a quarter of it still open."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.fake_chilecompra import TICKET, FakeChileCompra  # noqa: PLC0415 it lies with the tests

    with fresh_database() as (dsn, _), FakeChileCompra() as fake:
        fake.fill(datetime.now(ZoneInfo("America/Santiago")).date(), sizes.tenders, published=sizes.tenders // 4)
        chosen = {
            "database_url": dsn, "sources": "chilecompra", "chilecompra_ticket": TICKET,
            "chilecompra_base_url": fake.base_url, "chilecompra_pace_ms": _PACE_MS, "http_allow_private": True,
            "ingest_notify_first_run": True,
        }  # fmt: skip
        seconds = timed(lambda: _read(config.load({key.upper(): str(value) for key, value in chosen.items()}, None)))
        pace_s = (len(fake.asked) - 1) * _PACE_MS / 1_000
        what = f"a day of ingest: {sizes.tenders:,} tenders, {len(fake.asked):,} requests"
    more = {"seconds": seconds, "times_the_pace": seconds / pace_s}
    yield Row("ingest", what, f"{seconds:.1f} s: {seconds / pace_s:.2f} x its pace", None, more)


def _read(settings: config.Settings) -> None:
    with app.build(settings, role="run-cycle") as built:
        built.worker.record_start("run-cycle", ["ingest"])
        [cycle] = built.cycles(["ingest"])
        assert built.runner.run(cycle, "manual").outcome == "ok"
