"""Commands about who may call over HTTP or use the database, and what operators did."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from relevo.access import api_tokens, sign_on
from relevo.access import sessions as access_sessions
from relevo.cli.common import (
    MOST_IDS,
    AsJson,
    Limit,
    as_written,
    coloured,
    err,
    load_settings,
    open_lists,
    prepared_database,
    print_json,
    print_rows,
    say,
    shortened,
    told_of,
)
from relevo.core.errors import UsageError
from relevo.operators import actions, audit

cli = typer.Typer()
token = typer.Typer(help="Tokens for HTTP: make, list, revoke.", no_args_is_help=True)
cli.add_typer(token, name="token")
sessions = typer.Typer(help="Sessions of the dashboard: list, end.", no_args_is_help=True)
cli.add_typer(sessions, name="sessions")


@token.command(epilog="Example: `relevo token make billing --role app --project @acme/app --days 90`")
def make(
    name: Annotated[str, typer.Argument(help="The program or person that uses the token.")],
    role: Annotated[
        str,
        typer.Option(
            help="app (enqueue, register, read its events), observer (read, but no texts), viewer (read) or operator "
            "(everything)."
        ),
    ],
    project: Annotated[str | None, typer.Option(help="The token's only project. Default: all.")] = None,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=api_tokens.MAX_DAYS, help="Days that the token is valid. Default: for ever."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it. It is printed once: the database keeps only its hash."""
    known = {each: each for each in api_tokens.ROLES}
    if role not in known:
        raise UsageError(f"There is no role {role}.", hint=f"Known: {', '.join(known)}.")
    with prepared_database() as database:
        written, made = api_tokens.make(database, name, known[role], project=project, days=days)
    if as_json:
        print_json([{"id": made.id, "token": written}])
        return
    sys.stdout.write(f"{written}\n")
    err.print(f"Token {made.id} for {escape(made.name)}. Keep it: it is not shown again.")


@token.command(name="list", epilog="Example: relevo token list --json")
def list_tokens(limit: Limit = 100, as_json: AsJson = False) -> None:
    """Show the tokens, newest first, and when each was last used."""
    with prepared_database(load_settings(only_looks=True)) as database:
        rows = api_tokens.list_all(database, limit=limit)
    columns = {
        "token": lambda row: row["id"],
        "name": lambda row: escape(row["name"]),
        "role": lambda row: row["role"],
        "project": lambda row: escape(row["project"] or "all"),
        "state": lambda row: row["state"],
        "last used (UTC)": lambda row: _when(row["last_used_at"]),
        "expires (UTC)": lambda row: _when(row["expires_at"]),
    }
    print_rows(columns, rows, "No tokens yet: `relevo token make` creates one.", wide=("name",), as_json=as_json)


@token.command(epilog="Example: relevo token revoke c4f4d51df489")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `token list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token: it is refused within a second."""
    with prepared_database() as database:
        name = api_tokens.revoke(database, token_id)
    told = {"id": token_id, "name": name, "revoked": True}
    say(f"Token {escape(token_id)} ({escape(name)}) is revoked.", told, as_json=as_json)


@token.command(epilog="Example: relevo token restore c4f4d51df489")
def restore(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The person's id, as `token list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Allow a person whose access was revoked to sign in again."""
    with prepared_database() as database:
        name = sign_on.restore(database, token_id)
    told = {"id": token_id, "name": name, "restored": True}
    say(f"{escape(name)} may sign in again.", told, as_json=as_json)


@sessions.command(name="list", epilog="Example: relevo sessions list --json")
def list_sessions(
    of_token: Annotated[str | None, typer.Option("--token", help="Only sessions of this token, by its id.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show the sessions of the dashboard, the last used first."""
    with prepared_database(load_settings(only_looks=True)) as database:
        rows = access_sessions.list_all(database, token_id=of_token, limit=limit)
    rows = [{name: row[name] for name in row if name not in ("is_own", "now")} for row in rows]
    columns = {
        "session": lambda row: row["id"],
        "token": lambda row: row["token_id"],
        "name": lambda row: escape(row["name"]),
        "role": lambda row: row["role"],
        "address": lambda row: escape(row["address"] or ""),
        "logged in (UTC)": lambda row: _when(row["created_at"]),
        "last used (UTC)": lambda row: _when(row["last_used_at"]),
        "ends (UTC)": lambda row: _when(row["ends_at"]),
    }
    print_rows(columns, rows, "Nobody is logged in.", wide=("name",), as_json=as_json)


@sessions.command(epilog="Example: `relevo sessions end 3f1c0a9b7d21`, or `relevo sessions end --token c4f4d51df489`")
def end(
    session_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The session's id, as `sessions list` shows it.")
    ] = None,
    of_token: Annotated[str | None, typer.Option("--token", help="End all sessions of this token.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="End all sessions.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a session, those of a token, or all. The person must log in again."""
    if (session_id is not None) + (of_token is not None) + everybody != 1:
        raise UsageError("Name one session, --token or --all.", hint="`relevo sessions list` shows the sessions.")
    with prepared_database() as database:
        if session_id is not None:
            access_sessions.end_listed(database, session_id)
            count = 1
        else:
            count = access_sessions.end_many(database, token_id=of_token)
    say(f"{count} {'session' if count == 1 else 'sessions'} ended.", {"sessions": count}, as_json=as_json)


@cli.command("audit", epilog="Example: relevo audit --json")
def show_audit(
    action: Annotated[str | None, typer.Option(help="Only this action, such as pause.")] = None,
    before: Annotated[int | None, typer.Option(min=1, max=MOST_IDS, help="Only entries before this one.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show actions of operators, newest first, with person, time and result, by command, HTTP or Python."""
    with open_lists() as lists:
        rows = lists.read(audit.latest, before=before, action=action, limit=limit)
    columns = {
        "entry": lambda row: str(row["id"]),
        "when (UTC)": lambda row: f"{row['at'].astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        "who": lambda row: escape(f"{row['actor']} ({row['face']})"),
        "what": lambda row: escape(row["action"]),
        "on": lambda row: escape(shortened(told_of(row["target"]))),
        "outcome": lambda row: coloured(row["outcome"]),
        "result": lambda row: escape(shortened(row["error_message"] or told_of(row["result"]))),
    }
    print_rows(columns, rows, "No action has been recorded yet.", wide=("who", "on", "result"), as_json=as_json)


def _when(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}" if at else "never"


@cli.command(epilog="Example: relevo grant app_role")
def grant(
    role: Annotated[str, typer.Argument(help="A role of the database.")],
    worker: Annotated[
        bool,
        typer.Option("--worker", help="Grant what the cycles and HTTP need, but no change of the schema."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Grant a role the app's SQL functions and nothing else of Relevo, or with --worker the right to run Relevo."""
    with prepared_database() as database:
        actions.grant(database, role, worker=worker)
    what = "run Relevo on this database" if worker else "call relevo.enqueue and its kin"
    say(f"{as_written(role)} may now {what}.", {"role": role, "worker": worker}, as_json=as_json)
