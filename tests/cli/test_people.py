"""`relevo owner` and `relevo category`: what is kept of a person, in words and as one JSON document."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import psycopg
import pytest

import relevo
from relevo.client.consent import KINDS
from relevo.core.errors import UsageError
from support.relevo_command import run

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def ana(conn: psycopg.Connection[Any]) -> str:
    """An owner with two phones, a choice and an event."""
    run(
        "category",
        "set",
        "offers",
        "--rule",
        "off",
        "--name",
        "en=Offers",
        "--name",
        "es=Ofertas",
        "--sentence",
        "es=Cada lunes.",
    )
    for n in range(2):
        relevo.register(conn, relevo.Installation(f"ExponentPushToken[{n}]", owner="ana"))
    relevo.choose(conn, "offers", owner="ana", wanted=True, words="Yes")
    relevo.enqueue(conn, relevo.Event("order", "1", title="Your order", audience=relevo.Owners("ana")))
    return "ana"


def test_categories(ana: str) -> None:
    """A category is listed in the words of a locale, with what an owner chose; a changed rule leaves its texts."""
    run("category", "set", "offers", "--rule", "mandatory")
    [found] = [json.loads(line) for line in run("category", "list", "--locale", "es", "--json").splitlines()]
    assert (found["name"], found["sentence"], found["rule"]) == ("Ofertas", "Cada lunes.", "mandatory")
    assert "Offers" in run("category", "list", "--owner", ana)


def test_show_block_unblock_forget(ana: str, conn: psycopg.Connection[Any]) -> None:
    """What is shown of an owner says how many phones receive, what was chosen, and since when and why nothing is sent."""
    assert "2 phones, of which 2 may receive" in run("owner", "show", ana)
    run("owner", "block", ana, "--reason", "asked by mail")
    shown = run("owner", "show", ana)
    assert "of which 0 may receive" in shown
    assert "asked by mail" in shown
    assert "Chose in default (push): offers: yes" in shown
    run("owner", "unblock", ana)
    assert "of which 2 may receive" in run("owner", "show", ana)
    run("owner", "forget", ana)
    assert json.loads(run("owner", "show", ana, "--json"))["installations"] == 0
    assert conn.execute("select count(*) from relevo.consents").fetchone() == (0,)


def test_export(ana: str, tmp_path: Path) -> None:
    """Everything is in one JSON document that only its owner may read; a file that is there is not written over."""
    file = tmp_path / "ana.json"
    run("owner", "export", ana, "--into", str(file))
    found = json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(found) == {"owner", *KINDS}
    assert (len(found["installations"]), found["events"][0]["title"], found["choices"][0]["words"]) == (
        2,
        "Your order",
        "Yes",
    )
    assert json.loads(run("owner", "export", "nobody")) == {"owner": "nobody"} | {kind: [] for kind in KINDS}
    with pytest.raises(UsageError, match="cannot be written"):
        run("owner", "export", ana, "--into", str(file))
