"""News go to a webhook as signed events, with the retries and dead letters of all others, and can be paused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deliveries import add_deliveries, mark_failed
from fakes.server import Answer, FakeServer
from hearing import read, reap, subscribe, write
from phones import fan_out_to_the_end
from relevo import actions, door
from relevo.app import App
from relevo.door import Installation
from relevo.errors import UsageError

KEY = b"s" * 32
MADE = "select data ->> 'position' from relevo.notification_events where event_type = 'relevo.news' order by id"


class Receiver(FakeServer):
    """Answers with a status, and remembers."""

    status = 200

    def answer(self, _asked: object) -> Answer:
        """Answer."""
        return Answer(self.status)

    def heard(self) -> list[dict[str, Any]]:
        """Return what was told, each checked for its signature."""
        return [json.loads(asked.body) | {"checked": signed(asked)} for asked in self.asked]


def signed(asked: Any) -> bool:
    """Tell whether a request is signed with our secret."""
    at = f"{asked.headers['webhook-id']}.{asked.headers['webhook-timestamp']}.".encode()
    mine = base64.b64encode(hmac.new(KEY, at + asked.body, hashlib.sha256).digest()).decode()
    return bool(asked.headers["webhook-signature"] == f"v1,{mine}")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on loopback."""
    with Receiver() as server:
        yield server


@pytest.fixture
def app(build: Callable[..., App], receiver: Receiver, tmp_path: Path) -> App:
    """A worker that knows the receiver as billing, and tries everything twice."""
    file = tmp_path / "webhooks.json"
    secret = "whsec_" + base64.b64encode(KEY).decode()
    file.write_text(json.dumps({"billing": {"url": f"{receiver.url}/hook", "secret": secret}}))
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


def test_signed(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """The receiver gets each once, signed, with what the feed would say, and no preference of its own asks for more."""
    subscribe(conn, "billing", "delivery.failed", webhook="billing")
    ids = add_deliveries(conn, 2, project="shop")
    mark_failed(conn, ids, code="MessageTooBig")
    relay(app)
    relay(app)
    heard = sorted(receiver.heard(), key=lambda each: each["data"]["position"])
    assert [each["data"]["delivery_id"] for each in heard] == ids
    assert all(each["checked"] for each in heard)
    assert heard[0]["title"] == heard[0]["data"]["kind"] == "delivery.failed"
    assert heard[0]["data"]["error_code"] == "MessageTooBig"
    assert heard[0]["data"]["subscription"] == "billing"
    found = conn.execute("select for_news from relevo.device_installations where token = 'billing'").fetchall()
    assert found == [(True,)]
    assert conn.execute("select count(*) from relevo.notification_preferences").fetchone() == (0,)


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
        actions.pause_news(app.database, name)
    write(conn, 2)
    reap(app)
    assert (made(conn), read(conn, "feed")) == ([1], [])
    for name in ("billing", "feed"):
        actions.resume_news(app.database, name)
    reap(app)
    assert made(conn) == [1, 2, 3]
    assert len(read(conn, "feed")) == 3


def test_backlog(conn: psycopg.Connection[Any], app: App) -> None:
    """A receiver that takes nothing has a bounded number on their way; the others stay in the backlog."""
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    conn.execute(
        "insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count,"
        " lapse_count, had_error, ids, installations) select 'webhook::news.billing', 'urgent', now(), now()::date, n,"
        " 'relevo.news', now(), 0, 0, false, array[n], array[gen_random_uuid()] from generate_series(1, 997) n"
    )
    write(conn, 10)
    reap(app)
    assert made(conn) == [1, 2, 3]
    conn.execute("delete from relevo.due_chunks")
    reap(app)
    assert made(conn) == list(range(1, 11))


def test_the_apps_own_webhook(conn: psycopg.Connection[Any], app: App, receiver: Receiver) -> None:
    """A webhook that the app has registered itself is used as it is; one that may get nothing keeps its news waiting."""
    own = door.register(conn, Installation("billing", provider="webhook", permission="denied"))
    subscribe(conn, "billing", "token.disabled", webhook="billing")
    write(conn, 1)
    relay(app)
    assert (made(conn), receiver.asked) == ([], [])
    door.register(conn, Installation("billing", installation_id=own, provider="webhook"))
    relay(app)
    assert len(receiver.asked) == 1


def test_a_name_used_again(conn: psycopg.Connection[Any], app: App) -> None:
    """A subscription that was removed and made again does not take its news for those of the former one."""
    for _ in range(2):
        subscribe(conn, "billing", "token.disabled", webhook="billing")
        write(conn, 1)
        reap(app)
        actions.remove_news(app.database, "billing")
    assert made(conn) == [1, 1]
    assert conn.execute("select count(*) from relevo.news").fetchone() == (0,)
    with pytest.raises(UsageError, match="no subscription billing"):
        actions.pause_news(app.database, "billing")
