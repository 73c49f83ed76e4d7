"""Freezes a version at its release: the package, and what it asks of the schema; tests hold later versions to it."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import psycopg

import released
from relevo import __version__
from relevo.core import queries
from relevo.database import functions, migrate
from relevo.database.baseline import baseline


def freeze(folder: Path, connection: psycopg.Connection[Any]) -> Path:
    """Write down the statements, schema, ledgers and columns of this version, but never over what is there."""
    target = folder / __version__
    if target.exists():
        raise SystemExit(f"{target} is there already: a release is frozen once, and so is its number.")
    target.mkdir(parents=True)
    for path in (queries.sql_root() / "queries").glob("*.sql"):
        shutil.copyfile(path, target / path.name)
    (target / "schema.sql").write_text(baseline(), encoding="utf-8")
    facts = {
        "migrations": {str(migration): migration.checksum for migration in migrate.available()},
        "functions": {each.name: each.checksum for each in functions.available()},
        "columns": released.columns(connection),
    }
    (target / "release.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return target


def pack(target: Path) -> None:
    """Keep the package itself, so that a worker of this version can be run beside later ones."""
    with tarfile.open(target / "package.tar.xz", "w:xz") as archive:
        for folder in (
            "server/relevo",
            "sql/queries",
            "sql/functions",
            "sql/tables",
            "sql/migrations",
            "sql/first_rows.sql",
        ):
            archive.add(
                released.ROOT / folder, folder, filter=lambda each: None if "__pycache__" in each.name else each
            )


def main() -> None:
    """Freeze the current version, from a freshly made database."""
    with released.empty_databases("fresh") as [dsn]:
        released.bring_up_to_date(dsn)
        with psycopg.connect(dsn) as connection:
            target = freeze(released.RELEASED, connection)
    pack(target)
    print(f"froze {target.relative_to(released.ROOT)}: commit it together with the release")


if __name__ == "__main__":
    main()
