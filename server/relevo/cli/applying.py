"""The command that applies a configuration file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from relevo.cli.common import (
    SKIPPED,
    AsJson,
    as_written,
    load_settings,
    out,
    prepared_database,
    print_json,
    several,
    warn_of_sound,
)
from relevo.config_file import applying, exporting, items, reading
from relevo.config_file.applying import Change
from relevo.core.errors import UsageError

cli = typer.Typer()


@cli.command(epilog="Example: `relevo apply relevo.yaml --plan`, or `relevo apply --export > relevo.yaml`")
def apply(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A YAML file, such as relevo.yaml.", show_default=False)
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what would change; exit code 3 if anything would.")
    ] = False,
    tokens_to: Annotated[
        Path | None, typer.Option(metavar="NEW_FILE", help="The new file for the secrets of new tokens.")
    ] = None,
    export: Annotated[
        bool,
        typer.Option("--export", help="Print the file that describes the database, and change nothing."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Apply a configuration file: event types with their texts, categories, quiet hours, caps, news and tokens.

    Everything is changed in one transaction, or nothing is. The same file applied again changes nothing. What the
    file does not name stays, unless the file owns it.
    """
    if export == (file is not None) or (export and (plan or tokens_to or as_json)):
        raise UsageError("Name one file, or --export alone.", hint="relevo apply relevo.yaml --plan")
    settings = load_settings()
    if file is None:
        with prepared_database(settings) as database, database.connection() as connection:
            sys.stdout.write(exporting.written(applying.read_state(connection)))
        return
    wanted = items.desired(reading.read(file))
    with prepared_database(settings) as database:
        changes = applying.plan(database, wanted) if plan else applying.apply(database, wanted, tokens_to)
    if as_json:
        print_json([_told(each) for each in changes])
    else:
        _print(file, changes, planned=plan)
    warn_of_sound(settings, silently=any(_goes_silently(each.after) for each in changes))
    raise typer.Exit(SKIPPED if plan and changes else 0)


def _print(file: Path, changes: list[Change], *, planned: bool) -> None:
    for each in changes:
        for line in _lines(each):
            out.print(line, soft_wrap=True)
    if not changes:
        out.print(f"No changes: the database is as {as_written(str(file))} says.", soft_wrap=True)
        return
    counts = [sum(_sign(each) == sign for each in changes) for sign in "+~-"]
    told = ", ".join(f"{count} {what}" for count, what in zip(counts, _DONE, strict=True) if count)
    done = "would change; nothing was changed" if planned else "changed"
    out.print(f"{several(len(changes), 'thing')} {done}: {told}.")


_DONE = ("new", "changed", "removed")
_NAMES = {"event_type": "event type", "words": "texts of", "quiet_hours": "quiet hours"}
_COLOURS = {"+": "green", "~": "yellow", "-": "red"}


def _sign(change: Change) -> str:
    return "+" if change.before is None else "-" if change.after is None else "~"


def _lines(change: Change) -> Iterator[str]:
    """Write a change: what is changed, and each of its values before and after."""
    sign, key = _sign(change), change.key
    of = f" of project {key.project}" if key.project is not None else ""
    yield f"[{_COLOURS[sign]}]{sign} {as_written(f'{_NAMES.get(key.kind, key.kind)} {key.name}'.strip() + of)}[/]"
    whole = {"token": "role", "language": "locale"}.get(key.kind, "")
    before, after = dict(_leaves(change.before, whole)), dict(_leaves(change.after, whole))
    for name in sorted(before.keys() | after.keys()) if sign != "-" else ():
        if before.get(name) != after.get(name):
            was, now = (each.get(name, "not set") for each in (before, after))
            yield f"    {as_written(f'{name}: {now}' if sign == '+' else f'{name}: {was} → {now}')}"


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values that lie in one another by their names, such as texts.es.title."""
    if isinstance(value, dict):
        for each, found in value.items():
            yield from _leaves(found, f"{name}.{each}" if name else each)
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value)) or "none"
    elif value is not None:
        yield name, {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _told(change: Change) -> dict[str, Any]:
    return {**change.key._asdict(), "before": change.before, "after": change.after}


def _goes_silently(value: Any) -> bool:
    """Return whether an event type or a category lets pushes go silently."""
    given = value if isinstance(value, dict) else {}
    return "silent" in (given.get("quiet"), given.get("quiet_deadline")) or "quiet_max_wait_s" in given
