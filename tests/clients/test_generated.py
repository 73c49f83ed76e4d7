"""The types of the kits are what the OpenAPI document says today, and no package address is in the lock file."""

from __future__ import annotations

from pathlib import Path

import pytest

import generate_clients


@pytest.mark.needs("kits")
def test_generating_again_changes_nothing(clients: Path, tmp_path: Path) -> None:
    """What is stored equals what would be written: else run `make clients`."""
    generate_clients.generate(tmp_path / "types")
    for file in (tmp_path / "types").iterdir():
        stored = generate_clients.TYPES / file.name
        assert stored.read_text(encoding="utf-8") == file.read_text(encoding="utf-8"), "run `make clients`"


@pytest.mark.needs("kits")
def test_telling_the_stories_again_changes_nothing(clients: Path, tmp_path: Path) -> None:
    """The page of the screens in the guide equals what would be written: else run `make clients`."""
    generate_clients.tell_stories(tmp_path / "screens.html")
    written = (tmp_path / "screens.html").read_text(encoding="utf-8")
    assert generate_clients.STORIES.read_text(encoding="utf-8") == written, "run `make clients`"


def test_the_lock_file_names_no_registry() -> None:
    """Packages are locked by name, version and hash; where they come from is the machine's own setting."""
    assert '"resolved": "http' not in (generate_clients.CLIENTS / "package-lock.json").read_text(encoding="utf-8")
