"""What the page on stability promises is what the code, the frozen releases and the workflows have."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml

import make_dist
import released
import sbom
from relevo.archive import manifest
from relevo.embedded import binaries
from relevo.operators import doctor
from support.docs_pages import DOCS, ROOT

PAGE = (DOCS / "stability.md").read_text(encoding="utf-8")
VERSION = make_dist.version_of().partition(".dev")[0]
TABLES = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "sql" / "tables").glob("*.sql"))
MATRIX = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8"))["jobs"]["check"][
    "strategy"
]["matrix"]


def minor(version: str, further: int = 0) -> str:
    """Return the minor release of a version, or one that comes so many later."""
    major, second = version.split(".")[:2]
    return f"{major}.{int(second) + further}"


def row(name: str) -> list[str]:
    """Return the cells of the row that begins with a name."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_supported_releases_are_this_one_and_the_one_before() -> None:
    """The table has the release in work, the last one that was frozen, and when both end."""
    table = PAGE[PAGE.index("## Supported releases") : PAGE.index("## Supported platforms")]
    before = [version for version in released.versions() if version != VERSION][-1]
    assert re.findall(r"^\| (\d+\.\d+) \|", table, re.MULTILINE) == [minor(VERSION), minor(before)]
    assert [row(minor(each))[2] for each in (VERSION, before)] == [f"{minor(VERSION, 1)} is released"] * 2


def test_deprecated_names_end_two_releases_later() -> None:
    """The example of the rule counts from the release in work."""
    now, then, end = (minor(VERSION, further) for further in range(3))
    assert f"A name that {now} deprecates works in {now} and {then}, and {end} may remove it." in PAGE


def test_python_is_the_one_of_the_package() -> None:
    """The page has the versions from the oldest that the package installs on to the newest that is tested."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        oldest = tomllib.load(file)["project"]["requires-python"].removeprefix(">=")
    assert (oldest, sbom.PYTHONS[-1]) == tuple(row("Python")[1].split(" to "))
    assert tuple(MATRIX["python"]) == sbom.PYTHONS


def test_postgresql_is_the_one_that_relevo_starts_on() -> None:
    """The page has the majors that Relevo itself names, in doctor and for its own server."""
    assert row("PostgreSQL")[1] == f"{binaries.OLDEST} to {binaries.NEWEST}"
    assert doctor._OLDEST_VERSION == binaries.OLDEST


def test_node_is_the_one_of_the_kits() -> None:
    """The kits name the same oldest version of Node.js."""
    engines = json.loads((ROOT / "server" / "clients" / "package.json").read_text(encoding="utf-8"))["engines"]
    assert row("Node.js, for the npm packages")[1] == f"{engines['node'].removeprefix('>=')} or newer"


def test_the_archive_has_the_format_that_is_promised() -> None:
    """The page names the format that manifests have."""
    assert f"`_manifest.json` (format {manifest.FORMAT})" in PAGE


def test_the_prefix_of_routes_is_theirs() -> None:
    """Every route that an app calls is below the prefix, or is one of the two for probes."""
    routes = re.findall(r"^### `?\w+ (/[^`\s]*)", (DOCS / "http-api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(routes) > 50
    told = ("/v1/", "/health/live", "/health/ready", "/metrics")
    assert [route for route in routes if not route.startswith(told)] == []


@pytest.mark.parametrize("table", sorted(set(re.findall(r"`relevo\.(\w+)`", PAGE[PAGE.index("These tables") :]))))
def test_tables_to_read_are_there(table: str) -> None:
    """Each table or view that a person may build on is one of the schema."""
    assert re.search(rf"^create (table|view) relevo\.{table}\b", TABLES, re.MULTILINE)
