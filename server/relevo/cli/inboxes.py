"""The command about inboxes."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from relevo.cli.common import AsJson, as_written, load_settings, make_table, open_database, out, print_json, shortened
from relevo.cli.common import read_installation as read_id
from relevo.client.inboxes import MOST_AT_ONCE, InboxItem, Status
from relevo.operators import inboxes

cli = typer.Typer()


@cli.command()
def inbox(  # noqa: PLR0917 typer options
    owner: Annotated[str | None, typer.Argument(help="Whose inbox.")] = None,
    installation_id: Annotated[
        UUID | None,
        typer.Option("--id", parser=read_id, metavar="UUID", help="That of this installation, which has no owner."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="In this project; needed where there are several.")] = None,
    status: Annotated[Status, typer.Option(help="Which items; current are all that were not archived.")] = "current",
    before: Annotated[str | None, typer.Option(help="Go on from here.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_AT_ONCE, help="How many to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show an owner's inbox, newest first: what they were sent or would have been sent, and what they touched of it."""
    settings = load_settings(only_looks=True)
    with open_database(settings) as database:
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
    table = make_table("event", "came", "type", "title", "marks", wide=("title", "type"))
    for item in found.page.items:
        title = as_written(shortened(item.title or item.body))
        table.add_row(str(item.event_id), f"{item.at:%Y-%m-%d %H:%M}", as_written(item.type), title, _marks(item))
    out.print(table if found.page.items else "Nothing fits." if status != "current" or before else "Nothing is in it.")
    out.print(f"{found.counts.unread} unread, {found.counts.unseen} unseen")
    if found.page.next:
        out.print(f"[dim]More: --before {found.page.next}[/]")


def _marks(item: InboxItem) -> str:
    marks = {"archived": item.archived_at, "read": item.read_at, "seen": item.read_at is None and item.seen_at}
    return ", ".join(name for name, at in marks.items() if at) or "unread"
