"""Who is told an event, when and by which digest, in plain Python, from "Digests" of server/docs/quiet-hours.md alone.

The numbers are those of "The rule" there; H are those of "When a phone changes hands" of server/docs/inbox.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
USUAL = "daily 08:00"
Slot = tuple[str, str, str]
"""A project, a `delivery` and a zone: what closes together."""


@dataclass(frozen=True)
class Preference:
    """What a phone asks for, and when it wants to hear of it."""

    region: str | None = None
    delivery: str = "now"
    enabled: bool = True

    def matches(self, region: str | None) -> bool:
        """Tell whether it is for an event of a region."""
        return self.enabled and self.region in (None, region)


@dataclass
class Phone:
    """A phone as it is now."""

    id: UUID
    project: str
    owner: str | None
    timezone: str | None = None
    is_registered: bool = True
    ended_at: datetime | None = None
    left_at: datetime | None = None
    """When an owner last passed it on, or logged out of it."""
    opt_outs: frozenset[str] = frozenset()
    preferences: dict[str, Preference] = field(default_factory=lambda: {"default": Preference()})


@dataclass
class Event:
    """An event as it was enqueued."""

    id: int
    title: str
    at: datetime
    region: str | None = None
    """Of an event for whoever matches; None: it names owners or phones, or is for everyone."""
    everyone: bool = False
    category: str | None = None
    deadline: datetime | None = None
    score: float = 0
    has_ended: bool = False


@dataclass
class Item:
    """An event and a phone: gathered in a slot, told by a digest, or not told for one of some reasons."""

    event: Event
    phone: UUID
    owner: tuple[str, str | None]
    """The project and owner of the phone at fan-out."""
    slot: Slot | None = None
    closes_at: datetime | None = None
    digest: int | None = None
    codes: frozenset[str] = frozenset()
    handled: bool = False


@dataclass
class Digest:
    """One push that tells a phone several events; it may wait for the end of quiet hours."""

    number: int
    phone: UUID
    owner: tuple[str, str | None]
    items: list[Item]
    closed_at: datetime
    is_over: bool = False


def next_time(delivery: str, zone: str, after: datetime) -> datetime:
    """Return the next instant of a `delivery` after another; a local time that the clock skips comes later by the skip."""
    if delivery == "hourly":
        return after.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    kind, *day, clock = delivery.split()
    here = ZoneInfo(zone)
    today = after.astimezone(here).date()
    for number in range(-1, 9):
        local = datetime.combine(today + timedelta(days=number), time.fromisoformat(clock), here)
        at = local.astimezone(UTC)
        if at > after and (kind == "daily" or DAYS[local.weekday()] == day[0]):
            return at
    raise AssertionError(f"{delivery} never comes")


def frequency(delivery: str) -> tuple[int, int, str]:
    """Sort the most frequent `delivery` first, and the earlier of two equally frequent ones (3)."""
    kind, *rest = delivery.split()
    order = ("hourly", "daily", "weekly").index(kind)
    return order, DAYS.index(rest[0]) if kind == "weekly" else 0, rest[-1] if rest else ""


@dataclass
class Oracle:
    """All that the page speaks of."""

    rules: dict[str, str] = field(default_factory=dict)
    phones: dict[UUID, Phone] = field(default_factory=dict)
    choices: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    zones: dict[tuple[str, str | None] | UUID, str] = field(default_factory=dict)
    """Of quiet hours: of a phone, of an owner in a project, of a project (owner None)."""
    items: list[Item] = field(default_factory=list)
    due: dict[Slot, datetime] = field(default_factory=dict)
    """When each slot closes next; that time may have passed while the relay was down."""
    digests: list[Digest] = field(default_factory=list)

    # People and phones

    def register(self, phone: UUID, project: str, owner: str | None, timezone: str | None, now: datetime) -> None:
        """A phone registers; what was gathered ends if it changes hands or moves to another project (7)."""
        known = self.phones.get(phone)
        if known is None:
            self.phones[phone] = Phone(phone, project, owner, timezone)
            return
        codes = {"owner_changed"} if known.owner not in (None, owner) else set()
        codes |= {"project_changed"} if project != known.project else set()
        known.left_at = now if "owner_changed" in codes else known.left_at
        if "owner_changed" in codes:
            known.opt_outs, known.preferences = frozenset(), {"default": Preference()}  # H8
            self.zones.pop(phone, None)
        known.project, known.owner, known.is_registered, known.ended_at = project, owner, True, None
        known.timezone = timezone or known.timezone
        for item in self.gathered(phone) if codes else ():
            self._end(item, codes)
        self.look_again(phone, now)

    def forget(self, phone: UUID) -> None:
        """A phone that is deleted or forgotten is told nothing any more."""
        del self.phones[phone]
        self.items = [item for item in self.items if item.phone != phone]
        for digest in self.digests:
            digest.is_over |= digest.phone == phone

    def clean_up(self, now: datetime) -> None:
        """Phones that logged out 90 days ago are deleted, and slots for which nothing is gathered."""
        for number, phone in list(self.phones.items()):
            if phone.ended_at is not None and phone.ended_at < now - timedelta(days=90):
                self.forget(number)
        used = {item.slot for item in self.items}
        self.due = {slot: at for slot, at in self.due.items() if slot in used}

    def zone_of(self, phone: Phone) -> str:
        """Return the phone's zone, else that of its quiet hours, its owner's, the project's, else UTC."""
        owner = self.zones.get((phone.project, phone.owner)) if phone.owner is not None else None
        return phone.timezone or self.zones.get(phone.id) or owner or self.zones.get((phone.project, None)) or "UTC"

    def refusals(self, phone: Phone, category: str | None) -> set[str]:
        """Return why a phone does not want a category now."""
        rule = self.rules.get(category or "", "on")
        if category is None or rule == "mandatory":
            return set()
        found = {"opted_out"} if category in phone.opt_outs else set()
        chosen = None if phone.owner is None else self.choices.get((phone.project, phone.owner, category))
        if chosen is False:
            found.add("refused")
        if chosen is not True and rule == "off":
            found.add("not_accepted")
        return found

    # Gathering

    def gathered(self, phone: UUID) -> list[Item]:
        """Return what waits for a digest of a phone."""
        return [item for item in self.items if item.phone == phone and item.slot is not None]

    def verdict(self, event: Event, phone: Phone, now: datetime) -> str | None:
        """Return what fan-out does for a phone that an event for whoever matches may reach: push, gather, late or nothing (1)."""
        if not phone.is_registered or self.refusals(phone, event.category):
            return None
        matching = [each for each in phone.preferences.values() if each.matches(event.region)]
        if not matching:
            return None
        if any(each.delivery == "now" for each in matching):
            return "push"
        due = self._due_for(event, phone, now)
        return "late" if event.deadline is not None and event.deadline <= max(due, now) else "gather"

    def _due_for(self, event: Event, phone: Phone, now: datetime) -> datetime:
        """Return when the digest to which an event belongs closes; its slot is there from now on."""
        delivery, zone = self.delivery_of(event, phone) or USUAL, self.zone_of(phone)
        return self.due.setdefault((phone.project, delivery, zone), next_time(delivery, zone, now))

    def miss(self, event: Event, phone: Phone, now: datetime) -> None:
        """Note an event that is not gathered, for its deadline is before the digest."""
        self._due_for(event, phone, now)
        owner = (phone.project, phone.owner)
        self.items.append(Item(event, phone.id, owner, codes=frozenset({"deadline_before_digest"})))

    def delivery_of(self, event: Event, phone: Phone) -> str | None:
        """Return to which digest of a phone an event belongs (3); None if it is for whoever matches, and nothing does."""
        enabled = [each for each in phone.preferences.values() if each.enabled]
        if event.region is not None:
            matching = [each for each in enabled if each.matches(event.region)]
            if not matching:
                return None
            if all(each.delivery != "now" for each in matching):
                enabled = matching
        asked = [each.delivery for each in enabled if each.delivery != "now"]
        return min(asked, key=frequency) if asked else USUAL

    def gather(self, event: Event, phone: Phone, now: datetime) -> Item:
        """Gather an event for a phone."""
        item = Item(event, phone.id, (phone.project, phone.owner))
        self.items.append(item)
        self._place(item, self.delivery_of(event, phone) or USUAL, now)
        return item

    def look_again(self, phone: UUID, now: datetime) -> None:
        """The preferences or the zone of a phone changed: each gathered event belongs to the digest of now (4)."""
        for item in self.gathered(phone):
            delivery = self.delivery_of(item.event, self.phones[phone])
            if delivery is None:
                self._end(item, {"preference_changed"})
            else:
                self._place(item, delivery, now)

    def _place(self, item: Item, delivery: str, now: datetime) -> None:
        phone = self.phones[item.phone]
        slot = (phone.project, delivery, self.zone_of(phone))
        if slot != item.slot:
            item.slot, item.closes_at = slot, self.due.setdefault(slot, next_time(delivery, slot[2], now))

    def _end(self, item: Item, codes: set[str]) -> None:
        item.slot, item.closes_at, item.codes = None, None, frozenset(codes)

    # Closing

    def next_closing(self) -> datetime | None:
        """Return when the next digest closes."""
        return min((item.closes_at for item in self.items if item.closes_at is not None), default=None)

    def close(self, now: datetime) -> list[Digest]:
        """Close the slots whose time has come; each takes everything that was gathered for it (5), but what is left out (7)."""
        due = {slot for slot, at in self.due.items() if at <= now}
        self.due |= {slot: next_time(slot[1], slot[2], now) for slot in due}
        told: dict[UUID, list[Item]] = {}
        for item in self.items:
            if item.slot is None or item.slot not in due:
                continue
            phone = self.phones[item.phone]
            if self.zone_of(phone) != item.slot[2]:  # the project's zone changed meanwhile (5)
                self._place(item, item.slot[1], now)
            elif reasons := self.reasons(item, now):
                self._end(item, reasons)
            else:
                told.setdefault(item.phone, []).append(item)
        closed = []
        for phone_id, items in told.items():
            slots = {item.slot for item in items}
            for slot in sorted(slots, key=str):
                own = [item for item in items if item.slot == slot]
                phone = self.phones[phone_id]
                made = Digest(len(self.digests), phone_id, (phone.project, phone.owner), own, now)
                self.digests.append(made)
                closed.append(made)
        for digest in closed:
            for item in digest.items:
                item.slot, item.closes_at, item.digest = None, None, digest.number
        return closed

    def reasons(self, item: Item, now: datetime) -> set[str]:
        """Return why an event is not told now; several may hold."""
        found = set(self.refusals(self.phones[item.phone], item.event.category))
        if item.event.deadline is not None and item.event.deadline <= now:
            found.add("deadline_passed")
        if item.event.has_ended:
            found.add("event_ended")
        if item.handled:
            found.add("handled_elsewhere")
        if not self.phones[item.phone].is_registered:
            found.add("not_allowed")
        return found

    def left(self, digest: Digest, now: datetime) -> list[Item]:
        """Return what a digest names right before it is sent, the best first: not what ended meanwhile, or is refused now."""
        kept = [item for item in digest.items if not self.reasons(item, now)]
        return sorted(kept, key=lambda item: (item.event.score, item.event.id), reverse=True)
