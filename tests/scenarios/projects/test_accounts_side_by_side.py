"""Push services by name: two Expo accounts and a webhook, served side by side by one worker."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from relevo.app import push_services
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.client.verbs import InvalidInputError
from relevo.core.errors import ConfigError
from relevo.operators import fleet
from relevo.providers import secret_file
from support.fake_expo import FakeExpo
from support.fake_http_server import Answer, FakeServer

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def webhooks(tmp_path: Path):
    """A receiver, and the file that names it."""
    with FakeServer(lambda asked: Answer(503 if b"broken" in asked.body else 200)) as server:
        file = tmp_path / "webhooks.json"
        file.write_text(json.dumps({"billing": {"url": f"{server.url}/hook", "secret": SECRET}}))
        file.chmod(0o600)
        yield server, file


def test_two_expo_accounts_and_a_webhook_side_by_side(relay, webhooks) -> None:
    """Each project is asked for with its own token, each installation reached by its own service, in one run."""
    receiver, file = webhooks
    with FakeExpo() as expo:
        worker = relay(
            expo_base_url=expo.url,
            expo_access_tokens=json.dumps({"@one/app": "token-one", "@two/app": "token-two"}),
            webhooks_file=file,
            http_allow_private="true",
        )
        worker.register("ana", project="@one/app")
        worker.register("eva", project="@two/app")
        hook = verbs.register(worker.conn, Installation("billing", provider="webhook", project="@one/app"))
        worker.tell_everyone()
        report = worker.dispatch()
        assert report.outcome == "ok", report
        sent = {asked.body[0]["to"]: asked.headers["authorization"] for asked in expo.asked}
    assert sent == {
        "ExponentPushToken[ana]": "Bearer token-one",
        "ExponentPushToken[eva]": "Bearer token-two",
    }
    [asked] = receiver.asked
    assert json.loads(asked.body)["data"]["pushProvider"] == "webhook"
    rows = worker.rows("select project, provider, status from relevo.notification_deliveries order by project")
    assert [(row["project"], row["provider"], row["status"]) for row in rows] == [
        ("@one/app", "expo", "sent"),
        ("@two/app", "expo", "sent"),
        ("webhook::@one/app", "webhook", "ok"),
    ]
    assert worker.rows("select invalidated_at from relevo.device_installations where installation_id = %s", hook) == [
        {"invalidated_at": None}
    ]
    named = {row["project"] for row in fleet.projects(worker.app.database)}
    assert {"@one/app", "@two/app", "webhook::@one/app"} <= named, "each has its own rate, breaker and connections"


def test_one_providers_trouble_is_its_own(relay, webhooks) -> None:
    """A webhook that fails again and again opens its own breaker, and the phones of the same project go on."""
    receiver, file = webhooks
    worker = relay(webhooks_file=file, http_allow_private="true", push_breaker_failures=1)
    verbs.register(worker.conn, Installation("billing", provider="webhook"))
    worker.register("ana")
    worker.tell_everyone(title="broken")
    worker.dispatch()
    breakers = {row["project"]: row["breaker"] for row in fleet.projects(worker.app.database)}
    assert breakers == {"default": "closed", "webhook::default": "open"}
    assert worker.delivery("ana")["status"] == "sent"
    assert len(receiver.asked) == 1


def test_a_replica_without_a_provider_leaves_its_deliveries_alone(relay, webhooks) -> None:
    """What it cannot send it does not claim; one that can does."""
    receiver, file = webhooks
    lacking, having = relay(), relay(webhooks_file=file, http_allow_private="true")
    verbs.register(lacking.conn, Installation("billing", provider="webhook"))
    lacking.tell_everyone()
    assert lacking.dispatch().outcome == "idle"
    assert lacking.states() == {"pending": 1}
    having.dispatch()
    assert having.states() == {"ok": 1}
    assert len(receiver.asked) == 1


def test_an_access_token_is_rotated_without_a_restart(relay, tmp_path: Path, monkeypatch) -> None:
    """The next request has the token that the file has by then; a file that cannot be used leaves the last one in force."""
    monkeypatch.setattr(secret_file, "LOOK_EVERY_S", 0)
    file = tmp_path / "tokens.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"*": "first"}))
    with FakeExpo() as expo:
        worker = relay(expo_base_url=expo.url, expo_access_tokens_file=file)
        worker.register("ana")
        for said in ('{"*": "first"}', '{"*": "second"}', "[not json", '{"*": "third"}'):
            file.write_text(said)
            worker.tell_everyone()
            assert worker.dispatch().outcome == "ok"
        asked = [each.headers["authorization"] for each in expo.asked]
    assert asked == ["Bearer first", "Bearer second", "Bearer second", "Bearer third"]


def test_an_unknown_provider_is_refused_at_the_door(conn) -> None:
    """A provider that nobody serves is named, with those that are."""
    with pytest.raises(InvalidInputError, match=r"provider must be one of .*expo.*, got pager"):
        verbs.register(conn, Installation("a-raw-token", provider="pager"))


@pytest.mark.parametrize(
    "given",
    [
        {"expo_access_token": "hunter2 hunter2"},
        {"expo_access_tokens": '{"@one/app": "hunter2\\nhunter2"}'},
        {"expo_access_tokens": "[" * 100_000},
        {"expo_access_tokens_file": b"\xffhunter2"},
    ],
    ids=["two words", "two lines", "nested", "no text"],
)
def test_access_tokens_that_cannot_be_used_are_refused_by_name(
    make_settings, tmp_path: Path, given: dict[str, str | bytes]
) -> None:
    """The start ends with a sentence that names the setting and repeats nothing of its value."""
    [(name, value)] = given.items()
    if isinstance(value, bytes):
        file = tmp_path / "tokens.json"
        file.touch(mode=0o600)
        file.write_bytes(value)
        value = str(file)
    with (
        pytest.raises(ConfigError, match=name.upper()) as refused,
        push_services.push_providers(make_settings(**{name: value})),
    ):
        pass
    assert "hunter2" not in str(refused.value)


def test_a_webhook_that_took_it_late_is_done(relay, webhooks) -> None:
    """A webhook tells of no receipts: what it took, although its claim was lost meanwhile, ends `ok` and awaits none."""
    receiver, file = webhooks
    worker = relay(webhooks_file=file, http_allow_private="true")
    verbs.register(worker.conn, Installation("billing", provider="webhook"))
    worker.tell_everyone()
    worker.conn.execute(
        "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)"
        " select event_day, id, 'msg_1', gen_random_uuid(), now() from relevo.notification_deliveries"
    )
    assert worker.dispatch().outcome == "ok"
    assert receiver.asked == [], "it has been taken before"
    worker.ask()
    assert worker.states() == {"ok": 1}
    assert worker.rows("select from relevo.awaited_receipts") == []


def test_a_credential_that_breaks_is_told_by_status(relay, tmp_path: Path, monkeypatch) -> None:
    """The next beat tells the fleet which entry cannot be used and why; mended, status says nothing of it."""
    monkeypatch.setattr(secret_file, "LOOK_EVERY_S", 0)
    file = tmp_path / "projects.json"
    file.touch(mode=0o600)
    apns = {"key_file": "gone.p8", "key_id": "K", "team_id": "T", "topic": "t"}
    file.write_text(json.dumps({"shop": {"apns": apns, "expo": {"access_token": "fine"}}}))
    worker = relay(push_projects_file=file)

    def told() -> list[str]:
        with worker.app.database.transaction() as connection:
            worker.app.worker.beat(connection)
        found = fleet.status(worker.app.database, worker.app.settings).problems
        return [str(each) for each in found if each.code == "credential_unusable"]

    (said,) = told()
    assert said.startswith("PUSH_PROJECTS_FILE, shop, apns: its file gone.p8 cannot be read (FileNotFoundError); ")
    file.write_text("{")
    assert told()[0].startswith("PUSH_PROJECTS_FILE: it is no JSON")
    file.write_text("{}")
    assert told() == []
