"""The app's own connection, of any kind: recognised by its type, used inside the app's transaction, never committed.

A verb is written once, as the steps it takes; `verb` makes the function for synchronous connections of it, and
`awaited` its twin for asynchronous ones. One file a kind says how a step is taken there.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from relevo.client.connections.refusals import refusals
from relevo.client.connections.steps import Call, IsInside, Leave, Pause, Step, Steps
from relevo.core import queries
from relevo.core.errors import InvalidInputError

if TYPE_CHECKING:
    from relevo.client.connections.executors import AsyncExecutor, Executor, Kind
    from relevo.client.connections.types import AsyncConnection, Connection

P = ParamSpec("P")
T = TypeVar("T")

_LIBRARIES = ("psycopg", "sqlalchemy", "django", "asyncpg")
_TAKEN = "a psycopg Connection, a SQLAlchemy Connection or Session, or Django's connection"
_TAKEN_AWAITED = "a psycopg AsyncConnection, an asyncpg Connection, or a SQLAlchemy AsyncConnection or AsyncSession"


def verb(plan: Callable[P, Steps[T]]) -> Callable[Concatenate[Connection, P], T]:
    """Make a verb: the app's connection first, then what the plan of its steps takes."""

    @wraps(plan)
    def call(connection: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(_synchronous(plan.__name__, connection), plan(*args, **kwargs))

    _sign(call, plan, "Connection")
    return call


def awaited(
    known: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[AsyncConnection, P], Coroutine[Any, Any, T]]:
    """Make the twin of a verb for asynchronous connections."""
    plan: Callable[P, Steps[T]] = known.__wrapped__  # type: ignore[attr-defined]

    @wraps(plan)
    async def call(connection: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _run_awaited(_asynchronous(plan.__name__, connection), plan(*args, **kwargs))

    _sign(call, plan, "AsyncConnection")
    return call


def _sign(call: Any, plan: Callable[..., Any], first: str) -> None:
    """Make help() show the connection before the plan's parameters, and the result in place of the steps."""
    told = inspect.signature(plan)
    ahead = inspect.Parameter("connection", inspect.Parameter.POSITIONAL_ONLY, annotation=first)
    answer = str(told.return_annotation).partition("[")[2].removesuffix("]")
    call.__signature__ = told.replace(parameters=[ahead, *told.parameters.values()], return_annotation=answer)


def _run(executor: Executor, plan: Steps[T]) -> T:
    steps, answer = iter(plan), None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return cast("T", end.value)
        with refusals():
            answer = _take(executor, step, time.sleep)


async def _run_awaited(executor: AsyncExecutor, plan: Steps[T]) -> T:
    import asyncio  # noqa: PLC0415 whoever awaits has loaded it; who does not need not pay for it

    steps, answer = iter(plan), None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return cast("T", end.value)
        with refusals():
            answer = await _take(executor, step, asyncio.sleep)


def _take(executor: Executor | AsyncExecutor, step: Step, sleep: Callable[[float], Any]) -> Any:
    """Take a step and return its answer; on an asynchronous connection, what is to be awaited for it."""
    match step:
        case Call(statement, parameters):
            return executor.rows(_sql(statement), parameters)
        case IsInside():
            return executor.inside()
        case Leave():
            return executor.leave()
        case Pause(seconds):
            return sleep(seconds)


@cache
def _sql(statement: str) -> str:
    return queries.load("client")[statement].decode()


def _synchronous(name: str, connection: Any) -> Executor:
    for kind in _kinds(connection.__class__):
        if executor := kind.synchronous(connection):
            return executor
        if kind.asynchronous(connection):
            raise InvalidInputError(
                f"relevo.{name} takes no asynchronous connection such as {_kind_of(connection)}.",
                hint=f"Write: await relevo.aio.{name}(…).",
            )
    raise _strange(name, connection)


def _asynchronous(name: str, connection: Any) -> AsyncExecutor:
    for kind in _kinds(connection.__class__):
        if executor := kind.asynchronous(connection):
            return executor
        if kind.synchronous(connection):
            raise InvalidInputError(
                f"relevo.aio.{name} takes no synchronous connection such as {_kind_of(connection)}.",
                hint=f"Write relevo.{name}(…), without await.",
            )
    raise _strange(f"aio.{name}", connection)


@cache
def _kinds(type_: type) -> list[Kind]:
    """Return the modules for the libraries this type comes from: those are loaded already."""
    libraries = {each.__module__.partition(".")[0] for each in type_.__mro__}
    found = [import_module(f"{__name__}.{library}") for library in _LIBRARIES if library in libraries]
    return cast("list[Kind]", found)


def _strange(name: str, connection: object) -> InvalidInputError:
    return InvalidInputError(
        f"relevo.{name} cannot use {_kind_of(connection)} as a connection.",
        hint=f"Functions of relevo take {_TAKEN}; those of relevo.aio take {_TAKEN_AWAITED}. "
        "Any other driver can call the SQL functions, as in: select relevo.enqueue(…).",
    )


def _kind_of(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}".removeprefix("builtins.")
