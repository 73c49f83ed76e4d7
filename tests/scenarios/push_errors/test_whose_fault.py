"""Whose fault it is: a phone's credential fault or the project's, a bad message or a push service that refuses all."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.operators import actions
from relevo.operators.actions import DeadLetters
from support import soak
from support.deliveries import add_deliveries, mark_sent, put_off_receipts
from support.sending_worker import Relay, at_once, token

BOTH = pytest.mark.parametrize("where", ["", "receipt-"], ids=["ticket", "receipt"])
PRODUCT = [(phones, where) for where in ("", "receipt-") for phones in (1, 2, 40)]
PAIRS = [(1, ""), (2, "receipt-"), (40, ""), (40, "receipt-")]  # few phones by one way each, many by both


def of_event(worker: Relay, event: int) -> dict[str, int]:
    """Count an event's deliveries per status."""
    return dict(Counter(row["status"] for row in worker.deliveries() if row["notification_event_id"] == event))


class TestOnePhone:
    """A phone with another sender's token, among phones that are well."""

    @BOTH
    def test_costs_nobody_anything_for_a_day(self, relay, where: str) -> None:
        """In 24 hours with 20 good phones the breaker never opens, each of them gets every push at once, and once; the
        bad phone's deliveries end as dead letters that say why."""
        worker = relay(receipt_first_poll_ms=15 * 60_000)
        good = worker.add_phones(20, "good")
        worker.register(f"bad!{where}MismatchSenderId")
        late, opened = [], 0
        events = soak.cases(12, whole=48)
        looks = soak.cases(1, whole=3)  # between two events: nothing is sent then but what was to be tried again
        for step in range(events * looks):
            worker.travel(minutes=24 * 60 // events // looks)
            if step % looks == 0:
                worker.tell_everyone()
            worker.dispatch()
            worker.ask()
            opened += worker.project()["breaker"] != "closed"
            seen = worker.sandbox.phones()
            late += [name for name in good if seen[token(name)]["received"] != step // looks + 1]
        assert (opened, late, worker.incidents()) == (0, [], [])
        worker.travel(hours=5)
        for _ in range(22):  # what of the bad phone is left comes to its end
            worker.travel(minutes=61)
            worker.dispatch()
            worker.ask()
        ended = {(row["status"], row["attempt_count"], row["last_error_code"]) for row in worker.deliveries()}
        assert ended == {("ok", 1, None), ("failed", 9, "MismatchSenderId")}
        assert not worker.is_disabled(f"bad!{where}MismatchSenderId")
        assert actions.dead_letters(worker.app.database, DeadLetters(error_code="MismatchSenderId"))

    @BOTH
    def test_backs_off_by_its_types_policy(self, relay, where: str) -> None:
        """Each attempt is spent, and the pauses and the end are those of the event's type."""
        worker = relay()
        worker.register("another")
        worker.conn.execute(
            "insert into relevo.event_types (event_type, retry_base_ms, retry_max_ms, max_attempts)"
            " values ('quick', 5000, 5000, 2)"
        )
        name = f"bad!{where}MismatchSenderId"
        worker.tell(name, type="quick")
        for attempts, status in ((1, "retryable"), (2, "failed")):
            worker.dispatch()
            worker.ask()
            found = worker.delivery(name)
            assert (found["attempt_count"], found["status"]) == (attempts, status)
            worker.travel(seconds=6)

    @BOTH
    def test_some_of_them_tried_again_together_are_no_project(self, relay, where: str) -> None:
        """Ten of thirty phones are bad: their retries, all of which fail, do not look like a project that fails."""
        worker = relay()
        worker.add_phones(20, "good")
        worker.add_phones(10, "bad", f"!{where}MismatchSenderId")
        worker.tell_everyone()
        for _ in range(12):
            worker.dispatch()
            worker.ask()
            worker.travel(minutes=61)
        assert worker.states() == {"ok": 20, "failed": 10}
        assert worker.incidents() == []


class TestProject:
    """A project whose credentials are broken."""

    @pytest.mark.parametrize(("phones", "where"), soak.cases(PAIRS, whole=PRODUCT))
    def test_opens_its_breaker_and_loses_nothing_for_a_day(self, relay, sandbox, phones: int, where: str) -> None:
        """With the first answers, even after a day of good ones; rows and attempts are kept, all arrives in the end."""
        worker = relay(receipt_first_poll_ms=15 * 60_000)
        worker.add_phones(phones)
        worker.tell_everyone()
        worker.dispatch()
        sandbox.add_fault(f"{where}MismatchSenderId")
        worker.tell_everyone()
        worker.dispatch()
        worker.travel(minutes=16)
        worker.ask()
        assert (worker.project()["breaker"], worker.incidents()) == ("open", ["breaker_opened"])
        assert "MismatchSenderId" in worker.project()["breaker_reason"]
        for _ in range(soak.cases(8, whole=24)):  # the longest pause is a quarter of an hour
            worker.travel(hours=1)
            worker.dispatch()
            worker.travel(minutes=16)
            worker.ask()
            assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} <= {
                ("sent", 1),  # a probe, if only its receipt tells
                ("ok", 1),
                ("pending", 0),
            }
        sandbox.clear_faults()
        for _ in range(4):
            worker.travel(hours=1)
            worker.dispatch()
            worker.travel(minutes=16)
            worker.ask()
        assert worker.states() == {"ok": 2 * phones}
        worker.everyone_received(2)

    def test_amid_the_trouble_of_one_phone(self, relay, sandbox) -> None:
        """Where one phone was bad before and a hundred were well, the next full request tells enough."""
        worker = relay()
        worker.add_phones(200)
        worker.register("bad!MismatchSenderId")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.project()["breaker"] == "closed"
        sandbox.add_fault("InvalidCredentials")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.project()["breaker"] == "open"
        spent = [
            row
            for row in worker.deliveries()
            if row["last_error_code"] == "InvalidCredentials" and row["attempt_count"]
        ]
        assert spent == []

    def test_is_known_to_the_fleet(self, relay, sandbox) -> None:
        """Two workers met two bad phones each, by pushes to one phone at a time: the third of one is the fifth of all."""
        one, other = relay(), relay()
        one.add_phones(10)
        sandbox.add_fault("MismatchSenderId")
        for number, worker in enumerate((one, other, one, other)):
            one.tell(f"p{number}")
            worker.dispatch()
        assert one.project()["breaker"] == "closed"
        one.tell("p4")
        one.dispatch()
        assert one.project()["breaker"] == "open"
        assert [row["attempt_count"] for row in one.deliveries()] == [1, 1, 1, 1, 0]

    def test_what_is_older_than_an_hour_is_forgotten(self, relay) -> None:
        """Faults met before the last hour do not count with those after."""
        worker = relay()
        worker.add_phones(10)
        worker.tell(*(f"old{n}!MismatchSenderId" for n in range(4)))
        worker.dispatch()
        worker.travel(minutes=61)
        worker.tell("new!MismatchSenderId")
        worker.dispatch()
        assert worker.project()["breaker"] == "closed"
        worker.tell(*(f"newer{n}!MismatchSenderId" for n in range(4)))
        worker.dispatch()
        assert worker.project()["breaker"] == "open"

    def test_one_of_two_phones_is_not_the_project(self, relay) -> None:
        """All there are is one more than the bad one."""
        worker = relay()
        worker.tell("bad!InvalidCredentials", "good")
        worker.dispatch()
        assert (worker.project()["breaker"], worker.received("good")) == ("closed", 1)

    @BOTH
    def test_its_probe_is_another_phone(self, relay, where: str) -> None:
        """Five bad phones alone opened it: the next phone's push is the probe, before theirs, and closes it; from then on
        theirs spend attempts, and open it no more."""
        worker = relay(receipt_first_poll_ms=60_000)
        worker.add_phones(20, "good")
        for number in range(5):
            worker.tell(f"bad{number}!{where}MismatchSenderId")
        worker.dispatch()
        worker.travel(seconds=61)
        worker.ask()
        assert worker.project()["breaker"] == "open"
        worker.tell("good0")
        worker.tell("bad0!" + where + "MismatchSenderId")
        worker.travel(seconds=31)
        worker.dispatch()
        assert worker.received("good0") == 1
        for _ in range(6):
            worker.travel(minutes=2)
            worker.drain()
            worker.travel(minutes=2)
            worker.ask()
        assert (worker.project()["breaker"], worker.incidents()) == ("closed", ["breaker_opened", "breaker_closed"])
        assert all(row["attempt_count"] > 1 for row in worker.deliveries() if row["status"] != "ok")

    def test_a_probe_that_arrived_with_older_pushes_closes_it(self, relay) -> None:
        """A receipt opened the breaker: once the probe's receipt says that it arrived, it closes, whatever older pushes are
        told of by the same answer."""
        worker = relay(receipt_first_poll_ms=60_000)
        worker.tell("old", *(f"p{n}!receipt-MismatchSenderId" for n in range(10)))
        worker.dispatch()
        put_off_receipts(worker.conn, [worker.delivery("old")["id"]], timedelta(hours=1))
        worker.travel(seconds=61)
        worker.ask()
        assert worker.project()["breaker"] == "open"
        worker.tell("fine")
        worker.travel(seconds=31)
        worker.dispatch()
        assert (worker.project()["breaker"], worker.received("fine")) == ("probing", 1)
        ids = [worker.delivery(name)["id"] for name in ("old", "fine")]
        put_off_receipts(worker.conn, ids, -timedelta(hours=1))
        worker.ask()
        assert [worker.delivery(name)["status"] for name in ("old", "fine")] == ["ok", "ok"]
        assert worker.project()["breaker"] == "closed"

    def test_old_receipts_do_not_fail_a_probe(self, relay) -> None:
        """While a probe's receipt is awaited, faults of pushes from before the breaker opened neither reopen nor spend."""
        worker = relay(receipt_first_poll_ms=60_000)
        names = [f"p{n}!receipt-MismatchSenderId" for n in range(10)]
        worker.tell(*names)
        worker.dispatch()
        later = [worker.delivery(name)["id"] for name in names[5:]]
        put_off_receipts(worker.conn, later, timedelta(seconds=100))
        worker.tell("fine")
        worker.travel(seconds=61)
        worker.ask()
        since = worker.project()["breaker_since"]
        assert worker.project()["breaker"] == "open"
        worker.travel(seconds=31)
        worker.dispatch()
        assert (worker.project()["breaker"], worker.received("fine")) == ("probing", 1)
        worker.travel(seconds=31)
        sent = [row["id"] for row in worker.deliveries() if row["status"] == "sent" and row["id"] not in later]
        put_off_receipts(worker.conn, sent, timedelta(hours=1))
        worker.travel(seconds=60)
        worker.ask()
        assert (worker.project()["breaker"], worker.project()["breaker_since"]) == ("probing", since)
        assert {(row["status"], row["attempt_count"]) for row in worker.deliveries() if row["id"] in later} == {
            ("pending", 0)
        }


class TestStorm:
    """The push service answers every request with a 400."""

    def test_empties_no_queue(self, relay, sandbox) -> None:
        """1,200 deliveries of 12 events: the breaker opens, nothing is dead-lettered, hours later all arrive once."""
        worker = relay()
        names = worker.add_phones(600)
        for turn in range(12):
            some = names[turn % 6 * 100 :][:100]
            worker.enqueue(audience=[worker.phones[name] for name in some])
        worker.fan_out()
        sandbox.add_fault("400")
        worker.dispatch()
        assert worker.states() == {"pending": 1_200}
        assert worker.project()["breaker"] == "open"
        assert "VALIDATION_ERROR" in worker.project()["breaker_reason"]
        assert worker.posts() < 300
        for _ in range(6):
            worker.travel(hours=1)
            worker.dispatch()
        assert worker.states() == {"pending": 1_200}
        sandbox.clear_faults()
        worker.travel(hours=1)
        worker.drain(5)
        assert worker.states() == {"sent": 1_200}
        worker.everyone_received(2)
        assert worker.incidents()[-1] == "breaker_closed"
        assert {row["attempt_count"] for row in worker.deliveries()} == {1}

    def test_of_messages_to_one_phone_each(self, relay, sandbox) -> None:
        """Events of one message each are many events all the same."""
        worker = relay()
        for number in range(60):
            worker.register(f"p{number}")
            worker.enqueue(audience=[worker.phones[f"p{number}"]])
        worker.fan_out()
        sandbox.add_fault("400")
        worker.dispatch()
        assert (worker.states(), worker.project()["breaker"]) == ({"pending": 60}, "open")
        sandbox.clear_faults()
        worker.travel(minutes=1)
        worker.drain()
        worker.everyone_received(1)

    def test_that_passes_ends_nothing(self, relay, sandbox) -> None:
        """One that is over amid a batch: those refused first are tried again, and all arrive."""
        worker = relay(push_breaker_failures=100)
        worker.add_phones(250)
        for _ in range(3):
            worker.enqueue()
        worker.fan_out()
        sandbox.add_fault("400", times=20)
        for _ in range(4):
            worker.dispatch()
            worker.travel(minutes=2)
        worker.everyone_received(3)
        assert set(worker.states()) == {"sent"}

    def test_of_one_event_waits(self, relay, sandbox) -> None:
        """Nothing else was taken, so nobody knows: its messages wait, longer and longer, and are sent when it is over."""
        worker = relay()
        worker.add_phones(100)
        event = worker.tell_everyone()
        sandbox.add_fault("400")
        for _ in range(20):
            worker.dispatch()
            worker.travel(minutes=10)
        assert set(of_event(worker, event)) <= {"pending", "retryable"}
        assert worker.posts() < 200
        sandbox.clear_faults()
        worker.travel(hours=2)
        worker.drain()
        worker.everyone_received(1)

    def test_that_never_ends_is_bounded(self, relay, sandbox) -> None:
        """A message that is refused alone again and again, with nothing to compare it to, ends after its attempts."""
        worker = relay(outbox_max_attempts=3)
        worker.tell("ana")
        sandbox.add_fault("400")
        for _ in range(3):
            worker.dispatch()
            worker.travel(hours=1)
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("failed", 3, "VALIDATION_ERROR")


def refused_event(worker: Relay) -> int:
    """Enqueue an event whose messages the push service refuses, for a reason that the door does not know of."""
    event = worker.enqueue()
    spoiled = "update relevo.notification_events set push = jsonb_build_object('priority', 'urgent') where id = %s"
    worker.conn.execute(spoiled, [event])
    return event


class TestBadEvent:
    """An event every message of which is refused, among good ones."""

    @pytest.fixture
    def given_up(self, relay) -> tuple[Relay, int]:
        """A relay whose bad event was refused, and refused again after a good one was taken."""
        worker: Relay = relay()
        worker.add_phones(300)
        bad = refused_event(worker)
        worker.fan_out()
        worker.dispatch()
        assert set(of_event(worker, bad)) <= {"pending", "retryable"}, "nothing was taken yet that it differs from"
        worker.tell_everyone()
        worker.dispatch()
        worker.travel(minutes=2)
        worker.dispatch()
        return worker, bad

    def test_fails_alone(self, given_up) -> None:
        """It ends after a few requests, not two per phone; the other event is sent, and no breaker opens."""
        worker, bad = given_up
        assert of_event(worker, bad) == {"failed": 300}
        assert worker.states() == {"failed": 300, "sent": 300}
        assert worker.posts() < 100
        assert worker.incidents() == []
        untried = [row for row in worker.deliveries() if row["status"] == "failed" and not row["attempt_count"]]
        assert len(untried) > 200
        assert all(row["last_error_message"].startswith("Not tried: 5 messages") for row in untried)

    @pytest.mark.parametrize("by", ["error_code", "event_id"])
    def test_is_redriven_in_one_command(self, given_up, by: str, command) -> None:
        """What was given up untried comes back with the rest of it, by its code as by its event."""
        worker, bad = given_up
        worker.conn.execute("update relevo.notification_events set push = '{}' where id = %s", [bad])
        worker.conn.execute("update relevo.dead_letters set died_at = now()")
        which = ("--error-code", "VALIDATION_ERROR") if by == "error_code" else ("--event", bad)
        assert "300 will be sent again." in command("redrive", *which).out
        worker.drain()
        assert worker.states() == {"sent": 600}

    def test_beside_good_ones_in_a_batch(self, relay) -> None:
        """Where others are taken behind it, it is known to be bad in the same run."""
        worker = relay(push_chunk_size=10)
        worker.add_phones(10)
        bad = refused_event(worker)
        good = [worker.enqueue() for _ in range(9)]
        worker.fan_out()
        worker.dispatch()
        for _ in range(2):
            worker.travel(minutes=2)
            worker.tell_everyone()
            worker.drain()
        assert of_event(worker, bad) == {"failed": 10}
        assert all(of_event(worker, event) == {"sent": 10} for event in good)
        assert worker.incidents() == []

    def test_bad_phones_first_do_not_make_it_bad(self, relay) -> None:
        """Ten phones whose tokens are refused stand in front of ninety good ones: the ninety get their push."""
        worker = relay()
        worker.add_phones(10, "bad", "!400")
        worker.add_phones(90, "good")
        event = worker.tell_everyone()
        for _ in range(5):
            worker.dispatch()
            worker.travel(minutes=5)
        assert of_event(worker, event) == {"failed": 10, "sent": 90}


def test_a_refused_probe_reopens_and_the_next_is_another_event(relay, sandbox) -> None:
    """After an outage the first probe meets a bad message: it spends nothing, and the next probe is another event's."""
    worker = relay()
    worker.tell("ana")
    sandbox.add_fault("401", times=1)
    worker.dispatch()
    worker.tell("bad!400")  # of which nothing bad is known yet
    worker.travel(seconds=31)
    worker.dispatch()
    assert (worker.project()["breaker"], worker.project()["trips"]) == ("open", 2)
    assert worker.delivery("bad!400")["attempt_count"] == 0
    worker.travel(seconds=61)
    worker.dispatch()
    assert (worker.project()["breaker"], worker.received("ana")) == ("closed", 1)


def test_two_workers_in_a_storm_spend_little(relay, sandbox) -> None:
    """Both isolate at once; the row they share stops both, and what was tried is kept."""
    workers = [relay() for _ in range(2)]
    first = workers[0]
    first.add_phones(100)
    for _ in range(10):
        first.enqueue()
    first.fan_out()
    sandbox.add_fault("400")
    at_once(*(worker.dispatch for worker in workers))
    assert first.project()["breaker"] == "open"
    assert sum(row["attempt_count"] for row in first.deliveries()) <= 20
    sandbox.clear_faults()
    first.travel(minutes=5)
    first.drain(5)
    first.everyone_received(10)


def test_memories_are_pruned(relay) -> None:
    """Events that were refused are forgotten after a day, and so are the phones when the window is over."""
    worker = relay()
    worker.register("another")
    worker.tell("bad!400")
    worker.tell("worse!MismatchSenderId")
    worker.dispatch()
    remembered = "select (select count(*) from relevo.refused_events), (select count(*) from relevo.credential_answers)"
    assert worker.conn.execute(remembered).fetchone() == (1, 1)
    worker.clock.travel_to(worker.clock.now() + timedelta(hours=25))
    worker.reap()
    worker.tell("another")
    worker.dispatch()
    assert worker.conn.execute(remembered).fetchone() == (0, 0)


def test_what_proves_the_token_of_a_phone(conn: psycopg.Connection[Any]) -> None:
    """A push that was taken for its present token, in this project; by receipts, one that was confirmed. What its former
    token got proves nothing."""
    former, sent, confirmed = (add_deliveries(conn, 1, event=event)[0] for event in (1, 2, 3))
    mark_sent(conn, [former, sent, confirmed])
    row = conn.execute("select installation_id from relevo.notification_deliveries where id = %s", [former]).fetchone()
    assert row is not None
    [phone] = row

    def take(delivery: int, version: int, status: str) -> None:
        at = None if status == "sent" else datetime.now(UTC)
        conn.execute(
            "update relevo.notification_deliveries set installation_id = %s, token_version = %s, status = %s, completed_at = %s where id = %s",
            [phone, version, status, at, delivery],
        )

    def proven(project: str = "default") -> tuple[Any, ...] | None:
        asked = "select relevo.was_taken(%(phone)s, %(project)s, false), relevo.was_taken(%(phone)s, %(project)s, true)"
        return conn.execute(asked, {"phone": phone, "project": project}).fetchone()

    take(former, 1, "ok")
    conn.execute("update relevo.device_installations set token_version = 1 where installation_id = %s", [phone])
    assert (proven(), proven("shop")) == ((True, True), (False, False))
    conn.execute("update relevo.device_installations set token_version = 2 where installation_id = %s", [phone])
    assert proven() == (False, False)
    take(sent, 2, "sent")
    assert (proven(), proven("shop")) == ((True, False), (False, False))
    take(confirmed, 2, "ok")
    assert (proven(), proven("shop")) == ((True, True), (False, False))
