"""Webhooks as a push service: one signed POST per message, in the manner of Standard Webhooks.

A token is the name of an address that an operator wrote down (WEBHOOKS_FILE), never an address itself. The receiver
knows a repeat by `webhook-id`, which is the delivery's. Nothing is redirected, no proxy is asked, the address that was
looked up and checked is the one that is connected to, and what the answer says beyond its status is not read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import io
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from relevo import __version__
from relevo.addresses import is_loopback, is_private
from relevo.logs import normalise_error
from relevo.model import Message, ReceiptReply, Reply, Ticket
from relevo.providers.lookups import Lookups
from relevo.providers.timed import TimedReader, left
from relevo.retry_after import retry_after_ms

USER_AGENT = f"relevo/{__version__}"
MAX_BODY_BYTES = 64 * 1024
MAX_RETRY_AFTER_S = 3_600
_OK, _REDIRECT, _CLIENT_ERROR, _GONE, _THROTTLED, _SERVER_ERROR = 200, 300, 400, 410, 429, 500


@dataclass(frozen=True)
class WebhookAddress:
    """Where the messages of one name go, and what they are signed with."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)


class Webhook:
    """Signed POSTs as a PushProvider; callable from several threads at once."""

    name = "webhook"
    max_messages = 1
    max_receipts = 0

    def __init__(
        self,
        addresses: Mapping[str, WebhookAddress],
        *,
        timeout_ms: int,
        connect_timeout_ms: int,
        allow_loopback: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._addresses = dict(addresses)
        self._total_s = timeout_ms / 1_000
        self._connect_s = min(connect_timeout_ms, timeout_ms) / 1_000
        self._allow_loopback = allow_loopback
        self._clock = clock
        self._tls = ssl.create_default_context()
        self._lookups = Lookups()

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a message to a name that no operator wrote down."""
        if isinstance(token, str) and token in self._addresses:
            return None
        return Ticket(
            "failed", code="UnknownAddress", message="no webhook of this name is in WEBHOOKS_FILE", alert=True
        )

    def refuse(self, message: Message) -> Ticket | None:
        """Return the final ticket of a message to an unknown name, that is no JSON, or is too big."""
        refused = self.refuse_token(message.get("to"))
        if refused is not None:
            return refused
        try:
            size = len(_body(message))
        except (TypeError, ValueError, RecursionError):
            return Ticket("failed", code="MalformedMessage", message="the message cannot be written as JSON")
        if size > MAX_BODY_BYTES:
            return Ticket("failed", code="MessageTooBig", message=f"{size} bytes, and a webhook takes {MAX_BODY_BYTES}")
        return None

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:  # noqa: ARG002 the port's signature
        """POST one message; what came of it is a value."""
        if len(messages) > self.max_messages:
            raise ValueError("one request holds one message")
        if not messages:
            return Reply("answered")
        [message] = messages
        address = self._addresses.get(str(message.get("to")))
        if address is None:
            refused = self.refuse_token(message.get("to"))
            return Reply("answered", (refused,) if refused else ())
        return self._post(message, address)

    def _post(self, message: Message, address: WebhookAddress) -> Reply:
        end_by = time.monotonic() + self._total_s
        body, name = _body(message), _id(message)
        try:
            connection = self._connect(address.url, end_by)
        except _Refused as refused:
            return Reply("answered", (Ticket("failed", code="RefusedAddress", message=str(refused), alert=True),))
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            return Reply("not_sent", code="ConnectTimeout" if late else "NoConnection", message=type(error).__name__)
        try:
            parts = urlsplit(address.url)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, self._headers(name, body, address.secret, parts.netloc))
            answer = connection.getresponse()  # its status is all we need
            return _judge(answer.status, {key.lower(): value for key, value in answer.headers.items()}, name)
        except (OSError, http.client.HTTPException) as error:
            late = isinstance(error, TimeoutError)
            return Reply("unclear", code="ReadTimeout" if late else "ConnectionBroken", message=type(error).__name__)
        finally:
            connection.close()

    def _headers(self, name: str, body: bytes, secret: bytes, host: str) -> dict[str, str]:
        at = str(int(self._clock()))
        return {
            "Host": host,
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "webhook-id": name,
            "webhook-timestamp": at,
            "webhook-signature": sign(secret, name, at, body),
        }

    def _connect(self, url: str, end_by: float) -> http.client.HTTPConnection:
        """Look the host up, check where it leads, and connect to just that."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = self._lookups.addresses(host, port, min(self._connect_s, left(end_by)))
        pinned = next((each for each in found if self._may_lead(each, parts.scheme)), None)
        if pinned is None or any(not self._may_lead(each, parts.scheme) for each in found):
            raise _Refused("it leads to an address that is not of the public internet")
        dialled = socket.create_connection((pinned, port), timeout=min(self._connect_s, left(end_by)))
        connection = _Connection(host, port, end_by)
        try:
            dialled.settimeout(left(end_by))
            connection.sock = (
                self._tls.wrap_socket(dialled, server_hostname=host) if parts.scheme == "https" else dialled
            )
        except BaseException:
            dialled.close()
            raise
        return connection

    def _may_lead(self, address: str, scheme: str) -> bool:
        if self._allow_loopback and is_loopback(address):
            return True
        return scheme == "https" and not is_private(address)

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:  # noqa: ARG002 the port's
        """Answer that there are none: what was accepted is delivered."""
        return ReceiptReply("answered")

    def close(self) -> None:
        """Do nothing: no connection is kept."""


class _Connection(http.client.HTTPConnection):
    """A connection whose answer comes within the request's time, or not at all."""

    def __init__(self, host: str, port: int, end_by: float) -> None:
        super().__init__(host, port)
        self._end_by = end_by

    def response_class(self, sock: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:  # type: ignore[override]
        """Make the answer that is read in time."""
        response = http.client.HTTPResponse(sock, *args, **kwargs)
        response.fp = io.BufferedReader(TimedReader(sock, response.fp.detach(), lambda: self._end_by))
        return response


class _Refused(Exception):  # noqa: N818 a state of affairs
    """An address must not be connected to."""


def sign(secret: bytes, name: str, at: str, body: bytes) -> str:
    """Return the signature of a message: HMAC-SHA256 over id, time and body."""
    digest = hmac.new(secret, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def read_addresses(text: str) -> dict[str, WebhookAddress]:
    """Read WEBHOOKS_FILE: {"name": {"url": "https://…", "secret": "whsec_…"}}; raises ValueError in a sentence."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({normalise_error(error, 100)})") from None
    if not isinstance(document, dict):
        raise ValueError("it must be an object of names")  # noqa: TRY004 the caller's complaint
    return {str(name): _address(str(name), given) for name, given in document.items()}


def _address(name: str, given: object) -> WebhookAddress:
    url = given.get("url") if isinstance(given, dict) else None
    secret = given.get("secret") if isinstance(given, dict) else None
    if not 0 < len(name) <= 200:  # noqa: PLR2004 as long as a token may be
        raise ValueError("a name must have 1 to 200 characters")
    if not isinstance(url, str) or not _is_address(url):
        raise ValueError(f"{name[:50]} needs a url like https://host/path")
    if not isinstance(secret, str) or not secret.startswith("whsec_"):
        raise ValueError(f"{name[:50]} needs a secret like whsec_…, base64 of 24 to 64 bytes")
    try:
        raw = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        raw = b""
    if not 24 <= len(raw) <= 64:  # noqa: PLR2004 as Standard Webhooks ask for
        raise ValueError(f"{name[:50]} needs a secret like whsec_…, base64 of 24 to 64 bytes")
    return WebhookAddress(url, raw)


def _is_address(url: str) -> bool:
    """Tell whether this can be posted to as it stands: in ASCII, without blanks, without a user."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    whole = re.fullmatch(r"[!-~]+", url) is not None and port != 0
    return whole and parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _body(message: Message) -> bytes:
    content = {key: value for key, value in message.items() if key != "to"}
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _id(message: Message) -> str:
    """Return what a receiver knows a repeat by: the same for every try of one delivery."""
    data = message.get("data")
    delivery = data.get("notificationDeliveryId") if isinstance(data, Mapping) else None
    return f"msg_{delivery}" if delivery is not None else f"msg_{hashlib.sha256(_body(message)).hexdigest()[:32]}"


def _judge(status: int, headers: Mapping[str, str], name: str) -> Reply:
    """Say what an answer means: the receiver knows repeats by their id, so what failed is simply tried again."""
    code = f"HTTP_{status}"
    if _OK <= status < _REDIRECT:
        return Reply("answered", (Ticket("ok", id=name),))
    if status == _THROTTLED:
        return Reply("throttled", code=code, retry_after_ms=retry_after_ms(headers, most_s=MAX_RETRY_AFTER_S))
    if status == _GONE:
        return Reply(
            "answered", (Ticket("failed", code=code, message="the receiver wants no more of these", alert=True),)
        )
    if status < _CLIENT_ERROR:
        return Reply("answered", (Ticket("retryable", code=code, message="redirects are not followed"),))
    if status < _SERVER_ERROR:
        return Reply("answered", (Ticket("retryable", code=code, message="the receiver refused it"),))
    return Reply("unclear", code=code, retry_after_ms=retry_after_ms(headers, most_s=MAX_RETRY_AFTER_S))
