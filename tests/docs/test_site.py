"""`make site`: the guide as a static site, read and searched in a browser that asks no other server."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

import make_site
from relevo.http.dashboard.guide import RENAMED
from support.optional_parts import find_part

WIDE, NARROW = 1280, 390
in_a_browser = pytest.mark.needs("chromium-headless-shell")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site beside one of an older version."""
    out = tmp_path_factory.mktemp("site")
    (out / "0.2").mkdir()
    assert make_site.build(out) == 0
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start a headless Chromium."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


def test_every_page_is_there(site: Path) -> None:
    """Each page of the guide is a page of the site, also as it was written; llms.txt names each with what the index says of it."""
    made, listed = site / make_site.VERSION, (site / make_site.VERSION / "llms.txt").read_text()
    pages = {page.name for page in make_site.DOCS.glob("*.md")} - {"index.md"}
    assert {page for rows in make_site.doors().values() for _, page, _ in rows} == pages
    for page in pages:
        assert (made / page).with_suffix(".html").is_file()
        assert (made / page).read_text() == (make_site.DOCS / page).read_text()
        assert f"]({page}): " in listed


def test_former_addresses_lead_on(site: Path) -> None:
    """A former page of the guide leads to the page, and the section, that has its text now."""
    made = site / make_site.VERSION
    for name, now in RENAMED.items():
        page, _, section = now.partition("#")
        text = (made / f"{name}.html").read_text()
        assert f"url={page}.html" in text
        assert not section or f'id="{section}"' in (made / f"{page}.html").read_text()


def test_other_versions_stay(site: Path) -> None:
    """The menu lists what is there, the newest first, and the root leads to the newest."""
    versions = json.loads((site / "versions.json").read_text())
    assert [each["version"] for each in versions] == [make_site.VERSION, "0.2"]
    assert f"url={make_site.VERSION}/index.html" in (site / "index.html").read_text()


def test_a_list_after_a_sentence_is_a_list() -> None:
    """MkDocs reads a list that follows its sentence at once as part of it, so a line is put between; what code says stays as it is."""
    page = ["One:", "- a", "- b", "", "```sh run", "x", "- y", "```", "Two:", "1. c", "   more", "2. d"]
    apart = ["One:", "", "- a", "- b", "", "```sh", "x", "- y", "```", "Two:", "", "1. c", "   more", "2. d"]
    assert list(make_site.for_mkdocs(page)) == apart


def test_a_link_to_nowhere_is_an_error(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site with a broken link is not built."""
    broken = tmp_path / "docs"
    shutil.copytree(make_site.DOCS, broken)
    (broken / "taps.md").write_text("# Taps\n\n[there](promises.md#no-such-promise)\n")
    monkeypatch.setattr(make_site, "DOCS", broken)
    assert make_site.build(tmp_path / "out") != 0
    assert not (tmp_path / "out" / "versions.json").exists()


def test_pages_in_both_languages_lead_to_each_other(site: Path) -> None:
    """Each Spanish page says that it is Spanish and leads to its English page, which leads back; the menu of languages leads to both homes."""
    made = site / make_site.VERSION
    spanish = [path.with_suffix(".html").name for path in (make_site.DOCS / "es").glob("*.md")]
    assert {"quickstart.html", "what-it-is.html", "in-your-app.html"} <= set(spanish)
    for name in ("index.html", *spanish):
        there, here = (made / "es" / name).read_text(), (made / name).read_text()
        assert '<html lang="es"' in there
        assert '<html lang="en"' in here
        assert f'href="../{name}" hreflang="en"' in there
        assert f'href="es/{name}" hreflang="es"' in here
    assert 'hreflang="es" class="md-select__link"' in (made / "taps.html").read_text()


@in_a_browser
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_site_is_read_in_a_browser(address: str, browser: Any, width: int) -> None:
    """The root leads to the home page, which fits its window; the page asks no other server, and nothing fails."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, wrong = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    page.wait_for_url("**/index.html")
    page.wait_for_selector("h1:has-text('Relevo')")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('img[src$=svg]').naturalWidth") > 0
    assert [url for url in asked if not url.startswith(address)] == []
    assert wrong == []


@in_a_browser
@pytest.mark.parametrize(
    ("word", "page"), [("template", "Glossary"), ("segment", "Glossary"), ("broadcast", "Glossary"), ("npm", "Kits")]
)
def test_other_products_words_are_found(address: str, browser: Any, word: str, page: str) -> None:
    """Who searches for a word of another product finds the page that has our word for it among the first five."""
    shown = browser.new_page(viewport={"width": WIDE, "height": 900})
    shown.goto(f"{address}/{make_site.VERSION}/index.html")
    shown.focus("input.md-search__input")
    shown.keyboard.type(word)
    shown.wait_for_selector(".md-search-result__item h1")
    found = [each.inner_text() for each in shown.query_selector_all(".md-search-result__item h1")]
    assert any(title.startswith(page) for title in found[:5]), found
