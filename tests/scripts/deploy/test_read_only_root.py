"""On a read-only root file system Relevo migrates and runs, with one writable folder for temporary files."""

from __future__ import annotations

import shlex
import sys
import urllib.request
from pathlib import Path

import pytest

from support.http_server import free_port
from support.processes import NOWHERE, Process, eventually


@pytest.mark.needs("mount")
def test_it_runs(empty_database: str, tmp_path: Path) -> None:
    """In a process of its own file systems the root may not be written to; Relevo becomes ready all the same, and stops."""
    port, python = free_port(), shlex.quote(sys.executable)
    program = f"""
        mount -t tmpfs tmpfs /mnt && mount -o remount,ro,bind / || exit 90
        if touch /root/written 2>/dev/null; then exit 91; fi
        cd / && {python} -m relevo migrate && exec {python} -m relevo run
    """
    environ = {
        "PATH": "/usr/bin:/bin",
        "DATABASE_URL": empty_database,
        "EXPO_BASE_URL": NOWHERE,
        "HTTP_PORT": str(port),
        "RELEVO_INSTANCE": "read-only",
        "TMPDIR": "/mnt",
    }
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", program]
    process = Process(words, environ, tmp_path, "relevo")

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        eventually(is_ready, lambda: f"it is ready: {process.stderr[-2000:]}")
        assert process.stops() == 0, process.stderr
    finally:
        process.kill()
