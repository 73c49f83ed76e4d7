"""The data folder: making it, and the commands, files and port of the server that runs on it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries
from relevo.embedded.layout import Layout

LOG_LIMIT = 10 * 1024 * 1024
# Below those the system takes for outgoing connections, so that ours is still free when we come back.
PORTS = range(20_000, 32_000)
PORT_TRIES = 100
DEFAULTS = {"max_connections": "100", "shared_buffers": "128MB", "timezone": "UTC", "log_timezone": "UTC"}
# The contract with our users rests on these.
RESERVED = {"data_directory", "listen_addresses", "port", "unix_socket_directories"}
STATUS_LINE = 7
PROC = Path("/proc")


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse settings that are ours to choose."""
    if taken := RESERVED & settings.keys():
        raise EmbeddedError(
            f"The embedded server's {', '.join(sorted(taken))} cannot be set.",
            hint="Set DATABASE_URL to a server of yours to have a say in these.",
        )


def check_version(layout: Layout, folder: Path) -> None:
    """Refuse a data folder that was made by another major version; they do not read each other's files."""
    try:
        made_by = int((layout.data / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError) as error:
        raise EmbeddedError(
            f"{layout.data} is not a PostgreSQL data folder.",
            hint="Restore it from a backup, or remove it to start with an empty database.",
        ) from error
    if made_by == (major := binaries.version(folder)):
        return
    fitting = binaries.of_version(made_by)
    example = f" (there is one in {fitting})" if fitting else ""
    raise EmbeddedError(
        f"{layout.data} was made by PostgreSQL {made_by} and needs PostgreSQL {made_by}, "
        f"but the programs in {folder} are PostgreSQL {major}.",
        hint=f"Name the bin folder of a PostgreSQL {made_by}{example}; or dump the data with it, "
        f"remove {layout.folder} and load the dump into PostgreSQL {major}.",
    )


def make_password(layout: Layout) -> None:
    """Write a new random password that only the owner can read."""
    fd = os.open(layout.password, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(secrets.token_urlsafe(24))
        file.flush()
        os.fsync(file.fileno())


def initdb_command(folder: Path, layout: Layout, settings: Mapping[str, str]) -> list[str]:
    """Make a data folder in which nobody connects without the password."""
    made = [str(folder / "initdb"), f"--pgdata={layout.data_new}", "--encoding=UTF8", "--no-locale"]
    auth = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={layout.password}"]
    return [*made, *auth, *(["--no-sync"] if settings.get("fsync") == "off" else [])]


def settle(layout: Layout) -> None:
    """The new data folder is complete (initdb has synced it): give it its name, durably."""
    layout.data_new.rename(layout.data)
    fd = os.open(layout.folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_half_made(layout: Layout) -> None:
    """An earlier initdb did not get to its end; nothing of value can be in there."""
    if layout.data_new.exists():
        shutil.rmtree(layout.data_new)


def postgres_command(folder: Path, layout: Layout, port: int, settings: Mapping[str, str]) -> list[str]:
    """Run the server on loopback alone, without a socket file."""
    options = {**DEFAULTS, **settings, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    command = [str(folder / "postgres"), "-D", str(layout.data), "-p", str(port)]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    return command


def environment() -> dict[str, str]:
    """Ours, without anything that would change what the server or initdb does or says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C"}


def open_log(path: Path) -> BinaryIO:
    """A log to append to, emptied first if it grew too long."""
    log = path.open("ab")
    if log.tell() > LOG_LIMIT:
        log.truncate(0)
        log.seek(0)
    return log


def is_ready(layout: Layout, pid: int) -> bool:
    """Does the server say, in the file it keeps for this, that it takes connections?"""
    lines = _pid_lines(layout)
    return len(lines) > STATUS_LINE and lines[0].strip() == str(pid) and lines[STATUS_LINE].strip() == "ready"


def running(layout: Layout) -> int | None:
    """The process id of a server on our data folder, whoever started it.

    The number in postmaster.pid alone proves nothing: after a crash it may be anybody's.
    """
    lines = _pid_lines(layout)
    pid = int(lines[0]) if lines and lines[0].strip().isdecimal() else 0
    return pid if pid and _serves(pid, layout.data) else None


def remove_stale_pid(layout: Layout) -> None:
    """Take away what a crashed server left behind; the caller holds the server lock."""
    if pid := running(layout):
        raise EmbeddedError(
            f"Another PostgreSQL (process {pid}) that we did not start runs on {layout.data}.",
            hint=f"Stop it with: pg_ctl stop -D {layout.data}",
        )
    (layout.data / "postmaster.pid").unlink(missing_ok=True)


def choose_port(layout: Layout) -> int:
    """The port remembered in the folder, or a free one if that is taken."""
    remembered = layout.port.read_text(errors="replace").strip() if layout.port.exists() else ""
    wanted = [port for port in PORTS if str(port) == remembered]
    for port in (*wanted, *(secrets.choice(PORTS) for _ in range(PORT_TRIES))):
        if _is_free(port):
            return port
    raise EmbeddedError(
        f"No port between {PORTS[0]} and {PORTS[-1]} on 127.0.0.1 can be bound.",
        hint="Stop what uses them, or set DATABASE_URL to a server of yours.",
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server will: a port is not taken by connections that ended a moment ago.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _pid_lines(layout: Layout) -> list[str]:
    try:
        return (layout.data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _serves(pid: int, data: Path) -> bool:
    """Is this process a postgres on the data folder? A server's current folder is its data folder."""
    if PROC.exists():
        proc = PROC / str(pid)
        try:
            return (proc / "cwd").samefile(data) and (proc / "comm").read_text().startswith("post")
        except OSError:
            return False
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "postgres" in said and str(data) in said
