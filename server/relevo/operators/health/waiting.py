"""Why what is open of an event waits, and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from relevo.core.phrases import Phrase, release_command
from relevo.core.sending_project import project_in_words
from relevo.operators.formats import in_numbers, timestamp
from relevo.operators.health.problem import Row


class Wait(NamedTuple):
    """Why something of an event waits: in a word and in a sentence, until when if that is known, and how much of it."""

    code: str
    """scheduled, held, fanout_paused, fanout_failed, fanout, dispatch_paused, breaker, rest, quiet_hours, retry,
    sending, or rate."""
    sentence: str
    until: datetime | None = None
    project: str | None = None
    """As deliveries name it; None before there are any."""
    lane: str | None = None
    deliveries: int | None = None


def waits_of(event: Row, waits: Sequence[Row], paused: Mapping[str, str]) -> list[Wait]:
    """Return why what is open of an event waits, for all of it or by project and lane."""
    if event["state"] == "held":
        return [_runaway(event)]
    if event["state"] in ("waiting", "fanning"):
        return [_why_not_fanned_out(event, paused)]
    whys = [_runaway(event) if row["repeats_held"] else _why(row, paused, event["now"]) for row in waits]
    return [
        why._replace(project=row["project"], lane=row["lane"], deliveries=row["deliveries"])
        for row, why in zip(waits, whys, strict=True)
    ]


def why_it_waits(event: Row, waits: Sequence[Row], paused: Mapping[str, str]) -> list[str]:
    """Return why an event's open deliveries wait, and until when."""
    return [_in_words(wait) for wait in waits_of(event, waits, paused)]


def _in_words(wait: Wait) -> str:
    if wait.project is None or wait.deliveries is None:
        return wait.sentence
    pushes = in_numbers(wait.deliveries, "push", "pushes")
    project = project_in_words(wait.project)
    return Phrase(
        "{pushes} of {project} ({lane}): {why}", pushes=pushes, project=project, lane=wait.lane, why=wait.sentence
    )


def _why_not_fanned_out(event: Row, paused: Mapping[str, str]) -> Wait:
    if event["scheduled_at"] > event["now"]:
        sentence = Phrase("scheduled for {at}", at=timestamp(event["scheduled_at"]))
        return Wait("scheduled", sentence, event["scheduled_at"])
    if "fanout" in paused:
        sentence = Phrase("fanout is paused ({reason}); `relevo resume fanout` switches it on", reason=paused["fanout"])
        return Wait("fanout_paused", sentence)
    if event["fanout_failures"]:
        sentence = Phrase(
            "its fan-out failed {times}: {error}; Relevo tries again at {at}",
            times=times(event["fanout_failures"]),
            error=event["fanout_error"],
            at=timestamp(event["fanout_retry_at"]),
        )
        return Wait("fanout_failed", sentence, event["fanout_retry_at"])
    return Wait("fanout", Phrase("it waits for fan-out"))


def _why(row: Row, paused: Mapping[str, str], now: datetime) -> Wait:
    if "dispatch" in paused:
        sentence = Phrase(
            "dispatch is paused ({reason}); `relevo resume dispatch` switches it on", reason=paused["dispatch"]
        )
        return Wait("dispatch_paused", sentence)
    if row["breaker"] not in (None, "closed"):
        return _breaker(row, now)
    if row["rest_until"] is not None and row["rest_until"] > now:
        sentence = Phrase("the push service asked Relevo to wait until {at}", at=timestamp(row["rest_until"]))
        return Wait("rest", sentence, row["rest_until"])
    if row["next_attempt_at"] is not None and row["next_attempt_at"] > now:
        return Wait("quiet_hours" if row["is_quiet"] else "retry", _until(row), row["next_attempt_at"])
    if row["claimed"]:
        return Wait("sending", Phrase("being sent"))
    return Wait("rate", Phrase("due; waiting for the project's rate limit"))


def _breaker(row: Row, now: datetime) -> Wait:
    if row["probe_at"] is not None and row["probe_at"] <= now:
        sentence = Phrase("the breaker is open ({reason}), the next push is a probe", reason=row["breaker_reason"])
        return Wait("breaker", sentence)
    sentence = Phrase(
        "the breaker is open ({reason}), next probe at {at}",
        reason=row["breaker_reason"],
        at=timestamp(row["probe_at"]),
    )
    return Wait("breaker", sentence, row["probe_at"])


def _until(row: Row) -> str:
    at = timestamp(row["next_attempt_at"])
    if row["is_quiet"]:
        zone = row["quiet_zone"] or "UTC"
        return Phrase("their phones have quiet hours, the first until {at} ({zone})", at=at, zone=zone)
    return Phrase("to be retried from {at} on", at=at)


def _runaway(event: Row) -> Wait:
    sentence = Phrase(
        "held by the runaway brake; `{remedy}` sends all held events of this type",
        remedy=release_command(event["event_type"]),
    )
    return Wait("held", sentence)


def times(count: int) -> str:
    """Write how often something happened."""
    return Phrase("once") if count == 1 else Phrase("{n} times", n=count)


def stopped(waits: Sequence[Row]) -> list[str]:
    """Name the projects for which something of an event waits because their breaker is open."""
    return list(dict.fromkeys(row["project"] for row in waits if row["breaker"] not in (None, "closed")))


def tried_again(due: datetime | None, now: datetime, held: Sequence[str]) -> str:
    """Return when failed deliveries are tried again, as the end of a sentence: at a time, or with their project."""
    if due is None:
        return ""
    if due > now:
        return f", tried again at {due.astimezone(UTC):%H:%M:%S}"
    return f", tried again when project {', '.join(held)} sends again" if held else ", due to be tried again"
