"""The wire to Expo: one kept connection per thread, each exchange bounded in time and size; it knows no meanings."""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
import zlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from relevo import __version__
from relevo.providers.expo_connection import Incoming, hear
from relevo.providers.timed import TimedReader, left

USER_AGENT = f"relevo/{__version__}"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SCANNED = 4_000
GZIP_ABOVE_BYTES = 1_024
MAX_IDLE_S = 45.0
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_AS_JSON_DOES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def encode(value: object) -> bytes:
    """Write a body; what orjson does not take, such as half a character, is left to json, which may raise."""
    try:
        return orjson.dumps(value, option=_AS_JSON_DOES)
    except TypeError:
        return json.dumps(value).encode()


def decode(body: bytes) -> object:
    """Read a body; what orjson does not take, such as half a character, is left to json; ValueError if it is none."""
    try:
        return orjson.loads(body)
    except ValueError:
        pass
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Exchange(threading.local):
    """The calling thread's request: until when it may last, and how far it got; `sent` if any byte may have left."""

    connect_s = 0.0
    end_by = 0.0
    stage: Literal["writing", "connecting", "sent"] = "writing"

    def begin(self, connect_s: float, total_s: float) -> None:
        """Start the clock."""
        self.connect_s = connect_s
        self.end_by = time.monotonic() + total_s
        self.stage = "writing"


exchange = Exchange()


class ProxyRefusedError(OSError):
    """A proxy did not let us through to the push service."""


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(TimedReader(sock, self.fp.detach(), lambda: exchange.end_by))


class _Plain(HTTPConnection):
    """Does all it does within the exchange's time, and notes when the request begins to leave."""

    response_class = _TimedResponse
    _connect_by = 0.0
    _tunnelling = False

    def _new_conn(self) -> socket.socket:
        until = self._connect_by = min(exchange.end_by, time.monotonic() + exchange.connect_s)
        found = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
        trouble: OSError = TimeoutError("the time is over")
        for tried, (family, kind, protocol, _, address) in enumerate(found):
            dialled = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    dialled.setsockopt(*option)
                # A share for each address: one that swallows everything must not hide the next.
                dialled.settimeout(left(until) / (len(found) - tried))
                dialled.connect(address)
                dialled.settimeout(left(until))  # what is left is for TLS
            except OSError as error:
                dialled.close()
                trouble = error
            else:
                return dialled
        raise trouble

    def _tunnel(self) -> None:
        """Ask a proxy for a way through, within the time for connecting."""
        end_by, exchange.end_by = exchange.end_by, self._connect_by
        self._tunnelling = True
        try:
            super()._tunnel()
        except TimeoutError:
            raise
        except OSError as error:
            raise ProxyRefusedError(f"the proxy said no ({str(error)[:100]})") from None
        finally:
            self._tunnelling = False
            exchange.end_by = end_by

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Write head and body at once: one packet, and one system call, where urllib3 makes two."""
        self._pieces: list[bytes] = []
        super().request(*args, **kwargs)
        if self.sock is None:
            self.connect()
        self._write(b"".join(self._pieces), stage="sent")

    def send(self, data: Any) -> None:
        """Gather what is to be written; what a proxy is asked goes out at once."""
        if self._tunnelling:
            self._write(data, stage="connecting")
        else:
            self._pieces.append(data)

    def write(self, data: bytes) -> None:
        """Write a whole request."""
        self._write(data, stage="sent")

    def receive(self, most: int) -> bytes:
        """Return what came, or comes in time; nothing if the other end closed the connection."""
        self.sock.settimeout(left(exchange.end_by))
        came: bytes = self.sock.recv(most)
        return came

    def _write(self, data: bytes, stage: Literal["connecting", "sent"]) -> None:
        rest = memoryview(data)
        while rest:
            # Not sendall: over TLS its time would begin anew with every piece.
            self.sock.settimeout(left(exchange.end_by))
            exchange.stage = stage
            rest = rest[self.sock.send(rest) :]


class _Secure(_Plain, HTTPSConnection):
    pass


class _Keeping(HTTPConnectionPool):
    """A pool of one connection, which may also be used without urllib3's own way of using it."""

    def kept(self) -> _Plain | None:
        """Return its connection if that is open and quiet; the pool is without it until it is given back."""
        connection: Any = self._get_conn()
        if connection.sock is not None:
            return connection  # type: ignore[no-any-return]
        self._put_conn(connection)
        return None

    def give_back(self, connection: _Plain) -> None:
        """Have the connection back, open or closed."""
        self._put_conn(connection)


class _PlainPool(_Keeping):
    ConnectionCls = _Plain


class _SecurePool(_Keeping, HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def __init__(self) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._pool: Any = None

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Return the manager of connections through a proxy, which are timed like all others."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
        return manager

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the one pool there is; finding out which costs as much as using it."""
        pool = self._pool
        if pool is None:
            pool = self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return pool

    def kept(self) -> tuple[Any, Any]:
        """Return the pool and its connection, None if that is to be made anew."""
        pool = self._pool
        return pool, None if pool is None else pool.kept()

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        super().close()

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:  # noqa: ARG002 requests' signature
        """Return the light answer that the SDK needs, its body read whole."""
        return Answer(resp.status, resp.headers, _read(resp))


def _read(response: Any) -> bytes:
    try:
        body: bytes = response.read(MAX_ANSWER_BYTES + 1, decode_content=True)
    except (HTTPError, OSError):
        response.close()
        if is_success(response.status):
            raise
        return b""  # the status says enough
    if len(body) > MAX_ANSWER_BYTES:
        response.close()
        return b""
    return body


def is_success(status: int) -> bool:
    """Tell whether an HTTP status means yes."""
    return http.client.OK <= status < http.client.MULTIPLE_CHOICES


class Answer:
    """What came back, with as much of requests' Response as the SDK uses."""

    __slots__ = ("body", "expected", "headers", "raw", "status_code")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self.body = body
        self.expected: type = list
        self.raw: Any = None

    def json(self) -> dict[str, Any]:
        """Return the document in a shape that the SDK can walk through; ValueError if it has none."""
        document = decode(self.body)
        if not isinstance(document, dict):
            raise ValueError("not an object")  # noqa: TRY004 what the SDK waits for
        if document.get("errors"):
            return document
        document.pop("errors", None)
        data = document.get("data")
        if not isinstance(data, self.expected):
            raise ValueError("no data")  # noqa: TRY004
        self.raw = data
        document["data"] = _walkable(data)
        return document

    def raise_for_status(self) -> None:
        """Raise for everything but success, redirects included."""
        if not is_success(self.status_code):
            raise requests.HTTPError(f"HTTP {self.status_code}", response=self)  # type: ignore[arg-type]

    def excerpt(self) -> str:
        """Return how the body begins."""
        return self.body[:MAX_SCANNED].decode("utf-8", "replace")

    def own_code(self) -> str:
        """Return a code for an answer that has none."""
        return "UnreadableAnswer" if is_success(self.status_code) else f"HTTP_{self.status_code}"


def _walkable(data: Any) -> Any:
    """One odd entry must not cost the others: an odd ticket says nothing, an odd receipt is none yet."""
    if isinstance(data, dict):
        return {key: each for key, each in data.items() if isinstance(each, dict)}
    return [each if isinstance(each, dict) else {} for each in data]


class Session(requests.Session):
    """Posts JSON and nothing else: no redirects, cookies or netrc; one connection, kept, maybe through a proxy."""

    def __init__(self, secret: str | None, proxy: str | None = None) -> None:
        super().__init__()
        self._through = {"http": proxy, "https": proxy} if proxy else {}
        self.trust_env = False
        self.answer: Answer | None = None
        self._secret = secret.encode() if secret else b""
        self._used_at = time.monotonic()
        self._adapter = _Adapter()
        for scheme in ("http://", "https://"):
            self.mount(scheme, self._adapter)
        self._plain = {
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "Content-Type": "application/json",
        } | ({"Authorization": f"Bearer {secret}"} if secret else {})
        self._packed = self._plain | {"Content-Encoding": "gzip"}
        self._heads: dict[tuple[str, bool], bytes] = {}

    def post(self, url: Any, data: Any = None, json: Any = None, **kwargs: Any) -> Any:
        """Post what is written already (messages), or what the SDK wants written (the ids of receipts)."""
        body = encode(json) if json is not None else data.encode() if isinstance(data, str) else data
        headers = self._plain
        if len(body) > GZIP_ABOVE_BYTES:
            body, headers = zlib.compress(body, level=1, wbits=31), self._packed
        self.answer = None
        answer = self._trade(url, body, headers, kwargs["timeout"])
        answer.expected = list if json is None else dict
        self.answer = answer
        return answer

    def _trade(self, url: str, body: bytes, headers: Mapping[str, str], timeout: tuple[float, float]) -> Answer:
        if time.monotonic() - self._used_at > MAX_IDLE_S:
            self._adapter.close()  # servers tire of idle connections, and closing one may cross our request
        exchange.stage = "connecting"
        answer = None if self._through else self._trade_again(url, body, headers)
        if answer is None:
            answer = self._trade_anew(url, body, headers, timeout)
        self._used_at = time.monotonic()
        if self._secret and self._secret in answer.body:
            answer.body = answer.body.replace(self._secret, b"***")
        return answer

    def _trade_again(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer | None:
        """Use the connection that is kept; None if there is none."""
        pool, connection = self._adapter.kept()
        if connection is None:
            return None
        try:
            connection.write(self._head(url, headers, len(body)) + body)
            heard = hear(Incoming(connection.receive), MAX_ANSWER_BYTES)
        except BaseException:
            connection.close()
            raise
        finally:
            pool.give_back(connection)
        if not heard.reusable:
            connection.close()
        return Answer(heard.status, heard.headers, heard.body or b"")

    def _head(self, url: str, headers: Mapping[str, str], length: int) -> bytes:
        """Return a request's head; most of it was written for the request before."""
        known = self._heads.get((url, "Content-Encoding" in headers))
        if known is None:
            parts = urlsplit(url)
            lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", *(f"{k}: {v}" for k, v in headers.items())]
            known = self._heads[url, "Content-Encoding" in headers] = "\r\n".join([*lines, "Content-Length: "]).encode()
        return known + str(length).encode() + b"\r\n\r\n"

    def _trade_anew(self, url: str, body: bytes, headers: Mapping[str, str], timeout: tuple[float, float]) -> Answer:
        request = requests.PreparedRequest()
        request.method, request.url, request.body = "POST", url, body
        request.headers = {**headers, "Content-Length": str(len(body))}  # type: ignore[assignment]
        answer: Answer = self._adapter.send(request, stream=True, timeout=timeout, proxies=self._through)  # type: ignore[assignment]
        return answer
