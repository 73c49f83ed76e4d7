"""Every push service fulfils the contract of the port, and each clause of it catches a double that breaks it."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from relevo.core.known_services import NATIVE
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery, ReceiptReply, Reply, Ticket
from relevo.core.ports import ProviderFacts, PushProvider
from relevo.providers.expo.provider import Expo
from relevo.providers.webhook.provider import Webhook, read_addresses
from relevo.sandbox import Sandbox, push_service
from support import fake_expo, native
from support import provider_contract as contract
from support.fake_http_server import Answer, Asked, FakeServer
from support.provider_contract import PAUSE_MS, Fault, Rig

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
FAULTS: tuple[Fault, ...] = ("gone", "broken", "throttled", "hang", "refused")
HURRIED_MS = 1_500
"""Enough to connect and send on a busy machine: what was not sent would be told as that."""
RETRY_AFTER = {"Retry-After": str(PAUSE_MS // 1000)}


@pytest.fixture(scope="module")
def services() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True, apns_token_interval_s=0) as made:
        yield made


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens at."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


class ExpoRig:
    """Expo before a fake that answers by the phone's name."""

    kind, project = "expo", "default"

    def __init__(self, stack: ExitStack, closed_port: int) -> None:
        self._stack, self._closed = stack, f"http://127.0.0.1:{closed_port}"
        self._over = threading.Event()
        self._fake = stack.enter_context(fake_expo.FakeExpo())
        self._fake.answer = self._answer
        stack.callback(self._over.set)
        self.provider: PushProvider = self._make(self._fake.url)

    def _make(self, url: str, timeout_ms: int = 10_000) -> PushProvider:
        made = Expo(base_url=url, access_token=None, timeout_ms=timeout_ms, connect_timeout_ms=2_000)
        self._stack.callback(made.close)
        return made

    def _answer(self, asked: fake_expo.Asked) -> fake_expo.Answer:
        said = json.dumps(asked.body)
        if "hang" in said:
            self._over.wait(30)
        if "broken" in said:
            return fake_expo.Answer(503)
        if "throttled" in said:
            return fake_expo.Answer(429, b"{}", RETRY_AFTER)
        if "refused" in said:  # by something before it
            return fake_expo.Answer(404)
        if "gone" not in said:
            return fake_expo.regular(asked)
        gone = {"status": "error", "message": "gone", "details": {"error": "DeviceNotRegistered"}}
        told = [gone if "gone" in each["to"] else fake_expo.ticket(place) for place, each in enumerate(asked.body)]
        return fake_expo.as_json({"data": told})

    def token(self, fault: Fault = "") -> str:
        """Return the token of a phone that this befalls."""
        return f"ExponentPushToken[{fault or 'ana'}]"

    def hurried(self) -> PushProvider:
        """Return an adapter that waits for a moment alone."""
        return self._make(self._fake.url, HURRIED_MS)

    def nowhere(self) -> PushProvider:
        """Return an adapter for an address where nobody listens."""
        return self._make(self._closed)


class WebhookRig:
    """Webhooks before a server that answers by the address."""

    kind, project = "webhook", "webhook::default"

    def __init__(self, stack: ExitStack, closed_port: int) -> None:
        self._stack, self._closed = stack, f"http://127.0.0.1:{closed_port}"
        self._over = threading.Event()
        self._server = stack.enter_context(FakeServer(self._answer))
        stack.callback(self._over.set)
        self.provider: PushProvider = self._make(self._server.url)

    def _make(self, url: str, timeout_ms: int = 10_000) -> PushProvider:
        named = {name: {"url": f"{url}/{name}", "secret": SECRET} for name in ("billing", *FAULTS)}
        named["refused"]["url"] = f"{self._closed}/refused"
        addresses = read_addresses(json.dumps(named))
        made = Webhook(addresses, timeout_ms=timeout_ms, connect_timeout_ms=2_000, allow_private=True)
        self._stack.callback(made.close)
        return made

    def _answer(self, asked: Asked) -> Answer:
        fault = asked.path.strip("/")
        if fault == "hang":
            self._over.wait(30)
        status = {"gone": 410, "broken": 503, "throttled": 429}.get(fault, 200)
        return Answer(status, b"thank you" * 10_000, RETRY_AFTER if status == 429 else {})

    def token(self, fault: Fault = "") -> str:
        """Return the name of an address that this befalls."""
        return fault or "billing"

    def hurried(self) -> PushProvider:
        """Return an adapter that waits for a moment alone."""
        return self._make(self._server.url, HURRIED_MS)

    def nowhere(self) -> PushProvider:
        """Return an adapter for addresses where nobody listens."""
        return self._make(self._closed)


class NativeRig:
    """A push service before the sandbox, whose faults stand in tokens, and with some where pushes go, too."""

    def __init__(self, kind: str, sandbox: Sandbox, stack: ExitStack, closed_port: int) -> None:
        self.kind, self._sandbox, self._stack = kind, sandbox, stack
        self._trial = push_service.of(kind).trial
        self.project = "::".join(filter(None, (kind, "default", self._trial.part)))
        self._closed = dict.fromkeys(
            (urlsplit(each).netloc for each in sandbox.addresses.values()), f"127.0.0.1:{closed_port}"
        )
        self._moved = False
        sandbox.clear_faults()
        self.provider: PushProvider = self._make()

    def _make(self, **more: Any) -> PushProvider:
        return self._stack.enter_context(native.opened(self.kind, self._sandbox, **more))

    def token(self, fault: Fault = "") -> str:
        """Return the token of a phone that this befalls."""
        words = {"gone": (self._trial.gone,), "broken": (self._trial.broken,), "throttled": self._trial.throttled}
        token = self._sandbox.token(self.kind, "ana", *words.get(fault, (fault,) if fault else ()))
        for before, after in self._closed.items() if self._moved else ():
            token = token.replace(before, after)
        return token

    def hurried(self) -> PushProvider:
        """Return an adapter that waits for a moment alone, once it is connected and has its token."""
        made = self._make(timeout_ms=HURRIED_MS)
        assert made.send([contract.message(self)], self.project).kind == "answered"
        return made

    def nowhere(self) -> PushProvider:
        """Return an adapter for an address where nobody listens, where all phones are from now on, too."""
        self._moved = True
        return self._make(instead=self._closed)


@pytest.fixture(params=["expo", "webhook", *NATIVE])
def rig(request: pytest.FixtureRequest, closed_port: int) -> Iterator[Rig]:
    """Each push service before something that answers it."""
    with ExitStack() as stack:
        match request.param:
            case "expo":
                yield ExpoRig(stack, closed_port)
            case "webhook":
                yield WebhookRig(stack, closed_port)
            case kind:
                yield NativeRig(kind, request.getfixturevalue("services"), stack, closed_port)


@pytest.mark.parametrize("clause", contract.CLAUSES, ids=lambda clause: clause.__name__)
def test_it_fulfils(rig: Rig, clause: Callable[[Rig], None]) -> None:
    """A push service does what the clause says."""
    clause(rig)


# Doubles: one that is sound, and one for each clause that breaks it.


class Written(WrittenMessage):
    """A message that the double wrote."""

    __slots__ = ()

    def json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dict(self), default=str)


class Double:
    """A push service in memory, and the rig of it; sound, until a method of it is replaced."""

    kind = name = "double"
    project = "double::default"
    max_messages, max_receipts = 10, 0
    facts = ProviderFacts("Double")
    listens = True

    @property
    def provider(self) -> PushProvider:
        """Return the push service: itself."""
        return self

    def token(self, fault: Fault = "") -> str:
        """Return the token of a phone that this befalls."""
        return f"double:{fault}"

    def hurried(self) -> PushProvider:
        """Return itself: it waits for nothing."""
        return self

    def nowhere(self) -> PushProvider:
        """Return one that reaches nobody."""
        made = type(self)()
        made.listens = False
        return made

    def refuse_token(self, token: object) -> Ticket | None:
        """Refuse what is none of its tokens."""
        good = isinstance(token, str) and token.startswith("double:")
        return None if good else Ticket("invalid", code="MalformedToken")

    def refuses_any(self, tokens: Sequence[object]) -> bool:
        """Return whether one of these is none of its tokens."""
        return any(self.refuse_token(token) for token in tokens)

    def refuse(self, message: Message) -> Ticket | None:
        """Refuse what is too long or no JSON."""
        try:
            size = len(json.dumps(dict(message), allow_nan=False))
        except (TypeError, ValueError):
            size = 1 << 20
        return self.refuse_token(message.get("to")) or (Ticket("failed", code="TooBig") if size > 4_096 else None)

    def writer(self, draft: Draft, _platform: str | None) -> Callable[[Delivery], WrittenMessage] | None:
        """Write messages as they are."""
        return partial(Written, draft)

    def ticket(self, fault: str) -> Ticket:
        """Return what befalls a message."""
        return {
            "": Ticket("ok", id="an-id"),
            "gone": Ticket("invalid", code="Gone"),
            "broken": Ticket("unclear", code="HTTP_500"),
            "throttled": Ticket("retryable", code="Later", retry_after_ms=PAUSE_MS),
            "hang": Ticket("unclear", code="ReadTimeout"),
            "refused": Ticket("not_sent", code="Refused"),
        }[fault]

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:
        """Answer each message by its token."""
        if len(messages) > self.max_messages:
            raise ValueError("one request holds fewer")
        if not self.listens and messages:
            return Reply("not_sent", code="NoConnection")
        return Reply("answered", tuple(self.ticket(str(each["to"]).partition(":")[2]) for each in messages))

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:
        """Return none."""
        return ReceiptReply("answered")

    def close(self) -> None:
        """Have nothing to close."""


def saying(fault: str, ticket: Ticket) -> dict[str, Any]:
    """Return what breaks a double so that it says this of a fault."""
    sound = Double.ticket
    return {"ticket": lambda self, met: ticket if met == fault else sound(self, met)}


def _reversed(self: Double, messages: Sequence[Message], project: str = "") -> Reply:
    reply = Double.send(self, messages, project)
    return Reply("answered", tuple(reversed(reply.tickets))) if reply.kind == "answered" else reply


def _of_anybody(self: Double, messages: Sequence[Message], project: str = "") -> Reply:
    """Answer every thread with what the first one asked for."""
    self.__dict__.setdefault("first", Double.send(self, messages, project))
    return self.__dict__["first"]  # type: ignore[no-any-return]


BROKEN: dict[str, dict[str, Any]] = {
    "it_names_itself_and_its_limits": {"facts": ProviderFacts("Double", connections=0)},
    "what_is_taken_has_an_id": saying("", Ticket("ok")),
    "each_message_has_its_own_fate": {"send": _reversed},
    "a_gone_token_is_final": saying("gone", Ticket("retryable", code="Gone")),
    "nothing_to_send_asks_nobody": {"send": lambda *_: Reply("not_sent")},
    "more_than_fits_is_our_mistake": {"send": lambda *_: Reply("answered")},
    "a_malformed_token_is_refused_unsent": {"refuse_token": lambda *_: None},
    "what_cannot_be_sent_is_refused": {"refuse": lambda *_: None},
    "of_a_server_error_nobody_knows": saying("broken", Ticket("failed", code="HTTP_500")),
    "throttling_is_told_with_its_pause": saying("throttled", Ticket("retryable", code="Later")),
    "no_connection_means_not_sent": {"send": lambda *_: Reply("unclear", code="NoConnection")},
    "what_was_certainly_not_taken_is_not_sent": saying("refused", Ticket("unclear", code="Refused")),
    "an_answer_that_does_not_come_is_unclear": saying("hang", Ticket("not_sent", code="ReadTimeout")),
    "many_threads_get_their_own_answers": {"send": _of_anybody},
    "it_has_only_the_receipts_it_was_asked_for": {
        "fetch_receipts": lambda *_: ReceiptReply("answered", {"a-ticket": Ticket("ok")})
    },
    "what_it_writes_is_what_the_draft_says": {
        "writer": lambda _self, draft, _platform: partial(Written, draft._replace(fields={}))
    },
}


@pytest.mark.parametrize("clause", contract.CLAUSES, ids=lambda clause: clause.__name__)
def test_a_clause_catches_who_breaks_it(clause: Callable[[Rig], None]) -> None:
    """The sound double fulfils the clause, and the one that is broken there does not."""
    clause(Double())
    broken = type("Broken", (Double,), BROKEN[clause.__name__])()
    with pytest.raises(AssertionError):
        clause(broken)
