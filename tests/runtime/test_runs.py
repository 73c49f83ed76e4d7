"""What a run leaves behind: a row where there is something to tell, one log line, and middlewares around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC
from typing import Any

import psycopg
import pytest
import structlog

from relevo.core.errors import RelevoError
from relevo.core.model import Budget, Step
from relevo.runtime.runner import Runner
from relevo.runtime.runs import Cycle, Ending, Run, RunContext
from relevo.runtime.timing import Cron, Every
from support.processes import PATIENCE_S, eventually

COUNTERS = [
    "licitaciones_found", "licitaciones_new", "notifications_sent", "notifications_retryable", "notifications_failed",
    "notifications_invalidated", "targets_selected", "deliveries_created", "receipts_processed",
    "archived_licitaciones", "archived_deliveries",
]  # fmt: skip
HOURLY = Every(3_600_000)


def cycle(step: Callable[[Run], Step], *, name: str = "probe", **more: Any) -> Cycle:
    """Make a cycle that runs all over the fleet."""
    return Cycle(name, HOURLY, step, **more)


def failing(error: BaseException) -> Callable[[Run], Step]:
    """Make a step that raises."""

    def step(_run: Run) -> Step:
        raise error

    return step


def state(rows: Any, name: str = "probe") -> Any:
    """Read a cycle's line of cycle_state."""
    columns = "rounds, idle_rounds, wakeups_skipped, slots_skipped"
    return rows(f"select {columns} from relevo.cycle_state where cycle = %s", [name])[0]


def test_idle_rounds_are_counted_not_written(build, rows, said) -> None:
    """A round that found nothing bumps the cycle's line and leaves neither a row nor a log line."""
    worker = build()
    for _ in range(3):
        report = worker.runner.run(cycle(lambda _run: Step({"done": 0})), "schedule")
        assert (report.outcome, report.run_id) == ("idle", None)
    assert state(rows) == {"rounds": 3, "idle_rounds": 3, "wakeups_skipped": 0, "slots_skipped": 0}
    assert rows("select * from relevo.worker_runs") == []
    assert said("run_finished") == []


def test_a_run_that_outlasts_its_interval_is_warned_of(build, said) -> None:
    """A run still under way when its cycle was due again is a warning; one that stays for calls is none."""
    worker, seconds = build(), []

    def step(run: Run) -> Step:
        run.started -= seconds.pop()  # as if it had begun so long ago
        return Step({"done": 1})

    for name, took_s, more in (("slow", 3_601.0, {}), ("quick", 3_599.0, {}), ("stays", 3_601.0, {"wakeable": True})):
        seconds.append(took_s)
        worker.runner.run(cycle(step, name=name, **more), "schedule")
    (line,) = said("run_overlapped")
    assert (line["cycle"], line["level"], line["interval_s"]) == ("slow", "warning", 3_600)
    assert line["duration_s"] >= 3_601


def test_work_is_a_row_and_a_line(build, runs, rows, said) -> None:
    """A run that did work has one row and one line with run id, cycle, worker, trigger, duration and counts."""
    worker = build(worker_id="w-1")
    report = worker.runner.run(cycle(lambda _run: Step({"done": 2, "nothing": 0}, items=2)), "schedule")
    [row] = runs("probe")
    assert report.run_id == row["id"]
    assert (row["outcome"], row["trigger"], row["worker_id"], row["worker_name"]) == ("ok", "schedule", "w-1", "probe")
    assert (row["counts"], row["error_message"], row["reason"], row["slot_at"]) == ({"done": 2}, None, None, None)
    assert row["started_at"] <= row["finished_at"]
    [line] = said("run_finished")
    assert line.items() >= {
        "run_id": row["id"], "cycle": "probe", "worker_id": "w-1", "trigger": "schedule", "outcome": "ok",
        "counts": {"done": 2}, "level": "info",
    }.items()  # fmt: skip
    assert 0 <= line["duration_ms"] < 5_000
    assert state(rows) == {"rounds": 1, "idle_rounds": 0, "wakeups_skipped": 0, "slots_skipped": 0}


def test_a_run_is_a_busy_period(build, runs) -> None:
    """Steps follow each other while they find more; together they are one row with the sums."""
    worker = build()
    sizes = iter([100, 100, 7])
    step = lambda _run: Step({"done": (n := next(sizes))}, items=n, more=n == 100)  # noqa: E731
    assert worker.runner.run(cycle(step), "schedule").outcome == "ok"
    assert [row["counts"] for row in runs("probe")] == [{"done": 207}]


def test_work_in_progress_can_be_seen(build, runs) -> None:
    """After its first step with work a run stands there as running, without an end."""
    worker = build()
    seen: list[Any] = []

    def step(run: Run) -> Step:
        seen.append([(row["outcome"], row["finished_at"]) for row in runs("probe")])
        return Step({"done": 1}, items=1, more=len(seen) < 2)

    worker.runner.run(cycle(step), "schedule")
    assert seen == [[], [("running", None)]]


@pytest.mark.parametrize("singleton", [True, False])
def test_the_seed_s_counters_can_be_selected(build, rows, singleton: bool) -> None:
    """Every counter column shows what the counts hold, and 0 where they hold nothing."""
    worker = build()
    counts = {name: number for number, name in enumerate(COUNTERS, start=1)}
    worker.runner.run(cycle(lambda _run: Step(counts, items=1), singleton=singleton), "manual")
    worker.runner.run(cycle(lambda _run: Step({"other": 1}, items=1), name="second", singleton=singleton), "manual")
    columns = ", ".join([*COUNTERS, "error_message", "worker_name"])
    first, second = rows(f"select {columns} from relevo.worker_runs order by id")
    assert first == counts | {"error_message": None, "worker_name": "probe"}
    assert second == dict.fromkeys(COUNTERS, 0) | {"error_message": None, "worker_name": "second"}


def test_problems_make_a_run_partial(build, runs, said) -> None:
    """A step that met problems but went on ends as partial, with the problems, scrubbed and bounded."""
    worker = build()
    problems = ("source a: password=hunter2 refused", "x" * 600)
    worker.runner.run(cycle(lambda _run: Step({"done": 1}, items=1, problems=problems)), "schedule")
    [row] = runs("probe")
    assert row["outcome"] == "partial"
    assert row["error_message"].startswith("source a: password=*** refused; xxx")
    assert len(row["error_message"]) == 500
    assert "hunter2" not in said("run_finished")[0]["error"]


def test_a_failure_is_a_row_with_a_clean_bounded_error(build, runs, said) -> None:
    """Whatever is raised becomes a failed row and an error line: one line, no secrets, at most 500 characters."""
    worker = build()
    for error, message in [
        (ValueError("bad\n\tthing\x00here"), "ValueError: bad thing here"),
        (
            ConnectionError("postgresql://app:hunter2@db/x refused"),
            "ConnectionError: postgresql://app:***@db/x refused",
        ),
        (RelevoError("The source is closed.", hint="Try later."), "The source is closed. Try later."),
        (KeyError(), "KeyError"),
        (RelevoError(""), "no reason was given"),
        (ValueError("é" * 1_000), "ValueError: " + "é" * 487 + "…"),
    ]:
        report = worker.runner.run(cycle(failing(error)), "schedule")
        *_, row = runs("probe")
        assert (report.outcome, row["outcome"], row["error_message"]) == ("failed", "failed", message), message
        *_, line = said("run_finished")
        assert (line["level"], line["outcome"]) == ("error", "failed"), message


def test_a_surprise_has_its_stack_in_the_log(build, said) -> None:
    """What nobody expected is told at error level with where it was raised, without secrets; an error with a next step is not."""
    worker = build()
    worker.runner.run(cycle(failing(RelevoError("The source is closed.", hint="Try later."))), "schedule")
    assert said("run_raised") == []
    worker.runner.run(cycle(failing(ValueError("postgresql://app:hunter2@db/x is odd"))), "schedule")
    [line] = said("run_raised")
    assert line["level"] == "error"
    assert "Traceback" in line["exception"]
    assert "is odd" in line["exception"]
    assert "hunter2" not in line["exception"]


def test_what_was_done_before_the_failure_is_counted(build, runs) -> None:
    """A run that fails in its third step still tells what the first two did."""
    steps = iter([Step({"done": 5}, items=5, more=True)] * 2)
    build().runner.run(cycle(lambda _run: next(steps)), "schedule")
    [row] = runs("probe")
    assert (row["outcome"], row["counts"], row["error_message"]) == ("failed", {"done": 10}, "StopIteration")


def test_every_line_below_a_run_carries_its_id(build, said, runs) -> None:
    """What a step logs has the run's id, cycle and worker; lines after the run do not."""
    worker = build(worker_id="w-1")

    def step(_run: Run) -> Step:
        structlog.get_logger("anything").info("below")
        return Step({"done": 1}, items=1)

    worker.runner.run(cycle(step, source="here"), "schedule")
    structlog.get_logger("anything").info("outside")
    [row] = runs("probe")
    [below], [outside] = said("below"), said("outside")
    assert (below["run_id"], below["cycle"], below["worker_id"]) == (row["id"], "probe:here", "w-1")
    assert not {"run_id", "cycle", "worker_id"} & outside.keys()


def test_middlewares_wrap_a_run_in_order(build, rows) -> None:
    """The first middleware is the outermost; each sees the run's context and may change its ending."""
    order: list[str] = []
    contexts: list[RunContext] = []

    def middleware(name: str) -> Callable[[RunContext, Callable[[], Ending]], Ending]:
        def wrap(context: RunContext, following: Callable[[], Ending]) -> Ending:
            order.append(f"{name} before")
            contexts.append(context)
            ending = following()
            order.append(f"{name} after")
            return Ending(ending.outcome, {**ending.counts, name: 1}, ending.error, ending.more)

        return wrap

    def step(_run: Run) -> Step:
        order.append("step")
        return Step({"done": 1}, items=1)

    worker = build(middlewares=[middleware("one"), middleware("two")])
    report = worker.runner.run(cycle(step), "manual")
    assert order == ["one before", "two before", "step", "two after", "one after"]
    assert {(context.run_id, context.cycle, context.trigger) for context in contexts} == {
        (report.run_id, "probe", "manual")
    }
    assert rows("select counts from relevo.worker_runs") == [{"counts": {"done": 1, "one": 1, "two": 1}}]


@pytest.mark.parametrize("singleton", [True, False])
@pytest.mark.parametrize("when", ["before", "after", "returns nothing"])
def test_a_middleware_that_breaks_fails_the_run(build, rows, said, when: str, singleton: bool) -> None:
    """Raising before or after next(), or forgetting to return its ending, is the run's failure; no lease is kept."""

    def broken(_context: RunContext, following: Callable[[], Ending]) -> Ending:
        if when == "before":
            raise RuntimeError("broken before")
        following()
        if when == "after":
            raise RuntimeError("broken after")
        return None  # type: ignore[return-value]

    report = build(middlewares=[broken]).runner.run(
        cycle(lambda _run: Step({"done": 1}, items=1), singleton=singleton), "manual"
    )
    [row] = rows("select * from relevo.worker_runs")
    assert (report.outcome, row["outcome"]) == ("failed", "failed")
    assert row["error_message"].startswith(f"RuntimeError: broken {when}" if when != "returns nothing" else "TypeError")
    assert row["counts"] == ({} if when == "before" else {"done": 1})
    assert len(said("run_finished")) == 1
    assert rows("select 1 from relevo.cycle_leases where leased_until > now()") == []


@pytest.mark.parametrize("outcome", ["partial", "failed"])
def test_an_ending_that_only_a_middleware_knows_of_is_written_down(build, runs, said, outcome: Any) -> None:
    """A round without work that a middleware ends as partial or failed has a row and a line, too."""
    worker = build(middlewares=[lambda _context, _next: Ending(outcome, error="half of it is missing")])
    assert worker.runner.run(cycle(lambda _run: Step()), "schedule").outcome == outcome
    assert [(row["outcome"], row["error_message"]) for row in runs("probe")] == [(outcome, "half of it is missing")]
    assert len(said("run_finished", outcome=outcome)) == 1


@pytest.mark.parametrize("trigger", ["manual", "tick", "wake-up"])
def test_a_second_thread_cannot_overlap_a_run(build, runs, rows, said, trigger: Any) -> None:
    """The in-process lock covers every trigger: who asks by hand gets a row and a line, the others are counted."""
    worker = build()
    began, hold = threading.Event(), threading.Event()
    entered: list[int] = []

    def step(run: Run) -> Step:
        entered.append(run.context.run_id)
        began.set()
        hold.wait(PATIENCE_S)
        return Step({"done": 1}, items=1)

    first = threading.Thread(target=worker.runner.run, args=[cycle(step), "schedule"])
    first.start()
    assert began.wait(PATIENCE_S)
    asked = worker.runner.run(cycle(step), trigger)
    hold.set()
    first.join(PATIENCE_S)
    assert (asked.outcome, asked.reason) == ("skipped", "already running in this process")
    assert len(entered) == 1
    ran, *skipped = runs("probe")
    assert (ran["trigger"], ran["outcome"]) == ("schedule", "ok")
    reported = [(row["id"], row["trigger"], row["outcome"], row["reason"]) for row in skipped]
    assert reported == ([(asked.run_id, "manual", "skipped", asked.reason)] if trigger == "manual" else [])
    counted = (state(rows)["wakeups_skipped"], state(rows)["slots_skipped"])
    assert counted == {"manual": (0, 0), "tick": (0, 1), "wake-up": (1, 0)}[trigger]
    warned = [(line["trigger"], line["level"]) for line in said("cycle_already_running", cycle="probe")]
    assert warned == ([] if trigger == "wake-up" else [(trigger, "warning")])
    lines = [(line["run_id"], line["trigger"], line["reason"]) for line in said("run_skipped", cycle="probe")]
    assert lines == [(row["id"], row["trigger"], row["reason"]) for row in skipped]
    assert worker.runner.run(cycle(lambda _run: Step()), "manual").outcome == "idle", "afterwards the lock is free"


def test_sources_of_a_cycle_do_not_lock_each_other(build) -> None:
    """A cycle runs once per source at a time, not once in all."""
    worker = build()
    met = threading.Barrier(2, timeout=PATIENCE_S)

    def step(_run: Run) -> Step:
        met.wait()  # both must be inside at once
        return Step({"done": 1}, items=1)

    threads = [
        threading.Thread(target=worker.runner.run, args=[cycle(step, source=source, singleton=True), "schedule"])
        for source in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not met.broken


def test_a_slot_that_another_replica_filled_is_counted(build, runs, rows) -> None:
    """A replica that finds a slot filled or held counts it once, however often it looks, and writes no row of it."""
    nightly = Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), lambda _run: Step(), singleton=True)
    one, two = build(worker_id="one"), build(worker_id="two")
    assert one.runner.run(nightly, "schedule").outcome == "idle"
    assert two.runner.run(nightly, "wake-up").outcome == "skipped"
    for _ in range(3):
        looked = two.runner.run(nightly, "schedule")
        assert (looked.outcome, looked.run_id) == ("skipped", None)
    [filled] = runs("nightly")
    assert (filled["outcome"], filled["worker_id"]) == ("ok", "one")
    assert looked.reason == f"slot {filled['slot_at'].astimezone(UTC):%Y-%m-%d %H:%M:%S}Z is filled"
    assert state(rows, "nightly") == {"rounds": 1, "idle_rounds": 0, "wakeups_skipped": 1, "slots_skipped": 1}


def test_fifty_replicas_leave_one_row_a_slot(build, conn, runs, rows) -> None:
    """However many replicas look at a slot, its run is the only row; a pause is one row, whoever finds it first."""
    often = Cycle("often", Every(86_400_000), lambda _run: Step({"done": 1}, items=1), singleton=True)
    fleet = [build(worker_id=f"w-{n}") for n in range(2)]
    runners = [fleet[n % 2].runner for n in range(50)]
    for runner in runners:
        runner._told_skips.clear()  # as if it were a process of its own
        runner.run(often, "schedule")
    assert [row["outcome"] for row in runs("often")] == ["ok"]
    assert state(rows, "often")["slots_skipped"] == 49
    conn.execute("update relevo.cycle_state set paused_at = now(), paused_reason = 'moving' where cycle = 'often'")
    for runner in runners:
        runner._told_skips.clear()
        runner.run(often, "schedule")
        runner.run(often, "tick")
    assert [(row["outcome"], row["reason"]) for row in runs("often")] == [("ok", None), ("skipped", "paused: moving")]
    assert state(rows, "often")["slots_skipped"] == 49 + 99
    runners[0].run(often, "manual")
    assert [row["trigger"] for row in runs("often")] == ["schedule", "schedule", "manual"], "who asks gets an answer"


def test_a_singleton_fills_its_slot_even_with_nothing_to_do(build, runs, said) -> None:
    """A slot run is a row and a line although it found nothing: the night is accounted for."""
    nightly = Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), lambda _run: Step(), singleton=True)
    build().runner.run(nightly, "schedule")
    [row] = runs("nightly")
    assert (row["outcome"], row["counts"], row["slot_at"] is not None) == ("ok", {}, True)
    assert len(said("run_finished")) == 1


def test_a_run_told_to_stop_gives_its_slot_back(build, runs) -> None:
    """A stop in the middle of a night's work leaves the slot free, and the next process goes on with it."""
    old, new = build(worker_id="old"), build(worker_id="new")

    def step(run: Run) -> Step:
        if run.context.worker_id == "old":
            old.runner.stopping.set()
        return Step({"done": 1}, items=1, more=run.context.worker_id == "old")

    nightly = Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), step, singleton=True)
    assert old.runner.run(nightly, "schedule").more
    assert new.runner.run(nightly, "schedule").outcome == "ok"
    assert new.runner.run(nightly, "schedule").outcome == "skipped"
    stopped, finished = runs("nightly", "ok")
    assert (stopped["worker_id"], stopped["slot_at"]) == ("old", None)
    assert stopped["reason"] is not None
    assert (finished["worker_id"], finished["slot_at"] is not None) == ("new", True)


def test_budgets_end_a_run(build, runs) -> None:
    """A run takes no further step once its items or its milliseconds are spent, and says that there is more."""
    worker = build()

    def step(run: Run) -> Step:
        taken.append(run.items_left)
        if len(taken) == 5:  # the second one of the second run
            eventually(lambda: run.ms_left <= 0, "the time is over")
        return Step({"done": 10, "left": run.items_left}, items=10, more=True)

    taken: list[int] = []
    report = worker.runner.run(cycle(step), "schedule", budget=Budget(max_ms=60_000, max_items=25))
    assert (report.counts["done"], report.more) == (30, True)
    report = worker.runner.run(cycle(step), "schedule", budget=Budget(max_ms=1_000, max_items=1_000))
    assert (report.counts["done"], report.more) == (20, True)


def test_a_round_may_end_before_one_that_began_later(build, conn, rows) -> None:
    """Rounds of two replicas are counted in any order: between them lies no time, and never less than none."""
    worker = build()
    conn.execute("insert into relevo.cycle_state (cycle, last_round_at) values ('probe', now() + interval '1 minute')")
    assert worker.runner.run(cycle(lambda _run: Step()), "schedule").outcome == "idle"
    assert rows("select rounds, round_gap_s from relevo.cycle_state where cycle = 'probe'") == [
        {"rounds": 1, "round_gap_s": 0.0}
    ]


def test_an_ending_waits_for_a_lock(build, conn, dsn: str, runs) -> None:
    """A run whose end cannot be written at once because a lock is held is written once it is free."""
    worker = build(outbox_lease_duration_ms=900)
    worker.runner.run(cycle(lambda _run: Step()), "schedule")  # makes the cycle's line
    with psycopg.connect(dsn) as other:
        other.execute("select * from relevo.cycle_state where cycle = 'probe' for update")
        thread = threading.Thread(
            target=worker.runner.run, args=[cycle(lambda _run: Step({"done": 1}, items=1)), "schedule"]
        )
        thread.start()
        eventually(lambda: runs("probe", "running"), "the run began")
        thread.join(0.6)  # longer than the lock timeout
        assert runs("probe", "running")
    thread.join(PATIENCE_S)
    assert [row["outcome"] for row in runs("probe")] == ["ok"]


def test_the_schema_refuses_impossible_runs(conn) -> None:
    """No running run has an end, no skip lacks a reason, no failure its error, and errors are bounded."""
    insert = (
        "insert into relevo.worker_runs"
        " (cycle, trigger, worker_id, started_at, finished_at, outcome, reason, error_message)"
        " values ('probe', 'manual', 'w', now(), %s, %s, %s, %s)"
    )
    for values in (
        ("now", "running", None, None),
        (None, "ok", None, None),
        ("now", "skipped", None, None),
        ("now", "failed", None, None),
        ("now", "abandoned", None, None),
        ("now", "failed", None, "x" * 501),
        ("now", "wonderful", None, None),
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute(insert, values)


def test_a_run_whose_end_a_crash_took_is_ended(build, conn, runs, said) -> None:
    """A run's end is committed without waiting for the disk: where a crash of the server takes it, the worker that
    lives on ends the row, though it finds nothing to do any more; a run under way there or elsewhere stays open."""
    worker, other = build(worker_id="w-1", outbox_lease_duration_ms=1_000), build(worker_id="w-2")
    started, release = threading.Event(), threading.Event()

    def work(run: Run) -> Step:
        run.begin_work()
        started.set()
        assert release.wait(PATIENCE_S)
        return Step({"done": 1}, items=1)

    release.set()
    lost = worker.runner.run(cycle(work), "schedule").run_id
    release.clear()
    started.clear()
    elsewhere = threading.Thread(target=lambda: other.runner.run(cycle(work), "schedule"))
    elsewhere.start()
    assert started.wait(PATIENCE_S)
    conn.execute(
        "update relevo.worker_runs set outcome = 'running', finished_at = null, counts = '{}' where id = %s", [lost]
    )

    def ended() -> bool:
        assert worker.runner.run(cycle(lambda _run: Step({})), "schedule").outcome == "idle"
        return runs("probe")[0]["outcome"] != "running"

    eventually(ended, "the row is ended", every=0.2)
    row, busy = runs("probe")
    assert (row["id"], row["outcome"]) == (lost, "abandoned")
    assert row["error_message"].startswith("how this run ended was not kept: ")
    assert busy["outcome"] == "running"
    [line] = said("run_abandoned")
    assert (line["abandoned_run"], line["of_cycle"], line["former_worker"]) == (lost, "probe", "w-1")
    release.set()
    elsewhere.join()
    assert runs("probe")[1]["outcome"] == "ok"


def test_nobody_keeps_the_lease_of_a_run_that_could_not_be_ended(build, monkeypatch) -> None:
    """Its end cannot be written: the heartbeat extends the lease of its cycle no longer, so that another worker gets it."""
    worker = build()
    monkeypatch.setattr(Runner, "_finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        worker.runner.run(Cycle("nightly", Every(60_000), lambda _run: Step(), singleton=True), "manual")
    assert worker.heartbeat._held == {}
