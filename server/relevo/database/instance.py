"""Where a database belongs: a copy of it pushes to nobody until a person says that it is at home here.

Its identity is the server's own identifier, the database's number in it and RELEVO_INSTANCE. A failover keeps all
three; a dump that is loaded elsewhere changes the first two, and a copied volume under another name the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.core.logs import get_logger
from relevo.database.pool import Connection, Database

_SQL = queries.load("instance", "wakeups")
_log = get_logger("relevo.database.instance")
REMEDY = "`relevo adopt`"
_MOST_TOLD = 500


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
    at_work: str | None = None
    """A worker that lives and works here, as of late."""
    seen_s: float = 0.0
    """How long ago it was seen."""

    def differences(self) -> list[str]:
        """Return how the database differs from its home; nothing if it is there."""
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

    @property
    def would_stop(self) -> str:
        """Name a worker that an adoption from here would stop: it is at work where the database belongs."""
        renamed_alone = any(self._renamed()) and not any(self._moved())
        return self.at_work or "" if renamed_alone else ""

    def misnamed(self) -> dict[str, str | None]:
        """Name the instance here, the one where a worker is at work, and that worker; nothing if there is none."""
        if not self.would_stop or self.home is None:
            return {}
        return {"here": self.here.name, "home": self.home.name, "worker": self.would_stop}

    def trouble(self) -> str:
        """Return why nothing may be sent from here; nothing if all is well."""
        found = self.differences()
        if not found:
            return ""
        if there := self.misnamed():
            return (
                f"RELEVO_INSTANCE is {there['here'] or 'unset'} here, and {there['home'] or 'unset'} for worker "
                f"{there['worker']}, which runs on this database; only the reaper runs here until both are equal"
            )
        hint = "" if any(self._moved()) else "restore the former RELEVO_INSTANCE, or "
        return (
            "this database looks like a copy, so Relevo sends nothing from it and runs only the reaper: "
            f"{'; '.join(found)}; {hint}run {REMEDY} if the database belongs here"
        )


def read(connection: Connection, settings: Settings) -> Standing:
    """Return where this database belongs, and where it is."""
    row = connection.execute(_SQL["read_instance"]).fetchone()
    assert row is not None
    recorded, identifier, oid, name, recorded_at, identifier_here, oid_here, at_work, seen_s = row
    here = Identity(identifier_here, oid_here, settings.relevo_instance)
    home = Identity(identifier, oid, name) if recorded else None
    return Standing(here, home, recorded_at, at_work, seen_s or 0.0)


def record(database: Database, settings: Settings) -> None:
    """Record at the first start where this database belongs."""
    database.execute(_SQL["record_instance"], {"name": settings.relevo_instance})


def count_queued(database: Database, most: int) -> dict[str, int]:
    """Count, up to a bound, what would begin to move once this database is adopted."""
    with database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL["count_queued"], {"most": most}).fetchall()[0]


def adopt(
    database: Database,
    settings: Settings,
    shown: Standing,
    queued: dict[str, int],
    adopted_by: str,
    *,
    force: bool = False,
) -> None:
    """Make this database's present place its home, record who did it and what was queued, and call the cycles at once.

    What would stop a fleet that is at work is refused, unless it is forced.
    """
    decided = {
        "name": settings.relevo_instance,
        "adopted_by": adopted_by[:200],
        "queued": Jsonb(queued),
        "recorded_at": shown.recorded_at,
    }
    with database.connection() as connection:
        if not force:
            _refuse_to_stop(read(connection, settings))
        if connection.execute(_SQL["adopt_instance"], decided).fetchone() is None:
            raise UsageError("Somebody else adopted this database at the same moment.", hint="Run the command again.")
        for cycle in ("fanout", "dispatch", "receipt"):
            connection.execute(_SQL["send_wake"], {"cycle": cycle})
    _log.warning("database_adopted", adopted_by=adopted_by, was=shown.differences(), queued=queued)


def _refuse_to_stop(now: Standing) -> None:
    if not now.would_stop or now.home is None:
        return
    there = f"RELEVO_INSTANCE={now.home.name}" if now.home.name else "no RELEVO_INSTANCE"
    remedy = f"Set {there} in this shell" if now.home.name else "Unset RELEVO_INSTANCE in this shell"
    raise UsageError(
        f"Worker {now.would_stop} is at work on this database with {there} (seen {now.seen_s:.0f} s ago); "
        f"an adoption with {f'RELEVO_INSTANCE={now.here.name}' if now.here.name else 'none'} would stop it.",
        hint=f"{remedy}, as that worker has it: then nothing is to be adopted. To give the fleet another name, "
        "stop its workers first, or say --force.",
    )


class Guard:
    """Knows whether this process's database belongs here; looks whenever it is asked to, and tells of a change once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.trouble = ""
        """Why nothing may be sent from here; nothing if all is well."""
        self.differs = ""
        """In what the database differs from where it belongs."""

    def look(self, connection: Connection) -> str:
        """Look again, and return why nothing may be sent from here."""
        before, standing = self.trouble, read(connection, self._settings)
        self.trouble, self.differs = standing.trouble(), "; ".join(standing.differences())[:_MOST_TOLD]
        if self.trouble and not before:
            _log.error("database_belongs_elsewhere", why=self.trouble)
        elif before and not self.trouble:
            _log.info("database_belongs_here")
        return self.trouble
