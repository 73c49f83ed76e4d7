"""Commands about what was, or was not, sent."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from relevo import actions, migrate
from relevo.actions import DeadLetters
from relevo.cli.common import load_settings, make_table, open_database, out, shortened

cli = typer.Typer()


@cli.command()
def redrive(
    ids: Annotated[list[int] | None, typer.Option("--id", help="A delivery; may be given again.")] = None,
    error_code: Annotated[str | None, typer.Option(help="Those that failed with this code.")] = None,
    event: Annotated[int | None, typer.Option(help="Those of this event.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what would be sent again; with nothing named, all dead letters."),
    ] = False,
) -> None:
    """Send dead letters again: deliveries that ended as failed. What is past its deadline stays."""
    which = DeadLetters(tuple(ids or ()), error_code, event)
    settings = load_settings()
    with open_database(settings) as database:
        migrate.prepare(database)
        found = actions.dead_letters(database, which, everything=dry_run)
        opened = 0 if dry_run or not found else actions.redrive(database, which)
    if not found:
        out.print("No dead letter fits.")
        return
    table = make_table("error code", "deliveries", "too late", "ids", "example", wide=("example",))
    for row in found:
        example = escape(shortened(row["example"] or ""))
        first = ", ".join(map(str, row["first_ids"])) + (" …" if row["deliveries"] > len(row["first_ids"]) else "")
        table.add_row(escape(row["error_code"]), str(row["deliveries"]), str(row["too_late"]), first, example)
    out.print(table)
    out.print("Nothing was changed." if dry_run else f"{opened} will be sent again.")


@cli.command()
def release(project: Annotated[str, typer.Argument(help="The project, as `relevo status` names it.")]) -> None:
    """Let a project send again: probe its breaker at once, take its brakes off.

    Its rate is full again at once; after a breaker it grows from a quarter, once the probe has gone well.
    """
    settings = load_settings()
    with open_database(settings) as database:
        migrate.prepare(database)
        held = actions.release_project(database, project)
    if held:
        out.print(f"{escape(project)} may send again; if what stopped it is still there, it will stop again.")
    else:
        out.print(f"Nothing held {escape(project)} up.")
