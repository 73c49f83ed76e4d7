"""People: find somebody by name, and of one with all phones, or of one phone, what they got and why not the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from relevo.core.i18n import gettext as _
from relevo.core.phrases import clipped
from relevo.http.dashboard.formats import number, owner_path, short
from relevo.http.dashboard.page import PEOPLE, Before, Page, Text, read, render
from relevo.http.problems import Problem
from relevo.operators import events, inboxes, phones
from relevo.operators.phones import MOST_PHONES, Reason
from relevo.operators.reading import Row

router = APIRouter(route_class=Page, include_in_schema=False)
Asked = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class WhyResult:
    """The answer to "why": the event that was meant, or those that may be, and the rule for each phone."""

    asked: str = ""
    event: Row | None = None
    choices: Sequence[Row] = ()
    reasons: Sequence[Reason] = ()


@router.get(PEOPLE)
async def people(request: Request, name: Text = "", after: Text = "") -> Response:
    """Show owners by their names, from one on if asked."""
    first = name.strip()
    rows, next_name = await read(request, phones.owners, after or first, behind=bool(after))
    return render(
        request,
        "people.html",
        live=False,
        rows=rows,
        first=first,
        after=after,
        next_name=next_name,
        most_phones=MOST_PHONES,
    )


@router.get("/dashboard/installations/{installation_id}")
async def phone(request: Request, installation_id: UUID, event: Asked = "", before: Before = None) -> Response:
    """Show one phone."""
    seen = await read(request, phones.phone, installation_id, before=before)
    if seen is None:
        raise Problem(404, _("There is no phone %(id)s.", id=installation_id))
    row = seen.rows[0] if seen.rows else None
    return render(
        request,
        "phone.html",
        live=before is None and not event,
        title=_named(row) if row else _("Phone %(id)s", id=short(installation_id)),
        row=row,
        installation_id=installation_id,
        path=f"/dashboard/installations/{installation_id}",
        seen=seen,
        names={},
        preferences=seen.preferences.get(installation_id, []),
        answer=await _explained(request, event.strip(), [installation_id]),
    )


@router.get("/dashboard/owners/{owner:path}")
async def owner(
    request: Request, owner: Annotated[str, Path(max_length=200)], event: Asked = "", before: Before = None
) -> Response:
    """Show one person with all phones."""
    seen = await read(request, phones.owner, owner, before=before)
    if seen is None:
        raise Problem(404, _("There is no owner %(name)s.", name=clipped(owner, 60)))
    ids = [row["installation_id"] for row in seen.rows]
    projects = [row["project"] for row in seen.rows]
    return render(
        request,
        "owner.html",
        live=before is None and not event,
        owner=owner,
        path=owner_path(owner),
        seen=seen,
        names={each: _("Phone %(id)s", id=number(place)) for place, each in enumerate(ids, 1)},
        most_phones=MOST_PHONES,
        latest=await read(request, phones.recent, ids) if before is None else [],
        inboxes=await read(request, inboxes.of_owner, owner, projects) if before is None else [],
        answer=await _explained(request, event.strip(), ids),
    )


async def _explained(request: Request, asked: str, installations: Sequence[UUID]) -> WhyResult:
    """Find the event that was asked for, and ask for each phone why it gets it, or not."""
    if not asked:
        return WhyResult()
    found = await read(request, events.find, asked)
    if len(found) != 1:
        return WhyResult(asked, choices=found)
    return WhyResult(asked, found[0], (), await read(request, phones.explain, found[0]["id"], installations))


def _named(row: Row) -> str:
    """Name a phone by its owner, if it has one."""
    if row["owner"]:
        return _("Phone of %(owner)s", owner=clipped(row["owner"], 60))
    return _("Phone %(id)s", id=short(row["installation_id"]))
