"""What deliveries went through, as the database wrote it down, and whether the specification allows it."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from relevo.config import Settings
from support.optional_parts import OPTIONAL_PARTS, find_part

Steps = list[dict[str, Any]]
MODEL = Path(__file__).parents[2] / "scripts" / "model"
_STEPS = """
select s.delivery_id, s.at_most_once, coalesce(s.max_attempts, %s) as max_attempts, s.status, s.attempts, s.place, s.is_journalled, s.has_late
  from relevo_trace.steps s order by s.n
"""


def can_replay() -> bool:
    """Tell whether Node.js is here, and its packages may be asked for."""
    return OPTIONAL_PARTS["kits"][0]()


def record(dsn: str) -> None:
    """Have the database write down each step of each delivery from now on."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute((MODEL / "trace.sql").read_text().encode())


def read(dsn: str, test: str) -> Steps:
    """Return what was written down for a test, in order."""
    attempts = Settings.model_fields["outbox_max_attempts"].default
    with psycopg.connect(dsn, row_factory=dict_row) as conn:
        return [{"test": test, **line} for line in conn.execute(_STEPS, [attempts]).fetchall()]


def replay(steps: Steps, folder: Path) -> subprocess.CompletedProcess[str]:
    """Step the specification along what was written down."""
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return run_program("replay.mjs", str(file))


def run_program(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of scripts/model; its one package is installed first, by one process at a time."""
    with (MODEL / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (MODEL / "node_modules" / "tla-checker").exists():
            install = [find_part("npm"), "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error"]
            subprocess.run(install, cwd=MODEL, check=True, capture_output=True, timeout=300)
    command = [find_part("node"), str(MODEL / name), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
