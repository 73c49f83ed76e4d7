"""Commands about the schema, the settings and the database itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.markup import escape

from relevo import config
from relevo.cli.common import (
    FAILED,
    OK,
    AsJson,
    archive_store,
    load_settings,
    open_database,
    out,
    print_json,
    print_wrapped,
    progress,
    say,
    user,
    warn_of_leaving,
)
from relevo.core.errors import UsageError
from relevo.core.version import __version__
from relevo.database import migrate, opening
from relevo.operators import actions, consistency, fleet
from relevo.operators.formats import in_numbers

cli = typer.Typer()
webpush = typer.Typer(help="Keys for Web Push.", no_args_is_help=True)
cli.add_typer(webpush, name="webpush")


@cli.command(name="migrate", epilog="Example: relevo migrate --plan")
def migrate_command(
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database's schema up to date.

    The missing migrations run first, each in a transaction. One more transaction replaces the changed functions and
    drops those that this version no longer has.
    """
    with open_database(load_settings()) as database:
        said = "would run" if plan else "ran"

        def tell(step: migrate.Step) -> None:  # one by one: the next may take long
            say(f"{said} {step}", {"migration": str(step), "ran": not plan}, as_json=as_json)

        chosen = migrate.plan(database) if plan else migrate.migrate(database, tell=tell)
        if plan:
            for each in chosen:
                tell(each)
    if not chosen and not as_json:
        out.print("The schema is up to date.")


@cli.command(epilog="Example: `relevo doctor --repair`, after `relevo doctor` found something.")
def doctor(
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct what can be corrected while everything runs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the installation, and list each finding with what to do.

    It checks the settings, the server with its clock, read replica, vacuum and what blocks it, this role's rights,
    the archive's store and catalog, the connection to Expo, each project's push credentials (without sending),
    pauses, open breakers, the schema, old workers, and deliveries that are in no queue or in two.

    The exit code is 1 if a finding is more than a warning; with --repair, if one is left. It reads all deliveries
    that are not archived, in pieces, and skips those that changed within the last two minutes.
    """
    from relevo.app import push_services  # noqa: PLC0415 no other command needs them
    from relevo.operators import doctor as checkup  # noqa: PLC0415

    settings = load_settings()
    with open_database(settings) as database:
        around = checkup.look_around(
            database,
            settings,
            store=archive_store(settings),
            expo=push_services.expo_address(settings),
            webhook_trouble=partial(push_services.webhook_trouble, settings),
            refused_tokens=partial(push_services.refused_tokens, settings),
            credential_troubles=partial(push_services.credential_troubles, settings, database=database),
        )
        with progress("Looking at deliveries") as tell:
            repaired = actions.repair(database) if repair else {}
            found = [*around, *consistency.examine(database, tell=tell)]
    if as_json:
        print_json([{"kind": kind, "repaired": count} for kind, count in repaired.items()])
        print_json([asdict(each) for each in found])
    else:
        _print_findings(repaired, found)
    raise typer.Exit(OK if all(each.harmless or each.warning for each in found) else FAILED)


def _print_findings(repaired: Mapping[str, int], found: Sequence[consistency.Finding]) -> None:
    for kind, count in repaired.items():
        out.print(f"Repaired: {count:,} {kind.replace('_', ' ')}.")
    for each in found:
        head, style = _label(each)
        print_wrapped(head, f"{each.what} {each.hint}", style)
    if found:
        places = " ".join(dict.fromkeys(f"#{each.kind}" for each in found))
        print_wrapped("More in the guide:", f"/guide/runbook {places}", "dim")
    else:
        out.print("[green]No faults found.[/]")


def _label(found: consistency.Finding) -> tuple[str, str]:
    if found.harmless:
        return "Harmless:", "yellow"
    return ("Warning:", "bold yellow") if found.warning else ("Wrong:", "bold red")


@cli.command(epilog="Example: `RELEVO_INSTANCE=staging relevo adopt`, in a database that was loaded from a dump.")
def adopt(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Adopt it even if that stops running workers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record that a database which looks like a copy belongs here, so that Relevo sends from it again.

    Until then a dump loaded elsewhere, or a copied volume under another name, pushes to nobody. The command first
    shows what is queued. It refuses while a worker runs under the recorded name: the adoption would stop that worker.
    """
    settings = load_settings()
    with open_database(settings) as database:
        shown = fleet.standing(database, settings)
        queued = fleet.queued(database)
        differs = shown.differences()
        if not as_json:
            _print_standing(differs, queued)
        if differs:
            if force or not shown.would_stop:  # what is refused anyway is not asked about
                _confirm(yes=yes, what="Adopt the database, and send all of this from here?")
            actions.adopt(database, settings, shown, queued, user(), force=force)
    if as_json:
        print_json([{"differed": differs, "queued": queued, "adopted": bool(differs)}])
    elif differs:
        out.print("Adopted: the cycles run.")


def _print_standing(differs: Sequence[str], queued: Mapping[str, int]) -> None:
    if not differs:
        out.print("This database belongs here; there is nothing to adopt.")
        return
    for each in differs:
        print_wrapped("It looks like a copy:", f"{each}.", "yellow")
    out.print("Once adopted, this goes out from here:")
    for name, one, many in _QUEUED:
        out.print(f"  {in_numbers(queued[name], one, many)}")


_QUEUED = (
    ("deliveries_due", "delivery that is due now", "deliveries that are due now"),
    ("deliveries_queued", "delivery queued in all", "deliveries queued in all"),
    ("events_waiting", "event that waits for its fan-out", "events that wait for their fan-out"),
    ("receipts_awaited", "receipt to be asked for", "receipts to be asked for"),
)


def _confirm(*, yes: bool, what: str) -> None:
    """Ask a person; where nobody can be asked, --yes has to be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask for confirmation.", hint="Give --yes if you are sure.")
    if not typer.confirm(what):
        raise UsageError("Nothing was changed.")


@cli.command(name="config", epilog="Example: relevo config --json")
def show_config(
    everything: Annotated[
        bool, typer.Option("--all", help="Show the settings for tuning and for experts, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the everyday settings and all changed ones: value, default, meaning, origin. --json shows every setting."""
    rows = config.describe(load_settings())
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    shown = [row for row in rows if everything or row.tier == "everyday" or row.source in ("environment", ".env")]
    for row in shown:
        origin = {"default": "default", "derived": f"default: {row.default}"}.get(
            row.source, f"from {row.source}; default {row.default}"
        )
        out.print(f"[bold]{row.name}[/] = {escape(str(row.value))}  [dim]({escape(origin)})[/]", soft_wrap=True)
        out.print(f"    {escape(row.meaning)}", soft_wrap=True)
    if len(shown) < len(rows):
        out.print(f"{len(rows) - len(shown)} more for tuning and for experts: relevo config --all", style="dim")


@cli.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example: relevo psql -c 'select * from worker_runs'",
)
def psql(context: typer.Context) -> None:
    """Open psql on the database, with Relevo's tables on the search path. Options (-c, -f, -x …) go to psql."""
    settings = load_settings()
    if settings.database_url is not None:
        program, dsn = "psql", settings.database_direct_url or settings.database_url
    else:
        from relevo import embedded  # noqa: PLC0415 a command on a server of its own needs none of it

        server = embedded.acquire(opening.embedded_folder(settings), settings.relevo_postgres_bin)
        server.inheritable()
        program, dsn = str(server.bin / "psql"), server.dsn
    arguments, more = _psql_call(dsn, context.args)
    try:
        os.execvpe(program, ["psql", *arguments], config.environment(**more))  # noqa: S606 psql takes our place
    except FileNotFoundError:
        raise UsageError("There is no psql on this machine.", hint="Install the package postgresql-client.") from None


def _psql_call(dsn: str, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return psql's arguments and what its environment needs more; the password is in no argument list."""
    given = conninfo_to_dict(dsn)
    more = {"PGOPTIONS": "-c search_path=relevo,public", "PGAPPNAME": "relevo psql"}
    if password := given.pop("password", None):
        more["PGPASSWORD"] = str(password)
    return ["-d", make_conninfo("", **given), *words], more


@cli.command(hidden=True, epilog="Example: relevo version")
def version(as_json: AsJson = False) -> None:
    """Show the version."""
    warn_of_leaving("relevo version", "use `relevo --version`")
    say(__version__, {"version": __version__}, as_json=as_json)


@webpush.command(epilog="Example: relevo webpush keys vapid.pem")
def keys(
    file: Annotated[Path, typer.Argument(help="The file of the private key, existing or new.")],
    as_json: AsJson = False,
) -> None:
    """Make a pair of VAPID keys: write the private one to a new file of mode 600, and print the public one.

    If the file exists, print its public key: subscribed browsers accept no other.
    """
    from relevo.app import push_services  # noqa: PLC0415 it loads much, and few commands need it

    public, is_new = push_services.vapid_key(file)
    words = "A new private key is in" if is_new else "The existing private key is in"
    say(
        f"{words} {file}. The public key, for applicationServerKey in your page:\n{public}",
        {"file": str(file), "public_key": public, "is_new": is_new},
        as_json=as_json,
    )
