"""Each event that a phone asked for is sent, in one digest, capped, expired in the night or ended; never two of them, never none.

A kill at every moment of closing digests and of dispatch changes nothing of it, and neither do eight replicas. `make test`
strikes where a world of its own is left behind, `make soak` everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relevo.app import App
from relevo.client import quiet, verbs
from relevo.client.values import Event, TenderMatching
from relevo.sandbox.push_service import phone_key
from support import soak
from support.dying_processes import SIGKILL, World, install, run, unanswered
from support.phones import fan_out, prefer
from support.processes import eventually

ESSENTIAL = (
    ("digest", "COMMIT of digest.close_digest_slice", "before"),
    ("digest", "COMMIT of digest.close_digest_slice", "after"),
    ("digest", "digest.pick_due_slot", "after"),
    ("dispatch", "COMMIT of claims.claim_due", "after"),
    ("dispatch", "POST send", "before"),
    ("dispatch", "POST send", "after"),
)
"""What `make test` strikes."""
SUM = {
    ("plain", "now"): ["sent"],
    ("plain", "hourly"): ["digest"],
    ("plain", "night"): ["sent"],
    ("offers", "now"): ["capped", "sent"],
    ("offers", "hourly"): ["digest", "digest"],
    ("offers", "night"): ["capped", "sent"],
    ("news", "now"): ["digest", "sent"],
    ("news", "hourly"): ["digest", "digest"],
    ("news", "night"): ["digest", "sent"],
    ("late", "now"): ["sent"],
    ("late", "hourly"): ["digest"],
    ("late", "night"): ["expired"],
    ("ended", "now"): ["ended"],
    ("ended", "hourly"): ["ended"],
    ("ended", "night"): ["ended"],
}
"""What becomes of the events of each kind for each phone.

A late event whose deadline precedes its digest counts as told by the digest: its delivery has that reason.
"""
TOLD = """
select d.notification_event_id, d.installation_id,
       case when d.status in ('sent', 'ok') then 'sent' when d.last_error_code = 'capped' then 'capped' when d.status = 'cancelled' then 'ended'
            when d.last_error_code = 'deadline_before_digest' then 'digest'
            when d.status = 'expired' and d.last_error_code = 'quiet_hours' then 'expired' else d.status end
  from relevo.notification_deliveries d
 where d.notification_event_id = any (%(events)s) and (d.status <> 'skipped' or d.last_error_code in ('capped', 'deadline_before_digest'))
union all
select c.event_id - unnest(c.offsets), d.installation_id, case when d.status in ('sent', 'ok') then 'digest' else 'digest ' || d.status end
  from relevo.notification_deliveries d
  join relevo.device_installations i using (installation_id)
  join relevo.digest_contents c on c.event_id = d.notification_event_id and c.seq = i.seq
 where d.installation_id = any (%(phones)s)
"""
USED = """
select c.category, u.subject, array(select n from unnest(u.events) as n where relevo.counts_as(n, u.cap, u.subject) <> 'unsent' order by 1),
       array(select d.notification_event_id from relevo.notification_deliveries d join relevo.notification_events e on e.id = d.notification_event_id
              where u.subject = 'i:' || d.installation_id and e.category = c.category and d.status in ('pending', 'retryable', 'sent', 'ok') order by 1)
  from relevo.cap_uses u join relevo.caps c on c.id = u.cap where c.project = %(project)s
"""


@pytest.fixture
def world(conn, sandbox, dying_processes, travelling, clock) -> World:
    """The world of these tests; what is late expires in the night."""
    conn.execute("insert into relevo.event_types (event_type, quiet_deadline) values ('late', 'expired')")
    chosen = {"push_chunk_size": 2, "receipt_first_poll_ms": 1, "fanout_slice_size": 2, "push_rate_per_second": 0}
    return World(conn, sandbox, dying_processes, travelling(**chosen), clock, chosen)


class Scene:
    """Three phones of a project with caps: one wants all at once, one hourly digests, one has a quiet hour now."""

    def __init__(self, world: World, project: str, fan: Callable[[], Any]) -> None:
        self.world, self.project = world, project
        conn = world.conn
        self.tokens = install(conn, ["", "", ""], project)
        self.phones: dict[str, UUID] = dict(zip(("now", "hourly", "night"), self.tokens, strict=True))
        for name, phone in self.phones.items():
            prefer(conn, [phone], region=self.project, delivery="hourly" if name == "hourly" else "now")
        now = datetime.now(UTC)
        hours = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=1):%H:%M}"
        quiet.set_quiet(conn, [hours], installation_id=self.phones["night"], zone="UTC")
        quiet.set_cap(conn, 1, per="week", category="offers", project=project)
        quiet.set_cap(conn, 1, per="week", category="news", project=project, over="digest")
        numbers = {kind: len(fates) for (kind, phone), fates in SUM.items() if phone == "now"}
        self.kinds = {self.announce(kind, n): kind for kind, count in numbers.items() for n in range(count)}
        fan()
        verbs.cancel(conn, ("ended", f"{project} 0"))

    def announce(self, kind: str, number: int) -> int:
        """Enqueue an event for whoever asked for it."""
        of_kind = {"late": {"ttl_s": 1_800}, "offers": {"category": "offers"}, "news": {"category": "news"}}
        more: dict[str, Any] = of_kind.get(kind, {})
        key = f"{self.project} {number}"
        event = Event(kind, key, key, audience=TenderMatching(region=self.project), **more)
        return verbs.enqueue(self.world.conn, event).event_id

    def check(self, point: object) -> None:
        """Look at what became of each event for each phone: one thing, the expected one; and at what caps counted."""
        conn = self.world.conn
        names = {phone: name for name, phone in self.phones.items()}
        asked = {"events": list(self.kinds), "phones": list(names), "project": self.project}
        fates: dict[tuple[int, UUID], list[str]] = {(event, phone): [] for event in self.kinds for phone in names}
        for event, phone, fate in conn.execute(TOLD, asked).fetchall():
            fates[event, phone].append(fate)
        found: dict[tuple[str, str], list[str]] = {}
        for (event, phone), told in fates.items():
            ended = self.kinds[event] == "ended" and not told
            assert len(told) == 1 or ended, (point, self.kinds[event], names[phone], told)
            found.setdefault((self.kinds[event], names[phone]), []).extend(told or ["ended"])
        assert {key: sorted(told) for key, told in found.items()} == SUM, point
        used = conn.execute(USED, asked).fetchall()
        assert len(used) == 4, (point, used)
        assert [row for row in used if row[2] != row[3]] == [], point
        self.check_received(point)

    def check_received(self, point: object) -> None:
        """Compare what phones got with what was sent: no less, and more only where an answer was not recorded."""
        seen = self.world.sandbox.phones()
        ask = "select notification_event_id, count(*) from relevo.notification_deliveries where installation_id = %s and status in ('sent', 'ok') group by 1"
        for phone, token in self.tokens.items():
            sent = self.world.conn.execute(ask, [phone]).fetchall()
            doubted = sum(unanswered(self.world.conn, event) for event, _ in sent)
            got = seen.get(phone_key(token), {"received": 0})["received"]
            assert len(sent) <= got <= len(sent) + doubted, (point, phone)


def come_due(world: World) -> None:
    """Have all digests close now."""
    world.conn.execute("update relevo.digest_slots set closes_at = now() - interval '1 second'")


def finish(world: World, apps: Sequence[App]) -> None:
    """Close what closes and send the rest, some minutes later and once the night is over."""
    for later in (timedelta(minutes=2), timedelta(minutes=4), timedelta(minutes=75)):
        world.clock.ahead = later
        for cycle in ("reaper", "digest", "dispatch"):
            with ThreadPoolExecutor(len(apps)) as pool:
                list(pool.map(lambda app, name=cycle: run(app, name), apps))

    def is_done() -> bool:
        world.clock.ahead += timedelta(minutes=2)
        for cycle in ("reaper", "digest", "dispatch"):
            run(apps[0], cycle)
        left = "select count(*) from relevo.notification_deliveries where status in ('pending', 'retryable')"
        return world.conn.execute(left).fetchall() == [(0,)]

    eventually(is_done, "everything comes to its end")
    world.clock.ahead = timedelta()
    world.conn.execute("update relevo.cycle_state set shared_at = null")  # no clock was set back
    world.conn.execute("update relevo.projects set filled_at = now() where filled_at > now()")


def test_the_sum_holds_wherever_a_process_is_killed(world: World) -> None:
    """Killed anywhere while digests close or pushes go out, each event is one thing for each phone, and caps counted what goes out."""
    fan = lambda: fan_out(world.survivor)  # noqa: E731
    played = [(Scene(world, "whole", fan), "no kill")]
    come_due(world)
    executed = {cycle: world.kill(cycle, None)["counts"] for cycle in ("digest", "dispatch")}
    finish(world, [world.survivor])
    every = [
        (cycle, name, when)
        for cycle, counts in executed.items()
        for name in counts
        for when in ("before", "after")
        if name != "POST written" or when == "after"
    ]
    assert set(ESSENTIAL) <= set(every)
    missed = []
    for n, (cycle, name, when) in enumerate(soak.cases(ESSENTIAL, whole=every)):
        scene = Scene(world, f"killed {n}", fan)
        come_due(world)
        if cycle == "dispatch":
            run(world.survivor, "digest")
        if world.kill(cycle, {"name": name, "when": when, "nth": 1})["signal"] != SIGKILL:
            missed.append((cycle, name))
        finish(world, [world.survivor])
        played.append((scene, (cycle, name, when)))
    assert not {(cycle, name) for cycle, name, _ in ESSENTIAL} & set(missed), missed
    for scene, point in played:
        scene.check(point)


def test_the_sum_holds_with_eight_replicas(world: World, travelling) -> None:
    """Eight replicas that fan out, close and send at once make of each event one thing for each phone."""
    apps = [travelling(worker_id=f"w{n}", **world.settings) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        scenes = [Scene(world, f"crowd {n}", lambda: list(pool.map(fan_out, apps))) for n in range(3)]
        come_due(world)
        for cycle in ("digest", "dispatch"):
            list(pool.map(lambda app, name=cycle: run(app, name), apps))
    finish(world, apps)
    for scene in scenes:
        scene.check("eight replicas")
