"""The kits as npm would give them to an app: packed, installed offline in an empty folder, imported and compiled against."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

import pack_kits
from support.soak import cases

pytestmark = pytest.mark.needs("kits")
ROOT = Path(__file__).resolve().parents[2]
SHOWN = {
    page.relative_to(ROOT).as_posix(): re.findall(r"`(npm install [^`]+)`", page.read_text(encoding="utf-8"))
    for page in (ROOT / "server" / "docs" / "kits.md", *(ROOT / "server" / "clients").glob("*/README.md"))
}
ONE = max(SHOWN, key=lambda page: ("expo" in page, page))
"""The others differ by the names of kits, which are looked at in all."""
SOURCES = "https://git.example/relevo"


@pytest.fixture(scope="module")
def tarballs(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What `make dist` packs of the kits as they are built."""
    return pack_kits.pack(tmp_path_factory.mktemp("packed"), "9.8.7.dev6", SOURCES)


def package(tarball: Path) -> dict[str, object]:
    """Return the package.json inside."""
    with tarfile.open(tarball) as packed:
        file = packed.extractfile("package/package.json")
        assert file is not None
        return dict(json.load(file))


def test_they_are_installed_and_imported(tarballs: list[Path]) -> None:
    """Everything that they export is there, loads, and has types; nothing has to be fetched."""
    pack_kits.check(tarballs)


def test_they_hold_what_is_published_and_nothing_else(tarballs: list[Path]) -> None:
    """Code, types, license and README are inside; sources, tests and examples are not."""
    for tarball in tarballs:
        with tarfile.open(tarball) as packed:
            names = {name.removeprefix("package/") for name in packed.getnames()}
        assert {"LICENSE", "README.md", "package.json", "dist/src/index.js", "dist/src/index.d.ts"} <= names
        beside = {name for name in names if not name.startswith(("dist/src/", "dist/worker/"))}
        styles = {"styles.css"} if tarball.name.startswith("relevo-react-") else set()
        assert beside == {"LICENSE", "README.md", "package.json"} | styles


def test_they_name_one_version_and_their_sources(tarballs: list[Path]) -> None:
    """Each has the version given, asks for the others in it, and says where its sources are: provenance needs that."""
    for tarball in tarballs:
        told = package(tarball)
        assert told["version"] == "9.8.7-dev.6"
        assert set(dict(told["dependencies"]).values()) <= {"9.8.7-dev.6"}
        directory = f"server/clients/{str(told['name']).partition('/')[2]}"
        assert told["repository"] == {"type": "git", "url": f"git+{SOURCES}.git", "directory": directory}


def test_an_incomplete_kit_is_named(tarballs: list[Path], tmp_path: Path) -> None:
    """A tarball without a file that it exports is refused by name."""
    place = tmp_path / "@relevo" / "pg"
    place.mkdir(parents=True)
    (place / "package.json").write_text(json.dumps({"exports": {".": {"default": "./dist/gone.js"}}}))
    [pg] = [each for each in tarballs if each.name.startswith("relevo-pg-")]
    with pytest.raises(SystemExit, match=r"lacks \./dist/gone\.js"):
        pack_kits._exports(tmp_path, pg)


@pytest.mark.parametrize("page", sorted(SHOWN))
def test_a_page_names_all_that_its_kit_needs(page: str, tarballs: list[Path]) -> None:
    """The one command of a page names files that `make dist` makes, the page's own kit, and each kit that one of them needs."""
    [command] = SHOWN[page]
    program, install, *files = command.split()
    assert (program, install) == ("npm", "install")
    named = [each for file in files for each in tarballs if fnmatch(f"./relevo/dist/{each.name}", file)]
    assert len(named) == len(files), command
    packages = [package(each) for each in named]
    names = {str(each["name"]) for each in packages}
    assert all(names >= dict(each["dependencies"]).keys() for each in packages)
    kit = Path(page).parent.name
    assert kit == "docs" or f"@relevo/{kit}" in names


@pytest.mark.parametrize("page", cases((ONE,), whole=sorted(SHOWN)))
def test_what_a_page_shows_installs(page: str, tarballs: list[Path], tmp_path: Path) -> None:
    """The command as it is printed puts the kits into an app, from what `make dist` made in a checkout beside it."""
    (tmp_path / "relevo").mkdir()
    (tmp_path / "relevo" / "dist").symlink_to(tarballs[0].parent)
    (tmp_path / "package.json").write_text('{"private": true}')
    [command] = SHOWN[page]
    quiet = "--offline --omit=peer --legacy-peer-deps --no-audit --no-fund"
    done = subprocess.run(
        ["sh", "-c", f"{command} {quiet}"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    named = {f"relevo-{path.name}" for path in (tmp_path / "node_modules" / "@relevo").iterdir()}
    assert named == set(re.findall(r"dist/(relevo-\w+)-", command))
