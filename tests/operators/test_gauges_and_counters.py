"""Metrics: the counters of two replicas add up to what the database says, and its gauges are the same on both."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from relevo.client import quiet
from relevo.operators import gauges
from relevo.operators.gauges import GAUGES
from support.docs_pages import DOCS
from support.sending_worker import Relay


def scrape(worker: Relay) -> dict[tuple[str, ...], float]:
    """Read what a replica shows, by name and label values, in the order of the labels' names."""
    families = text_string_to_metric_families(worker.app.metrics.render().decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def summed(workers: list[Relay], name: str) -> dict[tuple[str, ...], float]:
    """Add up a counter of several replicas, by its labels."""
    found: Counter[tuple[str, ...]] = Counter()
    for worker in workers:
        found.update({key[1:]: value for key, value in scrape(worker).items() if key[0] == name})
    return dict(found)


def test_two_replicas_add_up_to_the_database(relay) -> None:
    """Runs, tickets, receipts and retries of two replicas sum to the rows; a gauge is the same on both, not half."""
    replicas: list[Relay] = [relay(worker_id="a"), relay(worker_id="b")]
    a, b = replicas
    a.tell("ana", "ben!DeviceNotRegistered", "cid!MessageRateExceeded", "dea!receipt-MessageTooBig")
    a.dispatch()
    b.phones = a.phones
    b.tell("eva", "flo")
    b.dispatch()
    b.ask()
    b.reap()
    assert a.states() == {"ok": 3, "invalid": 1, "retryable": 1, "failed": 1}

    rows = a.rows("select cycle, source, outcome, count(*)::int as runs from relevo.worker_runs group by 1, 2, 3")
    assert summed(replicas, "relevo_runs_total") == {
        (row["cycle"], row["outcome"], row["source"]): row["runs"] for row in rows
    }
    rounds = a.rows("select cycle, source, rounds from relevo.cycle_state where rounds > 0")
    assert summed(replicas, "relevo_cycle_rounds_total") == {(r["cycle"], r["source"]): r["rounds"] for r in rounds}
    said = a.rows("""select cycle, c.key, sum(c.value::int)::int as n
                       from relevo.worker_runs cross join jsonb_each_text(counts) c where c.value::int > 0 group by 1, 2""")
    assert summed(replicas, "relevo_run_items_total") == {(row["cycle"], row["key"]): row["n"] for row in said}
    assert summed(replicas, "relevo_tickets_total") == {
        ("ok", "expo"): 4,
        ("DeviceNotRegistered", "expo"): 1,
        ("MessageRateExceeded", "expo"): 1,
    }
    assert summed(replicas, "relevo_receipts_total") == {("ok", "expo"): 3, ("MessageTooBig", "expo"): 1}
    assert summed(replicas, "relevo_retries_total") == {("MessageRateExceeded",): 1}
    assert summed(replicas, "relevo_push_requests_total") == {("answered", "expo"): a.posts()}
    asked = summed(replicas, "relevo_push_request_duration_seconds_count")
    assert asked == {("send", "expo"): a.posts(), ("receipts", "expo"): 1}

    seen = [{k: v for k, v in scrape(each).items() if k[0] == "relevo_queue_deliveries" and v} for each in replicas]
    assert seen[0] == seen[1]
    assert {key[1]: value for key, value in seen[0].items()} == a.states()


def test_the_totals_follow_what_is_folded_and_what_is_deleted(relay) -> None:
    """The sum by status is right before and after the reaper folded, when an event is deleted, and folded itself."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    event = worker.tell("ana")
    for step in (
        worker.dispatch,
        worker.reap,
        lambda: worker.conn.execute("select relevo.delete_events(array[%s::bigint])", [event]),
    ):
        step()
        assert totals(worker) == worker.states()
    worker.conn.execute(
        "insert into relevo.delivery_counts (status, deliveries) select 'sent', 0 from generate_series(1, 60)"
    )
    worker.reap()
    assert len(worker.rows("select from relevo.delivery_counts")) < 10
    assert totals(worker) == worker.states()


def totals(worker: Relay) -> dict[str, int]:
    """Read the gauge of deliveries by status, afresh."""
    fresh = gauges.Gauges(worker.app.database, worker.app.settings, "a")._fleet()
    return {labels[0]: int(value) for name, labels, value in fresh if name == "queue_deliveries" and value}


def test_a_worker_whose_heartbeat_is_late(relay) -> None:
    """After half its lease without a heartbeat a worker is no longer counted as alive, long before it is given up."""
    worker: Relay = relay(register=True)
    late: Relay = relay(worker_id="late", register=True)
    worker.conn.execute(
        "update relevo.workers set last_seen_at = now() - 0.6 * lease_ms * interval '1 ms' where worker_id = %s",
        [late.app.worker.worker_id],
    )
    seen = scrape(worker)
    assert (seen["relevo_workers", "late"], seen["relevo_workers", "alive"]) == (1, 1)


def test_the_reapers_three_and_lost_workers(relay) -> None:
    """Reaper runs, what it took back, how long that was stuck, workers lost."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    dead: Relay = relay(worker_id="dead", register=True)
    dead.app.claims.claim("dispatch", "default", "bulk")
    worker.conn.execute("update relevo.claims set leased_until = now() - interval '90 seconds'")
    worker.conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour' where worker_id = 'dead'")
    before = scrape(worker)
    assert (before["relevo_claims", "expired"], before["relevo_workers", "silent"]) == (1, 1)
    worker.reap()
    seen = scrape(worker)
    assert seen["relevo_reaper_runs_total",] == 1
    assert seen["relevo_reaper_recovered_deliveries_total",] == 2
    assert seen["relevo_reaper_stale_seconds_count",] == 1
    assert 90 <= seen["relevo_reaper_stale_seconds_sum",] < 600
    assert seen["relevo_workers_lost_total",] == 1
    assert totals(worker) == {"pending": 2}


def test_guards_and_brakes_are_seen(relay) -> None:
    """A breaker, a rate, a pause, a copied database and what is due show up as gauges of the fleet."""
    worker: Relay = relay()
    worker.tell("ana", "eva")
    worker.dispatch(at_most=1)
    begins, ends = (datetime.now(UTC) + timedelta(hours=each) for each in (-1, 2))
    quiet.set_quiet(worker.conn, [f"{begins:%H:%M}-{ends:%H:%M}"], project="default", zone="UTC")
    worker.tell("eva")
    worker.conn.execute(
        """update relevo.projects set rate_share = 0.5, breaker = 'open', breaker_reason = 'x', breaker_by = 'request',
                  breaker_since = now(), probe_at = now(), pruning_stopped_at = now()"""
    )
    worker.conn.execute("update relevo.cycle_state set paused_at = now(), paused_reason = 'x' where cycle = 'dispatch'")
    worker.conn.execute("insert into relevo.instance (database_oid) values (1)")
    seen = scrape(worker)
    assert seen["relevo_queue_quiet_deliveries", "bulk", "default"] == 1
    assert seen["relevo_project_rate_share_ratio", "default"] == 0.5
    assert seen["relevo_project_breaker_open", "default"] == seen["relevo_project_brake_active", "default"] == 1
    assert seen["relevo_cycle_paused", "dispatch", ""] == 1
    assert seen["relevo_queue_due_deliveries", "bulk", "default"] == 1
    assert seen["relevo_queue_oldest_due_seconds", "bulk", "default"] > 0
    assert seen["relevo_workers", "alive"] == 1
    assert seen["relevo_database_copied",] == seen["relevo_database_up",] == 1
    assert ("relevo_table_dead_tuples", "due_chunks") in seen
    assert seen["relevo_pool_size_connections",] >= 1


def test_scrapes_share_a_look_and_do_without_the_database(relay, monkeypatch) -> None:
    """Within ten seconds the database is asked once; while it is away counters are still shown, and gauges are not."""
    worker: Relay = relay()
    worker.tell("ana")
    worker.dispatch()
    first = scrape(worker)
    worker.tell("eva")
    assert scrape(worker)["relevo_queue_deliveries", "sent"] == first["relevo_queue_deliveries", "sent"] == 1
    assert ("relevo_queue_deliveries", "pending") not in {key for key, value in scrape(worker).items() if value}
    monkeypatch.setattr(gauges, "_FRESH_S", -1.0)
    worker.app.database.close()
    away = scrape(worker)
    assert away["relevo_database_up",] == 0
    assert away["relevo_tickets_total", "ok", "expo"] == 1
    assert not [key for key in away if key[0] == "relevo_queue_deliveries"]


def test_every_name_says_whose_it_is(relay) -> None:
    """Each metric is named relevo_…, and its HELP says whether replicas are added up or are all the same."""
    families: list[Any] = list(text_string_to_metric_families(relay().app.metrics.render().decode()))
    assert len(families) > len(GAUGES)
    for family in families:
        assert family.name.startswith("relevo_")
        fleet = family.name.removeprefix("relevo_") in GAUGES
        whose = "take the max, not the sum" if fleet else "add up all replicas"
        assert ("take the min" if family.name == "relevo_database_up" else whose) in family.documentation


def test_the_guide_lists_exactly_the_exported_metrics(relay) -> None:
    """Each family of `/metrics` has its row in metrics.md, and each row is a family that `/metrics` exports."""
    families = text_string_to_metric_families(relay().app.metrics.render().decode())
    exported = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    listed = re.findall(r"^\| `(relevo_\w+)` \|", (DOCS / "metrics.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(exported)


def test_codes_that_others_make_up_are_bounded(relay) -> None:
    """A push service that invents codes cannot make the list of metrics grow without end."""
    metrics = relay().app.metrics
    for number in range(300):
        metrics.count_codes(metrics.tickets, [f"code-{number}"], "expo")
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("relevo_tickets_total")]
    assert len(lines) == 101
    assert 'relevo_tickets_total{code="other",provider="expo"} 200.0' in lines
