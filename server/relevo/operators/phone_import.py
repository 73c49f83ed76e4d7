"""Registers the phones of a file in batches: what cannot be is reported by its line, and a broken import goes on.

How far it came is written beside the file after each batch is committed. A batch that was committed and not yet noted
is registered again: the same token and owner is the same installation.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psycopg

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.core.errors import InvalidInputError, UsageError
from relevo.core.logs import normalise_error
from relevo.database.pool import Database
from relevo.operators import audit, phone_files
from relevo.operators.phone_files import Line

_BATCH = 1_000
_MOST_REASONS, _OTHERWISE, _MOST_DROPPED = 50, "other reasons", 100
_HEADING = ("line", "reason")
_OF_A_ROW = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)
"""PostgreSQL's error about one row: it cannot be written, or a constraint or a trigger of yours refuses it."""


@dataclass(frozen=True)
class Source:
    """The file, whose it is, where our fields are in it, and what is not in it."""

    path: Path
    kind: str = "relevo"
    columns: Mapping[str, str] = field(default_factory=dict)
    usual: Mapping[str, str] = field(default_factory=dict)

    @property
    def refused_file(self) -> Path:
        """Where the lines that were refused are listed."""
        return self.path.with_name(f"{self.path.name}.refused.csv")

    @property
    def progress_file(self) -> Path:
        """Where it is noted how far an import came."""
        return self.path.with_name(f"{self.path.name}.progress")


@dataclass(frozen=True)
class Progress:
    """How far an import came: the last line that is done, and how many lines were what."""

    line: int = 0
    registered: int = 0
    refused: int = 0
    refused_bytes: int = 0
    """How long the list of refused lines was: what stands behind it belongs to a batch that is done again."""
    file_bytes: int = 0
    denied: int = 0
    """How many of the registered get nothing, because their owner unsubscribed or denied it."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why lines were refused, and how many."""
    dropped: list[str] = field(default_factory=list)
    """The columns that Relevo has no place for."""

    def with_batch(
        self, source: Source, lines: Sequence[Line], phones: Sequence[_Phone], refusals: Sequence[_Refusal]
    ) -> Progress:
        """Return how far the import is after a batch, of which these phones were to be registered."""
        lost = {refusal.line for refusal in refusals}
        taken = [phone for phone in phones if phone.line not in lost]
        reasons, unused = dict(self.reasons), set(self.dropped)
        for refusal in refusals:
            why = refusal.reason if refusal.reason in reasons or len(reasons) < _MOST_REASONS else _OTHERWISE
            reasons[why] = reasons.get(why, 0) + 1
        for line in lines:
            unused |= phone_files.dropped(line.row or {}, source.kind, source.columns)
        return replace(
            self,
            line=lines[-1].number,
            registered=self.registered + len(taken),
            refused=self.refused + len(refusals),
            denied=self.denied + sum(phone.installation.permission == "denied" for phone in taken),
            reasons=reasons,
            dropped=sorted(unused)[:_MOST_DROPPED],
        )


class _Refusal(NamedTuple):
    line: int
    reason: str


class _Phone(NamedTuple):
    line: int
    installation: Installation


Tell = Callable[[Progress], None]


def run(database: Database, source: Source, *, dry_run: bool = False, tell: Tell = lambda _: None) -> Progress:
    """Register all phones of a file, or go on where the last import of it ended; return how it went."""
    if dry_run:
        return _check(source)
    done = _resumed(source)
    with audit.recorded(database, "import_phones", file=source.path.name, kind=source.kind) as result:
        for lines in _batches(source, done.line):
            phones, refusals = _converted(source, lines)
            refusals += _register(database, phones)
            done = _list(source, done.with_batch(source, lines, phones, refusals), refusals)
            _note(source, done)
            tell(done)
        result.update(registered=done.registered, refused=done.refused)
    source.progress_file.unlink(missing_ok=True)
    return done


def _check(source: Source) -> Progress:
    """Check what can be checked without the database, and write nothing."""
    done = Progress()
    for lines in _batches(source, 0):
        phones, refusals = _converted(source, lines)
        done = done.with_batch(source, lines, phones, refusals)
    return done


def _batches(source: Source, behind: int) -> Iterator[list[Line]]:
    lines = (line for line in phone_files.read(source.path) if line.number > behind)
    while batch := list(islice(lines, _BATCH)):
        yield batch


def _converted(source: Source, lines: Sequence[Line]) -> tuple[list[_Phone], list[_Refusal]]:
    phones, refusals = [], []
    for line in lines:
        if line.row is None:
            refusals.append(_Refusal(line.number, line.wrong))
            continue
        try:
            phone = phone_files.installation(line.row, source.kind, source.columns, source.usual)
            verbs.registration(phone)
        except InvalidInputError as error:
            refusals.append(_Refusal(line.number, error.message))
        else:
            phones.append(_Phone(line.number, phone))
    return phones, refusals


def _register(database: Database, phones: Sequence[_Phone]) -> list[_Refusal]:
    """Register a batch in one statement; if the database refuses one of it, in halves, down to that one."""
    if not phones:
        return []
    try:
        with database.transaction() as connection:
            verbs.register_many(connection, [phone.installation for phone in phones])
    except (InvalidInputError, *_OF_A_ROW) as error:
        if len(phones) == 1:
            said = error.message if isinstance(error, InvalidInputError) else normalise_error(error, 200)
            return [_Refusal(phones[0].line, said)]
        half = len(phones) // 2
        return _register(database, phones[:half]) + _register(database, phones[half:])
    return []


def _list(source: Source, done: Progress, refusals: Sequence[_Refusal]) -> Progress:
    """Add refused lines to their list, in order, and note how long it is."""
    at = done.refused_bytes
    if refusals:
        with source.refused_file.open("a", encoding="utf-8", newline="") as file:
            file.truncate(at)
            writer = csv.writer(file)
            if at == 0:
                writer.writerow(_HEADING)
            writer.writerows(sorted(refusals))
        at = source.refused_file.stat().st_size
    return replace(done, refused_bytes=at)


def _note(source: Source, done: Progress) -> None:
    new = source.progress_file.with_name(f"{source.progress_file.name}.new")
    new.write_text(json.dumps(asdict(done)), encoding="utf-8")
    new.replace(source.progress_file)


def _resumed(source: Source) -> Progress:
    """Return how far the last import of this file came, if it did not come to its end."""
    size = source.path.stat().st_size if source.path.exists() else 0
    try:
        done = Progress(**json.loads(source.progress_file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        source.refused_file.unlink(missing_ok=True)
        return Progress(file_bytes=size)
    except (OSError, ValueError, TypeError):
        raise UsageError(f"{source.progress_file} cannot be read.", hint="Delete it to begin anew.") from None
    if done.file_bytes != size:
        raise UsageError(
            f"{source.path} changed since its import was broken off.",
            hint=f"Delete {source.progress_file} to begin anew.",
        )
    return done
