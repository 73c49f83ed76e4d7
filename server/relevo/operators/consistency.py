"""Whether what the tables hold fits together: where deliveries stand, and what is counted of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby

from relevo.core import queries
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.operators.formats import in_numbers
from relevo.operators.reading import Row, fetch, of_this_version

_SQL = queries.load("consistency")

_DELIVERIES_AT_ONCE = 5_000
_DEAD_AT_ONCE = 2_000
_EVENTS_AT_ONCE = 100
_CHUNKS_AT_ONCE = 200
_YOUNG_MS = 120_000
_EXAMPLES = 3
MISPLACED = {
    "not_queued": (
        ("open delivery stands", "open deliveries stand"),
        "in no chunk and no claim, and will never be sent",
        "`relevo doctor --repair` queues them.",
    ),
    "queued_twice": (
        ("delivery stands", "deliveries stand"),
        "in more than one chunk or claim, and may be pushed twice",
        "`relevo doctor --repair` leaves each in one; what two claims hold is left until they end.",
    ),
    "queued_but_ended": (
        ("delivery is", "deliveries are"),
        "queued although gone or not to be sent any more, and may be pushed again",
        "`relevo doctor --repair` takes them out of the queue.",
    ),
    "not_awaited": (
        ("sent delivery stands", "sent deliveries stand"),
        "in no awaited receipts, and will never be confirmed",
        "`relevo doctor --repair` has them asked for.",
    ),
    "awaited_but_ended": (
        ("receipt is", "receipts are"),
        "awaited of deliveries that are gone or wait for none, which is harmless",
        "The receipt cycle drops them within a day, and `relevo doctor --repair` at once.",
    ),
    "no_dead_letter": (
        ("failed delivery is", "failed deliveries are"),
        "not among the dead letters, where a redrive looks",
        "`relevo doctor --repair` adds them.",
    ),
    "wrong_dead_letter": (
        ("dead letter is", "dead letters are"),
        "of deliveries that are gone or did not fail, and would stop their next failure from being written",
        "`relevo doctor --repair` removes them.",
    ),
}
"""A possible inconsistency of deliveries: how many of what, how, and the next step."""
HARMLESS = frozenset({"awaited_but_ended"})


@dataclass(frozen=True)
class Misplaced:
    """Deliveries that do not stand where they must, each with the chunks or awaited receipts that are wrong."""

    kind: str
    days: list[date]
    ids: list[int]
    places: list[list[int]]


def find_misplaced(
    database: Database, *, now: datetime | None = None, tell: Callable[[int], None] = lambda _: None
) -> Iterator[Misplaced]:
    """Look at all deliveries that are not sealed, piece by piece, and at all that says where they stand.

    What changed within the last two minutes is left alone. After each piece `tell` hears how many rows it had.
    """
    with of_this_version(), database.connection() as connection:
        months = [month for (month,) in connection.execute(_SQL["list_open_months"])]
    for month in months:
        bounds = {"month": month, "now": now, "young_ms": _YOUNG_MS}
        yield from _walk(database, "look_at_deliveries", month, _DELIVERIES_AT_ONCE, tell=tell, bounds=bounds)
    yield from _walk(database, "look_at_chunks", None, _CHUNKS_AT_ONCE, tell=tell)
    yield from _walk(database, "look_at_awaited", None, _CHUNKS_AT_ONCE, tell=tell)
    yield from _walk(database, "look_at_dead_letters", date.min, _DEAD_AT_ONCE, tell=tell)


def _walk(
    database: Database,
    statement: str,
    after_day: date | None,
    limit: int,
    *,
    tell: Callable[[int], None],
    bounds: Mapping[str, object] | None = None,
) -> Iterator[Misplaced]:
    after_id, more = 0, True
    while more:
        piece = {"after_day": after_day, "after_id": after_id, "limit": limit} | dict(bounds or {})
        with of_this_version(), database.transaction() as connection:
            rows = connection.execute(_SQL[statement], piece).fetchall()
        more = False
        for kind, found in groupby(rows, lambda row: row[0]):
            places = [(day, number, wrong or []) for _, day, number, wrong in found]
            if kind == "end":
                ((after_day, after_id, looked_at),) = places
                more = looked_at == [limit]
                tell(sum(looked_at))
            else:
                yield Misplaced(kind, *map(list, zip(*places, strict=True)))


@dataclass(frozen=True)
class Finding:
    """Something that does not fit together: a sentence that names it, and the next step."""

    kind: str
    what: str
    hint: str
    deliveries: int = 0
    harmless: bool = False
    warning: bool = False
    """Whether nothing is wrong yet, and something will be if it stays so."""


def examine(
    database: Database, *, now: datetime | None = None, tell: Callable[[int], None] = lambda _: None
) -> list[Finding]:
    """Look for what does not fit together: schema and version, workers, and where deliveries stand."""
    if missing := migrate.plan(database):
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        what = f"This version needs a newer schema. The database lacks {missing[0]}{more}."
        return [Finding("migrations_missing", what, "Run `relevo migrate`.")]
    workers = [_old_worker(row) for row in fetch(database, _SQL["list_old_workers"], now=now)]
    return workers + _misplaced(database, now, tell) + _miscounted(database)


def find_miscounted(database: Database) -> Iterator[list[int]]:
    """Return which counts of events whose deliveries are not sealed are wrong, page by page."""
    upto: int | None = 0
    while upto is not None:
        with of_this_version(), database.transaction() as connection:
            piece = {"after_id": upto, "limit": _EVENTS_AT_ONCE}
            row = connection.execute(_SQL["look_at_counts"], piece).fetchone()
        wrong, upto = row or ([], None)
        if wrong:
            yield wrong


def _miscounted(database: Database) -> list[Finding]:
    events = [event for page in find_miscounted(database) for event in page]
    hint = "Run `relevo doctor --repair`, which counts anew, and report it: it should not happen."
    found = []
    if events:
        count = "1 event differ" if len(events) == 1 else f"{len(events):,} events differ"
        named = ", ".join(map(str, events[:_EXAMPLES]))
        found.append(Finding("counts_wrong", f"The counts of {count} from their deliveries: {named}.", hint))
    with of_this_version(), database.transaction() as connection:
        if connection.execute(_SQL["look_at_totals"]).fetchone() == (True,):
            found.append(Finding("totals_wrong", "The sums of all deliveries differ from those of the events.", hint))
    return found


def _old_worker(row: Row) -> Finding:
    name = f"{row['worker_id']} (on {row['hostname']}, process {row['pid']})"
    what = f"Worker {name} is of version {row['version']}, which does not work beside this one."
    return Finding("old_worker", what, "Stop it, and start this version in its place.")


def _misplaced(database: Database, now: datetime | None, tell: Callable[[int], None]) -> list[Finding]:
    counts: dict[str, int] = dict.fromkeys(MISPLACED, 0)
    examples: dict[str, list[int]] = {kind: [] for kind in MISPLACED}
    for found in find_misplaced(database, now=now, tell=tell):
        counts[found.kind] += len(found.ids)
        examples[found.kind] = [*examples[found.kind], *found.ids][:_EXAMPLES]
    return [_of_kind(kind, count, examples[kind]) for kind, count in counts.items() if count]


def _of_kind(kind: str, count: int, examples: Sequence[int]) -> Finding:
    (one, many), how, hint = MISPLACED[kind]
    named = ", ".join(map(str, examples)) + (" …" if count > len(examples) else "")
    what = f"{in_numbers(count, one, many)} {how}: {named}."
    return Finding(kind, what, hint, count, harmless=kind in HARMLESS)
