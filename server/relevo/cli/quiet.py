"""Commands for quiet hours, and for caps on how much people are sent."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

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
)
from relevo.client import quiet as verbs
from relevo.core.errors import UsageError
from relevo.operators import owners

cli = typer.Typer()
quiet = typer.Typer(help="Quiet hours of owners, phones and projects: set, show.", no_args_is_help=True)
cli.add_typer(quiet, name="quiet")
cap = typer.Typer(help="Caps on how much one person is sent: list, set.", no_args_is_help=True)
cli.add_typer(cap, name="cap")

Owner = Annotated[str | None, typer.Option(help="Whose phones.")]
Phone = Annotated[UUID | None, typer.Option("--phone", help="One installation, by its id.")]
Project = Annotated[str | None, typer.Option(help="Its phones that have no other hours; with --owner: only there.")]


@quiet.command(name="set")
def set_quiet(  # noqa: PLR0917 typer options
    windows: Annotated[
        list[str] | None,
        typer.Argument(metavar="WINDOW…", help="Such as 22:00-07:00 or 'sat,sun 07:00-10:00'; none: never quiet."),
    ] = None,
    owner: Owner = None,
    phone: Phone = None,
    project: Project = None,
    zone: Annotated[str | None, typer.Option(help="The time zone of phones that did not say theirs.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the hours back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set when phones are left in peace; what waits for an owner alone follows at once."""
    _refuse_nobody(owner, phone, project)
    if remove and windows:
        raise UsageError("--remove takes hours back, and windows set them.", hint="Give one of both.")
    with prepared_database() as database:
        changed = owners.set_quiet(
            database, None if remove else windows or [], owner=owner, phone=phone, project=project, zone=zone
        )
    words = "The quiet hours are set." if changed else "Nothing changed: these hours were set already."
    say(words, {"changed": changed}, as_json=as_json)


@quiet.command(name="show")
def show_quiet(owner: Owner = None, phone: Phone = None, project: Project = None, as_json: AsJson = False) -> None:
    """Show the quiet hours of an owner or a project, or those that hold for a phone and whose they are."""
    _refuse_nobody(owner, phone, project)
    with prepared_database(load_settings(only_looks=True)) as database, database.transaction() as connection:
        found = verbs.get_quiet(connection, owner=owner, installation_id=phone, project=project)
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
    by = "nobody said another zone" if found.zone_of == "none" else f"the zone of the {found.zone_of}"
    out.print(f"{hours}{zone}" + (f" (the hours of the {found.hours_of}; {by})" if found.hours_of else ""))
    if found.quiet_until:
        out.print(f"Quiet now, until {found.quiet_until:%Y-%m-%d %H:%M:%SZ}.")


@cap.command(name="list")
def list_caps(
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None, as_json: AsJson = False
) -> None:
    """List the caps."""
    with prepared_database(load_settings(only_looks=True)) as database, database.transaction() as connection:
        found = verbs.list_caps(connection, project=project)
    if as_json:
        print_json([vars(each) for each in found])
        return
    table = make_table("project", "category", "at most", "over it")
    for each in found:
        category = as_written(each.category) if each.category else "all"
        table.add_row(as_written(each.project), category, f"{each.most} per {each.per}", each.over)
    out.print(table if found else "No caps: `relevo cap set` makes one.")


@cap.command(name="set")
def set_cap(  # noqa: PLR0917 typer options
    per: Annotated[Literal["hour", "day", "week"], typer.Argument(help="Of the calendar of whom it is for.")],
    most: Annotated[
        int | None, typer.Argument(min=1, max=1_000, help="How many events at most; without it there is no cap.")
    ] = None,
    category: Annotated[str | None, typer.Option(help="Only events of this category.")] = None,
    project: Annotated[str, typer.Option(help="Whose phones.")] = "default",
    over: Annotated[
        Literal["skip", "digest"], typer.Option(help="Leave what is over it to the inbox, or tell it in a digest.")
    ] = "skip",
    as_json: AsJson = False,
) -> None:
    """Set how many events an owner is sent at most; urgent ones and mandatory categories neither count nor are held."""
    with prepared_database() as database:
        changed = owners.set_cap(database, most, per=per, category=category, project=project, over=over)
    words = "The cap is set." if most else "There is no such cap any more."
    say(words if changed else "Nothing changed.", {"changed": changed}, as_json=as_json)


def _refuse_nobody(owner: str | None, phone: UUID | None, project: str | None) -> None:
    if owner is None and phone is None and project is None:
        raise UsageError("Nobody is named.", hint="Give --owner, --phone or --project.")
