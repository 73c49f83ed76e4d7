"""Commands about people: what is kept of an owner, a block, forgetting; and the categories that people choose."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from relevo.cli.common import (
    AsJson,
    as_written,
    load_settings,
    make_table,
    out,
    prepared_database,
    print_json,
    say,
    several,
)
from relevo.client import consent
from relevo.core.errors import UsageError
from relevo.operators import actions, owners

cli = typer.Typer()
owner = typer.Typer(help="What is kept of a person: show, export, block, forget.", no_args_is_help=True)
cli.add_typer(owner, name="owner")
category = typer.Typer(help="Categories that people may choose: list, set.", no_args_is_help=True)
cli.add_typer(category, name="category")

Name = Annotated[str, typer.Argument(metavar="OWNER", help="As the app registered their phones.")]
Project = Annotated[str | None, typer.Option(help="Only in this project; without it in all.")]


@owner.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show how much is kept of an owner, what they chose, and whether they are blocked."""
    with prepared_database(load_settings(only_looks=True)) as database:
        found = owners.summary(database, name)
    if as_json:
        print_json([{"owner": name, **found}])
        return
    out.print(
        f"{as_written(name)}: {several(found['installations'], 'phone')}, of which {found['receiving']} may receive."
    )
    out.print(f"Named by {several(found['events'], 'event')}.")
    for project, channels in sorted(found["choices"].items()):
        for channel, chosen in sorted(channels.items()):
            said = ", ".join(f"{each}: {'yes' if wanted else 'no'}" for each, wanted in sorted(chosen.items()))
            out.print(f"Chose in {as_written(project)} ({channel}): {as_written(said)}")
    for each in found["blocks"]:
        where = as_written(each["project"]) if each["project"] else "all projects"
        why = f": {as_written(each['reason'])}" if each["reason"] else ""
        out.print(f"Blocked in {where} since {each['since'][:19]}{why}.")


@owner.command()
def export(
    name: Name,
    into: Annotated[
        Path | None, typer.Option(help="The file; it must not be there yet. Without it, standard output.")
    ] = None,
) -> None:
    """Write everything that is kept of an owner as one JSON document; push tokens are shortened, archives not read."""
    with prepared_database() as database:
        items = owners.export(database, name)
        if into is None:
            _write(sys.stdout, name, items)
            return
        try:
            with open(into, "x", encoding="utf-8", opener=_private) as file:
                _write(file, name, items)
        except OSError as error:
            raise UsageError(
                f"{into} cannot be written: {error.strerror}.", hint="Name a file that is not there."
            ) from None
    say(f"Everything that is kept of {as_written(name)} is in {into}.", {}, as_json=False)


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read."""
    return os.open(path, flags, 0o600)


def _write(file: TextIO, name: str, items: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
    """Write one JSON document, item by item: an owner may have a great many."""
    file.write(f'{{"owner": {json.dumps(name, ensure_ascii=False)}')
    written = set()
    for kind, group in groupby(items, key=lambda each: each[0]):
        written.add(kind)
        file.write(f',\n"{kind}": [')
        for place, (_, item) in enumerate(group):
            file.write((",\n  " if place else "\n  ") + json.dumps(item, ensure_ascii=False))
        file.write("\n]")
    file.writelines(f',\n"{kind}": []' for kind in consent.KINDS if kind not in written)
    file.write("}\n")


@owner.command()
def block(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why, for whoever asks later.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Send an owner nothing any more, on no phone, now or later; what is kept of them stays."""
    with prepared_database() as database:
        count = owners.block(database, name, reason, project)
    words = f"{as_written(name)} is blocked: nothing is sent to {several(count, 'phone')}, or to new ones."
    say(words, {"owner": name, "blocked": True, "installations": count}, as_json=as_json)


@owner.command()
def unblock(name: Name, project: Project = None, as_json: AsJson = False) -> None:
    """Let pushes go to an owner again."""
    with prepared_database() as database:
        count = owners.unblock(database, name, project)
    words = f"Pushes go to {as_written(name)} again ({several(count, 'phone')})."
    say(words, {"owner": name, "blocked": False, "installations": count}, as_json=as_json)


@owner.command()
def forget(name: Name, as_json: AsJson = False) -> None:
    """Forget an owner: all phones, what was said to them alone, marks, choices and the name."""
    with prepared_database() as database:
        count = actions.forget_owner(database, name)
    words = f"{as_written(name)} is forgotten, with {several(count, 'phone')}."
    say(words, {"owner": name, "installations": count}, as_json=as_json)


@category.command(name="list")
def list_categories(
    locale: Annotated[str | None, typer.Option(help="In which words, such as es-CL.")] = None,
    for_owner: Annotated[str | None, typer.Option("--owner", help="With what this owner chose.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the categories that people may choose, and whether they are on."""
    with prepared_database(load_settings(only_looks=True)) as database, database.transaction() as connection:
        found = consent.list_categories(connection, owner=for_owner, locale=locale)
    if as_json:
        print_json([vars(each) for each in found])
        return
    table = make_table("category", "name", "rule", "phones", "browsers", "sentence", wide=("name", "sentence"))
    for each in found:
        goes = ["yes" if wanted else "no" for wanted in (each.push, each.web)]
        table.add_row(
            as_written(each.category), as_written(each.name), each.rule, *goes, as_written(each.sentence or "")
        )
    out.print(table if found else "No categories yet: `relevo category set` makes one.")


@category.command(name="set")
def set_category(
    name: Annotated[str, typer.Argument(metavar="CATEGORY", help="The `category` of events.")],
    rule: Annotated[
        str | None, typer.Option(help="on (until refused), off (until accepted) or mandatory; a new one is on.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", metavar="LOCALE=TEXT", help="What people call it; may be given again.")
    ] = None,
    sentences: Annotated[
        list[str] | None, typer.Option("--sentence", metavar="LOCALE=TEXT", help="What it brings; may be given again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make or change a category; what is not given stays as it is. A changed rule holds for what waits, too."""
    settings = load_settings()
    known = {each: each for each in consent.RULES}
    if rule is not None and rule not in known:
        raise UsageError(f"There is no rule {rule}.", hint=f"Known: {', '.join(known)}.")
    texts: dict[str, dict[str, str]] = {locale: {"name": text} for locale, text in _by_locale("--name", names or ())}
    for locale, text in _by_locale("--sentence", sentences or ()):
        texts.setdefault(locale, {})["sentence"] = text
    with prepared_database(settings) as database:
        owners.set_category(database, name, None if rule is None else known[rule], texts)
    say(f"Category {as_written(name)} is set.", {"category": name, "rule": rule}, as_json=as_json)


def _by_locale(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in given:
        locale, separator, text = each.partition("=")
        if not separator:
            raise UsageError(f"{option} must be like es=Ofertas, got {each}.", hint="Write the locale first.")
        yield locale, text
