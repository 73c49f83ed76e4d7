"""`@relevo/pg` says what the app says, in the app's own transaction, over whichever driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kits

pytestmark = pytest.mark.needs("kits")
PRISMA = Path(__file__).parent / "prisma"
PACKAGES = ("prisma@7", "@prisma/client@7", "@prisma/adapter-pg@7")


def test_every_driver_commits_and_rolls_back(clients: Path, dsn: str) -> None:
    """Over node-postgres, postgres.js, Knex, Drizzle, TypeORM and the face of Prisma: committed is said once, rolled back never."""
    kits.run_tests("pg/transactions", DATABASE_URL=dsn)


@pytest.mark.needs("npm-packages")
def test_prisma_commits_and_rolls_back(clients: Path, dsn: str, tmp_path: Path) -> None:
    """Over the client that Prisma generates, too; it asks for a program of its own that generating one does not need."""
    folder = shutil.copytree(PRISMA, tmp_path / "prisma")
    kits.call(
        "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES, cwd=folder
    )
    generate = ("node_modules/prisma/build/index.js", "generate", "--config", "prisma.config.mjs")
    kits.call("node", *generate, cwd=folder, PRISMA_SCHEMA_ENGINE_BINARY="/bin/true", CHECKPOINT_DISABLE="1")
    said = kits.run_tests("pg/transactions", DATABASE_URL=dsn, PRISMA_CLIENT=(folder / "connect.mjs").as_uri())
    assert "Prisma: what is rolled back was never said" in said
