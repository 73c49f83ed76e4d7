"""relevo doctor finds every delivery that does not stand where it must, and repairs it while everything runs on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.core.model import PushRequest
from relevo.database import migrate
from relevo.operators import actions, consistency
from relevo.operators.actions import DeadLetters
from support.sending_worker import Relay, at_once, beside

MONTH = datetime.now(UTC).date().replace(day=1)
COPY_CHUNKS = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
  installations)
select project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations
  from relevo.due_chunks
"""
QUEUE_ENDED = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
  installations)
select min(project), 'bulk', now(), event_day, notification_event_id, min(event_type), created_at, 0, 0, false,
       array_agg(id) || 987654321, array_agg(installation_id) || gen_random_uuid()
  from relevo.notification_deliveries group by event_day, notification_event_id, created_at
"""


def make_old(worker: Relay) -> None:
    """Let all deliveries have changed an hour ago."""
    worker.conn.execute("update relevo.notification_deliveries set updated_at = now() - interval '1 hour'")


def found(worker: Relay, now: datetime | None = None) -> dict[str, int]:
    """Count what is misplaced, by kind."""
    return {each.kind: each.deliveries for each in consistency.examine(worker.app.database, now=now)}


def repair(worker: Relay, now: datetime | None = None) -> dict[str, int]:
    """Repair what is misplaced, and count it by kind."""
    return dict(actions.repair(worker.app.database, now=now))


@pytest.fixture(autouse=True)
def _nothing_dead(conn: psycopg.Connection[Any]) -> None:
    """The rows that tests before this one left dead in their database are no finding of this one's."""
    conn.execute("select pg_stat_reset()")


@pytest.fixture
def lost(relay) -> Relay:
    """A relay with two deliveries that stand in no queue."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    worker.conn.execute("delete from relevo.due_chunks")
    make_old(worker)
    return worker


def test_what_stands_nowhere_is_queued(lost: Relay, command: Any) -> None:
    """An open delivery in no chunk and no claim is named with its id and the next step; repaired, it is sent once."""
    lost.dispatch()
    assert lost.states() == {"pending": 2}
    said = command("doctor")
    assert said.code == 1
    ids = ", ".join(str(row["id"]) for row in lost.deliveries())
    assert f"2 open deliveries stand in no chunk and no claim, and will never be sent: {ids}." in said.out
    assert "`relevo doctor --repair` queues them." in said.out
    mended = command("doctor", "--repair")
    assert (mended.code, mended.out) == (0, "Repaired: 2 not queued.\nNo faults found.\n")
    lost.drain()
    lost.everyone_received(1)
    assert lost.states() == {"sent": 2}
    assert (command("doctor").code, repair(lost)) == (0, {})


def test_as_json(lost: Relay, command: Any) -> None:
    """A finding is an object on a line of its own."""
    said = command("doctor", "--json")
    (line,) = said.out.splitlines()
    assert said.code == 1
    assert json.loads(line).items() >= {"kind": "not_queued", "deliveries": 2, "harmless": False}.items()
    mended = command("doctor", "--repair", "--json")
    assert (mended.code, json.loads(mended.out)) == (0, {"kind": "not_queued", "repaired": 2})


def test_help_shows_an_example(command: Any) -> None:
    """The help says how it is used and how it leaves."""
    said = command("doctor", "--help").out
    assert "relevo doctor --repair" in said
    assert "The exit code is 1" in said


def test_at_most_once_is_not_sent_again(relay) -> None:
    """One that is sent at most once, of which a request was begun, ends as unknown; one without a request is sent."""
    worker: Relay = relay()
    worker.tell("ana", at_most_once=True)
    claim = worker.app.claims.claim("dispatch", "default", "bulk")
    worker.app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    worker.conn.execute("delete from relevo.claims")
    worker.tell("eva", at_most_once=True)
    worker.conn.execute("delete from relevo.due_chunks")
    make_old(worker)
    assert found(worker) == {"not_queued": 2}
    assert repair(worker) == {"not_queued": 2}
    worker.drain()
    assert (worker.delivery("ana")["status"], worker.delivery("eva")["status"]) == ("unknown", "sent")
    assert (worker.received("ana"), worker.received("eva")) == (0, 1)
    assert found(worker) == {}


def test_what_changed_a_moment_ago_is_left_alone(relay) -> None:
    """A row that changed within the last two minutes is neither reported nor repaired; later it is."""
    worker: Relay = relay()
    worker.tell("ana")
    worker.conn.execute("delete from relevo.due_chunks")
    assert (found(worker), repair(worker)) == ({}, {})
    later = datetime.now(UTC) + timedelta(minutes=3)
    assert found(worker, later) == {"not_queued": 1}


def test_what_is_left_of_a_deleted_event_is_left_alone(lost: Relay) -> None:
    """Deliveries that a reaper is still to delete are no fault, and are not queued again."""
    assert found(lost) == {"not_queued": 2}
    lost.conn.execute(
        "insert into relevo.deleted_events (event_id, event_day) "
        "select distinct notification_event_id, event_day from relevo.notification_deliveries"
    )
    assert (found(lost), repair(lost)) == ({}, {})


def test_sealed_months_are_left_alone(lost: Relay) -> None:
    """Nothing of a month that is on its way to the archive is reported or written."""
    month_of_them = list(consistency.find_misplaced(lost.app.database))
    assert [each.kind for each in month_of_them] == ["not_queued"]
    lost.conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at) "
        "select 'notification_deliveries', date_trunc('month', min(event_day)), 'sealed', 'x', 1000, now() from relevo.notification_deliveries"
    )
    assert (found(lost), repair(lost)) == ({}, {})
    assert actions._repair(lost.app.database, month_of_them[0], slice(10), None) == 0  # sealed after it was looked at
    assert lost.rows("select from relevo.due_chunks") == []


def test_queued_twice(relay) -> None:
    """What stands in two chunks stays in one, and is sent once."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    worker.conn.execute(COPY_CHUNKS)
    make_old(worker)
    assert found(worker) == {"queued_twice": 2}
    assert repair(worker) == {"queued_twice": 2}
    assert found(worker) == {}
    worker.drain()
    worker.everyone_received(1)


def test_queued_and_claimed(relay) -> None:
    """What stands in a claim and in a chunk stays with the claim: it is sent once, by whoever ends up with it."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    chunks = worker.rows("select * from relevo.due_chunks")
    claim = worker.app.claims.claim("dispatch", "default", "bulk")
    names = ", ".join(name for name in chunks[0] if name != "id")
    for chunk in chunks:
        del chunk["id"]
        worker.conn.execute(
            f"insert into relevo.due_chunks ({names}) values ({', '.join(['%s'] * len(chunk))})", list(chunk.values())
        )
    make_old(worker)
    assert found(worker) == {"queued_twice": 2}
    assert repair(worker) == {"queued_twice": 2}
    assert (found(worker), worker.rows("select from relevo.due_chunks")) == ({}, [])
    worker.app.claims.release(claim)
    worker.drain()
    worker.everyone_received(1)


def test_queued_although_done(relay) -> None:
    """What is sent, or gone, is taken out of the queue, and is not sent again; what is open beside it stays."""
    worker: Relay = relay()
    event = worker.tell("ana", "eva")
    worker.dispatch()
    worker.conn.execute(
        "update relevo.notification_deliveries set status = 'pending', provider_ticket_id = null where installation_id = %s",
        [worker.phones["eva"]],
    )
    worker.conn.execute("select relevo.move_counts(array[%s::bigint], '{sent}', '{pending}')", [event])
    worker.conn.execute(QUEUE_ENDED)
    worker.conn.execute("delete from relevo.awaited_receipts")
    worker.sandbox.reset()
    make_old(worker)
    assert found(worker) == {"queued_but_ended": 2, "not_awaited": 1}
    assert repair(worker) == {"queued_but_ended": 2, "not_awaited": 1}
    assert found(worker) == {}
    assert [row["event_id"] for row in worker.rows("select * from relevo.due_chunks")] == [event]
    worker.drain()
    assert (worker.received("ana"), worker.received("eva")) == (0, 1)


def test_sent_and_awaited_by_nobody(relay) -> None:
    """A sent delivery whose receipt nobody would ask for is asked for, and confirmed."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    worker.dispatch()
    worker.conn.execute("delete from relevo.awaited_receipts")
    make_old(worker)
    worker.ask()
    assert worker.states() == {"sent": 2}
    assert found(worker) == {"not_awaited": 2}
    assert repair(worker) == {"not_awaited": 2}
    worker.ask()
    assert (worker.states(), found(worker)) == ({"ok": 2}, {})
    worker.everyone_received(1)


def test_awaited_although_done(relay, command: Any) -> None:
    """Awaited receipts of what is gone or done are shown as harmless, and removed; what is awaited beside them stays."""
    worker: Relay = relay()
    event = worker.tell("ana", "eva")
    worker.dispatch()
    worker.conn.execute(
        "update relevo.notification_deliveries set status = 'ok', completed_at = now() where installation_id = %s",
        [worker.phones["ana"]],
    )
    worker.conn.execute("select relevo.move_counts(array[%s::bigint], '{sent}', '{ok}')", [event])
    make_old(worker)
    said = command("doctor")
    assert said.code == 0
    assert "Harmless: 1 receipt is awaited" in said.out
    assert repair(worker) == {"awaited_but_ended": 1}
    assert found(worker) == {}
    worker.ask()
    assert worker.states() == {"ok": 2}


def test_failed_without_a_dead_letter(relay) -> None:
    """A failed delivery that no redrive would find is found again, redriven, and sent once."""
    worker: Relay = relay(outbox_max_attempts=1)
    worker.tell("big!MessageTooBig*1")
    worker.dispatch()
    worker.conn.execute("delete from relevo.dead_letters")
    make_old(worker)
    redrive = DeadLetters(error_code="MessageTooBig")
    assert actions.redrive(worker.app.database, redrive) == 0
    assert found(worker) == {"no_dead_letter": 1}
    assert repair(worker) == {"no_dead_letter": 1}
    assert found(worker) == {}
    assert actions.redrive(worker.app.database, redrive) == 1
    worker.drain()
    assert (worker.states(), worker.received("big!MessageTooBig*1")) == ({"sent": 1}, 1)


def test_a_dead_letter_of_what_lives(relay) -> None:
    """Dead letters of what is gone or did not fail are removed, so that a later failure has its own."""
    worker: Relay = relay(outbox_max_attempts=1)
    worker.tell("big!MessageTooBig")
    worker.conn.execute(
        "insert into relevo.dead_letters select event_day, id, notification_event_id, project, 'x', now() "
        "from relevo.notification_deliveries union all select %s, 987654321, 1, 'default', 'x', now()",
        [MONTH],
    )
    assert found(worker) == {"wrong_dead_letter": 2}
    assert repair(worker) == {"wrong_dead_letter": 2}
    worker.drain()
    assert (worker.states(), found(worker)) == ({"failed": 1}, {})
    assert [row["error_code"] for row in worker.rows("select * from relevo.dead_letters")] == ["MessageTooBig"]


def test_in_pieces(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries, chunks, receipts and dead letters are read piece by piece, and none is passed by."""
    for limit in ("_DELIVERIES_AT_ONCE", "_CHUNKS_AT_ONCE"):
        monkeypatch.setattr(consistency, limit, 7)
    monkeypatch.setattr(actions, "_REPAIR_BATCH", 3)
    worker: Relay = relay()
    worker.add_phones(50)
    worker.tell_everyone()
    worker.conn.execute("delete from relevo.due_chunks")
    worker.conn.execute(
        "insert into relevo.dead_letters select event_day, id, notification_event_id, project, 'x', now() from relevo.notification_deliveries"
    )
    make_old(worker)
    assert found(worker) == {"not_queued": 50, "wrong_dead_letter": 50}
    assert repair(worker) == {"not_queued": 50, "wrong_dead_letter": 50}
    assert found(worker) == {}
    worker.drain()
    worker.everyone_received(1)


def test_what_is_under_way_is_no_fault(relay) -> None:
    """While events fan out, are sent, fail, are tried again and confirmed, nothing is found, however young it may be."""
    worker: Relay = relay(outbox_batch_size=20)
    worker.add_phones(150)
    worker.add_phones(30, "bad", "!MessageTooBig*1")
    worker.add_phones(30, "slow", "!500*1")
    later = datetime.now(UTC) + timedelta(hours=1)

    def send() -> None:
        for _ in range(3):
            worker.tell_everyone()
            worker.drain()
            worker.ask()
            worker.reap()

    with beside(send) as done:
        looks = [found(worker, later)]
        while not done:
            looks.append(found(worker, later))
    assert not any(looks), looks
    assert len(looks) > 3
    assert found(worker, later) == {}


def test_a_repair_beside_dispatch(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairs made at once, and while deliveries are claimed, sent and settled, leave each of them with one push."""
    monkeypatch.setattr(consistency, "_YOUNG_MS", -3_600_000)  # nothing is too young
    worker: Relay = relay(outbox_batch_size=10)
    worker.add_phones(600)
    worker.tell_everyone()
    worker.conn.execute("delete from relevo.due_chunks where id % 2 = 0")

    def mend() -> list[dict[str, int]]:
        return [repair(worker) for _ in range(5)]

    *mended, _ = at_once(mend, mend, worker.drain)
    assert sum(each.get("not_queued", 0) for repairs in mended for each in repairs) == 300
    worker.drain()
    worker.everyone_received(1)
    assert found(worker) == {}


def test_a_repair_looks_again(lost: Relay) -> None:
    """What was put right after it was found is not put right twice."""
    (stale,) = consistency.find_misplaced(lost.app.database)
    assert repair(lost) == {"not_queued": 2}
    assert actions._repair(lost.app.database, stale, slice(10), None) == 0
    lost.app.claims.claim("dispatch", "default", "bulk")
    assert actions._repair(lost.app.database, stale, slice(10), None) == 0
    assert lost.rows("select from relevo.due_chunks") == []


def test_missing_migrations(relay, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that lacks migrations is told first, with the command that helps; nothing else is looked at then."""
    relay()
    known = migrate.available()
    newer = migrate.Migration(known[-1].version + 1, "later", "0.2.0", b"")
    monkeypatch.setattr(migrate, "available", lambda: [*known, newer])
    said = command("doctor")
    assert said.code == 1
    assert f"The database lacks {newer}. Run `relevo migrate`." in " ".join(said.out.split())


def test_an_old_worker(relay, command: Any) -> None:
    """A living worker of 0.2 is named; one of 0.3 is not, nor one that stopped or fell silent."""
    worker: Relay = relay()
    worker.conn.execute(
        "update relevo.workers set version = '0.2.7', hostname = 'old-host', pid = 12, lease_ms = 3600000"
    )
    said = command("doctor")
    assert said.code == 1
    assert "(on old-host, process 12) is of version 0.2.7" in said.out
    worker.conn.execute("update relevo.workers set version = '0.3.0'")
    assert command("doctor").code == 0
    worker.conn.execute("update relevo.workers set version = '0.2.7', last_seen_at = now() - interval '2 hours'")
    assert command("doctor").code == 0


class TestCounts:
    """Counts are written as changes, and nobody counts deliveries: only a doctor would notice that they are wrong."""

    def test_wrong_counts_are_found_and_counted_anew(self, relay) -> None:
        """Too many, too few and of a status that nobody has: each is found, mended, and right afterwards; folded or not."""
        worker = relay()
        sound, broken, folded = worker.tell("ana", "eva"), worker.tell("bob", "eva"), worker.tell("leo")
        worker.dispatch()
        worker.reap()
        add = "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, %s)"
        for status, count in (("sent", 3), ("failed", -1)):
            worker.conn.execute(add, [broken, status, count])
        worker.conn.execute(
            "update relevo.event_progress set deliveries = 7 where event_id = %s and status = 'sent'", [folded]
        )
        assert set(found(worker)) == {"counts_wrong"}
        assert consistency.examine(worker.app.database)[0].what.endswith(f": {broken}, {folded}.")
        assert repair(worker) == {"counts_wrong": 2}
        assert found(worker) == {}
        worker.reap()
        told = "select event_id, status, deliveries from relevo.event_progress where deliveries <> 0 order by 1"
        assert worker.conn.execute(told).fetchall() == [(sound, "sent", 2), (broken, "sent", 2), (folded, "sent", 1)]
        assert repair(worker) == {}

    def test_wrong_sums_are_found_and_mended(self, relay) -> None:
        """The sums of all deliveries are those of the events again."""
        worker = relay()
        worker.tell("ana")
        worker.reap()
        worker.conn.execute("insert into relevo.delivery_counts (status, deliveries) values ('sent', 5)")
        assert set(found(worker)) == {"totals_wrong"}
        assert repair(worker) == {"totals_wrong": 1}
        assert found(worker) == {}

    def test_what_is_being_settled_is_counted_once(self, relay, dsn) -> None:
        """A settle that is under way while it is counted anew brings its own change, and the sums are right after it."""
        worker = relay()
        event = worker.tell("ana")
        worker.conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'pending', 4)", [event]
        )
        with psycopg.connect(dsn) as settling:
            settling.execute(
                "update relevo.notification_deliveries set status = 'sent', attempt_count = 1, provider_ticket_id = 't', last_attempt_at = now()"
            )
            settling.execute("select relevo.move_counts(%s, '{pending}', '{sent}')", [[event]])
            assert repair(worker) == {"counts_wrong": 1}
            settling.commit()
        assert "counts_wrong" not in found(worker)
