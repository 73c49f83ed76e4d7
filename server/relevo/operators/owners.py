"""Owners, as operators see them: how much is kept of one, all of it, a block, and an end to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any
from uuid import UUID

from relevo.client import consent, quiet
from relevo.client.consent import KINDS, Kind
from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators import audit
from relevo.operators.reading import Row, fetch

_SQL = queries.load("owners")


def summary(database: Database, owner: str) -> Row:
    """Return how many phones an owner has, what they chose, and whether they are blocked."""
    [found] = fetch(database, _SQL["summarise_owner"], owner=owner)
    return found


def export(database: Database, owner: str) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    """Read everything that is kept of an owner, kind by kind, page by page."""
    with audit.recorded(database, "export_owner", owner_sha256=_mark(owner)) as result:
        count = 0
        for kind in KINDS:
            for item in _items(database, owner, kind):
                count += 1
                yield kind, item
        result["items"] = count


def _items(database: Database, owner: str, kind: Kind) -> Iterator[Mapping[str, Any]]:
    after: str | None = None
    while True:
        with database.transaction() as connection:
            page = consent.export_owner(connection, kind, owner=owner, after=after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def block(database: Database, owner: str, reason: str, project: str | None) -> int:
    """Send an owner nothing any more; return how many phones they have."""
    with audit.recorded(database, "block_owner", owner_sha256=_mark(owner), project=project) as result:
        with database.transaction() as connection:
            count = consent.block(connection, owner=owner, project=project, reason=reason)
        result["installations"] = count
    return count


def unblock(database: Database, owner: str, project: str | None) -> int:
    """Let pushes go to an owner again; return how many phones they have."""
    with audit.recorded(database, "unblock_owner", owner_sha256=_mark(owner), project=project) as result:
        with database.transaction() as connection:
            count = consent.unblock(connection, owner=owner, project=project)
        result["installations"] = count
    return count


def forget(database: Database, owner: str) -> int:
    """Forget an owner with all installations and what was said to them alone; return how many there were."""
    with audit.recorded(database, "forget_owner", owner_sha256=_mark(owner)) as result:
        row = database.execute(_SQL["forget_owner"], {"owner": owner}, "bound_transaction").fetchone()
        result["installations"] = count = int(row[0]) if row else 0
    return count


def are_shared(database: Database) -> bool:
    """Return whether equal owner names of several projects are one person."""
    [found] = fetch(database, _SQL["are_owners_shared"])
    return bool(found["shared"])


def share(database: Database, *, shared: bool) -> bool:
    """Set whether equal owner names of several projects are one person; return whether that is a change."""
    with audit.recorded(database, "share_owners", shared=shared) as result:
        [(changed,)] = database.execute(_SQL["share_owners"], {"shared": shared}).fetchall()
        result["answer"] = changed
    return bool(changed)


def set_category(
    database: Database,
    category: str,
    rule: consent.Rule | None,
    texts: Mapping[str, Mapping[str, str]],
    quiet: consent.Quiet | EllipsisType | None = ...,
) -> None:
    """Make or change a category that people may choose."""
    changed = {"category": category, "rule": rule} | ({} if quiet is ... else {"quiet": quiet})
    with audit.recorded(database, "set_category", **changed), database.transaction() as connection:
        consent.set_category(connection, category, rule=rule, texts=texts or None, quiet=quiet)


def set_quiet(
    database: Database,
    windows: Sequence[str] | EllipsisType | None,
    *,
    owner: str | None,
    phone: UUID | None,
    project: str | None,
    zone: str | EllipsisType,
) -> bool:
    """Set quiet hours; return whether something changed."""
    whose = {"owner_sha256": owner and _mark(owner), "installation_id": phone and str(phone), "project": project}
    with audit.recorded(database, "set_quiet", **whose) as result:
        with database.transaction() as connection:
            changed = quiet.set_quiet(
                connection, windows, owner=owner, installation_id=phone, project=project, zone=zone
            )
        result["answer"] = changed
    return changed


@audit.audited
def set_cap(
    database: Database,
    most: int | None,
    *,
    per: quiet.Period,
    category: str | None,
    project: str,
    over: quiet.Over | EllipsisType = ...,
) -> bool:
    """Set, change or remove a cap; return whether something changed."""
    with database.transaction() as connection:
        return quiet.set_cap(connection, most, per=per, category=category, project=project, over=over)


def _mark(owner: str) -> str:
    """Return what the record has in place of the name, which may be to be forgotten."""
    return hashlib.sha256(owner.encode()).hexdigest()
