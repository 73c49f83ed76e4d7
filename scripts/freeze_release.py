"""Freezes what this version asks of the schema, at its release; from then on a test holds later versions to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import psycopg

from dump_schema import ROOT, migrated_server
from relevo import __version__
from relevo.core import queries
from relevo.database import migrate

RELEASED = ROOT / "tests" / "migrations" / "released"
CHECKS = ROOT / "sql" / "checks.sql"


def freeze(folder: Path, connection: psycopg.Connection[Any]) -> Path:
    """Write down the statements, the migrations and the columns of this version, but never over what is there."""
    target = folder / __version__
    if target.exists():
        raise SystemExit(f"{target} is there already: a release is frozen once, and so is its number.")
    target.mkdir(parents=True)
    for path in (queries.sql_root() / "queries").glob("*.sql"):
        shutil.copyfile(path, target / path.name)
    facts = {
        "migrations": {str(migration): migration.checksum for migration in migrate.available()},
        "columns": columns(connection),
    }
    (target / "release.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return target


def columns(connection: psycopg.Connection[Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return table -> column -> its type, whether it may be null, and whether it has a default."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    statements = queries.Statements(CHECKS.read_text(encoding="utf-8"))
    for table, column, type_, nullable, default in connection.execute(statements["list_columns"]):
        found.setdefault(table, {})[column] = {"type": type_, "nullable": nullable, "default": default}
    return found


def main() -> None:
    """Freeze the current version, from a freshly migrated database."""
    with migrated_server() as server, psycopg.connect(server.dsn) as connection:
        target = freeze(RELEASED, connection)
    print(f"froze {target.relative_to(ROOT)}: commit it together with the release")


if __name__ == "__main__":
    main()
