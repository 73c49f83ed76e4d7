"""`make chaos`: a fault that cannot be made is told and left out, and the run goes on."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.faults import Faults
from chaos.server import FaultNotMadeError, Server


def test_a_backup_that_fails_says_why(tmp_path: Path) -> None:
    """The words of pg_basebackup are in the error."""
    (tmp_path / "pg_basebackup").write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    (tmp_path / "pg_basebackup").chmod(0o755)
    server: Any = SimpleNamespace(_held=SimpleNamespace(bin=tmp_path), dsn="dbname=x", _backup=tmp_path / "backup")
    with pytest.raises(FaultNotMadeError, match="pg_basebackup failed: no space left"):
        Server.back_up(server)


def test_it_is_skipped_from_then_on(capsys: pytest.CaptureFixture[str]) -> None:
    """The kind is named with its reason, counted as not done, and others go on."""

    def broken(_: object) -> None:
        raise FaultNotMadeError("pg_basebackup failed: no space left")

    struck: list[str] = []
    faults: Any = object.__new__(Faults)
    faults.done, faults.skipped = Counter(), {}
    faults.context = SimpleNamespace(chance=random.Random(1))
    faults._kinds = {"restored": broken, "killed": lambda _: struck.append("killed")}
    for kind in ("restored", "killed"):
        faults._strike(kind)
    assert faults.skipped == {"restored": "pg_basebackup failed: no space left"}
    assert (list(faults._kinds), +faults.done, struck) == (["killed"], Counter(killed=1), ["killed"])
    assert "skipped from here on: restored" in capsys.readouterr().out
