"""FCM: what each of its answers means, how its access tokens live, and what its messages hold."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relevo.core.model import Reply, Ticket
from relevo.providers.fcm import credentials
from relevo.providers.fcm.entry import FcmEntry
from relevo.providers.fcm.provider import Fcm, _by_fid, _judge, _ticket
from relevo.providers.http2.client import Answered
from relevo.providers.message_parts import topic
from relevo.providers.push_projects import PushProject
from relevo.sandbox import Sandbox
from support import native
from support.fake_http_server import Answer, Asked, FakeServer
from support.native import ANDROID, IOS


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True) as made:
        yield made


@pytest.fixture
def fcm(sandbox: Sandbox) -> Iterator[Fcm]:
    """FCM at the sandbox, which has forgotten every fault."""
    sandbox.clear_faults()
    with native.fcm(sandbox) as made:
        yield made


def sent(fcm: Fcm, sandbox: Sandbox, *words: str) -> Ticket:
    """Return the ticket of a push to a phone with these faults, sent beside one to a sound phone."""
    reply = fcm.send(
        [native.message(sandbox.fcm_token("ana", *words)), native.message(sandbox.fcm_token("eva"))], ANDROID
    )
    assert reply.kind == "answered"
    assert reply.tickets[1].fate == "ok", "one phone's trouble is its own"
    return reply.tickets[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["UNREGISTERED"], {"fate": "invalid", "code": "UNREGISTERED"}),
        (["INVALID_ARGUMENT"], {"fate": "invalid", "code": "INVALID_ARGUMENT"}),
        (["BAD_REQUEST"], {"fate": "failed", "code": "INVALID_ARGUMENT", "alert": True}),
        (["SENDER_ID_MISMATCH"], {"fate": "credential", "code": "SENDER_ID_MISMATCH", "alert": True}),
        (["PERMISSION_DENIED"], {"fate": "credential", "code": "PERMISSION_DENIED", "alert": True}),
        (["THIRD_PARTY_AUTH_ERROR"], {"fate": "credential", "code": "THIRD_PARTY_AUTH_ERROR"}),
        (["APNS_AUTH_ERROR"], {"fate": "credential", "code": "APNS_AUTH_ERROR"}),
        (["UNAUTHENTICATED"], {"fate": "credential", "code": "UNAUTHENTICATED"}),
        (["QUOTA_EXCEEDED"], {"fate": "not_sent", "pauses": "project", "retry_after_ms": 60_000}),
        (["QUOTA_EXCEEDED", "retry-after=7"], {"fate": "not_sent", "pauses": "project", "retry_after_ms": 7_000}),
        (["DEVICE_QUOTA_EXCEEDED"], {"fate": "retryable", "pauses": "phone", "retry_after_ms": 60_000}),
        (["INTERNAL"], {"fate": "unclear", "code": "INTERNAL", "retry_after_ms": 10_000}),
        (["UNAVAILABLE"], {"fate": "unclear", "code": "UNAVAILABLE", "retry_after_ms": 10_000}),
        (["UNAVAILABLE", "retry-after=90"], {"fate": "unclear", "retry_after_ms": 90_000}),
        (["502"], {"fate": "unclear", "code": "HTTP_502", "retry_after_ms": 10_000}),
        (["404"], {"fate": "not_sent", "code": "HTTP_404"}),
        (["garbage"], {"fate": "unclear", "code": "UnreadableAnswer", "retry_after_ms": 10_000}),
        (["refused"], {"fate": "not_sent", "code": "RefusedStream"}),
        (["stream-error"], {"fate": "unclear", "code": "StreamReset", "retry_after_ms": 10_000}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_each_answer_has_one_meaning(fcm: Fcm, sandbox: Sandbox, words: list[str], expected: dict[str, Any]) -> None:
    """Every code of FCM is final, retryable, nobody's knowledge or the project's fault, with its own pause."""
    ticket = sent(fcm, sandbox, *words)
    assert {key: getattr(ticket, key) for key in expected} == expected


def test_what_is_taken_is_ok_at_once(fcm: Fcm, sandbox: Sandbox) -> None:
    """There are no receipts: a push that FCM took is ok, with the id behind the last slash of its name."""
    ticket = sent(fcm, sandbox)
    assert ticket.fate == "ok"
    assert ticket.id
    assert "/" not in ticket.id
    assert fcm.max_receipts == 0


def test_an_access_token_is_dropped_once(fcm: Fcm, sandbox: Sandbox) -> None:
    """An expired access token costs one more request with a new one, and no attempt."""
    assert sent(fcm, sandbox).fate == "ok"
    sandbox.expire_access_tokens()
    assert sent(fcm, sandbox).fate == "ok"


def test_a_late_refusal_costs_no_newer_access_token(fcm: Fcm) -> None:
    """Two requests are refused for one access token: the second drops it in vain, for it was replaced meanwhile."""
    project = fcm._projects.find(FcmEntry, "default")
    assert isinstance(project, PushProject)
    first = fcm.tokens.get(project)
    fcm.tokens.drop(project, first)
    second = fcm.tokens.get(project)
    fcm.tokens.drop(project, first)
    assert fcm.tokens.get(project) == second != first
    fcm.tokens.drop(project, second)
    assert fcm.tokens.get(project) not in (first, second)


def test_what_is_taken_by_a_new_access_token_is_told_of_its_message(fcm: Fcm, sandbox: Sandbox) -> None:
    """Of one call some messages are refused for the access token and taken with the next one: each is told as taken under
    its own place."""
    phones = [("ana",), ("bea", "UNAUTHENTICATED*1"), ("eva",), ("ida", "UNAUTHENTICATED*1")]
    taken: dict[int, Ticket] = {}
    messages = [native.message(sandbox.fcm_token(*phone)) for phone in phones]
    reply = fcm.send(messages, ANDROID, taken.__setitem__)
    assert [ticket.fate for ticket in reply.tickets] == ["ok"] * 4
    assert taken == dict(enumerate(reply.tickets))
    assert len({ticket.id for ticket in reply.tickets}) == 4


def test_what_was_taken_stays_taken_when_no_new_token_comes(fcm: Fcm, sandbox: Sandbox) -> None:
    """Of one call FCM takes a message and refuses another for its access token, and Google gives no other: the first is taken."""
    assert sent(fcm, sandbox).fate == "ok"
    sandbox.add_fault("invalid_grant", service="fcm", on="token", times=1)
    assert sent(fcm, sandbox, "UNAUTHENTICATED").fate == "credential"


def test_a_refused_account_is_the_projects_fault(sandbox: Sandbox) -> None:
    """A service account that Google refuses stops its project with Google's word for it, before anything is sent."""
    sandbox.clear_faults()
    sandbox.add_fault("invalid_grant", service="fcm", on="token", times=1)
    with native.fcm(sandbox) as fcm:
        reply = fcm.send([native.message(sandbox.fcm_token("ana"))], ANDROID)
        assert (reply.kind, reply.code) == ("unauthorised", "TokenRefused")
        assert "invalid_grant" in str(reply.message)
        assert fcm.send([native.message(sandbox.fcm_token("ana"))], ANDROID).kind == "answered", (
            "once mended it goes on"
        )


@pytest.mark.parametrize(
    ("secret", "why"),
    [("{", "no JSON$"), ("[" * 100_000, "no JSON$"), ("[]", "no JSON object"), ('"x"', "no JSON object")],
)
def test_an_account_that_is_no_object_is_refused(secret: str, why: str) -> None:
    """A service account is an object of JSON; its project is stopped with a sentence that says so."""
    with pytest.raises(ValueError, match=f"^its service account is {why}"):
        credentials.check(PushProject("default", FcmEntry(service_account_file="a.json"), secret))


@pytest.mark.parametrize("field", ["client_email", "private_key", "token_uri"])
@pytest.mark.parametrize("value", [None, 5, ["x"]])
def test_a_field_of_an_account_that_is_no_text_is_named(sandbox: Sandbox, field: str, value: object) -> None:
    """A service account whose field is missing, or something else than text, is refused by the name of that field."""
    account = json.loads(sandbox.service_account_file.read_text()) | {field: value}
    with pytest.raises(ValueError, match=f"^its service account has no {field}$"):
        credentials.check(PushProject("default", FcmEntry(service_account=account), json.dumps(account)))


def test_no_token_endpoint_is_nobodys_fault(sandbox: Sandbox, tmp_path: Path) -> None:
    """While the token endpoint cannot be reached nothing is sent, and nothing is blamed on the account."""
    account = json.loads(sandbox.service_account_file.read_text()) | {"token_uri": "https://127.0.0.1:9/token"}
    file = tmp_path / "projects.json"
    file.write_text(json.dumps({"default": {"fcm": {"service_account": account}}}))
    with native.fcm(sandbox, file, timeout_ms=1_000) as fcm:
        reply = fcm.send([native.message(sandbox.fcm_token("ana"))], ANDROID)
    assert (reply.kind, reply.code) == ("not_sent", "NoToken")


def test_one_token_is_fetched_for_many_threads(sandbox: Sandbox) -> None:
    """However many threads begin at once, the token endpoint is asked once."""
    asked: list[str] = []
    with Sandbox(native=True, tell=asked.append) as own, native.fcm(own) as fcm:
        threads = [
            threading.Thread(target=lambda: fcm.send([native.message(own.fcm_token("ana"))], ANDROID)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len([line for line in asked if "/token" in line]) == 1
    assert len([line for line in asked if "messages:send" in line and "200" in line]) == 6


def of_this_machine(tmp_path: Path) -> Path:
    """Write the credentials of a project that uses the machine's own account."""
    file = tmp_path / "projects.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"default": {"fcm": {"default_credentials": True, "project_id": "relevo-sandbox"}}}))
    return file


@pytest.mark.parametrize("where", ["file", "metadata server"])
def test_the_machines_own_account(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """With application default credentials no secret stands in our file: the account is the one that the environment
    names, or that of the machine in Google's cloud, and FCM takes its token."""
    sandbox.clear_faults()
    with native.fcm(sandbox) as usual:
        project = native.projects(sandbox).find(FcmEntry, "default")
        assert isinstance(project, PushProject)
        token = usual.tokens.get(project)

    def metadata(asked: Asked) -> Answer:
        answers = {"token": {"access_token": token, "expires_in": 3_600, "token_type": "Bearer"}, "universe_domain": {}}
        known = answers.get(asked.path.rpartition("/")[2], {"email": "machine", "scopes": [], "aliases": ["default"]})
        headers = {"Metadata-Flavor": "Google", "Content-Type": "application/json"}
        return Answer(200, json.dumps(known).encode(), headers)

    with FakeServer(metadata) as server, native.fcm(sandbox, of_this_machine(tmp_path)) as fcm:
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
            monkeypatch.setenv(name, server.url.removeprefix("http://"))
        if where == "file":
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(sandbox.service_account_file))
        assert fcm.trouble(ANDROID) == ""
        assert sent(fcm, sandbox).fate == "ok"
        assert bool(server.asked) == (where == "metadata server")


def test_a_machine_without_an_account_is_told(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Application default credentials that are not there stop their project, by Google's word for it."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    with native.fcm(sandbox, of_this_machine(tmp_path)) as fcm:
        reply = fcm.send([native.message(sandbox.fcm_token("ana"))], ANDROID)
        assert (reply.kind, reply.code) == ("unauthorised", "TokenRefused")
        assert "gone.json was not found" in str(reply.message)
        assert fcm.trouble(ANDROID).startswith("Google refuses its account: ")


@pytest.mark.parametrize(
    ("said", "code"),
    [({}, "NoCredential"), ({"default": {"fcm": {"service_account": {"type": "x"}}}}, "CredentialUnusable")],
)
def test_a_project_without_credentials_is_stopped_by_name(
    sandbox: Sandbox, tmp_path: Path, said: Any, code: str
) -> None:
    """The reply names the project and what is missing, and nothing is sent."""
    file = tmp_path / "projects.json"
    file.write_text(json.dumps(said))
    with native.fcm(sandbox, file) as fcm:
        reply = fcm.send([native.message(sandbox.fcm_token("ana"))], ANDROID)
    assert (reply.kind, reply.code) == ("unauthorised", code)
    assert "default" in str(reply.message)


def test_a_fault_of_the_whole_project_is_told_once(fcm: Fcm, sandbox: Sandbox) -> None:
    """When every message of a request is refused for the account's rights, the reply says it of the project."""
    reply = fcm.send([native.message(sandbox.fcm_token("ana", "PERMISSION_DENIED"))] * 3, ANDROID)
    assert (reply.kind, reply.code) == ("unauthorised", "PERMISSION_DENIED")
    other = fcm.send([native.message(sandbox.fcm_token("ana", "SENDER_ID_MISMATCH"))] * 3, ANDROID)
    assert [ticket.fate for ticket in other.tickets] == ["credential"] * 3, "which may be the phones' own"


def test_nobody_there_is_not_sent(sandbox: Sandbox) -> None:
    """Without a connection the whole request was not sent."""
    with native.fcm(sandbox, base_url="https://127.0.0.1:9") as fcm:
        assert fcm.send([native.message("t")], ANDROID).kind == "not_sent"
    assert Reply("answered") == fcm.send([], ANDROID)


def received(sandbox: Sandbox, token: str) -> dict[str, Any]:
    """Return what FCM was sent for a phone, last."""
    return dict(sandbox.received(token)[-1])


def test_a_written_message_is_the_plain_one(fcm: Fcm, sandbox: Sandbox) -> None:
    """What an event's writer writes, and what a composer's mapping becomes, reach the phone as the same."""
    token = sandbox.fcm_token("pia")
    push = {"priority": "high", "channelId": "orders", "badge": 3, "tag": "t", "richContent": {"image": "https://x/y"}}
    draft = native.draft(data={"order": 17, "lines": [1, {"a": None}], "note": 'ä\ue000"'}, **push)
    for platform in ("android", "ios", "web", "unknown"):
        project = f"fcm::default::{platform}"
        write = fcm.writer(draft, platform)
        assert write is not None
        delivery = native.delivery(token, "fcm", seconds_left=90.0)
        seen = []
        for message in (write(delivery), draft.message(delivery)):
            assert fcm.send([message], project).tickets[0].fate == "ok"
            seen.append(received(sandbox, token))
        assert seen[0] == seen[1]
        assert seen[0]["data"] == {
            "notificationEventId": "5",
            "order": "17",
            "lines": '[1,{"a":null}]',
            "note": 'ä\ue000"',
            "pushProvider": "fcm",
            "notificationDeliveryId": "7",
            "installationId": str(native.PHONE),
        }, "every value is text"


def test_each_platform_has_its_own_section(fcm: Fcm) -> None:
    """Android, iOS and the web are told in their own words; a phone of an unknown kind is shown the text either way."""
    push = {"priority": "high", "channelId": "orders", "badge": 3, "tag": "t", "collapseId": "c", "categoryId": "cat"}
    draft = native.draft(**push)

    def written(platform: str) -> dict[str, Any]:
        write = fcm.writer(draft, platform)
        assert write is not None
        made = json.loads(write(native.delivery("t", "fcm", seconds_left=90.0)).json())["message"]
        assert made.pop("token") == "t"
        del made["data"]
        return dict(made)

    android = {
        "priority": "high",
        "notification": {
            "title": "Hola",
            "body": "¿Qué tal?",
            "tag": "t",
            "channel_id": "orders",
            "notification_count": 3,
            "sound": "default",
        },
        "ttl": "90s",
    }
    assert written("android") == {"android": android}, "no collapse key: a phone has four"
    assert written("unknown") == {"notification": {"title": "Hola", "body": "¿Qué tal?"}, "android": android}
    ios = written("ios")["apns"]
    assert ios["payload"]["aps"]["alert"] == {"title": "Hola", "body": "¿Qué tal?"}
    assert ios["headers"].pop("apns-expiration").isdecimal()
    assert ios["headers"] == {"apns-push-type": "alert", "apns-priority": "10", "apns-collapse-id": "c"}
    assert written("web")["webpush"] == {
        "notification": {"title": "Hola", "body": "¿Qué tal?", "tag": "t"},
        "headers": {"Urgency": "high", "TTL": "90", "Topic": topic("c")},
    }


def test_a_push_for_the_app_alone_shows_nothing(fcm: Fcm, sandbox: Sandbox) -> None:
    """Without title and body Android gets data alone, and iOS a push of the kind background at priority 5."""
    draft = native.draft(silent=True, priority="high")
    for platform, project in (("android", ANDROID), ("ios", IOS)):
        write = fcm.writer(draft, platform)
        assert write is not None
        message = write(native.delivery(sandbox.fcm_token("leo"), "fcm"))
        made = json.loads(message.json())["message"]
        assert fcm.send([message], project).tickets[0].fate == "ok"
        assert "notification" not in made.get("android", {})
        if platform == "ios":
            assert made["apns"]["payload"] == {"aps": {"content-available": 1}}
            assert made["apns"]["headers"]["apns-push-type"] == "background"
            assert made["apns"]["headers"]["apns-priority"] == "5"


def test_what_cannot_be_sent_is_refused_before(fcm: Fcm) -> None:
    """A reserved key, a message beyond 4,096 bytes and a malformed token are final, and the token is left alone."""
    reserved = fcm.refuse(native.message("t", data={"google.x": 1}))
    assert reserved is not None
    assert (reserved.fate, reserved.code) == ("failed", "ReservedDataKey")
    assert fcm.writer(native.draft(data={"from": "x"}), "android") is None
    heavy = fcm.refuse(native.message("t", body="x" * 4_000))
    assert heavy is not None
    assert (heavy.fate, heavy.code) == ("failed", "MessageTooBig")
    assert fcm.writer(native.draft(data={"x": "y" * 4_000}), "android") is None
    assert fcm.refuse_token("two words") is not None
    assert fcm.refuses_any(["t", None])
    assert not fcm.refuses_any(["t" * 4_096])


@pytest.mark.parametrize(
    ("fields", "fate"),
    [
        (["message.token"], "invalid"),
        (["message.token", "message.android.ttl"], "failed"),
        (["message.data"], "failed"),
    ],
)
def test_the_token_is_to_blame_only_if_nothing_else_is(fields: list[str], fate: str) -> None:
    """An INVALID_ARGUMENT that names another field beside the token disables no phone."""
    violations = [{"field": field, "description": "it is wrong"} for field in fields]
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    error = {"status": "INVALID_ARGUMENT", "message": "Request is invalid.", "details": [detail]}
    assert _judge(Answered(400, {}, json.dumps({"error": error}).encode())).fate == fate


@pytest.mark.parametrize(
    ("subject", "description", "pauses"),
    [
        ("device", "More than 240 messages in a minute.", "phone"),
        ("device:abc", "Too many messages.", "phone"),
        ("token", "Too many messages to this device.", "phone"),
        ("project:device-shop", "Too many messages of project:device-shop.", "project"),
        ("projects/device", "The quota of projects/device is used up.", "project"),
        ("my-device", "600000 messages in a minute", "project"),
    ],
)
def test_a_devices_quota_is_told_from_a_projects(subject: str, description: str, pauses: str) -> None:
    """The word device in a project's id does not make the project's quota one of a phone."""
    violation = {"subject": subject, "description": description}
    detail = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no", "details": [detail]}
    ticket = _ticket(Answered(429, {"retry-after": "7200"}, json.dumps({"error": error}).encode()))
    assert (ticket.pauses, ticket.retry_after_ms) == (pauses, 7_200_000)


@pytest.mark.parametrize("subjects", [["device:abc", "project:shop"], ["project:shop", "device:abc"]])
def test_a_devices_quota_among_two(subjects: list[str]) -> None:
    """FCM may name several quotas: if one of them is the phone's, this phone waits, and not its whole project."""
    violations = [{"subject": subject, "description": "Too many messages."} for subject in subjects]
    detail = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no", "details": [detail]}
    ticket = _ticket(Answered(429, {}, json.dumps({"error": error}).encode()))
    assert (ticket.fate, ticket.pauses) == ("retryable", "phone")


def test_a_project_may_name_phones_by_fid(sandbox: Sandbox, tmp_path: Path) -> None:
    """With `"target": "fid"` the field `fid` holds the token, whatever else is called token; without it `token` does."""
    account = json.loads(sandbox.projects_file.read_text())["default"]["fcm"]
    account["service_account_file"] = str(sandbox.projects_file.parent / account["service_account_file"])
    for target in ("token", "fid"):
        file = tmp_path / f"{target}.json"
        file.write_text(json.dumps({"default": {"fcm": account | {"target": target}}}))
        token = sandbox.fcm_token(f"by-{target}")
        with native.fcm(sandbox, file) as fcm:
            [ticket] = fcm.send([native.message(token, data={"token": "mine"})], ANDROID).tickets
        assert ticket.fate == "ok"
        assert sandbox.received(token)[-1]["data"]["token"] == "mine"
    written = b'{"message":{"data":{"token":"a"},"token":"b"}}'
    assert json.loads(_by_fid(written)) == {"message": {"data": {"token": "a"}, "fid": "b"}}
