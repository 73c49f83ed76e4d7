"""What the statements around claims are told, and tell, column by column."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import Any

from relevo.core.logs import scrub
from relevo.core.model import Answer, Awaiting, Content, Delivery, Lane, PushRequest, ReceiptAnswer, SentRequest
from relevo.database.arrays import array, array_of_few, ascii_array, storable, text_array, uuid_array
from relevo.delivery.claim import Claim, Seen

_MADE_TOGETHER = attrgetter("event_day", "notification_event_id", "created_at")
_OF_DELIVERIES = 16
_IDS, _OBSTACLES = 9, 15
LEASE = _OF_DELIVERIES
"""Where a claimed chunk tells its lease: behind what it tells of its deliveries, before where its phones were seen."""
_SEEN = slice(LEASE + 1, LEASE + 3)
_CONTENT = slice(LEASE + 3, None)


def deliveries_of(project: str, lane: Lane, chunks: Sequence[tuple[Any, ...]]) -> tuple[Delivery, ...]:
    """Return the deliveries of chunks as a claim tells of them, in the claim's order."""
    provider, colons, _ = project.partition("::")
    where = provider if colons else "expo", project, lane
    return tuple([each for chunk in chunks for each in _chunk(where, chunk)])


def _chunk(where: tuple[str, str, Lane], chunk: tuple[Any, ...]) -> Iterator[Delivery]:
    day, event, of_type, at_most_once, attempts, lapses, deadline, seconds_left, made, *columns = chunk[:_OF_DELIVERIES]
    past = at_most_once, "retryable" if attempts else "pending", attempts, lapses, deadline
    for key, phone, token, version, platform, locale, obstacle in zip(*columns, strict=True):
        yield Delivery._make(
            (
                day,
                key,
                event,
                phone,
                of_type,
                *where,
                *past,
                token,
                version,
                platform,
                locale,
                obstacle,
                seconds_left,
                made,
            )
        )


def contents_of(chunks: Iterable[tuple[Any, ...]]) -> dict[int, Content]:
    """Return what the events of chunks say, as far as a claim tells it."""
    told = {chunk[1]: chunk[_CONTENT] for chunk in chunks if chunk[_CONTENT]}
    return {event: content_of(said) for event, said in told.items() if said[0] is not None}


def seen_of(chunks: Iterable[tuple[Any, ...]]) -> dict[int, Seen]:
    """Return where the phones of chunks were seen, as far as a claim tells it, by the first delivery of each.

    Only where nothing stood in the way of any: of such a chunk it is enough to know that they are as they were.
    """
    known = (chunk for chunk in chunks if chunk[_SEEN] and not any(chunk[_OBSTACLES]))
    return {chunk[_IDS][0]: Seen(chunk[_IDS], *chunk[_SEEN]) for chunk in known}


def content_of(said: Sequence[Any]) -> Content:
    """Return what an event says."""
    event, title, body, data, push = said
    return Content(event, title, body, _json(data), _json(push))


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
    """Return what the settle of requests of which everything was sent is told."""
    wave = claim.wave_of([each.request for each in sent])
    pasts = _counted(
        [each.notification_event_id for each in wave.deliveries], [each.status for each in wave.deliveries]
    )
    return {
        "token": claim.token,
        "project": claim.project,
        "ids": wave.ids,
        "tickets": ascii_array([ticket for each in sent for ticket in each.tickets]),
        "installations": wave.installations,
        "versions": wave.versions,
        "attempts": array_of_few([delivery.attempt_count + 1 for delivery in wave.deliveries]),
        **requests(wave.requests),
        "request_ids": uuid_array([each.request.id for each in sent if each.whole]),
        "events": array([event for event, _ in pasts]),
        "formers": text_array([status for _, status in pasts]),
        "counts": array(pasts.values()),
    }


def _counted(events: list[int], formers: list[str]) -> Mapping[tuple[int, str], int]:
    """Count the deliveries of each event that were in one status: most often all of them."""
    if len(set(events)) == len(set(formers)) == 1:
        return {(events[0], formers[0]): len(events)}
    return Counter(zip(events, formers, strict=True))


def numbers(asked: Sequence[Delivery], now: datetime | None) -> dict[str, Any]:
    """Number what a wave's deliveries have in common, for the statements that look at each of them."""
    kinds, made = sorted_out(asked, _MADE_TOGETHER)
    return {
        "kinds": array_of_few(kinds),
        "kind_days": [each[0] for each in made],
        "kind_events": [each[1] for each in made],
        "kind_made": [each[2] for each in made],
        "ids": array([delivery.id for delivery in asked]),
        "now": now,
    }


def keys(deliveries: Sequence[Delivery] | Sequence[Awaiting] | Sequence[Answer]) -> dict[str, str]:
    """Write the keys of deliveries."""
    return {"days": array_of_few([d.event_day for d in deliveries]), "ids": array([d.id for d in deliveries])}


def versions(of: Sequence[Answer]) -> str:
    """Write the versions of the tokens that deliveries went to."""
    return array_of_few([each.token_version for each in of])


def _words(said: str | None) -> str | None:
    """Return what somebody said as it may lie in the table and in the archive: no delivery holds a token."""
    return storable(scrub(said), 500) if said else None


def storable_sort(sort: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a sort of answers as it may be stored."""
    status, attempted, code, message, *rest = sort
    return status, attempted, storable(code, 100), _words(message), *rest


def receipt_sort_of(answer: ReceiptAnswer) -> tuple[Any, ...]:
    """Return what receipts have in common that are written alike."""
    return (
        answer.status,
        answer.spent,
        answer.paced,
        storable(answer.error_code, 100),
        _words(answer.error_message),
        answer.retry_after_ms,
    )


def sorted_out(
    answers: Sequence[Any], sort_of: Callable[[Any], Hashable], written: Callable[[Any], Hashable] = lambda sort: sort
) -> tuple[list[int], list[Any]]:
    """Number the different sorts of answers from 1 on: most of a batch is of one sort, and is written as one number.

    `written` makes of a sort what is written of it; sorts of which the same is written are one.
    """
    sorts = [sort_of(answer) for answer in answers]
    numbers: dict[Hashable, int] = {}
    number_of = {sort: numbers.setdefault(written(sort), len(numbers) + 1) for sort in dict.fromkeys(sorts)}
    return [number_of[sort] for sort in sorts], list(numbers)
