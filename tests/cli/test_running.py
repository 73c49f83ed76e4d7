"""What an operator types: run, run-cycle, pause, resume, runs, status, and the exit codes they are told."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relevo import cli
from relevo.cli import common
from relevo.core import logs
from relevo.core.errors import UsageError
from relevo.core.model import Step
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Every
from support.deliveries import add_deliveries
from support.processes import eventually, never

QUICK = {"name": "quick", "every_ms": 100, "singleton": False}
Ask = Callable[..., Result]


@pytest.fixture
def ask(dsn: str) -> Iterator[Ask]:
    """Ask the command line in this process: `ask("runs", "--json")`."""

    def run(*words: str, **settings: object) -> Result:
        environ = {"DATABASE_URL": dsn, "COLUMNS": "250"} | {name.upper(): str(v) for name, v in settings.items()}
        return CliRunner().invoke(cli.cli, words, env=environ)

    yield run
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, logs._Handler)]:
        root.removeHandler(handler)


def add_run(conn: Any, cycle: str, outcome: str, **values: Any) -> int:
    """Insert a run as the runner would have left it."""
    columns = {
        "cycle": cycle, "outcome": outcome, "trigger": "schedule", "worker_id": "w-1", "started_at": "now",
        "finished_at": None if outcome == "running" else "now",
        "error_message": "it broke" if outcome in ("failed", "abandoned") else None,
        "reason": "because" if outcome == "skipped" else None,
    } | values  # fmt: skip
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    row = conn.execute(
        f"insert into relevo.worker_runs ({names}) values ({marks}) returning id", list(columns.values())
    ).fetchone()
    return int(row[0])


def test_all_triggers_come_through_one_runner(processes, probed, conn) -> None:
    """Schedule, wake-up, tick and run-cycle pass the same middlewares: there is one way to start a cycle."""
    sleeper = QUICK | {"name": "sleeper", "every_ms": 3_600_000, "hold_ms": 1}
    slow = {"worker_busy_loop_delay_ms": 600_000, "worker_idle_backoff_jitter_ms": 0}
    replica = processes.relay("run", probes=[sleeper], **slow)
    once = [
        processes.relay(*words, probes=[sleeper])
        for words in (("tick", "--runners", "sleeper"), ("run-cycle", "sleeper"))
    ]
    replica.hears("wakeups_listening")
    replica.hears("run_finished", cycle="sleeper")
    conn.execute("notify relevo_wake, 'sleeper'")
    eventually(lambda: len(replica.lines("middleware_saw", of_cycle="sleeper")) >= 2, "woken")
    assert [process.ends() for process in once] == [0, 0]
    seen = [
        line["trigger"] for process in (replica, *once) for line in process.lines("middleware_saw", of_cycle="sleeper")
    ]
    assert seen == ["schedule", "wake-up", "tick", "manual"]
    eventually(lambda: len(probed("sleeper", "end")) == 4, "each of them did its work")


def test_a_worker_switched_off_starts_nothing(processes, rows, runs, conn) -> None:
    """OUTBOX_WORKER_ENABLED=false: run stays up without a cycle and stops in order; tick and run-cycle are skipped."""
    idle = processes.relevo("run", outbox_worker_enabled="false", worker_id="idle", reaper_interval_ms=50)
    once = [
        processes.relevo(*words, outbox_worker_enabled="false")
        for words in (("run-cycle", "reaper"), ("tick", "--runners", "reaper,cleanup"))
    ]
    assert "OUTBOX_WORKER_ENABLED" in idle.hears("no_cycles_started")["why"]
    assert [process.ends() for process in once] == [3, 3]
    assert "OUTBOX_WORKER_ENABLED is false" in once[0].stdout
    conn.execute("notify relevo_wake, 'reaper'")
    never(lambda: rows("select 1 from relevo.cycle_state where rounds > 0"), "a round was made", during=0.5)
    skipped = [(row["trigger"], row["outcome"], row["reason"]) for row in runs("reaper")]
    assert ("manual", "skipped", "OUTBOX_WORKER_ENABLED is false") in skipped
    assert "OUTBOX_WORKER_ENABLED is false" in once[1].stdout
    assert [row["reason"] for row in runs("cleanup")] == ["OUTBOX_WORKER_ENABLED is false"]
    listening = [{"cycles": [], "wakeups": "listening"}]
    about = "select cycles, wakeups from relevo.workers where worker_id = 'idle'"
    eventually(lambda: rows(about) == listening, "it listens all the same")
    assert idle.stops() == 0


def test_specialised_replicas(processes, rows) -> None:
    """`run --cycles` and WORKER_CYCLES choose which cycles a replica runs; the option wins."""
    chosen = processes.relevo("run", "--cycles", "reaper", worker_cycles="cleanup")
    by_setting = processes.relevo("run", worker_cycles="cleanup")
    assert chosen.hears("worker_started")["cycles"] == ["reaper"]
    assert by_setting.hears("worker_started")["cycles"] == ["cleanup"]
    by_setting.hears("run_finished", cycle="cleanup")
    assert chosen.lines(cycle="cleanup") == []
    assert [process.stops() for process in (chosen, by_setting)] == [0, 0]


def test_unknown_words_are_wrong_usage(processes, ask: Ask, rows) -> None:
    """A cycle or an outcome that does not exist is refused with exit code 2 and what is known, before anything runs."""
    asked = [processes.relevo(*words) for words in (("run", "--cycles", "reaper,nope"), ("run-cycle", "nope"))]
    for words in (
        ("tick", "--runners", "nope"),
        ("pause", "nope", "--reason", "x"),
        ("resume", "nope"),
        ("pause", "cleanup", "--reason", "  "),
        ("runs", "--outcome", "nope"),
    ):
        assert isinstance(ask(*words).exception, UsageError), words
    assert ask("pause", "cleanup").exit_code == 2
    for process in asked:
        assert process.ends() == 2, process.stderr
        said, known = process.stderr.splitlines()
        assert said == "relevo: There is no cycle nope."
        known = known.removeprefix("Known: ").removesuffix(" For one of your own set RELEVO_APP here, too.")
        assert {"cleanup", "ingest", "reaper"} <= set(known.removesuffix(".").split(", "))
    assert rows("select 1 from relevo.workers") == []
    assert rows("select 1 from relevo.cycle_state where paused_at is not null") == []


def test_exit_codes_of_a_run_by_hand(processes, probed, runs) -> None:
    """run-cycle says 0 for success, 1 for a failure, 3 for a skip, each with its row; several sources run by name."""
    ok = QUICK | {"name": "fine"}
    sources = [QUICK | {"name": "many", "source": source} for source in ("a", "b")]
    failing = QUICK | {"name": "broken", "fails": 9}
    asked = {name: processes.relay("run-cycle", name, probes=[ok, failing, *sources])
             for name in ("fine", "broken", "many", "many:b")}  # fmt: skip
    assert {name: process.ends() for name, process in asked.items()} == {"fine": 0, "broken": 1, "many": 0, "many:b": 0}
    assert "notifications_sent=1" in asked["fine"].stdout
    assert "probe broken was told to fail" in asked["broken"].stdout
    assert [line.split()[0] for line in asked["many"].stdout.splitlines()[1:]] == ["many:a", "many:b"]
    assert [row["outcome"] for row in runs("broken")] == ["failed"]
    assert sorted(row["source"] for row in runs("many", "ok")) == ["a", "b", "b"]


def test_an_unknown_source_is_answered_with_the_known_ones(build) -> None:
    """Who names a source that is not there learns the names with which cycles can be called, sources included."""
    worker = build(cycles=[Cycle("many", Every(1_000), lambda _run: Step(), source=source) for source in ("a", "b")])
    with pytest.raises(UsageError) as refused:
        worker.cycles(["many:c"])
    assert refused.value.message == "There is no cycle many:c."
    assert "many, many:a, many:b" in str(refused.value.hint)


def test_a_pause_holds_for_every_replica_and_every_hand(processes, probed, runs, ask) -> None:
    """A paused cycle starts nowhere until it is resumed: not by time, by hand or by tick; what runs may end."""
    probes = [QUICK | {"hold_ms": 60}]
    replica = processes.relay("run", probes=probes)
    eventually(lambda: probed("quick", "end"), "it runs")
    assert processes.relay("pause", "quick", "--reason", "the  source\nis ill", probes=probes).ends() == 0
    eventually(lambda: len(probed("quick", "begin")) == len(probed("quick", "end")), "what ran came to its end")
    so_far = len(probed("quick"))
    for words in (("tick", "--runners", "quick"), ("tick", "--runners", "quick"), ("run-cycle", "quick")):
        asked = processes.relay(*words, probes=probes)
        assert asked.ends() == 3
        assert "paused: the source is ill" in asked.stdout
    skipped = [(row["trigger"], row["reason"]) for row in runs("quick", "skipped")]
    assert skipped == [("tick", "paused: the source is ill"), ("manual", "paused: the source is ill")]
    assert len(probed("quick")) == so_far
    assert "paused: the source is ill" in ask("status").output
    resumed = processes.relay("resume", "quick", probes=probes)
    assert resumed.ends() == 0
    assert "is on again" in resumed.stdout
    eventually(lambda: len(probed("quick")) > so_far, "it runs again")
    assert "was not paused" in ask("resume", "cleanup").output
    assert replica.stops() == 0


def test_one_source_can_be_paused_alone(processes, probed, rows) -> None:
    """A name with a source pauses that source; the others of its cycle go on, and resuming it switches it on again."""
    probes = [QUICK | {"name": "many", "source": source} for source in ("a", "b")]
    paused = processes.relay("pause", "many:a", "--reason", "ill", probes=probes)
    assert paused.ends() == 0
    assert paused.stdout.startswith("many:a is paused")
    again = processes.relay("pause", "many:a", "--reason", "another", probes=probes)
    assert again.ends() == 0
    assert "many:a was already paused since " in again.stdout
    assert "because: ill." in again.stdout
    assert rows("select cycle, source from relevo.cycle_state where paused_at is not null") == [
        {"cycle": "many", "source": "a"}
    ]
    by_hand = processes.relay("run-cycle", "many", probes=probes)
    assert by_hand.ends() == 0, by_hand.stdout + by_hand.stderr
    outcomes = rows("select source, outcome from relevo.worker_runs where cycle = 'many' order by source")
    assert outcomes == [{"source": "a", "outcome": "skipped"}, {"source": "b", "outcome": "ok"}]
    resumed = processes.relay("resume", "many:a", probes=probes)
    assert (resumed.ends(), "many:a is on again" in resumed.stdout) == (0, True)


def test_a_paused_slot_is_told_and_made_up_for(build, runs, conn) -> None:
    """A night that falls into a pause is a skip with the operator's reason, and is run once the pause is over."""
    worker = build()
    conn.execute(
        "insert into relevo.cycle_state (cycle, paused_at, paused_reason) values ('cleanup', now(), 'moving house')"
    )
    for _ in range(3):
        report = worker.runner.run(worker.registry["cleanup"], "schedule")
        assert report.outcome == "skipped"
        assert report.look_again_in_s is not None
    conn.execute("update relevo.cycle_state set paused_at = null, paused_reason = null")
    assert worker.runner.run(worker.registry["cleanup"], "schedule").outcome == "idle"
    skipped, filled = runs("cleanup")
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", "paused: moving house")
    assert skipped["slot_at"] == filled["slot_at"] is not None


def test_runs_tells_what_ran(ask: Ask, conn) -> None:
    """`relevo runs`: newest first, by cycle, outcome and number, as a table or as JSON lines; empty, a next step."""
    empty = ask("runs")
    assert (empty.exit_code, "relevo run" in empty.output) == (0, True)
    assert ask("runs", "--json").output == ""
    add_run(conn, "ingest", "ok", source="chilecompra", counts='{"licitaciones_new": 3, "zero": 0}')
    failed = add_run(conn, "cleanup", "failed", error_message="PostgreSQL [bold]said[/] no")
    running = add_run(conn, "cleanup", "running")
    table = ask("runs").output
    assert [line.split()[1] for line in table.splitlines()[1:]] == ["cleanup", "cleanup", "ingest:chilecompra"]
    assert "licitaciones_new=3" in table
    assert "zero" not in table
    assert "PostgreSQL [bold]said[/] no" in table
    rows = [json.loads(line) for line in ask("runs", "--cycle", "cleanup", "--json").output.splitlines()]
    assert [row["id"] for row in rows] == [running, failed]
    assert rows[1].items() >= {"outcome": "failed", "trigger": "schedule", "worker_id": "w-1", "counts": {}}.items()
    only = [json.loads(line)["id"] for line in ask("runs", "--outcome", "failed", "--json").output.splitlines()]
    assert only == [failed]
    assert len(ask("runs", "--limit", "1", "--json").output.splitlines()) == 1
    assert ask("runs", "--limit", "0").exit_code == 2


def test_runs_in_a_narrow_window(ask: Ask, conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns a run is a line, and what it did stands below it; no line is longer than the window."""
    add_run(
        conn, "ingest", "ok", source="chilecompra", counts=json.dumps({f"licitaciones_{n}": n for n in range(1, 9)})
    )
    add_run(
        conn, "cleanup", "failed", error_message="it could not be done, for a reason that takes a while to be told " * 2
    )
    monkeypatch.setattr(common.out, "width", 80)
    said = ask("runs").output
    assert all(len(line) <= 80 for line in said.splitlines()), said
    heads = [line for line in said.splitlines() if "ingest:chilecompra" in line or "cleanup" in line]
    assert [line.split()[-1] for line in heads] == ["failed", "ok"]
    assert "licitaciones_8=8" in said


def test_status_before_anything_ran(ask: Ask) -> None:
    """An empty fleet is not healthy, and is told what to do."""
    seen = ask("status")
    assert seen.exit_code == 1
    for words in ("No cycle has run yet", "No worker is running", "no reaper has ever run", "relevo run"):
        assert words in seen.output
    [line] = ask("status", "--json").output.splitlines()
    reported = json.loads(line)
    assert (reported["cycles"], reported["workers"], reported["claims"]["claims"]) == ([], [], 0)
    assert reported["health"] == ["no reaper has ever run; start `relevo run`, or schedule `relevo tick` with cron"]


def test_status_of_a_living_fleet(ask: Ask, build, conn) -> None:
    """Cycles, workers, claims, and the word healthy; workers that fell silent, stopped or were lost are shown so."""
    for name in ("alive", "silent", "stopped", "lost", "stopping"):
        worker = build(worker_id=name)
    worker.runner.run(worker.registry["reaper"], "manual")
    worker.runner.run(worker.registry["cleanup"], "manual")
    conn.execute("update relevo.workers set last_seen_at = now() - interval '2 minutes' where worker_id = 'silent'")
    conn.execute("update relevo.workers set stopped_at = now() where worker_id = 'stopped'")
    conn.execute("update relevo.workers set lost_at = now() where worker_id = 'lost'")
    conn.execute("update relevo.workers set stopping_at = now() where worker_id = 'stopping'")
    seen = ask("status")
    assert seen.exit_code == 1
    assert re.search(r"worker silent has not been seen for 1[2-9]\d s", seen.output)
    [line] = ask("status", "--json").output.splitlines()
    reported = json.loads(line)
    assert len(reported["health"]) == 1
    conn.execute("update relevo.workers set last_seen_at = now() where worker_id = 'silent'")
    healthy = ask("status")
    assert (healthy.exit_code, "Healthy." in healthy.output) == (0, True), healthy.output
    assert {row["worker_id"]: row["state"] for row in reported["workers"]} == {
        name: name for name in ("alive", "silent", "stopped", "lost", "stopping")
    }
    assert [(row["cycle"], row["rounds"], row["last_outcome"]) for row in reported["cycles"]] == [
        ("cleanup", 1, "ok"),
        ("reaper", 1, "ok"),
    ]


def test_a_worker_whose_heartbeat_is_late(ask: Ask, build, conn) -> None:
    """After half its lease without a heartbeat a worker is shown as late, with since when; nothing is taken from it yet.

    Another one is at work, so that the fleet is healthy."""
    build(worker_id="other")
    worker = build(worker_id="w")
    worker.runner.run(worker.registry["reaper"], "manual")
    conn.execute(
        "update relevo.workers set last_seen_at = now() - 0.6 * lease_ms * interval '1 millisecond' where worker_id = 'w'"
    )
    seen = ask("status")
    assert re.search(r"w +late .* 3\d s ago", seen.output), seen.output
    [line] = ask("status", "--json").output.splitlines()
    told = {row["worker_id"]: (row["state"], row["is_late"]) for row in json.loads(line)["workers"]}
    assert (told, seen.exit_code) == ({"w": ("alive", True), "other": ("alive", False)}, 0)


def test_a_fleet_without_a_reaper_is_not_healthy(ask: Ask, build, conn) -> None:
    """If no reaper made a round for three intervals and a little, status says so and its exit code is 1."""
    worker = build(reaper_interval_ms=4_000)
    worker.worker.describe(worker.cycles())
    worker.runner.run(worker.registry["reaper"], "schedule")
    late = "update relevo.cycle_state set last_round_at = now() - %s * interval '1 ms' where cycle = 'reaper'"
    conn.execute(late, [3 * 4_000 + 10_000])
    assert ask("status").exit_code == 0
    conn.execute(late, [3 * 4_000 + 60_000])
    seen = ask("status")
    assert seen.exit_code == 1
    assert re.search(r"reaper has made no round for [7-9]\d s \(usual: within 32 s\)", seen.output)


def test_a_cron_fleet_is_healthy_between_ticks(ask: Ask, build, conn) -> None:
    """Ticked every ten minutes, a fleet is healthy eleven minutes after its last tick, and not after two hours."""
    worker = build()
    worker.worker.describe(worker.cycles())
    for minutes in (10, 10, 10):
        worker.runner.run(worker.registry["reaper"], "tick")
        conn.execute(
            "update relevo.cycle_state set last_round_at = now() - %s * interval '1 minute' where cycle = 'reaper'",
            [minutes],
        )
    worker.runner.run(worker.registry["reaper"], "tick")
    gap = "update relevo.cycle_state set last_round_at = now() - interval '11 minutes' where cycle = 'reaper'"
    conn.execute(gap)
    assert ask("status").exit_code == 0
    conn.execute(gap.replace("11 minutes", "120 minutes"))
    assert ask("status").exit_code == 1


def test_status_tells_what_is_due(ask: Ask, build, conn) -> None:
    """What is due is told per project and lane with its age; due for long, it is a problem."""
    worker = build()
    worker.runner.run(worker.registry["reaper"], "manual")
    add_deliveries(conn, 3, due=datetime.now(UTC) - timedelta(minutes=5))
    seen = ask("status")
    due = re.search(r"Due: 3 bulk deliveries of project default, the oldest for [5-9] min\.", seen.output)
    assert (seen.exit_code, bool(due)) == (0, True), seen.output
    conn.execute("update relevo.due_chunks set due_at = due_at - interval '1 hour'")
    seen = ask("status")
    assert seen.exit_code == 1
    assert "3 bulk deliveries of project default are due, the oldest for" in seen.output
    [reported] = [json.loads(line) for line in ask("status", "--json").output.splitlines()]
    assert [(row["project"], row["lane"], row["due"]) for row in reported["due"]] == [("default", "bulk", 3)]


def test_a_run_by_hand_tells_what_it_migrated(processes, empty_database: str) -> None:
    """Whatever brings the schema to a database says in one line what it ran: in the wrong database it must not go unseen."""
    by_hand = processes.relevo("run-cycle", "reaper", database_url=empty_database)
    assert by_hand.ends() == 0, by_hand.stderr
    told = [(line["migrations"], line["first"], line["last"]) for line in by_hand.lines("migrated")]
    assert told == [(1, "baseline", "baseline")]


def test_psql_takes_what_it_is_given(processes, tmp_path: Path) -> None:
    """Every word behind `relevo psql` goes to psql as it stands, so that its options work as they always do."""
    psql = tmp_path / "psql"
    psql.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    psql.chmod(0o755)
    words = ["-At", "-c", "select 1", "--file", "two words.sql", "-x"]
    asked = processes.relevo("psql", *words, path=f"{tmp_path}:{os.environ['PATH']}")
    assert asked.ends() == 0, asked.stderr
    assert asked.stdout.splitlines()[2:] == words


@pytest.mark.parametrize("width", [80, 60])
def test_status_in_a_narrow_window(ask: Ask, build, conn, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The first line says what is wrong; lines that belong together are indented, none is cut or longer than the window,
    and the commands in them can be copied."""
    worker = build(worker_id="w")
    worker.runner.run(worker.registry["reaper"], "manual")
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at)"
        " values ('cl.licitaciones.app', now(), 'open', 'The access token [x] was refused.', 'request', now(), now())"
    )
    add_deliveries(conn, 1, due=datetime.now(UTC) - timedelta(minutes=50))
    monkeypatch.setattr(common.out, "width", width)
    said = ask("status").output.splitlines()
    assert all(len(line.rstrip()) <= width for line in said), said
    assert said[0].startswith("Not healthy: 1 bulk delivery of project default is due")
    problems = said[: said.index("")]
    assert all(line.startswith(("Not healthy: ", "  ")) for line in problems), said
    whole = [" ".join(problem.split()) for problem in "\n".join(problems).split("Not healthy: ")[1:]]
    assert [problem[-1] for problem in whole] == [".", "."]
    assert "The access token [x] was refused; see" in whole[1]
    for command in ("`relevo runs --cycle dispatch`", "`relevo release cl.licitaciones.app`"):
        assert any(command in line for line in problems), said
    if width == 80:
        place = next(number for number, line in enumerate(said) if line.startswith("project "))
        assert said[place].split() == ["project", "breaker", "rate", "requests", "now", "sent", "unregistered"]
        assert said[place + 1].split() == ["cl.licitaciones.app", "open", "100%", "0", "0", "0"]


def test_a_pause_of_a_whole_cycle_is_told_once(ask: Ask, build, conn) -> None:
    """Not for each of its sources again: what would be resumed there was never paused."""
    worker = build()
    worker.runner.run(worker.registry["reaper"], "manual")
    conn.execute("insert into relevo.cycle_state (cycle, source) values ('ingest', 'folder'), ('ingest', 'ocds')")
    conn.execute(
        "insert into relevo.cycle_state (cycle, paused_at, paused_reason) values ('ingest', now() - interval '3 days', 'x')"
    )
    [reported] = [json.loads(line) for line in ask("status", "--json").output.splitlines()]
    assert reported["health"] == [
        "ingest has been paused for 3 days (x), and it does not run; `relevo resume ingest` switches it on"
    ]
    assert ask("resume", "ingest").output == "ingest is on again.\n"
    assert ask("status").exit_code == 0


def test_a_breaker_says_since_when_in_all(ask: Ask, build, conn) -> None:
    """Each probe that fails opens it anew; it has been open since the first time after it was last closed."""
    worker = build()
    worker.runner.run(worker.registry["reaper"], "manual")
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at)"
        " values ('app', now(), 'open', 'no', 'request', '2026-03-01 12:00Z', '2126-03-01 12:05Z')"
    )
    assert "since 2026-03-01 12:00:00Z (next probe at 2126-03-01 12:05:00Z)" in ask("status").output
    conn.execute(
        "insert into relevo.project_incidents (project, at, what) values ('app', '2026-03-01 07:00Z', 'breaker_opened'),"
        " ('app', '2026-03-01 08:00Z', 'breaker_closed'), ('app', '2026-03-01 09:00Z', 'breaker_opened'),"
        " ('app', '2026-03-01 12:00Z', 'breaker_opened'), ('other', '2026-03-01 08:30Z', 'breaker_opened')"
    )
    assert "since 2026-03-01 09:00:00Z (next probe at" in ask("status").output


def test_status_without_a_database_is_one_complaint(processes) -> None:
    """Who asks is told in a sentence and a next step; the log does not say the same before."""
    asked = processes.relevo("status", database_url="postgresql://127.0.0.1:9/x", database_connect_timeout_ms=1_000)
    assert asked.ends() == 1
    said = asked.stderr.splitlines()
    assert said[0].startswith("relevo: PostgreSQL did not answer")
    assert "DATABASE_URL" in said[1]


def test_a_database_without_the_schema_is_told_apart(processes, empty_database: str) -> None:
    """runs and status on a database that was never migrated say what to do instead of failing on a missing table."""
    asked = [processes.relevo(word, database_url=empty_database) for word in ("runs", "status")]
    for process in asked:
        assert process.ends() == 1
        assert "Run `relevo migrate`" in process.stderr
