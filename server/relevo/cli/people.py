"""Commands about people: what is kept of them, their inboxes, what they choose, their quiet hours and caps."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO
from uuid import UUID

import typer

from relevo.cli.common import (
    AsJson,
    as_written,
    err,
    load_settings,
    open_database,
    out,
    prepared_database,
    print_json,
    print_rows,
    read_installation,
    say,
    several,
    shortened,
    warn_of_apply,
    warn_of_leaving,
    warn_of_sound,
)
from relevo.client import consent
from relevo.client import quiet as client_quiet
from relevo.client.inboxes import MOST_AT_ONCE, InboxItem, Status
from relevo.core.errors import NotFoundError, UsageError
from relevo.database.pool import Database
from relevo.operators import inboxes, owners
from relevo.verbs import choices
from relevo.verbs import owners as verbs
from relevo.verbs import phones as phone_verbs
from relevo.verbs import quiet as quiet_verbs
from relevo.verbs.callers import operator

cli = typer.Typer()
owner = typer.Typer(help="Owners and their data: show, export, block, forget.", no_args_is_help=True)
cli.add_typer(owner, name="owner")
category = typer.Typer(help="Categories that people may choose: list, set.", no_args_is_help=True)
cli.add_typer(category, name="category", hidden=True)
quiet = typer.Typer(help="Quiet hours of owners, phones and projects: set, show.", no_args_is_help=True)
cli.add_typer(quiet, name="quiet")
cap = typer.Typer(help="Caps on how much one person is sent: list, set.", no_args_is_help=True)
cli.add_typer(cap, name="cap", hidden=True)

Name = Annotated[str, typer.Argument(metavar="OWNER", help="The owner's name, as your app registered the phones.")]
Project = Annotated[str | None, typer.Option(help="The project. Default: all.")]
HoursOwner = Annotated[str | None, typer.Option(help="Whose phones.")]
Phone = Annotated[UUID | None, typer.Option("--phone", help="An installation, by its id.")]
HoursProject = Annotated[
    str | None,
    typer.Option(help="This project's phones without other hours; with --owner, the owner's hours in it."),
]


@owner.command(epilog="Example: relevo owner show user-7")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show how much Relevo stores about an owner, the owner's choices, and whether the owner is blocked."""
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


_NAMES = {
    True: "shared: equal owner names of projects are one person. An event for owners without project goes to their "
    "phones in all projects.",
    False: "separate: equal owner names of projects are different people. An event for owners without project goes to "
    "the project default.",
}


@owner.command(epilog="Example: relevo owner names shared")
def names(
    names: Annotated[
        Literal["separate", "shared"] | None,
        typer.Argument(help="The rule to set. Default: show the current one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or set whether equal owner names of several projects are one person."""
    with prepared_database(load_settings(only_looks=names is None)) as database:
        if names is not None:
            owners.share(database, shared=names == "shared")
        shared = owners.are_shared(database)
    say(_NAMES[shared], {"names": "shared" if shared else "separate"}, as_json=as_json)


@owner.command(epilog="Example: relevo owner export user-7 --into user-7.json")
def export(
    name: Name,
    into: Annotated[Path | None, typer.Option(help="The new file to write. Default: standard output.")] = None,
) -> None:
    """Write everything that Relevo stores about an owner as one JSON document, without archives, and with shortened
    push tokens."""
    with prepared_database() as database:
        items = verbs.export(operator(database), name)
        if into is None:
            _write(sys.stdout, name, items)
            return
        try:
            with open(into, "x", encoding="utf-8", opener=_private) as file:
                _write(file, name, items)
        except OSError as error:
            raise UsageError(
                f"{into} cannot be written: {error.strerror}.", hint="Name a file that does not exist yet."
            ) from None
    say(f"All data of {as_written(name)} is in {into}.", {}, as_json=False)


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


@owner.command(epilog="Example: relevo owner block user-7 --reason 'asked by mail, 17 November'")
def block(
    name: Name,
    reason: Annotated[str, typer.Option(help="The reason, for the records.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Block an owner: no phone of the owner, present or future, gets a push. The stored data stay."""
    with prepared_database() as database:
        count = verbs.block(operator(database), name, reason, project)
    words = f"{as_written(name)} is blocked: nothing is sent to {several(count, 'phone')}, or to new ones."
    say(words, {"owner": name, "blocked": True, "installations": count}, as_json=as_json)


@owner.command(epilog="Example: relevo owner unblock user-7")
def unblock(name: Name, project: Project = None, as_json: AsJson = False) -> None:
    """Unblock an owner, who then gets pushes again."""
    with prepared_database() as database:
        count = verbs.unblock(operator(database), name, project)
    words = f"Pushes go to {as_written(name)} again ({several(count, 'phone')})."
    say(words, {"owner": name, "blocked": False, "installations": count}, as_json=as_json)


@owner.command(epilog="Example: `relevo owner forget user-7`, or `--phone INSTALLATION` for one phone.")
def forget(
    name: Annotated[str | None, typer.Argument(metavar="OWNER", help="The owner's name.", show_default=False)] = None,
    phone: Annotated[
        UUID | None,
        typer.Option(
            "--phone", parser=read_installation, metavar="UUID", help="Instead of an owner: one installation."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete an owner: all phones, the texts sent to the owner alone, marks, choices and the name.

    With --phone, delete one installation and the texts sent to it alone. Archived rows hold a random key.
    """
    if (name is None) == (phone is None):
        raise UsageError(
            "Name an owner or an installation.", hint="`relevo owner forget OWNER`, or --phone INSTALLATION."
        )
    with prepared_database() as database:
        if name is not None:
            count = verbs.forget(operator(database), name)
            words = f"{as_written(name)} is forgotten, with {several(count, 'phone')}."
            say(words, {"owner": name, "installations": count}, as_json=as_json)
            return
        assert phone is not None  # one of the two is given
        try:
            phone_verbs.forget(operator(database), phone)
        except NotFoundError as error:
            raise UsageError(error.message, hint="`relevo installations` lists them.") from None
    told = {"installation_id": phone, "installations": 1}
    say(f"Installation {phone} is forgotten.", told, as_json=as_json)


@category.command(name="list", hidden=True, epilog="Example: relevo category list --locale es-CL")
def list_categories(
    locale: Annotated[str | None, typer.Option(help="The language of the names, such as es-CL.")] = None,
    for_owner: Annotated[str | None, typer.Option("--owner", help="Show this owner's choices, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the categories that people may choose, and whether they are on."""
    warn_of_leaving(
        "relevo category list", "use `relevo apply --export`, or `relevo owner show` for an owner's choices"
    )
    with prepared_database(load_settings(only_looks=True)) as database, database.transaction() as connection:
        found = consent.list_categories(connection, owner=for_owner, locale=locale)
    columns = {
        "category": lambda each: as_written(each.category),
        "name": lambda each: as_written(each.name),
        "rule": lambda each: each.rule,
        "quiet hours": lambda each: each.quiet or "by type",
        "phones": lambda each: "yes" if each.push else "no",
        "browsers": lambda each: "yes" if each.web else "no",
        "sentence": lambda each: as_written(each.sentence or ""),
    }
    none = "No categories yet: `relevo apply` creates them."
    print_rows(columns, found, none, wide=("name", "sentence"), as_json=as_json)


@category.command(
    name="set",
    hidden=True,
    epilog="Example: relevo category set offers --rule off --name en=Offers --name es=Ofertas",
)
def set_category(  # noqa: PLR0917 typer options
    name: Annotated[str, typer.Argument(metavar="CATEGORY", help="The `category` of events.")],
    rule: Annotated[
        str | None, typer.Option(help="on (until refused), off (until accepted) or mandatory; a new one is on.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="LOCALE=TEXT", help="Its name for people, by language (repeatable)."),
    ] = None,
    sentences: Annotated[
        list[str] | None,
        typer.Option(
            "--sentence", metavar="LOCALE=TEXT", help="A sentence that describes it, by language (repeatable)."
        ),
    ] = None,
    quiet: Annotated[
        Literal["wait", "silent", "ignore", "by-type"] | None,
        typer.Option(help="What its events do in quiet hours, whatever their type sets; by-type: what the type sets."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create or change a category (omitted options stay). A changed rule also applies to waiting pushes."""
    warn_of_apply("relevo category set", "categories")
    known = {each: each for each in consent.RULES}
    if rule is not None and rule not in known:
        raise UsageError(f"There is no rule {rule}.", hint=f"Known: {', '.join(known)}.")
    settings = load_settings()
    texts: dict[str, dict[str, str]] = {locale: {"name": text} for locale, text in _by_locale("--name", names or ())}
    for locale, text in _by_locale("--sentence", sentences or ()):
        texts.setdefault(locale, {})["sentence"] = text
    in_quiet_hours = None if quiet == "by-type" else ... if quiet is None else quiet
    with prepared_database(settings) as database:
        choices.set_category(
            operator(database), name, None if rule is None else known[rule], texts, quiet=in_quiet_hours
        )
    warn_of_sound(settings, silently=quiet == "silent")
    say(f"Category {as_written(name)} is set.", {"category": name, "rule": rule}, as_json=as_json)


def _by_locale(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in given:
        locale, separator, text = each.partition("=")
        if not separator:
            raise UsageError(f"{option} must be like es=Ofertas, got {each}.", hint="Write the locale first.")
        yield locale, text


@quiet.command(
    name="set",
    epilog="Example: relevo quiet set 22:00-07:00 'sat,sun 07:00-10:00' --owner user-7 --zone America/Santiago",
)
def set_quiet(  # noqa: PLR0917 typer options
    windows: Annotated[
        list[str] | None,
        typer.Argument(metavar="WINDOW…", help="Windows, such as 22:00-07:00 or 'sat,sun 07:00-10:00'."),
    ] = None,
    owner: HoursOwner = None,
    phone: Phone = None,
    project: HoursProject = None,
    zone: Annotated[
        str | None, typer.Option(help="The zone of phones that registered none, such as America/Santiago.")
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="Never quiet, whatever the owner or the project has.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the hours.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set quiet hours of an owner, a phone or a project. Relevo checks waiting personal events again."""
    _refuse_nobody(owner, phone, project)
    if (bool(windows) + never + remove) > 1:
        raise UsageError("Windows, --never and --remove exclude each other.", hint="Give one of them.")
    if not (windows or never or remove or zone):
        raise UsageError(
            "No hours are given.", hint="Give windows such as 22:00-07:00, or --never, --remove or --zone."
        )
    settings = load_settings()
    with prepared_database(settings) as database:
        if windows and zone is None and phone is None:
            zone = _zone_of(database, owner, project)
        hours = {"windows": None if remove else [] if never else windows or ..., "zone": zone or ...}
        changed = quiet_verbs.set_quiet(operator(database), hours, owner=owner, phone=phone, project=project)
    words = "The quiet hours are set." if changed else "Nothing changed: these hours were already set."
    say(words, {"changed": changed}, as_json=as_json)
    warn_of_sound(settings, silently=bool(windows))


def _zone_of(database: Database, owner: str | None, project: str | None) -> str | None:
    """Return None if the hours have a time zone already; else ask for one, and where nobody can be asked, refuse."""
    with database.transaction() as connection:
        if client_quiet.get_quiet(connection, owner=owner, project=project).zone:
            return None
    if not sys.stdin.isatty():
        raise UsageError(
            "Quiet hours need a time zone: a phone that registered none goes by it.",
            hint="Give --zone, such as --zone America/Santiago.",
        )
    return str(typer.prompt("Time zone of phones that registered none (such as America/Santiago)"))


@quiet.command(name="show", epilog="Example: relevo quiet show --owner user-7")
def show_quiet(
    owner: HoursOwner = None, phone: Phone = None, project: HoursProject = None, as_json: AsJson = False
) -> None:
    """Show the quiet hours of an owner or a project, or those that apply to a phone and who set them."""
    _refuse_nobody(owner, phone, project)
    with prepared_database(load_settings(only_looks=True)) as database, database.transaction() as connection:
        found = client_quiet.get_quiet(connection, owner=owner, installation_id=phone, project=project)
    if as_json:
        print_json([vars(found)])
        return
    if found.windows is None:
        out.print("No quiet hours are set.")
        return
    hours = ", ".join(found.windows) or "never quiet"
    zone = (
        f" in {as_written(found.zone)}" if found.zone else ", by the clock of each phone (else the project's, else UTC)"
    )
    by = "no time zone is set" if found.zone_of == "none" else f"the zone of the {found.zone_of}"
    out.print(f"{hours}{zone}" + (f" (the hours of the {found.hours_of}; {by})" if found.hours_of else ""))
    if found.zone_of == "none":
        err.print(
            "[yellow]This phone has no time zone, so UTC applies: register it with `timezone`, or give --zone.[/]"
        )
    if found.quiet_until:
        out.print(f"Quiet now, until {found.quiet_until:%Y-%m-%d %H:%M:%SZ}.")


@cap.command(name="list", hidden=True, epilog="Example: relevo cap list --json")
def list_caps(
    project: Annotated[str | None, typer.Option(help="Only caps of this project.")] = None, as_json: AsJson = False
) -> None:
    """List the caps."""
    warn_of_leaving("relevo cap list", "use `relevo apply --export`")
    with prepared_database(load_settings(only_looks=True)) as database:
        found = quiet_verbs.list_caps(operator(database), project)
    columns = {
        "project": lambda each: as_written(each.project),
        "category": lambda each: as_written(each.category) if each.category else "all",
        "at most": lambda each: f"{each.most} per {each.per}",
        "over it": lambda each: each.over,
    }
    print_rows(columns, found, "No caps: `relevo apply` creates them.", as_json=as_json)


@cap.command(name="set", hidden=True, epilog="Example: relevo cap set day 5 --category offers")
def set_cap(  # noqa: PLR0917 typer options
    per: Annotated[
        Literal["hour", "day", "week"], typer.Argument(help="The period, by the local time of the recipient.")
    ],
    most: Annotated[int | None, typer.Argument(min=1, max=1_000, help="How many events at most.")] = None,
    category: Annotated[str | None, typer.Option(help="Count only events of this category.")] = None,
    project: Annotated[str, typer.Option(help="Whose phones.")] = "default",
    over: Annotated[
        Literal["skip", "digest"] | None,
        typer.Option(
            help="Where an event above the cap goes: only to the inbox (default of a new cap), or to a digest."
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the cap.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set how many events an owner gets at most. Urgent events and mandatory categories neither count nor are held."""
    warn_of_apply("relevo cap set", "projects.NAME.caps")
    if remove == (most is not None):
        raise UsageError("A cap needs a number, or --remove.", hint="Write it like: relevo cap set day 5.")
    given: dict[str, Literal["skip", "digest"]] = {} if over is None else {"over": over}
    with prepared_database() as database:
        changed = quiet_verbs.set_cap(
            operator(database), most=most, per=per, category=category, project=project, **given
        )
    words = "The cap is set." if most else "The cap is removed."
    say(words if changed else "Nothing changed.", {"changed": changed}, as_json=as_json)


def _refuse_nobody(owner: str | None, phone: UUID | None, project: str | None) -> None:
    if owner is None and phone is None and project is None:
        raise UsageError("No owner, phone or project is named.", hint="Give --owner, --phone or --project.")


@cli.command(epilog="Example: relevo inbox user-7 --status unread")
def inbox(  # noqa: PLR0917 typer options
    owner: Annotated[str | None, typer.Argument(help="The owner of the inbox.")] = None,
    installation_id: Annotated[
        UUID | None,
        typer.Option(
            "--id", parser=read_installation, metavar="UUID", help="The inbox of this installation, which has no owner."
        ),
    ] = None,
    project: Annotated[str | None, typer.Option(help="The project; required if there are several.")] = None,
    status: Annotated[Status, typer.Option(help="The items to show; current: all that are not archived.")] = "current",
    before: Annotated[str | None, typer.Option(help="Where to continue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_AT_ONCE, help="How many to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show an owner's inbox, newest first: its items, and which were seen, read or opened."""
    with open_database() as database:
        found = inboxes.read(
            database,
            owner=owner,
            installation_id=installation_id,
            project=project,
            status=status,
            before=before,
            limit=limit,
        )
    if as_json:
        print_json([*found.page.raw["items"]])
        return
    columns = {
        "event": lambda item: str(item.event_id),
        "came": lambda item: f"{item.at:%Y-%m-%d %H:%M}",
        "type": lambda item: as_written(item.type),
        "title": lambda item: as_written(shortened(item.title or item.body)),
        "marks": _marks,
    }
    none = "Nothing fits." if status != "current" or before else "The inbox is empty."
    print_rows(columns, found.page.items, none, wide=("title", "type"))
    out.print(f"{found.counts.unread} unread, {found.counts.unseen} unseen")
    if found.page.next:
        out.print(f"[dim]More: --before {found.page.next}[/]")


def _marks(item: InboxItem) -> str:
    marks = {"archived": item.archived_at, "read": item.read_at, "seen": item.read_at is None and item.seen_at}
    return ", ".join(name for name, at in marks.items() if at) or "unread"
