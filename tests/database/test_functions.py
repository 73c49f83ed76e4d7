"""`relevo migrate` brings the functions of a database to the files of `sql/functions`, and touches nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import released
from relevo.core.errors import MigrationBusyError, MigrationError
from relevo.database import functions, migrate
from relevo.database.functions import Changes, Function
from relevo.database.pool import Database
from support.processes import eventually
from support.relevo_command import make_command

Look = psycopg.Connection[Any]
pytestmark = pytest.mark.usefixtures("migrated")

ROLES = ("shop_of_functions", "clerk_of_functions")
VERSIONS = """
select p.oid::regprocedure::text, p.xmin::text from pg_proc p where p.pronamespace = 'relevo'::regnamespace
"""
LEDGER = "select name, xmin::text, checksum, applied_by from relevo.applied_functions"
ACL = "select p.proacl::text from pg_proc p where p.pronamespace = 'relevo'::regnamespace and p.proname = %s"


def function(name: str, given: str, result: str, body: str) -> Function:
    """Make a file of a function as `sql/functions` has them: `body` is bound when it is made, unless it is quoted."""
    return Function(
        name,
        f"-- Returns what a test wants.\ncreate or replace function relevo.{name}({given}) returns {result} language sql\n"
        f"{body};\n\nrevoke all on function relevo.{name} from public;\n",
    )


def with_files(*more: Function) -> list[Function]:
    """Return the files of today, with some more or in place of those of the same name."""
    names = {each.name for each in more}
    return [*(each for each in functions.available() if each.name not in names), *more]


def run(database: Database, files: Sequence[Function]) -> list[str]:
    """Migrate to these files, and return what was run."""
    return [str(step) for step in migrate.migrate(database, files=files)]


@pytest.fixture
def roles(admin: Look, empty_database: str) -> Iterator[tuple[str, str]]:
    """Two roles without rights."""
    for role in ROLES:
        admin.execute(f"drop role if exists {role}".encode())
        admin.execute(f"create role {role}".encode())
    yield ROLES
    for role in ROLES:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            conn.execute(f"reassign owned by {role} to current_user".encode())
            conn.execute(f"drop owned by {role}".encode())
        admin.execute(f"drop role {role}".encode())


def test_only_a_changed_file_is_applied(database: Database, look: Look) -> None:
    """The rows of other functions in the catalog and in the ledger stay as they are; a second run writes nothing at all."""
    migrate.migrate(
        database, files=with_files(function("one", "", "int", "return 1"), function("two", "", "int", "return 2"))
    )
    functions_before, ledger_before = set(look.execute(VERSIONS)), set(look.execute(LEDGER))
    changed = with_files(function("one", "", "int", "return 11"), function("two", "", "int", "return 2"))
    assert run(database, changed) == ["functions: 1 changed (one)"]
    assert {name for name, _ in set(look.execute(VERSIONS)) - functions_before} == {"relevo.one()"}
    assert {row[0] for row in set(look.execute(LEDGER)) - ledger_before} == {"one"}
    assert look.execute("select relevo.one(), relevo.two()").fetchone() == (11, 2)
    functions_before, ledger_before = set(look.execute(VERSIONS)), set(look.execute(LEDGER))
    assert run(database, changed) == []
    assert (set(look.execute(VERSIONS)), set(look.execute(LEDGER))) == (functions_before, ledger_before)


def test_a_file_comes_after_those_it_names(database: Database, look: Look) -> None:
    """Whatever their names are: PostgreSQL binds a body to what is there already."""
    files = with_files(
        function("a_first", "", "int", "return relevo.z_then()"), function("z_then", "", "int", "return 2")
    )
    assert run(database, files) == ["functions: 2 changed (a_first, z_then)"]
    assert look.execute("select relevo.a_first()").fetchone() == (2,)


def test_a_function_without_a_file_is_dropped(
    database: Database,
    look: Look,
    empty_database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The plan lists it. Functions that somebody else made in the schema stay."""
    old, caller = function("old", "", "int", "return 1"), function("old_caller", "", "int", "return relevo.old()")
    migrate.migrate(database, files=with_files(old, caller))
    look.execute("create function relevo.of_somebody() returns int language sql return 1")
    here = make_command(monkeypatch, capsys, empty_database)
    planned = here("migrate", "--plan")
    assert planned.out.split("\n")[0] == "would run functions: 0 changed, 2 dropped (old, old_caller)"
    assert look.execute("select to_regprocedure('relevo.old()') is not null").fetchone() == (True,)
    assert here("migrate").out == planned.out.replace("would run", "ran")
    gone = "select to_regprocedure('relevo.old()'), to_regprocedure('relevo.old_caller()'), relevo.of_somebody()"
    assert look.execute(gone).fetchone() == (None, None, 1)
    assert migrate.migrate(database) == []
    assert run(database, with_files(old)) == ["functions: 1 changed (old)"]


USERS = [
    pytest.param("view public.user_of_it as select relevo.used()", "view user_of_it", id="a view"),
    pytest.param(
        "function relevo.user_of_it() returns int return relevo.used()", r"function relevo\.user_of_it", id="a function"
    ),
]


@pytest.mark.parametrize(("user", "named"), USERS)
def test_what_others_made_keeps_what_it_calls(database: Database, look: Look, user: str, named: str) -> None:
    """A function that somebody else's view or function uses is neither dropped nor made anew: the error names who uses it."""
    migrate.migrate(database, files=with_files(function("used", "", "int", "return 1")))
    look.execute(f"create {user}".encode())
    said = rf"failed and was undone: .*{named}.* depends on function relevo\.used"
    with pytest.raises(MigrationError, match=f"The removal of functions {said}"):
        migrate.migrate(database)
    with pytest.raises(MigrationError, match=f"The function used {said}"):
        migrate.migrate(database, files=with_files(function("used", "", "text", "return 'a'")))
    assert look.execute("select relevo.used()").fetchone() == (1,)


CHANGED = [
    pytest.param(function("base", "", "text", "return 'a'"), id="another result"),
    pytest.param(function("base", "n int default 1", "int", "return n"), id="another argument"),
]


@pytest.mark.parametrize("changed", CHANGED)
def test_rights_are_kept(database: Database, look: Look, roles: tuple[str, str], changed: Function) -> None:
    """A function with another result or other arguments is made anew, with those that are bound to it: each keeps its owner and who may call it."""
    before = [function("base", "", "int", "return 1"), function("top", "", "text", "return relevo.middle()::text")]
    middle = function("middle", "", "text", "return relevo.base()::text")
    migrate.migrate(database, files=with_files(*before, middle))
    for name in ("base", "middle", "top"):
        look.execute(f"grant execute on function relevo.{name} to {roles[0]} with grant option".encode())
        look.execute(f"grant execute on function relevo.{name} to {roles[1]}".encode())
    look.execute(f"grant create, usage on schema relevo to {roles[1]}".encode())
    look.execute(f"alter function relevo.middle owner to {roles[1]}".encode())
    rights = [look.execute(ACL, [name]).fetchall() for name in ("base", "middle", "top")]
    assert run(database, with_files(changed, before[1], middle)) == ["functions: 1 changed (base)"]
    assert [look.execute(ACL, [name]).fetchall() for name in ("base", "middle", "top")] == rights
    owner = "select pg_get_userbyid(proowner) from pg_proc where oid = 'relevo.middle()'::regprocedure"
    assert look.execute(owner).fetchone() == (roles[1],)
    [same] = look.execute("select relevo.top() = relevo.base()::text").fetchone() or [None]
    assert same is True


def test_new_functions_of_the_app(database: Database, look: Look, roles: tuple[str, str]) -> None:
    """A role that may enqueue may call them after an upgrade; a right that was taken from it stays away."""
    look.execute("select relevo.grant_app(%s)", roles[:1])
    look.execute(f"revoke execute on function relevo.forget_owner(text) from {roles[0]}".encode())
    [listed] = [each for each in functions.available() if each.name == "app_functions"]
    more = Function(
        "app_functions", listed.text.replace("array['enqueue(jsonb)'", "array['greet(text)', 'enqueue(jsonb)'")
    )
    greet = function("greet", "somebody text", "text", "return 'Hello ' || somebody")
    migrate.migrate(database, files=with_files(more, greet))
    may = "select has_function_privilege(%s, 'relevo.greet(text)', 'execute'), has_function_privilege(%s, 'relevo.forget_owner(text)', 'execute')"
    assert look.execute(may, [roles[0], roles[0]]).fetchone() == (True, False)
    assert look.execute(may, [roles[1], roles[1]]).fetchone() == (False, False)


def test_all_or_nothing(database: Database, look: Look) -> None:
    """A file that PostgreSQL refuses is named, and no other is applied: neither its function nor its row in the ledger."""
    migrate.migrate(database, files=with_files(function("old", "", "int", "return 1")))
    before = set(look.execute(VERSIONS)), set(look.execute(LEDGER))
    broken = with_files(
        function("a_good", "", "int", "return 1"), function("z_broken", "", "int", "return relevo.nowhere()")
    )
    with pytest.raises(MigrationError, match=r"The function z_broken failed and was undone: .*nowhere"):
        migrate.migrate(database, files=broken)
    assert (set(look.execute(VERSIONS)), set(look.execute(LEDGER))) == before


def test_a_killed_migrator_leaves_no_half(database: Database, look: Look, empty_database: str, tmp_path: Any) -> None:
    """Killed between two files, it has applied neither; the next one applies both."""
    program = (
        "import sys; from relevo import config; from relevo.database import functions, migrate\n"
        "from relevo.database.pool import Database\n"
        "made = 'create function relevo.{}() returns int language sql return 1;'\n"
        "more = [functions.Function('a_half', made.format('a_half')), functions.Function('z_half', 'select pg_sleep(1)')]\n"
        "database = Database(sys.argv[1], sys.argv[1], config.load({}, None))\n"
        "migrate.migrate(database, files=[*functions.available(), *more])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, empty_database], cwd=tmp_path)
    asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
    try:
        eventually(lambda: look.execute(asleep).fetchone() == (1,), "it is between the files")
    finally:
        process.kill()
        process.wait(60)
    assert migrate.migrate(database) == []
    assert look.execute("select to_regprocedure('relevo.a_half()')").fetchone() == (None,)
    both = with_files(function("a_half", "", "int", "return 1"), function("z_half", "", "int", "return 1"))
    assert run(database, both) == ["functions: 2 changed (a_half, z_half)"]


def test_several_at_once(open_database: Callable[..., Database], empty_database: str, look: Look) -> None:
    """Of eight processes that start a new version together one applies its functions, and all go on."""
    files = with_files(*(function(f"n_{n}", "", "int", f"return {n}") for n in range(9)))
    databases = [open_database(empty_database) for _ in range(8)]
    together = threading.Barrier(len(databases))

    def start(database: Database) -> list[str]:
        together.wait(60)
        return run(database, files)

    with ThreadPoolExecutor(len(databases)) as threads:
        ran = [name for done in threads.map(start, databases, timeout=180) for name in done]
    assert ran == ["functions: 9 changed"]
    assert look.execute("select relevo.n_8()").fetchone() == (8,)


def test_it_gives_way(database: Database, look: Look, empty_database: str) -> None:
    """A file whose body names a table that somebody holds waits a second, is undone with the others, and is tried again."""
    files = with_files(
        function("a_free", "", "int", "return 1"),
        function("z_bound", "", "bigint", "return (select count(*) from relevo.workers)"),
    )
    with psycopg.connect(empty_database) as holder, ThreadPoolExecutor(1) as threads:
        holder.execute("lock table relevo.workers")
        with pytest.raises(
            MigrationBusyError, match=rf"The function z_bound waited .* PostgreSQL pid {holder.info.backend_pid} "
        ):
            migrate.migrate(database, files=files, patience_s=0)
        assert look.execute("select to_regprocedure('relevo.a_free()')").fetchone() == (None,)
        trying = threads.submit(run, database, files)
        waits = "select count(*) from pg_locks where locktype = 'relation' and not granted"
        eventually(lambda: look.execute(waits).fetchone() == (1,), "it waits")
        holder.rollback()
        assert trying.result(60) == ["functions: 2 changed (a_free, z_bound)"]


@pytest.mark.parametrize("newer", [pytest.param(2, id="changed"), pytest.param(None, id="dropped")])
def test_functions_of_a_newer_version_are_left_alone(
    database: Database, look: Look, monkeypatch: pytest.MonkeyPatch, newer: int | None
) -> None:
    """A replica of the version before neither brings its own back nor complains, whatever the newer one did with a function."""
    today = with_files(function("ours", "", "int", "return 1"))
    migrate.migrate(database, files=today)
    with monkeypatch.context() as later:
        later.setattr(functions, "__version__", "9.0.0")
        migrate.migrate(
            database, files=with_files(*([function("ours", "", "int", f"return {newer}")] if newer else []))
        )
    assert migrate.plan(database, files=today) == []
    assert migrate.migrate(database, files=today) == []
    assert migrate.prepare(database, files=today) == []
    assert look.execute("select to_regprocedure('relevo.ours()') is null").fetchone() == (newer is None,)
    if newer:
        assert look.execute("select relevo.ours()").fetchone() == (newer,)


def test_functions_of_a_newer_schema_are_left_alone(
    database: Database, look: Look, beyond: Callable[..., list[migrate.Migration]]
) -> None:
    """A migration that this version does not know says that a newer one was here, though both say the same of themselves."""
    newer = with_files(function("ours", "", "int", "return 2"))
    migrate.migrate(database, beyond("select 1;"), newer)
    assert migrate.prepare(database, files=with_files(function("ours", "", "int", "return 1"))) == []
    assert migrate.missing(database) == []
    assert look.execute("select relevo.ours()").fetchone() == (2,)


def test_a_call_goes_on_while_its_function_is_made_anew(database: Database, empty_database: str) -> None:
    """A session that calls a function without a pause meets no error while its result and arguments change."""
    one = [function("base", "", "int", "return 1"), function("caller", "", "text", "as 'select relevo.base()::text'")]
    two = [function("base", "n int default 2", "text", "return n::text"), one[1]]
    migrate.migrate(database, files=with_files(*one))
    done, told = threading.Event(), []

    def call() -> None:
        with psycopg.connect(empty_database, autocommit=True) as conn:
            while not done.is_set():
                told.append(conn.execute("select relevo.caller()").fetchone())

    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(call)
        try:
            for files in [two, one] * 3:
                many = len(told)
                eventually(lambda known=many: calling.done() or len(told) > known + 5, "it calls")
                assert run(database, with_files(*files)) == ["functions: 1 changed (base)"]
        finally:
            done.set()
        calling.result(60)
    assert set(told) == {("1",), ("2",)}


@pytest.fixture
def of_before(empty_database: str, admin: Look) -> str:
    """A database of the first release that is upgraded."""
    name = psycopg.conninfo.conninfo_to_dict(empty_database)["dbname"]
    admin.execute(f"drop database {name}".encode())
    admin.execute(f"create database {name}".encode())
    released.make(empty_database, released.versions()[0])
    return empty_database


def test_what_0_3_0_leaves_behind_is_dropped(of_before: str, open_database: Callable[..., Database]) -> None:
    """The plan names the functions of 0.3.0 that have no file; after the upgrade they are gone, and are each there before."""
    database = open_database(of_before)
    with psycopg.connect(of_before, autocommit=True) as look:
        names = {name.split("(")[0] for name, _ in look.execute(VERSIONS)}
        assert {f"relevo.{name}" for name in functions.LEFT_OF_0_3_0} <= names
        *_, last = migrate.plan(database)
        assert isinstance(last, Changes)
        assert last.gone == tuple(sorted(functions.LEFT_OF_0_3_0))
        *_, ran = migrate.migrate(database)
        assert ran == last
        names = {name.split("(")[0] for name, _ in look.execute(VERSIONS)}
        assert names == {f"relevo.{each.name}" for each in functions.available()}
