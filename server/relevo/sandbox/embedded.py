"""The sandbox of the embedded default: the first process brings it along, the others find it by its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import requests
import structlog

from relevo.sandbox.server import Sandbox, has_native

_log = structlog.get_logger("relevo.sandbox")

_RECEIPT_DELAY_S = 5.0
_ANSWER_WITHIN_S = 1.0
_KEYS = "sandbox-keys"


class Found(NamedTuple):
    """A sandbox that serves: Expo's address, and the settings for the native push services if it has them."""

    url: str
    settings: Mapping[str, str]


@contextmanager
def acquire(folder: Path) -> Iterator[Found]:
    """Yield where the folder's sandbox is; if none answers there, one serves as long as the block lasts."""
    if (found := address(folder)) is not None:
        yield Found(found, _ask(found, "GET", "/sandbox/services") or {})
        return
    note = folder / "sandbox"
    folder.mkdir(parents=True, exist_ok=True)
    with Sandbox(receipt_delay_s=_RECEIPT_DELAY_S, native=has_native(), folder=folder / _KEYS) as sandbox:
        note.write_text(sandbox.url + "\n", encoding="utf-8")
        _log.debug("sandbox_serving", page=sandbox.url, why="no DATABASE_URL and no EXPO_ setting")
        try:
            yield Found(sandbox.url, sandbox.settings())
        finally:
            with suppress(OSError):
                if note.read_text(encoding="utf-8").strip() == sandbox.url:  # not that of one that came after us
                    note.unlink()


def address(folder: Path) -> str | None:
    """Return the address of the folder's sandbox, if one answers there."""
    noted = noted_address(folder)
    return noted if noted is not None and _ask(noted, "GET", "/sandbox/totals") is not None else None


def noted_address(folder: Path) -> str | None:
    """Return where the folder's sandbox serves, as it was noted, without asking whether it answers."""
    with suppress(OSError, ValueError):
        return (folder / "sandbox").read_text(encoding="utf-8").strip() or None
    return None


def make_token(folder: Path, given: Mapping[str, str]) -> str | None:
    """Make a token by the sandbox of the folder, as its admin call does; None if it has no such service."""
    noted = noted_address(folder)
    made = _ask(noted, "POST", "/sandbox/tokens", given) if noted is not None else None
    return str(made["token"]) if made else None


def install_app(folder: Path, token: str, app: Mapping[str, str]) -> None:
    """Register the app of a phone at the folder's sandbox, so that it reports what is done there."""
    if (noted := noted_address(folder)) is not None:
        _ask(noted, "POST", f"/sandbox/phones/{quote(token, safe='')}", {"app": app})


def _ask(address: str, method: str, path: str, given: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Call a sandbox; None if nobody answers there, or not with what was asked for."""
    with suppress(OSError, ValueError), requests.Session() as session:  # requests' own errors are OSErrors
        session.trust_env = False  # no proxy leads to loopback
        answer = session.request(method, f"{address}{path}", json=given, timeout=_ANSWER_WITHIN_S)
        if answer.ok and isinstance(told := answer.json(), dict):
            return told
    return None
