"""What came of events, deliveries and phones is told to whoever asked, once it is decided, and never if it was not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import relevo
from relevo.app import App
from relevo.client import values, verbs
from relevo.client.news import USUAL_KINDS
from relevo.client.values import Event
from relevo.core import queries
from support.deliveries import add_deliveries, add_event, mark_failed
from support.news_subscriptions import ALL, acknowledge, positions, read, reap, subscribe, waiting, write
from support.phones import add_phones, fan_out
from support.query_plans import rows_read_by_table


def disable(conn: psycopg.Connection[Any], phone: object, reason: str = "DeviceNotRegistered") -> None:
    """Disable a phone's token as settle does."""
    conn.execute(
        "update relevo.device_installations set invalidated_at = now(), invalid_reason = %s where installation_id = %s",
        [reason, phone],
    )


def test_nobody_asked(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """Nothing at all is written while nobody subscribed."""
    app = build()
    [phone] = add_phones(conn, 1)
    mark_failed(conn, add_deliveries(conn, 2), code="x")
    disable(conn, phone)
    verbs.cancel(conn, verbs.enqueue(conn, Event("a", "b", "c", audience=[phone])).event_id)
    reap(app)
    for table in ("news_inbox", "news_events", "news"):
        assert conn.execute(f"select count(*) from relevo.{table}").fetchone() == (0,)


def test_failed_deliveries(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """A delivery that failed for good is told with its event, phone and error; what is news itself is not."""
    app = build()
    subscribe(conn)
    ids = add_deliveries(conn, 2, project="shop")
    mark_failed(conn, ids, code="MessageTooBig")
    mark_failed(conn, add_deliveries(conn, 1, event_type="relevo.news"), code="x")
    reap(app)
    found = read(conn)
    assert [(row["news_position"], row["kind"], row["delivery_id"]) for row in found] == [
        (1, "delivery.failed", ids[0]),
        (2, "delivery.failed", ids[1]),
    ]
    assert found[0]["project"] == "shop"
    assert found[0]["event_id"]
    assert found[0]["installation_id"]
    assert found[0]["data"] == {"event_type": "tender.new", "error_code": "MessageTooBig", "attempts": 1}


def test_phones(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """A token that is disabled or moves away is told with its reason and owner, a phone that leaves, too; no token is."""
    app = build()
    subscribe(conn)
    token = "ExponentPushToken[a]"
    gone, moved, left, forgotten = (
        verbs.register(conn, values.Installation(token if name == "moved" else None, owner=name))
        for name in ("gone", "moved", "left", "forgotten")
    )
    disable(conn, gone)
    disable(conn, gone, "again")
    verbs.register(conn, values.Installation(token))
    conn.execute("update relevo.device_installations set active = false where installation_id = %s", [left])
    conn.execute("select relevo.forget_installation(%s)", [forgotten])
    reap(app)
    assert [(row["kind"], row["installation_id"], row["data"]["reason"], row["owner"]) for row in read(conn)] == [
        ("token.disabled", gone, "DeviceNotRegistered", "gone"),
        ("token.disabled", moved, "token_moved", "moved"),
        ("installation.unregistered", left, "unregistered", "left"),
        ("installation.unregistered", forgotten, "forgotten", None),
    ]
    assert token not in str(conn.execute("select * from relevo.news").fetchall())


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_by_itself(conn: psycopg.Connection[Any], build: Callable[..., App], kind: str) -> None:
    """Who asked for one kind of news alone gets that kind, whatever else happens, and nobody's asking for another helps."""
    app = build()
    subscribe(conn, "only", kind)
    disabled, left = add_phones(conn, 2)
    mark_failed(conn, add_deliveries(conn, 1), code="MessageTooBig")
    disable(conn, disabled)
    conn.execute("select relevo.unregister_installation(%s)", [left])
    verbs.cancel(conn, verbs.enqueue(conn, Event("note", "cancelled", "Hi", audience=[left])).event_id)
    while fan_out(app).outcome != "idle":
        pass
    reap(app)
    reap(app)
    assert [row["kind"] for row in read(conn, "only")] == [kind]


def test_finished_events(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """An event is told once, when nothing is left of it to send or confirm, with its key and what became of it."""
    app = build()
    subscribe(conn)
    [phone] = add_phones(conn, 1)
    nobody = verbs.enqueue(conn, Event("note", "nobody", "Hi", audience=[uuid4()])).event_id
    cancelled = verbs.enqueue(conn, Event("note", "cancelled", "Hi", audience=[phone])).event_id
    verbs.cancel(conn, cancelled)
    sent = verbs.enqueue(conn, Event("note", "sent", "Hi", audience=[phone])).event_id
    while fan_out(app).outcome != "idle":
        pass
    reap(app)
    reap(app)
    told = {row["event_id"]: row for row in read(conn)}
    assert told.keys() == {nobody, cancelled}
    assert told[cancelled]["data"] == {"event_type": "note", "state": "cancelled", "deliveries": {}}
    for before, after in (("pending", "sent"), ("sent", "ok")):
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, -1), (%s, %s, 1)",
            [sent, before, sent, after],
        )
        reap(app)
    reap(app)
    assert [(row["event_id"], row["event_key"], row["data"]["deliveries"]) for row in read(conn)[2:]] == [
        (sent, "sent", {"ok": 1})
    ]


def test_folds_side_by_side(conn: psycopg.Connection[Any], dsn: str, build: Callable[..., App]) -> None:
    """Two replicas that fold one event's last changes at once do not each leave its end to the other."""
    app = build()
    subscribe(conn, "app", "event.finished")
    event = add_event(conn)
    for status in ("ok", "failed"):
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'pending', 0), (%s, %s, 1)",
            [event, event, status],
        )
    with psycopg.connect(dsn) as other:
        other.execute("delete from relevo.event_progress_deltas where status = 'ok'")
        other.execute("insert into relevo.event_progress values (%s, 'ok', 1)", [event])
        reap(app)
        first = [row["data"]["deliveries"] for row in read(conn)]
        other.commit()
    reap(app)
    assert first + [row["data"]["deliveries"] for row in read(conn)][len(first) :] == [{"ok": 1, "failed": 1}]


def test_rollback(conn: psycopg.Connection[Any], dsn: str, build: Callable[..., App]) -> None:
    """What was rolled back was never news."""
    app = build()
    subscribe(conn)
    [phone] = add_phones(conn, 1)
    with psycopg.connect(dsn) as other:
        disable(other, phone)
        verbs.cancel(other, verbs.enqueue(other, Event("a", "b", "c", audience=[phone])).event_id)
        other.rollback()
    reap(app)
    assert read(conn) == []


def test_late_commits(conn: psycopg.Connection[Any], dsn: str, build: Callable[..., App]) -> None:
    """A transaction that began first and commits last is read last, by a reader that is far ahead, too."""
    app = build()
    subscribe(conn)
    early, late = add_phones(conn, 2)
    with psycopg.connect(dsn) as slow:
        disable(slow, late)
        disable(conn, early)
        reap(app)
        [first] = read(conn)
        assert first["installation_id"] == early
        acknowledge(conn, first["news_position"])
        slow.commit()
    reap(app)
    assert [(row["news_position"], row["installation_id"]) for row in read(conn)] == [(2, late)]


def test_shares_at_once(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Only one at a time gives out numbers, so that nobody reads one whose forerunner is still to come."""
    subscribe(conn)
    write(conn, 3)
    share = queries.load("news")["share_out_news"]
    with psycopg.connect(dsn) as first:
        first.execute(share, {"limit": 2})
        conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            conn.execute(share, {"limit": 2})
        assert (positions(conn), waiting(conn)) == ([], 3)
    conn.execute(share, {"limit": 2})
    assert positions(conn) == [1, 2, 3]


def test_open_acknowledgement(conn: psycopg.Connection[Any], dsn: str, build: Callable[..., App]) -> None:
    """An app that acknowledges in a long transaction does not keep the news of others, or its own, from coming."""
    app = build()
    subscribe(conn)
    subscribe(conn, "other")
    write(conn, 2)
    reap(app)
    with psycopg.connect(dsn) as slow:
        acknowledge(slow, 1)
        write(conn, 1)
        reap(app)
        assert positions(conn, "other") == [1, 2, 3]
        assert positions(conn) == [1, 2, 3]
        slow.commit()
    assert positions(conn) == [2, 3]


def test_bounded(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """A backlog keeps the newest, what fell out of it unread is counted, what was acknowledged is not."""
    app = build(news_backlog_limit=3)
    subscribe(conn)
    write(conn, 5)
    reap(app)
    assert positions(conn) == [3, 4, 5]
    acknowledge(conn, 4)
    write(conn, 4)
    reap(app)
    assert positions(conn) == [7, 8, 9]
    found = conn.execute("select head, tail, dropped from relevo.news_subscriptions").fetchone()
    assert found == (9, 6, 4)
    assert conn.execute("select count(*) from relevo.news").fetchone() == (3,)


def test_cost(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """However many wait, a page is found by its key, and the list of subscriptions looks at none but the next."""
    app = build()
    subscribe(conn)
    write(conn, 5000)
    reap(app)
    conn.execute("analyze relevo.news")
    asked = {"subscription": "app", "after": 4000, "limit": 10}
    read_page = rows_read_by_table(conn, queries.load("client")["read_news"], asked)
    assert 10 <= read_page["news"] <= 12
    listed = rows_read_by_table(conn, queries.load("subscriptions")["list_subscriptions"], {"most": 10})
    assert listed["news"] <= 2


def test_retention(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """News that nobody read are forgotten after their days."""
    app = build(news_retention_days=2)
    subscribe(conn)
    write(conn, 3)
    reap(app)
    conn.execute("update relevo.news set at = now() - interval '3 days' where position < 3")
    reap(app)
    assert positions(conn) == [3]


def test_kinds_and_projects(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """Each subscription gets the kinds and the project it asked for, in numbers of its own."""
    app = build()
    subscribe(conn, "failures", "delivery.failed")
    subscribe(conn, "shop", "delivery.failed", "token.disabled", project="shop")
    mark_failed(conn, add_deliveries(conn, 1, project="webhook::shop"), code="x")
    mark_failed(conn, add_deliveries(conn, 1), code="x")
    disable(conn, add_phones(conn, 1, project="shop")[0])
    reap(app)
    assert [row["kind"] for row in read(conn, "failures")] == ["delivery.failed", "delivery.failed"]
    assert [(r["news_position"], r["kind"]) for r in read(conn, "shop")] == [
        (1, "delivery.failed"),
        (2, "token.disabled"),
    ]


@pytest.mark.parametrize(
    "sending",
    ["shop", "webhook::shop", "fcm::shop", "fcm::shop::ios", "apns::shop::sandbox", "webpush::shop::push.example:8443"],
)
def test_the_project_of_each_push_service(
    conn: psycopg.Connection[Any], build: Callable[..., App], sending: str
) -> None:
    """News name the app's project, and reach who asked for its news, whatever service and platform a push goes to."""
    app = build()
    subscribe(conn, "shop", "delivery.failed", "delivery.opened", project="shop")
    subscribe(conn, "ios", "delivery.failed", "delivery.opened", project="shop::ios")
    conn.execute("insert into relevo.event_types (event_type, opens) values ('tender.new', true)")
    ids = add_deliveries(conn, 2, project=sending)
    mark_failed(conn, ids[:1], code="MessageTooBig")
    conn.execute("update relevo.notification_deliveries set provider_ticket_id = 't' where id = %s", ids[1:])
    (phone,) = conn.execute(
        "select installation_id from relevo.notification_deliveries where id = %s", ids[1:]
    ).fetchone() or (None,)
    assert relevo.report_opened(conn, phone, ids[1]) == "noted"
    reap(app)
    assert [(row["kind"], row["project"]) for row in read(conn, "shop")] == [
        ("delivery.failed", "shop"),
        ("delivery.opened", "shop"),
    ]
    assert read(conn, "ios") == []


def test_everyone_is_not_a_webhook_for_news(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """An event for everyone does not reach an address that only gets news."""
    app = build()
    [phone] = add_phones(conn, 1)
    add_phones(conn, 1, for_news=True)
    event = verbs.enqueue(conn, Event("a", "b", "c", audience="everyone")).event_id
    fan_out(app)
    assert conn.execute(
        "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [event]
    ).fetchall() == [(phone,)]


def test_refused(conn: psycopg.Connection[Any]) -> None:
    """What cannot be subscribed to is refused in a sentence."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"kinds": ["x"]}, "kinds must name"),
        ({"kinds": []}, "kinds must name"),
        ({"name": "a b"}, "name must be"),
        ({"name": ""}, "name must be"),
        ({"project": "p"}, "event.finished goes with no project"),
        ({"secret": "s"}, "has no field secret"),
    ]
    for given, complaint in refused:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=complaint):
            subscribe(conn, **({"name": "app"} | given))


def test_unknown_subscription(conn: psycopg.Connection[Any]) -> None:
    """To read or acknowledge what nobody subscribed to, or was never read, is refused."""
    for call in (lambda: read(conn, "none"), lambda: acknowledge(conn, 1, "none")):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="there is no subscription none"):
            call()
    subscribe(conn)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 0"):
        acknowledge(conn, 1)


def test_what_is_left_out_of_a_subscription_stays(conn: psycopg.Connection[Any]) -> None:
    """A second call changes what it names alone; null removes webhook and project, and stands for the usual kinds."""

    def now(**given: object) -> tuple[Any, ...]:
        asked = json.dumps({"name": "billing"} | given)
        conn.execute("select relevo.subscribe_news(%s::jsonb)", [asked])
        row = conn.execute(
            "select kinds, project, webhook from relevo.news_subscriptions where name = 'billing'"
        ).fetchone()
        assert row is not None
        return tuple(row)

    usual = sorted(USUAL_KINDS)
    assert now() == (usual, None, None)
    assert now(kinds=["token.disabled"], project="shop", webhook="crm") == (["token.disabled"], "shop", "crm")
    assert now() == (["token.disabled"], "shop", "crm")
    assert now(kinds=["delivery.failed"]) == (["delivery.failed"], "shop", "crm")
    assert now(webhook=None) == (["delivery.failed"], "shop", None)
    assert now(webhook="crm", kinds=None) == ([kind for kind in usual if kind != "event.finished"], "shop", "crm")
    assert now(project=None, kinds=["event.finished"]) == (["event.finished"], None, "crm")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"event.finished goes with no project"):
        now(project="shop")
    relevo.subscribe_news(conn, "billing", kinds=["token.disabled"])
    assert now() == (["token.disabled"], None, "crm")
    relevo.subscribe_news(conn, "billing", webhook=None)
    assert now() == (["token.disabled"], None, None)


def test_an_acknowledgement_never_goes_back(conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """A former position that is acknowledged again, as by a reader that was slow, brings nothing back."""
    app = build()
    subscribe(conn)
    mark_failed(conn, add_deliveries(conn, 3), code="x")
    reap(app)
    assert acknowledge(conn, 3)
    assert not acknowledge(conn, 1)
    assert read(conn) == []
