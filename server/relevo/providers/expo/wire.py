"""Posting to Expo: one kept connection per thread, bodies written and read; it knows no meanings."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from relevo.core.version import __version__
from relevo.providers.http_connection import HttpConnection, connect, is_success, proxy_headers, tls_http1

USER_AGENT = f"relevo/{__version__}"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SCANNED = 4_000
GZIP_ABOVE_BYTES = 1_024
MAX_IDLE_S = 45.0
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
Stage = Literal["writing", "connecting", "sent"]
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


class StatusError(OSError):
    """Expo answered with a status that is no success."""

    def __init__(self, response: ExpoResponse) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response


class ExpoResponse:
    """The answer, with the parts of requests' Response that the SDK uses."""

    __slots__ = ("body", "expected", "headers", "raw", "status_code")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, expected: type) -> None:
        self.status_code = status
        self.headers = headers
        self.body = body
        self.expected = expected
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
            raise StatusError(self)

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


class Session:
    """The SDK's session: it posts JSON and nothing else, without redirects, cookies or netrc."""

    def __init__(self, secret: str | None, proxy: str | None = None, ca_file: str | None = None) -> None:
        self._proxy = proxy
        self._ca_file = ca_file
        self._secret = secret.encode() if secret else b""
        self._kept: HttpConnection | None = None
        self._used_at = 0.0
        self._closed = False
        self._connect_s = self._end_by = 0.0
        self.answer: ExpoResponse | None = None
        self.stage: Stage = "writing"
        """How far the request got; `sent` if any byte may have left."""
        self._headers = {
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
        } | ({"Authorization": f"Bearer {secret}"} if secret else {})

    def begin(self, connect_s: float, total_s: float) -> None:
        """Start the clock of a request."""
        self._connect_s, self._end_by = connect_s, time.monotonic() + total_s
        self.stage = "writing"

    def close(self) -> None:
        """Close the connection that is kept; one in use is closed after its request."""
        self._closed = True
        self._give_up()

    def _give_up(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def post(self, url: str, data: Any = None, json: Any = None, **_: Any) -> ExpoResponse:
        """Post what is written already (messages), or what the SDK wants written (the ids of receipts)."""
        body = encode(json) if json is not None else data.encode() if isinstance(data, str) else data
        self.answer = None
        self.answer = answer = self._exchange(url, body, list if json is None else dict)
        return answer

    def _exchange(self, url: str, body: bytes, expected: type) -> ExpoResponse:
        target, headers = self._addressed(url)
        if len(body) > GZIP_ABOVE_BYTES:
            body = zlib.compress(body, level=1, wbits=31)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        self.stage = "connecting"
        connection = self._take() or self._connect(url)
        try:
            connection.send(target, headers, body, end_by=self._end_by)
            status, received, content = connection.read(self._end_by, MAX_ANSWER_BYTES)
        except BaseException:
            connection.close()
            raise
        finally:
            self.stage = "sent" if connection.is_sent else "connecting"
        self._keep(connection)
        content = content or b""
        if self._secret and self._secret in content:
            content = content.replace(self._secret, b"***")
        return ExpoResponse(status, received, content, expected)

    def _connect(self, url: str) -> HttpConnection:
        by = min(self._end_by, time.monotonic() + self._connect_s)
        return connect(url, self._proxy, by, tls=tls_http1(self._ca_file) if url.startswith("https:") else None)

    def _addressed(self, url: str) -> tuple[str, dict[str, str]]:
        """Return what is asked for, and the headers: a proxy that speaks http for us takes the whole address."""
        parts = urlsplit(url)
        headers = {"Host": parts.netloc, **self._headers}
        if self._proxy is None or parts.scheme == "https":
            return parts.path, headers
        return url, headers | proxy_headers(urlsplit(self._proxy))

    def _take(self) -> HttpConnection | None:
        """Return the kept connection if it can be used again."""
        if time.monotonic() - self._used_at > MAX_IDLE_S:
            self._give_up()  # servers tire of idle connections, and closing one may cross our request
        kept, self._kept = self._kept, None
        if kept is None or kept.is_quiet():
            return kept
        kept.close()
        return None

    def _keep(self, connection: HttpConnection) -> None:
        self._kept, self._used_at = connection, time.monotonic()
        if self._closed or not connection.is_reusable:
            self._give_up()
