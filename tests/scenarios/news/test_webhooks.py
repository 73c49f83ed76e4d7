"""News go to a webhook as signed events, with the retries and dead letters of all others, and can be paused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import relevo
from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.core.errors import InvalidInputError, UsageError
from relevo.operators import actions, fleet
from relevo.verbs import news
from relevo.verbs.callers import operator
from support.deliveries import add_deliveries, mark_failed
from support.fake_http_server import Answer, FakeServer
from support.news_subscriptions import read, reap, subscribe, write
from support.phones import fan_out_to_the_end
from support.processes import eventually

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
MADE = "select data ->> 'position' from relevo.notification_events where event_type = 'relevo.news' order by id"


class Receiver(FakeServer):
    """Answers with a status, and remembers."""

    status = 200

    def answer(self, _asked: object) -> Answer:
        """Answer."""
        return Answer(self.status)

    def heard(self) -> list[dict[str, Any]]:
        """Return what was told, each checked for its signature."""
        return [relevo.verify_webhook(asked.body, asked.headers, SECRET) for asked in self.asked]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on loopback."""
    with Receiver() as server:
        yield server


@pytest.fixture
def app(build: Callable[..., App], receiver: Receiver, tmp_path: Path) -> App:
    """A worker that knows the receiver as billing, and tries everything twice."""
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"billing": {"url": f"{receiver.url}/hook", "secret": SECRET}}))
    file.chmod(0o600)
    return build(webhooks_file=file, http_allow_private="true", outbox_max_attempts=1)


def relay(app: App) -> None:
    """Carry news from the inbox to the receiver."""
    reap(app)
    fan_out_to_the_end(app)
    report = app.runner.run(app.registry["dispatch"], "manual")
    assert report.outcome in ("ok", "idle", "partial"), report


def made(conn: psycopg.Connection[Any]) -> list[int]:
    """Return the numbers of the news of which events were made."""
    return [int(row[0]) for row in conn.execute(MADE.encode()).fetchall()]


def test_the_shape_of_standard_webhooks(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """The receiver gets each once, signed: type, timestamp and the names in data, and nothing of a push around it."""
    subscribe(conn, "billing", "delivery.failed", webhook="billing")
    [failed] = add_deliveries(conn, 1, event_type="order.shipped", project="shop")
    [(phone,)] = conn.execute(
        "update relevo.device_installations set owner = 'ana' returning installation_id"
    ).fetchall()
    [(event,)] = conn.execute("update relevo.notification_events set event_key = '1042' returning id").fetchall()
    mark_failed(conn, [failed], code="MessageTooBig")
    relay(app)
    relay(app)
    [told] = receiver.heard()
    assert set(told) == {"type", "timestamp", "data"}
    assert told["type"] == "delivery.failed"
    assert datetime.fromisoformat(told["timestamp"]).utcoffset() == timedelta(0)
    assert told["data"] == {
        "subscription": "billing",
        "position": 1,
        "event_id": event,
        "event_type": "order.shipped",
        "event_key": "1042",
        "delivery_id": failed,
        "installation_id": str(phone),
        "owner": "ana",
        "project": "shop",
        "error_code": "MessageTooBig",
        "attempts": 1,
    }


def test_a_forgotten_owner_is_not_told(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """The owner is read when news are sent: who was forgotten since is in none, and no event holds the name."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[ana]", owner="ana"))
    subscribe(conn, "billing", "installation.unregistered", webhook="billing")
    conn.execute("delete from relevo.device_installations where installation_id = %s", [phone])
    reap(app)
    assert conn.execute("select from relevo.notification_events where data::text like '%%ana%%'").fetchall() == []
    relay(app)
    [told] = receiver.heard()
    assert told["data"]["installation_id"] == str(phone)
    assert "owner" not in told["data"]


def test_two_secrets(conn: psycopg.Connection[Any], app: App, receiver: Receiver, tmp_path: Path) -> None:
    """While one secret takes over from another both are signed with, so that a receiver may know either."""
    other = "whsec_" + base64.b64encode(b"t" * 32).decode()
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"billing": {"url": f"{receiver.url}/hook", "secrets": [other, SECRET]}}))
    subscribe(conn, "billing", "token.disabled", webhook="billing")

    def told() -> bool:
        write(conn, 1)
        relay(app)
        return " " in receiver.asked[-1].headers["webhook-signature"]

    eventually(told, "the file is read again")
    [*_, asked] = receiver.asked
    for secrets in ([SECRET], [other], [other, SECRET]):
        assert relevo.verify_webhook(asked.body, asked.headers, *secrets)["type"] == "token.disabled"


def test_dead_letters(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """What the receiver refuses for good is a dead letter, and no news of it."""
    subscribe(conn, "billing", "delivery.failed", webhook="billing")
    mark_failed(conn, add_deliveries(conn, 1), code="x")
    receiver.status = 400
    relay(app)
    assert len(receiver.asked) == 1
    found = conn.execute("select event_id from relevo.dead_letters order by died_at").fetchall()
    assert len(found) == 2
    relay(app)
    assert made(conn) == [1]
    receiver.status = 200
    actions.redrive(app.database, actions.DeadLetters(event_id=found[1][0]))
    relay(app)
    assert len(receiver.asked) == 2


def test_paused(conn: psycopg.Connection[Any], app: App) -> None:
    """A paused subscription keeps what comes, hands nothing out, and goes on where it stood."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    subscribe(conn, "feed", "token.disabled")
    write(conn, 1)
    reap(app)
    for name in ("billing", "feed"):
        news.pause(operator(app.database), name)
    write(conn, 2)
    reap(app)
    assert (made(conn), read(conn, "feed")) == ([1], [])
    for name in ("billing", "feed"):
        news.pause(operator(app.database), name, paused=False)
    reap(app)
    assert made(conn) == [1, 2, 3]
    assert len(read(conn, "feed")) == 3


def test_backlog(conn: psycopg.Connection[Any], app: App) -> None:
    """A receiver that takes nothing has a bounded number on their way; the others stay in the backlog."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    conn.execute(
        "insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count,"
        " lapse_count, had_error, ids, installations) select 'relevo.news::billing', 'urgent', now(), now()::date, n,"
        " 'relevo.news', now(), 0, 0, false, array[n], array[gen_random_uuid()] from generate_series(1, 997) n"
    )
    write(conn, 10)
    reap(app)
    assert made(conn) == [1, 2, 3]
    conn.execute("delete from relevo.due_chunks")
    reap(app)
    assert made(conn) == list(range(1, 11))


def test_backlog_in_shared_chunks(conn: psycopg.Connection[Any], app: App) -> None:
    """News that wait in one chunk are counted one by one, where they are bounded and where they are told."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    write(conn, 1_100)
    for _ in range(4):
        reap(app)
        fan_out_to_the_end(app)
    assert len(made(conn)) == 1_000
    [told] = fleet.status(app.database, app.settings).news
    assert told["on_their_way"] == 1_000


def test_the_apps_own_webhook(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """News go their own way to a webhook that the app has registered, too: in a project of their own, whatever it is."""
    own = verbs.register(conn, Installation("billing", provider="webhook", permission="denied"))
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    write(conn, 1)
    relay(app)
    assert len(receiver.asked) == 1
    found = conn.execute(
        "select project, provider, status, installation_id = %s from relevo.notification_deliveries", [own]
    )
    assert found.fetchall() == [("relevo.news::billing", "relevo.news", "ok", False)]


def test_nobody_takes_its_place(conn: psycopg.Connection[Any], app: App) -> None:
    """No app and no phone registers itself where news go."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    write(conn, 1)
    relay(app)
    app.worker.serve([name for name in app.services.providers if name != "relevo.news"])
    [row] = conn.execute("select installation_id, token from relevo.device_installations").fetchall()
    for given in (
        Installation(row[1], provider="relevo.news"),
        Installation("x", installation_id=row[0], provider="relevo.news"),
        Installation("x", installation_id=row[0]),
    ):
        with pytest.raises(InvalidInputError):
            verbs.register(conn, given)


def test_what_was_on_its_way_before(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """News that a former version sent on their way, to the installation it made for them, arrive in the same shape."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    conn.execute(
        "insert into relevo.device_installations (token, provider, project, for_news)"
        " values ('billing', 'webhook', 'news.billing', true)"
    )
    conn.execute(
        "select relevo.enqueue_any_type(jsonb_build_array(jsonb_build_object('type', 'relevo.news', 'key', 'x.1',"
        " 'title', 'token.disabled', 'lane', 'urgent', 'audience', 'installations', 'installations',"
        " jsonb_build_array(i.installation_id), 'data', jsonb_build_object('kind', 'token.disabled', 'position', 1,"
        " 'at', now(), 'subscription', 'billing')))) from relevo.device_installations i"
    )
    relay(app)
    [told] = receiver.heard()
    assert (told["type"], told["data"]) == ("token.disabled", {"position": 1, "subscription": "billing"})


def test_a_name_used_again(conn: psycopg.Connection[Any], app: App) -> None:
    """A subscription that was removed and made again does not take its news for those of the former one."""
    for _ in range(2):
        subscribe(conn, "billing", "token.disabled", webhook="billing")
        write(conn, 1)
        reap(app)
        news.remove(operator(app.database), "billing")
    assert made(conn) == [1, 1]
    assert conn.execute("select count(*) from relevo.news").fetchone() == (0,)
    with pytest.raises(UsageError, match="no subscription billing"):
        news.pause(operator(app.database), "billing")
