"""Sessions of people at the dashboard: 256 random bits in a cookie, of which the database keeps a hash.

Each belongs to a token, and is good for what the token is good for, as long as the token is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from relevo.access.api_tokens import Token
from relevo.core import queries
from relevo.core.errors import NotFoundError
from relevo.database.pool import Database
from relevo.operators import audit

_SQL = queries.load("api_tokens")
_WRITTEN = re.compile(r"[A-Za-z0-9_-]{43}")
HOURS = 12
"""How long a session lasts, at most."""


def begin(database: Database, token: Token) -> str:
    """Begin a session of a token; what is returned goes into the cookie and is kept nowhere."""
    written = secrets.token_urlsafe(32)
    with audit.recorded(database, "login", id=token.id, name=token.name), database.connection() as connection:
        session = {"secret_hash": _hash(written), "token_id": token.id, "hours": HOURS}
        if connection.execute(_SQL["add_session"], session).fetchone() is None:
            raise NotFoundError(f"There is no valid token {token.id}.", hint="`relevo token make` makes one.")
    return written


def verify(database: Database, written: str) -> Token | None:
    """Return whose session this is, or None if it is nobody's, or it or its token has ended."""
    if _WRITTEN.fullmatch(written) is None:
        return None
    with database.connection() as connection:
        row = connection.execute(_SQL["read_session"], {"secret_hash": _hash(written)}).fetchone()
        if row is None:
            return None
        *who, is_use_due = row
        token = Token(*who)
        if is_use_due:
            connection.execute(_SQL["note_use"], {"id": token.id})
    return token


def end(database: Database, written: str) -> None:
    """End a session, wherever its cookie may still be."""
    with database.connection() as connection:
        connection.execute(_SQL["end_session"], {"secret_hash": _hash(written)})


def form_mark(written: str) -> str:
    """Return what every form of a session carries, so that no other site can send one in its name."""
    return hmac.new(written.encode(), b"form", hashlib.sha256).hexdigest()


def _hash(written: str) -> bytes:
    return hashlib.sha256(written.encode()).digest()
