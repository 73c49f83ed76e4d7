"""Databases to migrate, and migrations to migrate them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from processes import Process, Processes
from relevo import config
from relevo.database import migrate
from relevo.database.migrate import Migration
from relevo.database.pool import Database


@pytest.fixture
def open_database() -> Iterator[Callable[..., Database]]:
    """Open the door to a database as relevo does: `open_database(dsn)`; closed at the end."""
    opened: list[Database] = []

    def make(dsn: str, **settings: object) -> Database:
        given = {name.upper(): str(value) for name, value in settings.items()}
        opened.append(Database(dsn, dsn, config.load(given, None)))
        return opened[-1]

    yield make
    for database in opened:
        database.close()


@pytest.fixture
def migrated(empty_database: str, admin: psycopg.Connection[Any], template: str) -> None:
    """Let the database have the schema, before anybody connects: to clone it is quicker than to migrate it."""
    name = sql.Identifier(str(conninfo_to_dict(empty_database)["dbname"]))
    admin.execute(sql.SQL("drop database {}").format(name))
    cloned = "create database {} template {} strategy file_copy"
    admin.execute(sql.SQL(cloned).format(name, sql.Identifier(template)))


@pytest.fixture
def database(open_database: Callable[..., Database], empty_database: str) -> Database:
    """The door to a database without a schema."""
    return open_database(empty_database)


@pytest.fixture
def look(empty_database: str) -> Iterator[psycopg.Connection[Any]]:
    """An observer's connection to the database without a schema, in autocommit."""
    with psycopg.connect(empty_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def beyond() -> Callable[..., list[Migration]]:
    """Return the real migrations and some more after them: `beyond("create table …", needs="0.1.0")`."""

    def add(*bodies: str, needs: str = "0.1.0") -> list[Migration]:
        real = migrate.available()
        more = [
            Migration(number, f"more_{number}", needs, f"-- needs relevo {needs}\n{body}\n".encode())
            for number, body in enumerate(bodies, start=real[-1].version + 1)
        ]
        return [*real, *more]

    return add


@pytest.fixture
def command(empty_database: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `relevo` on the database without a schema: `command("migrate", "--plan").ends()`."""
    started = Processes(empty_database, tmp_path)
    yield started.relevo
    started.close()
