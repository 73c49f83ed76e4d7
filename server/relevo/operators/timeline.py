"""The timeline of an event: each moment a code with the row it comes from, and its words in plain English.

The command prints these words; pages have their own, by the code, in each language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relevo.core.known_services import LABELS, NATIVE
from relevo.core.model import NEWS
from relevo.core.sending_project import SendingProject, project_in_words
from relevo.operators.formats import in_words, timestamp
from relevo.operators.health.waiting import times
from relevo.operators.reading import Row

_STILL = ("pending", "retryable", "sent")


@dataclass(frozen=True)
class Moment:
    """Something that happened at a time, or is going to."""

    at: datetime
    code: str
    row: Row
    """The row of the moment: the event, a request, an incident of a project, a pause, or the sample of deliveries."""

    @property
    def what(self) -> str:
        """The moment in a few words."""
        what = _WORDS[self.code][0]
        return what(self.row) if callable(what) else what

    @property
    def detail(self) -> str | None:
        """Further details of the moment."""
        detail = _WORDS[self.code][1]
        return detail(self.row) if detail is not None else None


@dataclass(frozen=True)
class Requests:
    """Some of the requests in which an event was sent, and behind what the next page begins, if there is one."""

    rows: list[Row]
    more: int = 0
    """How many more were found."""
    next: str = ""
    is_all: bool = True
    """Whether the look came to the end of what there is."""


def of_event(
    event: Row, counts: Mapping[str, int], sample: Row, requests: Requests, incidents: Sequence[Row]
) -> Iterator[Moment]:
    """Return what happened to an event, in the order in which what falls on one instant happens."""
    yield from _each(event, published="publicada_at", first_seen="first_seen_at", enqueued="created_at")
    yield from _fanned_out(event)
    yield from (Moment(row["journalled_at"], "request", row) for row in requests.rows)
    if requests.next:
        last = requests.rows[-1]["journalled_at"] if requests.rows else event["fanout_started_at"]
        yield Moment(last, "more_requests", {})
    yield from _each(event, first_sent="first_sent_at")
    if event["silent"]["count"]:
        yield Moment(datetime.fromisoformat(event["silent"]["at"]), "went_silently", event["silent"])
    is_whole = sample["looked_at"] >= event["deliveries_created"]
    if is_whole:
        yield from _each(sample, receipts_failed="receipt_failed_at", first_opened="first_opened_at")
    yield from _each(sample, superseded="superseded_at", capped="capped_at", quiet_expired="quiet_expired_at")
    yield from _gathered(event, sample)
    yield from _each(event, ended="ended_at", swept="swept_at")
    if is_whole:
        yield from _latest(event, counts, sample)
    if event["deadline_at"] and _decides(event, counts):
        yield Moment(event["deadline_at"], "deadline", event)
    yield from _each(event, pushes_held="repeats_held_at")
    yield from (Moment(row["at"], "incident", row) for row in incidents)


def _each(row: Row, **columns: str) -> Iterator[Moment]:
    """Return what happened of some codes, each at the time in its column, if it did."""
    return (Moment(row[column], code, row) for code, column in columns.items() if row[column])


def _gathered(event: Row, sample: Row) -> Iterator[Moment]:
    """Return what is told together with other events, in digests or in batches."""
    if sample["to_digest"]:
        yield Moment(sample["to_digest_at"], "to_digest", {**sample, "until": event["digest_closes_at"]})
    if sample["batched"]:
        batches = event["batches"] or {}
        until, told_by = batches.get("until"), batches.get("events") or ()
        row = {**sample, "until": until and datetime.fromisoformat(until), "told_by": tuple(told_by)}
        yield Moment(sample["batched_at"], "batched", row)


def _fanned_out(event: Row) -> Iterator[Moment]:
    if event["scheduled_at"] > event["created_at"]:
        yield Moment(event["scheduled_at"], "scheduled", event)
    yield from _each(event, held="held_at")
    if event["released_at"] != event["ended_at"]:
        yield from _each(event, released="released_at")
    yield from _each(event, fanout_began="fanout_started_at")
    if event["fanout_failures"]:
        yield Moment(event["updated_at"], "fanout_failed", event)
    yield from _each(event, fanout_finished="fanout_finished_at")


def _latest(event: Row, counts: Mapping[str, int], sample: Row) -> Iterator[Moment]:
    """Return how far an event came whose deliveries were all looked at."""
    row = {**sample, "counts": counts, "event_type": event["event_type"]}
    if not any(counts.get(each, 0) > 0 for each in _STILL):
        if sample["last_completed_at"]:
            yield Moment(sample["last_completed_at"], "last_ended", row)
    elif sample["most_attempts"] > 1 and sample["last_attempt_at"]:
        yield Moment(sample["last_attempt_at"], "last_attempt", row)


def _decides(event: Row, counts: Mapping[str, int]) -> bool:
    """Return whether an event's deadline still decides something, or has: not once all was sent or ended before it."""
    if event["state"] in ("cancelled", "completed"):
        return False
    still = any(counts.get(each) for each in ("pending", "retryable", "expired"))
    return still or event["state"] != "fanned" or (event["deadline_at"] <= event["now"] and not counts)


def of_pauses(rows: Sequence[Row]) -> Iterator[Moment]:
    """Return of pauses that are over that each began, and that it ended."""
    for row in rows:
        yield Moment(row["paused_at"], "paused", row)
        yield Moment(row["resumed_at"], "resumed", row)


def is_taken(row: Row) -> bool:
    """Return whether it is known of all pushes of an event in a request whether they were taken."""
    return bool(row["outcome"] == "answered" and row["taken"] + row["refused"] >= row["of_event"])


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _pushes(count: int) -> str:
    return _several(count, "push", "pushes")


def _item(event: Row) -> str:
    return "tender" if event["event_type"] == "new_licitacion" else "item"


def _finished(event: Row) -> str:
    phones = _several(event["targets_selected"], "phone", "phones")
    said = f"{phones}, {_several(event['deliveries_created'], 'delivery', 'deliveries')}"
    return said if event["ended_at"] or not event["end_reason"] else f"{said}: {event['end_reason']}"


def _request(row: Row) -> str:
    became = (row["outcome"] or "answered").replace("_", " ") if row["answered_at"] else "no answer yet"
    if is_taken(row):
        became += f", {row['taken']} accepted, {row['refused']} not" if row["refused"] else ", all accepted"
    said = f" ({row['said_code']})" if row["said_code"] else ""
    provider = SendingProject.parse(row["project"]).provider
    by = f" by {LABELS[provider]}" if provider in NATIVE else ""
    return f"{_pushes(row['of_event'])}{by}: {became}{said}"


def _ended(counts: Mapping[str, int], ok: str) -> str:
    """Return how many deliveries ended in which status: `1 failed, 3 ok`."""
    return ", ".join(f"{n:,} {ok if status == 'ok' else status}" for status, n in sorted(counts.items()) if n > 0)


def _resumed(row: Row) -> str:
    after = in_words((row["resumed_at"] - row["paused_at"]).total_seconds())
    return f"by {row['resumed_by']}, after {after}"


def _until(at: datetime | None) -> str:
    return f", told at {timestamp(at)}" if at else ""


def _batched(row: Row) -> str:
    told = f", told by event {', '.join(map(str, row['told_by']))}" if row["told_by"] else ""
    return f"{_pushes(row['batched'])}{_until(row['until'])}{told}"


Word = Callable[[Row], Any]
_WORDS: dict[str, tuple[str | Word, Word | None]] = {
    "published": (
        lambda event: f"{_item(event)} published",
        lambda event: ", ".join(filter(None, (event["external_id"], event["organismo"]))),
    ),
    "first_seen": (lambda event: f"{_item(event)} first seen", lambda event: f"by {event['source']}"),
    "enqueued": ("event enqueued", lambda event: f"{event['event_type']} {event['event_key']}"),
    "scheduled": ("scheduled", None),
    "held": ("held by the runaway brake", lambda event: event["held_reason"]),
    "released": ("released", None),
    "fanout_began": (
        "fan-out began",
        lambda event: f"for phones registered until then; deliveries stored under {event['event_day']}",
    ),
    "fanout_failed": (
        "fan-out failed",
        lambda event: f"{times(event['fanout_failures'])}: {event['fanout_error']}",
    ),
    "fanout_finished": ("fan-out finished", _finished),
    "request": ("request sent", _request),
    "more_requests": ("more requests", lambda _: "the dashboard's page of this event lists them all"),
    "first_sent": (lambda event: "your server accepted it" if event["event_type"] == NEWS else "first push sent", None),
    "receipts_failed": (
        "receipt refused",
        lambda sample: _several(
            sample["receipts_failed"], "push did not arrive", "pushes did not arrive; this was the last of them"
        ),
    ),
    "superseded": (
        "a later event took its place",
        lambda sample: f"{_pushes(sample['superseded'])} that still waited ended unsent; this was the last",
    ),
    "capped": (
        "above a cap",
        lambda sample: (
            f"{_several(sample['capped'], 'push was', 'pushes were')} left to the inbox: {sample['capped_why']}"
        ),
    ),
    "quiet_expired": (
        "expired in quiet hours",
        lambda sample: f"{_pushes(sample['quiet_expired'])}: its deadline lay in them",
    ),
    "went_silently": (
        "sent without a sound",
        lambda silent: f"{_pushes(silent['count'])}, because of quiet hours; this was the first",
    ),
    "to_digest": (
        "gathered for digests",
        lambda row: f"{_pushes(row['to_digest'])}{_until(row['until'])}",
    ),
    "batched": ("gathered with others of its kind", _batched),
    "first_opened": ("first push opened", lambda _: "as its phone reported"),
    "ended": (lambda event: event["state"], lambda event: event["end_reason"]),
    "swept": ("open deliveries ended", None),
    "last_ended": (
        "last delivery ended",
        lambda row: _ended(row["counts"], "accepted by your server" if row["event_type"] == NEWS else "ok"),
    ),
    "last_attempt": ("last attempt so far", lambda row: f"one of its pushes was tried {row['most_attempts']} times"),
    "deadline": ("deadline", None),
    "pushes_held": ("pushes held by the runaway brake", lambda event: event["repeats_reason"]),
    "incident": (
        lambda row: row["what"].replace("_", " "),
        lambda row: ": ".join(filter(None, (project_in_words(row["project"]), row["detail"]))),
    ),
    "paused": (
        lambda row: f"{row['cycle']} paused",
        lambda row: f"by {row['paused_by']}{': ' if row['reason'] else ''}{row['reason']}",
    ),
    "resumed": (lambda row: f"{row['cycle']} resumed", _resumed),
}
"""Each code in words, with its details."""
