"""The security questionnaire: each answer leads to a page and names tests that are there, and nothing calls home."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "server" / "docs" / "security-questionnaire.md"
ELSEWHERE = {"depends on you", "not checked"}
REACHED = {
    "api.mercadopublico.cl", "api.push.apple.com", "api.sandbox.push.apple.com", "exp.host", "fcm.googleapis.com", "oauth2.googleapis.com",
    "oauth-login.cloud.huawei.com", "push-api.cloud.huawei.com", "www.googleapis.com", "www.mercadopublico.cl",
}  # fmt: skip
"""The hosts that the package knows by itself: push services and sources, each reached only if somebody sets it up."""
SAID = {"app.example", "example.com", "example.org", "host", "localhost", "login.example", "relevo.example"}
"""Hosts in examples."""


def rows() -> list[list[str]]:
    """Return the cells of each question's row."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [re.split(r"(?<!\\)\|", line.strip("| ")) for line in lines if line.startswith("| ")]
    return [[each.strip() for each in row] for row in cells if row[0].strip() != "question"]


def test_each_answer_has_a_page_and_a_check() -> None:
    """A row has a question, an answer with a link unless it is nobody's but the reader's, and a test that is there."""
    found = rows()
    assert len(found) > 30
    for question, answer, check in found:
        assert question.endswith("?"), question
        assert "](" in answer or check == "depends on you", question
        if check not in ELSEWHERE:
            [name] = re.findall(r"^`(tests/[\w/]+\.py)`$", check)
            assert (ROOT / name).is_file(), (question, name)


def test_the_usual_questions_are_there() -> None:
    """What companies ask has its heading or its row."""
    text = PAGE.read_text(encoding="utf-8").lower()
    asked = (
        "personal data", "where is the data", "encryption", "access", "sign-on", "logging", "how long", "erased", "subprocessors",
        "vulnerabilities", "releases", "backups", "incident", "penetration test", "denial of service", "sbom",
    )  # fmt: skip
    assert [each for each in asked if each not in text] == []


def test_the_package_knows_no_other_hosts() -> None:
    """No line of the package names a host on the Internet but those of push services and sources: nothing calls home."""
    found = set[str]()
    for path in sorted((ROOT / "server" / "relevo").rglob("*.py")):
        found |= set(re.findall(r"https://([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])", path.read_text(encoding="utf-8")))
    assert found - SAID - REACHED == set()
    assert found >= REACHED
