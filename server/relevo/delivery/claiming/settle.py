"""Settling: what became of a claim's deliveries is written where the claim still stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import structlog
from psycopg import errors as pg

from relevo.config import RECEIPT_GIVE_UP_MS, Settings
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Answer, ReceiptAnswer, SentRequest, Settlement
from relevo.database.arrays import array, text_array, uuid_array
from relevo.database.outages import is_unavailable
from relevo.database.pool import Connection, Database
from relevo.delivery.claiming import columns
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.claiming.journal import queue
from relevo.runtime.heartbeat import Heartbeat

_SQL = queries.load("claims", "settle", "receipts")
_log = structlog.get_logger("relevo.claims")

Pruning = Callable[[Connection, str], bool]
"""Returns, inside a transaction and after the answers were counted, whether tokens of a project may be disabled."""


class Settling:
    """The statements that write what became of a claim's deliveries."""

    def __init__(self, database: Database, settings: Settings, heartbeat: Heartbeat) -> None:
        self._database = database
        self._settings = settings
        self._heartbeat = heartbeat

    def settle_sent(
        self,
        claim: Claim,
        sent: Sequence[SentRequest],
        now: datetime | None = None,
        *,
        unsent: Sequence[int] = (),
        finish: bool = False,
    ) -> Settlement | None:
        """Write down what was sent of some requests; None, and nothing is written, if `settle` has to do it.

        That is so if it is not what the claim holds next, but for what was not sent in between (given by its places
        from 1 on, and left in the claim), if the claim is lost, or if one of the deliveries is gone. All of it has the
        same fate.
        """
        if claim.loss is not None:
            return None
        fate = sent[0].fate
        parameters = columns.all_sent(claim, sent) | {
            "unsent": array(unsent),
            "receipt_ms": self._settings.receipt_first_poll_ms if fate == "sent" else None,
            "finish": finish,
            "now": now,
        }
        since = time.monotonic()  # before the transaction, whose beginning the lease is counted from
        try:
            with self._database.transaction("bound_by_key") as connection:
                row = connection.execute(_SQL["settle_sent"], parameters).fetchone()
                silent = 0
                if claim.silent and row is not None and row[0] is not None:
                    silent = _note_silent(
                        connection, claim, [d.id for each in sent for d in each.request.deliveries], now
                    )
        except pg.NoDataFound:
            return None
        if row is None or row[0] is None:
            return None
        self._keep_or_drop(claim, since, finish=finish)
        return Settlement({fate: row[0]}, silent=silent)

    def _keep_or_drop(self, claim: Claim, since: float, *, finish: bool) -> None:
        """Learn what a settle did to its claim: it ended it, or extended its lease."""
        if finish:
            self._heartbeat.drop(claim.token)
        elif time.monotonic() < claim.taken_at + claim.lasts_s:  # later it is not extended
            claim.renewed(max(claim.since, since))

    def settle(
        self,
        claim: Claim,
        answers: Sequence[Answer],
        requests: Mapping[UUID, str] | Sequence[UUID] = (),
        now: datetime | None = None,
        *,
        finish: bool = False,
        may_prune: Pruning | None = None,
    ) -> Settlement:
        """Write outcomes where the claim still stands; keep tickets that came too late as evidence.

        `requests` are those that were answered, and how; `finish` ends a claim of which nothing is left.
        """
        if not answers and not requests and not finish:
            return Settlement({})
        outcomes = requests if isinstance(requests, Mapping) else dict.fromkeys(requests, "answered")
        parameters = self.parameters(claim, answers, outcomes, now, finish=finish)
        late = (0, 0)
        since = time.monotonic()  # before the transaction, whose beginning the lease is counted from
        with self._database.transaction("bound_by_key") as connection:
            written: dict[str, int] = {}
            if unsent := [a for a in answers if a.not_sent or (claim.loss is not None and a.is_untaken)]:
                connection.execute(_SQL["lock_claim"], {"token": claim.token})  # a reaper at work on it is waited for
                connection.execute(_SQL["split_unsent"], columns.unsent(claim, unsent) | {"now": now})
            if claim.loss is None:  # a claim known to be lost is a reaper's to end, even while its row still stands
                written = dict(connection.execute(_SQL["settle_deliveries"], parameters).fetchall())
            if sum(written.values()) < len(answers):
                late = connection.execute(_SQL["keep_late_tickets"], parameters).fetchone() or (0, 0)
            silent = 0
            if claim.silent:
                silent = _note_silent(connection, claim, [a.id for a in answers if a.status in ("sent", "ok")], now)
            disabled = self._disable_tokens(connection, claim, answers, may_prune, now, written=written)
        if sum(written.values()) < len(answers):
            self._reopen_unsent(claim, [answer for answer in answers if answer.is_untaken], now)
        if finish or written:
            self._keep_or_drop(claim, since, finish=finish)
        return Settlement(written, late[0], late[1], disabled, silent)

    def _reopen_unsent(self, claim: Claim, unsent: Sequence[Answer], now: datetime | None) -> None:
        """Open again what whoever ended the claim gave up, because nobody knew that it was not taken.

        By itself, after the tickets that came late: each of the two locks deliveries in their order.
        """
        told = [answer for answer in unsent if answer.request is not None]
        if told:
            with self._database.transaction("bound_by_key") as connection:
                connection.execute(_SQL["lock_claim"], {"token": claim.token})
                parameters = columns.keys(told) | columns.unsent(claim, told) | {"now": now}
                queue(connection, connection.execute(_SQL["reopen_unsent"], parameters).fetchall())

    def parameters(
        self,
        claim: Claim,
        answers: Sequence[Answer],
        requests: Mapping[UUID, str],
        now: datetime | None,
        *,
        finish: bool,
    ) -> dict[str, Any]:
        """Return the parameters of `settle_deliveries`; `requests` are those that were answered, and how."""
        settled = {"request_ids": uuid_array(requests), "request_outcomes": list(requests.values()), "finish": finish}
        return self._common(claim, now) | columns.answered(claim, answers) | settled

    def keep_tickets(self, claim: Claim, answers: Sequence[Answer], now: datetime | None = None) -> None:
        """Keep the tickets of answers that cannot be written for now, so that nothing of it is ever sent again."""
        sent = [answer for answer in answers if answer.ticket_id is not None]
        if sent:
            kept = {
                "token": claim.token,
                "tickets": text_array([a.ticket_id for a in sent]),
                "request_ids": uuid_array({a.request for a in sent if a.request is not None}),
                "now": now,
            }
            self._database.execute(_SQL["keep_tickets"], columns.keys(sent) | kept, "bound_by_key")

    def returned(self, gone: Sequence[tuple[UUID, int | None, datetime | None]]) -> dict[tuple[UUID, int | None], bool]:
        """Return which tokens of phones are not the end of it, given by their version and since when they are gone.

        True says that the phone has another token now, False that it confirmed this one since.
        """
        asked = {
            "installations": uuid_array([phone for phone, _, _ in gone]),
            "versions": array([version for _, version, _ in gone]),
            "gone_at": [gone_at for _, _, gone_at in gone],
        }
        rows = self._database.execute(_SQL["list_returned"], asked).fetchall()
        return {(phone, version): has_moved for phone, version, has_moved in rows}

    def settle_receipts(
        self,
        claim: Claim,
        answers: Sequence[ReceiptAnswer],
        now: datetime | None = None,
        *,
        may_prune: Pruning | None = None,
    ) -> Settlement:
        """Write what receipts say where the claim still stands, and end the claim.

        Raises OwnershipLostError if the claim is known to be lost: a receipt can be fetched again.
        """
        claim.check()
        if all(answer.status == "ok" for answer in answers):
            confirmed = self._confirm(claim, len(answers), now)
            if confirmed is not None:
                self._heartbeat.drop(claim.token)
                return Settlement({"ok": confirmed} if confirmed else {})
        parameters = self._common(claim, now) | columns.received(answers) | {"give_up_ms": RECEIPT_GIVE_UP_MS}
        gone = [_gone(answer) for answer in answers if answer.status == "invalid"]
        with self._database.transaction("bound_by_key") as connection:
            written = dict(connection.execute(_SQL["settle_receipts"], parameters).fetchall())
            disabled = self._disable_tokens(connection, claim, gone, may_prune, now, written=written)
        self._heartbeat.drop(claim.token)
        return Settlement(written, tokens_disabled=disabled)

    def _confirm(self, claim: Claim, asked: int, now: datetime | None) -> int | None:
        """Write that all pushes of a claim arrived; None if it does not hold just that many."""
        told = {"token": claim.token, "asked": asked, "now": now}
        row = self._database.execute(_SQL["settle_confirmed"], told, "bound_by_key").fetchone()
        return row[0] if row else None

    def _common(self, claim: Claim, now: datetime | None) -> dict[str, Any]:
        """Return what both settles take: whose deliveries they are, and when to try or ask again."""
        settings = self._settings
        return {
            "token": claim.token,
            "now": now,
            "receipt_ms": settings.receipt_first_poll_ms,
            "max_attempts": settings.outbox_max_attempts,
            "retry_base_ms": settings.outbox_retry_base_ms,
            "retry_max_ms": settings.outbox_retry_max_ms,
            "retry_jitter_ms": settings.outbox_retry_jitter_ms,
        }

    def _disable_tokens(
        self,
        connection: Connection,
        claim: Claim,
        answers: Sequence[Answer],
        may_prune: Pruning | None,
        now: datetime | None,
        *,
        written: dict[str, int],
    ) -> int:
        """Disable the tokens that are gone, unless the project's brake is on: then their pushes become dead letters.

        Behind a savepoint: what goes wrong there is only logged, for nothing of it may undo the answers.
        """
        gone = [a for a in answers if a.status == "invalid" and a.installation_id and a.token_version is not None]
        gone.sort(key=lambda a: str(a.installation_id))  # as everybody locks installations
        if not gone or not written.get("invalid"):
            return 0
        parameters = {
            "installations": uuid_array([a.installation_id for a in gone if a.installation_id]),
            "versions": array([a.token_version for a in gone]),
            "reasons": text_array([(a.error_code or "invalid")[:100] for a in gone]),
            "now": now,
        }
        try:
            with connection.transaction():
                if may_prune is not None and not may_prune(connection, claim.project):
                    _keep_as_dead(connection, gone, now, written)
                    return 0
                return connection.execute(_SQL["disable_tokens"], parameters).rowcount
        except psycopg.Error as error:
            if is_unavailable(error):
                raise
            _log.warning("tokens_not_disabled", claim=str(claim.token), tokens=len(gone), error=normalise_error(error))
            return 0


def _note_silent(connection: Connection, claim: Claim, sent: Sequence[int], now: datetime | None) -> int:
    """Note which of the pushes that were sent went without a sound because of quiet hours; return how many."""
    silent = [each for each in sent if each in claim.silent]
    if silent:
        noted = {"events": array([claim.silent[each] for each in silent]), "ids": array(silent), "now": now}
        connection.execute(_SQL["note_silent"], noted)
    return len(silent)


def _gone(answer: ReceiptAnswer) -> Answer:
    """Return the answer for a delivery whose receipt says that its token is gone."""
    key, phone = answer.awaiting, answer.awaiting.installation_id
    return Answer(key.event_day, key.id, "invalid", True, None, answer.error_code, None, 0, phone, key.token_version)


def _keep_as_dead(
    connection: Connection, gone: Sequence[Answer], now: datetime | None, written: dict[str, int]
) -> None:
    """End deliveries that a brake doubts as failed, so that they can be redriven, and count them so."""
    doubted = [answer for answer in gone if answer.attempted]  # a malformed token is one, whatever others are
    row = connection.execute(_SQL["fail_doubted"], columns.keys(doubted) | {"now": now}).fetchone()
    kept = row[0] if row else 0
    written["invalid"] -= kept
    written["failed"] = written.get("failed", 0) + kept
