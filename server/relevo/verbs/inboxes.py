"""Verbs about inboxes: the app's server reads and marks any of its project, a phone that of its proven owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from relevo.access import phones
from relevo.access.phones import NotAllowedError
from relevo.client import inboxes
from relevo.client.inboxes import InboxCounts, Mark
from relevo.core import queries
from relevo.core.errors import InvalidInputError, NotFoundError
from relevo.database.pool import Connection
from relevo.verbs.callers import Act, Caller, sha256_of

_SQL = queries.load("inbox_access")


@dataclass(frozen=True)
class Whose:
    """The inbox: an owner's, or that of an installation without owner."""

    owner: str | None = None
    installation_id: UUID | None = None
    project: str | None = None


def _resolve(connection: Connection, caller: Caller, named: Whose) -> Whose:
    """Return the inbox of a caller. A phone's inbox follows from its secret alone, never from the owner it names."""
    if caller.token is not None:
        return _resolve_for_app(connection, caller, named)
    phone = phones.admit_reader(connection, caller.proof)
    if named != Whose():
        raise NotAllowedError(
            "A phone can read only its own inbox.",
            hint="Omit owner, installation_id and project: the secret identifies the phone.",
        )
    return Whose(phone.owner, phone.installation_id if phone.owner is None else None, phone.project)


def _resolve_for_app(connection: Connection, caller: Caller, named: Whose) -> Whose:
    if (named.owner is None) == (named.installation_id is None):
        raise InvalidInputError(
            "owner must be given, or installation_id, and not both: whose inbox it is.",
            hint="An installation that has an owner has its owner's inbox.",
        )
    project = caller.own_project(named.project)
    if named.installation_id is not None:
        phones.admit(connection, named.installation_id, caller.proof)
    return replace(named, project=project)


class Page(NamedTuple):
    """A page of an inbox, as it is told, whose it is, and the place of its newest item."""

    told: Mapping[str, Any]
    whose: Whose
    newest: int


def read(caller: Caller, named: Whose, asked: Mapping[str, Any]) -> Page:
    """Read a page of an inbox; `asked` says of which items, as `relevo.inbox` takes it."""
    with caller.database.transaction() as connection:
        whose = _resolve(connection, caller, named)
        found = inboxes.inbox(connection, **vars(whose), **asked).raw
    newest = found["newest"] or "0"  # a page without items: whatever comes is newer
    return Page({**found, "newest": newest}, whose, int(newest))


def count(caller: Caller, named: Whose) -> InboxCounts:
    """Count what is unread and unseen in an inbox."""
    with caller.database.transaction() as connection:
        return inboxes.inbox_counts(connection, **vars(_resolve(connection, caller, named)))


def mark(caller: Caller, named: Whose, event_id: int, how: Mark) -> bool:
    """Mark one item of an inbox, or take a mark back."""
    with _marking(caller, f"mark_inbox_{how}", named) as (act, whose):
        if not inboxes.mark_inbox(act.connection, event_id, how, **vars(whose)):
            raise NotFoundError(f"There is no item {event_id} in this inbox.", hint="GET /v1/inbox lists them.")
        return act.answer(True)


def mark_before(caller: Caller, named: Whose, before: datetime | None, how: Literal["read", "seen"]) -> bool:
    """Mark everything that came until an instant, or until now; return whether there is such an inbox."""
    with _marking(caller, f"mark_inbox_{how}_before", named) as (act, whose):
        return act.answer(inboxes.mark_inbox_before(act.connection, before, how, **vars(whose)))


@contextmanager
def _marking(caller: Caller, action: str, named: Whose) -> Iterator[tuple[Act, Whose]]:
    """Open the transaction in which an inbox is marked; the audit log has a hash in place of whose it is."""
    mark = sha256_of(named.owner or str(named.installation_id))
    with caller.acting(action, inbox_sha256=mark) as act:
        yield act, _resolve(act.connection, caller, named)


class Numbering(NamedTuple):
    """How far the numbers of deliveries are, and which transactions were under way then: some may not be seen yet."""

    last: int
    oldest: int
    next: int


def numbering(connection: Connection, settled: int) -> Numbering:
    """Look how far the numbers of deliveries are; nothing can have come to any inbox unless they went on.

    The end of a snapshot is no younger than its youngest transaction that has ended: only a transaction of our own is
    younger than all that are under way. One is begun only if the numbers went on since they were settled.
    """
    [row] = connection.execute(_SQL["read_numbering"], {"settled": settled}).fetchall()
    return Numbering(*row)


def newer_places(connection: Connection, waiting: Sequence[tuple[Whose, int]]) -> dict[int, int]:
    """Return, in one statement, to which of these inboxes something came behind a place: its place, by their index."""
    columns = {
        "owners": [whose.owner for whose, _ in waiting],
        "projects": [whose.project for whose, _ in waiting],
        "phones": [whose.installation_id for whose, _ in waiting],
        "after": [after for _, after in waiting],
    }
    return {number - 1: place for number, place in connection.execute(_SQL["list_newer_places"], columns)}
