"""Commands that have something tried again: pushes, projects, what sources offered."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Annotated, Any

import typer
from rich.markup import escape

from relevo.cli.common import (
    MOST_IDS,
    AsJson,
    Limit,
    as_written,
    load_settings,
    open_database,
    out,
    prepared_database,
    print_json,
    print_rows,
    progress,
    say,
    several,
    shortened,
)
from relevo.core.errors import UsageError
from relevo.operators import actions, sources
from relevo.operators.actions import DeadLetters
from relevo.operators.formats import MOST_COUNTED

cli = typer.Typer()
_MOST_IDS = 5


@cli.command(epilog="Example: relevo redrive --error-code MessageRateExceeded --dry-run")
def redrive(
    *,
    ids: Annotated[
        list[int] | None, typer.Option("--id", min=1, max=MOST_IDS, help="A delivery, by its number (repeatable).")
    ] = None,
    error_code: Annotated[str | None, typer.Option(help="Only dead letters with this error code.")] = None,
    event: Annotated[int | None, typer.Option(min=1, max=MOST_IDS, help="Only dead letters of this event.")] = None,
    project: Annotated[str | None, typer.Option(help="Only dead letters of this project.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only dead letters of this event type.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only list what would be sent again; without a selection, of all dead letters."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters (failed deliveries) again, except those past their deadline."""
    which = DeadLetters(tuple(ids or ()), error_code, event, project, event_type)
    with prepared_database() as database:
        found = actions.dead_letters(database, which, everything=dry_run)
        opened = 0
        if found and not dry_run:
            with progress("Opening dead letters") as tell:
                opened = actions.redrive(database, which, tell=tell)
    if as_json:
        print_json([*found, {"opened": opened}])
        return
    if not found:
        out.print("No dead letter matches.")
        return
    columns = {
        "error code": lambda row: escape(row["error_code"]),
        "deliveries": lambda row: str(row["deliveries"]),
        "too late": lambda row: str(row["too_late"]),
        "ids": lambda row: _first_ids(row["first_ids"], row["deliveries"]),
        "example": lambda row: escape(shortened(row["example"] or "")),
    }
    print_rows(columns, found, wide=("example",))
    if sum(row["deliveries"] for row in found) >= MOST_COUNTED:
        out.print(f"[dim]The first {MOST_COUNTED:,} were counted; there may be more.[/]")
    out.print("Nothing was changed." if dry_run else f"{opened} will be sent again.")


def _first_ids(ids: Sequence[int], count: int) -> str:
    return ", ".join(map(str, ids)) + (" …" if count > len(ids) else "")


@cli.command(epilog="Example: relevo release @acme/app")
def release(
    project: Annotated[str | None, typer.Argument(help="A project, as `relevo status` names it.")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", help="The event type that the runaway brake holds, instead of a project.")
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="With --type: only events of this source, of app, or of 'app of PROJECT'.")
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="With --type: end the held events instead of sending them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Release a project's breaker, brake and rate, or with --type the events of a runaway.

    Relevo probes an open breaker at once, switches off the brake on disabling tokens, and restores the full rate.
    After a breaker the rate grows from a quarter once the probe succeeds. The command reports which of them was on.
    With --type it sends the events that the runaway brake holds, or ends them with --drop.
    """
    if (project is None) == (event_type is None):
        raise UsageError("Nothing to release is named.", hint="Name a project, or an event type with --type.")
    if event_type is None and (drop or origin is not None):
        raise UsageError("--origin and --drop are for held events.", hint="Name their type with --type.")
    with prepared_database() as database:
        if event_type is not None:
            done = actions.release_events(database, event_type, origin, drop=drop)
            told: dict[str, Any] = {"event_type": event_type, **done, "dropped": drop}
            say(_events_released(event_type, done, drop=drop), told, as_json=as_json)
        elif project is not None:
            held = actions.release_project(database, project)
            told = {"project": project, "released": bool(held), "what": held}
            say(_project_released(project, held), told, as_json=as_json)


def _events_released(event_type: str, done: dict[str, Any], *, drop: bool) -> str:
    count = done["events"]
    if not count:
        return f"Nothing of {escape(event_type)} was held; the brake checks its next events as before."
    named = f"({_first_ids(done['first_ids'][:_MOST_IDS], count)})"
    if drop:
        return f"{several(count, 'event')} of {escape(event_type)} {'is' if count == 1 else 'are'} ended {named}."
    again = "if more come as fast, those will be held again"
    return f"{several(count, 'event')} of {escape(event_type)} will be sent {named}; {again}."


def _project_released(project: str, held: list[str]) -> str:
    """Print what was released, so that a released brake is not taken for stopped sending."""
    said, name = [], escape(project)
    if "breaker" in held:
        again = "if the fault is still there, it stays stopped"
        said.append(
            f"A probe of {name} goes out now. Once its push service takes it, the other pushes follow; {again}."
        )
    elif "rate" in held:
        said.append(f"{name} sends at its full rate again; if its push service is still slow, Relevo slows down again.")
    if "brake" in held:
        redrive = f"relevo redrive --error-code DeviceNotRegistered --project {escape(quote(project))}"
        said.append(
            f"The brake on disabling tokens of {name} was released; sending had not stopped. "
            f"`{redrive}` sends again the pushes that failed meanwhile."
        )
    return " ".join(said) or f"Nothing held {name} up."


@cli.command(epilog="Example: relevo rejects --source folder --retry")
def rejects(
    source: Annotated[str | None, typer.Option(help="Only rejects of this source.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try them again in the next run.")] = False,
    reject_id: Annotated[
        int | None, typer.Option("--id", min=1, max=MOST_IDS, help="With --retry: only this reject.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the items of sources that Relevo could not use, or try them again."""
    with open_database(load_settings()) as database:
        if source is not None and source not in (known := sources.names(database)):
            raise UsageError(f"There is no source {source}.", hint=f"Known: {', '.join(known) or 'none yet'}.")
        if retry:
            count = actions.retry_rejects(database, source=source, reject_id=reject_id)
            out.print(f"{several(count, 'reject')} will be tried again with the next pass of their source.")
            return
        rows = sources.rejects(database, source=source, limit=limit)
    columns = {
        "reject": lambda row: str(row["id"]),
        "source": lambda row: as_written(row["source"]),
        "place": lambda row: as_written(row["place"]),
        "tries": lambda row: str(row["attempts"]),
        "reason": lambda row: as_written(row["reason"]),
    }
    none = f"Nothing of {as_written(source)} was rejected." if source else "Nothing was rejected."
    print_rows(columns, rows, none, wide=("place", "reason"), as_json=as_json)
