"""Retiring, exporting and restoring a month of deliveries, beside plain COPY and DELETE, and who writes meanwhile."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg

from benching import fresh_database, publish, rss_mb, say, timed
from relevo import app
from relevo.archive import restore
from relevo.archive.retire import retire
from relevo.client import values, verbs
from relevo.core import queries
from relevo.runtime.runs import BUDGET, Run, RunContext

_SQL = queries.Statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_PAUSE_S = 0.004
ENTITY = "notification_deliveries"


def month_ago(months: int) -> date:
    """Return the first day of the month so many months ago."""
    today = datetime.now(UTC).date()
    count = today.year * 12 + today.month - 1 - months
    return date(count // 12, count % 12 + 1, 1)


class Bench:
    """A database with old months in it, and the cycles that take them away."""

    def __init__(self, built: app.App, conn: psycopg.Connection[Any], folder: Path) -> None:
        self.built, self.conn, self.folder = built, conn, folder
        store = app.archive_store(built.settings)
        assert store is not None
        self.store = store

    def run(self) -> Run:
        """Make a run without a lease, for steps taken one by one."""
        context = RunContext(0, "cleanup", "", "manual", "bench", None, datetime.now(UTC))
        return Run(context, self.built.settings, self.built.database, BUDGET, None, None, threading.Event())

    def do(self, statement: str, **parameters: object) -> None:
        """Run a statement that PostgreSQL writes itself."""
        row = self.conn.execute(_SQL[statement], parameters).fetchone()
        assert row is not None
        self.conn.execute(row[0].encode())

    def load(self, month: date, rows: int) -> None:
        """Fill a month."""
        self.conn.execute(_SQL["make_month"], {"month": month})
        self.conn.execute(_SQL["load_deliveries"], {"month": month, "rows": rows})
        self.do("compose_vacuum", relation=f"relevo.{ENTITY}_{month:%Y_%m}")

    def retire(self) -> tuple[float, float]:
        """Retire what is due; return the seconds of the transaction that detaches it, and those of everything."""
        run, detached, whole = self.run(), 0.0, 0.0
        more = True
        while more:
            started = time.perf_counter()
            step = retire(run)
            assert not step.problems, step
            took, more = time.perf_counter() - started, step.more
            whole += took
            detached += took if step.counts.get("archived_deliveries") else 0.0
        return detached, whole

    def move(self, month: date) -> float:
        """Move a month's rows by DELETE … RETURNING in batches; return the seconds it took."""
        hot, cold = f"relevo.{ENTITY}_{month:%Y_%m}", "relevo_archive.moved"
        self.do("compose_twin", twin=cold, relation=hot)
        row = self.conn.execute(_SQL["compose_move"], {"relation": hot, "twin": cold}).fetchone()
        assert row is not None
        started = time.perf_counter()
        while self.conn.execute(row[0].encode()).rowcount:
            pass
        took = time.perf_counter() - started
        self.do("compose_drop", relation=cold)
        return took

    def export(self) -> tuple[float, float]:
        """Take export's steps; return the seconds spent on uploading and on verifying."""
        cycle, run = self.built.registry["archive-export"], self.run()
        spent = {"uploading": 0.0, "verifying": 0.0}
        while True:
            started = time.perf_counter()
            step = cycle.step(run)
            assert not step.problems, step
            uploads = {"rows_exported", "months_exported"} & step.counts.keys()
            spent["uploading" if uploads else "verifying"] += time.perf_counter() - started
            if not step.more:
                return spent["uploading"], spent["verifying"]

    def copy_out(self, relation: str) -> tuple[float, int]:
        """Copy a relation to a CSV file; return the seconds and the size."""
        path = self.folder / "out.csv"
        path.unlink(missing_ok=True)
        took = timed(lambda: self.do("compose_copy_out", relation=relation, path=str(path)))
        return took, path.stat().st_size

    def copy_in(self, relation: str) -> float:
        """Copy the CSV file into an empty table of the same columns; return the seconds."""
        self.do("compose_twin", twin="relevo_archive.twin", relation=relation)
        path = str(self.folder / "out.csv")
        took = timed(lambda: self.do("compose_copy_in", relation="relevo_archive.twin", path=path))
        self.do("compose_drop", relation="relevo_archive.twin")
        return took

    def restore(self, month: date, entity: str = ENTITY) -> float:
        """Restore a month, see that its rows are the same by a hash computed in SQL, and return the seconds."""
        reported = restore.read_manifest(self.store, entity, month)
        took = timed(lambda: restore.restore(self.built.database, self.store, reported, replace=True))
        before, after = (self.hash(f"{schema}.{reported.relation}") for schema in ("relevo_archive", restore.SCHEMA))
        assert before == after, (before, after)
        say(f"{before[0]:,} rows of {reported.relation} came back the same, by a hash computed in SQL on both sides.")
        return took

    def hash(self, relation: str) -> Any:
        """Hash a relation's rows in SQL."""
        row = self.conn.execute(_SQL["compose_hash"], {"relation": relation}).fetchone()
        assert row is not None
        return self.conn.execute(row[0].encode()).fetchone()


def write_until(dsn: str, name: str, stop: Any, answers: Any) -> None:
    """Enqueue an event every few milliseconds, as an app would, and tell when and how long each commit took."""
    took: list[tuple[float, float]] = []
    with psycopg.connect(dsn) as conn:
        while not stop.is_set():
            started = time.perf_counter()
            verbs.enqueue(conn, values.Event("bench", f"{name} {len(took)}", "title", "body", audience="everyone"))
            conn.commit()
            took.append((time.monotonic(), time.perf_counter() - started))
            time.sleep(_PAUSE_S)
    answers.put(took)


def p99_ms(dsn: str, name: str, work: Callable[[], object]) -> float:
    """Return the 99th percentile of an app's commits, in another process, while some work is done."""
    spawn = multiprocessing.get_context("spawn")
    answers, stop = spawn.Queue(), spawn.Event()
    process = spawn.Process(target=write_until, args=(dsn, name, stop, answers))
    process.start()
    time.sleep(2)  # it has to start
    began = time.monotonic()
    work()
    ended = time.monotonic()
    stop.set()
    took: list[float] = [seconds for at, seconds in answers.get() if began <= at <= ended]
    process.join()
    return statistics.quantiles(took, n=100)[98] * 1000


def writing(bench: Bench, dsn: str, rows: int, month: date) -> tuple[float, float]:
    """Return an app's p99 at rest, and while a month retires and is exported and verified."""
    bench.load(month, rows)

    def leave() -> None:
        bench.retire()
        bench.export()

    return p99_ms(dsn, "rest", lambda: time.sleep(10)), p99_ms(dsn, "busy", leave)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows to export and restore")
    parser.add_argument(
        "--retire-rows", type=int, default=1_000_000, help="rows to retire, and to export beside a writer"
    )
    asked = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relevo-bench-archive-") as given:
        folder = Path(given)
        (folder / "cold").mkdir()
        folder.chmod(0o777)  # the server writes its CSV here, maybe as somebody else
        with (
            fresh_database(sources="none", archive_folder=folder / "cold") as (dsn, settings),
            psycopg.connect(dsn, autocommit=True) as conn,
            app.build(settings, role="run-cycle") as built,
        ):
            conn.execute(_SQL["tune_session"])
            measure(Bench(built, conn, folder), dsn, asked.rows, asked.retire_rows, started)


Line = tuple[str, str, str]
Measured = tuple[list[Line], dict[str, float]]
"""Lines of the table, and the figures behind them."""


def measure(bench: Bench, dsn: str, rows: int, retire_rows: int, started: float) -> None:
    """Take all measures in turn."""
    parts = [measure_retiring(bench, rows, retire_rows), measure_copying(bench, rows)]
    parts.append(measure_writing(bench, dsn, retire_rows))
    whole = ("all of this", f"{time.monotonic() - started:.0f} s", "")
    figures: dict[str, float] = {}
    for _, found in parts:
        figures |= found
    publish("archive", [*(line for lines, _ in parts for line in lines), whole], figures)


def measure_retiring(bench: Bench, rows: int, retire_rows: int) -> Measured:
    """Take a month out of the hot tables, and move as many rows by DELETE."""
    say(f"Retiring {retire_rows:,} deliveries, and moving as many by DELETE …")
    bench.load(month_ago(6), retire_rows)
    detached_s, retired_s = bench.retire()
    bench.export()
    items = month_ago(15)
    bench.conn.execute(_SQL["load_items"], {"month": items, "rows": rows // 20})
    bench.retire()
    bench.export()
    bench.restore(items, "licitaciones")
    moved_month = month_ago(2)  # too young to be retired
    bench.load(moved_month, retire_rows)
    moved_s = bench.move(moved_month)
    lines = [
        (f"retiring {retire_rows:,} rows: DETACH, SET SCHEMA", f"{detached_s * 1000:.0f} ms", ""),
        ("DELETE … RETURNING in batches", f"{moved_s:.1f} s, {moved_s / detached_s:.0f} x", ">= 100 x"),
        ("  with sealing and counting", f"{retired_s * 1000:.0f} ms, {moved_s / retired_s:.0f} x", ""),
    ]
    figures = {"ratio_retire": moved_s / detached_s, "ratio_retire_whole": moved_s / retired_s}
    return lines, figures | {"retire_ms": detached_s * 1000}


def measure_copying(bench: Bench, rows: int) -> Measured:
    """Export and restore a month, beside COPY of the same rows out and in."""
    say(f"Exporting and restoring {rows:,} deliveries …")
    month = month_ago(7)
    bench.load(month, rows)
    cold = f"relevo_archive.{ENTITY}_{month:%Y_%m}"
    bench.retire()
    out_s, csv_bytes = bench.copy_out(cold)
    upload_s, verify_s = bench.export()
    out_s = min(out_s, bench.copy_out(cold)[0])
    in_s = bench.copy_in(cold)
    restore_s = bench.restore(month)
    in_s = min(in_s, bench.copy_in(cold))
    peak = rss_mb()
    size = restore.read_manifest(bench.store, ENTITY, month).bytes
    (bench.folder / "out.csv").unlink()
    figures = {
        "ratio_export": out_s / upload_s,
        "ratio_export_verified": out_s / (upload_s + verify_s),
        "ratio_restore": in_s / restore_s,
        "ratio_size": size / csv_bytes,
        "export_rows_per_s": rows / upload_s,
        "restore_rows_per_s": rows / restore_s,
        "rss_mb": peak,
    }
    lines = [
        ("COPY TO csv", f"{rows / out_s:,.0f} rows/s", ""),
        ("export to zstd Parquet", f"{rows / upload_s:,.0f} rows/s, {figures['ratio_export']:.2f} x", ">= 0.4 x"),
        ("  with reading back and comparing", f"{rows / (upload_s + verify_s):,.0f} rows/s", ""),
        ("size of the files", f"{size / 1e6:.0f} MB, {figures['ratio_size']:.2f} of the csv", "<= 0.25"),
        ("COPY FROM csv", f"{rows / in_s:,.0f} rows/s", ""),
        ("restore, checked", f"{rows / restore_s:,.0f} rows/s, {figures['ratio_restore']:.2f} x", ">= 0.5 x"),
        ("peak memory", f"{peak:.0f} MB", "<= 400 MB"),
    ]
    return lines, figures


def measure_writing(bench: Bench, dsn: str, retire_rows: int) -> Measured:
    """Enqueue at rest, and while a month leaves."""
    say(f"Writing while {retire_rows:,} deliveries retire and are exported …")
    at_rest, busy = writing(bench, dsn, retire_rows, month_ago(8))
    lines = [
        ("p99 of enqueue at rest", f"{at_rest:.2f} ms", ""),
        ("  while a month leaves", f"{busy:.2f} ms, {busy / at_rest:.2f} x", "<= 3 x"),
    ]
    return lines, {"ratio_enqueue_p99": busy / at_rest, "enqueue_p99_ms": busy}


if __name__ == "__main__":
    main()
