"""A TCP proxy between a client and PostgreSQL that can be slow, cut, frozen, or lose a COMMIT on its way.

    with Proxy(dsn) as proxy:
        worker = build(database_url=proxy.dsn)
        proxy.latency_s = 0.05            # every chunk takes this long, in both directions
        proxy.cut()                       # all connections break at once; new ones work
        proxy.shut() / proxy.open()       # connections break and new ones are refused / work again
        proxy.freeze() / proxy.thaw()     # half-open: connections stay, nothing passes; new ones are never answered
        proxy.silence() / proxy.thaw()    # likewise for the connections there are; new ones work
        proxy.lose_answer()               # the next COMMIT is carried out, its answer is swallowed, the connection cut
        proxy.lose_commit()               # the next COMMIT never arrives: both ends of its connection are cut
        proxy.hold_commit()               # the next COMMIT is held and its client cut: the server's transaction stays open,
        proxy.deliver_commit()            #   until this hands the COMMIT over after all
        proxy.silence_at(b"claims")       # the connection that says these bytes falls silent before they pass, like silence()
        proxy.silence_commit()            # the next COMMIT falls silent likewise

Those that wait for a COMMIT take `after`: they then act on the first transaction that mentioned these bytes, so
that a heartbeat's COMMIT in between is let through. `wait_until_hit()` returns once they have acted.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

DEADLINE_S = 60.0
CLOSING_S = 5.0
_STARTUP_HEAD, _FRAME_HEAD = 4, 5
_PROTOCOL_3 = 3

Fate = Literal["lose_answer", "lose_commit", "hold_commit", "silence"]


class Proxy:
    """Forwards to the server of a DSN; its methods may be called from any thread."""

    def __init__(self, dsn: str) -> None:
        parts = conninfo_to_dict(dsn)
        self._target = (str(parts["host"]), int(parts["port"] or 5432))
        self._given = dsn
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[_Link] = set()
        self._numbers = itertools.count()
        self._open = True
        self._flowing = asyncio.Event()
        self._fate: tuple[Fate, bytes] | None = None
        self._silent_words: bytes | None = None
        self._hit = threading.Event()
        self._held: _Link | None = None
        self.latency_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self._port = self._server.sockets[0].getsockname()[1]
        self.thaw()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    @property
    def dsn(self) -> str:
        """The DSN that leads through this proxy; in clear, so that COMMIT can be seen."""
        where = {"host": "127.0.0.1", "port": self._port}
        return make_conninfo(self._given, **where, sslmode="disable", gssencmode="disable")

    @property
    def connections(self) -> int:
        """How many connections are open through the proxy."""
        return len(self._links)

    def cut(self) -> None:
        """Break all connections."""
        self._do(self._cut_all)

    def shut(self) -> None:
        """Break all connections and refuse new ones."""
        self._open = False
        self.cut()

    def open(self) -> None:
        """Accept connections again."""
        self._open = True

    def freeze(self) -> None:
        """Let nothing pass; neither end can tell."""
        self._do(self._flowing.clear)

    def silence(self) -> None:
        """Let nothing pass on the connections there are; neither end can tell."""

        def silence_all() -> None:
            for link in self._links:
                link.flowing.clear()

        self._do(silence_all)

    def thaw(self) -> None:
        """Let everything pass again, what was stuck included."""

        def thaw_all() -> None:
            self._flowing.set()
            for link in self._links:
                link.flowing.set()

        self._do(thaw_all)

    def silence_at(self, words: bytes) -> None:
        """Let nothing pass any more on the next connection that says these words, nor they themselves."""
        self._hit.clear()
        self._silent_words = words

    def silence_commit(self, after: bytes = b"") -> None:
        """Let nothing pass any more on the connection of the next COMMIT, nor that itself."""
        self._arm("silence", after)

    def lose_answer(self, after: bytes = b"") -> None:
        """Let the next COMMIT be carried out, swallow its answer and cut the connection."""
        self._arm("lose_answer", after)

    def lose_commit(self, after: bytes = b"") -> None:
        """Cut the connection instead of forwarding the next COMMIT."""
        self._arm("lose_commit", after)

    def hold_commit(self, after: bytes = b"") -> None:
        """Hold back the next COMMIT and cut its client; the server waits for it in an open transaction."""
        self._arm("hold_commit", after)

    def deliver_commit(self) -> None:
        """Hand the held COMMIT to the server, wait for its answer, close."""
        assert self._held is not None, "no COMMIT is held"
        self._call(self._held.deliver())

    def wait_until_hit(self) -> None:
        """Wait until what was awaited has come."""
        assert self._hit.wait(DEADLINE_S), "no such words came"

    def was_hit(self, within_s: float) -> bool:
        """Wait for a while until what was awaited has come; tell whether it has."""
        return self._hit.wait(within_s)

    def calm(self) -> None:
        """Wait for no COMMIT and no words any more."""
        self._fate, self._silent_words = None, None

    def _arm(self, fate: Fate, after: bytes) -> None:
        self._hit.clear()
        self._fate = (fate, after)

    def _fate_of(self, link: _Link, said: bytes) -> Fate | None:
        if self._fate is None or self._fate[1] not in said:
            return None
        fate, self._fate = self._fate[0], None
        self._held = link if fate == "hold_commit" else None
        return fate

    def _are_fatal(self, said: bytes) -> bool:
        """Tell whether these are the words at which a connection falls silent; only the first that says them does."""
        if self._silent_words is None or self._silent_words not in said:
            return False
        self._silent_words = None
        return True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            with suppress(ConnectionRefusedError):  # the server is away, and so is the connection
                await link.run(self._target)
        finally:
            link.cut()  # also where the server could not be reached
            self._links.discard(link)

    def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _close(self) -> None:
        self._open = False
        self._server.close()
        self._flowing.set()
        for link in self._links:
            link.flowing.set()
        self._cut_all()
        deadline = self._loop.time() + CLOSING_S
        while (others := asyncio.all_tasks() - {asyncio.current_task()}) and self._loop.time() < deadline:
            self._cut_all()  # also those that came in the last moment
            await asyncio.wait(others, timeout=CLOSING_S / 10)
        await asyncio.sleep(0.05)  # what was aborted is closed in the loop's next round

    def _do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._call(act())

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._said = b""
        self._held = b""
        self._answered = asyncio.Event()
        self._swallow = False
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def run(self, target: tuple[str, int]) -> None:
        """Forward until either end closes."""
        self._server = await asyncio.open_connection(*target)
        pumps = [asyncio.create_task(self._to_server()), asyncio.create_task(self._to_client())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._held:  # the client is gone, the server must not notice
                await pumps[1]
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        """Break both ends."""
        self._client[1].transport.abort()
        if self._server is not None:
            self._server[1].transport.abort()

    async def deliver(self) -> None:
        """Send the held COMMIT and wait for its answer."""
        assert self._server is not None
        self._answered.clear()
        self._server[1].write(self._held)
        self._held = b""
        await asyncio.wait_for(self._answered.wait(), DEADLINE_S)
        self.cut()

    async def _to_server(self) -> None:
        assert self._server is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not await self._startup():
                pass
            while True:
                await self._frame()

    async def _startup(self) -> bool:
        """Forward a message of the time before the login; tell whether it was the login itself."""
        reader = self._client[0]
        head = await reader.readexactly(_STARTUP_HEAD)
        body = await reader.readexactly(struct.unpack("!I", head)[0] - _STARTUP_HEAD)
        await self._forward(head + body)
        return bool(struct.unpack("!H", body[:2])[0] == _PROTOCOL_3)

    async def _frame(self) -> None:
        reader = self._client[0]
        head = await reader.readexactly(_FRAME_HEAD)
        body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - _FRAME_HEAD + 1)
        if head[:1] in b"QP":
            self._said = b"" if body.upper().startswith(b"BEGIN") else self._said + body
        is_commit = head[:1] == b"Q" and body.rstrip(b"\0").strip().upper() == b"COMMIT"
        fate = self._proxy._fate_of(self, self._said) if is_commit else None
        if fate == "silence" or self._proxy._are_fatal(body):
            self.flowing.clear()
            self._proxy._hit.set()
            fate = None
        if fate is None:
            await self._forward(head + body)
        else:
            await self._meet(fate, head + body)

    async def _meet(self, fate: Fate, commit: bytes) -> None:
        """Do to a COMMIT what was asked for, then break the client's end."""
        assert self._server is not None
        self._swallow = True
        if fate == "lose_answer":
            self._answered.clear()
            await self._forward(commit)
            await asyncio.wait_for(self._answered.wait(), DEADLINE_S)
        elif fate == "hold_commit":
            self._held = commit
        else:
            self._server[1].transport.abort()
        self._client[1].transport.abort()
        self._proxy._hit.set()
        raise ConnectionResetError

    async def _forward(self, data: bytes) -> None:
        assert self._server is not None
        await self._pass(self._server[1], data)

    async def _to_client(self) -> None:
        assert self._server is not None
        with suppress(ConnectionError):
            while data := await self._server[0].read(65536):
                self._answered.set()
                if not self._swallow:
                    await self._pass(self._client[1], data)

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._proxy.latency_s:
            await asyncio.sleep(self._proxy.latency_s)
        await self._proxy._flowing.wait()
        await self.flowing.wait()
        writer.write(data)
        await writer.drain()
