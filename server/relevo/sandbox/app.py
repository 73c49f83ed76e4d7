"""The ASGI app: routes a request, and lets answers be late, cut short or never come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from relevo.core import i18n
from relevo.core.addresses import parsed
from relevo.sandbox import admin, answers, messages, page
from relevo.sandbox.answers import HttpResponse, Refused, refused
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.state import SandboxState

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
PUSH_API = (SEND, RECEIPTS)
HANG_S = 120.0
# A body that is too large is read to its end up to here, so that its sender gets to hear why it is refused.
_MAX_DRAINED = 8 * messages.MAX_BODY

Tell = Callable[[str], None]


class _Gone(Exception):  # noqa: N818 a state of affairs
    """The client left before its request was whole."""


class SandboxApp:
    """A sandbox's face; the protocol puts the connection's transport into the scope's state."""

    def __init__(self, state: SandboxState, tell: Tell | None = None) -> None:
        self.state = state
        self._tell = tell
        self._pauses: set[asyncio.Timeout] = set()
        self._stopped = False

    def stop(self) -> None:
        """End every late or hanging answer now."""
        self._stopped = True
        for pause in self._pauses:
            pause.reschedule(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        try:
            exchange = await self._exchange(scope, receive)
        except _Gone:
            return
        except Refused as refusal:
            exchange = Exchange(refusal.answer)
        try:
            if scope["path"] in PUSH_API:
                await self._pause(self.state.settings.latency_ms / 1000, receive)
            await self._play(exchange, scope, receive, send)
        finally:
            self.state.left(exchange)
        if self._tell is not None:
            self._tell(_line(scope, exchange, time.perf_counter() - began))

    async def _exchange(self, scope: Scope, receive: Receive) -> Exchange:
        method, path = scope["method"], scope["path"]
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if path in PUSH_API:
            if method != "POST":
                raise refused(405, "METHOD_NOT_ALLOWED", "Use POST here.", headers={"allow": "POST"})
            body = await _read(receive, headers)
            return (self.state.send if path == SEND else self.state.receipts)(body, headers.get(b"authorization", ""))
        host, reads = headers.get(b"host", ""), method in ("GET", "HEAD")
        site = "" if reads else headers.get(b"sec-fetch-site", "")  # a link may lead to a page
        _refuse_other_sites(host, headers.get(b"origin", ""), site)
        if reads and not path.startswith("/sandbox/"):
            _use_language(headers)
            if (found := page.find(self.state, path, f"http://{host or 'localhost'}")) is not None:
                return Exchange(found)
        body = await _read(receive, headers)
        if method == "POST" and path in page.BUTTONS:
            return Exchange(await page.press(self.state, path, body))
        return Exchange(admin.answer(self.state, method, path, scope["query_string"], body))

    async def _play(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        fault = exchange.fault
        match fault.value.removesuffix("-delivered") if fault else "":
            case "hang":
                await self._pause(HANG_S, receive)
                await _hang_up(scope, receive)
            case "reset":
                await _hang_up(scope, receive)
            case "truncated":
                await _write(exchange.answer, send, cut=True)
                await _hang_up(scope, receive)
            case _:
                await self._pause(fault.seconds if fault else 0, receive)
                await _write(exchange.answer, send, head=scope["method"] == "HEAD")

    async def _pause(self, seconds: float, receive: Receive) -> None:
        """Wait, but no longer than the client does, and not while the sandbox stops."""
        if not seconds or self._stopped:
            return
        try:
            async with asyncio.timeout(seconds) as pause:
                self._pauses.add(pause)
                await _gone(receive)
        except TimeoutError:
            pass
        finally:
            self._pauses.discard(pause)


async def _gone(receive: Receive) -> None:
    """Wait until the client has left, or was made to."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _use_language(headers: Mapping[bytes, str]) -> None:
    """Write this page in the language of the dashboard: a browser sends its cookie to every port of a machine."""
    sent = dict(part.partition("=")[::2] for part in headers.get(b"cookie", "")[:4000].split("; "))
    i18n.use_language(i18n.language_for(sent.get(i18n.COOKIE, ""), headers.get(b"accept-language", "")))


def _refuse_other_sites(host: str, origin: str, site: str) -> None:
    """Refuse what a page of another site asks for, by our address or by a name of its own that leads here.

    Names that a stranger may own have a dot: a number, `localhost` and what a container is called have none.
    """
    name = urlsplit(f"//{host}").hostname or "localhost"
    is_ours = "." not in name or parsed(name) is not None or name.endswith(".localhost")
    if not is_ours:
        raise refused(403, "FORBIDDEN", f"Call the sandbox by its address, not as {name[:100]}.")
    if (origin and origin != f"http://{host}") or site in ("cross-site", "same-site"):
        raise refused(403, "FORBIDDEN", "Only the sandbox's own page may do this, not that of another site.")


async def _read(receive: Receive, headers: Mapping[bytes, str]) -> bytes:
    """Return a request's body, unpacked."""
    body, size, more = bytearray(), 0, True
    while more and size <= _MAX_DRAINED:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise _Gone
        part = event.get("body", b"")
        size += len(part)
        if size <= messages.MAX_BODY:
            body += part
        more = event.get("more_body", False)
    if size > messages.MAX_BODY:
        raise answers.too_large(messages.MAX_BODY)
    return messages.unpack(bytes(body), headers.get(b"content-encoding", ""))


async def _write(answer: HttpResponse, send: Send, *, cut: bool = False, head: bool = False) -> None:
    """Write an answer; one that is cut short promises more than comes."""
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    if answer.status == 413:  # noqa: PLR2004 what is left of the body must not be taken for a request
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if head else answer.body[: len(answer.body) // 2] if cut else answer.body
    await send({"type": "http.response.body", "body": body, "more_body": cut})


async def _hang_up(scope: Scope, receive: Receive) -> None:
    """Close the connection after what was written so far."""
    scope["state"]["transport"].close()
    await _gone(receive)


def _line(scope: Scope, exchange: Exchange, seconds: float) -> str:
    """Write the outcome of a request to the log in one line, without tokens and secrets."""
    place = next((f"{each}…" for each in (admin.PHONE, "/phones/") if scope["path"].startswith(each)), scope["path"])
    parts = [scope["method"], place, str(exchange.answer.status)]
    if exchange.count:
        parts.append(f"{exchange.count} {'messages' if scope['path'] == SEND else 'ids'}")
    if exchange.project is not None:
        parts.append(exchange.project)
    if exchange.fault is not None:
        parts.append(f"fault {exchange.fault.word}")
    return "  ".join([*parts, f"{seconds * 1000:.1f} ms"])
