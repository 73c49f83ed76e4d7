"""Commands about installations: listing them, and registering those of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import typer
from rich.markup import escape

from relevo.cli.common import (
    FAILED,
    OK,
    AsJson,
    Limit,
    as_written,
    columns_of,
    load_settings,
    open_database,
    open_lists,
    out,
    print_json,
    print_rows,
    read_installation,
    several,
)
from relevo.database import migrate
from relevo.operators import phone_import, phones, reasons
from relevo.operators.phone_files import FIELDS
from relevo.operators.phone_import import Progress, Source

cli = typer.Typer()


@cli.command(name="import-phones")
def import_phones(  # noqa: PLR0917 typer options
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file: a .csv with a heading, or a .jsonl.")],
    of: Annotated[
        Literal["relevo", "gorush", "rpush", "onesignal"],
        typer.Option("--from", help="The sender whose columns the file has, or Relevo's own."),
    ] = "relevo",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=COLUMN", help="The column of a field, such as owner=user_id (repeatable)."),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="For phones without one in the file.")] = None,
    project: Annotated[str | None, typer.Option(help="For phones without one in the file.")] = None,
    environment: Annotated[
        Literal["production", "sandbox"] | None, typer.Option(help="For phones of APNs without one in the file.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Register nothing; report which lines would be refused, and why."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register the phones of a file, in batches. FILE.refused.csv lists refused lines with reasons.

    Run it again after an interruption: it continues by FILE.progress. A phone that exists with the same token and
    owner stays the same.

    \b
    relevo import-phones phones.csv --project shop
    relevo import-phones users.csv --from onesignal --project shop
    relevo import-phones tokens.jsonl --provider fcm --column token=fcm_token --column owner=user_id
    """
    settings = load_settings()
    given = {"provider": provider, "project": project, "environment": environment}
    usual = {name: value for name, value in given.items() if value is not None}
    source = Source(file, of, columns_of(column or (), FIELDS), usual)
    with open_database(settings) as database:
        if not dry_run:
            migrate.prepare(database)
        done = phone_import.run(database, source, dry_run=dry_run, tell=lambda _: None if as_json else _tell(done=_))
    _say(source, done, dry_run=dry_run, as_json=as_json)
    sys.exit(FAILED if done.refused else OK)


def _tell(done: Progress) -> None:
    if out.is_terminal:
        out.print(f"line {done.line}: {done.registered} registered, {done.refused} refused", end="\r")


def _say(source: Source, done: Progress, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {"registered": done.registered, "refused": done.refused}
        told |= {"lines": done.line, "dry_run": dry_run}
        told |= {"denied": done.denied, "reasons": done.reasons, "dropped": done.dropped}
        print_json([told | {"refused_file": str(source.refused_file) if done.refused and not dry_run else None}])
        return
    would = "would be " if dry_run else ""
    where = f": see {escape(str(source.refused_file))}" if done.refused and not dry_run else ""
    phones, lines = several(done.registered, "phone"), several(done.refused, "line")
    out.print(f"{phones} {would}registered, {lines} {would}refused{where}.")
    for reason, count in sorted(done.reasons.items(), key=lambda each: -each[1]):
        out.print(f"  {several(count, 'line')}: {as_written(reason)}")
    if done.denied:
        get = "would get" if dry_run else "get"
        out.print(f"{several(done.denied, 'phone')} of these {get} no pushes: their owners unsubscribed.")
    if done.dropped:
        out.print(f"Columns left out, because Relevo has no field for them: {as_written(', '.join(done.dropped))}.")


@cli.command(epilog="Example: relevo installations --owner user-7")
def installations(  # noqa: PLR0917 typer options
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    token: Annotated[str | None, typer.Option(help="Only the installation with this push token.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only installations of this owner.")] = None,
    installation_id: Annotated[
        UUID | None,
        typer.Option("--id", parser=read_installation, metavar="UUID", help="Only the installation with this id."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show installations, newest first. A token is shown by its first letters and a mark that distinguishes it."""
    wanted: dict[str, Any] = {"project": project, "token": token, "owner": owner, "installation_id": installation_id}
    with open_lists() as lists:
        rows = lists.read(phones.installations, **wanted, limit=limit)
    columns = {
        "installation": lambda row: str(row["installation_id"]),
        "owner": lambda row: as_written(row["owner"] or ""),
        "token": lambda row: as_written(row["token"] or ""),
        "project": lambda row: as_written(row["project"]),
        "asks for": lambda row: str(row["preferences"]),
        "receives": lambda row: "[green]yes[/]" if row["receives"] else f"[yellow]no: {as_written(_why_not(row))}[/]",
    }
    none_yet = "No installations yet: `select relevo.register_installation(…)` registers one."
    none = "No installation matches." if any(wanted.values()) else none_yet
    print_rows(columns, rows, none, wide=("owner", "project", "receives"), as_json=as_json)


def _why_not(row: dict[str, Any]) -> str:
    """Return why pushes may not go to a phone; a code of ours in words."""
    return reasons.not_allowed(row["why_not"]) if row["why_not"] == "token_moved" else str(row["why_not"])
