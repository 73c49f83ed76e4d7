"""The guide: the pages of `docs/`, written as HTML here, in the dashboard's frame.

They are public text: who cannot log in, or whose database is away, reads them all the same.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from relevo.core.errors import NotFoundError
from relevo.core.i18n import LANGUAGES
from relevo.http.dashboard.page import Page, render

router = APIRouter(route_class=Page, include_in_schema=False)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"`+|\*\*|\|[-| :]*|^> |^- ")
_LEVELS = {"h2", "h3"}
_MANY = 6
_MOST_FOUND = 20
_MOST_WORDS = 10
_MOST_KEPT = 500
_EXCERPT = 200
_LONGEST = 200
_PICTURES = "pictures"
_KINDS = {".png": "image/png", ".html": "text/html; charset=utf-8"}
HOME = "/guide"
RUNBOOK = f"{HOME}/runbook"
"""Where the dashboard's problems are explained, each under an anchor of its own."""
RENAMED = {
    "sql-door": "sql-functions",
    "pgbouncer-and-ha": "high-availability",
    "recipes-fastapi": "recipes-python#fastapi",
    "recipes-sqlalchemy": "recipes-python#sqlalchemy",
    "recipes-phones": "recipes-http#register-phones",
    "recipes-other-languages": "recipes-http",
    "models": "chaos#models",
    "huawei": "native-push#huawei-push-kit",
    "kit-client": "kits#relevoclient-typescript-over-http",
    "kit-expo": "kits#relevoexpo-expo-apps",
    "kit-pg": "kits#relevopg-a-nodejs-transaction",
    "kit-web": "kits#relevoweb-web-pages",
    "iceberg": "archive-for-analysts#iceberg-tables",
}
"""Former pages, each with the page or the section that has its text now: people kept their addresses."""
_GLOSSARY = "glossary"
_ENGLISH, _SPANISH = "en", "es"


def docs_root() -> Path:
    """Return the folder of pages: inside an installed wheel, or the checkout's own."""
    packaged = Path(__file__).parents[2] / "docs"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "docs"


@cache
def _files() -> dict[str, Path]:
    """Return the pages there are, by name, the Spanish ones as `es/name`: an address never becomes a path."""
    spanish = {f"{_SPANISH}/{path.stem}": path for path in sorted((docs_root() / _SPANISH).glob("*.md"))}
    return {path.stem: path for path in sorted(docs_root().glob("*.md"))} | spanish


def language_of(name: str) -> str:
    """Return the language that a page is written in."""
    return _SPANISH if name.startswith(f"{_SPANISH}/") else _ENGLISH


@cache
def _pictures() -> dict[str, bytes]:
    found = sorted((docs_root() / _PICTURES).iterdir())
    return {path.name: path.read_bytes() for path in found if path.suffix in _KINDS}


@router.get(HOME)
async def index(request: Request, q: Annotated[str, Query(max_length=_LONGEST)] = "") -> Response:
    """Show what the guide holds, or where it tells of something."""
    return _found(request, q.strip()) if q.strip() else _shown(request, "index")


@router.get("/guide/pictures/{name}")
async def picture(name: Annotated[str, InPath(max_length=100)]) -> Response:
    """Return a picture that a page shows, or a page of pictures, which runs no script."""
    if name not in _pictures():
        raise NotFoundError(f"There is no picture {name}.")
    return Response(
        _pictures()[name], media_type=_KINDS[Path(name).suffix], headers={"Cache-Control": "public, max-age=86400"}
    )


@router.get("/guide/{name}")
async def page(request: Request, name: Annotated[str, InPath(max_length=100)]) -> Response:
    """Show one page, or lead to where it is now."""
    if name in RENAMED:
        return RedirectResponse(f"{HOME}/{RENAMED[name]}", 301)
    if name not in _files():
        raise NotFoundError(f"There is no page {name}.")
    return _shown(request, name)


@router.get("/guide/es/{name}")
async def spanish_page(request: Request, name: Annotated[str, InPath(max_length=100)]) -> Response:
    """Show one of the pages that there are in Spanish."""
    if f"{_SPANISH}/{name}" not in _files():
        raise NotFoundError(f"There is no page {name} in Spanish.")
    return _shown(request, f"{_SPANISH}/{name}")


def _shown(request: Request, name: str) -> Response:
    title, headings, written = render_page(name)
    head, end, rest = written.partition("</h1>")
    pages = [each for each in _in_order() if language_of(each) == language_of(name)]
    place = pages.index(name)
    return render(
        request,
        "guide.html",
        live=False,
        title=title,
        is_index=name == "index",
        written_in=language_of(name),
        others=[
            (*_neighbour(each), language_of(each), LANGUAGES[language_of(each)]) for each in _in_other_language(name)
        ],
        head=Markup(head + end),  # noqa: S704 HTML that was made here
        rest=Markup(rest),  # noqa: S704
        headings=headings if len(headings) >= _MANY else [],
        before=_neighbour(pages[place - 1]) if place else None,
        after=_neighbour(pages[place + 1]) if place + 1 < len(pages) else None,
    )


def _in_other_language(name: str) -> list[str]:
    """Return the same page in the other language, if there is one; of the index, all pages in Spanish."""
    if name == "index":
        return [each for each in _in_order() if language_of(each) == _SPANISH]
    other = name.removeprefix(f"{_SPANISH}/") if language_of(name) == _SPANISH else f"{_SPANISH}/{name}"
    return [other] if other in _files() else []


def _neighbour(name: str) -> tuple[str, str]:
    return _title(name), address_of(f"{name}.md")


def _title(name: str) -> str:
    """Return a page's title without writing the page as HTML."""
    return next(_heading(line) for line in _lines(name) if line.startswith("# "))


def page_text(name: str) -> str | None:
    """Return a page as it is written, or None if there is no such page."""
    return _COMMENT.sub("", _files()[name].read_text(encoding="utf-8")) if name in _files() else None


def _lines(name: str) -> list[str]:
    return (page_text(name) or "").splitlines()


def _heading(line: str) -> str:
    return line.lstrip("# ").replace("`", "")


@cache
def _in_order() -> list[str]:
    """Return the pages in the order in which the index leads to them, then those it does not name, then the Spanish."""
    linked = re.findall(r"\]\(([\w-]+)\.md", _files()["index"].read_text(encoding="utf-8"))
    english = (name for name in _files() if language_of(name) == _ENGLISH)
    in_order = list(dict.fromkeys(["index", *(name for name in linked if name in _files()), *english]))
    return in_order + [other for name in in_order if (other := f"{_SPANISH}/{name}") in _files()]


@cache
def _sections() -> list[tuple[str, str, str, str]]:
    """Return all sections of the guide: their page, its title, their heading and their text."""
    found = []
    for name in _in_order():
        title, heading, lines = _title(name), "", list[str]()
        for line in _lines(name):
            if line.startswith("#"):
                found.append((name, title, heading, " ".join(lines)))
                heading, lines = _heading(line), []
            else:
                lines.append(_plain(line))
        found.append((name, title, heading, " ".join(lines)))
    return [each for each in found if each[2]]


def _plain(line: str) -> str:
    """Write a line of a page without what marks it up."""
    return _MARKS.sub(" ", _LINK.sub(r"\1", line)).strip()


@cache
def _terms() -> dict[str, str]:
    """Return the glossary's terms by the section that a row of the glossary links to, `page#anchor`."""
    found: dict[str, str] = {}
    for line in _files()[_GLOSSARY].read_text(encoding="utf-8").splitlines():
        for link in re.findall(r"\]\(([\w-]+\.md(?:#[\w-]+)?)\)", line if line.startswith("| ") else ""):
            found[link] = f"{found.get(link, '')} {_plain(line)}"
    return found


@cache
def _in_small_letters() -> list[tuple[str, str]]:
    """Return the heading with its terms, and the whole text, of each section: it is not done for each search."""
    found = []
    for name, title, heading, text in _sections():
        link = f"{name}.md" if heading == title else f"{name}.md#{anchor_of(heading)}"
        head = f"{heading} {_terms().get(link, '')}".lower()
        found.append((head, f"{title} {head} {text}".lower()))
    return found


@lru_cache(maxsize=_MOST_KEPT)
def search(asked: str) -> list[tuple[str, str, str, str]]:
    """Return the sections with all the words asked for; first those that have them in heading or glossary.

    A word that the glossary has from another product finds the section that explains our word for it.
    """
    words = list(dict.fromkeys(asked.lower().split()))[:_MOST_WORDS]
    pairs = zip(_sections(), _in_small_letters(), strict=True)
    fit = [(section, head) for section, (head, text) in pairs if all(word in text for word in words)]
    fit.sort(key=lambda each: -sum(word in each[1] for word in words))
    return [section for section, _ in fit[:_MOST_FOUND]]


def _found(request: Request, asked: str) -> Response:
    found = [
        {
            "name": title if heading == title else f"{title}: {heading}",
            "address": f"{address_of(f'{name}.md')}#{anchor_of(heading)}",
            "excerpt": _excerpt(text, asked),
            "language": language_of(name),
        }
        for name, title, heading, text in search(asked)
    ]
    return render(request, "guide_search.html", live=False, asked=asked, found=found)


def _excerpt(text: str, asked: str) -> str:
    """Return the text around the first word that was asked for."""
    at = text.lower().find(asked.lower().split()[0])
    begins = max(0, at - _EXCERPT // 3)
    return f"{'…' if begins else ''}{text[begins : begins + _EXCERPT]}{'…' if begins + _EXCERPT < len(text) else ''}"


@cache
def render_page(name: str) -> tuple[str, list[tuple[str, str]], Markup]:
    """Return a page's title, its headings with their anchors, and its HTML.

    Whatever is markup in it is escaped, and links lead to the guide's pages.
    """
    from markdown_it import MarkdownIt  # noqa: PLC0415 nobody waits for it who reads no page

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("td_open", _open_cell)
    parser.add_render_rule("td_close", lambda *_: "</div></td>")
    tokens = parser.parse(_COMMENT.sub("", _files()[name].read_text(encoding="utf-8")))
    headings = _anchor(tokens)
    _lead(tokens, name.rpartition("/")[0])
    _name_cells(tokens)
    title = next(text for tag, text, _ in headings if tag == "h1")
    below = [(text, place) for tag, text, place in headings if tag in _LEVELS]
    written = parser.renderer.render(tokens, parser.options, {})
    return title, below, Markup(written.replace("<pre><code", '<pre tabindex="0"><code'))  # noqa: S704 scrolled by keys, too


def _open_cell(_self: Any, tokens: Sequence[Any], number: int, _options: Any, _env: Any) -> str:
    return f'<td data-head="{escape(str(tokens[number].attrGet("data-head")))}"><div>'


def anchor_of(heading: str) -> str:
    """Return a heading's anchor, as Markdown renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchor(tokens: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Give each heading its anchor; return their tags, texts and anchors."""
    found = []
    for opened, inside in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(each.content for each in inside.children)
            opened.attrSet("id", anchor_of(text))
            found.append((opened.tag, text, anchor_of(text)))
    return found


def _lead(tokens: Sequence[Any], folder: str) -> None:
    """Turn links between files, of a page in a folder, into links between pages."""
    for each in (child for token in tokens for child in token.children or ()):
        for attribute in ("href", "src"):
            if (link := each.attrGet(attribute)) is not None:
                each.attrSet(attribute, address_of(str(link), folder))


def address_of(link: str, folder: str = "") -> str:
    """Return where a link of a page in a folder leads when it is served; to nowhere, if it is none of ours."""
    name, mark, place = link.partition("#")
    if not name:
        return link
    name = posixpath.normpath(posixpath.join(folder, name))
    if name.startswith(f"{_PICTURES}/"):
        return f"{HOME}/{name}"
    stem = name.removesuffix(".md")
    if stem not in _files():
        return "#"
    return (HOME if stem == "index" else f"{HOME}/{stem}") + mark + place


def _name_cells(tokens: Sequence[Any]) -> None:
    """Give each cell of a table its column's head, for windows without room for columns."""
    heads: list[str] = []
    column = 0
    for opened, inside in pairwise(tokens):
        if opened.type == "table_open":
            heads = []
        elif opened.type == "tr_open":
            column = 0
        elif opened.type == "th_open":
            heads.append("".join(each.content for each in inside.children))
        elif opened.type == "td_open":
            opened.attrSet("data-head", heads[column])
            column += 1
