"""APNs: one message a request, a hundred at once on one HTTP/2 connection, and what its answers mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from relevo.config import Settings
from relevo.core.messages import Draft, Message
from relevo.core.model import Fate, Reply, Ticket
from relevo.core.retry_after import retry_after_ms
from relevo.core.sending_project import SendingProject
from relevo.database.pool import Database
from relevo.providers.apns import message as apns_message
from relevo.providers.apns.credentials import ApnsTokens, IssueTimes, NoIssueTimeError, OwnIssueTimes, SharedIssueTimes
from relevo.providers.apns.entry import ApnsEntry
from relevo.providers.apns.facts import SENDING, SERVICE
from relevo.providers.apns.message import ApnsMessage
from relevo.providers.http2.client import Answered, CallOutcome, CallTime, Heard, Http2Client, NotSent, Request
from relevo.providers.http2.provider import (
    MAX_CODE,
    Http2Provider,
    Tickets,
    clean,
    clock_trouble,
    is_id,
    unanswered,
    usual_options,
    whole,
)
from relevo.providers.message_parts import Written
from relevo.providers.push_projects import PushProject, PushProjects, Unusable

APPLE = {"production": "https://api.push.apple.com", "sandbox": "https://api.sandbox.push.apple.com"}
_PHONE_RESTS_MS, _PROJECT_RESTS_MS, _TROUBLE_RESTS_MS = 60_000, 1_200_000, 900_000
_OK, _BAD_REQUEST, _FORBIDDEN, _GONE, _TOO_MANY, _SERVER_ERROR = 200, 400, 403, 410, 429, 500
_OTHER_APP = "DeviceTokenNotForTopic"
"""The refusals of the token of another app's phone, or of every token if the project's topic is wrong."""

_WORDS = {
    "ExpiredProviderToken": "is this machine's clock right?",
    _OTHER_APP: "the token is another app's, or `topic` is wrong",
}
_TOO_MANY_TOKENS = "TooManyProviderTokenUpdates"
_TOPICS = ("BadTopic", "MissingTopic", "TopicDisallowed")
_LOOK = {"to": "relevo-doctor", "title": "relevo doctor"}
"""A message that Apple refuses for its device token, once everything else about it is right."""
_NOT_BEGUN = NotSent("NotBegun", "its turn did not come")

Own = tuple[tuple[tuple[str, str], ...], bytes]
"""A message's headers and payload, without what the whole request has in common."""


class Apns(Http2Provider[ApnsEntry, Own]):
    """APNs as a PushProvider; each call has a connection of its key and environment to itself."""

    name = SERVICE.name
    entry = ApnsEntry
    token = re.compile(r"[0-9a-f]{2,4096}")
    malformed_token = Ticket("invalid", code="MalformedToken", message="a device token of APNs is hexadecimal")
    facts = SENDING
    too_big = "PayloadTooLarge"
    message = ApnsMessage

    def __init__(
        self,
        projects: PushProjects,
        *,
        base_url: str | None = None,
        sandbox_base_url: str | None = None,
        issue_times: IssueTimes | None = None,
        **more: Any,
    ) -> None:
        super().__init__(projects, **more)
        given = {"production": base_url, "sandbox": sandbox_base_url}
        self._origins = {name: (given[name] or address).rstrip("/") for name, address in APPLE.items()}
        self._tokens = ApnsTokens(issue_times or OwnIssueTimes(self._clock))
        self._proven: set[Any] = set()
        """Keys that Apple has taken at an origin."""

    def _flaw(self, fields: Message, data: Mapping[str, Any]) -> Ticket | None:  # noqa: ARG002
        words = "APNs keeps the key 'aps' of data for itself"
        return Ticket("failed", code="ReservedDataKey", message=words) if "aps" in data else None

    def _weight(self, message: Message) -> int:
        return len(apns_message.plain(message)[1])

    def _write(self, draft: Draft, platform: str | None) -> Written:  # noqa: ARG002
        return apns_message.write(draft.fields, draft.data, self.name)

    def trouble(self, project: str) -> str:
        """Return why nothing could be sent in a project, after asking Apple about a device token that cannot be one."""
        sending = SendingProject.parse(project)
        found = self._projects.find(ApnsEntry, sending.name)
        if isinstance(found, Unusable):
            return found.message
        own = _own(_LOOK)
        try:
            [outcome] = self._post_authorised(found, sending.part or "production", [own], Tickets())
        except NoIssueTimeError as error:
            return f"APNs cannot be asked: {error}"
        ticket = _ticket(outcome, own)
        date = outcome.headers.get("date") if isinstance(outcome, Answered) else None
        if ticket.fate in ("not_sent", "unclear"):
            return f"APNs cannot be asked: {ticket.code} {ticket.message or ''}".strip()
        if ticket.fate == "credential" or ticket.code in _TOPICS:
            return (
                clock_trouble(date, self._clock()) or f"Apple refuses it: {ticket.code} {ticket.message or ''}".strip()
            )
        return clock_trouble(date, self._clock())

    def _ready(self, message: Message, part: str) -> Own:  # noqa: ARG002
        return _own(message)

    def _send(self, project: PushProject[ApnsEntry], part: str, ready: Sequence[Own], tickets: Tickets) -> Reply:
        try:
            outcomes = self._post_authorised(project, part or "production", ready, tickets)
        except NoIssueTimeError as error:
            return Reply("not_sent", code="NoToken", message=str(error))
        pairs = enumerate(zip(outcomes, ready, strict=True))
        return whole(outcomes) or _reply([tickets.of(place, partial(_ticket, *each)) for place, each in pairs])

    def _post_authorised(
        self, project: PushProject[ApnsEntry], environment: str, own: Sequence[Own], tickets: Tickets
    ) -> list[CallOutcome]:
        """Post messages; those whose provider token has expired once more, if a younger one may be made."""
        call = CallTime(self._total_s)
        token = self._tokens.get(project)

        def post(places: Sequence[int], token: str) -> list[CallOutcome]:
            def hear(index: int, answer: Answered) -> None:
                tickets.hear(places[index], answer, lambda said: _ticket(said, own[places[index]]))

            return self._post(project, environment, token, [own[place] for place in places], call=call, heard=hear)

        outcomes = post(range(len(own)), token)
        expired = [place for place, each in enumerate(outcomes) if _reason(each) == "ExpiredProviderToken"]
        younger = token
        if expired:
            with suppress(NoIssueTimeError):  # what others were told stands
                younger = self._tokens.younger(project)
        if younger != token and call.may_begin():
            for place, outcome in zip(expired, post(expired, younger), strict=True):
                outcomes[place] = outcome
        if any(_reason(each) == _TOO_MANY_TOKENS for each in outcomes):
            self._tokens.forget(project)
        return outcomes

    def _post(
        self,
        project: PushProject[ApnsEntry],
        environment: str,
        token: str,
        own: Sequence[Own],
        *,
        call: CallTime,
        heard: Heard,
    ) -> list[CallOutcome]:
        entry = project.entry
        origin = self._origins.get(environment, self._origins["production"])
        common = (("authorization", f"bearer {token}"), ("apns-topic", entry.topic))
        requests = [Request((*headers[:2], *common, *headers[2:]), body) for headers, body in own]
        # One connection is for one team's keys: another key id on it would be refused.
        key = origin, environment, entry.team_id, entry.key_id
        not_indexed = (":path", "authorization", "apns-id")
        make = partial(self._client, origin, one_stream_first=True, not_indexed=not_indexed)
        with self._clients.lend(key, make) as client:
            outcomes = self._exchange(client, (key, project.secret), requests, call, heard)
        if any(isinstance(each, Answered) and each.status == _FORBIDDEN for each in outcomes):
            self._proven.discard((key, project.secret))
        return outcomes

    def _exchange(
        self, client: Http2Client, key: Any, requests: Sequence[Request], call: CallTime, heard: Heard
    ) -> list[CallOutcome]:
        """Post requests, the first alone if the key is not proven: a bad key is refused once, not a hundred times."""
        if key in self._proven:
            return client.exchange(requests, call, heard)
        outcomes = client.exchange(requests[:1], call, heard)
        rest = requests[1:]
        if not isinstance(outcomes[0], Answered) or outcomes[0].status == _FORBIDDEN:
            return outcomes + [_NOT_BEGUN] * len(rest)
        self._proven.add(key)
        return outcomes + client.exchange(rest, call, lambda index, answer: heard(index + 1, answer))


def make(projects: PushProjects, settings: Settings, database: Database | None = None) -> Apns:
    """Make it as the settings say; with a database it shares its provider tokens with every process."""
    issue_times = SharedIssueTimes(database) if database else None
    addresses = {"base_url": settings.apns_base_url, "sandbox_base_url": settings.apns_sandbox_base_url}
    return Apns(projects, issue_times=issue_times, **addresses, **usual_options(settings))


def _own(message: Message) -> Own:
    if isinstance(message, ApnsMessage):
        headers, body = message.headers(), message.body()
        token = message.delivery.token
    else:
        headers, body = apns_message.plain(message)
        token = message.get("to")
    return ((":method", "POST"), (":path", f"/3/device/{token}"), *headers), body


def _reply(tickets: list[Ticket]) -> Reply:
    """Return one ticket for each message; or what befell them all, if that is the project's."""
    first = tickets[0]
    of_all = first.fate == "credential" and first.code != _OTHER_APP
    if of_all and all(each.fate == "credential" or each.code == "NotBegun" for each in tickets):
        return Reply("unauthorised", code=first.code, message=first.message)
    return Reply("answered", tickets)


def _ticket(outcome: CallOutcome, own: Own) -> Ticket:
    """Return the outcome of a message."""
    if not isinstance(outcome, Answered):
        return unanswered(outcome)
    if outcome.status == _OK:
        name = outcome.headers.get("apns-id", "")
        return Ticket("ok", id=name if is_id(name) else dict(own[0])["apns-id"])
    return _judge(outcome)


def _judge(answer: Answered) -> Ticket:
    """Return the meaning of an answer other than 200."""
    status, said = answer.status, _said(answer)
    code = _reason(answer) or f"HTTP_{status}"
    pause_ms = retry_after_ms(answer.headers)
    if status >= _SERVER_ERROR:
        return Ticket("unclear", code=code, retry_after_ms=max(pause_ms, _TROUBLE_RESTS_MS))
    if not said or status < _BAD_REQUEST or code == "IdleTimeout":  # whoever answered in front of APNs: it has no word
        return Ticket("not_sent", code=code, message="nothing was taken", retry_after_ms=pause_ms)
    if status == _GONE:
        return Ticket("invalid", code=code, gone_at=_instant(said.get("timestamp")))
    if status == _TOO_MANY:
        return _throttled(code, pause_ms)
    if status == _FORBIDDEN or code == _OTHER_APP:  # whose fault the latter is shows when several owners met it
        return Ticket("credential", code=code, message=_WORDS.get(code), alert=True)
    fate: Fate = "invalid" if code == "BadDeviceToken" else "failed"
    return Ticket(fate, code=code, alert=code not in ("BadDeviceToken", "PayloadTooLarge"))


def _throttled(code: str, pause_ms: int) -> Ticket:
    """Distinguish a limit of one phone from a limit of the project, which costs no attempt."""
    if code == _TOO_MANY_TOKENS:
        return Ticket("not_sent", code=code, retry_after_ms=max(pause_ms, _PROJECT_RESTS_MS), pauses="project")
    return Ticket("retryable", code=code, retry_after_ms=max(pause_ms, _PHONE_RESTS_MS), pauses="phone")


def _said(answer: Answered) -> Mapping[str, Any]:
    """Return what APNs says in the body of an answer; nothing if it is none of Apple's."""
    try:
        said = orjson.loads(answer.body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and isinstance(said.get("reason"), str) else {}


def _reason(outcome: CallOutcome) -> str | None:
    return clean(_said(outcome).get("reason"), MAX_CODE) if isinstance(outcome, Answered) else None


def _instant(timestamp_ms: object) -> datetime | None:
    """Return since when a token is gone, told in milliseconds."""
    if not isinstance(timestamp_ms, int | float) or isinstance(timestamp_ms, bool):
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
