"""Every page with hostile text: nothing of it runs, nothing sticks out, and whoever needs help to read a page can read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID

import axe_playwright_python
import psycopg
import pytest
from playwright.sync_api import sync_playwright

from relevo import app
from relevo.config import Settings
from relevo.core.i18n import LANGUAGES
from relevo.http.dashboard import ROUTERS
from support import soak
from support.dashboard_person import COLOURS, NASTY, WIDTHS, enter, sticks_out
from support.hostile_database import World, fill
from support.http_server import Served
from support.optional_parts import find_part

pytestmark = pytest.mark.needs("chromium-headless-shell")
PAGES_SEEN = [
    "/dashboard",
    "/dashboard/system",
    "/dashboard/people",
    "/dashboard/people?name={owner_path}",
    "/dashboard/events",
    "/dashboard/events/{event}",
    "/dashboard/events/{tender}",
    "/dashboard/deliveries/{delivery}",
    "/dashboard/installations/{installation}?event={event}",
    "/dashboard/owners/{owner_path}?event={tender}",
    "/dashboard/search?q={external_id}",
    "/dashboard/search?q=nowhere",
    "/guide",
    "/guide?q=breaker",
    "/guide?q={owner_path}",
    "/guide/quickstart",
    "/guide/es/quickstart",
    "/dashboard/runs",
    "/dashboard/runs/{run}",
    "/dashboard/sources",
    "/dashboard/dead-letters",
    "/dashboard/archive",
    "/dashboard/audit",
    "/dashboard/sessions",
    "/dashboard/compose?audience=everyone&title={owner}&body={owner}",
    "/dashboard/compose/{trial}",
    "/dashboard/actions/test?phones={installation}&title={owner}&body={owner}",
    "/dashboard/actions/redrive?code=MessageTooBig",
    "/dashboard/actions/pause?cycle=dispatch",
]
"""Every page there is that shows what was asked for; names in braces are those of hostile.World. Add yours."""
WRONG = {
    "/guide/nowhere": 404,
    "/dashboard/nowhere": 404,
    "/login/oidc": 404,
    "/login/oidc/callback": 404,
    "/dashboard/events/0": 404,
    "/dashboard/actions/test?phones=x&title={owner}&body={owner}&data={owner}": 400,
    "/dashboard/actions/release?project=nowhere": 404,
}
"""Pages that tell what is wrong, by the status they have."""
SENT = [
    ("/dashboard/actions/pause?cycle=receipt", {"reason": "nasty"}, 200),
    ("/dashboard/actions/pause?cycle=receipt", {}, 400),
    ("/dashboard/actions/resume?cycle=receipt", {}, 200),
    ("/dashboard/actions/retry?source=nowhere", {}, 200),
    ("/dashboard/actions/cancel?event={tender}", {}, 200),
    ("/dashboard/actions/run?cycle=cleanup", {}, 200),
    ("/login", {"token": "wrong"}, 401),
]
"""Forms that are sent with some fields filled in, and the status of the page that comes then."""
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
FAULTS = """async (rules) => {
  const asked = {resultTypes: ['violations'], preload: false, elementRef: false, iframes: false, ...rules};
  return (await axe.run(document, asked)).violations.filter(v => ['serious', 'critical'].includes(v.impact))
    .map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 150)).join(' | '));
}"""
CUT = "most => [...document.querySelectorAll('main section')].slice(most, -most).forEach(each => each.remove())"
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules whose verdict depends on colours: the dearest, and asked of every other page."""
NO_COLOURS = {"rules": {rule: {"enabled": False} for rule in OF_COLOURS}}
RULES: list[dict[int, dict[str, Any]]] = [{1280: {}}, {360: NO_COLOURS}]
"""What axe is asked in which width, pages taking turns; `make soak` asks everything everywhere."""
SPOKEN = soak.cases(("es",), whole=tuple(LANGUAGES))
"""The languages that every page is looked at in: the words of the second are longer; the first is what other tests read."""
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def hostile(module_settings: Callable[..., Settings]) -> Iterator[tuple[Served, World]]:
    """A server whose database is full of hostile text."""
    settings = module_settings()
    with app.build(settings) as built, psycopg.connect(str(settings.database_url), autocommit=True) as conn:
        built.worker.record_start("run", [cycle.key for cycle in built.cycles()])
        served = Served(built)
        world = fill(conn, built)
        served.start()
        yield served, world
        served.close()


@pytest.fixture(scope="module")
def page(hostile: tuple[Served, World]) -> Iterator[Any]:
    """A browser's window, logged in."""
    served, _ = hostile
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        context = started.new_context(timezone_id="America/Santiago")
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(path=AXE)  # each page has it from its beginning: the browser keeps it compiled
        yield enter(context, served, served.client("operator"))
        started.close()


def look(page: Any, turn: int) -> None:
    """Look at a page in both widths: nothing sticks out, and axe finds no serious fault.

    What sticks out depends on width and language, colours on the theme alone: they are judged in the wide window, which
    shows all there is. Every page is asked every rule once, but for those of colours: pages are made of the same parts,
    and take turns in theme and in the width they are asked in. The whole matrix has every rule in every language, width
    and theme.
    """
    asked, theme = RULES[turn % 2], COLOURS[turn // 2 % 2]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for colours in soak.cases((theme,), whole=COLOURS):
            page.emulate_media(color_scheme=colours)
            assert sticks_out(page) == [], (width, colours)
            if (rules := soak.cases(asked.get(width), whole={})) is not None:
                assert page.evaluate(FAULTS, rules) == [], (width, colours)


def harmless(page: Any, language: str) -> None:
    """Nothing hostile ran, and the page is in the language that was chosen."""
    assert page.get_attribute("html", "lang") == language
    assert "owned" not in page.title()[:5]
    assert page.locator("main script").count() == 0


def speak(page: Any, served: Served, language: str) -> None:
    """Choose a language."""
    page.context.add_cookies([{"name": "relevo_language", "value": language, "url": served.server.url}])


@pytest.mark.parametrize("path", [*PAGES_SEEN, *WRONG])
def test_a_page_does_no_harm_and_can_be_read(hostile: tuple[Served, World], page: Any, path: str) -> None:
    """In both widths nothing sticks out; nothing hostile ran; axe finds no serious fault."""
    served, world = hostile
    names = {**vars(world), "owner_path": quote(world.owner, safe="")}
    for language in SPOKEN:
        speak(page, served, language)
        answer = page.goto(served.server.url + path.format_map(names))
        assert answer.status == WRONG.get(path, 200)
        harmless(page, language)
        look(page, [*PAGES_SEEN, *WRONG].index(path))


def test_whoever_is_not_logged_in_can_read_why(hostile: tuple[Served, World], page: Any) -> None:
    """A link that was used, or never was one, leads to the form, in both languages and widths."""
    served, _ = hostile
    context = page.context.browser.new_context()
    context.add_init_script(path=AXE)
    stranger = context.new_page()
    for turn, language in enumerate(LANGUAGES):
        speak(stranger, served, language)
        assert stranger.goto(served.server.url + "/login?code=wrong").status == 401
        harmless(stranger, language)
        look(stranger, turn)
    stranger.context.close()


def test_every_page_there_is_was_looked_at() -> None:
    """Whatever route a page has, one of the addresses above is its own."""
    looked = [urlsplit(path.format_map(_Any())).path for path in (*PAGES_SEEN, *WRONG, "/login")]
    pages = [each for router in ROUTERS for each in router.routes if "GET" in each.methods]
    left_out = {"/favicon.ico", "/dashboard/static/{name}", "/dashboard/language/{code}", "/guide/pictures/{name}"}
    missing = {each.path for each in pages if not any(each.path_regex.match(path) for path in looked)}
    assert missing == left_out


class _Any(dict[str, object]):
    """A value for every name in an address."""

    def __missing__(self, name: str) -> object:
        return UUID(int=7) if name == "installation" else 7


@pytest.mark.parametrize(("path", "filled", "status"), SENT, ids=[f"{path} {status}" for path, _, status in SENT])
def test_what_comes_after_a_form_can_be_read(
    hostile: tuple[Served, World], page: Any, path: str, filled: dict[str, str], status: int
) -> None:
    """What was done, and what is wrong with what was sent, is told on a page like any other; they take turns in languages."""
    served, world = hostile
    turn = SENT.index((path, filled, status))
    language = list(LANGUAGES)[turn % len(LANGUAGES)]
    speak(page, served, language)
    page.goto(served.server.url + path.format_map(vars(world)))
    page.evaluate("() => document.querySelectorAll('main input').forEach(each => { each.required = false })")
    for name, value in filled.items():
        page.fill(f"main [name={name}]", NASTY[:300] if value == "nasty" else value)
    with page.expect_navigation() as going:
        page.click("main button")
    assert going.value.status == status
    harmless(page, language)
    look(page, turn)


def test_the_head_of_a_page_leaves_room_on_a_phone(hostile: tuple[Served, World], page: Any) -> None:
    """It takes 120 pixels at most at 360; every page can still be reached with the keyboard alone."""
    served, _ = hostile
    page.set_viewport_size({"width": 360, "height": 900})
    page.goto(served.server.url + "/dashboard/compose")
    assert page.locator("header").bounding_box()["height"] <= 120
    links = page.locator("header nav a")
    for place in (0, links.count() - 1):
        links.nth(place).focus()
        box = links.nth(place).bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 360


def test_the_page_of_the_api_fits(hostile: tuple[Served, World], page: Any) -> None:
    """Its own page, too, sticks out nowhere, and can be read."""
    served, _ = hostile
    page.goto(served.server.url + "/docs")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert sticks_out(page) == [], width
    page.emulate_media(color_scheme="dark")
    # Its sections are all written alike: some operations and some schemas show what there is.
    page.evaluate(CUT, soak.cases(6, whole=1_000))
    assert page.evaluate(FAULTS, {}) == []
