"""The record of what operators do, by whatever face: who, when, what, with what result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
import structlog
from psycopg.types.json import Jsonb

from relevo import queries
from relevo.db import Database
from relevo.errors import DatabaseUnavailableError
from relevo.logs import normalise_error, redact

_SQL = queries.load("actions")
_log = structlog.get_logger("relevo.audit")
_MAX_ACTOR = 200

Face = Literal["cli", "http", "python"]


@dataclass(frozen=True)
class Actor:
    """Who acts, and through which face."""

    name: str
    face: Face


_PROGRAM = Actor("a program", "python")
_actor: ContextVar[Actor] = ContextVar("relevo_actor", default=_PROGRAM)
_recording: ContextVar[bool] = ContextVar("relevo_recording", default=False)


def act_as(name: str, face: Face) -> None:
    """Say who acts from now on in this context: a command says it once for its whole life."""
    _actor.set(Actor(name[:_MAX_ACTOR], face))


@contextmanager
def acting_as(name: str, face: Face) -> Iterator[None]:
    """Say who acts within the block."""
    before = _actor.set(Actor(name[:_MAX_ACTOR], face))
    try:
        yield
    finally:
        _actor.reset(before)


@contextmanager
def recorded(database: Database, action: str, **target: object) -> Iterator[dict[str, Any]]:
    """Record an action: that it begins, before it does, and how it ended; the yielded dict takes its result.

    Within another recorded action nothing is added: one thing an operator did is one entry.
    """
    if _recording.get():
        yield {}
        return
    actor, result = _actor.get(), dict[str, Any]()
    entry = _begin(database, actor, action, target)
    inside = _recording.set(True)
    try:
        yield result
    except BaseException as error:
        _finish(database, entry, "failed", result, normalise_error(error))
        raise
    else:
        _finish(database, entry, "ok", result)
    finally:
        _recording.reset(inside)


def _begin(database: Database, actor: Actor, action: str, target: dict[str, object]) -> int:
    given = {name: value for name, value in target.items() if value not in (None, "", (), [])}
    said = {"actor": actor.name, "face": actor.face, "action": action, "target": Jsonb(_plain(given))}
    with database.connection() as connection:
        row = connection.execute(_SQL["begin_audit"], said).fetchone()
    assert row is not None
    return int(row[0])


def _finish(database: Database, entry: int, outcome: str, result: dict[str, Any], error: str = "") -> None:
    ended = {"id": entry, "outcome": outcome, "result": Jsonb(_plain(result)), "error_message": error or None}
    try:
        with database.connection() as connection:
            connection.execute(_SQL["finish_audit"], ended)
    except (DatabaseUnavailableError, psycopg.Error):
        _log.warning("audit_not_finished", entry=entry, outcome=outcome)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON can hold them, bounded and without secrets, as in a log line."""
    return dict(redact(None, "", dict(values)))
