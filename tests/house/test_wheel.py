"""The wheel carries all that relevo needs: installed far from the checkout, it migrates a database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str | Path, cwd: Path, **settings: str) -> str:
    """Run this Python with these words, and with no settings but these."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    result = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of what a clone would hold, so that nothing lying about gets in."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(".git", *ignored))
    words = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run("-m", *words, "--wheel-dir", folder, source, cwd=folder)
    shutil.rmtree(source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """Install the wheel into a folder of its own; its dependencies are this Python's."""
    folder = wheel.parent / "site"
    run(
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        folder,
        wheel,
        cwd=wheel.parent,
    )
    return folder


def test_the_wheel_holds_the_package_and_its_sql(wheel: Path) -> None:
    """Every migration and every file of statements is inside, and nothing that does not belong to relevo."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"relevo/sql/{path.relative_to(ROOT / 'sql').as_posix()}"
        for folder in ("migrations", "queries")
        for path in (ROOT / "sql" / folder).glob("*.sql")
    }
    assert expected
    assert not expected - names
    assert {"relevo/__init__.py", "relevo/py.typed"} <= names
    assert {name.split("/")[0] for name in names} == {"relevo", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


def test_the_wheel_migrates_a_database(site: Path, empty_database: str, tmp_path: Path) -> None:
    """Away from the checkout, the installed package finds its own SQL and makes the schema."""
    settings = {"PYTHONPATH": str(site), "DATABASE_URL": empty_database}
    place = run("-c", "import relevo; print(relevo.__file__)", cwd=tmp_path, **settings)
    assert Path(place.strip()) == site / "relevo" / "__init__.py"
    sql = run("-c", "from relevo import queries; print(queries.sql_root())", cwd=tmp_path, **settings)
    assert Path(sql.strip()) == site / "relevo" / "sql"

    run("-m", "relevo.cli", "migrate", cwd=tmp_path, **settings)
    with psycopg.connect(empty_database) as connection:
        [found] = connection.execute("select to_regclass('relevo.worker_runs') is not null").fetchall()
    assert found == (True,)
    assert list(tmp_path.iterdir()) == []
