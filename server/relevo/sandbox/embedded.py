"""The sandbox of the embedded default: the first process brings it along, the others find it by its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import requests
import structlog

from relevo.sandbox.server import Sandbox

_log = structlog.get_logger("relevo.sandbox")

_RECEIPT_DELAY_S = 5.0
_ANSWER_WITHIN_S = 1.0


@contextmanager
def acquire(folder: Path) -> Iterator[str]:
    """Yield the address of the folder's sandbox; if none answers there, one serves as long as the block lasts."""
    note = folder / "sandbox"
    if (found := _answering(note)) is not None:
        yield found
        return
    with Sandbox(receipt_delay_s=_RECEIPT_DELAY_S) as sandbox:
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(sandbox.url + "\n", encoding="utf-8")
        _log.debug("sandbox_serving", page=sandbox.url, why="no DATABASE_URL and no EXPO_ setting")
        try:
            yield sandbox.url
        finally:
            with suppress(OSError):
                if note.read_text(encoding="utf-8").strip() == sandbox.url:  # not that of one that came after us
                    note.unlink()


def address(folder: Path) -> str | None:
    """Return the address of the folder's sandbox, if one answers there."""
    return _answering(folder / "sandbox")


def noted_address(folder: Path) -> str | None:
    """Return where the folder's sandbox serves, as it was noted, without asking whether it answers."""
    with suppress(OSError, ValueError):
        return (folder / "sandbox").read_text(encoding="utf-8").strip() or None
    return None


def _answering(note: Path) -> str | None:
    try:
        address = note.read_text(encoding="utf-8").strip()
        with requests.Session() as session:
            session.trust_env = False  # no proxy leads to loopback
            answer = session.get(f"{address}/sandbox/totals", timeout=_ANSWER_WITHIN_S)
    except (OSError, ValueError):  # no note, or nobody there: requests' own errors are OSErrors
        return None
    return address if answer.ok else None
