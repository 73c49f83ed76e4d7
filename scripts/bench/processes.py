"""The CPU time of processes, by the kernel's own count; not a number where there is no /proc."""

from __future__ import annotations

import math
import os
from pathlib import Path

_PROC = Path("/proc")
_TICK_MS = 1_000 / os.sysconf("SC_CLK_TCK")


def are_counted() -> bool:
    """Return whether the kernel counts the CPU time of a process to the nanosecond."""
    return (_PROC / "self" / "schedstat").exists()


def spent_ms(pid: int, *, ended: bool = False) -> float:
    """Return the CPU time of a process with all its threads, and of its children that ended if asked for."""
    fields = _stat(pid)
    return sum(int(fields[n]) for n in ((11, 12, 13, 14) if ended else (11, 12))) * _TICK_MS if fields else math.nan


def threads_ms(pid: int) -> float:
    """Return the CPU time of a process's threads that live, to the nanosecond."""
    return sum(_exact_ms(f"{pid}/task/{thread.name}") for thread in (_PROC / str(pid) / "task").iterdir())


def server_ms(server: int) -> float:
    """Return what a PostgreSQL server has spent: its processes to the nanosecond, those that ended by the tick."""
    if not are_counted():
        return math.nan
    children = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit() and parent_of(path.name) == server]
    return sum(_exact_ms(pid) for pid in children) + spent_ms(server, ended=True)


def parent_of(pid: int | str) -> int:
    """Return the process that started this one; 0 if nobody knows."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def memory_mb(pid: int | str = "self") -> float:
    """Return how much of a process lies in memory."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def backend_us(pid: int) -> float:
    """Return what one backend has spent, in microseconds."""
    return _exact_ms(pid) * 1_000


def _exact_ms(pid: int | str) -> float:
    try:
        return int((_PROC / str(pid) / "schedstat").read_text(encoding="ascii").split()[0]) / 1e6
    except OSError:  # it ended just now, or the kernel does not count
        return 0.0


def _stat(pid: int | str) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
