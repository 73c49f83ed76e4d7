"""One hostile client process: it sends one kind of request as fast as it can, until it is ended.

`python -m bench.strangers ATTACK PORT SECRETS` with the secrets as JSON; a line tells that the first answer came.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID, uuid4

CONNECTIONS = 32
_FIELDS = 60_000
_QUERY = 32_000
SLOW_NUMBER = "{a0, number, ::scale/1e300000000}"
"""The pattern that took 77 s and 2.1 GB when it was rendered."""


@dataclass(frozen=True)
class Secrets:
    """The proofs of hostile callers that have one."""

    viewer: str
    session: str
    form: str


def _request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    head = "".join(f"{each}\r\n" for each in ("Host: bench", f"Content-Length: {len(body)}", *headers))
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


_JSON = "Content-Type: application/json"


def _signed(key: str = "bench") -> str:
    """Return a header with a signature that looks good and does not hold."""
    now = int(time.time())
    return f"X-Relevo-Signature: v2.{key}.{now}.{now + 600}.{'n' * 16}.{random.getrandbits(256):064x}"


def _fields(_: Secrets) -> bytes:
    names = ",".join(f'"{n:04}":0' for n in range(_FIELDS // 9))
    return _request("PUT", f"/v1/installations/{uuid4()}", f"{{{names}}}".encode(), _JSON, _signed())


def _query(_: Secrets) -> bytes:
    return _request("GET", "/guide?" + "a&" * (_QUERY // 2 - 50))


def _search(_: Secrets) -> bytes:
    return _request("GET", f"/guide?q=the+e+{random.getrandbits(10):x}"[:-1])


def _nothing(_: Secrets) -> bytes:
    return _request("GET", f"/nothing/{random.getrandbits(32)}")


def _connecting(_: Secrets) -> bytes:
    return _request("GET", f"/nothing/{random.getrandbits(32)}", b"", "Connection: close")


def _registration(_: Secrets) -> bytes:
    token = f"ExponentPushToken[{random.getrandbits(64):x}]"
    body = json.dumps({"token": token, "owner": "ana", "project": "default"}).encode()
    return _request("PUT", f"/v1/installations/{uuid4()}", body, _JSON, _signed())


def _bad_token(_: Secrets) -> bytes:
    token = f"relevo_{random.getrandbits(48):012x}_{'x' * 43}"
    return _request("POST", "/v1/events", b"{}", _JSON, f"Authorization: Bearer {token}")


def _bad_secret(_: Secrets) -> bytes:
    phone = UUID(int=random.getrandbits(128))
    authorization = f"Authorization: Bearer device_{phone.hex}_{'x' * 43}"
    return _request("PUT", f"/v1/installations/{phone}/preferences/default", b"{}", _JSON, authorization)


def _words(pattern: str) -> bytes:
    said = {"title": pattern, "body": pattern}
    texts = {"en": said, "es": said}
    return json.dumps({"type": "bench.words", "default": "en", "arguments": {"a0": 1}, "texts": texts}).encode()


def _preview(secrets: Secrets) -> bytes:
    """Ask for a preview of a valid text that nobody has seen before."""
    some = random.getrandbits(64)
    pattern = " ".join(f"{{a0, plural, one {{# {some + n} item}} other {{# {some - n} items}}}}" for n in range(8))
    return _request("POST", "/v1/words/preview", _words(pattern), _JSON, f"Authorization: Bearer {secrets.viewer}")


def _slow_preview(secrets: Secrets) -> bytes:
    body = _words(SLOW_NUMBER)
    return _request("POST", "/v1/words/preview", body, _JSON, f"Authorization: Bearer {secrets.viewer}")


def _compose(secrets: Secrets) -> bytes:
    """Look at a text of a saved type with arguments that nobody has given before."""
    asked = {"form": secrets.form, "words": "bench.saved", "audience": "everyone"}
    asked["arguments"] = json.dumps({"a0": random.getrandbits(30)})
    headers = "Content-Type: application/x-www-form-urlencoded", f"Cookie: {secrets.session}"
    return _request("POST", "/dashboard/compose", urlencode(asked).encode(), *headers)


ATTACKS: dict[str, tuple[str, Callable[[Secrets], bytes]]] = {
    "fields": ("60 kB of unknown fields with a signature header", _fields),
    "query": ("a 32-kB query string", _query),
    "search": ("searches in the guide", _search),
    "nothing": ("addresses that do not exist", _nothing),
    "connections": ("addresses that do not exist, on a new connection each", _connecting),
    "signature": ("registrations with a wrong HMAC", _registration),
    "token": ("unknown API tokens", _bad_token),
    "secret": ("unknown phone secrets", _bad_secret),
    "preview": ("previews of distinct texts by a viewer", _preview),
    "slow_preview": (f"previews of {SLOW_NUMBER} by a viewer", _slow_preview),
    "compose": ("compose pages with saved texts by a viewer", _compose),
}
"""The requests of each attack, in words, and a function that makes one."""


class Stranger(asyncio.Protocol):
    """One connection: it sends the next request as soon as the answer to the last one is whole, and opens anew."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._told = b""
        self.statuses: dict[bytes, int] = {}
        self.lost = asyncio.Event()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport, self._told = transport, b""
        transport.write(self._make())

    def data_received(self, data: bytes) -> None:
        """Read an answer; send the next request when it is whole."""
        self._told += data
        head, ends, body = self._told.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if ends and len(body) >= int(length or 0):
            status = head[9:12]
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self._told = b""
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(self._make())

    def connection_lost(self, _error: Exception | None) -> None:
        """Report that another connection is needed."""
        self.lost.set()


async def attack(port: int, make: Callable[[], bytes], counted: dict[bytes, int]) -> None:
    """Send on one connection after the other."""
    loop = asyncio.get_running_loop()
    while True:
        stranger = Stranger(make)
        stranger.statuses = counted
        try:
            await loop.create_connection(lambda: stranger, "127.0.0.1", port)  # noqa: B023 it is used at once
            await stranger.lost.wait()
        except OSError:
            await asyncio.sleep(0.01)


async def _main(name: str, port: int, secrets: Secrets) -> None:
    make = ATTACKS[name][1]
    counted: dict[bytes, int] = {}
    attacking = [asyncio.create_task(attack(port, lambda: make(secrets), counted)) for _ in range(CONNECTIONS)]
    print("began", flush=True)
    while sys.stdin.readable():
        line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        if not line:
            break
    for each in attacking:
        each.cancel()
    print(json.dumps({status.decode(): count for status, count in sorted(counted.items())}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), Secrets(**json.loads(sys.argv[3]))))
