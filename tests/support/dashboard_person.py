"""A person at the dashboard."""

from __future__ import annotations

import re
from typing import Any

from relevo.access import api_tokens
from support.http_server import Client, Served

WIDTHS, COLOURS = (360, 1280), ("light", "dark")
NASTY = "<script>document.title='owned'</script>\u202eevil\u202c 🎉 " + "x" * 10_000
"""What a feed may hold: markup, text from right to left, a picture, a word without end."""


class Person:
    """Somebody with a session, without a browser: `person.get("/dashboard")`, `person.send("/logout")`."""

    def __init__(self, served: Served, role: str | None = "operator", **options: Any) -> None:
        self.client = served.client()
        self.token = served.client(role, **options).token if role else ""
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **options: Any) -> Any:
        """Open a page."""
        return self._kept(self.client.get(path, cookies=dict(self.cookies), **options))

    def post(self, path: str, **fields: str) -> Any:
        """Send fields as a form does, and nothing else."""
        return self._kept(self.client.call("POST", path, data=fields, cookies=dict(self.cookies)))

    def send(self, path: str, **fields: str) -> Any:
        """Send a form of this person's own session."""
        return self.post(path, form=api_tokens.form_mark(self.cookies["relevo_session"]), **fields)

    def log_in(self, token: str | None = None, **fields: str) -> Any:
        """Fill in the login form."""
        marks = re.findall(r'name="form" value="([^"]+)"', self.get("/login").text)
        return self.post("/login", token=self.token if token is None else token, form=marks[-1], **fields)

    def _kept(self, answer: Any) -> Any:
        self.cookies |= {each.name: each.value or "" for each in answer.cookies}
        return answer


def enter(context: Any, served: Served, client: Client) -> Any:
    """Log in with a browser, and return the page that shows then."""
    page = context.new_page()
    page.goto(served.server.url + "/dashboard")
    page.fill("#token", client.token)
    page.click("button")
    page.wait_for_url("**/dashboard")
    return page


def fits(page: Any) -> bool:
    """Tell whether nothing sticks out of the window sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(each => {
  const box = each.getBoundingClientRect(), style = getComputedStyle(each);
  if (!box.width || !box.height || each.closest('thead, .skip, svg, input, textarea, select, pre, header nav')) return false;
  const cut = ['hidden', 'clip'].includes(style.overflowX) && each.scrollWidth > each.clientWidth + 1;
  const card = each.parentElement.closest('.card');
  const beyond = card && box.right > card.getBoundingClientRect().right + 1;
  return box.right > innerWidth + 1 || box.left < -1 || beyond || cut;
}).slice(0, 3).map(each => each.outerHTML.slice(0, 200))"""


def sticks_out(page: Any) -> list[str]:
    """Return what sticks out of the window or of its card sideways, or is cut off."""
    if not fits(page):
        return [*page.evaluate(OUTSIDE), "the page is wider than the window"]
    return list(page.evaluate(OUTSIDE))
