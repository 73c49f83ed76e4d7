"""People who sign in with a provider of identities: what they may do follows from their groups, at each login anew.

A person has a row among the tokens, for sessions, roles and the audit log; nobody knows a token for it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from typing import cast

from relevo.access.api_tokens import Role, Token
from relevo.access.oidc import Attempt, Identity, SignOnError
from relevo.config.sign_on import ROLES, GroupRole
from relevo.core import queries
from relevo.core.errors import NotFoundError
from relevo.core.phrases import clipped
from relevo.database.pool import Database
from relevo.operators import audit

_SQL = queries.load("sign_on", "phone_access")
_LONGEST = 45
_STATE_S = 3_600


class NoAccessError(SignOnError):
    """The person is who they are, and may not see the dashboard."""


def role_of(identity: Identity, roles: Sequence[GroupRole]) -> Role | None:
    """Return the highest role that a person's groups have, or None if they have none."""
    given = {each.role for each in roles if each.group in identity.groups}
    return cast("Role | None", max(given, key=ROLES.index, default=None))


def sign_in(database: Database, attempt: Attempt, identity: Identity, roles: Sequence[GroupRole]) -> Token:
    """Return who a person is here, with the role of the person's groups, for a session to begin.

    Whoever lost all groups loses all sessions, too. A login comes to its end once.
    """
    who = f"{clipped(identity.name, _LONGEST)} ({clipped(identity.subject, _LONGEST)})"
    named = {"issuer": identity.issuer, "subject": identity.subject}
    role = role_of(identity, roles)
    if role is None:
        ended = database.execute(_SQL["end_person"], named).rowcount
        raise NoAccessError(f"{who} is in no group of OIDC_ROLES; {ended} sessions ended.")
    used = {"digest": hashlib.sha256(attempt.state.encode()).digest(), "expires": time.time() + _STATE_S}
    if not database.execute(_SQL["use_signature"], used).rowcount:
        raise SignOnError("This login came to its end before.")
    drawn = {"id": secrets.token_hex(6), "name": who, "role": role, "secret_hash": secrets.token_bytes(32)}
    row = database.execute(_SQL["write_person"], {**drawn, **named, "project": None}).fetchone()
    if row is None:
        raise NoAccessError(f"The access of {who} was revoked here.")
    return Token(*row)


def restore(database: Database, token_id: str) -> str:
    """Allow a person whose token was revoked to sign in again; return the person's name."""
    with audit.recorded(database, "restore_person", id=token_id):
        row = database.execute(_SQL["restore_person"], {"id": token_id}).fetchone()
        if row is None:
            raise NotFoundError(
                f"There is no person {token_id} whose access was revoked.",
                hint="`relevo token list` lists people, too.",
            )
    return str(row[0])
