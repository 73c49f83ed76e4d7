"""Each way to install Relevo that a page shows works, from a clone and from a wheel, with no package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.docs_pages import DOCS, ROOT
from support.soak import cases

GIT = "https://git.example/relevo.git"
PAGES = (ROOT / "README.md", DOCS / "installing.md")
SHOWN = re.compile(r"(?:`|^\$ )(pip install [^`\n#]*[^`\n# ])", re.MULTILINE)
COMMANDS = sorted({found for page in PAGES for found in SHOWN.findall(page.read_text(encoding="utf-8"))})
EXTRA = re.compile(r"\[([\w,-]+)\]")
ONE_OF_EACH = sorted({re.sub(r"""['"]""", "", EXTRA.sub("", command)): command for command in COMMANDS}.values())
"""Of those that differ by quotes and extras alone one: without dependencies an extra installs nothing more."""


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program to its good end, and return what it said."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkout in `relevo`, which is a git repository, and with a wheel in `dist`."""
    folder = tmp_path_factory.mktemp("place")
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").replace("/", "").split()
    checkout = shutil.copytree(ROOT, folder / "relevo", ignore=shutil.ignore_patterns(".git", *ignored))
    identity = ("-c", "user.name=a", "-c", "user.email=a@git.example")
    run("git", "init", "--quiet", cwd=checkout)
    run("git", "add", "--all", cwd=checkout)
    run("git", *identity, "commit", "--quiet", "--message", "All of it", cwd=checkout)
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "dist", cwd=checkout)
    shutil.rmtree(checkout / "dist", ignore_errors=True)
    return folder


def test_there_are_several_ways() -> None:
    """From a checkout, from a wheel and from a git address, for the app and for the server."""
    assert len(COMMANDS) >= 6
    assert {GIT in command for command in COMMANDS} == {True, False}
    assert any("dist/relevo-*.whl" in command for command in COMMANDS)


def test_the_extras_exist() -> None:
    """Each extra that a command asks for is one of Relevo's: pip only warns of others."""
    named = {extra for command in COMMANDS for extras in EXTRA.findall(command) for extra in extras.split(",")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "server" in named
    assert named <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("command", cases(ONE_OF_EACH, whole=COMMANDS))
def test_it_installs(command: str, place: Path, tmp_path: Path) -> None:
    """The command as it is printed installs, without the libraries that others publish; git finds the address here."""
    assert command in "".join(page.read_text(encoding="utf-8") for page in PAGES)
    alone = "--quiet --no-deps --no-index --no-build-isolation --no-compile"
    program = command.replace("pip install", f"{sys.executable} -m pip install {alone} --target {tmp_path}/site", 1)
    folder = place / "relevo" if re.search(r"install '?\.(\[|'|$)", command) else place
    here = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{place}/relevo.insteadOf",
        "GIT_CONFIG_VALUE_0": GIT,
    }
    run("sh", "-c", program, cwd=folder, TMPDIR=str(tmp_path), **here)
    told = run(
        sys.executable, "-S", "-c", "import relevo; print(relevo.__file__)", cwd=tmp_path, PYTHONPATH=f"{tmp_path}/site"
    )
    assert told.startswith(f"{tmp_path}/site/relevo/")
