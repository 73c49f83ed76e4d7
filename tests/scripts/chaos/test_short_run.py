"""A short run of `make chaos`: two replicas, every part real, judged by the other program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
TESTS = Path(__file__).parents[2]


@pytest.mark.needs("kits")
def test_a_short_run_breaks_no_rule(tmp_path: Path) -> None:
    """After some seconds of writers and faults and a calm, nothing is lost or doubled, and each step is one of the model."""
    words = ["--minutes", "0.1", "--seed", "small", "--replicas", "2", "--small", "--folder", str(tmp_path / "run")]
    environ = os.environ | {"PYTHONPATH": f"{SCRIPTS}{os.pathsep}{TESTS}"}
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words], env=environ, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    assert "calm reached" in done.stdout
    assert "each of" in done.stdout
