"""Whether Android phones ring where pushes are to go silently, and what is said of it where that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.config import Settings

if TYPE_CHECKING:  # a glance at the status loads little
    from relevo.operators.event_types import TypeSettings

RINGS: Final = (
    "PUSH_QUIET_CHANNEL is not set: a push that goes silently in quiet hours, also because its deadline lies in them, "
    "makes a sound on Android."
)
MEND: Final = "Create a channel without sound in the app, and set PUSH_QUIET_CHANNEL to its id on every worker."
WARNING: Final = f"{RINGS} {MEND}"


def warnings_of(settings: Settings, *, silently: bool) -> list[str]:
    """Return what to warn of where something was set that lets pushes go silently."""
    return [WARNING] if silently and not settings.push_quiet_channel else []


def lets_go_silently(given: TypeSettings) -> bool:
    """Return whether what was set for an event type lets its pushes go silently."""
    return given.quiet == "silent" or given.quiet_deadline == "silent" or given.quiet_max_wait_s is not None
