"""Settings of one event type, each with its meaning and bounds, for the command and the table alike."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from psycopg import errors as pg
from psycopg.types.json import Jsonb

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.core.model import Lane
from relevo.database.pool import Database
from relevo.operators import audit
from relevo.operators.reading import Row, fetch

_SQL = queries.load("event_types")


def _setting(meaning: str, least: int | None = None, most: int | None = None, *, flag: str = "") -> Any:
    """Describe a setting: what it means, its bounds, and of one that is on or off what both are called."""
    return field(default=None, metadata={"meaning": meaning, "least": least, "most": most, "flag": flag})


@dataclass(frozen=True, kw_only=True)
class TypeSettings:
    """Settings of one event type; None leaves a setting as it is."""

    lease_ms: int | None = _setting("Its lease, in milliseconds.", 100, 3_600_000)
    max_attempts: int | None = _setting("The most attempts of a delivery.", 1, 100)
    retry_base_ms: int | None = _setting("Its pause before the first retry, in milliseconds.", 1, 86_400_000)
    retry_max_ms: int | None = _setting("Its longest pause before a retry, in milliseconds.", 1, 86_400_000)
    retry_jitter_ms: int | None = _setting("Its random addition to each pause, in milliseconds.", 0, 3_600_000)
    retry_multiplier: float | None = _setting(
        "By how much each pause is longer than the one before. Default: 2.", 1, 10
    )
    ttl_s: int | None = _setting("Its time to live, in seconds.", 1, 2_419_200)
    lane: Lane | None = None
    at_most_once: bool | None = _setting(
        "Whether a push whose answer was lost is not sent again (at most once), or is (at least once).",
        flag="--at-most-once/--at-least-once",
    )
    inbox: bool | None = _setting("Whether its events appear in inboxes. Default: they do.", flag="--inbox/--no-inbox")
    inbox_days: int | None = _setting("For how many days its events stay in inboxes. Default: 90.", 1, 3_650)
    opens: bool | None = _setting("Whether phones report taps, and Relevo counts them.", flag="--opens/--no-opens")
    complete_on: Literal["read", "opened"] | None = _setting(
        "Which action on one phone ends the waiting pushes on the owner's other phones."
    )
    quiet: Literal["wait", "silent", "ignore"] | None = _setting(
        "What its events do in quiet hours: wait for the end (default of bulk), go silently, or ignore them "
        "(default of urgent)."
    )
    quiet_max_wait_s: int | None = _setting(
        "How many seconds to wait for the end of quiet hours at most, before it goes silently.", 60, 604_800
    )
    quiet_deadline: Literal["silent", "expired"] | None = _setting(
        "If the deadline is within quiet hours: send silently at once (default), or expire."
    )
    quiet_spread_s: int | None = _setting(
        "Over how many seconds Relevo spreads its pushes after the end of quiet hours. Default: 300.", 0, 7_200
    )
    batch_window_s: int | None = _setting(
        "For how many seconds to gather its personal events into one push; 0 ends that.", 0, 86_400
    )
    batch_longest_s: int | None = _setting(
        "Each further event extends the window, up to so many seconds in all.", 0, 86_400
    )
    batch_first: bool | None = _setting(
        "Whether to send the first event at once and gather only the following ones.",
        flag="--batch-first/--no-batch-first",
    )


@audit.audited
def set_event_type(
    database: Database, settings: Settings, event_type: str, given: TypeSettings, removed: Collection[str] = ()
) -> None:
    """Set what differs for one event type, and let it follow the settings in what is removed. It applies from now on.

    An event that says otherwise itself has the last word on time to live, lane and policy. The type that tells batches
    of this one follows it, but for what is set for that one itself.
    """
    if given.lease_ms is not None and given.lease_ms <= 2 * settings.push_request_timeout_ms:
        longest = settings.push_request_timeout_ms
        raise UsageError(
            f"A lease of {given.lease_ms} ms is too short for requests of up to {longest} ms.",
            hint="Choose more than twice PUSH_REQUEST_TIMEOUT_MS.",
        )
    written = {name: value for name, value in asdict(given).items() if value is not None} | dict.fromkeys(removed)
    try:
        database.execute(_SQL["write_event_type"], {"event_type": event_type, "given": Jsonb(written)})
    except pg.CheckViolation as error:
        raise UsageError(
            f"{event_type} cannot be set so: its first pause must not exceed its longest, and every value its bounds.",
            hint="`relevo event-type --help` names them.",
        ) from error


@audit.audited
def reset_event_type(database: Database, event_type: str) -> bool:
    """Remove all settings of an event type; return whether it had any."""
    [[differed]] = database.execute(_SQL["reset_event_type"], {"event_type": event_type}).fetchall()
    return bool(differed)


def list_event_types(database: Database) -> list[Row]:
    """Return the event types that differ from the settings."""
    return fetch(database, _SQL["list_event_types"])
