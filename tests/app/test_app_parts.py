"""What a team adds by RELEVO_APP: the guide's program through make, and what cannot be loaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relevo import app, config
from relevo.core.errors import ConfigError
from relevo.core.model import Step
from relevo.database.pool import Database
from relevo.operators import events
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Every

ROOT = Path(__file__).resolve().parents[2]
EXTENDING = ROOT / "server" / "docs" / "extending.md"


def program() -> str:
    """Return the guide's program that has a source and a cycle."""
    found = re.findall(r"```python\n(# mine\.py\n.*?)```", EXTENDING.read_text(encoding="utf-8"), re.DOTALL)
    [program] = [each for each in found if "class Releases" in each]
    return str(program)


def make(tmp_path: Path, dsn: str, cycle: str, parts: str = "mine:parts") -> subprocess.CompletedProcess[str]:
    """Run `make run-cycle` in the checkout, with the program on its path."""
    (tmp_path / "mine.py").write_text(program())
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "COLUMNS": "200",
        "DATABASE_URL": dsn,
        "EXPO_BASE_URL": "http://127.0.0.1:9",
        "PYTHONPATH": str(tmp_path),
        "RELEVO_APP": parts,
    }
    command = [str(shutil.which("make")), "-C", str(ROOT), "run-cycle", f"CYCLE={cycle}"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=600)


def test_the_readmes_program_runs(tmp_path: Path, dsn: str, conn) -> None:
    """Its cycle runs, its source is read, and its item becomes an event of its own type and text."""
    ran = make(tmp_path, dsn, "mine")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert conn.execute("select outcome from relevo.worker_runs where cycle = 'mine'").fetchall() == [("ok",)]
    read = make(tmp_path, dsn, "ingest:releases")
    assert read.returncode == 0, read.stdout + read.stderr
    rows = conn.execute("select event_type, title, body, data, match_rubros from relevo.notification_events").fetchall()
    [(event_type, title, body, data, tags)] = rows
    assert (event_type, title, body, tags) == ("release.published", "New release", "Relay 2.0 is out", ["release"])
    assert (data["type"], data["id"], "codigo" in data) == ("release.published", "2.0", False)
    [event] = conn.execute("select id from relevo.notification_events").fetchone()
    database = Database(dsn, dsn, config.load({}, None))
    try:
        story = events.story(database, event)
    finally:
        database.close()
    assert story is not None
    assert {each.what for each in story.moments} == {"event enqueued", "item first seen"}
    again = make(tmp_path, dsn, "ingest:releases")
    assert again.returncode == 0
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (1,)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ("nowhere:parts", "No module named"),
        ("mine:nothing", "has no attribute"),
        ("mine:Releases", "must return relevo.Parts, not Releases"),
    ],
)
def test_what_cannot_be_loaded_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_settings, parts: str, words: str
) -> None:
    """A module, a function or an answer that is not valid ends the start with a sentence."""
    (tmp_path / "mine.py").write_text(
        program().replace("class Releases:", "class Releases:\n    def __init__(self, *_): pass\n")
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=words):
        app.load_parts(make_settings(relevo_app=parts))


def test_two_cycles_of_one_name_are_refused(build) -> None:
    """A cycle must not hide one that is there."""
    with pytest.raises(ConfigError, match="two cycles reaper"):
        build(cycles=[Cycle("reaper", Every(1_000), lambda _run: Step())])
