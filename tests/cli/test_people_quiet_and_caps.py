"""`relevo quiet` and `relevo cap`: set, shown and listed, by the words of a person."""

from __future__ import annotations

import json

import pytest

from relevo.core.errors import UsageError
from support.phones import add_phones
from support.relevo_command import Command, run

pytestmark = pytest.mark.usefixtures("here")


def test_quiet_hours_are_set_and_shown() -> None:
    """Hours of an owner are set, shown and taken back; nobody's are refused."""
    assert "are set" in run("quiet", "set", "22:00-07:00", "--owner", "ana", "--zone", "Europe/Madrid")
    assert "Nothing changed" in run("quiet", "set", "22:00-07:00", "--owner", "ana", "--zone", "Europe/Madrid")
    assert run("quiet", "show", "--owner", "ana").strip() == "22:00-07:00 in Europe/Madrid"
    run("quiet", "set", "23:00-07:00", "--owner", "ana")
    assert run("quiet", "show", "--owner", "ana").strip() == "23:00-07:00 in Europe/Madrid", "the zone stays"
    run("quiet", "set", "--zone", "America/Santiago", "--owner", "ana")
    assert run("quiet", "show", "--owner", "ana").strip() == "23:00-07:00 in America/Santiago", "the windows stay"
    run("quiet", "set", "--never", "--owner", "ana")
    assert "never quiet" in run("quiet", "show", "--owner", "ana")
    run("quiet", "set", "--remove", "--owner", "ana")
    assert "No quiet hours" in run("quiet", "show", "--owner", "ana")
    for given, complaint in (
        (("22:00-07:00",), "No owner, phone or project is named"),
        (("--owner", "ana"), "No hours are given"),
        (("--owner", "ana", "--never", "--remove"), "exclude each other"),
    ):
        with pytest.raises(UsageError, match=complaint):
            run("quiet", "set", *given)


def test_hours_without_a_zone_are_asked_for_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the command asks for the time zone; elsewhere it refuses, and names --zone."""
    for whose in (("--project", "default"), ("--owner", "ana")):
        with pytest.raises(UsageError, match="need a time zone") as refused:
            run("quiet", "set", "22:00-07:00", *whose)
        assert "--zone America/Santiago" in refused.value.hint
        assert "No quiet hours" in run("quiet", "show", *whose)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda _: "Asia/Kathmandu")
    assert command("quiet", "set", "22:00-07:00", "--project", "default").code == 0
    assert run("quiet", "show", "--project", "default").strip() == "22:00-07:00 in Asia/Kathmandu"


def test_a_phone_s_hours_need_no_zone(conn) -> None:
    """They go by the time zone that the phone registered: nobody is asked for one, though an owner's hours would need one."""
    [phone] = add_phones(conn, 1, owner="ana", timezone="America/Lima")
    assert "are set" in run("quiet", "set", "22:00-07:00", "--phone", str(phone))
    assert "22:00-07:00" in run("quiet", "show", "--phone", str(phone))


def test_silent_pushes_without_a_quiet_channel_are_warned_of(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command that lets pushes go silently warns that Android rings, unless PUSH_QUIET_CHANNEL is set."""
    silently = (
        ("event-type", "notice", "--quiet", "silent"),
        ("event-type", "notice", "--quiet-deadline", "silent"),
        ("event-type", "notice", "--quiet-max-wait-s", "60"),
        ("category", "set", "bills", "--quiet", "silent"),
        ("quiet", "set", "22:00-07:00", "--owner", "ana", "--zone", "UTC"),
    )
    others = (("event-type", "notice", "--quiet", "wait"), ("category", "set", "bills", "--quiet", "by-type"))
    for words in (*silently, *others):
        done = command(*words)
        assert (done.code, "PUSH_QUIET_CHANNEL is not set" in done.err) == (0, words in silently), words
    monkeypatch.setenv("PUSH_QUIET_CHANNEL", "night")
    assert "PUSH_QUIET_CHANNEL" not in command(*silently[0]).err


def test_caps_are_set_and_listed(conn) -> None:
    """A cap is set, listed and taken away, which is written down as what operators do is."""
    run("cap", "set", "day", "5", "--category", "offers")
    assert json.loads(run("cap", "list", "--json")) == {
        "project": "default",
        "category": "offers",
        "per": "day",
        "most": 5,
        "over": "skip",
    }
    assert "5 per day" in run("cap", "list")
    with pytest.raises(UsageError, match="needs a number, or --remove"):
        run("cap", "set", "day", "--category", "offers")
    assert "The cap is removed" in run("cap", "set", "day", "--remove", "--category", "offers")
    done = conn.execute("select action, target, result from relevo.audit_log order by id").fetchall()
    cap = {"per": "day", "category": "offers", "project": "default"}
    assert done == [("set_cap", cap | {"most": 5}, {"answer": True}), ("set_cap", cap, {"answer": True})]
