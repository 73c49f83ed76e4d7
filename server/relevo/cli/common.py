"""Shared parts of the commands: settings, the database, tables, exit codes."""

from __future__ import annotations

import getpass
import inspect
import json
import os
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec, TypeVar, get_type_hints
from uuid import UUID

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from relevo import config
from relevo.config import Settings
from relevo.core import logs
from relevo.core.errors import RelevoError, UsageError
from relevo.database import migrate, opening
from relevo.database.pool import Database
from relevo.database.replica import Reader, open_reader
from relevo.operators import quiet_channel, reading
from relevo.operators.formats import in_words

if TYPE_CHECKING:  # what runs cycles, or reaches a store, is loaded by those commands alone
    from relevo.app import App
    from relevo.core.ports import ArchiveStore
    from relevo.runtime.cycle_facts import CycleFacts
    from relevo.runtime.workers import Role

P = ParamSpec("P")
T = TypeVar("T")
OK, FAILED, USAGE, SKIPPED = 0, 1, 2, 3

out = Console(highlight=False, width=None if sys.stdout.isatty() else 200)  # a pipe is as wide as it needs to be
err = Console(stderr=True, highlight=False, soft_wrap=True)
_FOLDED = 12
_MINUTES, _ANY_MINUTES = 120, 600
MOST_IDS = 2**63 - 1

Limit = Annotated[int, typer.Option(min=1, max=reading.MAX_LIMIT, help="How many to show.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Columns = Mapping[str, Callable[[Any], str]]
"""The heads of a table, and what each column tells of a row."""


def with_options_of(record: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a record that says what it means; it gets them as its `**given`."""
    kinds = get_type_hints(record)
    options = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kinds[each.name], _option(**each.metadata)],
        )
        for each in fields(record)
        if each.metadata
    ]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        first, *others = list(signature.parameters.values())[:-1]
        command.__signature__ = signature.replace(parameters=[first, *options, *others])  # type: ignore[attr-defined]
        return command

    return with_options


def _option(meaning: str, least: int | None, most: int | None, flag: str) -> Any:
    return typer.Option(*filter(None, [flag]), min=least, max=most, help=meaning)


def complain(error: RelevoError, code: int) -> NoReturn:
    """Print an error in a sentence and a next step, and leave."""
    err.print(f"[bold red]relevo:[/] {escape(error.message)}")
    if error.hint:
        err.print(f"[dim]{escape(error.hint)}[/]")
    sys.exit(code)


def user() -> str:
    """Name who runs the command, for the record of what operators do."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def cycle_facts() -> Mapping[str, CycleFacts]:
    """Return what is said of each of Relevo's own cycles, by its name."""
    from relevo import cycles  # noqa: PLC0415 they need most of Relevo, and most commands name none

    return cycles.facts()


def load_settings(*, demo: bool = False, only_looks: bool = False) -> Settings:
    """Load the settings, set up the logs, pass on what looks like a slip."""
    environ = config.environment(**({"RELEVO_DEMO": "true"} if demo else {}))
    settings = config.load(environ, cycles=dict if environ.get("RELEVO_APP") else cycle_facts)
    set_up = logs.configure_later if only_looks else logs.configure
    set_up(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        err.print(f"[yellow]relevo:[/] {escape(warning)}")
    return settings


@contextmanager
def build(settings: Settings, role: Role) -> Iterator[App]:
    """Assemble a process, with what RELEVO_APP adds to it."""
    from relevo import app  # noqa: PLC0415

    with app.build(settings, app.load_parts(settings), role=role) as built:
        yield built


@contextmanager
def open_database(settings: Settings | None = None) -> Iterator[Database]:
    """Open the configured database, or the embedded one; without settings it is for who only looks."""
    with opening.database(settings or load_settings(only_looks=True)) as database:
        database.logs_outages = False
        yield database


@contextmanager
def prepared_database(settings: Settings | None = None) -> Iterator[Database]:
    """Open the database, its schema brought up to date; the settings are those of the environment unless given."""
    with open_database(settings or load_settings()) as database:
        migrate.prepare(database)
        yield database


class Lists:
    """The connection of a command that lists: the replica if there is one, and the primary."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.primary = reader.primary
        self.age_s: float | None = None

    def read(self, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Read something that may be some seconds old."""
        answer = self._reader.read(function, *args, **kwargs)
        self.age_s = answer.age_s
        return answer.value


@contextmanager
def open_lists(settings: Settings | None = None) -> Iterator[Lists]:
    """Open what lists are read from; beside them, not in their midst, it is said how old they are.

    A command knows nothing of the one before it, so a replica is read once it has all that was acknowledged until now.
    """
    settings = settings or load_settings(only_looks=True)
    with open_database(settings) as database, closing(open_reader(database, settings)) as reader:
        reader.catch_up()
        lists = Lists(reader)
        yield lists
    if lists.age_s is not None:
        err.print(f"[dim]Read from a replica, as of {in_words(lists.age_s)} ago.[/]")


def archive_store(settings: Settings) -> ArchiveStore | None:
    """Return the store that months are exported to: that of RELEVO_APP, if it has one, or the configured one."""
    from relevo import app  # noqa: PLC0415

    return app.load_parts(settings).store or app.archive_store(settings)


def split_names(csv: str | None) -> list[str] | None:
    """Split a comma-separated option; not given is None, given and empty is a slip."""
    if csv is None:
        return None
    names = [name.strip() for name in csv.split(",") if name.strip()]
    if not names:
        raise UsageError("No cycle is named.", hint="Leave the option out to run all cycles.")
    return names


class _Fitting(Table):
    """A table whose rows are shown field by field, as psql can, where a narrow window would cut them off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the table, or what it holds."""
        fits = not self.show_header or sum(map(_least, self.columns)) + 2 * len(self.columns) - 2 <= options.max_width
        if fits:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), style="bold")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            fields = Table.grid(padding=(0, 2))
            fields.add_column(style="dim", no_wrap=True)
            fields.add_column(overflow="fold")
            for column, value in zip(self.columns, row, strict=True):
                if value:
                    fields.add_row(column.header, value)
            yield fields
            yield ""


def _least(column: Column) -> int:
    """Return how narrow a column may be: what folds needs less than it would take."""
    widest = max(Text.from_markup(str(each)).cell_len for each in (column.header, *column.cells))
    return widest if column.no_wrap else min(widest, _FOLDED)


def make_table(*columns: str, title: str | None = None, wide: Sequence[str] = ()) -> Table:
    """Make a plain table; its wide columns fold when the window is narrow, the others are never cut off."""
    table = _Fitting(
        title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in wide)
    return table


def print_rows(
    columns: Columns,
    rows: Sequence[Any],
    none: str = "",
    *,
    title: str | None = None,
    wide: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Print rows as a table, or as JSON; where there are none, a sentence that says so."""
    if as_json:
        print_json([row if isinstance(row, dict) else vars(row) for row in rows])
        return
    table = make_table(*columns, title=title, wide=wide)
    for row in rows:
        table.add_row(*(tell(row) for tell in columns.values()))
    out.print(table if rows or not none else none)


def print_moments(moments: Iterable[tuple[datetime, str, str]]) -> None:
    """Print what happened, line by line: when, what, and what was said of it."""
    table = make_table("when (UTC)", "what", "", wide=("",))
    for at, what, detail in moments:
        table.add_row(f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", what, as_written(detail))
    out.print(table)


_COLOURS = {
    **dict.fromkeys(("ok", "alive", "finished", "unchanged", "closed"), "green"),
    **dict.fromkeys(("idle", "stopped"), "dim"),
    **dict.fromkeys(
        ("partial", "skipped", "stopping", "late", "silent", "rests", "cancelled", "held", "unavailable", "probing"),
        "yellow",
    ),
    **dict.fromkeys(("failed", "abandoned", "lost", "rejected", "open"), "bold red"),
    **dict.fromkeys(("running", "fanning", "sending", "sent"), "cyan"),
}


def coloured(word: str) -> str:
    """Colour a state or an outcome."""
    return f"[{_COLOURS.get(word, 'default')}]{word}[/]"


def counted(counts: Any) -> str:
    """Write the counts that are not zero in one line."""
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()) if count)


def told_of(values: Mapping[str, Any]) -> str:
    """Write values with their names, in words: `event id 7, reason late, ttl 60 s`; an answer stands for itself."""
    shown = ((name, value) for name, value in sorted(values.items()) if value not in (None, "", [], {}))
    return ", ".join(_told(name, _in_a_word(value)) for name, value in shown)


def _told(name: str, value: str) -> str:
    if name == "answer":
        return value
    words, _, unit = name.rpartition("_")
    if unit in ("s", "ms"):
        return f"{words.replace('_', ' ')} {value} {unit}"
    return f"{name.replace('_', ' ')} {value}"


def _in_a_word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(_in_a_word, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def by_status(deliveries: Mapping[str, int]) -> str:
    """Write how many deliveries there are of each status: `1 failed, 2 ok`."""
    return ", ".join(f"{count:,} {status}" for status, count in sorted(deliveries.items()) if count)


def several(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: 1 file, 3 files."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """Write how long something was: 4.20 s, 95 s, 9 min."""
    return f"{seconds / 60:.0f} min" if _MINUTES <= seconds < _ANY_MINUTES else in_words(seconds)


def shortened(text: str, limit: int = 80) -> str:
    """Cut a text to fit a table."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def as_written(text: str) -> str:
    """Show what others wrote as they wrote it: neither as markup nor as orders to the terminal."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Return a text without orders to the terminal."""
    return "".join(each if each.isprintable() else " " for each in text)


def print_wrapped(head: str, text: str, style: str = "default") -> None:
    """Print a sentence so that its lines belong together and the `commands` in it can be copied in one piece."""
    kept = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), f"{head} {text}")
    lines = textwrap.fill(kept, out.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    rest = lines.replace("\0", " ").removeprefix(head)
    out.print(f"[{style}]{head}[/]{escape(rest)}", soft_wrap=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how much of a long work is done; in a pipe nothing, so that what is printed stays plain."""
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 seldom needed

    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda count: shown.advance(task, count)


def read_installation(word: str | UUID) -> UUID:
    """Read an installation's id as it was typed."""
    try:
        return UUID(str(word))
    except ValueError:
        raise UsageError(
            f"{printable(str(word)[:60])} is not an installation id.", hint="`relevo installations` lists them."
        ) from None


def read_time(word: str | datetime) -> datetime:
    """Read an instant as it was typed, in UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(str(word))
    except ValueError:
        raise UsageError(
            f"{printable(str(word)[:60])} is no time.", hint="Write it as 2026-11-17T09:30, in UTC."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def columns_of(given: Iterable[str], known: Sequence[str]) -> dict[str, str]:
    """Return in which columns of a file its fields are, as --column says."""
    pairs = dict(one.partition("=")[::2] for one in given)
    for field, name in pairs.items():
        if field not in known or not name:
            raise UsageError(
                f"--column must be like owner=user_id, got {field}={name}.", hint=f"The fields are {', '.join(known)}."
            )
    return pairs


def print_json(rows: Sequence[Any]) -> None:
    """Print one JSON object per line; instants are RFC 3339, in UTC, as HTTP tells them."""
    for row in rows:
        sys.stdout.write(json.dumps(row, default=_plain, ensure_ascii=False) + "\n")


def warn_of_sound(settings: Settings, *, silently: bool = True) -> None:
    """Warn that pushes which are to make no sound do so on Android, if no quiet channel is set."""
    for warning in quiet_channel.warnings_of(settings, silently=silently):
        err.print(f"[yellow]relevo:[/] {warning}")


def warn_of_apply(command: str, place: str) -> None:
    """Warn that a command leaves in 0.6, for a part of the file of `relevo apply` sets the same."""
    warn_of_leaving(command, f"set `{place}` in a file for `relevo apply`")


def warn_of_leaving(command: str, instead: str) -> None:
    """Warn that a command leaves in 0.6, and name what does the same."""
    err.print(f"[yellow]relevo:[/] `{command}` leaves in 0.6: {instead}.", soft_wrap=True)


def say(words: str, told: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result, as a sentence or as one JSON object."""
    print_json([told]) if as_json else out.print(words, soft_wrap=True)


def tell_more(page: reading.Page, what: str, *, as_json: bool = False) -> None:
    """Print where the next page begins, and why a page ended early; beside JSON only that, and not in its midst."""
    if page.looked_at:
        looked = f"The search stopped after {page.looked_at:,} {what}; older ones may match."
        (err if as_json else out).print(f"[dim]{looked} Continue with --before {page.next}[/]", soft_wrap=True)
    elif page.next and not as_json:
        out.print(f"[dim]More: --before {page.next}[/]")


def _plain(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)
