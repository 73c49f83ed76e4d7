"""`relevo quiet` and `relevo cap`: set, shown and listed, by the words of a person."""

from __future__ import annotations

import json

import pytest

from commanding import run
from relevo.core.errors import UsageError

pytestmark = pytest.mark.usefixtures("here")


def test_quiet_hours_are_set_and_shown() -> None:
    """Hours of an owner are set, shown and taken back; nobody's are refused."""
    assert "are set" in run("quiet", "set", "22:00-07:00", "--owner", "ana", "--zone", "Europe/Madrid")
    assert "Nothing changed" in run("quiet", "set", "22:00-07:00", "--owner", "ana", "--zone", "Europe/Madrid")
    assert run("quiet", "show", "--owner", "ana").strip() == "22:00-07:00 in Europe/Madrid"
    run("quiet", "set", "22:00-07:00", "--owner", "ana")
    assert "by the clock of each phone" in run("quiet", "show", "--owner", "ana")
    run("quiet", "set", "--remove", "--owner", "ana")
    assert "No quiet hours" in run("quiet", "show", "--owner", "ana")
    with pytest.raises(UsageError, match="Nobody is named"):
        run("quiet", "set", "22:00-07:00")


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
    assert "no such cap any more" in run("cap", "set", "day", "--category", "offers")
    done = conn.execute("select action, target, result from relevo.audit_log order by id").fetchall()
    cap = {"per": "day", "category": "offers", "project": "default", "over": "skip"}
    assert done == [("set_cap", cap | {"most": 5}, {"answer": True}), ("set_cap", cap, {"answer": True})]
