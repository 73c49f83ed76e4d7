"""The steps of a verb, as values: the statement it sends, how the answer is read, when it sleeps.

Plain classes, for whoever imports the verbs waits for them to be made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from relevo.core.errors import InvalidInputError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Rows = Sequence[tuple[Any, ...]]
Parameter = str | int | Sequence[str] | Sequence[int] | None
"""Values that every driver can send: JSON is text made by `as_json`, a UUID is its text."""


class Call(Generic[T]):
    """One statement of sql/queries/client.sql, by name, with its parameters, and how its rows are read."""

    __match_args__ = ("statement", "parameters")

    def __init__(self, statement: str, parameters: Mapping[str, Parameter], read: Callable[[Rows], T]) -> None:
        self.statement = statement
        self.parameters = parameters
        self.read = read

    def __iter__(self) -> Generator[Step, Any, T]:
        return self.read((yield self))


class IsInside:
    """Ask whether the connection is inside a transaction."""


class Leave:
    """End the transaction that reading began, so that no snapshot is held and the next look sees more."""


class Pause:
    """Do nothing for a while."""

    __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


Step = Call[Any] | IsInside | Leave | Pause
Plan = Generator[Step, Any, T]
"""A verb that takes several steps."""


class Steps(Protocol[T_co]):
    """A call, or a generator of steps that returns the verb's answer."""

    def __iter__(self) -> Generator[Step, Any, T_co]:
        """Yield the steps; each is answered before the next."""


def one(make: Callable[..., T]) -> Callable[[Rows], T]:
    """Read the only row: its columns are what `make` is called with."""

    def read(rows: Rows) -> T:
        (row,) = rows
        return make(*row)

    return read


def each(make: Callable[..., T]) -> Callable[[Rows], list[T]]:
    """Read every row: its columns are what `make` is called with."""
    return lambda rows: [make(*row) for row in rows]


def as_json(name: str, value: object) -> str:
    """Return JSON text for a parameter of type jsonb."""
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} cannot be written as JSON: {error}.", hint="Give text and numbers.") from error


def _plain(value: object) -> dict[Any, Any]:
    """Return a mapping that json does not know as one that it does."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def from_json(value: Any) -> Any:
    """Return what a jsonb column says: some drivers hand it over as text."""
    return json.loads(value) if isinstance(value, str | bytes) else value


def as_uuid(value: object) -> UUID:
    """Return the UUID of a column: some drivers hand it over as text."""
    return value if type(value) is UUID else UUID(str(value))
