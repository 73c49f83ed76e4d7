"""Shared parts of the benchmarks: a durable server of their own, medians, a table, a JSON file in .relevo/bench/."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from relevo import config, embedded
from relevo.config import Settings
from relevo.database import migrate
from relevo.database.pool import Database

RESULTS = Path(".relevo") / "bench"
_console = Console(highlight=False)


@contextmanager
def fresh_database(server: Mapping[str, str] | None = None, **settings: object) -> Iterator[tuple[str, Settings]]:
    """Start a durable server in a temporary folder, migrate it, and hand out its DSN and settings for it.

    `server` has settings of PostgreSQL itself.
    """
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        chosen = {"shared_buffers": "512MB", "max_wal_size": "4GB"} | dict(server or {})
        with embedded.acquire(Path(folder) / "postgres", settings=chosen) as started:
            environ = {"DATABASE_URL": started.dsn} | {name.upper(): str(value) for name, value in settings.items()}
            loaded = config.load(environ, None)
            database = Database(started.dsn, started.dsn, loaded)
            migrate.migrate(database)
            database.close()
            yield started.dsn, loaded
        _wait_until_gone(Path(folder) / "postgres")


def _wait_until_gone(data: Path) -> None:
    """Wait for the server, which writes its last checkpoint after its last user left."""
    deadline = time.monotonic() + 120
    while any(data.rglob("postmaster.pid")) and time.monotonic() < deadline:
        time.sleep(0.2)


def timed(work: Callable[[], Any]) -> float:
    """Return how many seconds some work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rss_mb() -> float:
    """Return the peak memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024 / 1024


def say(sentence: str) -> None:
    """Print the progress."""
    _console.print(sentence, style="dim")


def publish(name: str, rows: list[tuple[str, str, str]], figures: Mapping[str, float]) -> None:
    """Print the table and write the figures."""
    table = Table("what", "measured", "goal", title=f"bench-{name}", title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    _console.print(table)
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{name}.json"
    target.write_text(json.dumps({key: round(value, 4) for key, value in figures.items()}, indent=2) + "\n")
    _console.print(f"Written to {target}", style="dim")
