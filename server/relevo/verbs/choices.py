"""Verbs about what people choose: categories, and what an owner chose of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any, Literal
from uuid import UUID

from relevo.access.phones import Known, NotAllowedError
from relevo.client import consent
from relevo.client.checks import given_fields
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.verbs.callers import Caller

Face = Literal["app", "phone", "operator"]
"""The source of a choice: the app's server, the person's phone, or an operator."""


def set_category(
    caller: Caller,
    category: str,
    rule: consent.Rule | None,
    texts: Mapping[str, Mapping[str, str]],
    *,
    quiet: consent.Quiet | EllipsisType | None = ...,
) -> None:
    """Make or change a category that people may choose."""
    changed: dict[str, Any] = {"category": category, "rule": rule} | ({} if quiet is ... else {"quiet": quiet})
    with caller.acting("set_category", **changed) as act:
        consent.set_category(act.connection, category, rule=rule, texts=texts or None, quiet=quiet)


def list_categories(
    caller: Caller, owner: str | None, project: str | None, locale: str | None
) -> list[Mapping[str, Any]]:
    """List the categories in the words of a locale, with what an owner chose, as JSON has them."""
    project = caller.own_project(project)
    with caller.database.transaction() as connection:
        return _list(connection, owner, project, locale)


def list_choices(caller: Caller, installation_id: UUID, locale: str | None) -> list[Mapping[str, Any]]:
    """List the categories, and what a phone's owner chose of them, as JSON has them."""
    with caller.reading_phone(installation_id) as (connection, phone):
        return _list(connection, phone.owner, phone.project, locale)


@verb
def _list(owner: str | None, project: str | None, locale: str | None) -> Call[list[Mapping[str, Any]]]:
    asked = given_fields({"owner": owner, "project": project, "locale": locale})
    return Call("list_categories", {"asked": as_json("categories", asked)}, one(from_json))


def choose(caller: Caller, /, *, owner: str, project: str | None = None, **given: Any) -> bool:
    """Record what an owner chose, as `relevo.choose` takes it, under the face that the caller proved."""
    project = caller.own_project(project)
    with caller.acting("choose_category", owner=owner, project=project) as act:
        return act.answer(_choose(act.connection, _face_of(caller), owner=owner, project=project, **given))


def choose_on_phone(caller: Caller, installation_id: UUID, /, **given: Any) -> bool:
    """Record what the owner of a phone chose; return whether the record grew."""
    with caller.acting_on_phone("choose_category", installation_id) as (act, phone):
        whose = {"owner": owner_of(phone), "project": phone.project}
        return act.answer(_choose(act.connection, _face_of(caller), **whose, **given))


@verb
def _choose(face: Face, **given: Any) -> Call[bool]:
    return Call("choose_as", {"asked": consent.choice(**given), "face": face}, one(bool))


def _face_of(caller: Caller) -> Face:
    """Return the face under which a caller's choices are recorded; a caller without a token proved to be a phone."""
    if caller.token is None:
        return "phone"
    return "operator" if caller.is_operator else "app"


def owner_of(phone: Known) -> str:
    """Return the owner of a phone; raises NotAllowedError if it has none."""
    if phone.owner is None:
        raise NotAllowedError(
            "This phone has no owner who could choose.",
            hint="Register it with an owner, or with opt_outs of its own.",
        )
    return phone.owner
