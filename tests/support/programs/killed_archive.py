"""Runs cleanup and archive-export in processes that kill themselves at a named statement or call of the store.

Reads one task per line, as JSON, and answers each with a line, as killed.py does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import adbc_driver_postgresql.dbapi
import psycopg

from relevo import app, config
from relevo.archive import parquet
from relevo.core import logs, queries
from relevo.cycles import export
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Cron
from relevo.stores.folder import FolderStore

LOADED = (parquet, adbc_driver_postgresql.dbapi)  # before the first fork, for it takes a while
STEPS = ("cleanup", "retire", "export", "marker")
CALLS = ("put", "fetch", "listing", "tidy")
Counts = Counter[str]


def run(task: Mapping[str, Any], counts: Counts) -> str:
    """Run one cycle once, by hand, and return how it ended."""
    environ = {
        "DATABASE_URL": sys.argv[1],
        "ARCHIVE_FOLDER": sys.argv[2],
        "ARCHIVE_PART_ROWS": "20",
        "SOURCES": "none",
        "RUNS_RETENTION_DAYS": "3650",
    }
    settings = config.load(environ, None)
    watch(task.get("kill"), counts)
    with app.build(settings, app.Parts(cycles=[later]), role="run-cycle") as built:
        built.worker.record_start("run-cycle", [task["cycle"]])
        report = built.runner.run(built.registry[task["cycle"]], "manual")
        assert report.outcome in ("ok", "idle"), report
        return report.outcome


def later(settings: config.Settings, _claims: object) -> Cycle:
    """Make archive-export as it will be when every grace is over."""
    store = app.archive_store(settings)
    assert store is not None
    now = datetime.now(UTC) + timedelta(days=30)
    nightly = Cron(settings.archive_export_cron, settings.worker_timezone)
    return Cycle(
        "later", nightly, lambda run: export.Export(replace(run, clock=lambda: now), store).step(), singleton=True
    )


def watch(kill: Mapping[str, Any] | None, counts: Counts) -> None:
    """Count the named statements and calls as they are made, and kill this process before or after one of them."""
    names = {body: f"{step}.{name}" for step in STEPS for name, body in queries.load(step).items()}

    def watched(original: Callable[..., Any], name_of: Callable[..., str | None]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args)
            if name is None:
                return original(*args, **kwargs)
            counts[name] += 1
            due = kill is not None and (kill["name"], kill["nth"]) == (name, counts[name])
            if due and kill is not None and kill["when"] == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return original(*args, **kwargs)
            finally:
                if due:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    psycopg.Cursor.execute = watched(  # type: ignore[method-assign]
        psycopg.Cursor.execute, lambda _self, query, *_: names.get(query) if isinstance(query, bytes) else None
    )
    for each in CALLS:
        setattr(
            FolderStore, each, watched(getattr(FolderStore, each), lambda _self, key, *_, each=each: named(each, key))
        )


def named(call: str, key: str) -> str:
    """Name a call of the store by what it is about."""
    return f"store.{call} {key.rpartition('/')[2].partition('-')[0]}".strip()


def fork(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task in a process of its own, and tell how that ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        counts: Counts = Counter()
        os.close(reading)
        try:
            outcome = run(task, counts)
            os.write(writing, json.dumps({"outcome": outcome, "counts": counts}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0} | json.loads(said or "{}")


def main() -> None:
    """Answer task by task until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logs.configure("error", "json")
    for line in sys.stdin:
        answers.write(json.dumps(fork(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
