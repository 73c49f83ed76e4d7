"""Shadow mode: everything happens but the request to the push service, and nothing says that it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.client import inboxes, quiet, verbs
from relevo.client.values import Installation, Owners
from relevo.core.errors import UsageError
from relevo.core.model import Answer, PushRequest
from relevo.operators import fleet, shadow
from relevo.sandbox import Sandbox
from support import mixed_phones
from support.claim_steps import LATER, NOW, add, answers, journal, reap, take
from support.deliveries import one, states
from support.fake_http_server import FakeServer
from support.news_subscriptions import subscribe
from support.sending_worker import Relay, token


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: every push service."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


def ends(worker: Relay) -> list[tuple[str, str | None]]:
    """Return how each delivery ended."""
    return [(row["status"], row["last_error_code"]) for row in worker.deliveries()]


SHADOW = ("skipped", "shadow")


def test_no_push_service_gets_a_request(relay: Any, sandbox: Sandbox) -> None:
    """Of phones of every push service each delivery ends as skipped by shadow mode: no request leaves, no receipt is
    awaited, no rate of sent pushes moves, and the run says how many there were."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox))
    shadow.begin_shadow(worker.app.database, shadow.ALL)
    phones = mixed_phones.register(worker.conn, sandbox, mixed_phones.ONE_OF_EACH, "p")
    before = sandbox.totals()
    worker.tell_everyone()
    report = worker.dispatch()
    assert report.outcome == "ok", report
    assert ends(worker) == [SHADOW] * len(phones)
    assert report.counts["notifications_shadow"] == len(phones)
    assert "notifications_sent" not in report.counts
    assert sandbox.totals() == before
    assert worker.rows("select from relevo.awaited_receipts") == []
    assert worker.rows("select from relevo.push_tallies where sent > 0") == []
    assert worker.rows("select from relevo.push_requests where answered_at is null or outcome = 'answered'") == []


def test_no_credentials_are_needed(relay: Any, conn: psycopg.Connection[Any]) -> None:
    """A worker without keys of a push service brings its deliveries to their end in shadow mode, and only then."""
    worker: Relay = relay()
    kinds = ("fcm", "apns", "webpush", "huawei", "expo")
    for provider in kinds:
        conn.execute(
            "insert into relevo.device_installations (token, provider, project, platform) values (%s, %s, 'shop', 'android')",
            [token("a") if provider == "expo" else "a" * 64, provider],
        )
    worker.tell_everyone()
    worker.dispatch()
    shadow.begin_shadow(worker.app.database, "shop")
    worker.tell_everyone()
    worker.dispatch()
    assert ends(worker)[len(kinds) :] == [SHADOW] * len(kinds)


def test_a_project_in_shadow_does_not_keep_another(relay: Any) -> None:
    """Of two projects only the one that is not in shadow mode sends."""
    worker: Relay = relay()
    shadow.begin_shadow(worker.app.database, "shop")
    worker.register("a", project="shop")
    worker.register("b", project="bank")
    worker.tell_everyone()
    worker.drain()
    assert (worker.received("a"), worker.received("b")) == (0, 1)
    assert worker.delivery("a")["last_error_code"] == "shadow"


def test_what_fell_due_in_shadow_is_never_sent(relay: Any) -> None:
    """After the end of the mode what fell due before ends as in shadow, though nobody claimed it; what falls due
    later is sent."""
    worker: Relay = relay()
    shadow.begin_shadow(worker.app.database, "default")
    worker.tell("old")
    worker.tell("done")
    worker.dispatch(at_most=1)
    assert shadow.end_shadow(worker.app.database, "default")
    worker.tell("new")
    worker.drain()
    assert [worker.received(name) for name in ("old", "done", "new")] == [0, 0, 1]
    assert ends(worker)[:2] == [SHADOW, SHADOW]


def test_events_that_wait_for_fan_out_keep_the_mode_on(relay: Any) -> None:
    """The mode does not end while events are due and have no deliveries, unless it is forced."""
    worker: Relay = relay()
    shadow.begin_shadow(worker.app.database, "default")
    worker.register("a")
    worker.enqueue()
    with pytest.raises(UsageError, match="1 event is due"):
        shadow.end_shadow(worker.app.database, "default")
    assert len(shadow.modes(worker.app.database)) == 1
    worker.fan_out()
    assert shadow.end_shadow(worker.app.database, "default")
    assert not shadow.end_shadow(worker.app.database, "default")


def test_a_claim_keeps_its_mode(build: Any, conn: psycopg.Connection[Any]) -> None:
    """A claim in shadow cannot record that it sent, one that is live cannot record that it did not because of shadow,
    whatever the mode is meanwhile; each records its own."""
    worker = build()
    [live, *_] = add(conn, 2)
    claim = take(worker)
    shadow.begin_shadow(worker.database, "default", now=NOW)
    request = journal(worker, claim)
    with pytest.raises(psycopg.errors.DataException):
        worker.claims.settle(claim, answers(claim, "skipped", error_code="shadow", attempted=False), [request.id], NOW)
    assert worker.claims.settle(claim, answers(claim), [request.id], NOW).written == {"sent": 2}

    [left] = add(conn, 1)
    assert worker.claims.claim("dispatch", "default", "bulk", now=NOW) is None, "who does not know of the mode"
    second = take(worker, in_shadow=True)
    assert second.in_shadow
    shadow.end_shadow(worker.database, "default", now=NOW + timedelta(seconds=1))
    request = journal(worker, second)
    with pytest.raises(psycopg.errors.DataException):
        worker.claims.settle(second, answers(second), [request.id], NOW)
    [delivery] = second.deliveries
    mine = [Answer(delivery.event_day, left, "skipped", attempted=False, error_code="shadow")]
    assert worker.claims.settle(second, mine, [request.id], NOW).written == {"skipped": 1}
    assert one(conn, live)["status"] == "sent"


def test_a_lost_claim_in_shadow_is_not_ambiguous(build: Any, conn: psycopg.Connection[Any]) -> None:
    """A worker that dies in shadow after the journal leaves nothing that may have been sent: no attempt is spent, also
    at most once, and what it held stays in shadow after the end of the mode."""
    worker, other = build(worker_id="slow"), build(worker_id="other")
    shadow.begin_shadow(worker.database, "default", now=NOW - timedelta(hours=1))
    add(conn, 1)
    add(conn, 1, at_most_once=True)
    claim = take(worker, in_shadow=True)
    worker.claims.journal(claim, [PushRequest(uuid4(), tuple(claim.deliveries))], NOW)
    shadow.end_shadow(worker.database, "default", now=NOW + timedelta(minutes=1))
    reap(other, LATER)
    assert states(conn) == {"pending": 2}
    assert conn.execute("select sum(attempt_count)::int from relevo.notification_deliveries").fetchone() == (0,)
    assert other.claims.claim("dispatch", "default", "bulk", now=LATER) is None
    assert take(other, LATER, in_shadow=True).in_shadow


def test_a_retry_after_the_end_is_not_sent(build: Any, conn: psycopg.Connection[Any]) -> None:
    """What a claim in shadow would have tried again is over once the mode has ended."""
    worker = build()
    shadow.begin_shadow(worker.database, "default", now=NOW - timedelta(hours=1))
    [delivery] = add(conn, 1)
    claim = take(worker, in_shadow=True)
    shadow.end_shadow(worker.database, "default", now=NOW)
    again = answers(claim, "retryable", attempted=False, error_code="token_changed")
    worker.claims.settle(claim, again, (), NOW + timedelta(seconds=1), finish=True)
    found = one(conn, delivery)
    assert (found["status"], found["last_error_code"]) == SHADOW


def test_nothing_says_that_it_was_sent(relay: Any) -> None:
    """The inbox has the event, the explanation says that shadow mode kept the push, the event's counts have nothing
    that was sent, and status says which projects are in shadow mode."""
    worker: Relay = relay()
    shadow.begin_shadow(worker.app.database, shadow.ALL)
    phone = verbs.register(worker.conn, Installation(token("ana"), owner="ana"))
    worker.phones["ana"] = phone
    event = worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    worker.dispatch()
    worker.reap()
    told = verbs.explain(worker.conn, event, phone)
    assert (told.gets_it, told.rule) == (False, "shadow")
    assert told.reason == "Relevo did not send this push: shadow mode was on."
    assert [item.event_id for item in inboxes.inbox(worker.conn, owner="ana").items] == [event]
    seen = fleet.status(worker.app.database, worker.app.settings)
    assert [row["project"] for row in seen.shadow] == [""]
    assert fleet.queue(worker.app.database)["sent"] == 0


def test_a_breaker_does_not_hold_shadow(relay: Any) -> None:
    """A project whose breaker is open goes on in shadow: there is nothing that could fail."""
    worker: Relay = relay()
    worker.register(*"abc")
    worker.enqueue()
    worker.fan_out()
    worker.conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at)"
        " values ('default', now(), 'open', 'down', 'request', now() - interval '1 minute', now() - interval '1 second')"
    )
    shadow.begin_shadow(worker.app.database, "default", now=worker.clock.now())
    worker.drain()
    assert ends(worker) == [SHADOW] * 3


def test_rules_go_by_what_would_have_been_sent(relay: Any) -> None:
    """A cap counts what shadow mode kept, and a later event with the same collapse key replaces a waiting one."""
    worker: Relay = relay()
    shadow.begin_shadow(worker.app.database, shadow.ALL)
    worker.phones["ana"] = verbs.register(worker.conn, Installation(token("ana"), owner="ana"))
    quiet.set_cap(worker.conn, 2, per="day", project="default")
    for _ in range(3):
        worker.enqueue(audience=Owners("ana"))
        worker.fan_out()
        worker.dispatch()
    assert [code for _, code in ends(worker)] == ["shadow", "shadow", "capped"]


def test_news_do_not_leave_either(relay: Any, tmp_path: Any) -> None:
    """News to the app's webhook are kept, too, if all projects are in shadow mode, also without WEBHOOKS_FILE."""
    worker: Relay = relay()
    with FakeServer() as server:
        shadow.begin_shadow(worker.app.database, shadow.ALL)
        subscribe(worker.conn, "billing", "event.finished", webhook="billing")
        worker.register("a")
        worker.tell_everyone()
        worker.dispatch()
        worker.reap()
        worker.fan_out()
        worker.drain()
        assert server.asked == []
    news = [row for row in worker.deliveries() if row["event_type"] == "relevo.news"]
    assert [(row["status"], row["last_error_code"]) for row in news] == [SHADOW]


def test_run_with_shadow_does_not_stop_a_fleet_that_sends(relay: Any) -> None:
    """`relevo run --shadow` begins the mode in a database that sent nothing, and refuses where pushes are sent."""
    worker: Relay = relay(register=False)
    shadow.require(worker.app.database)
    shadow.require(worker.app.database)
    assert [row["project"] for row in shadow.modes(worker.app.database)] == [""]
    shadow.end_shadow(worker.app.database, shadow.ALL)
    worker.tell("a")
    worker.dispatch()
    assert worker.received("a") == 1
    with pytest.raises(UsageError, match="sent pushes"):
        shadow.require(worker.app.database)


def test_a_middleware_learns_of_shadow(relay: Any) -> None:
    """Middlewares run in shadow, and can see that nothing is sent."""
    seen = []

    def watch(context: Any, following: Any) -> Any:
        reply = following()
        seen.append((context.in_shadow, reply.kind, reply.code))
        return reply

    worker: Relay = relay(push_middlewares=[watch])
    shadow.begin_shadow(worker.app.database, shadow.ALL)
    worker.tell("a")
    worker.dispatch()
    assert seen == [(True, "held_back", "shadow")]
