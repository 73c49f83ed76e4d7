"""Commands that run cycles, and set what they do."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from relevo import app
from relevo.access import phones
from relevo.app import service
from relevo.cli.common import (
    FAILED,
    OK,
    SKIPPED,
    AsJson,
    build,
    coloured,
    counted,
    load_settings,
    out,
    prepared_database,
    print_json,
    print_rows,
    say,
    split_names,
    told_of,
    warn_of_sound,
    with_options_of,
)
from relevo.config import Settings
from relevo.core.addresses import is_local
from relevo.core.errors import UsageError
from relevo.core.model import Report, Shard
from relevo.database import migrate
from relevo.operators import actions, event_types, fleet, quiet_channel
from relevo.operators import shadow as shadow_modes
from relevo.sandbox import demo as demo_room
from relevo.sandbox import embedded as embedded_sandbox

if TYPE_CHECKING:
    from relevo.http.server import HttpServer

cli = typer.Typer()
_GREET_WITHIN_S = 5.0


@cli.command(epilog="Example: `relevo run --cycles reaper,fanout,dispatch,receipt`")
def run(
    cycles: Annotated[str | None, typer.Option(help="Only these cycles (comma-separated).")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Without DATABASE_URL: create an embedded PostgreSQL and sample data.")
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Send nothing, and do everything else; `relevo shadow off --all` ends it.")
    ] = False,
) -> None:
    "Run the cycles until SIGINT or SIGTERM; a second signal ends at once."
    settings = load_settings(demo=demo)
    signals = service.Signals()
    signals.install()
    if signals.came_early():
        return
    with build(settings, "run") as built:
        if shadow:
            migrate.prepare(built.database)
            shadow_modes.require(built.database)
        beside = _runs_beside(built)
        faces = _http(built) if settings.http_enabled else []
        if demo_room.wanted(settings) and not beside:
            faces.append(_shop(built, faces))
        drained = service.serve(built, split_names(cycles), signals, faces)
    if not drained:
        os._exit(FAILED)  # an ordinary exit would wait for the threads that did not end in time


def _shop(built: app.App, faces: Sequence[service.Face]) -> demo_room.Shop:
    """Make the demo's shop, which sells as long as this process runs."""

    def run_cycle(name: str) -> str:
        [found] = built.cycles([name])
        return built.runner.run(found, "manual").outcome

    server = next((each for each in faces if isinstance(each, demo_room.Serves)), None)
    return demo_room.Shop(built.database, built.settings.relevo_data_dir, run_cycle, phones.new_secret, server=server)


def _runs_beside(built: app.App) -> bool:
    """Print where the embedded default already runs, if it does: a second start may be a mistake."""
    if built.settings.database_url is not None:
        return False
    others = [row for row in fleet.running_beside(built.database, socket.gethostname()) if _lives(row["pid"])]
    for row in others:
        address = (row["http"] or {}).get("address")
        where = f"its dashboard is {address}/dashboard" if address else "without a dashboard"
        out.print(f"Relevo runs here already, as process {row['pid']}: {where}.", soft_wrap=True)
    if others:
        out.print(
            "This one shares its work, and has a dashboard of its own; Ctrl-C ends only this one.", soft_wrap=True
        )
    return bool(others)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


@cli.command(epilog="Example: `relevo serve` here, and elsewhere `relevo run` with HTTP_ENABLED=false.")
def serve() -> None:
    """Serve only HTTP until SIGINT or SIGTERM. Other processes run the cycles; this one runs a cycle on request."""
    settings = load_settings()
    signals = service.Signals()
    signals.install()
    if signals.came_early():
        return
    with build(settings, "run-cycle") as built:
        service.serve_alone(built, _http(built, scheduled=False), signals)


def _http(built: app.App, *, scheduled: bool = True) -> list[service.Face]:
    """Make the HTTP server; what it needs is loaded only here, for other commands do without."""
    made = import_module("relevo.http.server").HttpServer(built, scheduled=scheduled)
    local = is_local(built.settings.http_host)
    return [made, Greeting(built.settings, made)] if built.settings.database_url is None and local else [made]


class Greeting:
    """Says where the demo's dashboard is, once all is set up: the login link is the last line of the start."""

    def __init__(self, settings: Settings, server: HttpServer) -> None:
        self._settings, self._server = settings, server
        self._stopping = threading.Event()
        self._waiting = threading.Thread(target=self._wait, name="greeting", daemon=True)

    def start(self) -> None:
        """Wait for the cycles."""

    def watch(self, *_: object) -> None:
        """Print it once everything runs; if the port is taken, once it is free."""
        if not self._greet():
            self._waiting.start()

    def stop(self) -> None:
        """Wait no longer."""
        self._stopping.set()

    def _wait(self) -> None:
        while not self._stopping.is_set() and not self._greet():
            pass

    def _greet(self) -> bool:
        if not self._server.wait_until_serving(_GREET_WITHIN_S):
            return False
        lines = [
            f"Dashboard: {self._server.url}/dashboard",
            f"Log in, once and within 10 minutes: {self._server.login_link()}",
        ]
        if (phones := embedded_sandbox.address(self._settings.relevo_data_dir)) is not None:
            lines.insert(0, f"Messages in the sandbox: {phones}")
        out.print("", *(f"[bold]{line}[/]" for line in lines), "", sep="\n", soft_wrap=True)
        return True


@cli.command(epilog="Example: relevo tick --runners fanout,dispatch")
def tick(
    runners: Annotated[
        str | None,
        typer.Option(help="The cycles, in this order (comma-separated). Default: WORKER_TICK_RUNNERS."),
    ] = None,
    shard_index: Annotated[int | None, typer.Option(min=0, help="The shard to run, from 0.")] = None,
    shard_count: Annotated[int | None, typer.Option(min=1, max=10_000, help="The number of shards.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the chosen cycles once, in order, within their budgets, and exit."""
    settings = load_settings()
    shard = _shard(settings, shard_index, shard_count)
    with build(settings, "tick") as built:
        reports = service.tick(built, split_names(runners), shard)
    _tell(reports, as_json=as_json)


def _shard(settings: Settings, index: int | None, count: int | None) -> Shard | None:
    if index is None and count is None:
        index, count = settings.worker_tick_shard_index, settings.worker_tick_shard_count
    if index is None and count is None:
        return None
    if index is None or count is None or index >= count:
        raise UsageError("A shard needs an index below its count.", hint="Give both --shard-index and --shard-count.")
    return Shard(index, count)


@cli.command(name="run-cycle", epilog="Example: relevo run-cycle ingest:folder")
def run_cycle(
    name: Annotated[str, typer.Argument(help="The cycle's name, e.g. reaper.")], as_json: AsJson = False
) -> None:
    """Run one cycle once, by hand."""
    with build(load_settings(), "run-cycle") as built:
        reports = service.run_cycle(built, name)
    _tell(reports, as_json=as_json)


_TOLD = ("cycle", "outcome", "run_id", "counts", "reason", "error", "more")
"""The JSON of a run, the same here and over HTTP."""


def _tell(reports: Sequence[Report], *, as_json: bool) -> NoReturn:
    columns = {
        "cycle": lambda report: report.cycle,
        "outcome": lambda report: coloured(report.outcome),
        "counts": lambda report: counted(report.counts),
        "why": lambda report: escape(report.reason or report.error),
    }
    told = [{name: getattr(each, name) for name in _TOLD} for each in reports]
    print_json(told) if as_json else print_rows(columns, reports, wide=("counts", "why"))
    outcomes = {report.outcome for report in reports}
    raise typer.Exit(FAILED if outcomes & {"failed", "partial"} else SKIPPED if outcomes == {"skipped"} else OK)


@cli.command(epilog="Example: relevo pause dispatch --reason 'Expo is down, see ticket 17'")
def pause(
    cycle: Annotated[str, typer.Argument(help="The cycle, or one source of it: ingest:folder.")],
    reason: Annotated[str, typer.Option(help="The reason, shown to everybody who finds the cycle paused.")],
    as_json: AsJson = False,
) -> None:
    """Switch a cycle off in every replica; active runs finish."""
    with build(load_settings(), "run-cycle") as built:
        name, source = built.switch_of(cycle)
        migrate.prepare(built.database)
        before = actions.pause(built.database, name, reason, source=source)
    words = f"{cycle} is paused in the whole fleet. `relevo resume {cycle}` switches it on again."
    if before:
        because = escape(before["paused_because"])
        words = f"{cycle} was already paused since {before['paused_since']}, because: {because}. Nothing was changed."
    say(words, {"cycle": cycle, "paused": True, "changed": not before, **before}, as_json=as_json)


@cli.command(epilog="Example: relevo resume dispatch")
def resume(cycle: Annotated[str, typer.Argument(help="The cycle.")], as_json: AsJson = False) -> None:
    """Switch a paused cycle on again."""
    with build(load_settings(), "run-cycle") as built:
        name, source = built.switch_of(cycle)
        migrate.prepare(built.database)
        was_paused = actions.resume(built.database, name, source=source)
    words = f"{cycle} is on again." if was_paused else f"{cycle} was not paused."
    say(words, {"cycle": cycle, "paused": False, "changed": was_paused}, as_json=as_json)


@cli.command(name="event-type", epilog="Example: relevo event-type order.shipped --urgent --ttl-s 3600")
@with_options_of(event_types.TypeSettings)
def event_type(
    name: Annotated[str | None, typer.Argument(help="The event type. Default: list all.")] = None,
    *,
    urgent: Annotated[bool | None, typer.Option("--urgent/--bulk", help="Its lane.")] = None,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset",
            help="Remove all its options: it follows the settings, or as a batch the type whose events it gathers.",
        ),
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Set options of an event type (omitted options stay), or list them.

    The options are in the database and apply from now on, without a restart.
    """
    settings = load_settings()
    own = event_types.TypeSettings(lane=None if urgent is None else "urgent" if urgent else "bulk", **given)
    with prepared_database(settings) as database:
        if name is not None and reset:
            event_types.reset_event_type(database, name)
        elif name is not None and own != event_types.TypeSettings():
            event_types.set_event_type(database, settings, name, own)
            warn_of_sound(settings, silently=quiet_channel.lets_go_silently(own))
        rows = event_types.list_event_types(database)
    columns = {"event type": lambda row: escape(row["event_type"]), "what differs": _what_differs}
    print_rows(columns, rows, "No event type differs from the settings.", wide=("what differs",), as_json=as_json)


def _what_differs(row: Mapping[str, Any]) -> str:
    differs = {name: value for name, value in row.items() if name not in ("event_type", "updated_at")}
    return escape(told_of(differs)) or "nothing"
