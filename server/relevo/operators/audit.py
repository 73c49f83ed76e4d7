"""The record of what operators do, by whatever face: who, when, what, with what result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import psycopg
from psycopg.types.json import Jsonb

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, EventConflictError
from relevo.core.logs import get_logger, normalise_error, redact
from relevo.database.pool import Database
from relevo.operators.reading import LOOKED_AT, MAX_LIMIT, Page, Row, fetch, fetch_page, of_this_version

P = ParamSpec("P")
T = TypeVar("T")

_SQL = queries.load("audit")
_log = get_logger("relevo.operators.audit")
_MAX_ACTOR = 200

Face = Literal["cli", "http", "python"]


@dataclass(frozen=True)
class Actor:
    """The actor, and the face through which it acts."""

    name: str
    face: Face


_PROGRAM = Actor("a program", "python")
_actor: ContextVar[Actor] = ContextVar("relevo_actor", default=_PROGRAM)
_recording: ContextVar[bool] = ContextVar("relevo_recording", default=False)


def act_as(name: str, face: Face) -> None:
    """Set the actor of this context from now on: a command sets it once for its whole life."""
    _actor.set(Actor(name[:_MAX_ACTOR], face))


def actor() -> str:
    """Return the name of who acts here."""
    return _actor.get().name


@contextmanager
def acting_as(name: str, face: Face) -> Iterator[None]:
    """Set the actor within the block."""
    before = _actor.set(Actor(name[:_MAX_ACTOR], face))
    try:
        yield
    finally:
        _actor.reset(before)


def latest(database: Database, *, before: int | None = None, action: str | None = None, limit: int = 20) -> list[Row]:
    """Return what operators did, newest first; before a given entry, or of one kind, if asked."""
    return fetch(database, _SQL["list_audit"], before=before, action=action, limit=min(limit, MAX_LIMIT))


def page(
    database: Database,
    *,
    action: str | None = None,
    outcome: str | None = None,
    actor: str | None = None,
    hours: int | None = None,
    before: str = "",
    limit: int = 50,
) -> Page:
    """Return what was done that fits, newest first; `actor` is a part of a name."""
    asked: dict[str, Any] = {"action": action, "outcome": outcome, "actor": actor, "hours": hours}
    look = LOOKED_AT if any(each is not None for each in asked.values()) else 0
    return fetch_page(database, _SQL["page_audit"], before, limit, look=look, **asked)


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
        _finish(database, entry, "failed", result, _in_record(error))
        raise
    else:
        _finish(database, entry, "ok", result)
    finally:
        _recording.reset(inside)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Add no entry within the block: what is done there is counted elsewhere."""
    inside = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(inside)


def note_refusal(database: Database, action: str, why: str, *, times: int = 1, **target: object) -> None:
    """Write down that somebody was refused, and how often since that was last written."""
    entry = _begin(database, _actor.get(), action, target)
    _finish(database, entry, "failed", {"times": times}, why)


def note_more(database: Database, action: str, counts: Mapping[str, int]) -> None:
    """Write down how often somebody did what has no entries of its own any more."""
    _finish(database, _begin(database, _actor.get(), action, {}), "ok", dict(counts))


def audited(action: Callable[Concatenate[Database, P], T]) -> Callable[Concatenate[Database, P], T]:
    """Record each call of an action: its name, its arguments, and its result."""
    signature = inspect.signature(action)

    @wraps(action)
    def call(database: Database, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given = dict(list(signature.bind(database, *args, **kwargs).arguments.items())[1:])
        with recorded(database, action.__name__, **_spoken(given)) as result:
            answer = action(database, *args, **kwargs)
            result.update(answer if isinstance(answer, Mapping) else {} if answer is None else {"answer": answer})
        return answer

    return call


def _spoken(given: dict[str, Any]) -> dict[str, Any]:
    """Name what an action was given; of settings and of whom to tell nothing, of a set of wishes each."""
    plain = {name: value for name, value in given.items() if not isinstance(value, Settings) and not callable(value)}
    for name, value in given.items():
        if is_dataclass(value) and not isinstance(value, type):
            del plain[name]
            plain |= vars(value)
    return plain


def _begin(database: Database, actor: Actor, action: str, target: dict[str, object]) -> int:
    given = {name: value for name, value in target.items() if value not in (None, "", (), [])}
    said = {"actor": actor.name, "face": actor.face, "action": action, "target": Jsonb(_plain(given))}
    with of_this_version(), database.connection() as connection:
        row = connection.execute(_SQL["begin_audit"], said).fetchone()
    assert row is not None
    (entry,) = row
    return int(entry)


def _in_record(error: BaseException) -> str:
    """Return the error without an event's texts, which may be about people."""
    if isinstance(error, EventConflictError):
        return "An event of this type and key is there and says something else."
    return normalise_error(error)


def _finish(database: Database, entry: int, outcome: str, result: dict[str, Any], error: str = "") -> None:
    ended = {"id": entry, "outcome": outcome, "result": Jsonb(_plain(result)), "error_message": error or None}
    try:
        database.execute(_SQL["finish_audit"], ended)
    except (DatabaseUnavailableError, psycopg.Error):
        _log.warning("audit_not_finished", entry=entry, outcome=outcome)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON can hold them, bounded and without secrets, as in a log line."""
    return dict(redact(None, "", dict(values)))
