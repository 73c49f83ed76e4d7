"""`make mutants`: put each mistake into a copy of the checkout, run its tests, and report those that nobody noticed."""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from mutants.families import FAMILIES, find
from mutants.in_python import IN_PYTHON
from mutants.in_sql import IN_SQL
from mutants.mistake import ROOT, Mistake
from mutants.sampled import SAMPLED
from mutants.second_values import SECOND_VALUES
from mutants.two_of_each import TWO_OF_EACH

MISTAKES: dict[str, Mistake] = IN_SQL | IN_PYTHON | SECOND_VALUES | TWO_OF_EACH | SAMPLED
_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"
)
_LONGEST_S = 900
_TESTS_FAILED = 1
"""How pytest ends if a test failed; any other code means that the tests did not run."""


def try_out(mistake: Mistake, copy: Path) -> tuple[str, str]:
    """Put a mistake into a copy, run its tests and take it out again; return the verdict and the last lines.

    The test that failed has to pass without the mistake: one that always fails notices nothing.
    """
    mistake.put_in(copy)
    try:
        done = _run_tests(copy, mistake.tests)
    except subprocess.TimeoutExpired:
        return "noticed", f"it hung for {_LONGEST_S} s"
    finally:
        mistake.take_out(copy)
    last = "\n".join(done.stdout.splitlines()[-15:])
    if done.returncode != _TESTS_FAILED:
        return ("not noticed" if done.returncode == 0 else "not run"), last
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)+(?:\[.*?\])?)(?: - |$)", done.stdout, re.MULTILINE)
    if failed and _run_tests(copy, failed[:1]).returncode != 0:
        return "fails anyway", last
    return ("noticed" if failed else "not run"), last


def _run_tests(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", *tests]
    paths = os.pathsep.join(str(copy / name) for name in ("server", "scripts"))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST_S
    )


def main(given: Sequence[str] | None = None) -> int:
    """Try mistakes out, several at once; return 1 if one was not noticed."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(MISTAKES), help="this mistake; may be given more than once"
    )
    parser.add_argument(
        "--family", choices=FAMILIES, help="instead each place in SQL where one of these can be left out"
    )
    parser.add_argument("--sample", type=int, help="so many of them, chosen by chance")
    parser.add_argument("--at-once", type=int, default=2, help="how many copies work side by side")
    asked = parser.parse_args(given)
    chosen = find(asked.family) if asked.family else MISTAKES
    names = asked.only or list(chosen)
    if asked.sample:
        names = random.sample(names, min(asked.sample, len(names)))
    unnoticed = 0
    with ThreadPoolExecutor(asked.at_once) as pool, copies(asked.at_once) as free:
        for name, verdict, last, took_s in pool.map(lambda each: _one(each, chosen[each], free), names):
            print(f"{verdict:12} {took_s:5.0f} s  {name}: {chosen[name].rule}", flush=True)
            if verdict != "noticed":
                unnoticed += 1
                print(last, flush=True)
    print(f"{len(names) - unnoticed} of {len(names)} mistakes were noticed")
    return 1 if unnoticed else 0


def copy_checkout(folder: Path) -> None:
    """Copy what tests need."""
    shutil.copytree(ROOT, folder, ignore=_NOT_COPIED, symlinks=True)


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Make some copies; each is used by one mistake at a time."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="relevo-mutants-") as folder:
        for n in range(count):
            copy_checkout(Path(folder) / str(n))
            free.put(Path(folder) / str(n))
        yield free


def _one(name: str, mistake: Mistake, free: SimpleQueue[Path]) -> tuple[str, str, str, float]:
    copy, began = free.get(), time.monotonic()
    try:
        verdict, last = try_out(mistake, copy)
    finally:
        free.put(copy)
    return name, verdict, last, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
