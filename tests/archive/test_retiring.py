"""Cleanup retires what is past its retention: whole months, sealed first, and never what dedups."""

from __future__ import annotations

import psycopg
import pytest
from months import add_old_deliveries, add_old_event, add_old_items, add_old_requests, clean_up, exports, month_ago

OLD, RECENT = month_ago(5), month_ago(2)


def test_a_month_past_its_retention_is_retired_whole(build, conn) -> None:
    """Deliveries and journal leave by their partition, events and items in batches; what is younger stays."""
    add_old_deliveries(conn, OLD, 500)
    add_old_deliveries(conn, RECENT, 10)
    add_old_requests(conn, OLD, 20)
    event = add_old_event(conn, OLD, "k")
    add_old_items(conn, month_ago(14), 30)
    add_old_items(conn, month_ago(11), 3)
    report = clean_up(build())
    assert report.outcome == "ok", report
    name = f"{OLD:%Y-%m}"
    assert exports(conn) == {
        ("licitaciones", f"{month_ago(14):%Y-%m}"): "retired",
        ("notification_deliveries", name): "retired",
        ("notification_events", name): "retired",
        ("push_requests", name): "retired",
    }
    assert (report.counts["archived_deliveries"], report.counts["archived_licitaciones"]) == (500, 30)
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (10,)
    assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (3,)
    cold = f"relevo_archive.notification_deliveries_{OLD:%Y_%m}"
    assert conn.execute(f"select count(*) from {cold}").fetchone() == (500,)
    assert conn.execute("select event_id from relevo.event_keys").fetchall() == [(event,)]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is sealed"):
        conn.execute(f"delete from {cold}")
    assert clean_up(build()).outcome == "idle"


def test_months_retire_one_after_the_other(build, conn) -> None:
    """Names of indexes that PostgreSQL shortened alike do not meet in the cold schema."""
    app = build()
    for ago in (5, 6, 7, 8):
        add_old_deliveries(conn, month_ago(ago), 5)
        report = clean_up(app)
        assert (report.outcome, report.counts["archived_deliveries"]) == ("ok", 5)
