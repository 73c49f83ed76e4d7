"""Who is beyond its rate waits or is refused before anything but the head of its request was read; the others go on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from relevo.access import api_tokens
from relevo.client.signatures import read_keys
from relevo.http.admission import Admission, Line, RateLimiter, Verdict
from relevo.http.guard import COOKIE
from relevo.http.rules import RULES, weight_of
from support.http_phones import KEYS, TOKEN, Phones, sign
from support.http_server import EVENT, Client, Served
from support.processes import eventually

GOOD = f"relevo_{'1' * 12}_{'g' * 43}"
SESSION = "g" * 43
UNKNOWN = f"relevo_{'0' * 12}_{'x' * 43}"
SECRET = f"device_{'0' * 32}_{'x' * 43}"
NOW = 1_800_000_000.0
READ_KEYS = read_keys(json.dumps({name: {"secret": secret} for name, secret in KEYS.items()}))


class Known:
    """Knows one token, and one person's session."""

    def known_as(self, digest: bytes) -> str | None:
        """Return its name."""
        names = {hashlib.sha256(each.encode()).digest(): each for each in (GOOD, SESSION)}
        return names.get(digest)


class Front:
    """What judges requests, at a rate of ten, with a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        limiter = RateLimiter(10, clock=lambda: self.now)
        self.admission = Admission(Known(), limiter, COOKIE, READ_KEYS, wall_clock=lambda: NOW)

    def ask(self, path: str = "/v1/events", address: str = "a", method: str = "GET", **headers: str) -> str:
        """Return what becomes of a request."""
        verdict = self.judge(path, address, method, **headers)
        if verdict.line is None:
            return "enters"
        names = {id(self.admission.refused): "refused", id(self.admission.doubted): "doubted"}
        return names.get(id(verdict.line), "always")

    def judge(self, path: str = "/v1/events", address: str = "a", method: str = "GET", **headers: str) -> Verdict:
        """Return the verdict on a request."""
        given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return self.admission.judge(address, method.encode(), path.encode(), given)

    def spend(self, address: str = "a") -> None:
        """Use up an address's rate."""
        while self.ask("/nothing", address) == "enters":
            pass


def test_strangers_use_up_their_address_and_nothing_else() -> None:
    """Beyond its address's rate a stranger is refused; proven callers, other addresses and who may be proven are not."""
    front = Front()
    front.spend()
    signature = sign(uuid4(), now=NOW)
    assert front.ask("/nothing") == "refused"
    assert front.ask(authorization="Bearer anything") == "refused"
    assert front.ask(method="PUT", x_relevo_signature="v2.nonsense") == "refused"
    assert front.ask(method="PUT", x_relevo_signature=sign(uuid4(), now=NOW - 86_400)) == "refused"
    assert front.ask(address="b") == "enters"
    assert front.ask(authorization=f"Bearer {GOOD}") == "enters"
    assert front.ask("/dashboard", cookie=f"x=y; {COOKIE}={SESSION}") == "enters"
    assert front.ask(authorization=f"bearer {UNKNOWN}") == "doubted"
    assert front.ask(authorization=f"Bearer {SECRET}") == "doubted"
    assert front.ask(method="PUT", x_relevo_signature=signature) == "doubted"
    assert front.ask("/dashboard", cookie=f"x=y; {COOKIE}={'s' * 43}") == "doubted"


def test_a_flood_of_one_kind_of_proof_leaves_room_to_the_others() -> None:
    """Where forged tokens fill their part of the line, signatures, phones and sessions that are new still find a place."""
    front = Front()
    front.spend()
    turns: list[Turn] = []

    async def story() -> None:
        for _ in range(500):
            verdict = front.judge(authorization=f"Bearer {UNKNOWN}")
            assert verdict.line is front.admission.doubted
            verdict.line.join(Turn(turns), verdict.kind)
        assert front.ask(authorization=f"Bearer {UNKNOWN}") == "refused"
        assert front.ask(method="PUT", x_relevo_signature=sign(uuid4(), now=NOW)) == "doubted"
        assert front.ask(authorization=f"Bearer {SECRET}") == "doubted"
        assert front.ask("/dashboard", cookie=f"{COOKIE}={'s' * 43}") == "doubted"

    asyncio.run(story())


def test_health_and_what_browsers_ask_first_are_never_refused() -> None:
    """A monitor behind the same proxy as strangers hears that the process lives, and browsers may call."""
    front = Front()
    front.spend()
    assert front.ask("/health/live") == "always"
    assert front.ask(method="OPTIONS", access_control_request_method="PUT") == "always"
    assert front.ask(method="OPTIONS") == "refused"


def test_a_proven_caller_has_a_rate_of_its_own_and_no_more() -> None:
    """A token is refused beyond its own rate, whatever its address has left; a heavy request takes more of it. So is a person."""
    front = Front()
    opened = [front.ask("/dashboard", cookie=f"{COOKIE}={SESSION}") for _ in range(21)]
    assert opened == ["enters"] * 20 + ["refused"]
    asked = [front.ask(authorization=f"Bearer {GOOD}") for _ in range(21)]
    assert asked == ["enters"] * 20 + ["refused"]
    front.now = 1.0
    assert front.ask("/v1/words/preview", method="POST", authorization=f"Bearer {GOOD}") == "enters"
    assert front.ask(authorization=f"Bearer {GOOD}") == "refused"


def test_all_strangers_together_are_bounded() -> None:
    """Strangers of many addresses have so much together; who brings a proof is not counted among them."""
    front = Front()
    asked = [front.ask("/nothing", f"address {n}") for n in range(40)]
    assert asked == ["enters"] * 20 + ["refused"] * 20
    assert front.ask(address="new", authorization=f"Bearer {UNKNOWN}") == "enters"


def test_a_strangers_body_weighs_by_its_bytes() -> None:
    """One long body takes what several short ones do; a body that does not say its length counts as long."""
    for headers in ({"content_length": "65000"}, {"transfer_encoding": "chunked"}, {"content_length": "x"}):
        front = Front()
        assert front.ask("/nothing", method="PUT", **headers) == "enters"
        assert front.ask("/nothing", method="PUT") == "refused", headers


def test_what_costs_more_weighs_more() -> None:
    """Weights are those of the rules, by the path alone; an unknown address weighs one."""
    assert weight_of(b"/guide") == weight_of(b"/guide/http-api") == RULES["GET", "/guide"].weight > 1
    assert weight_of(b"/v1/words/preview") > weight_of(b"/v1/words/x") == 1
    assert weight_of(b"/nothing") == weight_of(b"/a/b/c") == weight_of(b"") == 1


class Turn:
    """A request in a line."""

    def __init__(self, let_in: list[Turn]) -> None:
        self._let_in = let_in

    def let_in(self) -> None:
        """Note that its turn came."""
        self._let_in.append(self)


def test_a_line_lets_in_one_after_the_other() -> None:
    """Requests are let in in their order, no faster than the line allows; who left takes up no turn."""

    async def story() -> tuple[list[Turn], list[Turn], float]:
        line, done = Line(100), list[Turn]()
        waiting = [Turn(done) for _ in range(6)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert line.has_room(began)
        assert not line.has_room(began)
        for each in waiting:
            line.join(each)
        line.leave(waiting[2])
        assert not line.has_room(began + 60), "nobody overtakes who waits"
        while len(done) < 5:
            await asyncio.sleep(0.001)
        assert len(line) == 0
        return waiting, done, loop.time() - began

    waiting, done, took_s = asyncio.run(story())
    assert done == [each for each in waiting if each is not waiting[2]]
    assert took_s >= 5 / 100 - 0.01


def test_kinds_take_turns_in_a_line() -> None:
    """Who waits alone of its kind is let in at the second turn, however many of another kind came before."""

    async def story() -> tuple[Turn, list[Turn]]:
        line, done = Line(1_000), list[Turn]()
        assert line.has_room(asyncio.get_running_loop().time())
        crowd, alone = [Turn(done) for _ in range(9)], Turn(done)
        for each in crowd:
            line.join(each, "token")
        line.join(alone, "signature")
        assert (len(line), line.count("token"), line.count("signature")) == (10, 9, 1)
        while len(line):
            await asyncio.sleep(0.001)
        return alone, done

    alone, done = asyncio.run(story())
    assert done.index(alone) == 1
    assert len(done) == 10


@pytest.fixture
def crowded(serve: Callable[..., Served], keys_file: Path) -> Served:
    """A server whose one address is soon used up by strangers."""
    return serve(http_rate_per_second=1, http_signing_keys_file=keys_file)


def spend_all(served: Served) -> None:
    """Have strangers use up the rate of this address."""
    stranger = served.client()
    eventually(lambda: stranger.get("/nothing").status_code == 429, "the rate is used up")


def test_who_is_new_and_signed_is_let_in_beside_strangers(crowded: Served) -> None:
    """Where strangers behind the same proxy used up the rate, a new phone with a signature of the app is registered."""
    phones = Phones(crowded)
    for n in range(3):
        spend_all(crowded)
        phone, sent = uuid4(), {"owner": f"owner {n}", "token": TOKEN.format(n)}
        assert phones.put(phone, signed=sign(phone, **sent), **sent).status_code == 201


def test_a_request_that_waited_is_whole(crowded: Served) -> None:
    """The body of a request that had to wait is read as it was sent, however many pieces it came in."""
    line = crowded.server.api.state.admission.doubted  # type: ignore[union-attr]
    for size in (10, 500_000):
        spend_all(crowded)
        line._free_at = time.monotonic() + 0.3
        data = {"x": "y" * 1_000, "key": f"of {size}"}
        many = [
            EVENT | {"key": f"{size}-{n}", "audience": "owners", "owners": ["x"], "data": data}
            for n in range(size // 1_100 + 1)
        ]
        app = crowded.client("app")
        answer = app.post("/v1/events/batch", {"events": many})
        assert answer.status_code in (200, 201), answer.text
        assert len(answer.json()["items"]) == len(many)


def test_who_leaves_while_waiting_takes_no_turn(crowded: Served) -> None:
    """A connection that is closed while its request waits is forgotten, and others are let in."""
    line = crowded.server.api.state.admission.doubted  # type: ignore[union-attr]
    line._free_at = time.monotonic() + 3_600
    spend_all(crowded)
    where = urlsplit(crowded.server.url)
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {UNKNOWN}\r\n\r\n".encode()
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        connection.sendall(head)
        eventually(lambda: len(line) == 1, "it waits")
    eventually(lambda: len(line) == 0, "it left")


def test_requests_behind_one_that_waits_are_refused(crowded: Served) -> None:
    """Who is beyond its rate and sends on without waiting for an answer is hung up on."""
    line = crowded.server.api.state.admission.doubted  # type: ignore[union-attr]
    line._free_at = time.monotonic() + 3_600
    spend_all(crowded)
    where = urlsplit(crowded.server.url)
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {UNKNOWN}\r\n\r\n".encode()
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        connection.sendall(head * 3)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 429 ")
    eventually(lambda: len(line) == 0, "it left the line")


def test_a_page_of_an_allowed_origin_reads_that_it_is_refused(serve: Callable[..., Served]) -> None:
    """A refusal for the rate is problem+json with Retry-After, a request id, and what CORS needs."""
    served = serve(http_rate_per_second=1, http_cors_origins="https://app.example")
    spend_all(served)
    answer = served.client().get("/v1/events", headers={"Origin": "https://app.example"})
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:relevo:too-many-requests")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["x-request-id"] == answer.json()["request_id"]


def test_an_ended_secret_is_a_strangers(serve: Callable[..., Served]) -> None:
    """A phone's secret that ended, as with another owner, loses its own rate; the phone's next secret has one."""
    phones = Phones(serve())
    callers = phones.served.server.api.state.callers  # type: ignore[union-attr]

    def has_own_rate(secret: str) -> bool:
        return callers.known_as(hashlib.sha256(secret.encode()).digest()) is not None

    (ana, former), (_, other) = (phones.new(owner=owner) for owner in ("ana", "bea"))
    for secret in (former, other):
        assert phones.call("GET", "/v1/inbox/counts", secret).status_code == 200
    assert has_own_rate(former)
    secret = phones.put(ana, phones.app, owner="eva").json()["secret"]
    assert phones.call("GET", "/v1/inbox/counts", former).status_code == 401
    assert phones.call("GET", "/v1/inbox/counts", secret).status_code == 200
    assert [has_own_rate(each) for each in (former, secret, other)] == [False, True, True]


def test_a_revoked_token_is_a_strangers(serve: Callable[..., Served]) -> None:
    """A token that ended loses its own rate, and is counted by its address again."""
    served = serve(http_rate_per_second=1)
    app: Client = served.client("app")
    assert app.token
    assert app.get("/v1/installations?owner=x").status_code == 200
    api_tokens.revoke(served.app.database, app.token.split("_")[1])
    eventually(lambda: app.get("/v1/installations?owner=x").status_code == 401, "it is refused")
    assert served.server.api.state.callers.known_as(hashlib.sha256(app.token.encode()).digest()) is None  # type: ignore[union-attr]
