"""The parts of a machine that no package brings: how to tell that one is here, and what to do for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache


def _where(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


@cache
def _npm_has(package: str) -> bool:
    """Tell whether npm is here and its registry answers."""
    if _where("node") is None or _where("npm") is None:
        return False
    try:
        asked = subprocess.run(["npm", "view", package, "version"], capture_output=True, timeout=15, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def find_part(part: str) -> str:
    """Return the path of an optional part; its absence is a failure here."""
    found = _where(part)
    assert found, OPTIONAL_PARTS[part][1]
    return found


OPTIONAL_PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "pgbouncer": (lambda: _where("pgbouncer") is not None, "install pgbouncer (Debian: apt-get install pgbouncer)"),
    "ps": (lambda: _where("ps") is not None, "install ps (Debian: apt-get install procps)"),
    "expo-server-sdk": (
        lambda: _npm_has("expo-server-sdk"),
        "install Node.js 20 or newer with npm (Debian: apt-get install nodejs npm) that reaches its registry",
    ),
    "chromium-headless-shell": (
        lambda: _where("chromium-headless-shell") is not None,
        "install a headless Chromium (Debian: apt-get install chromium-headless-shell)",
    ),
    "linux": (lambda: sys.platform == "linux", "run on Linux"),
    "root": (lambda: os.geteuid() == 0, "run as root"),
}

NEVER_REQUIRED = {"expo-server-sdk"}
"""What hangs on a registry of others, and not on the machine."""
