"""`make soak`: of the mistakes that cosmic-ray makes in modules that decide, tests notice most."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mutants.__main__ import copy_checkout, try_out
from mutants.mistake import ROOT
from mutants.modules import MODULES, mutations
from support import soak

EACH, LEAST = 10, 0.7
"""So many mistakes of each module, chosen by chance, and the share that must be noticed: some change nothing that matters."""


def test_modules_and_their_tests_are_there() -> None:
    """What `make soak` puts mistakes into exists, and so do the tests that must notice them."""
    assert [
        each
        for each in (*MODULES, *(test for tests in MODULES.values() for test in tests))
        if not (ROOT / each).exists()
    ] == []


if soak.WHOLE:  # by `make soak` alone, so that `make test` names nothing that it left out

    @pytest.mark.needs("cosmic-ray")
    @pytest.mark.timeout(7_200)
    @pytest.mark.parametrize("module", list(MODULES))
    def test_most_mistakes_are_noticed(module: str, tmp_path: Path) -> None:
        """Those that nobody noticed are printed as they were made."""
        copy_checkout(tmp_path / "copy")
        chosen = mutations(module, EACH, random.Random())
        missed = [each for each in chosen if try_out(each, tmp_path / "copy")[0] != "noticed"]
        told = [f"{each.rule}\n{each.changed_lines()}" for each in missed]
        assert len(missed) <= len(chosen) * (1 - LEAST), "\n".join(told)
