"""Huawei Push Kit: what each of its answers means, how its access tokens live, and what its messages hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relevo.core.model import Ticket
from relevo.core.ports import PushProvider
from relevo.providers.http2.client import Answered
from relevo.providers.huawei.message import MOST_TTL_S
from relevo.providers.huawei.provider import _judge
from relevo.sandbox import Sandbox
from support import native

PROJECT = "huawei::default"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True) as made:
        yield made


@pytest.fixture
def huawei(sandbox: Sandbox) -> Iterator[PushProvider]:
    """Huawei at the sandbox, which has forgotten every fault."""
    sandbox.clear_faults()
    with native.opened("huawei", sandbox) as made:
        yield made


def sent(huawei: PushProvider, sandbox: Sandbox, *words: str) -> Ticket:
    """Return the ticket of a push to a phone with these faults, sent beside one to a sound phone."""
    phones = (("ana", *words), ("eva",))
    reply = huawei.send([native.message(sandbox.token("huawei", *phone)) for phone in phones], PROJECT)
    assert reply.kind == "answered"
    assert reply.tickets[1].fate == "ok", "one phone's trouble is its own"
    return reply.tickets[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["80300007"], {"fate": "invalid", "code": "80300007"}),
        (["80100000"], {"fate": "invalid", "code": "80100000"}),
        (["80100001"], {"fate": "failed", "code": "80100001", "alert": True}),
        (["80100016"], {"fate": "failed", "code": "80100016"}),
        (["80300008"], {"fate": "failed", "code": "80300008"}),
        (["80200001"], {"fate": "credential", "code": "80200001", "alert": True}),
        (["80300002"], {"fate": "credential", "code": "80300002"}),
        (["503"], {"fate": "not_sent", "pauses": "project", "retry_after_ms": 60_000}),
        (["503", "retry-after=7"], {"fate": "not_sent", "pauses": "project", "retry_after_ms": 7_000}),
        (["81000001"], {"fate": "unclear", "code": "81000001"}),
        (["502"], {"fate": "unclear", "code": "HTTP_502"}),
        (["garbage"], {"fate": "not_sent", "code": "HTTP_200"}),
        (["refused"], {"fate": "not_sent", "code": "RefusedStream"}),
        (["stream-error"], {"fate": "unclear", "code": "StreamReset"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_each_answer_has_one_meaning(
    huawei: PushProvider, sandbox: Sandbox, words: list[str], expected: dict[str, Any]
) -> None:
    """Every code of Huawei is final, retryable, nobody's knowledge or the project's fault, with its own pause."""
    ticket = sent(huawei, sandbox, *words)
    assert {key: getattr(ticket, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("body", "fate"),
    [
        (b'{"code": "80000000", "msg": "Success", "requestId": "157"}', "ok"),
        (b'{"code": "80000000", "msg": "Success"}', "unclear"),
        (b'{"code": "80300007", "msg": "All the tokens are invalid"}', "invalid"),
        (b'{"code": "80399999", "msg": "something new"}', "failed"),
    ],
)
def test_the_code_decides_beside_a_200(body: bytes, fate: str) -> None:
    """Huawei tells most faults by a code, whatever the status is."""
    assert _judge(Answered(200, {}, body)).fate == fate


def test_an_expired_access_token_is_renewed_once(huawei: PushProvider, sandbox: Sandbox) -> None:
    """An expired access token costs one more request with a new one, and no attempt."""
    assert sent(huawei, sandbox).fate == "ok"
    sandbox.expire_access_tokens()
    assert sent(huawei, sandbox).fate == "ok"


def test_a_wrong_secret_stops_its_project(sandbox: Sandbox, tmp_path: Path) -> None:
    """A secret that Huawei refuses is the project's fault, and `trouble` says so; a good one has no trouble."""
    entry = json.loads(sandbox.projects_file.read_text())["default"]["huawei"]
    del entry["client_secret_file"]
    file = tmp_path / "projects.json"
    file.write_text(json.dumps({"default": {"huawei": entry | {"client_secret": "wrong"}}}))
    with native.opened("huawei", sandbox, file=file) as huawei:
        reply = huawei.send([native.message(sandbox.token("huawei", "ana"))], PROJECT)
        assert (reply.kind, reply.code) == ("unauthorised", "TokenRefused")
        assert huawei.trouble(PROJECT).startswith("Huawei refuses its account: client_secret is wrong")  # type: ignore[attr-defined]
    with native.opened("huawei", sandbox) as huawei:
        assert huawei.trouble(PROJECT) == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("secret", ["", " ", "two words", "ñ", "a" * 1_001])
def test_a_secret_that_is_no_word_is_refused(sandbox: Sandbox, tmp_path: Path, secret: str) -> None:
    """Such a secret stops its project before anybody is asked."""
    (tmp_path / "secret").write_text(secret)
    file = tmp_path / "projects.json"
    file.write_text(json.dumps({"default": {"huawei": {"app_id": "1", "client_secret_file": "secret"}}}))
    assert list(native.projects(sandbox, file).troubles()) == [
        ("PUSH_PROJECTS_FILE, default, huawei", "its client_secret must be one word of ASCII")
    ]


def test_what_a_phone_gets(huawei: PushProvider, sandbox: Sandbox) -> None:
    """Title, body, data with its kinds, and what is Android's own arrive as Huawei names them."""
    token = sandbox.token("huawei", "zoe")
    push = {"sound": "bell.wav", "badge": 3, "priority": "high", "android": {"clickAction": "OPEN_ORDER"}}
    data = {"order": 17, "text": 'with "quotes" and ñ', "notificationDeliveryId": 7}
    assert huawei.send([native.message(token, data=data, **push)], PROJECT).tickets[0].fate == "ok"
    [got] = sandbox.received(token)
    assert (got["title"], got["body"], got["data"]) == ("Hola", "¿Qué tal?", data | {"pushProvider": "huawei"})
    android = got["huawei"]["android"]
    assert (android["urgency"], android["ttl"]) == ("HIGH", "60s")
    shown = android["notification"]
    assert (shown["sound"], shown["badge"], shown["click_action"]) == (
        "/raw/bell",
        {"set_num": 3},
        {"type": 1, "action": "OPEN_ORDER"},
    )


@pytest.mark.parametrize(("given", "sent_as"), [(0, 1), (-5, 1), (60, 60), (10**9, MOST_TTL_S)])
def test_the_time_to_live_is_within_huaweis_bounds(
    huawei: PushProvider, sandbox: Sandbox, given: int, sent_as: int
) -> None:
    """Huawei refuses a message that lives no second, or longer than 15 days."""
    token = sandbox.token("huawei", f"ttl{given}")
    assert huawei.send([native.message(token, ttl=given)], PROJECT).tickets[0].fate == "ok"
    assert sandbox.received(token)[0]["huawei"]["android"]["ttl"] == f"{sent_as}s"


def test_a_silent_push_is_data_alone(huawei: PushProvider, sandbox: Sandbox) -> None:
    """Without title and body nothing is shown, and the app gets the data."""
    token = sandbox.token("huawei", "silent")
    assert huawei.send([native.message(token, title="", body="")], PROJECT).tickets[0].fate == "ok"
    [got] = sandbox.received(token)
    assert "notification" not in got["huawei"]["android"]
    assert got["data"]["notificationDeliveryId"] == 7


def test_a_push_of_exactly_the_most_bytes_is_taken(huawei: PushProvider, sandbox: Sandbox) -> None:
    """The size is reckoned as Huawei does or above it: what is not refused beforehand is not refused there."""
    token = sandbox.token("huawei", "big")
    size = next(n for n in range(4_096, 0, -1) if huawei.refuse(native.message(token, body="x" * n)) is None)
    assert size > 3_500
    assert huawei.send([native.message(token, body="x" * size)], PROJECT).tickets[0].fate == "ok"
