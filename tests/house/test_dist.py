"""What is published agrees with itself: version, changelog, frozen release, SBOM; and a failed rehearsal ends `make dist`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import make_dist  # noqa: E402
import sbom  # noqa: E402


def test_version_changelog_and_frozen_release_agree() -> None:
    """The version is either released, with a heading and a frozen folder, or in work, with neither."""
    assert list(make_dist.disagreements()) == []


@pytest.mark.parametrize(
    ("version", "heading", "frozen", "said"),
    [
        ("1.0.0", "1.0.0", True, []),
        ("1.0.0", "0.9.0", True, ["the changelog's newest heading is not [1.0.0]"]),
        ("1.0.0", "1.0.0", False, ["1.0.0 is not frozen: run scripts/freeze_release.py"]),
        (
            "1.0.0",
            "Unreleased]\n\n## [1.0.0",
            True,
            ["1.0.0 is released, and the changelog has later changes: set the next version, with .dev0"],
        ),
        ("1.1.0.dev0", "Unreleased", False, []),
        (
            "1.1.0.dev0",
            "1.0.0",
            False,
            ["1.1.0.dev0 is not released, and the changelog does not begin with [Unreleased]"],
        ),
        ("1.1.0.dev0", "Unreleased", True, ["1.1.0.dev0 is in work, and its release is frozen already"]),
    ],
)
def test_each_disagreement_is_said(tmp_path: Path, version: str, heading: str, frozen: bool, said: list[str]) -> None:
    """Whatever does not fit is named, with the next step where there is one."""
    (tmp_path / "server" / "relevo" / "core").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "server" / "relevo" / "core" / "version.py").write_text(f'__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{heading}]\n")
    if frozen:
        (tmp_path / "tests" / "migrations" / "released" / version.partition(".dev")[0]).mkdir(parents=True)
    assert list(make_dist.disagreements(tmp_path)) == said


def test_a_kit_of_another_version_is_named(tmp_path: Path) -> None:
    """Kits have the version of the package, without what says that it is in work."""
    (tmp_path / "server" / "relevo" / "core").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.1.0.dev0"\n')
    (tmp_path / "server" / "relevo" / "core" / "version.py").write_text('__version__ = "1.1.0.dev0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    for kit, version in (("pg", "1.1.0"), ("web", "1.0.0")):
        (tmp_path / "server" / "clients" / kit).mkdir(parents=True)
        (tmp_path / "server" / "clients" / kit / "package.json").write_text(json.dumps({"version": version}))
    named = "server/clients/web/package.json has another version than pyproject.toml, 1.1.0.dev0"
    assert list(make_dist.disagreements(tmp_path)) == [named]


def test_a_failed_rehearsal_ends_it(tmp_path: Path) -> None:
    """The tests of the rolling upgrade are there, and where one fails nothing goes on, with what it said."""
    assert [test for test in make_dist.REHEARSAL if not (ROOT / test).is_file()] == []
    for name, line in (("good", "pass"), ("bad", "raise OSError('lost')")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {line}\n")
    alone = ("--rootdir", tmp_path, "--confcutdir", tmp_path)
    assert make_dist.rehearse([tmp_path / "test_good.py", *alone]).startswith("rehearsed")
    with pytest.raises(SystemExit, match="OSError: lost"):
        make_dist.rehearse([tmp_path / "test_bad.py", *alone])


class TestBillOfMaterials:
    """The SBOM is CycloneDX, as `make docs` writes it, and holds what users install."""

    BILL = json.loads(sbom.PLACE.read_text(encoding="utf-8"))

    def test_it_is_up_to_date(self) -> None:
        """The file is what pyproject.toml, constraints.txt and the libraries' own metadata give."""
        assert sbom.PLACE.read_text(encoding="utf-8") == sbom.text(), "run: make docs"

    def test_it_has_each_library_once_as_pinned(self) -> None:
        """Each library that an extra for users names is in it, with the version of constraints.txt; tools are not."""
        pins = dict(
            line.partition(" ")[0].lower().replace("_", "-").split("==")
            for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        )
        told = [(each["name"], each["version"]) for each in self.BILL["components"]]
        assert len(set(told)) == len(told)
        assert [(name, version) for name, version in told if pins[name] != version] == []
        names = {name for name, _ in told}
        assert {"psycopg", "psycopg-binary", "pyarrow", "starlette", "h2", "jh2", "icu4py", "duckdb"} <= names
        assert not {"relevo", "pytest", "ruff", "hatchling", "pgqueuer"} & names

    def test_its_references_hold(self) -> None:
        """Each dependency names components of the bill, Relevo is its subject, and everything is reached from there."""
        subject = self.BILL["metadata"]["component"]
        with (ROOT / "pyproject.toml").open("rb") as file:
            assert subject["version"] == tomllib.load(file)["project"]["version"]
        needs = {each["ref"]: each["dependsOn"] for each in self.BILL["dependencies"]}
        assert needs.keys() == {subject["bom-ref"], *(each["bom-ref"] for each in self.BILL["components"])}
        reached, waiting = set[str](), [subject["bom-ref"]]
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting += needs[one]
        assert reached == needs.keys()

    @pytest.mark.parametrize("python", sbom.PYTHONS)
    def test_each_python_is_supported(self, python: str) -> None:
        """It is made for the versions of Python that are tested."""
        workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
        assert f'"{python}"' in workflow
