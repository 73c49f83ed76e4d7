"""Quiet hours as their page describes them, in plain Python beside the database: when an event is sent, and how loudly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.soak import cases

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
UNKNOWN = "America/Nowhere"
PROJECT, OWNER = "shop", "ana"
CHANGES = ("2025-04-06 03:00", "2025-09-07 04:00", "2025-03-30 01:00", "2025-10-26 01:00", "2025-06-15 12:00")
"""Around these instants clocks change in Santiago and Madrid; in the last case nowhere."""

Rule = Literal["wait", "silent", "ignore"]


@dataclass(frozen=True)
class Hours:
    """Quiet hours as somebody sets them."""

    windows: tuple[str, ...]
    zone: str | None


@dataclass(frozen=True)
class Case:
    """A phone with whose hours it may have, an event with its rules, and the time at which it is to be sent."""

    at: datetime
    timezone: str | None
    phone: Hours | None
    owner: Hours | None
    project: Hours | None
    lane: Literal["urgent", "bulk"]
    shows: bool
    of_type: Rule | None
    of_category: Rule | None
    due_before: timedelta
    max_wait: timedelta | None
    deadline: timedelta | None
    at_deadline: Literal["silent", "expired"] | None


@dataclass(frozen=True)
class Expected:
    """What the page promises: the push makes a sound now, goes silently now, expires, or waits until then."""

    becomes: Literal["sound", "silent", "expired", "wait"]
    until: datetime | None = None
    zone: str | None = None


# The page, section by section


def is_quiet(windows: tuple[str, ...], local: datetime) -> bool:
    """Return whether a wall clock shows a minute of one of the windows; one that ends before it begins ends a day later."""
    minute = local.hour * 60 + local.minute
    for window in windows:
        days, _, hours = window.rpartition(" ")
        begins, ends = (int(each[:2]) * 60 + int(each[3:]) for each in hours.split("-"))
        on = days.split(",") if days else list(DAYS)
        today, yesterday = DAYS[local.weekday()] in on, DAYS[local.weekday() - 1] in on
        if begins < ends:
            if today and begins <= minute < ends:
                return True
        elif (today and minute >= begins) or (yesterday and minute < ends):
            return True
    return False


def end_of(windows: tuple[str, ...], zone: str, at: datetime) -> datetime | None:
    """Return when quiet hours that are under way end, stepping from minute to minute; None if it is not quiet."""
    here, then = ZoneInfo(zone), at
    while is_quiet(windows, then.astimezone(here)):
        then = then.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return None if then == at else then


def zone_that_applies(case: Case) -> str | None:
    """Return the first zone of the phone, its hours, its owner's hours and the project's hours; None: UTC applies."""
    known = None if case.timezone == UNKNOWN else case.timezone
    chain = [known, *(hours.zone for hours in (case.phone, case.owner, case.project) if hours)]
    return next((zone for zone in chain if zone), None)


def is_refused(case: Case) -> bool:
    """Return whether some hours lack a zone that they need: an owner's, a project's, or those of a phone without any."""
    shared = any(hours and hours.windows and not hours.zone for hours in (case.owner, case.project))
    own = case.phone is not None and bool(case.phone.windows) and zone_that_applies(case) is None
    return shared or own


def rule_of(case: Case) -> Rule:
    """Return the rule of the category, else of the type, else of the lane; what shows nothing ignores quiet hours."""
    if not case.shows:
        return "ignore"
    return case.of_category or case.of_type or ("ignore" if case.lane == "urgent" else "wait")


def expected(case: Case) -> Expected:
    """Return what becomes of the push."""
    hours = case.phone or case.owner or case.project
    zone = zone_that_applies(case) or "UTC"
    ends = end_of(hours.windows, zone, case.at) if hours else None
    rule = rule_of(case)
    if ends is None or rule == "ignore":
        return Expected("sound")
    if rule == "silent":
        return Expected("silent", zone=zone)
    waits_until = ends
    if case.max_wait is not None:
        waits_until = min(ends, case.at - case.due_before + case.max_wait)
    if waits_until <= case.at:
        return Expected("silent", zone=zone)
    if case.deadline is not None and waits_until >= case.at + case.deadline:
        return Expected(case.at_deadline or "silent", zone=zone)
    return Expected("wait", waits_until, zone)


# Made-up cases

Zones = st.sampled_from(["America/Santiago", "Europe/Madrid", "Asia/Kathmandu", "UTC"])


@st.composite
def windows(draw: st.DrawFn) -> str:
    """Draw a window that leaves some time of each day: on some days or on each, over midnight as often as not."""
    days = draw(st.lists(st.sampled_from(DAYS), max_size=3, unique=True))
    begins, lasts = draw(st.integers(0, 95)) * 15, draw(st.integers(1, 60)) * 15
    ends = (begins + lasts) % 1440
    hours = f"{begins // 60:02}:{begins % 60:02}-{ends // 60:02}:{ends % 60:02}"
    return f"{','.join(days)} {hours}" if days else hours


def hours(*, no_zone: bool) -> st.SearchStrategy[Hours | None]:
    """Draw quiet hours, of which none may be set, or which may be never."""
    zones = st.one_of(st.none(), Zones) if no_zone else Zones
    return st.one_of(
        st.none(),
        st.builds(Hours, st.lists(windows(), max_size=1).map(tuple), zones),
        st.builds(Hours, st.lists(windows(), min_size=1, max_size=1).map(tuple), zones),
    )


def spans(*minutes: int) -> st.SearchStrategy[timedelta]:
    """Draw one of some spans."""
    return st.sampled_from([timedelta(minutes=each) for each in minutes])


Cases = st.builds(
    Case,
    at=st.builds(
        lambda around, minutes, seconds: (
            datetime.fromisoformat(around).replace(tzinfo=UTC) + timedelta(minutes=minutes, seconds=seconds)
        ),
        st.sampled_from(CHANGES),
        st.integers(-1_500, 1_500),
        st.integers(0, 59),
    ),
    timezone=st.one_of(st.none(), st.just(UNKNOWN), Zones),
    phone=hours(no_zone=True),
    owner=hours(no_zone=False),
    project=hours(no_zone=False),
    lane=st.sampled_from(["urgent", "bulk", "bulk"]),
    shows=st.sampled_from([True, True, True, False]),
    of_type=st.sampled_from([None, None, "wait", "silent", "ignore"]),
    of_category=st.sampled_from([None, None, "wait", "silent", "ignore"]),
    due_before=spans(0, 0, 10, 90),
    max_wait=st.one_of(st.none(), spans(5, 60, 400)),
    deadline=st.one_of(st.none(), spans(1, 120, 600)),
    at_deadline=st.sampled_from([None, "silent", "expired"]),
)


# The database


def set_up(conn: psycopg.Connection[Any], case: Case) -> UUID:
    """Register the phone, and set everybody's hours and rules by the functions that apps call."""
    asked = {"token": "ExponentPushToken[a]", "owner": OWNER, "project": PROJECT}
    (phone,) = conn.execute("select relevo.register_installation(%s::jsonb)", [json.dumps(asked)]).fetchone() or ()
    conn.execute(
        "update relevo.device_installations set timezone = %s where installation_id = %s", [case.timezone, phone]
    )
    whose: list[tuple[Hours | None, dict[str, str]]] = [
        (case.project, {"project": PROJECT}),
        (case.owner, {"owner": OWNER}),
        (case.phone, {"installation": str(phone)}),
    ]
    for set_hours, who in whose:
        if set_hours is not None:
            set_quiet(
                conn, who | {"windows": list(set_hours.windows)} | ({"zone": set_hours.zone} if set_hours.zone else {})
            )
    category = {"category": "alarms", "quiet": case.of_category, "rule": "mandatory"}
    conn.execute("select relevo.set_category(%s::jsonb)", [json.dumps(category)])
    conn.execute(
        "insert into relevo.event_types (event_type, quiet, quiet_max_wait_s, quiet_deadline) values ('notice', %s, %s, %s)",
        [case.of_type, case.max_wait and int(case.max_wait.total_seconds()), case.at_deadline],
    )
    return UUID(str(phone))


def set_quiet(conn: psycopg.Connection[Any], asked: Mapping[str, Any]) -> bool:
    """Set quiet hours as an app in any language does; return whether something changed."""
    (changed,) = conn.execute("select relevo.set_quiet(%s::jsonb)", [json.dumps(asked)]).fetchone() or (False,)
    return bool(changed)


ASK = """
with e as (select e from jsonb_populate_record(null::relevo.notification_events, %(event)s::jsonb) e),
     i as (select * from relevo.device_installations i where i.installation_id = %(phone)s)
select n.verdict, n.due_at, n.zone, (relevo.quiet_dues(e.e, array[%(phone)s]::uuid[], %(at)s))[1]
  from e cross join i
  left join lateral relevo.quiet_now(e.e, i.quiet, i.owner_quiet, i.project, i.timezone, i.installation_id, %(at)s) n on true
"""


@settings(
    max_examples=cases(250, whole=4_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(Cases)
def test_an_event_is_sent_as_the_page_promises(conn: psycopg.Connection[Any], case: Case) -> None:
    """At claim and at fan-out the database sends, silences, expires or holds a push as the page says, and by the zone it says."""
    compare(conn, case)


@pytest.mark.parametrize("at_deadline", [None, "expired"])
@pytest.mark.parametrize("minutes", [-1, 0, 1])
def test_a_deadline_around_the_end(conn: psycopg.Connection[Any], minutes: int, at_deadline: Any) -> None:
    """An event whose deadline is the very end of the quiet hours would wait until its deadline, and does not."""
    at, night = datetime(2025, 6, 15, 23, tzinfo=UTC), Hours(("22:00-07:00",), "UTC")
    deadline = timedelta(hours=8, minutes=minutes)
    case = Case(at, None, None, None, night, "bulk", True, None, None, timedelta(), None, deadline, at_deadline)
    assert (expected(case).becomes == "wait") == (minutes > 0)
    compare(conn, case)


def compare(conn: psycopg.Connection[Any], case: Case) -> None:
    """Compare what the database makes of a case with the page."""
    with conn.transaction(force_rollback=True):
        if is_refused(case):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="zone must be given"):
                set_up(conn, case)
            return
        phone = set_up(conn, case)
        event = {
            "id": 1,
            "event_type": "notice",
            "title": "Hello" if case.shows else "",
            "body": "",
            "category": "alarms",
            "lane": case.lane,
            "scheduled_at": (case.at - case.due_before).isoformat(),
            "deadline_at": case.deadline and (case.at + case.deadline).isoformat(),
        }
        row = conn.execute(ASK, {"event": json.dumps(event), "phone": phone, "at": case.at}).fetchone()
    assert row is not None
    verdict, due_at, zone, held_until = row
    promised = expected(case)
    assert Expected(verdict or "sound", zone=zone) == Expected(promised.becomes, zone=promised.zone)
    if promised.becomes == "wait":
        assert promised.until is not None
        assert held_until == promised.until
        assert promised.until <= due_at < promised.until + timedelta(minutes=5), "spread over five minutes"
        assert case.deadline is None or due_at < case.at + case.deadline
    else:
        assert held_until is None


Left = object()
"""Stands for a field that is left out."""
Calls = st.lists(
    st.tuples(
        st.sampled_from(["project", "owner"]),
        st.sampled_from([Left, None, (), ("22:00-07:00",), ("sat,sun 07:00-10:00",)]),
        st.one_of(st.sampled_from([Left, Left, None]), Zones),
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=cases(60, whole=800), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(Calls)
def test_a_field_that_is_left_out_stays_as_it_is(conn: psycopg.Connection[Any], calls: list[tuple[Any, ...]]) -> None:
    """Through any sequence of calls null removes, what is left out stays, and hours without a zone are refused."""
    whose = {"project": {"project": PROJECT}, "owner": {"owner": OWNER}}
    model: dict[str, Hours | None] = {"project": None, "owner": None}
    with conn.transaction(force_rollback=True):
        for who, given_windows, given_zone in calls:
            asked: dict[str, Any] = dict(whose[who])
            asked |= {} if given_windows is Left else {"windows": given_windows}
            asked |= {} if given_zone is Left else {"zone": given_zone}
            before = model[who]
            after = called(before, given_windows, given_zone)
            try:
                with conn.transaction():
                    changed = set_quiet(conn, asked)
            except psycopg.errors.InvalidParameterValue:
                assert after == "refused", (asked, before)
                continue
            assert after != "refused", (asked, before)
            assert changed == (after != before), (asked, before)
            model[who] = after
            for each, held in model.items():
                (told,) = conn.execute("select relevo.get_quiet(%s::jsonb)", [json.dumps(whose[each])]).fetchone() or ()
                assert told["windows"] == (held and list(held.windows))
                assert told["zone"] == (held and held.zone)


def called(before: Hours | None, given_windows: Any, given_zone: Any) -> Hours | Literal["refused"] | None:
    """Return the hours after a call, by the page's table of `windows`."""
    if given_windows is None:
        return None
    if given_windows is Left and (before is None or given_zone is Left):
        return "refused"
    zone = (before and before.zone) if given_zone is Left else given_zone
    kept = before.windows if given_windows is Left and before else given_windows
    return "refused" if kept and zone is None else Hours(kept, zone)


def test_the_oracle_tells_cases_apart() -> None:
    """The oracle itself: the same minute is quiet in one zone and not in another, and each rule leads elsewhere."""
    night, none = Hours(("22:00-07:00",), "UTC"), timedelta()
    at = datetime(2025, 6, 15, 23, tzinfo=UTC)
    base = Case(at, None, None, None, night, "bulk", True, None, None, none, None, None, None)
    told = [
        expected(base),
        expected(Case(**vars(base) | {"timezone": "Asia/Kathmandu", "at": at + timedelta(hours=3)})),
        expected(Case(**vars(base) | {"of_category": "ignore"})),
        expected(Case(**vars(base) | {"of_type": "silent"})),
        expected(Case(**vars(base) | {"deadline": timedelta(hours=1), "at_deadline": "expired"})),
    ]
    assert [each.becomes for each in told] == ["wait", "sound", "sound", "silent", "expired"]
    assert told[0].until == datetime(2025, 6, 16, 7, tzinfo=UTC)
    assert all(first != second for first, second in pairwise(told[2:]))
