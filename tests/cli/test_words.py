"""`relevo words`: the file of the docs' page is checked, previewed, saved and shown; what is wrong is named by its file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.core import wordings
from support.relevo_command import Command

PAGE = Path(__file__).resolve().parents[2] / "server" / "docs" / "words.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file that the docs show."""
    found = re.search(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    made = tmp_path / "tenders-new.toml"
    made.write_text(found[1], encoding="utf-8")
    return made


def test_the_page_keeps_its_word(conn: psycopg.Connection[Any], command: Command, file: Path) -> None:
    """What the docs show is what is shown: preview, set, set again, show."""
    seen = command("words", "preview", file, "--argument", "count=5", "--timezone", "America/Santiago", "--json")
    texts = json.loads(seen.out)["texts"]
    assert texts["es-CL"] == {
        "title": "5 licitaciones nuevas",
        "body": "Por $120.000.000, cierra el dom, 6 sept, 1:30\u202fa.\u202fm.",
    }
    assert "5 licitaciones nuevas" in PAGE.read_text(encoding="utf-8")
    assert texts["pl"]["title"] == "5 nowych przetargów"
    dry = command("words", "set", file, "--dry-run")
    assert dry.out.strip().endswith("tenders.new is well in en, es, pl, es-CL.")
    checked = command("words", "check", file)
    assert (checked.out, "relevo words set --dry-run" in checked.err) == (dry.out, True), "the old name, until 0.6"
    assert conn.execute("select from relevo.wordings").fetchall() == []
    assert command("words", "show").out.strip() == "No event type has texts yet: `relevo words set FILE` saves them."
    assert command("words", "set", file).out.strip() == "Version 1 of tenders.new is saved."
    assert command("words", "set", file).out.strip() == "Version 1 of tenders.new is current already."
    assert command("words", "show").out.strip() == "tenders.new: version 1, in en, es, pl, es-CL"
    shown = command("words", "show", "tenders.new").out
    assert "3 licitaciones nuevas" in shown
    assert "Version 1; arguments: count, worth, closes." in shown
    assert conn.execute("select action, outcome from relevo.audit_log").fetchall() == [("save_words", "ok")] * 2


def test_the_language_of_a_project(conn: psycopg.Connection[Any], command: Command) -> None:
    """`words language` sets, shows and forgets the language of a project, and refuses what is no locale by name."""
    assert "No project has a language of its own" in command("words", "language").out
    assert command("words", "language", "es-CL", "--project", "shop").out.strip() == "shop: es-CL"
    assert command("words", "language", "es").out.split() == ["default:", "es", "shop:", "es-CL"]
    refused = command("words", "language", "Spanish")
    assert (refused.code, "'Spanish' is no locale" in refused.err) == (2, True)
    assert command("words", "language", "es", "--none").code == 2
    command("words", "language", "--none", "--project", "shop")
    assert json.loads(command("words", "language", "--json").out) == {"project": "default", "locale": "es"}
    done = conn.execute("select action, outcome from relevo.audit_log order by id").fetchall()
    assert done == [("set_project_locale", "ok")] * 3


def test_what_is_wrong_is_named(conn: psycopg.Connection[Any], command: Command, file: Path, tmp_path: Path) -> None:
    """A bad file among good ones saves none, and is named with the place; so are unknown types, arguments and zones."""
    bad = tmp_path / "bad.json"
    bad.write_text('{"type": "bad", "arguments": {}, "texts": {"en": {"title": "{count}"}}}', encoding="utf-8")
    refused = command("words", "set", file, bad)
    assert (refused.code, "bad.json: en title names {count}, which is not among the arguments" in refused.err) == (
        2,
        True,
    )
    assert conn.execute("select from relevo.wordings").fetchall() == []
    for words, complaint in (
        (("show", "nope"), "The texts of 'nope' are not there"),
        (("preview", file, "--argument", "total=3"), "--argument total is not one of tenders.new"),
        (("preview", file, "--argument", "count=many"), "--argument count must be a number, got 'many'"),
        (("preview", file, "--timezone", "Mars/Base"), "timezone must be the IANA name of a time zone"),
        (("check", tmp_path / "none.toml"), "cannot be read"),
    ):
        said = command("words", *words)
        assert said.code == 2
        assert complaint in said.err.replace("\n", " ")


def test_without_icu(command: Command, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the command says what to install."""
    monkeypatch.setattr(wordings, "is_available", lambda: False)
    said = command("words", "set", file, "--dry-run")
    assert said.code != 0
    assert "pip install 'relevo[words]'" in said.err.replace("\n", " ")
