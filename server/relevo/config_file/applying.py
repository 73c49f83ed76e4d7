"""A configuration file is applied in one transaction, or tried in one that is rolled back: both tell what differs.

Each thing that differs is written by the function that its own command calls, which also checks it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from relevo.access import api_tokens, news_names
from relevo.client.connections.refusals import refusals
from relevo.config_file.items import KINDS, Desired, Item, Key, Kind
from relevo.core import queries
from relevo.core.errors import RelevoError, UsageError
from relevo.database.pool import Connection, Database
from relevo.operators import audit, words
from relevo.operators.event_types import TypeSettings
from relevo.operators.reading import of_this_version

_SQL = queries.load("config_file", "client", "event_types", "subscriptions")
State = Mapping[Key, Any]


@dataclass(frozen=True)
class Change:
    """One thing that differs; None as a value: it is not there."""

    key: Key
    before: Any
    after: Any


def read_state(connection: Connection, types: Sequence[str] | None = None) -> State:
    """Read what the database has of all that a file may set; of texts those of some event types, or of all."""
    with of_this_version():
        rows = connection.execute(_SQL["read_configuration"], {"types": types}).fetchall()
    return {
        Key(kind, project, news_names.shown_name(name, project) if kind == "news" else name): value
        for kind, project, name, value in rows
    }


@dataclass(frozen=True)
class Applied:
    """The changes of an applied configuration, and the secrets of new tokens, which Relevo shows only here."""

    changes: Sequence[Change]
    secrets: Mapping[Key, str] = field(repr=False)


def plan(database: Database, wanted: Desired) -> list[Change]:
    """Return what a file would change: it is applied, checked by all that applying checks, and rolled back."""
    with database.transaction() as connection:
        return plan_in(connection, wanted)


def plan_in(connection: Connection, wanted: Desired) -> list[Change]:
    """Return what would be changed, in the caller's transaction, of which nothing is left."""
    with connection.transaction(force_rollback=True):
        return _Writer(connection, wanted, lambda *_: None).write()


def apply_in(connection: Connection, wanted: Desired) -> Applied:
    """Change what differs, all or nothing, in the caller's transaction."""
    secrets: dict[Key, str] = {}
    with connection.transaction():
        changes = _Writer(connection, wanted, secrets.__setitem__).write()
    return Applied(changes, secrets)


def apply_and_tell(database: Database, wanted: Desired) -> Applied:
    """Apply a configuration in one transaction; return what changed, and the secrets of new tokens."""
    with _recorded(database, wanted) as result, database.transaction() as connection:
        applied = apply_in(connection, wanted)
        result.update(changed=[_label(each.key) for each in applied.changes])
    return applied


def apply(database: Database, wanted: Desired, tokens_to: Path | None) -> list[Change]:
    """Apply a file in one transaction; return what changed. The secrets of new tokens go to a new file."""
    with _recorded(database, wanted) as result, database.transaction() as connection:
        with _secrets(tokens_to) as keep:
            changes = _Writer(connection, wanted, keep).write()
        result.update(changed=[_label(each.key) for each in changes])
    return changes


def _recorded(database: Database, wanted: Desired) -> AbstractContextManager[dict[str, Any]]:
    """Record that a configuration is applied, by how many things of each kind it names."""
    named = {kind: count for kind in KINDS if (count := sum(key.kind == kind for key in wanted.items))}
    return audit.recorded(database, "apply_configuration", **named)


def _label(key: Key) -> str:
    return " ".join(filter(None, (key.kind, key.project, key.name)))


@contextmanager
def _secrets(file: Path | None) -> Iterator[Callable[[Key, str], None]]:
    """Write the secrets of new tokens to a new file of mode 600; remove the file if the block fails.

    The block ends before the commit. If the commit fails, the file stays: the tokens may be there.
    """
    made: list[str] = []

    def keep(key: Key, written: str) -> None:
        if file is None:
            raise UsageError(
                f"token {key.name} is not there yet.",
                hint="Add --tokens-to FILE to make it: its secret is written to that new file and kept nowhere else.",
            )
        try:
            opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | (0 if made else os.O_EXCL), 0o600)
        except OSError as error:
            raise UsageError(f"{file} cannot be made: {error.strerror}.", hint="Name a new file.") from error
        made.append(written)
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(f"{key.project or ''}\t{key.name}\t{written}\n")

    try:
        yield keep
    except BaseException:
        if made and file is not None:
            file.unlink(missing_ok=True)
        raise


class _Writer:
    """Writes what differs, in the caller's transaction."""

    def __init__(self, connection: Connection, wanted: Desired, keep: Callable[[Key, str], None]) -> None:
        self._connection = connection
        self._wanted = wanted
        self._keep = keep
        self._types = [key.name for key in wanted.items if key.kind == "words"]
        self._providers: list[str] = []

    def write(self) -> list[Change]:
        """Write what differs, and return it as it can be read afterwards."""
        with of_this_version():
            self._connection.execute(_SQL["take_turn"])
        before = read_state(self._connection, self._types)
        self._providers = words.providers_of(self._connection)
        for key, item in sorted(self._wanted.items.items(), key=lambda each: _order(each[0])):
            if not _is_so(key.kind, item.value, before.get(key)):
                with _naming(item):
                    self._set(key, item.value)
        for key in sorted(before.keys() - self._wanted.items.keys(), key=_order):
            if key.kind in self._wanted.owned:
                self._set(key, None)
        after = read_state(self._connection, self._types)
        keys = sorted(before.keys() | after.keys(), key=_order)
        return [Change(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]

    def _set(self, key: Key, value: Any) -> None:
        """Give a thing its value, or remove it."""
        match key.kind:
            case "event_type":
                self._set_event_type(key, value)
            case "words":
                wording = words.parse({"type": key.name, **value})
                words.write(self._connection, wording, words.check(wording, self._providers))
            case "category":
                self._call("set_category", {"quiet": None} | value | {"category": key.name})
            case "language":
                words.write_project_locale(self._connection, key.project or "", value)
            case "quiet_hours":
                self._call("set_quiet", (value or {"windows": None}) | {"project": key.project})
            case "cap":
                self._set_cap(key, value)
            case "news":
                self._set_news(key, value)
            case "token":
                self._set_token(key, value)

    def _set_event_type(self, key: Key, value: Any) -> None:
        """Set an event type in everything: what the file leaves out follows the settings."""
        if value is None:
            self._connection.execute(_SQL["reset_event_type"], {"event_type": key.name})
        else:
            self._call("set_event_type", dict.fromkeys(_SETTINGS) | value | {"event_type": key.name})

    def _set_cap(self, key: Key, value: Any) -> None:
        """Set or remove a cap."""
        category, _, per = key.name.rpartition("per ")
        removed = {"category": category.strip() or None, "per": per, "most": None}
        self._call("set_cap", (removed if value is None else value) | {"project": key.project})

    def _set_news(self, key: Key, value: Any) -> None:
        """Subscribe to news, or end a subscription of which nothing waits."""
        stored = news_names.stored_name(self._connection, key.name, key.project)
        row = self._connection.execute(_SQL["read_subscription"], {"name": stored}).fetchone()
        project, unread = row or (key.project, 0)
        if project != key.project:
            raise UsageError(f"the subscription {key.name} is one of project {project}.", hint="Choose another name.")
        if value is not None:
            news_names.subscribe(self._connection, key.name, key.project, {"webhook": None} | value)
            return
        if unread:
            hint = f"Read them, or forget them: `relevo news remove {stored} --yes`."
            raise UsageError(f"The file does not name the subscription {stored}, and {unread} news wait.", hint=hint)
        self._connection.execute(_SQL["remove_subscription"], {"name": stored})

    def _set_token(self, key: Key, value: Any) -> None:
        """Make a token, give those of this name another role, or revoke them."""
        asked = {"name": key.name, "project": key.project, "role": value}
        if value is None:
            self._connection.execute(_SQL["revoke_tokens"], asked)
        elif not self._connection.execute(_SQL["set_token_role"], asked).rowcount:
            written, token = api_tokens.draw(key.name, value, key.project)
            api_tokens.add(self._connection, written, token)
            self._keep(key, written)

    def _call(self, statement: str, asked: Mapping[str, Any]) -> None:
        """Call a function of SQL with its JSON."""
        with refusals():
            self._connection.execute(_SQL[statement], {"asked": Jsonb(asked)})


_SETTINGS = [each.name for each in fields(TypeSettings)]


def _order(key: Key) -> tuple[int, str, str]:
    return KINDS.index(key.kind), key.project or "", key.name


def _is_so(kind: Kind, wanted: Any, found: Any) -> bool:
    """Return whether nothing is to be written, as far as that can be told without asking PostgreSQL."""
    if kind == "category" and found is not None:
        texts = found["texts"] | wanted["texts"]
        return bool(found == wanted | {"texts": texts})
    return bool(kind != "words" and wanted == found)


@contextmanager
def _naming(item: Item) -> Iterator[None]:
    """Add to an error the place in the file that caused it."""
    try:
        yield
    except RelevoError as error:
        raise UsageError(f"{item.node.place}: {error.message}", hint=error.hint) from error
