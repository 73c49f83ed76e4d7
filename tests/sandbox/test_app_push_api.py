"""The push API answers as Expo does: tickets, receipts, limits, refusals."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import exponent_server_sdk
import pytest
import requests

from relevo.sandbox import Sandbox
from relevo.sandbox.projects import Projects
from support.processes import PATIENCE_S, eventually
from support.sandbox_client import Client

ANA, EVA = "ExponentPushToken[ana]", "ExponentPushToken[eva]"


def code_of(response: requests.Response) -> tuple[int, str]:
    """Return the status and the code of a refused request."""
    (error,) = response.json()["errors"]
    assert error["message"]
    return response.status_code, error["code"]


def gzipped(client: Any, body: bytes, path: str = "send") -> requests.Response:
    """Send a body that says it is gzip."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    return requests.post(f"{client.url}/--/api/v2/push/{path}", data=body, headers=headers, timeout=PATIENCE_S)


def test_an_array_is_answered_with_an_array(client: Any) -> None:
    """Each message gets a ticket with an id of its own, shaped like a UUID, in the order of the messages."""
    tickets = client.tickets(ANA, EVA, ANA)
    assert [ticket["status"] for ticket in tickets] == ["ok"] * 3
    assert len({UUID(ticket["id"]) for ticket in tickets}) == 3


def test_a_lone_object_is_answered_with_an_object(client: Any) -> None:
    """A message outside an array gets its ticket outside an array, good or bad."""
    assert client.send({"to": ANA}).json()["data"]["status"] == "ok"
    assert client.send({"to": "ExponentPushToken[x!DeviceNotRegistered]"}).json()["data"]["status"] == "error"


def test_one_ticket_per_recipient(sandbox: Sandbox, client: Any) -> None:
    """A message to a list of tokens gets a ticket for each of them, and each phone gets the message."""
    assert len(client.send([{"to": [ANA, EVA], "title": "a"}, {"to": EVA, "title": "b"}]).json()["data"]) == 3
    assert len(client.send({"to": [ANA, EVA], "title": "c"}).json()["data"]) == 2
    assert [message["title"] for message in sandbox.received(EVA)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "token", [ANA, "ExpoPushToken[ana]", "8c56eba5-af57-4d9f-b0db-443d6845b800", "ExponentPushToken[ñandú_-.x]"]
)
def test_tokens_of_every_shape(sandbox: Sandbox, client: Any, token: str) -> None:
    """All three shapes of token are taken."""
    assert client.tickets(token)[0]["status"] == "ok"
    assert sandbox.phones() == {token: {"received": 1, "distinct": 1}}


@pytest.mark.parametrize(
    "message",
    [
        {"title": "x"},
        {"to": None},
        {"to": 7},
        {"to": []},
        {"to": [ANA, "nobody"]},
        {"to": "fGx2:APA91bHun4MxP5egoKMwt2KZFBaFUH-1RYqx"},
        {"to": "ExponentPushTokenGARBAGE"},
        {"to": "ExponentPushToken[]"},
        {"to": "ExponentPushToken[a b]"},
        {"to": "ExponentPushToken[ana!no-such-word]"},
        {"to": ANA, "title": 7},
        {"to": ANA, "data": "text"},
        {"to": ANA, "data": []},
        {"to": ANA, "badge": True},
        {"to": ANA, "badge": 3.5},
        {"to": ANA, "ttl": "60"},
        {"to": ANA, "priority": "urgent"},
        {"to": ANA, "interruptionLevel": "loud"},
        {"to": ANA, "mutableContent": 1},
        {"to": ANA, "sound": 1},
        "text",
        None,
    ],
    ids=json.dumps,
)
def test_one_bad_message_fails_the_request(sandbox: Sandbox, client: Any, message: Any) -> None:
    """A message that is not valid is a VALIDATION_ERROR for all, and nobody gets anything."""
    assert code_of(client.send([{"to": EVA}, message])) == (400, "VALIDATION_ERROR")
    assert sandbox.totals()["delivered"] == 0


def test_every_documented_field_is_taken(client: Any) -> None:
    """All message fields pass, null included, and fields nobody knows do no harm."""
    fields = {
        **dict.fromkeys(("title", "subtitle", "body", "channelId", "categoryId", "collapseId", "icon", "tag"), "x"),
        **dict.fromkeys(("threadId", "targetContentId", "filterCriteria"), "x"),
        "data": {"a": [1]},
        "ttl": 60,
        "expiration": 1.5,
        "priority": "high",
        "badge": 3.0,
        "sound": None,
        "interruptionLevel": "time-sensitive",
        "relevanceScore": 0.5,
        "mutableContent": True,
        "contentAvailable": False,
        "richContent": {"image": "x"},
        "somethingNew": [1],
    }
    assert client.tickets(ANA, **fields)[0]["status"] == "ok"
    assert client.tickets(ANA, sound={"name": "default", "critical": True})[0]["status"] == "ok"


@pytest.mark.parametrize("body", [b"", b"{", b"[NaN]", b"\xff\xfe", b"[" * 100_000, b"[" + b"9" * 5000 + b"]"])
def test_a_body_that_is_no_json(client: Any, body: bytes) -> None:
    """What is no JSON is refused in JSON, however it is broken."""
    response = requests.post(f"{client.url}/--/api/v2/push/send", data=body, timeout=PATIENCE_S)
    assert code_of(response) in {(400, "BAD_REQUEST"), (400, "VALIDATION_ERROR")}


@pytest.mark.parametrize("body", [[], 7, "x", None])
def test_a_body_without_messages(client: Any, body: Any) -> None:
    """JSON that holds no message is a VALIDATION_ERROR."""
    response = requests.post(f"{client.url}/--/api/v2/push/send", data=json.dumps(body), timeout=PATIENCE_S)
    assert code_of(response) == (400, "VALIDATION_ERROR")


def test_at_most_100_recipients(sandbox: Sandbox, client: Any) -> None:
    """100 recipients fit into a request; 101 do not, whether as messages or within them, and then none is served."""
    tokens = [f"ExponentPushToken[{number}]" for number in range(101)]
    assert len(client.tickets(*tokens[:100])) == 100
    assert code_of(client.push(*tokens)) == (400, "PUSH_TOO_MANY_NOTIFICATIONS")
    assert code_of(client.send([{"to": tokens[:60]}, {"to": tokens[60:]}])) == (400, "PUSH_TOO_MANY_NOTIFICATIONS")
    assert sandbox.totals()["delivered"] == 100


def test_at_most_1000_receipts(client: Any) -> None:
    """1000 ids fit into a question, 1001 do not."""
    assert client.receipts([str(uuid4()) for _ in range(1000)]).json() == {"data": {}}
    assert code_of(client.receipts(["x"] * 1001)) == (400, "PUSH_TOO_MANY_RECEIPTS")


@pytest.mark.parametrize("ids", [None, "x", [1], {}])
def test_ids_must_be_strings(client: Any, ids: Any) -> None:
    """A question for receipts that is not valid is a VALIDATION_ERROR."""
    assert code_of(client.receipts(ids)) == (400, "VALIDATION_ERROR")


def test_one_project_per_request(sandbox: Sandbox, client: Any) -> None:
    """Mixed projects are refused with a map from project to tokens; each project alone is served."""
    other = "ExponentPushToken[luz!project=@acme/other]"
    response = client.push(ANA, other, EVA)
    assert code_of(response) == (400, "PUSH_TOO_MANY_EXPERIENCE_IDS")
    assert response.json()["errors"][0]["details"] == {"@relevo/app": [ANA, EVA], "@acme/other": [other]}
    assert sandbox.totals()["delivered"] == 0
    assert client.tickets(other)[0]["status"] == "ok"


def test_a_payload_of_at_most_4096_bytes(sandbox: Sandbox, client: Any) -> None:
    """Beyond 4096 bytes of payload, counted in UTF-8, a receipt says MessageTooBig; its neighbours are delivered."""
    room = 4096 - len('{"title":"Hola","body":""}')
    tickets = [client.tickets(EVA, body=text)[0] for text in ("x" * room, "x" * (room + 1), "ñ" * (room // 2))]
    assert [ticket["status"] for ticket in tickets] == ["ok", "ok", "ok"]
    receipts = [client.receipts([ticket["id"]]).json()["data"][ticket["id"]] for ticket in tickets]
    assert [receipt.get("details") for receipt in receipts] == [None, {"error": "MessageTooBig"}, None]
    mixed = client.send([{"to": ANA, "title": "a"}, {"to": EVA, "body": "x" * 5000}, {"to": [ANA, EVA]}]).json()["data"]
    assert [ticket["status"] for ticket in mixed] == ["ok", "ok", "ok", "ok"]
    assert sandbox.phones()[ANA]["received"] == 2
    assert sandbox.phones()[EVA]["received"] == 3, "the two that fit, and the last one"


@pytest.mark.parametrize(
    "big",
    [
        {"data": {"text": 'a "to" b' * 300, "to": ["x" * 1500]}, "to": EVA, "body": "y" * 1000},
        {"body": "y" * 4100, "to": EVA},
        {"to": EVA, "body": "y" * 4100},
        {"body": "y" * 2050, "to": EVA, "title": "z" * 2050},
    ],
    ids=["quotes", "before", "behind", "around"],
)
def test_too_big_is_seen_among_many(client: Any, big: dict[str, Any]) -> None:
    """In a full request just the one message too big is found, wherever its bytes stand and whatever it quotes."""
    messages: list[dict[str, Any]] = [{"title": f"n {number}", "to": ANA} for number in range(100)]
    messages[37] = big
    tickets = client.send(messages).json()["data"]
    receipts = client.receipts([ticket["id"] for ticket in tickets]).json()["data"]
    assert [n for n, ticket in enumerate(tickets) if receipts[ticket["id"]]["status"] == "error"] == [37]


def test_gzip_bodies(sandbox: Sandbox, client: Any) -> None:
    """Bodies may be gzip; what is no gzip, or only half of one, is refused."""
    packed = gzip.compress(json.dumps([{"to": ANA, "title": "packed"}]).encode())
    assert gzipped(client, packed).json()["data"][0]["status"] == "ok"
    assert gzipped(client, gzip.compress(b'{"ids":[]}'), "getReceipts").json() == {"data": {}}
    assert sandbox.received(ANA)[0]["title"] == "packed"
    for broken in (b"no gzip", packed[:-9], packed + b"more"):
        assert code_of(gzipped(client, broken)) == (400, "BAD_REQUEST")
    response = client.send([{"to": ANA}], headers={"content-encoding": "br"})
    assert code_of(response) == (415, "UNSUPPORTED_ENCODING")


def test_a_gzip_bomb_is_bounded(client: Any) -> None:
    """A small body that would become 50 MB is refused before it does."""
    bomb = gzip.compress(b"\0" * 50_000_000, compresslevel=1)
    tracemalloc.start()
    try:
        assert code_of(gzipped(client, bomb)) == (413, "PAYLOAD_TOO_LARGE")
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


def test_a_body_too_large(client: Any) -> None:
    """A body beyond the limit is refused with 413, and its sender gets to hear it."""
    response = requests.post(f"{client.url}/--/api/v2/push/send", data=b"x" * 6_000_000, timeout=PATIENCE_S)
    assert code_of(response) == (413, "PAYLOAD_TOO_LARGE")


def test_only_post(client: Any) -> None:
    """The push API takes POST; elsewhere there is nothing."""
    assert code_of(client.call("GET", "/--/api/v2/push/send")) == (405, "METHOD_NOT_ALLOWED")
    assert code_of(client.call("POST", "/--/api/v2/push/nothing")) == (404, "NOT_FOUND")


def test_receipts_appear_later_and_vanish_after_a_day(sandbox: Sandbox, client: Any) -> None:
    """A receipt is absent at first, there after the delay, and gone after 24 h of sandbox time."""
    sandbox.set(receipt_delay_s=900)
    ids = [ticket["id"] for ticket in client.tickets(ANA, EVA)]
    assert client.receipts(ids).json() == {"data": {}}
    sandbox.set(time_scale=10_000)
    time.sleep(0.15)
    sandbox.set(time_scale=1)
    assert client.receipts([*ids, str(uuid4()), "x"]).json() == {"data": {key: {"status": "ok"} for key in ids}}
    sandbox.set(time_scale=1_000_000)
    time.sleep(0.15)
    sandbox.set(time_scale=1)
    assert client.receipts(ids).json() == {"data": {}}


def test_time_scale_shortens_the_delay(sandbox: Sandbox, client: Any) -> None:
    """With 3,600 sandbox seconds a second, a delay of an hour is over in one."""
    sandbox.set(receipt_delay_s=3_600)
    (ticket,) = client.tickets(ANA)
    assert client.receipts([ticket["id"]]).json() == {"data": {}}
    sandbox.set(time_scale=3_600)
    receipts = eventually(lambda: client.receipts([ticket["id"]]).json()["data"], "the receipt")
    assert receipts == {ticket["id"]: {"status": "ok"}}


def test_the_rate_per_project(sandbox: Sandbox, client: Any) -> None:
    """Beyond its rate a project is refused with Retry-After and nothing delivered; another project is not."""
    sandbox.set(rate_per_s=1)
    tokens = [f"ExponentPushToken[rate{number}!project=@acme/rate]" for number in range(100)]
    assert client.push(*tokens).status_code == 200
    refused = client.push(*tokens[:10])
    assert code_of(refused) == (429, "TOO_MANY_REQUESTS")
    assert 50 <= int(refused.headers["retry-after"]) <= 100
    totals = sandbox.totals()
    assert (totals["delivered"], totals["rateLimited"]) == (100, 1)
    assert client.push(ANA).status_code == 200


def test_the_bucket() -> None:
    """600 a second: six full requests at once, the seventh when its sixth of a second has passed, no more saved up."""
    known = Projects()
    assert [known.take("a", 100, 600, now=5.0) for _ in range(7)] == [0] * 6 + [1]
    assert [known.take("a", 100, 600, now=5.1), known.take("a", 100, 600, now=5.17)] == [1, 0]
    assert [known.take("a", 100, 600, now=100.0) for _ in range(7)] == [0] * 6 + [1]
    assert known.take("b", 100, 600, now=5.0) == 0


def test_a_rate_below_one_request() -> None:
    """A full bucket lets any request pass and is in debt then, so that even a small rate is kept in the long run."""
    known = Projects()
    assert [known.take("a", 100, 20, now=0.0), known.take("a", 1, 20, now=0.0)] == [0, 5]
    assert [known.take("a", 1, 20, now=3.9), known.take("a", 1, 20, now=4.1)] == [1, 0]
    assert known.take("a", 100, 0, now=4.1) == 0


def test_enhanced_security(sandbox: Sandbox, client: Any) -> None:
    """With an access token set, sending and receipts need it as bearer; without one nobody asks."""
    sandbox.set(access_token="s3cret")
    for headers, status in (
        ({}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 403),
        ({"authorization": "Basic s3cret"}, 403),
    ):
        refused = client.send([{"to": ANA}], headers=headers)
        assert code_of(refused) == (status, "UNAUTHORIZED")
        assert refused.json()["errors"][0]["message"].startswith("Insufficient permissions")
        assert code_of(client.receipts(["x"], headers=headers)) == (status, "UNAUTHORIZED")
    right = {"authorization": "Bearer s3cret"}
    assert client.send([{"to": ANA}], headers=right).status_code == 200
    assert client.receipts(["x"], headers=right).status_code == 200
    sandbox.set(access_token=None)
    assert client.push(ANA).status_code == 200


def test_latency(sandbox: Sandbox, client: Any) -> None:
    """Answers take as long as told."""
    sandbox.set(latency_ms=400)
    began = time.monotonic()
    assert client.push(ANA).status_code == 200
    assert time.monotonic() - began >= 0.4


def test_requests_in_flight() -> None:
    """The most requests in flight at once are told per project."""
    with ThreadPoolExecutor(4) as pool:
        with Sandbox(latency_ms=120_000) as sandbox:
            sending = [pool.submit(Client(sandbox).push, ANA) for _ in range(4)]
            eventually(lambda: sandbox.totals()["peakConnections"] == {"@relevo/app": 4}, "four at once")
        assert [each.result(PATIENCE_S).status_code for each in sending] == [200] * 4


def test_the_python_sdk(client: Any) -> None:
    """The Python SDK gets tickets, typed errors and receipts from the sandbox."""
    push = exponent_server_sdk.PushClient(host=client.url, timeout=PATIENCE_S)
    tokens = [ANA, "ExponentPushToken[x!DeviceNotRegistered]", "ExponentPushToken[y!receipt-MessageRateExceeded]"]
    with push.session:
        good, gone, later = push.publish_multiple([exponent_server_sdk.PushMessage(to=to, title="a") for to in tokens])
        good.validate_response()
        with pytest.raises(exponent_server_sdk.DeviceNotRegisteredError):
            gone.validate_response()
        first, second = push.check_receipts_multiple([good, later])
        first.validate_response()
        with pytest.raises(exponent_server_sdk.MessageRateExceededError):
            second.validate_response()
        bad = exponent_server_sdk.PushMessage(to="ExponentPushToken[x!400]")
        with pytest.raises(exponent_server_sdk.PushServerError) as refused:
            push.publish(bad)
    assert refused.value.errors[0]["code"] == "VALIDATION_ERROR"
