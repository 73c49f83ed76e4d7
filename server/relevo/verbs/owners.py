"""Verbs about owners: their phones, their log-out, what they handled, blocks, exports, and forgetting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from relevo.client import attributes as app_attributes
from relevo.client import consent
from relevo.client.checks import given_fields
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, from_json, one
from relevo.client.consent import KINDS, Kind, OwnerPage
from relevo.operators import audit
from relevo.verbs.callers import Caller, sha256_of

T = TypeVar("T")


def list_phones(caller: Caller, owner: str, limit: int) -> list[Mapping[str, Any]]:
    """List an owner's phones, newest first; for a caller of one project, those that are there."""
    with caller.database.transaction() as connection:
        return _of_owner(connection, caller, "list_installations", from_json, owner=owner, limit=limit)


def log_out(caller: Caller, owner: str) -> int:
    """Unregister an owner's phones, those of the caller's project; return how many were registered."""
    with caller.acting("log_out_owner", owner=owner, project=caller.project) as act:
        return act.answer(_of_owner(act.connection, caller, "unregister_owner", int, owner=owner))


def complete(caller: Caller, owner: str, reason: str = "") -> bool:
    """Complete everything for an owner until now, on phones of the caller's project."""
    with caller.acting("complete_owner", owner=owner, project=caller.project) as act:
        return act.answer(_of_owner(act.connection, caller, "complete_owner", bool, owner=owner, reason=reason))


def forget(caller: Caller, owner: str) -> int:
    """Forget an owner, as far as the caller's project goes; return how many phones there were."""
    with caller.acting("forget_owner", owner=owner, project=caller.project) as act:
        return act.answer(_of_owner(act.connection, caller, "forget_owner", int, owner=owner))


@verb
def _of_owner(caller: Caller, statement: str, read: Callable[[Any], T], **asked: str | int) -> Call[T]:
    """Send a statement about an owner, or for a caller of one project its twin about that project alone."""
    if caller.project is None:
        return Call(statement, given_fields(asked), one(read))
    return Call(f"{statement}_in_project", given_fields({**asked, "project": caller.project}), one(read))


def block(caller: Caller, owner: str, reason: str = "", project: str | None = None) -> int:
    """Send an owner nothing any more; return how many phones they have."""
    project = caller.own_project(project)
    with caller.acting("block_owner", owner=owner, project=project) as act:
        return act.answer(consent.block(act.connection, owner=owner, project=project, reason=reason))


def set_attributes(caller: Caller, owner: str, attributes: Mapping[str, Any], project: str | None = None) -> bool:
    """Set attributes of an owner, in the caller's project if it has one; return whether something changed."""
    project = caller.own_project(project)
    with caller.acting("set_attributes", owner=owner, project=project) as act:
        return act.answer(app_attributes.set_attributes(act.connection, attributes, owner=owner, project=project))


def unblock(caller: Caller, owner: str, project: str | None = None) -> int:
    """Unblock an owner: pushes go to their phones again; return how many phones they have."""
    project = caller.own_project(project)
    with caller.acting("unblock_owner", owner=owner, project=project) as act:
        return act.answer(consent.unblock(act.connection, owner=owner, project=project))


def export_page(
    caller: Caller,
    owner: str,
    kind: Kind,
    *,
    after: str | None = None,
    limit: int = consent.MOST_AT_ONCE,
    goes_on: bool = False,
) -> OwnerPage:
    """Return a page of what is kept of an owner; one that goes on with a recorded export is no entry of its own."""
    whose: dict[str, Any] = {"owner": owner, "project": caller.project}
    recorded = False if goes_on else None
    with caller.acting("export_owner", kind=kind, recorded=recorded, **whose) as act:
        page = consent.export_owner(act.connection, kind, **whose, after=after, limit=limit)
        act.result["items"] = len(page.items)
        return page


def export(caller: Caller, owner: str) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    """Read everything that is kept of an owner, kind by kind, page by page, as an operator; it is one entry."""
    with audit.recorded(caller.database, "export_owner", owner_sha256=sha256_of(owner)) as result:
        count = 0
        for kind in KINDS:
            for item in _items(caller, owner, kind):
                count += 1
                yield kind, item
        result["items"] = count


def _items(caller: Caller, owner: str, kind: Kind) -> Iterator[Mapping[str, Any]]:
    after: str | None = None
    while True:
        page = export_page(caller, owner, kind, after=after, goes_on=True)
        yield from page.items
        if (after := page.next) is None:
            return
