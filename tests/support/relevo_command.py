"""The command `relevo`, run in the test's own process as its entry point runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from relevo import cli
from relevo.cli import common, people
from support.installed import RELEVO

MARKUP = "[bold red]x[/] [/] [link=https://a.b]y[/link] \\[z]"
"""What others may write, and a terminal must not take for markup."""


@dataclass(frozen=True)
class Said:
    """What a command said and how it left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Said]


def make_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str) -> Command:
    """Return a function that runs `relevo` in this process as its entry point does, in a wide window."""
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setattr(common.out, "width", 200)
    monkeypatch.setattr(common.err, "width", 200)

    def run(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["relevo", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def make_installed_command(monkeypatch: pytest.MonkeyPatch, url: str) -> Command:
    """Return a function that runs the installed `relevo` as a process, in a wide window."""
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Said:
        done = subprocess.run(
            [RELEVO, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def run(*words: str) -> str:
    """Run a command around people, one that goes well, and return what it printed; mistakes are raised."""
    done = CliRunner().invoke(people.cli, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
