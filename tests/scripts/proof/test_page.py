"""The page of what was proven says what the kept results say, and each broken build still breaks something."""

from __future__ import annotations

import pytest

from chaos.broken import BUILDS, FUNCTIONS
from proof import page


def test_the_page_is_what_the_results_say() -> None:
    """server/docs/proof.md is what `make proof` writes: nobody edited it, and no result changed without it."""
    assert page.PAGE.read_text(encoding="utf-8") == page.write(), "run make proof"


@pytest.mark.parametrize("name", BUILDS)
def test_what_a_broken_build_takes_out_is_there(name: str) -> None:
    """Each text that a broken build replaces stands once in its function; the page says that the build was caught, or not run."""
    for file, text, instead in BUILDS[name].changes:
        assert (FUNCTIONS / file).read_text(encoding="utf-8").count(text) == 1, file
        assert text != instead
    result = page.RESULTS / f"broken-{name}.json"
    if not result.exists():
        assert f"| `{name}` | {BUILDS[name].what} | **not run** |" in page.write()
        return
    verdict = page.read(result)
    assert any(verdict["rules"].values()) or not verdict["replay"]["ok"] or not verdict["summary"]["calm"]
