"""Cleanup forgets what is old, in batches: runs, workers, rejects and projects; never what somebody still needs."""

from __future__ import annotations

from typing import Any

import psycopg

from relevo.cycles import cleanup
from support.deliveries import TODAY, add_deliveries, mark_sent, take_out
from support.phones import add_phones


def clean(build) -> dict[str, int]:
    """Run cleanup by hand and return what it counted."""
    worker = build()
    return dict(worker.runner.run(worker.registry["cleanup"], "manual").counts)


def add_run(conn: Any, days: int, outcome: str = "ok", worker_id: str = "w") -> None:
    """Write a run that began so many days ago."""
    conn.execute(
        """
        insert into relevo.worker_runs (cycle, trigger, worker_id, started_at, finished_at, outcome)
        select 'probe', 'manual', %(worker)s, at, case when %(outcome)s <> 'running' then at end, %(outcome)s
          from (select now() - %(days)s * interval '1 day' as at) t
        """,
        {"days": days, "outcome": outcome, "worker": worker_id},
    )


def add_worker(conn: Any, name: str, role: str, ended: str, days: float) -> None:
    """Write a worker that ended so many days ago, in good order or not."""
    conn.execute(
        f"""
        insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, {ended})
        select %(name)s, 'h', 1, '0.1.0', %(role)s, '{{}}', at, at, 60000, at from (select now() - %(days)s * interval '1 day' as at) t
        """,
        {"name": name, "role": role, "days": days},
    )


def test_old_runs_go_and_running_ones_stay(build, conn, rows) -> None:
    """Finished runs past their retention are deleted, a day younger they stay; a running one is never deleted."""
    for days, outcome in ((91, "ok"), (91, "running"), (89, "ok")):
        add_run(conn, days, outcome)
    assert clean(build)["runs_pruned"] == 1
    left = rows("select outcome from relevo.worker_runs where cycle = 'probe' order by started_at")
    assert [row["outcome"] for row in left] == ["running", "ok"]


def test_each_retention_is_its_own(build, conn, rows) -> None:
    """Runs and what happened to projects, dead phones, and the audit log are each kept for the days of their own setting."""
    days = (9, 11, 39, 41, 69, 71)
    for each, phone in zip(days, add_phones(conn, len(days)), strict=True):
        add_run(conn, each)
        at = [each]
        conn.execute(
            "insert into relevo.project_incidents (project, at, what) values ('a', now() - %s * interval '1 day', 'released')",
            at,
        )
        conn.execute(
            "insert into relevo.audit_log (at, actor, face, action) values (now() - %s * interval '1 day', 'w', 'cli', 'x')",
            at,
        )
        conn.execute("select relevo.unregister_installation(%s)", [phone])
        dead = "update relevo.device_installations set dead_since = now() - %s * interval '1 day' where installation_id = %s"
        conn.execute(dead, [each, phone])
    worker = build(runs_retention_days=10, dead_phones_retention_days=40, audit_retention_days=70)
    worker.runner.run(worker.registry["cleanup"], "manual")
    left = {
        name: rows(f"select extract(day from now() - {at})::int as days from relevo.{name} order by 1")
        for name, at in (
            ("worker_runs where cycle = 'probe'", "started_at"),
            ("project_incidents", "at"),
            ("device_installations", "dead_since"),
            ("audit_log", "at"),
        )
    }
    assert {name.split()[0]: [row["days"] for row in found] for name, found in left.items()} == {
        "worker_runs": [9],
        "project_incidents": [9],
        "device_installations": [9, 11, 39],
        "audit_log": [9, 11, 39, 41, 69],
    }


def test_commands_are_forgotten_after_a_day_and_replicas_with_their_runs(build, conn, rows) -> None:
    """A lost tick is seen for a day, a replica for the runs' retention; who has a run that is open stays."""
    add_worker(conn, "old replica", "run", "stopped_at", 91)
    add_worker(conn, "replica", "run", "stopped_at", 89)
    add_worker(conn, "lost replica", "run", "lost_at", 89)
    add_worker(conn, "tick", "tick", "stopped_at", 1.1)
    add_worker(conn, "lost tick", "tick", "lost_at", 1.1)
    add_worker(conn, "command", "run-cycle", "stopped_at", 1.1)
    add_worker(conn, "young tick", "tick", "lost_at", 0.9)
    add_worker(conn, "open tick", "tick", "lost_at", 1.1)
    add_run(conn, 1, "running", worker_id="open tick")
    assert clean(build)["workers_pruned"] == 4
    left = {row["worker_id"] for row in rows("select worker_id from relevo.workers where hostname = 'h'")}
    assert left == {"replica", "lost replica", "young tick", "open tick"}


def test_used_signatures_go_a_day_after_they_ended(build, conn, rows) -> None:
    """A signature that a phone has used is remembered for longer than any replica would take it."""
    conn.execute(
        "insert into relevo.used_signatures select sha256(n::text::bytea), now() - n * interval '12 hours' from generate_series(-1, 5) n"
    )
    assert clean(build)["signatures_pruned"] == 4
    assert len(rows("select from relevo.used_signatures where expires_at >= now() - interval '13 hours'")) == 3


def test_rejects_go_when_nothing_was_heard_of_them(build, conn, rows) -> None:
    """Mended or not, a reject is kept for the retention from its last word on; one told of lately stays, however old."""
    for place, created, updated, resolved in (
        ("mended long ago", 100, 91, 91),
        ("mended lately", 100, 89, 89),
        ("silent for long", 100, 91, None),
        ("told of again", 100, 89, None),
        ("new", 0, 0, None),
    ):
        conn.execute(
            """
            insert into relevo.ingest_rejects (source, place, reason, created_at, updated_at, resolved_at)
            values ('folder', %s, 'unusable', now() - %s * interval '1 day', now() - %s * interval '1 day', now() - %s * interval '1 day')
            """,
            [place, created, updated, resolved],
        )
    assert clean(build)["rejects_pruned"] == 2
    left = {row["place"] for row in rows("select place from relevo.ingest_rejects")}
    assert left == {"mended lately", "told of again", "new"}


def test_late_tickets_stay_while_they_can_stop_a_push(build, conn, rows) -> None:
    """One of a delivery that is open stays, however old; of one that is over or gone it is kept for two days."""
    still_open, over = add_deliveries(conn, 2)
    take_out(conn, [over])
    conn.execute(
        "update relevo.notification_deliveries set status = 'cancelled', completed_at = now() where id = %s", [over]
    )
    for ticket, delivery, days in (
        ("open", still_open, 30),
        ("over", over, 3),
        ("gone", over + 1_000, 3),
        ("young", over, 1),
    ):
        conn.execute(
            """
            insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
            values (%s, %s, %s, gen_random_uuid(), now() - %s * interval '1 day')
            """,
            [TODAY, delivery, ticket, days],
        )
    assert clean(build)["late_tickets_pruned"] == 2
    assert {row["ticket_id"] for row in rows("select ticket_id from relevo.late_tickets")} == {"open", "young"}


def test_old_counts_of_the_runaway_brake_go_at_once(build, conn, rows) -> None:
    """However many there are, one night is enough; younger ones stay."""
    conn.execute(
        """
        insert into relevo.event_counts (stream_id, installation_id, hour_at, day, in_hour, hour_before, passed_today, busiest_day, releases)
        select 1, gen_random_uuid(), now(), current_date - case when g > 1001 then 59 else 62 end, 1, 0, 1, 1, 0
          from generate_series(1, 1003) g
        """
    )
    clean(build)
    assert rows("select count(*) as left from relevo.event_counts") == [{"left": 2}]


def test_tallies_become_minutes_and_go_after_eight_days(build, conn, rows) -> None:
    """What a brake no longer looks at is added to what is known of its project and minute, and kept for eight days."""
    conn.execute(
        """
        insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
        select p, date_trunc('hour', now()) - interval '2 hours' + n * interval '20 seconds', 10, 4, 1, 2, 1
          from unnest(array['one', 'two']) p cross join generate_series(0, 5) n
        """
    )
    conn.execute(
        """
        insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed)
        select 'old', now() - n * interval '1 day', 1, 1, 0, 0, 0 from generate_series(7, 9) n
        union all
        select 'one', date_trunc('hour', now()) - interval '2 hours', 100, 60, 0, 50, 0
        """
    )
    worker = build()
    worker.runner.run(worker.registry["reaper"], "manual")
    assert clean(build)["minutes_pruned"] == 2
    assert rows(
        "select project, count(*)::int as minutes, sum(sent)::int as sent, sum(failed)::int as failed,"
        "       sum(confirmed)::int as confirmed from relevo.push_minutes group by project order by project"
    ) == [
        {"project": "old", "minutes": 1, "sent": 1, "failed": 0, "confirmed": 0},
        {"project": "one", "minutes": 2, "sent": 160, "failed": 6, "confirmed": 62},
        {"project": "two", "minutes": 2, "sent": 60, "failed": 6, "confirmed": 12},
    ]
    assert rows("select count(*)::int as left from relevo.push_tallies") == [{"left": 0}]


def add_project(conn: Any, name: str, days: int = 91, **columns: object) -> None:
    """Write a project whose bucket was last used so many days ago."""
    given = {"project": name} | columns
    names, places = ", ".join(given), ", ".join(f"%({column})s" for column in given)
    conn.execute(
        f"insert into relevo.projects ({names}, filled_at) values ({places}, now() - %(days)s * interval '1 day')",
        given | {"days": days},
    )


OPEN = {"breaker": "open", "breaker_reason": "no", "breaker_by": "request", "breaker_since": "now", "probe_at": "now"}
USED = {
    "lately used": {"days": 89},
    "breaker": OPEN,
    "probing": OPEN | {"breaker": "probing"},
    "pruning brake": {"pruning_stopped_at": "2026-01-01Z"},
    "resting": {"rest_until": "2200-01-01Z"},
    "has phones": {},
    "has pending": {},
    "has retryable": {},
    "awaits receipts": {},
}


def test_a_project_that_anything_is_left_of_stays(build, conn, rows) -> None:
    """One reason is enough to stay: recent use, a breaker, a brake, a pause, a phone, an open delivery."""
    add_project(conn, "unused")
    for name, columns in USED.items():
        add_project(conn, name, **columns)
    add_phones(conn, 1, project="has phones")
    for name in ("has pending", "has retryable", "awaits receipts"):
        [delivery] = add_deliveries(conn, 1, project=name, attempts=int(name != "has pending"))
    mark_sent(conn, [delivery])
    assert clean(build)["projects_pruned"] == 1
    assert {row["project"] for row in rows("select project from relevo.projects")} == set(USED)


def test_a_project_that_comes_back_is_made_anew(build, conn, rows) -> None:
    """A pruned project that has phones again sends as before: its row is made when it is needed."""
    add_project(conn, "back")
    worker = build()
    assert worker.runner.run(worker.registry["cleanup"], "manual").counts["projects_pruned"] == 1
    assert worker.services.projects.reserve("back", "bulk", 10).grant.count == 10
    assert rows("select project, breaker from relevo.projects") == [{"project": "back", "breaker": "closed"}]


def test_what_is_being_used_is_not_waited_for(build, conn, dsn: str, rows) -> None:
    """A project or reject that somebody holds locked stays for another night, and holds nobody up."""

    for name in ("locked", "free"):
        add_project(conn, name)
        conn.execute(
            "insert into relevo.ingest_rejects (source, place, reason, updated_at) values ('s', %s, 'r', '2020-01-01Z')",
            [name],
        )
    with psycopg.connect(dsn) as other:
        other.execute("select * from relevo.projects where project = 'locked' for no key update")
        other.execute("select * from relevo.ingest_rejects where place = 'locked' for update")
        counts = clean(build)
    assert (counts["projects_pruned"], counts["rejects_pruned"]) == (1, 1)
    assert rows("select project from relevo.projects") == [{"project": "locked"}]


def test_pruning_is_done_in_batches_until_short(build, conn, monkeypatch, rows) -> None:
    """However much there is, each transaction deletes a bounded batch, and the run goes on until one comes up short."""
    monkeypatch.setattr(cleanup, "_BATCH", 10)
    for number in range(25):
        add_project(conn, f"p-{number}")
        conn.execute(
            "insert into relevo.ingest_rejects (source, place, reason, updated_at) values ('s', %s, 'r', '2020-01-01Z')",
            [str(number)],
        )
    counts = clean(build)
    assert (counts["projects_pruned"], counts["rejects_pruned"]) == (25, 25)
    assert rows("select 1 from relevo.projects union all select 1 from relevo.ingest_rejects") == []
