"""The command `relevo` on the test's database."""

from __future__ import annotations

import pytest

from support.relevo_command import Command, make_command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dsn: str) -> Command:
    """`relevo` on the test's database: `command("events", "--json")`."""
    return make_command(monkeypatch, capsys, dsn)


@pytest.fixture
def here(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find the test's database."""
    monkeypatch.setenv("DATABASE_URL", dsn)
