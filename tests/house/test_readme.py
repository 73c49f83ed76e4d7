"""The README leads where it says, and is short; the map of the code names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVER = ROOT / "server"
MAP = (SERVER / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize("page", [ROOT / "README.md", SERVER / "README.md"], ids=["README", "map"])
def test_every_link_leads_somewhere(page: Path) -> None:
    """Each relative link is a file or a folder of the checkout."""
    links = sorted(set(LINK.findall(page.read_text(encoding="utf-8"))))
    assert len(links) > 20
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_stranger_needs_five_minutes() -> None:
    """Without the figures it has fewer than a thousand words, two commands, and twenty lines of code."""
    text = re.sub(r"<!-- bench.*?<!-- /bench -->", "", README, flags=re.DOTALL)
    assert len(text.split()) < 1000
    [commands] = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    assert len(commands.splitlines()) == 2
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 20


def test_its_code_is_run_elsewhere() -> None:
    """The code is the quickstart's, which a test runs as it stands there."""
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert f"```python run\n{code}```" in (SERVER / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_its_pictures_are_small() -> None:
    """The dashboard's pictures, light and dark, are PNGs below 200 kB."""
    names = re.findall(r'(?:src|srcset)="([^"]+\.png)"', README)
    assert len(names) == 2
    for name in names:
        picture = (ROOT / name).read_bytes()
        assert picture.startswith(b"\x89PNG"), name
        assert len(picture) < 200_000, name


def places() -> list[tuple[str, str]]:
    """Return the names that the tables "where is" link, each with its file."""
    table = MAP[MAP.index("| where is … |") : MAP.index("## Words")]
    return re.findall(r"\[`(?:relevo\.)?(?:\w+\.)?(\w+)`\]\(([^)]+)\)", table)


def test_the_map_names_what_is_there() -> None:
    """What the table says is in a file is defined in that file."""
    for name, file in places():
        text = (SERVER / file).read_text(encoding="utf-8")
        defined = rf"(def|class|function|table|-- name:) (relevo\.)?{name}\b|^{name}(: [^=]+)? = "
        assert re.search(defined, text, re.MULTILINE), f"{name} is not in {file}"


def test_the_map_is_not_empty() -> None:
    """A hundred names lead to their files."""
    assert len(places()) >= 100


def test_every_room_is_on_the_map() -> None:
    """Each folder and module of the package is named in the table of folders."""
    table = MAP[MAP.index("| folder or module of") : MAP.index("| where is … |")]
    package = SERVER / "relevo"
    rooms = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    named = set(re.findall(r"\w+", table))
    assert sorted(rooms - named) == []


def test_every_folder_of_functions_is_told() -> None:
    """The SQL's README says of each folder of `functions/` what is in it, and of none that is not there."""
    text = (ROOT / "sql" / "README.md").read_text(encoding="utf-8")
    table = text[text.index("The folders of `functions/`") : text.index("## How a database")]
    told = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(path.name for path in (ROOT / "sql" / "functions").iterdir())


def test_every_file_of_tables_is_told() -> None:
    """The SQL's README says of each file of `tables/` what is in it, and of none that is not there."""
    text = (ROOT / "sql" / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| `tables/` | has |") : text.index("The folders of `functions/`")]
    rows = re.findall(r"^\| (`\w+`.*?) \|", table, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(path.stem for path in (ROOT / "sql" / "tables").iterdir())


@pytest.mark.parametrize("page", ["README.md", "server/README.md", "sql/README.md"])
def test_every_path_in_code_marks_is_there(page: str) -> None:
    """A file that is named without a link is one of the checkout."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|sql|md|mjs|html))`", text)
    near = ((ROOT / page).parent, ROOT, SERVER / "relevo")
    assert [path for path in named if not any((place / path).exists() for place in near)] == []


def test_the_benchmarks_have_their_place() -> None:
    """`make bench ARGS=--write-readme` finds its two markers, each once and in order."""
    begin, end = "<!-- bench: written by make bench ARGS=--write-readme -->", "<!-- /bench -->"
    assert README.count(begin) == README.count(end) == 1
    assert README.index(begin) < README.index(end)
