"""The pages are true: what they link to, name and generate is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import generate_docs
import provider_tables
from relevo import config
from relevo.cli import cli
from relevo.core.known_services import CODES
from relevo.http.rules import RULES
from support.docs_pages import DOCS, PAGES, ROOT, anchor, blocks, headings, links, pictures, prose, spans

NOT_OURS = {
    *("OUTBOX_WORKER_POLL_MS", "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS", "PDF_RENDER_CONCURRENCY"),
    *("WORKER_API_BASE_URL", "WORKER_API_SERVICE_TOKEN"),
    "POSTGRES_PASSWORD",
    "STORE_SECRET",
    "GRAFANA_PASSWORD",
    "ATTR_EMULATE_PREPARES",
    "RELEVO_TEST_WHOLE",
    "AF_INET",
    "AF_INET6",
    "AF_UNIX",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "NOT_FOUND",
    "EVENT_NOT_SENT",
    "PENDING",
    "SKIP_LOCKED",
    "TEST_RUNNER",
}
"""Names in capitals that are not settings of Relevo."""
NO_METRICS = {"relevo_archive", "relevo_restored", "relevo_", "relevo_session"}
"""What else begins with relevo_: schemas, tokens, and the cookie."""
DOORS = ["Understand it", "Use it from your app", "Run it", "Look it up"]
"""The headings of the index."""
OTHERS_CODES = re.compile(
    r"HTTP_\d+|UNAUTHORIZED|INTERNAL_(?:SERVER_)?ERROR|TOO_MANY_\w+|PUSH_TOO_MANY_\w+"
    r"|BAD_REQUEST|DEVICE_QUOTA_EXCEEDED|REFUSED_STREAM"
    r"|PRIORITY_(?:MIN|LOW|DEFAULT|HIGH|MAX)|OTEL_\w+"
)


class TestLinks:
    """Every page can be reached, and leads where it says."""

    def test_the_index_names_every_page(self) -> None:
        """Whoever starts at the index finds all there is."""
        assert sorted(set(links(DOCS / "index.md"))) == sorted(page.name for page in PAGES if page.name != "index.md")

    def test_the_index_has_four_doors(self) -> None:
        """A reader who wants to understand, use, run or look up finds one door each, and no page outside of them."""
        assert headings(DOCS / "index.md")[1:] == DOORS
        before = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
        assert ".md" not in before

    def test_a_page_for_apps_begins_with_what_its_reader_can_do(self) -> None:
        """The first sentence of each page behind the door of apps says what the reader can do after it."""
        door = (DOCS / "index.md").read_text(encoding="utf-8").partition(f"## {DOORS[1]}\n")[2].partition("\n## ")[0]
        names = re.findall(r"\(([\w-]+\.md)", door)
        assert len(names) > 15
        told = {
            name: re.sub(r"^(#|<!--).*$", "", (DOCS / name).read_text("utf-8"), flags=re.MULTILINE) for name in names
        }
        assert [name for name, text in told.items() if not text.lstrip().startswith("After this page")] == []

    def test_every_link_leads_somewhere(self) -> None:
        """A relative link names a page of this folder, for it is shipped alone, and its anchor is a heading there."""
        for page in PAGES:
            for link in links(page):
                if link.startswith("https://"):
                    continue
                name, _, place = link.partition("#")
                target = DOCS / name if name else page
                is_stories = target.parent.name == "pictures" and target.suffix == ".html" and target.is_file()
                assert target in PAGES or is_stories, f"{page.name}: {link}"
                assert not place or place in map(anchor, headings(target)), f"{page.name}: {link}"

    def test_pictures_are_there(self) -> None:
        """What a page shows lies in the folder of pictures, which is shipped and served with the pages."""
        for page in PAGES:
            assert [each for each in pictures(page) if not re.fullmatch(r"pictures/[\w-]+\.png", each)] == [], page.name
            assert [each for each in pictures(page) if not (DOCS / each).is_file()] == [], page.name

    def test_a_page_has_one_title_and_distinct_headings(self) -> None:
        """One title; no anchor stands for two headings."""
        for page in PAGES:
            assert len(re.findall(r"^# ", prose(page), re.MULTILINE)) == 1, page.name
            found = [anchor(heading) for heading in headings(page)]
            assert sorted(found) == sorted(set(found)), page.name

    @pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "server/README.md", "sql/README.md"])
    def test_a_link_from_outside_leads_to_a_heading(self, name: str) -> None:
        """A README, or the changelog, names an anchor of the guide only if a page has it as a heading."""
        found = re.findall(r"docs/([\w-]+\.md)#([\w-]+)\)", (ROOT / name).read_text(encoding="utf-8"))
        assert [each for each in found if each[1] not in map(anchor, headings(DOCS / each[0]))] == []

    def test_the_readme_leads_here(self) -> None:
        """The README names the index."""
        assert "(server/docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


class TestGenerated:
    """Generated pages are what the code says today."""

    @pytest.mark.parametrize("name", generate_docs.NAMES)
    def test_it_is_up_to_date(self, name: str) -> None:
        """What is stored equals what would be written: else run `make docs`."""
        assert (DOCS / name).read_text(encoding="utf-8") == generate_docs.pages()[name], "run `make docs`"

    def test_a_table_of_facts_is_written_again(self) -> None:
        """A row that somebody changed by hand is as the facts have it after `make docs`, and the text around it stays."""
        page = (DOCS / "states-and-errors.md").read_text(encoding="utf-8")
        changed = page.replace("`UNREGISTERED`, ", "").replace(
            "| `HTTP_410` | `failed`: the receiver wants no more |\n", ""
        )
        assert changed != page
        assert provider_tables.filled(changed) == page

    def test_every_setting_route_and_command_is_in_them(self) -> None:
        """None is left out."""
        settings = (DOCS / "settings.md").read_text(encoding="utf-8")
        assert [row.name for row in config.describe(config.load({}, None)) if f"| `{row.name}` |" not in settings] == []
        assert len(headings(DOCS / "http-api.md")) > 20
        assert len(command_names()) > 40
        assert {name for name, _ in command_names()} <= set(headings(DOCS / "commands.md"))


@cache
def root() -> Any:
    """Return the command `relevo`."""
    return typer.main.get_command(cli)


@cache
def command_names() -> tuple[tuple[str, Any], ...]:
    """Return every command by its whole name."""
    return tuple(generate_docs.walk(root(), "relevo"))


def without_pip(text: str) -> str:
    """Return a shell's text with its lines joined, and without those that install packages."""
    return "\n".join(line for line in text.replace("\\\n", " ").splitlines() if "pip install" not in line)


def named_commands(page: Path) -> Iterator[str]:
    """Yield every call of `relevo` in a page: in its console blocks, and in its prose."""
    for block in blocks(page):
        if block.words[:1] in (("console",), ("sh",), ("text",), ("ini",), ("yaml",), ("dockerfile",)):
            for found in re.finditer(r"(?:^|[\s/(=])relevo(?= [a-z-])[^\n#]*", without_pip(block.text)):
                yield found[0].strip("/ (=")
    yield from (span for span in spans(page) if span.startswith("relevo "))


def check_call(call: str) -> str:
    """Return what is wrong with a call of `relevo`, or nothing."""
    words = shlex.split(call.replace("…", "x"))[1:]
    if not words or words[0] in ("--help", "--version"):
        return ""
    command = root()
    while hasattr(command, "list_commands"):
        if not words:
            return ""
        if words[0].startswith("-"):
            return f"{call}: {words[0]} is no command"
        found = command.get_command(None, words[0])
        if found is None:
            return f"{call}: there is no {words[0]}"
        command, words = found, words[1:]
    if getattr(command, "ignore_unknown_options", False) or command.name == "psql":
        return ""
    known = {each for option in command.params for each in (*option.opts, *option.secondary_opts)} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{call}: there is no {unknown[0]}" if unknown else ""


class TestNames:
    """Commands, targets and settings that a page names exist."""

    def test_commands_exist(self) -> None:
        """Each call of `relevo` names a command that is there, with options that it has."""
        for page in PAGES:
            assert [wrong for call in named_commands(page) if (wrong := check_call(call))] == [], page.name

    def test_a_wrong_command_is_found(self) -> None:
        """The check can fail: by a wrong command, a wrong word below one, and a wrong option."""
        wrong = ("relevo dispatch", "relevo archive burn", "relevo status --colour", "relevo token make x --rule app")
        assert all(map(check_call, wrong))
        assert not check_call("relevo token make x --role app")

    def test_every_command_explains_itself(self, capsys: pytest.CaptureFixture[str]) -> None:
        """`--help` of each command answers with how it is used."""
        for name, _ in command_names():
            root().main([*name.split()[1:], "--help"], prog_name="relevo", standalone_mode=False)
            assert f"Usage: {name} " in capsys.readouterr().out

    def test_make_targets_exist(self) -> None:
        """Each `make` target a page names is in the Makefile."""
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        for page in PAGES:
            said = spans(page) + [line for block in blocks(page) for line in block.text.splitlines()]
            named = {found[1] for each in said if (found := re.match(r"(?:\$ )?make ([a-z-]+)", each))}
            assert sorted(named - targets) == [], page.name

    def test_routes_exist(self) -> None:
        """Each route a page names in `code` is one that is served, whatever its parameters are called, or the sandbox's."""
        served = {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in RULES}
        for page in PAGES:
            named = [
                found
                for span in spans(page)
                if (found := re.match(r"(GET|PUT|POST|DELETE) (/(?!sandbox/)[^\s?]*)", span))
            ]
            assert [
                found[0] for found in named if (found[1], re.sub(r"\{\w+\}", "{}", found[2])) not in served
            ] == [], page.name

    def test_metrics_exist(self) -> None:
        """Each metric a page names in `code` is in the generated list, or told to be each process's own."""
        known = {*re.findall(r"`(relevo_\w+)`", (DOCS / "metrics.md").read_text(encoding="utf-8")), *NO_METRICS}
        for page in PAGES:
            named = {name for span in spans(page) for name in re.findall(r"\brelevo_\w+", span)}
            assert sorted(name for name in named if name not in known) == [], page.name

    def test_settings_exist(self) -> None:
        """Each name in capitals with an underscore is a setting, or known to be somebody else's."""
        ours = {row.name for row in config.describe(config.load({}, None))}
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            named = set(re.findall(r"(?<![\w$/-])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?![\w…])", text))
            named = {name for name in named if not OTHERS_CODES.fullmatch(name)}
            assert sorted(named - ours - NOT_OURS - CODES.keys()) == [], page.name
