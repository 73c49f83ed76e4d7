"""Fan-out: an event becomes one delivery per installation that asked for it, whatever happens in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from relevo.client import values, verbs
from relevo.client.values import Event, Matching, TenderMatching
from support.phones import (
    add_phones,
    called_out,
    event_row,
    fan_out,
    fan_out_to_the_end,
    one_step,
    prefer,
    reached,
    try_again,
)
from support.tenders import DROP_THE_MONTH, NEWS


class TestAudience:
    """Who gets a delivery."""

    def test_everyone_means_every_installation_that_may_receive(self, build, conn) -> None:
        """Preferences play no part in an event for everyone."""
        phones = add_phones(conn, 5)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        fan_out(build())
        assert reached(conn, made.event_id) == phones

    def test_given_installations_and_nobody_else(self, build, conn) -> None:
        """A personal event goes to the installations it names, once each, and unknown ones are passed by."""
        phones = add_phones(conn, 5)
        prefer(conn, phones, enabled=False)
        named = [phones[3], phones[1], phones[3], uuid4()]
        made = verbs.enqueue(conn, Event("message", "1", "For you", audience=named))
        fan_out(build())
        assert reached(conn, made.event_id) == [phones[1], phones[3]]

    def test_matching_means_whoever_asked(self, build, conn) -> None:
        """A matching event goes to the installations that asked for it, and no preference is no wildcard."""
        phones = add_phones(conn, 6)
        prefer(conn, phones[:1])
        prefer(conn, phones[1:2], keywords=["aseo"])
        prefer(conn, phones[2:3], rubro_prefix="7611")
        prefer(conn, phones[3:4], region="ñuble", monto_min=101)
        prefer(conn, phones[4:5], enabled=False)
        made = verbs.enqueue(conn, Event("tender", "1", "Aseo", audience=NEWS))
        fan_out(build())
        assert reached(conn, made.event_id) == phones[:3]

    def test_one_delivery_however_many_preferences_match(self, build, conn) -> None:
        """Several preferences of one installation are joined by or, across slices too."""
        phones = add_phones(conn, 7)
        for name, asked in {"a": {}, "b": {"keywords": ["aseo", "oficinas"]}, "c": {"tipo": "LE"}}.items():
            prefer(conn, phones, name, **asked)
        made = verbs.enqueue(conn, Event("tender", "1", "Aseo", audience=NEWS))
        report = fan_out(build(fanout_slice_size=3))
        assert reached(conn, made.event_id) == phones
        assert report.counts == {"targets_selected": 7, "deliveries_created": 7, "events_fanned_out": 1}

    @pytest.mark.parametrize("audience", ["everyone", "installations", "matching"])
    def test_who_may_not_receive_is_left_out(self, build, conn, audience: str) -> None:
        """Inactive, incapable, not permitted, invalidated, without a token, opted out: none gets a delivery."""
        good = add_phones(conn, 1)
        others = [
            add_phones(conn, 1, **why)[0]
            for why in (
                {"active": False},
                {"push_capable": False},
                {"permission": "denied"},
                {"permission": "undetermined"},
                {"invalidated_at": datetime.now(UTC), "invalid_reason": "DeviceNotRegistered"},
                {"opt_outs": ["tips", "tenders"]},
            )
        ]
        conn.execute("insert into relevo.device_installations (token) values (null)")
        prefer(conn, [*good, *others])
        whom = {"everyone": "everyone", "installations": [*good, *others], "matching": NEWS}[audience]
        made = verbs.enqueue(conn, Event("tender", "1", "Aseo", audience=whom, category="tenders"))
        other = verbs.enqueue(conn, Event("tender", "2", "Aseo", audience=whom, category="else"))
        plain = verbs.enqueue(conn, Event("tender", "3", "Aseo", audience=whom))
        fan_out(build())
        assert reached(conn, made.event_id) == good
        assert reached(conn, other.event_id) == reached(conn, plain.event_id) == [*good, others[-1]]

    def test_nobody_is_an_audience_too(self, build, conn) -> None:
        """An event that nobody asked for ends its fan-out with nothing made."""
        made = verbs.enqueue(conn, Event("tender", "1", "Aseo", audience=NEWS))
        report = fan_out(build())
        assert report.counts == {"events_fanned_out": 1}
        assert event_row(conn, made.event_id)["state"] == "fanned"

    def test_a_delivery_carries_what_it_needs(self, build, conn) -> None:
        """Type, lane, policy and deadline come from the event, project and provider from the installation."""
        add_phones(conn, 1, project="other", provider="sandbox")
        until = datetime.now(UTC) + timedelta(hours=1)
        event = Event("call", "1", "Ring", lane="urgent", at_most_once=True, deadline_at=until, audience="everyone")
        made = verbs.enqueue(conn, event)
        fan_out(build())
        row = conn.execute(
            "select event_type, lane, at_most_once, deadline_at, project, provider, status, notification_event_id,"
            " event_day from relevo.notification_deliveries"
        ).fetchone()
        today = conn.execute("select (now() at time zone 'UTC')::date").fetchone()
        assert row == ("call", "urgent", True, until, "sandbox::other", "sandbox", "pending", made.event_id, today[0])

    def test_event_types_give_what_the_event_leaves_open(self, conn) -> None:
        """Lane, policy and time to live of a type hold where the event says nothing, and yield where it does."""
        conn.execute(
            "insert into relevo.event_types (event_type, lane, at_most_once, ttl_s) values ('call', 'urgent', true, 60)"
        )
        verbs.enqueue(conn, Event("call", "1", "Ring", audience="everyone"))
        verbs.enqueue(conn, Event("call", "2", "Ring", lane="bulk", at_most_once=False, ttl_s=120, audience="everyone"))
        rows = conn.execute(
            "select lane, at_most_once, extract(epoch from deadline_at - scheduled_at)::int"
            " from relevo.notification_events order by id"
        ).fetchall()
        assert rows == [("urgent", True, 60), ("bulk", False, 120)]


class TestSlices:
    """An event for many is made in slices, each committed with its cursor."""

    def test_slices_add_up(self, build, conn) -> None:
        """Each step makes one slice, and the last one closes the fan-out."""
        phones = add_phones(conn, 8)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        app = build(fanout_slice_size=3)
        for expected in (3, 6, 8):
            assert one_step(app).more
            assert len(reached(conn, made.event_id)) == expected
        row = event_row(conn, made.event_id)
        assert (row["state"], row["targets_selected"], row["deliveries_created"]) == ("fanned", 8, 8)
        assert reached(conn, made.event_id) == phones
        assert not one_step(app).more

    @pytest.mark.parametrize("audience", ["everyone", "installations", "matching"])
    def test_a_slice_may_end_exactly_at_the_last(self, build, conn, audience: str) -> None:
        """Whatever the rest is, nobody is left out or doubled at the seams."""
        app = build(fanout_slice_size=2)
        phones: list[UUID] = []
        for count in range(7):
            whom = {"everyone": "everyone", "installations": [*phones, uuid4()], "matching": NEWS}[audience]
            made = verbs.enqueue(conn, Event("tender", str(count), "Aseo", audience=whom))
            fan_out_to_the_end(app)
            assert reached(conn, made.event_id) == phones
            assert event_row(conn, made.event_id)["state"] == "fanned"
            phones += add_phones(conn, 1)
            prefer(conn, phones[-1:], keywords=["aseo", "oficinas"])

    def test_all_preferences_of_a_phone_are_in_one_slice(self, build, conn) -> None:
        """Where several of a phone's preferences stand at a slice's end, each counts, and the phone gets one delivery."""
        phones = add_phones(conn, 4)
        for name, region in (("a", "Maule"), ("b", "Ñuble"), ("c", "Aysén")):
            prefer(conn, phones, name=name, keywords=["aseo"], region=region)
        made = verbs.enqueue(
            conn, Event("tender", "1", "Aseo", audience=TenderMatching(text="aseo", region="Región del Ñuble"))
        )
        fan_out_to_the_end(build(fanout_slice_size=2))
        assert reached(conn, made.event_id) == phones

    @pytest.mark.parametrize("others", [0, 130])
    def test_what_is_queued_is_a_requests_worth_of_one_project(self, build, conn, others: int) -> None:
        """Every delivery of a slice stands in one chunk, with its phone, and no chunk holds more than a hundred."""
        add_phones(conn, 230)
        add_phones(conn, others, project="other")
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        fan_out_to_the_end(build())
        chunks = conn.execute(
            "select project, cardinality(ids) from relevo.due_chunks where event_id = %s order by 1, 2", [made.event_id]
        ).fetchall()
        theirs = [("other", 30), ("other", 100)] if others else []
        assert chunks == [("default", 30), ("default", 100), ("default", 100), *theirs]
        rows = conn.execute(
            """
            select count(*) filter (where d.installation_id = u.installation_id and d.project = q.project)
              from relevo.due_chunks q
              cross join unnest(q.ids, q.installations) as u(id, installation_id)
              join relevo.notification_deliveries d on d.event_day = q.event_day and d.id = u.id
            """
        )
        assert rows.fetchone() == (230 + others,)

    def test_a_slice_that_is_undone_is_made_again(self, build, conn) -> None:
        """A failure at any slice's commit leaves the slices before it, and a restart ends with one delivery each."""
        phones = add_phones(conn, 8)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        conn.execute(
            """
            create function break_it() returns trigger language plpgsql as $$ begin raise 'lights out'; end $$;
            create constraint trigger break_it after update on relevo.notification_events
              deferrable initially deferred for each row when (new.fanout_cursor > 3) execute function break_it()
            """
        )
        app = build(fanout_slice_size=3)
        report = app.runner.run(app.registry["fanout"], "manual")
        assert report.outcome == "partial"
        assert "lights out" in report.error
        assert reached(conn, made.event_id) == phones[:3]
        assert event_row(conn, made.event_id)["fanout_cursor"] == 3
        conn.execute("drop function break_it cascade")
        try_again(conn)
        fan_out_to_the_end(build(fanout_slice_size=3))
        assert reached(conn, made.event_id) == phones
        status = verbs.get(conn, made.event_id)
        assert status is not None
        assert status.deliveries == {"pending": 8}

    def test_who_registers_later_is_not_in(self, build, conn) -> None:
        """The audience is whoever was registered when fan-out began."""
        phones = add_phones(conn, 4)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        app = build(fanout_slice_size=3)
        one_step(app)
        late = verbs.register(conn, values.Installation("ExponentPushToken[late]"))
        fan_out_to_the_end(app)
        assert reached(conn, made.event_id) == phones
        again = verbs.enqueue(conn, Event("notice", "2", "Hello", audience="everyone"))
        fan_out_to_the_end(app)
        assert reached(conn, again.event_id) == [*phones, late]

    def test_a_preference_counts_as_of_its_slice(self, build, conn) -> None:
        """What is changed before a phone's slice counts, what is changed after it does not."""
        phones = add_phones(conn, 6)
        prefer(conn, phones, keywords=["aseo"])
        made = verbs.enqueue(conn, Event("tender", "1", "Aseo", audience=NEWS))
        app = build(fanout_slice_size=3)
        one_step(app)
        prefer(conn, [phones[0], phones[5]], keywords=["puentes"])
        prefer(conn, [phones[4]], enabled=False)
        verbs.register(conn, values.Installation(None, phones[2], permission="denied"))
        fan_out_to_the_end(app)
        assert reached(conn, made.event_id) == phones[:4]

    def test_the_day_is_written_once(self, build, conn) -> None:
        """An event that fans out over midnight keeps the day on which it began."""
        add_phones(conn, 4)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        app = build(fanout_slice_size=3)
        one_step(app)
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        conn.execute("update relevo.notification_events set event_day = %s", [yesterday])
        conn.execute("update relevo.notification_deliveries set event_day = %s", [yesterday])
        fan_out_to_the_end(app)
        days = conn.execute("select distinct event_day from relevo.notification_deliveries").fetchall()
        assert days == [(yesterday,)]
        assert len(reached(conn, made.event_id)) == 4

    def test_a_missing_partition_is_made(self, build, conn) -> None:
        """If the month of an event's day has no partition, fan-out makes it before its slice."""
        add_phones(conn, 2)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        conn.execute(DROP_THE_MONTH)
        fan_out(build())
        assert len(reached(conn, made.event_id)) == 2

    def test_what_is_there_already_is_stepped_aside_for(self, build, conn) -> None:
        """If a delivery of the slice exists, only the missing ones are made; both numbers are told."""
        phones = add_phones(conn, 5)
        made = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone"))
        conn.execute(
            """
            insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
            values ((now() at time zone 'UTC')::date, %s, %s, 'notice')
            """,
            [made.event_id, phones[1]],
        )
        report = fan_out(build(fanout_slice_size=3))
        assert reached(conn, made.event_id) == phones
        assert report.counts == {"targets_selected": 5, "deliveries_created": 4, "events_fanned_out": 1}
        row = event_row(conn, made.event_id)
        assert (row["targets_selected"], row["deliveries_created"]) == (5, 4)


class TestWeighing:
    """What the runaway brake has to weigh."""

    def test_events_of_every_kind(self, build, conn) -> None:
        """One for all phones, one that some asked for, and many for one each: all get there."""
        app, phones = build(), add_phones(conn, 6)
        prefer(conn, phones[:2])
        audiences = ("everyone", Matching(), phones[:3], phones[3:4], phones[4:5])
        made = [
            verbs.enqueue(conn, Event("t", str(n), "t", audience=each)).event_id for n, each in enumerate(audiences)
        ]
        fan_out(app)
        whom = [phones, phones[:2], phones[:3], phones[3:4], phones[4:5]]
        assert [reached(conn, event_id) for event_id in made] == whom

    def test_what_has_to_be_weighed(self, build, conn) -> None:
        """Phones that got so many that the brake weighs the next are each counted once."""
        app = build(push_runaway_min_events=3, push_runaway_first_events=50)
        phones = add_phones(conn, 2)
        made = [verbs.enqueue(conn, Event("t", str(n), "t", audience="everyone")).event_id for n in range(6)]
        assert fan_out(app).counts["events_fanned_out"] == 6
        assert [reached(conn, event_id) for event_id in made] == [phones] * 6
        assert conn.execute("select distinct in_hour, passed_today from relevo.event_counts").fetchall() == [(6, 6)]


class TestTelling:
    """What a run and an event tell of it."""

    def test_counts_are_in_the_run(self, build, conn) -> None:
        """The run's row tells targets and deliveries, to be selected as the seed's columns."""
        add_phones(conn, 7)
        verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience="everyone") for n in range(3)])
        report = fan_out(build(fanout_slice_size=3))
        row = conn.execute(
            "select cycle, outcome, targets_selected, deliveries_created, counts from relevo.worker_runs where id = %s",
            [report.run_id],
        ).fetchone()
        counts = {"targets_selected": 21, "deliveries_created": 21, "events_fanned_out": 3}
        assert row == ("fanout", "ok", 21, 21, counts)

    def test_an_idle_round_writes_no_row(self, build, conn) -> None:
        """Nothing to do leaves no run behind when the schedule starts it; a run by hand has its row."""
        app = build()
        assert app.runner.run(app.registry["fanout"], "schedule").outcome == "idle"
        assert conn.execute("select count(*) from relevo.worker_runs").fetchone() == (0,)

    def test_progress_adds_up_without_counting(self, build, conn) -> None:
        """An event tells how many deliveries it has from the slices' own notes, even if nobody can count them."""
        add_phones(conn, 7)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build(fanout_slice_size=3)
        reported = []
        for _ in range(3):
            one_step(app)
            status = verbs.get(conn, made.event_id)
            assert status is not None
            reported.append((status.state, status.deliveries))
        assert reported == [("fanning", {"pending": 3}), ("fanning", {"pending": 6}), ("fanned", {"pending": 7})]
        conn.execute("drop table relevo.notification_deliveries cascade")
        status = verbs.get(conn, made.event_id)
        assert status is not None
        assert status.deliveries == {"pending": 7}
        assert status.left_to_send

    def test_folding_changes_nothing(self, build, conn) -> None:
        """What an event tells is the same before, between and after the reaper folds the slices' notes."""
        add_phones(conn, 4)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build(fanout_slice_size=1)
        for count in range(1, 5):
            one_step(app)
            for _ in range(2):
                status = verbs.get(conn, made.event_id)
                assert status is not None
                assert status.deliveries == {"pending": count}
                app.runner.run(app.registry["reaper"], "manual")
        assert conn.execute("select count(*) from relevo.event_progress_deltas").fetchone() == (0,)

    def test_folding_goes_on_until_nothing_is_left(self, build, conn) -> None:
        """One run of the reaper folds all there is, however many batches that takes."""
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        conn.execute(
            """
            insert into relevo.event_progress_deltas (event_id, status, deliveries)
            select %s, 'sent', 1 from generate_series(1, 10001)
            """,
            [made.event_id],
        )
        app = build()
        app.runner.run(app.registry["reaper"], "manual")
        assert conn.execute("select count(*) from relevo.event_progress_deltas").fetchone() == (0,)
        assert conn.execute("select deliveries from relevo.event_progress").fetchall() == [(10_001,)]

    def test_dispatch_is_woken_after_the_first_slice_while_it_sleeps(self, build, conn) -> None:
        """The first slice knocks at dispatch's door, if it sleeps; nobody is knocked at who is awake or got nothing."""
        add_phones(conn, 4)
        conn.execute("listen relevo_wake")
        app = build(fanout_slice_size=3)
        verbs.enqueue(conn, Event("notice", "awake", "t", audience="everyone"))
        fan_out_to_the_end(app)
        assert called_out(conn) == []
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('dispatch', true)")
        verbs.enqueue(conn, Event("notice", "for nobody", "t", audience=[uuid4()]))
        one_step(app)
        assert called_out(conn) == []
        verbs.enqueue(conn, Event("notice", "asleep", "t", audience="everyone"))
        one_step(app)
        assert called_out(conn) == ["dispatch"]


@pytest.mark.parametrize("status", ["sent", "ok", "unconfirmed", "unknown"])
@pytest.mark.parametrize("audience", ["everyone", "phones"])
def test_whoever_may_have_got_the_former_is_not_told_again(build, conn, status: str, audience: str) -> None:
    """An event that follows another goes to those alone who certainly did not get the former one."""
    phones = add_phones(conn, 2)
    app = build()
    former = verbs.enqueue(conn, Event("notice", "1", "t", audience=[phones[0]])).event_id
    fan_out_to_the_end(app)
    conn.execute(
        "update relevo.notification_deliveries set status = %s, attempt_count = 1, provider_ticket_id = 't',"
        " completed_at = case when %s <> 'sent' then now() end",
        [status, status],
    )
    to = "everyone" if audience == "everyone" else phones
    again = verbs.enqueue(conn, Event("notice", "2", "t", audience=to)).event_id
    conn.execute("insert into relevo.event_followers (event_id, former_event_id) values (%s, %s)", [again, former])
    fan_out_to_the_end(app)
    assert reached(conn, again) == [phones[1]]
