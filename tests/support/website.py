"""A web site whose pages use `@relevo/web`, and somebody before it with a headless browser.

A headless browser refuses notifications and has no push service. So subscriptions are the sandbox's, what it received
is handed to the service worker by the browser's debugger, and what would be shown is noted: see web/test/site.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from uuid import uuid4

from relevo.sandbox import Sandbox
from support import kits
from support.processes import eventually

SITE = kits.CLIENTS / "web" / "test" / "site"
WORKER = kits.CLIENTS / "web" / "dist" / "worker" / "relevo-worker.js"


class _Pages(SimpleHTTPRequestHandler):
    own: ClassVar[dict[str, tuple[str, str]]]

    def do_GET(self) -> None:
        kind, text = self.own.get(self.path.partition("?")[0], ("", ""))
        if not text:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def shop() -> dict[str, str]:
    """Return the pages of the site, by their addresses."""
    worker = (SITE / "fake-worker.js").read_text(encoding="utf-8") + WORKER.read_text(encoding="utf-8")
    return {"/": (SITE / "index.html").read_text(encoding="utf-8"), "/relevo-worker.js": worker}


@contextmanager
def serve(pages: dict[str, str]) -> Iterator[Site]:
    """Serve pages and scripts by their addresses, and beside them the files of the kits."""

    class Pages(_Pages):
        own: ClassVar = {
            path: ("text/javascript" if path.endswith(".js") else "text/html; charset=utf-8", text)
            for path, text in pages.items()
        }

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(kits.CLIENTS))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{server.server_port}", Pages.own)
        finally:
            server.shutdown()
            thread.join()


class Site:
    """Pages that are served."""

    def __init__(self, url: str, own: dict[str, tuple[str, str]]) -> None:
        self.url = url
        self._own = own

    def set(self, **settings: str) -> None:
        """Say what its pages have to know."""
        self._own["/settings.json"] = ("application/json", json.dumps(settings))


class Visitor:
    """Somebody with a browser at the site."""

    def __init__(self, browser: Any, site: Site, sandbox: Sandbox) -> None:
        self._site, self._sandbox = site, sandbox
        self.context = browser.new_context()
        self.context.add_init_script((SITE / "fake-push.js").read_text(encoding="utf-8"))
        self.context.expose_function("subscribeAtSandbox", lambda: sandbox.subscription(uuid4().hex[:8]))
        self.page = self.open()

    def open(self) -> Any:
        """Open the page once more, in a tab of its own."""
        page = self.context.new_page()
        page.goto(self._site.url)
        page.wait_for_function("window.push")
        return page

    def status(self) -> str:
        """Return what the page shows of its registration, and of what went wrong with it."""
        return str(self.page.evaluate("push.state().status + (push.state().error ? ` ${push.state().error}` : '')"))

    def subscription(self) -> str | None:
        """Return the browser's subscription at the sandbox."""
        found = self.page.evaluate("localStorage.getItem('subscription')")
        return str(found) if found else None

    def kept(self, name: str) -> Any:
        """Return what the browser keeps under a name."""
        return self.page.evaluate(
            "async (name) => JSON.parse(await (await import('@relevo/web')).browserStorage.get(name))", f"relevo.{name}"
        )

    def in_worker(self, script: str, *arguments: object) -> Any:
        """Run something in the service worker."""
        return eventually(lambda: self.context.service_workers)[0].evaluate(script, *arguments)

    def receive(self, title: str) -> None:
        """Hand the newest push of this title, once the sandbox has it, to the service worker."""
        token = self.subscription() or ""
        got = eventually(lambda: [each for each in self._sandbox.received(token) if each["title"] == title], title)
        cdp = self.context.new_cdp_session(self.page)
        known: list[dict[str, Any]] = []
        cdp.on("ServiceWorker.workerRegistrationUpdated", lambda told: known.extend(told["registrations"]))
        cdp.send("ServiceWorker.enable")
        while not known:
            self.page.evaluate("1")  # lets the browser tell
        said = {"origin": self._site.url, "registrationId": known[-1]["registrationId"], "data": json.dumps(got[-1])}
        cdp.send("ServiceWorker.deliverPushMessage", said)
        cdp.detach()

    def shown(self) -> list[str]:
        """Return the titles that the browser shows."""
        return [each["title"] for each in self.in_worker("() => noted().shown")]
