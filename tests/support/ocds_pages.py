"""A publisher of OCDS, its releases, and real files of others."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relevo.core.items import Item
from relevo.sources.ocds import Ocds
from support.fake_http_server import Answer, Asked, FakeServer
from support.source_context import FIXTURES, MemorySourceContext, settings_for

OCDS = FIXTURES / "ocds"
COMPILED = {"tag": ["compiled"], "date": "2026-02-01T10:00:00Z", "tender": {"title": "Works", "status": "active"}}


def read(tmp_path: Path, name: str, now: datetime = datetime(2010, 3, 20, tzinfo=UTC)) -> Item:
    """Read one real file through the adapter."""
    (tmp_path / name).write_bytes((OCDS / name).read_bytes())
    [answer] = MemorySourceContext(now).run(Ocds(settings_for(ocds_folder=tmp_path)))
    [item] = answer.items
    return item


def release(
    number: int, *, day: int = 1, title: str = "Works", status: str = "active", tag: str = "tender"
) -> dict[str, Any]:
    """Make a release of a fictional tender."""
    return {
        "ocid": f"ocds-abc123-{number}",
        "id": f"{number}-{day}-{tag}",
        "date": f"2026-02-{day:02}T10:00:00Z",
        "tag": [tag],
        "tender": {"id": str(number), "title": title, "status": status},
    }


class Pages(FakeServer):
    """Documents by path."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, Any] = {}
        self.headers: dict[str, str] = {}

    def answer(self, asked: Asked) -> Answer:
        """Serve a page, 304 if the client has it."""
        if self.headers.get("ETag") and asked.headers.get("if-none-match") == self.headers["ETag"]:
            return Answer(304)
        page = self.pages.get(asked.path)
        if isinstance(page, Answer):
            return page
        return Answer(404, b"{}") if page is None else Answer(200, json.dumps(page).encode(), self.headers)

    def paths(self) -> list[str]:
        """Return what was asked for, and forget it."""
        found = [asked.path for asked in self.asked]
        self.asked.clear()
        return found
