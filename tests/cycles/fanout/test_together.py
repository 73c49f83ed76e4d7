"""Personal events for few phones are fanned out together; each comes to what it would have come to by itself."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import relevo
from relevo.client import verbs
from relevo.client.values import Event, Owners
from relevo.core import queries
from relevo.core.model import Budget
from relevo.cycles import fanout
from support import soak
from support.phones import add_phones, called_out, event_row, fan_out, fan_out_to_the_end, one_step, reached, try_again
from support.query_plans import BY_KEY, rows_read_by_table, rows_read_so_far

FANOUT = queries.load("fanout")
SOON = datetime.now(UTC) + timedelta(days=1)
A_PAST_HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SEAL_THIS_MONTH = """
insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)
values ('notification_deliveries', date_trunc('month', now() at time zone 'UTC')::date, 'sealed', 'gone', 1, now())
"""


def personal(kind: str, phones: list[UUID], **fields: Any) -> list[Event]:
    """Make one event for each phone."""
    return [Event(kind, f"{n}", "Hello", audience=[phone], **fields) for n, phone in enumerate(phones)]


def states(conn: psycopg.Connection[Any], kind: str = "%") -> dict[str, int]:
    """Count the events of a type per state."""
    ask = "select state, count(*)::int from relevo.notification_events where event_type like %s group by state"
    return dict(conn.execute(ask, [kind]).fetchall())


def travel(conn: psycopg.Connection[Any], kind: str, due_at: datetime, *, only: str = "%") -> None:
    """Let events of a type have been made, and have fallen due, at another time."""
    conn.execute(
        "update relevo.notification_events set created_at = %s, scheduled_at = %s where event_type = %s and event_key like %s",
        [due_at, due_at, kind, only],
    )


def by_chance(chance: random.Random, kind: str, number: int, phones: list[UUID]) -> Event:
    """Return a personal event."""
    owners = chance.sample(("ana", "eva", "leo", "nobody"), chance.choice((1, 1, 2)))
    some = [*chance.sample(phones, chance.choice((1, 1, 1, 2, 4))), *chance.choice(([], [], [UUID(int=7)]))]
    return Event(
        kind,
        f"{number}",
        "Hello",
        audience=chance.choice((some, some, Owners(*owners))),
        category=chance.choice((None, None, "tips")),
        lane=chance.choice((None, None, "urgent")),
        at_most_once=chance.choice((None, True)),
        project=chance.choice((None, None, None, "other")),
        deadline_at=chance.choice((None, None, SOON)),
    )


class TestTheSame:
    """What comes of an event does not depend on the others."""

    def story(self, conn: psycopg.Connection[Any], kind: str) -> list[Any]:
        """Return all that fan-out wrote for the events of a type, without what no two events share."""
        asks = (
            """
            select event_key, state, event_day, fanout_upto, fanout_cursor, targets_selected, deliveries_created, end_reason,
                   fanout_started_at is null, fanout_finished_at is null, ended_at is null, swept_at is null
              from relevo.notification_events where event_type = %s order by event_key
            """,
            """
            select e.event_key, d.event_day, d.installation_id, d.provider, d.project, d.lane, d.at_most_once,
                   d.deadline_at = e.deadline_at, d.status, d.event_type = e.event_type
              from relevo.notification_deliveries d join relevo.notification_events e on e.id = d.notification_event_id
             where e.event_type = %s order by 1, 3
            """,
            """
            select e.event_key, q.event_day, q.project, q.lane, q.attempt_count, q.lapse_count, q.had_error,
                   array(select d.installation_id from unnest(x.ids) as u(id) join relevo.notification_deliveries d using (id)
                          where d.notification_event_id = e.id order by 1),
                   x.phones, q.due_at > now() + interval '1 hour'
              from relevo.due_chunks q
              cross join lateral (select coalesce(u.event_id, q.event_id) as event_id, array_agg(u.id) as ids, array_agg(u.phone order by u.phone) as phones
                                    from unnest(q.ids, q.installations, q.events) as u(id, phone, event_id) group by 1) x
              join relevo.notification_events e on e.id = x.event_id
             where e.event_type = %s order by 1, 3
            """,
            """
            select e.event_key, p.status, sum(p.deliveries)
              from relevo.event_progress_deltas p join relevo.notification_events e on e.id = p.event_id
             where e.event_type = %s group by 1, 2 order by 1
            """,
            """
            select c.installation_id, c.hour_at, c.day, c.in_hour, c.hour_before, c.passed_today, c.busiest_day, c.releases
              from relevo.event_counts c join relevo.event_streams s on s.id = c.stream_id
             where s.event_type = %s order by 1
            """,
            """
            select e.event_key, h.released_at
              from relevo.held_events h join relevo.notification_events e on e.id = h.event_id
             where e.event_type = %s order by 1
            """,
        )
        return [sorted(conn.execute(ask, [kind]).fetchall(), key=str) for ask in asks]

    def enqueue(self, conn: psycopg.Connection[Any], kind: str, phones: list[UUID], others: list[UUID]) -> None:
        """Enqueue personal events of every kind."""
        soon = datetime.now(UTC) + timedelta(hours=1)
        loop = phones[5]
        events = [
            *[Event(kind, f"plain {n}", "t", audience=[phone]) for n, phone in enumerate(phones[:5])],
            Event(kind, "several", "t", audience=phones[:4]),
            Event(kind, "unknown", "t", audience=[uuid4(), phones[0]]),
            Event(kind, "nobody", "t", audience=[uuid4()]),
            Event(kind, "others", "t", audience=[*others, phones[1]], category="tips"),
            Event(kind, "at most once", "t", audience=phones[1:3], at_most_once=True, deadline_at=soon),
            Event(kind, "urgent", "t", audience=phones[1:3], lane="urgent"),
            Event(kind, "later", "t", audience=phones[1:3], scheduled_at=soon),
            Event(kind, "again", "t", audience=phones[:3]),
            *[Event(kind, f"loop {n:02}", "t", audience=[loop]) for n in range(20)],
            *[Event(kind, f"loop urgent {n:02}", "t", audience=[loop], lane="urgent") for n in range(3)],
            *[Event(kind, f"old {n:02}", "t", audience=[phones[n % 2]]) for n in range(8)],
        ]
        made = {event.key: one.event_id for event, one in zip(events, verbs.enqueue_many(conn, events), strict=True)}
        conn.execute(
            "insert into relevo.event_followers (event_id, former_event_id)"
            " select %s, id from relevo.notification_events where event_key = 'former'",
            [made["again"]],
        )
        for n in range(8):  # over hours, two to one
            travel(conn, kind, A_PAST_HOUR + timedelta(minutes=40 * n), only=f"old {n:02}")

    def test_together_or_apart(self, build, conn, monkeypatch: pytest.MonkeyPatch) -> None:
        """Events, deliveries, chunks, progress and the brake's counts are the same, held ones and past hours included."""
        phones = [*add_phones(conn, 4), *add_phones(conn, 4, project="other", provider="sandbox")]
        others = [
            *add_phones(conn, 1, permission="denied"),
            *add_phones(conn, 1, active=False),
            *add_phones(conn, 1, opt_outs=["tips"]),
        ]
        app = build(push_runaway_first_events=10, push_runaway_min_events=10)
        verbs.enqueue(conn, Event("former", "former", "t", audience=phones[:2]))
        fan_out_to_the_end(app)
        conn.execute(
            "update relevo.notification_deliveries set status = 'sent', provider_ticket_id = 't' where installation_id = %s",
            [phones[0]],
        )
        with monkeypatch.context() as patch:
            patch.setattr(fanout, "_FEW", 0)
            self.enqueue(conn, "apart", phones, others)
            fan_out_to_the_end(app)
        self.enqueue(conn, "together", phones, others)
        fan_out_to_the_end(app)
        assert self.story(conn, "together") == self.story(conn, "apart")
        assert states(conn, "together") == {"fanned": 13 - 1 + 10 + 3 + 8, "held": 10, "waiting": 1}

    @pytest.mark.parametrize("seed", soak.cases(range(2), whole=range(40)))
    def test_together_or_apart_by_chance(self, build, conn, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        """Whatever 120 events say and whom they are for, phones in quiet hours and of another project included, it comes to the same."""
        phones = [*add_phones(conn, 5), *add_phones(conn, 3, project="other", provider="sandbox")]
        phones += [*add_phones(conn, 1, permission="denied"), *add_phones(conn, 1, opt_outs=["tips"])]
        for phone, owner in zip(phones, ("ana", "eva", "ana", "leo", "eva", "leo", "ana"), strict=False):
            conn.execute("update relevo.device_installations set owner = %s where installation_id = %s", [owner, phone])
        now = datetime.now(UTC)
        night = [f"{now - timedelta(hours=2):%H:%M}-{now + timedelta(hours=4):%H:%M}"]
        relevo.set_quiet(conn, night, installation_id=phones[1], zone="UTC")
        relevo.set_quiet(conn, night, owner="leo", zone="UTC")
        app = build(push_runaway_first_events=100_000, push_runaway_min_events=100_000)

        def tell(kind: str) -> None:
            verbs.enqueue_many(conn, [by_chance(chance, kind, n, phones) for n in range(120)])
            travel(conn, kind, A_PAST_HOUR)  # within one hour: across several the brake's counts go by the order
            fan_out_to_the_end(app)

        chance = random.Random(seed)
        with monkeypatch.context() as patch:
            patch.setattr(fanout, "_FEW", 0)
            tell("apart")
        chance = random.Random(seed)
        tell("together")
        assert self.story(conn, "together") == self.story(conn, "apart")
        ways = "select count(distinct fanout_finished_at) from relevo.notification_events where event_type = %s"
        (together,), (apart,) = (conn.execute(ways, [kind]).fetchone() for kind in ("together", "apart"))
        assert together < apart / 3, "they were fanned out together"

    @pytest.mark.parametrize("phones", [8, 16])
    def test_counted_for_one_event_or_for_many(self, conn, phones: int) -> None:
        """Whatever was counted before, this hour or long ago, and however few phones it is, both ways come to the same."""
        whom = sorted(add_phones(conn, phones))
        made = verbs.enqueue(conn, Event("chat", "1", "t", audience=whom))
        due, stream = conn.execute(
            "insert into relevo.event_streams (event_type, origin, known_since, releases)"
            " select event_type, 'app', created_at, 1 from relevo.notification_events returning known_since, id"
        ).fetchone()
        conn.execute(
            """
            insert into relevo.event_counts
            select %s, u.phone, date_bin('1 hour', %s, 'epoch') + interval '1 hour' * (2 - u.n %% 5), %s::date - u.n::int / 2,
                   u.n, 2 * u.n, 3 * u.n, 4 * u.n, u.n %% 2
              from unnest(%s::uuid[]) with ordinality as u(phone, n)
            """,
            [stream, due, due, whom],
        )
        one = ("most from relevo.count_event(%s, 1, false, %s, %s)", [stream, due, whom])
        many = (
            "max(n) from relevo.count_events(%s, %s, true) c, unnest(c.in_hour) n",
            [[made.event_id] * phones, whom],
        )
        came = []
        for what, given in (one, many):
            with conn.transaction(force_rollback=True):
                conn.execute(BY_KEY)
                (most,) = conn.execute(f"select {what}", given).fetchone()
                rows = conn.execute("select * from relevo.event_counts order by installation_id").fetchall()
            came.append((most, rows))
        assert came[0] == came[1]
        assert len(came[0][1]) == phones

    def test_a_delivery_that_is_there_already(self, build, conn) -> None:
        """Where one exists the others are made all the same, and both numbers are told."""
        phones = add_phones(conn, 4)
        made = verbs.enqueue_many(conn, [*personal("chat", phones), Event("chat", "all", "t", audience=phones)])
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
            " values ((now() at time zone 'UTC')::date, %s, %s, 'chat')",
            [made[-1].event_id, phones[1]],
        )
        report = fan_out(build())
        assert report.counts == {"targets_selected": 8, "deliveries_created": 7, "events_fanned_out": 5}
        assert [reached(conn, each.event_id) for each in made] == [*([phone] for phone in phones), phones]

    def test_a_month_without_partition(self, build, conn) -> None:
        """It is made before the deliveries."""
        made = verbs.enqueue_many(conn, personal("chat", add_phones(conn, 3)))
        conn.execute(
            "do $$ begin execute 'drop table relevo.notification_deliveries'"
            " || to_char(now() at time zone 'UTC', '_YYYY_MM'); end $$"
        )
        fan_out(build())
        assert [len(reached(conn, each.event_id)) for each in made] == [1, 1, 1]

    def test_a_sealed_month(self, build, conn) -> None:
        """Nothing is written to it: the events end, each with the reason."""
        made = verbs.enqueue_many(conn, personal("chat", add_phones(conn, 3)))
        conn.execute(SEAL_THIS_MONTH)
        assert fan_out(build()).counts == {"events_expired": 3}
        assert {event_row(conn, each.event_id)["end_reason"] for each in made} == {
            "its month was archived before its fan-out was finished"
        }
        assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (0,)


class TestSteps:
    """How many go together, and which."""

    def test_many_in_one_step(self, build, conn) -> None:
        """One step takes hundreds, tells their sums, and knocks at dispatch's door once."""
        phones = add_phones(conn, 300)
        verbs.enqueue_many(conn, personal("chat", phones))
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('dispatch', true)")
        conn.execute("listen relevo_wake")
        done = one_step(build())
        assert done.counts == {"targets_selected": 300, "deliveries_created": 300, "events_fanned_out": 300}
        assert (done.items, done.more) == (300, True)
        assert called_out(conn) == ["dispatch"]
        ask = "select count(distinct q.id), count(distinct u.event_id) from relevo.due_chunks q cross join lateral unnest(q.events) as u(event_id)"
        assert conn.execute(ask).fetchone() == (3, 300)

    def test_one_by_itself_is_told_to_be(self, build, conn) -> None:
        """After an event that nobody waits behind there is hardly more to do; not so between slices."""
        phones = add_phones(conn, 5)
        app = build(fanout_slice_size=3)
        verbs.enqueue(conn, Event("chat", "one", "t", audience=phones[:1]))
        assert one_step(app).short
        verbs.enqueue(conn, Event("chat", "all", "t", audience=phones))
        assert [one_step(app).short for _ in range(2)] == [False, False]
        assert states(conn) == {"fanned": 2}

    def test_no_more_than_a_slice(self, build, conn) -> None:
        """Their phones together are at most a slice's candidates; who names more than that is made in slices."""
        phones = add_phones(conn, 9)
        few = verbs.enqueue_many(conn, [Event("chat", str(n), "t", audience=phones[:2]) for n in range(5)])
        many = verbs.enqueue(conn, Event("chat", "many", "t", audience=phones))
        app = build(fanout_slice_size=5)
        counted = [one_step(app).counts["deliveries_created"] for _ in range(5)]
        assert counted == [4, 4, 2, 5, 4]
        assert all(reached(conn, each.event_id) == phones[:2] for each in few)
        assert reached(conn, many.event_id) == phones

    def test_a_budget_is_kept(self, build, conn) -> None:
        """A run with ten items left takes no more than ten events."""
        verbs.enqueue_many(conn, personal("chat", add_phones(conn, 30)))
        app = build()
        report = app.runner.run(app.registry["fanout"], "manual", budget=Budget(max_ms=60_000, max_items=10))
        assert report.counts["events_fanned_out"] == 10

    def test_urgent_ones_do_not_wait_for_bulk(self, build, conn) -> None:
        """Lanes do not mix: what is urgent goes first and by itself, whenever it comes."""
        phones = add_phones(conn, 30)
        verbs.enqueue_many(conn, personal("chat", phones))
        verbs.enqueue_many(conn, personal("call", phones[:2], lane="urgent"))
        app = build(fanout_slice_size=10)
        assert one_step(app).counts["events_fanned_out"] == 2
        assert states(conn, "call") == {"fanned": 2}
        one_step(app)
        verbs.enqueue_many(conn, [Event("call", "new", "t", audience=phones[:1], lane="urgent")])
        assert one_step(app).counts["events_fanned_out"] == 1
        assert (states(conn, "call"), states(conn, "chat")) == ({"fanned": 3}, {"fanned": 10, "waiting": 20})

    def test_the_oldest_first(self, build, conn) -> None:
        """Among equals what fell due first goes first, and its chunk lies before the others'."""
        phones = add_phones(conn, 9)
        events = personal("chat", phones)
        made = verbs.enqueue_many(conn, events)
        for n in range(9):
            travel(conn, "chat", A_PAST_HOUR + timedelta(minutes=(n * 4) % 9), only=str(n))
        app = build(fanout_slice_size=3)
        fan_out_to_the_end(app)
        ask = "select u.event_id from relevo.due_chunks q cross join lateral unnest(q.ids, q.events) as u(id, event_id) order by q.id, u.id"
        order = [row[0] for row in conn.execute(ask).fetchall()]
        assert order == [made[n].event_id for n in sorted(range(9), key=lambda n: (n * 4) % 9)]

    def test_what_is_not_due_waits(self, build, conn) -> None:
        """A scheduled one is not taken along with those that are due."""
        phones = add_phones(conn, 4)
        verbs.enqueue_many(conn, personal("chat", phones))
        later = personal("later", phones, scheduled_at=datetime.now(UTC) + timedelta(seconds=90))
        verbs.enqueue_many(conn, later)
        fan_out(build())
        assert (states(conn, "chat"), states(conn, "later")) == ({"fanned": 4}, {"waiting": 4})
        fan_out(build(now=datetime.now(UTC) + timedelta(minutes=2)))
        assert states(conn, "later") == {"fanned": 4}

    def test_what_comes_too_late_ends(self, build, conn) -> None:
        """Those whose deadline passed end beside those that fan out, with the reason, and reach nobody."""
        phones = add_phones(conn, 6)
        verbs.enqueue_many(conn, [*personal("late", phones[:4], ttl_s=60), *personal("chat", phones)])
        conn.execute(
            "update relevo.notification_events set deadline_at = now() - interval '1 second',"
            " scheduled_at = now() - interval '2 seconds' where event_type = 'late'"
        )
        report = fan_out(build())
        assert report.counts == {
            "events_expired": 4,
            "targets_selected": 6,
            "deliveries_created": 6,
            "events_fanned_out": 6,
        }
        reasons = conn.execute("select distinct end_reason from relevo.notification_events where event_type = 'late'")
        assert reasons.fetchall() == [("its deadline passed before it fanned out",)]


class TestTrouble:
    """What goes wrong with one."""

    def test_one_bad_event_stops_only_itself(self, build, conn) -> None:
        """Whatever refuses its deliveries, the others are made, the run says which it was, and a later one mends it."""
        phones = add_phones(conn, 12)
        made = verbs.enqueue_many(conn, personal("chat", phones))
        conn.execute(
            f"""
            create function break_it() returns trigger language plpgsql as $$ begin raise 'no room'; end $$;
            create trigger break_it before insert on relevo.notification_deliveries
              for each row when (new.installation_id = '{phones[5]}') execute function break_it()
            """
        )
        app = build()
        report = app.runner.run(app.registry["fanout"], "manual")
        assert (report.outcome, report.counts["events_fanned_out"]) == ("partial", 11)
        assert f"event {made[5].event_id}: RaiseException: no room" in report.error
        assert states(conn) == {"fanned": 11, "waiting": 1}
        conn.execute("drop function break_it cascade")
        try_again(conn)
        fan_out(app)
        assert [reached(conn, each.event_id) for each in made] == [[phone] for phone in phones]

    def test_one_in_another_hand_is_passed_by(self, build, conn, dsn: str) -> None:
        """Nobody waits for an event that somebody else holds; it comes to its turn later."""
        phones = add_phones(conn, 6)
        made = verbs.enqueue_many(conn, personal("chat", phones))
        with psycopg.connect(dsn) as other:
            held = [made[0].event_id, made[3].event_id]
            other.execute("select from relevo.notification_events where id = any (%s) for update", [held])
            assert fan_out(build()).counts["events_fanned_out"] == 4
        assert fan_out(build()).counts["events_fanned_out"] == 2
        assert [reached(conn, each.event_id) for each in made] == [[phone] for phone in phones]

    def test_two_workers_share_them(self, build, conn) -> None:
        """Each event is fanned out once, and the counts of both add up."""
        phones = add_phones(conn, 40)
        events = [Event("chat", str(n), "t", audience=[phones[n % 40]]) for n in range(400)]
        made = verbs.enqueue_many(conn, events)
        apps = [build(worker_id=name, fanout_slice_size=20) for name in ("a", "b")]
        reports = []
        threads = [threading.Thread(target=lambda app=app: reports.append(fan_out(app))) for app in apps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert sum(report.counts.get("deliveries_created", 0) for report in reports) == 400
        assert [reached(conn, each.event_id) for each in made] == [[phones[n % 40]] for n in range(400)]
        counted = conn.execute("select distinct in_hour + hour_before from relevo.event_counts").fetchall()
        assert counted == [(10,)], "the brake counted each of them once"

    def test_a_loop_at_one_phone(self, build, conn) -> None:
        """The phone that got enough gets no more of it; the others' events are made, and nothing is counted twice."""
        phones = add_phones(conn, 5)
        events = [Event("chat", str(n), "t", audience=[phones[n % 5 if n < 25 else 0]]) for n in range(60)]
        verbs.enqueue_many(conn, events)
        travel(conn, "chat", A_PAST_HOUR)
        fan_out_to_the_end(build(push_runaway_first_events=15))
        assert states(conn) == {"fanned": 20 + 15, "held": 25}
        counts = conn.execute(
            "select c.in_hour, c.passed_today from relevo.event_counts c join relevo.device_installations i"
            " using (installation_id) order by i.seq"
        ).fetchall()
        assert counts == [(40, 15), (5, 5), (5, 5), (5, 5), (5, 5)]


class TestCost:
    """As much as is taken is read."""

    def test_picking_reads_what_it_takes(self, conn) -> None:
        """With thousands waiting, each of those picked is read with the phone it names, and no other."""
        verbs.enqueue_many(conn, personal("chat", [uuid4() for _ in range(1_000)]))
        asked = {
            "lane": "bulk", "project": "", "few": 100, "left_out": [], "most_events": 200, "now": None,
            "due_hour": conn.execute("select date_bin('1 hour', min(created_at), 'epoch') from relevo.notification_events").fetchone()[0],
        }  # fmt: skip
        for statistics in ("without", "with"):
            with conn.transaction():
                conn.execute(BY_KEY)
                read = rows_read_by_table(conn, FANOUT["pick_small_events"], asked)
                assert sum(read.values()) <= 2 * 200, (statistics, read)
            conn.execute("analyze relevo.notification_events, relevo.event_audience")

    def test_making_reads_what_it_makes(self, build, conn) -> None:
        """Among 5,000 phones and their past, 200 deliveries cost a few rows each, statistics or not."""
        phones = add_phones(conn, 5_000)
        app = build()
        verbs.enqueue_many(conn, personal("former", phones[:2_000]))
        fan_out_to_the_end(app)
        for kind in ("without statistics", "with statistics"):
            verbs.enqueue_many(conn, personal(kind, phones[-200:]))
            app.database.close()
            before = rows_read_so_far(conn, "%")
            app = build()
            one_step(app)
            app.database.close()
            assert rows_read_so_far(conn, "%") - before <= 25 * 200, kind
            conn.execute("analyze")
            app = build()
