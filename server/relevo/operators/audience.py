"""The audience of an event, and who of it gets nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from psycopg import errors as pg

from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.reading import Row, fetch

_SQL = queries.load("phones")

_OWNERS_AT_ONCE = 100


@dataclass(frozen=True)
class LeftOut:
    """How many of the phones that are meant were looked at, and how many of them get nothing, by the reason."""

    looked_at: int
    reasons: dict[str, int]

    @property
    def is_all(self) -> bool:
        """Return whether there were no more than were looked at."""
        return self.looked_at < MOST_COUNTED


def left_out(
    database: Database,
    *,
    installations: Sequence[str] = (),
    owners: Sequence[str] = (),
    everyone: bool = False,
    category: str | None = None,
    project: str | None = None,
) -> LeftOut:
    """Count who of an audience gets no push, and why; of everyone, the newest phones are looked at."""
    asked = {"installations": list(installations), "owners": list(owners), "everyone": everyone, "category": category}
    asked["project"] = project
    rows = fetch(database, _SQL["count_left_out"], **asked, most=MOST_COUNTED)
    reasons = {row["reason"]: row["phones"] for row in rows if row["reason"] is not None}
    return LeftOut(sum(row["phones"] for row in rows), reasons)


@dataclass(frozen=True)
class Nobody:
    """Why an event went out to nobody, judged by the phones as they are today."""

    why: str
    """owners_, installations_ or everyone_ with unknown (there is no such phone) or silent (none may receive);
    owners_elsewhere where the owners have phones in other projects only; matching where no preference does;
    attributes where no phone has them;
    not_then where some may receive today."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why phones that are meant get nothing, and how many."""


def nobody(database: Database, event: Row) -> Nobody | None:
    """Return why an event went out to nobody; None if it has not gone out, or somebody got it."""
    if event["state"] != "fanned" or event["deliveries_created"] or event["end_reason"]:
        return None
    if event["audience"] in ("matching", "attributes"):
        return Nobody(event["audience"])
    found = left_out(
        database,
        installations=[str(each) for each in named_phones(database, event["id"], limit=MOST_COUNTED)],
        owners=event["owners"],
        everyone=event["audience"] == "everyone",
        category=event["category"],
        project=event["project"],
    )
    whom = "owners" if event["owners"] else event["audience"]
    if not found.looked_at and _has_known(database, event["owners"]):
        return Nobody("owners_elsewhere")
    if not found.looked_at:
        return Nobody(f"{whom}_unknown")
    silent = sum(found.reasons.values()) == found.looked_at
    return Nobody(f"{whom}_silent", found.reasons) if silent else Nobody("not_then")


def are_elsewhere(database: Database, owners: Sequence[str], project: str | None) -> bool:
    """Return whether the phones of these owners are all in other projects than that of an event for them."""
    return not left_out(database, owners=owners, project=project).looked_at and _has_known(database, owners)


def _has_known(database: Database, owners: Sequence[str]) -> bool:
    return len(unknown_owners(database, owners)) < len(owners[:_OWNERS_AT_ONCE])


def named_phones(database: Database, event_id: int, *, limit: int) -> list[UUID]:
    """Return installations that an event names."""
    rows = fetch(database, _SQL["list_named_phones"], event_id=event_id, limit=limit)
    return [row["installation_id"] for row in rows]


def unknown_installations(database: Database, installations: Sequence[UUID]) -> list[UUID]:
    """Return those of these installations that nobody registered; nothing to who may not look."""
    with suppress(pg.InsufficientPrivilege):
        rows = fetch(database, _SQL["list_unknown_installations"], installations=list(installations))
        return [row["installation_id"] for row in rows]
    return []


def unknown_owners(database: Database, owners: Sequence[str]) -> list[str]:
    """Return those of these owners, of the first hundred, that no installation has; nothing to who may not look."""
    with suppress(pg.InsufficientPrivilege):
        rows = fetch(database, _SQL["list_unknown_owners"], owners=list(owners[:_OWNERS_AT_ONCE]))
        return [row["owner"] for row in rows]
    return []
