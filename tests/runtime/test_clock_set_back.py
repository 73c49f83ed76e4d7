"""The database's clock is set back: what was written before waits for times that are far away now, and must not wait for them."""

from __future__ import annotations

import pytest

from support.sending_worker import Relay

AHEAD = "now() + interval '3 hours'"


@pytest.fixture
def ahead(relay) -> Relay:
    """A worker three hours ahead, whose fleet took its turn there; its clock goes back with `travel(hours=-3)`."""
    worker: Relay = relay()
    worker.travel(hours=3)
    worker.reap()
    return worker


def test_what_was_to_be_sent_at_once_is(ahead: Relay) -> None:
    """A push that was due before the jump leaves after the next round of the reaper, which tells of the jump, once."""
    ahead.tell("ana")
    ahead.travel(hours=-3)
    assert ahead.dispatch().outcome == "idle"
    report = ahead.reap()
    assert "clock was set back" in str(report.error)
    assert "1 chunks" in str(report.error)
    ahead.dispatch()
    assert ahead.received("ana") == 1
    assert ahead.reap().error == ""


def test_a_retry_keeps_its_pause(relay) -> None:
    """What waits no longer than a retry may wait is left alone: a clock that is right again brings no attempt forward."""
    worker = relay()
    worker.tell("ana!500")
    worker.dispatch()
    ((due_at,),) = worker.conn.execute("select due_at from relevo.due_chunks").fetchall()
    worker.conn.execute(
        f"insert into relevo.cycle_state (cycle, source, shared_at) values ('reaper', '', {AHEAD})".encode()
    )
    worker.reap()
    assert worker.conn.execute("select due_at from relevo.due_chunks").fetchall() == [(due_at,)]


def test_what_the_dead_held_is_taken_back_after_its_lease(ahead: Relay) -> None:
    """A claim that was to last beyond the jump lasts for its lease from then on: who lives keeps it, who is dead loses it."""
    ahead.tell("ana")
    claim = ahead.app.claims.claim("dispatch", "default", "bulk", now=ahead.clock())
    assert claim is not None
    ahead.travel(hours=-3)
    ahead.reap()
    assert ahead.claims() == 1, "its holder may be alive"
    ahead.travel(minutes=2)
    ahead.reap()
    assert ahead.claims() == 0


def test_a_breaker_is_probed_and_pauses_end(ahead: Relay) -> None:
    """A project that was stopped before the jump is tried again, and so are its receipts."""
    ahead.tell("ana")
    ahead.conn.execute(
        f"""insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips, receipts_after)
            values ('default', now(), 'open', 'HTTP 500', 'request', {AHEAD}, {AHEAD} + interval '1 minute', 1, {AHEAD})""".encode()
    )
    ahead.travel(hours=-3)
    ahead.reap()
    ahead.dispatch()
    assert ahead.received("ana") == 1
    assert ahead.project()["receipts_after"] is None


def test_an_event_that_was_to_go_out_at_once_is_fanned_out(ahead: Relay) -> None:
    """One that was enqueued before the jump, for then, goes out; one that was scheduled for later still waits."""
    ahead.register("ana")
    soon, later = ahead.enqueue(), ahead.enqueue()
    ahead.conn.execute(f"update relevo.notification_events set created_at = {AHEAD}, scheduled_at = {AHEAD}".encode())
    ahead.conn.execute(
        "update relevo.notification_events set scheduled_at = scheduled_at + interval '1 hour' where id = %s", [later]
    )
    ahead.travel(hours=-3)
    ahead.reap()
    ahead.fan_out()
    states = dict(ahead.conn.execute("select id, state from relevo.notification_events").fetchall())
    assert states == {soon: "fanned", later: "waiting"}


@pytest.mark.parametrize(
    "how",
    [
        "state = 'fanning', event_day = current_date, fanout_started_at = now(), fanout_upto = 1000000, fanout_cursor = 0",
        f"fanout_failures = 3, fanout_error = 'no', fanout_retry_at = {AHEAD}",
    ],
)
def test_an_event_in_the_midst_of_its_fan_out_goes_on(ahead: Relay, how: str) -> None:
    """One that had its turn before the jump, or failed and was to be tried again, has its next one after the reaper's round."""
    ahead.register("ana")
    event = ahead.enqueue()
    ahead.conn.execute(
        f"update relevo.notification_events set turn_at = {AHEAD}, {how} where id = %s".encode(), [event]
    )
    ahead.travel(hours=-3)
    ahead.conn.execute("update relevo.notification_events set created_at = now(), scheduled_at = now()")
    ahead.fan_out()
    assert ahead.conn.execute("select state <> 'fanned' from relevo.notification_events").fetchone() == (True,)
    ahead.reap()
    ahead.fan_out()
    assert ahead.conn.execute("select state from relevo.notification_events").fetchone() == ("fanned",)


def test_receipts_are_asked_for(ahead: Relay) -> None:
    """What was sent before the jump is asked about after it, as soon as the reaper noticed."""
    ahead.tell("ana")
    ahead.dispatch()
    ahead.conn.execute(
        f"update relevo.awaited_receipts set sent_at = {AHEAD}, look_at = {AHEAD} + interval '15 minutes'".encode()
    )
    ahead.travel(hours=-3)
    ahead.reap()
    ahead.ask()
    assert ahead.delivery("ana")["status"] == "ok"


def test_what_could_not_be_brought_to_now_is_tried_again_and_keeps_nothing_else_waiting(ahead: Relay) -> None:
    """Of one kind nothing can be written: the others are brought to now in the same round, and that one in a later round."""
    ahead.tell("ana")
    ahead.conn.execute(
        f"""insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips)
            values ('default', now(), 'open', 'HTTP 500', 'request', {AHEAD}, {AHEAD}, 1)""".encode()
    )
    ahead.travel(hours=-3)
    ahead.conn.execute(
        """create function public.refuse_it() returns trigger language plpgsql as $f$
           begin raise exception 'this row cannot be written' using errcode = 'check_violation'; end $f$;
           create trigger refuse_it before update on relevo.projects for each row execute function public.refuse_it()"""
    )
    try:
        report = ahead.reap()
    finally:
        ahead.conn.execute("drop function public.refuse_it() cascade")
    assert "this row cannot be written" in str(report.error)
    assert ahead.conn.execute("select due_at <= %s from relevo.due_chunks", [ahead.clock()]).fetchone() == (True,)
    ahead.reap()
    ahead.dispatch()
    assert ahead.received("ana") == 1
    assert ahead.reap().error == ""


@pytest.mark.parametrize(("by_s", "is_told"), [(3, False), (30, True)])
def test_how_far_a_clock_has_to_be_set_back(relay, by_s: int, is_told: bool) -> None:
    """Clocks differ by some seconds; a clock that was set back by half a minute is told of."""
    worker = relay()
    worker.travel(seconds=by_s)
    worker.reap()
    worker.travel(seconds=-by_s)
    assert ("clock was set back" in str(worker.reap().error)) is is_told
