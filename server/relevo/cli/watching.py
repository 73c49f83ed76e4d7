"""Commands that only look: the fleet at a glance, what ran, deliveries, sources. They load little, and so are quick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from itertools import count
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from relevo.cli.common import (
    FAILED,
    MOST_IDS,
    OK,
    AsJson,
    Limit,
    coloured,
    complain_and_go_on,
    counted,
    load_settings,
    make_table,
    open_database,
    open_lists,
    out,
    print_json,
    print_wrapped,
    read_installation,
    shortened,
    span,
    tell_more,
)
from relevo.config import Settings
from relevo.core.errors import DatabaseUnavailableError, RelevoError, UsageError
from relevo.core.sending_project import project_in_words
from relevo.database.pool import Database
from relevo.operators import fleet, runs, sources
from relevo.operators.formats import in_numbers, in_words
from relevo.operators.health.workers import worker_state

cli = typer.Typer()
_WIDE = 120


@cli.command("runs", epilog="Example: `relevo runs --cycle dispatch --outcome failed`")
def list_runs(
    cycle: Annotated[str | None, typer.Option(help="Only this cycle.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only this outcome: running, ok, partial, failed, skipped, abandoned.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show what ran, newest first."""
    outcomes = ("running", "ok", "partial", "failed", "skipped", "abandoned")
    if outcome is not None and outcome not in outcomes:
        raise UsageError(f"There is no outcome {outcome}.", hint=f"Known: {', '.join(outcomes)}.")
    settings = load_settings(only_looks=True)
    with open_lists(settings) as lists:
        rows = lists.read(runs.latest, cycle=cycle, outcome=outcome, limit=limit)
        if cycle is not None and not rows and cycle not in (known := runs.known_cycles(lists.primary)):
            raise UsageError(f"There is no cycle {cycle}.", hint=f"Known: {', '.join(known)}.")
    if as_json:
        print_json(rows)
        return
    if out.width < _WIDE and rows:
        _print_runs_narrow(rows)
        return
    table = make_table(
        "run", "cycle", "trigger", "started (UTC)", "took", "outcome", "counts", "why", wide=("counts", "why")
    )
    for row in rows:
        table.add_row(
            str(row["id"]),
            f"{row['cycle']}:{row['source']}" if row["source"] else row["cycle"],
            row["trigger"],
            f"{row['started_at'].astimezone(UTC):%m-%d %H:%M:%S}",
            in_words(row["seconds"]),
            coloured(row["outcome"]),
            counted(row["counts"]),
            escape(row["reason"] or row["error_message"] or ""),
        )
    none = (
        "No runs yet: start `relevo run`."
        if cycle is None and outcome is None
        else "No run fits: none of these is kept."
    )
    out.print(table if rows else none)


def _print_runs_narrow(rows: Sequence[dict[str, Any]]) -> None:
    """Print each run on a line, and what it did or why it did not below it: a table of eight columns would fold."""
    for row in rows:
        name = f"{row['cycle']}:{row['source']}" if row["source"] else row["cycle"]
        started = f"{row['started_at'].astimezone(UTC):%m-%d %H:%M:%S}"
        head = f"{row['id']:>6}  {escape(name[:24]):<24}  {started}  {in_words(row['seconds']):>8}  "
        out.print(f"{head}{coloured(row['outcome'])}", soft_wrap=True)
        for line in (counted(row["counts"]), escape(row["reason"] or row["error_message"] or "")):
            if line:
                out.print(Padding(line, (0, 0, 0, 8)))


@cli.command(epilog="Example: `relevo status --watch`, redrawn every two seconds until Ctrl-C.")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="With --watch: seconds between two looks.")] = 2.0,
    times: Annotated[int, typer.Option(min=0, max=1_000_000, help="With --watch: so many looks; 0 for ever.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the fleet at a glance; exit code 1 while it is not healthy."""
    if not watch:
        raise typer.Exit(glance(as_json=as_json))
    settings = load_settings(only_looks=True)
    with open_database(settings) as database:
        seen = _watch(database, settings, every, times, as_json=as_json)
    raise typer.Exit(OK if seen is not None and seen.health.ok else FAILED)


def glance(*, as_json: bool) -> int:
    """Show the fleet once, and return the exit code that tells how it is."""
    settings = load_settings(only_looks=True)
    with open_database(settings) as database:
        seen = fleet.status(database, settings)
    _show(seen, as_json=as_json)
    return OK if seen.health.ok else FAILED


def _watch(database: Database, settings: Settings, every: float, times: int, *, as_json: bool) -> fleet.Status | None:
    """Show the fleet again and again: redrawn on a terminal, one after the other in a pipe; return the last."""
    seen: fleet.Status | None = None
    with _screen(as_json=as_json) as show, suppress(KeyboardInterrupt):
        for look in count(1):
            try:
                seen = fleet.status(database, settings)
                show(seen)
            except DatabaseUnavailableError as error:  # it is watched all the more while it is away
                seen = None
                show(error)
            if look == times:
                break
            time.sleep(every)
    return seen


@contextmanager
def _screen(*, as_json: bool) -> Iterator[Callable[[fleet.Status | RelevoError], None]]:
    def show_plainly(seen: fleet.Status | RelevoError) -> None:
        if isinstance(seen, RelevoError):
            complain_and_go_on(seen)
        else:
            _show(seen, as_json=as_json)

    if as_json or not out.is_terminal:
        yield show_plainly
        return
    from rich.text import Text  # noqa: PLC0415 only a terminal is redrawn

    with out.screen() as screen:

        def redraw(seen: fleet.Status | RelevoError) -> None:
            with out.capture() as captured:
                show_plainly(seen)
            screen.update(Text.from_ansi(captured.get()))

        yield redraw


def _show(seen: fleet.Status, *, as_json: bool) -> None:
    if as_json:
        print_json([_as_json(seen)])
    else:
        _print_status(seen)


def _as_json(seen: fleet.Status) -> dict[str, Any]:
    return {
        "health": seen.health.problems,
        "health_codes": [problem.code for problem in seen.health.problems],
        "claims": seen.claims,
        "sources": seen.sources,
        "projects": seen.projects,
        "due": seen.due,
        "dead_letters": seen.dead_letters,
        "held": seen.held,
        "cycles": seen.cycles,
        "workers": seen.workers,
    }


def _print_status(seen: fleet.Status) -> None:
    for problem in seen.health.problems:
        print_wrapped("Not healthy:", f"{problem.removesuffix('.')}.", "bold red")
    if seen.health.ok:
        out.print("[green]Healthy.[/]")
    out.print()
    cycles = make_table("cycle", "rounds", "idle", "last round", "last run", "now", title="Cycles", wide=("now",))
    for row in seen.cycles:
        now = f"paused: {escape(row['paused_reason'])}" if row["paused_reason"] else ""
        now = now or (f"held by {row['held_by']}" if row["held_by"] else "")
        now = now or (f"off: {row['off']}" if row["off"] else "")
        cycles.add_row(
            f"{row['cycle']}:{row['source']}" if row["source"] else row["cycle"],
            str(row["rounds"]),
            str(row["idle_rounds"]),
            f"{span(row['quiet_s'])} ago" if row["quiet_s"] is not None else "never",
            coloured(row["last_outcome"]) if row["last_outcome"] else "none",
            now,
        )
    workers = make_table(
        "worker", "state", "role", "cycles", "wake-ups", "seen", title="Workers", wide=("worker", "cycles")
    )
    ended = [row for row in seen.workers if row["state"] == "stopped"]
    for row in (row for row in seen.workers if row["state"] != "stopped"):
        workers.add_row(
            row["worker_id"],
            coloured(worker_state(row)),
            row["role"],
            ", ".join(row["cycles"]),
            row["wakeups"],
            f"{span(row['silent_s'])} ago",
        )
    out.print(cycles if seen.cycles else "No cycle has run yet: start `relevo run`.")
    out.print(workers if len(ended) < len(seen.workers) else "No worker is running: start `relevo run`.")
    if ended:
        out.print(f"[dim]{len(ended)} stopped in good order within the last day.[/]")
    if seen.sources:
        sources = make_table("source", "last answer", "last ok", "detail", title="Sources", wide=("detail",))
        for row in seen.sources:
            sources.add_row(
                row["source"],
                coloured(row["last_outcome"]) if row["last_outcome"] else "none",
                f"{span(row['since_ok_s'])} ago" if row["since_ok_s"] is not None else "never",
                escape(row["last_detail"] or ""),
            )
        out.print(sources)
    if seen.projects:
        out.print(_projects(seen.projects))
    _print_waiting(seen)


def _print_waiting(seen: fleet.Status) -> None:
    """Print what is due, what failed for good, and what is claimed."""
    for row in seen.due:
        what = in_numbers(row["due"], f"{row['lane']} delivery", f"{row['lane']} deliveries")
        print_wrapped(
            "Due:", f"{what} of project {project_in_words(row['project'])}, the oldest for {span(row['oldest_s'])}."
        )
    if seen.dead_letters:
        dead = in_numbers(seen.dead_letters, "delivery", "deliveries")
        look = "`relevo redrive --dry-run` tells why, `relevo deliveries --state failed` which"
        print_wrapped("Dead letters:", f"{dead} failed for good; {look}.", "yellow")
    claims, deliveries = seen.claims, in_numbers(seen.claims["deliveries"], "delivery", "deliveries")
    out.print(f"Claims: {claims['claims']:,} holding {deliveries}, {claims['expired']:,} expired.")


def _projects(rows: Sequence[dict[str, Any]]) -> Table:
    """Make the table of projects; what holds one up stands among the problems, where there is room for a sentence."""
    title, columns = (
        "Projects (sent, unregistered: within 15 min)",
        ("breaker", "rate", "requests now", "sent", "unregistered"),
    )
    projects = make_table("project", *columns, title=title, wide=("project",))
    for row in rows:
        projects.add_row(
            escape(project_in_words(row["project"])),
            coloured(row["breaker"]),
            f"{row['rate_share']:.0%}",
            str(row["connections"]),
            f"{row['sent']:,}",
            f"{row['unregistered']:,}",
        )
    return projects


_OPEN = ("pending", "retryable", "sent")
_ENDED = ("ok", "unconfirmed", "invalid", "failed", "expired", "skipped", "cancelled", "unknown")
_STATES = (*_OPEN, *_ENDED)


@cli.command(
    "deliveries", epilog="Example: `relevo deliveries --event 17 --state failed`, or `--installation ID` for one phone."
)
def list_deliveries(  # noqa: PLR0917 typer options
    event: Annotated[int | None, typer.Option(min=1, max=MOST_IDS, help="Only those of this event.")] = None,
    installation: Annotated[
        UUID | None, typer.Option(parser=read_installation, metavar="UUID", help="Only those to this installation.")
    ] = None,
    state: Annotated[str | None, typer.Option(help=f"Only this state: {', '.join(_STATES)}.")] = None,
    before: Annotated[str | None, typer.Option(help="Go on from here; the last line of a page names it.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show deliveries, newest first; those of one event in the order of their installations."""
    from relevo.operators import deliveries, events  # noqa: PLC0415 status does without them, and without the app's verbs

    if state is not None and state not in _STATES:
        raise UsageError(f"There is no state {state}.", hint=f"Known: {', '.join(_STATES)}.")
    settings = load_settings(only_looks=True)
    with open_lists(settings) as lists:
        page = lists.read(
            deliveries.page, event=event, installation=installation, state=state, before=before, limit=limit
        )
        if event is not None and not page.rows and not events.is_event(lists.primary, event):
            raise UsageError(f"There is no event {event}.", hint="`relevo events` lists them.")
        failures = lists.read(deliveries.failed_attempts, page.rows) if as_json else {}
    if as_json:
        print_json([row | {"failed_attempts": failures.get(row["id"], [])} for row in page.rows])
        tell_more(page, "deliveries", as_json=True)
        return
    columns = ("delivery", "event", "installation", "project", "state", "tries", "changed (UTC)", "why")
    table = make_table(*columns, wide=("why",))
    for row in page.rows:
        why = shortened(": ".join(filter(None, (row["last_error_code"], row["last_error_message"]))))
        changed = f"{row['updated_at'].astimezone(UTC):%m-%d %H:%M:%S}"
        told = (row["id"], row["event_id"], row["installation_id"], escape(row["project"]))
        table.add_row(*map(str, told), coloured(row["status"]), str(row["attempt_count"]), changed, escape(why))
    out.print(table if page.rows else "No delivery fits.")
    if any(row["attempt_count"] > 1 for row in page.rows):
        out.print("[dim]`relevo delivery ID` tells each try of one.[/]")
    tell_more(page, "deliveries")


@cli.command(
    "sources",
    epilog="Example: `relevo sources --json`, or `relevo rejects --source folder` for what one could not use.",
)
def list_sources(as_json: AsJson = False) -> None:
    """Show the sources: how far each was read, when it last answered and what, and what it could not use."""
    settings = load_settings(only_looks=True)
    with open_database(settings) as database:
        rows = sources.details(database)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        answer = coloured(row["last_outcome"]) if row["last_outcome"] else "never asked"
        age = f"{span(row['since_ok_s'])} ago" if row["since_ok_s"] is not None else "never"
        out.print(f"[bold]{escape(row['source'])}[/]  {answer}, last read {age}")
        for head, text in _about(row):
            print_wrapped(f"  {head}:", text)
    if not rows:
        out.print(
            "No source was asked yet: set CHILECOMPRA_TICKET, OCDS_URL or FOLDER_SOURCE_DIR, and start `relevo run`."
        )


def _about(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    pairs = [
        f"{sources.CURSORS.get(name, name.replace('_', ' '))} {_mark(at)}" for name, at in row["read_up_to"].items()
    ]
    yield "Read up to", "; ".join(pairs) or "the beginning"
    if row["last_detail"]:
        yield "Said", row["last_detail"]
    for problem in row["problems"]:
        yield "Wrong", problem
    if row["rejects"]:
        waits = in_numbers(row["rejects"], "item it offered could not be used", "items it offered could not be used")
        given_up = f", {row['given_up']:,} of them given up" if row["given_up"] else ""
        yield "Rejects", f"{waits}{given_up}; `relevo rejects --source {row['source']}` shows why."


def _mark(value: Any) -> str:
    """Write a part of a cursor; of what holds several things how many, and the first."""
    if not isinstance(value, dict):
        return str(value)
    first = [*map(str, value["first"] or ())]
    more = ", …" if value["entries"] > len(first) else ""
    return f"{value['entries']:,}" + (f" ({', '.join(first)}{more})" if first else "")
