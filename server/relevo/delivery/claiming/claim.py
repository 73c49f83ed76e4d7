"""A claim: deliveries and the lease on them, and what the journal says of its waves."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from uuid import UUID

import structlog

from relevo.core.errors import OwnershipLostError
from relevo.core.model import Awaiting, Content, Delivery, LossReason, PushRequest, Verdict
from relevo.database.arrays import UuidArray, array, array_of_few, uuid_array

_log = structlog.get_logger("relevo.claims")


class Wave:
    """Some requests with the columns of their deliveries, written once for all statements that take them."""

    def __init__(self, requests: Sequence[PushRequest]) -> None:
        self.requests = requests
        self.deliveries = [delivery for request in requests for delivery in request.deliveries]

    @cached_property
    def ids(self) -> str:
        """The ids of the deliveries."""
        return array([delivery.id for delivery in self.deliveries])

    @cached_property
    def events(self) -> str:
        """The events of the deliveries, each once."""
        return array({delivery.notification_event_id for delivery in self.deliveries})

    @cached_property
    def installations(self) -> UuidArray:
        """Where they go."""
        return uuid_array([delivery.installation_id for delivery in self.deliveries])

    @cached_property
    def versions(self) -> str:
        """The versions of the tokens that they go to."""
        return array_of_few([delivery.token_version for delivery in self.deliveries])


@dataclass
class Claim:
    """Deliveries that are this worker's until they are settled, handed back or lost."""

    token: UUID
    cycle: str
    project: str
    lease_ms: int
    deliveries: tuple[Delivery, ...] | tuple[Awaiting, ...]
    since: float = field(default_factory=time.monotonic, compare=False)
    """When this process last knew that the whole lease lay before it."""
    contents: Mapping[int, Content] = field(default_factory=dict, compare=False, repr=False)
    """The contents of its events, as far as the claim returned them."""
    in_shadow: bool = False
    """Whether nothing of it is ever sent: it was claimed in shadow mode."""
    taken_at: float = field(default=0.0, init=False, compare=False)
    """Since when it is held, by the monotonic clock."""
    loss: tuple[LossReason, str] | None = field(default=None, init=False)
    _wave: Wave | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Count from the moment the claim was begun."""
        self.taken_at = self.since

    @cached_property
    def silent(self) -> Mapping[int, int]:
        """The events of the deliveries that go without a sound because of quiet hours, by the delivery's id."""
        return {
            each.id: each.notification_event_id
            for each in self.deliveries
            if isinstance(each, Delivery) and each.quiet_until is not None and each.obstacle is None
        }

    @property
    def lasts_s(self) -> float:
        """How long anything may take before it is given up: for so long the heartbeat extends a claim."""
        return 3 * self.lease_ms / 1000

    @property
    def give_up_at(self) -> float:
        """A beat before the heartbeat lets go of it, when it can still be settled."""
        return self.taken_at + self.lasts_s - self.lease_ms / 4000

    @property
    def ids(self) -> list[int]:
        """The ids of its deliveries."""
        return [delivery.id for delivery in self.deliveries]

    @cached_property
    def _former(self) -> dict[int, tuple[str, str]]:
        """The type and status of each of its deliveries, as it was claimed."""
        return {each.id: (each.event_type, each.status) for each in self.deliveries if isinstance(each, Delivery)}

    def former(self, delivery_id: int) -> tuple[str | None, str | None]:
        """Return type and status of one of its deliveries, as it was claimed."""
        return self._former.get(delivery_id, (None, None))

    def wave_of(self, requests: Sequence[PushRequest]) -> Wave:
        """Return some of its requests with their columns: those of the last wave, if it is the same."""
        wave = self._wave
        if wave is None or len(wave.requests) != len(requests) or not all(map(is_, wave.requests, requests)):
            wave = self._wave = Wave(requests)
        return wave

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that the claim is gone; the first reason stays."""
        if self.loss is not None:
            return
        self.loss = (reason, detail)
        _log.warning("claim_lost", claim=str(self.token), reason=reason, detail=detail, deliveries=len(self.deliveries))

    def renewed(self, since: float) -> None:
        """Learn that the heartbeat extended the lease, from a moment of the monotonic clock on."""
        self.since = since

    @property
    def is_lost(self) -> bool:
        """Whether the claim is gone, by the database's word or by this process's own clock."""
        return self.loss is not None or self._is_spent()

    def _is_spent(self, needed_ms: int = 0) -> bool:
        return time.monotonic() + needed_ms / 1000 > self.since + self.lease_ms / 1000

    def check(self, needed_ms: int = 0) -> None:
        """Raise OwnershipLostError if the claim is gone, or too little of its lease is left: before every request.

        A process that was stopped and goes on finds its lease spent here, even before its heartbeat beats again.
        """
        if self.loss is None and self._is_spent(needed_ms):
            self.lose("error", "Its lease ran out while this process was not running.")
        if self.loss is not None:
            reason, detail = self.loss
            raise OwnershipLostError(reason, f"Claim {self.token} is lost ({reason}). {detail}")


@dataclass(frozen=True)
class Verdicts:
    """The journal's answer for a wave: the held deliveries, and the own ones if not all are; the rest may be sent."""

    wave: Sequence[PushRequest]
    held: Mapping[int, Verdict] = field(default_factory=dict)
    ours: Collection[int] | None = None

    @property
    def all_go(self) -> bool:
        """Whether everything may be sent."""
        return not self.held and self.ours is None

    def __iter__(self) -> Iterator[Verdict]:
        """Return the verdict on each delivery, those left out that are not ours."""
        asked = (d for request in self.wave for d in request.deliveries if self.ours is None or d.id in self.ours)
        return (self.held.get(d.id) or Verdict(d.event_day, d.id, "send", None) for d in asked)

    def __len__(self) -> int:
        return sum(1 for _ in self)
