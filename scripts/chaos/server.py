"""The PostgreSQL of a run, which can be put back to an earlier state, on a disk of its own that can be full."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from chaos.parts import find
from relevo import embedded
from relevo.embedded import cluster
from relevo.embedded.layout import Layout

DISK_BYTES = 3_000_000_000
LEFT_BYTES = 16_384
"""The space left on a full disk."""
PATIENCE_S = 120.0


class FaultNotMadeError(Exception):
    """A fault could not be made, with the reason; the run goes on without it."""


class Disk:
    """A file system in memory, whose size can be changed while it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def mount(cls, folder: Path) -> Disk | None:
        """Make one where this user may; None where not."""
        folder.mkdir(mode=0o711)
        if os.geteuid() != 0 or find("mount") is None:
            return None
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0711", "relevo-chaos", str(folder)],
            check=False,
            capture_output=True,
        )
        return cls(folder) if made.returncode == 0 else None

    def fill(self) -> bool:
        """Leave next to nothing on it; return whether that worked."""
        for _ in range(50):  # somebody may write in this moment
            now = os.statvfs(self.folder)
            if self._resize((now.f_blocks - now.f_bfree) * now.f_frsize + LEFT_BYTES):
                return True
        return False

    def make_room(self) -> None:
        """Free the disk again."""
        assert self._resize(DISK_BYTES), f"{self.folder} stays full"

    def unmount(self) -> None:
        """Take it away with all that is on it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False, capture_output=True)

    def _resize(self, size: int) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


class Server:
    """The server; its address stays the same through all that befalls it."""

    def __init__(self, folder: Path, settings: Mapping[str, str], disk: Disk | None) -> None:
        self._layout, self._settings, self.disk = Layout(folder), settings, disk
        self._held = self._acquire()
        self.dsn, self.log = self._held.dsn, self._layout.postgres_log
        self._backup = folder.with_name("backup")
        if disk is not None:
            self.down()
            shutil.move(self._layout.data, disk.folder / "data")
            self._layout.data.symlink_to(disk.folder / "data")
            self.up()

    def up(self) -> None:
        """See to it that it runs."""
        held = self._acquire()
        self._held.release()
        self._held = held
        assert held.dsn == self.dsn, "the server has another address than before"

    def down(self) -> None:
        """Stop it."""
        self._held.release()
        deadline = time.monotonic() + PATIENCE_S
        while cluster.running(self._layout) and time.monotonic() < deadline:
            time.sleep(0.1)

    def can_be_backed_up(self) -> bool:
        """Return whether the program for it is there."""
        return (self._held.bin / "pg_basebackup").exists()

    def back_up(self) -> None:
        """Take a base backup while it runs."""
        shutil.rmtree(self._backup, ignore_errors=True)
        command = [str(self._held.bin / "pg_basebackup"), "--dbname", self.dsn, "--pgdata", str(self._backup)]
        options = ["--checkpoint=fast", "--no-sync"]
        try:
            subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=PATIENCE_S)
        except (subprocess.SubprocessError, OSError) as error:
            words = str(getattr(error, "stderr", None) or error).strip()
            raise FaultNotMadeError(f"pg_basebackup failed: {words[-500:]}") from error

    def restore(self, before_up: Callable[[], None] = lambda: None) -> float:
        """Put the backup in the place of what there is; return when the old was gone, and nothing new was there."""
        self.down()
        time.sleep(0.5)  # who was answered in the last moment notes it
        data = self._layout.data.resolve()
        shutil.rmtree(data)
        shutil.move(self._backup, data)
        at = time.time()
        before_up()
        self.up()
        return at

    def _acquire(self) -> embedded.Embedded:
        return embedded.acquire(self._layout.folder, settings=self._settings, wait_s=PATIENCE_S, linger_s=0.2)
