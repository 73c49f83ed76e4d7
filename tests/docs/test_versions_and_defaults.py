"""Sentences of the docs that name versions, defaults or anchors of other pages say what the code says."""

from __future__ import annotations

import re
import tomllib
from functools import cache

import pytest

from relevo import config
from relevo.embedded import binaries
from support.docs_pages import DOCS, PAGES, ROOT, anchor, headings, prose

READMES = [ROOT / each for each in ("README.md", "server/README.md", "sql/README.md")]
TEXTS = {page.name if page.parent == DOCS else str(page.relative_to(ROOT)): page for page in [*PAGES, *READMES]}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHON = re.compile(r"Python (3\.\d+)(?: or newer|\+)")
POSTGRES = re.compile(r"PostgreSQL`? \(?(\d\d) to (\d\d)")
IMAGE = re.compile(r"\brelevo[:-](\d+\.\d+\.\d+)\b")
WITH_VALUE = re.compile(r"`([A-Z_]+)`(?: \(|, default )([\d,.]+\d|\d)(?: (ms|s|minutes|hours|days|months))?[),]")
VALUE_BEFORE = re.compile(
    r"([\d,.]+\d|\d) (ms|s|seconds|minutes|hours|days|months)\b[^.|;:]{0,45}\((?:default, )?`([A-Z_]+)`\)"
)
IN_MS = {"s": 1_000, "seconds": 1_000}
OTHER_VALUES = {"`DELIVERIES_RETENTION_DAYS` (30"}
"""Values that a page recommends in place of the default."""


@cache
def text(name: str) -> str:
    """Return a page's prose on one line."""
    return " ".join(prose(TEXTS[name]).split())


@cache
def defaults() -> dict[str, str]:
    """Return the default of each setting, as it is shown."""
    return {row.name: row.default.partition(",")[0] for row in config.describe(config.load({}, None))}


def wrong_default(setting: str, value: str, unit: str) -> str:
    """Return what is wrong with a value that a page gives as a setting's default, or nothing."""
    default = defaults().get(setting, "")
    number = float(value.replace(",", "")) * (IN_MS.get(unit, 1) if setting.endswith("_MS") else 1)
    if not re.fullmatch(r"[\d.]+", default):
        return f"`{setting}` has no default that is a number, and the page gives {value}"
    return "" if number == float(default) else f"`{setting}` is {default} by default, and the page gives {value} {unit}"


@pytest.mark.parametrize("name", TEXTS)
class TestFacts:
    """What a page names is so."""

    def test_versions_are_those_of_the_package(self, name: str) -> None:
        """The oldest Python and PostgreSQL, and the release in names of images and wheels."""
        whole = TEXTS[name].read_text(encoding="utf-8")
        oldest = PROJECT["requires-python"].removeprefix(">=")
        assert {each for each in PYTHON.findall(whole) if each != oldest} == set()
        known = (str(binaries.OLDEST), str(binaries.NEWEST))
        assert {each for each in POSTGRES.findall(whole) if each != known} == set()
        release = PROJECT["version"].partition(".dev")[0]
        assert {each for each in IMAGE.findall(whole) if each != release} == set()

    def test_defaults_are_those_of_the_settings(self, name: str) -> None:
        """A value beside a setting's name, as in `OUTBOX_BATCH_SIZE` (1,000), is its default."""
        said = [(found[0], found[1], found[2], found[3] or "") for found in WITH_VALUE.finditer(text(name))]
        said += [(found[0], found[3], found[1], found[2]) for found in VALUE_BEFORE.finditer(text(name))]
        assert [
            wrong
            for words, *given in said
            if words.rstrip("),") not in OTHER_VALUES and (wrong := wrong_default(*given))
        ] == []


def test_wrong_facts_are_found() -> None:
    """The checks can fail, and they find what the pages say."""
    assert wrong_default("OUTBOX_BATCH_SIZE", "500", "")
    assert not wrong_default("DATABASE_READ_MAX_LAG_MS", "15", "s")
    found = [match for name in TEXTS for form in (WITH_VALUE, VALUE_BEFORE) for match in form.findall(text(name))]
    assert len(found) >= 10
    assert sum(bool(PYTHON.search(text(name))) for name in TEXTS) >= 3


def changelog_links() -> list[tuple[str, str]]:
    """Return the pages and anchors that the entries of the newest release link to, and those of the one in work."""
    parts = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## [")[1:]
    newest = "".join(parts[: 1 + parts[0].startswith("Unreleased]")])
    return re.findall(r"\]\(server/docs/([\w-]+\.md)#([\w-]+)\)", newest)


def test_the_changelog_leads_to_headings() -> None:
    """Each link of the newest entries leads to a heading of a page that is there."""
    there = {page.name: {anchor(each) for each in headings(page)} for page in PAGES}
    assert [f"{page}#{place}" for page, place in changelog_links() if place not in there.get(page, set())] == []
    assert len(changelog_links()) > 10
