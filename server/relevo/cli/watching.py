"""Commands that only look: the fleet at a glance, what ran, deliveries, sources. They load little, and so are quick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape
from rich.padding import Padding

from relevo.cli.common import (
    FAILED,
    MOST_IDS,
    OK,
    AsJson,
    Columns,
    Limit,
    coloured,
    counted,
    cycle_facts,
    load_settings,
    open_database,
    open_lists,
    out,
    print_json,
    print_rows,
    print_wrapped,
    read_installation,
    shortened,
    span,
    tell_more,
)
from relevo.config import Settings
from relevo.core.errors import DatabaseUnavailableError, RelevoError, UsageError
from relevo.core.sending_project import project_in_words
from relevo.core.statuses import STATUSES
from relevo.database.pool import Database
from relevo.operators import fleet, runs, sources
from relevo.operators.formats import in_numbers, in_words
from relevo.operators.health.workers import worker_state
from relevo.operators.reading import Row

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
    """Show runs, newest first."""
    outcomes = ("running", "ok", "partial", "failed", "skipped", "abandoned")
    if outcome is not None and outcome not in outcomes:
        raise UsageError(f"There is no outcome {outcome}.", hint=f"Known: {', '.join(outcomes)}.")
    with open_lists() as lists:
        rows = lists.read(runs.latest, cycle=cycle, outcome=outcome, limit=limit)
        known = () if rows or cycle is None else runs.known_cycles(lists.primary, cycle_facts())
        if known and cycle not in known:
            raise UsageError(f"There is no cycle {cycle}.", hint=f"Known: {', '.join(known)}.")
    if out.width < _WIDE and rows and not as_json:
        _print_runs_narrow(rows)
        return
    columns = {
        "run": lambda row: str(row["id"]),
        "cycle": _cycle,
        "trigger": lambda row: row["trigger"],
        "started (UTC)": lambda row: _moment(row["started_at"]),
        "took": lambda row: in_words(row["seconds"]),
        "outcome": lambda row: coloured(row["outcome"]),
        "counts": lambda row: counted(row["counts"]),
        "why": _why,
    }
    any_run = cycle is None and outcome is None
    none = "No runs yet: start `relevo run`." if any_run else "No run matches: none of these is kept."
    print_rows(columns, rows, none, wide=("counts", "why"), as_json=as_json)


def _cycle(row: Row) -> str:
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _why(run: Row) -> str:
    return escape(run["reason"] or run["error_message"] or "")


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%m-%d %H:%M:%S}"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{span(seconds)} ago"


def _print_runs_narrow(rows: Sequence[Row]) -> None:
    """Print each run on a line, and what it did or why it did not below it: a table of eight columns would fold."""
    for row in rows:
        took = f"{in_words(row['seconds']):>8}"
        head = f"{row['id']:>6}  {escape(_cycle(row)[:24]):<24}  {_moment(row['started_at'])}  {took}  "
        out.print(f"{head}{coloured(row['outcome'])}", soft_wrap=True)
        for line in filter(None, (counted(row["counts"]), _why(row))):
            out.print(Padding(line, (0, 0, 0, 8)))


@cli.command(epilog="Example: `relevo status --watch`, redrawn every two seconds until Ctrl-C.")
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Redraw until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="With --watch: seconds between two redraws.")] = 2.0,
    times: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="With --watch: how often to redraw; 0 for ever.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the fleet at a glance; exit code 1 while it is not healthy."""
    settings = load_settings(only_looks=True)
    with open_database(settings) as database:
        if watch:
            seen = _watch(database, settings, every, times, as_json=as_json)
        else:
            seen = fleet.status(database, settings, cycle_facts)
            _show(seen, as_json=as_json)
    raise typer.Exit(OK if seen is not None and not seen.problems else FAILED)


def _watch(database: Database, settings: Settings, every: float, times: int, *, as_json: bool) -> fleet.Status | None:
    """Show the fleet again and again: redrawn on a terminal, one after the other in a pipe; return the last."""
    seen: fleet.Status | None = None
    with _screen(as_json=as_json) as show, suppress(KeyboardInterrupt):
        for look in count(1):
            try:
                seen = fleet.status(database, settings, cycle_facts)
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
            out.print(f"[bold red]relevo:[/] {escape(seen.message)}")
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
    print_json([_as_json(seen)]) if as_json else _print_status(seen)


_TOLD = ("claims", "sources", "projects", "due", "dead_letters", "held", "cycles", "workers", "shadow")


def _as_json(seen: fleet.Status) -> dict[str, Any]:
    health = {"health": seen.problems, "health_codes": [problem.code for problem in seen.problems]}
    return health | {name: getattr(seen, name) for name in _TOLD}


def _print_status(seen: fleet.Status) -> None:
    if seen.shadow:
        of = ", ".join(f"project {row['project']}" if row["project"] else "all projects" for row in seen.shadow)
        print_wrapped("Shadow:", f"nothing is sent of {of}.", "bold yellow")
    for problem in seen.problems:
        print_wrapped("Not healthy:", f"{problem.removesuffix('.')}.", "bold red")
    if not seen.problems:
        out.print("[green]Healthy.[/]")
    out.print()
    none = "No cycle has run yet: start `relevo run`."
    print_rows(_CYCLES, seen.cycles, none, title="Cycles", wide=("now",))
    running = [row for row in seen.workers if row["state"] != "stopped"]
    none = "No worker is running: start `relevo run`."
    print_rows(_WORKERS, running, none, title="Workers", wide=("worker", "cycles"))
    if ended := len(seen.workers) - len(running):
        out.print(f"[dim]{ended} stopped cleanly within the last day.[/]")
    if seen.sources:
        print_rows(_SOURCES, seen.sources, title="Sources", wide=("detail",))
    if seen.projects:
        print_rows(_PROJECTS, seen.projects, title="Projects (sent, unregistered: within 15 min)", wide=("project",))
    _print_waiting(seen)


def _now(cycle: Row) -> str:
    """Return what keeps a cycle from running, or where it runs."""
    if cycle["paused_reason"]:
        return f"paused: {escape(cycle['paused_reason'])}"
    if cycle["held_by"]:
        return f"held by {cycle['held_by']}"
    return f"off: {cycle['off']}" if cycle["off"] else ""


def _last_outcome(row: Row) -> str:
    return coloured(row["last_outcome"]) if row["last_outcome"] else "none"


_CYCLES: Columns = {
    "cycle": _cycle,
    "rounds": lambda row: str(row["rounds"]),
    "idle": lambda row: str(row["idle_rounds"]),
    "last round": lambda row: _ago(row["quiet_s"]),
    "last run": _last_outcome,
    "now": _now,
}
_WORKERS: Columns = {
    "worker": lambda row: row["worker_id"],
    "state": lambda row: coloured(worker_state(row)),
    "role": lambda row: row["role"],
    "cycles": lambda row: ", ".join(row["cycles"]),
    "wake-ups": lambda row: row["wakeups"],
    "seen": lambda row: _ago(row["silent_s"]),
}
_SOURCES: Columns = {
    "source": lambda row: row["source"],
    "last answer": _last_outcome,
    "last ok": lambda row: _ago(row["since_ok_s"]),
    "detail": lambda row: escape(row["last_detail"] or ""),
}
_PROJECTS: Columns = {  # what holds one up stands among the problems, where there is room for a sentence
    "project": lambda row: escape(project_in_words(row["project"])),
    "breaker": lambda row: coloured(row["breaker"]),
    "rate": lambda row: f"{row['rate_share']:.0%}",
    "requests now": lambda row: str(row["connections"]),
    "sent": lambda row: f"{row['sent']:,}",
    "unregistered": lambda row: f"{row['unregistered']:,}",
}


def _print_waiting(seen: fleet.Status) -> None:
    """Print what is due, what failed for good, and what is claimed."""
    for row in seen.due:
        what = in_numbers(row["due"], f"{row['lane']} delivery", f"{row['lane']} deliveries")
        print_wrapped(
            "Due:", f"{what} of project {project_in_words(row['project'])}, the oldest for {span(row['oldest_s'])}."
        )
    if seen.dead_letters:
        dead = in_numbers(seen.dead_letters, "delivery", "deliveries")
        look = "`relevo redrive --dry-run` shows why, `relevo deliveries --state failed` which"
        print_wrapped("Dead letters:", f"{dead} failed for good; {look}.", "yellow")
    claims, deliveries = seen.claims, in_numbers(seen.claims["deliveries"], "delivery", "deliveries")
    out.print(f"Claims: {claims['claims']:,} holding {deliveries}, {claims['expired']:,} expired.")


@cli.command(
    "deliveries", epilog="Example: `relevo deliveries --event 17 --state failed`, or `--installation ID` for one phone."
)
def list_deliveries(  # noqa: PLR0917 typer options
    event: Annotated[int | None, typer.Option(min=1, max=MOST_IDS, help="Only deliveries of this event.")] = None,
    installation: Annotated[
        UUID | None,
        typer.Option(parser=read_installation, metavar="UUID", help="Only deliveries to this installation."),
    ] = None,
    state: Annotated[str | None, typer.Option(help=f"Only this state: {', '.join(STATUSES)}.")] = None,
    before: Annotated[str | None, typer.Option(help="Where to continue; the last line of a page names it.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show deliveries, newest first; those of one event in the order of their installations."""
    from relevo.operators import deliveries, events  # noqa: PLC0415 status does without them, and without the app's verbs

    if state is not None and state not in STATUSES:
        raise UsageError(f"There is no state {state}.", hint=f"Known: {', '.join(STATUSES)}.")
    with open_lists() as lists:
        page = lists.read(
            deliveries.page, event=event, installation=installation, state=state, before=before, limit=limit
        )
        if event is not None and not page.rows and not events.is_event(lists.primary, event):
            raise UsageError(f"There is no event {event}.", hint="`relevo events` lists them.")
        failures = lists.read(deliveries.failed_attempts, page.rows) if as_json else {}
    rows = [row | {"failed_attempts": failures.get(row["id"], [])} for row in page.rows]
    columns = {
        "delivery": lambda row: str(row["id"]),
        "event": lambda row: str(row["event_id"]),
        "installation": lambda row: str(row["installation_id"]),
        "project": lambda row: escape(row["project"]),
        "state": lambda row: coloured(row["status"]),
        "tries": lambda row: str(row["attempt_count"]),
        "changed (UTC)": lambda row: _moment(row["updated_at"]),
        "why": _error,
    }
    print_rows(columns, rows, "No delivery matches.", wide=("why",), as_json=as_json)
    if not as_json and any(row["attempt_count"] > 1 for row in rows):
        out.print("[dim]`relevo delivery ID` shows each try of one.[/]")
    tell_more(page, "deliveries", as_json=as_json)


def _error(delivery: Row) -> str:
    return escape(shortened(": ".join(filter(None, (delivery["last_error_code"], delivery["last_error_message"])))))


@cli.command(
    "sources",
    epilog="Example: `relevo sources --json`, or `relevo rejects --source folder` for what one could not use.",
)
def list_sources(as_json: AsJson = False) -> None:
    """Show the sources: how far each was read, its last answer, and how many of its items were rejected."""
    with open_database() as database:
        rows = sources.details(database)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        answer = coloured(row["last_outcome"]) if row["last_outcome"] else "never asked"
        out.print(f"[bold]{escape(row['source'])}[/]  {answer}, last read {_ago(row['since_ok_s'])}")
        for head, text in _about(row):
            print_wrapped(f"  {head}:", text)
    if not rows:
        out.print(
            "No source has been read yet: set CHILECOMPRA_TICKET, OCDS_URL "
            "or FOLDER_SOURCE_DIR, and start `relevo run`."
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
        waits = in_numbers(
            row["rejects"], "item of this source could not be used", "items of this source could not be used"
        )
        given_up = f", {row['given_up']:,} of them given up" if row["given_up"] else ""
        yield "Rejects", f"{waits}{given_up}; `relevo rejects --source {row['source']}` shows why."


def _mark(value: Any) -> str:
    """Write a part of a cursor; of what holds several things how many, and the first."""
    if not isinstance(value, dict):
        return str(value)
    first = [*map(str, value["first"] or ())]
    more = ", …" if value["entries"] > len(first) else ""
    return f"{value['entries']:,}" + (f" ({', '.join(first)}{more})" if first else "")
