"""Whether this process can do its work: each part of it by name, with a reason if not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relevo import insights, migrate
from relevo.config import Settings
from relevo.db import Database
from relevo.errors import RelevoError
from relevo.logs import normalise_error
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.wakeups import Listener

OK = "ok"


@dataclass
class Readiness:
    """What is looked at."""

    settings: Settings
    scheduled: bool
    """Whether this process runs cycles itself, rather than `relevo serve` beside others that do."""
    scheduler: Scheduler | None = None
    listener: Listener | None = None

    def look(self, database: Database) -> dict[str, str]:
        """Return what was found of each part: `ok`, `degraded: …` or what is wrong with it."""
        reached = _database(database)
        if reached != OK:
            return {"database": reached, "migrations": "unknown", **self._process()}
        migrated = _migrations(database)
        if migrated != OK:
            return {"database": OK, "migrations": migrated, **self._process()}
        at_home = insights.standing(database, self.settings).trouble() or OK
        own = self._process() if self.scheduled else {"scheduler": _fleet(database)}
        return {"database": OK, "migrations": OK, "instance": at_home, **own}

    def _process(self) -> dict[str, str]:
        if not self.scheduled:
            return {}
        running = self.scheduler is not None and self.scheduler.is_running
        hearing = self.listener.hearing if self.listener is not None else None
        heard = {"listening": OK, "polling": "degraded: wake-ups are not heard, polling goes on"}
        return {
            "scheduler": OK if running else "not started yet, or stopping",
            "listener": heard.get(hearing or "", "not started yet, or stopped"),
        }


def is_ready(found: Mapping[str, str]) -> bool:
    """Tell whether nothing is wrong; what is degraded still works."""
    return all(said == OK or said.startswith("degraded") for said in found.values())


def _database(database: Database) -> str:
    try:
        database.ping()
    except RelevoError as error:
        return normalise_error(error, 200)
    return OK


def _migrations(database: Database) -> str:
    try:
        missing = migrate.missing(database)
    except RelevoError as error:
        return normalise_error(error, 200)
    return f"{len(missing)} to run, from {missing[0]} on: `relevo migrate`" if missing else OK


def _fleet(database: Database) -> str:
    return OK if insights.has_scheduler(database) else "no worker is alive: start `relevo run`"
