"""The app's side of news, in Python and on the command line: subscribe, read, acknowledge, pause, remove."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
from typer.testing import CliRunner, Result

import relevo
from relevo import aio, cli
from relevo.app import App
from relevo.core.errors import InvalidInputError, RelevoError, UsageError
from relevo.operators import fleet
from support.news_subscriptions import reap, write
from support.phones import add_phones

Command = Callable[..., Result]


@pytest.fixture
def command(dsn: str) -> Command:
    """Run `relevo news …` in this process."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli.cli, ["news", *words], env={"DATABASE_URL": dsn, "COLUMNS": "200"})

    return run


def test_once_with_the_apps_own_writes(dsn: str, conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """Acknowledged in the transaction that deals with them, news are dealt with once: a rollback brings them again."""
    app = build()
    with psycopg.connect(dsn) as caller:
        assert relevo.subscribe_news(caller, "app", kinds=["token.disabled"])
        assert not relevo.subscribe_news(caller, "app")
        caller.commit()
        [phone] = add_phones(conn, 1, owner="ana")
        conn.execute("update relevo.device_installations set invalidated_at = now(), invalid_reason = 'gone'")
        write(conn, 2)
        reap(app)
        first, *rest = relevo.read_news(caller, "app")
        assert (first.position, first.kind, first.installation_id, first.owner) == (1, "token.disabled", phone, "ana")
        assert first.data == {"reason": "gone"}
        assert relevo.acknowledge_news(caller, "app", rest[-1].position)
        assert relevo.read_news(caller, "app") == []
        caller.rollback()
        assert [each.position for each in relevo.read_news(caller, "app", limit=2)] == [1, 2]
        assert [each.position for each in relevo.read_news(caller, "app", after=2)] == [3]
        relevo.acknowledge_news(caller, "app", 3)
        assert not relevo.acknowledge_news(caller, "app", 2)


def test_awaited(dsn: str, conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """The same verbs, awaited, over a driver that hands JSON over as text."""
    app = build()

    async def live() -> list[relevo.Outcome]:
        connection = await asyncpg.connect(dsn)
        await aio.subscribe_news(connection, "app")
        write(conn, 1)
        await asyncio.to_thread(reap, app)
        found = await aio.read_news(connection, "app")
        assert await aio.acknowledge_news(connection, "app", 1)
        await connection.close()
        return found

    [told] = asyncio.run(live())
    assert (told.position, told.data) == (1, {})


def test_refused_before_the_statement(dsn: str) -> None:
    """Bad input is refused in a sentence, and the caller's transaction survives."""
    for call in [
        lambda conn: relevo.subscribe_news(conn, "a b"),
        lambda conn: relevo.subscribe_news(conn, "a", kinds=["all"]),
        lambda conn: relevo.subscribe_news(conn, "a", webhook="\0"),
        lambda conn: relevo.read_news(conn, "a", limit=0),
        lambda conn: relevo.read_news(conn, "\0"),
        lambda conn: relevo.read_news(conn, "a", after=-1),
        lambda conn: relevo.acknowledge_news(conn, "a", 2**63),
    ]:
        with psycopg.connect(dsn) as caller:
            with pytest.raises(InvalidInputError):
                call(caller)
            assert caller.execute("select 1").fetchone() == (1,), call


def test_commands(command: Command, conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """Each command does what its help says, and complains with a next step."""
    assert "Nobody subscribed" in command("list").output
    assert "can be read: relevo news read app" in command("subscribe", "app", "--kind", "token.disabled").output
    assert (
        "sent to the webhook billing" in command("subscribe", "hook", "--project", "p", "--webhook", "billing").output
    )
    write(conn, 2)
    reap(build())
    assert [line.split()[:4] for line in command("list").output.splitlines()[1:]] == [
        ["app", "on", "2", "0"],
        ["hook", "on", "0", "0"],
    ]
    assert "Paused" in command("pause", "app").output
    assert "No news for app" in command("read", "app").output
    assert "Resumed" in command("resume", "app").output
    assert isinstance(command("remove", "app").exception, UsageError)
    shown = command("read", "app", "--limit", "1", "--acknowledge", "--json").output
    assert json.loads(shown)["position"] == 1
    assert "token.disabled" in command("read", "app", "--acknowledge").output
    assert "Removed" in command("remove", "app").output
    for words in (("pause", "app"), ("remove", "app"), ("read", "app"), ("subscribe", "x y")):
        assert isinstance(command(*words).exception, RelevoError), words


def test_health(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """What was dropped unread, and a webhook that may get nothing, are problems of the fleet."""
    app = build(news_backlog_limit=1)
    relevo.subscribe_news(conn, "app")
    relevo.subscribe_news(conn, "hook", webhook="billing")
    write(conn, 1)
    reap(app)
    conn.execute("update relevo.device_installations set active = false where provider = 'relevo.news'")
    write(conn, 2)
    reap(app)
    problems = "\n".join(fleet.status(app.database, app.settings).problems)
    assert "Relevo dropped 2 unread news items of subscription app" in problems
    assert "the webhook billing of subscription hook is switched off" in problems
