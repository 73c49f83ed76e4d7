"""The Spanish pages are those of the guide: the same examples, the same structure, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.docs_pages import DOCS, ROOT, anchor, blocks, headings, links, pictures, prose

PAIRS = [(DOCS / page.name, page) for page in sorted((DOCS / "es").glob("*.md"))]
HOMES = (ROOT / "scripts" / "site" / "home.md", ROOT / "scripts" / "site" / "home.es.md")
TYPED = re.compile(r"(?<!`)`([^`]+)`(?!`)")
both = pytest.mark.parametrize(("english", "spanish"), [*PAIRS, HOMES], ids=lambda page: page.stem)


@both
def test_examples_are_equal(english: Path, spanish: Path) -> None:
    """What is printed to be typed or run is the same in both languages, in the same order."""
    said = [[(block.words, block.text) for block in blocks(page)] for page in (english, spanish)]
    assert said[1] == said[0]


@both
def test_sections_are_the_same(english: Path, spanish: Path) -> None:
    """A Spanish page has as many sections and rows of tables as the English one, leads to the same pages, and names no other code."""
    for pattern in (r"^#+ ", r"^\| ", r"^(?:- |\d\. )"):
        counted = [len(re.findall(pattern, prose(page), re.MULTILINE)) for page in (english, spanish)]
        assert counted[0] == counted[1], pattern
    named = [
        {word for word in TYPED.findall(prose(page)) if "ROLE" not in word and "ROL" not in word}
        for page in (english, spanish)
    ]
    assert named[1] <= named[0]
    led = [{Path(link.partition("#")[0]).name for link in links(page)} - {""} for page in (english, spanish)]
    assert led[1] == led[0]


@pytest.mark.parametrize(("english", "spanish"), PAIRS, ids=lambda page: page.stem)
def test_links_lead_somewhere(english: Path, spanish: Path) -> None:
    """A link leads to a Spanish page where there is one, else to the English one, and to a heading that is there."""
    assert english.exists()
    for link in links(spanish):
        name, _, place = link.partition("#")
        target = (spanish.parent / name).resolve() if name else spanish
        assert target.is_file(), link
        assert target.parent == spanish.parent or not (spanish.parent / target.name).exists(), link
        assert not place or place in map(anchor, headings(target)), link
    assert [each for each in pictures(spanish) if not (spanish.parent / each).is_file()] == []
