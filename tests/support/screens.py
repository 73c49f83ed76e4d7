"""Pages with the screens of `@relevo/react`, what stands behind them, and somebody who uses them by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import axe_playwright_python
import psycopg
import requests
from playwright.sync_api import expect

from support import kits
from support.processes import PATIENCE_S, eventually

TEST = kits.CLIENTS / "react" / "dist" / "test"
PAGE = kits.CLIENTS / "react" / "test" / "site" / "index.html"
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
FAULTS = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations'], elementRef: false, iframes: false});
  const wide = [...document.querySelectorAll('main *')].filter((each) => each.getBoundingClientRect().right > innerWidth + 1);
  return [...found.violations.map((each) => each.id + ': ' + each.nodes.map((node) => node.html.slice(0, 150)).join(' | ')),
          ...wide.slice(0, 3).map((each) => 'sticks out: ' + each.outerHTML.slice(0, 150))];
}"""
NAME = """() => {
  const it = document.activeElement;
  const of = (ids) => (ids ?? '').split(' ').map((id) => document.getElementById(id)?.textContent).join(' ');
  return (it.getAttribute('aria-label') || of(it.getAttribute('aria-labelledby')).trim() || it.labels?.[0]?.textContent || it.textContent).trim();
}"""
MOST_TABS = 120
TEXTS = {
    "offers": {
        "en": {"name": "Offers", "sentence": "Discounts."},
        "es": {"name": "Ofertas", "sentence": "Descuentos."},
    },
    "alarms": {"en": {"name": "Alarms"}},
}


def pages(folder: Path) -> dict[str, str]:
    """Bundle the page for browsers, and the same page with the components of React Native."""
    native = ("--alias:@relevo/react=@relevo/react/native", "--alias:react-native=react-native-web")
    made = {}
    for name, aliases in (("site", ()), ("native", native)):
        out = folder / f"{name}.js"
        words = (
            "--bundle",
            "--format=esm",
            '--define:process.env.NODE_ENV="production"',
            "--log-level=warning",
            f"--outfile={out}",
        )
        kits.call(str(kits.CLIENTS / "node_modules" / ".bin" / "esbuild"), "react/dist/test/site.js", *words, *aliases)
        made[f"/{name}.js"] = out.read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    return made | {"/": page, "/native": page.replace("/site.js", "/native.js")}


@dataclass(frozen=True)
class Shop:
    """A Relevo that runs, a site with the screens, and what the database has."""

    running: kits.Running
    url: str
    conn: psycopg.Connection[Any]

    def __post_init__(self) -> None:
        """Have categories to choose from."""
        for category, rule in (("offers", "off"), ("alarms", "mandatory")):
            self.conn.execute(
                "select relevo.set_category(%s)",
                [psycopg.types.json.Jsonb({"category": category, "rule": rule, "texts": TEXTS[category]})],
            )

    def _call(self, method: str, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.running.app_token}"}
        answer = requests.request(
            method, self.running.url + path, json=body or None, headers=headers, timeout=PATIENCE_S
        )
        assert answer.ok, answer.text
        return answer.json()

    def push(self, owner: str, titles: list[str], **more: Any) -> None:
        """Tell an owner things, one after another, until they are in the inbox."""
        before = self._call("GET", f"/v1/inbox?owner={owner}&limit=200")["items"]
        for title in titles:
            said = {
                "type": "order.shipped",
                "key": str(uuid4()),
                "title": title,
                "audience": "owners",
                "owners": [owner],
            }
            self._call("POST", "/v1/events", **said, **more)
        eventually(
            lambda: len(self._call("GET", f"/v1/inbox?owner={owner}&limit=200")["items"]) == len(before) + len(titles)
        )

    def unread(self, owner: str) -> Any:
        """Return how many are unread."""
        return self._call("GET", f"/v1/inbox/counts?owner={owner}")["unread"]

    def set_preference(self, phone: str, name: str, fields: dict[str, Any]) -> None:
        """Set a preference, as another part of the app would."""
        self._call("PUT", f"/v1/installations/{phone}/preferences/{name}", **fields)

    def preference(self, phone: str, name: str) -> dict[str, Any]:
        """Return a preference without when it changed; empty if there is none."""
        items = self._call("GET", f"/v1/installations/{phone}/preferences")["items"]
        found = next((each for each in items if each["name"] == name), {"topics": None})
        return {key: value for key, value in found.items() if key != "updated_at"}

    def choices(self, owner: str) -> list[tuple[str, bool, str]]:
        """Return what an owner chose, in the words that were shown."""
        told = self._call("POST", "/v1/owners/export", owner=owner, kind="choices")["items"]
        return sorted({(each["category"], each["wanted"], each["words"]) for each in told})

    def quiet(self, phone: str) -> tuple[list[str] | None, str | None]:
        """Return the windows of the quiet hours that hold for a phone, and whose they are."""
        told = self._call("GET", f"/v1/installations/{phone}/quiet")
        return told["windows"], told["hours_of"]

    def sees(self, look: Callable[[], bool]) -> None:
        """Wait until something is so."""
        eventually(look)


class Person:
    """Somebody before a page, who uses keys alone unless the test says otherwise."""

    def __init__(
        self,
        browser: Any,
        shop: Shop,
        owner: str,
        *,
        width: int = 800,
        path: str = "/",
        color_scheme: str = "light",
        **asked: str,
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=color_scheme,
            timezone_id="America/Santiago",
            locale="en-US",
        )
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.page = self.context.new_page()
        self.page.goto(f"{shop.url}{path}?{urlencode({'owner': owner} | asked)}")

    def sees(self, role: str, name: str, *, count: int = 1, text: str = "") -> None:
        """Wait until something of a role and name is there."""
        found = (
            self.page.get_by_role(role, name=name, exact=True)
            if name
            else self.page.get_by_role(role).filter(has_text=text)
        )
        expect(found).to_have_count(count)

    def sees_text(self, text: str) -> None:
        """Wait until a text is there."""
        expect(self.page.get_by_text(text, exact=True)).to_have_count(1)

    def focused(self) -> str:
        """Return the name of what has the focus."""
        return str(self.page.evaluate(NAME))

    def goes_to(self, name: str, *, back: bool = False) -> None:
        """Press Tab until something of a name has the focus; it is shown, with a ring around it."""
        seen = []
        for _ in range(MOST_TABS):
            self.presses("Shift+Tab" if back else "Tab")
            seen.append(self.focused())
            if seen[-1] == name:
                return
        raise AssertionError(f"no Tab leads to {name}: {seen}")

    def presses(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def faults(self) -> list[str]:
        """Return what axe finds, and what sticks out of the window."""
        return faults(self.page)

    def leaves(self) -> None:
        """Close the page."""
        self.context.close()


def faults(page: Any) -> list[str]:
    """Return what axe finds on a page, and what sticks out of the window."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return list(page.evaluate(FAULTS))
