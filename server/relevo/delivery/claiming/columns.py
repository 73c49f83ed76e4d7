"""The columns that the statements around claims take and return."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from relevo.core.logs import scrub
from relevo.core.model import (
    Answer,
    Awaiting,
    Content,
    Delivery,
    Lane,
    Obstacle,
    PushRequest,
    ReceiptAnswer,
    SentRequest,
)
from relevo.core.sending_project import SendingProject
from relevo.database.arrays import array, array_of_few, storable, text_array, uuid_array
from relevo.delivery.claiming.claim import Claim

K = TypeVar("K", bound=Hashable)


class Chunk(NamedTuple):
    """A row of a claim: deliveries of one type that fell due together, with their phones as columns."""

    event_day: date
    event_id: int
    event_type: str
    at_most_once: bool
    attempt_count: int
    lapse_count: int
    deadline_at: datetime | None
    seconds_left: float | None
    created_at: datetime
    ids: Sequence[int]
    installations: Sequence[UUID]
    tokens: Sequence[str | None]
    versions: Sequence[int | None]
    platforms: Sequence[str | None]
    locales: Sequence[str | None]
    obstacles: Sequence[Obstacle | None]
    quiet: Sequence[datetime | None] | None
    """Until when each phone that has quiet hours now is left in peace; None if none has."""
    lease_ms: int
    events: Sequence[int] | None = None
    """The event of each delivery, if they are of several; None if all are of `event_id`."""
    once: Sequence[bool] | None = None
    deadlines: Sequence[datetime | None] | None = None
    seconds: Sequence[float | None] | None = None
    """The values of each delivery alone: whether it goes at most once, its deadline, and the seconds left to it."""
    content_id: int | None = None
    title: str = ""
    body: str = ""
    data: str = ""
    push: str = ""
    wording: int | None = None
    texts: str | None = None
    arguments: str | None = None
    """The content of its event, if the claim returned it; its JSON is text."""


def deliveries_of(project: str, lane: Lane, chunks: Iterable[Chunk]) -> tuple[Delivery, ...]:
    """Return the deliveries of claimed chunks, in the claim's order."""
    where = SendingProject.parse(project).provider, project, lane
    return tuple(
        [
            each
            for c in chunks
            for each in (_deliveries_of(where, c) if c.events is None else _deliveries_of_several(where, c))
        ]
    )


def _deliveries_of_several(where: tuple[str, str, Lane], c: Chunk) -> Iterator[Delivery]:
    """Return the deliveries of a chunk of several events."""
    day, of_type, made, spent, lapsed = c.event_day, c.event_type, c.created_at, c.attempt_count, c.lapse_count
    status = "retryable" if spent else "pending"
    phones = zip(c.ids, c.installations, c.tokens, c.versions, c.platforms, c.locales, c.obstacles, strict=True)
    events = zip(c.events or (), c.once or (), c.deadlines or (), c.seconds or (), strict=True)
    quiet = repeat(None) if c.quiet is None else c.quiet
    for (key, phone, *rest), (event, once, deadline, seconds_left), until in zip(phones, events, quiet, strict=False):
        past = once, status, spent, lapsed, deadline
        yield Delivery._make((day, key, event, phone, of_type, *where, *past, *rest, seconds_left, made, until))


def _deliveries_of(where: tuple[str, str, Lane], c: Chunk) -> Iterator[Delivery]:
    day, event, of_type, seconds_left, made = c.event_day, c.event_id, c.event_type, c.seconds_left, c.created_at
    status = "retryable" if c.attempt_count else "pending"
    past = c.at_most_once, status, c.attempt_count, c.lapse_count, c.deadline_at
    phones = zip(c.ids, c.installations, c.tokens, c.versions, c.platforms, c.locales, c.obstacles, strict=True)
    quiet = repeat(None) if c.quiet is None else c.quiet
    for (key, phone, *rest), until in zip(phones, quiet, strict=False):
        yield Delivery._make((day, key, event, phone, of_type, *where, *past, *rest, seconds_left, made, until))


def contents_of(chunks: Iterable[Chunk]) -> dict[int, Content]:
    """Return what the events of chunks say, as far as the claim returned it."""
    told = {each.event_id: each for each in chunks if each.content_id is not None}
    return {
        event: content_of(event, c.title, c.body, c.data, c.push, c.wording, c.texts, c.arguments)
        for event, c in told.items()
    }


def content_of(event: int, title: str, body: str, data: str, push: str, *words: Any) -> Content:
    """Return what an event says, whose JSON is text; by `words`, what texts of its type it is told by, if by any."""
    content = Content(event, title, body, _json(data), _json(push))
    wording, texts, arguments = words or (None, None, None)
    if wording is None:
        return content
    given = json.loads(arguments, parse_float=Decimal)
    return content._replace(wording=wording, texts=json.loads(texts), arguments=given)


def _json(text: str) -> dict[str, Any]:
    """Read an event's JSON; what cannot be read says so when it is written, and fails that event alone."""
    try:
        read: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": float("nan")}
    return read


def requests(wave: Sequence[PushRequest]) -> dict[str, Any]:
    """Write the requests of a wave: their ids, and the places of the first and the last delivery of each."""
    lasts = list(accumulate(len(request.deliveries) for request in wave))
    return {
        "request_ids": uuid_array([request.id for request in wave]),
        "firsts": array([last - len(request.deliveries) + 1 for last, request in zip(lasts, wave, strict=True)]),
        "lasts": array(lasts),
    }


def all_sent(claim: Claim, sent: Sequence[SentRequest]) -> dict[str, Any]:
    """Return the parameters of the settle of requests of which everything was sent."""
    wave = claim.wave_of([each.request for each in sent])
    pasts = Counter([(each.notification_event_id, each.status) for each in wave.deliveries])
    return {
        "token": claim.token,
        "project": claim.project,
        "ids": wave.ids,
        "tickets": text_array([ticket for each in sent for ticket in each.tickets]),
        "installations": wave.installations,
        "versions": wave.versions,
        "attempts": array_of_few([delivery.attempt_count + 1 for delivery in wave.deliveries]),
        **requests(wave.requests),
        "request_ids": uuid_array([each.request.id for each in sent if each.whole]),
        "events": array([event for event, _ in pasts]),
        "formers": text_array([status for _, status in pasts]),
        "counts": array(pasts.values()),
    }


def numbers(asked: Sequence[Delivery], now: datetime | None) -> dict[str, Any]:
    """Number what a wave's deliveries have in common, for the statements that check each of them."""
    kinds, made = numbered([(each.event_day, each.notification_event_id, each.created_at) for each in asked])
    return {
        "kinds": array_of_few(kinds),
        "kind_days": [day for day, _, _ in made],
        "kind_events": [event for _, event, _ in made],
        "kind_made": [made_at for _, _, made_at in made],
        "ids": array([delivery.id for delivery in asked]),
        "now": now,
    }


def keys(deliveries: Sequence[Delivery] | Sequence[Awaiting] | Sequence[Answer]) -> dict[str, str]:
    """Write the keys of deliveries."""
    return {"days": array_of_few([d.event_day for d in deliveries]), "ids": array([d.id for d in deliveries])}


class _Kind(NamedTuple):
    """The common values of deliveries whose answers are written alike: most of a claim are of one kind."""

    answer: Answer
    """Without what is a delivery's own."""
    event_type: str | None
    former_status: str | None

    @classmethod
    def of(cls, a: Answer, claim: Claim) -> _Kind:
        """Return the kind of an answer to one of a claim's deliveries."""
        common = a._replace(event_day=date.min, id=0, ticket_id=None, installation_id=None, token_version=None)
        return cls(common, *claim.former(a.id))

    def storable(self) -> _Kind:
        """Return it as it may be stored."""
        code, message = storable(self.answer.error_code, 100), _words(self.answer.error_message)
        return self._replace(answer=self.answer._replace(error_code=code, error_message=message))


def answered(claim: Claim, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what a settle writes of answers: a number for each, and a row for each kind of them."""
    of_each = [_Kind.of(answer, claim) for answer in answers]
    numbers, kinds = numbered(of_each, _Kind.storable)
    rows = [kind.answer for kind in kinds]
    return keys(answers) | {
        "kinds": array_of_few(numbers),
        "tickets": text_array([answer.ticket_id for answer in answers]),
        "versions": array_of_few([answer.token_version for answer in answers]),
        "statuses": [each.status for each in rows],
        "spent": [int(each.attempted) for each in rows],
        "paced": [each.attempted for each in rows],
        "codes": [each.error_code for each in rows],
        "messages": [each.error_message for each in rows],
        "floors_ms": [each.retry_after_ms for each in rows],
        "projects": [each.project for each in rows],
        "not_befores": [each.not_before for each in rows],
        "in_requests": [each.request for each in rows],
        "types": [kind.event_type for kind in kinds],
        "formers": [kind.former_status for kind in kinds],
    }


def unsent(claim: Claim, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return which deliveries were not sent in which requests, though others were."""
    told = [(answer.request, answer.id) for answer in answers if answer.request is not None]
    return {
        "token": claim.token,
        "in_requests": uuid_array([request for request, _ in told]),
        "ids": array([key for _, key in told]),
    }


def received(answers: Sequence[ReceiptAnswer]) -> dict[str, Any]:
    """Return what a settle writes of receipts: a number for each, and a row for each kind of them."""
    kind_of = attrgetter("status", "spent", "paced", "error_code", "error_message", "retry_after_ms")
    numbers, kinds = numbered([kind_of(each) for each in answers])
    statuses, spent, paced, codes, messages, floors_ms = zip(*kinds, strict=True) if kinds else [()] * 6
    return keys([each.awaiting for each in answers]) | {
        "kinds": array_of_few(numbers),
        "statuses": list(statuses),
        "spent": list(spent),
        "paced": list(paced),
        "codes": [storable(code, 100) for code in codes],
        "messages": [_words(message) for message in messages],
        "floors_ms": list(floors_ms),
    }


def _words(said: str | None) -> str | None:
    """Return a message as it may be stored and archived: without tokens."""
    return storable(scrub(said), 500) if said else None


def numbered(kinds: Sequence[K], written: Callable[[K], K] = lambda kind: kind) -> tuple[list[int], list[K]]:
    """Number the different kinds from 1 on; kinds of which the same is `written` get one number."""
    numbers: dict[K, int] = {}
    number_of = {kind: numbers.setdefault(written(kind), len(numbers) + 1) for kind in dict.fromkeys(kinds)}
    return [number_of[kind] for kind in kinds], list(numbers)
