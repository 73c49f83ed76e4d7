"""`make mutants`: its list is alive, and it tells a mistake that is noticed from one that is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from mutants.__main__ import MISTAKES, copy_checkout, main, try_out
from mutants.families import find
from mutants.mistake import ROOT, Mistake

PROBE = """from relevo.http.rules import RULES


def test_a_viewer_forgets_nobody() -> None:
    assert "viewer" not in RULES["POST", "/v1/owners/forget"].roles
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the checkout, with a test that needs neither a database nor the fixtures of all others."""
    folder = tmp_path_factory.mktemp("mutants") / "checkout"
    copy_checkout(folder)
    (folder / "probe").mkdir()
    (folder / "probe" / "test_probe.py").write_text(PROBE)
    yield folder
    shutil.rmtree(folder)


def test_every_mistake_can_be_made() -> None:
    """Each text stands once in its file, the tests that must notice it are there, and each rule begins with a small letter."""
    for name, mistake in MISTAKES.items():
        text = (ROOT / mistake.file).read_text(encoding="utf-8")
        assert [text.count(each) for each, _ in mistake.changes] == [1] * len(mistake.changes), name
        assert all(each != instead for each, instead in mistake.changes), name
        assert [each for each in mistake.tests if each.startswith("tests/") and not (ROOT / each).exists()] == [], name
        assert mistake.rule[0].islower() or mistake.rule.startswith("FCM"), name


def test_the_list_names_many_rules() -> None:
    """It grows with the product: so many there are at least, in SQL and in Python."""
    in_sql = [each for each in MISTAKES.values() if each.file.startswith("sql/")]
    assert len(in_sql) >= 35
    assert len(MISTAKES) - len(in_sql) >= 18


@pytest.mark.parametrize(("family", "least"), [("lock", 140), ("scope", 38), ("version", 4)])
def test_families_are_found(family: str, least: int) -> None:
    """Each lock and comparison of SQL can be left out by itself, and the tests that must notice it are there."""
    found = find(family)
    assert len(found) >= least
    for name, mistake in found.items():
        text = (ROOT / mistake.file).read_text(encoding="utf-8")
        assert text.count(mistake.text) == 1, name
        assert mistake.instead != mistake.text, name
        assert [each for each in mistake.tests if not (ROOT / each).exists()] == [], name


NOTICED = Mistake(
    "a viewer changes nothing",
    "server/relevo/http/rules.py",
    '"/v1/owners/forget": {"POST": APP},',
    '"/v1/owners/forget": {"POST": READ},',
    ("probe/test_probe.py",),
)


@pytest.mark.parametrize(
    ("mistake", "verdict"),
    [
        pytest.param(NOTICED, "noticed", id="noticed"),
        pytest.param(replace(NOTICED, instead=NOTICED.text + " "), "not noticed", id="not noticed"),
        pytest.param(replace(NOTICED, tests=("tests/http/test_none.py",)), "not run", id="not run"),
    ],
)
def test_what_is_said_of_a_mistake(copy: Path, mistake: Mistake, verdict: str) -> None:
    """Red tests notice a mistake, green ones do not, and tests that did not run prove nothing; afterwards the copy is as before."""
    assert try_out(mistake, copy)[0] == verdict
    assert (copy / mistake.file).read_text(encoding="utf-8") == (ROOT / mistake.file).read_text(encoding="utf-8")


def test_a_mistake_that_nobody_noticed_fails_the_run(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says whether each was noticed, and the output names those that were not."""
    free: SimpleQueue[Path] = SimpleQueue()
    free.put(copy)
    monkeypatch.setattr("mutants.__main__.copies", lambda _: nullcontext(free))
    monkeypatch.setitem(MISTAKES, "unnoticed", replace(NOTICED, instead=NOTICED.text + " "))
    assert main(["--only", "unnoticed", "--at-once", "1"]) == 1
    said = capsys.readouterr().out
    assert "not noticed" in said
    assert "0 of 1 mistakes were noticed" in said
