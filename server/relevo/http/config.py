"""The verbs of `relevo apply` over HTTP, for operators: plan and apply a configuration."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.config_file import applying, items, reading
from relevo.config_file.applying import Change
from relevo.config_file.items import Desired, Kind
from relevo.core.errors import UsageError
from relevo.http.database_threads import long_work_of
from relevo.http.fields import Exact
from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.problems import Problem

router = APIRouter(route_class=Guarded, tags=["operators"])


class ConfigIn(Exact):
    """A configuration, with the keys of the file of `relevo apply`."""

    config: Annotated[
        dict[str, Any],
        Field(
            description="`owns`, `event_types`, `categories`, `projects`, `news` and `tokens`, as in the file: the "
            "page Configuration as code describes them."
        ),
    ]


class ConfigChange(BaseModel):
    """One thing that differs. Null: it is not there."""

    kind: Kind
    project: str | None
    name: str
    before: Any
    after: Any


class ConfigPlan(BaseModel):
    """The changes that applying would make; nothing was changed."""

    changes: list[ConfigChange]


class NewToken(BaseModel):
    """A token that was made."""

    project: str | None
    name: str
    secret: str = Field(description="Returned only once, and stored nowhere.")


class ConfigApplied(ConfigPlan):
    """The changes that were made."""

    tokens: list[NewToken] = Field(description="The tokens that were made.")


@router.post("/v1/config/plan", responses={200: {"model": ConfigPlan}})
async def plan_config(request: Request, asked: ConfigIn) -> Response:
    """Return the changes that a configuration would make: Relevo applies it with every check, and rolls back."""
    changes = await long_work_of(request).run(applying.plan, _desired(asked))
    return Json({"changes": [_told(each) for each in changes]})


@router.post("/v1/config/apply", responses={200: {"model": ConfigApplied}})
async def apply_config(request: Request, asked: ConfigIn) -> Response:
    """Apply a configuration in one transaction, or change nothing; the same one again changes nothing.

    Only this answer has the secrets of the tokens that the call made. If you lose the answer, revoke these tokens (null
    in their place) and apply again.
    """
    applied = await long_work_of(request).run(applying.apply_and_tell, _desired(asked))
    tokens = [{"project": key.project, "name": key.name, "secret": told} for key, told in applied.secrets.items()]
    body = {"changes": [_told(each) for each in applied.changes], "tokens": tokens}
    return Json(body, headers={"Cache-Control": "no-store"})


def _desired(asked: ConfigIn) -> Desired:
    """Return what is asked for; refuse what a file would be refused for, by its key."""
    try:
        return items.desired(reading.of_values(asked.config, "config"))
    except UsageError as error:
        named = [{"field": "config", "reason": error.message}]
        raise Problem(400, error.message, kind="invalid", hint=error.hint, errors=named) from error


def _told(change: Change) -> dict[str, Any]:
    return {**change.key._asdict(), "before": change.before, "after": change.after}
