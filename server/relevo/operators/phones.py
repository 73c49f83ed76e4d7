"""Phones and their owners: what they ask for, what was sent to them, and why they got an event or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from relevo.client import verbs
from relevo.client.values import Explanation
from relevo.core import queries
from relevo.core.hidden_texts import shown
from relevo.database.pool import Database
from relevo.operators.reading import MAX_LIMIT, Row, fetch, storable

_SQL = queries.load("phones")

MOST_PHONES = 20
"""As many phones of an owner are shown."""
_EXPLAINED_EVENTS = 10
_EXPLAINED_PHONES = 4
_MOST_PREFERENCES = 200


def installations(
    database: Database,
    *,
    project: str | None = None,
    token: str | None = None,
    owner: str | None = None,
    installation_id: UUID | None = None,
    limit: int = 20,
) -> list[Row]:
    """Return installations, newest first, their tokens shortened; by project, token, owner or id if asked."""
    wanted = {"project": project, "token": token, "owner": owner, "installation_id": installation_id}
    return fetch(database, _SQL["list_installations"], **wanted, limit=min(limit, MAX_LIMIT))


@dataclass(frozen=True)
class Phones:
    """Some phones with what they ask for, and what was sent to them."""

    rows: list[Row]
    preferences: dict[UUID, list[Row]]
    history: list[Row]
    next: int | None = None
    """Before which delivery the next page of the history begins; None if there is none."""


def phone(database: Database, installation_id: UUID, *, before: int | None = None, limit: int = 25) -> Phones | None:
    """Return one phone, or None if there is none; of a forgotten one its history alone."""
    found = _phones(database, [installation_id], before, limit)
    return found if found.rows or found.history else None


def owner(database: Database, name: str, *, before: int | None = None, limit: int = 25) -> Phones | None:
    """Return the newest phones of an owner, or None if there is no such owner."""
    if not storable(name) or not fetch(database, _SQL["find_owner"], owner=name):
        return None
    listed = fetch(database, _SQL["list_phones_of_owner"], owner=name, limit=MOST_PHONES)
    return _phones(database, [row["installation_id"] for row in listed], before, limit, name)


def owners(database: Database, first: str = "", *, behind: bool = False, limit: int = 25) -> tuple[list[Row], str]:
    """Return owners by their names, from one on or behind it, and behind which the next page begins, if any."""
    if first and not storable(first):
        return [], ""
    rows = fetch(database, _SQL["list_owners"], first=first, behind=behind, limit=limit + 1, most=MOST_PHONES)
    return rows[:limit], rows[limit - 1]["owner"] if len(rows) > limit else ""


def owners_of(database: Database, installations: Sequence[UUID]) -> dict[UUID, str]:
    """Return the owners of phones; those without one lack."""
    rows = fetch(database, _SQL["list_owners_of"], installations=list(installations))
    return {row["installation_id"]: row["owner"] for row in rows}


def _phones(
    database: Database, installations: Sequence[UUID], before: int | None, limit: int, owner: str | None = None
) -> Phones:
    asked = {"installations": list(installations)}
    rows = fetch(database, _SQL["list_phones"], **asked)
    preferences: dict[UUID, list[Row]] = {}
    for row in fetch(database, _SQL["list_preferences_of_phones"], **asked, limit=_MOST_PREFERENCES):
        preferences.setdefault(row["installation_id"], []).append(row)
    history = fetch(database, _SQL["list_history"], **asked, owner=owner, before=before, limit=limit + 1)
    more = history[limit - 1]["id"] if len(history) > limit else None
    return Phones(rows, preferences, history[:limit], more)


@dataclass(frozen=True)
class Reason:
    """Why a phone got an event, or not."""

    installation_id: UUID
    told: Explanation
    """By the phone as it is today."""
    changes: Row | None = None
    """The phone's changes since the fan-out, with their times; None before that, or if phone or event is gone."""


def explain(database: Database, event_id: int, installations: Sequence[UUID]) -> list[Reason]:
    """Return for some phones why each gets an event, or not, and what was changed since."""
    asked = installations[:MOST_PHONES]
    changes = changes_since(database, event_id, asked)
    with database.connection() as connection:
        return [Reason(each, shown(verbs.explain(connection, event_id, each)), changes.get(each)) for each in asked]


@dataclass(frozen=True)
class Recent:
    """One of the latest events, and for some phones why each got it, or not."""

    event: Row
    reasons: list[Reason]


def recent(database: Database, installations: Sequence[UUID]) -> list[Recent]:
    """Return of the latest events that are not for others why some phones, a few of them, got each, or not."""
    asked = installations[:_EXPLAINED_PHONES]
    if not asked:
        return []
    latest = fetch(database, _SQL["list_events_for"], installations=list(asked), limit=_EXPLAINED_EVENTS)
    return [Recent(row, explain(database, row["id"], asked)) for row in latest]


def changes_since(database: Database, event_id: int, installations: Sequence[UUID]) -> dict[UUID, Row]:
    """Return what was changed of some phones since an event went out."""
    rows = fetch(database, _SQL["list_changes_since"], event_id=event_id, installations=list(installations))
    return {row["installation_id"]: row for row in rows}
