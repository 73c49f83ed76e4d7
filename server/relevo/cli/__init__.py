"""The command `relevo`.

Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped (locked, paused, switched off or planned).
"""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import psycopg
import typer
from typer.core import TyperGroup
from typer.main import get_group

from relevo.cli.common import FAILED, USAGE, complain, user
from relevo.core import logs
from relevo.core.errors import ConfigError, InvalidInputError, RelevoError, UsageError
from relevo.core.version import __version__
from relevo.operators import audit

_RIGHTS = (
    "An app's role may call Relevo's functions and read nothing. Name the worker's role or the owner's in "
    "DATABASE_URL; `relevo grant ROLE --worker`, run by the owner, makes a role a worker's."
)
PARTS = {
    "watching": ("runs", "status", "deliveries", "sources"),
    "running": ("run", "serve", "tick", "run-cycle", "pause", "resume", "event-type"),
    "events": ("enqueue", "preview", "cancel", "events", "event"),
    "delivery": ("delivery",),
    "mending": ("redrive", "release", "rejects"),
    "news": ("news",),
    "access": ("audit", "grant", "token", "sessions"),
    "archive": ("forget", "archive"),
    "phones": ("import-phones", "installations"),
    "setting_up": ("migrate", "doctor", "adopt", "config", "psql", "version", "webpush"),
    "sandbox": ("sandbox",),
    "people": ("inbox", "owner", "category", "quiet", "cap"),
    "words": ("words",),
    "applying": ("apply",),
    "assistant": ("mcp",),
    "shadow": ("shadow",),
}
"""The commands by the file they are in: a command loads its own file alone."""
HEADINGS = {
    "Run it": ("run", "serve", "tick", "run-cycle", "pause", "resume", "shadow"),
    "Send": ("enqueue", "preview", "cancel", "event-type", "category", "quiet", "cap", "words"),
    "Look": (
        "status",
        "events",
        "event",
        "deliveries",
        "delivery",
        "owner",
        "installations",
        "inbox",
        "runs",
        "sources",
        "audit",
        "mcp",
    ),
    "Mend": ("doctor", "redrive", "release", "rejects"),
    "Set up": (
        "migrate",
        "config",
        "apply",
        "token",
        "sessions",
        "grant",
        "news",
        "webpush",
        "adopt",
        "psql",
        "sandbox",
        "import-phones",
        "version",
    ),
    "Archive": ("archive", "forget"),
}
"""The commands as --help lists them."""


def heading_of(command: str) -> str:
    """Return the heading under which --help lists a command."""
    return next(heading for heading, names in HEADINGS.items() if command in names)


def _hide_types_of_flags(parameters: Sequence[Any]) -> None:
    """Show no type behind a flag, which takes nothing."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""


def _tidy(command: Any) -> None:
    for below in getattr(command, "commands", {}).values():
        _tidy(below)
    _hide_types_of_flags(command.get_params(typer.Context(command)))


@cache
def _part(name: str) -> TyperGroup:
    group = get_group(import_module(f"relevo.cli.{name}").cli)
    for command, each in group.commands.items():
        _tidy(each)
        each.rich_help_panel = heading_of(command)  # type: ignore[attr-defined] # every command here is Typer's
    return group


class _Commands(TyperGroup):
    """All commands; a file of them is loaded when one of its commands, or the list of all, is asked for."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the command itself."""
        parameters = super().get_params(ctx)
        _hide_types_of_flags(parameters)
        return parameters

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 what it overrides has it
        """Name all commands, heading by heading."""
        return [name for names in HEADINGS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command in the file that has it."""
        part = next((part for part, names in PARTS.items() if cmd_name in names), None)
        return None if part is None else _part(part).get_command(ctx, cmd_name)


cli = typer.Typer(
    name="relevo",
    cls=_Commands,
    help="Push notifications that are never lost, hardly ever doubled, and always explainable.",
    epilog="Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped (locked, paused, off or planned).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and leave.")
    ] = False,
) -> None:
    """Push notifications that are never lost, hardly ever doubled, and always explainable."""
    audit.act_as(user(), "cli")


def main() -> None:
    """Run the command line; every error on purpose is one sentence and a next step."""
    try:
        cli(prog_name="relevo")
    except (ConfigError, UsageError, InvalidInputError) as error:
        complain(error, USAGE)
    except RelevoError as error:
        complain(error, FAILED)
    except psycopg.errors.InsufficientPrivilege as error:
        said = error.diag.message_primary or logs.normalise_error(error)
        complain(
            RelevoError(f"The database role that DATABASE_URL names may not do this: {said}.", hint=_RIGHTS), FAILED
        )
    except psycopg.Error as error:
        complain(RelevoError(f"PostgreSQL refused: {logs.normalise_error(error)}"), FAILED)
