"""Shadow mode of projects: Relevo does everything but send, beside another system that does."""

from __future__ import annotations

import time
from datetime import datetime

from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.database.pool import Database
from relevo.operators import audit
from relevo.operators.reading import Row, fetch

_SQL = queries.load("shadow")
ALL = ""
"""The name under which the database keeps the mode of all projects."""
_MOST = 10_000
_LOOK_EVERY_S = 0.2


@audit.audited
def begin_shadow(database: Database, project: str, *, now: datetime | None = None) -> bool:
    """Have a project, or all, send nothing from now on; return whether that is new. What is claimed already goes on."""
    if len(project) > _LONGEST:
        raise UsageError(
            f"A project's name has at most {_LONGEST} characters.", hint="Name the project as the app does."
        )
    asked = {"project": project, "set_by": audit.actor(), "now": now}
    return bool(fetch(database, _SQL["begin_shadow"], **asked))


_LONGEST = 200


@audit.audited
def end_shadow(database: Database, project: str, *, force: bool = False, now: datetime | None = None) -> bool:
    """Have a project, or all, send what falls due from now on; return whether it was in shadow mode.

    Nothing is changed while events are due that have no deliveries yet, unless it is forced: theirs would be sent.
    """
    waiting = fetch(database, _SQL["count_unfanned"], project=project, most=_MOST, now=now)[0]["events"]
    is_on = any(row["project"] == project for row in modes(database))
    if is_on and waiting and not force:
        several = f"{waiting} events are" if waiting > 1 else "1 event is"
        raise UsageError(
            f"{several} due and not fanned out yet: Relevo would send them after the end of shadow mode.",
            hint="Let a worker run until they are, or say --force.",
        )
    return bool(fetch(database, _SQL["end_shadow"], project=project, set_by=audit.actor(), now=now))


def modes(database: Database) -> list[Row]:
    """Return the projects in shadow mode: the name, empty for all projects, since when, and who began it."""
    return fetch(database, _SQL["list_shadow"])


def later(database: Database, project: str) -> int:
    """Count, up to a bound, the deliveries that fall due later, in quiet hours for instance."""
    return int(fetch(database, _SQL["count_later"], project=project, most=_MOST, now=None)[0]["deliveries"])


def wait_for_claims(database: Database, project: str, within_s: float) -> bool:
    """Wait until nothing is under way that was claimed before shadow mode began; return whether that came in time."""
    give_up = time.monotonic() + within_s
    while fetch(database, _SQL["find_live_claim"], project=project)[0]["is_there"]:
        if time.monotonic() > give_up:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def require(database: Database) -> None:
    """Begin shadow mode for all projects, as `relevo run --shadow` asks, but not where pushes are sent."""
    if any(row["project"] == ALL for row in modes(database)):
        return
    seen = fetch(database, _SQL["was_live"])[0]
    if seen["works"] or seen["has_sent"]:
        why = "a worker is running that sends" if seen["works"] else "it sent pushes in the last days"
        raise UsageError(
            f"This database is not in shadow mode, and {why}.",
            hint="`relevo shadow on --all` stops all pushes of this database; then start this again.",
        )
    begin_shadow(database, ALL)
