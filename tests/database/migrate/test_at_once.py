"""However many processes migrate at once, each migration is applied once, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from relevo.core.errors import MigrationBusyError, MigrationError
from relevo.database import migrate
from support import soak
from support.processes import eventually

TURN = "create schema relevo"
"""What a process does first that migrates an empty database; others wait for the end of its transaction."""


def versions(look) -> list[int]:
    """Return the ledger's versions."""
    return [row[0] for row in look.execute("select version from relevo.schema_migrations order by version")]


def test_two_processes_migrate_an_empty_database(command, empty_database, look) -> None:
    """Two commands started together both succeed, and between them run every migration exactly once."""
    with psycopg.connect(empty_database) as starter:
        starter.execute(TURN)  # both wait until this is rolled back
        both = [command("migrate"), command("migrate")]
        waiting = "select count(*) from pg_locks where locktype = 'transactionid' and not granted"
        eventually(lambda: look.execute(waiting).fetchone() == (2,), "both wait")
        starter.rollback()
    assert [process.ends() for process in both] == [0, 0], [process.stderr for process in both]
    ran = [line for process in both for line in process.stdout.splitlines() if line.startswith("ran ")]
    assert ran == ["ran baseline"]
    assert versions(look) == [migration.version for migration in migrate.available()]


LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.mark.parametrize("isolation", soak.cases(["serializable"], whole=LEVELS))
def test_eight_threads_migrate_an_empty_database(open_database, empty_database, look, beyond, isolation) -> None:
    """Eight callers share the work without an error and without a double, whatever the database's default isolation."""
    look.execute(f"alter database {look.info.dbname} set default_transaction_isolation = '{isolation}'")
    known = beyond(*(f"create table relevo.more_{n} (id int); select pg_sleep(0.02);" for n in range(6)))
    databases = [open_database(empty_database) for _ in range(8)]
    together = threading.Barrier(len(databases))

    def run(database) -> list[str]:
        together.wait(60)
        return [str(migration) for migration in migrate.migrate(database, known)]

    with ThreadPoolExecutor(len(databases)) as threads:
        ran = [name for done in threads.map(run, databases, timeout=180) for name in done]
    assert sorted(ran) == sorted(["baseline", *map(str, known[-6:])])
    assert versions(look) == [migration.version for migration in known]


def test_waiting_for_a_turn_is_bounded(database, empty_database, look) -> None:
    """While somebody else holds the lock, migrate gives up after its patience, says so, and has changed nothing."""
    with psycopg.connect(empty_database) as holder:
        holder.execute(TURN)
        started = time.monotonic()
        with pytest.raises(
            MigrationError, match=r"Another process has been migrating for more than 0\.3 s\. Try again"
        ):
            migrate.migrate(database, lock_wait_ms=300)
        assert 0.3 <= time.monotonic() - started < 30
        holder.rollback()
    assert look.execute("select to_regnamespace('relevo')").fetchone() == (None,)
    assert [str(done) for done in migrate.migrate(database)] == ["baseline"]


def test_who_migrates_is_named(migrated, database, empty_database, beyond) -> None:
    """Whoever waits too long for another process that migrates learns which session of PostgreSQL that is."""
    more = beyond("create table relevo.more (id int);")
    with psycopg.connect(empty_database) as holder:
        holder.execute("lock table relevo.schema_migrations in share row exclusive mode")
        said = rf"Another process \(PostgreSQL pid {holder.info.backend_pid}\) has been migrating for more than 0\.3 s"
        with pytest.raises(MigrationBusyError, match=said):
            migrate.migrate(database, more, lock_wait_ms=300)
    assert migrate.migrate(database, more) == more[-1:]


def test_a_stranger_holds_up_no_migration(database, empty_database, look) -> None:
    """A session that holds the advisory lock by which earlier versions took turns keeps nobody from migrating."""
    with psycopg.connect(empty_database) as stranger:
        stranger.execute("select pg_advisory_xact_lock(hashtextextended('relevo.migrate', 0))")
        assert [str(done) for done in migrate.migrate(database, lock_wait_ms=300)] == ["baseline"]


def test_a_deadlock_is_a_reason_to_try_again(migrated, database, empty_database, look, beyond) -> None:
    """A migration that meets an app's transaction crosswise is undone and told as busy, not as broken."""
    look.execute("create table public.first (); create table public.second ()")
    crosswise = beyond(
        "lock public.first; select pg_advisory_xact_lock(7); lock public.second; create table public.more ();"
    )
    with ThreadPoolExecutor(2) as threads, psycopg.connect(empty_database) as app:
        app.execute("set deadlock_timeout = '1min'")  # so that it is the migration that notices
        app.execute("lock public.second")
        look.execute("select pg_advisory_lock(7)")
        migrating = threads.submit(migrate.migrate, database, crosswise, patience_s=0)
        eventually(lambda: waits_for(look, "advisory"), "the migration holds the first table")
        crossing = threads.submit(app.execute, "lock public.first")
        eventually(lambda: waits_for(look, "relation"), "the app waits for the first table")
        look.execute("select pg_advisory_unlock(7)")
        with pytest.raises(MigrationBusyError, match=r"was undone\..* Try again later"):
            migrating.result(60)
        crossing.result(60)
    assert look.execute("select to_regclass('public.more')").fetchone() == (None,)
    assert migrate.migrate(database, crosswise) == crosswise[-1:]


def waits_for(look, kind: str) -> bool:
    """Tell whether somebody waits for a lock of this kind."""
    asked = "select count(*) from pg_locks where locktype = %s and not granted"
    return look.execute(asked, [kind]).fetchone() != (0,)


def test_a_short_patience_of_the_role_does_not_cut_a_migration(migrated, database, look, beyond) -> None:
    """A statement timeout set for the database bounds neither the wait for a turn nor a long migration."""
    look.execute(f"alter database {look.info.dbname} set statement_timeout = '200ms'")
    slow = beyond("select pg_sleep(0.5);")
    assert migrate.migrate(database, slow)[-1:] == slow[-1:]


def test_a_killed_migrator_holds_nobody_up(migrated, empty_database, database, look, beyond, tmp_path) -> None:
    """Killed in the middle of a migration, a process leaves no half; the next one waits for the server to notice."""
    program = (
        "import sys; from relevo import config; from relevo.database import migrate; from relevo.database.pool import Database\n"
        "known = migrate.available(); body = b'create table relevo.half (id int); select pg_sleep(1)'\n"
        "known.append(migrate.Migration(known[-1].version + 1, 'slow', '0.1.0', body))\n"
        "migrate.migrate(Database(sys.argv[1], sys.argv[1], config.load({}, None)), known)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, empty_database], cwd=tmp_path)
    asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
    try:
        eventually(lambda: look.execute(asleep).fetchone() == (1,), "the migration begins")
    finally:
        process.kill()
        process.wait(60)
    whole = beyond("create table relevo.half (id int);")
    assert migrate.migrate(database, whole) == whole[-1:]
