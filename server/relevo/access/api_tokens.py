"""Tokens for HTTP: 256 random bits each, of which the database keeps a hash, with a role and maybe a project."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any, Literal, get_args

from relevo.core import queries
from relevo.core.errors import NotFoundError, UsageError
from relevo.database.pool import Connection, Database
from relevo.operators import audit
from relevo.operators.reading import fetch

_SQL = queries.load("api_tokens")
_WRITTEN = re.compile(r"relevo_(?P<id>[0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"").digest()
_MAX_NAME, _MAX_PROJECT, MAX_DAYS = 100, 200, 3_650
MAX_LIMIT = 1_000

Role = Literal["app", "observer", "viewer", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)
OBSERVER: Role = "observer"
"""Reads as a viewer does, but no text: `relevo.core.hidden_texts` hides them."""


@dataclass(frozen=True)
class Token:
    """A caller that has proven who it is."""

    id: str
    name: str
    role: Role
    project: str | None = None
    """The only project it may reach; None for all."""
    is_person: bool = False
    """Whether it is a person's who signs in with a provider of identities: nobody knows such a token."""


def make(
    database: Database, name: str, role: Role, *, project: str | None = None, days: int | None = None
) -> tuple[str, Token]:
    """Make a token, and have that recorded; what is returned first is shown this once and kept nowhere."""
    written, token = draw(name, role, project)
    with (
        audit.recorded(database, "make_token", id=token.id, name=token.name, role=role, project=project, days=days),
        database.connection() as connection,
    ):
        add(connection, written, token, days=days)
    return written, token


def draw(name: str, role: Role, project: str | None = None) -> tuple[str, Token]:
    """Return a new token that the database does not know yet, and what its caller is to show; raises UsageError."""
    name = " ".join(name.split())
    if not 0 < len(name) <= _MAX_NAME:
        raise UsageError(
            f"name must be text of 1 to {_MAX_NAME} characters.", hint="Name the program or person that uses the token."
        )
    if project is not None and not 0 < len(project) <= _MAX_PROJECT:
        raise UsageError(f"project must be text of 1 to {_MAX_PROJECT} characters.", hint="Leave it out for all.")
    token = Token(secrets.token_hex(6), name, role, project)
    return f"relevo_{token.id}_{secrets.token_urlsafe(32)}", token


def add(connection: Connection, written: str, token: Token, *, days: int | None = None) -> None:
    """Make a new token valid; raises UsageError if it would read data for owners of other projects."""
    row = {**vars(token), "secret_hash": _hash(written), "days": days}
    if token.project is not None and connection.execute(_SQL["is_sharing_assumed"], row).fetchone() == (True,):
        raise UsageError(
            "Nobody has decided whether owners of the same name in two projects are one person.",
            hint="Run `relevo owner names separate` or `relevo owner names shared`. Until now they are one, and "
            "this token would read what is for owners of other projects.",
        )
    connection.execute(_SQL["add_token"], row)


def revoke(database: Database, token_id: str) -> str:
    """Revoke a token, end its sessions, and return its name; a server that just saw it refuses it within a second."""
    with audit.recorded(database, "revoke_token", id=token_id), database.connection() as connection:
        row = connection.execute(_SQL["revoke_token"], {"id": token_id}).fetchone()
        if row is None:
            raise NotFoundError(f"There is no valid token {token_id}.", hint="`relevo token list` lists them.")
    (name,) = row
    return str(name)


def list_all(database: Database, *, limit: int = 100) -> list[dict[str, Any]]:
    """Return the tokens, newest first, without anything by which one could be used."""
    return fetch(database, _SQL["list_tokens"], limit=min(limit, MAX_LIMIT))


def verify(database: Database, written: str) -> Token | None:
    """Return whose token this is, or None if it is nobody's, revoked or expired; its use is noted once a minute."""
    found = _WRITTEN.fullmatch(written)
    if found is None:
        return None
    with database.connection() as connection:
        row = connection.execute(_SQL["read_token"], {"id": found["id"]}).fetchone()
        *token, secret_hash, is_use_due = row or (_NOBODY, False)
        if not hmac.compare_digest(bytes(secret_hash), _hash(written)) or not token:
            return None
        if is_use_due:
            connection.execute(_SQL["note_use"], {"id": found["id"]})
    return Token(*token)


def form_mark(written: str) -> str:
    """Return what every form of a session carries, so that no other site can send one in its name."""
    return hmac.new(written.encode(), b"form", hashlib.sha256).hexdigest()


def _hash(written: str) -> bytes:
    return hashlib.sha256(written.encode()).digest()
