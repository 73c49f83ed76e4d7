"""Tables that changed while cleanup retires them: columns and partitions that came or went, names that are taken."""

from __future__ import annotations

import threading
from uuid import uuid4

import psycopg
import pytest

from relevo.cycles import cleanup
from support.old_months import add_old_deliveries, add_old_event, add_old_items, clean_up, exports, month_ago
from support.processes import PATIENCE_S, eventually
from support.sealed_month import COLD, HOT, OLD


def test_a_missing_cold_schema_is_told(build, conn) -> None:
    """Where the role could not make the schema, cleanup says who has to, and the rest of it is done."""
    add_old_deliveries(conn, OLD, 3)
    conn.execute("drop schema relevo_archive")
    report = clean_up(build())
    assert (
        "the schema relevo_archive is missing; have an administrator run: CREATE SCHEMA relevo_archive AUTHORIZATION "
        in report.error
    )
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (3,)


def test_a_column_added_half_way_through_a_month_goes_along(build, conn) -> None:
    """A month of items that is being moved while an upgrade adds a column carries it; what went before has none."""
    month = month_ago(14)
    add_old_items(conn, month, 10)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones add column added_later numeric(8, 3) not null default 1.125")
    assert clean_up(build()).counts["archived_licitaciones"] == 6
    found = f"select added_later::text, count(*) from relevo_archive.licitaciones_{month:%Y_%m} group by 1 order by 1"
    assert conn.execute(found).fetchall() == [("1.125", 6), (None, 4)]


def test_a_month_is_finished_for_one_table_alone(conn) -> None:
    """Items and events of one month are moved side by side: when the last item has left, events still move."""
    month = month_ago(14)
    add_old_items(conn, month, 3)
    for key in ("one", "two"):
        add_old_event(conn, month, key)
    conn.execute("select relevo.retire_events(%s, 1000, 1), relevo.retire_items(%s, 1000, 2)", [month, month])
    finish = "select relevo.finish_moving('licitaciones', %s), relevo.finish_moving('notification_events', %s)"
    assert conn.execute(finish, [month, month]).fetchone() == (False, False)
    conn.execute("select relevo.retire_items(%s, 1000, 2)", [month])
    assert conn.execute(finish, [month, month]).fetchone() == (True, False)
    states = "select entity, state, rows from relevo.archive_exports order by entity"
    assert conn.execute(states).fetchall() == [("licitaciones", "retired", 3), ("notification_events", "moving", None)]


def test_a_column_added_to_events_goes_along_but_not_of_personal_ones(build, conn) -> None:
    """Nobody knows what an added column says of whom: it is kept of public events, and of personal ones it is not."""
    add_old_event(conn, OLD, "before")
    conn.execute("select relevo.retire_events(%s, 1000, 1)", [OLD])
    conn.execute("alter table relevo.notification_events add column added_later text")
    for audience in ("everyone", "matching", "installations"):
        add_old_event(conn, OLD, audience, audience=audience, added_later=audience, first_sent_at=OLD)
    assert clean_up(build()).counts["archived_events"] == 3
    found = (
        "select audience, added_later, first_sent_at is not null as sent"
        f" from relevo_archive.notification_events_{OLD:%Y_%m} order by id"
    )
    assert conn.execute(found).fetchall() == [
        ("everyone", None, False),
        ("everyone", "everyone", True),
        ("matching", "matching", True),
        ("installations", None, True),
    ]


def test_a_column_dropped_half_way_through_a_month_does_not_stop_it(build, conn) -> None:
    """What was moved before keeps its values, what comes later has none."""
    month = month_ago(14)
    conn.execute("alter table relevo.licitaciones add column dropped_later text default 'x'")
    add_old_items(conn, month, 10)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones drop column dropped_later")
    assert clean_up(build()).counts["archived_licitaciones"] == 6
    found = f"select dropped_later, count(*) from relevo_archive.licitaciones_{month:%Y_%m} group by 1 order by 1"
    assert conn.execute(found).fetchall() == [("x", 4), (None, 6)]


def test_a_column_that_changed_half_way_through_a_month_is_refused(build, conn) -> None:
    """Finer values would be rounded on their way: that month says so and keeps its rows, the others are moved."""
    month, younger = month_ago(15), month_ago(14)
    add_old_items(conn, month, 10)
    add_old_items(conn, younger, 3)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones alter column monto type numeric(20, 4)")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert "column monto of relevo.licitaciones is of type numeric(20,4), and that of" in report.error
    assert "nothing was moved" in report.error
    left = (
        "select date_trunc('month', created_at at time zone 'UTC')::date, count(*) from relevo.licitaciones group by 1"
    )
    assert conn.execute(left).fetchall() == [(month, 6)]
    assert exports(conn) == {
        ("licitaciones", f"{month:%Y-%m}"): "moving",
        ("licitaciones", f"{younger:%Y-%m}"): "retired",
    }


@pytest.mark.parametrize("entity", ["licitaciones", "notification_events"])
def test_a_column_that_comes_while_a_batch_waits_goes_along(build, conn, dsn, entity) -> None:
    """The batch waits for the upgrade that adds it, looks at the columns only then, and loses no value."""
    month = month_ago(14)
    add_old_items(conn, month, 5)
    add_old_event(conn, month, "k")
    statement = "select relevo.retire_items(%s, 1000, 9)"
    if entity == "notification_events":
        statement = "select relevo.retire_events(%s, 1000, 9)"
    conn.execute(statement.replace("9)", "0)"), [month])  # its cold table is there, as the columns were
    with psycopg.connect(dsn) as mine, psycopg.connect(dsn, autocommit=True) as theirs:
        mine.execute(f"alter table relevo.{entity} add column added_later text default 'value'")
        moving = threading.Thread(target=lambda: theirs.execute(statement, [month]))
        moving.start()
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: conn.execute(waits, [theirs.info.backend_pid]).fetchone() == (True,), "it waits")
        mine.commit()
        moving.join(PATIENCE_S)
        assert not moving.is_alive()
    found = f"select distinct added_later from relevo_archive.{entity}_{month:%Y_%m}"
    assert conn.execute(found).fetchall() == [("value",)]


def test_a_name_that_is_taken_in_the_cold_schema_holds_up_no_other_month(build, conn) -> None:
    """Somebody made a table where a month should go: it stays where it is and says why; the others are retired."""
    add_old_deliveries(conn, OLD, 3)
    add_old_deliveries(conn, month_ago(4), 3)
    conn.execute(f"create table {COLD} (theirs int)")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert f"notification_deliveries_{OLD:%Y_%m} could not be retired yet" in report.error
    assert "already exists" in report.error
    assert exports(conn)["notification_deliveries", f"{month_ago(4):%Y-%m}"] == "retired"
    assert conn.execute(f"select count(*) from {HOT}").fetchone() == (3,)


def test_a_moving_month_whose_table_is_gone_holds_up_no_other(build, conn) -> None:
    """Somebody dropped the table that a month was moving to: that is told, and the other months are retired."""
    for ago in (14, 15):
        add_old_items(conn, month_ago(ago), 3)
    conn.execute("select relevo.retire_items(%s, 1000, 3)", [month_ago(15)])
    conn.execute(f"drop table relevo_archive.licitaciones_{month_ago(15):%Y_%m}")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert f"licitaciones_{month_ago(15):%Y_%m} could not be moved yet: UndefinedTable" in report.error
    assert exports(conn)["licitaciones", f"{month_ago(14):%Y-%m}"] == "retired"


def test_a_default_partition_is_complained_of_and_stops_nothing(build, conn) -> None:
    """Its rows are in no month: cleanup says so each time, retires the months, and makes what partitions it can."""
    conn.execute("create table relevo.everything_else partition of relevo.notification_deliveries default")
    add_old_deliveries(conn, OLD, 3)
    report = clean_up(build())
    assert report.outcome == "partial"
    assert "relevo.everything_else is a partition of relevo.notification_deliveries and no month's" in report.error
    assert "move its rows, and detach it" in report.error
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"


def test_rows_in_a_default_partition_keep_a_new_one_from_being_made_in_words(build, conn, monkeypatch) -> None:
    """The month ahead whose rows lie there already cannot be made: that is told once, and the rest of cleanup is done."""
    conn.execute(
        "create table relevo.notification_deliveries_default partition of relevo.notification_deliveries default"
    )
    conn.execute(
        "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
        " values (now()::date + 150, 1, %s, 'x')",
        [uuid4()],
    )
    add_old_deliveries(conn, OLD, 3)
    monkeypatch.setattr(cleanup, "_MONTHS_AHEAD", 6)
    report = clean_up(build())
    assert report.outcome == "partial"
    assert report.error.count("the partitions ahead could not be made: CheckViolation") == 1
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"
