"""A worker that cannot reach a push service leaves its pushes to the others; the breaker needs the word of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.core.model import Reply
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.projects.unreachable import is_unreached, service_of
from relevo.operators import fleet
from support.processes import NOWHERE
from support.sending_worker import Relay


def told(worker: Relay) -> list[str]:
    """Return the codes of what status tells."""
    return [each.code for each in fleet.status(worker.app.database, worker.app.settings).problems]


def resting(worker: Relay, project: str = "default") -> bool:
    """Return whether a worker leaves the push service of a project alone."""
    return worker.app.services.projects.unreachable.rest_s(project) > 0


@pytest.fixture
def pair(relay: Any) -> tuple[Relay, Relay]:
    """A worker that cannot reach Expo, and one that can; two failures in a row open a breaker."""
    return relay(expo_base_url=NOWHERE, push_breaker_failures=2, push_chunk_size=1), relay(push_breaker_failures=2)


def test_the_other_worker_sends_at_once(pair: tuple[Relay, Relay]) -> None:
    """No failure counts for the project, no attempt is spent, and the pushes of two projects are due at once."""
    bad, good = pair
    bad.register("ana", "bea", project="@acme/shop")
    bad.register("carla", project="@acme/bank")
    bad.tell("ana", "bea", "carla")
    bad.dispatch()
    assert resting(bad, "@acme/shop")
    assert resting(bad, "@acme/bank"), "the same address"
    assert bad.states() == {"pending": 3}
    good.dispatch()
    assert good.states() == {"sent": 3}
    assert [good.project(name)["failures"] for name in ("@acme/shop", "@acme/bank")] == [0, 0]
    assert good.incidents() == []


def test_the_breaker_opens_once_no_worker_reaches_it(relay: Any) -> None:
    """The first worker rests; the failures of the second, which is the last to try, open the breaker."""
    workers = [relay(expo_base_url=NOWHERE, push_breaker_failures=2, push_chunk_size=1) for _ in range(2)]
    workers[0].tell("ana", "bea", "carla")
    workers[0].dispatch()
    assert workers[0].project()["breaker"] == "closed"
    workers[1].dispatch()
    assert workers[1].project()["breaker"] == "open"
    assert {(row["status"], row["attempt_count"]) for row in workers[1].deliveries()} == {("pending", 0)}


def test_a_probe_that_cannot_leave_tells_nothing(pair: tuple[Relay, Relay], sandbox: Any) -> None:
    """The worker without a way out takes the probe of an open breaker: the other one may probe at once."""
    bad, good = pair
    sandbox.add_fault("InvalidCredentials")
    good.add_phones(10)
    good.tell_everyone()
    good.dispatch()
    assert good.project()["trips"] == 1
    sandbox.reset()
    sandbox.clear_faults()
    good.travel(seconds=31)
    bad.dispatch()
    assert resting(bad)
    assert (good.project()["breaker"], good.project()["trips"]) == ("open", 1)
    good.drain()
    assert good.project()["breaker"] == "closed"
    good.everyone_received(1)


def test_its_receipts_are_asked_for_by_the_other(pair: tuple[Relay, Relay]) -> None:
    """A question for receipts that cannot leave pauses the receipts of nobody else."""
    bad, good = pair
    good.tell("ana")
    good.dispatch()
    good.travel(minutes=20)
    bad.run("receipt")
    assert resting(bad)
    assert good.project()["receipts_after"] is None
    good.run("receipt")
    assert good.states() == {"ok": 1}


def test_status_names_the_worker_until_it_reaches_the_service(pair: tuple[Relay, Relay]) -> None:
    """It is told from the second failure on, and not once the service answered, or while nobody else reaches it."""
    bad, good = pair
    unreachable = bad.app.services.projects.unreachable
    unreachable.met("default", "NoConnection: no connection (gaierror)")
    assert "service_unreachable" not in told(good)
    unreachable._known["expo"].retry_at = 0.0  # the pause is over
    unreachable.met("default", "NoConnection: no connection (gaierror)")
    assert told(good).count("service_unreachable") == 1
    good.app.services.projects.unreachable.met("default", "NoConnection")
    assert "service_unreachable" not in told(good), "then the breaker tells of it"
    good.app.services.projects.unreachable.reached("default")
    assert "service_unreachable" in told(good)
    unreachable.reached("default")
    assert "service_unreachable" not in told(good)


@pytest.mark.parametrize(
    ("project", "service"),
    [("default", "expo"), ("@acme/shop", "expo"), ("webhook::crm", "webhook::crm"), ("webhook::erp", "webhook::erp")],
)
def test_a_service_with_one_address_is_one_road(project: str, service: str) -> None:
    """All projects of Expo rest together; each webhook has a receiver of its own."""
    assert service_of(project) == service


@pytest.mark.parametrize(
    ("reply", "unreached"),
    [
        (Reply("not_sent", code="NoConnection"), True),
        (Reply("not_sent", code="ConnectTimeout"), True),
        (Reply("not_sent", code="HTTP_302"), False),
        (Reply("unclear", code="ReadTimeout"), False),
    ],
)
def test_only_what_certainly_did_not_leave_counts(reply: Reply, unreached: bool) -> None:
    """An answer, or silence after the request was sent, is the push service's word."""
    assert is_unreached(reply) is unreached


@pytest.mark.parametrize(("is_lost", "failures"), [(True, 0), (False, 1)])
def test_a_process_that_stood_still_says_nothing_of_the_service(
    relay: Any, sandbox: Any, monkeypatch: pytest.MonkeyPatch, is_lost: bool, failures: int
) -> None:
    """An answer that was missed while the claim ran out counts for no breaker; one that was missed in time does."""
    monkeypatch.setattr(Claim, "is_lost", property(lambda _: is_lost))
    worker = relay(push_request_timeout_ms=1_000)
    sandbox.add_fault("503")
    worker.tell("ana")
    worker.dispatch()
    assert worker.project()["failures"] == failures
