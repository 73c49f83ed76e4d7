"""Turning what PostgreSQL, initdb and the operating system say into words with a next step."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relevo.core.errors import EmbeddedError
from relevo.embedded.layout import Layout

FULL = (errno.ENOSPC, errno.EDQUOT)
NEARLY_FULL_BYTES = 256 * 1024
QUOTED_LINES = 8


class PortTakenError(EmbeddedError):
    """The server could not have the port it was given."""


def explain(what: str, output: str, layout: Layout) -> EmbeddedError:
    """The error for a program that ended with this output."""
    # On a full disk the log may lack the very line that says so.
    if "No space left on device" in output or nearly_full(layout.folder):
        return disk_full(layout.folder)
    if "could not bind" in output or "could not create any TCP/IP sockets" in output:
        return PortTakenError(
            f"{what} failed: its port on 127.0.0.1 cannot be bound.",
            hint=f"Stop what else uses the port named in {layout.port}, or remove that file.",
        )
    if "Permission denied" in output:
        return EmbeddedError(
            f"{what} failed: permission denied.{quote(output, layout)}",
            hint=f"Make {layout.folder} and the folders above it accessible to its user, or choose another.",
        )
    return EmbeddedError(f"{what} failed.{quote(output, layout)}", hint=f"See {layout.postgres_log}.")


def disk_full(folder: Path) -> EmbeddedError:
    """No room for the server's files."""
    return EmbeddedError(
        f"The disk that holds {folder} is full.", hint="Free some space, or choose a folder on another disk."
    )


def nearly_full(folder: Path) -> bool:
    """Is there too little room to even write a log line or a state file?"""
    try:
        return shutil.disk_usage(folder).free < NEARLY_FULL_BYTES
    except OSError:
        return False


def quote(output: str, layout: Layout) -> str:
    """The last lines of an output, to be shown to people: without the password, whatever was logged."""
    if layout.password.exists() and (password := layout.password.read_text().strip()):
        output = output.replace(password, "***")
    lines = [f"\n  {line}" for line in output.splitlines() if line.strip()]
    return " Its last words:" + "".join(lines[-QUOTED_LINES:]) + "\n" if lines else " It said nothing."


def tail(path: Path, start: int = 0) -> str:
    """Return a log from a byte on, but no more than its last few kilobytes."""
    try:
        with path.open("rb") as log:
            log.seek(max(start, path.stat().st_size - 8192))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def in_words(folder: Path) -> Iterator[None]:
    """Every complaint of the operating system about the folder becomes one of ours."""
    try:
        yield
    except OSError as error:
        raise _folder_trouble(folder, error) from error


def _folder_trouble(folder: Path, error: OSError) -> EmbeddedError:
    if error.errno in FULL:
        return disk_full(folder)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return EmbeddedError(
            f"The embedded server's folder {folder} is not writable for us: {error}.",
            hint="Choose a folder that this user owns.",
        )
    return EmbeddedError(
        f"The embedded server's folder {folder} cannot be used: {error}.",
        hint="Choose a folder on a local disk.",
    )
