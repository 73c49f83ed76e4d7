"""A held snapshot: somebody's long transaction keeps every dead row where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.dispatch import churn, compared, least
from bench.measuring import Row
from bench.stand import Stand


def rows(stand: Stand) -> Iterator[Row]:
    """Measure dispatch, and again after much was churned under a snapshot that stays open."""
    before = least([stand.send_all() for _ in range(2)])
    with held_snapshot(stand.dsn):
        churn(stand, stand.sizes.held)
        after = least([stand.send_all() for _ in range(2)])
    what = f"dispatch after {stand.sizes.held:,} churned under a held snapshot"
    yield compared("snapshot", what, before, after, 1.15)


@contextmanager
def held_snapshot(dsn: str) -> Iterator[None]:
    """Keep a transaction open that has looked at the database."""
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from relevo.due_chunks")
        yield
        holder.rollback()
