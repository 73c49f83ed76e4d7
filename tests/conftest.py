"""A real PostgreSQL for every test: one server a process; a database that tests share and empty, or one of their own."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relevo import app, config, embedded
from relevo.config import Settings
from relevo.delivery.projects import provider_rules
from relevo.operators import audit
from relevo.providers.fcm.sandbox import account

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "scripts"))
from support import postgres_folder
from support.optional_parts import NEVER_REQUIRED, OPTIONAL_PARTS
from support.shared_database import SharedDatabase

pytest_plugins = [
    "support.fixtures.archive",
    "support.fixtures.hosted_database",
    "support.fixtures.http_server",
    "support.fixtures.migrating",
    "support.fixtures.running_processes",
    "support.fixtures.sending_worker",
]
"""Fixtures for all folders; a folder's own conftest.py may have others by the same names."""
REQUIRE_ALL = os.environ.get("RELEVO_TEST_REQUIRE_ALL") == "1"
MEMORY, ROOM_BYTES = Path("/dev/shm"), 6 << 30
NOWHERE = "http://127.0.0.1:9"
"""A push service that is not there: no test reaches a real one."""
LONG = (
    "scenarios/faults/test_killed_dispatch",
    "scenarios/faults/test_one_bad_host",
    "app/test_service_stopping",
    "http/test_http_projects_apart",
    "scripts/deploy/test_deploy",
    "clients/test_web",
    "clients/test_packed",
    "docs/test_installing",
    "house/test_wheel",
    "scenarios/oracles/test_who_reads_what",
    "cycles/export/test_faults",
    "cycles/test_runaway_days",
    "http/dashboard/test_dashboard_every_page",
    "scenarios/faults/test_killed_with_mixed_phones",
    "cycles/export/test_bad_s3_services",
    "scripts/bench/test_bench",
    "scenarios/faults/test_stopped_dispatch",
    "http/test_api_schema",
    "scenarios/projects/test_one_account",
    "scenarios/phones/test_mixed_phones",
    "database/test_outages",
    "runtime/test_singleton",
    "scenarios/faults/test_lost_connections",
    "scenarios/push_errors/test_whose_fault",
    "scenarios/faults/test_worker_processes",
    "cli/test_running",
    "cycles/fanout/test_kills",
    "cycles/ingest/test_kills",
    "cycles/export/test_kills",
    "scenarios/faults/test_a_day",
    "scenarios/faults/test_frozen_connections",
    "cycles/fanout/test_plans",
    "delivery/projects/test_projects",
    "migrations/test_rolling_upgrades",
    "archive/test_restore",
    "archive/test_retire",
    "runtime/test_wakeups",
    "runtime/test_hung_calls_of_runs",
    "delivery/sending/test_in_flight_hung",
    "runtime/test_hung_calls",
    "scenarios/one_bad_thing/test_busy_rows",
    "operators/test_consistency",
    "http/dashboard/test_events",
    "http/dashboard/test_operator_actions_browser",
    "sandbox/test_page_a_week_off",
    "cli/test_running_demo",
    "cli/test_events",
    "cli/test_watching",
    "delivery/claiming/test_claims_model",
)
"""The files that take longest, the longest first."""
MANY = 500
"""From so many tests on a run says where its time went."""
account.RSA_BITS = 1_024
"""A sandbox's key is checked wherever it is read, which takes 220 ms with 2,048 bits, and 30 with these."""
_left_out: dict[str, int] = {}
_numbers = itertools.count(1)

# A developer's own settings must not reach the tests.
for _name in [row.name for row in config.describe(Settings())]:
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)


def pytest_configure(config: pytest.Config) -> None:
    """Register what strict markers need, and let files of tests and of what they start be written to memory."""
    config.addinivalue_line("markers", "needs(part): runs only where an optional system part is found")
    if "TMPDIR" not in os.environ and (folder := _quick_folder()):
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # it may have been looked up already


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected, nor among them later: they all stay to the end."""
    gc.disable()
    with _compiling_once():
        yield
    gc.freeze()
    gc.enable()


@contextmanager
def _compiling_once() -> Iterator[None]:
    """In a checkout that is new let one process of a parallel run compile the tests: else each would compile them all."""
    here = Path(__file__).parent
    compiled = here / "stores" / "__pycache__"  # the last folder
    if compiled.exists() or sys.dont_write_bytecode or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with (here / "conftest.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if compiled.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let go of what was collected; a process of a parallel run says what it left out."""
    gc.unfreeze()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from a process of a parallel run what it left out; each collects all tests, so they say the same."""
    _left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests whose optional part is missing, unless its absence is to be a failure."""
    kept, left_out = [], []
    for item in items:
        missing = [m.args[0] for m in item.iter_markers("needs") if not OPTIONAL_PARTS[m.args[0]][0]()]
        if missing and (not REQUIRE_ALL or set(missing) <= NEVER_REQUIRED):
            left_out.append(item)
            for part in missing:
                _left_out[part] = _left_out.get(part, 0) + 1
        else:
            kept.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(kept, key=lambda item: _turn(item.path))


@cache
def _turn(path: Path) -> int:
    """Let the files that take longest begin first: a process that gets one of them last keeps all others waiting."""
    name = path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
    return LONG.index(name) if name in LONG else len(LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was left out, and what to do for it."""
    if _left_out:
        terminalreporter.section("LEFT OUT: this run did not test everything", sep="!", yellow=True, bold=True)
    for part, count in _left_out.items():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"{tests}, for want of {part}: {OPTIONAL_PARTS[part][1]} to run them", yellow=True)
    _write_times(terminalreporter)


def _write_times(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each folder took, and the longest files, LONG's successors, after a run of many tests."""
    reports = [row for rows in terminalreporter.stats.values() for row in rows if isinstance(row, pytest.TestReport)]
    if len({report.nodeid for report in reports}) < MANY:
        return
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in reports:
        file = report.location[0].removeprefix("tests/")
        folders[file.split("/")[0]] += report.duration
        files[file] += report.duration
    for what, counted in (("by folder", folders.most_common()), ("of the longest files", files.most_common(12))):
        line = ", ".join(f"{name} {seconds:.0f}" for name, seconds in counted)
        terminalreporter.write_line(f"seconds {what}, {sum(files.values()):.0f} in all: {line}")


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Each test starts with structlog as it comes, no leftover context, and as nobody in particular."""
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    audit.act_as("a program", "python")  # a command that a test before this one ran said who acts
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def _quick_folder() -> Path | None:
    """Return a disk in memory if there is one with plenty of room: a database is hundreds of files, made for each test."""
    has_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 2 * ROOM_BYTES
    if has_memory and MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        return MEMORY
    return None


@pytest.fixture(scope="session")
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a PostgreSQL with the schema, to be copied; all processes of a parallel run share it."""
    base = tmp_path_factory.getbasetemp()
    return postgres_folder.prototype((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "prototype")


@pytest.fixture(scope="session")
def server(prototype: Path) -> Iterator[embedded.Embedded]:
    """The session's PostgreSQL; not durable, for its data dies with the session."""
    folder = Path(tempfile.mkdtemp(prefix="relevo-tests-", dir=_quick_folder()))
    quick = postgres_folder.QUICK | {"max_connections": "200", "max_prepared_transactions": "4"}
    quick["autovacuum_naptime"] = "1d"  # statistics taken while a test fills its tables count none of their rows
    postgres_folder.copy(prototype, folder / "postgres")
    try:
        with embedded.acquire(folder / "postgres", postgres_folder.programs(), settings=quick) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def admin(server: embedded.Embedded) -> Iterator[psycopg.Connection[Any]]:
    """A superuser's connection to the server's maintenance database."""
    with psycopg.connect(make_conninfo(server.dsn, dbname="postgres"), autocommit=True) as connection:
        yield connection


def _create(admin: psycopg.Connection[Any], server: embedded.Embedded, name: str, template: str) -> str:
    copied = "create database {} template {} strategy file_copy"  # as WAL it would be written twice
    statement = sql.SQL(copied).format(sql.Identifier(name), sql.Identifier(template))
    admin.execute(statement)
    return f"postgresql://{server.dsn.split('://', 1)[1].rsplit('/', 1)[0]}/{name}"


def _drop(admin: psycopg.Connection[Any], name: str) -> None:
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def template() -> str:
    """The name of a database that is migrated once and cloned for each test."""
    return postgres_folder.SCHEMA


@pytest.fixture
def empty_database(server: embedded.Embedded, admin: psycopg.Connection[Any]) -> Iterator[str]:
    """The DSN of a fresh database without a schema."""
    name = f"empty_{next(_numbers)}"
    yield _create(admin, server, name, "template1")
    _drop(admin, name)


@pytest.fixture(scope="session")
def shared_database(
    server: embedded.Embedded, admin: psycopg.Connection[Any], template: str
) -> Iterator[SharedDatabase]:
    """The database that tests share, one after the other."""
    made = SharedDatabase(admin, server.dsn, template)
    yield made
    made.kept.stop()
    made.close()


@pytest.fixture
def observer(shared_database: SharedDatabase) -> psycopg.Connection[Any]:
    """A connection to the shared database, which is as good as new."""
    return shared_database.renewed()


@pytest.fixture
def dsn(shared_database: SharedDatabase, observer: psycopg.Connection[Any]) -> str:
    """The DSN of a migrated database without a row, or a connection but the observer's, left in it."""
    return shared_database.dsn


@pytest.fixture(scope="module")
def module_settings(server: embedded.Embedded, admin: psycopg.Connection[Any], template: str) -> Iterator[Any]:
    """Make settings for a database that the tests of one file share: `module_settings(http_port=0)`."""
    name = f"shared_{next(_numbers)}"
    yield _settings_for(_create(admin, server, name, template))
    _drop(admin, name)


def _settings_for(dsn: str) -> Callable[..., Settings]:
    def make(**changes: object) -> Settings:
        environ = {"DATABASE_URL": dsn, "EXPO_BASE_URL": NOWHERE, "HTTP_PORT": "0"} | {
            name.upper(): str(value) for name, value in changes.items()
        }
        return _loaded(frozenset(environ.items()))

    return make


@cache
def _loaded(environ: frozenset[tuple[str, str]]) -> Settings:
    """Load settings once: they are frozen, and to check them all takes as long as a small test."""
    return config.load(dict(environ), None)


@pytest.fixture
def conn(dsn: str, observer: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """An observer's connection to the test's database, in autocommit."""
    return observer


@pytest.fixture
def make_settings(dsn: str) -> Callable[..., Settings]:
    """Make settings for the test's database: `make_settings(outbox_batch_size=10)`."""
    return _settings_for(dsn)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let workers built from now on have other numbers behind breakers and brakes: `rules(brake_min=10)`."""
    usual = provider_rules.rules_of

    def change(**numbers: float) -> None:
        monkeypatch.setattr(provider_rules, "rules_of", lambda settings: replace(usual(settings), **numbers))

    return change


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    """Default settings for the test's database."""
    return make_settings()


@pytest.fixture
def build(make_settings: Callable[..., Settings]) -> Iterator[Callable[..., app.App]]:
    """Assemble registered workers, closed at the end: `build(worker_id="a", outbox_lease_duration_ms=900)`.

    With `now` their cycles live at that time.
    """
    opened: list[Any] = []

    def make(
        *,
        role: str = "run",
        cycles: Any = (),
        middlewares: Any = (),
        renderers: Any = None,
        now: datetime | None = None,
        **changes: object,
    ) -> app.App:
        context = app.build(
            make_settings(**changes),
            app.Parts(cycles=cycles, middlewares=middlewares, renderers=renderers or {}),
            role=role,  # type: ignore[arg-type]
            clock=lambda: now,
        )
        built = context.__enter__()
        opened.append(context)
        built.worker.record_start("run", [cycle.key for cycle in built.cycles()])
        return built

    yield make
    for context in reversed(opened):
        context.__exit__(None, None, None)
