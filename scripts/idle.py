"""What replicas cost that have nothing to do: CPU per replica and minute, of the workers and of PostgreSQL."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from benching import fresh_database, publish, say
from relevo import door
from relevo.door import Event

_RELEVO = Path(sys.executable).with_name("relevo")
_SETTLE_S = 75.0  # pauses between rounds that find nothing grow up to half a minute
_TICK_MS = 1_000 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Start replicas, let them come to rest, and measure them for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--wakeups", type=float, default=0.0, help="events a minute, to nobody")
    asked = parser.parse_args()
    with fresh_database() as (dsn, _), psycopg.connect(dsn, autocommit=True) as conn:
        environ = os.environ | {"DATABASE_URL": dsn, "LOG_LEVEL": "error"}
        replicas = [
            subprocess.Popen([_RELEVO, "run"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(asked.replicas)
        ]
        try:
            say(f"{asked.replicas} replicas come to rest")
            time.sleep(_SETTLE_S)
            publish("idle", *_measure(conn, [each.pid for each in replicas], asked.seconds, asked.wakeups))
        finally:
            for each in replicas:
                each.terminate()
            for each in replicas:
                each.wait(60)


def _measure(
    conn: psycopg.Connection[Any], replicas: list[int], seconds: float, wakeups: float
) -> tuple[list[tuple[str, str, str]], dict[str, float]]:
    row = conn.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    server = _parent(row[0])
    before = _cpu_ms(replicas), _tree_ms(server)
    until = time.monotonic() + seconds
    n = 0
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 60 / wakeups if wakeups else left))
        if wakeups:
            n += 1
            door.enqueue(conn, Event("idle", str(n), "Hello", audience="everyone"))
    spent = _cpu_ms(replicas) - before[0], _tree_ms(server) - before[1]
    workers, postgres = (each / len(replicas) / seconds * 60 for each in spent)
    rows = [
        (f"worker, per replica and minute ({len(replicas)} replicas)", f"{workers:,.0f} ms", "reported"),
        ("PostgreSQL, per replica and minute", f"{postgres:,.0f} ms", "reported"),
    ]
    return rows, {"replicas": len(replicas), "worker_ms": workers, "postgres_ms": postgres}


def _cpu_ms(pids: Iterable[int]) -> float:
    return sum(_spent_ms(pid, ended=False) for pid in pids)


def _tree_ms(server: int) -> float:
    """Return what a server and its processes have spent, those that ended included."""
    children = [
        int(pid.name) for pid in Path("/proc").iterdir() if pid.name.isdigit() and _parent(int(pid.name)) == server
    ]
    return _spent_ms(server, ended=True) + _cpu_ms(children)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["?"] + ["0"] * 20


def _spent_ms(pid: int, *, ended: bool) -> float:
    fields = _stat(pid)
    return sum(int(fields[n]) for n in ((11, 12, 13, 14) if ended else (11, 12))) * _TICK_MS


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


if __name__ == "__main__":
    main()
