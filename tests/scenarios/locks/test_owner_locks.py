"""What is written of one owner by several at once: nobody waits for who waits for him."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import relevo
from support.inboxes import sent
from support.phones import add_phones
from support.processes import PATIENCE_S, eventually

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
ROUNDS = 100


def test_forgetting_meets_a_settle(conn: psycopg.Connection[Any], dsn: str) -> None:
    """A settle locks deliveries, then their events, then phones: whoever forgets an owner waits for it at the first of these."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana"))
    told = relevo.enqueue(conn, relevo.Event("order", "1", "Hello", audience=relevo.Owners("ana")))
    sent(conn, [phone])
    conn.execute("update relevo.notification_deliveries set opened_at = now()")
    with psycopg.connect(dsn) as settle, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        settle.execute("select from relevo.notification_deliveries for no key update")
        forgetting = pool.submit(relevo.forget, other, owner="ana")
        eventually(lambda: forgetting.done() or conn.execute(WAITING).fetchone() == (1,))
        settle.execute("update relevo.notification_events set first_sent_at = now() where id = %s", [told.event_id])
        settle.execute("update relevo.device_installations set updated_at = now()")
        settle.commit()
        assert forgetting.result(PATIENCE_S) == 1
    assert conn.execute("select opened_at from relevo.notification_deliveries").fetchall() == [(None,)]


@pytest.mark.parametrize("whom", ["owner", "phone"])
def test_forgetting_meets_a_phone_that_is_passed_on(conn: psycopg.Connection[Any], dsn: str, whom: str) -> None:
    """Whoever forgets ana, or ana's phone, waits for the registration that passes the phone on to bea, and not crosswise."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana"))
    sent(conn, [phone])
    with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        app.execute("select from relevo.device_installations for update")  # as a registration does first
        forgotten = {"owner": "ana"} if whom == "owner" else {"installation_id": phone}
        forgetting = pool.submit(relevo.forget, other, **forgotten)
        eventually(lambda: forgetting.done() or conn.execute(WAITING).fetchone() == (1,))
        relevo.register(app, relevo.Installation("ExponentPushToken[a]", installation_id=phone, owner="bea"))
        app.commit()
        forgetting.result(PATIENCE_S)
    assert [each.title for each in relevo.inbox(conn, owner="bea").items] == []


def test_marking_meets_a_registration(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Whoever marks in an inbox that is not there yet waits for the registration that makes it, and holds no phone meanwhile."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana"))
    conn.execute("update relevo.device_installations set inbox_id = null")  # as one that 0.3.0 registered
    conn.execute("delete from relevo.former_phones")
    conn.execute("delete from relevo.inboxes")
    with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        relevo.register(app, relevo.Installation("ExponentPushToken[b]", owner="ana"))
        marking = pool.submit(relevo.mark_inbox_before, other, owner="ana")
        eventually(lambda: marking.done() or conn.execute(WAITING).fetchone() == (1,))
        relevo.register(app, relevo.Installation("ExponentPushToken[a]", installation_id=phone, owner="ana"))
        app.commit()
        assert marking.result(PATIENCE_S)
    assert conn.execute("select count(*), count(read_before) from relevo.inboxes").fetchone() == (1, 1)


@pytest.mark.parametrize("whose", ["owner", "phone"])
def test_marking_meets_a_forget(conn: psycopg.Connection[Any], dsn: str, whose: str) -> None:
    """Whoever makes an inbox while its owner, or its phone without owner, is being forgotten waits for that before all else, and finds nobody."""
    phone = relevo.register(
        conn, relevo.Installation("ExponentPushToken[a]", owner="ana" if whose == "owner" else None)
    )
    conn.execute("update relevo.device_installations set inbox_id = null")
    conn.execute("delete from relevo.former_phones")
    conn.execute("delete from relevo.inboxes")
    subject = {"owner": "ana"} if whose == "owner" else {"installation_id": phone}
    with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        relevo.forget(app, **subject)
        marking = pool.submit(relevo.mark_inbox_before, other, **subject)
        eventually(lambda: marking.done() or conn.execute(WAITING).fetchone() == (1,))
        assert not marking.done()
        app.commit()
        assert not marking.result(PATIENCE_S)
    assert conn.execute("select count(*) from relevo.inboxes").fetchone() == (0,)


Verb = Callable[[psycopg.Connection[Any], int], object]


def test_all_verbs_at_once(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Registering, passing on, choosing, marking, opening, forgetting and pruning the same owner side by side ends in no deadlock."""
    relevo.set_category(conn, "offers")
    conn.execute("insert into relevo.event_types (event_type, opens, complete_on) values ('t', true, 'read')")
    phones = add_phones(conn, 3, owner="ana")
    events = [sent(conn, phones[::order]) for order in (1, -1)]
    opened = conn.execute("select installation_id, id from relevo.notification_deliveries order by id").fetchall()
    some = [relevo.Installation(f"ExponentPushToken[{each}]", owner="ana") for each in range(3)]
    passed_on = [
        relevo.Installation("ExponentPushToken[x]", installation_id=uuid4(), owner=each) for each in ("ana", "eva")
    ]
    relevo.register_many(conn, passed_on[:1])
    alone = relevo.Installation("ExponentPushToken[alone]", installation_id=uuid4())

    def marks_alone(on: psycopg.Connection[Any]) -> None:
        with contextlib.suppress(relevo.InvalidInputError):  # it was forgotten
            relevo.mark_inbox_before(on, installation_id=alone.installation_id)

    verbs: list[Verb] = [
        lambda on, n: relevo.register(on, replace(passed_on[n % 2], installation_id=passed_on[0].installation_id)),
        lambda on, n: n % 3 == 1 and relevo.forget(on, passed_on[0].installation_id),
        lambda on, _: on.execute("select relevo.prune_former_phones(10, now() + interval '1 year')"),
        lambda on, n: relevo.register_many(on, some if n % 2 else some[::-1]),
        lambda on, n: relevo.choose(on, "offers", owner="ana", wanted=bool(n % 2)),
        lambda on, n: relevo.mark_inbox(on, events[n % 2], "read" if n % 3 else "unread", owner="ana"),
        lambda on, _: relevo.mark_inbox_before(on, owner="ana"),
        lambda on, n: relevo.report_opened(on, *opened[n % len(opened)]),
        lambda on, n: n % 3 == 2 and relevo.forget(on, owner="ana"),
        lambda on, n: relevo.forget(on, alone.installation_id) if n % 2 else relevo.register(on, alone),
        lambda on, _: marks_alone(on),
    ]
    began = threading.Barrier(len(verbs))

    def work(verb: Verb) -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c deadlock_timeout=10ms") as on:
            began.wait(PATIENCE_S)
            for n in range(ROUNDS):
                verb(on, n)

    with ThreadPoolExecutor(len(verbs)) as pool:
        for working in [pool.submit(work, verb) for verb in verbs]:
            working.result(PATIENCE_S)
    relevo.forget(conn, owner="ana")
    assert conn.execute("select count(*) from relevo.device_installations where owner = 'ana'").fetchone() == (0,)
