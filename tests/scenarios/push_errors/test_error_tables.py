"""Every row of Expo's two tables of errors, over HTTP: what becomes of the delivery, its attempts, its token, its project."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from relevo import Owners
from relevo.access import api_tokens
from relevo.sandbox import Sandbox, messages
from support.sending_worker import Relay, seconds_from


@dataclass(frozen=True)
class Row:
    """One error of one message, and what is right to do about it."""

    word: str
    status: str
    code: str
    disables: bool = False
    raw: bool = False
    """Whether nobody knows the code, so that the whole answer is kept."""


ROWS = [
    Row("DeviceNotRegistered", "invalid", "DeviceNotRegistered", disables=True),
    Row("MessageTooBig", "failed", "MessageTooBig"),
    Row("MessageRateExceeded", "retryable", "MessageRateExceeded"),
    Row("MismatchSenderId", "retryable", "MismatchSenderId"),
    Row("InvalidCredentials", "retryable", "InvalidCredentials"),
    Row("InvalidProviderToken", "retryable", "InvalidProviderToken"),
    Row("fcm-MismatchSenderId", "retryable", "MismatchSenderId"),
    Row("apns-InvalidProviderToken", "retryable", "InvalidProviderToken"),
    Row("ExpoError", "retryable", "ExpoError"),
    Row("ProviderError", "retryable", "ProviderError", raw=True),
    Row("fcm-Unavailable", "retryable", "ProviderError", raw=True),
    Row("DeveloperError", "failed", "DeveloperError"),
    Row("no-code", "retryable", "Unknown", raw=True),
    Row("NobodyKnowsThisCode", "retryable", "NobodyKnowsThisCode", raw=True),
]
RETRIED = [row for row in ROWS if row.status == "retryable"]
GOOD = [f"good{number}" for number in range(10)]
"""So many that the credential faults among the errors are not the project's."""
BOTH = pytest.mark.parametrize("where", ["", "receipt-"], ids=["ticket", "receipt"])


def name_of(row: Row, where: str = "") -> str:
    """Return the name of the phone that meets an error."""
    return f"bad!{where}{row.word}"


def check(relay: Relay, name: str, row: Row) -> None:
    """Check a delivery, its token and its project against the table's row."""
    found = relay.delivery(name)
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == (row.status, 1, row.code), name
    assert found["claim_token"] is None, name
    assert relay.is_disabled(name) == row.disables, name
    if row.raw:
        assert json.loads(found["last_error_message"])["status"] == "error", name


@BOTH
def test_errors_of_one_message(relay, where: str) -> None:
    """Each code ends or retries as the table says, in a ticket as in a receipt; the messages beside them in the request
    arrive all the same, and nobody takes them for the project's."""
    worker = relay()
    worker.tell(*(name_of(row, where) for row in ROWS), *GOOD)
    worker.dispatch()
    if where:
        assert worker.states() == {"sent": len(ROWS) + len(GOOD)}
        worker.ask()
    else:
        assert not any(worker.received(name_of(row)) for row in ROWS)
    for row in ROWS:
        check(worker, name_of(row, where), row)
    assert {(worker.delivery(name)["status"], worker.received(name)) for name in GOOD} == {
        ("ok" if where else "sent", 1)
    }
    assert worker.disabled() == 1
    assert (worker.posts(), worker.project()["breaker"]) == (1, "closed")


@BOTH
def test_retries_are_bounded_and_the_dead_letter_says_why(relay, where: str) -> None:
    """What is retried ends as failed after its last attempt, with its code, and the raw answer where nobody knows it."""
    worker = relay(outbox_max_attempts=2)
    names = {name_of(row, where): row for row in RETRIED}
    worker.tell(*names, *GOOD)
    for attempt in (1, 2):
        worker.dispatch()
        worker.ask()
        assert {name: worker.delivery(name)["attempt_count"] for name in names} == dict.fromkeys(names, attempt)
        worker.travel(minutes=2)
    for name, row in names.items():
        found = worker.delivery(name)
        assert (found["status"], found["last_error_code"]) == ("failed", row.code), name
        if row.raw:
            assert json.loads(found["last_error_message"])["status"] == "error", name
    worker.travel(hours=2)
    assert worker.dispatch().outcome == "idle"
    assert worker.disabled() == 0


@BOTH
def test_a_developers_error_alerts(relay, where: str) -> None:
    """Somebody has to mend it, so the run says so: it is no run like any other."""
    worker = relay()
    worker.tell(f"bad!{where}DeveloperError", "good")
    reports = [worker.dispatch(), worker.ask()]
    reported = [report for report in reports if "DeveloperError" in report.error]
    assert [(report.cycle, report.outcome) for report in reported] == [("receipt" if where else "dispatch", "partial")]
    assert worker.states() == {"failed": 1, "ok": 1}


def test_a_credential_fault_alerts(relay) -> None:
    """It is logged as an error, kept as an incident, and told by `relevo status`."""
    worker = relay()
    worker.tell("bad!InvalidCredentials")
    with capture_logs() as logs:
        worker.dispatch()
    assert [line["log_level"] for line in logs if line["event"] == "breaker_opened"] == ["error"]
    assert worker.incidents() == ["breaker_opened"]


# Errors of a whole request


def test_429_spends_nothing_halves_the_rate_and_waits_as_told(relay, sandbox) -> None:
    """Nothing was accepted: no attempt is spent, the rate is halved, Retry-After is a floor, then each arrives once."""
    worker = relay(push_chunk_size=2)
    worker.tell(*(f"p{n}" for n in range(4)))
    sandbox.add_fault("429", times=1)  # its Retry-After is 2 s
    worker.clock.stop()
    before = worker.clock.now()
    worker.dispatch(at_most=4)
    held = [row for row in worker.deliveries() if row["status"] == "pending"]
    refused = [row for row in held if row["last_error_code"] == "TOO_MANY_REQUESTS"]
    assert len(refused) == 2
    assert all(row["attempt_count"] == 0 for row in held)
    assert all(seconds_from(before, row["next_attempt_at"]) >= 2 for row in refused)
    assert worker.project()["rate_share"] == 0.5
    assert seconds_from(before, worker.project()["rest_until"]) >= 2
    assert worker.incidents() == ["rate_halved"]
    posts = worker.posts()
    worker.clock.travel_to(worker.project()["rest_until"] - timedelta(seconds=1.5))
    worker.dispatch(at_most_s=0.3)
    assert worker.posts() == posts
    worker.travel(seconds=2)
    worker.dispatch()
    worker.everyone_received(1)
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("sent", 1)}


def test_429_of_two_waves_is_one_complaint_until_the_rest_is_over(relay, sandbox) -> None:
    """Answers of requests that were under way together halve the rate once; a new complaint halves it again."""
    worker = relay(push_chunk_size=1)
    worker.tell(*(f"p{n}" for n in range(6)))
    sandbox.add_fault("429")
    worker.clock.stop()
    worker.dispatch(at_most=6)
    assert worker.project()["rate_share"] == 0.5
    worker.travel(seconds=3)
    worker.dispatch(at_most=6)
    assert worker.project()["rate_share"] < 0.3
    assert worker.incidents() == ["rate_halved"] * 2
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("pending", 0)}


def test_too_many_experience_ids_splits_by_the_project_map(relay) -> None:
    """Tokens' projects are remembered, no attempt is spent, and all arrive in the end, each once."""
    worker = relay()
    ours, theirs = ["a", "b", "c"], ["x!project=@acme/other", "y!project=@acme/other"]
    worker.tell(*ours, *theirs)
    for _ in range(3):
        worker.dispatch()
    worker.everyone_received(1)
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("sent", 1)}
    assert {worker.installation(name)["project"] for name in ours} == {"@relevo/app"}
    assert {worker.installation(name)["project"] for name in theirs} == {"@acme/other"}
    assert {worker.delivery(name)["project"] for name in theirs} == {"@acme/other"}
    assert worker.incidents() == ["tokens_moved"]
    posts = worker.posts()
    worker.tell(*ours, *theirs)
    worker.dispatch()
    worker.everyone_received(2)
    assert worker.posts() == posts + 2, "what was learnt is used: one request per project, none refused"


STOPPED = """
insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips)
values (%s, now(), 'open', 'an outage', 'request', now(), now() + interval '1 hour', 1)
"""


@pytest.mark.parametrize("wall", ["owner", "token of the project", "token of the other project"])
def test_a_push_service_moves_no_phone_across_a_wall(relay, wall: str) -> None:
    """One phone whose token is another app's: all get their pushes, and a phone that belongs to somebody, or to a project with
    a token of its own, stays in the project it was registered in. So nobody gets the pushes of an equal name there, and its pushes
    go by its own project: that the other project is stopped does not concern them."""
    requests: set[str] = set()
    worker = relay(push_middlewares=[lambda context, send: requests.add(context.project) or send()])
    worker.conn.execute(STOPPED, ["@acme/other"])
    owned = {"owner": "ana"} if wall == "owner" else {}
    worker.register("a", "b", **owned)
    worker.register("x!project=@acme/other", **{"owner": "eve"} if owned else {})
    if not owned:
        api_tokens.make(
            worker.app.database, "scoped", "app", project="default" if wall == "token of the project" else "@acme/other"
        )
    for times in (1, 2):
        worker.tell("a", "b", "x!project=@acme/other")
        for _ in range(3):
            worker.dispatch()
        worker.everyone_received(times)
    moved = [] if wall != "token of the other project" else ["@relevo/app"] * 2
    assert worker.installation("x!project=@acme/other")["project"] == "default"
    assert [worker.installation(name)["project"] for name in "ab"] == (moved or ["default"] * 2)
    assert requests == {"default", *moved}
    assert {(row["project"], row["attempt_count"]) for row in worker.deliveries()} == {
        (project, 1) for project in requests
    }
    assert worker.project("@acme/other")["breaker"] == "open"
    if owned:
        worker.enqueue(audience=Owners("eve"), project="@acme/other")
        worker.enqueue(audience=Owners("ana", "eve"))
        worker.fan_out()
        for _ in range(3):
            worker.dispatch()
        worker.everyone_received(3)


def test_a_split_by_project_in_a_known_project_moves_only_the_strangers(relay) -> None:
    """Where the project was right for some, only the others move to their own."""
    worker = relay()
    worker.register("a", project="@relevo/app")
    worker.register("x!project=@acme/other", project="@relevo/app")
    worker.tell("a", "x!project=@acme/other")
    for _ in range(3):
        worker.dispatch()
    worker.everyone_received(1)
    assert worker.delivery("a")["project"] == "@relevo/app"
    assert worker.delivery("x!project=@acme/other")["project"] == "@acme/other"


def test_too_many_notifications_splits(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that takes fewer at once than we thought gets them in parts; each arrives once, with one attempt."""
    monkeypatch.setattr(messages, "MAX_RECIPIENTS", 30)
    worker = relay()
    worker.add_phones(100)
    worker.tell_everyone()
    worker.dispatch()
    worker.everyone_received(1)
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("sent", 1)}


def test_400_validation_dead_letters_the_culprit_only(relay) -> None:
    """One bad message fails a request of a hundred: it alone ends, the other 99 arrive once, none is disabled."""
    worker = relay()
    worker.add_phones(99)
    worker.register("bad!400")
    worker.tell_everyone()
    worker.dispatch()
    found = worker.delivery("bad!400")
    assert (found["status"], found["last_error_code"], found["attempt_count"]) == ("failed", "VALIDATION_ERROR", 1)
    assert found["last_error_message"]
    assert worker.states() == {"sent": 99, "failed": 1}
    del worker.phones["bad!400"]
    worker.everyone_received(1)
    assert worker.disabled() == 0
    assert {row["attempt_count"] for row in worker.deliveries()} == {1}
    assert worker.posts() <= 2 * 7 + 2, (
        "bisecting a hundred takes at most twice its logarithm, and once more to be sure"
    )


@pytest.mark.parametrize("word", ["401", "403"])
def test_unauthorised_opens_the_breaker_and_keeps_rows_and_attempts(relay, sandbox, word: str) -> None:
    """The credentials are at fault: nothing is spent, nothing ends, and once they are mended everything arrives."""
    worker = relay(push_chunk_size=1)
    worker.add_phones(60)
    worker.tell_everyone()
    sandbox.add_fault(word)
    worker.dispatch()
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("pending", 0)}
    assert (worker.project()["breaker"], worker.project()["breaker_by"]) == ("open", "request")
    assert "UNAUTHORIZED" in worker.project()["breaker_reason"]
    assert worker.posts() <= 30, "what was claimed already, and nothing after it"
    sandbox.clear_faults()
    worker.travel(minutes=1)
    worker.drain()
    worker.everyone_received(1)
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("sent", 1)}


def test_enhanced_security_without_a_token_is_a_credential_fault(relay, sandbox) -> None:
    """A service that asks for an access token opens the breaker; the right one lets everything through, receipts too."""
    sandbox.set(access_token="secret")
    worker = relay()
    worker.tell("ana")
    worker.dispatch()
    assert worker.project()["breaker"] == "open"
    worker.travel(minutes=1)
    mended = relay(expo_access_token="secret")
    mended.dispatch()
    mended.ask()
    assert (worker.delivery("ana")["status"], worker.received("ana")) == ("ok", 1)


@pytest.fixture
def closed_port() -> int:
    """A port at which nobody listens yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_connect_error_is_definite(relay, closed_port: int) -> None:
    """Not sent is not tried: no attempt is spent, even at most once goes out when the service is back, once."""
    worker = relay(expo_base_url=f"http://127.0.0.1:{closed_port}")
    worker.tell("ana")
    worker.tell("bob", at_most_once=True)
    before = worker.clock.now()
    worker.dispatch()
    for row in worker.deliveries():
        assert (row["status"], row["attempt_count"], row["last_error_code"]) == ("pending", 0, "NoConnection")
        assert seconds_from(before, row["next_attempt_at"]) >= 5
    with Sandbox(port=closed_port, rate_per_s=0) as late:
        worker.travel(minutes=2)
        worker.dispatch()
        assert late.totals()["delivered"] == 2
    assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("sent", 1)}


AMBIGUOUS = {
    **dict.fromkeys(("500", "502", "503", "504", "reset"), False),
    **dict.fromkeys(("500-delivered", "502-delivered", "503-delivered", "504-delivered", "reset-delivered"), True),
    **dict.fromkeys(("truncated", "garbage", "short"), True),
}
"""Answers of which nobody knows whether the push was sent, and whether it was."""
HANGS = {"hang": False, "hang-delivered": True}


@pytest.mark.parametrize(("words", "timeout_ms"), [(AMBIGUOUS, 10_000), (HANGS, 1_500)], ids=["answered", "hung"])
def test_an_ambiguous_answer(relay, sandbox, words: dict[str, bool], timeout_ms: int) -> None:
    """At least once sends again later, and a phone that has two is counted; at most once ends as unknown, never resent."""
    worker = relay(push_request_timeout_ms=timeout_ms)
    worker.clock.stop()
    for word, delivered in words.items():
        check_ambiguous(worker, word, *(f"{name}-{word}" for name in ("ana", "bob", "eva")), delivered=delivered)
    assert sandbox.totals()["duplicates"] == 2 * sum(words.values())


def check_ambiguous(worker: Relay, word: str, ana: str, bob: str, eva: str, *, delivered: bool) -> None:
    """Let a request with an event for two and, at most once, one for another be answered so."""
    now = worker.clock.now()
    worker.tell(ana, bob, scheduled_at=now)
    worker.tell(eva, at_most_once=True, scheduled_at=now)
    worker.sandbox.add_fault(word, times=1)
    worker.dispatch()
    for name in (ana, bob):
        found = worker.delivery(name)
        assert (found["status"], found["attempt_count"]) == ("retryable", 1), name
        assert found["last_error_code"], name
        assert 59 <= seconds_from(now, found["next_attempt_at"]) <= 70, name
    found = worker.delivery(eva)
    assert (found["status"], found["attempt_count"], found["next_attempt_at"]) == ("unknown", 1, None), eva
    worker.travel(seconds=50)
    assert worker.dispatch().outcome == "idle", word
    worker.travel(hours=3)
    worker.dispatch()
    assert [(each["status"], each["attempt_count"]) for each in map(worker.delivery, (ana, bob, eva))] == [
        ("sent", 2),
        ("sent", 2),
        ("unknown", 1),
    ], word
    assert [worker.received(name) for name in (ana, bob, eva)] == ([2, 2, 1] if delivered else [1, 1, 0]), word
    assert len({message["tag"] for message in worker.messages(ana)}) == 1, "a repeat replaces what is shown"
