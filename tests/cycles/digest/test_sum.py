"""Each event that a phone asked for is told to it exactly once: by a push of its own or in one digest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relevo.app import App
from relevo.client import quiet, verbs
from relevo.client.values import Event, TenderMatching
from support.killed_cycles import KilledProcesses, Phones, kill_points
from support.phones import add_phones, fan_out, prefer

NOT_COVERED = {
    "digest.read_digests": "dispatch's, which reads alone",
    "digest.read_digested": "likewise",
}
DELIVERIES = ("now", "hourly", "daily 08:00", "daily 20:00", "weekly mon 09:00")
ZONES = ("America/Santiago", "Europe/Madrid", None)
Told = Counter[tuple[int, UUID]]


@pytest.fixture
def killed_processes(dsn: str) -> Iterator[KilledProcesses]:
    """A program that runs cycles on the test's database and survives its own processes."""
    with KilledProcesses.start(dsn) as started:
        yield started


def announce(conn: psycopg.Connection[Any], key: str, region: str = "Ñuble") -> int:
    """Enqueue an event for whoever asked for its region."""
    return verbs.enqueue(conn, Event("tender.new", key, key, audience=TenderMatching(region=region))).event_id


def come_due(conn: psycopg.Connection[Any], delivery: str | None = None) -> None:
    """Have slots close now: all, or those of one kind."""
    conn.execute(
        "update relevo.digest_slots set closes_at = now() - interval '1 second' where %(delivery)s::text is null or delivery = %(delivery)s",
        {"delivery": delivery},
    )


def close(app: App) -> None:
    """Close what is due."""
    report = app.runner.run(app.registry["digest"], "manual")
    assert report.outcome in ("ok", "idle"), report


def told(conn: psycopg.Connection[Any]) -> Told:
    """Count how often each phone was told each event, by a push of its own or in a digest that was queued for it."""
    rows = conn.execute(
        """
        select d.notification_event_id, d.installation_id from relevo.notification_deliveries d
         where d.event_type <> 'relevo.digest' and d.status <> 'skipped'
        union all
        select c.event_id - unnest(c.offsets), d.installation_id
          from relevo.notification_deliveries d
          join relevo.device_installations i using (installation_id)
          join relevo.digest_contents c on c.event_id = d.notification_event_id and c.seq = i.seq
         where d.event_type = 'relevo.digest' and exists (select from relevo.due_chunks q where d.id = any (q.ids))
        """
    ).fetchall()
    counts = conn.execute(
        "select count(*), (select count(*) from relevo.digest_contents) from relevo.notification_deliveries where event_type = 'relevo.digest'"
    )
    digests, contents = counts.fetchone() or (0, 0)
    assert digests == contents, "each digest has what it tells"
    return Counter(rows)


def test_killed_at_every_statement(conn: psycopg.Connection[Any], killed_processes: KilledProcesses, build) -> None:
    """Wherever the process that closes digests is killed, the next one goes on: nothing is told twice, nothing never."""
    phones = Phones(conn)
    for some, region in ((phones.north, "Ñuble"), (phones.south, "Maule"), (phones.greedy, None)):
        prefer(conn, some, region=region, delivery="daily 08:00")
    app = build()
    expected: Told = Counter()

    def gather(name: str) -> None:
        north, south = announce(conn, f"north {name}"), announce(conn, f"south {name}", "Maule")
        fan_out(app)
        come_due(conn)
        expected.update((north, phone) for phone in (*phones.north, *phones.greedy))
        expected.update((south, phone) for phone in (*phones.south, *phones.greedy))

    gather("whole")
    executed = killed_processes.run("digest")
    assert told(conn) == expected
    for point in kill_points(executed, "digest", NOT_COVERED):
        gather(f"{point}")
        killed_processes.run("digest", kill=point)
        killed_processes.run("digest")
        assert told(conn) == expected, point


def test_many_replicas_close_each_slot_once(conn: psycopg.Connection[Any], build) -> None:
    """Eight replicas that close many slots at once tell each phone once."""
    phones = [
        phone
        for zone in ("America/Santiago", "Europe/Madrid", "Asia/Kathmandu")
        for phone in add_phones(conn, 7, timezone=zone)
    ]
    prefer(conn, phones, delivery="daily 08:00")
    events = [announce(conn, f"{n}") for n in range(3)]
    apps = [build(worker_id=f"w{n}", fanout_slice_size=2) for n in range(8)]
    fan_out(apps[0])
    for _ in range(2):  # the second time there is nothing
        come_due(conn)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(close, apps))
        assert told(conn) == Counter((event, phone) for event in events for phone in phones)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_meanwhile(conn: psycopg.Connection[Any], build, seed: int) -> None:
    """Phones change their minds and time zones between events and closings: each event is told once all the same."""
    dice, app = random.Random(seed), build(fanout_slice_size=2)
    phones = add_phones(conn, 4)
    prefer(conn, phones)
    expected: Told = Counter()
    for n in range(40):
        phone = dice.choice(phones)
        match dice.randrange(5):
            case 0 | 1:
                event = announce(conn, f"{n}")
                expected.update((event, each) for each in phones)
                if dice.random() < 0.8:
                    fan_out(app)
            case 2:
                prefer(conn, [phone], delivery=dice.choice(DELIVERIES))
            case 3:
                zone = dice.choice(ZONES)
                conn.execute(
                    "update relevo.device_installations set timezone = %s where installation_id = %s", [zone, phone]
                )
            case _:
                come_due(conn, dice.choice(DELIVERIES))
                close(app)
    fan_out(app)
    for _ in range(2):
        come_due(conn)
        close(app)
    assert told(conn) == expected


def test_what_caps_leave_is_told_in_one_digest(conn: psycopg.Connection[Any], build) -> None:
    """With eight replicas at once, each event is for each phone a push or in one digest, and which one is explained."""
    apps = [build(worker_id=f"w{n}", fanout_slice_size=2) for n in range(8)]
    phones = add_phones(conn, 6)
    prefer(conn, phones[:2], delivery="hourly", region="Maule")  # it asks for a digest of others
    prefer(conn, phones, name="now", region="Ñuble")
    quiet.set_cap(conn, 2, per="week", over="digest")
    events = [announce(conn, f"{n}") for n in range(5)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fan_out, apps))
        waiting = [verbs.explain(conn, event, phones[0]) for event in events]
        assert Counter(each.rule for each in waiting) == {"preference": 2, "in_digest": 3}
        assert all(each.gets_it for each in waiting)
        late = announce(conn, "late")
        fan_out(apps[0])
        verbs.cancel(conn, late)
        conn.execute(
            "update relevo.device_installations set timezone = 'Asia/Kathmandu' where installation_id = %s", [phones[5]]
        )
        for _ in range(2):  # the second time there is nothing
            come_due(conn)
            list(pool.map(close, apps))
            assert told(conn) == Counter((event, phone) for event in events for phone in phones)
    was = [verbs.explain(conn, event, phones[5]).rule for event in events]
    assert Counter(was) == {"preference": 2, "digested": 3}
    assert conn.execute("select count(*) from relevo.digest_items").fetchone() == (0,)
    app_slots = conn.execute("select distinct delivery from relevo.digests order by 1").fetchall()
    assert app_slots == [("daily 08:00",), ("hourly",)]
