"""Random steps over a year, taken in the product and in the oracle of what phones are told, and compared."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from psycopg.types.json import Jsonb

import relevo
from relevo.client import consent, quiet
from relevo.sandbox import Sandbox
from support.time_machine import TimeMachine
from support.told_once_oracle import Digest, Event, Oracle, Phone, Preference

BEGIN = datetime(2026, 3, 2, 12, 7, tzinfo=UTC)
PROJECTS = ("default", "shop")
OWNERS = ("ana", "bea")
REGIONS = ("Maule", "Biobío")
ZONES = ("America/Santiago", "Europe/Madrid", "Asia/Kathmandu")
DELIVERIES = ("now", "hourly", "daily 08:00", "daily 20:30", "daily 00:30", "weekly mon 09:00", "weekly sat 18:00")
CATEGORIES = {"news": "on", "offers": "off", "law": "mandatory"}
INBOX_DAYS = 300
NIGHT = ["22:00-07:00"]
CODES = """
select d.notification_event_id, d.installation_id, d.status, d.last_error_code from relevo.deliveries d
 where d.event_type = 'tender' and (%(event)s::bigint is null or d.notification_event_id = %(event)s)
"""


class Player:
    """Takes random steps in the product and in the oracle, and compares what phones were told, and with which codes."""

    def __init__(self, machine: TimeMachine, sandbox: Sandbox, seed: int) -> None:
        self.machine, self.conn, self.sandbox = machine, machine.conn, sandbox
        self.dice = random.Random(seed)
        self.oracle = Oracle(rules=CATEGORIES)
        self.events: dict[int, Event] = {}
        self.pushes: dict[tuple[int, UUID], tuple[tuple[str, str | None], datetime]] = {}
        """Ordinary pushes: the project and owner that each was made for, and when."""
        self.got: Counter[tuple[int, UUID]] = Counter()
        self.caps: set[str] = set()
        self.log: list[str] = []
        machine.renew(BEGIN)
        sandbox.reset()
        for category, rule in CATEGORIES.items():
            consent.set_category(self.conn, category, rule=rule)
        self.conn.execute("insert into relevo.event_types (event_type, inbox_days) values ('tender', %s)", [INBOX_DAYS])
        self.phones = [self._new() for _ in range(4)]

    def _new(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128), version=4)

    def play(self, steps: int) -> None:
        """Take steps, compare after each, and settle everything in the end."""
        doings = [
            *[self.announce] * 12,
            *[self.tell] * 2,
            *[self.prefer] * 6,
            *[self.register] * 2,
            *[self.pass_on] * 3,
            *[self.disturb] * 6,
            self.unregister,
            self.choose,
            self.opt_out,
            *[self.set_hours] * 2,
            self.set_cap,
            self.end,
            self.handle,
            self.forget,
            self.clean_up,
        ]
        for phone in self.phones[:3]:
            self.register(phone)
            self.prefer(phone)
        for _ in range(steps):
            self.dice.choice(doings)()
            self.compare()
            self.pass_time(timedelta(minutes=self.dice.choice([1, 30, 90, 600, 2_000, 11_000, 30_000])))
        self.settle()

    def say(self, *words: object) -> None:
        """Write a step down, for whoever looks why the two disagree."""
        self.log.append(" ".join(str(word) for word in (self.machine.now, *words)))

    def why(self, *words: object) -> str:
        """Return what is wrong, and all steps so far."""
        return "\n".join([" ".join(str(word) for word in words), *self.log])

    # Events

    def announce(self) -> None:
        """Some events for whoever matches are made and fanned out."""
        for _ in range(self.dice.randint(1, 3)):
            self._announce_one()

    def _announce_one(self) -> None:
        event = self._made(region=self.dice.choice(REGIONS))
        project = self.dice.choice([None, None, *PROJECTS])
        self._enqueue(event, project, relevo.TenderMatching(region=event.region))
        found = self._deliveries(event)
        for number, phone in self.oracle.phones.items():
            reached = project in (None, phone.project)
            right = self.oracle.verdict(event, phone, self.machine.now) if reached else None
            status, code = found.get(number, (None, None))
            told = {"in_digest": "gather", "deadline_before_digest": "late"}.get(code or "", code)
            told = "push" if status == "pending" else told
            is_capped = right == "push" and phone.project in self.caps and told in ("gather", "late")
            assert told == right or is_capped, self.why(f"{event.title} to {number}: {status} {code}, not {right}")
            self._note(event, phone, status, code)

    def tell(self, whom: UUID | str | None = None) -> None:
        """An event for an owner, phones or everyone is made and fanned out: it is pushed, or gathered above a cap."""
        event, project = self._made(), self.dice.choice(PROJECTS)
        audience: Any = relevo.Owners(whom if isinstance(whom, str) else self.dice.choice(OWNERS))
        match self.dice.randrange(3) if whom is None else whom:
            case UUID():
                audience = [whom]
            case 0:
                event.everyone, audience = True, "everyone"
            case 1 if self.oracle.phones:
                audience = [self.dice.choice(sorted(self.oracle.phones))]
        self._enqueue(event, project, audience)
        for number, (status, code) in self._deliveries(event).items():
            phone = self.oracle.phones[number]
            assert code != "in_digest" or phone.project in self.caps, self.why(event.title, number)
            self._note(event, phone, status, code)

    def pass_on(self) -> None:
        """An event is made for a phone, and before the relay sends it the phone registers anew, for another or nobody."""
        if phone := self._a_phone():
            owner = self.oracle.phones[phone].owner
            self.tell(phone if owner is None or self.dice.random() < 0.5 else owner)
            self.register(phone, {"ana": "bea", "bea": None, None: "ana"}[owner])

    def disturb(self) -> None:
        """Something changes for an event that waits for its digest: its phone, its preference, its category, or its end."""
        waiting = [item for item in self.oracle.items if item.slot is not None]
        if not waiting:
            return
        item = self.dice.choice(waiting)
        phone = self.oracle.phones[item.phone]
        match self.dice.randrange(6):
            case 0:
                self.register(phone.id, {"ana": "bea", "bea": None, None: "ana"}[phone.owner])
            case 1 if item.event.category in ("news", "offers") and phone.owner is not None:
                self.choose((phone.project, phone.owner, item.event.category, False))
            case 2:
                self.opt_out(phone.id, item.event.category)
            case 3:
                self.end(item.event)
            case _:
                self.prefer(phone.id)

    def _made(self, region: str | None = None) -> Event:
        event = Event(0, f"e{len(self.events)}", self.machine.now, region)
        event.category = self.dice.choice([None, None, "news", "news", "offers", "law"])
        if self.dice.random() < 0.2:
            event.deadline = self.machine.now + timedelta(hours=self.dice.choice([1, 14, 40, 200]))
        event.score = self.dice.choice([0.0, 0.0, 0.5, 0.9])
        return event

    def _enqueue(self, event: Event, project: str | None, audience: Any) -> None:
        made = relevo.Event(
            "tender", event.title, event.title, audience=audience, category=event.category, project=project,
            deadline_at=event.deadline, push={"relevanceScore": event.score} if event.score else {},
        )  # fmt: skip
        event.id = relevo.enqueue(self.conn, made).event_id
        self.events[event.id] = event
        self.say("enqueue", project, event)
        self.machine.run("fanout", self.dice.randrange(2))

    def _deliveries(self, event: Event) -> dict[UUID, tuple[str, str | None]]:
        rows = self.conn.execute(CODES, {"event": event.id}).fetchall()
        found = {phone: (status, code) for _, phone, status, code in rows}
        assert len(found) == len(rows), self.why("two deliveries to a phone", event)
        return found

    def _note(self, event: Event, phone: Phone, status: str | None, code: str | None) -> None:
        if code == "in_digest":
            self.oracle.gather(event, phone, self.machine.now)
        elif code == "deadline_before_digest":
            self.oracle.miss(event, phone, self.machine.now)
        elif status == "pending":
            self.pushes[event.id, phone.id] = (phone.project, phone.owner), self.machine.now

    def end(self, event: Event | None = None) -> None:
        """An event is cancelled or completed."""
        young = [event for event in self.events.values() if self.machine.now - event.at < timedelta(days=20)]
        if young or event:
            event, way = event or self.dice.choice(young), self.dice.choice([relevo.cancel, relevo.complete])
            done = way(self.conn, event.id)
            self.say(way, event.title, done)
            event.has_ended |= done
            self.machine.run("fanout", self.dice.randrange(2))

    def handle(self) -> None:
        """A person handles in the app everything that one phone was sent so far."""
        if phone := self._a_phone():
            self.say("handled", phone)
            relevo.complete(self.conn, phone)
            for item in self.oracle.items:
                item.handled |= item.phone == phone

    # People and phones

    def register(self, phone: UUID | None = None, heir: str | None = "") -> None:
        """A phone registers under an owner or nobody, in a project and a zone."""
        out = [
            each for each in self.phones if each in self.oracle.phones and not self.oracle.phones[each].is_registered
        ]
        phone = phone or self.dice.choice(out if out and self.dice.random() < 0.7 else self.phones)
        known = self.oracle.phones.get(phone)
        project, owner = self.dice.choice(PROJECTS), self.dice.choice((*OWNERS, None))
        if known is not None and self.dice.random() < 0.5:
            project = known.project
        if known is not None and self.dice.random() < 0.5:
            owner = known.owner
        owner = owner if heir == "" else heir
        zone = self.dice.choice([None, *ZONES])
        self.say("register", phone, project, owner, zone)
        asked = {"installation_id": str(phone), "token": f"ExponentPushToken[{phone}]"}
        asked |= {"project": project, "owner": owner} | ({"timezone": zone} if zone else {})
        self.conn.execute("select relevo.register_installation(%s)", [Jsonb(asked)])
        self.oracle.register(phone, project, owner, zone, self.machine.now)

    def unregister(self) -> None:
        """A phone logs out."""
        if self.dice.random() < 0.6 and (phone := self._a_phone()):
            self.say("unregister", phone)
            relevo.unregister(self.conn, phone)
            known = self.oracle.phones[phone]
            if known.is_registered:
                known.is_registered, known.ended_at = False, self.machine.now

    def forget(self) -> None:
        """A phone is forgotten; another takes its place."""
        if self.dice.random() < 0.4 and (phone := self._a_phone()):
            self.say("forget", phone)
            relevo.forget(self.conn, phone)
            self.oracle.forget(phone)
            self.phones[self.phones.index(phone)] = self._new()

    def clean_up(self) -> None:
        """Cleanup runs, at night after the relay."""
        self.run_relay()
        self.say("clean up")
        self.machine.run("cleanup", self.dice.randrange(2))
        self.oracle.clean_up(self.machine.now)

    def prefer(self, phone: UUID | None = None) -> None:
        """A phone sets, switches off or deletes one of two preferences."""
        if phone := phone or self._a_phone():
            name, kept = self.dice.choice(["default", "default", "two"]), self.oracle.phones[phone].preferences
            asked = Preference(
                self.dice.choice([*REGIONS, None]), self.dice.choice(DELIVERIES), self.dice.random() < 0.85
            )
            if self.dice.random() < 0.15:
                kept.pop(name, None)
                relevo.set_preference(self.conn, phone, name, None)
                self.say("prefer", phone, name, None)
            else:
                kept[name] = asked
                relevo.set_preference(self.conn, phone, name, relevo.TenderPreference(**asdict(asked)))
                self.say("prefer", phone, name, asked)
            self.oracle.look_again(phone, self.machine.now)

    def choose(self, choice: tuple[str, str, str, bool] | None = None) -> None:
        """An owner accepts or refuses a category."""
        project, owner = self.dice.choice(PROJECTS), self.dice.choice(OWNERS)
        category, wanted = self.dice.choice(["news", "offers"]), self.dice.random() < 0.8
        project, owner, category, wanted = choice or (project, owner, category, wanted)
        self.say("choose", project, owner, category, wanted)
        consent.choose(self.conn, category, owner=owner, project=project, wanted=wanted)
        self.oracle.choices[project, owner, category] = wanted

    def opt_out(self, phone: UUID | None = None, category: str | None = None) -> None:
        """A phone opts out of a category, or wants all again."""
        if (phone := phone or self._a_phone()) and self.oracle.phones[phone].is_registered:
            known, out = self.oracle.phones[phone], [category] if category else []
            self.say("opt out", phone, out)
            asked = {"installation_id": str(phone), "token": f"ExponentPushToken[{phone}]", "opt_outs": out}
            asked |= {"project": known.project, "owner": known.owner}
            self.conn.execute("select relevo.register_installation(%s)", [Jsonb(asked)])
            known.opt_outs = frozenset(out)

    def set_hours(self) -> None:
        """A phone, an owner or a project sets or removes quiet hours, and with them a zone."""
        project, owner, zone = self.dice.choice(PROJECTS), self.dice.choice(OWNERS), self.dice.choice(ZONES)
        windows = NIGHT if self.dice.random() < 0.6 else None
        phone = self._a_phone()
        keys: list[tuple[str, str | None] | UUID] = [(project, owner), (project, None)]
        key = self.dice.choice([*keys, phone] if phone else keys)
        whose: dict[str, Any] = {"installation_id": key} if isinstance(key, UUID) else {"project": key[0]}
        if isinstance(key, tuple) and key[1]:
            whose["owner"] = key[1]
        self.say("quiet", whose, windows, zone)
        quiet.set_quiet(self.conn, windows, **whose | ({"zone": zone} if windows else {}))
        if windows:
            self.oracle.zones[key] = zone
        else:
            self.oracle.zones.pop(key, None)
        for number, each in self.oracle.phones.items():
            if key in (number, (each.project, each.owner)) and key != (each.project, None):
                self.oracle.look_again(number, self.machine.now)

    def set_cap(self) -> None:
        """A project caps what a person is sent, and leaves the rest to digests; or not."""
        project, most = self.dice.choice(PROJECTS), self.dice.choice([1, 2, None])
        self.say("cap", project, most)
        quiet.set_cap(self.conn, most, per="week", project=project, over="digest")
        if most:
            self.caps.add(project)
        else:
            self.caps.discard(project)

    def _a_phone(self) -> UUID | None:
        return self.dice.choice(sorted(self.oracle.phones)) if self.oracle.phones else None

    # Time

    def pass_time(self, span: timedelta) -> None:
        """Time passes: most often the relay runs whenever a digest is due, sometimes it is down all the while."""
        until = self.machine.now + span
        is_up = self.dice.random() < 0.8
        while is_up and (due := self.oracle.next_closing()) is not None and due < until:
            self.machine.travel_to(max(due, self.machine.now) + timedelta(seconds=20))
            self.run_relay()
        self.machine.travel_to(max(until, self.machine.now))
        if is_up:
            self.run_relay()

    def run_relay(self) -> None:
        """Two replicas close what is due and send it, in turns or at once; a closing may be rolled back in the middle."""
        now, right = self.machine.now, self.oracle.close(self.machine.now)
        self.say("relay", *((digest.phone, [item.event.title for item in digest.items]) for digest in right))
        way = self.dice.randrange(8)
        if way == 0:
            tries = self.conn.execute("select last_value from tests.tries").fetchone() or (0,)
            self.conn.execute("update tests.fault set at = %s", [tries[0] + self.dice.randint(1, 2)])
            self.machine.workers[0].runner.run(self.machine.workers[0].registry["digest"], "manual")
            self.machine.run("digest", 1)
            self.machine.run("digest", 0)
            self.conn.execute("update tests.fault set at = null")
        elif way == 1:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda worker: self.machine.run("digest", worker), (0, 1)))
        else:
            self.machine.run("digest", self.dice.randrange(2))
        self.compare()
        self.machine.run("dispatch", self.dice.randrange(2))
        self.hear(now)
        for digest in right:
            waits = self.is_quiet(self.oracle.phones[digest.phone], now)
            assert digest.is_over or waits, self.why("closed and not sent", digest)

    # Comparing

    def hear(self, now: datetime) -> None:
        """Each message that a phone got is one that it was to get: once, by its owner, not at night, with what is left."""
        for number in list(self.oracle.phones):
            for message in self.sandbox.received(f"ExponentPushToken[{number}]"):
                phone = self.oracle.phones[number]
                is_silent = message.get("interruptionLevel") == "passive"  # by the rule for deadlines in quiet hours
                assert not self.is_quiet(phone, now) or is_silent, self.why("at night", message)
                if "digest" in message["data"]:
                    self._hear_digest(phone, message, now)
                else:
                    self._hear_push(phone, message, now)
        self.sandbox.reset()  # it keeps the last messages of each phone only

    def _hear_push(self, phone: Phone, message: dict[str, Any], now: datetime) -> None:
        [event] = [each for each in self.events.values() if each.title == message["title"]]
        key = (event.id, phone.id)
        self.got[key] += 1
        assert self.got[key] == 1, self.why("twice", message)
        assert key in self.pushes, self.why("not to be pushed", message)
        assert event.everyone or is_the_same(*self.pushes[key], phone), self.why("to another person", message)
        assert phone.is_registered, self.why("logged out", message)
        assert not event.has_ended, self.why("ended", message)
        assert not self.oracle.refusals(phone, event.category), self.why("refused", message)
        assert event.deadline is None or now <= event.deadline, self.why("too late", message)

    def _hear_digest(self, phone: Phone, message: dict[str, Any], now: datetime) -> None:
        waiting = [each for each in self.oracle.digests if each.phone == phone.id and not each.is_over]
        lefts = [(each, self.oracle.left(each, now)) for each in waiting]
        told = (message["data"]["total"], message["body"].split("\n")[:3])
        for digest, left in lefts:
            if (len(left), [item.event.title for item in left[:3]]) == told:
                digest.is_over = True
                assert is_the_same(digest.owner, digest.closed_at, phone), self.why("to another person", message)
                return
        raise AssertionError(self.why("no such digest", message, [[i.event.title for i in left] for _, left in lefts]))

    def is_quiet(self, phone: Phone, now: datetime) -> bool:
        """Tell whether a phone has quiet hours now."""
        zones = self.oracle.zones
        owner = (phone.project, phone.owner)
        if phone.id not in zones and (phone.owner is None or owner not in zones) and (phone.project, None) not in zones:
            return False
        local = now.astimezone(ZoneInfo(self.oracle.zone_of(phone)))
        return local.hour >= 22 or local.hour < 7

    def compare(self) -> None:
        """Each gathered event waits, is told or ended, with the code that the page names."""
        rows = self.conn.execute(CODES, {"event": None}).fetchall()
        found = {(event, phone): (status, code) for event, phone, status, code in rows}
        for item in self.oracle.items:
            told = found.get((item.event.id, item.phone))
            if told is None and self.machine.now - item.event.at > timedelta(days=85):
                continue  # its month has left
            right = [("skipped", code) for code in item.codes or {"in_digest"}]
            assert told in right, self.why(told, "not", item)

    def settle(self) -> None:
        """Wait until everything is due and nobody sleeps: all is told, or the reason is known."""
        for _ in range(9):
            noon = self.machine.now.replace(hour=13, minute=3)
            self.pass_time(noon + timedelta(days=1) - self.machine.now)
            self.run_relay()
        assert not [item for item in self.oracle.items if item.slot], self.why("still gathered")
        for digest in self.oracle.digests:
            phone = self.oracle.phones.get(digest.phone)
            assert digest.is_over or phone is None or self._why_not(digest, phone), self.why("not sent", digest)
        self._compare_explanations()
        self._compare_inboxes()

    def _why_not(self, digest: Digest, phone: Phone) -> bool:
        """Tell whether there may be a reason why a digest was not sent: the last steps decide, and are in the log."""
        changed = [
            line
            for line in self.log
            if str(phone.id) in line or "choose" in line or "cancel" in line or "complete" in line
        ]
        return any(line.startswith(tuple(_days_from(digest.closed_at))) for line in changed) or any(
            item.event.deadline is not None for item in digest.items
        )

    def _compare_explanations(self) -> None:
        for item in self.oracle.items:
            if item.phone in self.oracle.phones and self.machine.now - item.event.at < timedelta(days=60):
                told = relevo.explain(self.conn, item.event.id, item.phone)
                if item.digest is not None:
                    assert told.rule == "digested" or item.event.has_ended, self.why(told, item)
                else:
                    assert told.rule in item.codes | {"event_ended"}, self.why(told, item)

    def _compare_inboxes(self) -> None:
        whose: dict[tuple[str, str], set[int]] = {(project, owner): set() for project in PROJECTS for owner in OWNERS}
        for item in self.oracle.items:
            if item.owner in whose and self.machine.now - item.event.at < timedelta(days=INBOX_DAYS):
                whose[item.owner].add(item.event.id)  # type: ignore[index]
        for (project, owner), right in whose.items():
            found, before = set(), None
            while True:
                page = relevo.inbox(self.conn, project=project, owner=owner, status="all", before=before, limit=200)
                found |= {item.event_id for item in page.items}
                before = page.next
                if before is None:
                    break
            lost = {each for each in right - found if not self.events[each].has_ended}  # cancelled ones are in no inbox
            assert not lost, self.why("missing in the inbox of", project, owner, lost)


def is_the_same(made_for: tuple[str, str | None], made_at: datetime, phone: Phone) -> bool:
    """Tell whether a phone is still in the hands that a push was made for; without owner it was for the first one since."""
    if made_for[1] is None:
        return phone.left_at is None or phone.left_at <= made_at
    return made_for == (phone.project, phone.owner)


def _days_from(begin: datetime) -> list[str]:
    """Return the dates from an instant on for some days, as the log writes them."""
    return [str((begin + timedelta(days=number)).date()) for number in range(4)]
