"""The runaway brake over whole days: what is ordinary passes, what comes again and again is held, kept and told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relevo.client.values import Matching
from relevo.config import Settings
from relevo.core.errors import DatabaseUnavailableError, UsageError
from relevo.core.model import Report
from relevo.cycles import runaway
from relevo.operators import actions, event_types, fleet
from relevo.operators.event_types import TypeSettings
from support import soak
from support.deliveries import add_deliveries, add_event
from support.sending_worker import Relay, at_once

TODAY = datetime.now(UTC).replace(hour=9, minute=30, second=0, microsecond=0)
MONDAY = TODAY + timedelta(days=8 - TODAY.isoweekday())
"""The next one: there are partitions for the weeks after it."""
FEW = {"push_runaway_min_events": 10, "push_runaway_first_events": 50}
"""The settings of a small world: ten an hour of what is known, fifty of what is new."""
PAST = 3
"""How many digests came in the days before the loop: one on the busiest day."""
_numbers = count(1)


def now(worker: Relay, **fields: Any) -> int:
    """Enqueue an event that falls due at the relay's time."""
    return worker.enqueue(scheduled_at=worker.clock.now(), **fields)


def work(worker: Relay) -> None:
    """Let the relay do what is due."""
    worker.fan_out()
    worker.dispatch()


def announce(worker: Relay, number: int, source: str = "chilecompra") -> None:
    """Enqueue the events of so many new tenders of a source, as ingest does."""
    codes = [f"{next(_numbers)}-1-LE31" for _ in range(number)]
    worker.conn.execute(
        "insert into relevo.licitacion_registry (namespace, external_id, source) select 'cl', unnest(%s::text[]), %s",
        [codes, source],
    )
    items = worker.conn.execute(
        "insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint)"
        " select 'cl', unnest(%s::text[]), 'Obra', array[%s], 'x' returning id",
        [codes, source],
    ).fetchall()
    reported = {"type": "new_licitacion", "title": "Nueva", "audience": "matching", "matching": {"text": "Obra"}}
    reported["scheduled_at"] = worker.clock.now().isoformat()
    events = [reported | {"key": code, "licitacion_id": item} for code, (item,) in zip(codes, items, strict=True)]
    worker.conn.execute("select count(*) from relevo.enqueue_many(%s)", [Jsonb(events)])


def want_all(worker: Relay) -> None:
    """Let every phone ask for everything."""
    worker.conn.execute(
        "insert into relevo.notification_preferences (installation_id)"
        " select installation_id from relevo.device_installations on conflict do nothing"
    )


def live(worker: Relay, events: int, days: int, **event: Any) -> None:
    """Let some days go by after each of some events, which are fanned out and not sent yet."""
    for _ in range(events):
        now(worker, **event)
        worker.fan_out()
        worker.travel(days=days)


def events(worker: Relay, **where: str) -> dict[str, int]:
    """Count the events per state."""
    (kind,) = where.values() or ("%",)
    rows = worker.rows(
        "select state, count(*)::int as n from relevo.notification_events where event_type like %s group by state", kind
    )
    return {row["state"]: row["n"] for row in rows}


def problems(worker: Relay) -> list[str]:
    """Return what `relevo status` says of runaways."""
    found = fleet.status(worker.app.database, worker.app.settings).problems
    return [problem for problem in found if "runaway" in problem]


@pytest.fixture
def small(relay) -> Relay:
    """A relay in a small world, on a Monday morning, with twelve phones."""
    worker: Relay = relay(**FEW)
    worker.clock.travel_to(MONDAY)
    worker.add_phones(12)
    return worker


@pytest.fixture
def looping(small: Relay) -> Relay:
    """A digest now and then for a week and more; then a loop has enqueued forty within minutes."""
    live(small, PAST, days=3, type="digest")
    for _ in range(40):
        small.travel(seconds=5)
        now(small, type="digest")
    work(small)
    return small


class TestOrdinaryDays:
    """What must never trip it."""

    def test_a_real_day(self, relay) -> None:
        """380 tenders between nine and seven to phones that want all of them: each is sent when it is due, at default settings."""
        worker: Relay = relay()
        worker.clock.travel_to(MONDAY)
        phones = soak.cases(2, whole=27)  # each is judged by what it got itself
        worker.add_phones(phones)
        want_all(worker)
        for hour in range(10):
            announce(worker, 38)
            work(worker)
            assert worker.states() == {"sent": (hour + 1) * 38 * phones}
            worker.travel(hours=1)
        worker.everyone_received(380)
        assert (events(worker), worker.incidents(), problems(worker)) == ({"fanned": 380}, [], [])

    def test_a_catch_up(self, small: Relay) -> None:
        """A known source that was down for a day brings that day's and this day's in one hour."""
        want_all(small)
        for _ in range(PAST):
            announce(small, 8)
            small.fan_out()
            small.travel(days=3)
        announce(small, 16)
        small.fan_out()
        assert events(small) == {"fanned": PAST * 8 + 16}

    def test_workers_that_were_away(self, small: Relay) -> None:
        """What fell due over a day and is fanned out at once, since no worker ran, came over a day."""
        live(small, PAST, days=3, type="digest")
        for _ in range(40):
            now(small, type="digest")
            small.travel(minutes=30)
        small.fan_out()
        assert events(small) == {"fanned": PAST + 40}

    def test_a_chat_that_grows(self, small: Relay) -> None:
        """Personal events of one type, twice as many every day, up to forty an hour for each phone: none is held, urgent or not."""
        few = list(small.phones.values())[:4]
        for day in range(9):
            for message in range(min(160, 2**day)):
                now(small, type="chat", audience=[few[message % 4]], lane="urgent" if message % 5 == 4 else "bulk")
            small.fan_out()
            small.travel(days=1)
        small.dispatch()
        assert (events(small), problems(small)) == ({"fanned": 255 + 160}, [])
        assert set(small.states()) == {"sent"}

    def test_a_launch(self, small: Relay) -> None:
        """A type nobody knew: five for everyone, and one for each phone by name, within an hour."""
        for _ in range(5):
            now(small, type="promo")
        for phone in small.phones.values():
            now(small, type="promo", audience=[phone])
        work(small)
        small.everyone_received(6)

    def test_a_new_source(self, small: Relay) -> None:
        """Its first announcements are judged as new, however long the type is known from another source."""
        want_all(small)
        for _ in range(PAST):
            announce(small, 1)
            small.fan_out()
            small.travel(days=3)
        announce(small, 45, source="ocds")
        small.fan_out()
        assert events(small) == {"fanned": PAST + 45}

    def test_many_that_few_want(self, small: Relay) -> None:
        """A type that goes from a test to the whole market is no runaway as long as no phone gets much of it."""
        for name, phone in small.phones.items():
            small.conn.execute("select relevo.set_preference(%s, 'own', %s)", [phone, Jsonb({"keywords": [name]})])
        live(small, PAST, days=3, type="listing", audience=Matching(text="p0"))
        for number in range(90):
            now(small, type="listing", audience=Matching(text=f"p{number % 12}"))
        small.fan_out()
        assert events(small) == {"fanned": PAST + 90}


class TestRunaways:
    """What must be stopped in good time."""

    def test_a_loop_that_enqueues(self, looping: Relay, command: Any) -> None:
        """Ten pass, thirty are held; who looks is told what came, what is usual and what to do. While the loop goes on not
        ten more pass with each hour: held ones count as well, and are told once an episode."""
        looping.everyone_received(PAST + 10)
        assert events(looping) == {"fanned": PAST + 10, "held": 30}
        assert looping.incidents() == ["runaway_stopped"]
        (problem,) = problems(looping)
        assert "the runaway brake holds 30 events of digest from app" in problem
        assert "came 40 times within an hour, once on its busiest day before" in problem
        assert "`relevo release --type digest --origin app` to send them" in problem
        said = command("status")
        assert said.code == 1
        assert "digest from app came 40 times" in " ".join((said.out + said.err).split())
        (held,) = looping.rows("select max(event_id) as id from relevo.held_events")
        reported = " ".join(command("event", held["id"]).out.split())
        assert "held by the runaway brake" in reported
        assert "came 40 times within an hour, once on its busiest day before; 12 of 12 phones got up to 40" in reported
        passed = " ".join(command("event", held["id"] - 30).out.split())
        assert "runaway stopped" in passed, "the incident stands in the story of what was sent meanwhile"
        for _ in range(4):
            looping.travel(minutes=30)
            for _ in range(20):
                now(looping, type="digest")
            work(looping)
        looping.everyone_received(PAST + 10)
        assert events(looping) == {"fanned": PAST + 10, "held": 30 + 80}
        assert looping.incidents() == ["runaway_stopped"]

    def test_nothing_else_is_stopped(self, looping: Relay) -> None:
        """Other types, other origins of the type and urgent ones of it go on; so does the type once it is calm again. What
        was held is no past: a runaway does not teach the brake that runaways are usual."""
        now(looping, type="news")
        now(looping, type="digest", lane="urgent")
        work(looping)
        looping.everyone_received(PAST + 10 + 2)
        assert events(looping) == {"fanned": PAST + 12, "held": 30}
        looping.travel(hours=2)
        now(looping, type="digest")
        work(looping)
        looping.everyone_received(PAST + 10 + 3)
        assert events(looping)["held"] == 30, "what was held waits for somebody"
        passed = events(looping)["fanned"]
        looping.travel(days=2)
        for _ in range(40):
            now(looping, type="digest")
        work(looping)
        busiest = 10 + 1  # what passed of the type on the day of the loop; urgent ones are not counted
        assert events(looping) == {"fanned": passed + 2 * busiest, "held": 30 + 40 - 2 * busiest}

    def test_a_source_that_reissues_everything(self, small: Relay) -> None:
        """All old tenders under new keys: twice the busiest day passes, a tenth of them; each kept, none lost."""
        want_all(small)
        for _ in range(PAST):
            announce(small, 6)
            small.fan_out()
            small.travel(days=3)
        announce(small, 120)
        work(small)
        assert events(small) == {"fanned": PAST * 6 + 12, "held": 108}
        small.everyone_received(PAST * 6 + 12)
        (problem,) = problems(small)
        assert "the runaway brake holds 108 events of new_licitacion from chilecompra" in problem
        assert "came 120 times within an hour, 6 times on its busiest day before" in problem

    def test_a_loop_in_a_new_type(self, small: Relay) -> None:
        """Without a past it is given more, and stopped all the same."""
        for _ in range(80):
            now(small, type="new")
        work(small)
        small.everyone_received(50)
        assert events(small) == {"fanned": 50, "held": 30}

    def test_a_loop_at_one_phone(self, small: Relay, command: Any) -> None:
        """A phone that gets far more than it ever got gets no more of it; the chat of the others goes on."""
        for _ in range(70):
            now(small, type="chat", audience=[small.phones["p3"]])
        for name in small.phones:
            now(small, type="chat", audience=[small.phones[name]])
        now(small, type="chat", audience=[small.phones["p3"]], lane="urgent")
        now(small, type="chat", audience=list(small.phones.values()))
        work(small)
        assert {name: small.received(name) for name in ("p2", "p3", "p4")} == {"p2": 2, "p3": 52, "p4": 2}
        assert events(small) == {"fanned": 50 + 11 + 2, "held": 21}
        said = " ".join(command("status").out.split())
        assert "a phone got up to 71 of chat from app within an hour, 0 on the busiest day before" in said

    def test_a_fleet_of_phones(self, relay) -> None:
        """Where an event reaches many, the next of a stopped stream are held without a delivery being made."""
        worker: Relay = relay(push_runaway_first_events=20)
        worker.clock.travel_to(MONDAY)
        worker.add_phones(150)
        for _ in range(60):
            now(worker, type="new")
        worker.fan_out()
        assert events(worker) == {"fanned": 20, "held": 40}
        (made,) = worker.rows("select last_value from relevo.delivery_ids")
        first, last = worker.deliveries()[0]["id"], worker.deliveries()[-1]["id"]
        assert made["last_value"] - last <= 2 * 150, "one was begun and undone, the others not begun"
        assert last - first == 20 * 150 - 1

    def test_a_retry_storm(self, relay, sandbox, command: Any) -> None:
        """Pushes that arrive and are sent again and again, by a policy without patience: stopped, kept and told."""
        worker: Relay = relay(push_breaker_failures=1_000)
        worker.travel(seconds=0)
        event_types.set_event_type(
            worker.app.database,
            worker.app.settings,
            "digest",
            TypeSettings(max_attempts=100, retry_base_ms=1, retry_max_ms=1),
        )
        worker.add_phones(5)
        sandbox.add_fault("500-delivered")
        stormy = now(worker, type="digest")
        worker.fan_out()
        for _ in range(15):
            worker.travel(seconds=20)
            worker.dispatch(at_most=5)
            worker.reap()
        assert {row["attempt_count"] for row in worker.deliveries()} == {12}
        worker.everyone_received(12)
        assert {(row["status"], row["last_error_code"]) for row in worker.deliveries()} == {
            ("retryable", "repeats_held")
        }
        assert worker.incidents() == ["runaway_stopped"]
        (problem,) = problems(worker)
        assert "the runaway brake holds 1 event of digest from app" in problem
        assert f"5 pushes of digest (event {stormy}) were tried again 55 times within an hour" in problem
        assert "pushes held by the runaway brake" in command("event", stormy).out
        sandbox.clear_faults()
        now(worker, type="digest")
        work(worker)
        worker.everyone_received(13)
        assert actions.release_events(worker.app.database, "digest")["events"] == 1
        worker.travel(minutes=16)
        worker.dispatch()
        worker.everyone_received(14)
        assert (set(worker.states()), problems(worker)) == ({"sent"}, [])

    def test_two_retry_storms_at_once(self, conn: psycopg.Connection[Any]) -> None:
        """Pushes of two types that are tried again and again: each project is told of its own."""
        storms = {"digest": ["shop", "crm"], "chat": ["chat"], "calm": ["calm"]}
        for event_type, projects in storms.items():
            event = add_event(conn, event_type=event_type)
            for project in projects:
                add_deliveries(conn, 1, event=event, event_type=event_type, project=project)
            repeats = 31 if event_type != "calm" else 3
            conn.execute("insert into relevo.event_repeat_deltas (event_id, repeats) values (%s, %s)", [event, repeats])
        assert runaway.fold_repeats(conn, Settings(), 100, None) == 2
        found = conn.execute("select project, detail from relevo.project_incidents where what = 'runaway_stopped'")
        reported = {project: detail.partition("of ")[2].partition(" ")[0] for project, detail in found}
        assert reported == {"shop": "digest", "crm": "digest", "chat": "chat"}

    def test_a_storm_of_one_origin_is_released(self, conn: psycopg.Connection[Any], build: Any) -> None:
        """Pushes of one type from two origins are held: who releases those of one origin leaves the other's held."""
        of_shop, of_app = (add_event(conn, event=event, event_type="digest") for event in (1, 2))
        conn.execute("update relevo.notification_events set project = 'shop' where id = %s", [of_shop])
        conn.execute(
            "insert into relevo.event_repeats (event_id, since, repeats, held_at, reason)"
            " select unnest(%s::bigint[]), now(), 99, now(), 'stormy'",
            [[of_shop, of_app]],
        )

        def held() -> list[int]:
            return [row[0] for row in conn.execute("select event_id from relevo.event_repeats order by 1")]

        database = build().database
        assert actions.release_events(database, "digest", "app of shop")["events"] == 1
        assert held() == [of_app]
        assert actions.release_events(database, "digest", "app")["events"] == 1
        assert held() == []

    @pytest.mark.parametrize(("brake", "times"), [(True, 11), (False, 14)])
    def test_a_storm_of_redrives(self, relay, sandbox, brake: bool, times: int) -> None:
        """Somebody's cron that opens the same dead letters every minute is a storm, too, unless the brake is off."""
        worker: Relay = relay(push_runaway_brake=brake)
        sandbox.add_fault("DeveloperError")
        worker.tell("ana", "bob", "cleo")
        for _ in range(14):
            worker.dispatch(at_most=3)
            actions.redrive(worker.app.database, actions.DeadLetters(error_code="DeveloperError"))
            worker.reap()
        assert sandbox.totals()["messages"] == 3 * times
        assert worker.incidents().count("runaway_stopped") == int(brake)


class TestOperators:
    """What they can set and do."""

    def test_it_can_be_off(self, relay) -> None:
        """PUSH_RUNAWAY_BRAKE=false: everything passes, and nothing is counted."""
        worker: Relay = relay(push_runaway_brake=False, **FEW)
        worker.clock.travel_to(MONDAY)
        worker.add_phones(3)
        for _ in range(120):
            now(worker, type="digest")
        work(worker)
        worker.everyone_received(120)
        assert worker.rows("select from relevo.event_counts") == []

    def test_release(self, looping: Relay, command: Any) -> None:
        """What was held is sent, all of it; then the brake judges anew, and has learnt what somebody found right."""
        said = command("release", "--type", "digest", "--origin", "app")
        assert (said.code, "30 events of digest will be sent (" in said.out) == (0, True)
        assert problems(looping) == []
        now(looping, type="digest")
        work(looping)
        looping.everyone_received(PAST + 41)
        assert looping.incidents() == ["runaway_stopped", "runaway_released"]
        (event,) = looping.rows("select min(event_id) as id from relevo.held_events")
        assert "released" in command("event", event["id"]).out
        for _ in range(30):
            now(looping, type="digest")
        work(looping)
        assert looping.incidents() == ["runaway_stopped", "runaway_released", "runaway_stopped"], "judged anew"
        looping.travel(days=1)
        before = events(looping)["held"]
        for _ in range(90):
            now(looping, type="digest")
        work(looping)
        assert events(looping)["held"] == before, "twice the busiest day, which is now that of the release"

    def test_drop(self, looping: Relay, command: Any) -> None:
        """What was held ends unsent, with that reason, and stays ended. Nothing named, both named, a type nobody sent: said,
        and nothing is changed."""
        for words in (["release"], ["release", "default", "--type", "digest"], ["release", "default", "--drop"]):
            said = command(*words)
            assert (said.code, "Name" in said.err) == (2, True), said
        with pytest.raises(UsageError, match="Nothing of nothing"):
            actions.release_events(looping.app.database, "nothing")
        with pytest.raises(UsageError, match="Nothing of digest from ocds"):
            actions.release_events(looping.app.database, "digest", "ocds")
        assert events(looping)["held"] == 30
        said = command("release", "--type", "digest", "--drop")
        assert "30 events of digest are ended" in said.out
        work(looping)
        assert events(looping) == {"fanned": PAST + 10, "cancelled": 30}
        (why,) = looping.rows(
            "select distinct end_reason, swept_at is not null as swept from relevo.notification_events where ended_at is not null"
        )
        assert why == {"end_reason": "it was dropped while the runaway brake held it", "swept": True}
        looping.everyone_received(PAST + 10)
        assert problems(looping) == []

    def test_a_deadline_passes(self, small: Relay) -> None:
        """Held is not kept for ever: an event past its deadline ends, by itself; so does one that is cancelled."""
        for _ in range(60):
            now(small, type="new", ttl_s=3_600)
        work(small)
        held = [row["event_id"] for row in small.rows("select event_id from relevo.held_events order by event_id")]
        small.conn.execute("select relevo.cancel(%s)", [held[0]])
        assert events(small) == {"fanned": 50, "held": 9, "cancelled": 1}
        small.travel(hours=2)
        work(small)
        assert events(small) == {"fanned": 50, "cancelled": 10}
        reasons = small.rows(
            "select distinct end_reason as why from relevo.notification_events where ended_at is not null"
        )
        assert {row["why"] for row in reasons} == {None, "its deadline passed while the runaway brake held it"}
        assert problems(small) == []
        assert actions.release_events(small.app.database, "new")["events"] == 0
        work(small)
        small.everyone_received(50)

    def test_releasing_many(self, small: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """Batch by batch, and no further than what was held when it was asked for."""
        monkeypatch.setattr(actions, "_RELEASE_BATCH", 7)
        for _ in range(80):
            now(small, type="new")
        small.fan_out()
        assert actions.release_events(small.app.database, "new")["events"] == 30
        work(small)
        small.everyone_received(80)

    def test_a_release_that_breaks_off(self, small: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it left held is still told of, and the next release goes on with it."""
        for _ in range(60):
            now(small, type="new")
        small.fan_out()
        monkeypatch.setattr(actions, "_RELEASE_BATCH", 4)
        opened: list[Any] = []
        transaction = small.app.database.transaction

        def breaking() -> Any:
            opened.append(1)
            if len(opened) > 2:
                raise DatabaseUnavailableError("PostgreSQL is gone.")
            return transaction()

        monkeypatch.setattr(small.app.database, "transaction", breaking)
        with pytest.raises(DatabaseUnavailableError):
            actions.release_events(small.app.database, "new")
        monkeypatch.undo()
        assert "the runaway brake holds 6 events of new from app" in problems(small)[0]
        assert actions.release_events(small.app.database, "new")["events"] == 6
        work(small)
        small.everyone_received(60)


def test_a_loop_in_one_project(small: Relay) -> None:
    """A runaway to a hundred phones of one project holds that project's events; the same type of another project goes on."""
    small.add_phones(188, "more")
    small.conn.execute(
        "update relevo.device_installations set project = case when seq % 2 = 0 then 'shop' else 'club' end"
    )
    for project in ("shop", "club"):
        live(small, PAST, days=3, type="digest", project=project)
    for _ in range(40):
        small.travel(seconds=5)
        now(small, type="digest", project="shop")
    small.fan_out()
    last = now(small, type="digest", project="club")
    small.fan_out()
    states = dict(small.conn.execute("select id, state from relevo.notification_events").fetchall())
    assert "held" in states.values()
    assert states[last] == "fanned"
    assert len(problems(small)) == 1


def test_two_workers_at_once(relay) -> None:
    """They count the same phones without waiting for each other in a circle, and let pass what one of them would, but a few."""
    workers: list[Relay] = [relay(**FEW) for _ in range(2)]
    first = workers[0]
    first.clock.travel_to(MONDAY)
    first.add_phones(30)
    for _ in range(120):
        now(first, type="new")
    reports: list[Report] = at_once(*(worker.fan_out for worker in workers))
    assert {report.outcome for report in reports} == {"ok"}
    states = events(first)
    assert sum(states.values()) == 120
    assert 50 <= states["fanned"] <= 52
    rows = first.rows("select distinct in_hour from relevo.event_counts")
    assert rows == [{"in_hour": 120}], "for the stream and for each phone"


def test_counts_are_forgotten(small: Relay) -> None:
    """A phone that got nothing for two months has no past here, and a type nobody got none at all; what is young stays."""
    live(small, 1, days=1, type="old")
    small.travel(days=55)
    live(small, 1, days=1, type="young")
    small.travel(days=10)
    small.run("cleanup")
    assert len(small.rows("select from relevo.event_counts")) == 13
    assert small.rows("select event_type from relevo.event_streams") == [{"event_type": "young"}]
