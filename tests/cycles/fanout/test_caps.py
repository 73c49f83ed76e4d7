"""Caps: so much is sent to one person in an hour, a day or a week, by each way of fan-out; the rest is in the inbox."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest

from relevo.client import consent, inboxes, quiet, verbs
from relevo.client.values import Event, Matching, Owners
from support import soak
from support.killed_cycles import KilledProcesses
from support.phones import add_phones, fan_out_to_the_end, prefer

AUDIENCES: dict[str, Any] = {"everyone": "everyone", "matching": Matching(), "owners": Owners("ana", "eva")}


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> list[UUID]:
    """Two phones of ana, one of eva, one of nobody, and a cap of two a day."""
    quiet.set_cap(conn, 2, per="day")
    made = add_phones(conn, 4)
    prefer(conn, made[:3])
    for phone, owner in zip(made, ("ana", "ana", "eva"), strict=False):
        conn.execute("update relevo.device_installations set owner = %s where installation_id = %s", [owner, phone])
    return made


def tell(conn: psycopg.Connection[Any], key: str, audience: Any = "everyone", **more: Any) -> int:
    """Enqueue an event."""
    return verbs.enqueue(conn, Event("notice", key, title="Hello", audience=audience, **more)).event_id


def states(conn: psycopg.Connection[Any], phone: UUID) -> list[tuple[str, str | None]]:
    """Return what became of each delivery to a phone, in the order they were made."""
    ask = "select status, last_error_code from relevo.notification_deliveries where installation_id = %s order by id"
    return conn.execute(ask, [phone]).fetchall()


OPEN, CAPPED = ("pending", None), ("skipped", "capped")


def test_of_more_than_the_cap_the_first_are_sent(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """By each way of fan-out one event counts once for all phones of an owner; what is above is skipped, told, and in the inbox."""
    worker = build()
    for key, audience in AUDIENCES.items():
        tell(conn, key, audience)
        fan_out_to_the_end(worker)
    assert [states(conn, phone) for phone in phones[:3]] == [[OPEN, OPEN, CAPPED]] * 3
    assert states(conn, phones[3]) == [OPEN]
    told = verbs.explain(conn, ("notice", "owners"), phones[0])
    assert (told.gets_it, told.rule, told.reason) == (False, "capped", "There is no room for it: at most 2 a day.")
    draft = verbs.explain(conn, Event("notice", "next", title="Hello", audience="everyone"), phones[2])
    assert (draft.rule, draft.reason) == ("capped", "There is no room for it: at most 2 a day, and 2 are used.")
    assert len(inboxes.inbox(conn, owner="ana").items) == 3


def queue_random(conn: psycopg.Connection[Any], world: str, seed: int) -> Iterator[int]:
    """Enqueue events for the owners of one world in two projects, with and without category, one after the other."""
    chance = random.Random(seed)
    for number in range(40):
        owners = chance.sample(["ana", "eva", "leo"], chance.choice([1, 1, 2]))
        yield tell(
            conn,
            f"{world}-{number}",
            Owners(*(f"{world}-{owner}" for owner in owners)),
            project=chance.choice(["shop", "bank"]),
            category=chance.choice([None, "offers", "offers"]),
        )


@pytest.mark.parametrize("seed", soak.cases(range(2), whole=range(50)))
def test_events_together_get_what_they_get_one_by_one(build: Any, conn: psycopg.Connection[Any], seed: int) -> None:
    """Two projects with equal owner names and several caps each: fan-out of all events at once skips the same as one by one."""
    for most, per, project, category in (
        *(
            (3, "day", "shop", None),
            (2, "hour", "shop", "offers"),
            (9, "week", "bank", None),
            (4, "day", "bank", "offers"),
        ),
    ):
        quiet.set_cap(conn, most, per=per, project=project, category=category)
    for world in ("one", "all"):
        for project, owner in itertools.product(("shop", "bank"), ("ana", "ana", "eva", "leo")):
            (phone,) = add_phones(conn, 1)
            conn.execute(
                "update relevo.device_installations set owner = %s, project = %s where installation_id = %s",
                [f"{world}-{owner}", project, phone],
            )
    worker = build()
    for _ in queue_random(conn, "one", seed):
        fan_out_to_the_end(worker)
    list(queue_random(conn, "all", seed))
    fan_out_to_the_end(worker)
    ask = """select substr(i.owner, 5), i.project, substr(e.event_key, 5), d.status, d.last_error_code, count(*)
               from relevo.notification_deliveries d join relevo.notification_events e on e.id = d.notification_event_id
               join relevo.device_installations i using (installation_id) where i.owner like %s group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4"""
    one, together = (conn.execute(ask, [f"{world}-%"]).fetchall() for world in ("one", "all"))
    assert together == one
    assert {row[3] for row in one} == {"pending", "skipped"}
    ways = "select distinct fanout_finished_at from relevo.notification_events where event_key like 'all-%'"
    assert len(conn.execute(ways).fetchall()) < 40, "they were fanned out together"
    uses = (
        "select cap, substr(subject, 7), cardinality(events) from relevo.cap_uses where subject like %s order by 1, 2"
    )
    assert conn.execute(uses, ["o:all-%"]).fetchall() == conn.execute(uses, ["o:one-%"]).fetchall()


def test_what_is_urgent_or_mandatory_neither_counts_nor_is_held(
    build: Any, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """Urgent events and mandatory categories pass, and leave the room to others; a category's cap is its own."""
    worker = build()
    consent.set_category(conn, "law", rule="mandatory")
    quiet.set_cap(conn, 1, per="week", category="offers")
    for number in range(3):
        tell(conn, f"urgent {number}", lane="urgent")
        tell(conn, f"law {number}", category="law")
    tell(conn, "offer 1", category="offers")
    fan_out_to_the_end(worker)
    assert set(states(conn, phones[0])) == {OPEN}
    tell(conn, "offer 2", category="offers")
    tell(conn, "other")
    fan_out_to_the_end(worker)
    assert states(conn, phones[0])[-2:] == [CAPPED, OPEN]
    assert verbs.explain(conn, ("notice", "offer 2"), phones[0]).reason.endswith("at most 1 a week of category offers.")


def test_what_ends_unsent_does_not_count(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """A cancelled event leaves its room to another; one that came to one of the phones does not."""
    worker = build()
    first, second = tell(conn, "1", Owners("ana")), tell(conn, "2", Owners("ana"))
    fan_out_to_the_end(worker)
    conn.execute("delete from relevo.due_chunks where event_id = %s", [first])
    conn.execute(
        "update relevo.notification_deliveries set status = case when installation_id = %s then 'ok' else 'invalid' end, completed_at = now(),"
        " provider_ticket_id = 'ticket' where notification_event_id = %s",
        [phones[0], first],
    )
    verbs.cancel(conn, second)
    for key in ("3", "4"):
        tell(conn, key, Owners("ana"))
        fan_out_to_the_end(worker)
    assert states(conn, phones[1]) == [("invalid", None), ("cancelled", None), OPEN, CAPPED]


def test_a_push_of_unknown_end_counts(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """A push that the phone may have got takes its room in a cap: another one is held."""
    worker = build()
    quiet.set_cap(conn, 1, per="day")
    first = tell(conn, "1", Owners("eva"))
    fan_out_to_the_end(worker)
    conn.execute("delete from relevo.due_chunks where event_id = %s", [first])
    ended = "update relevo.notification_deliveries set status = 'unknown', attempt_count = 1, completed_at = now() where notification_event_id = %s"
    conn.execute(ended, [first])
    tell(conn, "2", Owners("eva"))
    fan_out_to_the_end(worker)
    assert states(conn, phones[2]) == [("unknown", None), CAPPED]


def test_a_raised_cap_has_room_at_once(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """A cap that was used up for good by what was sent lets more through as soon as it is raised."""
    worker = build()
    quiet.set_cap(conn, 1, per="day")
    first = tell(conn, "1", Owners("eva"))
    fan_out_to_the_end(worker)
    conn.execute("delete from relevo.due_chunks where event_id = %s", [first])
    ended = "update relevo.notification_deliveries set status = 'ok', completed_at = now(), provider_ticket_id = 't' where notification_event_id = %s"
    conn.execute(ended, [first])
    for key in ("2", "3"):
        tell(conn, key, Owners("eva"))
        fan_out_to_the_end(worker)
        quiet.set_cap(conn, 2, per="day")
    assert states(conn, phones[2]) == [("ok", None), CAPPED, OPEN]


def test_a_cap_goes_by_the_day_it_would_be_sent(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """What waits for the end of quiet hours counts on the day of that end, by the clock of the phone."""
    worker = build()
    now = datetime.now(UTC)
    quiet.set_cap(conn, None, per="day")
    quiet.set_cap(conn, 1, per="hour")
    tell(conn, "now")
    fan_out_to_the_end(worker)
    ends = now + timedelta(hours=2)
    quiet.set_quiet(conn, [f"{now - timedelta(hours=1):%H:%M}-{ends:%H:%M}"], owner="ana", zone="UTC")
    for key in ("later", "above"):
        tell(conn, key)
        fan_out_to_the_end(worker)
    assert states(conn, phones[0]) == [OPEN, OPEN, CAPPED]
    assert states(conn, phones[2]) == [OPEN, CAPPED, CAPPED]


def test_room_of_a_later_hour_is_none_of_this_one(
    build: Any, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """Two events of one owner at once, one of them for after the quiet hours: a cap that is full now holds the other back."""
    now = datetime.now(UTC).replace(minute=30) + timedelta(hours=1)  # in the midst of an hour
    worker = build(now=now)
    quiet.set_cap(conn, None, per="day")
    quiet.set_cap(conn, 1, per="hour")
    tell(conn, "first", [phones[2]])
    fan_out_to_the_end(worker)
    hours = [f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"]
    quiet.set_quiet(conn, hours, owner="eva", zone="UTC")
    conn.execute("insert into relevo.event_types (event_type, quiet) values ('alarm', 'ignore')")
    made = [
        verbs.enqueue(conn, Event(kind, "next", title="Hello", audience=[phones[2]])) for kind in ("alarm", "notice")
    ]
    fan_out_to_the_end(worker)
    ask = "select last_error_code from relevo.notification_deliveries where notification_event_id = any (%s) order by notification_event_id"
    assert conn.execute(ask, [[each.event_id for each in made]]).fetchall() == [("capped",), (None,)]


def test_replicas_share_the_room(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """However many fan out at once, eight here, no one gets more than the cap."""
    for number in range(12):
        tell(conn, str(number), Owners("ana"))
    workers = [build() for _ in range(8)]
    threads = [threading.Thread(target=fan_out_to_the_end, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(states(conn, phones[0])) == [OPEN] * 2 + [CAPPED] * 10
    assert sorted(states(conn, phones[1])) == [OPEN] * 2 + [CAPPED] * 10


def test_used_is_sent_and_waiting_whenever_fan_out_is_killed(
    dsn: str, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """Killed before or after any step, fan-out goes on where it was: what counts is what goes out, each event once."""
    with KilledProcesses.start(dsn) as killed_processes:
        for number in range(4):
            tell(conn, f"{number}", "everyone" if number % 2 else Owners("ana", "eva"))
        for nth, when in ((1, "before"), (1, "after"), (2, "before"), (2, "after")):
            killed_processes.run("fanout", kill={"name": "fanout.fan_out_next", "when": when, "nth": nth})
        killed_processes.run("fanout")
    ask = """
    select u.subject, u.events, array(
             select distinct d.notification_event_id from relevo.notification_deliveries d join relevo.device_installations i using (installation_id)
              where d.status = 'pending' and u.subject in ('o:' || i.owner, 'i:' || i.installation_id) order by 1),
           (select count(*) from relevo.notification_deliveries d join relevo.device_installations i using (installation_id)
              where u.subject in ('o:' || i.owner, 'i:' || i.installation_id))
      from relevo.cap_uses u order by 1
    """
    found = conn.execute(ask).fetchall()
    assert [(subject, count) for subject, _, _, count in found if subject.startswith("o:")] == [
        ("o:ana", 8),
        ("o:eva", 4),
    ]
    for subject, used, going, _ in found:
        assert sorted(used) == going, subject
        assert len(going) == 2, subject


def test_forgetting_reaches_caps_that_were_taken_away(
    build: Any, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """What counted against ana is gone with her, also under a cap that is no more; eva's stays."""
    tell(conn, "one")
    fan_out_to_the_end(build())
    quiet.set_cap(conn, None, per="day")
    verbs.forget(conn, owner="ana")
    verbs.forget(conn, installation_id=phones[3])
    assert conn.execute("select subject from relevo.cap_uses").fetchall() == [("o:eva",)]


def test_forgetting_in_one_project_leaves_the_other_project_full(
    build: Any, conn: psycopg.Connection[Any], two_projects: list[UUID]
) -> None:
    """Two projects know an ana and send her one event a day: after the shop forgot its ana, the club's has no room yet."""
    for project in ("shop", "club"):
        quiet.set_cap(conn, 1, per="day", project=project)
    worker = build()
    tell(conn, "one")
    fan_out_to_the_end(worker)
    conn.execute("select relevo.forget_owner_in_project('ana', 'shop')")
    tell(conn, "two")
    fan_out_to_the_end(worker)
    assert states(conn, two_projects[1]) == [OPEN, CAPPED]
    [again] = add_phones(conn, 1, owner="ana", project="shop")
    tell(conn, "three")
    fan_out_to_the_end(worker)
    assert (states(conn, two_projects[1]), states(conn, again)) == ([OPEN, CAPPED, CAPPED], [OPEN])


def test_what_was_sent_yesterday_takes_no_room_of_today(
    build: Any, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """A preview counts what is used of the day on which the event would be sent, as fan-out does."""
    worker = build()
    next_event = Event("notice", "next", title="Hello", audience="everyone")
    for key in ("one", "two"):
        tell(conn, key)
    fan_out_to_the_end(worker)
    assert verbs.explain(conn, next_event, phones[0]).rule == "capped"
    conn.execute("update relevo.cap_uses set bucket = bucket - interval '1 day'")
    tell(conn, "of today")
    fan_out_to_the_end(worker)
    assert verbs.explain(conn, next_event, phones[0]).gets_it
    tell(conn, "of today, too")
    fan_out_to_the_end(worker)
    draft = verbs.explain(conn, next_event, phones[0])
    assert draft.reason == "There is no room for it: at most 2 a day, and 2 are used."
    assert states(conn, phones[0]) == [OPEN] * 4


def test_a_cap_that_is_taken_away_meanwhile_loses_nothing(
    build: Any, conn: psycopg.Connection[Any], phones: list[UUID]
) -> None:
    """What was found above a cap is written as skipped, and counted so, if the cap is gone by then; a cap for one owner is refused."""
    event = tell(conn, "one", Owners("nobody"))
    fan_out_to_the_end(build())
    conn.execute(
        """select relevo.write_capped(e, now(), %s::uuid[], array['expo', 'expo'], array['default', 'default'], array[null, 99], null)
             from relevo.notification_events e where e.id = %s""",
        [phones[:2], event],
    )
    assert [states(conn, phone) for phone in phones[:2]] == [[], [CAPPED]]
    with pytest.raises(psycopg.Error, match="a cap holds for every owner of a project: leave out owner"):
        conn.execute("""select relevo.set_cap('{"owner": "ana", "per": "day", "most": 1}')""")


def test_an_owner_has_one_calendar(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """Phones of one owner in zones a day apart, met by different slices, count once, by the zone of the first that said one."""
    for phone, zone in zip(phones, ("Pacific/Kiritimati", "Pacific/Pago_Pago"), strict=False):
        conn.execute("update relevo.device_installations set timezone = %s where installation_id = %s", [zone, phone])
    worker = build(fanout_slice_size=1)
    for number in range(3):
        tell(conn, f"{number}")
        fan_out_to_the_end(worker)
    assert [states(conn, phone) for phone in phones[:2]] == [[OPEN, OPEN, CAPPED]] * 2
    used = "select cardinality(events) from relevo.cap_uses where subject = 'o:ana'"
    assert conn.execute(used).fetchall() == [(2,)]


@pytest.fixture
def two_projects(conn: psycopg.Connection[Any]) -> list[UUID]:
    """A phone of ana in the shop, a day ahead, and one of an owner of the same name in the club."""
    [shop] = add_phones(conn, 1, owner="ana", project="shop", timezone="Pacific/Kiritimati")
    [club] = add_phones(conn, 1, owner="ana", project="club", timezone="Pacific/Pago_Pago")
    return [shop, club]


@pytest.mark.parametrize("audience", ["everyone", "phones"])
def test_a_cap_holds_in_its_project(
    build: Any, conn: psycopg.Connection[Any], two_projects: Any, audience: str
) -> None:
    """A cap of the shop holds nothing back in the club."""
    quiet.set_cap(conn, 1, per="day", project="shop")
    worker = build()
    for number in range(2):
        tell(conn, f"{number}", audience if audience == "everyone" else two_projects)
        fan_out_to_the_end(worker)
    assert [states(conn, phone) for phone in two_projects] == [[OPEN, CAPPED], [OPEN, OPEN]]


def test_a_caps_day_is_that_of_its_own_project(build: Any, conn: psycopg.Connection[Any], two_projects: Any) -> None:
    """A day of ana in the club is a day where that phone is, not where an owner of the same name is in the shop."""
    quiet.set_cap(conn, 1, per="day", project="club")
    tell(conn, "1", [two_projects[1]])
    fan_out_to_the_end(build())
    day = datetime.now(ZoneInfo("Pacific/Pago_Pago")).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    assert conn.execute("select bucket from relevo.cap_uses").fetchall() == [(day,)]


def test_a_former_phone_of_an_owner_counts(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """What was sent to an owner counts after the phone went to somebody else, or was deleted; what another project's owner of that name was sent does not."""
    worker = build()
    first, second = phones[2:]
    for key in "ab":
        tell(conn, key, Owners("eva"))
        fan_out_to_the_end(worker)
    sent = "update relevo.notification_deliveries set status = 'ok', completed_at = now(), provider_ticket_id = 't' where installation_id = %s"
    conn.execute(sent, [first])
    owned = "update relevo.device_installations set owner = %s where installation_id = %s"
    conn.execute(owned, ["tom", first])
    conn.execute(owned, ["eva", second])
    for key in "cd":
        tell(conn, key, Owners("eva"))
        fan_out_to_the_end(worker)
        conn.execute("delete from relevo.device_installations where installation_id = %s", [first])
    assert states(conn, second) == [CAPPED, CAPPED]


def test_a_cap_counts_within_its_project(build: Any, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
    """What was sent to an equal owner name of another project leaves the room that it ended unsent with here."""
    worker = build()
    [abroad] = add_phones(conn, 1, project="other", owner="eva")
    events = []
    for key in "ab":
        events.append(tell(conn, key))
        fan_out_to_the_end(worker)
    ended = "update relevo.notification_deliveries set status = %s, completed_at = now(), provider_ticket_id = 't' where installation_id = %s"
    conn.execute(ended, ["expired", phones[2]])
    conn.execute(ended, ["ok", abroad])
    tell(conn, "c")
    fan_out_to_the_end(worker)
    assert states(conn, phones[2])[2:] == [OPEN]


def test_a_push_of_another_project_takes_no_room(build: Any, conn: psycopg.Connection[Any], two_projects: Any) -> None:
    """An event that ended unsent in the shop leaves its room, though an owner of the same name got it in the club."""
    quiet.set_cap(conn, 1, per="day", project="shop")
    worker = build()
    tell(conn, "1")
    fan_out_to_the_end(worker)
    conn.execute("delete from relevo.due_chunks")
    conn.execute(
        "update relevo.notification_deliveries set status = case project when 'club' then 'ok' else 'failed' end, completed_at = now(),"
        " provider_ticket_id = 'ticket', last_error_code = 'Failed'"
    )
    draft = verbs.explain(conn, Event("notice", "next", title="Hello", audience="everyone"), two_projects[0])
    assert draft.gets_it
    tell(conn, "2")
    fan_out_to_the_end(worker)
    assert [states(conn, phone)[1:] for phone in two_projects] == [[OPEN], [OPEN]]
