"""What is in an inbox, in which order, page by page; and how much of the tables it reads for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import relevo
from relevo import Event, Installation, Owners
from relevo.config import Settings
from relevo.core.errors import InvalidInputError
from support.deliveries import TODAY
from support.inboxes import counts, read_all, sent, titles
from support.phones import add_phones, fan_out_to_the_end
from support.query_plans import rows_read_by_table

TOKEN = "ExponentPushToken[{}]"


def test_newest_first_page_by_page(conn: psycopg.Connection[Any]) -> None:
    """Every item comes once, in order, however small the pages are and on however many of the owner's phones it was."""
    one, two, other = (add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "ana", "bea"))
    for n in range(25):
        sent(conn, [[one], [two], [one, two], [two, one, other]][n % 4], f"{n}")
    expected = [f"{n}" for n in reversed(range(25))]
    for limit in (1, 2, 7, 25, 200):
        assert read_all(conn, owner="ana", limit=limit) == expected
    assert titles(conn, owner="ana", limit=3) == expected[:3]
    assert len(titles(conn, owner="bea")) == 6
    assert titles(conn, owner="nobody") == []


def test_an_item(conn: psycopg.Connection[Any]) -> None:
    """It says what the event says, when it came, and what was marked."""
    [phone] = add_phones(conn, 1, owner="ana")
    event = sent(conn, [phone], "Hello", body="There", category="news")
    [item] = relevo.inbox(conn, owner="ana").items
    assert (item.event_id, item.type, item.category, item.title, item.body) == (event, "t", "news", "Hello", "There")
    assert dict(item.data) == {"to": "screen"}
    assert (item.seen_at, item.read_at, item.archived_at) == (None, None, None)
    assert abs(datetime.now(UTC) - item.at) < timedelta(hours=1)


def test_what_was_not_sent_is_in_it(conn: psycopg.Connection[Any]) -> None:
    """Whatever became of the push, the inbox has what it was to say."""
    [phone] = add_phones(conn, 1, owner="ana")
    for status in ["skipped", "expired", "cancelled", "failed", "invalid", "pending"]:
        sent(conn, [phone], status, status=status)
        assert titles(conn, owner="ana")[0] == status


def test_what_is_left_out(conn: psycopg.Connection[Any]) -> None:
    """No cancelled or deleted event, nothing that shows nothing, no news for the app, and no type that is to stay out."""
    [phone] = add_phones(conn, 1, owner="ana")
    sent(conn, [phone], "cancelled", state="cancelled")
    sent(conn, [phone], "")
    sent(conn, [phone], "news", type="relevo.news")
    sent(conn, [phone], "left out", type="quiet")
    sent(conn, [phone], "short", type="brief", at=datetime.now(UTC) - timedelta(days=3))
    deleted = sent(conn, [phone], "deleted")
    conn.execute("delete from relevo.notification_events where id = %s", [deleted])
    sent(conn, [phone], "handled", state="completed")
    sent(conn, [phone], "", body="only a body")
    assert len(titles(conn, owner="ana")) == 4
    conn.execute(
        "insert into relevo.event_types (event_type, inbox, inbox_days) values ('quiet', false, null), ('brief', true, 2)"
    )
    assert titles(conn, owner="ana") == ["", "handled"]
    assert counts(conn, owner="ana") == (2, 2)


def test_by_category_and_type(conn: psycopg.Connection[Any]) -> None:
    """A page has what was asked for, even if it stands far behind all the rest."""
    [phone] = add_phones(conn, 1, owner="ana")
    sent(conn, [phone], "rare", category="rare", type="rare")
    for n in range(300):
        sent(conn, [phone], f"{n}")
    assert titles(conn, owner="ana", category="rare", limit=5) == ["rare"]
    assert titles(conn, owner="ana", event_type="rare", limit=5) == ["rare"]
    assert titles(conn, owner="ana", category="other") == []


def test_an_owner_without_a_phone(build, conn: psycopg.Connection[Any]) -> None:
    """What was for an owner who had no phone, or none that may get pushes, waits in the inbox, each in its place."""
    app = build()
    relevo.register(conn, Installation(TOKEN.format("a"), owner="ana"))
    relevo.register(conn, Installation(TOKEN.format("b"), owner="denied", permission="denied"))
    for n in range(3):
        relevo.enqueue(conn, Event("t", f"{n}", f"{n}", audience=Owners("ana", "nobody", "denied")))
        fan_out_to_the_end(app)
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (3,)
    for owner in ("ana", "nobody", "denied"):
        assert read_all(conn, owner=owner, limit=2) == ["2", "1", "0"]
    late = relevo.register(conn, Installation(TOKEN.format("c"), owner="nobody"))
    sent(conn, [late], "4")
    assert titles(conn, owner="nobody") == ["4", "2", "1", "0"]


def test_many_owners_of_one_event(build, conn: psycopg.Connection[Any]) -> None:
    """An event whose phones are more than a slice finds those without a phone, too, and nobody twice."""
    app = build()
    add_phones(conn, 12, owner="many")
    relevo.enqueue(conn, Event("t", "1", "Hello", audience=Owners("many", *(f"none-{n}" for n in range(5)))))
    fan_out_to_the_end(app)
    for owner in ("many", "none-0", "none-4"):
        assert titles(conn, owner=owner) == ["Hello"]


def test_a_scheduled_event_comes_when_it_is_due(build, conn: psycopg.Connection[Any]) -> None:
    """What is only to come is in no inbox; then it is its newest item, though it was enqueued first."""
    app = build()
    due = datetime.now(UTC) + timedelta(hours=1)
    relevo.enqueue(conn, Event("t", "later", "later", audience=Owners("ana"), scheduled_at=due))
    relevo.enqueue(conn, Event("t", "now", "now", audience=Owners("ana")))
    fan_out_to_the_end(app)
    assert titles(conn, owner="ana") == ["now"]
    conn.execute(
        "update relevo.notification_events set scheduled_at = now() - interval '1 second' where event_key = 'later'"
    )
    fan_out_to_the_end(app)
    assert titles(conn, owner="ana") == ["later", "now"]


def test_a_phone_without_owner(conn: psycopg.Connection[Any]) -> None:
    """It has an inbox of its own; once it has an owner that is the owner's, from then on."""
    [phone] = add_phones(conn, 1)
    first = sent(conn, [phone], "alone")
    assert titles(conn, installation_id=phone) == ["alone"]
    assert relevo.mark_inbox(conn, first, "read", installation_id=phone)
    relevo.register(conn, Installation(None, phone, owner="ana"))
    with pytest.raises(InvalidInputError, match="has an owner: ask for the inbox of the owner"):
        relevo.inbox(conn, installation_id=phone)
    sent(conn, [phone], "ana's")
    assert titles(conn, owner="ana") == ["ana's"]
    conn.execute(
        "select relevo.register_installation(jsonb_build_object('installation_id', %s::text, 'owner', null))", [phone]
    )
    assert titles(conn, installation_id=phone) == []
    assert relevo.mark_inbox(conn, first, "unread", installation_id=phone) is False


def test_an_owner_moves_to_another_phone(conn: psycopg.Connection[Any]) -> None:
    """The new phone shows what the old one got; whoever has the old one next sees nothing of it, and takes nothing away."""
    [old] = add_phones(conn, 1, owner="ana")
    sent(conn, [old], "before")
    [new] = add_phones(conn, 1, owner="ana")
    relevo.unregister(conn, old)
    sent(conn, [new], "after")
    assert titles(conn, owner="ana") == ["after", "before"]
    relevo.register(conn, Installation(None, old, owner="bea"))
    sent(conn, [old], "bea's")
    assert titles(conn, owner="bea") == ["bea's"]
    assert titles(conn, owner="ana") == ["after", "before"]


def test_one_inbox_for_each_project(conn: psycopg.Connection[Any]) -> None:
    """An owner with phones in two projects has two inboxes, and has to say which; marks of one are none of the other."""
    [one], [two] = add_phones(conn, 1, owner="ana", project="one"), add_phones(conn, 1, owner="ana", project="two")
    both = sent(conn, [one, two], "both")
    sent(conn, [one], "one's")
    with pytest.raises(InvalidInputError, match="project must be given: this owner has phones in one, two"):
        relevo.inbox(conn, owner="ana")
    assert titles(conn, owner="ana", project="one") == ["one's", "both"]
    assert titles(conn, owner="ana", project="two") == ["both"]
    assert relevo.mark_inbox(conn, both, "read", owner="ana", project="one")
    assert relevo.mark_inbox_before(conn, owner="ana", project="one")
    assert counts(conn, owner="ana", project="one") == (0, 0)
    assert counts(conn, owner="ana", project="two") == (1, 1)


REFUSED = [
    ({}, "owner or installation_id must be given"),
    ({"owner": "a", "installation_id": str(uuid4())}, "owner or installation_id must be given"),
    ({"owner": ""}, "owner must be text of 1 to 200 characters"),
    ({"owner": "a", "staus": "read"}, "an inbox has no field staus"),
    ({"owner": "a", "status": "new"}, "status must be current, unread"),
    ({"owner": "a", "limit": 201}, "limit must be a whole number between 1 and 200"),
    ({"owner": "a", "limit": "5"}, "limit must be a whole number"),
    ({"owner": "a", "before": "x"}, "before must be the `next` of another page"),
    ({"owner": "a", "before": "9999999999999999999"}, "before must be the `next` of another page"),
    ({"owner": "a", "before": 7}, "before must be text"),
    ({"owner": "a", "category": "x" * 101}, "category must be text of 1 to 100 characters"),
    ({"installation_id": "x"}, "installation_id must be a UUID"),
    ({"installation_id": str(uuid4())}, "there is no installation"),
    ([], "must be a JSON object"),
    (None, "must be a JSON object"),
]


def test_what_is_wrong_is_named(conn: psycopg.Connection[Any]) -> None:
    """A question that cannot be answered is refused by the name of the field."""
    for asked, complaint in REFUSED:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=complaint):
            conn.execute("select relevo.inbox(%s)", [psycopg.types.json.Jsonb(asked)])


FILL = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
select n, 't', n::text, 'Hello', 'everyone', '', 'fanned', %(day)s::date - (10000 - n) / 130, now(), now(), 0 from generate_series(1, 10000) n;
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, created_at)
select e.event_day, e.id, p, 't', e.event_day::timestamptz
  from relevo.notification_events e, unnest(%(phones)s::uuid[]) p order by e.id;
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
select e.event_day, e.id, gen_random_uuid(), 't' from relevo.notification_events e, generate_series(1, 2);
analyze;
"""


@pytest.fixture(scope="module")
def filled(module_settings: Callable[..., Settings]) -> Iterator[psycopg.Connection[Any]]:
    """An owner with two phones and 10,000 items, among as many of others, in four months."""
    with psycopg.connect(module_settings().database_url, autocommit=True) as conn:
        phones = add_phones(conn, 2, owner="ana")
        conn.execute("select relevo.ensure_partitions(%s::date - 100, 5)", [TODAY])
        with psycopg.ClientCursor(conn) as cursor:
            cursor.execute(FILL, {"day": TODAY, "phones": phones})
        yield conn


@pytest.fixture
def crowd(filled: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """The same for each test: what one does is undone."""
    with filled.transaction(force_rollback=True):
        yield filled


PAGE = b"select relevo.inbox(%(asked)s::jsonb)"
COUNTS = b"select relevo.inbox_counts(%(asked)s::jsonb)"


def test_a_page_reads_as_much_as_it_shows(crowd: psycopg.Connection[Any]) -> None:
    """First or last page, or counts: what is read of each table does not grow with the inbox, nor with anybody's else."""
    page = relevo.inbox(crowd, owner="ana", limit=200)
    places = [item.cursor for item in page.items]
    for _ in range(35):
        page = relevo.inbox(crowd, owner="ana", limit=200, before=page.next)
    for statement, asked in (
        (PAGE, '{"owner": "ana", "limit": 20}'),
        (PAGE, f'{{"owner": "ana", "limit": 20, "before": "{places[-1]}"}}'),
        (PAGE, f'{{"owner": "ana", "limit": 20, "before": "{page.next}"}}'),
        (PAGE, '{"owner": "ana", "limit": 20, "status": "unread"}'),
    ):
        for _ in range(7):  # plans are kept from the sixth time on
            read = rows_read_by_table(crowd, statement, {"asked": asked})
        assert sum(many for table, many in read.items() if table.startswith("notification_deliveries")) < 250, read
        assert read["notification_events"] < 100, read
    read = rows_read_by_table(crowd, COUNTS, {"asked": '{"owner": "ana"}'})
    assert sum(many for table, many in read.items() if table.startswith("notification_deliveries")) < 1_500, read
    assert counts(crowd, owner="ana") == ("99+", "99+")
    relevo.mark_inbox_before(crowd, owner="ana")
    read = rows_read_by_table(crowd, COUNTS, {"asked": '{"owner": "ana"}'})
    assert sum(many for table, many in read.items() if table.startswith("notification_deliveries")) < 700, read
    assert counts(crowd, owner="ana") == (0, 0)


READ = """
with i as (select id from relevo.inboxes where owner = 'ana')
insert into relevo.inbox_marks (inbox_id, event_id, place, at, seen_at, read_at)
select i.id, d.notification_event_id, min(d.id), min(d.created_at), now(), case when d.notification_event_id <= %(read)s then now() end
  from i, relevo.notification_deliveries d
  join relevo.device_installations p using (installation_id)
 where d.notification_event_id > 5 group by 1, 2
"""


@pytest.mark.parametrize(("read", "shown"), [(10_000, (0, 0)), (9_900, ("99+", 0))])
def test_counting_ends(crowd: psycopg.Connection[Any], read: int, shown: Any) -> None:
    """Counts walk along so many deliveries that do not count, and no further: the five oldest, unread, are not found. Of what
    is marked as read, no event is looked at."""
    crowd.execute(READ, {"read": read})
    crowd.execute("analyze")
    assert counts(crowd, owner="ana") == shown
    read_rows = rows_read_by_table(crowd, COUNTS, {"asked": '{"owner": "ana"}'})
    assert read_rows.get("notification_events", 0) <= 200, read_rows
    assert read_rows["inbox_marks"] < 14_000, read_rows
