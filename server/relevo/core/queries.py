"""The named statements of `sql/`: loaded once, looked up by name."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"^-- name: (?P<name>[a-z_]+)\n(?P<body>.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def sql_root() -> Path:
    """Return the folder of SQL files: inside an installed wheel, or the checkout's own."""
    from pathlib import Path  # noqa: PLC0415 whoever imports the verbs and sends nothing does not wait for it

    packaged = Path(__file__).parents[1] / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"


class Statements(dict[str, bytes]):
    """The statements of some files, by name."""

    def __init__(self, *texts: str) -> None:
        super().__init__((m["name"], m["body"].strip().encode()) for text in texts for m in _BLOCK.finditer(text))


@cache
def load(*steps: str) -> Statements:
    """Load `sql/queries/<step>.sql`, one or several."""
    return Statements(*((sql_root() / "queries" / f"{step}.sql").read_text(encoding="utf-8") for step in steps))
