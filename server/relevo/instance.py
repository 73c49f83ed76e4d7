"""Where a database belongs: a copy of it pushes to nobody until a person says that it is at home here.

Its identity is the server's own identifier, the database's number in it and RELEVO_INSTANCE. A failover keeps all
three; a dump that is loaded elsewhere changes the first two, and a copied volume under another name the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from relevo import queries
from relevo.config import Settings
from relevo.db import Connection, Database
from relevo.errors import UsageError
from relevo.logs import get_logger

_SQL = queries.load("instance")
_log = get_logger("relevo.instance")
REMEDY = "`relevo adopt`"


@dataclass(frozen=True)
class Identity:
    """By what a database is known; the server's identifier is None where nobody may ask for it."""

    system_identifier: str | None
    database_oid: int
    name: str | None


@dataclass(frozen=True)
class Standing:
    """Where a database belongs, and where it is."""

    here: Identity
    home: Identity | None = None
    """None until the first start recorded it."""
    recorded_at: datetime | None = None

    def differences(self) -> list[str]:
        """Say in what it differs from where it belongs; nothing if it is at home."""
        return [*self._moved(), *self._renamed()]

    def _moved(self) -> Iterator[str]:
        if self.home is None:
            return
        was, is_now = self.home.system_identifier, self.here.system_identifier
        if was is not None and is_now is not None and was != is_now:
            yield f"it belongs to the server {was}, and this is {is_now}"
        if self.home.database_oid != self.here.database_oid:
            yield f"it was number {self.home.database_oid} of its server, and is {self.here.database_oid} here"

    def _renamed(self) -> Iterator[str]:
        if self.home is not None and self.home.name != self.here.name:
            home = f"the instance {self.home.name}" if self.home.name else "an instance without a name"
            yield f"it belongs to {home}, and RELEVO_INSTANCE is {self.here.name or 'unset'} here"

    def trouble(self) -> str:
        """Say why nothing may be sent from here, or nothing if all is well."""
        found = self.differences()
        if not found:
            return ""
        hint = "" if any(self._moved()) else "RELEVO_INSTANCE is set as it was, or "
        return (
            "this database looks like a copy; nothing is sent, asked, ingested, exported or dropped from here until "
            f"{hint}{REMEDY} says that it belongs here: {'; '.join(found)}"
        )


def read(connection: Connection, settings: Settings) -> Standing:
    """Return where this database belongs, and where it is."""
    row = connection.execute(_SQL["read_instance"]).fetchone()
    assert row is not None
    recorded, identifier, oid, name, recorded_at, _, identifier_here, oid_here = row
    here = Identity(identifier_here, oid_here, settings.relevo_instance)
    return Standing(here, Identity(identifier, oid, name) if recorded else None, recorded_at)


def record(database: Database, settings: Settings) -> None:
    """Record at the first start where this database belongs."""
    with database.connection() as connection:
        connection.execute(_SQL["record_instance"], {"name": settings.relevo_instance})


def count_queued(database: Database, most: int) -> dict[str, int]:
    """Count, up to a bound, what would begin to move once this database is adopted."""
    with database.connection() as connection:
        cursor = connection.execute(_SQL["count_queued"], {"most": most})
        row = cursor.fetchone()
        assert row is not None
        assert cursor.description is not None
        return {column.name: value for column, value in zip(cursor.description, row, strict=True)}


def adopt(database: Database, settings: Settings, shown: Standing, queued: dict[str, int], adopted_by: str) -> None:
    """Let this database belong where it is, and record who said so and what was queued."""
    decided = {
        "name": settings.relevo_instance,
        "adopted_by": adopted_by[:200],
        "queued": Jsonb(queued),
        "recorded_at": shown.recorded_at,
    }
    with database.connection() as connection:
        if connection.execute(_SQL["adopt_instance"], decided).fetchone() is None:
            raise UsageError("Somebody else adopted this database in this moment.", hint="Look again.")
    _log.warning("database_adopted", adopted_by=adopted_by, was=shown.differences(), queued=queued)


class Guard:
    """Knows whether this process's database belongs here; looks whenever it is asked to, and tells of a change once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.trouble = ""
        """Why nothing may be sent from here; nothing if all is well."""

    def check(self, connection: Connection) -> None:
        """Look again with every heartbeat: a run that is under way stops, too."""
        self.look(connection)

    def look(self, connection: Connection) -> str:
        """Look again, and return why nothing may be sent from here."""
        before, self.trouble = self.trouble, read(connection, self._settings).trouble()
        if self.trouble and not before:
            _log.error("database_belongs_elsewhere", why=self.trouble)
        elif before and not self.trouble:
            _log.info("database_belongs_here")
        return self.trouble
