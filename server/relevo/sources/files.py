"""Files dropped into a folder: any number of them, the longest waiting first, in bounded memory.

A cursor keeps an entry for each of the files handled last, and `passed`: the change time and name up to which all
others count as handled. The change time is the file system's own (ctime), so a file that was moved or copied in with
its old date is news all the same. `passed_count` tells how many files lie behind that mark; if there are suddenly more
(a clock that was set back, a restored backup), the folder is walked from its start again: nothing is told twice.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from stat import S_ISREG
from typing import Any

import structlog

from relevo.sources.text import file_name

_log = structlog.get_logger("relevo.sources.files")

MAX_TRACKED = 1_000
MOST_AT_ONCE = 1_000
MAX_CURSOR_BYTES = 800_000  # the database takes a million
_SETTLED_NS = 60 * 10**9  # a writer may still be at it
_GRANULARITY_NS = 2 * 10**9  # file systems tell a change time in steps, some of two seconds

Mark = tuple[int, str]


@dataclass(frozen=True, order=True)
class DroppedFile:
    """A file as the folder shows it."""

    changed_ns: int
    name: str
    """As text that can be stored."""
    stamp: tuple[int, int, int] = field(compare=False)
    path: Path = field(compare=False)


class DropFolder:
    """A folder that files are dropped into; those that were handled are kept, or moved to `done` if there is one."""

    def __init__(self, folder: Path, suffixes: tuple[str, ...], done: Path | None = None) -> None:
        self._folder = folder
        self._suffixes = suffixes
        self._done = done

    def look(self, cursor: Mapping[str, Any], is_handled: Callable[[Mapping[str, Any], DroppedFile], bool]) -> Look:
        """Walk the folder once and return what waits in it, and what is known of the rest; raises OSError."""
        known: Mapping[str, Any] = cursor.get("files") or {}
        passed: Mark | None = tuple(cursor["passed"]) if "passed" in cursor else None
        seen: dict[str, DroppedFile] = {}
        behind = 0

        def not_handled() -> Iterator[DroppedFile]:
            nonlocal behind
            for dropped in self._walk():
                if dropped.name in known:
                    seen[dropped.name] = dropped
                    if is_handled(known[dropped.name], dropped):
                        continue
                elif passed is not None and (dropped.changed_ns, dropped.name) <= passed:
                    behind += 1
                    continue
                yield dropped

        waiting = heapq.nsmallest(MOST_AT_ONCE, not_handled())
        if passed is not None and behind > int(cursor.get("passed_count", 0)):
            _log.info("folder_scanned_again", folder=str(self._folder), why="files appeared behind what was handled")
            return self.look({"files": known}, is_handled)
        files = {name: entry for name, entry in known.items() if name in seen}
        return Look(files, waiting, seen, passed, behind, more=len(waiting) == MOST_AT_ONCE)

    def _walk(self) -> Iterator[DroppedFile]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                is_ours = not entry.name.startswith(".") and entry.name.lower().endswith(self._suffixes)
                if is_ours and (dropped := _dropped(entry, file_name(entry.name))):
                    yield dropped

    def find(self, name: str) -> DroppedFile | None:
        """Return a file by its name, else the last of those that were moved under it; None if it is gone."""
        with suppress(OSError):
            found = _dropped(_path_of(self._folder, name), name)
            if found or self._done is None:
                return found
            moved = takewhile(Path.exists, _places(_path_of(self._done, name)))
            return max(filter(None, (_dropped(path, name) for path in moved)), default=None)
        return None

    def move_handled(self, look: Look) -> None:
        """Move away what was handled, committed, and has not changed for a while; what cannot be moved stays."""
        if self._done is None:
            return
        now_ns = time.time_ns()  # by the clock that files are stamped with
        for name in [name for name in look.files if name in look.seen]:
            dropped = look.seen[name]
            if dropped in look.waiting or now_ns - dropped.stamp[2] < _SETTLED_NS:
                continue
            try:
                shutil.move(dropped.path, _free_name(self._done, dropped.path.name))
            except OSError as error:
                _log.warning("file_not_moved", file=name, error=type(error).__name__)
                return
            del look.files[name]


@dataclass
class Look:
    """The files that one walk through the folder found."""

    files: dict[str, Any]
    """The entries of the files that are still there."""
    waiting: list[DroppedFile]
    """Files that were not handled yet, the longest waiting first."""
    seen: dict[str, DroppedFile]
    passed: Mark | None
    behind: int
    more: bool
    """Whether there is more than fits into one look."""

    def cursor(self) -> dict[str, Any]:
        """Return the cursor after this look; beyond a number or size the oldest are only remembered by the mark.

        Nothing that may still share its change time with a file to come is passed by, as long as there is room.
        """
        now_ns = time.time_ns()
        oldest = sorted((int(entry.get("changed", 0)), name) for name, entry in self.files.items())
        sizes = {name: _size(name, entry) for name, entry in self.files.items()}
        room = MAX_CURSOR_BYTES - sum(sizes.values())
        for mark in oldest:
            if len(self.files) <= MAX_TRACKED and room >= 0:
                break
            fresh = mark[0] > now_ns - _GRANULARITY_NS and len(self.files) < 3 * MAX_TRACKED and room >= 0
            if fresh or self.files[mark[1]].get("unfinished"):
                break
            del self.files[mark[1]]
            room += sizes[mark[1]]
            self.passed = max(self.passed or mark, mark)
            self.behind += 1
        cursor: dict[str, Any] = {"files": self.files}
        if self.passed is not None:
            cursor |= {"passed": list(self.passed), "passed_count": self.behind}
        return cursor


def _dropped(place: os.DirEntry[str] | Path, name: str) -> DroppedFile | None:
    """Return the file that lies there; None if it is something else, gone since, or a link to nowhere."""
    with suppress(OSError):
        stat = place.stat()
        if S_ISREG(stat.st_mode):
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            return DroppedFile(stat.st_ctime_ns, name, stamp, Path(place))
    return None


def _path_of(folder: Path, name: str) -> Path:
    """Return where a file lies, by its name as text; only for one with bytes written out the folder is walked."""
    path = folder / Path(name).name
    if "\\" not in name or path.exists():
        return path
    return next((each for each in folder.iterdir() if file_name(each.name) == name), path)


def _places(path: Path) -> Iterator[Path]:
    """Yield where a file is moved to: this path, or the first behind it that is not taken."""
    yield path
    yield from (path.with_name(f"{path.name}.{number}") for number in count(1))


def _size(name: str, entry: Any) -> int:
    return len(json.dumps({name: entry}, ensure_ascii=False).encode())


def _free_name(folder: Path, name: str) -> Path:
    """Return a path that is not taken: what was handled before under this name is not overwritten."""
    return next(path for path in _places(folder / name) if not path.exists())
