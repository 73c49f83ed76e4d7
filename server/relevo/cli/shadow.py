"""Shadow mode: run Relevo beside what an app has, without a push, and compare."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from relevo.cli.common import (
    FAILED,
    OK,
    AsJson,
    as_written,
    columns_of,
    load_settings,
    out,
    prepared_database,
    print_json,
    print_rows,
    say,
)
from relevo.core.errors import UsageError
from relevo.operators import shadow as modes
from relevo.operators import shadow_report
from relevo.operators.formats import timestamp
from relevo.operators.shadow_report import Asked, Compared
from relevo.operators.shadow_sends import FIELDS, Refused, Source, read_time

cli = typer.Typer()
shadow = typer.Typer(
    help="Shadow mode: Relevo does everything but send, beside another system that does.", no_args_is_help=True
)
cli.add_typer(shadow, name="shadow")
_WAIT_S = 30.0

Project = Annotated[str | None, typer.Option("--project", help="The project, as the app names it.")]
All = Annotated[bool, typer.Option("--all", help="All projects of this database.")]


def _project(project: str | None, *, every: bool) -> str:
    if every == bool(project):
        raise UsageError("Name one project, or say --all.", hint="As in `relevo shadow on --project shop`.")
    return project or modes.ALL


def _named(project: str) -> str:
    return f"project {project}" if project else "all projects"


@shadow.command(name="on", epilog="Example: relevo shadow on --project shop")
def begin(project: Project = None, every: All = False, as_json: AsJson = False) -> None:
    """Send nothing of a project, or of all, from now on, and do everything else.

    Waits until pushes that were claimed before are sent.
    """
    name = _project(project, every=every)
    with prepared_database(load_settings()) as database:
        changed = modes.begin_shadow(database, name)
        is_quiet = modes.wait_for_claims(database, name, _WAIT_S)
    words = f"Shadow mode is on for {escape(_named(name))}: nothing is sent."
    if not is_quiet:
        words = (
            f"Shadow mode is on for {escape(_named(name))}. Some pushes that were claimed before are still under way."
        )
    say(words, {"project": name or None, "shadow": True, "changed": changed, "quiet": is_quiet}, as_json=as_json)
    if not is_quiet:
        raise typer.Exit(FAILED)


@shadow.command(name="off", epilog="Example: relevo shadow off --project shop")
def end(
    project: Project = None,
    every: All = False,
    force: Annotated[bool, typer.Option("--force", help="Also while events are due and not fanned out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send what falls due from now on. What fell due before is never sent."""
    name = _project(project, every=every)
    with prepared_database(load_settings()) as database:
        changed = modes.end_shadow(database, name, force=force)
        rest, waiting = modes.modes(database), modes.later(database, name)
    words = f"Shadow mode is off for {escape(_named(name))}: Relevo sends what falls due from now on."
    if not changed:
        words = f"Shadow mode was not on for {escape(_named(name))}."
    if changed and waiting:
        words += f" {waiting} deliveries wait for a later time, and are sent then."
    if any(each["project"] in ("", name) for each in rest):
        words += " It is still on for all projects."
    told: dict[str, Any] = {"project": name or None, "shadow": False, "changed": changed, "waiting": waiting}
    say(words, told, as_json=as_json)


@shadow.command(name="list", epilog="Example: relevo shadow list")
def list_modes(as_json: AsJson = False) -> None:
    """List the projects in shadow mode."""
    with prepared_database(load_settings()) as database:
        rows = modes.modes(database)
    columns = {
        "project": lambda row: escape(row["project"]) or "all projects",
        "since": lambda row: timestamp(row["since"]),
        "by": lambda row: escape(row["set_by"]),
    }
    print_rows(columns, rows, "No project is in shadow mode: Relevo sends.", as_json=as_json)


@shadow.command(name="report")
def report(  # noqa: PLR0917 typer options
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="What the other system sent: a .csv with a heading, or .jsonl."),
    ] = None,
    of: Annotated[
        Literal["relevo", "onesignal"], typer.Option("--from", help="Whose columns the file has, or Relevo's own.")
    ] = "relevo",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=COLUMN", help="The column of a field, such as owner=user_id (repeatable)."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of the event, for lines without one.")] = None,
    title: Annotated[str | None, typer.Option(help="The title of the push, for lines without one.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    since: Annotated[str | None, typer.Option(help="From when. Default: their first send.")] = None,
    until: Annotated[str | None, typer.Option(help="Until when. Default: their last send.")] = None,
    tolerance_s: Annotated[int, typer.Option(min=0, max=86_400, help="Seconds apart that are no difference.")] = 300,
    window_h: Annotated[int, typer.Option(min=1, max=336, help="Hours apart that a push is still the same.")] = 12,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many of each kind to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare what Relevo would have sent in shadow mode with what the other system sent.

    Exits with 1 if there is a difference, or a line that cannot be read.

    \b
    relevo shadow report sends.csv
    relevo shadow report activity.csv --from onesignal --key tender-17
    relevo shadow report --project shop --since 2026-11-10T00:00:00Z
    """
    usual = {name: value for name, value in (("key", key), ("title", title)) if value is not None}
    source = None if file is None else Source(file, of, columns_of(column or (), FIELDS), usual)
    asked = Asked(project, _time(since), _time(until), tolerance_s, window_h * 3_600, limit)
    refused = Refused()
    with prepared_database(load_settings()) as database:
        found = shadow_report.compare(database, asked, source, refused)
    _print_json(found, refused) if as_json else _print(found, refused)
    raise typer.Exit(FAILED if found.differs or refused.count else OK)


def _time(text: str | None) -> datetime | None:
    return None if text is None else read_time(text)


_WORDS = {
    "missing": "they sent, and Relevo would not have",
    "extra": "Relevo would have sent, and they did not",
    "later": "Relevo would have sent later than they did",
    "earlier": "Relevo would have sent earlier than they did",
    "doubled": "they sent again",
}


def _print(found: Compared, refused: Refused) -> None:
    who, what = found.by
    out.print(
        f"Compared by {who} and {what}, from {timestamp(found.since)} to {timestamp(found.until)}:", soft_wrap=True
    )
    out.print(f"  {found.counts['same']} the same")
    for kind, words in _WORDS.items():
        out.print(f"  {found.counts[kind]} {kind}: {words}")
        for line in shadow_report.lines(found.rows[kind]):
            out.print(f"    {escape(line)}", soft_wrap=True)
        if (more := found.counts[kind] - len(found.rows[kind])) > 0:
            out.print(f"    … and {more} more: --limit shows them")
    if found.unusable:
        out.print(f"{found.unusable} sends have no title, as others do: they are not compared.")
    if refused.count:
        out.print(f"{refused.count} lines could not be read:")
        for number, why in refused.lines:
            out.print(f"  line {number}: {as_written(why)}", soft_wrap=True)


def _print_json(found: Compared, refused: Refused) -> None:
    summary = {
        "since": found.since,
        "until": found.until,
        "by": list(found.by),
        "counts": found.counts,
        "unusable": found.unusable,
        "refused": refused.count,
        "refused_lines": [{"line": number, "reason": why} for number, why in refused.lines],
    }
    print_json([summary, *({"kind": kind, **row} for kind, rows in found.rows.items() for row in rows)])
