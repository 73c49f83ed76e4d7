"""The Makefile explains itself, installs for itself, and says what a machine lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {
    "installed",
    "run",
    "test",
    "soak",
    "texts",
    "check",
    "run-cycle",
    "tick",
    "migrate",
    "psql",
    "smoke",
    "fmt",
    "docs",
    "site",
    "clients",
    "dist",
    "examples",
    "clean",
    "chaos",
    "mutants",
    "ha",
    "proof",
    "model",
    "help",
    "bench",
    "restore",
    "bench-archive",
}
TOOLS = ("sh", "make", "awk", "cat", "dirname", "echo", "find", "rm")

# A project that installs without a network: its build backend is its own and it needs nothing.
TOY_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
TOY_BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name, info = "relevo-0-py3-none-any.whl", "relevo-0.dist-info/"
    extras = "Provides-Extra: dev\\nProvides-Extra: embedded\\n"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("toy.py", "import sys\\ndef main(): print('toy', *sys.argv[1:])\\n")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: relevo\\nVersion: 0\\n" + extras)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        programs = "relevo = toy:main\\nruff = toy:main\\n"
        wheel.writestr(info + "entry_points.txt", "[console_scripts]\\n" + programs)
        wheel.writestr(info + "RECORD", "")
    return name
"""

# Stands in front of the venv module and lends .venv a pip, where the real one takes seconds to unpack it.
QUICK_VENV = """
import pathlib, sys

if __name__ == "__main__":
    sys.path.remove({custom!r})
    import venv

    home = pathlib.Path(sys.argv[1])
    venv.create(home, symlinks=True)
    [site] = home.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text({lent!r})
    (home / "bin" / "pip").write_text(f"#!{{home}}/bin/python")
"""

Make = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what make works with into a folder of its own; a blank in its name must not matter."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").write_text(TOY_PROJECT)
    (folder / "backend.py").write_text(TOY_BACKEND)
    (folder / "constraints.txt").write_text("")
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Make the only folder on PATH: make's tools, and no Python unless a test puts one there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"this machine has no {tool}"
        (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def make(checkout: Path, tools: Path) -> Make:
    """Run make there, with nothing of the outer make and nothing of this machine's Pythons."""
    env = {"PATH": str(tools), "HOME": str(checkout.parent), "LANG": os.environ.get("LANG", "C.UTF-8")}

    def run(*words: str, folder: Path = checkout) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=900
        )

    return run


def put_python(tools: Path, name: str, customize: str = "") -> None:
    """Put a Python on PATH: the real one, after `customize` had its way with it at startup."""
    custom = tools.parent / f"{name}-custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(customize)
    lent = custom / "lent"
    lent.mkdir()
    (lent / "pip").symlink_to(pip.__path__[0])
    (custom / "venv.py").write_text(QUICK_VENV.format(custom=str(custom), lent=str(lent)))
    base = Path(sys.executable).resolve()
    write_program(tools / name, f"PYTHONPATH='{custom}' exec '{base}' \"$@\"")


def write_program(path: Path, line: str) -> None:
    """Write a small shell program."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_help_is_the_default_and_lists_every_target(make: Make) -> None:
    """Plain `make` names each target with a few words, in one column."""
    plain = make()
    assert plain.returncode == 0, plain.stderr
    lines = re.findall(r"^  ([a-z-]+) +(?=\S)", plain.stdout, re.MULTILINE)
    assert set(lines) == TARGETS
    assert len({len(line) for line in re.findall(r"^  [a-z-]+ +(?=\S)", plain.stdout, re.MULTILINE)}) == 1
    assert make("help").stdout == plain.stdout


def test_run_cycle_without_a_cycle_is_a_usage_error(make: Make, checkout: Path) -> None:
    """Without CYCLE nothing is installed; one sentence tells how to name it, and the exit code is 2."""
    result = make("run-cycle")
    assert result.returncode == 2
    assert "make run-cycle CYCLE=" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_machine_without_python_is_told_what_to_install(make: Make, checkout: Path) -> None:
    """Where no Python is found, make says which one is needed and how to get it."""
    result = make("run")
    assert result.returncode == 2
    assert "needs Python 3.11 or newer" in result.stderr
    assert "apt install python3" in result.stderr
    assert not (checkout / ".venv").exists()


def test_an_old_python_is_named_with_its_version(make: Make, checkout: Path, tools: Path) -> None:
    """A Python below 3.11 is refused: make says which version it found and what to install."""
    put_python(tools, "python3", "import sys\nsys.version_info = (3, 9, 2, 'final', 0)")
    result = make("test")
    assert result.returncode == 2
    assert "needs Python 3.11 or newer, but python3 is Python 3.9.2" in result.stderr
    assert "apt install python3" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_without_venv_is_told_apart(make: Make, checkout: Path, tools: Path) -> None:
    """As on a bare Debian, ensurepip may be missing: make names the package and leaves no .venv behind."""
    put_python(tools, "python3", "import sys\nsys.modules['ensurepip'] = None")
    result = make("run")
    assert result.returncode == 2
    assert "venv module is missing" in result.stderr
    assert "apt install python3-venv" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_venv_that_cannot_be_made_leaves_nothing(make: Make, checkout: Path, tools: Path) -> None:
    """When making .venv fails half-way, the half is removed and the reason shown."""
    put_python(tools, "python3", "import sys\nif 'venv' in sys.orig_argv: sys.exit('no room for a venv')")
    result = make("run")
    assert result.returncode == 2
    assert "no room for a venv" in result.stderr
    assert "could not make a virtual environment" in result.stderr
    assert not (checkout / ".venv").exists()


def test_install_quick_repair_and_move(make: Make, checkout: Path, tools: Path) -> None:
    """One .venv serves all: made once, not touched again, remade when cut short or moved elsewhere."""
    write_program(tools / "python3.12", "exit 127")  # an empty shim, as pyenv leaves them
    put_python(tools, "python3")
    first = make("fmt")
    assert first.returncode == 0, first.stderr
    assert "Making .venv" in first.stderr
    assert first.stdout.endswith("toy format\n")

    # Nothing changed: nothing is said; and what dev installed is enough for run.
    again = make("run-cycle", "CYCLE=reaper")
    assert (again.returncode, again.stdout, again.stderr) == (0, "toy run-cycle reaper\n", "")

    # A new pin is installed into the .venv that is there.
    (checkout / "constraints.txt").write_text("typer==0.15.1\n")
    pinned = make("tick")
    assert pinned.returncode == 0, pinned.stderr
    assert pinned.stderr.startswith("Installing")
    assert make("tick").stderr == ""

    # An installation that was cut short is not trusted.
    (checkout / ".venv" / ".unfinished").touch()
    (checkout / ".venv" / "bin" / "relevo").write_text("half of a file")
    mended = make("migrate")
    assert mended.returncode == 0, mended.stderr
    assert mended.stderr.startswith("Remaking .venv")
    assert mended.stdout == "toy migrate\n"

    # In another folder its programs would call the old one's Python.
    elsewhere = checkout.rename(checkout.parent / "moved")
    moved = make("run", folder=elsewhere)
    assert moved.returncode == 0, moved.stderr
    assert moved.stderr.startswith("Remaking .venv")
    assert moved.stdout == "toy run\n"


def test_clean_leaves_the_data(make: Make, checkout: Path) -> None:
    """`make clean` removes .venv and caches, never .relevo, and says so."""
    for name in (".relevo", ".venv", ".ruff_cache", "dist", "server", "tests"):
        (checkout / name).mkdir()
    (checkout / "tests" / "__pycache__").mkdir()
    result = make("clean")
    assert result.returncode == 0, result.stderr
    assert ".relevo" in result.stdout
    left = {path.name for path in checkout.rglob("*") if path.is_dir()}
    assert left == {
        ".relevo",
        "server",
        "tests",
        "scripts",
        "bench",
        "deploy",
        "grafana",
        "helm",
        "relevo",
        "templates",
        "model",
        "chaos",
        "mutants",
        "ha",
        "proof",
        "results",
        "site",
    }
