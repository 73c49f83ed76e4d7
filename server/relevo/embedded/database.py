"""The database in the embedded server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import psycopg

from relevo.core import queries
from relevo.core.errors import EmbeddedError

NAME = "relevo"


def dsn(port: int, password: str, database: str = NAME) -> str:
    """Where to connect."""
    return f"postgresql://postgres:{quote(password, safe='')}@127.0.0.1:{port}/{database}"


def ensure(port: int, password: str, password_file: Path) -> bool:
    """Does the server answer with our database in it? It is made if it is not there."""
    try:
        psycopg.connect(dsn(port, password), connect_timeout=2).close()
    except psycopg.OperationalError as error:
        # A failed connection carries no SQLSTATE; the server speaks English, initdb saw to that.
        if "password authentication failed" in str(error):
            raise EmbeddedError(
                f"The embedded server refuses the password in {password_file}.",
                hint="Put the right password into that file, or remove the whole folder to start afresh.",
            ) from error
        return "does not exist" in str(error) and _create(port, password)
    return True


def _create(port: int, password: str) -> bool:
    """Make the database, unless someone else just did."""
    try:
        with psycopg.connect(dsn(port, password, "postgres"), autocommit=True, connect_timeout=2) as maker:
            maker.execute(queries.load("embedded")["create_database"])
    except psycopg.errors.DuplicateDatabase:
        return True
    except psycopg.OperationalError:
        return False
    return True
