"""A seeded run: writers and faults, calm, a history, and the verdict of a program that shares nothing with Relevo."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos import archive, broken, history
from chaos.acknowledged import Acknowledged
from chaos.faults import MOMENTS, SMALL, Faults
from chaos.quiet_and_digests import QuietAndDigests
from chaos.system import OFFERS_A_WEEK, RATE_PER_S, System, stop_all, system, trace, until
from chaos.writers import Reader, Writer, register_phones

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "scripts" / "proof" / "results"
HISTORIES = ROOT / "build" / "chaos"
CALM_S = 600.0
LONG_MINUTES = 10
"""A run of so many minutes has time for every moment; one that was to be shorter may miss some."""
OF_NO_REST = ("not over after calm", "news missing, or numbered twice")
"""Rules that are broken whenever a run ends before all is over, as on a machine with much else to do."""
UNMET = 3
"""How a run ends that broke no rule, and never met a moment that it had time for."""
SHOWN = 500
"""How many messages of a phone may wait to be gathered: the sandbox shows a thousand."""
MOST_DUE = 500
"""With more deliveries due than these the app writes less: a machine with much else to do must come to rest, too."""
DIGESTED = 6
"""How many phones are told of tenders by digests."""
_OPEN = """
select not exists (select from relevo.notification_deliveries where status in ('pending', 'retryable', 'sent'))
   and not exists (select from relevo.notification_events where state in ('waiting', 'fanning'))
   and not exists (select from relevo.event_progress_deltas)
   and not exists (select from relevo.news_events)
   and not exists (select from relevo.news_inbox)
   and not exists (select from relevo.news_subscriptions s join relevo.news_cursors c on c.subscription = s.name
                    where c.position < s.head)
"""

_DUE = "select coalesce(sum(cardinality(ids)), 0)::int from relevo.due_chunks where due_at <= now()"
_FANNED_OUT = "select not exists (select from relevo.notification_events where state in ('waiting', 'fanning'))"


def main() -> int:
    """Run, and return the verdict; a broken build passes if it is caught."""
    given = _words().parse_args()
    seed = given.seed or _seed_of_the_day()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="relevo-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"broken-{given.broken}" if given.broken else f"chaos-{re.sub(r'[^A-Za-z0-9-]+', '-', seed)}"
    print(
        f"seed {seed}, {given.minutes} minutes, {given.replicas} replicas; all that is under way: {folder}", flush=True
    )
    with system(folder, given.replicas, small=given.small or given.broken is not None) as made:
        summary = _play(made, seed, given)
    (folder / "history" / "summary.json").write_text(json.dumps(summary, indent=1))
    checked = subprocess.run(["node", str(Path(__file__).with_name("check.mjs")), str(folder)], check=False).returncode
    replayed = _replay(folder / "history" / "steps.jsonl")
    verdict = json.loads((folder / "history" / "verdict.json").read_text())
    verdict |= {"summary": summary, "replay": replayed}
    if not given.small:
        history.keep(folder, HISTORIES / name)
        print(f"the history is kept in {HISTORIES / name}; its README says how to check it", flush=True)
    if given.record:
        _record(verdict, name)
    if given.broken:
        return _judge_broken(given.broken, verdict)
    unmet = never_met(verdict["windows"], is_short=given.small or bool(given.only) or given.minutes < LONG_MINUTES)
    if checked == 0 and replayed["ok"] and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return checked or int(not replayed["ok"]) or (UNMET if unmet else 0)


def never_met(windows: dict[str, int], *, is_short: bool) -> list[str]:
    """Return the moments that a run never met, and name them; none where the run was short by wish."""
    unmet = [moment for moment, hits in windows.items() if not hits]
    if unmet:
        why = "the run was short by wish" if is_short else "which proves nothing about them"
        count = "1 moment was" if len(unmet) == 1 else f"{len(unmet)} moments were"
        print(f"{count} never met, {why}: {'; '.join(unmet)}", flush=True)
    return [] if is_short else unmet


def _words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    words.add_argument("--minutes", type=float, default=2.0)
    words.add_argument("--seed", default=None, help="anything; without it the day and the commit")
    words.add_argument("--replicas", type=int, default=3)
    words.add_argument("--writers", type=int, default=3)
    words.add_argument("--folder", type=Path, default=None, help="where logs and history are kept")
    words.add_argument("--small", action="store_true", help="few faults, without PgBouncer and the archive's store")
    words.add_argument("--only", choices=MOMENTS, action="append", help="this fault; may be given more than once")
    words.add_argument("--broken", choices=broken.BUILDS, help="take one rule out of the product: it must be caught")
    words.add_argument("--record", action="store_true", help="keep the verdict for `make proof`")
    return words


def _play(made: System, seed: str, given: argparse.Namespace) -> dict[str, Any]:
    acknowledged = Acknowledged()
    if made.store is not None:
        acknowledged.note("archived", ids=archive.fill(made))
    trace(made)
    phones = register_phones(made, acknowledged)
    has_quiet = broken.BUILDS[given.broken].has_quiet if given.broken else not given.small
    quiet = (
        QuietAndDigests(made, acknowledged, phones["android"][:DIGESTED], phones["iphone"][0]) if has_quiet else None
    )
    only = broken.BUILDS[given.broken].faults if given.broken else SMALL if given.small else given.only or ()
    faults, received = Faults(made, seed, acknowledged, only), history.Received(made)
    if given.broken:
        broken.take_out(made, given.broken)
    reader = Reader(made, acknowledged)
    app = [
        Writer(made, acknowledged, f"writer-{n}", seed, movable=phones["expo"], quiet=quiet)
        for n in range(given.writers)
    ]
    for thread in (reader, *app):
        thread.start()

    def after_each() -> None:
        received.gather(SHOWN)
        made.is_behind = made.ask(_DUE) > [(MOST_DUE,)]

    faults.strike_until(time.monotonic() + given.minutes * 60, after_each)
    for writer in app:
        writer.stop()
    for writer in app:
        writer.join()
    faults.calm(patient=not given.small)
    is_calm = _rest(made, quiet, 90 if given.broken and quiet is None else CALM_S)
    reader.stop()
    reader.join()
    stop_all(made)  # what goes on meanwhile would be in one part of the history and not in another
    faults.context.count_slow()
    if made.store is not None:
        archive.finish(made)
    left_out = {MOMENTS[kind] for kind in faults.skipped if kind in MOMENTS} - {MOMENTS[kind] for kind in faults.kinds}
    print(f"calm {'reached' if is_calm else 'not reached'}; faults: {dict(faults.done)}", flush=True)
    return {
        "seed": seed,
        "commit": _commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "minutes": given.minutes,
        "replicas": given.replicas,
        "calm": is_calm,
        "faults": dict(faults.done),
        "skipped": faults.skipped,
        "hits": {moment: hits for moment, hits in faults.context.hits.items() if moment not in left_out},
        "rate_per_s": RATE_PER_S,
        "offers_a_week": OFFERS_A_WEEK,
        "lines": history.write(made, acknowledged.lines, received),
    }


def _rest(made: System, quiet: QuietAndDigests | None, patience_s: float) -> bool:
    """Wait until all is over, the last digests included; return whether it is."""
    if quiet is not None:  # a digest tells what was fanned out before its time
        until(lambda: made.ask(_FANNED_OUT) == [(True,)], patience_s)
        quiet.end()
    return until(lambda: (quiet is None or quiet.is_over()) and made.ask(_OPEN) == [(True,)], patience_s)


def _replay(steps: Path) -> dict[str, Any]:
    """Step the specification of claims along what each delivery went through."""
    model = ROOT / "scripts" / "model"
    if not (model / "node_modules" / "tla-checker").exists():
        install = ["npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error"]
        subprocess.run(install, cwd=model, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["node", str(model / "replay.mjs"), str(steps)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"BROKEN  a step that the specification does not know\n{done.stderr}", flush=True)
        return {"ok": False, "why": done.stderr.partition("\n")[0]}
    replayed = json.loads(done.stdout)
    print(
        f"    ok  each of {replayed['lines']} steps of {replayed['deliveries']} deliveries is one of the specification"
    )
    return {"ok": True, **replayed}


def _judge_broken(name: str, verdict: dict[str, Any]) -> int:
    """Return 0 if a build without one of its rules was caught; one that only finds no rest was not."""
    unproven = () if verdict["summary"]["calm"] else OF_NO_REST
    found = [rule for rule, count in verdict["rules"].items() if count and rule not in unproven]
    found += [] if verdict["replay"]["ok"] else ["replay"]
    print(f"the build without {name} was {'caught: ' + '; '.join(found) if found else 'NOT CAUGHT'}", flush=True)
    return int(not found)


def _record(verdict: dict[str, Any], name: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(verdict, indent=1) + "\n")


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "no commit"


def _seed_of_the_day() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d} {_commit()}"


if __name__ == "__main__":
    sys.exit(main())
