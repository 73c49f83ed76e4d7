"""Which subscriptions to news a project's caller may reach, and under which names they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from relevo.client import news
from relevo.core import queries
from relevo.database.pool import Connection

_SQL = queries.load("subscriptions")


def stored_name(connection: Connection, name: str, project: str | None) -> str | None:
    """Return the stored name of a subscription; a project has those it made, and those that were made for it."""
    asked = {"names": [_new_name(name, project), name], "project": project}
    found = connection.execute(_SQL["find_subscription"], asked).fetchone()
    return None if found is None else str(found[0])


def subscribe(connection: Connection, name: str, project: str | None, asked: Mapping[str, Any]) -> bool:
    """Subscribe to news, or change a subscription; a caller of one project has the news of that project alone."""
    stored = stored_name(connection, name, project) or _new_name(name, project)
    return news.subscribe_news(connection, stored, **{**asked, **({"project": project} if project else {})})


def _new_name(name: str, project: str | None) -> str:
    """Return under which name a subscription is stored: names that a project's caller chooses are its own."""
    if project is None:
        return name
    mark = hashlib.sha256(f"{project}\n{name}".encode()).hexdigest()[:16]
    return f"{name[: 50 - 1 - len(mark)]}.{mark}"


def shown_name(stored: str, project: str | None) -> str:
    """Return the name that a project's caller chose for the subscription that is stored under this one."""
    chosen = stored.rpartition(".")[0]
    return chosen if project is not None and chosen and _new_name(chosen, project) == stored else stored
