"""The runbook knows everything that `relevo status` and `relevo doctor` may say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from relevo.operators.consistency import MISPLACED
from relevo.operators.health.problem import RUNBOOK as PLACES
from support.docs_pages import DOCS, ROOT, anchor, headings

FINDINGS = ("Finding", "_warning", "_harmless")
PACKAGE = ROOT / "server" / "relevo"


@cache
def findings() -> set[str]:
    """Return the kinds of everything the doctor finds, as the code names them."""
    kinds = set(MISPLACED)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FINDINGS:
                kinds |= {node.args[0].value} if node.args and isinstance(node.args[0], ast.Constant) else set()
    return kinds


def problems() -> Iterator[tuple[str, str]]:
    """Yield the code of each problem that health may report, with the template of its message."""
    files = sorted((PACKAGE / "operators" / "health").glob("*.py"))
    for node in (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
            code, template = node.args
            assert isinstance(code, ast.Constant), "a problem's code is written where it is made"
            assert isinstance(template, ast.Constant), "and so is its sentence"
            yield str(code.value), str(template.value)


def examples(place: str) -> list[str]:
    """Return the messages that the section with this anchor quotes."""
    sections = re.split(r"^### ", (DOCS / "runbook.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    [section] = [each for each in sections if anchor(each.partition("\n")[0]) == place]
    return [line.removeprefix("> ") for line in section.splitlines() if line.startswith("> ")]


def test_every_finding_has_its_heading() -> None:
    """Each kind of finding is a heading, and there is none that the doctor does not know."""
    named = {heading.strip("`") for heading in headings(DOCS / "runbook.md") if heading.startswith("`")}
    assert len(findings()) > 15
    assert named == findings()


PROBLEMS = sorted(set(problems()))


@pytest.mark.parametrize(("code", "template"), PROBLEMS)
def test_every_message_has_a_filled_example(code: str, template: str) -> None:
    """The section of a problem quotes its message with all values filled in."""
    pattern = re.sub(r"\\\{\w+\\\}", ".*", re.escape(template))
    quoted = examples(PLACES[code])
    assert [each for each in quoted if re.fullmatch(pattern, each)], template
    assert not [each for each in quoted if "…" in each or "{" in each]


def test_every_problem_has_its_place() -> None:
    """Each code leads to a heading of the runbook, and there is no place for a code that is not told."""
    assert {code for code, _ in PROBLEMS} == set(PLACES)
    there = {anchor(heading) for heading in headings(DOCS / "runbook.md")}
    assert sorted(set(PLACES.values()) - there) == []


def test_every_heading_about_health_has_a_problem() -> None:
    """Nothing is explained under "What status says" that status does not say."""
    text = (DOCS / "runbook.md").read_text(encoding="utf-8")
    told = text[text.index("## What status says") : text.index("## What only alerts say")]
    assert {anchor(each) for each in re.findall(r"^### (.+)$", told, re.MULTILINE)} == set(PLACES.values())


def test_problems_are_found() -> None:
    """The code is read as it is meant to be."""
    assert len(PROBLEMS) > 20
