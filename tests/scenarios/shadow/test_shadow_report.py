"""The shadow report names each fault of the other system, and nothing else."""

from __future__ import annotations

import csv
import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from exponent_server_sdk import PushClient, PushMessage

from relevo.client import verbs
from relevo.client.values import Installation, Owners
from relevo.operators import shadow, shadow_report
from relevo.operators.shadow_report import KINDS, Asked
from relevo.operators.shadow_sends import Refused, Send, Source
from support.claim_steps import NOW
from support.deliveries import add_event
from support.relevo_command import Command
from support.sending_worker import Relay, token

Named = set[tuple[str, str, str]]
MINUTE = timedelta(minutes=1)


class Loop:
    """A loop of Expo's SDK, as a team has one: it sends each push to each phone, and writes down when. It has faults."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self.client = PushClient(host=url)
        self.rng = rng
        self.sent: list[dict[str, str]] = []
        self.expected: Named = set()
        self.posts = 0

    def send(self, at: datetime, owner: str, key: str) -> None:
        """Send a push, unless a fault comes over it: it loses it, sends it twice, or only after a while."""
        fault = self.rng.choices(["none", "lost", "doubled", "late"], [85, 5, 5, 5])[0]
        if fault == "lost":
            self.expected.add(("extra", owner, key))
            return
        if fault == "late":
            self.expected.add(("earlier", owner, key))  # Relevo would have been earlier
            at += self.rng.randint(10, 300) * MINUTE
        times = [at, at + timedelta(seconds=self.rng.randint(1, 900))] if fault == "doubled" else [at]
        if fault == "doubled":
            self.expected.add(("doubled", owner, key))
        for each in times:
            self.post(each, owner, key)

    def post(self, at: datetime, owner: str, key: str) -> None:
        """Send a push, and write it down."""
        self.client.publish(PushMessage(to=token(owner), title=f"Order {key}"))
        self.posts += 1
        jitter = timedelta(seconds=self.rng.uniform(-60, 60))
        self.sent.append({"sent_at": (at + jitter).isoformat(), "owner": owner, "key": key, "title": f"Order {key}"})

    def write(self, file: Path, *columns: str) -> Path:
        """Write its sends as CSV, in any order."""
        self.rng.shuffle(self.sent)
        with file.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.sent)
        return file


def named(found: shadow_report.Compared) -> Named:
    """Return what a report names: of what kind, of whom, and what."""
    return {
        (kind, str(row["owner"]), str(row.get("event_key") or row["title"]).removeprefix("Order "))
        for kind in KINDS
        for row in found.rows[kind]
    }


def test_a_week_beside_a_loop(relay: Any, tmp_path: Path) -> None:
    """For a week of days Relevo runs beside a loop of Expo's SDK that loses, doubles and delays pushes: the report names
    each of these and nothing else, by key and by title, and each phone got what the loop sent, no more. A push that
    only the loop sent is explained in the words of the product."""
    worker: Relay = relay()
    rng = random.Random(7)
    loop = Loop(worker.sandbox.url, rng)
    owners = [f"user-{n}" for n in range(5)]
    for owner in owners:
        worker.phones[owner] = verbs.register(worker.conn, Installation(token(owner), owner=owner))
    worker.phones["quiet"] = verbs.register(worker.conn, Installation(token("quiet"), owner="quiet", opt_outs=("ads",)))
    shadow.begin_shadow(worker.app.database, shadow.ALL)
    worker.clock.stop()
    worker.travel(hours=1)  # ahead of the database's own clock, by which events are due
    began = worker.clock.now()
    for day in range(7):
        for hour in range(0, 24, 3):
            at = worker.clock.now()
            key = f"{day}-{hour}"
            told = rng.sample(owners, 2)
            worker.enqueue(type="order", key=key, title=f"Order {key}", audience=Owners(*told))
            worker.fan_out()
            report = worker.dispatch()
            assert report.outcome == "ok", report
            for owner in told:
                loop.send(at, owner, key)
            worker.travel(hours=3)
    worker.enqueue(type="offer", key="offer", title="Order offer", category="ads", audience=Owners("quiet"))
    worker.fan_out()
    loop.post(worker.clock.now(), "quiet", "offer")
    loop.expected.add(("missing", "quiet", "offer"))
    worker.travel(hours=6)
    assert {kind for kind, *_ in loop.expected} == {"extra", "earlier", "doubled", "missing"}
    span = Asked(since=began - timedelta(hours=1), until=worker.clock.now(), limit=1_000)
    for columns in (("sent_at", "owner", "key"), ("sent_at", "owner", "title")):
        refused = Refused()
        file = loop.write(tmp_path / "sends.csv", *columns)
        found = shadow_report.compare(worker.app.database, span, Source(file), refused)
        assert refused.count == 0
        assert named(found) == loop.expected
        assert found.by == ("owner", columns[2])
        assert found.counts["same"] == 2 * 7 * 8 - sum(kind in ("extra", "earlier") for kind, *_ in loop.expected)
        [missing] = found.rows["missing"]
        assert missing["why"] == ("It opted out of the category ads." if columns[2] == "key" else missing["why"])
    assert sum(worker.received(name) for name in worker.phones) == loop.posts
    assert worker.rows("select from relevo.shadow_sends") == [], "a file is compared, not kept"


DELIVER = """
with phone as (
  insert into relevo.device_installations (token, owner) values (%(token)s, %(owner)s)
  on conflict do nothing returning installation_id
), known as (
  select installation_id from phone union all select i.installation_id from relevo.device_installations i where i.token = %(token)s limit 1
)
insert into relevo.notification_deliveries (event_day, notification_event_id, event_type, installation_id, status, completed_at, last_error_code)
select e.event_day, e.id, e.event_type, k.installation_id, 'skipped', %(at)s, 'shadow'
  from relevo.notification_events e cross join known k where e.id = %(event)s
"""


def would_send(conn: psycopg.Connection[Any], name: str, owner: str, at: datetime, title: str) -> None:
    """Insert a delivery that shadow mode kept from being sent, to a phone of an owner."""
    event = add_event(conn, event=None, deadline=at + timedelta(days=40))
    conn.execute("update relevo.notification_events set title = %s where id = %s", [title, event])
    conn.execute(DELIVER, {"token": token(name), "owner": owner, "at": at, "event": event})


@pytest.mark.parametrize("seed", range(6))
def test_random_faults_by_title(build: Any, conn: psycopg.Connection[Any], seed: int) -> None:
    """Of pushes whose title comes again every day or so, the report names each fault that was put in, whatever the
    order of the file; what is apart by less than the tolerance is no difference."""
    worker, rng = build(), random.Random(seed)
    sends: list[Send] = []
    expected: list[tuple[str, str, int]] = []
    for person in range(4):
        owner, at = f"user-{person}", NOW
        for n in range(6):
            at += timedelta(hours=rng.randint(26, 40))
            would_send(conn, owner, owner, at, "Good morning")
            fault = rng.choice(["none", "none", "extra", "doubled", "earlier", "later"])
            then = at + rng.uniform(-4, 4) * MINUTE
            if fault == "extra":
                expected.append((fault, owner, n))
                continue
            if fault == "earlier":
                then = at + rng.uniform(6, 600) * MINUTE
            if fault == "later":
                then = at - rng.uniform(6, 600) * MINUTE
            sends.append(Send(then, owner=owner, title=" good Morning"))
            if fault == "doubled":
                sends.append(Send(max(then, at) + rng.uniform(1, 60) * MINUTE, owner=owner, title="Good morning"))
            if fault != "none":
                expected.append((fault, owner, n))
        if rng.random() < 0.5:
            sends.append(Send(at + timedelta(hours=30), owner=owner, title="Good morning"))
            expected.append(("missing", owner, 6))
    rng.shuffle(sends)
    with worker.database.transaction() as connection:
        shadow_report.add(connection, sends)
    asked = Asked(since=NOW, until=NOW + timedelta(days=30), limit=1_000)
    found = shadow_report.compare(worker.database, asked)
    counted = [(kind, str(row["owner"])) for kind in KINDS for row in found.rows[kind]]
    assert sorted(counted) == sorted((kind, owner) for kind, owner, _ in expected)


def test_one_line_for_an_owner_of_two_phones(build: Any, conn: psycopg.Connection[Any]) -> None:
    """A system that writes one line for each person does not miss the person's second phone; nor is a line for each
    phone a doubled push, nor a lost push lost twice."""
    worker = build()
    for n, title in enumerate(("once", "each", "lost")):
        event = add_event(conn, deadline=NOW + timedelta(days=50 + n))
        conn.execute("update relevo.notification_events set title = %s where id = %s", [title, event])
        for phone in ("phone", "tablet"):
            conn.execute(DELIVER, {"token": token(phone), "owner": "ana", "at": NOW, "event": event})
    sends = [Send(NOW, owner="ana", title=title) for title in ("once", "each", "each")]
    with worker.database.transaction() as connection:
        shadow_report.add(connection, sends)
    found = shadow_report.compare(worker.database, Asked(since=NOW - MINUTE, until=NOW + MINUTE))
    assert {kind: n for kind, n in found.counts.items() if n} == {"same": 3, "extra": 1}


def test_the_same_send_again_is_one(build: Any, conn: psycopg.Connection[Any]) -> None:
    """A report that comes twice with the send's own number is one send, and a token is kept as its phone, not as it is."""
    worker = build()
    phone = verbs.register(conn, Installation(token("a"), owner="ana"))
    send = Send(NOW, token=token("a"), key="k", id="n1")
    with worker.database.transaction() as connection:
        assert shadow_report.add(connection, [send]) == 1
        assert shadow_report.add(connection, [send, Send(NOW, token=token("nobody"), key="k")]) == 1
    rows = conn.execute("select installation_id, send_id from relevo.shadow_sends order by id").fetchall()
    assert rows == [(phone, "n1"), (None, None)]
    assert conn.execute("select relevo.forget_owner('ana')").fetchone() == (1,)
    assert conn.execute("select count(*) from relevo.shadow_sends where installation_id is not null").fetchone() == (0,)


def test_the_command(command: Command, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    """`relevo shadow report` prints what differs and the lines that cannot be read, and exits with 1; a file of
    OneSignal is read with the key of its message; without anything to compare with it says so."""
    would_send(conn, "a", "ana", NOW, "Hello")
    file = tmp_path / "sends.csv"
    file.write_text(f"sent_at,owner,title\n{NOW.isoformat()},ana,Hello\n{NOW.isoformat()},bob,Hello\nnever,ana,Hello\n")
    ended = command("shadow", "report", str(file), "--json")
    summary, *rows = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 1
    assert summary["counts"] == {"same": 1, "missing": 1, "extra": 0, "later": 0, "earlier": 0, "doubled": 0}
    assert summary["refused_lines"] == [{"line": 4, "reason": "sent_at must be a time such as 2026-11-17T09:30:00Z."}]
    assert [(row["kind"], row["owner"], row["why"]) for row in rows] == [("missing", "bob", shadow_report.UNKNOWN)]
    file.write_text(f"external_user_id,subscription_id,sent,failed\nana,x,{NOW:%Y-%m-%d %H:%M:%S} UTC,\nbob,y,,{NOW}\n")
    ended = command("shadow", "report", str(file), "--from", "onesignal", "--title", "Hello")
    assert ended.code == 0, ended
    assert "1 the same" in ended.out
    ended = command("shadow", "report")
    assert ended.code == 2
    assert "nothing to compare with" in ended.err
