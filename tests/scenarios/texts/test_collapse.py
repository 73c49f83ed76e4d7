"""Events that take the place of former ones: what waits ends unsent, and what was shown is replaced."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event, Owners
from support.sending_worker import at_once


def codes(worker: Any) -> list[tuple[str, str | None]]:
    """Return what became of each delivery, in the order they were made."""
    return [(row["status"], row["last_error_code"]) for row in worker.deliveries()]


def test_a_later_event_ends_what_waits_of_the_former(relay) -> None:
    """Of two events of one type and collapse key only the later is sent; one of another key, or of none, is, too."""
    worker = relay()
    worker.register("ana", owner="ana")
    first = worker.enqueue(audience=Owners("ana"), collapse="order-7", title="packed")
    worker.enqueue(audience=Owners("ana"), collapse="order-8", title="other")
    worker.enqueue(audience=Owners("ana"), title="plain")
    worker.enqueue(audience=Owners("ana"), collapse="order-7", type="other", title="of another type")
    worker.enqueue(audience=Owners("ana"), collapse="order-7", title="sent")
    worker.fan_out()
    told = verbs.explain(worker.conn, first, worker.phones["ana"])
    assert (told.gets_it, told.rule) == (False, "superseded")
    worker.dispatch()
    assert codes(worker)[0] == ("cancelled", "superseded")
    assert sorted(message["title"] for message in worker.messages("ana")) == [
        "of another type",
        "other",
        "plain",
        "sent",
    ]
    told = verbs.explain(worker.conn, first, worker.phones["ana"])
    assert (told.gets_it, told.rule, told.reason) == (
        False, "superseded", "A later event of the same type and collapse key replaced it.",
    )  # fmt: skip


def test_only_where_the_later_one_goes(relay) -> None:
    """A phone that gets no later event of the key gets the former; without owner it is the phone that counts."""
    worker = relay()
    worker.register("ana", "bob")
    worker.tell("ana", "bob", collapse="score", title="1:0")
    worker.tell("ana", collapse="score", title="2:0")
    worker.dispatch()
    assert [m["title"] for m in worker.messages("ana")] == ["2:0"]
    assert [m["title"] for m in worker.messages("bob")] == ["1:0"]


def test_the_one_that_falls_due_later_is_the_later_one(relay) -> None:
    """What was enqueued first for a later time takes the place of what is told before; the order of fan-outs is no matter."""
    worker = relay()
    worker.register("ana")
    phone = [worker.phones["ana"]]
    later = datetime.now(UTC) + timedelta(hours=1)
    worker.enqueue(audience=phone, collapse="trip", title="gate closes", scheduled_at=later)
    worker.enqueue(audience=phone, collapse="trip", title="gate opens")
    worker.fan_out()
    worker.dispatch()
    worker.travel(hours=2)
    worker.fan_out()
    worker.dispatch()
    assert [m["title"] for m in worker.messages("ana")] == ["gate opens", "gate closes"]


def test_a_cancelled_event_takes_nobodys_place(relay) -> None:
    """If the later one was cancelled before it was sent, the former one goes out."""
    worker = relay()
    worker.tell("ana", collapse="score", title="1:0")
    verbs.cancel(worker.conn, worker.tell("ana", collapse="score", title="2:0"))
    worker.dispatch()
    assert [m["title"] for m in worker.messages("ana")] == ["1:0"]


@pytest.mark.parametrize("status", ["expired", "skipped", "failed", "invalid", "pending"])
def test_one_that_a_phone_is_never_shown_takes_nobodys_place(relay, status: str) -> None:
    """If the later one ended unsent on this phone, or its deadline passed while it waits, the former one goes out."""
    worker = relay()
    worker.tell("ana", collapse="score", title="1:0")
    later = worker.tell("ana", collapse="score", title="2:0")
    worker.conn.execute("delete from relevo.due_chunks where event_id = %s", [later])
    if status == "pending":
        late = "update relevo.notification_events set scheduled_at = now() - interval '1 minute', deadline_at = now()"
        worker.conn.execute(late + " where id = %s", [later])
        worker.conn.execute(
            "update relevo.notification_events set scheduled_at = now() - interval '1 hour' where id <> %s", [later]
        )
    else:
        end = "update relevo.notification_deliveries set status = %s, completed_at = now() where notification_event_id = %s"
        worker.conn.execute(end, [status, later])
    worker.dispatch()
    assert [m["title"] for m in worker.messages("ana")] == ["1:0"]


def test_what_was_sent_is_replaced_on_the_phone(relay) -> None:
    """Both pushes bear the same id, made of type and key; a key that is too long, or no plain text, becomes its hash."""
    worker = relay()
    worker.register("ana", platform="ios")
    worker.register("bob", platform="android")
    for title in ("1:0", "2:0"):
        worker.tell("ana", "bob", collapse="match 7", title=title)
        worker.dispatch()
    assert [m["collapseId"] for m in worker.messages("ana")] == ["notice:match 7"] * 2
    assert [(m["tag"], m["collapseId"]) for m in worker.messages("bob")] == [("notice:match 7",) * 2] * 2
    worker.tell("ana", collapse="ñ" * 64)
    worker.tell("ana", collapse="x" * 64)
    worker.dispatch()
    ids = [m["collapseId"] for m in worker.messages("ana")[2:]]
    assert len(set(ids)) == 2
    assert all(each.isascii() and len(each) == 47 for each in ids)


def test_many_of_two_keys_at_once_in_two_orders(relay, dsn: str) -> None:
    """Whoever enqueues the same keys in another order at the same time waits for nobody; one of each key is sent."""
    worker = relay()
    worker.register("ana")
    phone = [worker.phones["ana"]]
    both = threading.Barrier(2)

    def tell(*keys: str) -> None:
        with psycopg.connect(dsn) as conn:
            verbs.enqueue(conn, Event("score", f"{keys} 0", "first", audience=phone, collapse=keys[0]))
            both.wait(10)
            verbs.enqueue_many(
                conn, [Event("score", f"{keys} {key}", key, audience=phone, collapse=key) for key in keys]
            )

    at_once(lambda: tell("a", "b"), lambda: tell("b", "a"))
    worker.fan_out()
    worker.dispatch()
    sent = [each["title"] for each in worker.messages("ana")]
    assert sorted(sent) == ["a", "b"]
    assert worker.states() == {"sent": 2, "cancelled": 4}


def test_a_retry_is_superseded_too(relay) -> None:
    """What failed and waits for its next attempt ends once a later one came, with no further attempt."""
    worker = relay()
    worker.tell("ana!rate", collapse="score", title="1:0")
    worker.dispatch()
    assert worker.delivery("ana!rate")["status"] == "retryable"
    worker.tell("ana!rate", collapse="score", title="2:0")
    worker.travel(minutes=5)
    worker.dispatch()
    assert codes(worker)[0] == ("cancelled", "superseded")


MADE = """
with event as (
  insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, collapse, scheduled_at, state, event_day,
                                          fanout_started_at, fanout_finished_at, fanout_upto, deadline_at)
  select 'x', 'k' || n, 't', 'installations', '', case when n %% 7 > 0 then 'c' || n %% %(keys)s end, now() + (n * 37 %% 60) * interval '1 second',
         case when n %% 11 = 0 then 'cancelled' else 'fanned' end, (now() at time zone 'UTC')::date, now(), now(), 0,
         case when n %% 13 = 0 then now() + interval '2 minutes' end from generate_series(1, %(many)s) n where n %% 11 > 0
  returning id, event_day
), made as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project)
  select e.event_day, e.id, u.phone, 'x', 'default' from event e cross join unnest(%(phones)s::uuid[]) as u(phone)
  returning *
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select 'default', 'bulk', now(), m.event_day, m.notification_event_id, 'x', now(), 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
  from made m group by m.event_day, m.notification_event_id
"""
CHUNKS = "(select array_agg(q order by q.id) from relevo.due_chunks q)"
ONE_BY_ONE = f"""
select e.id, u.phone from unnest({CHUNKS}) c join relevo.notification_events e on e.id = c.event_id
 cross join unnest(c.installations, c.inboxes) as u(phone, inbox)
 where e.collapse is not null
   and relevo.is_superseded(e.id, e.event_type, e.collapse, e.scheduled_at, c.event_day, u.phone, u.inbox)
"""
FETCHED = "select coalesce(sum(idx_tup_fetch), 0)::int from pg_stat_xact_user_tables where relname ~ 'deliveries|notification_events'"


def test_a_claim_finds_together_what_each_event_finds_by_itself(relay, conn: psycopg.Connection[Any]) -> None:
    """Which deliveries of a claim a later event replaces is the same asked for all at once as asked one by one."""
    worker = relay()
    worker.register("ana", "bob")
    conn.execute(MADE, {"many": 200, "keys": 40, "phones": list(worker.phones.values())})
    together = conn.execute(f"select event_id, installation_id from relevo.superseded({CHUNKS})").fetchall()
    assert sorted(together) == sorted(conn.execute(ONE_BY_ONE).fetchall())
    assert len(together) > 100


def test_a_phone_with_many_collapse_keys_costs_a_claim_one_look(relay, conn: psycopg.Connection[Any]) -> None:
    """A claim of 500 events with keys of their own for one phone reads what the phone got once, not once for each event."""
    worker = relay()
    worker.register("ana")
    conn.execute(MADE, {"many": 500, "keys": 1_000_000, "phones": list(worker.phones.values())})
    with worker.app.database.transaction("bound_by_key") as connection:
        connection.execute(f"select count(*) from relevo.look_up_phones({CHUNKS}, now(), 60000)".encode())
        [(fetched,)] = connection.execute(FETCHED.encode()).fetchall()
    assert fetched <= 10 * 500
