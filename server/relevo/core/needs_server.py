"""Imported ahead of everything by modules of the server: where only the client is installed, it says so."""

from __future__ import annotations

from importlib.util import find_spec

from relevo.core.errors import MissingPartError

_TELLING = ("psycopg_pool", "dotenv", "structlog")

if missing := [name for name in _TELLING if find_spec(name) is None]:
    raise MissingPartError(
        f"Only Relevo's client is installed here, and this needs its server ({missing[0]} is missing).",
        hint="Install it from where you have the client, with [server] behind it: pip install './relevo[server]'",
    )
