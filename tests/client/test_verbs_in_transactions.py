"""The door is open to whatever speaks SQL, inside the caller's transaction: committed it counts, rolled back it never was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, TenderMatching
from relevo.core.errors import InvalidInputError

EVENT = {"type": "order.shipped", "key": "7", "title": "On its way", "audience": "everyone"}
PLAIN = "select event_id, created, same_content from relevo.enqueue(%s)"


def events(conn: psycopg.Connection[Any]) -> int:
    """Count the events."""
    row = conn.execute("select count(*) from relevo.notification_events").fetchone()
    assert row is not None
    return int(row[0])


def by_psycopg(dsn: str, *, commit: bool) -> Any:
    """Enqueue by the Python door on a connection of the app's."""
    with psycopg.connect(dsn) as app:
        made = relevo.enqueue(app, Event("order.shipped", "7", "On its way", audience="everyone"))
        app.commit() if commit else app.rollback()
    return made.event_id, made.created, made.same_content


def by_psycopg_async(dsn: str, *, commit: bool) -> Any:
    """Call the SQL function from asynchronous psycopg."""

    async def enqueue() -> Any:
        async with await psycopg.AsyncConnection.connect(dsn) as app:
            cursor = await app.execute(PLAIN, [Jsonb(EVENT)])
            made = await cursor.fetchone()
            await (app.commit() if commit else app.rollback())
            return made

    return asyncio.run(enqueue())


def by_sqlalchemy(dsn: str, *, commit: bool) -> Any:
    """Call the SQL function from SQLAlchemy."""
    with alchemy(dsn).connect() as app:
        statement = sqlalchemy.text("select event_id, created, same_content from relevo.enqueue(cast(:event as jsonb))")
        made = app.execute(statement, {"event": json.dumps(EVENT)}).one()
        app.commit() if commit else app.rollback()
    return tuple(made)


def by_sqlalchemys_own_connection(dsn: str, *, commit: bool) -> Any:
    """Call the Python door with the connection under SQLAlchemy's, in a transaction of SQLAlchemy's."""
    with alchemy(dsn).connect() as app, app.begin() as transaction:
        made = relevo.enqueue(
            app.connection.driver_connection, Event("order.shipped", "7", "On its way", audience="everyone")
        )  # type: ignore[arg-type]
        if not commit:
            transaction.rollback()
    return made.event_id, made.created, made.same_content


def alchemy(dsn: str) -> sqlalchemy.Engine:
    """Return an engine that keeps no connection behind our back."""
    return sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"), poolclass=sqlalchemy.NullPool)


class CursorWrapper:
    """Speaks as Django's does: percent signs for parameters, whatever psycopg makes of them below."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self.cursor = cursor

    def execute(self, sql: str, params: list[Any] | None = None) -> None:
        """Execute as Django's wrapper does."""
        if params is None:
            self.cursor.execute(sql)  # type: ignore[arg-type]
        else:
            self.cursor.execute(sql, params)  # type: ignore[arg-type]

    def fetchone(self) -> Any:
        """Fetch a row."""
        return self.cursor.fetchone()


def by_a_raw_cursor(dsn: str, *, commit: bool) -> Any:
    """Call the SQL function as `connection.cursor()` of Django would, which binds on the client."""
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as app:
        cursor = CursorWrapper(app.cursor())
        cursor.execute(PLAIN.replace("%s", "%s::jsonb"), [json.dumps(EVENT)])
        made = cursor.fetchone()
        app.commit() if commit else app.rollback()
    return made


def by_plain_text(dsn: str, *, commit: bool) -> Any:
    """Call the SQL function as psql would."""
    with psycopg.connect(dsn, autocommit=True) as app:
        app.execute("begin")
        made = app.execute(
            """select event_id, created, same_content from relevo.enqueue(
                 '{"type": "order.shipped", "key": "7", "title": "On its way", "audience": "everyone"}')"""
        ).fetchone()
        app.execute("commit" if commit else "rollback")
    return made


def by_a_trigger(dsn: str, *, commit: bool) -> Any:
    """Let a trigger on the app's own table call the SQL function."""
    with psycopg.connect(dsn) as app:
        app.execute(
            """
            create table if not exists public.orders (id int primary key, shipped boolean not null default false);
            create or replace function public.tell() returns trigger language plpgsql as $$
            begin
              perform relevo.enqueue(jsonb_build_object('type', 'order.shipped', 'key', new.id::text, 'title', 'On its way',
                                                        'audience', 'everyone', 'data', jsonb_build_object('order', new.id)));
              return null;
            end $$;
            create or replace trigger tell after update on public.orders
              for each row when (new.shipped and not old.shipped) execute function public.tell();
            insert into public.orders values (7);
            """
        )
        app.commit()
        app.execute("update public.orders set shipped = true")
        made = app.execute("select id, true, true from relevo.notification_events").fetchone()
        app.commit() if commit else app.rollback()
    return made


CALLERS = [
    by_psycopg,
    by_psycopg_async,
    by_sqlalchemy,
    by_sqlalchemys_own_connection,
    by_a_raw_cursor,
    by_plain_text,
    by_a_trigger,
]


@pytest.mark.parametrize("caller", CALLERS)
def test_the_callers_commit_decides(caller: Callable[..., Any], dsn: str, conn) -> None:
    """Rolled back, nothing stays, not even the key; committed, there is one event that says what was said."""
    made = caller(dsn, commit=False)
    assert made[0] is not None
    assert events(conn) == 0
    if caller is by_a_trigger:
        conn.execute("drop table public.orders")
    event_id, created, same = caller(dsn, commit=True)
    assert (created, same) == (True, True)
    row = conn.execute("select id, event_type, event_key, title, audience from relevo.notification_events").fetchall()
    assert row == [(event_id, "order.shipped", "7", "On its way", "everyone")]


class TestPythonDoor:
    """What the functions of the package promise to a caller."""

    def test_nothing_commits(self, dsn: str, conn) -> None:
        """Every function of the door leaves the caller's transaction open, and a rollback undoes them all."""
        with psycopg.connect(dsn) as app:
            phone = relevo.register(app, relevo.Installation("ExponentPushToken[a]"))
            relevo.set_preference(app, phone, "work", relevo.Preference(keywords=["aseo"]))
            made = relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
            relevo.enqueue_many(
                app, [Event("t", "2", "t", audience="everyone"), Event("t", "3", "t", audience="everyone")]
            )
            relevo.cancel(app, made.event_id)
            relevo.complete(app, made.event_id + 1)
            relevo.complete(app, phone)
            relevo.get(app, made.event_id)
            relevo.delete(app, [made.event_id])
            assert app.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            app.rollback()
        assert events(conn) == 0
        for table in ("device_installations", "notification_preferences", "preference_index"):
            assert conn.execute(f"select count(*) from relevo.{table}").fetchone() == (0,)

    @pytest.mark.parametrize("rows", [dict_row, namedtuple_row])
    def test_whatever_rows_the_connection_makes(self, dsn: str, rows: Any) -> None:
        """An app whose connection returns dictionaries gets the same answers."""
        with psycopg.connect(dsn, row_factory=rows) as app:
            made = relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
            assert isinstance(made.event_id, int)
            assert (made.created, relevo.enqueue_many(app, [Event("t", "1", "t", audience="everyone")])[0].created) == (
                True,
                False,
            )
            status = relevo.get(app, made.event_id)
            assert status is not None
            assert (status.id, status.state) == (made.event_id, "waiting")
            phone = relevo.register(app, relevo.Installation("ExponentPushToken[a]"))
            assert relevo.complete(app, phone)
            assert relevo.set_preference(app, phone, "default", None)
            assert relevo.delete(app, [made.event_id]) == 1

    def test_a_failed_call_can_be_caught_in_a_savepoint(self, dsn: str, conn) -> None:
        """What is refused inside a savepoint does not spoil the caller's transaction."""
        with psycopg.connect(dsn) as app:
            relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
            with pytest.raises(InvalidInputError), app.transaction():
                relevo.enqueue(app, Event("t", "2", "", audience="everyone"))
            relevo.enqueue(app, Event("t", "3", "t", audience="everyone"))
        assert events(conn) == 2

    def test_the_whole_of_an_event_arrives(self, conn) -> None:
        """Every field of an event is stored as it was given."""
        phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]"))
        event = Event(
            "t", "1", "Título ñ 📋", "body [x]", data={"a": [1, None, "ñ"]}, push={"badge": 1}, audience=[phone], category="c",
            lane="urgent", at_most_once=True,
        )  # fmt: skip
        made = relevo.enqueue(conn, event)
        row = conn.execute(
            "select title, body, data, push, audience, category, lane, at_most_once from relevo.notification_events"
        ).fetchone()
        assert row == (
            "Título ñ 📋", "body [x]", {"a": [1, None, "ñ"]}, {"badge": 1}, "installations", "c", "urgent", True,
        )  # fmt: skip
        assert conn.execute("select event_id, installation_id from relevo.event_audience").fetchall() == [
            (made.event_id, phone)
        ]

    def test_matching_is_stored_folded(self, conn) -> None:
        """What an event is about is kept in the form that preferences are compared in."""
        about = TenderMatching(["72131500"], "Región de Los Ríos", "LE", 1_500, "CLP", "Aseo, y más")
        relevo.enqueue(conn, Event("t", "1", "t", audience=about))
        row = conn.execute(
            "select match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words from relevo.notification_events"
        ).fetchone()
        assert row == (["72131500"], "rios", "LE", 1_500, "CLP", " aseo y mas ")
