"""What a project reads and writes costs what is its own, however much an equal owner name or key has in other projects."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relevo.core import queries
from support.inboxes import sent
from support.phones import add_phones
from support.query_plans import rows_read_by_table

PROJECTS, ITEMS = 40, 50
FILL = """
select relevo.ensure_partitions(current_date, 1);
insert into relevo.device_installations (token, owner, project)
select 'ExponentPushToken[' || n || ']', 'ana', 'p' || n from generate_series(1, %(projects)s) n;
select relevo.fill_inboxes(100000);
insert into relevo.notification_events (id, event_type, event_key, project, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
overriding system value
select p * 1000 + n, 't', n::text, 'p' || p, 'Hello', 'installations', '', 'fanned', current_date, now(), now(), 0
  from generate_series(1, %(projects)s) p cross join generate_series(1, %(items)s) n;
select setval('relevo.notification_events_id_seq', 1000000);
insert into relevo.event_owners (event_id, owner, inbox_place, inbox_project)
select e.id, 'ana', nextval('relevo.delivery_ids'), e.project from relevo.notification_events e where e.project <> 'p1' or e.event_key = '1' order by e.id;
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, inbox_id)
select current_date, e.id, i.installation_id, 't', i.inbox_id from relevo.notification_events e join relevo.device_installations i using (project)
 where e.project = 'p1' or e.event_key = '2';
insert into relevo.consents (owner, project, category, channel, wanted, face) select 'ana', 'p' || n, 'c', 'push', true, 'app' from generate_series(1, %(projects)s) n;
insert into relevo.owner_rules (owner, project, blocked_at, block_reason) select 'ana', 'p' || n, now(), '' from generate_series(1, %(projects)s) n;
analyze relevo.notification_events, relevo.event_owners, relevo.device_installations, relevo.inboxes, relevo.notification_deliveries;
"""
WHOSE = Jsonb({"owner": "ana", "project": "p1"})
WAITS = {"owners": ["ana"], "projects": ["p1"], "phones": [None], "after": [0]}
ACCESS = queries.load("inbox_access")
CASES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "find by key": (b"select relevo.event_id_in_project('t', '7', 'p1')", {}),
    "find by key without project": (b"select relevo.event_id('t', 'only')", {}),
    "read": (b"select relevo.inbox(%(whose)s)", {"whose": Jsonb({"owner": "ana", "project": "p1", "limit": 10})}),
    "count": (b"select relevo.inbox_counts(%(whose)s)", {"whose": WHOSE}),
    "mark": (b"select relevo.mark_inbox(%(whose)s, 1007, 'read')", {"whose": WHOSE}),
    "wait": (ACCESS["list_newer_places"], WAITS),
    "block": (b"select relevo.block_owner(%(whose)s)", {"whose": WHOSE}),
    "export": (b"select relevo.export_owner(%(asked)s)", {"asked": Jsonb({"owner": "ana", "project": "p1", "kind": "choices"})}),
    "enqueue": (b"select relevo.enqueue(%(event)s)", {"event": Jsonb({"type": "t", "key": "new", "title": "T", "audience": "owners", "owners": ["ana"], "project": "p1"})}),
}  # fmt: skip


@pytest.fixture
def many(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """An owner of one name in many projects, with many items in each; of the first project most came by a phone."""
    with psycopg.ClientCursor(conn) as cursor:
        cursor.execute(FILL, {"projects": PROJECTS, "items": ITEMS})
    return conn


@pytest.mark.parametrize("case", CASES)
def test_equal_names_elsewhere_cost_nothing(many: psycopg.Connection[Any], case: str) -> None:
    """Each verb of one project reads about what it returns or writes, not the rows of forty others."""
    statement, parameters = CASES[case]
    found = rows_read_by_table(many, statement, parameters)
    assert sum(found.values()) <= (12 if case.startswith("find") else 400), (
        case,
        {k: v for k, v in found.items() if v > 20},
    )


def test_badges_of_equal_names(conn: psycopg.Connection[Any]) -> None:
    """The badge of a phone is what is unread in its own project, also if an owner of that name has a phone in another."""
    shop, bank = (add_phones(conn, 1, owner="ana", project=project)[0] for project in ("shop", "bank"))
    [alone] = add_phones(conn, 1, project="bank")
    for phone, count in ((shop, 3), (bank, 1), (alone, 2)):
        for _ in range(count):
            sent(conn, [phone])
    found = conn.execute("select * from relevo.unread_badges(%s)", [[shop, bank, alone]]).fetchall()
    assert sorted(found) == sorted([(shop, 3), (bank, 1), (alone, 2)])


def test_an_address_for_news_is_no_phone_of_an_inbox(conn: psycopg.Connection[Any]) -> None:
    """Where an owner has but an address for news in a project, events without project are in the inbox of `default`."""
    add_phones(conn, 1, owner="ana", project="shop", for_news=True)
    conn.execute("update relevo.owner_sharing set shared = true")
    takes = "select relevo.takes_unscoped('ana', 'shop'), relevo.takes_unscoped('ana', 'default')"
    assert conn.execute(takes).fetchone() == (False, True)
