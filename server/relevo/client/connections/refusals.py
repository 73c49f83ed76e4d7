"""Turns what the SQL functions refuse into Relevo's errors, whichever driver told of it."""

from __future__ import annotations

from collections.abc import Iterator

from relevo.core.errors import EventConflictError, InvalidInputError, MigrationError, TooManyChoicesError

_NO_SUCH_FUNCTION, _NO_SUCH_SCHEMA = "42883", "3F000"
_NOT_ALLOWED = "42501"
_BAD_DATA, _BROKEN_CONSTRAINT = "22", "23"
_NO_SUCH_LETTER = ("22P05", "22021")
_OTHER_CONTENT = "23R01"
_TOO_MANY_CHOICES = "23R02"


class refusals:  # noqa: N801 reads as a word where it is used
    """Raises MigrationError and InvalidInputError for what PostgreSQL says; other errors stay the driver's own."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, Exception):
            return
        state, said = _told(error)
        if isinstance(error, UnicodeError) or state in _NO_SUCH_LETTER:
            raise InvalidInputError(
                "A text holds letters that this connection's encoding does not have.",
                hint="Set client_encoding to UTF8 on the connection.",
            ) from error
        if state == _OTHER_CONTENT:
            raise EventConflictError(
                f"{said}.", hint='Use another key for another event; on_conflict="keep" keeps the existing event.'
            ) from error
        if state == _TOO_MANY_CHOICES:
            raise TooManyChoicesError(f"{said}.", hint="Nothing was written; try again tomorrow.") from error
        if state in (_NO_SUCH_FUNCTION, _NO_SUCH_SCHEMA):
            raise MigrationError(
                "This database has no relevo schema of this version.", hint="Run `relevo migrate`."
            ) from error
        if state == _NOT_ALLOWED:
            error.add_note("`relevo grant ROLE` lets the role that your app connects as call these functions.")
        if state[:2] in (_BAD_DATA, _BROKEN_CONSTRAINT):
            raise InvalidInputError(f"{said}.", hint="Nothing was written; correct it and try again.") from error


def _told(error: Exception) -> tuple[str, str]:
    """Return SQLSTATE and sentence of the error PostgreSQL sent, which others may have wrapped."""
    for each in _wrapped(error):
        if state := getattr(each, "sqlstate", None) or getattr(each, "pgcode", None):
            told = getattr(getattr(each, "diag", None), "message_primary", None) or getattr(each, "message", None)
            if told:
                return str(state), str(told)
    return "", ""


def _wrapped(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those it was made from."""
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__
