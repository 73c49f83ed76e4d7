"""What the pages of hosted databases and of other languages print works as printed, for a role restricted as on such a service."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from relevo import aio, config
from relevo.client import verbs
from relevo.client.values import Event, Owners
from relevo.database import migrate
from relevo.database.pool import Database
from support.docs_pages import DOCS, blocks
from support.fixtures.hosted_database import ROLE, HostedDatabase
from support.installed import RELEVO
from support.processes import Processes

pytestmark = pytest.mark.needs("pgbouncer")

HOSTED, FRAMEWORKS = DOCS / "hosted-databases.md", DOCS / "recipes-frameworks.md"
LANGUAGES = ("ruby", "php", "go", "java")
SQL = re.compile(r"""["']((?:select|insert|update) [^"\n]*?)["'](?=[,)\]])""")
"""A statement in the text of a program: it ends at a quote that an argument or a bracket follows."""
LOGINS = """
create role anon;
create role authenticated;
create schema auth;
create function auth.uid() returns uuid language sql as $$ select current_setting('request.jwt.sub')::uuid $$;
grant usage on schema auth to public;
grant usage, create on schema public to hosted;
grant usage on schema public to authenticated;
"""
"""What Supabase has made: the roles of its API, and who is logged in."""
ANA = "018f3c1e-7c1a-4a58-9d43-6a2f0c9b1d11"


@pytest.fixture
def migrated(hosted: HostedDatabase) -> HostedDatabase:
    """The restricted database, migrated by its role."""
    database = Database(hosted.pooled, hosted.pooled, config.load({}, None))
    migrate.migrate(database)
    database.close()
    return hosted


@pytest.fixture
def supabase(migrated: HostedDatabase) -> Iterator[HostedDatabase]:
    """The restricted database with the roles of Supabase's API."""
    with psycopg.connect(migrated.staff, autocommit=True) as staff:
        staff.execute(LOGINS.encode())
        yield migrated
        staff.execute("drop owned by anon, authenticated cascade")
        staff.execute("drop role anon, authenticated")


def printed(page: Any, *words: str) -> list[str]:
    """Return the texts of a page's blocks of these words."""
    return [block.text for block in blocks(page) if block.words == words]


def test_supabase_without_webhooks(supabase: HostedDatabase) -> None:
    """A logged-in person registers a phone and changes a row, by the printed functions alone, and the event commits with the row."""
    statements = printed(HOSTED, "sql", "restricted")
    assert len(statements) == 3
    with psycopg.connect(supabase.direct, autocommit=True) as role:
        for statement in statements:
            role.execute(statement.encode())
        role.execute("grant select, insert, update on public.orders to authenticated")
    with psycopg.connect(supabase.staff) as api:
        api.execute("select set_config('request.jwt.sub', %s, false)", [ANA])
        api.execute("set role authenticated")
        api.execute("select public.register_phone('ExponentPushToken[ana]', 'ios')")
        api.execute("insert into public.orders (customer) values (%s)", [ANA])
        api.execute("update public.orders set status = 'shipped'")
        api.commit()
        for refused in ("select relevo.enqueue('{}')", "select token from relevo.device_installations"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                api.execute(refused.encode())
            api.rollback()
        api.execute("set role anon")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            api.execute("select public.register_phone('ExponentPushToken[eve]', 'ios')")
    with psycopg.connect(supabase.staff) as staff:
        owners = staff.execute("select owner, platform from relevo.device_installations").fetchall()
        asked = "select event_type, event_key, o.owner from relevo.notification_events e join relevo.event_owners o on o.event_id = e.id"
        events = staff.execute(asked.encode()).fetchall()
    assert owners == [(ANA, "ios")]
    assert events == [("order.shipped", "1", ANA)]


def test_a_role_that_may_not_create_schemas(empty_database: str, hosted_port: int) -> None:
    """The printed statements, run once by somebody else, let the role migrate and clean up."""
    [statements] = printed(HOSTED, "sql")
    assert hosted_port
    with psycopg.connect(empty_database, autocommit=True) as staff:
        staff.execute(statements.replace("authorization app", f"authorization {ROLE}").encode())
    address = psycopg.conninfo.make_conninfo(empty_database, user=ROLE, password=ROLE)
    database = Database(address, address, config.load({}, None))
    assert [str(step) for step in migrate.migrate(database)] == ["baseline"]
    database.close()
    with psycopg.connect(empty_database, autocommit=True) as staff:
        staff.execute(f"drop owned by {ROLE} cascade")


def test_the_drivers_settings(migrated: HostedDatabase) -> None:
    """With the printed settings psycopg and asyncpg enqueue through the pooler, again and again, on several connections at once."""
    text = HOSTED.read_text(encoding="utf-8")
    assert "psycopg.connect(…, prepare_threshold=None)" in text
    assert "asyncpg.connect(…, statement_cache_size=0)" in text
    apps = [psycopg.connect(migrated.pooled, prepare_threshold=None) for _ in range(4)]
    for n in range(8):
        for number, app in enumerate(apps):
            verbs.enqueue(app, Event("bill.due", f"{number}-{n}", "Due", audience=Owners("ana")))
            app.commit()
    for app in apps:
        app.close()

    async def enqueue() -> None:
        url = psycopg.conninfo.conninfo_to_dict(migrated.pooled)
        there = f"postgresql://{ROLE}:{ROLE}@{url['host']}:{url['port']}/{url['dbname']}"
        several = [await asyncpg.connect(there, statement_cache_size=0) for _ in range(3)]
        for n in range(5):
            for number, each in enumerate(several):
                async with each.transaction():
                    await aio.enqueue(each, Event("bill.paid", f"{number}-{n}", "Paid", audience=Owners("ana")))
        for each in several:
            await each.close()

    asyncio.run(enqueue())


@pytest.mark.parametrize("line", ["release", "web"])
def test_a_host_for_one_process(line: str, migrated: HostedDatabase, tmp_path: Any, sandbox: Any) -> None:
    """The lines of the Procfile migrate, serve on the host's port, and end within its 30 seconds."""
    [text] = printed(HOSTED, "text")
    command = dict(row.split(": ", 1) for row in text.splitlines())[line]
    assert command.endswith(("relevo migrate", "relevo run"))
    started = Processes(migrated.pooled, tmp_path)
    try:
        words = f"exec env {command.replace('relevo ', f'{RELEVO} ')}"
        process = started.program("sh", "-c", words, port="0", expo_base_url=sandbox.url, http_enabled=True)
        if line == "web":
            process.hears("http_serving")
            process.signal(signal.SIGTERM)
        assert process.ends(30) == 0, process.stderr
    finally:
        started.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_sql_of_each_language(language: str, migrated: HostedDatabase) -> None:
    """The statements of a program enqueue an event, by the restricted role, in one transaction; again they change nothing."""
    [program] = printed(FRAMEWORKS, language)
    statements = SQL.findall(program)
    assert [each.split()[0] for each in statements][-1:] == ["select"], statements
    event = {"type": "order.shipped", "key": "61", "title": "On its way", "audience": "owners", "owners": ["user-7"]}
    assert all(f'"{name}"' in program or f"'{name}'" in program or f"{name}:" in program for name in event)
    with psycopg.connect(migrated.staff, autocommit=True) as staff:
        staff.execute(f"create schema shop authorization {ROLE}")
    with psycopg.connect(f"{migrated.direct} options='-c search_path=shop'") as app:
        for statement in printed(FRAMEWORKS, "sql", "run"):
            app.execute(statement.encode())
        made = []
        for _ in range(2):
            for statement in statements:
                given = json.dumps(event) if "enqueue" in statement else 61
                row = app.execute(re.sub(r"\$1|\?", "%s", statement).encode(), [given])
            made.append(row.fetchone()[1])
            app.commit()
    assert made == [True, False]
