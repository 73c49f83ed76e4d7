"""A streaming standby of an embedded server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from relevo.embedded import binaries


def stream(dsn: str, home: Path, standby: Path) -> None:
    """Make a standby of a running server: its files, and the way to what is written from now on."""
    standby.mkdir(parents=True)
    subprocess.run(
        [binaries.find(None) / "pg_basebackup", "-d", dsn, "-D", standby / "data", "-X", "stream", "-R", "-c", "fast"],
        check=True,
        capture_output=True,
    )
    shutil.copy(home / "password", standby / "password")
