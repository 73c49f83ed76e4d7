"""Search by a text: an event, a phone, an owner or a tender."""

from __future__ import annotations

from dataclasses import dataclass, field

from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators import events
from relevo.operators.reading import Row, as_uuid, fetch, storable

_SQL = queries.load("phones", "tenders")

_MOST_FOUND = 20


@dataclass(frozen=True)
class Found:
    """Hits of a text, by kind."""

    events: list[Row] = field(default_factory=list)
    phones: list[Row] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    tenders: list[Row] = field(default_factory=list)
    """One row for each event that told of it, and one without an event where none did."""
    by_token: bool = False
    """Whether the text is a push token, which must not be shown or put into an address."""

    def __bool__(self) -> bool:
        """Return whether anything fits."""
        return bool(self.events or self.phones or self.owners or self.tenders)


def find(database: Database, text: str) -> Found:
    """Return what an event's number or key, an owner, an installation, a push token or a tender's code leads to."""
    if not storable(text):
        return Found()
    number = as_uuid(text)
    phones = fetch(database, _SQL["find_phone"], installation_id=number, token=text)
    tenders = fetch(database, _SQL["find_tenders"], code=text, limit=_MOST_FOUND)
    told = {row["id"] for row in tenders}
    return Found(
        [row for row in events.find(database, text) if row["id"] not in told],
        phones,
        [row["owner"] for row in fetch(database, _SQL["find_owner"], owner=text)],
        tenders,
        any(row["installation_id"] != number for row in phones),
    )
