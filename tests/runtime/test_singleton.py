"""Fleet-wide cycles: one at a time and once per slot, whoever is killed, paused or asked by hand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from relevo.core.errors import LostLeaseError
from relevo.core.model import Step
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.timing import Cron, Every
from support.processes import PATIENCE_S, eventually, never

LEASE_MS = 6_000  # a quarter of it is how long a statement may take
LEASE = timedelta(milliseconds=LEASE_MS)
MARGIN = timedelta(seconds=PATIENCE_S)  # for busy cores; who does not look for the lease's end looks after an hour
FLEET: dict[str, Any] = {"outbox_lease_duration_ms": LEASE_MS, "worker_idle_backoff_jitter_ms": 20}
NIGHTLY = {"name": "nightly", "cron": "17 3 * * *"}


def nightly(step: Any) -> Cycle:
    """Make a fleet-wide cycle whose slot is last night."""
    return Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), step, singleton=True)


def lease(conn: Any, cycle: str = "nightly") -> Any:
    """Read who holds a cycle and until when."""
    return conn.execute("select worker_id, leased_until from relevo.cycle_leases where cycle = %s", [cycle]).fetchone()


def slot_of(moment: datetime) -> datetime:
    """Return the second that a moment lies in."""
    return moment.replace(microsecond=0)


def test_three_replicas_are_not_three_times_as_often(processes, probed, runs, rows) -> None:
    """Last night's slot runs once, and an interval's slots once each, however many replicas there are."""
    probes = [NIGHTLY | {"hold_ms": 300}, {"name": "gather", "every_ms": 1_000, "hold_ms": 50}]
    with ExitStack() as stack:
        fleet = [processes.relay("run", probes=probes, worker_id=f"w-{n}", **FLEET) for n in range(3)]
        for replica in fleet:
            stack.callback(replica.stops)
        for replica in fleet:
            replica.hears("worker_started")
        eventually(lambda: len(runs("gather", "ok")) >= 3, "three slots of the interval")
        skipped = "select slots_skipped from relevo.cycle_state where cycle = 'nightly'"
        eventually(lambda: rows(skipped) == [{"slots_skipped": 2}], "the two others found last night taken")
        [filled] = eventually(lambda: runs("nightly", "ok"), "last night's run ended")
    slots = [row["slot_at"] for row in runs("gather", "ok") if row["slot_at"]]  # one that was stopped gives its back
    assert len(set(slots)) == len(slots)
    assert all(later > earlier and slot_of(later) == later for earlier, later in pairwise(slots))
    assert Counter(row["word"] for row in probed("nightly")) == {"begin": 1, "end": 1}
    assert runs("nightly") == [filled], "the two others left no row"
    assert rows(skipped) == [{"slots_skipped": 2}]


def test_a_killed_night_is_run_by_another_within_a_lease(processes, probed, conn, runs) -> None:
    """SIGKILL in the middle: the run ends abandoned, and another replica runs the same slot within one lease, once."""
    probe = NIGHTLY | {"hold_ms": 600_000}
    fleet = {n: processes.relay("run", probes=[probe], worker_id=n, **FLEET) for n in ("w-1", "w-2", "w-3")}
    for replica in fleet.values():
        replica.hears("worker_started")
    [first] = eventually(lambda: probed("nightly", "begin"), "somebody began")
    victim = fleet.pop(first["worker_id"])
    victim.kill()
    [killed_at] = conn.execute("select clock_timestamp()").fetchone()
    begun = eventually(lambda: probed("nightly", "begin")[1:], "another took over")[0]
    processes.release()
    [taken] = [row for row in runs("nightly") if row["id"] == begun["run_id"]]
    assert taken["started_at"] - killed_at <= LEASE + MARGIN
    [filled] = eventually(lambda: runs("nightly", "ok"), "the night was finished")
    [abandoned] = runs("nightly", "abandoned")
    assert (abandoned["worker_id"], abandoned["slot_at"]) == (first["worker_id"], filled["slot_at"])
    assert first["worker_id"] in abandoned["error_message"]
    never(lambda: len(probed("nightly", "begin")) > 2, "it ran a third time", during=0.5)
    assert [row["worker_id"] for row in probed("nightly", "end")] == [filled["worker_id"]]


INSIDE = NIGHTLY | {"name": "inside"}


def test_a_paused_holder_cannot_write(processes, probed, conn, runs) -> None:
    """SIGSTOP for longer than the lease, between transactions or inside of one: another takes over unhindered; after
    SIGCONT the first one writes nothing."""
    held = [NIGHTLY | {"hold_ms": 600_000}, INSIDE | {"hold_ms": 600_000, "hold_inside": True}]
    paused = processes.relay("run", probes=held, worker_id="paused", **FLEET)
    for name in ("nightly", "inside"):
        paused.hears("probe_holds", probe=name)
    paused.pause()
    leased_until = max(lease(conn, name)[1] for name in ("nightly", "inside"))
    processes.relay("run", probes=[NIGHTLY, INSIDE], worker_id="successor", **FLEET)
    filled = {name: eventually(lambda n=name: runs(n, "ok"), f"it ran {name}")[0] for name in ("nightly", "inside")}
    [ready_at] = conn.execute("select started_at from relevo.workers where worker_id = 'successor'").fetchone()
    processes.release()
    paused.go_on()
    for name, row in filled.items():
        assert row["worker_id"] == "successor"
        assert row["started_at"] - max(leased_until, ready_at) < MARGIN, "takeover had to wait"
        line = paused.hears("run_finished", cycle=name)
        not_written = "not written: the run was abandoned or the database is gone"
        assert (line["outcome"], line["row"]) == ("failed", not_written)
        [abandoned] = runs(name, "abandoned")
        assert (abandoned["id"], abandoned["worker_id"]) == (line["run_id"], "paused")
        assert (abandoned["slot_at"], abandoned["counts"]) == (row["slot_at"], {})
        written = [(each["worker_id"], each["word"]) for each in probed(name)]
        began = [("paused", "begin")] if name == "nightly" else []  # what was inside a transaction is undone
        assert written == [*began, ("successor", "begin"), ("successor", "end")]
    assert "nightly was taken over by another process" in paused.hears("run_finished", cycle="nightly")["error"]
    again = "select from relevo.worker_runs where cycle in ('nightly', 'inside') and outcome in ('ok', 'failed')"
    never(lambda: len(conn.execute(again).fetchall()) > 2, "it was written after all", during=0.5)
    assert paused.stops() == 0


def test_by_hand_cannot_overlap_a_running_singleton(processes, probed, runs) -> None:
    """`relevo run-cycle` in another process is skipped with a row, a reason and exit code 3 meanwhile."""
    holder = processes.relay("run", probes=[{"name": "cleanup", "around_ms": 600_000}], worker_id="holder")
    holder.hears("middleware_holds")
    manual = processes.relevo("run-cycle", "cleanup", worker_id="manual", **FLEET)
    assert manual.ends() == 3
    assert "locked by worker holder" in manual.stdout
    [row] = runs("cleanup", "skipped")
    assert (row["trigger"], row["reason"]) == ("manual", "locked by worker holder")
    assert row["worker_id"].startswith("manual:")
    assert manual.hears("run_skipped")["run_id"] == row["id"]
    assert [row["outcome"] for row in runs("cleanup")] == ["running", "skipped"]


def test_a_replica_waits_for_a_run_by_hand(processes, probed, runs) -> None:
    """A run by hand fills no slot: the replica that met it looks again when the lease is given back, and fills it."""
    manual = processes.relay(
        "run-cycle",
        "cleanup",
        probes=[{"name": "cleanup", "around_ms": 600_000}],
        worker_id="manual",
        **FLEET | {"outbox_lease_duration_ms": 8_000},
    )
    manual.hears("middleware_holds")
    replica = processes.relevo("run", worker_id="replica", log_level="debug", **FLEET)
    assert replica.hears("run_skipped", cycle="cleanup")["reason"].startswith("locked by worker manual:")
    processes.release()
    filled = eventually(lambda: [row for row in runs("cleanup", "ok") if row["worker_id"] == "replica"], "it ran")[0]
    [by_hand] = [row for row in runs("cleanup", "ok") if row["worker_id"].startswith("manual:")]
    assert manual.ends() == 0
    assert by_hand["finished_at"] <= filled["started_at"]
    assert (by_hand["slot_at"], filled["slot_at"] is not None) == (None, True)


def test_a_long_run_keeps_its_lease(build, conn, runs) -> None:
    """A run that lasts several leases is never overlapped: the heartbeat extends what it holds."""
    one = build(worker_id="one", outbox_lease_duration_ms=3_000)
    two = build(worker_id="two", outbox_lease_duration_ms=3_000)
    one.heartbeat.start()
    done = threading.Event()

    def step(_run: Run) -> Step:
        _, first = lease(conn)
        eventually(lambda: lease(conn)[1] > first + timedelta(seconds=4), "the lease was extended more than once over")
        return Step({"done": 1}, items=1)

    thread = threading.Thread(target=lambda: (one.runner.run(nightly(step), "schedule"), done.set()))
    thread.start()
    eventually(lambda: runs("nightly", "running"), "it began")
    while not done.wait(0.1):
        asked = two.runner.run(nightly(step), "wake-up")
        assert asked.outcome == "skipped", "it was overlapped"
        assert asked.reason == "locked by worker one" or done.wait(PATIENCE_S)
    thread.join()
    assert [row["worker_id"] for row in runs("nightly", "ok")] == ["one"]


def test_a_taken_over_holder_finds_nothing_to_hold_on_to(build, conn, probed) -> None:
    """Every transaction of a holder begins with its fence: after a takeover that raises, and nothing is written."""
    one, two = build(worker_id="one"), build(worker_id="two")
    seen: list[type[BaseException]] = []
    writes = "insert into public.probe (cycle, word) values ('nightly', 'after')"

    def step(run: Run) -> Step:
        if run.context.worker_id == "two":
            return Step({"done": 1}, items=1)
        with run.transaction() as connection:
            connection.execute("insert into public.probe (cycle, word) values ('nightly', 'before')")
        conn.execute("update relevo.cycle_leases set leased_until = now()")
        assert two.runner.run(nightly(step), "schedule").outcome == "ok"
        with pytest.raises(LostLeaseError):
            run.execute(writes.encode())
        try:
            with run.transaction() as connection:
                connection.execute(writes)
        except LostLeaseError as error:
            seen.append(type(error))
            raise
        return Step()

    report = one.runner.run(nightly(step), "schedule")
    assert (report.outcome, seen) == ("failed", [LostLeaseError])
    assert [row["word"] for row in probed("nightly")] == ["before"]
    assert conn.execute("select outcome, worker_id from relevo.worker_runs order by id").fetchall() == [
        ("abandoned", "one"),
        ("ok", "two"),
    ]


def test_a_holder_takes_no_step_after_its_lease_was_lost(build) -> None:
    """A run learns between two steps that its lease is gone, whatever the reason, and fails."""
    worker = build()
    steps: list[int] = []

    def step(run: Run) -> Step:
        steps.append(1)
        assert run.held is not None
        run.held.lose("error", "The heartbeat could not reach the database.")
        return Step({"done": 1}, items=1, more=True)

    report = worker.runner.run(nightly(step), "schedule")
    assert (report.outcome, len(steps)) == ("failed", 1)
    assert "lost its lease" in report.error


def test_a_lease_given_back_is_free_at_once_and_for_good(build, conn) -> None:
    """After a run the next need not wait, terms only rise, and a heartbeat under way does not revive the lease."""
    one, two = build(worker_id="one"), build(worker_id="two")
    held: list[Any] = []
    step = lambda run: held.append(run.held) or Step()  # noqa: E731
    assert one.runner.run(nightly(step), "manual").outcome == "idle"
    one.heartbeat.keep(held[0].holder, held[0], one.runner._singletons.renew)
    one.heartbeat.beat()  # as if it had looked before the lease was given back
    assert held[0].lost.is_set()
    assert two.runner.run(nightly(step), "manual").outcome == "idle"
    assert one.runner.run(nightly(step), "manual").outcome == "idle"
    assert [each.term for each in held] == [1, 2, 3]
    assert conn.execute("select term from relevo.cycle_terms").fetchone() == (3,)


def test_a_former_holder_that_still_writes_is_waited_for(build, conn, dsn: str, runs) -> None:
    """A takeover that meets an open transaction of the former holder is a skip that looks again, not a failure."""
    worker = build(outbox_lease_duration_ms=3_000)  # it waits for the lock for a part of that
    step = lambda _run: Step()  # noqa: E731
    worker.runner.run(nightly(step), "manual")
    with psycopg.connect(dsn) as former:
        former.execute("select term from relevo.cycle_terms for share")  # the fence of an open transaction
        report = worker.runner.run(nightly(step), "schedule")
        assert (report.outcome, report.look_again_in_s) == ("skipped", 1.0)
        assert "still writing" in report.reason
    assert worker.runner.run(nightly(step), "schedule").outcome == "idle"
    assert [row["outcome"] for row in runs("nightly")] == ["ok", "ok"]


def test_nobody_takes_over_while_a_fenced_transaction_is_open(build, conn, probed, runs) -> None:
    """A holder whose lease ran out in the middle of a transaction commits it before a successor's term counts."""
    one = build(worker_id="one")
    two = build(worker_id="two", outbox_lease_duration_ms=900)  # it waits for a lock for a quarter of that
    met: list[tuple[str, str]] = []

    def step(run: Run) -> Step:
        if run.context.worker_id == "two":
            return Step({"done": 1}, items=1)
        with run.transaction() as connection:
            connection.execute("insert into public.probe (cycle, word) values ('nightly', 'one')")
            conn.execute("update relevo.cycle_leases set leased_until = now()")
            asked = two.runner.run(nightly(step), "schedule")
            met.append((asked.outcome, asked.reason))
        return Step()

    one.runner.run(nightly(step), "schedule")
    assert met == [("skipped", "another process is taking it, or its former holder is still writing")]
    assert [row["word"] for row in probed("nightly")] == ["one"], "what was written under the fence is kept"


def test_a_failed_slot_is_tried_again_later_by_one(build, conn, runs, said) -> None:
    """A slot that failed is retried after a growing pause, by one replica at a time, until it is filled."""
    inside: list[str] = []

    def step(run: Run) -> Step:
        inside.append(run.context.worker_id)
        assert len(inside) == 1, "two at once"
        time.sleep(0.05)
        inside.clear()
        if len(runs("nightly", "failed")) < 2:
            raise RuntimeError("not yet")
        return Step({"done": 1}, items=1)

    with ExitStack() as stack:
        for name in ("one", "two", "three"):
            worker = build(
                worker_id=name, outbox_lease_duration_ms=20_000, worker_tick_loop_error_backoff_ms=400,
                worker_tick_loop_max_jitter_ms=0,
            )  # fmt: skip
            scheduler = Scheduler(worker.runner, [nightly(step)], worker.settings)
            scheduler.start()
            stack.callback(scheduler.stop, 5)
        eventually(lambda: runs("nightly", "ok"), "the slot was filled")
        never(lambda: len(runs("nightly", "ok")) > 1, "it was filled twice", during=0.3)
    tries = [row for row in runs("nightly") if row["outcome"] != "skipped"]
    assert [row["outcome"] for row in tries] == ["failed", "failed", "ok"]
    assert len({row["slot_at"] for row in tries}) == 1
    pauses = [(later["started_at"] - earlier["finished_at"]).total_seconds() for earlier, later in pairwise(tries)]
    assert pauses[0] >= 0.4
    assert pauses[1] >= 0.8
    assert max(pauses) < PATIENCE_S


def test_another_replica_does_not_run_into_a_fresh_failure(build, conn, runs, said) -> None:
    """Right after a failure the slot is closed to all for the error pause, doubled by the second; then it is open."""
    broken = [True, True, False]

    def step(_run: Run) -> Step:
        if broken.pop(0):
            raise RuntimeError("not yet")
        return Step({"done": 1}, items=1)

    one = build(worker_id="one", worker_tick_loop_error_backoff_ms=800_000)
    two = build(worker_id="two", worker_tick_loop_error_backoff_ms=800_000)
    for failing, other, pause_s in ((one, two, 800), (two, one, 1_600)):
        assert failing.runner.run(nightly(step), "schedule").outcome == "failed"
        asked = other.runner.run(nightly(step), "schedule")
        assert (asked.outcome, asked.reason.endswith("failed just now and is tried again later")) == ("skipped", True)
        assert asked.look_again_in_s is not None
        assert pause_s - PATIENCE_S < asked.look_again_in_s <= pause_s + 0.1
        conn.execute("update relevo.worker_runs set finished_at = finished_at - %s * interval '1 s'", [pause_s])
    assert one.runner.run(nightly(step), "schedule").outcome == "ok"
    assert len(runs("nightly", "failed")) == 2


def test_an_interval_slot_is_not_run_again_within_it(build, runs) -> None:
    """Two replicas and a restarted one, all within the same hour, run an hourly singleton once."""
    hourly = Cycle("hourly", Every(3_600_000), lambda _run: Step({"done": 1}, items=1), singleton=True)
    outcomes = [build(worker_id=name).runner.run(hourly, "schedule").outcome for name in ("one", "two", "one-again")]
    assert outcomes == ["ok", "skipped", "skipped"]
    by_hand = build(worker_id="hand").runner.run(hourly, "manual")
    assert by_hand.outcome == "ok", "a person who asks for it gets it"
    assert len(runs("hourly", "ok")) == 2


def fill_slots(conn: Any, cycle: Cycle, slots: int) -> None:
    """Fill the present slot and the coming ones, as runs do before the clock is set back by so many slots."""
    assert isinstance(cycle.timing, Every)
    conn.execute(
        """
        insert into relevo.worker_runs (cycle, slot_at, trigger, worker_id, started_at, finished_at, outcome)
        select %(cycle)s, at, 'schedule', 'before', at + interval '1 ms', at + interval '2 ms', 'ok'
          from (select date_bin(%(ms)s * interval '1 ms', now(), 'epoch'::timestamptz) + n * %(ms)s * interval '1 ms' as at
                  from generate_series(0, %(slots)s) n) s
        """,
        {"cycle": cycle.name, "ms": cycle.timing.interval_ms, "slots": slots},
    )


def test_a_clock_that_was_set_back_stalls_no_interval(build, conn, runs) -> None:
    """Slots that were filled by a clock hours ahead come again: each runs once more, in the whole fleet once."""
    hourly = Cycle("hourly", Every(3_600_000), lambda _run: Step({"done": 1}, items=1), singleton=True)
    fill_slots(conn, hourly, slots=3)
    one, two = build(worker_id="one"), build(worker_id="two")
    outcomes = [worker.runner.run(hourly, "schedule").outcome for worker in (one, two, one)]
    assert outcomes == ["ok", "skipped", "skipped"]
    before = [(row["slot_at"], row["reason"]) for row in runs("hourly", "ok") if row["worker_id"] == "before"]
    assert before == [(None, "its slot came again: the clock was set back")] * 4


@pytest.mark.parametrize("slots", [0, 1])
def test_a_clock_set_back_by_less_than_a_slot_repeats_nothing(build, conn, slots: int) -> None:
    """The present slot stays filled, also if the next one is: a correction of the clock is no second night."""
    hourly = Cycle("hourly", Every(3_600_000), lambda _run: Step({"done": 1}, items=1), singleton=True)
    fill_slots(conn, hourly, slots)
    assert build().runner.run(hourly, "schedule").outcome == "skipped"


def test_a_lease_from_a_clock_ahead_is_not_waited_for(build, conn) -> None:
    """A holder that died before the clock was set back holds nothing for hours; what was given back is not revived."""
    worker = build(worker_id="one", outbox_lease_duration_ms=LEASE_MS)
    assert worker.runner.run(nightly(lambda _run: Step()), "manual").outcome == "idle"
    _, given_back = lease(conn)
    assert given_back < conn.execute("select now() - interval '10 years'").fetchone()[0]
    conn.execute("update relevo.cycle_leases set worker_id = 'dead', leased_until = now() + interval '2 hours'")
    assert worker.runner.run(nightly(lambda _run: Step()), "manual").outcome == "idle"
    conn.execute(
        "update relevo.cycle_leases set worker_id = 'alive', leased_until = now() + lease_ms * interval '1 ms'"
    )
    assert worker.runner.run(nightly(lambda _run: Step()), "manual").outcome == "skipped"
