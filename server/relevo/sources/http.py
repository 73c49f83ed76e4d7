"""Asking over HTTP with limits: time, size, redirects and where they may lead; secrets stay out of what is said."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from relevo.config import Settings
from relevo.core.addresses import is_private
from relevo.core.ports import NoRequestsLeft, OutOfTime, SourceContext
from relevo.core.retry_after import retry_after_ms
from relevo.core.version import __version__

USER_AGENT = f"relevo/{__version__}"
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_CONNECT_S = 10.0
_CHUNK = 16_384
_MAX_RETRY_AFTER_S = 86_400

# urllib3 writes whole addresses, queries and all, into its lines.
logging.getLogger("urllib3").setLevel(logging.ERROR)


class Trouble(Exception):  # noqa: N818 an answer of its own: the source could not be asked
    """A source could not be asked: `outcome` says whether trying again later may help."""

    def __init__(self, outcome: Literal["unavailable", "rejected"], detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Closed(Trouble):
    """No request may be made now."""


class TimeOver(Closed):
    """The run's time is over: the rest is for the next one, and nothing is wrong."""


def take_turn(context: SourceContext, quota: str, *, pace_ms: int, daily_limit: int) -> None:
    """Wait for the next request's turn in a quota; raises Closed if there is none."""
    try:
        context.take_turn(quota, pace_ms=pace_ms, daily_limit=daily_limit)
    except OutOfTime:
        raise TimeOver("unavailable", "") from None
    except NoRequestsLeft as closed:
        raise Closed("unavailable", str(closed) or "no request may be made now") from None


@dataclass(frozen=True)
class Response:
    """The answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def retry_after_ms(self) -> int:
        """Return how long the server asks to wait, in seconds or until a date by its own clock; 0 if it does not."""
        return retry_after_ms(self.headers, most_s=_MAX_RETRY_AFTER_S)


class Http:
    """One client: cookies are kept between requests, connections are not."""

    def __init__(self, settings: Settings) -> None:
        self._limit_s = settings.http_timeout_ms / 1_000
        self._max_bytes = settings.http_max_bytes
        self._guard = _Guard(allow_private=settings.http_allow_private)
        self._session = requests.Session()
        self._proxies = settings.proxies
        # Nothing of the environment, a .netrc included: what is sent where is said in the settings alone.
        self._session.trust_env = False
        self._session.headers.clear()
        self._session.headers.update(
            {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate", "Connection": "close"}
        )
        self._adapter = _Adapter(self._guard)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._adapter)

    def get(
        self, url: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """GET an address; raises Trouble when no whole answer came."""
        return self._ask("GET", url, params=query, headers=headers)

    def post(self, url: str, document: object) -> Response:
        """POST a JSON document; raises Trouble when no whole answer came."""
        return self._ask("POST", url, json=document)

    def forget_cookies(self) -> None:
        """Start as a stranger again."""
        self._session.cookies.clear()

    def _ask(self, method: str, url: str, **more: Any) -> Response:
        deadline = time.monotonic() + self._limit_s
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._exchange(method, url, deadline, more)
            if reply.status not in _REDIRECTS or "location" not in reply.headers:
                return reply
            url = _follow(url, reply.headers["location"])
            more.pop("params", None)
            if reply.status in (301, 302, 303) and method != "GET":
                method = "GET"
                more.pop("json", None)
        raise Trouble("rejected", f"it redirects more than {MAX_REDIRECTS} times")

    def _exchange(self, method: str, url: str, deadline: float, more: Mapping[str, Any]) -> Response:
        """Send one request; what went wrong is said in words of our own, for the library's repeat the address."""
        left = max(deadline - time.monotonic(), 0.001)
        answered: Response | Trouble
        with self._guard.cutting_off_after(left) as guard:
            try:
                limits = (min(left, _CONNECT_S), left)
                with self._session.request(
                    method, url, stream=True, allow_redirects=False, timeout=limits, proxies=self._way(url), **more
                ) as got:
                    answered = Response(got.status_code, got.headers, self._read(got))
            except Trouble as already:
                answered = already
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                answered = Trouble("unavailable", _plainly(error))
            self._adapter.close()  # a connection that we asked to be closed is not used again
            # A body without a length that is cut off looks whole.
            if guard.cut:
                answered = Trouble("unavailable", f"no whole answer within {self._limit_s * 1_000:.0f} ms")
            if guard.refused:
                answered = Trouble("rejected", guard.refused)
        if isinstance(answered, Trouble):
            raise Trouble(answered.outcome, answered.detail) from None
        return answered

    def _way(self, url: str) -> dict[str, str]:
        """Return the proxy that leads to an address; what it leads to is judged here, for the guard sees the proxy."""
        proxy = self._proxies.for_url(url)
        if proxy is None:
            return {}
        parts = urlsplit(url)
        self._guard.judge(parts.hostname or "", parts.port)
        return {"http": proxy, "https": proxy}

    def _read(self, response: requests.Response) -> bytes:
        too_much = Trouble("rejected", f"the answer has more than {self._max_bytes} bytes (HTTP_MAX_BYTES)")
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_bytes:
            raise too_much
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > self._max_bytes:
                raise too_much
        return bytes(body)


class _Guard:
    """Sees every connection as it is made: refuses private addresses, and cuts it off when its time is over."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._connection: HTTPConnection | None = None
        self.cut = False
        self.refused = ""

    @contextmanager
    def cutting_off_after(self, seconds: float) -> Iterator[_Guard]:
        """Watch over one exchange."""
        self.cut, self.refused = False, ""
        timer = threading.Timer(seconds, self._cut_off)
        timer.daemon = True
        timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            with self._lock:
                if self._handle:
                    self._handle.close()
                self._handle = self._connection = None

    def judge(self, host: str, port: int | None) -> None:
        """Refuse a host whose address is a private one; of one that only a proxy can look up, nothing is known."""
        if not self._allow_private:
            self._check(_addresses(host, port))

    def connect(self, connection: HTTPConnection, dial: Callable[[], None]) -> None:
        """Connect, unless the address is private; a proxy is the operator's choice, and not judged."""
        with self._lock:
            self._connection = connection
        if connection.proxy is not None or self._allow_private:
            dial()
        else:
            self._dial_judged(connection, dial)
        with self._lock:
            # A handle of our own: the connection lets go of its own while the answer is still being read.
            self._handle = socket.socket(fileno=os.dup(connection.sock.fileno()))
            if self.cut:
                self._handle.shutdown(socket.SHUT_RDWR)

    def _dial_judged(self, connection: HTTPConnection, dial: Callable[[], None]) -> None:
        """Look a name up, once, and dial the very addresses that were judged."""
        name = connection.host
        addresses = _addresses(name, connection.port)
        self._check(addresses)
        failure: HTTPError = NewConnectionError(connection, "it has no address")
        try:
            for address in addresses:
                connection.host = address
                try:
                    dial()
                except (NewConnectionError, ConnectTimeoutError) as error:
                    failure = error
                    if self.cut:  # a name may have many addresses, each with a time of its own
                        break
                else:
                    return
        finally:
            connection.host = name
        raise failure

    def _check(self, addresses: list[str]) -> None:
        if any(is_private(address) for address in addresses):
            self.refused = "it leads to a private address, which HTTP_ALLOW_PRIVATE does not allow"
            raise Trouble("rejected", self.refused)

    def _cut_off(self) -> None:
        with self._lock:
            self.cut = True
            met = self._handle or (self._connection and self._connection.sock)
            with suppress(OSError):  # gone already
                if met:
                    met.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Makes its connections under the guard's eyes."""

    def __init__(self, guard: _Guard) -> None:
        self._guard = guard
        super().__init__(max_retries=0, pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _guarded(self._guard)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Return the manager of connections through a proxy, made under the guard's eyes, too."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _guarded(self._guard)
        return manager


def _guarded(guard: _Guard) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def connect(self) -> None:
            guard.connect(self, super().connect)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            if self.proxy is None and self.server_hostname is None:
                self.server_hostname = self.host  # whose certificate it must be, whichever address is dialled
            guard.connect(self, super().connect)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _addresses(host: str, port: int | None) -> list[str]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # connecting says what is wrong
    return [str(entry[4][0]) for entry in found]


def _follow(url: str, location: str) -> str:
    target = urljoin(url, location)
    here, there = urlsplit(url), urlsplit(target)
    if there.scheme not in ("http", "https") or not there.hostname:
        raise Trouble("rejected", "it redirects to what is no web address")
    if here.scheme == "https" and there.scheme == "http":
        raise Trouble("rejected", "it redirects from https to http")
    return target


_PLAINLY: tuple[tuple[type[Exception], str], ...] = (
    (requests.exceptions.ProxyError, "the proxy (HTTPS_PROXY or HTTP_PROXY) is not there or does not let us through"),
    (requests.ConnectTimeout, "connecting took too long"),
    (requests.Timeout, "no answer in time"),
    (requests.exceptions.SSLError, "its certificate or encryption is not acceptable"),
    (requests.exceptions.ChunkedEncodingError, "the answer broke off"),
    (requests.exceptions.ContentDecodingError, "the answer could not be unpacked"),
    (requests.ConnectionError, "no connection, or it broke off"),
)


def _plainly(error: Exception) -> str:
    known = (words for kind, words in _PLAINLY if isinstance(error, kind))
    return next(known, f"no answer ({type(error).__name__})")
