"""As which user the server's programs run: our own, or, because PostgreSQL refuses root, an unprivileged one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relevo.core.errors import EmbeddedError

NOBODY = 65534
INTERRUPT_AT_OUR_END = ("setpriv", "--pdeathsig=INT")


@dataclass(frozen=True, slots=True)
class Identity:
    """How to start a server program, and to whom its files belong."""

    wrap: tuple[str, ...] = ()
    switch: tuple[int, int] | None = None

    def popen(self) -> dict[str, Any]:
        """Arguments for subprocess.Popen."""
        if self.switch is None:
            return {}
        return {"user": self.switch[0], "group": self.switch[1], "extra_groups": []}

    def own(self, path: Path) -> None:
        """Hand a file, or a folder with all that is in it, to the server's user, if it is not its already."""
        uid, gid = self.switch or (os.geteuid(), os.getegid())
        if os.geteuid() != 0 or path.stat().st_uid == uid:
            return
        for below in path.rglob("*"):
            os.chown(below, uid, gid, follow_symlinks=False)
        os.chown(path, uid, gid)

    def close_off(self, folder: Path) -> None:
        """Restrict the folder to us and, if it is someone else, the server's user."""
        if self.switch is not None:
            os.chown(folder, -1, self.switch[1])
        folder.chmod(0o700 if self.switch is None else 0o710)


def choose() -> Identity:
    """The first way that works here. A user namespace needs no second user and no open folders."""
    if os.geteuid() != 0:
        return Identity()
    uid, gid = _plain_user()
    namespace = ("unshare", "--user", f"--map-user={uid}", f"--map-group={gid}")
    if works(namespace):
        return Identity(wrap=namespace)
    switched = Identity(switch=(uid, gid))
    if works((), **switched.popen()):
        return switched
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and neither a user namespace nor another user may be used here.",
        hint="Run Relevo as an ordinary user, or set DATABASE_URL to a server of yours.",
    )


def works(wrap: tuple[str, ...], **popen: Any) -> bool:
    """Does a command run when it is started this way?"""
    if wrap and shutil.which(wrap[0]) is None:
        return False
    try:
        return subprocess.run([*wrap, "true"], capture_output=True, check=False, **popen).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _plain_user() -> tuple[int, int]:
    """Nobody, or else anyone but root: initdb insists on a user that has a name."""
    users = {user.pw_uid: user.pw_gid for user in pwd.getpwall() if user.pw_uid and user.pw_gid}
    uid = NOBODY if NOBODY in users else next(iter(users), NOBODY)
    return uid, users.get(uid, NOBODY)
