"""Each message of a request has its own fate: what it costs, when it is tried again, and what it says of its project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.client import verbs
from relevo.core.model import Accepted, Reply, Ticket
from relevo.core.ports import ProviderFacts
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.sending.reply_checks import checked_reply
from relevo.providers.expo.provider import Expo
from support.sending_worker import Relay, seconds_from, token

SENT = Ticket("sent", id="a-ticket")
GOAWAY = Ticket("not_sent", code="GoAway", message="the connection was being closed")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Let a push service answer each phone so: `answering(ana=ticket)`, others `sent`; returns who was in each request."""

    def answer(**tickets: Ticket) -> list[list[str]]:
        asked: list[list[str]] = []
        by_token = {token(name): ticket for name, ticket in tickets.items()}

        def send(_self: Expo, messages: Any, *_: Any) -> Reply:
            asked.append([each["to"] for each in messages])
            return Reply("answered", tuple(by_token.get(each["to"], SENT) for each in messages))

        monkeypatch.setattr(Expo, "send", send)
        return asked

    return answer


def requests(worker: Relay) -> dict[str, int]:
    """Return how many deliveries the journal has in requests that ended so."""
    rows = worker.rows("select outcome, sum(cardinality(ids))::int as n from relevo.push_requests group by outcome")
    return {row["outcome"]: row["n"] for row in rows}


def test_what_was_not_sent_spends_no_attempt(relay, answering) -> None:
    """Of one request two are sent and one is not: that one has its attempt left, soon, and the journal says so."""
    answering(eva=GOAWAY)
    worker = relay(outbox_max_attempts=1)
    worker.tell("ana", "eva", "ida", at_most_once=True)
    worker.dispatch(at_most=3)
    found = worker.delivery("eva")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("pending", 0, "GoAway")
    assert worker.states() == {"sent": 2, "pending": 1}
    assert requests(worker) == {"answered": 2, "not_taken": 1}
    assert worker.rows("select from relevo.failed_attempts") == []
    answering()
    worker.travel(seconds=10)
    worker.dispatch()
    assert worker.states() == {"sent": 3}


def test_a_request_of_which_nothing_was_sent_is_one_that_failed(relay, answering) -> None:
    """Tickets that are all not sent are as a connection that could not be made: no attempts, and it counts."""
    answering(ana=GOAWAY, eva=GOAWAY)
    worker = relay(push_breaker_failures=1)
    worker.tell("ana", "eva")
    worker.dispatch()
    assert [row["attempt_count"] for row in worker.deliveries()] == [0, 0]
    assert requests(worker) == {"not_sent": 2}
    assert (worker.project()["breaker"], worker.project()["breaker_reason"]) == (
        "open",
        "GoAway: the connection was being closed",
    )


def test_a_run_of_which_a_claim_was_sent_whole_calls_no_project_failed(relay, monkeypatch) -> None:
    """One request is taken as a whole and the next one is too many: something was sent, so a run by hand does not call the project failed."""
    first = [Reply("answered", Accepted(["a-ticket"]))]
    monkeypatch.setattr(Expo, "send", lambda *_: first.pop() if first else Reply("throttled", code="429"))
    worker = relay(outbox_batch_size=1)
    worker.tell("ana")
    worker.tell("ana")
    report = worker.dispatch()
    assert worker.states() == {"sent": 1, "pending": 1}
    assert "429" not in report.error
    assert "asked for a rest" in report.error


@pytest.mark.parametrize(
    ("others", "breaker"),
    [(Ticket("unclear", code="HTTP_500"), "open"), (GOAWAY, "open"), (SENT, "closed"), (Ticket("failed"), "closed")],
)
def test_a_mixed_reply_failed_if_nothing_in_it_is_an_answer(relay, answering, others, breaker) -> None:
    """One ticket of which somebody knows shows that the service works; none at all counts as a request that failed."""
    answering(ana=Ticket("unclear", code="ReadTimeout"), eva=others)
    worker = relay(push_breaker_failures=1)
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    assert worker.project()["breaker"] == breaker


@pytest.mark.parametrize("fate", ["retryable", "unclear", "not_sent"])
def test_a_pause_of_a_message_is_its_own(relay, answering, clock, fate) -> None:
    """It is not tried again before the time it was given; the others go on, and the project does not rest."""
    answering(ana=Ticket(fate, code="Later", retry_after_ms=600_000))
    worker = relay()
    worker.tell("ana", "eva")
    clock.stop()
    worker.dispatch(at_most=2)
    wait_s = seconds_from(clock.now(), worker.delivery("ana")["next_attempt_at"])
    assert wait_s == pytest.approx(600, abs=1)
    assert worker.delivery("ana")["attempt_count"] == (0 if fate == "not_sent" else 1)
    assert (worker.project()["rest_until"], worker.project()["rate_share"]) == (None, 1.0)


@pytest.mark.parametrize("fate", ["retryable", "not_sent"])
def test_a_pause_of_the_project_rests_it(relay, answering, fate) -> None:
    """Its rate is halved and it rests, as after a 429; what was told so spends no attempt."""
    answering(ana=Ticket(fate, code="QUOTA_EXCEEDED", retry_after_ms=60_000, pauses="project"))
    worker = relay(push_rate_per_second=600)
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    assert worker.delivery("ana")["attempt_count"] == 0
    assert worker.delivery("eva")["status"] == "sent"
    assert worker.project()["rate_share"] < 0.6
    assert worker.project()["rest_until"] is not None
    assert worker.incidents() == ["rate_halved"]


def test_a_pause_of_a_phone_holds_all_that_goes_to_it(relay, answering) -> None:
    """What else is due for the phone waits as long, untried; other phones get theirs."""
    asked = answering(ana=Ticket("retryable", code="TooManyRequests", retry_after_ms=60_000, pauses="phone"))
    worker = relay()
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    assert asked[1:] == [[token("eva")]]
    held = worker.delivery("ana")
    assert (held["status"], held["attempt_count"], held["last_error_code"]) == ("pending", 0, "phone_paused")


@pytest.mark.parametrize(("ago", "status", "disabled"), [(-1, "invalid", True), (1, "retryable", False)])
def test_a_token_confirmed_since_is_not_gone(relay, answering, ago, status, disabled) -> None:
    """A token is given up if the service knew it as gone after its phone confirmed it; else the phone came back."""
    worker = relay()
    worker.register("ana")
    answering(ana=Ticket("invalid", code="Unregistered", gone_at=datetime.now(UTC) - timedelta(hours=ago)))
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    assert (worker.delivery("ana")["status"], worker.is_disabled("ana")) == (status, disabled)


def test_what_the_database_cannot_say_of_gone_tokens(relay, answering, monkeypatch) -> None:
    """While it cannot be asked who came back, a token that was gone at a known time is tried again, and any other is given up."""
    worker = relay()
    worker.register("ana", "eva")
    answering(ana=Ticket("invalid", code="Gone"), eva=Ticket("invalid", code="Gone", gone_at=datetime.now(UTC)))

    def refuse(_gone: object) -> None:
        raise psycopg.errors.LockNotAvailable("locked")

    monkeypatch.setattr(worker.app.services.claims, "returned", refuse)
    worker.tell("ana", "eva")
    worker.dispatch(at_most=2)
    assert [worker.delivery(name)["status"] for name in ("ana", "eva")] == ["invalid", "retryable"]


def test_taken_is_the_end_without_receipts(relay, answering) -> None:
    """A push that is `ok` waits for no receipt."""
    answering(ana=Ticket("ok", id="projects/shop/messages/1"))
    worker = relay()
    worker.tell("ana")
    worker.dispatch()
    found = worker.delivery("ana")
    assert (found["status"], found["attempt_count"]) == ("ok", 1)
    assert worker.rows("select from relevo.awaited_receipts") == []


def test_nothing_is_tried_again_sooner_than_its_provider_bears(relay, answering, monkeypatch, clock) -> None:
    """A provider's shortest retry holds for what it refused for now, and for what nobody knows of."""
    monkeypatch.setattr(Expo, "facts", ProviderFacts("Slow", least_retry_ms=900_000), raising=False)
    answering(ana=Ticket("retryable", code="Busy"), eva=Ticket("unclear", code="HTTP_500"))
    worker = relay()
    worker.tell("ana", "eva", "ida")
    clock.stop()
    worker.dispatch(at_most=3)
    for name in ("ana", "eva"):
        wait_s = seconds_from(clock.now(), worker.delivery(name)["next_attempt_at"])
        assert wait_s == pytest.approx(900, abs=1)


def test_accepted_tickets_beside_others_are_kept(relay, monkeypatch) -> None:
    """A wave in which one request was taken whole and another in part loses no ticket."""

    def send(_self: Expo, messages: Any, *_: Any) -> Reply:
        names = [each["to"] for each in messages]
        if token("eva") in names:
            return Reply("answered", tuple(GOAWAY if name == token("eva") else SENT for name in names))
        return Reply("answered", Accepted([f"ticket-{place}" for place in range(len(names))]))

    monkeypatch.setattr(Expo, "send", send)
    worker = relay(push_chunk_size=2)
    worker.tell("ana", "ida", "eva", "uma")
    worker.dispatch(at_most=4)
    assert worker.states() == {"sent": 3, "pending": 1}


@pytest.mark.parametrize("gone", [0, 1])
def test_what_was_taken_for_good_is_settled_at_once(relay, answering, monkeypatch, gone) -> None:
    """Where there are no receipts a wave is settled as plainly as one that awaits them, beside a phone that is gone too."""
    names = ["ana", "eva", "ida", "uma"]
    tickets = {name: Ticket("ok", id=f"ticket-{name}") for name in names}
    answering(**tickets | {name: Ticket("invalid", code="Gone") for name in names[:gone]})
    worker = relay()
    worker.tell(*names)
    usual, settled = worker.app.claims.settle_sent, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        settled.append(usual(*args, **kwargs))
        return settled[-1]

    monkeypatch.setattr(worker.app.claims, "settle_sent", watched)
    worker.dispatch(at_most=4)
    assert [each.written for each in settled] == [{"ok": 4 - gone}]
    assert worker.states() == ({"ok": 4} if not gone else {"ok": 3, "invalid": 1})
    found = worker.delivery("uma")
    assert (found["provider_ticket_id"], found["attempt_count"]) == ("ticket-uma", 1)
    assert found["completed_at"] is not None
    assert worker.rows("select from relevo.awaited_receipts") == []


@pytest.mark.parametrize("said", [{"code": "Note"}, {"alert": True}, {"id": "ñ"}, {"id": None}, {"fate": "sent"}])
def test_a_ticket_that_says_more_is_read_by_itself(said) -> None:
    """Only tickets that say no more than that they were taken, in one way, become a list of ids."""
    usual = Ticket("ok", id="a-ticket")
    odd = checked_reply(Reply("answered", (usual, usual._replace(**said))))
    plain = checked_reply(Reply("answered", (usual, usual)))
    assert odd is not None
    assert plain is not None
    assert not isinstance(odd.tickets, Accepted)
    assert isinstance(plain.tickets, Accepted)
    assert plain.tickets == (usual, usual)


def test_a_push_that_shows_nothing_is_skipped_where_it_must_not_be(relay, answering, monkeypatch) -> None:
    """A provider that takes no silent pushes gets none; the delivery says why, and so does who asks why not."""
    monkeypatch.setattr(Expo, "facts", ProviderFacts("Shown", takes_silent=False), raising=False)
    asked = answering()
    worker = relay()
    silent = worker.tell("ana", title="", body="", data={"sync": 1})
    worker.tell("ana")
    worker.dispatch(at_most=2)
    found = worker.rows("select * from relevo.deliveries where notification_event_id = %s", silent)[0]
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("skipped", 0, "shows_nothing")
    assert asked == [[token("ana")]]
    told = verbs.explain(worker.conn, silent, worker.phones["ana"])
    assert (told.gets_it, told.raw["delivery"]["error_code"]) == (False, "shows_nothing")


@pytest.mark.parametrize(
    ("others", "expected"), [(["ana"], [1, 2, 4, 8, 16, 32, 60, 60]), ([], [5, 5, 5, 8, 16, 32, 60, 60])]
)
def test_what_is_turned_away_for_ever_waits_ever_longer(relay, answering, clock, command, others, expected) -> None:
    """A stream that is refused each time, beside others that are taken or alone, is tried again after twice as long each
    time, up to the longest wait; it spends no attempt, status names it, and it is sent once it is taken."""
    worker = relay(outbox_retry_max_ms=60_000, outbox_retry_base_ms=1_000, push_breaker_failures=1_000)
    answering(eva=GOAWAY)
    worker.tell("eva", *others)
    waits = []
    clock.stop()
    for _ in range(8):
        worker.dispatch(at_most=1 + len(others))
        waits.append(round(seconds_from(clock.now(), worker.delivery("eva")["next_attempt_at"])))
        worker.travel(seconds=waits[-1] + 1)
        if others:
            worker.tell(*others)
    assert waits == expected
    assert worker.delivery("eva")["attempt_count"] == 0
    assert "turned it away 8 times in a row, GoAway" in " ".join(command("status").out.split())
    answering()
    worker.dispatch()
    assert worker.delivery("eva")["status"] == "sent"


def test_an_answer_missed_by_a_process_that_stood_still_is_not_the_services(
    relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose answer was missed while its claim was lost counts nothing against the push service; else it does."""

    def send(_self: Expo, _messages: Any, *_: Any) -> Reply:
        monkeypatch.setattr(Claim, "is_lost", property(lambda _: lost))
        return Reply("unclear", code="ReadTimeout", message="no whole answer in time")

    monkeypatch.setattr(Expo, "send", send)
    worker = relay(push_breaker_failures=5)
    for lost, failures in ((True, 0), (False, 1)):
        worker.tell("ana" if lost else "eva")
        worker.dispatch(at_most=1)
        assert worker.project()["failures"] == failures
        monkeypatch.undo()
        monkeypatch.setattr(Expo, "send", send)
