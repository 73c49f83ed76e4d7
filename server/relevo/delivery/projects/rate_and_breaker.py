"""Limits on claiming and sending: bucket, breaker, brakes and leases, as pure functions of state, rules and time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from relevo.core.model import Lane

AnswerSource = Literal["request", "receipt"]
Why = Literal["granted", "rate", "rest", "breaker", "connections", "locked"]
_LEAST_SHARE = 0.01
_LATE_S = 0.05  # how late a worker may wake up for a full request and lose nothing of the rate
_CLOCK_SLACK = timedelta(minutes=1)  # a clock that was set back further must not dry the bucket up until it catches up
_RAMP_SHARE = 0.25  # after an outage everybody comes back at once, and the service is barely on its feet
_START_SHARE = 0.05  # of the rate, where it has to ramp up after a rest
_MOST_HEARD = 100  # a request's worth: when credentials break, the next full request tells nothing else
_FEW_REFUSED_EVENTS = 2  # more than that without a message taken in between look like an outage


@dataclass(frozen=True)
class SendingRules:
    """The numbers behind the decisions, from the settings."""

    rate_per_s: int
    """0 lifts the limit."""
    urgent_share: float
    chunk: int
    breaker_failures: int
    probe_ms: int
    receipt_probe_ms: int
    """How long a probe may take to be heard of: by its answer, or by its receipt."""
    recovery_s: float = 300
    """How long a rate that was halved to nothing takes to grow back to its fullness."""
    breaker_pause_ms: int = 30_000
    """The pause before the first probe of an open breaker, doubled for each one after it."""
    breaker_pause_max_ms: int = 900_000
    credential_installations: int = 5
    """A credential fault opens the breaker once so many installations met it,"""
    credential_owners: int = 3
    """of so many owners, or all that there are,"""
    credential_share: float = 0.8
    """and at least this share of the owners heard of within the window,"""
    credential_window_ms: int = 3_600_000
    credential_quiet_ms: int = 600_000
    """while nobody was taken for so long, or so many owners met it whose phones were taken before."""
    brake_share: float = 0.2
    """No token is disabled while more than this share of the answers call phones gone, of `brake_min` owners."""
    brake_min: int = 50
    brake_window_ms: int = 600_000
    connections: int = 6
    """How many requests may be under way at once, in the whole fleet."""
    least_retry_ms: int = 0
    """The shortest time between two tries of one delivery."""
    ramp_s: float = 0
    """How long the rate takes to its fullness after nothing was sent for as long; 0: it needs no ramp."""


@dataclass(frozen=True)
class Project:
    """A project's row: what it may send, and why not more."""

    project: str
    urgent_tokens: float
    bulk_tokens: float
    filled_at: datetime
    rate_share: float
    rest_until: datetime | None
    breaker: Literal["closed", "open", "probing"]
    breaker_reason: str | None
    breaker_by: AnswerSource | None
    breaker_since: datetime | None
    probe_at: datetime | None
    trips: int
    failures: int
    pruning_stopped_at: datetime | None
    watched: Sequence[AnswerSource] = ()
    """Where credential faults were met lately, so that it is news who did not meet one."""
    refused: bool = False
    """Whether a message was refused alone, and none was taken since, so that one that is taken is news."""


@dataclass(frozen=True)
class Heard:
    """The installations heard of lately, newest last, and whether each met a credential fault; from a first one on.

    None stands for one that met it while the breaker was open, and others did not: its own trouble, and no news.
    """

    since: datetime
    faulty: Mapping[UUID, bool | None]


@dataclass(frozen=True)
class Evidence:
    """The facts about the installations that answered, and their project, when a credential fault is judged."""

    owners: Mapping[UUID, str]
    """Of those that have one."""
    worked: Collection[UUID]
    """Those whose present token the push service took before: it is not their token that is at fault."""
    has_owners: bool
    """Whether somebody owns a phone of the project; if nobody does, each phone speaks for itself."""
    taken_lately: bool
    """Whether the push service took somebody's push of the project lately."""
    ever_taken: bool
    """Whether it took one in the last days."""
    nobody_else: bool
    """Whether the project has no installation but those that met the fault."""

    def witnesses(self, installations: Iterable[UUID]) -> set[str | UUID | None]:
        """Return who speaks by installations: each owner once, and all phones without owner that never worked once."""
        return {
            self.owners.get(key) or (key if key in self.worked or not self.has_owners else None)
            for key in installations
        }


@dataclass(frozen=True)
class Refusal:
    """The facts about an event when a message of it was refused alone."""

    first_at: datetime
    taken_since: bool
    """Whether any message of the project was taken since it was last refused."""
    own_taken: bool
    """Whether one of its own messages was taken, so that it is not the whole event that is bad."""


@dataclass(frozen=True)
class Judgement:
    """The meaning of a message that was refused alone."""

    is_bad: bool
    """Whether the message is to blame."""
    is_quiet: bool
    """Whether the project is well and few events were refused since a message was taken."""
    is_open: bool
    """Whether the project's breaker is open."""
    own_taken: bool
    """Whether one of its event's messages was taken."""
    since_s: float
    """For how long its event has been refused."""


@dataclass(frozen=True)
class Grant:
    """How many pushes may be claimed now; if none, why, and when to try again."""

    count: int
    why: Why = "granted"
    wait_s: float = 0.0
    probe: bool = False


def reserve(state: Project, rules: SendingRules, now: datetime, lane: Lane, wanted: int) -> tuple[Project, Grant]:
    """Take up to `wanted` tokens of a lane, or say what stands in the way."""
    state = refill(state, rules, now)
    if state.breaker != "closed":
        return _probe(state, rules, now)
    if state.rest_until is not None and state.rest_until > now:
        return state, Grant(0, "rest", (state.rest_until - now).total_seconds())
    if rules.rate_per_s == 0:
        return state, Grant(wanted)
    level = state.urgent_tokens if lane == "urgent" else state.bulk_tokens
    rate_per_s = max(0.1, rules.rate_per_s * state.rate_share)
    worth = max(1, min(wanted, _request(rules), int(rate_per_s)))  # nobody waits longer than a second for more
    if level < worth:
        return state, Grant(0, "rate", (worth - level) / rate_per_s)
    count = min(wanted, int(level) // worth * worth)  # full requests: a small one costs as much
    return _draw(state, lane, count), Grant(count)


def give_back(state: Project, rules: SendingRules, lane: Lane, count: int) -> Project:
    """Put tokens back that were reserved and not used."""
    room = _capacity(rules) - (state.urgent_tokens if lane == "urgent" else state.bulk_tokens)
    return _draw(state, lane, -min(float(count), max(0.0, room)))


def refill(state: Project, rules: SendingRules, now: datetime) -> Project:
    """Advance time: each lane gets its share, the overflow of one runs into the other, the rate grows back."""
    elapsed = max(0.0, (now - state.filled_at).total_seconds())
    full = _capacity(rules)
    share = min(1.0, state.rate_share + elapsed / rules.recovery_s)
    if rules.ramp_s and elapsed >= rules.ramp_s:
        share = min(share, _START_SHARE)
    income = rules.rate_per_s * state.rate_share * elapsed
    urgent = state.urgent_tokens + income * rules.urgent_share
    bulk = state.bulk_tokens + income * (1 - rules.urgent_share)
    urgent, bulk = urgent + max(0.0, bulk - full), bulk + max(0.0, urgent - full)
    return replace(
        state,
        urgent_tokens=min(urgent, full),
        bulk_tokens=min(bulk, full),
        filled_at=max(now, min(state.filled_at, now + _CLOCK_SLACK)),
        rate_share=share,
    )


def throttle(state: Project, now: datetime, retry_after_ms: int) -> Project:
    """Halve the rate after a 429, and rest for as long as it asks."""
    until = now + timedelta(milliseconds=max(1_000, retry_after_ms))
    return replace(
        state,
        rate_share=max(_LEAST_SHARE, state.rate_share / 2),
        rest_until=max(until, state.rest_until or until),
        urgent_tokens=0.0,
        bulk_tokens=0.0,
    )


def fail(
    state: Project, rules: SendingRules, now: datetime, reason: str, *, credential: bool, by: AnswerSource
) -> Project:
    """Note something that failed for no fault of its message; open the breaker when that is no accident."""
    if state.breaker == "open":
        return state  # sent before it opened
    failures = state.failures + 1
    if state.breaker == "closed" and not credential and failures < rules.breaker_failures:
        return replace(state, failures=failures)
    pause_ms = min(rules.breaker_pause_ms << min(state.trips, 20), rules.breaker_pause_max_ms)
    return replace(
        state,
        breaker="open",
        breaker_reason=reason[:300] or "no reason was given",
        breaker_by=by,
        breaker_since=now,
        probe_at=now + timedelta(milliseconds=pause_ms),
        trips=state.trips + 1,
        failures=0,
    )


def postpone_probe(state: Project, rules: SendingRules, now: datetime) -> Project:
    """Open the breaker again after a probe that tells nothing, for a pause that does not grow."""
    return replace(state, breaker="open", probe_at=now + timedelta(milliseconds=rules.breaker_pause_ms))


def succeed(state: Project, by: AnswerSource, sent_at: datetime | None = None) -> Project:
    """Note something that went well: failures are forgotten, and a probe closes the breaker.

    One that a receipt opened is closed by a receipt alone, of a push that was sent after it opened.
    """
    if state.breaker == "closed":
        return replace(state, failures=0, trips=0) if state.failures or state.trips else state
    if by == "receipt":
        proven = sent_at is not None and state.breaker_since is not None and sent_at > state.breaker_since
        return close(state) if proven and state.breaker_by == "receipt" else state
    return close(state) if state.breaker == "probing" and state.breaker_by == "request" else state


def close(state: Project) -> Project:
    """Close the breaker; the rate ramps up anew, and its trips are forgotten with the next thing that goes well."""
    return replace(
        state,
        breaker="closed",
        breaker_reason=None,
        breaker_by=None,
        breaker_since=None,
        probe_at=None,
        failures=0,
        rate_share=min(state.rate_share, _RAMP_SHARE),
    )


def hear(before: Heard | None, rules: SendingRules, now: datetime, answers: Mapping[UUID, bool]) -> Heard | None:
    """Note who met a credential fault and who did not; nothing before a first fault, and nothing beyond the window."""
    if before is not None and now - before.since >= timedelta(milliseconds=rules.credential_window_ms):
        before = None
    if before is None and not any(answers.values()):
        return None
    known = before.faulty if before else {}
    news = {key: None if faulty and known.get(key, faulty) is None else faulty for key, faulty in answers.items()}
    heard = {key: faulty for key, faulty in known.items() if key not in news} | news
    return Heard(before.since if before else now, dict(list(heard.items())[-_MOST_HEARD:]))


def is_projects_fault(
    heard: Heard, rules: SendingRules, look: Callable[[Sequence[UUID], Sequence[UUID]], Evidence]
) -> bool:
    """Return whether a credential fault is the project's: several owners met it, or all there are, and most heard of.

    Owners whose phones never worked are believed only while nobody is taken: foreign tokens are their owners' fault.
    `look` returns what is known of the installations that met it and of those that did not.
    """
    faulty = [key for key, met in heard.faulty.items() if met]
    if not faulty:
        return False
    fine = [key for key, met in heard.faulty.items() if met is False]
    known = look(faulty, fine)
    blaming = known.witnesses(faulty)
    others = {known.owners.get(key, key) for key in fine} - blaming
    if len(blaming) < rules.credential_share * (len(blaming) + len(others)):
        return False
    if known.nobody_else:
        return True
    if len(faulty) < rules.credential_installations or len(blaming) < rules.credential_owners:
        return False
    proven = known.witnesses(key for key in faulty if key in known.worked)
    return not known.taken_lately or len(proven) >= rules.credential_owners


def judge(known: Refusal | None, state: Project, now: datetime) -> Judgement:
    """Return the cause of a refused message: itself, if its event was refused before and another was taken since.

    While several events are refused in a row, nobody is: the push service may refuse everything.
    """
    quiet = state.breaker == "closed" and state.failures <= _FEW_REFUSED_EVENTS
    return Judgement(
        is_bad=quiet and known is not None and known.taken_since,
        is_quiet=quiet,
        is_open=state.breaker != "closed",
        own_taken=known is not None and known.own_taken,
        since_s=(now - known.first_at).total_seconds() if known else 0.0,
    )


def cancel_probe(state: Project, now: datetime) -> Project:
    """Take back a probe that found nothing to send, so that the next push is it."""
    return replace(state, breaker="open", probe_at=now) if state.breaker == "probing" else state


def is_abnormal(answers: int, unregistered: int, owners: int, rules: SendingRules) -> bool:
    """Return whether tokens of so many owners are said to be gone that the answers are to be doubted."""
    return owners >= rules.brake_min and unregistered > answers * rules.brake_share


def claim_limit(*, most: int, chunk: int, connections: int, under_way: int, latency_ms: float, lease_ms: int) -> int:
    """Return how many deliveries a new claim may take, so that all of them are sent well within its lease.

    `under_way` counts the requests that wait before it.
    """
    in_time = int(connections * lease_ms / 3 / max(latency_ms, 1.0)) - under_way
    return min(most, chunk * max(1, min(connections, in_time)))


def _probe(state: Project, rules: SendingRules, now: datetime) -> tuple[Project, Grant]:
    """Pass one push through a breaker that was open for long enough; another only if that one has no outcome."""
    assert state.probe_at is not None
    if state.probe_at > now:
        return state, Grant(0, "breaker", (state.probe_at - now).total_seconds())
    wait_ms = rules.probe_ms if state.breaker_by == "request" else rules.receipt_probe_ms
    later = now + timedelta(milliseconds=wait_ms)
    return replace(state, breaker="probing", probe_at=later), Grant(1, probe=True)


def _draw(state: Project, lane: Lane, count: float) -> Project:
    if lane == "urgent":
        return replace(state, urgent_tokens=max(0.0, state.urgent_tokens - count))
    return replace(state, bulk_tokens=max(0.0, state.bulk_tokens - count))


def _request(rules: SendingRules) -> int:
    """Return the size of a full request; a rate below that has smaller ones."""
    return max(1, min(rules.chunk, rules.rate_per_s))


def _capacity(rules: SendingRules) -> float:
    """Each lane may save up one request, and what comes in until a worker has woken up to send it.

    More would let a second hold more than the push service bears.
    """
    return _request(rules) + rules.rate_per_s * _LATE_S


def first_share(rules: SendingRules) -> float:
    """Return the share of its rate that a new project begins with."""
    return _START_SHARE if rules.ramp_s else 1.0


def recovery_s(ramp_s: float) -> float:
    """Return how long a rate takes to grow from nothing, if it takes so long from where a ramp begins."""
    return ramp_s / (1 - _START_SHARE)
