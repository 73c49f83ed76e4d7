"""Imported first by modules of the server: where only the client is installed, it raises an error that says so."""

from __future__ import annotations

from importlib.util import find_spec

from relevo.core.errors import MissingPartError

_OF_SERVER = ("psycopg_pool", "dotenv", "structlog")

if missing := [name for name in _OF_SERVER if find_spec(name) is None]:
    raise MissingPartError(
        f"Only Relevo's client is installed here, and this needs its server ({missing[0]} is missing).",
        hint="Install it from where you have the client, with [server] behind it: pip install './relevo[server]'",
    )
