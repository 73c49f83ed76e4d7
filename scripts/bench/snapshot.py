"""A held snapshot: somebody's long transaction keeps every dead row where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench import enqueue, personal
from bench.dispatch import churn, compared, least
from bench.environment import Environment
from bench.measuring import Cost, Row
from relevo.app import App


def rows(env: Environment) -> Iterator[Row]:
    """Measure dispatch, and again after much was churned under a snapshot that stays open; by one worker each time."""
    before = least([env.send_all() for _ in range(2)])
    with held_snapshot(env.dsn):
        churn(env, env.sizes.held)
        after = least([env.send_all() for _ in range(2)])
    what = f"dispatch after {env.sizes.held:,} churned under a held snapshot"
    yield compared("snapshot", what, before, after, 1.15)
    yield from _one_phone_each(env)


def _one_phone_each(env: Environment) -> Iterator[Row]:
    """The same with events for one phone each, which wait in chunks of many events."""
    some = max(1, env.sizes.personal // 10)
    with env.worker() as built:
        before = least([_send(env, built, f"before-{n}", some) for n in range(2)])
        with held_snapshot(env.dsn):
            _send(env, built, "churned", env.sizes.personal)
            after = least([_send(env, built, f"after-{n}", some) for n in range(2)])
    what = f"one-phone events' dispatch after {env.sizes.personal:,} of them under a held snapshot"
    yield compared("snapshot_personal", what, before, after, 1.15)


def _send(env: Environment, built: App, name: str, count: int) -> Cost:
    events = enqueue.personal(env, name, count)
    enqueue.many(env.conn, events)
    personal.fan_out(env, built, count)
    return env.drain(built)


@contextmanager
def held_snapshot(dsn: str) -> Iterator[None]:
    """Keep a transaction open that has looked at the database."""
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from relevo.due_chunks")
        yield
        holder.rollback()
