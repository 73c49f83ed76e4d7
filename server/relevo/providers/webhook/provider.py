"""Webhooks as a push service: one signed POST per message, in the manner of Standard Webhooks.

A token is the name of an address that an operator wrote down (WEBHOOKS_FILE), never an address itself. The receiver
knows a repeat by `webhook-id`, which is the delivery's. For an address with two secrets each message is signed twice,
so that one takes over from the other; the file is read again when it has changed. Nothing is redirected, no proxy is
asked, the address that was looked up and checked is the one that is connected to, and what the answer says beyond its
status is not read.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import h11

from relevo.client.signatures import sign_webhook, webhook_secret
from relevo.core.addresses import is_private
from relevo.core.logs import normalise_error
from relevo.core.messages import Message
from relevo.core.model import NEWS, ReceiptReply, Reply, ReplyKind, Ticket
from relevo.core.retry_after import retry_after_ms
from relevo.core.sending_project import SendingProject
from relevo.core.version import __version__
from relevo.core.webhook_names import names_meant, prefix_of
from relevo.providers.http_connection import HttpConnection, RefusedAddressError, connect, place_of
from relevo.providers.lookups import Lookups

USER_AGENT = f"relevo/{__version__}"
MAX_BODY_BYTES = 64 * 1024
_NOT_SENT = ("to", "webhook-id")
_OK, _REDIRECT, _CLIENT_ERROR, _GONE, _THROTTLED, _SERVER_ERROR = 200, 300, 400, 410, 429, 500


_UNKNOWN = Ticket("failed", code="UnknownAddress", message="no webhook of this name is in WEBHOOKS_FILE", alert=True)
_NOT_ITS_PROJECT = Ticket(
    "failed", code="AddressOfAnotherProject", message="WEBHOOKS_FILE gives this webhook to another project", alert=True
)


@dataclass(frozen=True)
class WebhookAddress:
    """Where the messages of one name go, and what they are signed with."""

    url: str = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)
    """One; or two while one takes over from the other, and a receiver may know either."""
    project: str | None = None
    """The only project whose messages and news go there; None for all."""


class Webhook:
    """Signed POSTs as a PushProvider; callable from several threads at once."""

    max_messages = 1
    max_receipts = 0

    def __init__(
        self,
        addresses: Mapping[str, WebhookAddress] | Callable[[], Mapping[str, WebhookAddress]],
        *,
        name: str = "webhook",
        timeout_ms: int,
        connect_timeout_ms: int,
        allow_private: bool = False,
        ca_file: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._read = addresses if callable(addresses) else lambda: addresses
        self._total_s = timeout_ms / 1_000
        self._connect_s = min(connect_timeout_ms, timeout_ms) / 1_000
        self._allow_private = allow_private
        self._clock = clock
        self._tls = ssl.create_default_context()
        if ca_file is not None:
            self._tls.load_verify_locations(ca_file)
        self._lookups = Lookups()

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a message to a name that no operator wrote down."""
        if isinstance(token, str) and any(name in self._read() for name in names_meant(token)):
            return None
        return _UNKNOWN

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

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:
        """POST one message; what came of it is a value."""
        if len(messages) > self.max_messages:
            raise ValueError("one request holds one message")
        if not messages:
            return Reply("answered")
        [message] = messages
        of_project, to = _project_of(message, project), str(message.get("to"))
        addresses = self._read()
        address = addresses.get(to) or addresses.get(to.removeprefix(prefix_of(of_project)))
        if address is None:
            return Reply("answered", (_UNKNOWN,))
        if address.project not in (None, of_project):
            return Reply("answered", (_NOT_ITS_PROJECT,))
        return self._post(message, address)

    def _post(self, message: Message, address: WebhookAddress) -> Reply:
        end_by = time.monotonic() + self._total_s
        body, name = _body(message), _id(message)
        try:
            connection = self._connect(address.url, end_by)
        except RefusedAddressError as refused:
            return Reply("answered", (Ticket("failed", code="RefusedAddress", message=str(refused), alert=True),))
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            return Reply("not_sent", code="ConnectTimeout" if late else "NoConnection", message=type(error).__name__)
        try:
            parts = urlsplit(address.url)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = self._headers(name, body, address.secrets, parts.netloc)
            connection.send(path, headers, body, end_by=end_by)
            return _judge(*connection.read_head(end_by), name)
        except (OSError, ValueError, h11.LocalProtocolError) as error:
            late = isinstance(error, TimeoutError)
            kind: ReplyKind = "unclear" if connection.is_sent else "not_sent"
            return Reply(kind, code="ReadTimeout" if late else "ConnectionBroken", message=type(error).__name__)
        finally:
            connection.close()

    def _headers(self, name: str, body: bytes, secrets: Iterable[bytes], host: str) -> dict[str, str]:
        at = str(int(self._clock()))
        return {
            "Host": host,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": USER_AGENT,
            "webhook-id": name,
            "webhook-timestamp": at,
            "webhook-signature": " ".join(sign_webhook(secret, name, at, body) for secret in secrets),
        }

    def _connect(self, url: str, end_by: float) -> HttpConnection:
        """Connect; a receiver that is there may take the whole time of the request for TLS."""
        by, resolve = min(end_by, time.monotonic() + self._connect_s), partial(self._resolve, urlsplit(url).scheme)
        return connect(url, None, by, tls=self._tls, tls_until=end_by, resolve=resolve)

    def _resolve(self, scheme: str, host: str, port: int, patience_s: float) -> Sequence[str]:
        """Look a host up and check where it leads; just that is connected to."""
        found = self._lookups.addresses(host, port, patience_s)
        if refused := _refusal(found, scheme, allow_private=self._allow_private):
            raise RefusedAddressError(refused)
        return found[:1]

    def trouble(self, name: str) -> str:
        """Return why nothing could be sent to an address by its name; nothing if it can, or cannot be resolved."""
        address = self._read().get(name)
        if address is None:
            return f"no webhook {name} is in WEBHOOKS_FILE here"
        parts = urlsplit(address.url)
        try:
            self._resolve(parts.scheme, *place_of(parts), self._connect_s)
        except RefusedAddressError as refused:
            return f"the webhook {name} is refused: {refused}"
        except (OSError, ValueError):
            pass
        return ""

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:  # noqa: ARG002 the port's
        """Answer that there are none: what was accepted is delivered."""
        return ReceiptReply("answered")

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def _refusal(found: Sequence[str], scheme: str, *, allow_private: bool) -> str:
    """Return why nothing is sent to the address of a name, and what would change that; nothing if it may be sent."""
    private = [is_private(address) for address in found]
    if any(private) and not allow_private:
        return "it leads to a private address, which HTTP_ALLOW_PRIVATE=true would allow"
    if scheme != "https" and not all(private):
        return "it leads to the internet by http; write its url in WEBHOOKS_FILE with https"
    return "" if found else "its name leads nowhere; mend its url in WEBHOOKS_FILE"


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
    fields = given if isinstance(given, dict) else {}
    url = fields.get("url")
    if not 0 < len(name) <= 200:  # noqa: PLR2004 as long as a token may be
        raise ValueError("a name must have 1 to 200 characters")
    if not isinstance(url, str) or not _is_address(url):
        raise ValueError(f"{name[:50]} needs a url like https://host/path")
    if ("secret" in fields) == ("secrets" in fields):
        raise ValueError(f"{name[:50]} needs a secret, or while one takes over from another the two as secrets")
    secrets = fields.get("secrets", [fields.get("secret")])
    if not isinstance(secrets, list) or len(secrets) not in (1, 2):
        raise ValueError(f"{name[:50]} needs one secret, or a list of two as secrets")
    project = fields.get("project")
    if project is not None and not (isinstance(project, str) and 0 < len(project) <= 200):  # noqa: PLR2004 as elsewhere
        raise ValueError(f"{name[:50]} needs a project of 1 to 200 characters, or none for all projects")
    return WebhookAddress(url, [_secret(name, each) for each in secrets], project)


def _secret(name: str, secret: object) -> bytes:
    try:
        return webhook_secret(secret)
    except ValueError as error:
        raise ValueError(f"{name[:50]} needs a secret like {error}") from None


def _is_address(url: str) -> bool:
    """Return whether this can be posted to as it stands: in ASCII, without blanks, without a user."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    whole = re.fullmatch(r"[!-~]+", url) is not None and port != 0
    return whole and parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _body(message: Message) -> bytes:
    content = {key: value for key, value in message.items() if key not in _NOT_SENT}
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _project_of(message: Message, sending: str) -> str | None:
    """Return whose message this is: news say it themselves, for they have a road of their own."""
    parsed = SendingProject.parse(sending)
    if parsed.provider != NEWS:
        return parsed.name
    data = message.get("data")
    return data.get("project") if isinstance(data, Mapping) else None


def _id(message: Message) -> str:
    """Return what a receiver knows a repeat by: the same for every try of one delivery."""
    if "webhook-id" in message:
        return str(message["webhook-id"])
    data = message.get("data")
    delivery = data.get("notificationDeliveryId") if isinstance(data, Mapping) else None
    return f"msg_{delivery}" if delivery is not None else f"msg_{hashlib.sha256(_body(message)).hexdigest()[:32]}"


def _judge(status: int, headers: Mapping[str, str], name: str) -> Reply:
    """Return the meaning of an answer. The receiver knows repeats by their id, so a failed request is repeated."""
    code = f"HTTP_{status}"
    if _OK <= status < _REDIRECT:
        return Reply("answered", (Ticket("ok", id=name),))
    if status == _THROTTLED:
        return Reply("throttled", code=code, retry_after_ms=retry_after_ms(headers))
    if status == _GONE:
        return Reply(
            "answered", (Ticket("failed", code=code, message="the receiver wants no more of these", alert=True),)
        )
    if status < _CLIENT_ERROR:
        return Reply("answered", (Ticket("retryable", code=code, message="redirects are not followed"),))
    if status < _SERVER_ERROR:
        return Reply("answered", (Ticket("retryable", code=code, message="the receiver refused it"),))
    return Reply("unclear", code=code, retry_after_ms=retry_after_ms(headers))
