"""The commands about events, installations and rejects: what they show, what they refuse, and how they leave."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

import relevo
from commanding import Command, Said, make_command
from deliveries import add_event, mark_sent
from phones import add_phones, fan_out
from processes import RELEVO
from relevo.cli import common
from relevo.client.values import Event, Installation, Matching, Owners, Preference
from relevo.core.model import Answer, PushRequest

MARKUP = "[bold red]x[/] [/] [link=https://a.b]y[/link] \\[z]"


def nested(levels: int) -> dict[str, Any]:
    """Return an object in an object in an object."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dsn: str) -> Command:
    """`relevo` on the test's database: `command("events", "--json")`."""
    return make_command(monkeypatch, capsys, dsn)


class TestEnqueue:
    """relevo enqueue."""

    def test_for_everyone(self, command: Command, conn) -> None:
        """The id is told, and the event is there with what was given."""
        said = command(
            "enqueue", "notice", "1", "--everyone", "--title", "Hello", "--body", "World", "--category", "news", "--urgent", "--ttl-s", "60",
            "--data", '{"screen": "inbox"}',
        )  # fmt: skip
        assert said.code == 0
        row = conn.execute(
            "select id, title, body, category, lane, data, audience, deadline_at is not null from relevo.notification_events"
        ).fetchone()
        assert row[1:] == ("Hello", "World", "news", "urgent", {"screen": "inbox"}, "everyone", True)
        assert said.out == f"Enqueued as event {row[0]}. `relevo event {row[0]}` tells what becomes of it.\n"

    def test_it_is_recorded(self, command: Command, conn) -> None:
        """By whose hand which event was enqueued, and for how many, stands in the record; whom, and what it says, does not."""
        for key, more, code in (
            ("1", ["--everyone"], 0),
            ("2", ["--owner", "ana"], 0),
            ("3", ["--topic", "news"], 0),
            ("3", ["--everyone", "--keep"], 0),
        ):
            assert command("enqueue", "notice", key, "--title", "Psst", *more).code == code
        assert command("enqueue", "relevo.notice", "1", "--title", "x", "--everyone").code != 0
        rows = conn.execute("select face, outcome, target, result from relevo.audit_log order by id").fetchall()
        assert [row[:2] for row in rows] == [("cli", "ok")] * 4 + [("cli", "failed")]
        assert [row[2] for row in rows[:3]] == [
            {"event_type": "notice", "key": "1", "audience": "everyone"},
            {"event_type": "notice", "key": "2", "audience": "owners", "owners": 1},
            {"event_type": "notice", "key": "3", "audience": "topics", "topics": ["news"]},
        ]
        assert [row[3]["created"] for row in rows[:4]] == [True, True, True, False]

    def test_for_some_and_later(self, command: Command, conn) -> None:
        """Installations can be named, and the time is UTC whatever the session's zone."""
        conn.execute("alter database " + conn.info.dbname + " set timezone = 'America/Santiago'")
        phones = add_phones(conn, 2)
        said = command(
            "enqueue",
            "message",
            "1",
            "--title",
            "t",
            "--to",
            phones[0],
            "--to",
            phones[1],
            "--at",
            "2030-01-02T03:04:05",
        )
        assert said.code == 0, said.err
        at = conn.execute("select (scheduled_at at time zone 'UTC')::text from relevo.notification_events").fetchone()
        assert at == ("2030-01-02 03:04:05",)
        assert conn.execute("select count(*) from relevo.event_audience").fetchone() == (2,)

    def test_for_owners_and_topics(self, command: Command, conn) -> None:
        """Owners and topics can be named, and an event without a word is silent."""
        said = command("enqueue", "chat", "1", "--owner", "ana", "--owner", "bea", "--data", '{"chat": 7}')
        assert said.code == 0, said.err
        assert conn.execute("select owner from relevo.event_owners order by 1").fetchall() == [("ana",), ("bea",)]
        assert command("enqueue", "goal", "1", "--title", "Goal!", "--topic", "team-7").code == 0
        asked = "select title, audience, match_topics from relevo.notification_events order by id"
        assert conn.execute(asked).fetchall() == [("", "installations", []), ("Goal!", "matching", ["team-7"])]

    def test_the_same_again(self, command: Command) -> None:
        """It says whether the event that is there says the same; exit code 1 and a next step if not."""
        command("enqueue", "notice", "1", "--everyone", "--title", "Hello")
        same = command("enqueue", "notice", "1", "--everyone", "--title", "Hello")
        other = command("enqueue", "notice", "1", "--everyone", "--title", "Goodbye")
        assert same == Said(0, "Event 1 has this type and key already, and says the same.\n", "")
        assert (other.code, other.out) == (1, "")
        assert 'is there and says something else: title is "Hello", given "Goodbye".' in other.err
        kept = command("enqueue", "notice", "1", "--everyone", "--title", "Goodbye", "--keep")
        told = "Event 1 has this type and key already, and says something else; nothing was changed.\n"
        assert kept == Said(0, told, "")

    def test_wrong_input_leaves_with_2(self, command: Command, conn) -> None:
        """What is wrong is named, the exit code is 2, and nothing is enqueued."""
        for words, complaint in (
            (["--title", "t"], "An event needs exactly one audience."),
            (["--title", "t", "--everyone", "--owner", "ana"], "An event needs exactly one audience."),
            (["--everyone"], "an event must say something: give it a title, a body or data."),
            (["--everyone", "--title", "x" * 501], "title must be text of 0 to 500 characters."),
            (["--title", "t", "--data", "{"], "--data is not JSON"),
            (["--title", "t", "--data", "[1]"], "--data must be a JSON object."),
            (["--everyone", "--title", "t", "--data", json.dumps({"x": "y" * 4_000})], "must fit into 4096 bytes"),
            (["--title", "t", "--to", "me"], "me is no installation's id."),
            (["--title", "t", "--to", str(UUID(int=7))], f"There is no installation {UUID(int=7)}."),
            (["--title", "t", "--at", "soon"], "soon is no time."),
            (["--title", "t", "--ttl-s", "0"], "--ttl-s"),
            (["--everyone", "--title", "t", "--at", "1999-01-01"], "between the years 2000 and 2200"),
        ):
            said = command("enqueue", "notice", "1", *words)
            assert (said.code, said.out) == (2, ""), words
            assert complaint in said.err
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


class TestPreview:
    """relevo preview."""

    def test_how_many_and_who(self, command: Command, conn) -> None:
        """The number and some of them are told, in words and as JSON, and nothing is enqueued."""
        phones = add_phones(conn, 2, owner="ana")
        said = command("preview", "--owner", "ana")
        assert said.out.splitlines()[0] == "It would reach 2 installations."
        assert {str(phone) for phone in phones} <= set(said.out.split())
        (told,) = command("preview", "--everyone", "--json").lines
        assert (told["count"], told["exact"], len(told["sample"])) == (2, True, 2)
        assert f"{UUID(int=7)} is not registered" in command("preview", "--to", UUID(int=7)).out
        ghost = command("preview", "--owner", "ghost", "--owner", "ana").out
        assert ("ghost is not known" in ghost, "ana is not known" in ghost) == (True, False)
        assert command("preview", "--to", "abc").code == 2
        conn.execute("insert into relevo.device_installations (token) select 'x' || n from generate_series(1, 12000) n")
        assert re.match(
            r"It would reach about 12,002 installations, between 11,\d+ and 12,\d+\.",
            command("preview", "--everyone").out,
        )
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)

    def test_why(self, command: Command, conn) -> None:
        """For one installation it says why, or why not."""
        (phone,) = add_phones(conn, 1, owner="ana")
        assert command("preview", "--owner", "ana", "--why", phone).out == "Yes: The event is for its owner, ana.\n"
        assert command("preview", "--topic", "x", "--why", phone).out.startswith("No: It has no preference")
        assert command("preview").code == 2


class TestCancel:
    """relevo cancel."""

    def test_once_twice_never(self, command: Command, conn) -> None:
        """The first says so, the second that it had ended before, and an unknown event is wrong usage."""
        made = relevo.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        first = command("cancel", made.event_id, "--reason", "a mistake")
        second = command("cancel", made.event_id)
        unknown = command("cancel", made.event_id + 1)
        assert (first.code, first.out) == (0, f"Event {made.event_id} is cancelled.\n")
        assert (second.code, second.out) == (0, f"Event {made.event_id} had ended before.\n")
        assert unknown.code == 2
        assert f"There is no event {made.event_id + 1}." in unknown.err
        assert "all is no event's number" in command("cancel", "all").err
        assert conn.execute("select end_reason from relevo.notification_events").fetchall() == [("a mistake",)]

    @pytest.mark.parametrize(
        ("status", "said", "state"),
        [
            ("skipped", "was finished already: nothing of it was withdrawn", "fanned"),
            ("failed", "is cancelled; nothing of it was left to send", "cancelled"),
            ("retryable", "is cancelled", "cancelled"),
        ],
    )
    def test_what_was_finished(self, command: Command, conn, status: str, said: str, state: str) -> None:
        """Where an end can change nothing, nothing is changed, and that is said; a redrive of what failed is ended by it."""
        event = add_event(conn)
        progress = "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, 2)"
        conn.execute(progress, [event, status])
        assert command("cancel", event).out == f"Event {event} {said}.\n"
        assert relevo.get(conn, event).state == state
        assert relevo.cancel(conn, event) is False

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
            assert f"{wrong} is no event's number." in said.err
            assert "its type and key" in " ".join(said.err.split())
        assert "There is no event of type notice with key x." in command("event", "notice", "x").err

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

    @pytest.mark.parametrize("width", [56, 70, 80, 100, 200])
    def test_nothing_is_cut_off_in_a_narrow_window(
        self, command: Command, conn, build, monkeypatch, width: int
    ) -> None:
        """In each width every line fits, and what is not folded stands in one piece: field by field, if need be."""
        (phone,) = add_phones(conn, 1)
        relevo.enqueue(conn, Event("order.shipped", "1", "On its way", "and more " * 8, audience=[phone]))
        fan_out(build())
        monkeypatch.setattr(common.out, "width", width)
        for words in (["events"], ["deliveries"], ["installations"], ["status"]):
            said = command(*words).out
            assert max(map(len, said.splitlines())) <= width, (words, said)
            assert str(phone) in said or words[0] in ("events", "status")
        assert "order.shipped" in command("events").out

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
        assert "2 pushes: answered, 0 taken, 2 not" in said
        whats = [moment["what"] for moment in command("event", "order", "ana", "--json").lines[0]["moments"]]
        assert whats == ["event enqueued", "fan-out began", "fan-out finished", "request sent"]
        ghost = command("event", "order", "ghost")
        assert "Deliveries: none: unknown owner, no phone belongs to whom it is for" in ghost.out
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


class TestInstallations:
    """relevo installations."""

    def test_none_yet(self, command: Command) -> None:
        """An empty list says how one comes into being."""
        said = command("installations")
        assert (said.code, said.out.startswith("No installations yet")) == (0, True)
        assert command("installations", "--json") == Said(0, "", "")

    def test_who_receives_and_why_not(self, command: Command, conn) -> None:
        """Each line tells whether it receives, and if not why; no whole token is shown."""
        token = "ExponentPushToken[abcdefghijklmnopqrstuv]"
        relevo.register(conn, Installation(token, platform="ios"))
        relevo.register(conn, Installation("ExponentPushToken[b]", permission="denied", project=MARKUP))
        relevo.register(conn, Installation(None))
        conn.execute(
            "update relevo.device_installations set invalidated_at = now(), invalid_reason = %s where platform = 'ios'",
            [MARKUP],
        )
        said = command("installations")
        assert said.code == 0
        assert token not in said.out
        assert f"no: {MARKUP}" in said.out
        assert "no: permission denied" in said.out
        assert "no: no token" in said.out
        rows = command("installations", "--json").lines
        assert [row["receives"] for row in rows] == [False] * 3
        assert all(token not in str(row) for row in rows)
        assert [row["project"] for row in command("installations", "--json", "--project", MARKUP).lines] == [MARKUP]
        assert UUID(rows[0]["installation_id"])


class TestRejects:
    """relevo rejects."""

    @pytest.fixture
    def rejects(self, conn) -> psycopg.Connection[Any]:
        """Two open rejects and one that was mended."""
        conn.execute(
            """
            insert into relevo.ingest_rejects (source, place, reason, retry_at, resolved_at)
            values ('one', %(markup)s, %(markup)s, now() + interval '1 hour', null), ('two', 'there', 'unreadable', null, null),
                   ('one', 'mended', 'was bad', null, now())
            """,
            {"markup": MARKUP},
        )
        return conn

    def test_none(self, command: Command) -> None:
        """Nothing rejected is said."""
        assert command("rejects") == Said(0, "Nothing was rejected.\n", "")
        assert command("rejects", "--json") == Said(0, "", "")
        assert command("rejects", "--retry").out.startswith("0 rejects will be tried again")

    @pytest.mark.usefixtures("rejects")
    def test_what_and_why(self, command: Command) -> None:
        """Open ones are listed with place and reason as they are; mended ones are not."""
        said = command("rejects")
        assert said.out.count(MARKUP) == 2
        assert "mended" not in said.out
        assert [row["place"] for row in command("rejects", "--json", "--source", "two").lines] == ["there"]

    def test_trying_again(self, command: Command, rejects) -> None:
        """--retry makes them due at once: all, one source's, or one."""
        due = "select source from relevo.ingest_rejects where retry_at <= now() and resolved_at is null"
        reject_id = command("rejects", "--json", "--source", "two").lines[0]["id"]
        assert command("rejects", "--retry", "--id", reject_id).out.startswith("1 reject will be tried again")
        assert rejects.execute(due).fetchall() == [("two",)]
        assert command("rejects", "--retry", "--source", "one").out.startswith("1 reject will be tried again")
        assert len(rejects.execute(due).fetchall()) == 2
        assert command("rejects", "--retry", "--id", 4711).out.startswith("0 rejects will be tried again")


class TestEventType:
    """relevo event-type."""

    def test_what_an_event_of_the_type_gets(self, command: Command, conn) -> None:
        """Time to live, lane and policy of a type go into events that leave them open; what is not given stays."""
        said = command("event-type", "call", "--ttl-s", 60, "--urgent", "--at-most-once", "--max-attempts", 2)
        assert said.code == 0
        reported = "select lane, at_most_once, extract(epoch from deadline_at - scheduled_at)::int from relevo.notification_events"
        relevo.enqueue(conn, Event("call", "1", "t", audience="everyone"))
        relevo.enqueue(conn, Event("call", "2", "t", lane="bulk", at_most_once=False, ttl_s=120, audience="everyone"))
        assert conn.execute(reported + " order by id").fetchall() == [("urgent", True, 60), ("bulk", False, 120)]
        assert command("event-type", "call", "--bulk", "--at-least-once").code == 0
        row = conn.execute("select ttl_s, lane, at_most_once, max_attempts from relevo.event_types").fetchone()
        assert row == (60, "bulk", False, 2)
        assert "ttl 60 s" in command("event-type", "call").out
        assert command("event-type", "call", "--no-inbox", "--inbox-days", 7).code == 0
        assert conn.execute("select inbox, inbox_days, ttl_s from relevo.event_types").fetchone() == (False, 7, 60)
        assert command("event-type", "call", "--inbox").code == 0
        assert "inbox yes, inbox days 7" in command("event-type").out
        assert command("event-type", "call", "--inbox-days", 0).code == 2
        assert command("event-type", "call", "--ttl-s", 0).code == 2
        assert command("event-type", "call", "--retry-base-ms", 9, "--retry-max-ms", 1).code == 2
        assert command("event-type", "call", "--reset").code == 0
        assert conn.execute("select count(*) from relevo.event_types").fetchone() == (0,)


class TestGrant:
    """relevo grant."""

    def test_a_role(self, command: Command, conn, admin) -> None:
        """The role is named as it is and may call the door."""
        role = f"[bold]app {uuid4().hex[:6]}[/]"
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        said = command("grant", role)
        assert (said.code, said.out) == (0, f"{role} may now call relevo.enqueue and its kin.\n")
        may = conn.execute("select has_function_privilege(%s, 'relevo.enqueue(jsonb)', 'execute')", [role]).fetchone()
        assert may == (True,)
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    def test_nobody(self, command: Command) -> None:
        """A role that is not there is wrong usage."""
        said = command("grant", "[red]nobody")
        assert (said.code, said.out) == (2, "")
        assert "There is no role [red]nobody in this database." in said.err


def test_a_database_without_the_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], empty_database: str
) -> None:
    """Reading says what to do; enqueueing brings the schema along, as running does."""
    command = make_command(monkeypatch, capsys, empty_database)
    for words in (["events"], ["event", 1], ["installations"], ["rejects"]):
        said = command(*words)
        assert said.code == 1, words
        assert "relevo migrate" in said.err, words
    assert command("enqueue", "notice", "1", "--everyone", "--title", "t").code == 0
    assert command("events", "--json").lines[0]["title"] == "t"


def test_as_a_process(dsn: str) -> None:
    """The installed command prints to a pipe what it prints here, and leaves with its exit code."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {"DATABASE_URL": dsn, "PATH": "/usr/bin", "PYTHONPATH": str(Path(relevo.__file__).parents[1])}
        return subprocess.run([RELEVO, *words], env=environ, capture_output=True, text=True, timeout=300, check=False)

    made = run("enqueue", "notice", "1", "--everyone", "--title", MARKUP)
    assert (made.returncode, made.stdout[:20], made.stderr) == (0, "Enqueued as event 1.", "")
    refused = run("enqueue", "notice", "2", "--everyone", "--title", "")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("relevo: an event must say something: give it a title, a body or data.")


class TestPlainAnswers:
    """What fits nothing says so, wrong names are refused with the known ones, and bad input names its field."""

    def test_filters_that_match_nothing(self, command: Command) -> None:
        """Nothing found by a filter is not called nothing at all."""
        assert command("events", "--type", "nope").out == "No event fits.\n"
        assert command("installations", "--owner", "nobody").out == "No installation fits.\n"
        assert "No events yet" in command("events").out

    def test_wrong_names(self, command: Command) -> None:
        """A cycle or a source that does not exist is refused, and those that do are named."""
        for words, known in ((("runs", "--cycle", "nope"), "dispatch"), (("rejects", "--source", "nope"), "none yet")):
            said = command(*words)
            assert (said.code, "There is no" in said.err, known in said.err) == (2, True, True)

    def test_a_phone_is_found(self, command: Command, conn) -> None:
        """By its token, its owner or its id; two tokens that begin alike can be told apart."""
        ids = [
            relevo.register(conn, Installation(f"ExponentPushToken[demo-{name}]", owner=name))
            for name in ("ana", "benja")
        ]
        rows = command("installations", "--json").lines
        assert len({row["token"] for row in rows}) == 2
        assert "demo-ana" not in str(rows)
        for words in (("--token", "ExponentPushToken[demo-ana]"), ("--owner", "ana"), ("--id", ids[0])):
            [found] = command("installations", "--json", *words).lines
            assert found["installation_id"] == str(ids[0])

    @pytest.mark.parametrize(
        ("event", "words"),
        [
            (Event("t", "k", "a\0b", audience="everyone"), "title holds a NUL"),
            (Event("t", "k", "x", data={"a": ["b\0"]}, audience="everyone"), "data.a holds a NUL"),
            (Event("t", "k", "x", audience="evryone"), "audience must be everyone"),  # type: ignore[arg-type]
            (Event("t", "k", "x\ud800", audience="everyone"), "title holds half a character"),
            (
                Event("t", "k", "x", data={"a": [{"b": "\udcff"}]}, audience="everyone"),
                "data.a.b holds half a character",
            ),
            (Event("t", "k", "x", data={"a": float("nan")}, audience="everyone"), "data.a must be a finite number"),
            (Event("t", "k", "x", data=nested(2_000), audience="everyone"), "is nested too deeply"),
            (Event("t", "k", "x", audience=Matching(text="\0")), "matching.text holds a NUL"),
            (Event("t", "k", "x", audience=Matching(rubros=["\ud800"])), "matching.rubros holds half a character"),
            (Event("t", "k", "x", audience=Matching(monto=Decimal("Infinity"))), "matching.monto must be a finite"),
            (Event("t", "k", "x", audience=None), "audience must be everyone"),  # type: ignore[arg-type]
            (Event("t", "k", "x", audience=["7"]), "audience must hold UUIDs"),  # type: ignore[list-item]
        ],
    )
    def test_bad_input_names_the_field(self, conn, event: Event, words: str) -> None:
        """It is refused before a statement is sent, so that the caller's transaction survives."""
        with conn.transaction():
            with pytest.raises(relevo.InvalidInputError, match=words):
                relevo.enqueue(conn, event)
            assert conn.execute("select 1").fetchone() == (1,)

    def test_bad_input_elsewhere_names_the_field_too(self, conn) -> None:
        """Registering, preferring, cancelling: refused before a statement is sent."""
        phone = add_phones(conn, 1)[0]
        with conn.transaction():
            for tried, words in (
                (lambda: relevo.register(conn, Installation(token="a\0")), "token holds a NUL"),
                (lambda: relevo.register(conn, Installation(token="a\ud800")), "token holds half"),
                (lambda: relevo.set_preference(conn, phone, "a\ud800", Preference()), "name holds half"),
                (lambda: relevo.set_preference(conn, phone, "a", Preference(keywords=["\0"])), "keywords holds a NUL"),
                (
                    lambda: relevo.set_preference(conn, phone, "a", Preference(monto_min=Decimal("NaN"))),
                    "monto_min must",
                ),
                (lambda: relevo.cancel(conn, 1, "a\ud800"), "reason holds half"),
                (lambda: relevo.complete(conn, 1, "a\0"), "reason holds a NUL"),
                (lambda: relevo.delete(conn, [2**63]), "event_id must be a whole number"),
            ):
                with pytest.raises(relevo.InvalidInputError, match=words):
                    tried()
            assert conn.execute("select 1").fetchone() == (1,)

    @pytest.mark.parametrize("words", ["redrive --id", "redrive --event", "rejects --retry --id"])
    def test_an_id_out_of_range_names_its_option(self, command: Command, words: str) -> None:
        """It is wrong usage, and the option is named."""
        said = command(*words.split(), 2**63)
        assert said.code == 2
        assert words.rsplit(maxsplit=1)[-1] in said.err

    @pytest.mark.parametrize("number", [2**63, 0, -1, True])
    def test_a_number_out_of_range(self, conn, number: int) -> None:
        """An id that cannot be one is refused by name."""
        with pytest.raises(relevo.InvalidInputError, match="event_id must be a whole number"):
            relevo.get(conn, number)

    def test_cancel_says_what_it_could_not_stop(self, command: Command, conn, build) -> None:
        """What was sent before, and what is being sent, is told with the cancellation."""
        worker = build()
        phones = add_phones(conn, 3)
        event = relevo.enqueue(conn, Event("t", "k", "x", audience=phones)).event_id
        fan_out(worker)
        [first, *_] = [row[0] for row in conn.execute("select id from relevo.notification_deliveries order by id")]
        mark_sent(conn, [first])
        conn.execute("update relevo.event_progress_deltas set deliveries = 2")
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'sent', 1)", [event]
        )
        claim = worker.claims.claim("dispatch", "default", "bulk")
        assert claim is not None
        said = command("cancel", event).out
        assert "1 push of it was sent before, and stays sent." in said
        assert "2 pushes of it are being sent right now" in said


def test_what_was_done_can_be_read_by_machines(command: Command, conn) -> None:
    """Each verb tells with --json in one object what it did: the same as its sentence, and nothing else."""
    phone = relevo.register(conn, Installation("ExponentPushToken[a]", owner="ana"))
    relevo.register(conn, Installation("ExponentPushToken[b]", owner="eva"))
    role = conn.execute("select current_user").fetchone()[0]
    conn.execute("insert into relevo.projects (project, filled_at) values ('p', now())")
    conn.execute("insert into relevo.event_streams (event_type, origin, known_since) values ('t', 'app', now())")
    later = ("--title", "Psst", "--owner", "ana", "--at", "2030-01-01")
    secret = command("token", "make", "x", "--role", "app", "--json").lines[0]
    told: list[tuple[tuple[object, ...], dict[str, Any]]] = [
        (
            ("enqueue", "t", "k", *later),
            {"event_id": 1, "created": True, "same_content": True, "unknown_installations": []},
        ),
        (("cancel", 1), {"event_id": 1, "cancelled": True, "withdrawn": True, "sent": 0, "claimed": 0}),
        (("pause", "receipt", "--reason", "x"), {"cycle": "receipt", "paused": True, "changed": True}),
        (("resume", "receipt"), {"cycle": "receipt", "paused": False, "changed": True}),
        (("grant", role), {"role": role, "worker": False}),
        (("release", "p"), {"project": "p", "released": False, "what": []}),
        (
            ("release", "--type", "t"),
            {"event_type": "t", "events": 0, "first_ids": [], "origins": [], "dropped": False},
        ),
        (("token", "revoke", secret["id"]), {"id": secret["id"], "name": "x", "revoked": True}),
        (("news", "subscribe", "n"), {"name": "n", "created": True}),
        (("news", "pause", "n"), {"name": "n", "paused": True}),
        (("news", "resume", "n"), {"name": "n", "paused": False}),
        (("news", "remove", "n"), {"name": "n", "removed": True, "forgotten": 0}),
        (("forget", phone), {"installation_id": str(phone), "installations": 1}),
        (("forget", "--owner", "eva"), {"owner": "eva", "installations": 1}),
    ]
    for words, expected in told:
        said = command(*words, "--json")
        assert (said.code, said.lines) == (0, [expected]), (words, said.err)
    [run] = command("run-cycle", "reaper", "--json").lines
    assert (run["cycle"], run["outcome"]) == ("reaper", "idle")
    ticked = command("tick", "--runners", "reaper,fanout", "--json").lines
    assert [each["cycle"] for each in ticked] == ["reaper", "fanout"]


def test_an_event_that_says_something_else_is_told_to_machines_too(command: Command) -> None:
    """It is refused with what differs and its exit code; asked to keep what is there, the object says so."""
    words = ("enqueue", "t", "k", "--everyone", "--json", "--title")
    assert command(*words, "a").code == 0
    said = command(*words, "b")
    assert (said.code, said.lines) == (1, [])
    assert 'title is "a", given "b"' in said.err
    assert "--keep" in said.err
    kept = command(*words, "b", "--keep")
    assert (kept.code, kept.lines[0]["created"], kept.lines[0]["same_content"]) == (0, False, False)
