"""One event for phones of several push services: the troubles of one are its own, and each push comes to its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.core.i18n import use_language
from relevo.core.sending_project import project_in_words
from relevo.operators import reasons
from relevo.sandbox import Sandbox
from support import mixed_phones, soak
from support.mixed_phones import PARTS
from support.processes import eventually
from support.sending_worker import Relay

KINDS = ("expo", "android", "iphone by fcm", "iphone")
NATIVE = KINDS[1:]


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM and APNs."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay, sandbox) -> Relay:
    """A worker that sends by every push service."""
    made: Relay = relay(**mixed_phones.addresses(sandbox))
    return made


def add(worker: Relay, kind: str, *words: str, number: int = 1) -> list[UUID]:
    """Register phones of a kind that meet the same faults."""
    made = []
    for _ in range(number):
        name = f"{kind.replace(' ', '-')}-{len(worker.phones)}"
        phone = verbs.register(worker.conn, mixed_phones.installation(worker.sandbox, kind, name, *words))
        worker.phones[name] = phone
        made.append(phone)
    return made


def tell(worker: Relay, phones: Sequence[UUID], **how: Any) -> int:
    """Enqueue an event for phones, and fan it out."""
    event = worker.enqueue(audience=list(phones), **how)
    worker.fan_out()
    return event


def found(worker: Relay, event: int) -> dict[UUID, dict[str, Any]]:
    """Return an event's deliveries by phone, each with how often its phone was pushed to."""
    rows = worker.rows(
        """select d.*, i.token, i.invalidated_at, (select count(*) from relevo.failed_attempts f where f.delivery_id = d.id)::int as failures
             from relevo.deliveries d join relevo.device_installations i using (installation_id) where d.notification_event_id = %s""",
        event,
    )
    return {
        row["installation_id"]: row | {"received": mixed_phones.received(worker.sandbox, row["token"])} for row in rows
    }


def ends(worker: Relay, phones: Sequence[UUID], event: int) -> set[tuple[str, int, int]]:
    """Return how deliveries ended: their status, how often their phone was pushed to, and their attempts."""
    rows = found(worker, event)
    return {(rows[each]["status"], rows[each]["received"], rows[each]["attempt_count"]) for each in phones}


TURNED_AWAY = [(kind, fault, once) for kind in NATIVE for fault in ("goaway*3", "refused*1") for once in (False, True)]


@pytest.mark.parametrize(
    ("kind", "fault", "once"),
    soak.cases(TURNED_AWAY[::4] + TURNED_AWAY[3::4], whole=TURNED_AWAY),  # each fault at least once, or at most once
)
def test_streams_that_were_not_taken_are_not_tried(worker, kind, fault, once) -> None:
    """A GOAWAY, or a refused stream, in the midst of a request: what it did not take has its attempts left, also at most
    once, and every phone is pushed to exactly once."""
    struck, others = add(worker, kind, fault), add(worker, kind, number=6)
    event = tell(worker, [*struck, *others], at_most_once=once)
    worker.dispatch(at_most=7)
    assert ends(worker, struck, event) == {("pending", 0, 0)}
    assert ends(worker, others, event) <= {("ok", 1, 1), ("pending", 0, 0)}  # below the stream, or above it
    worker.travel(seconds=30)
    worker.drain()
    assert ends(worker, [*struck, *others], event) == {("ok", 1, 1)}
    assert worker.rows("select from relevo.failed_attempts") == []


NOBODY_KNOWS = [
    ("android", "reset-delivered*1"),
    ("android", "truncated*1"),
    ("android", "UNAVAILABLE-delivered*1"),
    ("iphone", "stream-error-delivered*1"),
    ("iphone", "goaway-delivered*1"),
]
OTHERS = [
    ("android", "stream-error-delivered*1"),
    ("android", "garbage*1"),
    ("iphone", "reset-delivered*1"),
    ("iphone", "InternalServerError-delivered*1"),
]
"""What both services do alike, each by the other one."""


@pytest.mark.parametrize(("kind", "fault"), soak.cases(NOBODY_KNOWS, whole=[*NOBODY_KNOWS, *OTHERS]))
def test_what_nobody_knows_comes_twice_only_at_least_once(worker, kind, fault) -> None:
    """A push that was taken and not answered is unknown at most once, and comes again at least once, with a failed
    attempt that says why; the others of both events come to their end."""
    again, once = add(worker, kind, fault), add(worker, kind, fault)
    others = add(worker, kind, number=2)
    events = tell(worker, [*again, *others]), tell(worker, once, at_most_once=True)
    for _ in range(4):
        worker.drain()
        worker.travel(minutes=16)
    assert ends(worker, once, events[1]) <= {("unknown", 1, 1), ("unknown", 0, 1)}  # cut off by the other, maybe
    assert found(worker, events[0])[again[0]]["received"] >= 2
    for row in found(worker, events[0]).values():
        assert row["status"] == "ok"
        assert row["received"] <= 1 + row["failures"], row
        assert row["failures"] == row["attempt_count"] - 1


@pytest.mark.parametrize("kind", NATIVE)
def test_a_connection_that_is_cut_loses_nothing(worker, kind) -> None:
    """Cut before anything of a stream was taken: all of it arrives in the end, and at most once is never two."""
    again = [*add(worker, kind, number=5), *add(worker, kind, "reset*1"), *add(worker, kind, "slow=0.2")]
    once = [*add(worker, kind, number=2), *add(worker, kind, "reset*1")]
    events = tell(worker, again), tell(worker, once, at_most_once=True)
    for _ in range(4):
        worker.drain()
        worker.travel(minutes=16)
    for row in found(worker, events[0]).values():
        assert (row["status"], row["failures"]) == ("ok", row["attempt_count"] - 1)
        assert 1 <= row["received"] <= row["attempt_count"]
    for row in found(worker, events[1]).values():
        assert (row["status"], row["received"]) in (("ok", 1), ("unknown", 0), ("unknown", 1)), row


def credentials(sandbox: Sandbox, folder: Path, **changed: Mapping[str, Any]) -> Path:
    """Write the sandbox's credentials with others for some push services, and return the file."""
    known = json.loads(sandbox.projects_file.read_text())["default"]
    for entry in known.values():
        entry.update({key: str(sandbox.projects_file.parent / entry[key]) for key in entry if key.endswith("_file")})
    file = folder / "projects.json"
    file.write_text(json.dumps({"default": known | {name: known[name] | more for name, more in changed.items()}}))
    file.chmod(0o600)
    return file


def another_key(folder: Path) -> Path:
    """Write a key that Apple does not know."""
    return _private(folder / "other.p8", ec.generate_private_key(ec.SECP256R1()))


def another_account(sandbox: Sandbox, folder: Path) -> Path:
    """Write a service account with a key that Google does not know."""
    account = json.loads(sandbox.service_account_file.read_text())
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account["private_key"] = _private(folder / "key.pem", made).read_text()
    file = folder / "account.json"
    file.write_text(json.dumps(account))
    file.chmod(0o600)
    return file


def _private(file: Path, key: Any) -> Path:
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(*pem))
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(("service", "troubled"), [("fcm", ("android", "iphone by fcm")), ("apns", ("iphone",))])
def test_a_wrong_credential_stops_its_own_push_service(relay, sandbox, command, tmp_path, service, troubled) -> None:
    """Breaker and status name whose it is and nothing of it is tried; every other push is sent at once; mended, in the
    file alone, the rest follows and each phone has its push once."""
    bad = {"service_account_file": str(another_account(sandbox, tmp_path))} if service == "fcm" else {
        "key_file": str(another_key(tmp_path))}  # fmt: skip
    file = credentials(sandbox, tmp_path, **{service: bad})
    worker = relay(**mixed_phones.addresses(sandbox) | {"push_projects_file": file})
    phones = {kind: add(worker, kind, number=8) for kind in KINDS}
    event = tell(worker, [each for all_of in phones.values() for each in all_of])
    worker.drain()
    for kind, all_of in phones.items():
        if kind in troubled:
            assert ends(worker, all_of, event) == {("pending", 0, 0)}, kind
            assert worker.project(PARTS[kind])["breaker"] == "open"
        else:
            assert ends(worker, all_of, event) == {("sent" if kind == "expo" else "ok", 1, 1)}, kind
            assert worker.project(PARTS[kind])["breaker"] == "closed"
    said = " ".join(command("status").out.split())
    assert all(f"project {project_in_words(PARTS[kind])} has sent only probes" in said for kind in troubled), said
    assert said.count("has sent only probes") == len(troubled)
    assert "Expo" not in said
    credentials(sandbox, tmp_path)

    def is_mended() -> bool:
        worker.travel(minutes=16)
        worker.drain()
        return all(ends(worker, phones[kind], event) == {("ok", 1, 1)} for kind in troubled)

    eventually(is_mended, "the file was read again, and a probe went well")


def test_a_credential_of_one_part_stops_no_other(worker, command) -> None:
    """FCM has no APNs key of the project: its iPhones wait behind an open breaker, its Androids have their pushes."""
    iphones, androids = (
        add(worker, "iphone by fcm", "THIRD_PARTY_AUTH_ERROR", number=6),
        add(worker, "android", number=6),
    )
    event = tell(worker, [*iphones, *androids])
    worker.drain()
    assert ends(worker, androids, event) == {("ok", 1, 1)}
    assert worker.project(PARTS["iphone by fcm"])["breaker"] == "open"
    assert worker.project(PARTS["android"])["breaker"] == "closed"
    assert {row["received"] for row in found(worker, event).values() if row["installation_id"] in iphones} == {0}
    assert worker.disabled() == 0
    said = command("status").out
    assert project_in_words(PARTS["iphone by fcm"]) in said
    assert "THIRD_PARTY_AUTH_ERROR" in said


def test_a_quota_that_is_spent_rests_its_own_part(worker, sandbox, command) -> None:
    """What is over FCM's quota is not tried and waits; iPhones of APNs and phones of Expo have theirs at once. The event's
    story names the part in words, also in Spanish."""
    sandbox.set(fcm_per_minute=5)
    androids, others = (
        add(worker, "android", number=20),
        {kind: add(worker, kind, number=20) for kind in ("expo", "iphone")},
    )
    event = tell(worker, [*androids, *others["expo"], *others["iphone"]])
    worker.drain()
    rows = found(worker, event)
    assert {(rows[each]["status"], rows[each]["attempt_count"]) for each in androids} <= {("ok", 1), ("pending", 0)}
    assert sum(rows[each]["received"] for each in androids) <= 5
    assert ends(worker, others["expo"], event) == {("sent", 1, 1)}
    assert ends(worker, others["iphone"], event) == {("ok", 1, 1)}
    assert worker.project(PARTS["android"])["rest_until"] is not None
    assert worker.project(PARTS["iphone"])["rest_until"] is None
    said = " ".join(command("event", str(event)).out.split())
    [told] = worker.rows("select detail from relevo.project_incidents where what = 'rate_halved'")
    assert f"rate halved {project_in_words(PARTS['android'])}: to" in said
    assert "::" not in said
    use_language("es")
    assert re.fullmatch(r"Al \d+% del ritmo completo.", reasons.happened("rate_halved", told["detail"]))
    use_language("en")
    sandbox.set(fcm_per_minute=0)
    worker.travel(minutes=2)
    worker.drain()
    assert ends(worker, androids, event) == {("ok", 1, 1)}


@pytest.mark.parametrize(("kind", "word"), [("iphone", "Unregistered*1"), ("browser", "410*1")])
def test_a_mass_of_gone_tokens_is_doubted_where_it_is_met(worker, command, kind, word) -> None:
    """Sixty of eighty phones are said to be gone: the brake stops giving up tokens of that part alone, status and the
    event say whose and how many, and what it doubts can be redriven; one gone Android is given up as ever, and every
    other push service sends on, untroubled."""
    gone, well = add(worker, kind, word, number=60), add(worker, kind, number=20)
    others = [each for each in (*KINDS, "browser") if each != kind]
    fine = [phone for each in others for phone in add(worker, each, number=5)]
    gone_android = add(worker, "android", "UNREGISTERED")
    event = tell(worker, [*gone, *well, *fine, *gone_android])
    worker.drain()
    rows = found(worker, event)
    assert {rows[each]["status"] for each in gone} == {"failed"}
    assert [each for each in gone if rows[each]["invalidated_at"]] == []
    assert ends(worker, [*well, *fine], event) == {("ok", 1, 1), ("sent", 1, 1)}
    assert rows[gone_android[0]]["status"] == "invalid"
    assert rows[gone_android[0]]["invalidated_at"] is not None
    assert worker.project(PARTS[kind])["pruning_stopped_at"] is not None
    for each in others:
        state = worker.project(PARTS[each])
        assert (state["pruning_stopped_at"], state["rest_until"], state["breaker"]) == (None, None, "closed"), each
    said = " ".join(command("status").out.split())
    assert f"reports so many tokens of project {project_in_words(PARTS[kind])} as unregistered" in said
    assert said.count("reports so many tokens") == 1
    told = worker.rows("select project, what, detail from relevo.project_incidents where what <> 'rate_halved'")
    assert [(row["project"], row["what"]) for row in told] == [(PARTS[kind], "pruning_stopped")]
    use_language("es")
    assert re.fullmatch(r"\d+ de \d+ respuestas decían .*", reasons.happened("pruning_stopped", told[0]["detail"]))
    use_language("en")
    assert command("redrive", "--project", PARTS[kind]).code == 0
    worker.drain()
    assert {(status, received) for status, received, _ in ends(worker, gone, event)} == {("ok", 1)}


@pytest.mark.parametrize(
    "said",
    ["registered_at = now() - interval '1 month', token_confirmed_at = now() + interval '1 minute'",
     "registered_at = now() + interval '1 minute', token_confirmed_at = null"],
    ids=["confirmed", "registered by 0.3.0"],
)  # fmt: skip
def test_a_phone_that_came_back_is_not_given_up(worker, conn, said) -> None:
    """Apple knew the token as gone, and its phone has said since that it has it: it is tried again, not given up."""
    [phone] = add(worker, "iphone", "Unregistered*1")
    event = tell(worker, [phone])
    conn.execute(f"update relevo.device_installations set {said}")
    worker.dispatch(at_most=1)
    assert ends(worker, [phone], event) == {("retryable", 0, 1)}
    assert worker.disabled() == 0
    worker.travel(minutes=20)
    worker.drain()
    assert ends(worker, [phone], event) == {("ok", 1, 2)}


@pytest.mark.parametrize(("word", "at_expo", "at_fcm"), [("", 1, 0), ("!DeviceNotRegistered", 0, 1)])
def test_a_phone_that_moves_during_a_request_is_pushed_to_once(relay, sandbox, word, at_expo, at_fcm) -> None:
    """It gives its FCM token while its push is on the way to Expo: taken there, that is all; is the former token gone,
    the push goes to the new one, which is not given up."""
    worker = relay(**mixed_phones.addresses(sandbox), push_middlewares=[lambda _, call: (call(), move())[0]])
    [phone] = worker.register(f"mover{word}")
    new = sandbox.fcm_token("mover")

    def move() -> None:
        verbs.register(worker.conn, Installation(new, phone, provider="fcm", platform="android"))

    event = tell(worker, [phone])
    worker.dispatch(at_most=1)
    worker.travel(minutes=2)
    worker.drain()
    worker.ask()
    assert found(worker, event)[phone]["status"] == "ok"
    assert (worker.received(f"mover{word}"), mixed_phones.received(sandbox, new)) == (at_expo, at_fcm)
    assert worker.disabled() == 0


def test_an_iphone_gets_what_ios_reads_whatever_its_platform_is_called(worker, sandbox) -> None:
    """A phone of APNs whose platform nobody gave has its repeats replaced, and is pushed to at once."""
    token = sandbox.apns_token("nameless")
    phone = verbs.register(worker.conn, Installation(token, provider="apns"))
    event = tell(worker, [phone])
    worker.dispatch()
    [got] = sandbox.received(token)
    headers = got["apns"]["headers"]
    assert (headers["apns-collapse-id"], headers["apns-priority"]) == (f"relevo-{event}", "10")
