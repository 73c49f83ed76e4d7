"""What is published agrees with itself: version, changelog, frozen release."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import make_dist  # noqa: E402


def test_version_changelog_and_frozen_release_agree() -> None:
    """The version is either released, with a heading and a frozen folder, or in work, with neither."""
    assert list(make_dist.disagreements()) == []


@pytest.mark.parametrize(
    ("version", "heading", "frozen", "said"),
    [
        ("1.0.0", "1.0.0", True, []),
        ("1.0.0", "0.9.0", True, ["the changelog's newest heading is not [1.0.0]"]),
        ("1.0.0", "1.0.0", False, ["1.0.0 is not frozen: run scripts/freeze_release.py"]),
        (
            "1.0.0",
            "Unreleased]\n\n## [1.0.0",
            True,
            ["1.0.0 is released, and the changelog has later changes: set the next version, with .dev0"],
        ),
        ("1.1.0.dev0", "Unreleased", False, []),
        (
            "1.1.0.dev0",
            "1.0.0",
            False,
            ["1.1.0.dev0 is not released, and the changelog does not begin with [Unreleased]"],
        ),
        ("1.1.0.dev0", "Unreleased", True, ["1.1.0.dev0 is in work, and its release is frozen already"]),
    ],
)
def test_each_disagreement_is_said(tmp_path: Path, version: str, heading: str, frozen: bool, said: list[str]) -> None:
    """Whatever does not fit is named, with the next step where there is one."""
    (tmp_path / "server" / "relevo" / "core").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "server" / "relevo" / "core" / "version.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{heading}]\n")
    if frozen:
        (tmp_path / "tests" / "migrations" / "released" / version.partition(".dev")[0]).mkdir(parents=True)
    assert list(make_dist.disagreements(tmp_path)) == said
