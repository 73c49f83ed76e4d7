"""The commands that show events and cancel them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import uuid4

import relevo
from relevo.cli import common
from relevo.client.values import Event, Installation, Owners
from relevo.core.model import Answer, PushRequest
from relevo.core.traceparents import EXAMPLE
from support.deliveries import add_event
from support.phones import add_phones, fan_out
from support.relevo_command import MARKUP, Command, Said


class TestCancel:
    """relevo cancel."""

    def test_once_twice_never(self, command: Command, conn) -> None:
        """The first says so, the second that it had already ended, and an unknown event is wrong usage."""
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        first = command("cancel", made.event_id, "--reason", "a mistake")
        second = command("cancel", made.event_id)
        unknown = command("cancel", made.event_id + 1)
        assert (first.code, first.out) == (0, f"Event {made.event_id} is cancelled.\n")
        assert (second.code, second.out) == (0, f"Event {made.event_id} had already ended.\n")
        assert unknown.code == 2
        assert f"There is no event {made.event_id + 1}." in unknown.err
        assert "all is not an event id" in command("cancel", "all").err
        assert conn.execute("select end_reason from relevo.notification_events").fetchall() == [("a mistake",)]

    def test_what_was_finished(self, command: Command, conn) -> None:
        """Where an end can change nothing, nothing is changed, and that is said; a redrive of what failed is ended by it."""
        for number, status, said, state in (
            (1, "skipped", "had already finished: no push was withdrawn", "fanned"),
            (2, "failed", "is cancelled; no push was left to send", "cancelled"),
            (3, "retryable", "is cancelled", "cancelled"),
            (
                4,
                "sent",
                "is cancelled; no push was left to send.\n2 pushes of it were already sent and stay sent",
                "cancelled",
            ),
        ):
            event = add_event(conn, event=number)
            progress = "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, 2)"
            conn.execute(progress, [event, status])
            assert command("cancel", event).out == f"Event {event} {said}.\n", status
            assert relevo.get(conn, event).state == state, status
            assert relevo.cancel(conn, event) is False, status

    def test_by_type_and_key(self, command: Command, conn) -> None:
        """An event may be named as the app names it."""
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        assert command("cancel", "notice", "1").out == f"Event {made.event_id} is cancelled.\n"
        assert "There is no event of type notice with key 2." in command("cancel", "notice", "2").err


class TestEvents:
    """relevo events and relevo event."""

    def test_one_is_named_by_number_or_by_type_and_key(self, command: Command, conn) -> None:
        """Either finds it; what is neither is told what it takes, without a word of the parser's."""
        made = relevo.enqueue(conn, Event("notice", "order-17", "Hello", audience="everyone"))
        assert command("event", "notice", "order-17").out == command("event", made.event_id).out
        for wrong in ("order-17", "0", "-1", "1.5", "٣", "9" * 30):
            said = command("event", "--", wrong)
            assert said.code == 2, wrong
            assert f"{wrong} is not an event id." in said.err
            assert "its type and key" in " ".join(said.err.split())
        assert "There is no event of type notice with key x." in command("event", "notice", "x").err

    def test_its_trace(self, command: Command, conn) -> None:
        """The trace id of an event is shown, to be looked up in a tracing tool; of one without a trace there is no line."""
        traced = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone", traceparent=EXAMPLE)).event_id
        plain = relevo.enqueue(conn, Event("notice", "2", "t", audience="everyone")).event_id
        assert f"Trace: {EXAMPLE[3:35]}\n" in command("event", traced).out
        assert "Trace" not in command("event", plain).out
        ids = [command("event", each, "--json").lines[0]["trace_id"] for each in (traced, plain)]
        assert ids == [EXAMPLE[3:35], None]

    def test_none_yet(self, command: Command) -> None:
        """An empty list says so; as JSON it is empty."""
        assert command("events") == Said(0, "No events yet.\n", "")
        assert command("events", "--json") == Said(0, "", "")
        said = command("event", 1)
        assert said.code == 2
        assert "There is no event 1." in said.err

    def test_newest_first_by_type_and_state(self, command: Command, conn) -> None:
        """The newest is on top, and type, state and number can be chosen."""
        made = [
            relevo.enqueue(conn, Event(f"type{n % 2}", str(n), f"Title {n}", f"Body {n}", audience="everyone")).event_id
            for n in range(4)
        ]
        relevo.cancel(conn, made[0], "why not")
        said = command("events")
        assert [line.split()[0] for line in said.out.splitlines()[1:]] == [str(each) for each in reversed(made)]
        assert "Body 3" in said.out
        assert [row["id"] for row in command("events", "--json", "--type", "type1").lines] == [made[3], made[1]]
        cancelled = command("events", "--json", "--state", "cancelled").lines
        assert [(row["id"], row["end_reason"]) for row in cancelled] == [(made[0], "why not")]
        assert len(command("events", "--json", "--limit", 3).lines) == 3
        assert f"More: --before {made[1]}" in command("events", "--limit", 3).out
        rest = command("events", "--limit", 3, "--before", made[1]).out
        assert [line.split()[0] for line in rest.splitlines()[1:]] == [str(made[0])]

    def test_how_far_each_is_in_a_word(self, command: Command, conn, build) -> None:
        """What was fanned out is sending, sent or finished; `--json` has the state and the counts beside it."""
        phones = add_phones(conn, 1)
        made = [relevo.enqueue(conn, Event("t", str(n), "t", audience=phones)).event_id for n in range(3)]
        relevo.enqueue(conn, Event("t", "later", "t", audience=phones, scheduled_at=datetime.now(UTC) + timedelta(1)))
        fan_out(build())
        for event, status in zip(made[1:], ("sent", "failed"), strict=True):
            conn.execute("update relevo.event_progress_deltas set status = %s where event_id = %s", [status, event])
        told = [(row["state"], row["progress"], row["deliveries"]) for row in command("events", "--json").lines]
        assert told == [
            ("waiting", "waiting", {}),
            ("fanned", "finished", {"failed": 1}),
            ("fanned", "sent", {"sent": 1}),
            ("fanned", "sending", {"pending": 1}),
        ]
        said = command("events", "--state", "fanned").out.splitlines()[1:]
        assert [line.split()[3] for line in said] == ["finished", "sent", "sending"]
        for event, word in zip(made, ("sending", "sent", "finished"), strict=True):
            assert [row["id"] for row in command("events", "--state", word, "--json").lines] == [event]
        assert f"Event {made[2]} is cancelled" in command("cancel", made[2]).out, "its dead letter is never redriven"

    def test_nothing_is_cut_off_in_a_narrow_window(self, command: Command, conn, build, monkeypatch) -> None:
        """In each width every line fits, and what is not folded stands in one piece: field by field, if need be."""
        (phone,) = add_phones(conn, 1)
        relevo.enqueue(conn, Event("order.shipped", "1", "On its way", "and more " * 8, audience=[phone]))
        fan_out(build())
        for width, word in product((56, 70, 80, 100, 200), ("events", "deliveries", "installations", "status")):
            monkeypatch.setattr(common.out, "width", width)
            said = command(word).out
            assert max(map(len, said.splitlines())) <= width, (word, said)
            assert word == "status" or ("order.shipped" if word == "events" else str(phone)) in said, (word, width)

    def test_wrong_choices_leave_with_2(self, command: Command) -> None:
        """A state that is none, or a limit out of bounds, is wrong usage."""
        for words in (["--state", "done"], ["--limit", "0"], ["--limit", "1001"], ["--limit", "x"]):
            said = command("events", *words)
            assert (said.code, said.out) == (2, ""), words

    def test_the_saga_of_one_event(self, command: Command, conn, build) -> None:
        """From its enqueueing to its end, in order, with its deliveries and what went wrong."""
        add_phones(conn, 3)
        made = relevo.enqueue(conn, Event("notice", "1", "Title", "Body", ttl_s=3600, audience="everyone"))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk", limit=2)
        answers = [
            Answer(d.event_day, d.id, "failed", error_code="MessageTooBig", error_message=MARKUP)
            for d in claim.deliveries
        ]
        app.claims.settle(claim, answers)
        app.claims.release(claim)
        relevo.cancel(conn, made.event_id, MARKUP)
        fan_out(app)
        said = command("event", made.event_id)
        assert said.code == 0
        reported = said.out.splitlines()
        assert reported[:2] == ["Title  Body", "State: cancelled"]
        order = [
            "event enqueued",
            "fan-out began",
            "fan-out finished",
            "cancelled",
            "open deliveries ended",
        ]
        places = [next(n for n, line in enumerate(reported) if f"  {what}" in line) for what in order]
        assert places == sorted(places)
        assert "  deadline" not in said.out, "nothing is left that it could end"
        assert "3 phones, 3 deliveries" in said.out
        assert "Deliveries: 1 cancelled, 2 failed" in said.out
        assert f"`relevo deliveries --event {made.event_id}` lists each" in said.out
        assert f"  2 failed with MessageTooBig: {MARKUP}" in reported
        assert MARKUP in reported[places[3]]
        (line,) = command("event", made.event_id, "--json").lines
        assert (line["event"]["deliveries"], line["progress"]) == ({"failed": 2, "cancelled": 1}, "cancelled")
        assert [moment["what"] for moment in line["moments"]][:2] == ["event enqueued", "fan-out began"]
        assert line["errors"][0]["deliveries"] == 2

    def test_whom_it_was_for_and_each_request(self, command: Command, conn, build) -> None:
        """It tells whom it is for, each request with what it took, in the order of time; for nobody, why."""
        phones = add_phones(conn, 2, owner="ana")
        for each in ("ana", "ghost"):
            relevo.enqueue(conn, Event("order", each, "Title", audience=relevo.Owners(each)))
        fan_out(build())
        conn.execute(
            "insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, "
            "days, ids) select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), 'w', 'default', clock_timestamp(), "
            "clock_timestamp(), 'answered', array_agg(d.event_day), array_agg(d.id) from relevo.notification_deliveries d"
        )
        said = command("event", "order", "ana").out
        assert "For: the phones of ana" in said
        assert "2 pushes: answered, 0 accepted, 2 not" in said
        whats = [moment["what"] for moment in command("event", "order", "ana", "--json").lines[0]["moments"]]
        assert whats == ["event enqueued", "fan-out began", "fan-out finished", "request sent"]
        ghost = command("event", "order", "ghost")
        assert "Deliveries: none: unknown owner, no phone belongs to the named owners" in ghost.out
        assert command("event", "order", "ghost", "--json").lines[0]["nobody"]["why"] == "owners_unknown"
        assert len(phones) == 2

    def test_the_saga_of_one_delivery(self, command: Command, conn, build) -> None:
        """Each try with what was said of it, as others wrote it, and when it goes on; one that is not there leaves with 2."""
        add_phones(conn, 1)
        relevo.enqueue(conn, Event("notice", "1", "Title", audience="everyone"))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk")
        (push,) = claim.deliveries
        request = PushRequest(uuid4(), (push,))
        app.claims.journal(claim, [request])
        failed = Answer(push.event_day, push.id, "retryable", error_code="HTTP_502", error_message=MARKUP[:14])
        app.claims.settle(claim, [failed._replace(request=request.id)], {request.id: "unclear"}, finish=True)
        said = command("delivery", push.id)
        assert said.code == 0
        heading, _, *reported = said.out.splitlines()
        assert heading == f"Delivery {push.id} of event 1, to installation {push.installation_id}: retryable"
        assert [" ".join(line.split()[2:5]) for line in reported] == ["made by fan-out", "1st try alone,", "next try"]
        assert f"The push service failed: it answered 502. (HTTP_502: {MARKUP[:14]})" in reported[1]
        (line,) = command("delivery", push.id, "--json").lines
        assert [each["error_code"] for each in line["failed_attempts"]] == ["HTTP_502"]
        gone = command("delivery", 10**9)
        assert (gone.code, "There is no delivery 1000000000" in gone.err) == (2, True)

    def test_a_delivery_that_was_not_sent_says_why(self, command: Command, conn, build) -> None:
        """Above a cap, and left to a batch: each says its own reason, and nothing that is not so."""
        relevo.set_cap(conn, 1, per="day", category="ads")
        conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('comment', 3600)")
        relevo.register(conn, Installation("ExponentPushToken[a]", owner="ana"))
        for number in range(2):
            relevo.enqueue(conn, Event("ad", str(number), "t", audience=Owners("ana"), category="ads"))
        relevo.enqueue(conn, Event("comment", "1", "t", audience=Owners("ana")))
        fan_out(build())
        skipped = command("deliveries", "--state", "skipped", "--json").lines
        said = {each["last_error_code"]: command("delivery", each["id"]).out.splitlines()[-1] for each in skipped}
        assert said["capped"].endswith(
            "It was not pushed: a cap of its owner was reached. It is in the inbox. (at most 1 a day of category ads)"
        )
        assert said["batched"].endswith("One push announces it together with others of its kind.")
        assert len(said) == 2

    def test_two_projects_are_told_apart(self, command: Command, conn, build) -> None:
        """Equal keys of two projects: lists and timelines name the project, and how deliveries ended; without projects none is named."""
        relevo.set_cap(conn, 1, per="day", project="shop")
        made = {}
        for project in ("shop", "news"):
            relevo.register(conn, Installation(f"ExponentPushToken[{project}]", owner="ana", project=project))
            for key in ("1", "2"):
                made[project, key] = relevo.enqueue(
                    conn, Event("ad", key, "t", audience=Owners("ana"), project=project)
                ).event_id
        fan_out(build())
        heading, *rows = command("events").out.splitlines()
        assert heading.split()[:3] == ["event", "project", "type"]
        assert sorted(row.split()[1] for row in rows) == ["news", "news", "shop", "shop"]
        said = command("event", made["shop", "2"]).out
        assert "For: the phones of ana, in project shop" in said
        assert re.search(r"last delivery ended +1 skipped", said)
        assert (
            "nobody: its owners have phones in other projects only; give the event a project"
            in command("preview", "--owner", "ana").out
        )
        assert "nobody" not in command("preview", "--owner", "ana", "--project", "news").out
        plain = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone")).event_id
        assert "For: everyone\n" in command("event", plain).out
        assert "project" not in command("events", "--type", "notice").out

    def test_one_is_one(self, command: Command, conn, build) -> None:
        """One phone, one delivery, one installation, one event are not several; an event for owners says so."""
        relevo.register(conn, Installation("ExponentPushToken[a]", owner="ana"))
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience=Owners("ana")))
        fan_out(build())
        assert "1 phone, 1 delivery" in command("event", made.event_id).out
        assert command("preview", "--owner", "ana").out.startswith("It would reach 1 installation.\n")
        assert command("events", "--json").lines[0]["audience"] == "owners"
        relevo.enqueue(conn, Event("notice", "2", "t", audience=[]))
        assert command("events", "--json").lines[0]["audience"] == "installations"

    def test_the_record_is_in_words(self, command: Command, conn) -> None:
        """What was done, with what and to what end, is told without the names of variables."""
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        command("cancel", made.event_id, "--reason", "a slip")
        said = command("audit").out
        assert f"event id {made.event_id}, reason a slip" in said
        assert "=" not in said
        command("event-type", "notice", "--at-most-once", "--ttl-s", "3600")
        assert "at most once yes, ttl 3,600 s" in command("event-type").out

    def test_what_others_wrote_is_shown_as_they_wrote_it(self, command: Command, conn) -> None:
        """Markup in a feed's text is text, and control characters do not reach the terminal."""
        made = relevo.enqueue(conn, Event(MARKUP, "[b]1", MARKUP, f"{MARKUP}\x1b[31m\x07!\nend", audience="everyone"))
        for said in (command("events"), command("event", made.event_id)):
            assert said.code == 0
            assert MARKUP in said.out
            assert "\x1b" not in said.out
            assert "\x07" not in said.out
            assert f"{MARKUP} [31m ! end" in said.out
        assert " [b]1 " in command("events").out

    def test_times_are_utc_as_the_heading_says(self, command: Command, conn) -> None:
        """A database that lives in another time zone changes nothing about it."""
        conn.execute("alter database " + conn.info.dbname + " set timezone = 'Asia/Tokyo'")
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        conn.execute("update relevo.notification_events set created_at = '2026-01-02 03:04:05Z'")
        assert " 01-02 03:04:05 " in command("events").out
        assert "2026-01-02 03:04:05 " in command("event", made.event_id).out
