"""Projects: what the fleet may send for each, decided one after the other on the project's row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
import structlog

from relevo.config import Settings
from relevo.core import queries
from relevo.core.model import Lane, LossReason
from relevo.database.arrays import storable, text_array
from relevo.database.pool import Connection, Database
from relevo.delivery import limits
from relevo.delivery.due import DueLane, DueLanes
from relevo.delivery.limits import AnswerSource, Grant, Heard, Judgement, Project, Refusal, Rules
from relevo.runtime.heartbeat import Heartbeat, Loss, Renewed

_SQL = queries.load("projects")
_log = structlog.get_logger("relevo.projects")
_FIELDS = len(fields(Project))
_LOOK_EVERY_S = 5.0
_GOOD_FOR_S = 0.25
_RECEIPT_PAUSE_MS, _LONGEST_RECEIPT_PAUSE_MS = 5_000, 300_000
_PAGE = 1_000

User = Literal["dispatch", "receipt"]


@dataclass(frozen=True)
class Allowance:
    """What a worker may do for a project now: how many pushes, on how many connections."""

    grant: Grant
    connections: int = 0
    troubled: bool = False
    """Whether the project failed lately, so that a success is news."""
    watched: bool = False
    """Whether credential faults were met lately, so that it is news who did not meet one."""


@dataclass(eq=False)
class ConnectionLease:
    """This worker's share of a project's connections, which its heartbeat keeps while they are used."""

    project: str
    lease_ms: int
    connections: int
    taken_at: float
    """When the share was asked for."""
    since: float
    """When this process last knew that the whole lease lay before it."""
    key: UUID = field(default_factory=uuid4)

    def renewed(self, since: float) -> None:
        """Learn that the heartbeat extended it, from a moment of the monotonic clock on."""
        self.since = since

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that others may have it."""
        self.connections = 0
        _log.warning("connections_lost", project=self.project, reason=reason, detail=detail)

    def lasts(self, needed_ms: int) -> bool:
        """Tell whether so much of it is left."""
        return self.connections > 0 and time.monotonic() + needed_ms / 1000 <= self.since + self.lease_ms / 1000


def rules_of(settings: Settings) -> Rules:
    """Return the numbers behind the decisions that the settings ask for."""
    return Rules(
        rate_per_s=settings.push_rate_per_second,
        urgent_share=settings.push_urgent_share_percent / 100,
        chunk=settings.push_chunk_size,
        breaker_failures=settings.push_breaker_failures,
        probe_ms=settings.outbox_lease_duration_ms,
        receipt_probe_ms=settings.outbox_lease_duration_ms + 2 * settings.receipt_first_poll_ms,
    )


class Projects:
    """The statements around projects, for one worker."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker_id: str,
        heartbeat: Heartbeat,
        serves: Callable[[str], bool] = lambda _project: True,
    ) -> None:
        self._database = database
        self._heartbeat = heartbeat
        self._serves = serves
        self.lanes = DueLanes(database, serves)
        self._settings = settings
        self._worker_id = worker_id
        self.rules = rules_of(settings)
        self._seen: dict[str, tuple[float, Allowance]] = {}
        self._leased: dict[str, ConnectionLease] = {}
        self._users: dict[str, set[User]] = {}
        self._looked: dict[str, float] = {}
        self._ahead: dict[str, tuple[float, tuple[Any, ...] | None]] = {}
        """What was seen of a project ahead of a claim, and when."""
        self._served = "", 0
        """The project that it sent for last, and how many connections it had for that."""
        self._guard = threading.Lock()

    def due_lanes(self, now: datetime | None = None) -> list[DueLane]:
        """Return the lanes that are due and may be sent, urgent and oldest first, and the next one that will be."""
        return self.lanes.look(now)

    def due_receipts(self, now: datetime | None = None) -> list[tuple[str, float]]:
        """Return the projects that have receipts to ask for, and in how many seconds, the soonest first."""
        found: list[tuple[str, float]] = []
        page = [("", 0.0)] * _PAGE
        with self._database.transaction("bound_by_key") as connection:
            while len(page) == _PAGE:
                asked = {"now": now, "after": page[-1][0], "limit": _PAGE}
                page = connection.execute(_SQL["list_due_receipts"], asked).fetchall()
                found += page
        return sorted((each for each in found if self._serves(each[0])), key=itemgetter(1))

    def reserve(
        self,
        project: str,
        lane: Lane,
        most: int,
        now: datetime | None = None,
        *,
        in_flight: int = 0,
        since: datetime | None = None,
    ) -> Allowance:
        """Take tokens for up to `most` pushes that are due, `since` then, and this worker's share of the connections.

        Where the rate is not limited there is nothing to take, and a look at the project is good for a moment.
        """
        self._use(project, "dispatch")
        seen_at, seen = self._seen.get(project, (0.0, Allowance(Grant(0))))
        if now is None and time.monotonic() - seen_at < _GOOD_FOR_S:
            return replace(seen, grant=Grant(most))
        allowance = self._reserve_unlocked(project, lane, most, now) or self._reserve_locked(
            project, lane, most, now, in_flight=in_flight, since=since
        )
        if allowance.connections:
            self._served = project, allowance.connections
        if not self.rules.rate_per_s and allowance.grant.count == most and not allowance.troubled:
            self._seen[project] = time.monotonic(), allowance
        return allowance

    def _reserve_unlocked(self, project: str, lane: Lane, most: int, now: datetime | None) -> Allowance | None:
        """Take tokens of a project that is well and that nobody else is at just now; None if that is not so."""
        if not (connections := self._still_leased(project, now)):
            return None
        with self._database.connection() as connection:
            row = self._look(connection, project, now)
            if row is None:
                return None
            state, at, version = Project(*row[:_FIELDS]), row[_FIELDS], row[_FIELDS + 1]
            decided, grant = limits.reserve(state, self.rules, at, lane, most)
            if not grant.count or grant.probe:
                return None
            if self.rules.rate_per_s:
                taking = asdict(decided) | {"version": version}
                if connection.execute(_SQL["take_tokens"], taking).rowcount != 1:
                    return None
        return _allowance(state, grant, connections)

    def _look(self, connection: Connection, project: str, now: datetime | None) -> tuple[Any, ...] | None:
        """Look at a project, unless somebody did a moment ago, ahead of this."""
        looked_at, row = self._ahead.pop(project, (0.0, None))
        if now is None and time.monotonic() - looked_at < _GOOD_FOR_S:
            return row
        return connection.execute(_SQL["look_at_project"], {"project": project, "now": now}).fetchone()

    def _reserve_locked(
        self, project: str, lane: Lane, most: int, now: datetime | None, *, in_flight: int, since: datetime | None
    ) -> Allowance:
        began = time.monotonic()
        with self._locked(project, now) as (connection, state, at, decide):
            decided, grant = limits.reserve(state, self.rules, at, lane, most)
            if grant.why == "rate":  # a bucket that is nearly empty is worth waiting for, if there is enough to send
                key = {"project": project, "lane": lane, "since": since, "now": now}
                row = connection.execute(_SQL["count_due"], key | {"limit": min(most, self.rules.chunk)}).fetchone()
                decided, grant = (
                    limits.reserve(state, self.rules, at, lane, row[0]) if row and row[0] else (state, grant)
                )
            if not grant.count:
                return Allowance(grant)
            connections, leased_at = self._lease_connections(connection, project, now, in_flight, began)
            if not connections:
                return Allowance(Grant(0, "connections", 0.5))
            if self.rules.rate_per_s or grant.probe:
                decide(decided)
        self._took(project, connections, leased_at)
        return _allowance(state, grant, connections)

    @property
    def served(self) -> str | None:
        """The project that was served last; None if there is none, or if it has too few connections for all workers."""
        project, connections = self._served
        return project if connections > 1 else None

    def get_ready(self, project: str, *, in_flight: int = 0) -> list[str] | None:
        """Look at a project, and take our share of its connections, ahead of what may come for it.

        Returns for which event types others have a composer; None, and nothing is taken, if somebody else is at it.
        """
        self._use(project, "dispatch")
        if in_flight:
            return None
        looked_at = time.monotonic()
        with self._database.connection() as connection:
            row = connection.execute(_SQL["lease_ahead"], self._leasing(project)).fetchone()
        if row is None:
            return None
        share, composed, *looked = row
        self._served = project, share
        self._took(project, share, looked_at)
        self._ahead[project] = looked_at, tuple(looked)
        return list(composed)

    def lease_connections(self, project: str, now: datetime | None = None, *, in_flight: int = 0) -> Allowance:
        """Take this worker's share of a project's connections, to ask for receipts; 0 if others hold all of them."""
        self._use(project, "receipt")
        began = time.monotonic()
        with self._locked(project, now) as (connection, state, _at, _decide):
            connections, leased_at = self._lease_connections(connection, project, now, in_flight, began)
        self._took(project, connections, leased_at)
        watched = "receipt" in state.watched
        return Allowance(Grant(0), connections, troubled=state.breaker_by == "receipt", watched=watched)

    def _still_leased(self, project: str, now: datetime | None) -> int:
        """Return how many connections were leased a moment ago; 0 if it is longer ago."""
        lease = self._leased.get(project)
        if lease is None or now is not None:
            return 0
        lately = time.monotonic() - lease.taken_at < min(1.0, self._settings.outbox_lease_duration_ms / 4000)
        return lease.connections if lately else 0

    def _took(self, project: str, connections: int, leased_at: float | None) -> None:
        """Remember, once it is committed, which share was taken, and have the heartbeat keep it."""
        if not connections or leased_at is None:
            return
        lease = self._leased.get(project)
        if lease is None:
            lease_ms = self._settings.outbox_lease_duration_ms
            lease = self._leased[project] = ConnectionLease(project, lease_ms, connections, leased_at, leased_at)
        lease.connections, lease.taken_at, lease.since = connections, leased_at, leased_at
        self._heartbeat.keep(lease.key, lease, self.renew_connections)

    def renew_connections(self, connection: Connection, leases: Mapping[UUID, ConnectionLease]) -> Renewed:
        """Extend leases of connections, inside the heartbeat's transaction; what has run out stays so."""
        asked = self._leasing("") | {"projects": text_array(lease.project for lease in leases.values())}
        standing = dict(connection.execute(_SQL["renew_connections"], asked).fetchall())
        why = "Their lease ran out."
        lost = [Loss(key, "not_found", why) for key, lease in leases.items() if lease.project not in standing]
        extended = [lease for lease in leases.values() if standing.get(lease.project)]
        return Renewed(lost, extended, locked=len(leases) - len(lost) - len(extended))

    def may_connect(self, project: str) -> bool:
        """Tell, in the last moment before a request, whether a connection is leased for as long as it may take."""
        lease = self._leased.get(project)
        return lease is not None and lease.lasts(self._settings.push_request_timeout_ms)

    def _lease_connections(
        self, connection: Connection, project: str, now: datetime | None, in_flight: int, began: float
    ) -> tuple[int, float | None]:
        """Take our share; while more than that is in flight, others must not have the difference yet.

        Returns it, and since when it is leased, unless an earlier lease goes on: since its transaction `began`.
        """
        if leased := self._still_leased(project, now):
            return leased, None
        asked = self._leasing(project) | {"now": now}
        if not in_flight:
            row = connection.execute(_SQL["lease_connections"], asked).fetchone()
            return (0, None) if row is None else (int(row[0]), began)
        with connection.transaction() as writing:
            row = connection.execute(_SQL["lease_connections"], asked).fetchone()
            if row is not None and row[0] < in_flight:
                raise psycopg.Rollback(writing)
        if row is None:
            return 0, None
        return int(row[0]), began if row[0] >= in_flight else None

    def _leasing(self, project: str) -> dict[str, Any]:
        settings = self._settings
        return {
            "project": project,
            "worker_id": self._worker_id,
            "most": settings.outbox_concurrency,
            "lease_ms": settings.outbox_lease_duration_ms,
        }

    def pause_receipts(self, project: str, retry_after_ms: int, now: datetime | None = None) -> int:
        """Let a project's receipts rest after a request that failed; return for how many milliseconds."""
        pause = {
            "project": project,
            "base_ms": _RECEIPT_PAUSE_MS,
            "max_ms": _LONGEST_RECEIPT_PAUSE_MS,
            "floor_ms": retry_after_ms,
            "now": now,
        }
        with self._database.transaction("bound_relaxed") as connection:
            row = connection.execute(_SQL["pause_receipts"], pause).fetchone()
        return int(row[0]) if row else max(retry_after_ms, _RECEIPT_PAUSE_MS)

    def resume_receipts(self, project: str) -> None:
        """Note that the push service tells a project's receipts again."""
        with self._database.transaction("bound_relaxed") as connection:
            connection.execute(_SQL["resume_receipts"], {"project": project})

    def give_back(self, project: str, lane: Lane, count: int, now: datetime | None = None) -> None:
        """Put back tokens that were reserved and not used."""
        if not self.rules.rate_per_s or count <= 0:
            return
        with self._locked(project, now) as (_connection, state, _at, decide):
            decide(limits.give_back(state, self.rules, lane, count))

    def _forget_seen(self, project: str) -> None:
        """Look anew before the next claim."""
        self._seen.pop(project, None)
        self._ahead.pop(project, None)

    def _use(self, project: str, user: User) -> None:
        with self._guard:
            users, lease = self._users.setdefault(project, set()), self._leased.get(project)
            if lease is not None and lease.connections and not users:
                self._heartbeat.keep(lease.key, lease, self.renew_connections)
            users.add(user)

    def is_scarce(self, project: str) -> bool:
        """Tell whether this worker has a single connection of a project: there may be more workers than connections."""
        lease = self._leased.get(project)
        return lease is not None and lease.connections == 1

    def drop_connections(self, project: str, user: User, *, in_flight: int = 0) -> None:
        """Give back this worker's connections of a project, once neither cycle uses them any more.

        While requests that hang may still have theirs, they stay this worker's until their lease ends.
        """
        with self._guard:
            users = self._users.get(project, set())
            users.discard(user)
            lease = self._leased.get(project)
            if lease is not None and not users:
                self._heartbeat.drop(lease.key)
            if users or in_flight:
                return
            self._forget_seen(project)
            self._leased.pop(project, None)
            with self._database.transaction("bound_relaxed") as connection:
                connection.execute(_SQL["drop_connections"], {"worker_id": self._worker_id, "project": project})

    def throttled(self, project: str, retry_after_ms: int, now: datetime | None = None) -> None:
        """Halve a project's rate after a 429."""
        self._forget_seen(project)
        with self._locked(project, now) as (connection, state, at, decide):
            if state.rest_until is not None and state.rest_until > at:
                return  # answers of one wave are one complaint
            decided = limits.throttle(state, at, retry_after_ms)
            decide(decided)
            self._tell(connection, project, "rate_halved", f"to {decided.rate_share:.0%} of the full rate", now)

    def failed(
        self, project: str, reason: str, *, credential: bool, by: AnswerSource = "request", now: datetime | None = None
    ) -> bool:
        """Note a failure that is not a message's fault; tell whether the breaker is open now."""
        self._forget_seen(project)
        reason = storable(reason, 300) or "no reason was given"
        with self._locked(project, now) as (connection, state, at, decide):
            decided = limits.fail(state, self.rules, at, reason, credential=credential, by=by)
            self._opened(connection, state, decided, decide, now)
        return decided.breaker == "open"

    def _opened(
        self,
        connection: Connection,
        state: Project,
        decided: Project,
        decide: Callable[[Project], None],
        now: datetime | None,
    ) -> None:
        """Write a failure down, and tell if it opened the breaker."""
        if decided is not state:
            decide(decided)
        if decided.breaker == "open" and state.breaker != "open":
            self._tell(connection, state.project, "breaker_opened", str(decided.breaker_reason), now)

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
        """Note which installations met a credential fault; tell whether it is the project's: its breaker is open then.

        `fault` is what was said of it, if anybody met it, and `sent_at` when the last push was sent that did: what
        was sent before the breaker opened tells nothing of a probe.
        """
        if fault is not None:
            self._forget_seen(project)
        with self._locked(project, now) as (connection, state, at, decide):
            heard = self._hear(connection, {"project": project, "answered_by": by}, at, answers)
            decided = state
            if fault is not None and self._is_projects_fault(connection, state, heard, sent_at):
                reason = storable(fault, 300) or "no reason was given"
                decided = limits.fail(state, self.rules, at, reason, credential=True, by=by)
                self._opened(connection, state, decided, decide, now)
        return fault is not None and decided.breaker != "closed"

    def _hear(
        self, connection: Connection, key: dict[str, str], at: datetime, answers: Mapping[UUID, bool]
    ) -> Heard | None:
        row = connection.execute(_SQL["read_credential_answers"], key).fetchone()
        before = Heard(row[0], dict(zip(row[1], row[2], strict=True))) if row else None
        heard = limits.hear(before, self.rules, at, answers)
        if heard is not None:
            lists = {"installations": list(heard.faulty), "faulty": list(heard.faulty.values())}
            connection.execute(_SQL["save_credential_answers"], key | lists | {"since": heard.since})
        elif before is not None:
            connection.execute(_SQL["forget_credential_answers"], key)
        return heard

    def _is_projects_fault(
        self, connection: Connection, state: Project, heard: Heard | None, sent_at: datetime | None
    ) -> bool:
        if state.breaker == "probing":
            return sent_at is None or state.breaker_since is None or sent_at > state.breaker_since
        return heard is not None and limits.is_projects_fault(
            heard, self.rules, lambda faulty: not self._has_another(connection, state.project, faulty)
        )

    def _has_another(self, connection: Connection, project: str, installations: Sequence[UUID]) -> bool:
        asked = {"project": project, "installations": list(installations)}
        return connection.execute(_SQL["find_another_installation"], asked).fetchone() == (True,)

    def refused(self, project: str, event_id: int, reason: str, now: datetime | None = None) -> Judgement:
        """Note that a message was refused alone, with a 400; tell whether it is to blame, or the project fails."""
        self._forget_seen(project)
        with self._locked(project, now) as (connection, state, at, decide):
            asked = {"project": project, "event_id": event_id, "now": now}
            row = connection.execute(_SQL["note_refusal"], asked).fetchone()
            known = Refusal(*row) if row else None
            decided = state
            if known is None or known.taken_since or state.breaker == "probing":
                reason = storable(reason, 300) or "no reason was given"
                decided = limits.fail(state, self.rules, at, reason, credential=False, by="request")
                self._opened(connection, state, decided, decide, now)
        return limits.judge(known, decided, at)

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
        with self._locked(project, now) as (connection, state, _at, decide):
            if taken:
                connection.execute(_SQL["note_taken"], {"project": project, "events": list(taken)})
            decided = limits.succeed(state, by, sent_at)
            if decided is not state:
                decide(decided)
            if state.breaker != "closed" and decided.breaker == "closed":
                connection.execute(_SQL["excuse_credential_answers"], {"project": project})
                self._tell(connection, project, "breaker_closed", f"after: {state.breaker_reason}", now)
        if decided.breaker != state.breaker:
            self.lanes.look_again(project)

    def cancel_probe(self, project: str, now: datetime | None = None) -> None:
        """Take back a probe that found nothing to send."""
        with self._locked(project, now) as (_connection, state, at, decide):
            decide(limits.cancel_probe(state, at))

    def pruning_stopped(self, connection: Connection, project: str, now: datetime | None = None) -> bool:
        """Tell, inside a settle's transaction, whether so many tokens are said to be gone that none may be disabled."""
        state, at = self._lock(connection, project, now)
        abnormal, detail = self._is_abnormal(connection, project, now)
        if abnormal and state.pruning_stopped_at is None:
            self._save(connection, replace(state, pruning_stopped_at=at))
            self._tell(connection, project, "pruning_stopped", detail, now)
        elif not abnormal and state.pruning_stopped_at is not None:
            self._save(connection, replace(state, pruning_stopped_at=None))
            self._tell(connection, project, "pruning_resumed", detail, now)
        return abnormal

    def check_brakes(self, project: str, now: datetime | None = None) -> None:
        """Look now and then whether a project's brake on disabling tokens is to be released."""
        with self._guard:
            if now is None and time.monotonic() - self._looked.get(project, -_LOOK_EVERY_S) < _LOOK_EVERY_S:
                return
            self._looked[project] = time.monotonic()
        with self._locked(project, now) as (connection, state, _at, decide):
            if state.pruning_stopped_at is not None and not self._is_abnormal(connection, project, now)[0]:
                decide(replace(state, pruning_stopped_at=None))
                self._tell(connection, project, "pruning_resumed", "few answers say that a phone is gone now", now)

    def _is_abnormal(self, connection: Connection, project: str, now: datetime | None) -> tuple[bool, str]:
        window = {"project": project, "window_ms": self.rules.brake_window_ms, "now": now}
        row = connection.execute(_SQL["sum_tallies"], window).fetchone()
        _sent, answers, unregistered = row or (0, 0, 0)
        detail = f"{unregistered} of {answers} answers said that the phone is gone"
        return limits.is_abnormal(answers, unregistered, self.rules), detail

    def move_tokens(self, project: str, projects: Mapping[str, str], now: datetime | None = None) -> None:
        """Remember which project each token belongs to, as the push service told."""
        pairs = sorted(projects.items())
        moved = {"tokens": text_array(t for t, _ in pairs), "projects": text_array(p for _, p in pairs), "now": now}
        with self._database.transaction() as connection:
            count = connection.execute(_SQL["move_tokens"], moved).rowcount
            if count:
                detail = f"{count} tokens belong to {', '.join(sorted(set(projects.values())))}"[:300]
                self._tell(connection, project, "tokens_moved", detail, now)

    @contextmanager
    def _locked(
        self, project: str, now: datetime | None
    ) -> Iterator[tuple[Connection, Project, datetime, Callable[[Project], None]]]:
        with self._database.transaction("bound_relaxed") as connection:
            state, at = self._lock(connection, project, now)
            yield connection, state, at, lambda decided: self._save(connection, decided)

    def _lock(self, connection: Connection, project: str, now: datetime | None) -> tuple[Project, datetime]:
        key = {"project": project, "now": now, "chunk": min(self.rules.chunk, self.rules.rate_per_s)}
        row = connection.execute(_SQL["lock_project"], key).fetchone()
        if row is None:
            connection.execute(_SQL["add_project"], key)
            row = connection.execute(_SQL["lock_project"], key).fetchone()
        assert row is not None
        return Project(*row[:_FIELDS]), row[_FIELDS]

    def _save(self, connection: Connection, decided: Project) -> None:
        connection.execute(_SQL["save_project"], asdict(decided))

    def _tell(self, connection: Connection, project: str, what: str, detail: str, now: datetime | None) -> None:
        incident: dict[str, Any] = {"project": project, "what": what, "detail": detail[:300], "now": now}
        connection.execute(_SQL["tell_incident"], incident)
        good = what in ("breaker_closed", "pruning_resumed", "tokens_moved")
        (_log.info if good else _log.error)(what, project=project, detail=detail)


def _allowance(state: Project, grant: Grant, connections: int) -> Allowance:
    troubled = bool(state.failures or state.trips or state.refused or grant.probe)
    return Allowance(grant, connections, troubled, watched="request" in state.watched)
