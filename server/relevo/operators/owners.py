"""Owners, as operators see them: how much is kept of one, and whether equal names of projects are one person."""

from __future__ import annotations

from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators import audit
from relevo.operators.reading import Row, fetch

_SQL = queries.load("owners")


def summary(database: Database, owner: str) -> Row:
    """Return how many phones an owner has, what they chose, and whether they are blocked."""
    [found] = fetch(database, _SQL["summarise_owner"], owner=owner)
    return found


def are_shared(database: Database) -> bool:
    """Return whether equal owner names of several projects are one person."""
    [found] = fetch(database, _SQL["are_owners_shared"])
    return bool(found["shared"])


def share(database: Database, *, shared: bool) -> bool:
    """Set whether equal owner names of several projects are one person; return whether that is a change."""
    with audit.recorded(database, "share_owners", shared=shared) as result:
        [(changed,)] = database.execute(_SQL["share_owners"], {"shared": shared}).fetchall()
        result["answer"] = changed
    return bool(changed)
