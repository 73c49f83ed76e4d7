"""Shadow report: what Relevo would have sent in shadow mode, compared with what another system sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from psycopg.rows import dict_row

from relevo.client import verbs
from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.database.pool import Connection, Database
from relevo.operators.reading import Row
from relevo.operators.shadow_sends import Refused, Send, Source, read

_SQL = queries.load("shadow")
_BATCH = 5_000
KINDS = ("missing", "extra", "later", "earlier", "doubled")
"""How both sides may differ: they sent it alone, Relevo would have alone, it later or earlier, they again."""
UNKNOWN, NOT_ENQUEUED = (
    "Relevo knows no phone or owner of this name.",
    "Your app enqueued no such event around this time.",
)


@dataclass(frozen=True)
class Asked:
    """What is compared: of which project, from when to when, and how far apart the same push may be."""

    project: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tolerance_s: int = 300
    window_s: int = 43_200
    limit: int = 20


@dataclass(frozen=True)
class Compared:
    """The result: how many pushes are the same, how many differ in which way, and the first of these."""

    since: datetime
    until: datetime
    by: tuple[str, str]
    """By which persons (phone or owner), and by what (key or title)."""
    counts: dict[str, int]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    unusable: int = 0
    """How many sends name no such person or thing, though others do."""

    @property
    def differs(self) -> bool:
        """Whether there is any difference."""
        return any(self.counts[kind] for kind in KINDS)


def add(connection: Connection, sends: Iterable[Send]) -> int:
    """Keep what another system sent; return how many."""
    left, count = iter(sends), 0
    while batch := list(islice(left, _BATCH)):
        columns = {f"{name}s": [getattr(each, name) for each in batch] for name in Send._fields}
        count += connection.execute(_SQL["add_sends"], columns).rowcount
    return count


def compare(database: Database, asked: Asked, source: Source | None = None, refused: Refused | None = None) -> Compared:
    """Compare; what a file has is compared with what was reported, and not kept."""
    with database.transaction() as connection, connection.transaction(force_rollback=True):
        connection.execute(_SQL["give_time"])
        if source is not None:
            add(connection, read(source, refused if refused is not None else Refused()))
        return _compared(connection, asked)


def _compared(connection: Connection, asked: Asked) -> Compared:
    with connection.cursor(row_factory=dict_row) as cursor:
        seen = cursor.execute(_SQL["describe_sends"], vars(asked)).fetchall()[0]
        if not seen["sends"]:
            raise UsageError(
                "There is nothing to compare with: no send of the other system is known.",
                hint="Name a file of its sends, or have it report them: POST /v1/shadow/sent.",
            )
        by_phone = bool(seen["phones"] == seen["sends"])
        by_key = bool(seen["keys"] == seen["sends"])
        given = vars(asked) | {
            "since": asked.since or seen["first"],
            "until": asked.until or seen["last"],
            "by_phone": by_phone,
            "by_key": by_key,
            "with_type": bool(seen["types"] == seen["sends"]),
        }
        found = cursor.execute(_SQL["compare_shadow"], given).fetchall()
        counts = dict.fromkeys(("same", *KINDS), 0) | {row["kind"]: row["total"] for row in found}
        rows = {kind: [row for row in found if row["kind"] == kind] for kind in KINDS}
        for row in rows["missing"]:
            row["why"] = _why(cursor, row, given)
    unusable = 0 if by_key else seen["sends"] - seen["titles"]
    by = "phone" if by_phone else "owner", "key" if by_key else "title"
    shown = {kind: [_shown(row) for row in listed[: asked.limit]] for kind, listed in rows.items()}
    return Compared(given["since"], given["until"], by, counts, shown, unusable)


def _why(cursor: Any, row: Row, given: dict[str, Any]) -> str:
    """Return why Relevo would not have sent what they sent, in the words of an explanation."""
    found = cursor.execute(_SQL["find_missing"], given | {name: row[name] for name in _NAMED}).fetchall()[0]
    if found["installation_id"] is None:
        return UNKNOWN
    if found["event_id"] is None:
        return NOT_ENQUEUED
    return verbs.explain(cursor.connection, found["event_id"], found["installation_id"]).reason


_NAMED = ("sent_at", "installation_id", "owner", "event_type", "event_key", "title")


def _shown(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("kind", "total", "n") and value is not None}


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each difference of a kind."""
    for row in rows:
        who = row.get("owner") or row.get("installation_id") or "an unknown phone"
        what = row.get("event_key") or row.get("title") or ""
        kind = f"{row['event_type']} " if row.get("event_type") else ""
        times = [f"{name} {row[column]:%Y-%m-%d %H:%M:%S}Z" for name, column in _TIMES if row.get(column)]
        why = f" {row['why']}" if row.get("why") else ""
        yield f"{kind}{what} to {who} ({', '.join(times)}).{why}"


_TIMES = (("they sent it", "sent_at"), ("Relevo would have", "due_at"))
