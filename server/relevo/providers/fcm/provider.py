"""FCM's HTTP v1 API: one message a request, a hundred at once on one HTTP/2 connection, and what its answers mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from relevo.config import Settings
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Ticket
from relevo.core.retry_after import retry_after_ms
from relevo.database.pool import Database
from relevo.providers.fcm import message as fcm_message
from relevo.providers.fcm.credentials import FcmTokens, project_id
from relevo.providers.fcm.entry import FcmEntry
from relevo.providers.fcm.facts import SENDING, SERVICE
from relevo.providers.http2.authorised import AuthorisedProvider
from relevo.providers.http2.client import Answered, CallOutcome, CallTime, Heard, Request
from relevo.providers.http2.provider import (
    MAX_CODE,
    clean,
    is_id,
    unanswered,
    usual_options,
)
from relevo.providers.push_projects import PushProject, PushProjects

GOOGLE = "https://fcm.googleapis.com"
_LEAST_MS, _THROTTLED_MS = SENDING.least_retry_ms, 60_000
_OK, _BAD_REQUEST, _UNAUTHENTICATED, _FORBIDDEN, _NOT_FOUND = 200, 400, 401, 403, 404
_TOO_MANY, _SERVER_ERROR = 429, 500
_PARTS_CREDENTIAL = ("THIRD_PARTY_AUTH_ERROR", "APNS_AUTH_ERROR")
_PROJECTS = re.compile(r"\bprojects?[:/]\S+", re.IGNORECASE)
_DEVICE = re.compile(r"(?<![\w-])device(?![\w-])", re.IGNORECASE)
_TYPES = "type.googleapis.com/"


class Fcm(AuthorisedProvider[FcmEntry]):
    """FCM as a PushProvider; each call has a connection to itself."""

    name = SERVICE.name
    entry = FcmEntry
    message = fcm_message.FcmMessage
    token = re.compile(r"[!-~]{1,4096}")
    malformed_token = Ticket("invalid", code="MalformedToken", message="this is no registration token of FCM")
    facts = SENDING
    account = "Google"
    everybodys = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"})
    look = b'{"validate_only":true,"message":{"token":"relevo-doctor","data":{}}}'

    def __init__(
        self, projects: PushProjects, *, base_url: str | None = None, ca_file: str | None = None, **more: Any
    ) -> None:
        super().__init__(projects, ca_file=ca_file, **more)
        self._origin = (base_url or GOOGLE).rstrip("/")
        self.tokens = FcmTokens(ca_file=ca_file, proxies=self._proxies, timeout_s=self._total_s)

    def _flaw(self, fields: Message, data: Mapping[str, Any]) -> Ticket | None:  # noqa: ARG002
        if key := fcm_message.reserved_key(data):
            words = f"FCM keeps the key {key[:50]!r} of data for itself"
            return Ticket("failed", code="ReservedDataKey", message=words)
        return None

    def _weight(self, message: Message) -> int:
        bare = {**message, "to": ""}
        return max(len(fcm_message.plain(bare, platform).encode()) for platform in ("android", "ios"))

    def _write(self, draft: Draft, platform: str | None) -> fcm_message.Written:
        return fcm_message.write(draft.fields, draft.data, platform, self.name)

    def _ticket(self, outcome: CallOutcome) -> Ticket:
        return _ticket(outcome)

    def _is_unauthenticated(self, outcome: CallOutcome) -> bool:
        if not isinstance(outcome, Answered) or outcome.status != _UNAUTHENTICATED:
            return False
        return _code(_error(outcome)) not in _PARTS_CREDENTIAL

    def _ready(self, message: Message, part: str) -> bytes:
        written = message.json() if isinstance(message, WrittenMessage) else fcm_message.plain(message, part)
        return written.encode()

    def _post(
        self, project: PushProject[FcmEntry], token: str, bodies: Sequence[bytes], call: CallTime, heard: Heard
    ) -> list[CallOutcome]:
        headers = (
            (":method", "POST"),
            (":path", f"/v1/projects/{project_id(project)}/messages:send"),
            ("authorization", f"Bearer {token}"),
            ("content-type", "application/json"),
        )
        # path and token are the same in all requests
        with self._clients.lend(self._origin, lambda: self._client(self._origin, not_indexed=())) as client:
            aimed = map(_by_fid, bodies) if project.entry.target == "fid" else bodies
            return client.exchange([Request(headers, body) for body in aimed], call, heard)


def make(projects: PushProjects, settings: Settings, database: Database | None = None) -> Fcm:  # noqa: ARG001
    """Make it as the settings say."""
    return Fcm(projects, base_url=settings.fcm_base_url, **usual_options(settings))


def _by_fid(body: bytes) -> bytes:
    """Return a message that names its phone by `fid`; its token is the last of its values."""
    before, _, token = body.rpartition(b'"token":')
    return before + b'"fid":' + token


def _ticket(outcome: CallOutcome) -> Ticket:
    """Return the outcome of a message."""
    if not isinstance(outcome, Answered):
        return unanswered(outcome, _LEAST_MS)
    if outcome.status != _OK:
        return _judge(outcome)
    try:
        name = orjson.loads(outcome.body)["name"].rpartition("/")[2]
        taken = is_id(name)
    except (ValueError, TypeError, KeyError, AttributeError):
        taken = False
    if taken:
        return Ticket("ok", id=name)
    return Ticket("unclear", code="UnreadableAnswer", message="a 200 without a name", retry_after_ms=_LEAST_MS)


def _judge(answer: Answered) -> Ticket:
    """Return the meaning of an answer other than 200."""
    status, error = answer.status, _error(answer)
    code, words = _code(error) or f"HTTP_{status}", clean(error.get("message"))
    pause_ms = retry_after_ms(answer.headers)
    if status >= _SERVER_ERROR:
        return Ticket("unclear", code=code, message=words, retry_after_ms=max(pause_ms, _LEAST_MS))
    if not error or status < _BAD_REQUEST:  # whoever answered in front of FCM, nothing was accepted
        return Ticket("not_sent", code=code, message="the answer is not FCM's", retry_after_ms=max(pause_ms, _LEAST_MS))
    if status == _TOO_MANY:
        return _throttled(error, code, words, pause_ms or _THROTTLED_MS)
    if code == "UNREGISTERED" or (code == "INVALID_ARGUMENT" and _blames_token(error)):
        return Ticket("invalid", code=code, message=words)
    if status in (_UNAUTHENTICATED, _FORBIDDEN, _NOT_FOUND):
        return Ticket("credential", code=code, message=words, alert=True)
    return Ticket("failed", code=code, message=_violations(error) or words, alert=True)


def _throttled(error: Mapping[str, Any], code: str, words: str | None, pause_ms: int) -> Ticket:
    """Distinguish a phone's own quota from the project's; a push above the project's costs no attempt."""
    found = [each for detail in _details(error, "google.rpc.QuotaFailure") for each in _list(detail, "violations")]
    if any(_names_device(each) for each in found):
        return Ticket("retryable", code=code, message=words, retry_after_ms=pause_ms, pauses="phone")
    return Ticket("not_sent", code=code, message=words, retry_after_ms=pause_ms, pauses="project")


def _names_device(violation: Mapping[str, Any]) -> bool:
    """Return whether a quota is a device's; a project's id may have that word in it."""
    said = _PROJECTS.sub(" ", f"{violation.get('subject')} {violation.get('description')}")
    return _DEVICE.search(said) is not None


def _blames_token(error: Mapping[str, Any]) -> bool:
    """Return whether an INVALID_ARGUMENT is about the token: by the fields it names, else as FCM's own error."""
    fields = [str(each.get("field")) for each in _field_violations(error)]
    if fields:
        return all(field in ("message.token", "message.fid") for field in fields)
    is_about_message = any(True for _ in _details(error, "google.rpc.BadRequest"))
    return not is_about_message and any(True for _ in _details(error, "google.firebase.fcm.v1.FcmError"))


def _violations(error: Mapping[str, Any]) -> str | None:
    said = "; ".join(f"{each.get('field')}: {each.get('description')}" for each in _field_violations(error))
    return clean(said)


def _field_violations(error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for detail in _details(error, "google.rpc.BadRequest") for each in _list(detail, "fieldViolations")]


def _error(answer: Answered) -> Mapping[str, Any]:
    """Return the error of an answer; nothing if it is none of Google's."""
    try:
        error = orjson.loads(answer.body)["error"]
    except (ValueError, TypeError, KeyError, IndexError):
        return {}
    return error if isinstance(error, dict) else {}


def _code(error: Mapping[str, Any]) -> str | None:
    """Return FCM's own code, or else Google's general one."""
    own = (detail.get("errorCode") for detail in _details(error, "google.firebase.fcm.v1.FcmError"))
    found = next((each for each in own if isinstance(each, str)), error.get("status"))
    return clean(found, MAX_CODE)


def _details(error: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [each for each in _list(error, "details") if each.get("@type") == f"{_TYPES}{kind}"]


def _list(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
