"""What the guardian tells its users: where the server is, or why there is none."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

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


def read(path: Path) -> State | None:
    """The last word, if there is one; a file that was damaged says nothing."""
    try:
        found = State(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return None
    numbers, texts = (found.guardian, found.version, found.port, found.pid), (found.bin, found.message, found.hint)
    sound = all(type(each) is int for each in numbers) and all(type(each) is str for each in texts)
    return found if sound and found.status in get_args(Status) else None
