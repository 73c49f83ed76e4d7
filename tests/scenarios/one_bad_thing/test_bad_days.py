"""One bad thing costs itself and nothing else: bad content, surprises around a request, odd tickets, lost commits."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError, Reschedule
from relevo.core.model import Reply, Ticket
from relevo.delivery.projects.request_pool import RequestPool
from relevo.operators import actions
from relevo.operators.actions import DeadLetters
from support.deliveries import mark_failed
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S, eventually
from support.query_plans import rows_read, rows_read_so_far
from support.sending_worker import Relay, beside


@pytest.mark.parametrize(
    ("data", "push"),
    [
        ("{}", '{"ttl": 1' + "0" * 400 + ".5}"),
        ('{"x": ' + "[" * 1_500 + "]" * 1_500 + "}", "{}"),
        ('{"x": 1e400}', "{}"),
    ],
    ids=["a ttl beyond all numbers", "data too deep to be read", "a number that is none in JSON"],
)
def test_bad_content_fails_alone(relay, data: str, push: str) -> None:
    """What an event says may be as odd as it likes: another one of the same lane is sent, and nothing stays open."""
    worker = relay()
    worker.tell("ana")
    bad = worker.tell("bob")
    worker.conn.execute(
        "update relevo.notification_events set data = %s::jsonb, push = %s::jsonb where id = %s", [data, push, bad]
    )
    worker.dispatch()
    assert worker.delivery("ana")["status"] == "sent"
    assert worker.delivery("bob")["status"] in ("failed", "sent")  # a ttl that is none is left out
    assert worker.delivery("bob")["last_error_code"] in ("MalformedMessage", None)


def second_raises(surprise: BaseException) -> Any:
    """Make a middleware that raises before the second of all requests."""
    turns = iter(range(1_000))
    guard = threading.Lock()

    def middleware(_context: Any, send: Any) -> Reply:
        with guard:
            turn = next(turns)
        if turn == 1:
            raise surprise
        return send()

    return middleware


@pytest.mark.parametrize(
    "surprise",
    [
        Reschedule(datetime.now(UTC) + timedelta(hours=1), "bad \0 reason"),
        Reschedule(datetime.now(UTC) + timedelta(hours=1), "half a letter \ud800"),
        SystemExit("not here"),
    ],
    ids=["NUL", "surrogate", "exit"],
)
def test_a_surprise_in_one_request_costs_no_answer_of_the_others(relay, surprise: BaseException) -> None:
    """Two of three requests were accepted, so two are sent; the third was not begun and spent nothing."""
    worker = relay(push_chunk_size=1, push_middlewares=[second_raises(surprise)])
    worker.add_phones(3)
    worker.tell_everyone()
    worker.dispatch()
    assert worker.states() == {"sent": 2, "pending": 1}
    assert sum(row["attempt_count"] for row in worker.deliveries()) == 2


def test_a_naive_time_is_refused() -> None:
    """A wish without a time zone would mean another moment in every session."""
    with pytest.raises(ValueError, match="time zone"):
        Reschedule(datetime(2026, 1, 1))  # noqa: DTZ001 that is the point


@pytest.mark.parametrize("ticket", [Ticket("unclear", code="Unknown"), Ticket("sent"), Ticket("sent", id="x" * 201)])
def test_at_most_once_is_not_repeated_for_an_odd_ticket(relay, monkeypatch, ticket: Ticket) -> None:
    """Of a ticket that says neither yes nor no nobody knows: at most once ends unknown, and is never sent again."""
    worker = relay()
    provider = worker.app.services.providers["expo"]
    monkeypatch.setattr(provider, "send", lambda messages, _project: Reply("answered", (ticket,) * len(messages)))
    worker.tell("ana", at_most_once=True)
    worker.dispatch()
    assert worker.delivery("ana")["status"] == "unknown"


def test_too_few_tickets_are_ambiguous(relay, monkeypatch) -> None:
    """A provider that answers with too few tickets has answered nothing that can be relied on."""
    worker = relay()
    provider = worker.app.services.providers["expo"]
    monkeypatch.setattr(provider, "send", lambda *_: Reply("answered", (Ticket("sent", id="t"),)))
    worker.tell("ana", "bob", at_most_once=True)
    worker.dispatch()
    assert worker.states() == {"unknown": 2}


def _swallow_and_return(_context: Any, send: Any) -> Any:
    with suppress(OwnershipLostError):
        return send()


def _swallow_and_raise(_context: Any, send: Any) -> Any:
    with suppress(OwnershipLostError):
        send()
    raise RuntimeError("something else")


def _swallow_and_wish(_context: Any, send: Any) -> Any:
    with suppress(OwnershipLostError):
        send()
    raise Reschedule(datetime.now(UTC) + timedelta(hours=1))


@pytest.mark.parametrize("outer", [None, _swallow_and_return, _swallow_and_raise, _swallow_and_wish])
def test_a_claim_lost_inside_a_middleware_sends_nothing(relay, outer: Any) -> None:
    """The last look at the claim comes after the middlewares, just before the request; none can swallow what it says."""

    def loses(_context: Any, send: Any) -> Reply:
        for batch in claims:
            batch.lose("error", "cut off in here")
        return send()

    worker = relay(push_middlewares=[outer, loses] if outer else [loses])
    claims: list[Any] = []
    keep = worker.app.claims.keep
    worker.app.claims.keep = lambda claim: (claims.append(claim), keep(claim))  # type: ignore[method-assign]
    worker.tell("ana", at_most_once=True)
    worker.dispatch(at_most=1)
    assert worker.posts() == 0
    worker.travel(minutes=5)
    worker.reap()
    found = worker.delivery("ana")
    assert (found["status"], found["attempt_count"]) == ("pending", 0), "it was journalled, and marked as not begun"


def test_a_journal_whose_commit_answer_was_lost_sent_nothing(relay, monkeypatch) -> None:
    """Nothing was begun, whatever stands in the journal: at most once is sent later, and no attempt is spent."""
    worker = relay()
    journal = worker.app.claims.journal

    def lost(*given: Any) -> Any:
        journal(*given)
        raise DatabaseUnavailableError("the answer was lost")

    worker.tell("ana", at_most_once=True)
    with monkeypatch.context() as patch:  # for the whole run: what is handed back may be claimed again at once
        patch.setattr(worker.app.claims, "journal", lost)
        worker.dispatch()
    assert (worker.delivery("ana")["status"], worker.delivery("ana")["attempt_count"]) == ("pending", 0)
    worker.travel(seconds=10)
    worker.dispatch()
    assert worker.delivery("ana")["status"] == "sent"


def test_redrive_takes_each_dead_letter_once(relay) -> None:
    """What fails again while it is redriven is left alone: the command comes to its end."""
    worker = relay()
    worker.add_phones(30)
    worker.tell_everyone()
    mark_failed(worker.conn, [row["id"] for row in worker.deliveries()], code="MessageTooBig")
    refail = """
    create or replace function pg_temp.refail() returns trigger language plpgsql as $f$
    begin
      if new.status = 'pending' then
        new.status := 'failed'; new.completed_at := clock_timestamp();
      end if;
      return new;
    end $f$;
    create trigger refail before update on relevo.notification_deliveries for each row execute function pg_temp.refail();
    """
    actions_batch, actions._REDRIVE_BATCH = actions._REDRIVE_BATCH, 10
    try:
        worker.conn.execute(refail)
        assert actions.redrive(worker.app.database, DeadLetters(error_code="MessageTooBig")) == 30
    finally:
        actions._REDRIVE_BATCH = actions_batch
        worker.conn.execute("drop trigger refail on relevo.notification_deliveries")


def test_a_wave_takes_all_lines_at_once() -> None:
    """With one line idle, six requests at once still go out on six."""
    lines = RequestPool("test")
    lines.resize(6)
    lines.submit("bulk", lambda: None).result(PATIENCE_S)
    together = threading.Barrier(6)
    waiting = [lines.submit("bulk", lambda: together.wait(PATIENCE_S)) for _ in range(6)]
    assert sorted(each.result(PATIENCE_S) for each in waiting) == [0, 1, 2, 3, 4, 5]
    lines.close()


def test_lanes_that_are_due_come_before_those_that_are_not(relay) -> None:
    """However many urgent retries wait for later, a bulk one that is due is found."""
    worker = relay()
    worker.conn.execute(
        """
        insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                       ids, installations)
        select p.project, p.lane, p.due_at, current_date, 1, 'x', now(), 0, 0, false, array[1], array[gen_random_uuid()]
          from (select 'later-' || n, 'urgent', now() + interval '1 hour' from generate_series(1, 1000) n
                union all select 'zz-due', 'bulk', now() - interval '1 minute') as p(project, lane, due_at)
        """
    )
    due = [lane for lane in worker.app.services.projects.lanes.read() if lane.due_in_s <= 0]
    assert [(lane.project, lane.lane) for lane in due] == [("zz-due", "bulk")]


def test_a_lane_is_due_for_what_nobody_holds(relay) -> None:
    """What is claimed makes no lane due; beside it the first one that is free tells when."""
    worker = relay()
    worker.tell("ana")
    assert worker.app.claims.claim("dispatch", "default", "bulk") is not None
    assert worker.app.services.projects.lanes.read() == []
    worker.tell("bob")
    worker.conn.execute("update relevo.due_chunks set due_at = now() + interval '1 hour'")
    (lane,) = worker.app.services.projects.lanes.read()
    assert 3_000 < lane.due_in_s <= 3_600


class TestAmongMany:
    """What concerns a few phones does not walk along all of them."""

    @pytest.fixture
    def crowd(self, relay) -> Relay:
        """A relay with twenty thousand phones."""
        worker = relay()
        worker.conn.execute(
            "insert into relevo.device_installations (token) select 'ExponentPushToken[c' || n || ']' from generate_series(1, 20000) n"
        )
        worker.conn.execute("analyze relevo.device_installations")
        return worker

    def test_disabling_tokens_looks_up_just_those(self, crowd: Relay) -> None:
        """A hundred tokens that are gone are disabled in a moment, in the transaction that records the answers."""
        rows = crowd.rows(
            "select installation_id::text as id from relevo.device_installations order by 1 desc limit 100"
        )
        asked = {
            "installations": [row["id"] for row in rows],
            "versions": [1] * 100,
            "reasons": ["DeviceNotRegistered"] * 100,
            "now": None,
        }
        with crowd.app.database.transaction("bound_by_key") as connection:
            assert rows_read(connection, queries.load("settle")["disable_tokens"], asked) <= 300

    def test_a_personal_event_looks_up_just_its_phones(self, relay, crowd: Relay) -> None:
        """An event for the newest phone of all reads a handful of rows, not twenty thousand."""
        crowd.register("newest")
        crowd.enqueue(audience=[crowd.phones["newest"]])
        crowd.app.database.close()
        before = rows_read_so_far(crowd.conn, "device_installations")
        other = relay()
        other.fan_out()
        other.app.database.close()
        assert rows_read_so_far(crowd.conn, "device_installations") - before < 1_000
        assert crowd.delivery("newest")["status"] == "pending"


FULL_DISK = """
create sequence relevo.refusals;
create function relevo.refuse_awhile() returns trigger language plpgsql as $$
begin
  if nextval('relevo.refusals') <= 2 then
    raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device';
  end if;
  return null;
end $$;
create trigger refuse_awhile after insert on relevo.awaited_receipts for each statement execute function relevo.refuse_awhile()
"""


@pytest.mark.parametrize("names", [("ana", "bob"), ("ana", "bob", "eve!DeviceNotRegistered")])
def test_a_disk_that_is_full_for_a_moment_costs_no_ticket(relay, conn, names) -> None:
    """What was sent is written down once there is room again, instead of being sent once more."""
    conn.execute(FULL_DISK)
    try:
        worker: Relay = relay()
        worker.tell(*names)
        worker.dispatch()
        assert [worker.delivery(name)["status"] for name in names[:2]] == ["sent", "sent"]
        assert [worker.received(name) for name in names[:2]] == [1, 1]
    finally:
        conn.execute("drop sequence relevo.refusals; drop function relevo.refuse_awhile() cascade")


def test_a_run_ends_though_the_database_stays_away(relay, dsn: str) -> None:
    """The database goes away before the run's row is written, and the process is to stop: it does not wait for it."""
    with Proxy(dsn) as proxy:
        asked = threading.Event()

        def lose(_context: Any, call: Any) -> Any:
            proxy.shut()
            proxy.cut()
            asked.set()
            return call()

        hasty = {"outbox_lease_duration_ms": 3_000, "push_request_timeout_ms": 300, "database_connect_timeout_ms": 500}
        worker = relay(push_middlewares=[lose], database_url=proxy.dsn, database_direct_url=proxy.dsn, **hasty)
        worker.tell("ana")
        with beside(worker.dispatch) as reports:
            eventually(asked.is_set, "a request is made")
            worker.app.runner.stopping.set()
        [report] = reports
        assert report.outcome in ("failed", "partial"), "by whether the push was counted before the loss was met"
        proxy.open()
