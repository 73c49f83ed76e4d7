"""Many projects that may not send: what they have waits, and costs those that may neither time nor a place."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relevo.operators import actions
from relevo.sandbox import Sandbox
from support.sending_worker import Relay

STOPPED = """
with added as (
  insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips)
  select 'stopped-' || n, now(), 'open', 'HTTP 401', 'request', now(), now() + interval '1 hour', 1 from generate_series(1, %(many)s) n
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
                               installations)
select 'stopped-' || n, 'urgent', now() - interval '1 hour', current_date, 0, 'notice', now(), 1, 0, true, array[n], array[gen_random_uuid()]
  from generate_series(1, %(many)s) n
"""
RESTING = """
update relevo.projects set breaker = 'closed', breaker_reason = null, breaker_by = null, breaker_since = null, probe_at = null,
                           rest_until = now() + interval '1 hour'
"""


def stop(conn: psycopg.Connection[Any], many: int) -> None:
    """Add projects with an open breaker, each with something urgent that has been due for an hour."""
    conn.execute(STOPPED, {"many": many})


def noted_reserves(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note for which projects a worker asks what may be sent."""
    asked: list[str] = []
    projects = worker.app.services.projects
    reserve = projects.reserve

    def noted(project: str, *rest: Any, **how: Any) -> Any:
        asked.append(project)
        return reserve(project, *rest, **how)

    monkeypatch.setattr(projects, "reserve", noted)
    return asked


@pytest.mark.parametrize("many", [1_000, 5_000])
def test_a_push_beside_stopped_projects_is_found_by_the_first_look(relay, monkeypatch, many) -> None:
    """It leaves with the first round, none of the stopped ones is asked about, and the run tells when their time comes."""
    worker = relay()
    stop(worker.conn, many)
    worker.tell("ana")
    asked = noted_reserves(worker, monkeypatch)
    report = worker.dispatch()
    assert (report.outcome, worker.received("ana"), set(asked)) == ("partial", 1, {"default"})
    assert 3_000 < report.due_in_s <= 3_600, "their time is when the breakers let a probe through"


@pytest.mark.parametrize(("trigger", "told"), [("manual", 3), ("tick", 3), ("schedule", 0)])
def test_who_looks_at_one_run_alone_is_told_what_is_stopped(relay, trigger: Any, told: int) -> None:
    """A run by hand or by a tick names the projects that may not send; a scheduler's runs need not: status has them."""
    worker = relay()
    stop(worker.conn, 3)
    report = worker.app.runner.run(worker.app.registry["dispatch"], trigger)
    assert report.counts.get("projects_stopped", 0) == told
    assert (report.error or "").count("sends nothing until") == told


def test_a_project_that_rests_is_left_out_until_its_rest_ends(relay, monkeypatch) -> None:
    """A project that was asked to slow down is not asked about meanwhile, and is due when its rest ends."""
    worker = relay()
    stop(worker.conn, 3)
    worker.conn.execute(RESTING)
    asked = noted_reserves(worker, monkeypatch)
    report = worker.dispatch()
    assert (report.outcome, asked) == ("partial", [])
    assert 3_000 < report.due_in_s <= 3_600


def test_what_comes_while_others_are_stopped_is_found_by_a_look_at_what_is_new(relay, sandbox: Sandbox) -> None:
    """Later pushes leave as well, however often a worker looked before."""
    worker = relay()
    stop(worker.conn, 1_000)
    for name in ("ana", "bob", "eva"):
        worker.tell(name)
        assert worker.dispatch().counts["notifications_sent"] == 1
        assert worker.received(name) == 1


CHUNK = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
                               installations)
values (%s, 'bulk', now() + %s * interval '1 second', current_date, 0, 'notice', now(), 0, 0, false, array[1], array[gen_random_uuid()])
"""


def asked_of(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Note what each look of a worker asks PostgreSQL for."""
    lanes, asked = worker.app.services.projects.lanes, list[dict[str, Any]]()
    ask = lanes._query

    def noted(now: Any, **how: Any) -> Any:
        asked.append(how)
        return ask(now, **how)

    monkeypatch.setattr(lanes, "_query", noted)
    return asked


def due(worker: Relay) -> list[str]:
    """Look once, and return the projects that are due."""
    return [lane.project for lane in worker.app.services.projects.lanes.read() if lane.due_in_s <= 0]


class TestLooks:
    """What a worker remembers between two looks, and what it never misses by that."""

    def test_a_full_look_goes_page_by_page_and_the_next_one_reads_what_is_new(self, relay, monkeypatch) -> None:
        """2,500 lanes are three pages; looks after that walk along none of them, and find what comes."""
        worker = relay()
        stop(worker.conn, 2_500)
        asked = asked_of(worker, monkeypatch)
        assert due(worker) == []
        assert len(asked) == 3
        worker.conn.execute(CHUNK, ["a", 0])
        worker.conn.execute(CHUNK, ["z", 0])
        assert due(worker) == ["a", "z"]
        assert due(worker) == ["a", "z"]
        assert [each.get("after") for each in asked[3:]] == [None, None]

    def test_the_first_thing_ever_in_a_queue_is_found_by_the_next_look(self, relay) -> None:
        """A worker that looked at a queue in which there never was anything finds what comes first, and waits for no full look."""
        worker = relay()
        worker.conn.execute("alter sequence relevo.due_chunks_id_seq restart")
        assert due(worker) == []
        worker.conn.execute(CHUNK, ["a", 0])
        assert due(worker) == ["a"]

    def test_what_commits_late_is_found_though_others_were_numbered_after_it(self, relay, dsn) -> None:
        """A transaction that put something into the queue and stays open for many looks is waited for, and what it adds is seen."""
        worker = relay()
        worker.conn.execute(CHUNK, ["early", 0])
        assert due(worker) == ["early"]
        with psycopg.connect(dsn) as slow:
            slow.execute(CHUNK, ["late", 0])
            for n in range(5):
                worker.conn.execute(CHUNK, [f"other-{n}", 0])
                assert "late" not in due(worker)
            slow.commit()
        assert set(due(worker)) == {"early", "late", *(f"other-{n}" for n in range(5))}

    def test_what_falls_due_earlier_than_all_that_is_known_is_found(self, relay) -> None:
        """A retry that another worker puts back with an older time is seen by the next look, and claimed first."""
        worker = relay()
        worker.conn.execute(CHUNK, ["a", 600])
        assert due(worker) == []
        worker.conn.execute(CHUNK, ["a", -600])
        (lane,) = worker.app.services.projects.lanes.read()
        assert lane.due_in_s < -500
        ((earliest,),) = worker.conn.execute("select min(due_at) from relevo.due_chunks").fetchall()
        assert lane.since == earliest

    def test_what_others_took_is_gone_with_the_next_look(self, relay) -> None:
        """A lane that somebody else emptied is not due any more; one that has something later waits for it."""
        worker = relay()
        for project, seconds in (("a", 0), ("b", 0), ("b", 600)):
            worker.conn.execute(CHUNK, [project, seconds])
        assert due(worker) == ["a", "b"]
        worker.conn.execute("delete from relevo.due_chunks where due_at <= now()")
        (lane,) = worker.app.services.projects.lanes.read()
        assert lane.project == "b"
        assert 500 < lane.due_in_s <= 600

    def test_a_full_look_now_and_then_finds_what_no_other_look_would(self, relay, monkeypatch) -> None:
        """What was changed behind its back, such as a due time or a breaker, is known after the next full look."""
        worker = relay()
        stop(worker.conn, 2)
        worker.conn.execute(CHUNK, ["later", 600])
        assert due(worker) == []
        worker.conn.execute("update relevo.due_chunks set due_at = now() where project = 'later'")
        worker.conn.execute(RESTING.replace("now() + interval '1 hour'", "null").encode())
        monkeypatch.setattr(worker.app.services.projects.lanes, "_full_read_at", 0.0)
        assert sorted(due(worker)) == ["later", "stopped-1", "stopped-2"]

    def test_nothing_is_due_while_dispatch_is_paused_and_everything_once_it_is_not(self, relay) -> None:
        """A pause hides what is due, and its end shows all of it with the next look."""
        worker = relay()
        worker.conn.execute(CHUNK, ["a", 0])
        assert due(worker) == ["a"]
        worker.conn.execute(
            "insert into relevo.cycle_state (cycle, source, paused_at, paused_reason) values ('dispatch', '', now(), 'a test')"
        )
        assert due(worker) == []
        worker.conn.execute("delete from relevo.cycle_state")
        assert due(worker) == ["a"]

    def test_a_restored_database_is_looked_at_from_the_beginning(self, relay) -> None:
        """When the queue's numbers start over, nothing is taken for seen."""
        worker = relay()
        for _ in range(3):
            worker.conn.execute(CHUNK, ["a", 0])
        assert [due(worker) for _ in range(4)] == [["a"]] * 4
        ((last,),) = worker.conn.execute("select max(id) from relevo.due_chunks").fetchall()
        worker.conn.execute("delete from relevo.due_chunks")
        worker.conn.execute("alter sequence relevo.due_chunks_id_seq restart")
        worker.conn.execute(CHUNK, ["b", 0])
        assert due(worker) in ([], ["b"])
        assert due(worker) == ["b"]
        worker.conn.execute("select setval('relevo.due_chunks_id_seq', %s)", [last + 1])

    @pytest.mark.parametrize("due_at", ["infinity", "-infinity", "20000-01-01Z"])
    def test_a_time_beyond_all_measure_is_that_lanes_own(self, relay, due_at) -> None:
        """A due time that Python has no value for keeps no other lane from being looked at."""
        worker = relay()
        for project in ("odd", "sound"):
            worker.conn.execute(CHUNK, [project, 0])
        worker.conn.execute("update relevo.due_chunks set due_at = %s where project = 'odd'", [due_at])
        assert set(due(worker)) - {"odd"} == {"sound"}


def test_a_project_that_is_released_rests_no_more(relay) -> None:
    """Two projects rest because their push service asked for it: the one that an operator releases sends at once."""
    worker: Relay = relay()
    worker.register("ana", project="shop")
    worker.register("eva", project="bank")
    worker.tell("ana", "eva")
    worker.conn.execute(
        "insert into relevo.projects (project, filled_at, urgent_tokens, bulk_tokens, rate_share, rest_until)"
        " select unnest(array['shop', 'bank']), now(), 100, 100, 0.5, now() + interval '1 hour'"
        " on conflict (project) do update set rate_share = 0.5, rest_until = excluded.rest_until"
    )
    worker.dispatch()
    assert [worker.received(name) for name in ("ana", "eva")] == [0, 0]
    assert actions.release_project(worker.app.database, "shop") == ["rate"]
    worker.dispatch()
    assert [worker.received(name) for name in ("ana", "eva")] == [1, 0]
