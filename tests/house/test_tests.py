"""Tests mirror the house: who edits a module finds its tests by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PACKAGE = ROOT / "server" / "relevo"
BESIDE = {"clients", "docs", "house", "migrations", "scenarios", "scripts", "support"}
"""The folders that are no wing; tests/README.md says what is in them."""


def modules_of(folder: Path) -> set[str]:
    """Return the names of modules and of folders of modules in a folder of the package."""
    inside = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return inside | {path.parent.name for path in folder.glob("*/__init__.py")}


def complaint_about(file: Path) -> str | None:
    """Say what is wrong with the place or the name of a file of tests in a wing; its path is below tests/."""
    here = PACKAGE
    for name in file.parts[:-1]:
        if name not in modules_of(here):
            return f"{file}: {here.relative_to(ROOT)} has no {name}"
        if (here / f"{name}.py").exists():
            return None  # a folder of tests of one module: their names are free
        here /= name
    names = modules_of(here) | {here.name}
    if any(re.fullmatch(rf"test_{name}(_\w+)?\.py", file.name) for name in names):
        return None
    return f"{file}: begins with no module of {here.relative_to(ROOT)}, nor with {here.name}"


def test_each_folder_is_a_wing_or_has_its_reason() -> None:
    """A folder of tests is named as one of server/relevo, or is one of the few others; beside them is conftest.py alone."""
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    wings = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert sorted(folders - wings - BESIDE) == []
    assert folders >= BESIDE
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


def test_the_tests_of_a_wing_name_its_modules() -> None:
    """A file of tests in a wing lies where its module lies, and begins with its name."""
    files = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]
    found = [complaint_about(file) for file in files if file.parts[0] not in BESIDE]
    assert [each for each in found if each] == [], "see tests/README.md"


def test_tests_of_scripts_lie_as_scripts_do() -> None:
    """Each folder of tests/scripts is one of scripts/."""
    found = {path.name for path in (TESTS / "scripts").iterdir() if path.name != "__pycache__"}
    assert sorted(found - {path.name for path in (ROOT / "scripts").iterdir()}) == []


def test_what_tests_share_is_in_one_place() -> None:
    """A module that is no file of tests, no conftest.py and no example that a page shows is in tests/support."""
    others = [path.relative_to(TESTS) for path in TESTS.rglob("*.py")]
    others = [path for path in others if not path.name.startswith("test_") and path.name != "conftest.py"]
    assert [str(path) for path in others if path.parts[0] != "support" and path.parts[:2] != ("docs", "programs")] == []


def test_the_map_names_every_topic() -> None:
    """tests/README.md names each topic of scenarios, and each folder beside the wings."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)[/`]", text))
    topics = {path.name for path in (TESTS / "scenarios").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert sorted((topics | BESIDE) - named) == []


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("cycles/test_cleanup.py", None),
        ("cycles/test_cleanup_by_night.py", None),
        ("cycles/fanout/test_anything.py", None),
        ("http/dashboard/test_events.py", None),
        ("http/test_http_as_a_whole.py", None),
        ("http/test_walls.py", "begins with no module"),
        ("http/test_eventsmore.py", "begins with no module"),
        ("door/test_events.py", "has no door"),
        ("delivery/journal/test_fence.py", "has no journal"),
    ],
)
def test_a_wrong_name_is_noticed(file: str, complaint: str | None) -> None:
    """Which names and places are taken, and what is said of others."""
    said = complaint_about(Path(file))
    assert (said is None) if complaint is None else (said is not None and complaint in said)
