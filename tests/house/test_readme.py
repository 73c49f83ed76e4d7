"""The README leads where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\]\(([^)#:]+)\)", README)))


def test_every_link_leads_somewhere() -> None:
    """Each relative link of the README is a file or a folder of the checkout."""
    assert len(LINKS) > 20
    assert [link for link in LINKS if not (ROOT / link).exists()] == []


def places() -> list[tuple[str, str]]:
    """Return the names that the table "where is" mentions, each with the file linked after it."""
    table = README[README.index("| where is … |") : README.index("### Words")]
    return re.findall(r"`(?:relevo\.)?(?:\w+\.)?(\w+)`[^`|\[]*\(\[[^\]]+\]\(([^)]+)\)\)", table)


@pytest.mark.parametrize(("name", "file"), places())
def test_the_map_names_what_is_there(name: str, file: str) -> None:
    """What the table says is in a file is defined in that file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"(def|class|function|-- name:) (relevo\.)?{name}\b|^{name} = ", text, re.MULTILINE), (
        f"{name} is not in {file}"
    )


def test_the_map_is_not_empty() -> None:
    """A dozen questions have an answer with a name and a file."""
    assert len(places()) >= 12


def test_every_room_is_on_the_map() -> None:
    """Each folder and module of the package is named in the README's table of rooms."""
    table = README[README.index("| room in") : README.index("| where is … |")]
    package = ROOT / "server" / "relevo"
    rooms = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    named = set(re.findall(r"\w+", table))
    assert sorted(rooms - named) == []


def test_the_benchmarks_have_their_place() -> None:
    """`make bench ARGS=--write-readme` finds its two markers, each once and in order."""
    begin, end = "<!-- bench: written by make bench ARGS=--write-readme -->", "<!-- /bench -->"
    assert README.count(begin) == README.count(end) == 1
    assert README.index(begin) < README.index(end)
