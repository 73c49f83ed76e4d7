"""News to webhooks are apart from pushes: a dead consumer holds up no push, and is in no list, chart or alert of them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relevo.app import push_services
from relevo.core import queries
from relevo.operators import doctor, events, fleet, phones
from relevo.operators.gauges import Gauges
from support.fake_http_server import Answer, Asked, FakeServer
from support.news_subscriptions import reap, subscribe, write
from support.phones import fan_out_to_the_end
from support.processes import eventually
from support.sending_worker import beside

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class Consumer(FakeServer):
    """A consumer of news that answers with an error; or not at all, until it is let go."""

    hangs = False
    status = 500

    def __init__(self) -> None:
        super().__init__()
        self.met, self.let_go = threading.Event(), threading.Event()

    def answer(self, _asked: Asked) -> Answer:
        """Answer with an error, in the end."""
        self.met.set()
        if self.hangs:
            self.let_go.wait(120)
        return Answer(self.status)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A consumer that takes nothing."""
    with Consumer() as server:
        yield server
        server.let_go.set()


@pytest.fixture
def worker(relay: Callable[..., Any], consumer: Consumer, tmp_path: Path) -> Any:
    """A worker with a phone, and a subscription to news whose consumer is dead."""
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"billing": {"url": f"{consumer.url}/hook", "secret": SECRET}}))
    file.chmod(0o600)
    patient = {"push_request_timeout_ms": 60_000, "outbox_lease_duration_ms": 180_000}
    made = relay(webhooks_file=file, http_allow_private="true", push_breaker_failures=1, **patient)
    made.register("ana")
    subscribe(made.conn, "billing", "token.disabled", webhook="billing")
    return made


def tell(worker: Any, count: int = 3) -> None:
    """Have some news on their way to the consumer."""
    write(worker.conn, count)
    reap(worker.app)
    fan_out_to_the_end(worker.app)


def test_a_push_leaves_beside_a_consumer_that_hangs(worker: Any, consumer: Consumer) -> None:
    """While a consumer lets requests hang, a phone's push is sent: before any of the news has an answer."""
    consumer.hangs = True
    tell(worker)
    with beside(worker.dispatch):
        eventually(consumer.met.is_set, "the consumer is asked")
        worker.tell("ana")
        worker.dispatch()
        eventually(lambda: worker.delivery("ana")["status"] == "sent", "the push leaves")
        news = worker.rows("select status from relevo.notification_deliveries where event_type = 'relevo.news'")
        assert {row["status"] for row in news} == {"pending"}
        consumer.let_go.set()


def test_a_dead_consumer_is_its_own_warning(worker: Any, consumer: Consumer) -> None:
    """Its breaker is open and its news are late: health names it and the server behind it, and no push as late."""
    tell(worker)
    worker.dispatch()
    worker.conn.execute(
        "update relevo.due_chunks set created_at = now() - interval '1 hour', due_at = now() - interval '1 hour'"
    )
    seen = fleet.status(worker.app.database, worker.app.settings)
    codes = {problem.code for problem in seen.problems}
    assert "news_not_taken" in codes
    assert codes.isdisjoint({"deliveries_late", "project_stopped", "requests_failing"})
    [told] = [str(problem) for problem in seen.problems if problem.code == "news_not_taken"]
    assert "your server at the webhook billing accepts no news of subscription billing" in told
    assert "pushes are not delayed" in told
    assert (seen.due, [row["project"] for row in seen.projects if "news" in row["project"]]) == ([], [])


def test_news_do_not_end_the_list_of_events(worker: Any) -> None:
    """A page of events with nothing but news among its newest leads on to the older events."""
    worker.tell("ana")
    tell(worker)
    found = events.page(worker.app.database, limit=2)
    assert (found.rows, found.next != "") == ([], True)
    older = events.page(worker.app.database, before=int(found.next), limit=2)
    assert ([row["event_type"] for row in older.rows], older.next) == (["notice"], "")


def test_news_are_in_no_list_chart_or_gauge_of_pushes(worker: Any, consumer: Consumer) -> None:
    """Lists of events, types and phones, charts, dead letters and gauges tell of pushes; news have gauges of their own."""
    tell(worker)
    worker.tell("ana")
    worker.drain()
    worker.conn.execute(
        "insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)"
        " select event_day, id, notification_event_id, project, 'HTTP_500', now() from relevo.notification_deliveries"
        " where event_type = 'relevo.news' limit 1"
    )
    database, settings = worker.app.database, worker.app.settings
    assert [row["event_type"] for row in events.latest(database).rows] == ["notice"]
    assert len(events.latest(database, event_type="relevo.news").rows) == 3
    assert "relevo.news" not in events.types(database)
    assert [row["project"] for row in phones.installations(database)] == ["default"]
    overview = fleet.overview(database, settings, dict)
    assert sum(row["sent"] for row in overview.hour) == 1
    assert (sum(row["failed"] for row in overview.hour), overview.status.dead_letters) == (0, 0)
    told = {
        (family.name, tuple(sample.labels.values()))
        for family in Gauges(database, settings, "w").collect()
        for sample in family.samples
    }
    assert not [each for each in told if "relevo.news::billing" in each[1]]
    assert ("relevo_news_breaker_open", ("billing", "billing")) in told
    assert ("relevo_news_oldest_on_their_way_seconds", ("billing", "billing")) in told


def test_news_are_not_counted_among_pushes(worker: Any, consumer: Consumer) -> None:
    """How many there are of each status tells of pushes: before changes are folded, after, and once events are gone."""
    consumer.status = 204
    tell(worker)
    worker.tell("ana")
    worker.drain()
    counted = {"sent": 1}
    assert fleet.queue(worker.app.database)["statuses"] == counted
    reap(worker.app)
    assert fleet.queue(worker.app.database)["statuses"] == counted
    differ = worker.conn.execute(queries.load("consistency")["look_at_totals"]).fetchone()
    assert differ == (False,), "doctor counts as they are counted"
    worker.conn.execute(
        "with gone as (delete from relevo.event_progress p using relevo.notification_events e"
        " where e.id = p.event_id and e.event_type = 'relevo.news' returning p.event_id), "
        "events as (delete from relevo.notification_events e using gone g where e.id = g.event_id returning e.id, e.event_key)"
        " insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month)"
        " select 'relevo.news', event_key, id, '', 'fanned', date_trunc('month', now()) from events"
    )
    assert fleet.queue(worker.app.database)["statuses"] == counted


def test_a_refused_address_is_told(relay: Callable[..., Any], command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Subscribing, doctor and status say of an address that is refused why, and which setting would allow it."""
    file = tmp_path / "webhooks.json"
    addresses = {"billing": "http://127.0.0.1:9/hook", "plain": "http://93.184.216.34/hook"}
    file.write_text(json.dumps({name: {"url": url, "secret": SECRET} for name, url in addresses.items()}))
    file.chmod(0o600)
    worker = relay(webhooks_file=file)
    monkeypatch.setenv("WEBHOOKS_FILE", str(file))
    allowed = "it leads to a private address, which HTTP_ALLOW_PRIVATE=true would allow"
    assert allowed in " ".join(command("news", "subscribe", "billing", "--webhook", "billing").out.split())
    mended = "it leads to the internet by http; write its url in WEBHOOKS_FILE with https"
    assert mended in " ".join(command("news", "subscribe", "plain", "--webhook", "plain").out.split())
    settings = worker.app.settings
    trouble = partial(push_services.webhook_trouble, settings)
    around = doctor.look_around(worker.app.database, settings, webhook_trouble=trouble)
    found = [each for each in around if each.kind == "webhook_unknown"]
    assert [(allowed in each.what, mended in each.what) for each in found] == [(True, False), (False, True)]
    tell(worker, 1)
    worker.dispatch()
    problems = fleet.status(worker.app.database, settings).problems
    told, other = (str(problem) for problem in problems if problem.code == "news_refused")
    assert f"cannot be sent to the webhook billing: {allowed}" in told
    assert "relevo redrive --project relevo.news::billing" in told
    assert mended in other


def test_words_of_its_own(worker: Any, consumer: Consumer, command: Any) -> None:
    """What became of news is told of a server that took it: of no push, no push service and no receipt."""
    consumer.status = 204
    tell(worker, 1)
    worker.dispatch()
    [row] = worker.rows("select id, notification_event_id as event from relevo.notification_deliveries")
    event, delivery = command("event", str(row["event"])).out, command("delivery", str(row["id"])).out
    assert "your server accepted it" in event
    assert "1 accepted by your server" in event
    assert "Your server accepted it." in delivery
    for foreign in ("first push", "receipts", "Apple"):
        assert foreign not in event + delivery
