"""Each event that a preference wanted is told once: by a push, by a digest, or it is in the inbox with a reason, whatever changes for months.

Random sequences of changes are played on the product, with its time set by the test. What was wanted is read from the
preferences in force at fan-out; what was told is read from deliveries, from the contents of digests and from inboxes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo.app import App
from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Installation, Preference, TenderMatching, TenderPreference
from support.phones import fan_out
from support.soak import cases

REGIONS = ("Ñuble", "Maule")
DELIVERIES = ("now", "hourly", "daily 08:00", "daily 20:00", "weekly mon 09:00", "weekly thu 18:00")
ZONES = ("America/Santiago", "Europe/Madrid", "Asia/Kathmandu")
CATEGORIES = (None, None, "offers", "alerts")
BEGIN = datetime(2027, 1, 4, 12, tzinfo=UTC)
CLOCK = """
create table public.clock (at timestamptz);
insert into public.clock values (%s);
create or replace function relevo.now(at timestamptz default null) returns timestamptz language sql stable parallel safe
  return coalesce(at, (select c.at from public.clock c));
"""
"""The test's database has a time of its own, in triggers, too."""
PHONES = """
select i.installation_id, i.seq, i.owner, i.project, i.permission = 'granted' and not i.blocked as allowed, i.refused || i.opt_outs as unwanted,
       (select coalesce(jsonb_agg(jsonb_build_array(p.region, p.delivery)), '[]') from relevo.notification_preferences p
         where p.installation_id = i.installation_id and p.enabled) as asked
  from relevo.device_installations i
"""
TOLD = """
select c.event_id, c.seq, d.installation_id, c.total, array(select c.event_id - o from unnest(c.offsets) o)
  from relevo.digest_contents c
  join relevo.device_installations i using (seq)
  join relevo.notification_deliveries d on d.notification_event_id = c.event_id and d.installation_id = i.installation_id
 where c.event_id > %s
"""
MADE = "select notification_event_id, installation_id, status, last_error_code from relevo.notification_deliveries where event_type <> 'relevo.digest'"


@dataclass
class Phone:
    """A phone as the tables have it now."""

    id: UUID
    seq: int
    owner: str | None
    project: str
    allowed: bool
    unwanted: list[str]
    asked: list[list[str | None]]

    def matching(self, region: str) -> list[str | None]:
        """Return when its enabled preferences want to be told an event."""
        return [delivery for of_region, delivery in self.asked if of_region in (None, region)]


@dataclass
class Wanted:
    """An event that a preference of a phone wanted when it was fanned out, and what happened since that may keep it from being told."""

    owner: str | None
    project: str
    region: str | None
    category: str | None
    deadline: datetime | None
    pushed: bool
    excuses: set[str] = field(default_factory=set)
    is_over: bool = False


class World:
    """Two projects, owners with equal names, two replicas, and what is known of all that was wanted and told."""

    def __init__(self, conn: psycopg.Connection[Any], apps: list[App], dice: random.Random, dsn: str) -> None:
        self.conn, self.apps, self.dice, self.dsn, self.now = conn, apps, dice, dsn, BEGIN
        self.wanted: dict[tuple[int, UUID], Wanted] = {}
        self.told: Counter[tuple[int, UUID]] = Counter()
        self.cancelled: set[int] = set()
        self.seen_digest = self.number = 0
        for owner, project in (
            ("ana", "default"),
            ("ana", "default"),
            ("bea", "default"),
            ("ana", "second"),
            (None, "default"),
        ):
            phone = verbs.register(
                conn, Installation(f"ExponentPushToken[{dice.random()}]", owner=owner, project=project)
            )
            verbs.set_preference(conn, phone, "default", Preference(delivery=dice.choice(DELIVERIES)))
        for category in ("offers", "alerts"):
            consent.set_category(conn, category)

    # What is so

    def phones(self) -> list[Phone]:
        """Return the phones as they are now."""
        return [Phone(*row) for row in self.conn.execute(PHONES).fetchall()]

    def some_phone(self) -> Phone:
        """Return one of them."""
        return self.dice.choice(self.phones())

    def travel(self, to: datetime) -> None:
        """Set the time."""
        self.now = to
        self.conn.execute("update public.clock set at = %s", [to])

    # What happens

    def announce(self) -> None:
        """Enqueue an event for whoever matches, or for everyone, and fan it out on one of the replicas."""
        dice = self.dice
        region = dice.choice((*REGIONS, *REGIONS, None))
        category = dice.choice(CATEGORIES)
        deadline = self.now + timedelta(hours=dice.randrange(1, 90)) if dice.random() < 0.2 else None
        self.number += 1
        audience = TenderMatching(region=region) if region else "everyone"
        event = verbs.enqueue(
            self.conn,
            Event(
                "tender.new",
                f"{self.number}",
                f"Tender {self.number}",
                audience=audience,
                category=category,
                deadline_at=deadline,
            ),
        ).event_id
        before = [each for each in self.phones() if each.allowed and category not in each.unwanted]
        fan_out(dice.choice(self.apps))
        for phone in before:
            asked = phone.matching(region) if region else [None]
            if asked:
                self.wanted[event, phone.id] = Wanted(
                    phone.owner, phone.project, region, category, deadline, None in asked
                )

    def prefer(self) -> None:
        """Set, switch off or delete a preference."""
        dice, phone = self.dice, self.some_phone()
        name = dice.choice(("default", "default", "more"))
        if dice.random() < 0.15:
            verbs.set_preference(self.conn, phone.id, name, None)
            return
        wish = TenderPreference(
            region=dice.choice((None, None, *REGIONS)), delivery=dice.choice(DELIVERIES), enabled=dice.random() > 0.15
        )
        verbs.set_preference(self.conn, phone.id, name, wish)

    def fly(self) -> None:
        """Change a zone: a phone's, that of its quiet hours, or the project's."""
        dice, zone = self.dice, self.dice.choice(ZONES)
        match dice.randrange(3):
            case 0:
                self.conn.execute(
                    "update relevo.device_installations set timezone = %s where installation_id = %s",
                    [dice.choice((zone, None)), self.some_phone().id],
                )
            case 1:
                quiet.set_quiet(self.conn, ["22:00-07:00"], installation_id=self.some_phone().id, zone=zone)
            case _:
                quiet.set_quiet(self.conn, ["23:00-06:00"], project=dice.choice(("default", "second")), zone=zone)

    def hand_over(self) -> None:
        """Give a phone to another owner, or take its owner away."""
        phone = self.some_phone()
        owner = self.dice.choice(("ana", "bea", None))
        if owner is None:
            self.conn.execute(
                "update relevo.device_installations set owner = null where installation_id = %s", [phone.id]
            )
        else:
            verbs.register(self.conn, Installation(None, phone.id, owner=owner))

    def choose(self) -> None:
        """Let an owner refuse a category, or accept it again; or a phone opt out."""
        dice, category = self.dice, self.dice.choice(("offers", "alerts"))
        if dice.random() < 0.7:
            consent.choose(self.conn, category, owner=dice.choice(("ana", "bea")), wanted=dice.random() < 0.6)
        else:
            self.conn.execute(
                "update relevo.device_installations set opt_outs = %s where installation_id = %s",
                [dice.choice(([], [category])), self.some_phone().id],
            )

    def permit(self) -> None:
        """Take the permission of a phone away, or give it back."""
        self.conn.execute(
            "update relevo.device_installations set permission = %s where installation_id = %s",
            [self.dice.choice(("denied", "granted", "granted")), self.some_phone().id],
        )

    def cap(self) -> None:
        """Set a cap that leaves the rest to digests, or take it away."""
        quiet.set_cap(self.conn, self.dice.choice((1, 2, None)), per="day", over="digest")

    def cancel(self) -> None:
        """Cancel an event."""
        if self.wanted:
            event, _ = self.dice.choice(list(self.wanted))
            if verbs.cancel(self.conn, event):
                self.cancelled.add(event)

    def pass_time(self) -> None:
        """Let time pass, and close what is due on one of the replicas; or let the relay miss it."""
        hours = self.dice.choice((0.2, 1, 5, 11, 24, 24, 70))
        self.travel(self.now + timedelta(hours=hours))
        if self.dice.random() < 0.8:
            self.close(self.dice.choice(self.apps))

    def close(self, app: App) -> None:
        """Close what is due."""
        assert app.runner.run(app.registry["digest"], "manual").outcome in ("ok", "idle")

    def interrupt(self) -> None:
        """Close one slice in a transaction that dies, or ends only after the other replica has closed what it finds."""
        one = """select count(c.*) from (select s.* from relevo.digest_slots s where s.closes_at <= relevo.now() order by s.id limit 1
                   for no key update skip locked) x join relevo.digest_slots s on s.id = x.id cross join lateral relevo.close_digest_slice(s, 2, null) c"""
        with psycopg.connect(self.dsn) as other:
            other.execute(one)
            if self.dice.random() < 0.5:
                self.close(self.apps[1])
                other.commit()
            else:
                other.rollback()

    def hesitate(self) -> None:
        """Change a preference in a transaction that stays open while digests close, and then commits or not."""
        with psycopg.connect(self.dsn) as other:
            wish = Preference(delivery=self.dice.choice(DELIVERIES))
            verbs.set_preference(other, self.some_phone().id, "default", wish)
            self.close(self.apps[0])
            if self.dice.random() < 0.5:
                other.rollback()

    def clean_up(self) -> None:
        """Run the nightly cleanup."""
        app = self.dice.choice(self.apps)
        assert app.runner.run(app.registry["cleanup"], "manual").outcome in ("ok", "idle")

    # What must hold

    def note(self) -> None:
        """Note what digests told since, and what happened that may keep an event from being told."""
        phones = {each.id: each for each in self.phones()}
        for digest, _, phone, total, events in self.conn.execute(TOLD, [self.seen_digest]).fetchall():
            assert total == len(events) == len(set(events)), (digest, events)
            for event in events:
                self.told[event, phone] += 1
                wish = self.wanted[event, phone]
                assert wish.owner in (None, phones[phone].owner), f"event {event} was told somebody else"
                assert not wish.excuses & {"owner_changed", "preference_changed"}, (
                    f"event {event} was told although {wish.excuses}"
                )
        self.seen_digest = max(
            [self.seen_digest, *(row[0] for row in self.conn.execute("select event_id from relevo.digests").fetchall())]
        )
        for (event, phone), wish in self.wanted.items():
            if not wish.is_over:
                wish.excuses |= set(self._excuses(event, wish, phones[phone]))

    def _excuses(self, event: int, wish: Wanted, phone: Phone) -> Iterator[str]:
        if wish.owner is not None and wish.owner != phone.owner:
            yield "owner_changed"
        if wish.region and not phone.matching(wish.region):
            yield "preference_changed"
        if not phone.allowed:
            yield "not_allowed"
        if wish.category in phone.unwanted:
            yield from ("refused", "opted_out")
        if wish.deadline is not None:
            yield from ("deadline_before_digest", "deadline_passed")
        if event in self.cancelled:
            yield "event_ended"

    def judge(self, *, at_the_end: bool = False) -> None:
        """Compare what was wanted with what deliveries, digests and items say."""
        made = {(event, phone): (status, code) for event, phone, status, code in self.conn.execute(MADE).fetchall()}
        gathered = {
            (event, phone)
            for event, phone in self.conn.execute(
                "select x.event_id, i.installation_id from relevo.digest_items x join relevo.device_installations i using (seq)"
            ).fetchall()
        }
        assert max(self.told.values(), default=0) <= 1, "told twice"
        for key, wish in self.wanted.items():
            if wish.is_over:
                continue
            status, code = made[key]
            if status != "skipped":
                assert wish.pushed, f"{key} was pushed, and all its preferences asked for digests"
                assert not self.told[key], f"{key} was pushed and told by a digest"
                wish.is_over = True
            elif code == "in_digest":
                assert self.told[key] + (key in gathered) == 1, f"{key} is lost, or told while it is still gathered"
                wish.is_over = self.told[key] == 1
            else:
                assert code in wish.excuses, f"{key} was not told because of {code}, of which nobody knows; {wish}"
                assert not self.told[key], f"{key} was told in spite of {code}"
                assert key not in gathered, f"{key} ended and is still gathered"
                wish.is_over = True
        assert gathered <= set(self.wanted)
        if at_the_end:
            assert not gathered
            assert all(wish.is_over for wish in self.wanted.values())

    def look_into_inboxes(self) -> None:
        """Each owner's inbox has what was wanted for the owner, and nothing that was wanted for others alone."""
        for owner, project in (("ana", "default"), ("bea", "default"), ("ana", "second")):
            items, before = set(), None
            while True:
                page = relevo.inbox(self.conn, owner=owner, project=project, status="all", limit=200, before=before)
                items |= {item.event_id for item in page.items}
                if (before := page.next) is None:
                    break
            meant = {
                event for (event, _), wish in self.wanted.items() if (wish.owner, wish.project) == (owner, project)
            }
            old = self.now - timedelta(days=85)
            recent = {event for event in meant - self.cancelled if self.conn.execute(
                "select from relevo.notification_events e where e.id = %s and e.fanout_started_at > %s", [event, old]).fetchone() is not None}  # fmt: skip
            assert recent <= items, f"{owner} misses {recent - items}"
            assert items <= meant, f"{owner} finds what was others': {items - meant}"


OPERATIONS = (
    *(World.announce,) * 8,
    *(World.prefer,) * 4,
    *(World.pass_time,) * 6,
    *(World.fly, World.hand_over, World.choose, World.permit, World.cap, World.cancel, World.interrupt, World.hesitate),
)


@pytest.mark.parametrize("seed", cases(range(3), whole=range(60)))
def test_each_event_is_told_once_or_explained(conn: psycopg.Connection[Any], build, dsn: str, seed: int) -> None:
    """Over months of changes, cleanups, two replicas and transactions that die: told once, or in the inbox with a reason; never to another person."""
    for statement in CLOCK.replace("%s", f"'{BEGIN.isoformat()}'").split(";\n"):
        if statement.strip():
            conn.execute(statement.encode())
    apps = [build(worker_id=name, fanout_slice_size=2, push_runaway_brake=False) for name in ("a", "b")]
    world = World(conn, apps, random.Random(seed), dsn)
    for step in range(cases(140, whole=500)):
        world.dice.choice(OPERATIONS)(world)
        world.note()
        if step % 10 == 9:
            world.judge()
        if step % 40 == 39:
            world.look_into_inboxes()
            world.clean_up()
    for _ in range(3):  # a zone that changed just before may move what was gathered once more
        world.travel(world.now + timedelta(days=8))
        for app in apps:
            world.close(app)
        world.note()
    world.judge(at_the_end=True)
    world.look_into_inboxes()
