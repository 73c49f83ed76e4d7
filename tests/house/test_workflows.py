"""The workflows test what the package supports, and publish only once a person enabled that, without stored keys."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import make_dist
from relevo.embedded import binaries

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
FLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
CHECK, PUBLISH = FLOWS["check"], FLOWS["publish"]
PAGE = (ROOT / "server" / "docs" / "releasing.md").read_text(encoding="utf-8")
WITH_IDENTITY = {"pypi", "npm", "image", "release"}


def steps(flow: dict[Any, Any]) -> list[dict[str, Any]]:
    """Return all steps of a workflow."""
    return [step for job in flow["jobs"].values() for step in job.get("steps", ())]


def commands(job: dict[str, Any]) -> str:
    """Return what a job runs in shells."""
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_all_supported_versions_are_tested() -> None:
    """Each Python that the package names meets each PostgreSQL that Relevo works with."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    prefix = "Programming Language :: Python :: "
    named = [each.removeprefix(prefix) for each in project["classifiers"] if each.startswith(f"{prefix}3.")]
    assert f">={named[0]}" == project["requires-python"]
    matrix = CHECK["jobs"]["check"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert matrix["postgres"] == [str(major) for major in range(binaries.OLDEST, binaries.NEWEST + 1)]
    [check] = [step for step in CHECK["jobs"]["check"]["steps"] if "make check" in step.get("run", "")]
    assert "python${{ matrix.python }}" in check["run"]
    assert "${{ matrix.postgres }}" in check["env"]["RELEVO_TEST_POSTGRES_BIN"]


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_actions_are_pinned_by_version(name: str) -> None:
    """No step runs what a branch of somebody else holds today."""
    used = [step["uses"] for step in steps(FLOWS[name]) if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+(\.\d+)*", each)] == []


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_commands_hold_nothing_that_others_write(name: str) -> None:
    """A shell gets what others may choose, such as a tag's name, by variables alone; a matrix is ours."""
    held = [found for step in steps(FLOWS[name]) for found in re.findall(r"\$\{\{\s*([\w.]+)", step.get("run", ""))]
    assert [each for each in held if not each.startswith("matrix.")] == []


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_they_may_only_read_unless_a_job_says_more(name: str) -> None:
    """By default a workflow reads the sources; no secret is named but the one that every run is given."""
    assert FLOWS[name]["permissions"] == {"contents": "read"}
    assert set(re.findall(r"secrets\.(\w+)", TEXTS[name])) <= {"GITHUB_TOKEN"}


def test_nothing_is_published_before_a_person_enabled_it() -> None:
    """It starts with a tag; each job waits for the variable; what uploads waits for all tests and for `make dist`."""
    assert PUBLISH[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    jobs = PUBLISH["jobs"]
    assert {job["if"] for job in jobs.values()} == {"vars.PUBLISH == 'true'"}
    assert jobs["check"]["uses"] == "./.github/workflows/check.yml"
    assert "workflow_call" in CHECK[True]
    assert (jobs["dist"]["needs"], jobs["release"]["needs"]) == ("check", ["pypi", "npm", "image"])
    assert {jobs[name]["needs"] for name in ("pypi", "npm", "image")} == {"dist"}
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == WITH_IDENTITY
    assert [name for name in ("pypi", "npm", "image") if jobs[name]["environment"] != name] == []


def test_what_is_published_is_what_make_dist_made() -> None:
    """The tag has to be the version; every upload is of files that were tried, each attested or signed."""
    jobs = PUBLISH["jobs"]
    assert "make_dist.version_of()" in commands(jobs["dist"])
    assert "make dist " in commands(jobs["dist"])
    assert "--repository" in commands(jobs["dist"])
    for name in WITH_IDENTITY:
        assert any(step.get("uses", "").startswith("actions/download-artifact@") for step in jobs[name]["steps"])
    [upload] = [step for step in jobs["pypi"]["steps"] if "pypi-publish" in step.get("uses", "")]
    assert upload["with"] == {"attestations": True}
    assert "npm publish " in commands(jobs["npm"])
    assert "--provenance" in commands(jobs["npm"])
    assert commands(jobs["image"]).count("cosign sign --yes ") == 2
    [build] = [step["with"] for step in jobs["image"]["steps"] if step.get("id") == "build"]
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert (ROOT / build["file"]).is_file()


def test_the_kits_are_uploaded_in_the_order_they_need_each_other() -> None:
    """Each kit comes after the one that it depends on, and none is forgotten."""
    [listed] = re.findall(r"for kit in ([\w ]+);", commands(PUBLISH["jobs"]["npm"]))
    assert listed.split()[0] == "client"
    assert tuple(listed.split()) == make_dist.pack_kits.KITS


def test_the_page_names_what_a_person_sets() -> None:
    """Releasing tells of the variable, of each environment, and of the workflow's file."""
    for word in ("`PUBLISH`", "`publish.yml`", "`pypi`", "`npm`", "`image`"):
        assert word in PAGE, word
