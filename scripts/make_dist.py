"""Builds all that is published into dist/, installs each in an empty environment, and rehearses the upgrade to it."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pack_chart
import pack_kits

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
REHEARSAL = ("tests/migrations/test_rolling_upgrades.py", "tests/migrations/test_upgrade_under_load.py")
KITS, CHART = "server/clients/*/package.json", "scripts/deploy/helm/relevo/Chart.yaml"
PARTS = ("server", "examples", "kits", "chart", "image", "rehearsal")
IN_THE_WHEEL = ("relevo/__init__.py", "relevo/py.typed", "relevo/docs/index.md", "relevo/sql/queries/claims.sql")
IN_THE_SDIST = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "server/relevo/__init__.py")


def version_of(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml names."""
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def disagreements(root: Path = ROOT) -> Iterator[str]:
    """Return where version, package, changelog and frozen release differ; one with .dev is not released."""
    version = version_of(root)
    package = (root / "server" / "relevo" / "core" / "version.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in package:
        yield f"server/relevo/core/version.py has another version than pyproject.toml, {version}"
    yield from _others(root, version)
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


def _others(root: Path, version: str) -> Iterator[str]:
    """Name kits and chart of another version; they do not say that they are in work."""
    kits = {file: {json.loads(file.read_text(encoding="utf-8"))["version"]} for file in root.glob(KITS)}
    charts = {file: pack_chart.versions_of(file) for file in root.glob(CHART)}
    for file, versions in sorted({**kits, **charts}.items()):
        if versions != {version.partition(".dev")[0]}:
            yield f"{file.relative_to(root)} has another version than pyproject.toml, {version}"


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
    sbom = f"relevo-{version}.dist-info/sboms/relevo.cdx.json"  # where PEP 770 says
    missing = {*IN_THE_WHEEL, sbom} - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(folder), "--no-deps", "--no-index", "--no-compile", wheel)
        told = run(python, "-c", "import relevo; print(relevo.__version__)", cwd=Path(folder)).strip()
    if told != version:
        raise SystemExit(f"{wheel.name} says that it is {told}, not {version}")


def install(folder: Path, *words: str | Path) -> Path:
    """Install something in an empty environment, and return the environment's Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *words)
    return python


def check_server(wheel: Path, version: str) -> str:
    """See that the wheel's server starts with the libraries of constraints.txt and no others, and say so."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(folder), "--constraint", ROOT / "constraints.txt", f"{wheel}[server]")
        told = run(python.with_name("relevo"), "--version", cwd=Path(folder)).strip()
    if told != version:
        raise SystemExit(f"the server of {wheel.name} says that it is {told}, not {version}")
    return f"installed {wheel.name} with [server]"


def check_examples(wheel: Path) -> str:
    """Run the examples of README and guide by the wheel, in an empty environment; say that they do as printed."""
    run(sys.executable, ROOT / "scripts" / "try_examples.py", wheel)
    return f"ran the examples of README and guide by {wheel.name}"


def build_kits(version: str, repository: str) -> str:
    """Pack the kits where Node.js is, try them, and say what came of it."""
    if lacking := [name for name in ("node", "npm") if shutil.which(name) is None]:
        raise LeftOutError(f"the kits were not packed: no {' and '.join(lacking)} here")
    pack_kits.build()
    tarballs = pack_kits.pack(DIST, version, repository)
    pack_kits.check(tarballs)
    return f"packed and installed {', '.join(tarball.name for tarball in tarballs)}"


def build_chart(version: str) -> str:
    """Pack the Helm chart, let Helm look at it, and say what came of it."""
    packed = pack_chart.pack(DIST, pack_kits.npm_version(version))
    if shutil.which("helm") is None:
        raise LeftOutError(f"{packed.name} was not tried: no helm here")
    pack_chart.check(packed)
    return f"packed {packed.name}, linted and rendered"


def rehearse(tests: Sequence[str | Path] = REHEARSAL) -> str:
    """Upgrade a fleet of the last release under load, as the tests do; say that it went well."""
    run(sys.executable, "-m", "pytest", "--quiet", *tests)
    return "rehearsed the rolling upgrade from the last release"


class LeftOutError(Exception):
    """A part cannot be made or tried on this machine."""


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
        raise LeftOutError("the image was not built: no docker engine answers here")
    name = f"relevo:{version}"
    run(docker, "build", "--file", "scripts/deploy/Dockerfile", "--tag", name, ".")
    told = run(docker, "run", "--rm", name, "--version").strip()
    if told != version:
        raise SystemExit(f"the image {name} says that it is {told}")
    return f"built the image {name}"


def make_part(part: str, wheel: Path, version: str, repository: str) -> str:
    """Make or try one part beside wheel and sdist; say what came of it."""
    match part:
        case "server":
            return check_server(wheel, version)
        case "examples":
            return check_examples(wheel)
        case "kits":
            return build_kits(version, repository)
        case "chart":
            return build_chart(version)
        case "image":
            return build_image(version)
        case _:
            return rehearse()


def chosen() -> argparse.Namespace:
    """Read the words of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--without", action="append", default=[], choices=PARTS, help="leave a part out; may be given again"
    )
    parser.add_argument("--repository", default="", help="the address of the sources, to be named in the kits")
    return parser.parse_args()


def main() -> None:
    """Build all, look at all, and say what may be published."""
    words, version = chosen(), version_of()
    sdist, wheel = build()
    check_wheel(wheel, version)
    check_sdist(sdist, wheel)
    troubles = list(disagreements())
    for part in PARTS:
        if part in words.without:
            troubles.append(f"left out as you asked: {part}")
            continue
        try:
            print(make_part(part, wheel, version, words.repository), flush=True)
        except LeftOutError as error:
            troubles.append(str(error))
    for file in sorted(DIST.iterdir()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"built dist/{file.name}: {file.stat().st_size} bytes, sha256 {digest}")
    if ".dev" in version:
        troubles.append(f"{version} is in work")
    for trouble in troubles:
        print(f"not to be published: {trouble}")
    if list(disagreements()) or (troubles and ".dev" not in version):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
