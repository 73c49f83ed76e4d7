"""APNs: what each of its answers means, how its provider tokens are made, and what its messages hold."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Reply, Ticket
from relevo.providers.apns.credentials import ApnsTokens, IssueTime, NoIssueTimeError, OwnIssueTimes
from relevo.providers.apns.entry import ApnsEntry
from relevo.providers.apns.message import collapse_id
from relevo.providers.apns.provider import Apns
from relevo.providers.push_projects import PushProject
from relevo.sandbox import Sandbox
from support import native, senders
from support.native import DEVELOPMENT, PRODUCTION

HOUR = 3_600


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True, apns_token_interval_s=0) as made:
        yield made


@pytest.fixture
def apns(sandbox: Sandbox) -> Iterator[Apns]:
    """APNs at the sandbox."""
    sandbox.clear_faults()
    with native.apns(sandbox) as made:
        yield made


def sent(apns: Apns, sandbox: Sandbox, *words: str) -> Ticket:
    """Return the ticket of a push to a phone with these faults, sent behind one to a sound phone."""
    reply = apns.send(
        [native.message(sandbox.apns_token("eva")), native.message(sandbox.apns_token("ana", *words))], PRODUCTION
    )
    assert reply.kind == "answered"
    assert reply.tickets[0].fate == "ok", "one phone's trouble is its own"
    return reply.tickets[1]


OUR_FAULTS = [
    *("BadTopic", "MissingTopic", "TopicDisallowed", "InvalidPushType", "BadPriority", "BadExpirationDate"),
    *("BadMessageId", "BadCollapseId", "DuplicateHeaders", "PayloadEmpty", "MissingDeviceToken", "BadPath"),
    "MethodNotAllowed",
]
CREDENTIALS = [
    *("InvalidProviderToken", "MissingProviderToken", "Forbidden", "BadCertificate", "BadCertificateEnvironment"),
    *("UnrelatedKeyIdInToken", "BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken", "ExpiredProviderToken"),
    "DeviceTokenNotForTopic",
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["BadDeviceToken"], {"fate": "invalid", "gone_at": None}),
        (["IdleTimeout"], {"fate": "not_sent"}),
        (["PayloadTooLarge"], {"fate": "failed", "alert": False}),
        (["TooManyRequests"], {"fate": "retryable", "pauses": "phone", "retry_after_ms": 60_000}),
        (["TooManyProviderTokenUpdates"], {"fate": "not_sent", "pauses": "project", "retry_after_ms": 1_200_000}),
        (["InternalServerError"], {"fate": "unclear", "retry_after_ms": 900_000}),
        (["ServiceUnavailable"], {"fate": "unclear", "retry_after_ms": 900_000}),
        (["Shutdown"], {"fate": "unclear", "retry_after_ms": 900_000}),
        *(([word], {"fate": "failed", "alert": True}) for word in OUR_FAULTS),
        *(([word], {"fate": "credential", "alert": True}) for word in CREDENTIALS),
        (["refused"], {"fate": "not_sent", "code": "RefusedStream"}),
        (["stream-error"], {"fate": "unclear", "code": "StreamReset"}),
        (["goaway"], {"fate": "not_sent", "code": "GoAway"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_each_answer_has_one_meaning(apns: Apns, sandbox: Sandbox, words: list[str], expected: dict[str, Any]) -> None:
    """Every reason of APNs is final, retryable, nobody's knowledge or the project's fault, with its own pause."""
    ticket = sent(apns, sandbox, *words)
    assert {key: getattr(ticket, key) for key in expected} == expected
    if words[0][0].isupper():
        assert ticket.code == words[0]


@pytest.mark.parametrize("reason", ["Unregistered", "ExpiredToken"])
def test_a_token_is_gone_since_a_time(apns: Apns, sandbox: Sandbox, reason: str) -> None:
    """A 410 tells since when the token is gone: whoever registered it later is not."""
    ticket = sent(apns, sandbox, reason)
    assert (ticket.fate, ticket.code) == ("invalid", reason)
    assert ticket.gone_at is not None
    assert abs((ticket.gone_at - datetime.now(UTC)).total_seconds()) < HOUR


def test_what_is_taken_is_ok_under_its_own_id(apns: Apns, sandbox: Sandbox) -> None:
    """A push is ok at once; its id is made of delivery and attempt, and so the same wherever it is made."""
    write = apns.writer(native.draft(), "ios")
    assert write is not None
    token = sandbox.apns_token("ana")
    ids = []
    for attempt in (0, 0, 1):
        [ticket] = apns.send([write(native.delivery(token, "apns", attempt_count=attempt))], PRODUCTION).tickets
        assert ticket.fate == "ok"
        ids.append(ticket.id)
    assert ids[0] == ids[1] != ids[2]


def test_the_environment_decides_where_it_goes(apns: Apns, sandbox: Sandbox) -> None:
    """Phones of each environment are reached at its own address; at the other their tokens are bad."""
    there = sandbox.apns_token("ana", environment="sandbox")
    [ticket] = apns.send([native.message(there)], DEVELOPMENT).tickets
    assert ticket.fate == "ok"
    [ticket] = apns.send([native.message(there)], PRODUCTION).tickets
    assert (ticket.fate, ticket.code) == ("invalid", "BadDeviceToken")


@pytest.mark.parametrize(("bad", "good"), [(5, 5), (20, 0), (5, 6)])
def test_bad_tokens_are_the_phones_fault(apns: Apns, sandbox: Sandbox, bad: int, good: int) -> None:
    """However many phones of a request have tokens of the other environment: builds for development have those."""
    wrong = [native.message(sandbox.apns_token(f"p{each}", environment="sandbox")) for each in range(bad)]
    right = [native.message(sandbox.apns_token(f"q{each}")) for each in range(good)]
    reply = apns.send([*right, *wrong], PRODUCTION)
    assert [ticket.fate for ticket in reply.tickets] == ["ok"] * good + ["invalid"] * bad
    assert {ticket.code for ticket in reply.tickets[good:]} == {"BadDeviceToken"}


def test_a_bad_key_is_refused_once(tmp_path: Path) -> None:
    """A key of the other environment stops the project after one request, not after a hundred."""
    asked: list[str] = []
    with Sandbox(native=True, tell=asked.append) as sandbox:
        reply = _with_bad_key(sandbox, tmp_path)
    assert (reply.kind, reply.code) == ("unauthorised", "BadEnvironmentKeyIdInToken")
    assert len(asked) == 1


def _with_bad_key(sandbox: Sandbox, tmp_path: Path) -> Reply:
    key = sandbox.add_apns_key("ELSEWHERE", "sandbox")
    file = tmp_path / "projects.json"
    entry = {"key_file": str(key), "key_id": "ELSEWHERE", "team_id": senders.TEAM_ID, "topic": senders.TOPIC}
    file.write_text(json.dumps({"default": {"apns": entry}}))
    with native.apns(sandbox, file) as apns:
        return apns.send([native.message(sandbox.apns_token("ana"))] * 50, PRODUCTION)


def test_two_keys_of_a_team(sandbox: Sandbox, tmp_path: Path) -> None:
    """Projects with a key each reach their phones in turn, also two keys of one team: no connection serves both."""
    keys = {"default": "FIRST", "shop": "SECOND"}
    entries = {
        project: {"key_file": str(sandbox.add_apns_key(key)), "key_id": key, "team_id": senders.TEAM_ID}
        for project, key in keys.items()
    }
    file = tmp_path / "projects.json"
    file.write_text(json.dumps({name: {"apns": each | {"topic": senders.TOPIC}} for name, each in entries.items()}))
    with native.apns(sandbox, file) as apns:
        messages = [native.message(sandbox.apns_token(name)) for name in ("ana", "bea")]
        for project in ("default", "shop", "default", "shop"):
            reply = apns.send(messages, f"apns::{project}::production")
            assert [ticket.fate for ticket in reply.tickets] == ["ok", "ok"], project


def entry(sandbox: Sandbox) -> PushProject[ApnsEntry]:
    """Return the sandbox's own key."""
    return native.projects(sandbox).all(ApnsEntry)["default"]


def own_tokens(clock: list[float]) -> ApnsTokens:
    """Return the tokens of a process without a database, whose issue times are read anew each time."""
    return ApnsTokens(OwnIssueTimes(lambda: clock[0]), read_every_s=0)


def test_a_token_is_used_for_forty_minutes(sandbox: Sandbox) -> None:
    """It says by which key, for which team and when it was issued; then another one takes its place."""
    clock = [1_794_873_600.5]
    tokens = own_tokens(clock)
    first = tokens.get(entry(sandbox))
    header, claims, _ = first.split(".")
    assert json.loads(senders.unb64(header)) == {"alg": "ES256", "kid": senders.KEY_ID}
    assert json.loads(senders.unb64(claims)) == {"iss": senders.TEAM_ID, "iat": int(clock[0])}
    assert own_tokens(clock).get(entry(sandbox)) == first, "the same key and time make the same token"
    clock[0] += 2_398
    assert tokens.get(entry(sandbox)) == first
    clock[0] += 2
    assert tokens.get(entry(sandbox)) != first


def test_a_token_is_never_made_too_often(sandbox: Sandbox) -> None:
    """A token that is said to have expired is replaced only twenty minutes after it was issued; all use its successor."""
    clock = [1_794_873_600.0]
    tokens = own_tokens(clock)
    first = tokens.get(entry(sandbox))
    clock[0] += 1_199
    assert tokens.younger(entry(sandbox)) == first
    clock[0] += 1
    younger = tokens.younger(entry(sandbox))
    assert younger != first
    assert [tokens.get(entry(sandbox)), tokens.younger(entry(sandbox))] == [younger] * 2


def test_without_the_database_the_last_token_is_used_on(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is used for 55 minutes if no issue time can be read; then nothing is sent, and that is told."""

    class Unreadable:
        """A database that is gone after the first question."""

        def __init__(self) -> None:
            self.asked = 0

        def get(self, team_id: str, key_id: str, longest_s: int) -> IssueTime:
            self.asked += 1
            if self.asked > 1:
                raise DatabaseUnavailableError("gone")
            return IssueTime(1_794_873_600, 0.0)

    tokens = ApnsTokens(Unreadable())
    first = tokens.get(entry(sandbox))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3_200)
    assert tokens.get(entry(sandbox)) == first
    monkeypatch.setattr(time, "monotonic", lambda: now + 3_400)
    with pytest.raises(NoIssueTimeError):
        tokens.get(entry(sandbox))
    monkeypatch.undo()


def test_an_expired_token_is_replaced_once(sandbox: Sandbox) -> None:
    """When Apple calls a token expired that was used for twenty minutes, the push goes once more with a new one."""
    clock = [(datetime.now(UTC).timestamp() - 1_200) // 2_400 * 2_400]
    with Sandbox(native=True, apns_token_interval_s=0) as own, native.apns(own, clock=lambda: clock[0]) as apns:
        assert apns.send([native.message(own.apns_token("ana"))], PRODUCTION).tickets[0].fate == "ok"
        clock[0] += 1_200
        own.add_fault("ExpiredProviderToken", service="apns", times=1)
        assert apns.send([native.message(own.apns_token("ana"))], PRODUCTION).tickets[0].fate == "ok"


def test_a_key_that_is_refused_is_tried_alone_again(sandbox: Sandbox) -> None:
    """A key that Apple took before and refuses now is refused once in the next request, not by each of its messages."""
    with Sandbox(native=True, apns_token_interval_s=0) as own, native.apns(own) as apns:
        three = [native.message(own.apns_token(name)) for name in ("ana", "bea", "eva")]
        assert [ticket.fate for ticket in apns.send(three, PRODUCTION).tickets] == ["ok"] * 3
        own.add_fault("InvalidProviderToken", service="apns")
        apns.send(three, PRODUCTION)
        before = own.totals()["services"]["apns"]["403"]
        apns.send(three, PRODUCTION)
        assert own.totals()["services"]["apns"]["403"] - before == 1


def payload(apns: Apns, draft: Any, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Return headers and payload that an event's writer makes for a phone."""
    write = apns.writer(draft, "ios")
    assert write is not None
    message: Any = write(native.delivery("ab", "apns", **more))
    return dict(message.headers()), json.loads(message.json())


def test_what_an_event_says_reaches_its_place(apns: Apns) -> None:
    """Each field stands where Apple reads it, data beside aps, and the headers say how it travels."""
    draft = native.draft(
        data={"order": 17, "lines": [1]},
        subtitle="s",
        badge=3,
        priority="high",
        threadId="th",
        categoryId="cat",
        targetContentId="tc",
        interruptionLevel="time-sensitive",
        relevanceScore=0.5,
        filterCriteria="f",
        collapseId="relevo-5",
        richContent={"image": "https://x/y.png"},
        channelId="android-only",
    )
    headers, body = payload(apns, draft, deadline_at=native.instant("2026-11-18T00:00:00+00:00"))
    assert body == {
        "aps": {
            "alert": {"title": "Hola", "subtitle": "s", "body": "¿Qué tal?"},
            "badge": 3,
            "thread-id": "th",
            "category": "cat",
            "target-content-id": "tc",
            "interruption-level": "time-sensitive",
            "relevance-score": 0.5,
            "filter-criteria": "f",
            "sound": "default",
            "mutable-content": 1,
        },
        "richContent": {"image": "https://x/y.png"},
        "notificationEventId": 5,
        "order": 17,
        "lines": [1],
        "pushProvider": "apns",
        "notificationDeliveryId": 7,
        "installationId": str(native.PHONE),
    }
    assert headers.pop("apns-id")
    assert headers == {
        "apns-expiration": str(int(native.instant("2026-11-18T00:00:00+00:00").timestamp())),
        "apns-push-type": "alert",
        "apns-priority": "10",
        "apns-collapse-id": "relevo-5",
    }


@pytest.mark.parametrize(
    ("push", "kind", "priority"),
    [
        ({"priority": "high", "contentAvailable": True}, "background", "5"),
        ({}, "background", "5"),
        ({"badge": 0}, "alert", "5"),
        ({"badge": 0, "priority": "high"}, "alert", "10"),
    ],
)
def test_a_push_for_the_app_alone_travels_in_the_background(
    apns: Apns, push: dict[str, Any], kind: str, priority: str
) -> None:
    """What shows nothing is of the kind background, at the only priority that Apple takes it at; a badge is shown."""
    headers, body = payload(apns, native.draft(silent=True, **push))
    assert (headers["apns-push-type"], headers["apns-priority"]) == (kind, priority)
    assert body["aps"].get("content-available") == (1 if kind == "background" else None)


@pytest.mark.parametrize(
    ("sound", "expected"),
    [
        ("ping.wav", "ping.wav"),
        ({"name": "a", "volume": 0.5}, "a"),
        ({"critical": True, "name": "a"}, {"critical": 1, "name": "a"}),
        ({"critical": True, "volume": 0.5}, {"critical": 1, "name": "default", "volume": 0.5}),
    ],
)
def test_a_sound_is_told_as_apple_reads_it(apns: Apns, sound: Any, expected: Any) -> None:
    """A critical sound is an object with a number and a name, which is Apple's default if none is given."""
    assert payload(apns, native.draft(sound=sound))[1]["aps"]["sound"] == expected


def test_a_written_message_is_the_plain_one(apns: Apns, sandbox: Sandbox) -> None:
    """What an event's writer writes, and what a composer's mapping becomes, reach the phone as the same."""
    token = sandbox.apns_token("pia")
    draft = native.draft(data={"order": 17, "big": 10**30, "note": 'ä"'}, priority="high", collapseId="é" * 40)
    delivery = native.delivery(token, "apns", seconds_left=90.0)
    write = apns.writer(draft, "ios")
    assert write is not None
    seen = []
    for message in (write(delivery), draft.message(delivery)):
        assert apns.send([message], PRODUCTION).tickets[0].fate == "ok"
        seen.append(sandbox.received(token)[-1])
    for each in seen:
        each["apns"]["headers"].pop("apns-expiration")
    assert seen[0] == seen[1]
    assert seen[0]["data"]["big"] == 10**30


def test_a_collapse_id_fits_its_header() -> None:
    """One of more than 64 bytes, or not of ASCII, is told by its hash; different ones stay different."""
    assert collapse_id("x" * 64) == "x" * 64
    for long in ("x" * 65, "é" * 10):
        made = collapse_id(long)
        assert len(made) == 64
        assert made.isascii()
    assert collapse_id("x" * 65) != collapse_id("x" * 66)


def test_what_cannot_be_sent_is_refused_before(apns: Apns) -> None:
    """A reserved key, a payload beyond 4,096 bytes and a malformed token are final, and the token is left alone."""
    reserved = apns.refuse(native.message("ab", data={"aps": {}}))
    assert reserved is not None
    assert (reserved.fate, reserved.code) == ("failed", "ReservedDataKey")
    assert apns.writer(native.draft(data={"aps": {}}), "ios") is None
    heavy = apns.refuse(native.message("ab", body="x" * 4_096))
    assert heavy is not None
    assert (heavy.fate, heavy.code) == ("failed", "PayloadTooLarge")
    assert apns.writer(native.draft(data={"x": "y" * 4_000}), "ios") is None
    assert apns.refuse_token("no hex") is not None
    assert apns.refuses_any(["ab", None])


def test_a_key_that_cannot_sign_is_its_projects_trouble(sandbox: Sandbox, tmp_path: Path) -> None:
    """A key file that holds no P-256 key stops its project by name."""
    entry = {"key": "garbage", "key_id": "K", "team_id": "T", "topic": "t"}
    file = tmp_path / "projects.json"
    file.write_text(json.dumps({"default": {"apns": entry}}))
    with native.apns(sandbox, file) as apns:
        reply = apns.send([native.message("ab")], PRODUCTION)
    assert (reply.kind, reply.code) == ("unauthorised", "CredentialUnusable")
    assert "no private key in PEM" in str(reply.message)
