"""Web Push: who may be pushed to, what is sent, that only the browser can read it, and what the answers mean."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from relevo.core.messages import Draft
from relevo.core.model import Content, Delivery, Reply, Ticket
from relevo.delivery.composing import rendering
from relevo.providers.lookups import Lookups
from relevo.providers.message_parts import topic
from relevo.providers.push_projects import PushProjects
from relevo.providers.webpush import encryption
from relevo.providers.webpush import message as webpush_message
from relevo.providers.webpush.credentials import KEPT_S, make_pair
from relevo.providers.webpush.provider import WebPush, _side_by_side
from support.browser_keys import SUBJECT, Browser, base64url, from_base64url
from support.fake_http_server import Answer, FakeServer
from support.forward_proxy import CERTIFICATE
from support.scripted_http2 import Asked, Peer, ScriptedHttp2, Settings

INSTALLATION = UUID("00000000-0000-4000-8000-000000000007")


class Service:
    """A push service that answers each path as a test says, and keeps what it got."""

    def __init__(self, stack: ExitStack, answers: Mapping[str, tuple[int, dict[str, str], bytes]]) -> None:
        self.answers = dict(answers)
        self.server = stack.enter_context(ScriptedHttp2(self._serve))
        self.place = self.server.origin.removeprefix("https://")

    def _serve(self, peer: Peer) -> None:
        while True:
            for asked in list(peer.asked.values()):
                if asked.is_whole and not asked.is_answered:
                    status, headers, body = self.answers.get(
                        asked.path, (201, {"location": f"/m/{asked.path[1:]}"}, b"")
                    )
                    peer.answer(asked, status, body, **headers)
            peer.read()

    @property
    def asked(self) -> list[Asked]:
        """What it got, in order."""
        return [asked for peer in self.server.peers for asked in peer.asked.values()]

    def browser(self, path: str) -> Browser:
        """Subscribe."""
        return Browser(f"{self.server.origin}{path}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test leaves open."""
    with ExitStack() as opened:
        yield opened


Made = Callable[..., WebPush]


@pytest.fixture
def make(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Make providers of a project `shop`, for whom push.example is this machine."""
    monkeypatch.setattr(Lookups, "addresses", lambda *_: ["127.0.0.1"])

    pair = make_pair().private_pem

    def start(
        *hosts: str, subject: str = SUBJECT, private_key: str = pair, page: str | None = None, **how: Any
    ) -> WebPush:
        entry = {"private_key": private_key, "subject": subject, "hosts": hosts, "page": page}
        projects = PushProjects(None, json.dumps({"shop": {"webpush": entry}}))
        usual = {"timeout_ms": 10_000, "connect_timeout_ms": 5_000, "ca_file": str(CERTIFICATE)}
        made = WebPush(projects, **usual | how)
        stack.callback(made.close)
        return made

    return start


def message(browser: Browser, **more: Any) -> dict[str, Any]:
    """Return a push as a composer may make it."""
    return {"to": browser.token, "title": "Hola", "body": "¿Qué tal?", "ttl": 60} | more


def send(provider: WebPush, *messages: Mapping[str, Any]) -> tuple[Ticket, ...]:
    """Send and return the tickets."""
    reply = provider.send(list(messages), "webpush::shop::push.example")
    assert reply.kind == "answered", reply
    return tuple(reply.tickets)


def test_a_push_as_the_browser_gets_it(stack: ExitStack, make: Made) -> None:
    """What the draft says reaches the service worker, with the delivery's names; the headers say how it travels."""
    service = Service(stack, {})
    provider, browser = make(service.place), service.browser("/one")
    fields = {
        "title": "Hola",
        "body": "¿Qué tal?",
        "tag": "relevo-9",
        "badge": 3,
        "icon": "/i.png",
        "priority": "high",
        "sound": "default",
        "richContent": {"image": "https://example.com/i.jpg"},
    }
    written = provider.writer(Draft(fields, {"order": 17}, None, 600), "web")
    assert written is not None
    [ticket] = send(provider, written(delivery(browser.token)))
    assert ticket == Ticket("ok", id="one")
    [asked] = service.asked
    assert browser.read(bytes(asked.body)) == {
        "title": "Hola",
        "body": "¿Qué tal?",
        "tag": "relevo-9",
        "badge": 3,
        "icon": "/i.png",
        "image": "https://example.com/i.jpg",
        "data": {
            "order": 17,
            "pushProvider": "webpush",
            "notificationDeliveryId": 7,
            "installationId": str(INSTALLATION),
        },
    }
    names = ("ttl", "urgency", "topic", "content-encoding")
    assert [asked.headers.get(name) for name in names] == ["600", "high", topic("relevo-9"), "aes128gcm"]
    assert len(topic("relevo-9")) == 32


def delivery(token: str) -> Delivery:
    """Return a delivery to a browser."""
    return Delivery(
        event_day=date(2026, 11, 17),
        id=7,
        notification_event_id=9,
        installation_id=INSTALLATION,
        event_type="order",
        provider="webpush",
        project="webpush::shop::push.example",
        lane="urgent",
        at_most_once=False,
        status="waiting",
        attempt_count=0,
        lapse_count=0,
        deadline_at=None,
        token=token,
        platform="web",
    )


def test_a_composed_push_is_the_same(stack: ExitStack, make: Made) -> None:
    """A message that a composer made, a plain mapping, says the same as one that was written once per event."""
    service = Service(stack, {})
    provider, browser = make(service.place), service.browser("/one")
    data = {"notificationDeliveryId": 7, "installationId": "i", "pushProvider": "webpush", "order": 17}
    send(provider, message(browser, data=data, collapseId="ñ" * 64), message(browser))
    first, second = (browser.read(bytes(asked.body)) for asked in service.asked)
    assert first == {"title": "Hola", "body": "¿Qué tal?", "tag": "ñ" * 64, "data": data}
    assert second == {"title": "Hola", "body": "¿Qué tal?", "data": {"pushProvider": "webpush"}}
    assert [asked.headers.get("topic") for asked in service.asked] == [topic("ñ" * 64), None]


NAMES = {"pushProvider": "webpush", "notificationDeliveryId": 7, "installationId": str(INSTALLATION)}


@pytest.mark.parametrize(
    ("link", "navigate"),
    [
        (None, "https://shop.example/app/"),
        ("orders/17", "https://shop.example/app/orders/17"),
        ("/orders/17", "https://shop.example/orders/17"),
        ("https://other.example/x", "https://other.example/x"),
        ("shop://orders/17", "https://shop.example/app/"),
        ("javascript:alert(1)", "https://shop.example/app/"),
        ("http://[", "https://shop.example/app/"),
    ],
)
def test_with_a_page_a_push_is_declarative(stack: ExitStack, make: Made, link: str | None, navigate: str) -> None:
    """A browser without the page's service worker can show it; a service worker gets all it needs to show it itself."""
    service = Service(stack, {})
    provider, browser = make(service.place, page="https://shop.example/app/"), service.browser("/one")
    action = {"id": "track", "title": "Track it", "link": "/orders/17/track"}
    push: dict[str, Any] = {
        "badge": 3,
        "actions": [action, {"id": "later", "title": "Later"}],
        "web": {"badgeIcon": "/b.png", "requireInteraction": True},
    }
    content = Content(9, "Hola", "", {"big": 10**30}, push | ({} if link is None else {"link": link}))
    draft = rendering.draft(content, "bulk", ios=False, default_ttl_s=600, provider="webpush", platform="web")
    written = provider.writer(draft, "web")
    assert written is not None
    [ticket] = send(provider, written(delivery(browser.token)))
    assert ticket.fate == "ok"
    [asked] = service.asked
    got = browser.read(bytes(asked.body))
    notification = got.pop("notification")
    assert got == {"web_push": 8030, "mutable": True, "app_badge": 3}
    assert notification == {
        "title": "Hola",
        "tag": "relevo-9",
        "badge": "/b.png",
        "requireInteraction": True,
        "navigate": navigate,
        "actions": [
            {"action": "track", "title": "Track it", "navigate": "https://shop.example/orders/17/track"},
            {"action": "later", "title": "Later", "navigate": navigate},
        ],
        "data": {"big": 10**30, **({} if link is None else {"url": link}), "notificationEventId": 9, **NAMES},
    }


def test_a_push_without_room_for_the_difference_is_not_declarative(stack: ExitStack, make: Made) -> None:
    """What fits as it was is sent as it was, to the byte that a push service takes."""
    service = Service(stack, {})
    provider, browser = make(service.place, page="https://shop.example/"), service.browser("/one")
    empty = len(webpush_message.posted(message(browser, data={"x": ""})).body)
    full = message(browser, data={"x": "y" * (encryption.MAX_PLAIN_BYTES - empty)})
    assert provider.refuse(full) is None
    send(provider, full, message(browser))
    first, second = (browser.read(bytes(asked.body)) for asked in service.asked)
    assert ("web_push" in first, "web_push" in second) == (False, True)


def test_the_sender_proves_who_it_is(stack: ExitStack, make: Made) -> None:
    """The VAPID token is signed by the project's key for this push service alone, and kept for twelve hours."""
    service = Service(stack, {})
    now = [1_800_014_400.0]
    provider, browser = make(service.place, clock=lambda: now[0]), service.browser("/one")
    for passed in (0, KEPT_S - 1, KEPT_S):
        now[0] = 1_800_014_400.0 + passed
        send(provider, message(browser))
    first, second, third = (asked.headers["authorization"] for asked in service.asked)
    assert first == second != third
    claims = verified(first)
    assert (claims["aud"], claims["sub"]) == (service.server.origin, SUBJECT)
    assert KEPT_S < claims["exp"] - 1_800_014_400 <= 24 * 3_600


def verified(header: str) -> dict[str, Any]:
    """Return the claims of a VAPID header whose signature is good."""
    scheme, token, key = header.replace(",", "").split(" ")
    head, claims, signature = token.removeprefix("t=").split(".")
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64url(key.removeprefix("k=")))
    raw = from_base64url(signature)
    numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    public.verify(encode_dss_signature(*numbers), f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    assert (scheme, len(raw), json.loads(from_base64url(head))["alg"]) == ("vapid", 64, "ES256")
    return dict(json.loads(from_base64url(claims)))


ANSWERS = {
    "created": (201, {}, b"", Ticket("ok")),
    "accepted": (202, {"location": "https://x/m/17"}, b"", Ticket("ok", id="17")),
    "unknown": (404, {}, b"", Ticket("invalid", code="SubscriptionGone")),
    "gone": (
        410,
        {},
        b'{"errno":106,"message":"gone"}',
        Ticket("invalid", code="SubscriptionGone", message="gone (106)"),
    ),
    "too big": (413, {}, b"", Ticket("failed", code="HTTP_413")),
    "Apple's reason": (403, {}, b'{"reason":"BadJwtToken"}', Ticket("credential", code="BadJwtToken", alert=True)),
    "no token": (401, {}, b"who?", Ticket("credential", code="HTTP_401", message="who?", alert=True)),
    "bad": (400, {}, b"", Ticket("credential", code="HTTP_400", alert=True)),
    "throttled": (
        429,
        {"retry_after": "7"},
        b"",
        Ticket("retryable", code="HTTP_429", retry_after_ms=7_000, pauses="phone"),
    ),
    "throttled by Windows": (
        406,
        {},
        b"",
        Ticket("retryable", code="HTTP_406", retry_after_ms=60_000, pauses="phone"),
    ),
    "unclear": (503, {"retry_after": "9"}, b"", Ticket("unclear", code="HTTP_503", retry_after_ms=9_000)),
    "elsewhere": (307, {"location": "https://10.0.0.1/"}, b"", Ticket("failed", code="HTTP_307", alert=True)),
    "moved away": (301, {"location": "https://10.0.0.1/"}, b"", Ticket("failed", code="HTTP_301", alert=True)),
    "moved nowhere": (301, {}, b"", Ticket("failed", code="HTTP_301", alert=True)),
    "odd": (418, {}, b"", Ticket("failed", code="HTTP_418", alert=True)),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_an_answer_means(stack: ExitStack, make: Made, case: str) -> None:
    """Each status of a push service has one meaning."""
    status, headers, body, meant = ANSWERS[case]
    service = Service(stack, {"/x": (status, headers, body)})
    [ticket] = send(make(service.place), message(service.browser("/x")))
    assert ticket._replace(id=meant.id or ticket.id, message=meant.message or ticket.message) == meant._replace(
        id=meant.id or ticket.id, message=meant.message or ticket.message
    )
    assert (ticket.id is not None) == (meant.fate == "ok")


def test_a_browser_that_is_throttled_alone_pauses_alone(stack: ExitStack, make: Made) -> None:
    """While a push service takes others, a 429 is one browser's: nobody else waits for it."""
    service = Service(stack, {"/busy": (429, {}, b"")})
    taken, busy = send(make(service.place), message(service.browser("/a")), message(service.browser("/busy")))
    assert (taken.fate, busy.fate, busy.pauses, busy.retry_after_ms) == ("ok", "retryable", "phone", 60_000)


def test_a_push_service_that_throttles_everybody_rests(stack: ExitStack, make: Made) -> None:
    """Five browsers throttled at once, and none taken, are the sender's pace: its push service rests, and nothing is spent."""
    service = Service(stack, {f"/{number}": (429, {"retry_after": "7"}, b"") for number in range(5)})
    reply = make(service.place).send([message(service.browser(f"/{number}")) for number in range(5)], "webpush::shop")
    assert (reply.kind, [ticket.fate for ticket in reply.tickets]) == ("answered", ["not_sent"] * 5)
    assert {(ticket.pauses, ticket.retry_after_ms) for ticket in reply.tickets} == {("project", 7_000)}


def test_one_browser_with_many_messages_is_one_browser(stack: ExitStack, make: Made) -> None:
    """Five messages to one browser that are throttled tell nothing of the sender's pace: this browser waits alone."""
    service = Service(stack, {"/busy": (429, {}, b"")})
    tickets = send(make(service.place), *(message(service.browser("/busy")) for _ in range(5)))
    assert {(ticket.fate, ticket.pauses) for ticket in tickets} == {("retryable", "phone")}


def test_a_subscription_that_moved_within_its_push_service(stack: ExitStack, make: Made) -> None:
    """A permanent move within the same push service is followed, once, with the very same message."""
    service = Service(stack, {"/old": (301, {"location": "/new"}, b""), "/a": (301, {"location": "/old"}, b"")})
    provider, browser = make(service.place), service.browser("/old")
    [ticket] = send(provider, message(browser))
    assert ticket == Ticket("ok", id="new")
    old, new = service.asked
    assert old.body == new.body
    [twice] = send(provider, message(service.browser("/a")))
    assert (twice.fate, twice.code) == ("failed", "HTTP_301")


def test_some_subscriptions_moved_within_their_push_service(stack: ExitStack, make: Made) -> None:
    """Of several messages to one push service those are sent once more that moved, and each ticket is its own message's."""
    moved = {f"/{name}": (301, {"location": f"/new-{name}"}, b"") for name in "bd"}
    service = Service(stack, {"/c": (410, {}, b""), "/new-b": (410, {}, b""), **moved})
    tickets = send(make(service.place), *(message(service.browser(f"/{name}")) for name in "abcd"))
    found = [(ticket.fate, ticket.id) for ticket in tickets]
    assert found == [("ok", "a"), ("invalid", None), ("invalid", None), ("ok", "new-d")]


def test_several_push_services_in_one_call(stack: ExitStack, make: Made) -> None:
    """Messages are sorted by push service; the trouble of one is not the others'; tickets keep their order."""
    one, two = Service(stack, {}), Service(stack, {})
    nobody = "push.example:1"
    provider = make(one.place, two.place, nobody)
    browsers = [one.browser("/a"), two.browser("/b"), Browser(f"https://{nobody}/c"), one.browser("/d")]
    tickets = send(provider, *map(message, browsers))
    assert [ticket.id for ticket in tickets] == ["a", "b", None, "d"]
    assert (tickets[2].fate, tickets[2].code) == ("not_sent", "NoConnection")
    assert [len(one.asked), len(two.asked)] == [2, 1]


def test_nobody_answers(make: Made) -> None:
    """If no push service could be reached, nothing of the request was sent."""
    reply = make("push.example:1").send([message(Browser("https://push.example:1/c"))], "webpush::shop")
    assert (reply.kind, reply.code) == ("not_sent", "NoConnection")


def test_a_host_that_a_phone_made_up_is_its_own_trouble(make: Made) -> None:
    """Below a known domain a host that never answered is tried again as its phone's own, and one that did is an outage.

    All hosts of a domain share a breaker: by one made-up host a phone would stop the browsers of everybody else.
    """
    with ExitStack() as until_it_ends:
        service = Service(until_it_ends, {})
        provider = make(f".example:{service.place.rpartition(':')[2]}", ".example:1", allow_private=True)
        made_up = message(Browser("https://made-up.example:1/c"))
        [alone] = send(provider, made_up)
        assert (alone.fate, alone.code) == ("retryable", "NoConnection")
        assert [each.fate for each in send(provider, message(service.browser("/a")), made_up)] == ["ok", "retryable"]
    reply = provider.send([message(service.browser("/a"))], "webpush::shop")
    assert (reply.kind, reply.code) == ("not_sent", "NoConnection")


def test_refused_and_lost_streams(stack: ExitStack, make: Made) -> None:
    """A refused stream was not sent; one without an answer when the connection ends is unclear."""

    def cutting(peer: Peer) -> None:
        first, second, _ = peer.wait_for(3)
        peer.answer(first, 201)
        peer.reset(second, 7)
        peer.hang_up()

    server = stack.enter_context(ScriptedHttp2(cutting, settings={Settings.MAX_CONCURRENT_STREAMS: 3}))
    browsers = [Browser(f"{server.origin}/{number}") for number in range(3)]
    tickets = send(make(server.origin.removeprefix("https://")), *map(message, browsers))
    assert [ticket.fate for ticket in tickets] == ["ok", "not_sent", "unclear"]


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example/x",
        "https://push.example/x",
        "https://fcm.googleapis.com:8443/x",
        "https://notfcm.googleapis.com/x",
        "https://notify.windows.com.evil.example/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
    ],
)
def test_only_known_push_services_are_sent_to(make: Made, endpoint: str) -> None:
    """An endpoint is an address that a stranger chose: an unknown host gets nothing, and the operator is told how."""
    [ticket] = send(make("push.example:7"), message(Browser(endpoint)))
    assert (ticket.fate, ticket.code, ticket.alert) == ("failed", "HostNotAllowed", True)
    assert "WEBPUSH_HOSTS" in str(ticket.message)


def test_private_addresses_are_refused(stack: ExitStack, make: Made) -> None:
    """A known host that leads into a private network gets nothing; one that the operator named itself may."""
    service = Service(stack, {})
    port = service.place.rpartition(":")[2]
    [refused] = send(make(f".example:{port}"), message(service.browser("/x")))
    assert (refused.fate, refused.code, refused.alert) == ("failed", "RefusedAddress", True)
    assert service.asked == []
    [allowed] = send(make(f".example:{port}", allow_private=True), message(service.browser("/x")))
    assert allowed.fate == "ok"


@pytest.mark.parametrize(
    "token",
    [
        None,
        7,
        "",
        "ExponentPushToken[ana]",
        "https://fcm.googleapis.com/x",
        "{}",
        "[]",
        '{"endpoint":"https://fcm.googleapis.com/x"}',
        '{"endpoint":"https://fcm.googleapis.com/x","keys":{"p256dh":"AAAA","auth":"AAAA"}}',
        Browser("http://fcm.googleapis.com/x").token,
        Browser("https://user@fcm.googleapis.com/x").token,
        Browser("https://fcm.googleapis.com:99999/x").token,
        Browser("https:///x").token,
        Browser("https://fcm.googleapis.com/ñ").token,
        Browser("https://fcm.googleapis.com/x").token + " " * 4_096,
    ],
)
def test_what_is_no_subscription_is_refused(make: Made, token: object) -> None:
    """A malformed subscription is a final ticket, by itself, in a message, and if it is sent all the same."""
    provider = make()
    ticket = provider.refuse_token(token)
    assert ticket is not None
    assert (ticket.fate, ticket.code) == ("invalid", "MalformedToken")
    assert provider.refuse({"to": token, "title": "x"}) == ticket
    assert send(provider, {"to": token, "title": "x"})[0].code == "MalformedToken"


def test_a_key_that_is_on_no_curve(make: Made) -> None:
    """Keys that look right and are none are the subscription's fault, not the request's."""
    keys = {"p256dh": base64url(b"\x04" + b"\x01" * 64), "auth": base64url(b"a" * 16)}
    token = json.dumps({"endpoint": "https://fcm.googleapis.com/x", "keys": keys})
    assert send(make(), {"to": token, "title": "x"})[0].fate == "invalid"


def test_what_cannot_be_shown_or_is_too_long_is_refused(make: Made) -> None:
    """No silent pushes, none over 3,993 bytes, none that is no JSON; a writer leaves those to be checked one by one."""
    provider, browser = make(), Browser("https://fcm.googleapis.com/x")
    assert provider.refuse(message(browser)) is None
    refused = [
        provider.refuse(message(browser, title=" ", body="")),
        provider.refuse(message(browser, body="ñ" * 2_000)),
        provider.refuse(message(browser, data={"x": object()})),
        provider.refuse(message(browser, data={"x": float("nan")})),
    ]
    codes = ["NothingToShow", "MessageTooBig", "MalformedMessage", "MalformedMessage"]
    assert [ticket and ticket.code for ticket in refused] == codes
    for fields, data in (({}, {}), ({"title": "x" * 4_000}, {}), ({"title": "x"}, {"x": object()})):
        assert provider.writer(Draft(fields, data, None), "web") is None


def test_a_project_without_credentials(make: Made) -> None:
    """A project that the file does not name is unauthorised, and said by name."""
    reply = make().send([message(Browser("https://fcm.googleapis.com/x"))], "webpush::other::fcm.googleapis.com")
    assert (reply.kind, reply.code) == ("unauthorised", "NoCredential")
    assert "other" in str(reply.message)
    assert make().send([], "webpush::shop") == Reply("answered")


def test_a_push_service_without_http2(stack: ExitStack, make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push service that negotiates no HTTP/2 gets the same by HTTP/1.1, one after the other."""
    server = stack.enter_context(FakeServer(lambda _asked: Answer(201, b"", {"Location": "/m/1"}), tls=CERTIFICATE))
    place = server.url.removeprefix("https://").replace("127.0.0.1", "push.example")
    browsers = [Browser(f"https://{place}/{number}") for number in range(3)]
    tickets = send(make(place), *map(message, browsers))
    assert [ticket.fate for ticket in tickets] == ["ok"] * 3
    for browser, asked in zip(browsers, server.asked, strict=True):
        assert browser.read(asked.body)["title"] == "Hola"


def test_push_services_are_called_side_by_side() -> None:
    """25 push services of one request are spoken to at once, and their outcomes keep their order."""
    all_called = threading.Barrier(25)

    def post(place: str) -> list[Any]:
        all_called.wait(20)
        return [place]

    places = [f"push{number}.example" for number in range(25)]
    assert [each for [each] in _side_by_side(post, places)] == places
