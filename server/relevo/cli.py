"""The command `relevo`.

Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped because locked, paused or switched off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import psycopg
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relevo import __version__, actions, app, config, embedded, insights, logs, migrate, service
from relevo.config import Settings
from relevo.db import Database, psql_call
from relevo.errors import ConfigError, RelevoError, UsageError
from relevo.model import Report, Shard

OK, FAILED, USAGE, SKIPPED = 0, 1, 2, 3

cli = typer.Typer(
    name="relevo",
    help="A relay that carries events to phones and never drops the baton.",
    epilog="Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped (locked, paused or switched off).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Limit = Annotated[int, typer.Option(min=1, max=insights.MAX_LIMIT, help="How many to show.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def main() -> None:
    """Run the command line; every error on purpose is one sentence and a next step."""
    try:
        cli()
    except (ConfigError, UsageError) as error:
        _complain(error, USAGE)
    except RelevoError as error:
        _complain(error, FAILED)
    except psycopg.Error as error:
        _complain(RelevoError(f"PostgreSQL refused: {logs.normalise_error(error)}"), FAILED)


def _complain(error: RelevoError, code: int) -> NoReturn:
    err.print(f"[bold red]relevo:[/] {escape(error.message)}")
    if error.hint:
        err.print(f"[dim]{escape(error.hint)}[/]")
    sys.exit(code)


def _settings() -> Settings:
    settings = config.load()
    logs.configure(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        err.print(f"[yellow]relevo:[/] {escape(warning)}")
    return settings


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    with app.database(settings) as database:
        yield database


def _names(csv: str | None) -> list[str] | None:
    names = [name.strip() for name in (csv or "").split(",") if name.strip()]
    return names or None


@cli.command()
def run(
    cycles: Annotated[str | None, typer.Option(help="Only these cycles, separated by commas.")] = None,
) -> None:
    """Run the cycles until SIGINT or SIGTERM; a second signal ends at once."""
    settings = _settings()
    with app.build(settings, role="run") as built:
        drained = service.serve(built, _names(cycles))
    if not drained:
        os._exit(FAILED)  # an ordinary exit would wait for the threads that did not end in time


@cli.command()
def tick(
    runners: Annotated[
        str | None, typer.Option(help="These cycles in this order; default WORKER_TICK_RUNNERS.")
    ] = None,
    shard_index: Annotated[int | None, typer.Option(min=0, help="Which shard, from 0.")] = None,
    shard_count: Annotated[int | None, typer.Option(min=1, max=10_000, help="Of how many shards.")] = None,
) -> None:
    """Run the chosen cycles once, in order, within their budgets, and leave."""
    settings = _settings()
    shard = _shard(settings, shard_index, shard_count)
    with app.build(settings, role="tick") as built:
        reports = service.tick(built, _names(runners), shard)
    _tell(reports)


def _shard(settings: Settings, index: int | None, count: int | None) -> Shard | None:
    if index is None and count is None:
        index, count = settings.worker_tick_shard_index, settings.worker_tick_shard_count
    if index is None and count is None:
        return None
    if index is None or count is None or index >= count:
        raise UsageError("A shard needs an index below its count.", hint="Give both --shard-index and --shard-count.")
    return Shard(index, count)


@cli.command(name="run-cycle")
def run_cycle(name: Annotated[str, typer.Argument(help="The cycle's name, e.g. reaper.")]) -> None:
    """Run one cycle once, by hand."""
    settings = _settings()
    with app.build(settings, role="run-cycle") as built:
        reports = service.run_cycle(built, name)
    _tell(reports)


def _tell(reports: Sequence[Report]) -> NoReturn:
    table = _table("cycle", "outcome", "counts", "why")
    for report in reports:
        table.add_row(
            report.cycle, _coloured(report.outcome), _counts(report.counts), escape(report.reason or report.error)
        )
    out.print(table)
    outcomes = {report.outcome for report in reports}
    raise typer.Exit(FAILED if "failed" in outcomes else SKIPPED if outcomes == {"skipped"} else OK)


@cli.command()
def runs(
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
    settings = _settings()
    with _database(settings) as database:
        rows = insights.runs(database, cycle=cycle, outcome=outcome, limit=limit)
    if as_json:
        _print_json(rows)
        return
    table = _table("run", "cycle", "trigger", "started (UTC)", "took", "outcome", "counts", "why")
    for row in rows:
        table.add_row(
            str(row["id"]),
            f"{row['cycle']}:{row['source']}" if row["source"] else row["cycle"],
            row["trigger"],
            f"{row['started_at']:%m-%d %H:%M:%S}",
            _seconds(row["seconds"]),
            _coloured(row["outcome"]),
            _counts(row["counts"]),
            escape(row["reason"] or row["error_message"] or ""),
        )
    out.print(table if rows else "No runs yet: start `relevo run`, or loosen the filter.")


@cli.command()
def status(as_json: AsJson = False) -> None:
    """Show the fleet at a glance; exit code 1 while it is not healthy."""
    settings = _settings()
    with _database(settings) as database:
        seen = insights.status(database, settings)
    if as_json:
        _print_json(
            [{"health": seen.health.problems, "claims": seen.claims, "cycles": seen.cycles, "workers": seen.workers}]
        )
    else:
        _print_status(seen)
    raise typer.Exit(OK if seen.health.ok else FAILED)


def _print_status(seen: insights.Status) -> None:
    cycles = _table("cycle", "rounds", "idle", "last round", "last run", "now", title="Cycles")
    for row in seen.cycles:
        now = f"paused: {escape(row['paused_reason'])}" if row["paused_reason"] else ""
        now = now or (f"held by {row['held_by']}" if row["held_by"] else "")
        cycles.add_row(
            f"{row['cycle']}:{row['source']}" if row["source"] else row["cycle"],
            str(row["rounds"]),
            str(row["idle_rounds"]),
            f"{_seconds(row['quiet_s'])} ago" if row["quiet_s"] is not None else "never",
            _coloured(row["last_outcome"]) if row["last_outcome"] else "none",
            now,
        )
    workers = _table("worker", "state", "role", "cycles", "wake-ups", "seen", title="Workers")
    for row in seen.workers:
        workers.add_row(
            row["worker_id"],
            _coloured(row["state"]),
            row["role"],
            ", ".join(row["cycles"]),
            row["wakeups"],
            f"{_seconds(row['silent_s'])} ago",
        )
    out.print(cycles if seen.cycles else "No cycle has run yet: start `relevo run`.")
    out.print(workers if seen.workers else "No worker has been seen.")
    claims = seen.claims
    out.print(f"Claims: {claims['claims']} holding {claims['deliveries']} deliveries, {claims['expired']} expired.")
    for problem in seen.health.problems:
        out.print(f"[bold red]Not healthy:[/] {escape(problem)}.")
    if seen.health.ok:
        out.print("[green]Healthy.[/]")


@cli.command()
def pause(
    cycle: Annotated[str, typer.Argument(help="The cycle to switch off in the whole fleet.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever finds it at 3 a.m.")],
) -> None:
    """Switch a cycle off in every replica; runs in progress come to their end."""
    settings = _settings()
    with app.build(settings, role="run-cycle") as built:
        name = built.cycles([cycle])[0].name  # the switch is the cycle's, whichever of its sources was named
        migrate.prepare(built.database)
        actions.pause(built.database, name, reason)
    out.print(f"{name} is paused in the whole fleet. `relevo resume {name}` switches it on again.")


@cli.command()
def resume(cycle: Annotated[str, typer.Argument(help="The cycle to switch on again.")]) -> None:
    """Switch a paused cycle on again."""
    settings = _settings()
    with app.build(settings, role="run-cycle") as built:
        name = built.cycles([cycle])[0].name
        migrate.prepare(built.database)
        was_paused = actions.resume(built.database, name)
    out.print(f"{name} is on again." if was_paused else f"{name} was not paused.")


@cli.command(name="event-type")
def event_type(  # noqa: PLR0917 typer's parameters are options
    name: Annotated[str | None, typer.Argument(help="The event type; without it all are listed.")] = None,
    lease_ms: Annotated[int | None, typer.Option(min=100, max=3_600_000, help="Its own lease.")] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1, max=100, help="Its own cap of attempts.")] = None,
    retry_base_ms: Annotated[int | None, typer.Option(min=1, max=86_400_000, help="Its own first pause.")] = None,
    retry_max_ms: Annotated[int | None, typer.Option(min=1, max=86_400_000, help="Its own longest pause.")] = None,
    retry_jitter_ms: Annotated[int | None, typer.Option(min=0, max=3_600_000, help="Its own jitter.")] = None,
) -> None:
    """Set what differs for one event type (what is not given falls back to the settings), or list what differs.

    It lives in table state and applies at the next claim, without a restart.
    """
    settings = _settings()
    with _database(settings) as database:
        migrate.prepare(database)
        if name is not None:
            actions.set_event_type(
                database,
                settings,
                name,
                lease_ms=lease_ms,
                max_attempts=max_attempts,
                retry_base_ms=retry_base_ms,
                retry_max_ms=retry_max_ms,
                retry_jitter_ms=retry_jitter_ms,
            )
        rows = actions.event_types(database)
    columns = ("event_type", "lease_ms", "max_attempts", "retry_base_ms", "retry_max_ms", "retry_jitter_ms")
    table = _table(*columns)
    for row in rows:
        table.add_row(*("as set" if row[column] is None else escape(str(row[column])) for column in columns))
    out.print(table if rows else "No event type differs from the settings.")


@cli.command(name="migrate")
def migrate_command(
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would run.")] = False,
) -> None:
    """Bring the database's schema up to date."""
    settings = _settings()
    with _database(settings) as database:
        chosen = migrate.plan(database) if plan else migrate.migrate(database)
    for migration in chosen:
        out.print(f"{'would run' if plan else 'ran'} {migration}")
    if not chosen:
        out.print("The schema is up to date.")


@cli.command(name="config")
def show_config(as_json: AsJson = False) -> None:
    """Show every setting: name, value, default, meaning, and where the value came from."""
    rows = config.describe(_settings())
    if as_json:
        _print_json([row._asdict() for row in rows])
        return
    table = _table("setting", "value", "default", "from", "meaning")
    for row in rows:
        table.add_row(row.name, escape(str(row.value)), escape(str(row.default)), row.source, escape(row.meaning))
    out.print(table)


@cli.command()
def psql(command: Annotated[str | None, typer.Option("--command", "-c", help="Run this and leave.")] = None) -> None:
    """Open psql on the database, with Relevo's tables on the search path."""
    settings = _settings()
    if settings.database_url is not None:
        program, dsn = "psql", settings.database_direct_url or settings.database_url
    else:
        server = embedded.acquire(settings.relevo_data_dir / "postgres", settings.relevo_postgres_bin)
        server.inheritable()
        program, dsn = str(server.bin / "psql"), server.dsn
    arguments, more = psql_call(dsn, command)
    try:
        os.execvpe(program, ["psql", *arguments], config.environment(**more))  # noqa: S606 psql takes our place
    except FileNotFoundError:
        raise UsageError("There is no psql on this machine.", hint="Install the package postgresql-client.") from None


@cli.command()
def version() -> None:
    """Show the version."""
    out.print(__version__)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


_COLOURS = {
    **dict.fromkeys(("ok", "alive"), "green"),
    **dict.fromkeys(("idle", "stopped"), "dim"),
    **dict.fromkeys(("partial", "skipped", "stopping", "silent"), "yellow"),
    **dict.fromkeys(("failed", "abandoned", "lost"), "bold red"),
    "running": "cyan",
}


def _coloured(word: str) -> str:
    return f"[{_COLOURS.get(word, 'default')}]{word}[/]"


def _counts(counts: Any) -> str:
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()) if count)


def _seconds(seconds: float) -> str:
    if seconds < 10:  # noqa: PLR2004 below ten seconds the decimals tell something
        return f"{seconds:.2f} s"
    if seconds < 600:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004


def _print_json(rows: Sequence[Any]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
