"""Expo's push service: one request per call, and every answer a value. The only file that knows Expo's SDK."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import threading
import time
import uuid
import weakref
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from exponent_server_sdk import PushClient, PushServerError
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from relevo import __version__
from relevo.logs import scrub
from relevo.model import Fate, Message, ReceiptReply, Reply, ReplyKind, Ticket

USER_AGENT = f"relevo/{__version__}"
API = "/--/api/v2"
MAX_PAYLOAD_BYTES = 4_096
MAX_ANSWER_BYTES = 4 * 1024 * 1024
GZIP_ABOVE_BYTES = 1_024
MAX_RETRY_AFTER_S = 3_600
MAX_IDLE_S = 45.0
MAX_ID, MAX_CODE, MAX_MESSAGE = 200, 100, 500
NO_TICKET = "no-ticket-"
"""How the ids begin that stand for a ticket Expo gave no id."""

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOKEN = re.compile(rf"Expo(?:nent)?PushToken\[[^\]\[\s\x00-\x1f\x7f]{{1,150}}\]|(?i:{_UUID})")
_UUID_IN_TEXT = re.compile(rf"(?<![0-9a-f])(?={_UUID}(?![0-9a-f]))([0-9a-f]{{4}})[0-9a-f-]{{32}}", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_MAX_SCANNED = 4_000

_FATES: Mapping[str, tuple[Fate, bool]] = {
    "DeviceNotRegistered": ("invalid", False),
    "MessageTooBig": ("failed", False),
    "MessageRateExceeded": ("retryable", False),
    "MismatchSenderId": ("credential", True),
    "InvalidCredentials": ("credential", True),
    "InvalidProviderToken": ("credential", True),
    "ExpoError": ("retryable", False),
    "DeveloperError": ("failed", True),
}
_BY_STATUS: Mapping[int, ReplyKind] = {
    401: "unauthorised",
    403: "unauthorised",
    413: "too_many",
    429: "throttled",
}
_BY_CODE: Mapping[str, ReplyKind] = {
    "UNAUTHORIZED": "unauthorised",
    "TOO_MANY_REQUESTS": "throttled",
    "PUSH_TOO_MANY_NOTIFICATIONS": "too_many",
    "PUSH_TOO_MANY_RECEIPTS": "too_many",
    "PUSH_TOO_MANY_EXPERIENCE_IDS": "mixed_projects",
}

_TROUBLE = (PushServerError, HTTPError, OSError, TypeError, ValueError, RecursionError)
_OK = Ticket("ok")
_MALFORMED_TOKEN = Ticket("invalid", code="MalformedToken", message="this is none of Expo's three kinds of push token")
_MALFORMED = Ticket("failed", code="MalformedMessage", message="the message cannot be written as JSON")


class Expo:
    """Expo as a PushProvider; each calling thread has a session, and so a connection, of its own."""

    name = "expo"

    def __init__(
        self,
        *,
        base_url: str,
        access_token: str | None,
        timeout_ms: int,
        connect_timeout_ms: int,
        max_messages: int = 100,
        max_receipts: int = 300,
    ) -> None:
        self.max_messages = max_messages
        self.max_receipts = max_receipts
        self._host, self._api = _address(base_url)
        self._secret = _secret(access_token)
        self._total_s = timeout_ms / 1_000
        self._connect_s = min(connect_timeout_ms, timeout_ms) / 1_000
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[_Session] = weakref.WeakSet()

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a push to a malformed token."""
        return None if isinstance(token, str) and _TOKEN.fullmatch(token) else _MALFORMED_TOKEN

    def refuse(self, message: Message) -> Ticket | None:
        """Return the final ticket of a message with a malformed token, or of more bytes than Expo takes."""
        refused = self.refuse_token(message.get("to"))
        if refused is not None or _at_most(message) <= MAX_PAYLOAD_BYTES:
            return refused
        return _weighed(message)

    def send(self, messages: Sequence[Message]) -> Reply:
        """Send one request, on a connection that the calling thread keeps alive for its next one."""
        if len(messages) > self.max_messages:
            raise ValueError(f"one request holds at most {self.max_messages} messages, got {len(messages)}")
        if not messages:
            return Reply("answered")
        client = self._client()
        _exchange.begin(self._connect_s, self._total_s)
        try:
            said = client.publish_multiple([_Parcel(message) for message in messages])
        except _TROUBLE as trouble:
            return _reply(trouble, messages)
        raw = client.session.answer.raw
        return Reply("answered", tuple([classify(one, entry) for one, entry in zip(said, raw, strict=True)]))

    def fetch_receipts(self, ticket_ids: Sequence[str]) -> ReceiptReply:
        """Ask for receipts in one request; a receipt that says neither ok nor error is none yet."""
        if len(ticket_ids) > self.max_receipts:
            raise ValueError(f"one request asks for at most {self.max_receipts} receipts, got {len(ticket_ids)}")
        asked = {each: _Wanted(each) for each in ticket_ids if not each.startswith(NO_TICKET)}
        if not asked:
            return ReceiptReply("answered")
        client = self._client()
        _exchange.begin(self._connect_s, self._total_s)
        try:
            said = client.check_receipts_multiple(list(asked.values()))
        except _TROUBLE as trouble:
            reply = _reply(trouble, ())
            return ReceiptReply(reply.kind, code=reply.code, message=reply.message, retry_after_ms=reply.retry_after_ms)
        raw = client.session.answer.raw
        definite = (one for one in said if one.id in asked and one.status in ("ok", "error"))
        return ReceiptReply("answered", {one.id: classify(one, raw[one.id], receipt=True) for one in definite})

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        with self._lock:
            for session in self._sessions:
                session.close()

    def _client(self) -> Any:
        """Return the calling thread's SDK client; it goes when its thread does."""
        try:
            return self._mine.client
        except AttributeError:
            session = _Session(self._secret)
            with self._lock:
                self._sessions.add(session)
            self._mine.client = PushClient(
                host=self._host,
                api_url=self._api,
                session=session,
                max_message_count=self.max_messages,
                max_receipt_count=self.max_receipts,
                timeout=(self._connect_s, self._total_s),
            )
            return self._mine.client


def classify(said: Any, raw: object, *, receipt: bool = False) -> Ticket:
    """Say what the SDK's ticket or receipt means; `raw` is the answer it was made from."""
    if said.status == "ok":
        return _OK if receipt else _accepted(said.id, raw)
    details = said.details if isinstance(said.details, dict) else {}
    code = _code(details)
    if code and code in _FATES:
        fate, alert = _FATES[code]
        return Ticket(fate, code=code, message=_clean(said.message), alert=alert)
    # Only what says that it is an error is one; of anything else nobody knows whether it was accepted.
    definite = receipt or (isinstance(raw, dict) and raw.get("status") == "error")
    return Ticket(
        "retryable" if definite else "unclear", code=_clean(code, MAX_CODE) or "Unknown", message=_clean(_as_text(raw))
    )


def _accepted(ticket_id: object, raw: object) -> Ticket:
    if type(ticket_id) is str and 0 < len(ticket_id) <= MAX_ID and ticket_id.isascii() and ticket_id.isprintable():
        return Ticket("sent", id=ticket_id)
    # Expo has taken it, so sending again would surely be seen twice, and no receipt will ever tell more. An id of our
    # own, which is never asked for, lets it end as what it is: unconfirmed.
    stand_in = f"{NO_TICKET}{uuid.uuid4()}"
    return Ticket("sent", id=stand_in, code="TicketWithoutId", message=_clean(_as_text(raw)), alert=True)


def _code(details: Mapping[str, Any]) -> str | None:
    """Return the error's code, or the one inside where Expo passes on what FCM or APNs said."""
    outer = details.get("error")
    if isinstance(outer, str) and outer in _FATES:
        return outer
    inner = (details.get(place) for place in (details.get("fault"), "fcm", "apns") if isinstance(place, str))
    codes = (each.get(key) for each in inner if isinstance(each, dict) for key in ("error", "reason"))
    # A token is only ever given up on Expo's own word.
    known = (each for each in codes if isinstance(each, str) and each in _FATES and _FATES[each][0] != "invalid")
    return next(known, outer if isinstance(outer, str) else None)


def _reply(trouble: Exception, messages: Sequence[Message]) -> Reply:
    """Say what a failed request means, by the answer's status and code; without an answer by how far it got."""
    answer = getattr(trouble, "response", None)
    if isinstance(answer, _Answer):
        return _judge(answer, trouble, messages)
    cause = _root(trouble)
    late = isinstance(cause, TimeoutError)
    match _exchange.stage:
        case "writing":
            return Reply("rejected", code=_MALFORMED.code, message=_MALFORMED.message)
        case "connecting":
            words = "connecting took too long" if late else f"no connection ({type(cause).__name__})"
            return Reply("not_sent", code="ConnectTimeout" if late else "NoConnection", message=words)
    if late:
        return Reply("unclear", code="ReadTimeout", message="no whole answer in time")
    # A kept connection that the server closes just as we use it looks the same.
    return Reply("unclear", code="ConnectionBroken", message=f"the answer broke off ({type(cause).__name__})")


def _judge(answer: _Answer, trouble: Exception, messages: Sequence[Message]) -> Reply:
    error = _first_error(getattr(trouble, "errors", None))
    code = _clean(error.get("code"), MAX_CODE)
    kind = _kind(answer.status_code, code)
    projects: Mapping[str, str] = {}
    if kind == "mixed_projects":
        projects = _projects(error.get("details"), messages)
        kind = "mixed_projects" if projects else "rejected"
    words = _clean(error.get("message")) or _clean(answer.excerpt())
    if _is_success(answer.status_code) and answer.raw is not None:
        code, words = "MismatchedTickets", _clean(str(trouble))
    return Reply(
        kind,
        code=code or answer.own_code(),
        message=words,
        retry_after_ms=_retry_after_ms(answer.headers),
        projects=projects,
    )


def _kind(status: int, code: str | None) -> ReplyKind:
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return "unclear"
    # Redirects are not followed. What redirects is not Expo's API but something in front of it, so nothing was
    # accepted; and "rejected" would blame, and end, every message for a wrong address.
    if http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST:
        return "not_sent"
    known = _BY_STATUS.get(status) or _BY_CODE.get(code or "")
    if known or status < http.client.BAD_REQUEST:
        return known or "unclear"
    # One without a word of the API comes from something in front of it, likewise.
    return "rejected" if code else "not_sent"


def _first_error(errors: object) -> Mapping[str, Any]:
    """Return the error that tells most: the first with a code we know, else the first."""
    found = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    known = (each for each in found if isinstance(each.get("code"), str) and each["code"] in _BY_CODE)
    return next(known, found[0] if found else {})


def _projects(details: object, messages: Sequence[Message]) -> Mapping[str, str]:
    """Return the project of each token we sent, or nothing if that would not split them."""
    if not isinstance(details, dict):
        return {}
    sent = {str(message.get("to")) for message in messages}
    lists = ((_fit(project, MAX_ID), tokens) for project, tokens in details.items() if isinstance(tokens, list))
    projects = {str(token): project for project, tokens in lists if project for token in tokens}
    projects = {token: project for token, project in projects.items() if token in sent}
    return projects if len({projects.get(token) for token in sent}) > 1 else {}


def _retry_after_ms(headers: Mapping[str, str]) -> int:
    said = (headers.get("retry-after") or "").strip()[:40]
    if _SECONDS.fullmatch(said):
        wait = float(said)
    elif then := _date(said):
        now = _date(headers.get("date") or "") or datetime.now(UTC)
        wait = (then - now).total_seconds()
    else:
        return 0
    return round(min(max(wait, 0), MAX_RETRY_AFTER_S) * 1_000)


def _date(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _clean(text: object, limit: int = MAX_MESSAGE) -> str | None:
    """Return text that may be stored and logged: short, without secrets and whole push tokens."""
    if not isinstance(text, str):
        return None
    return _fit(_UUID_IN_TEXT.sub(r"\1…", scrub(text[:_MAX_SCANNED])), limit) or None


def _fit(text: str, limit: int) -> str:
    """Return text that PostgreSQL takes: no NULs, no halves of characters, and not too long."""
    text = _CONTROL.sub(" ", text[:_MAX_SCANNED].encode("utf-8", "replace").decode()).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _as_text(raw: object) -> str:
    try:
        return json.dumps(raw, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _root(error: BaseException) -> BaseException:
    """Return what an error began with: the libraries wrap it several times, each in its own way."""
    wrapped = (error.__cause__, getattr(error, "reason", None), *error.args)
    inner = next((each for each in wrapped if isinstance(each, BaseException)), None)
    return _root(inner) if inner else error


_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_UNKNOWN = 1 << 40
_WORST_CHARACTER = 6  # \u0000
_WORST_ENTRY = 24  # a number's 20 digits or a text's quotes, and what is around key and value
_SMALL_INT = 1 << 62


def _at_most(value: Mapping[str, Any], depth: int = 2) -> int:
    """Return a size in bytes that the value's JSON surely does not exceed; cheaper than writing it."""
    try:
        letters = len("".join(value))
    except TypeError:
        return _UNKNOWN
    size = 2 + _WORST_ENTRY * len(value)
    for inner in value.values():
        kind = type(inner)
        if kind is str:
            letters += len(inner)
        elif kind is dict and depth:
            size += _at_most(inner, depth - 1)
        elif not (inner is None or kind is bool or (kind is int and -_SMALL_INT < inner < _SMALL_INT)):
            return _UNKNOWN
    return size + _WORST_CHARACTER * letters


def _weighed(message: Message) -> Ticket | None:
    try:
        size = len(_ENCODE({key: value for key, value in message.items() if key != "to"}).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return _MALFORMED
    if size <= MAX_PAYLOAD_BYTES:
        return None
    return Ticket("failed", code="MessageTooBig", message=f"{size} bytes, and Expo takes {MAX_PAYLOAD_BYTES}")


def _address(base_url: str) -> tuple[str, str]:
    """Split the address as the SDK needs it: joining paths, it would drop one that belongs to the host."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("the push service's address must be http(s)://host[:port][/path], without a user in it")
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/") + API


def _secret(access_token: str | None) -> str | None:
    token = (access_token or "").strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the push service's access token must be one word of ASCII")
    return token or None


class _Parcel:
    """A message as the SDK takes it; it counts the answers by `to`, and a string counts as one."""

    __slots__ = ("_message",)
    to = ""

    def __init__(self, message: Message) -> None:
        self._message = message

    def get_payload(self) -> dict[str, Any]:
        """Return the message just as it is: the SDK's own class does not know all fields, nor all tokens."""
        return self._message if type(self._message) is dict else dict(self._message)


class _Wanted:
    """A ticket as the SDK takes it when it asks for receipts."""

    __slots__ = ("id",)

    def __init__(self, ticket_id: str) -> None:
        self.id = ticket_id


class _Exchange(threading.local):
    """The calling thread's request: until when it may last, and how far it got; `sent` if any byte may have left."""

    connect_s = 0.0
    end_by = 0.0
    stage: Literal["writing", "connecting", "sent"] = "writing"

    def begin(self, connect_s: float, total_s: float) -> None:
        """Start the clock."""
        self.connect_s = connect_s
        self.end_by = time.monotonic() + total_s
        self.stage = "writing"


_exchange = _Exchange()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


class _TimedReader(io.RawIOBase):
    """Reads from a socket until the exchange's time is over, however the bytes drip."""

    def __init__(self, sock: socket.socket, raw: Any) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(_left(_exchange.end_by))
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(_TimedReader(sock, self.fp.detach()))


class _Plain(HTTPConnection):
    """Does all it does within the exchange's time, and notes when the request begins to leave."""

    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        until = min(_exchange.end_by, time.monotonic() + _exchange.connect_s)
        found = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
        trouble: OSError = TimeoutError("the time is over")
        for tried, (family, kind, protocol, _, address) in enumerate(found):
            dialled = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    dialled.setsockopt(*option)
                # A share for each address: one that swallows everything must not hide the next.
                dialled.settimeout(_left(until) / (len(found) - tried))
                dialled.connect(address)
                dialled.settimeout(_left(until))  # what is left is for TLS
            except OSError as error:
                dialled.close()
                trouble = error
            else:
                return dialled
        raise trouble

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Write head and body at once: one packet, and one system call, where urllib3 makes two."""
        self._pieces: list[bytes] = []
        super().request(*args, **kwargs)
        if self.sock is None:
            self.connect()
        left = memoryview(b"".join(self._pieces))
        while left:
            # Not sendall: over TLS its time would begin anew with every piece.
            self.sock.settimeout(_left(_exchange.end_by))
            _exchange.stage = "sent"
            left = left[self.sock.send(left) :]

    def send(self, data: Any) -> None:
        """Gather what is to be written."""
        self._pieces.append(data)


class _Secure(_Plain, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def __init__(self) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._pool: Any = None

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the one pool there is; finding out which costs as much as using it."""
        pool = self._pool
        if pool is None:
            pool = self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return pool

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        super().close()

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:  # noqa: ARG002 requests' signature
        """Return the light answer that the SDK needs, its body read whole."""
        return _Answer(resp.status, resp.headers, _read(resp))


def _read(response: Any) -> bytes:
    try:
        body: bytes = response.read(MAX_ANSWER_BYTES + 1, decode_content=True)
    except (HTTPError, OSError):
        response.close()
        if _is_success(response.status):
            raise
        return b""  # the status says enough
    if len(body) > MAX_ANSWER_BYTES:
        response.close()
        return b""
    return body


def _is_success(status: int) -> bool:
    return http.client.OK <= status < http.client.MULTIPLE_CHOICES


class _Answer:
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
        try:
            document = json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None
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
        if not _is_success(self.status_code):
            raise requests.HTTPError(f"HTTP {self.status_code}", response=self)  # type: ignore[arg-type]

    def excerpt(self) -> str:
        """Return how the body begins."""
        return self.body[:_MAX_SCANNED].decode("utf-8", "replace")

    def own_code(self) -> str:
        """Return a code for an answer that has none."""
        return "UnreadableAnswer" if _is_success(self.status_code) else f"HTTP_{self.status_code}"


def _walkable(data: Any) -> Any:
    """One odd entry must not cost the others: an odd ticket says nothing, an odd receipt is none yet."""
    if isinstance(data, dict):
        return {key: each for key, each in data.items() if isinstance(each, dict)}
    return [each if isinstance(each, dict) else {} for each in data]


class _Session(requests.Session):
    """Posts JSON and nothing else: no redirects, cookies, proxies or netrc; one connection, kept alive."""

    def __init__(self, secret: str | None) -> None:
        super().__init__()
        self.trust_env = False
        self.answer: _Answer | None = None
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

    def post(self, url: Any, data: Any = None, json: Any = None, **kwargs: Any) -> Any:
        """Post what the SDK wrote (messages), or what it wants written (the ids of receipts)."""
        body = (data if json is None else _ENCODE(json)).encode()
        headers = self._plain
        if len(body) > GZIP_ABOVE_BYTES:
            body, headers = zlib.compress(body, level=1, wbits=31), self._packed
        self.answer = None
        answer = self._trade(url, body, headers, kwargs["timeout"])
        answer.expected = list if json is None else dict
        self.answer = answer
        return answer

    def _trade(self, url: str, body: bytes, headers: Mapping[str, str], timeout: tuple[float, float]) -> _Answer:
        if time.monotonic() - self._used_at > MAX_IDLE_S:
            self._adapter.close()  # servers tire of idle connections, and closing one may cross our request
        _exchange.stage = "connecting"
        request = requests.PreparedRequest()
        request.method, request.url, request.body = "POST", url, body
        request.headers = {**headers, "Content-Length": str(len(body))}  # type: ignore[assignment]
        answer: Any = self._adapter.send(request, stream=True, timeout=timeout)
        self._used_at = time.monotonic()
        if self._secret and self._secret in answer.body:
            answer.body = answer.body.replace(self._secret, b"***")
        return answer  # type: ignore[no-any-return]
