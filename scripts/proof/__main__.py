"""Writes server/docs/proof.md from the kept results; with --run it makes them anew, from seeds that nobody chose."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from chaos.broken import BUILDS
from proof.page import PAGE, RESULTS, write

ROOT = Path(__file__).parents[2]
SEEDS = 4
HA = "ha"
MUTANTS = "tests/scripts/chaos/test_checker.py::test_a_broken_rule_is_found"


def main() -> int:
    """Make results if asked to, and write the page."""
    words = argparse.ArgumentParser(prog="make proof", description=__doc__)
    words.add_argument("--run", action="store_true", help="run the models, the broken builds and chaos over four seeds")
    words.add_argument("--mutants", action="store_true", help="give the checker its broken histories anew, alone")
    words.add_argument("--minutes", type=float, default=15.0, help="of each seed")
    given = words.parse_args()
    worst = _run(given.minutes) if given.run else _mutants() if given.mutants else 0
    PAGE.write_text(write(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")
    return worst


def _run(minutes: float) -> int:
    """Make every result of these anew; return the worst verdict. Those of `make ha` stay."""
    for old in RESULTS.glob("*.json"):
        if not old.name.startswith(HA):
            old.unlink()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    verdicts = [_call("make", "--no-print-directory", "model", f"ARGS=--json {RESULTS / 'model.json'}")]
    verdicts.append(_mutants())
    for name, build in BUILDS.items():
        verdicts += [_chaos("--minutes", str(build.minutes), "--broken", name, "--seed", f"{day} {commit}")]
    for number in range(1, SEEDS + 1):
        verdicts += [_chaos("--minutes", str(minutes), "--seed", f"{day} {commit} {number}")]
    return max(verdicts)


def _mutants() -> int:
    """Give the checker histories that break one rule each, and keep how many it found."""
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", MUTANTS]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    passed, failed = (int((re.findall(rf"(\d+) {word}", said.stdout) or [0])[-1]) for word in ("passed", "failed"))
    result = {"histories": passed + failed, "found": passed}
    (RESULTS / "mutants.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(said.returncode != 0)


def _chaos(*words: str) -> int:
    return _call(sys.executable, "-m", "chaos", "--record", *words)


def _call(*command: str) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
