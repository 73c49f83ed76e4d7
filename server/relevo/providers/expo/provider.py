"""Expo's push service: one request per call, and what its answers mean. The only file that knows Expo's SDK."""

from __future__ import annotations

import http.client
import json
import re
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from exponent_server_sdk import PushClient, PushServerError, PushTicket

from relevo.core.logs import scrub
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Accepted, Delivery, Fate, ReceiptReply, Reply, ReplyKind, Ticket
from relevo.core.proxies import Proxies
from relevo.core.retry_after import retry_after_ms
from relevo.providers.expo import message as expo_message
from relevo.providers.expo.facts import SERVICE
from relevo.providers.expo.wire import ENCODE, MAX_SCANNED, ExpoResponse, Session, Stage, encode
from relevo.providers.http_connection import ProxyRefusedError, is_success

API = "/--/api/v2"
MAX_ID, MAX_CODE, MAX_MESSAGE = 200, 100, 500
EVERY_OTHER = "*"
"""The name under which a file of access tokens has the one of every project that it does not name."""
NO_TICKET = "no-ticket-"
"""How the ids begin that stand for a ticket Expo gave no id."""

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOKEN = re.compile(rf"Expo(?:nent)?PushToken\[[^\]\[\s\x00-\x1f\x7f]{{1,150}}\]|(?i:{_UUID})")
_UUID_IN_TEXT = re.compile(rf"(?<![0-9a-f])(?={_UUID}(?![0-9a-f]))([0-9a-f]{{4}})[0-9a-f-]{{32}}", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

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

_TROUBLE = (PushServerError, OSError, TypeError, ValueError, RecursionError)
_OK = Ticket("ok")
_MALFORMED_TOKEN = Ticket("invalid", code="MalformedToken", message="this is none of Expo's three kinds of push token")
_MALFORMED = Ticket("failed", code="MalformedMessage", message="the message cannot be written as JSON")


class Expo:
    """Expo as a PushProvider; each calling thread has a session, and so a connection, of its own."""

    name = SERVICE.name

    def __init__(
        self,
        *,
        base_url: str,
        access_token: str | None,
        access_tokens: Callable[[], Mapping[str, str]] = dict,
        timeout_ms: int,
        connect_timeout_ms: int,
        max_messages: int = 100,
        max_receipts: int = 300,
        proxies: Proxies = Proxies(),  # noqa: B008 frozen
        ca_file: str | None = None,
    ) -> None:
        self._ca_file = ca_file
        self.max_messages = max_messages
        self.max_receipts = max_receipts
        self._host, self._api = _address(base_url)
        self._secret = _secret(access_token)
        self._proxy = proxies.for_url(base_url)
        self._access_tokens = access_tokens
        self._total_s = timeout_ms / 1_000
        self._connect_s = min(connect_timeout_ms, timeout_ms) / 1_000
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a push to a malformed token."""
        return None if isinstance(token, str) and _TOKEN.fullmatch(token) else _MALFORMED_TOKEN

    def refuses_any(self, tokens: Sequence[Any]) -> bool:
        """Return whether one of these tokens is malformed."""
        try:
            return not all(map(_TOKEN.fullmatch, tokens))
        except TypeError:
            return True

    def refuse(self, message: Message) -> Ticket | None:
        """Return the final ticket of a message with a malformed token, or of more bytes than Expo takes."""
        return self.refuse_token(message.get("to")) or _weighed(message)

    def writer(self, draft: Draft, platform: str | None) -> Callable[[Delivery], WrittenMessage] | None:  # noqa: ARG002
        """Return what writes the messages of one event; they are alike for all platforms but for their draft."""
        return expo_message.writer(draft, self.name)

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:
        """Send one request of a project, on a connection that the calling thread keeps alive for its next one."""
        if len(messages) > self.max_messages:
            raise ValueError(f"one request holds at most {self.max_messages} messages, got {len(messages)}")
        if not messages:
            return Reply("answered")
        client = self._client(project)
        client.session.begin(self._connect_s, self._total_s)
        try:
            raw = publish(client, messages)
        except _TROUBLE as trouble:
            return _reply(trouble, messages, client.session.stage)
        return Reply("answered", _accepted_all(raw) or tuple([_ticket(entry) for entry in raw]))

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:
        """Ask for receipts in one request; a receipt that says neither ok nor error is none yet."""
        if len(ticket_ids) > self.max_receipts:
            raise ValueError(f"one request asks for at most {self.max_receipts} receipts, got {len(ticket_ids)}")
        asked = {each: SimpleNamespace(id=each) for each in ticket_ids if not each.startswith(NO_TICKET)}
        if not asked:
            return ReceiptReply("answered")
        client = self._client(project)
        client.session.begin(self._connect_s, self._total_s)
        try:
            said = client.check_receipts_multiple(list(asked.values()))
        except _TROUBLE as trouble:
            reply = _reply(trouble, (), client.session.stage)
            return ReceiptReply(reply.kind, code=reply.code, message=reply.message, retry_after_ms=reply.retry_after_ms)
        raw = client.session.answer.raw
        definite = (one for one in said if one.id in asked and one.status in ("ok", "error"))
        return ReceiptReply("answered", {one.id: classify(one, raw[one.id], receipt=True) for one in definite})

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        with self._lock:
            for session in self._sessions:
                session.close()

    def _client(self, project: str = "") -> Any:
        """Return the calling thread's SDK client with a project's access token; it goes when its thread does."""
        secret = self._secret_of(project)
        clients: dict[str | None, Any] = self._mine.__dict__.setdefault("clients", {})
        if secret not in clients:
            session = Session(secret, self._proxy, self._ca_file)
            with self._lock:
                self._sessions.add(session)
            clients[secret] = PushClient(
                host=self._host,
                api_url=self._api,
                session=session,
                max_message_count=self.max_messages,
                max_receipt_count=self.max_receipts,
                timeout=(self._connect_s, self._total_s),
            )
        return clients[secret]

    def _secret_of(self, project: str) -> str | None:
        """Return a project's access token as it is now: its own, that of all others, or the one setting's."""
        tokens = self._access_tokens()
        token = tokens.get(project) or tokens.get(EVERY_OTHER)
        return _secret(token) if token else self._secret


def publish(client: Any, messages: Sequence[Message]) -> Sequence[object]:
    """Post messages through the SDK's client, without an object of its for each, and return the tickets as they came.

    It raises what the SDK's own publish_multiple raises, for the same answers.
    """
    answer = client.session.post(
        f"{client.host}{client.api_url}/push/send", data=_body(messages), timeout=client.timeout
    )
    try:
        document = answer.json()
    except ValueError:
        answer.raise_for_status()
        raise PushServerError("Invalid server response", answer) from None
    if "errors" in document:
        raise PushServerError("Request failed", answer, document, document["errors"])
    answer.raise_for_status()
    tickets: Sequence[object] = answer.raw
    if len(tickets) != len(messages):
        expected = f"{len(messages)} receipt{'' if len(messages) == 1 else 's'}"
        raise PushServerError(
            f"Mismatched response length. Expected {expected} but only received {len(tickets)}", answer, document
        )
    return tickets


def _body(messages: Sequence[Message]) -> bytes:
    """Write messages down; those that are written already as they are."""
    if all(issubclass(kind, WrittenMessage) for kind in set(map(type, messages))):
        return f"[{','.join([message.json() for message in messages])}]".encode()  # type: ignore[attr-defined]
    return encode([message if type(message) is dict else dict(message) for message in messages])


def _accepted_all(raw: Sequence[Any]) -> Accepted | None:
    """Return the tickets of a request if each of them simply says yes."""
    try:
        ids = [entry["id"] for entry in raw if entry["status"] == "ok"]
    except (TypeError, KeyError, IndexError):
        return None
    return Accepted.of(ids) if len(ids) == len(raw) else None


def _ticket(raw: object) -> Ticket:
    """Return the meaning of a ticket: the SDK's object is made only of tickets other than a plain yes."""
    entry: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
    if entry.get("status") == "ok":
        return _accepted(entry.get("id"), raw)
    said = PushTicket(
        None, entry.get("status", "error"), entry.get("message", ""), entry.get("details"), entry.get("id", "")
    )
    return classify(said, raw)


def classify(said: Any, raw: object, *, receipt: bool = False) -> Ticket:
    """Return the meaning of the SDK's ticket or receipt; `raw` is the answer it was made from."""
    if said.status == "ok":
        return _OK if receipt else _accepted(said.id, raw)
    details = said.details if isinstance(said.details, dict) else {}
    code = _code(details)
    if code and code in _FATES:
        fate, alert = _FATES[code]
        reported = None if code == "DeviceNotRegistered" else _clean(said.message)  # which only names the token
        return Ticket(fate, code=code, message=reported, alert=alert)
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


def _reply(trouble: Exception, messages: Sequence[Message], stage: Stage) -> Reply:
    """Return the meaning of a failed request, by the answer's status and code; without an answer by how far it got."""
    answer = getattr(trouble, "response", None)
    if isinstance(answer, ExpoResponse):
        return _judge(answer, trouble, messages)
    cause = trouble.__cause__ or trouble
    late = isinstance(cause, TimeoutError)
    match stage:
        case "writing":
            return Reply("rejected", code=_MALFORMED.code, message=_MALFORMED.message)
        case "connecting":
            words = "connecting took too long" if late else f"no connection ({type(cause).__name__})"
            if isinstance(cause, ProxyRefusedError):
                words = f"no connection: {cause}"
            return Reply("not_sent", code="ConnectTimeout" if late else "NoConnection", message=words)
    if late:
        return Reply("unclear", code="ReadTimeout", message="no whole answer in time")
    # A kept connection that the server closes just as we use it looks the same.
    return Reply("unclear", code="ConnectionBroken", message=f"the answer broke off ({type(cause).__name__})")


def _judge(answer: ExpoResponse, trouble: Exception, messages: Sequence[Message]) -> Reply:
    error = _first_error(getattr(trouble, "errors", None))
    code = _clean(error.get("code"), MAX_CODE)
    kind = _kind(answer.status_code, code)
    projects: Mapping[str, str] = {}
    if kind == "mixed_projects":
        projects = _projects(error.get("details"), messages)
        kind = "mixed_projects" if projects else "rejected"
    words = _clean(error.get("message")) or _clean(answer.excerpt())
    if is_success(answer.status_code) and answer.raw is not None:
        code, words = "MismatchedTickets", _clean(str(trouble))
    return Reply(
        kind,
        code=code or answer.own_code(),
        message=words,
        retry_after_ms=retry_after_ms(answer.headers),
        projects=projects,
    )


def _kind(status: int, code: str | None) -> ReplyKind:
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return "unclear"
    # Redirects are not followed: a proxy in front of Expo's API redirects, not the API, so nothing was accepted;
    # and "rejected" would blame, and end, every message for a wrong address.
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


def _clean(text: object, limit: int = MAX_MESSAGE) -> str | None:
    """Return text that may be stored and logged: short, without secrets and whole push tokens."""
    if not isinstance(text, str):
        return None
    return _fit(_UUID_IN_TEXT.sub(r"\1…", scrub(text[:MAX_SCANNED])), limit) or None


def _fit(text: str, limit: int) -> str:
    """Return text that PostgreSQL takes: no NULs, no halves of characters, and not too long."""
    text = _CONTROL.sub(" ", text[:MAX_SCANNED].encode("utf-8", "replace").decode()).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _as_text(raw: object) -> str:
    try:
        return json.dumps(raw, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _weighed(message: Message) -> Ticket | None:
    """Return the final ticket of a message that cannot be written, or has more bytes than Expo takes."""
    try:
        size = len(ENCODE({key: value for key, value in message.items() if key != "to"}).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return _MALFORMED
    if size <= SERVICE.max_bytes:
        return None
    return Ticket("failed", code="MessageTooBig", message=f"{size} bytes, and Expo takes {SERVICE.max_bytes}")


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
