"""Claims: take what is due, journal before each request, settle with the claim's token, hand back the rest."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import structlog

from relevo.config import Settings
from relevo.core import queries, wordings
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.core.model import Awaiting, Lane, LossReason, Shard
from relevo.database.arrays import array
from relevo.database.outages import is_passing
from relevo.database.pool import Connection, Database
from relevo.delivery.claiming import columns
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.claiming.journal import Journal, explain_loss
from relevo.delivery.claiming.settle import Settling
from relevo.runtime.halving import write_in_halves
from relevo.runtime.heartbeat import Heartbeat, Loss, Renewed

_SQL = queries.load("claims", "journal", "settle", "receipts", "words")
_log = structlog.get_logger("relevo.claims")
_FOREIGN_FOR_S = 5.0
_SUSPECT_LAPSES = 2  # from so many on a delivery is claimed alone
_PROBES_LOOK_AT = 5_000  # of the oldest due deliveries


Take = Callable[[Connection, int], Claim | None]
"""Claims up to so many inside a transaction."""


class Claims(Journal, Settling):
    """The statements around a claim, for one worker: taken and ended here, between that journalled and settled."""

    def __init__(self, database: Database, settings: Settings, worker_id: str, heartbeat: Heartbeat) -> None:
        Journal.__init__(self, database, settings)
        Settling.__init__(self, database, settings, heartbeat)
        self._worker_id = worker_id
        self.composed: frozenset[str] = frozenset()
        """The event types for which this worker has a composer."""
        self._foreign: tuple[float, list[str]] = (-_FOREIGN_FOR_S, [])
        self._unspoken: tuple[float, list[str]] = (-_FOREIGN_FOR_S, [])
        """The event types with texts, where this worker cannot render any."""

    def claim(
        self,
        cycle: str,
        project: str,
        lane: Lane,
        *,
        limit: int | None = None,
        shard: Shard | None = None,
        now: datetime | None = None,
        probe: bool = False,
        since: datetime | None = None,
        in_shadow: bool = False,
    ) -> Claim | None:
        """Take up to `limit` due deliveries of one project and lane, or None if nothing is due.

        Oldest first, from `since` on: a look found nothing that fell due before; for a probe first those that nothing
        speaks against. In shadow mode it takes what fell due in that mode, else only the rest.
        """
        most = self._settings.outbox_batch_size if limit is None else min(limit, self._settings.outbox_batch_size)
        parameters = self._asked(cycle, project, most, shard, now) | self._of_lane(lane, since, in_shadow=in_shadow)
        parameters |= {"probe": probe}
        return self._kept(parameters, lambda: self._take(parameters))

    def claim_within(
        self,
        write: Callable[[Take], Claim | None],
        cycle: str,
        project: str,
        lane: Lane,
        *,
        shard: Shard | None = None,
        now: datetime | None = None,
        since: datetime | None = None,
        in_shadow: bool = False,
    ) -> Claim | None:
        """Claim as `claim` does, in a transaction that `write` opens and ends; it is given what takes so many there."""
        most, tried = self._settings.outbox_batch_size, list[int]()
        parameters = self._asked(cycle, project, most, shard, now) | self._of_lane(lane, since, in_shadow=in_shadow)

        def take(connection: Connection, limit: int) -> Claim | None:
            tried.append(limit)
            return self._take_in(connection, parameters | {"limit": limit})

        return self._kept(parameters, lambda: write(take), may_stand=lambda: bool(tried))

    def _of_lane(self, lane: Lane, since: datetime | None, *, in_shadow: bool) -> dict[str, Any]:
        return {
            "lane": lane,
            "suspect_lapses": min(_SUSPECT_LAPSES, self._settings.outbox_poison_lapses // 2),
            "since": since,
            "look_at": _PROBES_LOOK_AT,
            "in_shadow": in_shadow,
        }

    def _kept(
        self,
        parameters: dict[str, Any],
        take: Callable[[], Claim | None],
        *,
        may_stand: Callable[[], bool] = lambda: True,
    ) -> Claim | None:
        """Return what was taken, and have the heartbeat extend it; if the COMMIT's answer is lost, find out."""
        began = time.monotonic()
        try:
            claim = take()
        except DatabaseUnavailableError:
            claim = self._adopt(parameters) if may_stand() else None
            if claim is None:
                raise
        if claim is not None:
            claim.taken_at = began
            claim.renewed(began)  # from before the first try on: what is left is never overrated
            self.keep(claim)
        return claim

    def learn_composed(self, types: Iterable[str]) -> None:
        """Learn for which event types other workers have a composer."""
        self._foreign = time.monotonic(), sorted(set(types) - self.composed)

    def claim_awaiting(
        self, project: str, *, limit: int, shard: Shard | None = None, now: datetime | None = None
    ) -> Claim | None:
        """Take sent deliveries of a project whose receipts are due, or None.

        What was sent together is claimed together: up to `limit`, or one request's worth if that is more.
        """
        since = time.monotonic()
        parameters = self._asked("receipt", project, limit, shard, now)
        groups = self._database.execute(_SQL["claim_awaited"], parameters, "bound_relaxed").fetchall()
        taken = [
            Awaiting(day, each, phone, ticket, version, sent_at, attempts)
            for sent_at, *of_each in groups
            for day, each, phone, ticket, version, attempts in zip(*of_each, strict=True)
        ]
        if not taken:
            return None
        claim = Claim(parameters["token"], "receipt", project, parameters["lease_ms"], tuple(taken), since)
        self.keep(claim)
        return claim

    def keep(self, claim: Claim) -> None:
        """Add a claim to the heartbeat, which extends it until it is dropped."""
        self._heartbeat.keep(claim.token, claim, self.renew)

    def renew(self, connection: Connection, claims: Mapping[UUID, Claim]) -> Renewed:
        """Extend claims, inside the heartbeat's transaction, and return which are gone.

        One that somebody holds locked, such as a settle about to end it, is neither extended nor lost.
        """
        rows = connection.execute(_SQL["renew_claims"], {"tokens": list(claims), "now": None}).fetchall()
        standing = {token: state for token, state in rows if state != "held_too_long"}
        extended = [claims[token] for token, state in standing.items() if state == "renewed"]
        lost = [Loss(token, *_why_lost(connection, claims[token])) for token in set(claims) - set(standing)]
        return Renewed(lost, extended, locked=sum(state == "locked" for state in standing.values()))

    def _asked(self, cycle: str, project: str, limit: int, shard: Shard | None, now: datetime | None) -> dict[str, Any]:
        """Return what every claim asks for, under a new token; nothing is taken that could not be kept."""
        if self._heartbeat.failing:
            raise DatabaseUnavailableError(
                "The heartbeat does not reach PostgreSQL, so nothing is claimed.",
                hint="Claiming continues once it does.",
            )
        return {
            "token": uuid4(),
            "worker_id": self._worker_id,
            "cycle": cycle,
            "project": project,
            "limit": limit,
            "shard_index": shard.index if shard else None,
            "shard_count": shard.count if shard else None,
            "lease_ms": self._settings.outbox_lease_duration_ms,
            "now": now,
        }

    def _take(self, parameters: dict[str, Any]) -> Claim | None:
        with self._database.transaction("bound_relaxed") as connection:  # the journal's commit brings it to the disk
            return self._take_in(connection, parameters)

    def _take_in(self, connection: Connection, parameters: dict[str, Any]) -> Claim | None:
        asked = parameters | self._types(connection)
        statement = "claim_probe" if asked.get("probe") else "claim_due"
        return _claimed(parameters, connection.execute(_SQL[statement], asked).fetchall())

    @property
    def limited(self) -> bool:
        """Whether some event types are not for this worker."""
        return bool(self._settings.worker_event_types or self._foreign[1] or self._unspoken[1])

    def _types(self, connection: Connection) -> dict[str, list[str] | None]:
        """Return which event types this worker may claim, as statements take it.

        Those it is limited to, and none for which a living worker has a composer that this one lacks: it would send
        what that one makes otherwise. Of types whose texts are rendered when they
        are sent, only events with a text of their own, if it lacks what renders the others.
        """
        if time.monotonic() - self._foreign[0] > _FOREIGN_FOR_S:
            rows = connection.execute(_SQL["list_composed_types"], {"worker_id": self._worker_id}).fetchall()
            self.learn_composed(row[0] for row in rows)
        if time.monotonic() - self._unspoken[0] > _FOREIGN_FOR_S and not wordings.is_available():
            rows = connection.execute(_SQL["list_types_rendered_late"]).fetchall()
            self._unspoken = time.monotonic(), [row[0] for row in rows]
        only = self._settings.worker_event_types
        return {
            "only_types": list(only) if only else None,
            "not_types": self._foreign[1] or None,
            "not_worded": self._unspoken[1] or None,
        }

    def _adopt(self, parameters: dict[str, Any]) -> Claim | None:
        """After a lost COMMIT answer: bar the token if its claim does not stand, else read it back and go on.

        A COMMIT still on its way is waited for; PostgreSQL ends the transaction if it does not come.
        """
        with self._database.transaction("bound_by_key") as connection:
            connection.execute(_SQL["wait_for_locks"])
            if connection.execute(_SQL["bar_claim"], parameters).fetchone() is not None:
                return None
            connection.execute(_SQL["lock_claim"], parameters)
            rows = connection.execute(_SQL["adopt_claim"], parameters).fetchall()
        _log.info("claim_adopted", claim=str(parameters["token"]), chunks=len(rows))
        return _claimed(parameters, rows)

    def release(self, claim: Claim, now: datetime | None = None, *, lapsed: bool = False) -> Counter[str]:
        """Hand back what is left of a claim: what was never journalled spends nothing, a lapse only if `lapsed`.

        What cannot be written stays in the claim, for a reaper, and is raised after the others were handed back.
        """
        self._heartbeat.drop(claim.token)
        with self._database.transaction("bound_by_key") as connection:
            ended, left = end_claim(connection, self._settings, claim.token, lapsed=lapsed, now=now)
        for error in left.values():
            raise error
        return ended

    def hand_back(self, claim: Claim, now: datetime | None = None, *, lapsed: bool = False) -> None:
        """Release a claim; if that cannot be done, a reaper does."""
        try:
            self.release(claim, now, lapsed=lapsed)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            _log.warning("claim_not_handed_back", claim=str(claim.token), error=normalise_error(error))


def _why_lost(connection: Connection, claim: Claim) -> tuple[LossReason, str]:
    reason = explain_loss(connection, claim)
    held_too_long = "It was held for three times its lease and is not renewed."
    return reason, held_too_long if reason == "error" else "The heartbeat found it ended."


def end_claim(
    connection: Connection, settings: Settings, token: UUID, *, lapsed: bool, now: datetime | None = None
) -> tuple[Counter[str], dict[int, Exception]]:
    """End a claim inside the caller's transaction, which allows index lookups only; if it must be, in parts.

    Returns how many deliveries became what, `ambiguous` beside them, and the errors of those that cannot be written:
    they stay in the claim. What passes, such as a lock, is raised.
    """
    parameters = {
        "token": token,
        "lapsed": lapsed,
        "poison_lapses": settings.outbox_poison_lapses,
        "max_attempts": settings.outbox_max_attempts,
        "timeout_ms": settings.push_request_timeout_ms,
        "receipt_ms": settings.receipt_first_poll_ms,
        "now": now,
    }
    ended: Counter[str] = Counter()

    def end(some: Sequence[int] | None) -> None:
        only = {"only_ids": None if some is None else array(some)}
        with connection.transaction():
            ended.update(dict(connection.execute(_SQL["end_claim"], parameters | only).fetchall()))

    try:
        end(None)
    except psycopg.Error as error:
        claimed = [] if is_passing(error) else [row[0] for row in connection.execute(_SQL["list_claimed"], parameters)]
        if not claimed:
            raise
        random.shuffle(claimed)  # where many cannot be written, each time others can
        return ended, write_in_halves(claimed, end, error)
    return ended, {}


def _claimed(asked: Mapping[str, Any], rows: Sequence[tuple[Any, ...]]) -> Claim | None:
    """Return the claim that a statement took; None if it took nothing."""
    if not rows:
        return None
    chunks, project = [columns.Chunk(*row) for row in rows], asked["project"]
    deliveries, contents = columns.deliveries_of(project, asked["lane"], chunks), columns.contents_of(chunks)
    claim = Claim(asked["token"], asked["cycle"], project, chunks[0].lease_ms, deliveries, contents=contents)
    claim.in_shadow = asked["in_shadow"]
    return claim
