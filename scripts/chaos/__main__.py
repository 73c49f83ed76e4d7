"""A seeded run: writers and faults, calm, a history, and the verdict of a program that shares nothing with Relevo."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from chaos import history
from chaos.faults import Faults
from chaos.stage import Stage, stage, until
from chaos.writers import Told, Writer, register_phones

ROOT = Path(__file__).parents[2]
CALM_S = 180.0
_OPEN = """
select not exists (select from relevo.notification_deliveries where status in ('pending', 'retryable', 'sent'))
   and not exists (select from relevo.notification_events where state in ('waiting', 'fanning'))
   and not exists (select from relevo.event_progress_deltas)
"""


def main() -> int:
    """Run, and return the checker's verdict."""
    words = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    words.add_argument("--minutes", type=float, default=2.0)
    words.add_argument("--seed", default=None, help="anything; without it the day and the commit")
    words.add_argument("--replicas", type=int, default=3)
    words.add_argument("--writers", type=int, default=3)
    words.add_argument("--folder", type=Path, default=None, help="where logs and history are kept")
    given = words.parse_args()
    seed = given.seed or _seed_of_the_day()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="relevo-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, {given.minutes} minutes, {given.replicas} replicas; logs and history: {folder}", flush=True)
    with stage(folder, given.replicas) as made:
        summary = _play(made, seed, given.minutes, given.writers)
    (folder / "history" / "summary.json").write_text(json.dumps(summary, indent=1))
    judged = subprocess.run(["node", str(Path(__file__).with_name("check.mjs")), str(folder)], check=False).returncode
    return judged or _replay(folder / "history" / "steps.jsonl")


def _replay(steps: Path) -> int:
    """Step the specification of claims along what each delivery went through."""
    model = ROOT / "scripts" / "model"
    if not (model / "node_modules" / "tla-checker").exists():
        install = ["npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error"]
        subprocess.run(install, cwd=model, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(
        ["node", str(model / "replay.mjs"), str(steps)], check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode == 0:
        told = json.loads(done.stdout)
        print(f"    ok  each of {told['lines']} steps is one of the specification ({told['different']} histories)")
    return done.returncode


def _play(made: Stage, seed: str, minutes: float, writers: int) -> dict[str, object]:
    told = Told()
    phones = register_phones(made, told)
    app = [Writer(made, told, f"writer-{n}", seed, phones) for n in range(writers)]
    faults = Faults(made, seed)
    for writer in app:
        writer.start()
    faults.strike_until(time.monotonic() + minutes * 60)
    for writer in app:
        writer.stop()
    for writer in app:
        writer.join()
    faults.calm()
    with_rest = until(lambda: _is_over(made), CALM_S)
    print(f"calm {'reached' if with_rest else 'not reached'}; faults: {dict(faults.done)}", flush=True)
    written = history.write(made, told.lines)
    return {"seed": seed, "minutes": minutes, "calm": with_rest, "faults": dict(faults.done), "lines": written}


def _is_over(made: Stage) -> bool:
    with made.connect() as conn:
        [(over,)] = conn.execute(_OPEN.encode()).fetchall()
        return bool(over)


def _seed_of_the_day() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"{datetime.now(UTC):%Y-%m-%d} {commit.stdout.strip() or 'no commit'}"


if __name__ == "__main__":
    sys.exit(main())
