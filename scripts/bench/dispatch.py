"""Dispatch through HTTP: the rate lifted, at a project's rate, after much has passed; beside a loop and a ceiling."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import requests

from bench.environment import Environment, statements
from bench.measuring import Cost, Goal, Row, middle, rate
from benching import say
from relevo.app import App
from relevo.client.values import TenderMatching
from relevo.core.model import Lane, PushRequest, SentRequest, Settlement, Shard
from relevo.cycles import Assembled, dispatch
from relevo.database.arrays import array, array_of_few, text_array
from relevo.database.pool import Database
from relevo.delivery.claiming.claim import Claim, Verdicts
from relevo.delivery.claiming.claims import Claims
from relevo.delivery.claiming.columns import Chunk, contents_of, deliveries_of

SQL = statements(__file__)
_PER_CHUNK = 100
_SEEDS_BATCH = 50
_RATE = 600
_FEW = TenderMatching(tipo="FEW")


class Unguarded(Claims):
    """The ceiling: a loop that takes chunks off the queue, sends them, and writes the rows, without any guard.

    A chunk is gone once it is taken: there is no claim, no lease and no heartbeat that could give it back. Nothing is
    journalled, so that nobody would know what was on its way, and nothing is looked at again before the request. Rows
    are written as settling writes them, but by their key alone, whoever wrote them since. No receipt is awaited, and
    nothing is counted: neither an event's progress nor what the brakes look at. Those are work rather than guards, so
    that this is more than the guards cost. Choosing a project, its rate, rendering and HTTP are the same; what an event
    says comes with its chunk, as a claim tells it.
    """

    def __init__(self, built: App, database: Database) -> None:
        super().__init__(database, built.settings, built.worker.worker_id, built.heartbeat)
        self.database = database
        self.most = built.settings.outbox_batch_size

    def claim(
        self,
        cycle: str,
        project: str,
        lane: Lane,
        *,
        limit: int | None = None,
        shard: Shard | None = None,  # noqa: ARG002
        now: datetime | None = None,
        probe: bool = False,  # noqa: ARG002
        since: datetime | None = None,  # noqa: ARG002
        in_shadow: bool = False,  # noqa: ARG002
    ) -> Claim | None:
        """Take the next chunks in the order of the queue, and look where their deliveries go."""
        chunks = max(1, (limit or self.most) // _PER_CHUNK)
        asked = {"project": project, "lane": lane, "chunks": chunks, "now": now}
        with self.database.transaction("bound_relaxed") as connection:
            rows = [Chunk(*row) for row in connection.execute(SQL["take_unguarded"], asked).fetchall()]
        if not rows:
            return None
        return Claim(uuid4(), cycle, project, 60_000, deliveries_of(project, lane, rows), contents=contents_of(rows))

    def journal(self, claim: Claim, wave: Sequence[PushRequest], now: datetime | None = None) -> Verdicts:  # noqa: ARG002
        """Write nothing down."""
        return Verdicts(wave)

    def settle_sent(
        self,
        claim: Claim,  # noqa: ARG002
        sent: Sequence[SentRequest],
        now: datetime | None = None,
        *,
        unsent: Sequence[int] = (),  # noqa: ARG002
        finish: bool = False,  # noqa: ARG002
    ) -> Settlement:
        """Write tickets by key alone."""
        deliveries = [delivery for each in sent for delivery in each.request.deliveries]
        written = {
            "days": array_of_few([delivery.event_day for delivery in deliveries]),
            "ids": array([delivery.id for delivery in deliveries]),
            "tickets": text_array([ticket for each in sent for ticket in each.tickets]),
            "versions": array_of_few([delivery.token_version for delivery in deliveries]),
            "now": now,
        }
        with self.database.transaction("bound_by_key") as connection:
            return Settlement({"sent": connection.execute(SQL["write_unguarded"], written).rowcount})

    def settle(self, *_: Any, **__: Any) -> Settlement:
        """Know of nothing but success."""
        raise AssertionError("something was not sent, and the ceiling knows of nothing but success")

    def release(self, claim: Claim, now: datetime | None = None, *, lapsed: bool = False) -> Counter[str]:  # noqa: ARG002
        """Hand nothing back."""
        return Counter()


def lifted(env: Environment) -> Iterator[Row]:
    """Ours, the ceiling and the plain loop in turns, the rate lifted."""
    env.send_all()  # everything is warm
    turns = [(plain_loop(env), env.send_all(), ceiling(env)) for _ in range(env.sizes.rounds)]
    loops, ours, ceilings = (middle(costs) for costs in zip(*turns, strict=True))
    ratios = {
        "times_a_plain_loop": statistics.median(our.per_s / their.per_s for their, our, _ in turns),
        "of_the_ceiling": statistics.median(our.per_s / bare.per_s for _, our, bare in turns),
    }
    goals = (
        Goal("cpu_ms_per_1000", 70, "ms CPU"),
        Goal("times_a_plain_loop", 50, "x a plain loop", at_least=True),
        Goal("of_the_ceiling", 0.85, "x the ceiling", at_least=True),
    )
    row = rate("dispatch", "dispatch, every guarantee on", ours, *goals, **ratios)
    told = (
        f"{row.said}: {ratios['times_a_plain_loop']:.0f} x a plain loop, {ratios['of_the_ceiling']:.2f} x the ceiling"
    )
    yield replace(row, said=told)
    yield rate("ceiling", "the unguarded ceiling: take chunks, send, write rows", ceilings)
    yield rate("plain_loop", "a plain loop: one request and one update per delivery", loops)


def ceiling(env: Environment) -> Cost:
    """Send an event for everyone without a guard, and end what that leaves undone."""
    with env.worker() as built:
        env.queue(built)
        [cycle] = dispatch.cycles(Assembled(replace(built.services, claims=Unguarded(built, built.database))))
        cost = env.drain(built, cycle)
    env.conn.execute(SQL["finish_unguarded"])
    return cost


def plain_loop(env: Environment) -> Cost:
    """Send one request and make one update per delivery, from one table that is the queue as well."""
    env.conn.execute(SQL["loop_table"])
    env.conn.execute(SQL["loop_load"])
    return env.meter.measure(lambda: _loop_some(env, min(env.sizes.plain_loop, env.sizes.phones)))


def _loop_some(env: Environment, count: int) -> int:
    sent, url, lock = 0, f"{env.url}/--/api/v2/push/send", {"limit": _SEEDS_BATCH, "token": uuid4()}
    with requests.Session() as session:
        while sent < count:
            for key, to, title, body in env.conn.execute(SQL["loop_lock"], lock).fetchall():
                answer = session.post(url, json=[{"to": to, "title": title, "body": body}], timeout=10)
                env.conn.execute(SQL["loop_update"], {"ticket": answer.json()["data"][0]["id"], "id": key})
                sent += 1
    return sent


def rated(env: Environment) -> Iterator[Row]:
    """The cost of a delivery if a project gets no more than its rate, in grants of a hundred."""
    with env.worker(push_rate_per_second=_RATE) as built:
        env.queue(built, _FEW)
        yield rate("rated", f"dispatch at {_RATE}/s, in grants of 100", env.drain(built))


def aged(env: Environment) -> Iterator[Row]:
    """Dispatch again after much was completed and churned."""
    sizes = env.sizes
    before = least([env.send_all() for _ in range(2)])
    say(f"  {sizes.completed:,} completed, {sizes.churned:,} churned …")
    env.conn.execute(SQL["load_completed"], {"count": sizes.completed})
    churn(env, sizes.churned)
    after = least([env.send_all() for _ in range(2)])
    what = f"dispatch after {sizes.completed:,} completed and {sizes.churned:,} churned"
    yield compared("aged", what, before, after, 1.1)


def churn(env: Environment, count: int) -> None:
    """Send at least so many deliveries."""
    while count > 0:
        count -= env.send_all().count


def compared(name: str, what: str, before: Cost, after: Cost, most: float) -> Row:
    """Return a row that says how much more a delivery costs than before."""
    ratio = after.cpu_ms / before.cpu_ms
    row = rate(name, what, after, Goal("cpu_ratio", most, "x CPU"), cpu_ratio=ratio)
    return replace(row, said=f"{row.said}: {ratio:.2f} x CPU")


def least(costs: Sequence[Cost]) -> Cost:
    """Return the cheapest: what else the machine does only adds to it."""
    return min(costs, key=lambda cost: cost.cpu_ms)
