"""Lists what an installed Relevo may consist of, as CycloneDX JSON; `make docs` writes it, and every wheel carries it.

The libraries are those that the extras of pyproject.toml bring, directly or through others, in the versions of
constraints.txt.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "server" / "relevo.cdx.json"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FOR_DEVELOPERS = {"bench", "dev", "mutants", "site"}
_PLATFORM = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


def text() -> str:
    """Return the bill of materials; it holds no time and no random number, so that equal sources give equal files."""
    return json.dumps(document(), indent=1) + "\n"


def document() -> dict[str, Any]:
    """Return Relevo, the libraries, and which needs which."""
    project, pins, needed = _project(), _pins(), _needed()
    relevo = f"pkg:pypi/relevo@{project['version']}"
    purls = {name: f"pkg:pypi/{name}@{pins[name]}" for name in sorted(needed) if name != "relevo"} | {"relevo": relevo}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": relevo,
                "name": "relevo",
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": relevo,
            }
        },
        "components": [_component(name, pins[name], purl) for name, purl in purls.items() if name != "relevo"],
        "dependencies": [
            {"ref": purl, "dependsOn": [purls[each] for each in sorted(needed[name] - {name})]}
            for name, purl in purls.items()
        ],
    }


def _component(name: str, version: str, purl: str) -> dict[str, str]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        # The app that only enqueues installs none of them.
        "scope": "optional",
        "purl": purl,
    }


@cache
def _project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in pinned}


def _needed() -> Mapping[str, set[str]]:
    """Return every package that the published extras reach, with the packages that it needs itself."""
    needed: dict[str, set[str]] = {}
    extras = _project()["optional-dependencies"].keys() - FOR_DEVELOPERS
    waiting, known = [("relevo", extra) for extra in sorted(extras)], set[tuple[str, str]]()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in known:
            continue
        known.add((name, extra))
        for each in _requirements(name, extra):
            other = canonicalize_name(each.name)
            needed.setdefault(name, set()).add(other)
            needed.setdefault(other, set())
            waiting += [(other, wanted) for wanted in ("", *each.extras) if other != "relevo" or wanted]
    return needed


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    """Yield what a package needs for one of its extras, or without any, on Linux with one of the Pythons."""
    if name == "relevo":
        yield from map(Requirement, _project()["optional-dependencies"][extra])
        return
    try:
        needs = metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        needs = _listed(name)
    for each in map(Requirement, needs):
        wanted = any(_holds(each, extra, python) for python in PYTHONS)
        if wanted and not (extra and any(_holds(each, "", python) for python in PYTHONS)):
            yield each


def _listed(name: str) -> list[str]:
    """Return what a package that is not installed here needs, as the last list has it."""
    listed = {each["ref"]: each["dependsOn"] for each in json.loads(PLACE.read_text(encoding="utf-8"))["dependencies"]}
    purl = f"pkg:pypi/{name}@{_pins()[name]}"
    if purl not in listed:
        raise SystemExit(f"{name} is not installed: make installed-dev installs what pyproject.toml names")
    return [each.removeprefix("pkg:pypi/").partition("@")[0] for each in listed[purl]]


def _holds(requirement: Requirement, extra: str, python: str) -> bool:
    told = _PLATFORM | {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
    return requirement.marker is None or requirement.marker.evaluate(told)
