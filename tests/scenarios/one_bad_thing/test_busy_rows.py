"""One project's locked or slow rows: the others are served in the same run, which says what was in the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from relevo.runtime import troubles
from support import soak
from support.processes import eventually
from support.sending_worker import Relay, beside

QUICK = {
    "outbox_lease_duration_ms": 12_000,
    "push_request_timeout_ms": 5_000,
    "database_lock_timeout_ms": 1_500,
    "database_statement_timeout_ms": 2_500,
}
"""Long enough for a busy machine, short enough for a test."""

SLOW = """
create function public.in_the_way() returns trigger language plpgsql as $f$
begin
  if coalesce(new.project, old.project) = 'one' then
    {}
  end if;
  return coalesce(new, old);
end $f$;
create trigger in_the_way before {} for each row execute function public.in_the_way();
"""
WAYS = {
    "slow": "perform pg_sleep(60);",
    "deadlock": "raise exception 'deadlock detected' using errcode = 'deadlock_detected';",
    "lock": "raise exception 'canceling statement due to lock timeout' using errcode = 'lock_not_available';",
}
CLAIMED = "delete on relevo.due_chunks"
ASKED_FOR = "update on relevo.awaited_receipts"
JOURNALLED = "insert on relevo.push_requests"
RESERVED = "update on relevo.projects"


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a busy lane off for longer than a run waits: it is tried again by the next run, not a handful of times."""
    monkeypatch.setattr(troubles, "_BUSY_MS", troubles._LONGEST_BUSY_MS)


@pytest.fixture
def in_the_way(conn: psycopg.Connection[Any]) -> Iterator[Any]:
    """Put something in the way of project one's rows: `in_the_way("slow", CLAIMED)`; it is gone after the test."""

    def put(way: str, where: str) -> None:
        conn.execute(SLOW.format(WAYS[way], where).encode())

    yield put
    conn.execute("drop function if exists public.in_the_way() cascade")


def two_projects(relay: Any, phones: int = 30, **settings: object) -> Relay:
    """Return a relay with an event for the phones of two projects, that of project one due first."""
    worker: Relay = relay(**QUICK | settings)
    worker.add_phones(5, "one-", project="one")
    worker.tell_everyone()
    worker.conn.execute("update relevo.due_chunks set due_at = now() - interval '1 hour'")
    ids = [worker.phones[name] for name in worker.add_phones(phones, "two-", project="two")]
    worker.enqueue(audience=ids)
    worker.fan_out()
    return worker


def states(worker: Relay, project: str) -> dict[str, int]:
    """Count the deliveries of a project per status."""
    rows = worker.rows(
        "select status, count(*)::int as n from relevo.deliveries where project = %s group by 1", project
    )
    return {row["status"]: row["n"] for row in rows}


@contextmanager
def locked(dsn: str, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold rows locked in another session."""
    with psycopg.connect(dsn) as other:
        other.execute(statement.encode())
        yield other
        other.rollback()


LOCK_ONE = "select from relevo.projects where project = 'one' for update"


@pytest.mark.usefixtures("one_try")
def test_a_locked_project_does_not_stop_another(relay, dsn: str) -> None:
    """While somebody holds one project's row, the other's pushes all go out; the run is partial and names the first."""
    worker = two_projects(relay)
    worker.conn.execute("insert into relevo.projects (project, filled_at) values ('one', now())")
    with locked(dsn, LOCK_ONE), capture_logs() as logs:
        report = worker.dispatch()
        assert states(worker, "two") == {"sent": 30}
        assert states(worker, "one") == {"pending": 5}
    assert report.outcome == "partial"
    assert "bulk lane of one" in report.error
    assert "lock timeout" in report.error
    assert report.due_in_s is not None
    assert report.due_in_s < 10, "it is tried again soon, not after an error's long rest"
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]
    worker.dispatch()
    assert states(worker, "one") == {"sent": 5}


def test_a_lock_that_goes_away_is_waited_for(relay, dsn: str, conn: psycopg.Connection[Any]) -> None:
    """A lane that found its row locked rests a moment and is tried again in the same run."""
    worker = two_projects(relay, database_lock_timeout_ms=300)
    worker.conn.execute("insert into relevo.projects (project, filled_at) values ('one', now())")
    with locked(dsn, LOCK_ONE) as other, beside(worker.dispatch) as reports:
        eventually(lambda: states(worker, "two") == {"sent": 30}, "the other project is served")
        other.rollback()
    assert states(worker, "one") == {"sent": 5}
    assert reports[0].counts["notifications_sent"] == 35


PRODUCT = [(way, where) for way in WAYS for where in (RESERVED, CLAIMED, JOURNALLED)]
PAIRS = [("slow", CLAIMED), ("slow", JOURNALLED), ("deadlock", RESERVED), ("lock", CLAIMED)]  # each way, each statement


@pytest.mark.usefixtures("one_try")
@pytest.mark.parametrize(("way", "where"), soak.cases(PAIRS, whole=PRODUCT))
def test_a_busy_statement_does_not_stop_another(relay, in_the_way, way: str, where: str) -> None:
    """Whatever statement of one project is slow, locked or in a deadlock: the other goes on, nothing is spent or lost."""
    worker = two_projects(relay, push_rate_per_second=600)
    in_the_way(way, where)
    with capture_logs() as logs:
        report = worker.dispatch()
    assert states(worker, "two") == {"sent": 30}
    assert report.outcome == "partial"
    assert "bulk lane of one" in report.error
    assert not [line for line in logs if line["log_level"] in ("error", "critical")], "it is no surprise"
    found = worker.rows("select * from relevo.deliveries where project = 'one'")
    assert {(row["status"], row["attempt_count"], row["lapse_count"], row["claim_token"]) for row in found} == {
        ("pending", 0, 0, None)
    }
    worker.conn.execute("drop function public.in_the_way() cascade")
    worker.dispatch()
    assert states(worker, "one") == {"sent": 5}
    worker.everyone_received(1)


def test_a_locked_project_does_not_stop_the_receipts_of_another(relay, dsn: str) -> None:
    """Its receipts wait; those of the other are asked for in the same run, which is partial and says why."""
    worker = two_projects(relay)
    worker.dispatch()
    with locked(dsn, LOCK_ONE):
        report = worker.ask()
        assert states(worker, "two") == {"ok": 30}
        assert states(worker, "one") == {"sent": 5}
    assert report.outcome == "partial"
    assert "receipts of one" in report.error
    worker.ask()
    assert states(worker, "one") == {"ok": 5}


def test_a_slow_receipt_claim_does_not_stop_another(relay, in_the_way) -> None:
    """The same where the claim itself takes too long."""
    worker = two_projects(relay)
    worker.dispatch()
    in_the_way("slow", ASKED_FOR)
    report = worker.ask()
    assert (states(worker, "two"), states(worker, "one")) == ({"ok": 30}, {"sent": 5})
    assert report.outcome == "partial"
    assert "receipts of one" in report.error


def test_a_locked_counter_stops_no_cycle(relay, dsn: str, sandbox) -> None:
    """Somebody holds the cycle's line locked and goes home: each run waits for it for a lease, and the next one sends.

    While an answer is on its way a run would say there that it rests: it does without, and no connection is lost.
    """
    sandbox.set(latency_ms=300)
    worker: Relay = relay(
        outbox_lease_duration_ms=5_000,
        push_request_timeout_ms=1_200,
        database_lock_timeout_ms=500,
        database_statement_timeout_ms=1_200,
    )
    worker.tell("ana")
    worker.dispatch()
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.cycle_state where cycle = 'dispatch' for update")
        for turn in (2, 3):
            worker.tell("ana")
            with beside(worker.dispatch) as reports:
                eventually(lambda turn=turn: worker.received("ana") == turn)
            assert [report.outcome for report in reports] == ["ok"]


def test_a_run_whose_row_cannot_be_written_winds_up(relay, dsn: str) -> None:
    """Somebody holds the table of runs: what was claimed is sent and waited for, and the connections are given back."""
    worker = two_projects(relay)
    held = "select connections from relevo.push_connections"
    lock = "lock table relevo.worker_runs in access exclusive mode"
    with locked(dsn, lock) as other, beside(worker.dispatch) as reports:
        eventually(lambda: "sent" in states(worker, "one"), "what was claimed is sent")
        eventually(lambda: not worker.rows(held), "the connections are given back")
        other.rollback()
    assert "lock timeout" in reports[0].error
    worker.dispatch()
    worker.everyone_received(1)
