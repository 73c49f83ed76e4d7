"""One account stops no road: foreign tokens are their owner's fault until several owners met them and nobody is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from relevo.client import verbs
from relevo.client.values import Installation
from relevo.sandbox import Sandbox
from support import mixed_phones
from support.sending_worker import Relay
from support.soak import cases

FOREIGN = {
    "expo": "MismatchSenderId",
    "android": "SENDER_ID_MISMATCH",
    "iphone": "DeviceTokenNotForTopic",
    "browser": "403",
}
"""What each push service says of a token that belongs to another sender."""
KINDS = pytest.mark.parametrize("kind", FOREIGN)
HEALTHY = ("bea", "eva", "ida", "ona")


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay, sandbox) -> Relay:
    """A worker that sends for two projects by every push service."""
    credentials = json.loads(sandbox.projects_file.read_text())["default"]
    projects = sandbox.projects_file.with_name("two-projects.json")
    projects.write_text(json.dumps({"shop": credentials, "bank": credentials}))
    projects.chmod(0o600)
    made: Relay = relay(**mixed_phones.addresses(sandbox) | {"push_projects_file": projects})
    return made


def phones(
    worker: Relay, kind: str, owner: str | None, *words: str, many: int = 1, project: str = "shop"
) -> list[UUID]:
    """Register phones of an owner, all with these faults of their push service."""

    def made(number: int) -> Installation:
        name = f"{owner}-{project}-{'-'.join(words)}-{number}"
        return mixed_phones.installation(worker.sandbox, kind, name, *words, owner=owner, project=project)

    return [verbs.register(worker.conn, made(number)) for number in range(many)]


def road(kind: str, project: str = "shop") -> str:
    """Return the name of a project's road for a kind of phone."""
    return mixed_phones.PARTS[kind].replace("default", project)


def breaker(worker: Relay, kind: str, project: str = "shop") -> str:
    """Return how the breaker of a road is; closed where nothing was sent on it."""
    found = worker.rows("select breaker from relevo.projects where project = %s", road(kind, project))
    return str(found[0]["breaker"]) if found else "closed"


def tell(worker: Relay, *owners: str, project: str = "shop") -> int:
    """Enqueue an event for owners' phones in a project, and send it."""
    asked = "select installation_id from relevo.device_installations where owner = any(%s) and project = %s"
    some = [row["installation_id"] for row in worker.rows(asked, list(owners), project)]
    event = worker.enqueue(audience=some)
    worker.fan_out()
    worker.dispatch()
    return event


def statuses(worker: Relay, event: int, owner: str) -> set[str]:
    """Return what became of an event's deliveries to an owner's phones."""
    asked = """
    select d.status from relevo.notification_deliveries d join relevo.device_installations i using (installation_id)
     where d.notification_event_id = %s and i.owner = %s
    """
    return {row["status"] for row in worker.rows(asked, event, owner)}


TAKEN = ({"ok"}, {"sent"})


@KINDS
def test_a_healthy_account_goes_on(worker: Relay, kind: str) -> None:
    """Beside an account whose phones all have foreign tokens, ten or fifty, every push of the other account goes at
    once, for hours; the breaker never opens, and each of the bad pushes ends by itself."""
    phones(worker, kind, "ana", FOREIGN[kind], many=cases(10, whole=50))
    phones(worker, kind, "bea", many=2)
    for _ in range(cases(4, whole=8)):
        tell(worker, "ana")
        event = tell(worker, "bea")
        assert statuses(worker, event, "bea") in TAKEN
        assert breaker(worker, kind) == "closed"
        worker.travel(minutes=20)
    for _ in range(12):
        worker.travel(minutes=61)
        worker.dispatch()
    assert breaker(worker, kind) == "closed"
    assert "breaker_opened" not in worker.incidents()
    ended = worker.rows(
        "select distinct d.status from relevo.notification_deliveries d"
        " join relevo.device_installations i using (installation_id) where i.owner = 'ana'"
    )
    assert {row["status"] for row in ended} == {"failed"}


@KINDS
def test_new_phones_of_one_account_again_and_again(worker: Relay, kind: str) -> None:
    """An account that registers five more phones with foreign tokens every minute opens no breaker either."""
    phones(worker, kind, "bea")
    for minute in range(6):
        for number in range(5):
            fault, name = FOREIGN[kind], f"ana-{minute}-{number}"
            verbs.register(
                worker.conn, mixed_phones.installation(worker.sandbox, kind, name, fault, owner="ana", project="shop")
            )
        tell(worker, "ana")
        assert statuses(worker, tell(worker, "bea"), "bea") in TAKEN
        assert breaker(worker, kind) == "closed"
        worker.travel(minutes=1)


@KINDS
def test_strangers_without_owner_are_one(worker: Relay, kind: str) -> None:
    """Phones without owner that never worked count as one, where others have an owner."""
    some = phones(worker, kind, None, FOREIGN[kind], many=30)
    phones(worker, kind, "bea")
    worker.enqueue(audience=some)
    worker.fan_out()
    worker.dispatch()
    assert breaker(worker, kind) == "closed"
    assert statuses(worker, tell(worker, "bea"), "bea") in TAKEN


@KINDS
def test_a_wrong_credential_opens_it(worker: Relay, kind: str) -> None:
    """When every owner's phones are refused, which worked a moment ago, the breaker opens and spends no attempts; the
    other project's stays closed, with equal owners."""
    for owner in HEALTHY:
        phones(worker, kind, owner, many=2)
        phones(worker, kind, owner, many=2, project="bank")
    for project in ("shop", "bank"):
        tell(worker, *HEALTHY, project=project)
    refuse_all(worker, kind, FOREIGN[kind])
    event = tell(worker, *HEALTHY)
    assert breaker(worker, kind) == "open"
    assert breaker(worker, kind, "bank") == "closed"
    found = worker.rows(
        "select status, attempt_count from relevo.notification_deliveries where notification_event_id = %s", event
    )
    assert {(row["status"], row["attempt_count"]) for row in found} == {("pending", 0)}


def refuse_all(worker: Relay, kind: str, fault: str) -> None:
    """Have the push service refuse everybody's token."""
    worker.sandbox.add_fault(fault, **({} if kind == "expo" else {"service": mixed_phones.SERVICE_OF[kind]}))


@KINDS
def test_a_project_that_never_worked(worker: Relay, kind: str) -> None:
    """The first five phones of three owners, all refused while nobody was taken, are the project's fault."""
    for owner, many in (("bea", 2), ("eva", 2), ("ida", 1)):
        phones(worker, kind, owner, FOREIGN[kind], many=many)
    phones(worker, kind, "ona")
    tell(worker, "bea", "eva", "ida")
    assert breaker(worker, kind) == "open"


def test_a_probe_goes_to_a_phone_that_worked(worker: Relay) -> None:
    """Behind an open breaker, pushes to phones that never worked wait for the one to a phone that did, which closes it;
    where only the former are due, their faults do not make the pause longer."""
    [good] = phones(worker, "android", "bea")
    bad = phones(worker, "android", "ana", FOREIGN["android"], many=9)
    worker.enqueue(audience=[good])
    worker.fan_out()
    worker.dispatch()
    worker.app.services.projects.failed(road("android"), "an outage", credential=True, now=worker.clock())
    worker.enqueue(audience=bad)
    worker.fan_out()
    for _ in range(4):
        worker.travel(seconds=31)
        worker.dispatch()
        [row] = worker.rows("select breaker, trips from relevo.projects where project = %s", road("android"))
        assert (row["breaker"], row["trips"]) == ("open", 1)
    worker.enqueue(audience=[good])
    worker.fan_out()
    worker.travel(seconds=31)
    worker.dispatch()
    assert breaker(worker, "android") == "closed"
    assert "breaker_closed" in worker.incidents()


@pytest.mark.parametrize("fault", ["BadDeviceToken"])
def test_a_development_build_is_its_own_fault(worker: Relay, fault: str) -> None:
    """Phones of several owners whose tokens are of Apple's other environment end alone, each with its token, even if
    all of a request are such phones; others' pushes go on."""
    owners = [f"dev{number}" for number in range(6)]
    for owner in owners:
        phones(worker, "iphone", owner, fault, many=2)
    phones(worker, "iphone", "bea")
    event = tell(worker, *owners)
    assert {status for owner in owners for status in statuses(worker, event, owner)} == {"invalid"}
    assert breaker(worker, "iphone") == "closed"
    assert statuses(worker, tell(worker, "bea"), "bea") == {"ok"}


def test_gone_phones_of_strangers_stop_no_pruning(worker: Relay) -> None:
    """Sixty dead phones without owner that never worked are one stranger where others have an owner: they are disabled."""
    some = phones(worker, "expo", None, "DeviceNotRegistered", many=60)
    phones(worker, "expo", "bea")
    for place in range(0, 60, 10):  # several settles, so that what was known before counts
        worker.enqueue(audience=some[place : place + 10])
        worker.fan_out()
        worker.dispatch()
    assert statuses(worker, tell(worker, "bea"), "bea") in TAKEN
    assert "pruning_stopped" not in worker.incidents()
    [row] = worker.rows("select count(*) from relevo.device_installations where invalidated_at is not null")
    assert row["count"] == 60


def test_phones_without_owner_that_worked_are_people(worker: Relay) -> None:
    """Of phones without owner those that had a push confirmed count one by one, and where nobody has an owner all do."""
    worked = phones(worker, "expo", None, many=5)
    strangers = phones(worker, "expo", None, "x", many=5)
    counted = "select cardinality(relevo.hashed_owners(%s, 'shop')) as n"
    assert worker.rows(counted, worked + strangers)[0]["n"] == 10
    phones(worker, "expo", "bea")
    assert worker.rows(counted, worked + strangers)[0]["n"] == 1
    worker.enqueue(audience=worked)
    worker.fan_out()
    worker.dispatch()
    worker.travel(minutes=30)
    worker.ask()
    assert worker.rows(counted, worked + strangers)[0]["n"] == 6


@pytest.mark.parametrize(("owners", "stopped"), [(1, False), (2, False), (60, True)])
def test_gone_phones_of_one_account_stop_no_pruning(worker: Relay, owners: int, stopped: bool) -> None:
    """Sixty dead phones of one or two accounts are disabled like any; those of sixty accounts are doubted, and no token is
    disabled until the brake is released."""
    for number in range(owners):
        phones(worker, "expo", f"ana{number}", "DeviceNotRegistered", many=60 // owners)
    phones(worker, "expo", "bea")
    for place in range(0, 60, 10):  # several settles, so that what was known before counts
        some = worker.rows(
            "select installation_id from relevo.device_installations where owner like 'ana%%' order by seq"
        )
        worker.enqueue(audience=[row["installation_id"] for row in some][place : place + 10])
        worker.fan_out()
        worker.dispatch()
    assert statuses(worker, tell(worker, "bea"), "bea") in TAKEN
    assert ("pruning_stopped" in worker.incidents()) == stopped
    [row] = worker.rows("select count(*) from relevo.device_installations where invalidated_at is not null")
    assert (row["count"] == 60) != stopped
