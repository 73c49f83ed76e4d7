"""Huawei Push Kit for Android phones: one message a request, and what its answers mean."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from relevo.config import Settings
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Ticket
from relevo.core.retry_after import retry_after_ms
from relevo.database.pool import Database
from relevo.providers.http2.authorised import AuthorisedProvider
from relevo.providers.http2.client import Answered, CallOutcome, CallTime, Heard, Request
from relevo.providers.http2.provider import MAX_CODE, clean, is_id, unanswered, usual_options
from relevo.providers.huawei import message as huawei_message
from relevo.providers.huawei.credentials import HuaweiTokens
from relevo.providers.huawei.entry import HuaweiEntry
from relevo.providers.huawei.facts import SENDING, SERVICE
from relevo.providers.push_projects import PushProject, PushProjects

_SUCCESS, _INNER_ERROR = "80000000", "81000001"
_GONE = ("80100000", "80300007")
"""Some, or all, of a request's tokens are invalid; each of ours has one."""
_TOKEN_REFUSED = frozenset({"80200001", "80200003"})
_CREDENTIAL = _TOKEN_REFUSED | {"80300002"}
_UNAUTHENTICATED, _TOO_MANY, _SERVER_ERROR, _OVER_RATE = 401, 429, 500, 503
_THROTTLED_MS = 60_000


class Huawei(AuthorisedProvider[HuaweiEntry]):
    """Huawei Push Kit as a PushProvider; each call has a connection to itself."""

    name = SERVICE.name
    entry = HuaweiEntry
    message = huawei_message.HuaweiMessage
    token = re.compile(r"(?!Expo(nent)?PushToken)[!-~]{1,4096}")
    malformed_token = Ticket("invalid", code="MalformedToken", message="this is no push token of HMS Core")
    facts = SENDING
    too_big = "80300008"
    account = "Huawei"
    everybodys = _CREDENTIAL | {f"HTTP_{_UNAUTHENTICATED}"}
    look = b'{"validate_only":true,"message":{"data":"{}","token":["relevo-doctor"]}}'

    def __init__(self, projects: PushProjects, *, ca_file: str | None = None, **more: Any) -> None:
        super().__init__(projects, ca_file=ca_file, http1=True, **more)
        self.tokens = HuaweiTokens(ca_file=ca_file, proxies=self._proxies, timeout_s=self._total_s)

    def _flaw(self, fields: Message, data: Mapping[str, Any]) -> Ticket | None:  # noqa: ARG002 it takes all
        return None

    def _weight(self, message: Message) -> int:
        json.dumps(dict(message), allow_nan=False)  # orjson would write null for what is no number
        return len(huawei_message.plain({**message, "to": ""}).encode())

    def _write(self, draft: Draft, platform: str | None) -> huawei_message.Written:  # noqa: ARG002 all are alike
        return huawei_message.write(draft.fields, draft.data, self.name)

    def _ready(self, message: Message, part: str) -> bytes:  # noqa: ARG002
        written = message.json() if isinstance(message, WrittenMessage) else huawei_message.plain(message)
        return written.encode()

    def _ticket(self, outcome: CallOutcome) -> Ticket:
        return _judge(outcome) if isinstance(outcome, Answered) else unanswered(outcome)

    def _is_unauthenticated(self, outcome: CallOutcome) -> bool:
        return isinstance(outcome, Answered) and (
            outcome.status == _UNAUTHENTICATED or _told(outcome).get("code") in _TOKEN_REFUSED
        )

    def _post(
        self, project: PushProject[HuaweiEntry], token: str, bodies: Sequence[bytes], call: CallTime, heard: Heard
    ) -> list[CallOutcome]:
        headers = (
            (":method", "POST"),
            (":path", f"/v1/{project.entry.app_id}/messages:send"),
            ("authorization", f"Bearer {token}"),
            ("content-type", "application/json; charset=utf-8"),
        )
        origin = project.entry.push_url
        with self._clients.lend(origin, lambda: self._client(origin, http1=True, not_indexed=())) as client:
            return client.exchange([Request(headers, body) for body in bodies], call, heard)


def make(projects: PushProjects, settings: Settings, database: Database | None = None) -> Huawei:  # noqa: ARG001
    """Make it as the settings say."""
    return Huawei(projects, **usual_options(settings))


def _judge(answer: Answered) -> Ticket:
    """Return the meaning of an answer: by its code, which stands beside any status, else by the status."""
    told, status = _told(answer), answer.status
    code = clean(told.get("code"), MAX_CODE) or f"HTTP_{status}"
    words, pause_ms = clean(told.get("msg")), retry_after_ms(answer.headers)
    if code == _SUCCESS:
        return _taken(told)
    if status in (_TOO_MANY, _OVER_RATE):  # more than this app, or all apps together, may send now
        return Ticket("not_sent", code=code, message=words, retry_after_ms=pause_ms or _THROTTLED_MS, pauses="project")
    if status >= _SERVER_ERROR or code == _INNER_ERROR:
        return Ticket("unclear", code=code, message=words, retry_after_ms=pause_ms)
    if not told and status != _UNAUTHENTICATED:  # whoever answered in front of Huawei, nothing was accepted
        return Ticket("not_sent", code=code, message="the answer is not Huawei's", retry_after_ms=pause_ms)
    if code in _GONE:
        return Ticket("invalid", code=code, message=words)
    is_refused = code in _CREDENTIAL or status == _UNAUTHENTICATED
    return Ticket("credential" if is_refused else "failed", code=code, message=words, alert=True)


def _taken(told: Mapping[str, Any]) -> Ticket:
    name = told.get("requestId")
    if isinstance(name, str) and is_id(name):
        return Ticket("ok", id=name)
    return Ticket("unclear", code="UnreadableAnswer", message="a success without a requestId")


def _told(answer: Answered) -> Mapping[str, Any]:
    """Return what an answer says; nothing if it is none of Huawei's."""
    try:
        read = orjson.loads(answer.body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) and isinstance(read.get("code"), str) else {}
