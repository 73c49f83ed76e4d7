"""`@relevo/pg` says what the app says, in the app's own transaction, over whichever driver."""

from __future__ import annotations

from pathlib import Path

import pytest

import kits

pytestmark = pytest.mark.needs("kits")


def test_every_driver_commits_and_rolls_back(clients: Path, dsn: str) -> None:
    """Over node-postgres, postgres.js, Knex, Drizzle, TypeORM and the face of Prisma: committed is said once, rolled back never."""
    kits.run_tests("pg/transactions", DATABASE_URL=dsn)
