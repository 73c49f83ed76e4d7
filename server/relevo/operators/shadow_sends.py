"""Files of what another system sent, as CSV or a JSON object per line: Relevo's own columns, and OneSignal's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from relevo.core.errors import InvalidInputError, UsageError
from relevo.operators import phone_files

FIELDS = ("sent_at", "installation_id", "token", "owner", "project", "type", "key", "title", "id")
"""The columns of Relevo's own."""
MOST_ROWS = 500_000
_LONGEST: Mapping[str, int] = {
    "token": 4_096,
    "owner": 200,
    "project": 200,
    "type": 200,
    "key": 300,
    "title": 1_000,
    "id": 200,
}
_SECONDS = re.compile(r"\d{9,11}(\.\d{1,9})?")
_MOST_REFUSED = 20

Row = Mapping[str, Any]


class Send(NamedTuple):
    """A push that another system sent: when, to whom, and what."""

    sent_at: datetime
    installation_id: UUID | None = None
    token: str | None = None
    owner: str | None = None
    project: str | None = None
    type: str | None = None
    key: str | None = None
    title: str | None = None
    id: str | None = None
    """Its own number there: the same one again is the same push."""


@dataclass(frozen=True)
class Source:
    """The file, whose it is, where our fields are in it, and what is not in it."""

    path: Path
    kind: str = "relevo"
    columns: Mapping[str, str] = field(default_factory=dict)
    usual: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Refused:
    """The lines that could not be read: how many, and the first of them with the reason."""

    count: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, why: str) -> None:
        """Count a line, and name it if it is among the first."""
        self.count += 1
        if len(self.lines) < _MOST_REFUSED:
            self.lines.append((number, why))


def read(source: Source, refused: Refused) -> Iterator[Send]:
    """Read what was sent, line by line; what cannot be read is added to the refused."""
    taken = 0
    for line in phone_files.read(source.path):
        try:
            send = None if line.row is None else _send(source, line.row)
        except InvalidInputError as error:
            refused.add(line.number, error.message)
            continue
        if line.row is None:
            refused.add(line.number, line.wrong)
        if send is not None:
            taken += 1
            if taken > MOST_ROWS:
                raise UsageError(f"The file has more than {MOST_ROWS} sends.", hint="Split it, for instance by days.")
            yield send


def _send(source: Source, row: Row) -> Send | None:
    given = {**source.usual, **FORMATS[source.kind](row)}
    given |= {name: row[column] for name, column in source.columns.items() if column in row}
    if given.pop("failed", None):  # it was not sent
        return None
    return made(given)


def made(given: Mapping[str, Any]) -> Send:
    """Return a send of its fields; raises InvalidInputError, with the field's name, for what cannot be used."""
    fields: dict[str, Any] = {}
    for name, most in _LONGEST.items():
        value = given.get(name)
        if value is None or value == "":
            continue
        text = str(value)
        if len(text) > most or "\0" in text:
            raise InvalidInputError(f"{name} must be text of at most {most} characters.")
        fields[name] = text
    phone = given.get("installation_id")
    if phone not in (None, ""):
        try:
            fields["installation_id"] = UUID(str(phone))
        except ValueError:
            raise InvalidInputError("installation_id must be a UUID.") from None
    if not fields.keys() & {"installation_id", "token", "owner"}:
        raise InvalidInputError("installation_id, token or owner must be given.")
    if not fields.keys() & {"key", "title"}:
        raise InvalidInputError("key or title must be given.")
    return Send(read_time(given.get("sent_at")), **fields)


def read_time(said: object) -> datetime:
    """Read a time: ISO 8601, UTC unless it has a zone, or seconds since 1970."""
    if isinstance(said, datetime):
        return said
    text = str(said if said is not None else "").strip()
    found: datetime | None = None
    with suppress(ValueError, OverflowError, OSError):
        if _SECONDS.fullmatch(text):
            found = datetime.fromtimestamp(float(text), UTC)
        else:
            found = datetime.fromisoformat(text.removesuffix(" UTC"))
    if found is None:
        raise InvalidInputError("sent_at must be a time such as 2026-11-17T09:30:00Z.")
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _own(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in FIELDS if name in row}


def _onesignal(row: Row) -> dict[str, Any]:
    """Read a line of the audience activity that OneSignal exports for one message."""
    names = {"sent_at": "sent", "owner": "external_user_id"}
    given = {name: row[column] for name, column in names.items() if column in row}
    return given | {"failed": row.get("failed") or not row.get("sent")}


FORMATS: Mapping[str, Callable[[Row], dict[str, Any]]] = {"relevo": _own, "onesignal": _onesignal}
"""How the lines of a file are read, by whose file it is."""
