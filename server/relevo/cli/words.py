"""Commands for the texts of event types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from relevo.cli.common import (
    AsJson,
    load_settings,
    open_database,
    out,
    prepared_database,
    print_json,
    say,
    warn_of_apply,
    warn_of_leaving,
)
from relevo.core.errors import InvalidInputError, UsageError
from relevo.core.wordings import Text, Wording
from relevo.database.pool import Database
from relevo.operators import words as texts
from relevo.operators.reading import Row

cli = typer.Typer()
words = typer.Typer(help="Texts of event types, in several languages.", no_args_is_help=True)
cli.add_typer(words, name="words")
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Files (.toml or .json), each with the texts of one event type.")
]


@words.command("set", epilog="Example: relevo words set texts/*.toml")
def set_words(
    files: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the files, as if they were saved.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save texts of event types, each as the next version of its type.

    Relevo checks all files before it saves the first: every argument is known, and every language renders with the
    sample and fits the push services of this fleet. A text equal to the current version makes no new version.
    """
    if dry_run:
        _check(files, as_json=as_json)
        return
    parsed = [_parse(file) for file in files]
    with prepared_database() as database:
        with database.connection() as connection:
            providers = texts.providers_of(connection)
        for file, wording in zip(files, parsed, strict=True):
            with _naming(file):
                texts.check(wording, providers)
        for wording in parsed:
            saved = texts.save(database, wording)
            told = "is saved" if saved.created else "is current already"
            done = {"type": wording.event_type, **saved._asdict()}
            say(f"Version {saved.version} of {escape(wording.event_type)} {told}.", done, as_json=as_json)


@words.command(hidden=True, epilog="Example: relevo words check texts/*.toml")
def check(files: Files, as_json: AsJson = False) -> None:
    """Check texts of event types as if they were saved."""
    warn_of_leaving("relevo words check", "use `relevo words set --dry-run`")
    _check(files, as_json=as_json)


def _check(files: Sequence[Path], *, as_json: bool) -> None:
    with open_database(load_settings()) as database, database.connection() as connection:
        providers = texts.providers_of(connection)
    for file in files:
        wording = _parse(file)
        with _naming(file):
            rendered = texts.check(wording, providers)
        words = f"{escape(str(file))}: {escape(wording.event_type)} is well in {', '.join(rendered)}."
        say(words, {"type": wording.event_type, "locales": list(rendered)}, as_json=as_json)


@words.command(
    epilog="Example: relevo words preview texts/order-shipped.toml --argument count=3 --timezone America/Santiago"
)
def preview(
    files: Files,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="NAME=VALUE", help="A value instead of the sample's (repeatable)."),
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="The time zone of the phone, such as America/Santiago.")] = None,
    as_json: AsJson = False,
) -> None:
    """Render the texts of files in every language, with the sample. This needs no database."""
    for file in files:
        wording = _parse(file)
        _show(
            wording.event_type, texts.preview(wording, _arguments(argument or (), wording), timezone), as_json=as_json
        )


@words.command(epilog="Example: relevo words show order.shipped --version 2")
def show(
    event_type: Annotated[
        str | None,
        typer.Argument(metavar="[TYPE]", help="The event type. Default: list all types that have texts."),
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="The version. Default: the current one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the texts of an event type, rendered with the sample, or list the types that have texts."""
    with open_database(load_settings()) as database:
        rows = _list(database) if event_type is None else [texts.show(database, event_type, version)]
    if as_json:
        print_json(rows)
    elif event_type is None:
        if not rows:
            out.print("No event type has texts yet: `relevo words set FILE` saves them.")
        for row in rows:
            out.print(f"{escape(row['event_type'])}: version {row['version']}, in {', '.join(row['texts'])}")
    else:
        wording = Wording.of_row(rows[0])
        out.print(f"Version {wording.version}; arguments: {', '.join(wording.kinds) or 'none'}.")
        _show(wording.event_type, texts.preview(wording), as_json=False)


@words.command(hidden=True, epilog="Example: relevo words language es --project default")
def language(
    locale: Annotated[
        str | None,
        typer.Argument(metavar="[LOCALE]", help="The language, such as es. Default: show the current one."),
    ] = None,
    project: Annotated[str, typer.Option(help="The project of the phones.")] = "default",
    none: Annotated[
        bool, typer.Option("--none", help="Remove the language: such phones get each type's default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set the language for phones of a project whose own language has no text."""
    warn_of_apply("relevo words language", "projects.NAME.language")
    if locale and none:
        raise UsageError("LOCALE and --none exclude each other.", hint="Give one of them.")
    with open_database(load_settings()) as database:
        if locale or none:
            texts.set_project_locale(database, project, locale)
        rows = texts.project_locales(database)
    if as_json:
        print_json(rows)
    for row in [] if as_json else rows:
        out.print(f"{escape(row['project'])}: {escape(row['locale'])}")
    if not rows and not as_json:
        out.print("No project has a language of its own: the default of each type is shown where no other fits.")


def _parse(file: Path) -> Wording:
    given = texts.read_file(file)
    with _naming(file):
        return texts.parse(given)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Add to an error the file that it is in."""
    try:
        yield
    except InvalidInputError as error:
        raise UsageError(f"{file}: {error.message}", hint=error.hint) from error


def _arguments(given: Sequence[str], wording: Wording) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in wording.kinds:
            raise UsageError(
                f"--argument {name} is not one of {wording.event_type}.", hint=f"They are {', '.join(wording.kinds)}."
            )
        found[name] = _number(name, value) if wording.kinds[name] == "number" else value
    return found


def _number(name: str, value: str) -> int | Decimal:
    try:
        number = json.loads(value, parse_float=Decimal, parse_constant=str)
    except ValueError:
        number = value
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        raise UsageError(f"--argument {name} must be a number, got {value!r}.", hint="Write it as 1234.5.")
    return number


def _show(event_type: str, rendered: Mapping[str, Text], *, as_json: bool) -> None:
    if as_json:
        print_json([{"type": event_type, "texts": {locale: text.fields() for locale, text in rendered.items()}}])
        return
    out.print(escape(event_type), style="bold")
    for locale, text in rendered.items():
        shown = " · ".join(part for part in (text.title, text.subtitle, text.body) if part)
        out.print(f"  {locale:8} {escape(shown)}", soft_wrap=True)


def _list(database: Database) -> list[Row]:
    rows, more = texts.list_words(database)
    while more:
        page, more = texts.list_words(database, after=rows[-1]["event_type"])
        rows += page
    return rows
