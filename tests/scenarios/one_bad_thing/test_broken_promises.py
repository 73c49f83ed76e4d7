"""Code of others that does not do what it promised: nothing is lost, doubled or held for ever because of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from psycopg import errors as pg

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Reply, Ticket
from relevo.delivery.claiming.claims import Claims
from relevo.providers.expo.provider import Expo
from relevo.runtime import threads
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay, token

ONCE = pytest.mark.parametrize("at_most_once", [False, True], ids=["at least once", "at most once"])


def is_ambiguous(worker: Relay, name: str, *, at_most_once: bool) -> None:
    """Check that a push counts as one that may have been sent: an attempt is spent, at most once never sent again."""
    found = worker.delivery(name)
    assert (found["status"], found["attempt_count"]) == ("unknown" if at_most_once else "retryable", 1)


def is_evidence(worker: Relay, *, at_most_once: bool) -> bool:
    """Tell whether the late ticket of ana's push closed it, given up as unknown, or waits for who claims it next."""
    kept = worker.rows("select from relevo.late_tickets")
    return worker.delivery("ana")["status"] == "sent" if at_most_once else len(kept) == 1


class TestMiddlewaresWithThreads:
    """A middleware that calls `next()` on a thread of its own."""

    @ONCE
    def test_one_that_does_not_wait_for_the_answer(self, relay, monkeypatch, at_most_once: bool) -> None:
        """It raised while the request was on its way: that may have been sent; the late ticket is kept all the same."""
        begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
        post = Expo.send

        def slow(*asked: Any) -> Reply:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return post(*asked)

        def impatient(_context: Any, send: Any) -> Reply:
            threading.Thread(target=lambda: (send(), ended.set()), daemon=True).start()
            assert begun.wait(PATIENCE_S)
            raise TimeoutError("no answer in time")

        monkeypatch.setattr(Expo, "send", slow)
        worker = relay(push_middlewares=[impatient])
        worker.tell("ana", at_most_once=at_most_once)
        worker.dispatch()
        is_ambiguous(worker, "ana", at_most_once=at_most_once)
        go_on.set()
        assert ended.wait(PATIENCE_S)
        eventually(lambda: is_evidence(worker, at_most_once=at_most_once))
        worker.travel(minutes=10)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.received("ana")) == ("sent", 1)

    def test_one_that_sends_after_it_was_over(self, relay) -> None:
        """A request that was held back, and may be made again, cannot be sent by a thread that was left behind."""
        held: list[Any] = []
        worker = relay(push_middlewares=[lambda _context, send: held.append(send)])
        worker.tell("ana")
        worker.dispatch()
        assert worker.delivery("ana")["last_error_code"] == "middleware_failed"
        with pytest.raises(Exception, match="given up"):
            held[0]()
        assert (worker.posts(), worker.received("ana")) == (0, 0)

    def test_one_that_asks_again_before_the_first_answer(self, relay, monkeypatch) -> None:
        """However it calls, at once or in turn, a request is posted once."""
        begun, go_on = threading.Event(), threading.Event()
        post = Expo.send

        def slow(*asked: Any) -> Reply:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return post(*asked)

        def impatient(_context: Any, send: Any) -> Reply:
            first = threading.Thread(target=send)
            first.start()
            assert begun.wait(PATIENCE_S)
            threading.Timer(0.2, go_on.set).start()
            try:
                return send()
            finally:
                first.join(PATIENCE_S)

        monkeypatch.setattr(Expo, "send", slow)
        worker = relay(push_middlewares=[impatient])
        worker.tell("ana")
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.posts(), worker.received("ana")) == ("sent", 1, 1)


class TestProviders:
    """A push service's adapter."""

    @ONCE
    @pytest.mark.parametrize("how", ["exits", "returns nothing", "returns an unknown kind"])
    def test_one_that_does_not_say_what_became_of_it(self, relay, monkeypatch, how: str, at_most_once: bool) -> None:
        """The request was made, and nobody knows more: it is ambiguous, never taken for one that was not sent."""
        post = Expo.send

        def send(*asked: Any) -> Any:
            post(*asked)
            if how == "exits":
                raise SystemExit(1)
            return None if how == "returns nothing" else Reply("done")  # type: ignore[arg-type]

        monkeypatch.setattr(Expo, "send", send)
        worker = relay()
        worker.tell("ana", at_most_once=at_most_once)
        worker.dispatch()
        is_ambiguous(worker, "ana", at_most_once=at_most_once)
        assert worker.received("ana") == 1

    @pytest.mark.parametrize(
        "odd",
        [Ticket("ok"), Ticket("ok", id="x" * 201), Ticket("sent", id="a\0b"), Ticket("ok", id="\ud800")],
        ids=["ok without an id", "too long", "NUL", "half a character"],
    )
    def test_one_odd_ticket_costs_no_other_its_answer(self, relay, monkeypatch, odd: Ticket) -> None:
        """A ticket that cannot be written down is ambiguous; those beside it stand, and nothing stays claimed."""

        def send(_self: Expo, messages: Any, *_: Any) -> Reply:
            good = Ticket("sent", id="good")
            return Reply("answered", tuple(odd if each["to"] == token("odd") else good for each in messages))

        monkeypatch.setattr(Expo, "send", send)
        worker = relay()
        worker.tell("ana", "odd")
        worker.dispatch()
        assert worker.delivery("ana")["status"] == "sent"
        is_ambiguous(worker, "odd", at_most_once=False)
        assert worker.claims() == 0


class TestComposers:
    """A composer."""

    def test_one_that_exits_is_bounded_and_hurts_nobody_else(self, relay) -> None:
        """sys.exit() in a composer ends neither its thread's batch nor the others': it is one that failed."""

        def compose(message: dict[str, Any], delivery: Any) -> Any:
            if delivery.locale == "xx":
                raise SystemExit(1)
            return message

        worker = relay(composers={"notice": compose})
        worker.register("bad", locale="xx")
        worker.tell("bad", "good")
        worker.dispatch()
        assert (worker.delivery("good")["status"], worker.received("good")) == ("sent", 1)
        found = worker.delivery("bad")
        assert (found["status"], found["attempt_count"], found["last_error_code"]) == (
            "retryable",
            1,
            "composer_failed",
        )


class TestRefusals:
    """A message that is refused, tried again, and then answered in another way."""

    def test_is_counted_once(self, relay, monkeypatch) -> None:
        """Its two answers must not stand for one that was not sent: that is handed back, and not left claimed for ever."""
        refused, unclear = Reply("rejected", code="400"), Reply("unclear", code="503")
        script = {"abcd": [refused], "ab": [refused], "a": [refused, unclear], "cd": [refused]}
        script["c"] = [Reply("throttled", code="429")]

        def send(_self: Expo, messages: Any, *_: Any) -> Reply:
            names = "".join(each["title"] for each in messages)
            said = script.get(names)
            return said.pop(0) if said else Reply("answered", tuple(Ticket("sent", id=name) for name in names))

        monkeypatch.setattr(Expo, "send", send)
        worker = relay(push_breaker_failures=100)
        worker.register("ana")
        for name in "abcd":
            worker.enqueue(title=name)
        worker.fan_out()
        worker.dispatch()
        assert not any(script.values()), script
        assert [row["title"] for row in claimed(worker)] == []
        worker.travel(minutes=10)
        worker.drain()
        assert worker.states() == {"sent": 4}


def claimed(worker: Relay) -> list[dict[str, Any]]:
    """Return the events whose deliveries are in somebody's hands."""
    return worker.rows(
        "select e.title from relevo.deliveries d join relevo.notification_events e on e.id = d.notification_event_id"
        " where d.claim_token is not null"
    )


class TestShortages:
    """No thread to be had, or a row that is locked for a moment."""

    def test_a_batch_without_a_thread_is_no_lapse(self, relay, monkeypatch) -> None:
        """A process that is out of threads hands its deliveries back as they were, however often: none is poison."""
        start = threads.start

        def refuse(name: str, work: Any) -> Any:
            if name == "relevo-composing":
                raise threads.NoThreadError("No thread could be started.")
            return start(name, work)

        worker = relay(composers={"notice": lambda message, *_: message})
        worker.tell("ana")
        with monkeypatch.context() as patched:
            patched.setattr(threads, "start", refuse)
            for _ in range(6):
                assert "thread" in worker.dispatch().error
        found = worker.delivery("ana")
        assert (found["status"], found["lapse_count"], found["claim_token"]) == ("pending", 0, None)

    def test_nothing_is_claimed_without_a_thread(self, relay, monkeypatch) -> None:
        """What could not be brought on its way is left to others, and the run says why."""
        start = threads.start

        def refuse(name: str, work: Any) -> Any:
            if name == "relevo-claim":
                raise threads.NoThreadError("No thread could be started.")
            return start(name, work)

        worker = relay()
        worker.tell("ana")
        with monkeypatch.context() as patched:
            patched.setattr(threads, "start", refuse)
            assert "thread" in worker.dispatch().error
        found = worker.delivery("ana")
        assert (found["status"], found["lapse_count"], found["claim_token"], worker.claims()) == ("pending", 0, None, 0)

    @ONCE
    def test_late_answers_wait_for_a_lock(self, relay, monkeypatch, at_most_once: bool) -> None:
        """A ticket that nobody waits for any more is not lost to a lock that is held in the moment it comes."""
        begun, go_on = threading.Event(), threading.Event()
        post, settle = Expo.send, Claims.settle
        busy: list[Exception] = []

        def slow(*asked: Any) -> Reply:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return post(*asked)

        def impatient(_context: Any, send: Any) -> Reply:
            threading.Thread(target=send, daemon=True).start()
            assert begun.wait(PATIENCE_S)
            raise TimeoutError("no answer in time")

        def contended(*asked: Any, **more: Any) -> Any:
            if busy:
                raise busy.pop()
            return settle(*asked, **more)

        monkeypatch.setattr(Expo, "send", slow)
        monkeypatch.setattr(Claims, "settle", contended)
        worker = relay(push_middlewares=[impatient])
        worker.tell("ana", at_most_once=at_most_once)
        worker.dispatch()
        busy += [pg.LockNotAvailable(), pg.DeadlockDetected()]
        go_on.set()
        eventually(lambda: is_evidence(worker, at_most_once=at_most_once))
        eventually(lambda: not busy, "the answer is handed in again")

    def test_a_claim_that_met_a_lock_gives_its_rate_back(self, relay, monkeypatch) -> None:
        """What was reserved for a claim that could not be made is there for the next one."""

        def locked(*_: Any, **__: Any) -> None:
            raise pg.LockNotAvailable

        worker = relay(push_rate_per_second=100)
        worker.tell("ana")
        worker.dispatch()
        worker.tell("ana")
        worker.clock.stop()
        worker.travel(minutes=1)
        before = worker.project()["bulk_tokens"]
        with monkeypatch.context() as patched:
            patched.setattr(Claims, "_take_in", locked)
            worker.dispatch(at_most_s=0.5)
        assert worker.project()["bulk_tokens"] >= before

    def test_receipts_of_a_wave_that_could_claim_only_some(self, relay, monkeypatch) -> None:
        """A database that goes away between two claims costs the first no lease: it is asked for, and settled."""
        worker = relay(receipt_chunk_size=1)
        for name in ("ana", "bob"):
            worker.tell(name)
            worker.dispatch()
        claim, made = Claims.claim_awaiting, []

        def once(*asked: Any, **more: Any) -> Any:
            if made:
                raise DatabaseUnavailableError("PostgreSQL did not answer.")
            made.append(claim(*asked, **more))
            return made[0]

        with monkeypatch.context() as patched:
            patched.setattr(Claims, "claim_awaiting", once)
            worker.ask()
        assert (worker.states(), worker.claims()) == ({"ok": 1, "sent": 1}, 0)
