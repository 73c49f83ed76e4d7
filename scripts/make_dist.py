"""Builds what is published into dist/, wheel, sdist and with docker the image, and looks at it as installed."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
RELEASED = ROOT / "tests" / "migrations" / "released"
IN_THE_WHEEL = ("relevo/__init__.py", "relevo/py.typed", "relevo/docs/index.md", "relevo/sql/queries/claims.sql")
IN_THE_SDIST = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "server/relevo/__init__.py")


def version_of(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml names."""
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def disagreements(root: Path = ROOT) -> Iterator[str]:
    """Say where version, package, changelog and frozen release differ; one with .dev is not released."""
    version = version_of(root)
    package = (root / "server" / "relevo" / "core" / "version.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in package:
        yield f"server/relevo/core/version.py has another version than pyproject.toml, {version}"
    headings = re.findall(r"^## \[([^\]]+)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    frozen = (root / "tests" / "migrations" / "released" / version.partition(".dev")[0]).is_dir()
    if ".dev" in version:
        if "Unreleased" not in headings[:1]:
            yield f"{version} is not released, and the changelog does not begin with [Unreleased]"
        if frozen:
            yield f"{version} is in work, and its release is frozen already"
        return
    if [each for each in headings if each != "Unreleased"][:1] != [version]:
        yield f"the changelog's newest heading is not [{version}]"
    if "Unreleased" in headings[:1]:
        yield f"{version} is released, and the changelog has later changes: set the next version, with .dev0"
    if not frozen:
        yield f"{version} is not frozen: run scripts/freeze_release.py"


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """Run a program to its good end, and return what it said."""
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """Build the sdist and, from the checkout, the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", DIST)
    [sdist], [wheel] = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def check_wheel(wheel: Path, version: str) -> None:
    """See that the wheel holds the package, and that it tells its version where nothing else is installed."""
    missing = set(IN_THE_WHEEL) - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python = Path(folder) / "bin" / "python"
        words = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
        run(sys.executable, "-m", "pip", "--python", python, *words)
        told = run(python, "-c", "import relevo; print(relevo.__version__)", cwd=Path(folder)).strip()
    if told != version:
        raise SystemExit(f"{wheel.name} says that it is {told}, not {version}")


def check_sdist(sdist: Path, wheel: Path) -> None:
    """See that the sdist holds its files, and that it builds the same wheel as the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as packed:
            packed.extractall(folder, filter="data")
        [source] = Path(folder).iterdir()
        missing = [name for name in IN_THE_SDIST if not (source / name).exists()]
        if missing:
            raise SystemExit(f"{sdist.name} lacks {', '.join(missing)}")
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", source / "out", cwd=source)
        [again] = (source / "out").glob("*.whl")
        if _contents(again) != _contents(wheel):
            raise SystemExit(f"{sdist.name} builds another wheel than the checkout")


def _contents(wheel: Path) -> dict[str, int]:
    return {entry.filename: entry.CRC for entry in zipfile.ZipFile(wheel).infolist()}


def build_image(version: str) -> str:
    """Build the image where a docker engine answers, and say what came of it."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return "the image was not built: no docker engine answers here"
    name = f"relevo:{version}"
    run(docker, "build", "--file", "scripts/deploy/Dockerfile", "--tag", name, ".")
    told = run(docker, "run", "--rm", name, "--version").strip()
    if told != version:
        raise SystemExit(f"the image {name} says that it is {told}")
    return f"built the image {name}"


def main() -> None:
    """Build all, look at all, and say what may be published."""
    version = version_of()
    sdist, wheel = build()
    check_wheel(wheel, version)
    check_sdist(sdist, wheel)
    for file in (sdist, wheel):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"built dist/{file.name}: {file.stat().st_size} bytes, sha256 {digest}")
    print(build_image(version))
    troubles = list(disagreements())
    for trouble in troubles:
        print(f"not to be published: {trouble}")
    if troubles:
        raise SystemExit(1)
    if ".dev" in version:
        print(f"not to be published: {version} is in work")


if __name__ == "__main__":
    main()
