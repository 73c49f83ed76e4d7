"""The commands that enqueue, preview and set up events: what they show, what they refuse, and how they leave."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

import relevo
from relevo.client.values import Event
from support.phones import add_phones
from support.processes import RELEVO
from support.relevo_command import MARKUP, Command, Said, make_command


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
        assert said.out == f"Enqueued as event {row[0]}. `relevo event {row[0]}` shows its timeline.\n"

    def test_it_is_recorded(self, command: Command, conn) -> None:
        """By whose hand which event was enqueued, and for how many, stands in the record; whom, and what it says, does not."""
        for key, more, code in (
            ("1", ["--everyone"], 0),
            ("2", ["--owner", "ana"], 0),
            ("3", ["--topic", "news"], 0),
            ("3", ["--everyone", "--keep"], 0),
        ):
            assert command("enqueue", "notice", key, "--title", "Psst", *more).code == code
        assert command("enqueue", "notice", "3", "--title", "Hush", "--everyone").code == 1
        rows = conn.execute("select face, outcome, target, result from relevo.audit_log order by id").fetchall()
        assert [row[:2] for row in rows] == [("cli", "ok")] * 4 + [("cli", "failed")]
        assert [row[2] for row in rows[:3]] == [
            {"event_type": "notice", "key": "1", "audience": "everyone"},
            {"event_type": "notice", "key": "2", "audience": "owners", "owners": 1},
            {"event_type": "notice", "key": "3", "audience": "topics", "topics": ["news"]},
        ]
        assert [row[3]["created"] for row in rows[:4]] == [True, True, True, False]
        recorded = str(conn.execute("select target, result, error_message from relevo.audit_log").fetchall())
        assert not any(word in recorded for word in ("Psst", "Hush", "ana"))

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

    def test_for_attributes(self, command: Command, conn) -> None:
        """Phones are chosen by attributes, in a preview and an event; what is no object is refused, and the record has no values."""
        (ana, _) = [add_phones(conn, 1, owner=name)[0] for name in ("ana", "bea")]
        relevo.set_attributes(conn, {"plan": "pro"}, owner="ana")
        where = ("--where", '{"plan": ["pro", "trial"]}')
        assert json.loads(command("preview", *where, "--json").out)["sample"][0]["installation_id"] == str(ana)
        assert command("enqueue", "offer", "1", "--title", "t", *where).code == 0
        asked = "select audience, match_where from relevo.notification_events"
        assert conn.execute(asked).fetchall() == [("attributes", {"plan": ["pro", "trial"]})]
        (target,) = conn.execute("select target from relevo.audit_log").fetchone()
        assert target["where"] == ["plan"]
        assert "phones with the attributes" in command("event", "offer", "1").out
        for given, complaint in (("[]", "--where must be a JSON object"), ("{}", "where must name an attribute")):
            said = command("preview", "--where", given)
            assert (said.code, complaint in said.err) == (2, True)

    def test_the_same_again(self, command: Command) -> None:
        """It says whether the event that is there says the same; exit code 1 and a next step if not."""
        command("enqueue", "notice", "1", "--everyone", "--title", "Hello")
        same = command("enqueue", "notice", "1", "--everyone", "--title", "Hello")
        other = command("enqueue", "notice", "1", "--everyone", "--title", "Goodbye")
        assert same == Said(0, "Event 1 has this type and key already, and has the same content.\n", "")
        assert (other.code, other.out) == (1, "")
        assert 'already exists with other content: title is "Hello", given "Goodbye".' in other.err
        kept = command("enqueue", "notice", "1", "--everyone", "--title", "Goodbye", "--keep")
        told = "Event 1 has this type and key already, and has other content; nothing was changed.\n"
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
            (["--title", "t", "--to", "me"], "me is not an installation id."),
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
