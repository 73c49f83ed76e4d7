"""`@relevo/pg` says what the app says, in the app's own transaction, over whichever driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support import kits, soak

pytestmark = pytest.mark.needs("kits")
PRISMA = Path(__file__).parent / "prisma"
PRISMA_ITSELF = pytest.param(True, marks=pytest.mark.needs("npm-packages"))
PACKAGES = ("prisma@7", "@prisma/client@7", "@prisma/adapter-pg@7")


@pytest.mark.parametrize("with_prisma", soak.cases((False,), whole=(False, PRISMA_ITSELF)))  # Prisma takes 300 MB
def test_every_driver_commits_and_rolls_back(clients: Path, dsn: str, tmp_path: Path, *, with_prisma: bool) -> None:
    """Over node-postgres, postgres.js, Knex, Drizzle, TypeORM, and Prisma or its face: committed is said once, rolled back never."""
    settings = {"PRISMA_CLIENT": generate(tmp_path / "prisma").as_uri()} if with_prisma else {}
    said = kits.run_tests("pg/transactions", DATABASE_URL=dsn, **settings)
    assert ("Prisma: what is rolled back was never said" in said.replace("the face of Prisma", "")) == with_prisma


def generate(folder: Path) -> Path:
    """Have Prisma generate its client, and return the module that connects by it; the program it asks for is not needed."""
    shutil.copytree(PRISMA, folder)
    kits.call(
        "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES, cwd=folder
    )
    words = ("node_modules/prisma/build/index.js", "generate", "--config", "prisma.config.mjs")
    kits.call("node", *words, cwd=folder, PRISMA_SCHEMA_ENGINE_BINARY="/bin/true", CHECKPOINT_DISABLE="1")
    return folder / "connect.mjs"
