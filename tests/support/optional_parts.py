"""The parts of a machine that no package brings: how to tell that one is here, and what to do for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

KITS_INSTALLED = Path(__file__).parents[2] / "server" / "clients" / "node_modules" / ".installed"
"""Written once the kits' packages are installed."""


def _where(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def _may_ask_npm() -> bool:
    """Tell whether npm is here and may be asked for a package: its registry is not ours to rely on."""
    return os.environ.get("RELEVO_TEST_NPM") == "1" and _where("node") is not None and _where("npm") is not None


def _may_build_kits() -> bool:
    """Tell whether the kits of server/clients can be built: their packages are there, or may be asked for."""
    asked = "1" in (os.environ.get("RELEVO_TEST_KITS"), os.environ.get("RELEVO_TEST_NPM"))
    return (asked or KITS_INSTALLED.exists()) and _where("node") is not None and _where("npm") is not None


@cache
def _may_mount() -> bool:
    """Tell whether a file system can be mounted here: some containers let not even root do so."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def find_part(part: str) -> str:
    """Return the path of an optional part; its absence is a failure here."""
    found = _where(part)
    assert found, OPTIONAL_PARTS[part][1]
    return found


OPTIONAL_PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "pgbouncer": (lambda: _where("pgbouncer") is not None, "install pgbouncer (Debian: apt-get install pgbouncer)"),
    "cosmic-ray": (lambda: find_spec("cosmic_ray") is not None, "let `make soak` install it from a package index"),
    "nginx": (lambda: _where("nginx") is not None, "install nginx (Debian: apt-get install nginx-light)"),
    "haproxy": (lambda: _where("haproxy") is not None, "install HAProxy (Debian: apt-get install haproxy)"),
    "ps": (lambda: _where("ps") is not None, "install ps (Debian: apt-get install procps)"),
    "npm-packages": (
        _may_ask_npm,
        "set RELEVO_TEST_NPM=1, with Node.js 20 or newer and npm (Debian: apt-get install nodejs npm),",
    ),
    "kits": (
        _may_build_kits,
        "set RELEVO_TEST_KITS=1, with Node.js 20 or newer and npm (Debian: apt-get install nodejs npm),",
    ),
    "npm": (lambda: _where("npm") is not None, "install npm (Debian: apt-get install npm)"),
    "chromium-headless-shell": (
        lambda: _where("chromium-headless-shell") is not None,
        "install a headless Chromium (Debian: apt-get install chromium-headless-shell)",
    ),
    "node": (lambda: _where("node") is not None, "install Node.js (Debian: apt-get install nodejs)"),
    "prometheus": (lambda: _where("prometheus") is not None, "install Prometheus (Debian: apt-get install prometheus)"),
    "promtool": (lambda: _where("promtool") is not None, "install promtool (Debian: apt-get install prometheus)"),
    "systemd-analyze": (
        lambda: _where("systemd-analyze") is not None,
        "install systemd (Debian: apt-get install systemd)",
    ),
    "linux": (lambda: sys.platform == "linux", "run on Linux"),
    "mount": (_may_mount, "run as root on Linux, where file systems may be mounted,"),
    "root": (lambda: os.geteuid() == 0, "run as root"),
}

NEVER_REQUIRED = {"cosmic-ray", "npm-packages", "mount", "systemd-analyze"}
"""What hangs on a registry of others, or on what a container may do: no installing brings it."""
