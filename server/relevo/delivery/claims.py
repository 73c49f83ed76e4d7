"""Claims: take a batch, journal before each request, settle with the claim's token, hand back the rest."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg import errors as pg

from relevo.config import RECEIPT_GIVE_UP_MS, Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.core.model import (
    Answer,
    Awaiting,
    Lane,
    LossReason,
    PushRequest,
    ReceiptAnswer,
    SentRequest,
    Settlement,
    Shard,
    Verdict,
)
from relevo.database.arrays import array, array_of_few, text_array, uuid_array
from relevo.database.outages import is_passing, is_unavailable
from relevo.database.pool import Connection, Database, Manner
from relevo.delivery import columns
from relevo.delivery.claim import Claim, Verdicts, Wave
from relevo.runtime.heartbeat import Heartbeat, Loss, Renewed

_SQL = queries.load("claims", "journal", "settle", "receipts")
_log = structlog.get_logger("relevo.claims")
_FOREIGN_FOR_S = 5.0
_MOST_LEFT = 10  # of the deliveries that cannot be written; the others are not looked for one by one
_SUSPECT_LAPSES = 2  # from so many on a delivery is claimed alone
_PROBES_LOOK_AT = 5_000  # of the oldest due deliveries
_SAID_ALIKE = attrgetter(
    "status", "attempted", "error_code", "error_message", "retry_after_ms", "project", "not_before", "request"
)

Pruning = Callable[[Connection, str], bool]
"""Asked inside a transaction, after the answers were counted, whether tokens of a project may be disabled."""


class Claims:
    """The statements around a claim, for one worker."""

    def __init__(self, database: Database, settings: Settings, worker_id: str, heartbeat: Heartbeat) -> None:
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._heartbeat = heartbeat
        self.composed: frozenset[str] = frozenset()
        """The event types for which this worker has a composer."""
        self._foreign: tuple[float, list[str]] = (-_FOREIGN_FOR_S, [])

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
    ) -> Claim | None:
        """Take up to `limit` due deliveries of one project and lane, or None if nothing is due.

        Oldest first, from `since` on: a look found nothing that fell due before; for a probe first those that nothing
        speaks against.
        """
        self._refuse_without_heartbeat()
        token, began = uuid4(), time.monotonic()
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
            "suspect_lapses": min(_SUSPECT_LAPSES, self._settings.outbox_poison_lapses // 2),
            "since": since,
            "probe": probe,
            "look_at": _PROBES_LOOK_AT,
            "now": now,
        }
        try:
            claim = self._take(token, cycle, parameters)
        except DatabaseUnavailableError:
            claim = self._adopt(token, cycle, parameters)
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

        What was sent together is asked for together: up to `limit`, or one request's worth if that is more.
        """
        self._refuse_without_heartbeat()
        token, since = uuid4(), time.monotonic()
        parameters = {
            "token": token,
            "worker_id": self._worker_id,
            "cycle": "receipt",
            "project": project,
            "limit": limit,
            "shard_index": shard.index if shard else None,
            "shard_count": shard.count if shard else None,
            "lease_ms": self._settings.outbox_lease_duration_ms,
            "now": now,
        }
        with self._transaction("bound_relaxed") as connection:
            groups = connection.execute(_SQL["claim_awaited"], parameters).fetchall()
        taken = [
            Awaiting(day, each, phone, ticket, version, sent_at, attempts)
            for sent_at, *of_each in groups
            for day, each, phone, ticket, version, attempts in zip(*of_each, strict=True)
        ]
        if not taken:
            return None
        claim = Claim(token, "receipt", project, self._settings.outbox_lease_duration_ms, tuple(taken), since)
        self.keep(claim)
        return claim

    def keep(self, claim: Claim) -> None:
        """Have the heartbeat extend a claim until it is dropped."""
        self._heartbeat.keep(claim.token, claim, self.renew)

    def renew(self, connection: Connection, claims: Mapping[UUID, Claim]) -> Renewed:
        """Extend claims, inside the heartbeat's transaction, and tell which are gone.

        One that somebody holds locked, such as a settle about to end it, is neither extended nor lost.
        """
        rows = connection.execute(_SQL["renew_claims"], {"tokens": list(claims), "now": None}).fetchall()
        standing = {token: state for token, state in rows if state != "held_too_long"}
        extended = [claims[token] for token, state in standing.items() if state == "renewed"]
        lost = [Loss(token, *_why_lost(connection, claims[token])) for token in set(claims) - set(standing)]
        return Renewed(lost, extended, locked=sum(state == "locked" for state in standing.values()))

    def _refuse_without_heartbeat(self) -> None:
        """Take nothing that could not be kept (RULE-020-012)."""
        if self._heartbeat.failing:
            raise DatabaseUnavailableError(
                "The heartbeat does not reach PostgreSQL, so nothing is claimed.",
                hint="Claiming goes on by itself once it does.",
            )

    def _transaction(self, manner: Manner = "bound_by_key") -> AbstractContextManager[Connection]:
        return self._database.transaction(manner)

    def _take(self, token: UUID, cycle: str, parameters: dict[str, Any]) -> Claim | None:
        with self._transaction("bound_relaxed") as connection:  # the journal's commit brings it to the disk
            asked = parameters | self._types(connection)
            statement = "claim_probe" if asked.get("probe") else "claim_due"
            rows = connection.execute(_SQL[statement], asked).fetchall()
        return _claimed(token, cycle, parameters["project"], parameters["lane"], rows)

    @property
    def limited(self) -> bool:
        """Whether some event types are not for this worker."""
        return bool(self._settings.worker_event_types or self._foreign[1])

    def _types(self, connection: Connection) -> dict[str, list[str] | None]:
        """Return which event types this worker may claim, as statements take it.

        Those it is limited to, and none for which a living worker has a composer that this one lacks: it would send
        what that one makes otherwise.
        """
        if time.monotonic() - self._foreign[0] > _FOREIGN_FOR_S:
            rows = connection.execute(_SQL["list_composed_types"], {"worker_id": self._worker_id}).fetchall()
            self.learn_composed(row[0] for row in rows)
        only = self._settings.worker_event_types
        return {"only_types": list(only) if only else None, "not_types": self._foreign[1] or None}

    def _adopt(self, token: UUID, cycle: str, parameters: dict[str, Any]) -> Claim | None:
        """After a lost COMMIT answer: bar the token if its claim does not stand, else read it back and go on.

        A COMMIT still on its way is waited for; PostgreSQL ends the transaction if it does not come.
        """
        with self._transaction() as connection:
            connection.execute(_SQL["wait_for_locks"])
            if connection.execute(_SQL["bar_claim"], parameters).fetchone() is not None:
                return None
            connection.execute(_SQL["lock_claim"], {"token": token})
            rows = connection.execute(_SQL["adopt_claim"], {"token": token, "now": parameters["now"]}).fetchall()
        _log.info("claim_adopted", claim=str(token), chunks=len(rows))
        return _claimed(token, cycle, parameters["project"], parameters["lane"], rows)

    def journal(self, claim: Claim, wave: Sequence[PushRequest], now: datetime | None = None) -> Verdicts:
        """Record a wave of requests before they are sent, and learn which of their deliveries may be sent.

        Raises OwnershipLostError if the claim is gone or too little of its lease is left for a request.
        """
        claim.check()
        asked = claim.wave_of(wave)
        journalled = unchanged = False
        if asked.deliveries:
            with self._database.connection() as connection:
                journalled = self._journal_plainly(connection, claim, asked, now)
                unchanged = journalled and self._are_unchanged(connection, claim, asked)
        if unchanged:
            return Verdicts(wave)
        numbers = columns.numbers(asked.deliveries, now)
        written = Verdicts(wave) if journalled else self._write_journal(claim, wave, numbers)
        return self._look_at_phones(claim, wave, written, numbers)

    def _journal_plainly(self, connection: Connection, claim: Claim, wave: Wave, now: datetime | None) -> bool:
        """Record a wave of which all may be sent; False, and nothing written, if it has to be looked at closely."""
        parameters = {
            "token": claim.token,
            "project": claim.project,
            "ids": wave.ids,
            "events": wave.events,
            **columns.requests(wave.requests),
            "timeout_ms": self._settings.push_request_timeout_ms,
            "now": now,
        }
        with self._database.begin(connection, "bound_by_key"):
            row = connection.execute(_SQL["journal_plain_wave"], parameters).fetchone()
        return row == (True,)

    def _are_unchanged(self, connection: Connection, claim: Claim, wave: Wave) -> bool:
        """Tell, after the journal's commit and without a lock, whether no phone changed since it was claimed.

        Those that are not known to be the very rows that were claimed are looked up by their keys.
        """
        seen = wave.places(claim.seen)
        if seen is not None:
            asked = {"as_of": seen[0], "places": seen[1], "events": wave.events}
            if connection.execute(_SQL["phones_unmoved"], asked).fetchone() == (True,):
                return True
        made = {delivery.created_at for delivery in wave.deliveries}
        parameters = {
            "installations": wave.installations,
            "versions": wave.versions,
            "events": wave.events,
            "made": min(each for each in made if each is not None),
        }
        return connection.execute(_SQL["phones_unchanged"], parameters).fetchone() == (True,)

    def _write_journal(self, claim: Claim, wave: Sequence[PushRequest], numbers: dict[str, Any]) -> Verdicts:
        with self._transaction() as connection:
            rows = connection.execute(
                _SQL["journal_wave"],
                numbers
                | {
                    "token": claim.token,
                    "project": claim.project,
                    "request_ids": uuid_array([request.id for request in wave]),
                    "requests": array_of_few(
                        [n for n, request in enumerate(wave, start=1) for _ in request.deliveries]
                    ),
                    "timeout_ms": self._settings.push_request_timeout_ms,
                },
            ).fetchall()
            verdicts = self._verdicts(connection, claim, wave, rows) if rows else Verdicts(())
            reason = None if verdicts else explain_loss(connection, claim)
        if reason in ("not_found", "already_completed") or (reason is not None and not rows):
            claim.lose(
                reason,
                "Too little of its lease is left." if reason == "error" else "The journal found it ended.",
            )
            claim.check()
        return verdicts

    def _verdicts(
        self, connection: Connection, claim: Claim, wave: Sequence[PushRequest], rows: Sequence[tuple[Any, ...]]
    ) -> Verdicts:
        """Take what the journal said in short: all may be sent but these, or, if some are not ours, just those."""
        *held_back, (_, going, _, _) = rows
        held = {row[1]: Verdict(*row) for row in held_back}
        if going + len(held_back) >= sum(len(request.deliveries) for request in wave):
            return Verdicts(wave, held)
        requests = {"token": claim.token, "request_ids": uuid_array(request.id for request in wave)}
        ours = {row[0] for row in connection.execute(_SQL["read_journalled"], requests)}
        return Verdicts(wave, held, ours | held.keys())

    def _look_at_phones(
        self, claim: Claim, wave: Sequence[PushRequest], verdicts: Verdicts, numbers: dict[str, Any]
    ) -> Verdicts:
        """Hold back what changed since it was claimed, which only a look after the journal's commit can see."""
        asked = claim.wave_of(wave)
        phones = {"installations": asked.installations, "versions": asked.versions}
        with self._transaction() as connection:
            rows = connection.execute(_SQL["look_at_phones"], numbers | phones).fetchall()
        if not rows:
            return verdicts
        going = {verdict.id for verdict in verdicts if verdict.verdict == "send"}
        changed = {row[1]: Verdict(*row) for row in rows if row[1] in going}
        if not changed:
            return verdicts
        going -= changed.keys()
        empty = [request.id for request in wave if going.isdisjoint(d.id for d in request.deliveries)]
        if empty:
            self.mark_unsent(claim, empty, numbers["now"])
        if len(empty) < len(wave):
            self._amend(claim, wave, changed)
        return Verdicts(wave, {**verdicts.held, **changed}, verdicts.ours)

    def _amend(self, claim: Claim, wave: Sequence[PushRequest], held_back: Iterable[int]) -> None:
        """Take deliveries out of journalled requests, so that nobody takes them for ambiguous."""
        amended = {"request_ids": uuid_array([request.id for request in wave]), "held_back": array(held_back)}
        with self._transaction() as connection:
            connection.execute(_SQL["lock_claim"], {"token": claim.token})
            connection.execute(_SQL["amend_journal"], amended | {"token": claim.token})

    def mark_unsent(self, claim: Claim, requests: Sequence[UUID], now: datetime | None = None) -> None:
        """Note that journalled requests were not even begun; what was given up because of them is due again."""
        with self._transaction() as connection:
            connection.execute(_SQL["lock_claim"], {"token": claim.token})  # a reaper at work on it is waited for
            marked = {"token": claim.token, "request_ids": uuid_array(requests), "now": now}
            opened = connection.execute(_SQL["mark_unsent"], marked).fetchall()
            _queue(connection, [row[0] for row in opened], [row[1] for row in opened], [row[2] for row in opened])

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
        from 1 on, and left in the claim), if the claim is lost, or if one of the deliveries is gone.
        """
        if claim.loss is not None:
            return None
        parameters = columns.all_sent(claim, sent) | {
            "unsent": array(unsent),
            "receipt_ms": self._settings.receipt_first_poll_ms,
            "finish": finish,
            "now": now,
        }
        since = time.monotonic()  # before the transaction, whose beginning the lease is counted from
        try:
            with self._transaction() as connection:
                row = connection.execute(_SQL["settle_sent"], parameters).fetchone()
        except pg.NoDataFound:
            return None
        if row is None or row[0] is None:
            return None
        self._keep_or_drop(claim, since, finish=finish)
        return Settlement({"sent": row[0]})

    def _keep_or_drop(self, claim: Claim, since: float, *, finish: bool) -> None:
        """Learn what a settle did to its claim: it ended it, or extended its lease."""
        if finish:
            self._heartbeat.drop(claim.token)
        elif time.monotonic() < claim.taken_at + 3 * claim.lease_ms / 1000:  # later it is not extended
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
        parameters = self.outcomes(claim, answers, outcomes, now, finish=finish)
        late = (0, 0)
        since = time.monotonic()  # before the transaction, whose beginning the lease is counted from
        with self._transaction() as connection:
            written: dict[str, int] = {}
            if claim.loss is None:  # a claim known to be lost is a reaper's to end, even while its row still stands
                written = dict(connection.execute(_SQL["settle_deliveries"], parameters).fetchall())
            if sum(written.values()) < len(answers):
                late = connection.execute(_SQL["keep_late_tickets"], parameters).fetchone() or (0, 0)
            disabled = self._disable(connection, claim, answers, may_prune, now, written=written)
        if finish or written:
            self._keep_or_drop(claim, since, finish=finish)
        return Settlement(written, closed_late=late[0], kept_as_evidence=late[1], tokens_disabled=disabled)

    def keep_tickets(self, claim: Claim, answers: Sequence[Answer], now: datetime | None = None) -> None:
        """Keep the tickets of answers that cannot be written for now, so that nothing of it is ever sent again."""
        sent = [answer for answer in answers if answer.ticket_id is not None]
        if sent:
            kept = {"token": claim.token, "tickets": text_array([a.ticket_id for a in sent]), "now": now}
            with self._transaction() as connection:
                connection.execute(_SQL["keep_tickets"], columns.keys(sent) | kept)

    def outcomes(
        self,
        claim: Claim,
        answers: Sequence[Answer],
        requests: Mapping[UUID, str],
        now: datetime | None,
        *,
        finish: bool,
    ) -> dict[str, Any]:
        """Return the parameters of a settle."""
        kinds, sorts = columns.sorted_out(answers, lambda a: _SAID_ALIKE(a) + claim.former(a.id), columns.storable_sort)
        return self._retry_policy() | {
            "token": claim.token,
            **columns.keys(answers),
            "kinds": array_of_few(kinds),
            "tickets": text_array([a.ticket_id for a in answers]),
            "versions": columns.versions(answers),
            "statuses": [sort[0] for sort in sorts],
            "spent": [int(sort[1]) for sort in sorts],
            "paced": [sort[1] for sort in sorts],
            "codes": [sort[2] for sort in sorts],
            "messages": [sort[3] for sort in sorts],
            "floors_ms": [sort[4] for sort in sorts],
            "projects": [sort[5] for sort in sorts],
            "not_befores": [sort[6] for sort in sorts],
            "types": [sort[8] for sort in sorts],
            "formers": [sort[9] for sort in sorts],
            "in_requests": [sort[7] for sort in sorts],
            "request_ids": uuid_array(requests),
            "request_outcomes": list(requests.values()),
            "receipt_ms": self._settings.receipt_first_poll_ms,
            "finish": finish,
            "now": now,
        }

    def settle_receipts(
        self,
        claim: Claim,
        answers: Sequence[ReceiptAnswer],
        now: datetime | None = None,
        *,
        may_prune: Pruning | None = None,
    ) -> Settlement:
        """Write what receipts say where the claim still stands, and end the claim.

        Raises OwnershipLostError if the claim is known to be lost: a receipt can be asked for again.
        """
        claim.check()
        if all(answer.status == "ok" for answer in answers):
            confirmed = self._confirm(claim, len(answers), now)
            if confirmed is not None:
                self._heartbeat.drop(claim.token)
                return Settlement({"ok": confirmed} if confirmed else {})
        kinds, sorts = columns.sorted_out(answers, columns.receipt_sort_of)
        parameters = self._retry_policy() | {
            "token": claim.token,
            **columns.keys([a.awaiting for a in answers]),
            "kinds": array_of_few(kinds),
            "statuses": [sort[0] for sort in sorts],
            "spent": [sort[1] for sort in sorts],
            "paced": [sort[2] for sort in sorts],
            "codes": [sort[3] for sort in sorts],
            "messages": [sort[4] for sort in sorts],
            "floors_ms": [sort[5] for sort in sorts],
            "receipt_ms": self._settings.receipt_first_poll_ms,
            "give_up_ms": RECEIPT_GIVE_UP_MS,
            "now": now,
        }
        gone = [
            Answer(
                a.awaiting.event_day,
                a.awaiting.id,
                "invalid",
                error_code=a.error_code,
                installation_id=a.awaiting.installation_id,
                token_version=a.awaiting.token_version,
            )
            for a in answers
            if a.status == "invalid"
        ]
        with self._transaction() as connection:
            written = dict(connection.execute(_SQL["settle_receipts"], parameters).fetchall())
            disabled = self._disable(connection, claim, gone, may_prune, now, written=written)
        self._heartbeat.drop(claim.token)
        return Settlement(written, tokens_disabled=disabled)

    def _confirm(self, claim: Claim, asked: int, now: datetime | None) -> int | None:
        """Write that all pushes of a claim arrived; None if it does not hold just what was asked for."""
        with self._transaction() as connection:
            row = connection.execute(
                _SQL["settle_confirmed"], {"token": claim.token, "asked": asked, "now": now}
            ).fetchone()
        return row[0] if row else None

    def _retry_policy(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "max_attempts": settings.outbox_max_attempts,
            "retry_base_ms": settings.outbox_retry_base_ms,
            "retry_max_ms": settings.outbox_retry_max_ms,
            "retry_jitter_ms": settings.outbox_retry_jitter_ms,
        }

    def _disable(
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

        Behind a savepoint: what goes wrong there is only told, for nothing of it may undo the answers.
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

    def release(self, claim: Claim, now: datetime | None = None, *, lapsed: bool = False) -> Counter[str]:
        """Hand back what is left of a claim: what was never journalled spends nothing, a lapse only if said so.

        What cannot be written stays in the claim, for a reaper, and is raised after the others were handed back.
        """
        self._heartbeat.drop(claim.token)
        with self._transaction() as connection:
            ended, left = end_claim(connection, self._settings, claim.token, lapsed=lapsed, now=now)
        for error in left.values():
            raise error
        return ended


def explain_loss(connection: Connection, claim: Claim) -> LossReason:
    """Tell why a claim is no longer ours, in a transaction that goes by keys.

    `error` means that it stands, but may not be used any more.
    """
    parameters = {"token": claim.token, "days": claim.days, "ids": claim.ids}
    row = connection.execute(_SQL["explain_loss"], parameters).fetchone()
    reason: LossReason = row[0] if row else "not_found"
    return reason


def _why_lost(connection: Connection, claim: Claim) -> tuple[LossReason, str]:
    reason = explain_loss(connection, claim)
    held_too_long = "It was held for three times its lease and is not renewed."
    return reason, held_too_long if reason == "error" else "The heartbeat found it ended."


def end_claim(
    connection: Connection, settings: Settings, token: UUID, *, lapsed: bool, now: datetime | None = None
) -> tuple[Counter[str], dict[int, psycopg.Error]]:
    """End a claim inside the caller's transaction, one that goes by keys; if it must be, in parts.

    Returns how many deliveries became what, `ambiguous` beside them, and the errors of those that cannot be written:
    they stay in the claim. What passes, such as a lock, is raised.
    """
    parameters = {
        "token": token,
        "only_ids": None,
        "lapsed": lapsed,
        "poison_lapses": settings.outbox_poison_lapses,
        "max_attempts": settings.outbox_max_attempts,
        "timeout_ms": settings.push_request_timeout_ms,
        "receipt_ms": settings.receipt_first_poll_ms,
        "now": now,
    }
    try:
        return _end_some(connection, parameters), {}
    except psycopg.Error as error:
        if is_passing(error):
            raise
    return _end_in_halves(connection, parameters)


def _end_some(connection: Connection, parameters: Mapping[str, Any]) -> Counter[str]:
    """End the part of a claim that is given, behind a savepoint."""
    with connection.transaction():
        return Counter(dict(connection.execute(_SQL["end_claim"], parameters).fetchall()))


def _end_in_halves(
    connection: Connection, parameters: Mapping[str, Any]
) -> tuple[Counter[str], dict[int, psycopg.Error]]:
    """End a claim in halves, down to the single deliveries that cannot be written."""
    parts = deque([[row[0] for row in connection.execute(_SQL["list_claimed"], parameters)]])
    ended: Counter[str] = Counter()
    left: dict[int, psycopg.Error] = {}
    while parts:
        part = parts.popleft()
        try:
            ended += _end_some(connection, {**parameters, "only_ids": array(part)})
        except psycopg.Error as error:
            if is_passing(error) or not part:
                raise
            if len(part) > 1 and len(left) < _MOST_LEFT:
                parts.extendleft((part[len(part) // 2 :], part[: len(part) // 2]))
            else:
                left |= dict.fromkeys(part, error)
    return ended, left


def _claimed(token: UUID, cycle: str, project: str, lane: Lane, rows: Sequence[tuple[Any, ...]]) -> Claim | None:
    """Return the claim that a statement tells of, its lease behind each chunk; None if it took nothing."""
    if not rows:
        return None
    lease_ms = rows[0][columns.LEASE]
    deliveries = columns.deliveries_of(project, lane, rows)
    contents, seen = columns.contents_of(rows), columns.seen_of(rows)
    return Claim(token, cycle, project, lease_ms, deliveries, contents=contents, seen=seen)


def _keep_as_dead(
    connection: Connection, gone: Sequence[Answer], now: datetime | None, written: dict[str, int]
) -> None:
    """Let what a brake doubts end as failed, so that it can be redriven, and count it so."""
    doubted = [answer for answer in gone if answer.attempted]  # a malformed token is one, whatever others are
    row = connection.execute(_SQL["fail_doubted"], columns.keys(doubted) | {"now": now}).fetchone()
    kept = row[0] if row else 0
    written["invalid"] -= kept
    written["failed"] = written.get("failed", 0) + kept


def _queue(connection: Connection, days: Sequence[date], ids: Sequence[int], due: Sequence[datetime]) -> None:
    if ids:
        queued = {"days": array(days), "ids": array(ids), "due": list(due)}
        connection.execute(_SQL["queue_deliveries"], queued)
