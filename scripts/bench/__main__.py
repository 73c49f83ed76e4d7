"""Measure, print one table, and write one JSON and two charts: `make bench`, or `python -m bench` in scripts/."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bench import (
    charts,
    digest,
    dispatch,
    enqueue,
    fanout,
    growth,
    hostile,
    http,
    idle,
    inbox,
    ingest,
    latency,
    morning,
    native,
    neighbours,
    pages,
    peers,
    personal,
    reaper,
    receipts,
    report,
    requests,
    scale,
    sdk,
    snapshot,
    starting,
    words,
)
from bench.environment import Environment, environment
from bench.measuring import Row
from bench.sizes import QUICK, Sizes, changed
from benching import RESULTS, say
from relevo.core import logs

ROOT = Path(__file__).parents[2]
TOGETHER: dict[str, Callable[[Environment], Iterable[Row]]] = {
    "start": starting.rows,
    "wakeup": latency.wakeups,
    "dispatch": dispatch.lifted,
    "rated": dispatch.rated,
    "peers": peers.rows,
    "receipts": receipts.rows,
    "personal": personal.rows,
    "enqueue": enqueue.rows,
    "reaper": reaper.rows,
    "snapshot": snapshot.rows,
    "memory": starting.growing,
    "urgent": latency.urgent,
    "http": http.rows,
    "requests": requests.rows,
    "sdk": sdk.rows,
    "aged": dispatch.aged,
    "words": words.rows,
    "morning": morning.rows,
}
"""Rows by the name that --only knows, in their order: these share one database and one sandbox."""
ALONE: dict[str, Callable[[Sizes], Iterable[Row]]] = {
    "fanout": fanout.rows,
    **native.ROWS,
    "growth": growth.rows,
    "hostile": hostile.rows,
    "neighbours": neighbours.rows,
    "ingest": ingest.rows,
    "idle": idle.rows,
    "inbox": inbox.rows,
    "pages": pages.rows,
    "digest": digest.rows,
    "scale": scale.rows,
}
"""These have a database each."""
ON_DEMAND = {
    *("memory", "requests", "sdk", "ingest", "idle", "inbox", "pages", "scaling", "digest", "morning", "scale"),
    *("hostile", "neighbours"),
}
"""Measured only if they are named."""


def main(given: Sequence[str] | None = None) -> None:
    """Measure what is asked for."""
    known = [*TOGETHER, *ALONE]
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--only", metavar="ROWS", help=f"some of {','.join(known)}; {','.join(sorted(ON_DEMAND))} only if named"
    )
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    parser.add_argument("--set", metavar="NAME=NUMBER", action="append", default=[], help="one of the sizes")
    parser.add_argument(
        "--write-readme",
        action="store_true",
        help="put the charts into the README, and the tables into the page on scaling",
    )
    parser.add_argument("--into", type=Path, default=RESULTS, help="the folder that bench.json and charts go to")
    asked = parser.parse_args(given)
    names = asked.only.split(",") if asked.only else [name for name in known if name not in ON_DEMAND]
    if strange := sorted(set(names) - set(known)):
        parser.error(f"there are no rows {', '.join(strange)}; known are {', '.join(known)}")
    if asked.write_readme and (asked.quick or asked.only or asked.set):
        parser.error("--write-readme wants a whole run, without --quick, --only and --set")
    try:
        sizes = changed(QUICK if asked.quick else Sizes(), asked.set)
    except ValueError as error:
        parser.error(str(error))
    logs.configure("error", "console")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped and their folders removed
    started, failed = time.monotonic(), list[str]()
    rows = list(measure(names, sizes, failed))
    publish(rows, sizes, time.monotonic() - started, asked.into)
    if failed:
        raise SystemExit(f"Not measured: {', '.join(failed)}. What went wrong stands above.")
    if asked.write_readme:
        charts.write(ROOT / "server" / "docs", rows)
        report.write_picture(ROOT / "README.md")
        report.write_tables(ROOT / "server" / "docs" / "scaling.md", rows)


def measure(names: Sequence[str], sizes: Sizes, failed: list[str]) -> Iterator[Row]:
    """Measure row after row; what fails is named, and the rest is measured all the same."""
    together = [name for name in TOGETHER if name in names]
    if together:
        with environment(sizes) as shared:
            for name in together:
                yield from _told(name, TOGETHER[name](shared), failed)
    for name, rows in ALONE.items():
        if name in names:
            yield from _told(name, rows(sizes), failed)


def _told(name: str, rows: Iterable[Row], failed: list[str]) -> Iterator[Row]:
    say(f"{name} …")
    started = time.monotonic()
    try:
        for row in rows:
            say(f"  {row.what}: {row.said}")
            yield row
    except Exception:  # noqa: BLE001 a quarter of an hour's figures are not lost over one row
        traceback.print_exc()
        failed.append(name)
    say(f"  {time.monotonic() - started:.0f} s")


def publish(rows: Sequence[Row], sizes: Sizes, seconds: float, folder: Path) -> None:
    """Print the table; write JSON and charts."""
    report.show(rows)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "bench.json"
    target.write_text(report.as_json(rows, sizes, seconds) + "\n", encoding="utf-8")
    drawn = charts.write(folder, rows)
    say(f"{seconds:.0f} s in all. Written to {target} and {', '.join(map(str, drawn))}.")


if __name__ == "__main__":
    main()
