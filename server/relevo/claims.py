"""Claims: take a batch, journal before each request, settle with the claim's token, hand back the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID, uuid4

import structlog
from psycopg.rows import class_row

from relevo import queries
from relevo.config import Settings
from relevo.db import Connection, Database
from relevo.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.heartbeat import Heartbeat, explain_loss
from relevo.model import Answer, Delivery, Lane, LossReason, PushRequest, Settlement, Shard, Verdict
from relevo.policy import LeaseClass, batch_of, lease_class

_SQL = queries.load("claims")
_log = structlog.get_logger("relevo.claims")


@dataclass
class Claim:
    """A batch of deliveries that is this worker's until it is settled, handed back or lost."""

    token: UUID
    cycle: str
    lease_ms: int
    deliveries: tuple[Delivery, ...]
    loss: tuple[LossReason, str] | None = field(default=None, init=False)

    @property
    def days(self) -> list[date]:
        """The event days of its deliveries, in the order of their ids."""
        return [delivery.event_day for delivery in self.deliveries]

    @property
    def ids(self) -> list[int]:
        """The ids of its deliveries."""
        return [delivery.id for delivery in self.deliveries]

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that the claim is gone; the first reason stays."""
        if self.loss is not None:
            return
        self.loss = (reason, detail)
        _log.warning("claim_lost", claim=str(self.token), reason=reason, detail=detail, deliveries=len(self.deliveries))

    def check(self) -> None:
        """Raise OwnershipLostError if the claim is gone: to be called before every request."""
        if self.loss is not None:
            reason, detail = self.loss
            raise OwnershipLostError(reason, f"Claim {self.token} is lost ({reason}). {detail}")


class Claims:
    """The statements around a claim, for one worker."""

    def __init__(self, database: Database, settings: Settings, worker_id: str, heartbeat: Heartbeat) -> None:
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._heartbeat = heartbeat

    def claim(
        self,
        cycle: str,
        project: str,
        lane: Lane,
        *,
        limit: int | None = None,
        shard: Shard | None = None,
        now: datetime | None = None,
    ) -> Claim | None:
        """Take up to `limit` due deliveries of one project and lane, oldest first, or None if nothing is due."""
        token = uuid4()
        most = self._settings.outbox_batch_size
        parameters = {
            "token": token,
            "worker_id": self._worker_id,
            "cycle": cycle,
            "project": project,
            "lane": lane,
            "limit": most if limit is None else min(limit, most),
            "shard_index": shard.index if shard else None,
            "shard_count": shard.count if shard else None,
            "lease_ms": self._settings.outbox_lease_duration_ms,
            "now": now,
        }
        try:
            claim = self._take(token, cycle, parameters)
        except DatabaseUnavailableError:
            claim = self._adopt(token, cycle, parameters)
            if claim is None:
                raise
        if claim is not None:
            self._heartbeat.hold_claim(claim.token, claim)
        return claim

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._database.transaction() as connection:
            connection.execute(_SQL["plan_by_key"])
            yield connection

    def _take(self, token: UUID, cycle: str, parameters: dict[str, Any]) -> Claim | None:
        with self._transaction() as connection:
            chosen = self._lease_class(connection, parameters)
            if chosen is None:
                return None
            asked = parameters | {
                "lease_ms": chosen.lease_ms,
                "only_types": list(chosen.only) if chosen.only is not None else None,
                "not_types": list(chosen.without) if chosen.without is not None else None,
            }
            with connection.cursor(row_factory=class_row(Delivery)) as cursor:
                picked = cursor.execute(_SQL["pick_due"], asked).fetchall()
            batch = batch_of(picked, self._settings.outbox_suspect_lapses)
            if not batch:
                return None
            claim = Claim(token, cycle, chosen.lease_ms, tuple(batch))
            connection.execute(_SQL["claim_picked"], asked | {"days": claim.days, "ids": claim.ids})
        return claim

    def _lease_class(self, connection: Connection, parameters: dict[str, Any]) -> LeaseClass | None:
        default_ms = self._settings.outbox_lease_duration_ms
        leases: dict[str, int] = dict(connection.execute(_SQL["list_leases"]).fetchall())
        if not leases:
            return LeaseClass(default_ms)
        oldest = connection.execute(_SQL["find_oldest_type"], parameters).fetchone()
        return lease_class(oldest[0], leases, default_ms) if oldest else None

    def _adopt(self, token: UUID, cycle: str, parameters: dict[str, Any]) -> Claim | None:
        """After a lost COMMIT answer: bar the token if its claim does not stand, else read it back and go on.

        A COMMIT still on its way is waited for; PostgreSQL ends the transaction if it does not come.
        """
        with self._transaction() as connection:
            connection.execute(_SQL["wait_for_locks"])
            if connection.execute(_SQL["bar_claim"], parameters).fetchone() is not None:
                return None
            row = connection.execute(_SQL["read_claim"], {"token": token}).fetchone()
            if row is None:
                return None
            lease_ms, days, ids = row
            with connection.cursor(row_factory=class_row(Delivery)) as cursor:
                keys = {"token": token, "days": days, "ids": ids}
                deliveries = cursor.execute(_SQL["adopt_claim"], keys).fetchall()
        _log.info("claim_adopted", claim=str(token), deliveries=len(deliveries))
        return Claim(token, cycle, lease_ms, tuple(deliveries))

    def journal(self, claim: Claim, wave: Sequence[PushRequest], now: datetime | None = None) -> list[Verdict]:
        """Record a wave of requests before they are sent, and learn which of their deliveries may be sent.

        Raises OwnershipLostError if the claim is gone or too little of its lease is left for a request.
        """
        claim.check()
        keys = [(request.id, d.event_day, d.id) for request in wave for d in request.deliveries]
        with self._transaction() as connection, connection.cursor(row_factory=class_row(Verdict)) as cursor:
            rows = cursor.execute(
                _SQL["journal_wave"],
                {
                    "token": claim.token,
                    "request_ids": [key[0] for key in keys],
                    "days": [key[1] for key in keys],
                    "ids": [key[2] for key in keys],
                    "timeout_ms": self._settings.push_request_timeout_ms,
                    "now": now,
                },
            ).fetchall()
            verdicts = [verdict for verdict in rows if verdict.id is not None]
            reason = None if verdicts else explain_loss(connection, claim.token, claim)
        if reason in ("not_found", "already_completed") or (reason is not None and not rows):
            claim.lose(
                reason,
                "Too little of its lease is left." if reason == "error" else "The journal found it ended.",
            )
            claim.check()
        return verdicts

    def settle(
        self,
        claim: Claim,
        answers: Sequence[Answer],
        requests: Sequence[UUID] = (),
        now: datetime | None = None,
    ) -> Settlement:
        """Write outcomes where the claim still stands; keep tickets that came too late as evidence."""
        if not answers:
            return Settlement({})
        settings = self._settings
        parameters = {
            "token": claim.token,
            "days": [a.event_day for a in answers],
            "ids": [a.id for a in answers],
            "statuses": [a.status for a in answers],
            "attempted": [a.attempted for a in answers],
            "tickets": [a.ticket_id for a in answers],
            "codes": [a.error_code[:100] if a.error_code else None for a in answers],
            "messages": [a.error_message[:500] if a.error_message else None for a in answers],
            "floors_ms": [a.retry_after_ms for a in answers],
            "request_ids": list(requests),
            "max_attempts": settings.outbox_max_attempts,
            "retry_base_ms": settings.outbox_retry_base_ms,
            "retry_max_ms": settings.outbox_retry_max_ms,
            "retry_jitter_ms": settings.outbox_retry_jitter_ms,
            "now": now,
        }
        with self._transaction() as connection:
            connection.execute(_SQL["lock_claim"], {"token": claim.token})
            written = dict(connection.execute(_SQL["settle_deliveries"], parameters).fetchall())
            if sum(written.values()) == len(answers):
                return Settlement(written)
            late = connection.execute(_SQL["keep_late_tickets"], parameters).fetchone() or (0, 0)
        return Settlement(written, closed_late=late[0], kept_as_evidence=late[1])

    def release(self, claim: Claim, now: datetime | None = None) -> Counter[str]:
        """Hand back what is left of a claim: nothing is spent for what was never journalled."""
        self._heartbeat.drop(claim.token)
        with self._database.transaction() as connection:
            return end_claim(connection, self._settings, claim.token, lapsed=False, now=now)


def end_claim(
    connection: Connection,
    settings: Settings,
    token: UUID,
    *,
    lapsed: bool,
    now: datetime | None = None,
) -> Counter[str]:
    """End a claim inside the caller's transaction; return how many deliveries became what, `ambiguous` beside them."""
    connection.execute(_SQL["plan_by_key"])
    rows = connection.execute(
        _SQL["end_claim"],
        {
            "token": token,
            "lapsed": lapsed,
            "poison_lapses": settings.outbox_poison_lapses,
            "max_attempts": settings.outbox_max_attempts,
            "timeout_ms": settings.push_request_timeout_ms,
            "now": now,
        },
    ).fetchall()
    counts: Counter[str] = Counter()
    for status, ambiguous, deliveries in rows:
        counts[status] += deliveries
        counts["ambiguous"] += deliveries if ambiguous else 0
    return counts
