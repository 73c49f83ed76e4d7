"""The marker: what an archive is known by, so that a disk that is not mounted is not taken for an empty one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from uuid import UUID, uuid4

from relevo.core import queries
from relevo.core.errors import ArchiveError, ArchiveMissingError, ArchiveMonthError
from relevo.core.ports import ArchiveStore
from relevo.runtime.runs import Run

_SQL = queries.load("marker")
KEY = "_archive.json"
_ABOUT = "The archive of a Relevo. Months are exported only to where this lies."


def check(run: Run, store: ArchiveStore) -> None:
    """Raise unless a store holds the archive that was exported to before under its name; mark it if it is new."""
    row = run.execute(_SQL["find_store"], {"name": store.name}).fetchone()
    try:
        found = _read(store)
    except ArchiveMonthError:
        return  # it lies there, in cold storage
    if row is None:
        known = {"name": store.name, "archive_id": found or _write(store)}
        run.execute(_SQL["record_store"], known)
    elif found != row[0]:
        raise ArchiveError(
            f"{store.name} is not the archive it was before: {KEY} is {'another' if found else 'missing'}.",
            hint="Check that the right disk is mounted. If you emptied it on purpose, set another ARCHIVE_PREFIX.",
        )


def _read(store: ArchiveStore) -> UUID | None:
    with tempfile.TemporaryDirectory(prefix="relevo-marker-") as folder:
        path = Path(folder) / KEY
        try:
            store.fetch(KEY, path)
            return UUID(json.loads(path.read_bytes())["archive_id"])
        except (ArchiveMissingError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _write(store: ArchiveStore) -> UUID:
    """Mark a store that is used for the first time; if somebody else was faster, theirs is its marker."""
    with tempfile.TemporaryDirectory(prefix="relevo-marker-") as folder:
        path = Path(folder) / KEY
        path.write_text(json.dumps({"about": _ABOUT, "archive_id": str(uuid4())}, indent=1) + "\n", encoding="utf-8")
        store.put(KEY, path)
    found = _read(store)
    if found is None:
        raise ArchiveError(
            f"{KEY} in {store.name} is no marker of an archive.", hint="Remove the file if it belongs to no archive."
        )
    return found
