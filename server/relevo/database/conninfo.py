"""Connection strings: with the limits that every connection has, and as psql takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo.config import Settings


def conninfo(dsn: str, settings: Settings, application_name: str) -> str:
    """Complete a DSN with the limits every connection of ours has, leaving alone what it already says."""
    limits: dict[str, Any] = {
        "application_name": application_name[:60],
        "connect_timeout": max(2, settings.database_connect_timeout_ms // 1000),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    given = conninfo_to_dict(dsn)
    return make_conninfo(dsn, **{key: value for key, value in limits.items() if key not in given})


def psql_call(dsn: str, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return psql's arguments and what its environment needs more; the password is in no argument list."""
    given = conninfo_to_dict(dsn)
    more = {"PGOPTIONS": "-c search_path=relevo,public", "PGAPPNAME": "relevo psql"}
    if password := given.pop("password", None):
        more["PGPASSWORD"] = str(password)
    return ["-d", make_conninfo("", **given), *words], more
