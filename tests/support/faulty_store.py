"""A store with faults, and what became of the month that is exported to it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from relevo.app import archive_store
from relevo.core.errors import ArchiveError
from relevo.core.ports import ArchiveStore
from relevo.cycles.export import Export
from support.old_months import a_run, month_ago

OLD = month_ago(5)
NAME = ("notification_deliveries", f"{OLD:%Y-%m}")
COLD = f"relevo_archive.notification_deliveries_{OLD:%Y_%m}"


class Faulty:
    """A store that does what it is told, until a fault is switched on."""

    def __init__(self, inner: ArchiveStore) -> None:
        self.inner = inner
        self.faults: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The store behind it."""
        return self.inner.name

    def put(self, key: str, path: Path, *, replace: bool = False) -> bool:
        """Store, maybe something else."""
        if damage := self.faults.get("put"):
            damage(key, path)
        return self.inner.put(key, path, replace=replace)

    def fetch(self, key: str, path: Path) -> None:
        """Fetch, maybe something else."""
        self.inner.fetch(key, path)
        if damage := self.faults.get("fetch"):
            damage(key, path)

    def listing(self, prefix: str) -> Any:
        """List."""
        return self.inner.listing(prefix)

    def tidy(self, prefix: str) -> None:
        """Tidy, or refuse."""
        if refuse := self.faults.get("tidy"):
            refuse(prefix, None)
        self.inner.tidy(prefix)


def flip(key: str, path: Path) -> None:
    """Change one byte of a part."""
    if key.endswith(".parquet"):
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)


def truncate(key: str, path: Path) -> None:
    """Cut a part in half."""
    if key.endswith(".parquet"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refuse(key: str, _path: object) -> None:
    """Refuse everything."""
    raise ArchiveError(f"The store is in trouble with {key}.", hint="Try again later.")


def steps(app: Any, store: Any, most: int = 100) -> list[Any]:
    """Take export's steps in one run until there is nothing more to do."""
    exporting, taken = Export(a_run(app, "archive-export"), store), []
    for _ in range(most):
        taken.append(exporting.step())
        if not taken[-1].more:
            return taken
    raise AssertionError("it did not come to an end")


def row(conn: psycopg.Connection[Any], month: date = OLD) -> Any:
    """Return state, mismatches and trouble of the month."""
    return conn.execute(
        "select state, mismatches, last_error from relevo.archive_exports"
        " where entity = 'notification_deliveries' and month = %s",
        [month],
    ).fetchone()


def still_there(conn: psycopg.Connection[Any]) -> bool:
    """Tell whether all rows are still in the database."""
    return conn.execute(f"select count(*) from {COLD}").fetchone() == (300,)


def look_before_the_drop(app: Any) -> str:
    """Take one step of export when the grace is over, and return its problem."""
    store = archive_store(app.settings)
    assert store is not None
    exporting = Export(a_run(app, "archive-export", datetime.now(UTC) + timedelta(days=30)), store)
    step = exporting.step()
    return "".join(step.problems)
