"""How long items are kept: as their type says, beyond their month, and not a moment longer than their owner is known."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo import Installation
from relevo.app import App
from relevo.archive import retire
from relevo.cycles import cleanup
from support.inboxes import counts, sent, titles
from support.old_months import a_run, clean_up, clean_up_step, export, month_ago
from support.phones import add_phones
from support.processes import PATIENCE_S, eventually

OLD = month_ago(5)
KEEP = "insert into relevo.event_types (event_type, inbox_days) values ('long', 400)"
KEPT = "select count(*) from relevo.kept_inbox_items"
WORDS = "Su hora con la doctora Violeta"


def at(day: int) -> dict[str, Any]:
    """Say when something came: on a day of the old month."""
    return {"day": OLD + timedelta(days=day), "at": datetime(OLD.year, OLD.month, day + 1, 12, tzinfo=UTC)}


def life(conn: psycopg.Connection[Any]) -> tuple[UUID, UUID, UUID]:
    """Give ana two phones, and a phone nobody, with a past in a month that is to leave."""
    [one], [two], [alone] = add_phones(conn, 1, owner="ana"), add_phones(conn, 1, owner="ana"), add_phones(conn, 1)
    sent(conn, [one, two], "both", type="long", **at(1))
    sent(conn, [two], WORDS, type="long", **at(2))
    sent(conn, [one, alone], "short", **at(3))
    sent(conn, [one, alone], "last", type="long", **at(4))
    sent(conn, [one, alone], "gone", type="long", state="cancelled", **at(5))
    return one, two, alone


@pytest.fixture
def app(build, conn: psycopg.Connection[Any], tmp_path: Path) -> App:
    """Relevo with an archive in a folder, and a type that is kept for long."""
    conn.execute(KEEP)
    (tmp_path / "cold").mkdir()
    made: App = build(archive_backend="folder", archive_folder=str(tmp_path / "cold"))
    return made


def archive(app: App, conn: psycopg.Connection[Any]) -> None:
    """Have the old month retired and exported."""
    assert clean_up(app).outcome == "ok"
    assert export(app).outcome in ("ok", "idle")
    gone = conn.execute("select to_regclass(%s)", [f"relevo.notification_deliveries_{OLD:%Y_%m}"]).fetchone()
    assert gone == (None,)
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


def test_it_outlives_its_month(app: App, conn: psycopg.Connection[Any]) -> None:
    """What its type keeps is there after the export, in order, with its marks; what is short is gone with its month."""
    _, _, alone = life(conn)
    events = {item.title: item.event_id for item in relevo.inbox(conn, owner="ana").items}
    relevo.mark_inbox(conn, events[WORDS], "read", owner="ana")
    relevo.mark_inbox(conn, events["both"], "archive", owner="ana")
    archive(app, conn)
    assert titles(conn, owner="ana") == ["last", WORDS]
    assert titles(conn, owner="ana", limit=1) == ["last"]
    assert titles(conn, owner="ana", status="archived") == ["both"]
    assert titles(conn, owner="ana", event_type="long", status="unread") == ["last"]
    assert titles(conn, installation_id=alone) == ["last"]
    assert counts(conn, owner="ana") == (1, 1)
    assert relevo.mark_inbox(conn, events["last"], "read", owner="ana")
    assert counts(conn, owner="ana") == (0, 0)
    [item] = relevo.inbox(conn, owner="ana", status="archived").items
    assert (item.type, dict(item.data), item.at) == ("long", {"to": "screen"}, at(1)["at"])


def test_copied_twice_is_kept_once(app: App, conn: psycopg.Connection[Any]) -> None:
    """A cleanup that died after copying copies again, to the same; before the month is gone nothing is shown twice."""
    life(conn)
    for _ in range(2):
        conn.execute("select relevo.keep_inbox_items(%s, 0, 100000, null)", [OLD])
        assert titles(conn, owner="ana", event_type="long") == ["last", WORDS, "both"]
    assert conn.execute(KEPT).fetchone() == (4,)
    for from_block in range(3):
        conn.execute("select relevo.keep_inbox_items(%s, %s, 1, null)", [OLD, from_block])
    assert conn.execute(KEPT).fetchone() == (4,)


VERSIONS = "select xmin::text from relevo.kept_inbox_items order by inbox_id, event_id"
HOT = f"select to_regclass('relevo.notification_deliveries_{OLD:%Y_%m}') is not null"


def counted(app: App, conn: psycopg.Connection[Any]) -> None:
    """Bring the old month to where it is copied next."""
    life(conn)
    for _ in range(2):
        clean_up_step(app)
    assert conn.execute("select state, rows > 0 from relevo.archive_exports").fetchall() == [("sealed", True)]


def test_copying_stops_and_goes_on(app: App, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleanup that is to stop leaves a month amid its copying; the next one goes on there, and lets it go."""
    monkeypatch.setattr(retire, "_KEPT_BLOCKS", 1)
    counted(app, conn)
    stopped = a_run(app, "cleanup")
    stopped.stopping.set()
    assert cleanup.step(stopped).more
    assert conn.execute("select kept_blocks from relevo.archive_exports").fetchone() == (1,)
    assert conn.execute(HOT).fetchone() == (True,)
    copied = conn.execute(VERSIONS).fetchall()
    assert len(copied) == 4
    clean_up_step(app)
    assert conn.execute(HOT).fetchone() == (False,)
    assert conn.execute(VERSIONS).fetchall() == copied


def test_a_month_that_cannot_leave_is_copied_once(
    app: App, conn: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds the table: the next try copies nothing again, unless the rows lie elsewhere since."""
    monkeypatch.setattr(retire, "_TRIES", 1)
    counted(app, conn)
    with psycopg.connect(dsn) as reader:
        reader.execute("select from relevo.notification_deliveries limit 1")
        assert "somebody holds its table locked" in str(clean_up_step(app).problems)
        copied = conn.execute(VERSIONS).fetchall()
        clean_up_step(app)
        assert conn.execute(VERSIONS).fetchall() == copied
    conn.execute("delete from relevo.kept_inbox_items")
    conn.execute(f"vacuum full relevo.notification_deliveries_{OLD:%Y_%m}")
    clean_up_step(app)
    assert conn.execute(HOT).fetchone() == (False,)
    assert conn.execute(KEPT).fetchone() == (4,)


def test_nothing_is_copied_that_no_type_keeps(build, conn: psycopg.Connection[Any]) -> None:
    """With the usual days a month leaves without a copy."""
    [one] = add_phones(conn, 1, owner="ana")
    sent(conn, [one], "usual", **at(1))
    assert clean_up(build()).outcome == "ok"
    assert conn.execute(KEPT).fetchone() == (0,)


def test_an_event_that_found_no_phone_is_kept(app: App, conn: psycopg.Connection[Any]) -> None:
    """It outlives its month in the inbox of its owner, like all others."""
    life(conn)
    missed = sent(conn, [], "missed", type="long", **at(6))
    conn.execute(
        "update relevo.notification_events set audience = 'installations', fanout_finished_at = %s where id = %s",
        [at(6)["at"], missed],
    )
    conn.execute("insert into relevo.event_owners values (%s, 'ana', nextval('relevo.delivery_ids'), '')", [missed])
    assert titles(conn, owner="ana", limit=2) == ["missed", "last"]
    archive(app, conn)
    assert titles(conn, owner="ana") == ["missed", "last", WORDS, "both"]


@pytest.mark.parametrize("retired", [False, True], ids=["before its month is retired", "after"])
def test_items_outlive_a_phone_that_cleanup_deletes(app: App, conn: psycopg.Connection[Any], retired: bool) -> None:
    """Cleanup deletes ana's only phone, which is dead for long: her long-lived items stay, and so do those of ana elsewhere."""
    [one], [shop] = add_phones(conn, 1, owner="ana"), add_phones(conn, 1, owner="ana", project="shop")
    day = at(1) if retired else {}
    sent(conn, [one], "dead", type="long", **day)
    sent(conn, [shop], "shop", type="long", **day)
    conn.execute(
        "update relevo.device_installations set invalid_reason = 'gone', invalidated_at = now() - interval '300 days' where installation_id = %s",
        [one],
    )
    if retired:
        archive(app, conn)
    for _ in range(2):
        assert clean_up(app).outcome in ("ok", "idle")
        assert conn.execute("select installation_id from relevo.device_installations").fetchall() == [(shop,)]
        assert titles(conn, owner="ana", project="default") == ["dead"]
        assert counts(conn, owner="ana", project="default") == (1, 1)
        assert titles(conn, owner="ana", project="shop") == ["shop"]
    [item] = relevo.inbox(conn, owner="ana", project="default").items
    assert relevo.mark_inbox(conn, item.event_id, "read", owner="ana", project="default")
    assert counts(conn, owner="ana", project="default") == (0, 0)


def test_items_stay_while_first_the_phone_and_then_their_month_leaves(app: App, conn: psycopg.Connection[Any]) -> None:
    """The phone is deleted while its items are not yet copied; the copies lead to the owner all the same."""
    [one], [other] = add_phones(conn, 1, owner="ana"), add_phones(conn, 1, owner="bea")
    sent(conn, [one], "dead", type="long", **at(1))
    sent(conn, [other], "bea's", type="long", **at(2))
    conn.execute("delete from relevo.device_installations where owner = 'ana'")
    assert titles(conn, owner="ana") == ["dead"]
    archive(app, conn)
    assert (titles(conn, owner="ana"), titles(conn, owner="bea")) == (["dead"], ["bea's"])


def test_days_that_are_over(app: App, conn: psycopg.Connection[Any]) -> None:
    """Cleanup deletes what was kept once its days are over, and marks of what no inbox has any more."""
    life(conn)
    relevo.mark_inbox(conn, relevo.inbox(conn, owner="ana").items[0].event_id, "read", owner="ana")
    archive(app, conn)
    conn.execute("update relevo.kept_inbox_items set kept_until = now() - interval '1 second'")
    conn.execute("update relevo.inbox_marks set at = now() - interval '500 days'")
    assert titles(conn, owner="ana") == []
    assert clean_up(app).outcome == "ok"
    for table in ("kept_inbox_items", "inbox_marks"):
        assert conn.execute(f"select count(*) from relevo.{table}").fetchone() == (0,)


def texts(conn: psycopg.Connection[Any]) -> str:
    """Return all that inboxes keep."""
    tables = ("inboxes", "inbox_marks", "kept_inbox_items", "event_owners")
    return str([conn.execute(f"select * from relevo.{table}").fetchall() for table in tables])


@pytest.mark.parametrize("project", [None, "default"])
def test_a_forgotten_owner(app: App, conn: psycopg.Connection[Any], project: str | None) -> None:
    """Neither name nor words, marks or items are left, before and after the month left, in a project or in all."""
    one, _, _ = life(conn)
    archive(app, conn)
    hot = sent(conn, [one], "hot")
    relevo.mark_inbox(conn, hot, "archive", owner="ana")
    relevo.mark_inbox_before(conn, owner="ana")
    assert "ana" in texts(conn)
    assert WORDS in texts(conn)
    if project is None:
        relevo.forget(conn, owner="ana")
    else:
        conn.execute("select relevo.forget_owner_in_project('ana', %s)", [project])
    assert "ana" not in texts(conn)
    assert WORDS not in texts(conn)
    assert titles(conn, owner="ana", status="all") == []
    assert relevo.mark_inbox_before(conn, owner="ana") is False
    assert "ana" not in texts(conn)


def test_forgetting_while_events_leave(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Who retires events waits for who is forgetting before it locks any of them: neither dies of a deadlock."""
    event = sent(conn, [], WORDS, state="completed", **at(1))
    conn.execute("update relevo.notification_events set audience = 'installations' where id = %s", [event])
    conn.execute("insert into relevo.event_owners values (%s, 'ana', nextval('relevo.delivery_ids'))", [event])
    moved: list[Any] = []

    def retire() -> None:
        with psycopg.connect(dsn) as cleanup:
            moved.append(cleanup.execute("select relevo.retire_events(%s, 1000, 1000)", [OLD]).fetchone())

    with psycopg.connect(dsn) as app:
        relevo.forget(app, owner="bea")
        thread = threading.Thread(target=retire)
        thread.start()
        waiting = (
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        eventually(lambda: conn.execute(waiting).fetchone() == (1,), "the events wait")
        relevo.forget(app, owner="ana")
        app.commit()
        thread.join(PATIENCE_S)
    assert moved == [(1,)]
    assert "ana" not in texts(conn)
    assert WORDS not in texts(conn)


def test_a_forgotten_phone(app: App, conn: psycopg.Connection[Any]) -> None:
    """What came by it alone goes with it; what came by another phone, too, stays with the owner."""
    _, two, alone = life(conn)
    archive(app, conn)
    relevo.forget(conn, two)
    assert titles(conn, owner="ana") == ["last", "both"]
    assert WORDS not in texts(conn)
    relevo.mark_inbox_before(conn, installation_id=alone)
    relevo.forget(conn, alone)
    assert str(alone) not in texts(conn)


def test_what_a_former_user_of_a_phone_had(app: App, conn: psycopg.Connection[Any]) -> None:
    """A phone that changed hands shows nothing that was kept for whoever had it before."""
    _, two, alone = life(conn)
    [item] = relevo.inbox(conn, installation_id=alone, event_type="long").items
    relevo.mark_inbox(conn, item.event_id, "archive", installation_id=alone)
    archive(app, conn)
    for phone in (two, alone):
        relevo.register(conn, Installation(None, phone, owner="bea"))
        assert titles(conn, owner="bea", status="all") == []
    conn.execute(
        "select relevo.register_installation(jsonb_build_object('installation_id', %s::text, 'owner', null))", [alone]
    )
    for status in ("all", "archived", "unread"):
        assert titles(conn, installation_id=alone, status=status) == []
    assert not relevo.mark_inbox(conn, item.event_id, "read", installation_id=alone), "by its id it is no item, either"
