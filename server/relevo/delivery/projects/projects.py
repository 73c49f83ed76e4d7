"""Projects: what the fleet may send for each, decided one after the other on the project's row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from psycopg import errors as pg

from relevo.config import Settings
from relevo.core import queries
from relevo.core.model import Lane
from relevo.database.arrays import storable, text_array
from relevo.database.pool import Connection, Database
from relevo.delivery.claiming.due_lanes import DueLanes
from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.allowance import Allowance, TakeAll
from relevo.delivery.projects.connection_leases import UNUSED, ConnectionLeases, PoolUse, Share, User
from relevo.delivery.projects.provider_rules import ProviderRules
from relevo.delivery.projects.rate_and_breaker import AnswerSource, Evidence, Grant, Heard, Judgement, Project, Refusal
from relevo.delivery.projects.unreachable import UnreachableServices
from relevo.runtime.heartbeat import Heartbeat

_SQL = queries.load("projects")
_log = structlog.get_logger("relevo.projects")
_CHECK_EVERY_S = 5.0
_RECEIPT_PAUSE_MS, _LONGEST_RECEIPT_PAUSE_MS = 5_000, 300_000
_PAGE = 1_000
_LOCK_WAIT_MS = 2  # for which a wait for a project's row keeps a connection of the pool; then it is tried again
_SETTLE_WAIT_MS = 250  # in a settle's transaction there is no second try
_LEAST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 1.0
_FEW = 10  # fewer than that are counted before tokens are reserved, so that none are reserved in vain


class DueReceipts(NamedTuple):
    """A project that has receipts to fetch, and in how many seconds."""

    project: str
    due_in_s: float


class StoppedProject(NamedTuple):
    """A project of which something is due that may not be sent: until when, and why."""

    project: str
    until: datetime
    reason: str


def _pause_s(waited_s: float) -> float:
    """Return how long to pause before a lock is tried again that was waited for so long."""
    return min(max(waited_s, _LEAST_PAUSE_S), _LONGEST_PAUSE_S)


def _is_of_probe(state: Project, sent_at: datetime | None) -> bool:
    """Return whether a push was sent after the breaker opened; one from before tells nothing of a probe."""
    return sent_at is None or state.breaker_since is None or sent_at > state.breaker_since


class _Locked(NamedTuple):
    """A project whose row this transaction has locked, and when that was by the database's clock."""

    connection: Connection
    state: Project
    at: datetime

    def save(self, decided: Project) -> None:
        """Write what was decided about it."""
        self.connection.execute(_SQL["save_project"], vars(decided))


class Projects:
    """The statements around projects, for one worker."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker_id: str,
        heartbeat: Heartbeat,
        *,
        serves: Callable[[str], bool] = lambda _project: True,
        rules: ProviderRules | None = None,
    ) -> None:
        self._database = database
        self._serves = serves
        self.lanes = DueLanes(database, serves)
        self._settings = settings
        self.rules = rules or ProviderRules(settings)
        self.connections = ConnectionLeases(
            database, settings, worker_id, heartbeat, lambda project: self.rules.of(project).connections
        )
        self.unreachable = UnreachableServices(database, worker_id)
        self._checked: dict[str, float] = {}
        self._served = "", 0
        """The project that it sent for last, and how many connections it had for that."""
        self._locked_since: dict[str, float] = {}
        """Since when somebody holds the rows of projects, by the monotonic clock."""
        self._guard = threading.Lock()

    def due_receipts(self, now: datetime | None = None) -> list[DueReceipts]:
        """Return the projects that have receipts to fetch, the soonest first."""
        found: list[DueReceipts] = []
        page = [DueReceipts("", 0.0)] * _PAGE
        with self._database.transaction("bound_by_key") as connection:
            while len(page) == _PAGE:
                asked = {"now": now, "after": page[-1].project, "limit": _PAGE}
                page = [DueReceipts(*row) for row in connection.execute(_SQL["list_due_receipts"], asked).fetchall()]
                found += page
        return sorted((each for each in found if self._serves(each.project)), key=attrgetter("due_in_s"))

    def stopped(self, now: datetime | None = None) -> list[StoppedProject]:
        """Return some of the projects of which something is due, though their breaker or a rest keeps it back."""
        rows = self._database.execute(_SQL["list_stopped_projects"], {"now": now, "limit": _PAGE}).fetchall()
        return [each for row in rows if self._serves((each := StoppedProject(*row)).project)]

    def reserve(
        self,
        project: str,
        lane: Lane,
        most: int,
        now: datetime | None = None,
        *,
        pool: PoolUse = UNUSED,
        since: datetime | None = None,
        take_all: TakeAll | None = None,
    ) -> Allowance:
        """Take tokens for up to `most` pushes that are due, `since` then, and our share of the connections.

        If all that is due was granted, because that is little, `take_all` claims it in the same transaction. Nobody
        waits here for a project's row that somebody holds. After the longest wait for a lock that is an error.
        """
        self.connections.use(project, "dispatch")
        began = time.monotonic()
        try:
            with self._database.transaction("bound_relaxed") as connection:
                locked = self._lock(connection, project, now)
                take_share = partial(self.connections.take, connection, project, now, pool=pool, began=began)
                due = {"project": project, "lane": lane, "since": since, "now": now}
                allowance, share = self._grant(locked, lane, most, due, take_share)
                if allowance.is_all and take_all is not None:
                    take_all(connection, allowance)
        except pg.LockNotAvailable:
            waited_s = time.monotonic() - self._locked_since.setdefault(project, began)
            if waited_s > self._database.lock_ms / 1000:
                raise
            return Allowance(Grant(0, "locked", _pause_s(waited_s)))
        self._locked_since.pop(project, None)
        if allowance.grant.count:
            self.connections.keep(project, share)
            self._served = project, share.connections
        return allowance

    def _grant(
        self,
        locked: _Locked,
        lane: Lane,
        most: int,
        due: Mapping[str, object],
        take_share: Callable[[], Share],
    ) -> tuple[Allowance, Share]:
        """Decide what may be sent for a locked project, and write it."""
        state, rules = locked.state, self.rules.of(locked.state.project)
        few = min(most, _FEW)
        count = _count_due(locked, due, few) if state.breaker == "closed" else few
        is_all = 0 < count < few
        decided, grant = rate_and_breaker.reserve(state, rules, locked.at, lane, count if is_all else most)
        if grant.why == "rate" and not is_all:  # a bucket that is nearly empty is worth waiting for if much is due
            count = _count_due(locked, due, min(most, rules.chunk))
            if count:
                decided, grant = rate_and_breaker.reserve(state, rules, locked.at, lane, count)
        if not grant.count:
            return Allowance(grant), Share(0)
        share = take_share()
        if not share.connections:
            return Allowance(Grant(0, "connections", 0.5)), share
        if rules.rate_per_s or grant.probe:
            locked.save(decided)
        troubled = bool(state.failures or state.trips or state.refused or grant.probe)
        allowance = Allowance(
            grant,
            share.connections,
            troubled,
            watched="request" in state.watched,
            braked=state.pruning_stopped_at is not None,
            is_all=is_all and grant.count == count,
        )
        return allowance, share

    def is_locked(self, project: str) -> bool:
        """Return whether somebody held a project's row when it was last tried."""
        return project in self._locked_since

    @property
    def served(self) -> str | None:
        """The project that was served last; None if there is none, or if it has too few connections for all workers."""
        project, connections = self._served
        return project if connections > 1 else None

    def get_ready(self, project: str, *, in_flight: int = 0) -> list[str] | None:
        """Take our share of a project's connections, ahead of what may come for it.

        Returns for which event types others have a composer; None, and nothing is taken, if somebody else is at it.
        """
        self.connections.use(project, "dispatch")
        if in_flight:
            return None
        began = time.monotonic()
        row = self._database.execute(_SQL["lease_ahead"], self.connections.parameters(project)).fetchone()
        if row is None:
            return None
        share, composed = row
        self._served = project, share
        self.connections.keep(project, Share(share, began))
        return list(composed)

    def lease_connections(self, project: str, pool: PoolUse, now: datetime | None = None) -> Allowance:
        """Take this worker's share of a project's connections, to ask for receipts; 0 if others hold all of them."""
        self.connections.use(project, "receipt")
        began = time.monotonic()
        with self._locked(project, now) as locked:
            share = self.connections.take(locked.connection, project, now, pool=pool, began=began)
        self.connections.keep(project, share)
        watched = "receipt" in locked.state.watched
        return Allowance(Grant(0), share.connections, troubled=locked.state.breaker_by == "receipt", watched=watched)

    def pause_receipts(self, project: str, retry_after_ms: int, now: datetime | None = None) -> int:
        """Pause a project's receipts after a request that failed; return for how many milliseconds."""
        pause = {
            "project": project,
            "base_ms": _RECEIPT_PAUSE_MS,
            "max_ms": _LONGEST_RECEIPT_PAUSE_MS,
            "floor_ms": retry_after_ms,
            "now": now,
        }
        row = self._database.execute(_SQL["pause_receipts"], pause, "bound_relaxed").fetchone()
        return int(row[0]) if row else max(retry_after_ms, _RECEIPT_PAUSE_MS)

    def resume_receipts(self, project: str) -> None:
        """Note that the push service returns a project's receipts again."""
        self._database.execute(_SQL["resume_receipts"], {"project": project}, "bound_relaxed")

    def give_back(self, project: str, lane: Lane, count: int, now: datetime | None = None) -> None:
        """Put back tokens that were reserved and not used."""
        rules = self.rules.of(project)
        if not rules.rate_per_s or count <= 0:
            return
        with self._locked(project, now) as locked:
            locked.save(rate_and_breaker.give_back(locked.state, rules, lane, count))

    def drop_connections(self, project: str, user: User, *, in_flight: int = 0) -> None:
        """Give back this worker's connections of a project, see `ConnectionLeases.drop`."""
        self.connections.drop({project: in_flight}, user)

    def throttled(self, project: str, retry_after_ms: int, now: datetime | None = None) -> None:
        """Halve a project's rate after a 429."""
        with self._locked(project, now) as locked:
            if locked.state.rest_until is not None and locked.state.rest_until > locked.at:
                return  # answers of one wave are one complaint
            decided = rate_and_breaker.throttle(locked.state, locked.at, retry_after_ms)
            locked.save(decided)
            self._report(
                locked.connection, project, "rate_halved", f"to {decided.rate_share:.0%} of the full rate", now
            )

    def failed(
        self, project: str, reason: str, *, credential: bool, by: AnswerSource = "request", now: datetime | None = None
    ) -> bool:
        """Note a failure that is not a message's fault; return whether the breaker is open now."""
        with self._locked(project, now) as locked:
            decided = self._fail(locked, reason, now, credential=credential, by=by)
        return decided.breaker == "open"

    def _fail(
        self, locked: _Locked, reason: str, now: datetime | None, *, credential: bool, by: AnswerSource = "request"
    ) -> Project:
        """Write a failure, and an incident if it opened the breaker."""
        rules, said = self.rules.of(locked.state.project), storable(reason, 300) or ""
        decided = rate_and_breaker.fail(locked.state, rules, locked.at, said, credential=credential, by=by)
        if decided is not locked.state:
            locked.save(decided)
        if decided.breaker == "open" and locked.state.breaker != "open":
            self._report(locked.connection, decided.project, "breaker_opened", str(decided.breaker_reason), now)
        return decided

    def heard(
        self,
        project: str,
        answers: Mapping[UUID, bool],
        fault: str | None,
        *,
        by: AnswerSource = "request",
        sent_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Note which installations met a credential fault; return whether it is the project's and its breaker open.

        `fault` is what was said of it, if anybody met it, and `sent_at` when the last push was sent that did: what
        was sent before the breaker opened tells nothing of a probe.
        """
        with self._locked(project, now) as locked:
            key = {"project": project, "answered_by": by}
            heard, decided = self._hear(locked.connection, key, locked.at, answers), locked.state
            if fault is None:
                return False
            if decided.breaker == "probing" and _is_of_probe(decided, sent_at):
                decided = self._judge_probe(locked, fault, [k for k, met in answers.items() if met], by, now)
            elif decided.breaker != "probing" and heard is not None and self._blames(locked, heard, by, now):
                decided = self._fail(locked, fault, now, credential=True, by=by)
        return decided.breaker != "closed"

    def _blames(self, locked: _Locked, heard: Heard, by: AnswerSource, now: datetime | None) -> bool:
        project = locked.state.project

        def look(faulty: Sequence[UUID], fine: Sequence[UUID]) -> Evidence:
            return self._evidence(locked, by, faulty, fine, now)

        return rate_and_breaker.is_projects_fault(heard, self.rules.of(project), look)

    def _judge_probe(
        self, locked: _Locked, fault: str, faulty: Sequence[UUID], by: AnswerSource, now: datetime | None
    ) -> Project:
        """Note that a probe met a credential fault: it tells nothing if others were taken, and its phone never was."""
        project = locked.state.project
        known = self._evidence(locked, by, faulty, (), now)
        if known.worked or known.nobody_else or not known.ever_taken:
            return self._fail(locked, fault, now, credential=True, by=by)
        decided = rate_and_breaker.postpone_probe(locked.state, self.rules.of(project), locked.at)
        locked.save(decided)
        return decided

    def _evidence(
        self, locked: _Locked, by: AnswerSource, faulty: Sequence[UUID], fine: Sequence[UUID], now: datetime | None
    ) -> Evidence:
        connection, project = locked.connection, locked.state.project
        asked: dict[str, Any] = {"project": project, "answered_by": by, "now": now, "installations": [*faulty, *fine]}
        rows = connection.execute(_SQL["list_witnesses"], asked).fetchall()
        owners = {key: owner for key, owner, _ in rows if owner is not None}
        asked["window_ms"] = self.rules.of(project).credential_quiet_ms
        lately, ever = connection.execute(_SQL["was_taken_lately"], asked).fetchone() or (False, False)
        return Evidence(
            owners=owners,
            worked=frozenset(key for key, _, worked in rows if worked),
            has_owners=bool(owners) or connection.execute(_SQL["has_owners"], asked).fetchone() == (True,),
            taken_lately=bool(lately),
            ever_taken=bool(ever),
            nobody_else=not self._has_another(connection, project, faulty),
        )

    def _hear(
        self, connection: Connection, key: dict[str, str], at: datetime, answers: Mapping[UUID, bool]
    ) -> Heard | None:
        row = connection.execute(_SQL["read_credential_answers"], key).fetchone()
        before = Heard(row[0], dict(zip(row[1], row[2], strict=True))) if row else None
        heard = rate_and_breaker.hear(before, self.rules.of(key["project"]), at, answers)
        if heard is not None:
            lists = {"installations": list(heard.faulty), "faulty": list(heard.faulty.values())}
            connection.execute(_SQL["save_credential_answers"], key | lists | {"since": heard.since})
        elif before is not None:
            connection.execute(_SQL["forget_credential_answers"], key)
        return heard

    def _has_another(self, connection: Connection, project: str, installations: Sequence[UUID]) -> bool:
        asked = {"project": project, "installations": list(installations)}
        return connection.execute(_SQL["find_another_installation"], asked).fetchone() == (True,)

    def refused(self, project: str, event_id: int, reason: str, now: datetime | None = None) -> Judgement:
        """Note that a message was refused alone, with a 400; return whether it is to blame, or the project fails."""
        with self._locked(project, now) as locked:
            asked = {"project": project, "event_id": event_id, "now": now}
            row = locked.connection.execute(_SQL["note_refusal"], asked).fetchone()
            known = Refusal(*row) if row else None
            decided = locked.state
            if known is None or known.taken_since or locked.state.breaker == "probing":
                decided = self._fail(locked, reason, now, credential=False)
        return rate_and_breaker.judge(known, decided, locked.at)

    def succeeded(
        self,
        project: str,
        by: AnswerSource = "request",
        sent_at: datetime | None = None,
        now: datetime | None = None,
        *,
        taken: Collection[int] = (),
    ) -> None:
        """Note that something went well: a probe closes the breaker. `taken` are the events that a message was of."""
        with self._locked(project, now) as locked:
            if taken:
                locked.connection.execute(_SQL["note_taken"], {"project": project, "events": list(taken)})
            decided = rate_and_breaker.succeed(locked.state, by, sent_at)
            if decided is not locked.state:
                locked.save(decided)
            if locked.state.breaker != "closed" and decided.breaker == "closed":
                locked.connection.execute(_SQL["excuse_credential_answers"], {"project": project})
                self._report(locked.connection, project, "breaker_closed", f"after: {locked.state.breaker_reason}", now)
        if decided.breaker != locked.state.breaker:
            self.lanes.recheck(project)

    def cancel_probe(self, project: str, now: datetime | None = None) -> None:
        """Take back a probe that found nothing to send."""
        with self._locked(project, now) as locked:
            locked.save(rate_and_breaker.cancel_probe(locked.state, locked.at))

    def pruning_stopped(self, connection: Connection, project: str, now: datetime | None = None) -> bool:
        """Return, inside a settle's transaction, whether too many tokens are said to be gone to disable any."""
        locked = self._lock(connection, project, now, _SETTLE_WAIT_MS)
        stopped_at = locked.state.pruning_stopped_at
        abnormal, detail = self._is_abnormal(connection, project, now)
        if abnormal and stopped_at is None:
            locked.save(replace(locked.state, pruning_stopped_at=locked.at))
            self._report(connection, project, "pruning_stopped", detail, now)
        elif not abnormal and stopped_at is not None:
            locked.save(replace(locked.state, pruning_stopped_at=None))
            self._report(connection, project, "pruning_resumed", detail, now)
        return abnormal

    def check_brakes(self, project: str, now: datetime | None = None) -> None:
        """Check now and then whether a project's brake on disabling tokens is to be released."""
        with self._guard:
            if now is None and time.monotonic() - self._checked.get(project, -_CHECK_EVERY_S) < _CHECK_EVERY_S:
                return
            self._checked[project] = time.monotonic()
        with self._locked(project, now) as locked:
            if locked.state.pruning_stopped_at is not None:
                self.pruning_stopped(locked.connection, project, now)

    def _is_abnormal(self, connection: Connection, project: str, now: datetime | None) -> tuple[bool, str]:
        rules = self.rules.of(project)
        window = {"project": project, "window_ms": rules.brake_window_ms, "now": now}
        row = connection.execute(_SQL["sum_tallies"], window).fetchone()
        _sent, answers, unregistered, owners = row or (0, 0, 0, 0)
        detail = f"{unregistered} of {answers} answers said that the phone is gone"
        return rate_and_breaker.is_abnormal(answers, unregistered, owners, rules), detail

    def move_tokens(self, project: str, projects: Mapping[str, str], now: datetime | None = None) -> dict[str, str]:
        """Remember each token's project, as the push service said; return that of tokens whose phones are there now."""
        pairs = sorted(projects.items())
        moved = {"tokens": text_array(t for t, _ in pairs), "projects": text_array(p for _, p in pairs), "now": now}
        with self._database.transaction() as connection:
            rows = connection.execute(_SQL["move_tokens"], moved).fetchall()
            if count := sum(has_moved for _, _, has_moved in rows):
                detail = f"{count} tokens belong to {', '.join(sorted(set(projects.values())))}"[:300]
                self._report(connection, project, "tokens_moved", detail, now)
        return {token: home for token, home, _ in rows}

    @contextmanager
    def _locked(self, project: str, now: datetime | None) -> Iterator[_Locked]:
        """Lock a project's row; while somebody holds it, wait for it without a connection of the pool."""
        began = time.monotonic()
        with ExitStack() as held:
            while True:
                try:
                    with ExitStack() as tried:
                        connection = tried.enter_context(self._database.transaction("bound_relaxed"))
                        locked = self._lock(connection, project, now)
                        held.enter_context(tried.pop_all())
                    break
                except pg.LockNotAvailable:
                    waited_s = time.monotonic() - began
                    if waited_s > self._database.lock_ms / 1000:
                        raise
                time.sleep(_pause_s(waited_s))
            yield locked

    def _lock(
        self, connection: Connection, project: str, now: datetime | None, wait_ms: int = _LOCK_WAIT_MS
    ) -> _Locked:
        key: dict[str, Any] = {"project": project, "now": now, "wait_ms": wait_ms}
        row = connection.execute(_SQL["lock_project"], key).fetchone()
        if row is None:
            rules = self.rules.of(project)
            first = {"chunk": min(rules.chunk, rules.rate_per_s), "share": rate_and_breaker.first_share(rules)}
            connection.execute(_SQL["add_project"], key | first)
            row = connection.execute(_SQL["lock_project"], key).fetchone()
        assert row is not None
        *state, at = row
        return _Locked(connection, Project(*state), at)

    def _report(self, connection: Connection, project: str, what: str, detail: str, now: datetime | None) -> None:
        incident: dict[str, Any] = {"project": project, "what": what, "detail": detail[:300], "now": now}
        connection.execute(_SQL["tell_incident"], incident)
        good = what in ("breaker_closed", "pruning_resumed", "tokens_moved")
        (_log.info if good else _log.error)(what, project=project, detail=detail)


def _count_due(locked: _Locked, due: Mapping[str, Any], most: int) -> int:
    """Return how much is due in a lane of a locked project, counted up to so many."""
    row = locked.connection.execute(_SQL["count_due"], {**due, "limit": most}).fetchone()
    return int(row[0]) if row else 0
