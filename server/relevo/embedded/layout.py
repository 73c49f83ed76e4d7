"""Files in the embedded server's folder, and the messages of its guardian there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args


class Layout:
    """The names of everything in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users_lock = folder / "users.lock"
        """Shared by every user; the guardian stops the server when it has this lock for itself."""
        self.start_lock = folder / "start.lock"
        """Held by a user for the moment in which it looks for a guardian and starts one."""
        self.guardian_lock = folder / "guardian.lock"
        """Held by the one guardian as long as it lives."""
        self.server_lock = folder / "server.lock"
        """Inherited by initdb, postgres and all their children: free means that none of them is left."""
        self.state = folder / "state.json"
        """The guardian's last message."""
        self.password = folder / "password"
        """The superuser's password, for the owner's eyes only."""
        self.port = folder / "port"
        """The port the server had last, and will have again if it is free."""
        self.data = folder / "data"
        """PostgreSQL's data folder; if it exists it is complete."""
        self.data_new = folder / "data.new"
        """A data folder in the making."""
        self.postgres_log = folder / "postgres.log"
        """The words of initdb and postgres."""
        self.guardian_log = folder / "guardian.log"
        """The words of the guardian."""


Status = Literal["starting", "ready", "stopping", "failed"]


@dataclass(frozen=True, slots=True)
class State:
    """The guardian's last word, as one small file that is replaced in one step."""

    status: Status
    guardian: int
    version: int
    bin: str
    port: int = 0
    pid: int = 0
    message: str = ""
    hint: str = ""

    def publish(self, path: Path) -> None:
        """Replace what was said before; a reader sees either the old word or the new one."""
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(path)


def read_state(path: Path) -> State | None:
    """The last word, if there is one; a file that was damaged says nothing."""
    try:
        found = State(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return None
    numbers, texts = (found.guardian, found.version, found.port, found.pid), (found.bin, found.message, found.hint)
    sound = all(type(each) is int for each in numbers) and all(type(each) is str for each in texts)
    return found if sound and found.status in get_args(Status) else None
