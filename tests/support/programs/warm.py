"""Starts `relevo`, or a program like it, from a process that has loaded it: loading is most of what a start costs.

Each line on stdin asks for one start: the words, the environment, the folder, and the files for what is printed, what is
logged and the exit code. The answer is the process id. It is a process of its own, with a normal end.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

from relevo import app, cli, http  # noqa: F401 loaded for those that are started
from relevo.app import service  # noqa: F401 loaded for those that are started


def next_start() -> dict[str, Any] | None:
    """Return in each process that is started what it is to be, and None in this one when nobody asks any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who wait for the processes are waited for by nobody
    for line in sys.stdin:
        start: dict[str, Any] = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (child := os.fork()) == 0:
                return start
            keep_code(child, start["code"])
    return None


def keep_code(child: int, path: str) -> None:
    """Tell the process id, wait for its end, and write the exit code, as subprocess tells it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, f"{child}\n".encode())
    os.close(0)
    os.close(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(FileNotFoundError):  # the test is over, and its folder gone
        whole = Path(f"{path}.new")
        whole.write_text(str(code), encoding="utf-8")
        whole.rename(path)
    os._exit(0)


def become(start: dict[str, Any]) -> None:
    """Take over the words, the environment, the folder and the files."""
    os.chdir(start["folder"])
    os.environ.clear()
    os.environ.update(start["environ"])
    time.tzset()
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for place, path, flags in ((0, os.devnull, os.O_RDONLY), (1, start["out"], written), (2, start["log"], written)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, place)
        os.close(opened)
    sys.argv = start["words"]


if __name__ == "__main__":
    asked = next_start()
    if asked is not None:
        become(asked)
        runpy.run_path(sys.argv[0], run_name="__main__")
