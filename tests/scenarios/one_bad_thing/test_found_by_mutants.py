"""Promises that nothing else notices when they are broken: found by breaking the code on purpose, one line at a time."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from relevo.client import verbs
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Answer, PushRequest, ReceiptAnswer, Reply
from relevo.delivery.projects.request_pool import RequestPool
from relevo.sandbox import answers
from relevo.sandbox.faults import expo as faults
from support.processes import PATIENCE_S, eventually
from support.sending_worker import LateAnswers, beside, seconds_from, token


class TestTheLastMoment:
    """What is looked at just before a request, after it was claimed, journalled and wrapped."""

    def test_stopping_holds_back_what_stands_in_line(self, relay) -> None:
        """A request that was not begun when the worker was told to stop is not posted: due again, nothing spent."""

        def stop(_context: Any, send: Any) -> Reply:
            worker.app.runner.stopping.set()
            return send()

        worker = relay(push_middlewares=[stop])
        worker.tell("ana")
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"], found["claim_token"]) == ("pending", 0, None)
        assert worker.posts() == 0

    def test_what_was_not_begun_is_told_once_the_database_is_back(self, relay, monkeypatch) -> None:
        """The database goes away after the journal and before the requests, so that the claim is lost: that nothing
        was sent is written once it is back, and what may come but once is sent then, instead of being unknown."""

        def lose(_context: Any, send: Any) -> Reply:
            if outages:
                worker.app.heartbeat._lose_all("it is away")
            return send()

        worker = relay(push_middlewares=[lose])
        outages, mark = [1, 2], worker.app.claims.mark_unsent

        def mark_unsent(*asked: Any) -> None:
            if outages:
                outages.pop()
                raise DatabaseUnavailableError("it is away")
            mark(*asked)

        monkeypatch.setattr(worker.app.claims, "mark_unsent", mark_unsent)
        worker.tell("ana", at_most_once=True)
        worker.dispatch(at_most=1)
        worker.travel(hours=1)
        worker.reap()
        found = worker.delivery("ana")
        assert (worker.posts(), found["status"], found["attempt_count"]) == (0, "pending", 0)
        worker.dispatch()
        assert (worker.received("ana"), worker.delivery("ana")["status"]) == (1, "sent")

    def test_stopping_hands_back_what_was_not_journalled(self, relay) -> None:
        """A refused request that was to be sent in parts is due again at once, unspent, and in nobody's hands."""

        def stop(_context: Any, send: Any) -> Reply:
            reply = send()
            worker.app.runner.stopping.set()
            return reply

        worker = relay(push_middlewares=[stop])
        worker.tell("ana", "bad!400", "bob")
        worker.dispatch()
        assert worker.posts() == 1
        assert {(row["status"], row["attempt_count"], row["claim_token"]) for row in worker.deliveries()} == {
            ("pending", 0, None)
        }
        assert worker.claims() == 0

    def test_a_breaker_holds_back_what_stands_in_line(self, relay, sandbox, monkeypatch) -> None:
        """Requests that were journalled before it opened are not posted after it: one attempt is burnt, not six."""
        journalled: list[UUID] = []

        def wait(context: Any, send: Any) -> Reply:
            if context.request_id != journalled[0]:
                eventually(lambda: worker.app.services.pools["default"].halted, "the first has failed")
            return send()

        worker = relay(push_chunk_size=1, push_breaker_failures=1, push_middlewares=[wait])
        journal = worker.app.claims.journal

        def noted(claim: Any, wave: Any, now: Any) -> Any:
            journalled.extend(request.id for request in wave)
            return journal(claim, wave, now)

        monkeypatch.setattr(worker.app.claims, "journal", noted)
        worker.add_phones(6)
        worker.tell_everyone()
        sandbox.add_fault("503")
        worker.dispatch()
        assert worker.project()["breaker"] == "open"
        assert worker.posts() == 1
        assert sorted(row["attempt_count"] for row in worker.deliveries()) == [0, 0, 0, 0, 0, 1]

    def test_handled_elsewhere_between_claim_and_request(self, relay) -> None:
        """Whoever reads it in the app after it was claimed is not told again: the journal looks once more."""

        def read_it(message: Any, *_: Any) -> Any:
            verbs.complete(worker.conn, worker.phones["ana"])
            return message

        worker = relay(composers={"notice": read_it})
        worker.tell("ana", "bob")
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.received("ana")) == ("cancelled", 0)
        assert (worker.delivery("bob")["status"], worker.received("bob")) == ("sent", 1)

    def test_an_adopted_claim_is_looked_at_as_any_other(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim whose COMMIT answer was lost is read back with the same eye for who does not want it."""
        worker = relay()
        worker.tell("ana", "bob", category="news")
        worker.register("ana", installation_id=worker.phones["ana"], opt_outs=["news"])
        take = worker.app.claims._take

        def lost(*given: Any) -> Any:
            take(*given)
            raise DatabaseUnavailableError("the answer was lost")

        monkeypatch.setattr(worker.app.claims, "_take", lost)
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["last_error_code"], worker.received("ana")) == ("skipped", "opted_out", 0)
        assert worker.received("bob") == 1


class TestTheFence:
    """A worker that lost its claim without knowing it writes nothing, even where another holds the delivery."""

    def test_around_a_retry(self, relay) -> None:
        """Its late "try again" neither spends the other's attempt nor takes the delivery out of its hands."""
        slow, other = relay(), relay()
        slow.tell("ana")
        slow.travel(seconds=0)
        claim = slow.app.claims.claim("dispatch", "default", "bulk", now=slow.clock())
        request = PushRequest(uuid4(), claim.deliveries)
        slow.app.claims.journal(claim, [request], slow.clock())
        slow.travel(minutes=2)
        other.reap()
        slow.travel(minutes=2)
        others = other.app.claims.claim("dispatch", "default", "bulk", now=slow.clock())
        before = slow.delivery("ana")
        said = [Answer(each.event_day, each.id, "retryable", error_code="ExpoError") for each in claim.deliveries]
        assert slow.app.claims.settle(claim, said, [request.id], slow.clock()).written == {}
        assert slow.delivery("ana") == before
        assert before["claim_token"] == others.token

    @pytest.mark.parametrize("said", ["ok", "failed", "retryable", "waiting"])
    def test_around_a_receipt(self, relay, said: Any) -> None:
        """What its receipt says is written by whoever asks now."""
        slow, other = relay(), relay()
        slow.tell("ana")
        slow.dispatch()
        slow.travel(seconds=1)
        claim = slow.app.claims.claim_awaiting("default", limit=10, now=slow.clock())
        slow.travel(minutes=2)
        other.reap()
        others = other.app.claims.claim_awaiting("default", limit=10, now=slow.clock())
        before = slow.delivery("ana")
        reported = [ReceiptAnswer(each, said) for each in claim.deliveries]
        assert slow.app.claims.settle_receipts(claim, reported, slow.clock()).written == {}
        assert slow.delivery("ana") == before
        assert (before["status"], before["claim_token"]) == ("sent", others.token)


class TestTheBrakes:
    """What is counted for them, and whose."""

    def test_missing_receipts_are_no_answers(self, relay) -> None:
        """Sixty tokens of sixty that were told of are said to be gone: those not told of yet do not thin them out."""
        worker = relay(receipt_first_poll_ms=15 * 60_000)
        worker.add_phones(60, "gone", "!receipt-DeviceNotRegistered")
        worker.add_phones(240, "silent", "!no-receipt")
        worker.tell_everyone()
        worker.dispatch()
        worker.travel(minutes=16)
        worker.ask()
        assert worker.states() == {"failed": 60, "sent": 240}
        assert worker.disabled() == 0
        assert worker.incidents() == ["pruning_stopped"]

    def test_what_was_not_sent_is_no_answer(self, relay) -> None:
        """Fifty of the fifty that were asked about are gone: those skipped beside them do not thin them out."""
        worker = relay()
        worker.add_phones(50, "gone", "!DeviceNotRegistered")
        worker.add_phones(250, "away")
        worker.tell_everyone()
        worker.conn.execute(
            "update relevo.device_installations set active = false where token like 'ExponentPushToken[away%'"
        )
        worker.dispatch()
        assert worker.states() == {"failed": 50, "skipped": 250}
        assert worker.disabled() == 0
        assert worker.incidents() == ["pruning_stopped"]

    def test_one_projects_trouble_is_not_anothers(self, relay) -> None:
        """While one project's brake is drawn, another's gone token is disabled, and its pushes are not held up."""
        worker = relay()
        worker.travel(seconds=0)
        worker.add_phones(60, "bad", "!DeviceNotRegistered!project=@acme/bad", project="@acme/bad")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.disabled() == 0
        gone, *fine = [f"{name}!project=@acme/other" for name in ("gone!DeviceNotRegistered", "ana", "bob")]
        worker.register(gone, *fine, project="@acme/other")
        worker.tell(gone, *fine)
        worker.dispatch()
        assert (worker.is_disabled(gone), worker.disabled()) == (True, 1)
        assert worker.incidents() == ["pruning_stopped"]


class TestTheRate:
    """Whose turn it is, and what is left for the next."""

    def test_tokens_that_were_not_used_are_put_back(self, relay) -> None:
        """One push costs one token, not the whole request that was reserved for it."""
        worker = relay(push_rate_per_second=10, push_chunk_size=10)
        worker.tell("ana")
        worker.dispatch()
        assert worker.received("ana") == 1
        assert worker.project()["bulk_tokens"] >= 8

    def test_what_is_stale_costs_a_fresh_push_nothing(self, relay, clock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Behind 2,000 expired rows a fresh push goes out without once waiting for the rate: it used one token, its own."""
        worker = relay(push_rate_per_second=100)
        stale = worker.add_phones(2_000, "stale")
        worker.tell(*stale, ttl_s=60)
        worker.tell("fresh")
        worker.travel(minutes=2)
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now)  # no time passes: only what is given back can be used again
        grants: Counter[str] = Counter()
        reserve = worker.app.services.projects.reserve

        def watched(*args: Any, **kwargs: Any) -> Any:
            allowance = reserve(*args, **kwargs)
            grants[allowance.grant.why] += 1
            return allowance

        monkeypatch.setattr(worker.app.services.projects, "reserve", watched)
        worker.dispatch(at_most_s=300)
        assert grants["rate"] == 0
        assert worker.states() == {"expired": 2_000, "sent": 1}
        assert (worker.received("fresh"), worker.project()["bulk_tokens"]) == (1, 99)

    @pytest.mark.parametrize("why", ["malformed", "cancelled", "stopped"])
    def test_what_is_not_sent_gives_its_tokens_back(self, relay, clock, monkeypatch, why: str) -> None:
        """Refused by us, held back by the journal, or handed back at a stop: none of it counts for the rate."""

        def interfere(message: Any, *_: Any) -> Any:
            if why == "cancelled":
                verbs.cancel(worker.conn, event)
            return message

        def stop(_context: Any, send: Any) -> Reply:
            if why == "stopped":
                worker.app.runner.stopping.set()
            return send()

        worker = relay(push_rate_per_second=100, composers={"notice": interfere}, push_middlewares=[stop])
        worker.add_phones(20)
        if why == "malformed":
            worker.conn.execute("update relevo.device_installations set token = 'fcm:' || installation_id")
        event = worker.tell_everyone()
        worker.travel(seconds=1)
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now)
        worker.dispatch()
        assert worker.posts() == 0
        assert worker.project()["bulk_tokens"] == 100

    def test_lanes_take_turns_on_a_line(self) -> None:
        """With both lanes waiting an urgent request goes first, and after each a bulk one has its turn."""
        lines, order = RequestPool("test"), []
        begun, gate = threading.Event(), threading.Event()
        held = lines.submit("bulk", lambda: begun.set() or gate.wait(PATIENCE_S))
        assert begun.wait(PATIENCE_S)
        waiting = [lines.submit("bulk", lambda: order.append("bulk")) for _ in range(3)]
        waiting += [lines.submit("urgent", lambda: order.append("urgent")) for _ in range(3)]
        gate.set()
        for each in [held, *waiting]:
            each.result(PATIENCE_S)
        lines.close()
        assert order == ["urgent", "bulk"] * 3

    def test_429_for_receipts_slows_the_project_down(self, relay, sandbox) -> None:
        """Whoever asks too much is told so for the project: its rate is halved and it rests."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()
        sandbox.add_fault("429", on="receipts", times=1)
        worker.travel(seconds=1)
        worker.ask()
        assert worker.project()["rate_share"] == 0.5
        assert worker.project()["rest_until"] > worker.clock.now()
        assert worker.incidents() == ["rate_halved"]


class TestWaits:
    """How long until the next try."""

    @pytest.fixture
    def half_an_hour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the sandbox say with its 503 and its 429 that it wants half an hour's peace."""
        for word, code in (("503", "SERVICE_UNAVAILABLE"), ("429", "TOO_MANY_REQUESTS")):
            said = answers.refused(int(word), code, "Later.", headers={"retry-after": "1800"}).answer
            monkeypatch.setitem(faults._SPOILED, word, said)

    @pytest.mark.usefixtures("half_an_hour")
    def test_retry_after_of_an_outage_is_a_floor(self, relay, sandbox) -> None:
        """A 503 that names its time is not tried again after a minute."""
        worker = relay()
        worker.tell("ana")
        sandbox.add_fault("503", times=1)
        before = worker.clock.now()
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"]) == ("retryable", 1)
        assert 1_800 <= seconds_from(before, found["next_attempt_at"]) <= 1_810

    @pytest.mark.usefixtures("half_an_hour")
    @pytest.mark.parametrize("word", ["503", "429"])
    def test_retry_after_is_a_floor_for_receipts(self, relay, sandbox, word: str) -> None:
        """A question that was refused for a while is not asked again before."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()
        sandbox.add_fault(word, on="receipts", times=1)
        worker.travel(seconds=1)
        before = worker.clock.now()
        worker.ask()
        assert worker.delivery("ana")["next_receipt_at"] >= before + timedelta(minutes=30)

    def test_retries_that_receipts_ask_for_are_spread(self, relay) -> None:
        """Jitter, as for those that tickets ask for, drawn for each question: a backlog does not come back as one storm."""
        worker = relay(outbox_retry_jitter_ms=20_000, receipt_chunk_size=100)
        worker.add_phones(300, "p", "!receipt-ExpoError")
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert worker.states() == {"retryable": 300}
        assert len({row["next_attempt_at"] for row in worker.deliveries()}) == 3


def test_a_surprise_among_receipts_leaves_nothing_claimed(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a provider raises, the run tells of it, nothing changes, and the next run asks without waiting for a reaper."""
    worker = relay()
    worker.tell("ana")
    worker.dispatch()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(worker.app.services.providers["expo"], "fetch_receipts", fail)
        worker.travel(seconds=1)
        assert "ZeroDivisionError" in worker.ask().error
    assert (worker.delivery("ana")["status"], worker.claims()) == ("sent", 0)
    worker.ask()
    assert worker.delivery("ana")["status"] == "ok"


def test_what_surprises_again_and_again_is_set_apart(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that breaks its batch each time ends as poison; the one beside it is sent."""
    worker = relay()
    worker.tell("poison", "ana")
    provider = worker.app.services.providers["expo"]
    judge = provider.refuse_token

    def stumble(asked: str) -> Any:
        if asked == token("poison"):
            raise ZeroDivisionError
        return judge(asked)

    monkeypatch.setattr(provider, "refuse_token", stumble)
    monkeypatch.setattr(provider, "refuses_any", lambda tokens: any(map(stumble, tokens)))
    for _ in range(8):
        worker.dispatch()
        worker.travel(minutes=1)
    assert (worker.delivery("ana")["status"], worker.received("ana")) == ("sent", 1)
    found = worker.delivery("poison")
    assert (found["status"], found["last_error_code"], found["attempt_count"]) == ("failed", "poison", 0)


def test_progress_follows_a_claim_that_was_lost(relay) -> None:
    """What a reaper makes of a delivery, and what a late ticket makes of that, is told to its event."""
    late = LateAnswers()
    slow, other = relay(push_middlewares=[late]), relay()
    event = slow.tell("ana")
    with beside(slow.dispatch):
        eventually(lambda: slow.received("ana"), "the request is under way")
        slow.conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")
        other.reap()
        assert verbs.get(slow.conn, event).deliveries == {"retryable": 1}
        late.come.set()
    slow.travel(hours=1)
    other.dispatch()
    assert verbs.get(slow.conn, event).deliveries == {"sent": 1} == slow.states()
    assert slow.posts() == 1


@pytest.mark.parametrize("closed_by", ["the late ticket", "the reaper", "the next claim"])
def test_a_tender_is_announced_by_late_evidence_too(relay, closed_by) -> None:
    """The only push of it was sent, and known to be only after its claim was lost: the tender and the event tell so."""
    late = LateAnswers()
    slow, other = relay(push_middlewares=[late]), relay()
    (item,) = slow.rows(
        "insert into relevo.licitaciones (namespace, external_id, nombre, fingerprint, rubros, sources)"
        " values ('ns', '1', 'Puente', 'f', '{}', '{folder}') returning id"
    )
    event = slow.tell("ana", at_most_once=closed_by == "the late ticket")
    slow.conn.execute("update relevo.notification_events set licitacion_id = %s where id = %s", [item["id"], event])
    with beside(slow.dispatch):
        eventually(lambda: slow.received("ana"), "the request is under way")
        slow.conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")
        if closed_by == "the reaper":
            slow.conn.execute(
                "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)"
                " select event_day, id, 'late', gen_random_uuid(), now() from relevo.notification_deliveries"
            )
        other.reap()
        late.come.set()
    if closed_by == "the next claim":
        slow.travel(hours=1)
        other.dispatch()
    assert (slow.states(), slow.posts()) == ({"sent": 1}, 1)
    (reported,) = slow.rows("select first_sent_at from relevo.notification_events where id = %s", event)
    assert reported["first_sent_at"] is not None
    assert slow.rows("select notificada from relevo.licitaciones") == [{"notificada": True}]


def test_some_bad_tokens_do_not_make_a_bad_event(relay, sandbox) -> None:
    """Three of a hundred pushes of one event are refused with 400, wherever they stand: the ninety-seven go out."""
    worker = relay()
    for part, count in enumerate((10, 29, 29, 29)):
        worker.add_phones(count, f"good{part}-")
        if part:
            worker.add_phones(1, f"bad{part}-", "!400")
    worker.tell_everyone()
    worker.drain()
    assert worker.states() == {"sent": 97, "failed": 3}


def test_an_error_keeps_its_own_words(relay) -> None:
    """What a delivery ends with is told with what was said then, not with what an earlier try was told."""
    worker = relay()
    worker.tell("ana!MessageRateExceeded*1!DeviceNotRegistered")
    worker.dispatch()
    assert worker.delivery("ana!MessageRateExceeded*1!DeviceNotRegistered")["last_error_message"]
    worker.travel(minutes=10)
    worker.dispatch()
    found = worker.delivery("ana!MessageRateExceeded*1!DeviceNotRegistered")
    assert (found["status"], found["last_error_code"], found["last_error_message"]) == (
        "invalid",
        "DeviceNotRegistered",
        None,
    )
