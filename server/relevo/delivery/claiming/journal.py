"""The journal: what is written down before a request is sent, and which of its deliveries may still be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from relevo.config import Settings
from relevo.core import queries
from relevo.core.model import LossReason, PushRequest, Verdict
from relevo.database.arrays import array, array_of_few, uuid_array
from relevo.database.pool import Connection, Database
from relevo.delivery.claiming import columns
from relevo.delivery.claiming.claim import Claim, Verdicts, Wave

_SQL = queries.load("claims", "journal", "settle")


class Journal:
    """The statements between a claim and its requests."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    def journal(self, claim: Claim, wave: Sequence[PushRequest], now: datetime | None = None) -> Verdicts:
        """Record a wave of requests before they are sent, and learn which of their deliveries may be sent.

        Raises OwnershipLostError if the claim is gone or too little of its lease is left for a request.
        """
        claim.check()
        columns_of_wave = claim.wave_of(wave)
        journalled = unchanged = False
        if columns_of_wave.deliveries:
            with self._database.connection() as connection:
                journalled = self._journal_plainly(connection, claim, columns_of_wave, now)
                unchanged = journalled and self._are_unchanged(connection, columns_of_wave, now)
        if unchanged:
            return Verdicts(wave)
        numbers = columns.numbers(columns_of_wave.deliveries, now)
        written = Verdicts(wave) if journalled else self._journal_carefully(claim, wave, numbers)
        return self._hold_back_changed(claim, wave, written, numbers)

    def _journal_plainly(self, connection: Connection, claim: Claim, wave: Wave, now: datetime | None) -> bool:
        """Record a wave of which all may be sent; return False, and write nothing, if some may not.

        `_journal_carefully` does it where this cannot; what this earns stands in journal_plain_wave.sql.
        """
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

    def _are_unchanged(self, connection: Connection, wave: Wave, now: datetime | None) -> bool:
        """Return, after the journal's commit and without a lock, whether no phone changed since it was claimed."""
        made = {delivery.created_at for delivery in wave.deliveries}
        parameters = {
            "installations": wave.installations,
            "versions": wave.versions,
            "events": wave.events,
            "made": min(each for each in made if each is not None),
            "now": now,
        }
        return connection.execute(_SQL["phones_unchanged"], parameters).fetchone() == (True,)

    def _journal_carefully(self, claim: Claim, wave: Sequence[PushRequest], numbers: dict[str, Any]) -> Verdicts:
        """Record a wave delivery by delivery, and return which of them may be sent."""
        asked = numbers | {
            "token": claim.token,
            "project": claim.project,
            "request_ids": uuid_array([request.id for request in wave]),
            "requests": array_of_few([n for n, request in enumerate(wave, start=1) for _ in request.deliveries]),
            "timeout_ms": self._settings.push_request_timeout_ms,
        }
        with self._database.transaction("bound_by_key") as connection:
            rows = connection.execute(_SQL["journal_wave"], asked).fetchall()
            verdicts = self._verdicts(connection, claim, wave, rows) if rows else Verdicts(())
            reason = None if verdicts else explain_loss(connection, claim)
        if reason in ("not_found", "already_completed") or (reason is not None and not rows):
            claim.lose(
                reason, "Too little of its lease is left." if reason == "error" else "The journal found it ended."
            )
            claim.check()
        return verdicts

    def _verdicts(
        self, connection: Connection, claim: Claim, wave: Sequence[PushRequest], rows: Sequence[tuple[Any, ...]]
    ) -> Verdicts:
        """Return the verdicts of a journalled wave: the rows hold what may not be sent, the last one how many may."""
        *held_back, last = (Verdict(*row) for row in rows)
        held = {verdict.id: verdict for verdict in held_back}
        going = last.id  # of the last row that is a number, not an id
        if going + len(held_back) >= sum(len(request.deliveries) for request in wave):
            return Verdicts(wave, held)
        requests = {"token": claim.token, "request_ids": uuid_array(request.id for request in wave)}
        ours = {row[0] for row in connection.execute(_SQL["read_journalled"], requests)}
        return Verdicts(wave, held, ours | held.keys())

    def _hold_back_changed(
        self, claim: Claim, wave: Sequence[PushRequest], verdicts: Verdicts, numbers: dict[str, Any]
    ) -> Verdicts:
        """Hold back what changed since it was claimed, which only a read after the journal's commit can see."""
        of_wave = claim.wave_of(wave)
        phones = {"installations": of_wave.installations, "versions": of_wave.versions}
        rows = self._database.execute(_SQL["look_at_phones"], numbers | phones, "bound_by_key").fetchall()
        if not rows:
            return verdicts
        going = {verdict.id for verdict in verdicts if verdict.verdict == "send"}
        changed = {each.id: each for row in rows if (each := Verdict(*row)).id in going}
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
        with self._database.transaction("bound_by_key") as connection:
            connection.execute(_SQL["lock_claim"], {"token": claim.token})
            connection.execute(_SQL["amend_journal"], amended | {"token": claim.token})

    def mark_unsent(
        self, claim: Claim, requests: Sequence[UUID], now: datetime | None = None, outcome: str = "held_back"
    ) -> None:
        """Note that journalled requests were certainly not taken; what was given up because of them is due again."""
        with self._database.transaction("bound_by_key") as connection:
            connection.execute(_SQL["lock_claim_and_journal"], {"token": claim.token})  # a reaper at work is waited for
            marked = {"token": claim.token, "request_ids": uuid_array(requests), "outcome": outcome, "now": now}
            queue(connection, connection.execute(_SQL["mark_unsent"], marked).fetchall())


def explain_loss(connection: Connection, claim: Claim) -> LossReason:
    """Return why a claim is no longer ours; `error` means that it stands, but may not be used any more."""
    asked = columns.keys(claim.deliveries) | {"token": claim.token}
    row = connection.execute(_SQL["explain_loss"], asked).fetchone()
    reason: LossReason = row[0] if row else "not_found"
    return reason


def queue(connection: Connection, opened: Sequence[tuple[date, int, datetime]]) -> None:
    """Put deliveries into the queue, each given by its key and due at its time."""
    if opened:
        days, ids, due = zip(*opened, strict=True)
        connection.execute(_SQL["queue_deliveries"], {"days": array(days), "ids": array(ids), "due": list(due)})
