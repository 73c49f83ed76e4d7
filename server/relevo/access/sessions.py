"""Sessions of people at the dashboard: the database keeps a hash of each cookie.

A session belongs to a token and may do what the token may, as long as the token is good. It ends after a while without
use, and some hours after its login at the latest.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from relevo.access.api_tokens import Token
from relevo.core import queries
from relevo.core.errors import NotFoundError, UsageError
from relevo.database.pool import Database
from relevo.operators import audit
from relevo.operators.reading import fetch

_SQL = queries.load("sessions", "api_tokens")
_WRITTEN = re.compile(r"[A-Za-z0-9_-]{43}")
_ID = re.compile(r"[0-9a-f]{12}")
HOURS, IDLE_MINUTES = 12, 480
MOST_LISTED = 1_000
LINK = "login link"
"""The name of the token of a session that a login link began; nobody ever sees that token."""


def begin(
    database: Database, token: Token, *, hours: int = HOURS, idle_minutes: int = IDLE_MINUTES, address: str = ""
) -> str:
    """Begin a session of a token; what is returned goes into the cookie and is kept nowhere."""
    written = secrets.token_urlsafe(32)
    with audit.recorded(database, "login", id=token.id, name=token.name), database.connection() as connection:
        session = {
            "secret_hash": _hash(written),
            "token_id": token.id,
            "hours": hours,
            "idle_minutes": idle_minutes,
            "address": address[:100] or None,
        }
        if connection.execute(_SQL["add_session"], session).fetchone() is None:
            raise NotFoundError(f"There is no valid token {token.id}.", hint="`relevo token make` makes one.")
    return written


def verify(database: Database, written: str, *, is_use: bool = True) -> Token | None:
    """Return whose session this is, or None if it is nobody's, or it or its token has ended.

    A use is noted once a minute; a page that renews itself is no use, so that an open page keeps no session alive.
    """
    if _WRITTEN.fullmatch(written) is None:
        return None
    session = {"secret_hash": _hash(written)}
    with database.connection() as connection:
        row = connection.execute(_SQL["read_session"], session).fetchone()
        if row is None:
            return None
        *who, note_use, note_session = row
        token = Token(*who)
        if note_use:
            connection.execute(_SQL["note_use"], {"id": token.id})
        if note_session and is_use:
            connection.execute(_SQL["note_session"], session)
    return token


def is_proven(database: Database, written: str, minutes: int) -> bool:
    """Return whether somebody proved to hold the token of a session within the last minutes."""
    asked = {"secret_hash": _hash(written), "minutes": minutes}
    [found] = database.execute(_SQL["is_session_proven"], asked).fetchall()
    return bool(found[0])


def prove(database: Database, written: str, holder: Token, token: Token) -> bool:
    """Prove a session anew by a token: its own, or any operator's where a login link began the session."""
    if token.id != holder.id and not (holder.name == LINK and token.role == "operator" and token.project is None):
        return False
    with audit.recorded(database, "prove_session", id=token.id, name=token.name):
        database.execute(_SQL["prove_session"], {"secret_hash": _hash(written)})
    return True


def list_all(
    database: Database, *, token_id: str | None = None, own: str = "", limit: int = 100
) -> list[dict[str, Any]]:
    """Return the sessions that have not ended, the one used last first; `own` is the cookie of who asks."""
    asked = {"token_id": token_id, "own": _hash(own) if own else None, "limit": min(limit, MOST_LISTED)}
    return fetch(database, _SQL["list_sessions"], **asked)


def end(database: Database, written: str) -> None:
    """End a session, wherever its cookie may still be."""
    database.execute(_SQL["end_session"], {"secret_hash": _hash(written)})


def end_listed(database: Database, session_id: str, *, token_id: str | None = None) -> None:
    """End the session of an id that `list_all` returned; if a token is named, the session has to be that token's."""
    with audit.recorded(database, "end_session", session=session_id[:12]):
        asked = {"id": session_id, "token_id": token_id}
        if not _ID.fullmatch(session_id) or not database.execute(_SQL["end_sessions"], asked).rowcount:
            raise NotFoundError(
                f"There is no session {session_id[:12]}.", hint="It may have ended; `relevo sessions list` lists them."
            )


def end_many(database: Database, *, token_id: str | None) -> int:
    """End all sessions of a token, or everybody's; return how many."""
    if token_id is not None and not _ID.fullmatch(token_id):
        raise UsageError(f"{token_id[:50]} is not a token id.", hint="`relevo token list` shows the ids.")
    with audit.recorded(database, "end_sessions", id=token_id) as result:
        count = database.execute(_SQL["end_sessions"], {"id": None, "token_id": token_id}).rowcount
        result["sessions"] = count
    return count


def _hash(written: str) -> bytes:
    return hashlib.sha256(written.encode()).digest()
