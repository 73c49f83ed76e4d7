"""Web Push: browsers, and phones of UnifiedPush; one message a request, and what the push services' answers mean.

Each subscription names its own push service. Messages of one call are sorted by service, and all services are
spoken to at once, each over a connection of its own. A service's address is looked up, checked and pinned for every
connection; redirects are followed only within the service that gave them, and once.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urljoin

import orjson

from relevo.config import Settings
from relevo.core.messages import Draft, Message
from relevo.core.model import Reply, Ticket
from relevo.core.push_hosts import Hosts
from relevo.core.retry_after import retry_after_ms
from relevo.core.version import __version__
from relevo.database.pool import Database
from relevo.providers.http2.client import Answered, CallOutcome, CallTime, Http2Client, NotSent, Request
from relevo.providers.http2.provider import Http2Provider, Tickets, clean, is_id, unanswered, usual_options, whole
from relevo.providers.lookups import Lookups
from relevo.providers.message_parts import Headers, Written
from relevo.providers.push_projects import PushProject, PushProjects
from relevo.providers.webpush import credentials, subscriptions
from relevo.providers.webpush import message as webpush_message
from relevo.providers.webpush.encryption import encrypt
from relevo.providers.webpush.entry import WebPushEntry
from relevo.providers.webpush.facts import SENDING, SERVICE
from relevo.providers.webpush.message import Posted, WebPushMessage

_THROTTLED_MS = 60_000
_OK, _REDIRECT, _CLIENT_ERROR, _SERVER_ERROR = 200, 300, 400, 500
_MOVED = (301, 308)
_GONE = (404, 410)
_CREDENTIAL = (400, 401, 403)
_THROTTLED = (406, 429)
_TOO_BIG = 413
_SEVERAL = 5  # browsers: fewer that are throttled at once are throttled each by itself
_MOST_ANSWERED = 1_000
_MOST_HOSTS = 32
"""So many push services are spoken to at once in one call."""
_HEADERS = (
    ("content-encoding", "aes128gcm"),
    ("content-type", "application/octet-stream"),
    ("user-agent", f"relevo/{__version__}"),
)
_WORD = re.compile(r"[A-Za-z]{1,50}")

_SILENT = Ticket("failed", code="NothingToShow", message="browsers take no push without a title and a body")


class _Encrypted(NamedTuple):
    """A message that only its browser can read."""

    number: int
    """Of the call's messages."""
    path: str
    headers: Headers
    body: bytes


class WebPush(Http2Provider[WebPushEntry, Posted]):
    """Web Push as a PushProvider; each call has its connections to itself."""

    name = SERVICE.name
    entry = WebPushEntry
    message = WebPushMessage
    facts = SENDING

    def __init__(
        self,
        projects: PushProjects,
        *,
        hosts: Iterable[str] = (),
        allow_private: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(projects, http1=True, **more)
        self._hosts = tuple(hosts)
        self._allow_private = allow_private
        self._lookups = Lookups()
        self._answered: set[str] = set()
        """The push services that answered once, of those that are known by their domain alone."""

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a push to a malformed subscription."""
        try:
            subscriptions.read(token)
        except ValueError as error:
            return _malformed_token(error)
        return None

    def refuses_any(self, tokens: Sequence[Any]) -> bool:
        """Return whether one of these subscriptions is malformed."""
        return any(self.refuse_token(token) is not None for token in tokens)

    def _flaw(self, fields: Message, data: Mapping[str, Any]) -> Ticket | None:  # noqa: ARG002
        return _SILENT if webpush_message.is_silent(fields) else None

    def _weight(self, message: Message) -> int:
        json.dumps(dict(message), allow_nan=False)  # orjson would write null for what is no number
        return len(webpush_message.posted(message).body)

    def _write(self, draft: Draft, platform: str | None) -> Written:  # noqa: ARG002 browsers are all alike
        return webpush_message.write(draft.fields, draft.data, self.name)

    def _ready(self, message: Message, part: str) -> Posted:  # noqa: ARG002
        return webpush_message.posted(message)

    def _send(
        self,
        project: PushProject[WebPushEntry],
        part: str,  # noqa: ARG002
        ready: Sequence[Posted],
        tickets: Tickets,
    ) -> Reply:
        call = CallTime(self._total_s)
        hosts = Hosts(self._hosts, project.entry.hosts)
        page = project.entry.page
        if page is not None:
            ready = [each._replace(body=webpush_message.declared(each.body, page)) for each in ready]
        found, by_place = _sort(ready, hosts)

        def post(place: str) -> list[CallOutcome]:
            is_trusted = hosts.trusts(place)
            return self._post(project, place, by_place[place], call.apart(), tickets, is_trusted=is_trusted)

        outcomes: list[CallOutcome] = []
        for place, got in zip(by_place, _side_by_side(post, list(by_place)), strict=True):
            encrypted = by_place[place]
            is_slowing, is_proven = _is_slowing(encrypted, got), self._is_proven(place, hosts, got)
            outcomes += got if is_proven else ()
            for each, outcome in zip(encrypted, got, strict=True):
                judge = partial(_ticket, outcome, is_slowing=is_slowing, is_proven=is_proven)
                found[each.number] = tickets.of(each.number, judge)
        if len(outcomes) == len(ready) and not any(each.fate == "failed" for each in found.values()):
            reply = whole(outcomes)
            if reply is not None:
                return reply
        return Reply("answered", tuple(found[index] for index in range(len(ready))))

    def _is_proven(self, place: str, hosts: Hosts, outcomes: Sequence[CallOutcome]) -> bool:
        """Return whether a place is a push service: one that a phone made up is no outage of all the others."""
        if not hosts.names(place) and any(isinstance(each, Answered) for each in outcomes):
            if len(self._answered) >= _MOST_ANSWERED:
                self._answered.clear()
            self._answered.add(place)
        return hosts.names(place) or place in self._answered

    def _post(
        self,
        project: PushProject[WebPushEntry],
        place: str,
        encrypted: Sequence[_Encrypted],
        call: CallTime,
        tickets: Tickets,
        *,
        is_trusted: bool,
    ) -> list[CallOutcome]:
        """Post messages to one push service; those whose subscription moved within it once more, to the new path."""
        token = ("authorization", credentials.header(project, f"https://{place}", self._clock()))

        def exchange(some: Sequence[_Encrypted]) -> list[CallOutcome]:
            def hear(index: int, answer: Answered) -> None:
                tickets.hear(some[index].number, answer, partial(_judge, is_slowing=False))

            requests = [
                Request(((":method", "POST"), (":path", each.path), token, *each.headers), each.body) for each in some
            ]
            return client.exchange(requests, call, hear)

        make = partial(self._client_of, place, is_trusted=is_trusted)
        with self._clients.lend((place, is_trusted), make) as client:
            outcomes = exchange(encrypted)
            moved = {index: path for index, each in enumerate(outcomes) if (path := _moved_to(each, place))}
            again = exchange([encrypted[index]._replace(path=path) for index, path in moved.items()]) if moved else []
        for index, outcome in zip(moved, again, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _client_of(self, place: str, *, is_trusted: bool) -> Http2Client:
        resolve = subscriptions.resolver(self._lookups, allow_private=self._allow_private or is_trusted)
        return self._client(f"https://{place}", resolve=resolve, http1=True, not_indexed=(":path", "topic", "ttl"))


def make(projects: PushProjects, settings: Settings, database: Database | None = None) -> WebPush:  # noqa: ARG001
    """Make it as the settings say."""
    hosts, allow_private = settings.webpush_hosts or (), settings.http_allow_private
    return WebPush(projects, hosts=hosts, allow_private=allow_private, **usual_options(settings))


def _sort(messages: Sequence[Posted], hosts: Hosts) -> tuple[dict[int, Ticket], defaultdict[str, list[_Encrypted]]]:
    """Encrypt messages and sort them by push service; those that cannot be sent have their ticket."""
    tickets: dict[int, Ticket] = {}
    by_place: defaultdict[str, list[_Encrypted]] = defaultdict(list)
    for index, message in enumerate(messages):
        try:
            to = subscriptions.read(message.token)
            if not hosts.allows(to.place):
                tickets[index] = _foreign(to.place)
                continue
            body = encrypt(message.body, to.point, to.secret)
        except ValueError as error:
            tickets[index] = _malformed_token(error)
        else:
            by_place[to.place].append(_Encrypted(index, to.path, (*_HEADERS, *message.headers), body))
    return tickets, by_place


def _side_by_side(post: Callable[[str], list[CallOutcome]], places: Sequence[str]) -> Iterable[list[CallOutcome]]:
    """Post to several push services at once, each in a thread of its own: a slow one must not hold the others up."""
    if len(places) <= 1:
        return map(post, places)
    with ThreadPoolExecutor(min(len(places), _MOST_HOSTS), thread_name_prefix="relevo-webpush") as threads:
        return list(threads.map(post, places))


def _malformed_token(error: ValueError) -> Ticket:
    return Ticket("invalid", code="MalformedToken", message=f"this is no subscription: {error}"[:500])


def _foreign(place: str) -> Ticket:
    words = f"pushes do not go to {place[:200]}; if it is a push service, name it in `hosts` or WEBPUSH_HOSTS"
    return Ticket("failed", code="HostNotAllowed", message=words, alert=True)


def _moved_to(outcome: CallOutcome, place: str) -> str | None:
    """Return the new path of a subscription that moved for good within its push service."""
    if not isinstance(outcome, Answered) or outcome.status not in _MOVED:
        return None
    try:
        there, path = subscriptions.split(urljoin(f"https://{place}", outcome.headers.get("location", "")))
    except ValueError:
        return None
    return path if there == place and "location" in outcome.headers else None


def _ticket(outcome: CallOutcome, *, is_slowing: bool, is_proven: bool) -> Ticket:
    """Return the outcome of a message.

    `is_slowing`: whether its push service asks the sender to go slower; `is_proven`: whether it is known to be one.
    """
    if isinstance(outcome, Answered):
        return _judge(outcome, is_slowing=is_slowing)
    if isinstance(outcome, NotSent) and outcome.code == "RefusedAddress":
        return Ticket("failed", code=outcome.code, message=outcome.message, alert=True)
    ticket = unanswered(outcome)
    return ticket if is_proven or ticket.fate != "not_sent" else ticket._replace(fate="retryable")


def _judge(answer: Answered, *, is_slowing: bool) -> Ticket:
    """Return the meaning of an answer."""
    status = answer.status
    code, words = _said(answer)
    pause_ms = retry_after_ms(answer.headers)
    if _OK <= status < _REDIRECT:
        return Ticket("ok", id=_id(answer.headers))
    if status in _GONE:
        return Ticket("invalid", code="SubscriptionGone", message=words)
    if status in _THROTTLED:
        return _throttled(code, words, pause_ms or _THROTTLED_MS, is_slowing=is_slowing)
    if status in _CREDENTIAL:
        return Ticket("credential", code=code, message=words, alert=True)
    if status >= _SERVER_ERROR:
        return Ticket("unclear", code=code, message=words, retry_after_ms=pause_ms)
    if status < _CLIENT_ERROR:
        words = "the push service sends elsewhere, which is not followed; the browser has to subscribe anew"
    return Ticket("failed", code=code, message=words, alert=status != _TOO_BIG)


def _is_slowing(posted: Sequence[_Encrypted], outcomes: Sequence[CallOutcome]) -> bool:
    """Return whether it is the sender who is too fast, not one browser: several are throttled, and none is taken."""
    answers = [
        (each.path, outcome.status)
        for each, outcome in zip(posted, outcomes, strict=True)
        if isinstance(outcome, Answered)
    ]
    if any(_OK <= status < _REDIRECT for _, status in answers):
        return False
    return len({path for path, status in answers if status in _THROTTLED}) >= _SEVERAL


def _throttled(code: str, words: str | None, pause_ms: int, *, is_slowing: bool) -> Ticket:
    """Distinguish the sender's limit, for which all its pushes rest, from one browser's own."""
    if is_slowing:
        return Ticket("not_sent", code=code, message=words, retry_after_ms=pause_ms, pauses="project")
    return Ticket("retryable", code=code, message=words, retry_after_ms=pause_ms, pauses="phone")


def _said(answer: Answered) -> tuple[str, str | None]:
    """Return code and words of an answer: Apple's reason, Mozilla's number and message, or the status alone."""
    code = f"HTTP_{answer.status}"
    try:
        document = orjson.loads(answer.body)
    except ValueError:
        return code, clean(answer.body.decode("utf-8", "replace"))
    if not isinstance(document, dict):
        return code, None
    reason = document.get("reason")
    if isinstance(reason, str) and _WORD.fullmatch(reason):
        return reason, None
    number = f" ({document['errno']})" if isinstance(document.get("errno"), int) else ""
    words = clean(document.get("message") or document.get("error"))
    return code, words and words + number


def _id(headers: Mapping[str, str]) -> str:
    """Return the name of a taken message: the end of its address, or one of our own."""
    name = headers.get("location", "").rpartition("/")[2]
    return name if is_id(name) else str(uuid.uuid4())
