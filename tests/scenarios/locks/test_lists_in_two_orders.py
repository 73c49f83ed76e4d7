"""Lists of the same things in two orders: one transaction waits for the other, and neither dies of a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo import Event, Installation
from support.processes import PATIENCE_S, eventually

WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    " and state = 'active'"
)
Work = Callable[[psycopg.Connection[Any], list[int]], object]


def crosswise(conn: psycopg.Connection[Any], dsn: str, many: int, work: Work) -> None:
    """Let two transactions do the same things in two orders, both held up in the middle by a third; both must end well."""
    troubles: list[BaseException] = []

    def one(order: list[int]) -> None:
        try:
            with psycopg.connect(dsn) as app:
                work(app, order)
        except psycopg.Error as error:
            troubles.append(error)

    forth = list(range(many))
    with psycopg.connect(dsn) as blocker:
        work(blocker, [many // 2])
        threads = [threading.Thread(target=one, args=[order]) for order in (forth, forth[::-1])]
        for thread in threads:
            thread.start()
        eventually(lambda: conn.execute(WAITING).fetchone() == (2,), "both wait")
        blocker.rollback()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert troubles == []


@pytest.mark.parametrize("many", [3, 500])
def test_events(conn, dsn: str, many: int) -> None:
    """Each event is made once."""

    def enqueue(app: psycopg.Connection[Any], order: list[int]) -> object:
        return relevo.enqueue_many(app, [Event("t", f"{n:04}", "t", audience="everyone") for n in order])

    crosswise(conn, dsn, many, enqueue)
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (many,)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("many", [3, 50])
def test_installations(conn, dsn: str, many: int, named: bool) -> None:
    """Each installation is made once, whether the app names it or not."""

    def register(app: psycopg.Connection[Any], order: list[int]) -> object:
        phones = [
            Installation(
                f"ExponentPushToken[{n:04}]", installation_id=UUID(int=many - n) if named else None, owner="ana"
            )
            for n in order
        ]
        return relevo.register_many(app, phones)

    crosswise(conn, dsn, many, register)
    assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (many,)


def test_known_installations(conn, dsn: str) -> None:
    """Registered again they are locked in one order."""
    phones = relevo.register_many(conn, [Installation(f"ExponentPushToken[{n}]") for n in range(50)])

    def register(app: psycopg.Connection[Any], order: list[int]) -> object:
        return relevo.register_many(app, [Installation(f"ExponentPushToken[{n}b]", phones[n]) for n in order])

    crosswise(conn, dsn, 50, register)


def test_deleting(conn, dsn: str) -> None:
    """Events that are deleted in two orders are gone once."""
    made = relevo.enqueue_many(conn, [Event("t", str(n), "t", audience="everyone") for n in range(50)])

    def delete(app: psycopg.Connection[Any], order: list[int]) -> object:
        return relevo.delete(app, [made[n].event_id for n in order])

    crosswise(conn, dsn, 50, delete)
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)
