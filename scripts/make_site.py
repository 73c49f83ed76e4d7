"""Builds the guide as a static site into build/site/VERSION, by MkDocs. `make site` runs it.

The pages are those of server/docs, which a running Relevo serves at /guide, and their Spanish form in server/docs/es,
of those that have one. The site adds a home page, a navigation from the guide's index, pages that lead on from former
addresses, llms.txt, a menu of versions and one of languages. What build/site has of other versions stays.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from relevo import __version__
from relevo.http.dashboard.guide import RENAMED

ROOT = Path(__file__).parents[1]
DOCS, OWN, OUT = ROOT / "server" / "docs", ROOT / "scripts" / "site", ROOT / "build" / "site"
SPANISH = "es"
VERSION = ".".join(__version__.split(".")[:2])
"""Each minor version has a site: 0.4."""
_ROW = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<page>[\w-]+\.md)\) \| (?P<says>.*) \|$")
_FENCE = re.compile(r"^(\s*```\w+) .*")
_INDEX = re.compile(r"\]\(((?:\.\./)?)index\.md")
_LIST = re.compile(r"^(?:[-*]|\d+\.) ")
_LEAD_ON = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'
)


def doors() -> dict[str, list[tuple[str, str, str]]]:
    """Return the pages by the heading of the index that leads to them: title, file, what the index says."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    rows: list[tuple[str, str, str]] = []
    for line in _read(DOCS / "index.md").splitlines():
        if line.startswith("## "):
            rows = found[line.removeprefix("## ")] = []
        elif row := _ROW.match(line):
            rows.append((row["title"], row["page"], row["says"]))
    return found


def for_mkdocs(lines: list[str]) -> Iterator[str]:
    """Yield a page's lines as MkDocs needs them.

    It wants an empty line before each list, and no words behind the language of an example.
    """
    before, in_code = "", False
    for line in lines:
        in_code ^= line.lstrip().startswith("```")
        if not in_code and _LIST.match(line) and before and not _LIST.match(before) and not before.startswith(" "):
            yield ""
        yield _FENCE.sub(r"\1", line)
        before = line


def write_pages(folder: Path) -> None:
    """Write the pages as MkDocs reads them; those that there are in both languages lead to each other."""
    shutil.copytree(DOCS, folder)
    (folder / "index.md").rename(folder / "guide.md")
    shutil.copy(OWN / "home.md", folder / "index.md")
    shutil.copy(OWN / "home.es.md", folder / SPANISH / "index.md")
    shutil.copy(OWN / "way-of-a-push.svg", folder)
    for page in folder.rglob("*.md"):
        lines = _read(page).splitlines()
        if page.parent.name == SPANISH:
            lines.insert(1, f"\n[English](../{page.name}){{ hreflang=en lang=en }}")
        elif (folder / SPANISH / page.name).exists():
            lines.insert(1, f"\n[Español]({SPANISH}/{page.name}){{ hreflang=es lang=es }}")
        text = "\n".join(for_mkdocs(lines)) + "\n"
        is_home = page.name == "index.md"
        page.write_text(text if is_home else _INDEX.sub(r"](\1guide.md", text), encoding="utf-8")


def write_language(site: Path) -> None:
    """Mark each Spanish page as Spanish, for browsers and screen readers: MkDocs knows one language."""
    for page in (site / SPANISH).glob("*.html"):
        page.write_text(_read(page).replace('<html lang="en"', f'<html lang="{SPANISH}"', 1), encoding="utf-8")


def configuration(pages: Path, site: Path) -> str:
    """Return MkDocs' configuration with the pages in the order of the guide's index."""
    nav: list[object] = [{"Home": "index.md"}, {"All pages": "guide.md"}]
    nav += [{door: [{title: page} for title, page, _ in rows]} for door, rows in doors().items()]
    spanish = [page for page in sorted(pages.glob(f"{SPANISH}/*.md")) if page.name != "index.md"]
    nav.append({"Español": [f"{SPANISH}/index.md", *(f"{SPANISH}/{page.name}" for page in spanish)]})
    ours = yaml.safe_dump({"docs_dir": str(pages), "site_dir": str(site), "nav": nav}, sort_keys=False)
    return f"{_read(OWN / 'mkdocs.yml')}{ours}"


def write_former_addresses(site: Path) -> None:
    """Write a page for each former name of a page, which leads to where its text is now."""
    for name, now in RENAMED.items():
        page, hash_mark, section = now.partition("#")
        (site / f"{name}.html").write_text(_LEAD_ON.format(f"{page}.html{hash_mark}{section}"), encoding="utf-8")


def write_llms_txt(site: Path) -> None:
    """Write llms.txt, and each page's Markdown beside its HTML, for programs that read."""
    lines = _read(OWN / "home.md").splitlines()[:3]
    for door, rows in doors().items():
        lines += ["", f"## {door}", ""]
        lines += [f"- [{title}]({page}): {says}" for title, page, says in rows]
        for _, page, _ in rows:
            shutil.copy(DOCS / page, site / page)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_versions(out: Path) -> None:
    """Write the versions that the menu shows, the newest first, and let the root lead to the newest."""
    there = [path.name for path in out.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)]
    there.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == there[0] else []} for name in there]
    (out / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (out / "index.html").write_text(_LEAD_ON.format(f"{there[0]}/index.html"), encoding="utf-8")


def build(out: Path) -> int:
    """Build the site into the folder of its version; return how MkDocs ended. A link to nowhere is an error."""
    site = out / VERSION
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        pages, config = Path(made) / "pages", Path(made) / "mkdocs.yml"
        write_pages(pages)
        config.write_text(configuration(pages, site), encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return done.returncode
    write_language(site)
    write_former_addresses(site)
    write_llms_txt(site)
    write_versions(out)
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main() -> int:
    """Build the site into build/site."""
    ended = build(OUT)
    if ended == 0:
        print(f"The site is in {(OUT / VERSION).relative_to(ROOT)}.")
    return ended


if __name__ == "__main__":
    sys.exit(main())
