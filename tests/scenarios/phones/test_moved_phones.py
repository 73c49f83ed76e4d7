"""Phones that move to another provider or project: what waits for them is sent once, from their new place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.operators import actions
from relevo.operators.actions import DeadLetters
from relevo.sandbox import Sandbox
from support.sending_worker import Relay, token


@pytest.fixture(scope="module")
def push_service() -> Iterator[Sandbox]:
    """A sandbox of all services."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def native_relay(relay: Any, sandbox: Sandbox) -> Callable[..., Relay]:
    """Assemble a worker that sends by Expo, FCM and APNs, for two projects with the same credentials."""
    assert sandbox.projects_file is not None
    credentials = json.loads(sandbox.projects_file.read_text())["default"]
    projects = sandbox.projects_file.with_name("two-projects.json")
    projects.write_text(json.dumps({"default": credentials, "shop": credentials}))
    projects.chmod(0o600)

    def make(**more: Any) -> Relay:
        return relay(
            fcm_base_url=sandbox.fcm,
            apns_base_url=sandbox.apns,
            push_ca_file=str(sandbox.ca_file),
            push_projects_file=str(projects),
            **more,
        )

    return make


def to_fcm(worker: Relay, name: str) -> str:
    """Give a phone its own token of FCM in place of Expo's, and return it."""
    own = worker.sandbox.fcm_token(name)
    phone = worker.phones[name]
    assert verbs.register(worker.conn, Installation(own, phone, provider="fcm", platform="android")) == phone
    return own


def check(worker: Relay, name: str, own: str, place: tuple[str, str]) -> None:
    """Check that a phone's only push went to its new token, and that nothing but that was spent."""
    assert worker.received(name) == 0
    assert len(worker.sandbox.received(own)) == 1
    found = worker.delivery(name)
    assert (found["provider"], found["project"]) == place
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("ok", 1, None)
    assert worker.claims() == 0


def test_before_it_is_claimed(native_relay: Callable[..., Relay]) -> None:
    """An event was fanned out for Expo's token when the phone moved to FCM: it gets one push, by FCM; others get theirs."""
    worker = native_relay()
    worker.tell("ana", "eva")
    own = to_fcm(worker, "ana")
    assert worker.dispatch().outcome == "ok"
    worker.dispatch()
    check(worker, "ana", own, ("fcm", "fcm::default::android"))
    assert worker.received("eva") == 1


def test_after_it_is_claimed(native_relay: Callable[..., Relay]) -> None:
    """It moves while its message is composed: nothing goes to the former token, and one push to the new one."""
    moved: list[str] = []

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        if not moved:
            moved.append(to_fcm(worker, "ana"))
        return message

    worker = native_relay(composers={"notice": compose})
    worker.tell("ana")
    worker.dispatch()
    worker.dispatch()
    check(worker, "ana", moved[0], ("fcm", "fcm::default::android"))


def test_from_behind_an_open_breaker(native_relay: Callable[..., Relay], conn: Any) -> None:
    """Expo refuses the project's credential, so nothing of it is sent: what waits for a phone that moves to FCM follows
    it there, once no claim holds it; what waits for others of the same event stays, untried."""
    worker = native_relay()
    names = ["ana", "eva", "ida"]
    worker.tell(*names)
    worker.app.services.projects.failed("default", "the credential was refused", credential=True)
    assert worker.dispatch().outcome != "failed"
    held = conn.execute("delete from relevo.due_chunks returning ids").fetchone()
    to_fcm(worker, "ida")
    own = to_fcm(worker, "ana")
    conn.execute("update relevo.moved_phones set moved_at = now() - interval '2 minutes'")
    worker.reap()
    assert worker.rows("select from relevo.moved_phones") != [], "nothing waits yet, and it is open"
    conn.execute(
        """select relevo.queue_deliveries(array_agg(d.event_day), array_agg(d.id), array_agg(now() - interval '1 hour'))
             from relevo.notification_deliveries d where d.id = any (%s)""",
        held,
    )
    worker.reap()
    assert worker.rows("select from relevo.moved_phones") == []
    worker.dispatch()
    check(worker, "ana", own, ("fcm", "fcm::default::android"))
    [waits] = worker.rows("select * from relevo.due_chunks")
    assert (waits["project"], waits["installations"]) == ("default", [worker.phones["eva"]])
    assert (worker.received("eva"), worker.project()["breaker"]) == (0, "open")


def test_between_two_tries(native_relay: Callable[..., Relay]) -> None:
    """Expo asked to try it again later, and the phone moves to FCM meanwhile: it waits there until then, and what waits for
    another phone stays at Expo."""
    worker = native_relay()
    ana, eva = "ana!ExpoError*1", "eva!ExpoError*1"
    worker.tell(ana, eva)
    worker.dispatch()
    waits = worker.delivery(ana)["next_attempt_at"]
    own = worker.sandbox.fcm_token("ana")
    verbs.register(worker.conn, Installation(own, worker.phones[ana], provider="fcm", platform="android"))
    worker.reap()
    found = {name: worker.delivery(name) for name in (ana, eva)}
    assert [(row["status"], row["project"]) for row in found.values()] == [
        ("retryable", "fcm::default::android"),
        ("retryable", "default"),
    ]
    assert found[ana]["next_attempt_at"] == waits
    worker.travel(minutes=5)
    worker.dispatch()
    assert (len(worker.sandbox.received(own)), worker.received(eva)) == (1, 1)
    assert worker.delivery(ana)["attempt_count"] == 2


def test_after_the_first_look(native_relay: Callable[..., Relay], conn: Any) -> None:
    """A fan-out that read the phone before it moved commits after the reaper's first look: what it made follows, too."""
    worker = native_relay()
    worker.register("ana")
    to_fcm(worker, "ana")
    worker.reap()
    worker.tell("ana")
    conn.execute("update relevo.notification_deliveries set provider = 'expo', project = 'default'")
    conn.execute("update relevo.due_chunks set project = 'default'")
    worker.reap()
    assert worker.rows("select project from relevo.due_chunks") == [{"project": "fcm::default::android"}]
    conn.execute("update relevo.moved_phones set moved_at = now() - interval '2 minutes'")
    worker.reap()
    assert worker.rows("select from relevo.moved_phones") == []


def test_there_and_back(native_relay: Callable[..., Relay]) -> None:
    """What waits in FCM's lane of a platform goes to APNs, and what waits there to Expo."""
    worker = native_relay()
    worker.register("ana", "eva")
    to_fcm(worker, "ana")
    to_fcm(worker, "eva")
    worker.tell("ana", "eva")
    assert {row["project"] for row in worker.rows("select project from relevo.due_chunks")} == {"fcm::default::android"}
    own = worker.sandbox.apns_token("ana")
    verbs.register(worker.conn, Installation(own, worker.phones["ana"], provider="apns", platform="ios"))
    verbs.register(worker.conn, Installation(token("eva"), worker.phones["eva"], provider="expo"))
    worker.dispatch()
    worker.dispatch()
    check(worker, "ana", own, ("apns", "apns::default::production"))
    assert worker.received("eva") == 1
    assert (worker.delivery("eva")["provider"], worker.delivery("eva")["project"]) == ("expo", "default")


def test_to_another_project(native_relay: Callable[..., Relay]) -> None:
    """What waits for a phone of FCM in its former project is sent under the new one's name: its rate and its breaker are others."""
    worker = native_relay()
    worker.register("ana")
    own = to_fcm(worker, "ana")
    worker.tell("ana")
    verbs.register(
        worker.conn, Installation(own, worker.phones["ana"], project="shop", provider="fcm", platform="android")
    )
    worker.dispatch()
    worker.dispatch()
    assert len(worker.sandbox.received(own)) == 1
    assert worker.delivery("ana")["project"] == "fcm::shop::android"
    assert {row["project"] for row in worker.rows("select project from relevo.push_requests")} == {"fcm::shop::android"}


def test_to_another_project_of_expo(native_relay: Callable[..., Relay]) -> None:
    """What waits for a phone of Expo is sent from the project where it waits, as workers of 0.3.0 do; its next push goes by the new one."""
    worker = native_relay()
    worker.tell("ana")
    verbs.register(worker.conn, Installation(token("ana"), worker.phones["ana"], project="shop"))
    worker.dispatch()
    assert worker.received("ana") == 1
    assert worker.delivery("ana")["project"] == "default"
    worker.tell("ana")
    worker.dispatch()
    assert worker.received("ana") == 2
    assert {row["project"] for row in worker.rows("select project from relevo.push_requests")} == {"default", "shop"}


def test_a_dead_letter_is_redriven_at_the_new_place(native_relay: Callable[..., Relay]) -> None:
    """What failed at Expo is sent by FCM once the phone has moved and its delivery is opened again."""
    worker = native_relay()
    worker.tell("big!MessageTooBig")
    worker.dispatch()
    dead = worker.delivery("big!MessageTooBig")
    assert dead["status"] == "failed"
    own = worker.sandbox.fcm_token("big")
    verbs.register(worker.conn, Installation(own, worker.phones["big!MessageTooBig"], provider="fcm"))
    assert actions.redrive(worker.app.database, DeadLetters(ids=[dead["id"]])) == 1
    worker.dispatch()
    worker.dispatch()
    assert len(worker.sandbox.received(own)) == 1
    assert worker.delivery("big!MessageTooBig")["project"] == "fcm::default::unknown"


def test_while_its_receipt_is_awaited(native_relay: Callable[..., Relay]) -> None:
    """Expo's receipt says that the former token is gone, and the phone has moved to FCM since: the new token is not given
    up, the push goes to it, and the story blames nothing but the former one."""
    name = "ana!receipt-DeviceNotRegistered"
    worker = native_relay()
    event = worker.tell(name, "eva!receipt-DeviceNotRegistered")
    worker.dispatch()
    own = worker.sandbox.fcm_token("ana")
    verbs.register(worker.conn, Installation(own, worker.phones[name], provider="fcm", platform="android"))
    worker.travel(hours=1)
    worker.ask()
    assert (worker.delivery(name)["status"], worker.is_disabled(name)) == ("retryable", False)
    waits = worker.delivery(name)
    assert (waits["last_error_code"], waits["provider"], waits["project"]) == (
        "token_changed",
        "fcm",
        "fcm::default::android",
    )
    eva = "eva!receipt-DeviceNotRegistered"
    assert (worker.delivery(eva)["status"], worker.is_disabled(eva)) == ("invalid", True)
    worker.travel(hours=1)
    worker.dispatch()
    assert len(worker.sandbox.received(own)) == 1
    found = worker.delivery(name)
    assert (found["status"], found["attempt_count"], found["project"]) == ("ok", 2, "fcm::default::android")
    assert verbs.explain(worker.conn, event, worker.phones[name]).gets_it
