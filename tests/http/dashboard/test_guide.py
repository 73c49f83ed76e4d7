"""The guide is served: every page, for everybody, with links that lead somewhere and nothing that runs."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from relevo.http.dashboard import guide
from support.dashboard_person import Person
from support.http_server import Served

DOCS = Path(__file__).resolve().parents[3] / "server" / "docs"


def links(html: str) -> set[str]:
    """Return where a page leads within the guide."""
    return {each for each in re.findall(r'href="([^"]+)"', html) if each.startswith(("/guide", "#"))}


def test_every_page_is_served_and_every_link_leads_somewhere(serve: Any) -> None:
    """From the index each page is reached; a link names a page that is served, and an anchor that is on it."""
    served = serve(http_rate_per_second=0)
    client = served.client()
    pages = {"/guide": client.get("/guide")}
    for link in sorted(links(pages["/guide"].text)):
        address = link.partition("#")[0]
        if address and address not in pages:
            pages[address] = client.get(address)
    assert {each.status_code for each in pages.values()} == {200}
    assert len(pages) == len(list(DOCS.rglob("*.md")))
    for here, answer in pages.items():
        assert "&lt;!--" not in answer.text, "comments are not for readers"
        for link in links(answer.text) - {"#content"}:
            address, _, place = link.partition("#")
            there = pages.get(address or here) or client.get(address)  # a page of pictures is in no index
            assert there.status_code == 200, f"{here}: {link}"
            assert not place or f'id="{unquote(place)}"' in there.text, f"{here}: {link}"


def test_pages_of_the_last_release_are_found(served: Served) -> None:
    """An address that people kept leads to the page that it became, and to its section there."""
    client = served.client()
    for old, place in guide.RENAMED.items():
        assert client.get(f"/guide/{old}").headers["location"] == f"/guide/{place}"
        page, _, anchor = place.partition("#")
        text = client.get(f"/guide/{page}").text
        assert not anchor or f'id="{anchor}"' in text, old
    assert "SQL functions</h1>" in client.call("GET", "/guide/sql-door", allow_redirects=True).text


def test_whoever_is_logged_in_finds_back(served: Served) -> None:
    """The dashboard's navigation stays where somebody has a session; a stranger sees the guide's own link alone."""
    person = Person(served, "viewer")
    assert 'href="/dashboard/events"' not in person.get("/guide").text
    person.log_in()
    assert 'href="/dashboard/events"' in person.get("/guide").text


def test_a_picture_is_served(served: Served) -> None:
    """A page's picture comes from the same place."""
    [picture] = set(re.findall(r'<img src="([^"]+)"', served.client().get("/guide/quickstart").text))
    assert served.client().get(picture).headers["content-type"] == "image/png"


def test_the_page_of_screens_is_served(served: Served) -> None:
    """The page of the ready screens leads to one that shows them, with its own styles and without a script."""
    person = served.client()
    [stories] = set(re.findall(r'href="([^"]+[.]html)"', person.get("/guide/screens").text))
    answer = person.get(stories)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "style-src 'unsafe-inline'" in policy
    assert 'class="relevo relevo-inbox"' in answer.text


def test_it_asks_nobody_else(served: Served) -> None:
    """A page loads the dashboard's own files alone, and says so to the browser."""
    answer = served.client().get("/guide/runbook")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert not re.search(r'(?:src|href)="(?!/|#)', answer.text)


def test_what_is_no_page_is_not_served(served: Served) -> None:
    """An address never becomes a path; what is not there is a page that says so."""
    for name in ["nothing", "..%2fREADME", "../../README", "index.md", "x" * 101]:
        assert served.client().get(f"/guide/{name}").status_code in (400, 404), name
        assert served.client().get(f"/guide/pictures/{name}").status_code in (400, 404), name


def test_markup_in_a_page_is_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever somebody writes into a page is shown and never run; links that are none of ours lead nowhere."""
    text = "# T\n\n<script>x</script> [a](javascript:x) [b](https://elsewhere.example) <b onclick=x>y</b>\n\n| <i>h</i> |\n|---|\n| c |\n"
    (tmp_path / "made.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(guide, "_files", lambda: {"made": tmp_path / "made.md"})
    guide.render_page.cache_clear()
    title, _, written = guide.render_page("made")
    guide.render_page.cache_clear()
    assert title == "T"
    assert "<script" not in written
    assert "<b" not in written
    assert "elsewhere" not in written
    assert "javascript:x" not in re.findall(r'href="([^"]*)"', written)
    assert 'data-head="&lt;i&gt;h&lt;/i&gt;"' in written


def test_a_wheel_brings_its_own_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Installed from a wheel the pages lie inside the package."""
    inside = tmp_path / "relevo" / "http" / "dashboard"
    inside.mkdir(parents=True)
    shutil.copytree(DOCS, tmp_path / "relevo" / "docs")
    monkeypatch.setattr(guide, "__file__", str(inside / "guide.py"))
    assert guide.docs_root() == tmp_path / "relevo" / "docs"


def test_who_reads_spanish_is_told_that_a_page_is_in_english(served: Served) -> None:
    """The frame speaks the reader's language and says that the page does not; in English there is nothing to say."""
    said = "Esta página está en inglés."
    assert said in served.client().get("/guide/words", headers={"Accept-Language": "es"}).text
    assert said not in served.client().get("/guide/words", headers={"Accept-Language": "en"}).text
    assert said not in served.client().get("/guide/quickstart", headers={"Accept-Language": "es"}).text


def test_the_pages_in_spanish_are_served_as_on_the_site(served: Served) -> None:
    """Each is linked from the index and from its English page, leads back, is marked as Spanish, and its links hold."""
    client = served.client()
    names = [path.stem for path in (DOCS / "es").glob("*.md")]
    index = client.get("/guide").text
    for name in names:
        spanish = client.get(f"/guide/es/{name}")
        assert spanish.status_code == 200
        assert f'href="/guide/es/{name}" hreflang="es"' in index
        assert f'href="/guide/es/{name}" hreflang="es"' in client.get(f"/guide/{name}").text
        assert f'href="/guide/{name}" hreflang="en"' in spanish.text
        assert '<article class="card guide" lang="es">' in spanish.text
        assert 'href="#"' not in spanish.text, "a link of a Spanish page leads to the page that it names"
    assert 'href="/guide/es/what-it-is" rel="prev"' in client.get("/guide/es/quickstart").text
    assert 'href="/guide/reference-events"' in client.get("/guide/es/in-your-app").text
    assert client.get("/guide/es/words").status_code == 404
    assert client.get("/guide/es/..%2f..%2fREADME").status_code in (400, 404)


def test_a_spanish_word_finds_a_spanish_page(served: Served) -> None:
    """The search reads the Spanish pages, too, after the English ones."""
    found = served.client().get("/guide?q=encolar").text
    assert '<li lang="es"><a href="/guide/es/in-your-app#encolar-en-tu-transacción">' in found


def test_the_page_of_the_api_leads_to_its_parts(served: Served) -> None:
    """Each link of its contents has its place on the page, and names of fields are written as code, not in backticks."""
    html = served.client().get("/docs").text
    contents = html[html.index("<nav>") : html.index("</nav>")]
    parts = re.findall(r'href="#([^"]+)"', contents)
    assert {"events", "schemas"} <= set(parts)
    assert [part for part in parts if not re.search(rf'<h2 id="{part}"', html)] == []
    assert "<code>wait_ms</code>" in html
    assert "`" not in html[: html.index('id="schemas"')]


def test_a_search_for_many_words_costs_little(served: Served) -> None:
    """Anybody may search: as many words as fit, all of them everywhere, cost a fraction of a second."""
    client = served.client()
    letters = "+".join("etaoinsrhl"[n % 10] for n in range(100))
    spent = []
    for _ in range(4):  # the first one reads the pages
        began = time.process_time()
        assert client.get(f"/guide?q={letters}").status_code == 200
        spent.append(time.process_time() - began)
    assert min(spent) < 0.1


def test_it_is_searched_and_read_page_after_page(serve: Any) -> None:
    """The box finds a section by all of its words, escaped; each page leads to the one before and the one after."""
    served = serve(http_rate_per_second=0)
    client = served.client()
    found = client.get("/guide?q=held+runaway").text
    assert 'href="/guide/runbook#held-as-a-runaway"' in found
    assert "The guide has nothing on this" in client.get("/guide?q=xyzzy").text
    assert "<script>x" not in client.get("/guide?q=<script>x").text
    here, seen = "/guide", ["/guide"]
    while after := re.search(r'href="([^"]+)" rel="next"', client.get(here).text):
        assert f'href="{here}" rel="prev"' in client.get(after[1]).text
        here = after[1]
        seen.append(here)
    assert seen[1:3] == ["/guide/what-it-is", "/guide/quickstart"]
    assert len(set(seen)) == len(seen) == len(list(DOCS.glob("*.md")))


def test_each_section_of_the_search_has_a_heading() -> None:
    """What stands above a page's title is no section: a search would find it as one without a name."""
    assert [name for name, _, heading, _ in guide._sections() if not heading] == []


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("template", "words"),
        ("localization", "words"),
        ("segment", "reference-events"),
        ("broadcast", "reference-events"),
        ("subscriber", "reference-events"),
        ("npm", "kits"),
        ("send window", "quiet-hours"),
        ("frequency cap", "quiet-hours"),
        ("click-through", "taps"),
        ("tenant", "security-and-privacy"),
    ],
)
def test_a_word_of_another_product_finds_our_page(term: str, page: str) -> None:
    """A term that the glossary has from another product leads to the page that explains our word, among the first two."""
    assert page in [name for name, *_ in guide.search(term)[:2]]


def test_each_link_of_the_glossary_is_a_section_of_the_search() -> None:
    """No row of the glossary is lost to the search: its link is the title or a heading of a page."""
    sections = {f"{name}.md#{guide.anchor_of(heading)}" for name, _, heading, _ in guide._sections()}
    pages = {f"{name}.md" for name in guide._files()}
    assert len(guide._terms()) > 20
    assert sorted(guide._terms().keys() - sections - pages) == []
