"""What is published is whole: wheel and sdist hold the same, and the wheel, far from the checkout, migrates a database."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]

import make_dist  # noqa: E402


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
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What `make dist` says and the folder it fills, from a copy of what a clone would hold: nothing lying about gets in."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
    clone = shutil.copytree(ROOT, folder / "clone", ignore=shutil.ignore_patterns(".git", *ignored))
    left_out = ("--without=server", "--without=kits", "--without=chart", "--without=rehearsal", "--without=examples")
    words = (clone / "scripts" / "make_dist.py", *left_out)
    said = run(*words, cwd=folder, PATH="/usr/bin:/bin", DOCKER_HOST="tcp://127.0.0.1:9")
    return said, clone / "dist"


@pytest.fixture(scope="module")
def wheel(published: tuple[str, Path]) -> Path:
    """The wheel that `make dist` built."""
    [built] = published[1].glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own; its dependencies are this Python's."""
    folder = tmp_path_factory.mktemp("site")
    words = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target")
    run("-m", *words, folder, wheel, cwd=folder)
    return folder


def test_wheel_and_sdist_are_built_and_checked(published: tuple[str, Path]) -> None:
    """`make dist` builds both, finds them whole and alike, and says what of the rest was not made."""
    said, folder = published
    version = make_dist.version_of()
    built = sorted(path.name for path in folder.iterdir())
    assert built == [f"relevo-{version}-py3-none-any.whl", f"relevo-{version}.tar.gz"]
    assert "not to be published: the image was not built: no docker engine answers here\n" in said
    assert "not to be published: left out as you asked: kits\n" in said


def test_the_wheel_holds_the_package_and_its_sql(wheel: Path) -> None:
    """Every migration, every file of statements and every page is inside, and nothing that does not belong to relevo."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"relevo/sql/{path.relative_to(ROOT / 'sql').as_posix()}"
        for pattern in ("first_rows.sql", "functions/*/*.sql", "migrations/*.sql", "queries/*.sql", "tables/*.sql")
        for path in (ROOT / "sql").glob(pattern)
    }
    assert expected
    assert not expected - names
    assert {"relevo/__init__.py", "relevo/py.typed"} <= names
    assert {f"relevo/docs/{path.name}" for path in (ROOT / "server" / "docs").glob("*.md")} <= names
    pages = ROOT / "server" / "relevo" / "http" / "dashboard"
    shipped = [*pages.glob("templates/*.html"), *pages.glob("locale/*/LC_MESSAGES/*.mo"), *pages.glob("static/*")]
    assert {path.relative_to(ROOT / "server").as_posix() for path in shipped} <= names
    assert {"relevo/docs/index.md", "relevo/docs/pictures/dashboard.png"} <= names
    assert f"{wheel.name.rsplit('-', 3)[0]}.dist-info/sboms/relevo.cdx.json" in names
    assert {name.split("/")[0] for name in names} == {"relevo", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


def test_the_wheel_migrates_a_database(site: Path, empty_database: str, tmp_path: Path) -> None:
    """Away from the checkout, the installed package finds its own SQL and makes the schema."""
    settings = {"PYTHONPATH": str(site), "DATABASE_URL": empty_database}
    place = run("-c", "import relevo; print(relevo.__file__)", cwd=tmp_path, **settings)
    assert Path(place.strip()) == site / "relevo" / "__init__.py"
    sql = run("-c", "from relevo.core import queries; print(queries.sql_root())", cwd=tmp_path, **settings)
    assert Path(sql.strip()) == site / "relevo" / "sql"

    run("-m", "relevo", "migrate", cwd=tmp_path, **settings)
    with psycopg.connect(empty_database) as connection:
        [found] = connection.execute("select to_regclass('relevo.worker_runs') is not null").fetchall()
    assert found == (True,)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with an app's own driver, and nothing else of this Python's."""
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions.py"):
        if (there := Path(psycopg.__path__[0]).parent / name).exists():
            (folder / name).symlink_to(there)
    return folder


class TestClient:
    """Installed without its extras: what an app needs that only enqueues, and nothing else."""

    MOST_BYTES = 15_000_000

    def bare(self, *words: str, cwd: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
        """Run this Python without the packages installed beside it."""
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, path))}
        command = [sys.executable, "-S", *words]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600)

    def test_it_is_one_small_package(self, wheel: Path, site: Path) -> None:
        """Without an extra nothing else is installed, and of Relevo a few megabytes; the server is one extra."""
        [metadata] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
        lines = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
        required = [line for line in lines if line.startswith("Requires-Dist:")]
        assert [line for line in required if "extra ==" not in line] == []
        for extra in ("server", "embedded", "archive-query", "dev"):
            found = {re.split(r"[^\w-]", line[15:])[0] for line in required if line.endswith(f"extra == '{extra}'")}
            assert {"psycopg", "typer", "pydantic", "pyarrow"} <= found
        assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) < self.MOST_BYTES

    def test_it_enqueues(self, site: Path, driver: Path, dsn: str, tmp_path: Path) -> None:
        """With a driver of the app's own it enqueues, and loads nothing beside that."""
        program = """if True:
            import sys, psycopg
            before = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
            import relevo, relevo.aio
            with psycopg.connect(sys.argv[1]) as connection:
                assert relevo.enqueue(connection, relevo.Event("t", "1", "t", audience="everyone")).created
            print(sorted({name.partition(".")[0] for name in sys.modules} - before))
        """
        done = self.bare("-c", program, dsn, cwd=tmp_path, path=[site, driver])
        assert (done.stdout, done.stderr) == ("['relevo']\n", "")

    def test_it_is_loaded_at_once(self, site: Path, tmp_path: Path) -> None:
        """Importing all of the door takes no longer than the parts of Python's own that it stands on."""
        program = """if True:
            from time import process_time as now
            began = now()
            import dataclasses, datetime, decimal, json, typing, uuid
            between = now()
            import relevo.aio
            print((now() - between) / (between - began))
        """
        ratios = [
            float(self.bare("-c", program, cwd=tmp_path, path=[site]).stdout) for _ in range(5)
        ]  # compiled by the first
        assert min(ratios) < 1.5

    def test_a_command_says_what_to_install(self, site: Path, tmp_path: Path) -> None:
        """The command is there, and tells in a sentence that it is the server's, with the exit code of wrong usage."""
        for word in ("run", "status", "--help"):
            done = self.bare("-m", "relevo", word, cwd=tmp_path, path=[site])
            assert (done.returncode, done.stdout) == (2, ""), word
            assert done.stderr.startswith("relevo: Only Relevo's client is installed here")
            assert "pip install './relevo[server]'" in done.stderr
            assert len(done.stderr.splitlines()) == 1, word

    def test_whatever_the_package_offers_is_there_or_says_what_to_install(self, site: Path, tmp_path: Path) -> None:
        """Every public name either works, or its error names the extra; so do the modules one would start from."""
        program = """if True:
            import relevo, importlib
            from relevo.core.errors import MissingPartError
            for name in [*relevo.__all__, "relevo.app", "relevo.config", "relevo.cli", "relevo.database.migrate", "relevo.sandbox"]:
                try:
                    importlib.import_module(name) if "." in name else getattr(relevo, name)
                except MissingPartError as error:
                    assert "relevo[server]" in str(error)
                    print(name)
        """
        done = self.bare("-c", program, cwd=tmp_path, path=[site])
        assert done.stderr == ""
        missing = set(done.stdout.split())
        assert {"Parts", "Cycle", "relevo.app", "relevo.config", "relevo.cli", "relevo.database.migrate"} <= missing
        assert not missing & {"Event", "Installation", "aio", "enqueue", "register", "wait", "Reschedule", "Item"}
