"""Batches that meet something odd: what cannot be told as asked is told otherwise, and nothing is told to or kept of a stranger."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.support.own_cycles import own_cycle

from relevo.client import quiet, verbs
from relevo.client.values import Event, Owners
from relevo.core.model import Budget
from relevo.operators import event_types, words
from relevo.operators.event_types import TypeSettings
from relevo.sandbox.push_service import phone_key
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A worker with a phone of ana, whose comments are gathered for ten minutes; six in an hour are too many."""
    made: Relay = relay(push_runaway_first_events=5, push_runaway_min_events=5)
    made.register("a", owner="ana")
    event_types.set_event_type(made.app.database, made.app.settings, "comment", TypeSettings(batch_window_s=600))
    return made


def comment(worker: Relay, key: str, *owners: str, **more: Any) -> int:
    """Enqueue a comment for ana, or others, and fan it out."""
    given = {"title": f"{key} commented"} | more
    event = verbs.enqueue(worker.conn, Event("comment", key, audience=Owners(*owners or ("ana",)), **given)).event_id
    worker.fan_out()
    return event


def close(worker: Relay) -> dict[str, Any]:
    """Close what is due, send it, and return the push that ana got last."""
    worker.clock.travel(minutes=11)
    worker.fan_out()
    worker.drain()
    got: dict[str, Any] = worker.sandbox.received(phone_key("ExponentPushToken[a]"))[-1]
    return got


def test_what_does_not_fit_is_told_otherwise(worker: Relay) -> None:
    """A name that is taken, texts that are too long or lack something, and too much data keep no batch from being told."""
    comment(worker, "Bo")
    [batch] = worker.rows("select id from relevo.batches")
    verbs.enqueue(worker.conn, Event("comment", f"batch:{batch['id']}", "taken", audience=Owners("zoe")))
    assert close(worker)["title"] == "Bo commented"
    for key in ("C", "D"):
        comment(worker, key, batch={"title": "{count}", "body": "ñ" * 2_000})
    got = close(worker)
    assert (got["title"], got["body"][:1], got["data"]["batch"]["total"]) == ("2", "ñ", 2)
    for key in ("E", "F"):
        comment(worker, key, title="", data={"only": "data"})
    assert "title" not in close(worker), "what shows nothing shows nothing together"
    for key, of in (("x", "x"), ("y", None), ("z", "x")):
        comment(worker, key, collapse=of)
    assert close(worker)["title"] == "z commented (+1)", "x was superseded"
    said = {"type": "comment.batch", "default": "en", "arguments": {"who": "x"}, "texts": {"en": {"title": "{who}"}}}
    words.save(worker.app.database, words.parse(said))
    for key in ("G", "H"):
        comment(worker, key)
    assert close(worker)["title"] == "H commented (+1)", "the texts name what it does not have"
    texts = {"en": {"title": "{others} more", "body": "b" * 900}}
    words.save(worker.app.database, words.parse(said | {"arguments": {"others": 1}, "texts": texts}))
    for key in ("I", "J"):
        comment(worker, key, data={"long": "x" * 2_900})
    got = close(worker)
    assert (got["title"], "long" in got["data"]) == ("1 more", False)


def test_one_that_cannot_be_closed_keeps_no_other_from_it(worker: Relay) -> None:
    """What fails with one batch puts off that one, for a minute; an outage puts off none."""
    worker.register("b", owner="bo")
    for owner in ("bo", "ana"):
        comment(worker, owner, owner)
    worker.clock.stop()
    worker.clock.travel(minutes=11)
    poison = """
        create or replace function public.poison() returns trigger language plpgsql as $$ begin %s; end $$;
        create or replace trigger poison before insert on relevo.notification_events
          for each row when (new.title like 'bo %%') execute function public.poison()
        """
    open_ones = "select closes_at from relevo.batches where closed_at is null"
    due, outage = worker.rows(open_ones), "perform pg_terminate_backend(pg_backend_pid())"
    for how in (outage, "raise 'x' using errcode = 'read_only_sql_transaction'", "raise 'x' using errcode = '08006'"):
        worker.conn.execute(poison % how)
        assert worker.run("fanout").outcome == "failed"
        assert worker.rows(open_ones) == due
    worker.conn.execute(poison % "raise 'no room'")
    report = worker.app.runner.run(own_cycle("fanout", worker.app.settings), "manual", budget=Budget(5_000, 1_000))
    assert (report.outcome, "no room" in report.error, report.counts["events_fanned_out"]) == ("partial", True, 1)
    assert worker.rows(open_ones) == [{"closes_at": worker.clock.now() + timedelta(minutes=1)}]


def test_only_what_is_told_takes_the_place_of_an_earlier_one(worker: Relay) -> None:
    """An event of another project, and one whose deadline passed while its batch waited, take nobody's place in an earlier batch."""
    worker.register("b", owner="ana", project="other")
    for key, project in (("here", "default"), ("there", "other")):
        event = verbs.enqueue(worker.conn, Event("comment", key, key, audience=Owners("ana"), collapse="x")).event_id
        worker.conn.execute("update relevo.notification_events set project = %s where id = %s", [project, event])
    worker.fan_out()
    assert close(worker)["title"] == "here"
    worker.conn.execute("delete from relevo.device_installations where project = 'other'")
    comment(worker, "first", collapse="y")
    worker.clock.travel(minutes=11)
    worker.fan_out()
    comment(worker, "expires", collapse="y", deadline_at=worker.clock.now() + timedelta(minutes=15))
    comment(worker, "another")
    worker.clock.travel(minutes=11)
    worker.fan_out()
    worker.clock.travel(minutes=11)
    worker.drain()
    got = worker.sandbox.received(phone_key("ExponentPushToken[a]"))
    assert [each["title"] for each in got] == ["here", "first commented", "another commented"]


def test_a_look_at_a_batch_reads_no_delivery_for_each_event(worker: Relay) -> None:
    """What came later is looked up once for a whole batch, not for each of its events."""
    events = [Event("comment", str(n), "x", audience=Owners("ana"), collapse=str(n)) for n in range(100)]
    verbs.enqueue_many(worker.conn, events)
    worker.fan_out()
    worker.conn.execute("analyze relevo.notification_deliveries")
    with worker.conn.transaction():
        looked = worker.rows("select cardinality(relevo.left_of_batch(b, now())) as events from relevo.batches b")
        [read] = worker.rows(
            "select sum(idx_tup_fetch)::int as rows from pg_stat_xact_user_tables where relname like 'notification_deliveries%%'"
        )
    assert looked == [{"events": 100}]
    assert read["rows"] <= 300


def test_what_is_gathered_is_no_flood(worker: Relay) -> None:
    """The runaway brake counts the pushes of batches, and not each event that is gathered."""
    for n in range(8):
        comment(worker, str(n))
    assert worker.rows("select distinct state from relevo.notification_events") == [{"state": "fanned"}]
    assert close(worker)["title"] == "7 commented (+7)"


def test_each_phone_has_its_answer(worker: Relay) -> None:
    """A phone that is gone meanwhile changes nothing for those behind it; if the type gathers no longer, all are sent to at once."""
    event = verbs.enqueue(worker.conn, Event("comment", "Bo", "Bo", audience=Owners("ana"))).event_id
    ask = "select relevo.join_batches(e, %s, now()) from relevo.notification_events e where e.id = %s"
    phones = [uuid4(), worker.phones["a"]]
    assert worker.conn.execute(ask, [phones, event]).fetchone() == ([False, True],)
    event_types.reset_event_type(worker.app.database, "comment")
    assert worker.conn.execute(ask, [phones, event]).fetchone() == ([False, False],)


def test_an_urgent_event_passes_many_batches(worker: Relay) -> None:
    """However many batches are due, what is to be fanned out has its turn after the first hundred."""
    worker.conn.execute(
        "insert into relevo.device_installations (token, project, owner) select format('ExponentPushToken[%s]', n), 'default', n from generate_series(1, 250) n"
    )
    comment(worker, "Bo", *(str(n) for n in range(1, 251)))
    worker.clock.travel(minutes=11)
    alarm = worker.enqueue(audience=Owners("ana"), lane="urgent")
    worker.app.runner.run(own_cycle("fanout", worker.app.settings), "manual", budget=Budget(60_000, 101))
    assert worker.rows("select state from relevo.notification_events where id = %s", alarm) == [{"state": "fanned"}]
    assert worker.rows("select count(*)::int as open from relevo.batches where closed_at is null") == [{"open": 150}]


def test_forgotten_while_a_batch_closes(worker: Relay, dsn: str) -> None:
    """Whoever is forgotten while a batch of theirs closes is forgotten in the event that tells it, too."""
    comment(worker, "Bo")
    worker.clock.travel(minutes=11)
    forgetting = threading.Thread(target=lambda: verbs.forget(worker.conn, owner="ana"))
    with psycopg.connect(dsn) as closer, psycopg.connect(dsn, autocommit=True) as watcher:
        closer.execute("select relevo.close_batches(10, null, %s)", [worker.clock.now()])
        forgetting.start()
        eventually(lambda: watcher.execute(WAITING).fetchone() == (1,), "it waits for the closing")
        closer.commit()
        forgetting.join(PATIENCE_S)
    assert worker.rows("select owner from relevo.event_owners") == []
    assert worker.rows("select title from relevo.notification_events") == [{"title": "forgotten"}] * 2


def test_digests_tell_no_stranger_what_was_above_a_cap(worker: Relay) -> None:
    """What a cap left to a digest is not told if it was handled, is unwanted now, or the phone is another's."""
    for name in ("handled", "done", "out", "moved"):
        worker.register(name, owner=name)
    quiet.set_cap(worker.conn, 1, per="week", over="digest")
    owners = Owners("ana", "handled", "done", "out", "moved")
    _, above = (worker.enqueue(type="offer", audience=owners, category="offers") for _ in range(2))
    worker.fan_out()
    verbs.complete(worker.conn, above, owner="handled")
    verbs.complete(worker.conn, owner="done")
    change = "update relevo.device_installations set opt_outs = %s, owner = %s where owner = %s"
    worker.conn.execute(change, [["offers"], "out", "out"])
    worker.conn.execute(change, [[], "stranger", "moved"])
    worker.conn.execute("update relevo.digest_slots set closes_at = now() - interval '1 second'")
    worker.run("digest")
    told = "select d.installation_id from relevo.notification_deliveries d where d.event_type = 'relevo.digest'"
    assert worker.rows(told) == [{"installation_id": worker.phones["a"]}]
