"""Why what is open of an event waits, and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from relevo.core.phrases import Phrase, release_command
from relevo.core.sending_project import project_in_words
from relevo.operators.formats import in_numbers, timestamp
from relevo.operators.health.problem import Row


def why_it_waits(event: Row, waits: Sequence[Row], paused: Mapping[str, str]) -> list[str]:
    """Say why what is open of an event waits, and until when."""
    if event["state"] == "held":
        return [_runaway(event)]
    if event["state"] in ("waiting", "fanning"):
        return [_why_not_fanned_out(event, paused)]
    whys = [_runaway(event) if row["repeats_held"] else _why(row, paused, event["now"]) for row in waits]
    return [_of_project(row, why) for row, why in zip(waits, whys, strict=True)]


def _of_project(row: Row, why: str) -> str:
    pushes = in_numbers(row["deliveries"], "push", "pushes")
    project = project_in_words(row["project"])
    return Phrase("{pushes} of {project} ({lane}): {why}", pushes=pushes, project=project, lane=row["lane"], why=why)


def _why_not_fanned_out(event: Row, paused: Mapping[str, str]) -> str:
    if event["scheduled_at"] > event["now"]:
        return Phrase("scheduled for {at}", at=timestamp(event["scheduled_at"]))
    if "fanout" in paused:
        return Phrase("fanout is paused ({reason}); `relevo resume fanout` switches it on", reason=paused["fanout"])
    if event["fanout_failures"]:
        return Phrase(
            "its fan-out failed {times}: {error}; it is tried again at {at}",
            times=times(event["fanout_failures"]),
            error=event["fanout_error"],
            at=timestamp(event["fanout_retry_at"]),
        )
    return Phrase("it waits for fan-out")


def _why(row: Row, paused: Mapping[str, str], now: datetime) -> str:
    if "dispatch" in paused:
        return Phrase(
            "dispatch is paused ({reason}); `relevo resume dispatch` switches it on", reason=paused["dispatch"]
        )
    if row["breaker"] not in (None, "closed"):
        if row["probe_at"] is not None and row["probe_at"] <= now:
            return Phrase("the breaker is open ({reason}), the next push is a probe", reason=row["breaker_reason"])
        return Phrase(
            "the breaker is open ({reason}), the next probe comes at {at}",
            reason=row["breaker_reason"],
            at=timestamp(row["probe_at"]),
        )
    if row["rest_until"] is not None and row["rest_until"] > now:
        return Phrase("the push service asked for a rest until {at}", at=timestamp(row["rest_until"]))
    if row["next_attempt_at"] is not None and row["next_attempt_at"] > now:
        return _until(row)
    return Phrase("being sent") if row["claimed"] else Phrase("due, and sent as the project's rate allows")


def _until(row: Row) -> str:
    at = timestamp(row["next_attempt_at"])
    if row["is_quiet"]:
        zone = row["quiet_zone"] or "UTC"
        return Phrase("their phones have quiet hours, the first until {at} ({zone})", at=at, zone=zone)
    return Phrase("tried again from {at} on", at=at)


def _runaway(event: Row) -> str:
    return Phrase(
        "held by the runaway brake; `{remedy}` sends what it holds of this type",
        remedy=release_command(event["event_type"]),
    )


def times(count: int) -> str:
    """Write how often something happened."""
    return Phrase("once") if count == 1 else Phrase("{n} times", n=count)


def stopped(waits: Sequence[Row]) -> list[str]:
    """Name the projects for which something of an event waits because their breaker is open."""
    return list(dict.fromkeys(row["project"] for row in waits if row["breaker"] not in (None, "closed")))


def tried_again(due: datetime | None, now: datetime, held: Sequence[str]) -> str:
    """Say when what failed is tried again, as the end of a sentence: at a time, or once its project may send."""
    if due is None:
        return ""
    if due > now:
        return f", tried again at {due.astimezone(UTC):%H:%M:%S}"
    return f", tried again when project {', '.join(held)} sends again" if held else ", due to be tried again"
