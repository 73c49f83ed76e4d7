"""What every push service must do behind the port, clause by clause; each takes a rig and raises if it is broken."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import date
from typing import Any, Literal, Protocol
from uuid import UUID

from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery, Reply, Ticket
from relevo.core.ports import ChecksTokens, ProviderFacts, PushProvider, WritesMessages

Fault = Literal["", "gone", "broken", "throttled", "hang", "refused"]
"""What befalls a message: its token is gone; the server fails; it is to come later, in 7 s; no answer comes; it is
certainly not taken."""
PAUSE_MS = 7_000
_PHONE = UUID("8f0b5c6f-6b9e-4f0e-9d0a-72656c65766f")
_TAKEN = ("sent", "ok")
_LONGEST_ID = 200


class Rig(Protocol):
    """A push service before something that answers it as messages ask for."""

    kind: str
    project: str
    provider: PushProvider

    def token(self, fault: Fault = "") -> str:
        """Return the token of a phone that this befalls."""
        ...

    def hurried(self) -> PushProvider:
        """Return an adapter that waits for a moment alone."""
        ...

    def nowhere(self) -> PushProvider:
        """Return an adapter for an address where nobody listens."""
        ...


def message(rig: Rig, fault: Fault = "", **more: Any) -> Message:
    """Return a message in Expo's words, as a composer makes it."""
    data = {"notificationDeliveryId": 7}
    return {"to": rig.token(fault), "title": "Hola", "body": "¿Qué tal?", "ttl": 60, "data": data} | more


def fates(reply: Reply, count: int) -> list[Ticket]:
    """Return what became of each message: its ticket, or what is said of the whole request."""
    if reply.kind == "answered":
        assert len(reply.tickets) == count, "one ticket per message"
        return list(reply.tickets)
    whole = Ticket("not_sent", code=reply.code, message=reply.message, retry_after_ms=reply.retry_after_ms)
    match reply.kind:
        case "unclear":
            whole = whole._replace(fate="unclear")
        case "throttled":
            whole = whole._replace(pauses="project")
        case "unauthorised":
            whole = whole._replace(fate="credential")
        case "rejected":
            whole = whole._replace(fate="failed")
    return [whole] * count


def send(rig: Rig, *messages: Message, provider: PushProvider | None = None) -> list[Ticket]:
    """Send messages in one request and return what became of each."""
    return fates((provider or rig.provider).send(list(messages), rig.project), len(messages))


# The clauses


def it_names_itself_and_its_limits(rig: Rig) -> None:
    """A name for the provider columns, how much a request holds, and facts that make sense, if it has any."""
    provider = rig.provider
    assert provider.name == rig.kind
    assert 1 <= provider.max_messages <= 100
    assert provider.max_receipts >= 0
    facts = getattr(provider, "facts", None)
    if facts is not None:
        assert isinstance(facts, ProviderFacts)
        assert facts.label
        assert facts.connections >= 1
        assert facts.platforms
        assert min(facts.rate_per_s, facts.ramp_s, facts.least_retry_ms) >= 0
        assert 1_000 <= facts.max_payload_bytes <= 10_000


def what_is_taken_has_an_id(rig: Rig) -> None:
    """A taken message is sent, to be confirmed, or ok where there are no receipts, with an id that can be stored."""
    [ticket] = send(rig, message(rig))
    assert ticket.fate == ("sent" if rig.provider.max_receipts else "ok")
    assert ticket.id is not None
    assert 1 <= len(ticket.id) <= _LONGEST_ID
    assert ticket.id.isascii()
    assert ticket.id.isprintable()


def each_message_has_its_own_fate(rig: Rig) -> None:
    """In a request of several, one whose token is gone is invalid, in its place, and costs no other anything."""
    most = min(3, rig.provider.max_messages)
    asked = [message(rig, "gone"), message(rig), message(rig)][:most]
    gone, *others = send(rig, *asked)
    assert gone.fate in ("invalid", "failed")
    assert gone.code
    assert all(ticket.fate in _TAKEN for ticket in others)


def a_gone_token_is_final(rig: Rig) -> None:
    """A token that the service calls gone is never tried again."""
    [ticket] = send(rig, message(rig, "gone"))
    assert ticket.fate in ("invalid", "failed")


def nothing_to_send_asks_nobody(rig: Rig) -> None:
    """An empty request is answered without one."""
    assert rig.nowhere().send([], rig.project) == Reply("answered")


def more_than_fits_is_our_mistake(rig: Rig) -> None:
    """More messages than one request holds are a mistake of the caller, not an answer."""
    try:
        rig.provider.send([message(rig)] * (rig.provider.max_messages + 1), rig.project)
    except ValueError:
        return
    raise AssertionError("it took more than a request holds")


def a_malformed_token_is_refused_unsent(rig: Rig) -> None:
    """What is no token of its own is a final ticket: by itself, in a message, and among others."""
    for token in (None, 7, "", "nobody knows me", "with\nlines"):
        ticket = rig.provider.refuse_token(token)
        assert ticket is not None
        assert ticket.fate in ("invalid", "failed")
        assert rig.provider.refuse({"to": token, "title": "x"}) == ticket
        if isinstance(rig.provider, ChecksTokens):
            assert rig.provider.refuses_any([rig.token(), token])
    assert rig.provider.refuse_token(rig.token()) is None
    assert rig.provider.refuse(message(rig)) is None
    if isinstance(rig.provider, ChecksTokens):
        assert not rig.provider.refuses_any([rig.token()])


def what_cannot_be_sent_is_refused(rig: Rig) -> None:
    """A message beyond what the service bears, or that is no JSON, is a final ticket that touches no token."""
    for bad in ({"body": "x" * 100_000}, {"data": {"x": float("nan")}}, {"data": {"x": object()}}):
        ticket = rig.provider.refuse(message(rig, **bad))
        assert ticket is not None
        assert ticket.fate == "failed"


def of_a_server_error_nobody_knows(rig: Rig) -> None:
    """A 5xx says neither yes nor no."""
    [ticket] = send(rig, message(rig, "broken"))
    assert ticket.fate == "unclear"
    assert ticket.code


def throttling_is_told_with_its_pause(rig: Rig) -> None:
    """What has to come later was not taken, and says not before when."""
    [ticket] = send(rig, message(rig, "throttled"))
    assert ticket.fate in ("retryable", "not_sent")
    assert ticket.retry_after_ms >= PAUSE_MS


def no_connection_means_not_sent(rig: Rig) -> None:
    """Where nobody listens nothing was sent, and no attempt is spent."""
    nowhere = rig.nowhere()
    assert [ticket.fate for ticket in send(rig, message(rig), provider=nowhere)] == ["not_sent"]


def what_was_certainly_not_taken_is_not_sent(rig: Rig) -> None:
    """A message that the service did not even look at spends no attempt, whatever became of the others."""
    tickets = send(rig, *[message(rig, "refused"), message(rig)][: rig.provider.max_messages])
    assert tickets[0].fate == "not_sent"


def an_answer_that_does_not_come_is_unclear(rig: Rig) -> None:
    """A request whose answer does not come in time ends by itself, and nobody knows whether it was taken."""
    [ticket] = send(rig, message(rig, "hang"), provider=rig.hurried())
    assert ticket.fate == "unclear"


def many_threads_get_their_own_answers(rig: Rig) -> None:
    """It is used by several threads at once, and each gets the answer to its own request."""
    asked: Sequence[Fault] = ("", "gone") * 4
    told: dict[int, str] = {}

    def ask(place: int, fault: Fault) -> None:
        told[place] = send(rig, message(rig, fault))[0].fate

    threads = [threading.Thread(target=ask, args=each) for each in enumerate(asked)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [told.get(place) in _TAKEN for place in range(len(asked))] == [not fault for fault in asked]


def it_has_only_the_receipts_it_was_asked_for(rig: Rig) -> None:
    """Asked for none, or where there are none, it makes none up."""
    asked = [] if rig.provider.max_receipts else ["a-ticket"]
    reply = rig.provider.fetch_receipts(asked, rig.project)
    assert (reply.kind, reply.receipts) == ("answered", {})


def what_it_writes_is_what_the_draft_says(rig: Rig) -> None:
    """A written message is, for whoever looks into it, what its draft says, and it is taken as a plain one is."""
    if not isinstance(rig.provider, WritesMessages):
        return
    draft = Draft({"title": "A title", "body": "A body", "priority": "high"}, {"notificationEventId": 5}, None, 3_600)
    where = rig.provider.name, rig.project, "urgent", False, "pending", 0, 0, None
    delivery = Delivery(date(2026, 11, 17), 7, 5, _PHONE, "order", *where, token=rig.token(), seconds_left=60.5)
    for platform in ("ios", "android", None):
        write = rig.provider.writer(draft, platform)
        assert write is not None
        written = write(delivery)
        assert isinstance(written, WrittenMessage)
        assert dict(written) == draft.message(delivery)
        assert "A title" in json.dumps(json.loads(written.json())), "it is JSON, and says what is to be said"
        assert send(rig, written)[0].fate in _TAKEN
        both = [written, message(rig)][: rig.provider.max_messages]
        assert all(ticket.fate in _TAKEN for ticket in send(rig, *both))


CLAUSES = (
    it_names_itself_and_its_limits,
    what_is_taken_has_an_id,
    each_message_has_its_own_fate,
    a_gone_token_is_final,
    nothing_to_send_asks_nobody,
    more_than_fits_is_our_mistake,
    a_malformed_token_is_refused_unsent,
    what_cannot_be_sent_is_refused,
    of_a_server_error_nobody_knows,
    throttling_is_told_with_its_pause,
    no_connection_means_not_sent,
    what_was_certainly_not_taken_is_not_sent,
    an_answer_that_does_not_come_is_unclear,
    many_threads_get_their_own_answers,
    it_has_only_the_receipts_it_was_asked_for,
    what_it_writes_is_what_the_draft_says,
)
