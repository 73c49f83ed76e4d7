"""What one stubborn thing may not do: hold up the rest of its cycle, or pass for the service."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from relevo.client import values, verbs
from relevo.client.values import Event
from relevo.core.model import PushRequest
from relevo.operators import fleet
from relevo.runtime.workers import make_worker_id
from support.deliveries import add_deliveries
from support.phones import add_phones, fan_out_to_the_end


def test_a_locked_claim_does_not_stop_the_reaper(build, conn, dsn) -> None:
    """An expired claim whose delivery an app's open transaction holds is passed by; the others are taken back."""
    ids = add_deliveries(conn, 2)
    for _ in ids:
        assert build().claims.claim("dispatch", "default", "bulk", limit=1) is not None
    worker = build(outbox_lease_duration_ms=3_000)  # it waits for a lock for a part of that
    conn.execute("update relevo.claims set leased_until = now() - interval '1 s' * ids[1]")
    with psycopg.connect(dsn) as app:
        app.execute("select from relevo.notification_deliveries where id = %s for update", [ids[1]])
        report = worker.runner.run(worker.registry["reaper"], "manual")
        assert (report.outcome, report.counts["claims_reaped"]) == ("partial", 1)
        assert "canceling statement due to" in report.error
    assert worker.runner.run(worker.registry["reaper"], "manual").counts["claims_reaped"] == 1


def test_a_poisoned_event_does_not_stop_fan_out(build, conn) -> None:
    """An event that cannot be fanned out is named in its run and passed by; those behind it get their deliveries."""
    verbs.register(conn, values.Installation("ExponentPushToken[a]"))
    bad, good = (
        verbs.enqueue(conn, Event("notice", key, "Hello", audience="everyone")).event_id for key in ("bad", "good")
    )
    conn.execute(
        f"alter table relevo.notification_deliveries add constraint poison check (notification_event_id <> {bad})"
    )
    worker = build()
    report = worker.runner.run(worker.registry["fanout"], "manual")
    assert (report.outcome, report.counts["events_fanned_out"]) == ("partial", 1)
    assert f"event {bad}" in report.error
    assert verbs.get(conn, good).state == "fanned"
    assert verbs.get(conn, bad).state == "waiting"


def test_a_burst_does_not_disturb_a_vacuum(build, conn) -> None:
    """After a burst fan-out asks for no statistics: autovacuum would give way, and no plan depends on them."""
    add_phones(conn, 2_000)
    event = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone")).event_id
    fan_out_to_the_end(build())
    assert verbs.get(conn, event).deliveries == {"pending": 2_000}
    asked = "select sum(analyze_count) from pg_stat_user_tables where relname like 'notification_deliveries%'"
    assert conn.execute(asked).fetchone() == (0,)


def test_a_command_beside_the_service_is_not_the_service(make_settings) -> None:
    """WORKER_ID names the service; a tick or a run by hand with the same environment has a name of its own."""
    settings = make_settings(worker_id="pod-1")
    assert make_worker_id(settings, "run") == "pod-1"
    names = {make_worker_id(settings, role) for role in ("tick", "run-cycle", "tick")}
    assert len(names) == 3
    assert all(name.startswith("pod-1:") for name in names)


POISON = """
create function public.refuse_it() returns trigger language plpgsql as $f$
begin
  raise exception 'this row cannot be written' using errcode = 'check_violation';
end $f$;
create trigger refuse_it before update on relevo.notification_deliveries for each row when (old.id = {}) execute function public.refuse_it();
"""


@pytest.mark.parametrize("begun", [False, True], ids=["never journalled", "ambiguous"])
def test_a_row_that_cannot_be_written_keeps_no_other_in_a_lapsed_claim(build, conn, begun: bool) -> None:
    """Nineteen come back at once; the one stays in its claim, is named in status, and comes back once it can be written."""
    ids = add_deliveries(conn, 20)
    worker = build()
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    if begun:
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    conn.execute(POISON.format(ids[7]).encode())
    conn.execute("update relevo.claims set leased_until = now() - interval '5 minutes'")
    report = worker.runner.run(worker.registry["reaper"], "manual")
    assert (report.outcome, report.counts["deliveries_recovered"]) == ("partial", 19)
    assert report.counts.get("deliveries_ambiguous", 0) == (19 if begun else 0)
    assert conn.execute("select token, ids from relevo.claims").fetchall() == [(claim.token, [ids[7]])]
    queued = conn.execute("select u.id from relevo.due_chunks q cross join unnest(q.ids) as u(id) order by u.id")
    assert [row[0] for row in queued] == [each for each in ids if each != ids[7]]
    said = " ".join(str(problem) for problem in fleet.status(worker.database, worker.settings).problems)
    assert f"({ids[7]})" in said
    assert "this row cannot be written" in said
    conn.execute("drop function public.refuse_it() cascade")
    assert worker.runner.run(worker.registry["reaper"], "manual").counts["deliveries_recovered"] == 1
    assert conn.execute("select token from relevo.claims").fetchall() == []
    assert conn.execute("select name from relevo.troubles").fetchall() == []


def test_a_row_that_cannot_be_written_keeps_no_other_from_being_handed_back(build, conn) -> None:
    """Who hands a claim back hears of the one that cannot be written; the others are due again."""
    ids = add_deliveries(conn, 5)
    worker = build()
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    conn.execute(POISON.format(ids[0]).encode())
    with pytest.raises(psycopg.errors.CheckViolation):
        worker.claims.release(claim)
    assert conn.execute("select ids from relevo.claims").fetchall() == [([ids[0]],)]
    assert conn.execute("select sum(cardinality(ids))::int from relevo.due_chunks").fetchone() == (4,)
