"""The command that serves an assistant (a program around a language model) by the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from relevo.cli.common import load_settings, prepared_database, user
from relevo.config.kinds import SecretFile
from relevo.core.errors import MissingPartError, UsageError
from relevo.operators import audit

cli = typer.Typer()
_MOST_BYTES = 1_000


@cli.command("mcp", epilog="Example: `relevo mcp --token-file operator.token --hide-texts`")
def serve_assistant(
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of mode 600 with a token: an observer's (reads no texts), a viewer's or an operator's. "
            "Without a token the assistant only reads.",
        ),
    ] = None,
    hide_texts: Annotated[
        bool,
        typer.Option("--hide-texts", help="Leave texts out of every answer, as for an observer, and refuse previews."),
    ] = False,
) -> None:
    """Serve an assistant over standard input and output, by the Model Context Protocol.

    The assistant reads status, events, people and the guide. With an operator's token it may act, and the person
    confirms each act. The audit log records every call.
    """
    try:
        from relevo.cli.assistant.serving import Session, server  # noqa: PLC0415 nobody else needs it
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "mcp":
            raise
        hint = "Install it: pip install 'relevo[assistant]'"
        raise MissingPartError("mcp is not installed.", hint=hint) from None
    audit.act_as(f"assistant of {user()}", "cli")
    with prepared_database(load_settings(only_looks=True)) as database:
        session = Session(database, load_settings(only_looks=True), _read(token_file), hides_texts=hide_texts)
        session.caller()  # a token that does not do is told now
        server(session).run("stdio")


def _read(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        found: Path = TypeAdapter(SecretFile).validate_python(path)
    except ValidationError as error:
        raise UsageError(f"--token-file {error.errors()[0]['msg'].removeprefix('Value error, ')}.") from None
    with found.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES).strip()
