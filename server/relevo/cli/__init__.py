"""The command `relevo`.

Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped because locked, paused or switched off.
"""

from __future__ import annotations

import relevo.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import getpass
import os
import socket
from typing import Annotated

import psycopg
import typer

from relevo import __version__, audit, logs
from relevo.cli import access, archive, events, news, running, sandbox, sending, setting_up
from relevo.cli.common import FAILED, USAGE, complain
from relevo.errors import ConfigError, InvalidInputError, RelevoError, UsageError

cli = typer.Typer(
    name="relevo",
    help="A relay that carries events to phones and never drops the baton.",
    epilog="Exit codes: 0 success, 1 failed, 2 wrong usage or settings, 3 skipped (locked, paused or switched off).",
    no_args_is_help=True,
    add_completion=False,
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
    """A relay that carries events to phones and never drops the baton."""
    audit.act_as(_user(), "cli")


def _user() -> str:
    """Name who runs the command, for the record of what operators do."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


for part in (running, events, sending, news, access, archive, setting_up, sandbox):
    cli.add_typer(part.cli)


def main() -> None:
    """Run the command line; every error on purpose is one sentence and a next step."""
    try:
        cli()
    except (ConfigError, UsageError, InvalidInputError) as error:
        complain(error, USAGE)
    except RelevoError as error:
        complain(error, FAILED)
    except psycopg.Error as error:
        complain(RelevoError(f"PostgreSQL refused: {logs.normalise_error(error)}"), FAILED)
