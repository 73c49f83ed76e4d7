"""The pages of server/docs as tests read them: their blocks, code spans, links and headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "server" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its page, the words after its fence, its text and the line on which that begins."""

    page: str
    words: tuple[str, ...]
    text: str
    line: int


@cache
def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, tuple(found[1].split()), found[2], text[: found.start()].count("\n") + 2)
        for found in _FENCE.finditer(text)
    ]


@cache
def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def spans(page: Path) -> list[str]:
    """Return what stands in `code` within a page's prose."""
    return [" ".join(each.split()) for each in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]


def links(page: Path) -> list[str]:
    """Return where a page's prose leads."""
    return re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", prose(page))


def pictures(page: Path) -> list[str]:
    """Return the pictures that a page shows."""
    return re.findall(r"!\[[^\]]+\]\(([^)\s]+)\)", prose(page))


@cache
def headings(page: Path) -> list[str]:
    """Return the headings of a page."""
    return [each.strip() for each in re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE)]


def anchor(heading: str) -> str:
    """Return a heading's anchor, as Markdown renderers make it."""
    plain = re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
