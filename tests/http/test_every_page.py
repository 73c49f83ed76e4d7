"""Every page with hostile text: nothing of it runs, nothing sticks out, and whoever needs help to read a page can read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import psycopg
import pytest
from playwright.sync_api import sync_playwright

from browsing import COLOURS, WIDTHS, enter, sticks_out
from hostile import World, fill
from parts import find_part
from relevo import app
from relevo.config import Settings
from relevo.http.dashboard.language import LANGUAGES
from serving import Served

pytestmark = pytest.mark.needs("chromium-headless-shell")
PAGES_SEEN = [
    "/dashboard",
    "/dashboard/events",
    "/dashboard/events/{event}",
    "/dashboard/events/{tender}",
    "/dashboard/events/0",
    "/dashboard/deliveries/{delivery}",
    "/dashboard/installations/{installation}?event={event}",
    "/dashboard/owners/{owner_path}?event={tender}",
    "/dashboard/search?q={external_id}",
    "/dashboard/search?q=nowhere",
    "/guide/runbook",
    "/guide/nowhere",
    "/dashboard/runs",
    "/dashboard/runs/{run}",
    "/dashboard/sources",
    "/dashboard/dead-letters",
    "/dashboard/archive",
    "/dashboard/audit",
    "/dashboard/compose?audience=everyone",
    "/dashboard/compose/{trial}",
    "/dashboard/actions/test?phones={installation}&title={owner}&body={owner}",
    "/dashboard/actions/redrive?code=MessageTooBig",
    "/dashboard/actions/pause?cycle=dispatch",
]
"""Every page there is, an error among them; names in braces are those of hostile.World. Add yours."""
NOT_THERE = ("/guide/nowhere", "/dashboard/events/0")
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
GRAVE = "(await axe.run(document, {resultTypes: ['violations']})).violations.filter(v => ['serious', 'critical'].includes(v.impact))"
FAULTS = f"async () => {GRAVE}.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 150)).join(' | '))"
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
        yield enter(context, served, served.client("operator"))
        started.close()


@pytest.mark.parametrize("path", PAGES_SEEN)
def test_a_page_does_no_harm_and_can_be_read(hostile: tuple[Served, World], page: Any, path: str) -> None:
    """In both languages, widths and themes nothing sticks out; nothing hostile ran; axe finds no serious fault."""
    served, world = hostile
    names = {**vars(world), "owner_path": quote(world.owner, safe="")}
    address = served.server.url + path.format_map(names)
    for language in LANGUAGES:
        page.context.add_cookies([{"name": "relevo_language", "value": language, "url": served.server.url}])
        answer = page.goto(address)
        assert answer.status == (404 if path in NOT_THERE else 200)
        assert page.get_attribute("html", "lang") == language
        assert "owned" not in page.title()[:5]
        assert page.locator("main script").count() == 0
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert sticks_out(page) == [], (language, width)
    page.evaluate(AXE.read_text())
    for colours in COLOURS:
        page.emulate_media(color_scheme=colours)
        assert page.evaluate(FAULTS) == [], colours
