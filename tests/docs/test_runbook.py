"""The runbook knows everything that `relevo status` and `relevo doctor` may say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from pages import DOCS, ROOT, headings

from relevo.health import MISPLACED

PACKAGE = ROOT / "server" / "relevo"
RUNBOOK = re.sub(r"\s+", " ", (DOCS / "runbook.md").read_text(encoding="utf-8").replace("\n>", " "))


def findings() -> set[str]:
    """Return the kinds of everything the doctor finds, as the code names them."""
    kinds = set(MISPLACED)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                kinds |= {node.args[0].value} if node.args and isinstance(node.args[0], ast.Constant) else set()
    return kinds


def sentences() -> Iterator[str]:
    """Yield of each sentence that health may say the longest piece that never changes."""
    tree = ast.parse((PACKAGE / "health.py").read_text(encoding="utf-8"))
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        if not function.name.startswith(("_of_", "_missed")):
            continue
        for node in ast.walk(function):
            said = node.value if isinstance(node, ast.Yield | ast.Return) else None
            if isinstance(said, ast.JoinedStr):
                pieces = [str(each.value) for each in said.values if isinstance(each, ast.Constant)]
                yield max(pieces, key=len).strip(" `")


def test_every_finding_has_its_heading() -> None:
    """Each kind of finding is a heading, and there is none that the doctor does not know."""
    named = {heading.strip("`") for heading in headings(DOCS / "runbook.md") if heading.startswith("`")}
    assert len(findings()) > 15
    assert named == findings()


SENTENCES = sorted(set(sentences()))


@pytest.mark.parametrize("sentence", [each for each in SENTENCES if len(each) > 5])
def test_every_sentence_of_health_is_explained(sentence: str) -> None:
    """What stays the same in a sentence of health stands in the runbook."""
    assert sentence in RUNBOOK


def test_sentences_are_found() -> None:
    """The code is read as it is meant to be."""
    assert len(SENTENCES) > 15
