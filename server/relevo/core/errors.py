"""Every error Relevo raises on purpose: a name, a sentence and a next step."""

from __future__ import annotations

from datetime import datetime


class RelevoError(Exception):
    """Something went wrong that a person can mend; `hint` says how."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class MissingPartError(RelevoError, ModuleNotFoundError):
    """A part of Relevo is not installed; the hint says which to install."""


class ConfigError(RelevoError):
    """One or more settings are wrong; the message names all of them."""


class EmbeddedError(RelevoError):
    """The embedded PostgreSQL could not be found, made, started or reached."""


class MigrationError(RelevoError):
    """The schema and this version's migrations do not fit together."""


class MigrationBusyError(MigrationError):
    """Another process has been migrating for longer than we waited; trying again later is right."""


class DatabaseUnavailableError(RelevoError):
    """PostgreSQL did not answer; trying again later is right."""


class DatabaseRefusedError(DatabaseUnavailableError):
    """PostgreSQL answered and does not let us in; waiting does not help at a start, a person has to mend it."""


class StoppedError(RelevoError):
    """This process was told to stop while it waited for something."""


class UsageError(RelevoError):
    """The command was asked for something that does not exist."""


class NotFoundError(UsageError):
    """The named thing does not exist."""


class RunGivenUpError(RelevoError):
    """A run that got nowhere for too long was given up; what is left of it may do nothing more."""


class CopiedDatabaseError(RelevoError):
    """The database belongs elsewhere: nothing may be sent from it, or dropped in it."""


class LostLeaseError(RelevoError):
    """Another process took over the fleet-wide cycle this run held."""


class OwnershipLostError(RelevoError):
    """A claim is no longer this worker's; `reason` says why, and nothing more may be sent for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, hint="The deliveries go on elsewhere; hand in known answers as evidence.")
        self.reason = reason


class Reschedule(Exception):  # noqa: N818 not an error: a wish
    """Raised by a middleware, a composer or a provider: try these pushes again at `at`, without spending an attempt."""

    def __init__(self, at: datetime, reason: str = "") -> None:
        if at.tzinfo is None:
            raise ValueError("a time to try again needs its time zone, such as datetime.now(UTC) + timedelta(hours=1)")
        super().__init__(reason or f"rescheduled to {at.isoformat()}")
        self.at = at
        self.reason = reason


class InvalidInputError(RelevoError):
    """An event, installation or preference is not valid; the message names what."""


class InvalidSignatureError(RelevoError):
    """A received message lacks the right signature; refuse it."""


class EventConflictError(InvalidInputError):
    """An event of this type and key already exists with other content; the message names what differs."""


class TooManyChoicesError(InvalidInputError):
    """The phones of an owner changed categories too often within a day; the message names the limit."""


class ArchiveError(RelevoError):
    """The archive's store did not do what it was asked for, or holds something else than it should."""


class ArchiveMonthError(ArchiveError):
    """One month cannot go on; the store is well, and so are the others."""


class ArchiveMissingError(ArchiveError):
    """The archive's store has no such object."""
