"""Inboxes for operators: a page of one, and how much of it is unread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from relevo.client import inboxes
from relevo.client.inboxes import InboxCounts, InboxPage, Status
from relevo.core.hidden_texts import shown
from relevo.database.pool import Database

_SHOWN = 10
_MOST_PROJECTS = 5


@dataclass(frozen=True)
class Inbox:
    """A page of an inbox, and its counts."""

    page: InboxPage
    counts: InboxCounts
    project: str | None = None


def read(
    database: Database,
    *,
    owner: str | None = None,
    installation_id: UUID | None = None,
    project: str | None = None,
    status: Status = "current",
    before: str | None = None,
    limit: int = 20,
) -> Inbox:
    """Read a page of an inbox, newest first, and count what is unread and unseen in it."""
    whose: dict[str, Any] = {"owner": owner, "installation_id": installation_id, "project": project}
    with database.connection() as connection:
        page = inboxes.inbox(connection, **whose, status=status, before=before, limit=limit)
        counts = inboxes.inbox_counts(connection, **whose)
    return Inbox(shown(page), counts, project)


def of_owner(database: Database, owner: str, projects: Sequence[str]) -> list[Inbox]:
    """Return the newest items of an owner in each of some projects, of which few are looked at."""
    asked: Sequence[str | None] = sorted(set(projects))[:_MOST_PROJECTS] or [None]
    return [read(database, owner=owner, project=each, status="all", limit=_SHOWN) for each in asked]
