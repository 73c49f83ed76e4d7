"""Code of others around each push: middlewares, composers, providers, and their wish to be asked again later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.core.errors import Reschedule
from relevo.core.model import Reply
from relevo.providers.expo.provider import Expo
from support.sending_worker import Relay, seconds_from, token


def held_back(worker: Relay, name: str = "ana") -> dict[str, Any]:
    """Check that nothing was posted and nothing spent, and return the delivery."""
    found = worker.delivery(name)
    assert worker.posts() == 0
    assert (found["status"], found["attempt_count"], found["claim_token"]) == ("pending", 0, None)
    return found


def tries_once_a_second(worker: Relay, calls: list[int]) -> None:
    """Check that a delivery whose time was wished into the past is tried once in a moment, and again a second later."""
    worker.tell("ana")
    worker.clock.stop()
    for tried in (1, 2):
        worker.dispatch()
        held_back(worker)
        assert len(calls) == tried
        worker.travel(seconds=1)


class TestMiddlewares:
    """Around each push request."""

    def test_they_wrap_each_request_in_their_order(self, relay) -> None:
        """The first is the outermost; each knows project, lane, worker and size of the request."""
        seen: list[Any] = []

        def wrap(name: str) -> Any:
            def middleware(context: Any, send: Any) -> Reply:
                seen.append((f"before {name}", context.project, context.lane, context.messages))
                reply = send()
                seen.append((f"after {name}", reply.kind, sorted(ticket.fate for ticket in reply.tickets)))
                return reply

            return middleware

        worker = relay(push_middlewares=[wrap("outer"), wrap("inner")])
        worker.tell("ana", "bob!MessageTooBig", lane="urgent")
        worker.dispatch()
        assert seen == [
            ("before outer", "default", "urgent", 2),
            ("before inner", "default", "urgent", 2),
            ("after inner", "answered", ["failed", "sent"]),
            ("after outer", "answered", ["failed", "sent"]),
        ]

    def test_every_request_of_a_batch_is_wrapped(self, relay) -> None:
        """As many times as there were requests, each with an id of its own."""
        seen = []
        worker = relay(push_chunk_size=3, push_middlewares=[lambda context, send: seen.append(context) or send()])
        worker.add_phones(10)
        worker.tell_everyone()
        worker.dispatch()
        assert sorted(context.messages for context in seen) == [1, 3, 3, 3]
        assert len({context.request_id for context in seen}) == 4
        assert {context.worker_id for context in seen} == {worker.app.worker.worker_id}

    def test_they_are_given_events_and_types(self, relay) -> None:
        """Each event and type of a request once, so that a trace can name what it traces."""
        seen = []
        worker = relay(push_middlewares=[lambda context, send: seen.append(context) or send()])
        first = worker.tell("ana", "bob", type="order.shipped")
        second = worker.tell("ana", type="note")
        worker.dispatch()
        told = {(event, of) for each in seen for event in each.event_ids for of in each.event_types}
        assert {(first, "order.shipped"), (second, "note")} <= told
        assert sorted(event for each in seen for event in each.event_ids) == [first, second]

    def test_raising_before_spends_no_attempt(self, relay) -> None:
        """Nothing is posted, the run tells of it, the push waits a while, and goes out once that is mended."""
        broken = [True]

        def middleware(_context: Any, send: Any) -> Reply:
            if broken:
                raise RuntimeError("no budget today")
            return send()

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana")
        before = worker.clock.now()
        report = worker.dispatch()
        found = held_back(worker)
        assert found["last_error_code"] == "middleware_failed"
        assert "no budget today" in found["last_error_message"]
        assert seconds_from(before, found["next_attempt_at"]) >= 59
        assert "no budget today" in report.error
        broken.clear()
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.delivery("ana")["attempt_count"]) == ("sent", 1)

    def test_raising_after_cannot_lose_the_answer(self, relay) -> None:
        """The push was sent and its ticket is kept, whatever is raised then."""

        def middleware(_context: Any, send: Any) -> Reply:
            send()
            raise RuntimeError("the statistics are down")

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana")
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"], worker.received("ana")) == ("sent", 1, 1)
        worker.ask()
        assert worker.delivery("ana")["status"] == "ok"

    def test_raising_around_an_inner_one_that_raises(self, relay) -> None:
        """An outer one that swallows what an inner one raised before the request has not sent anything."""

        def outer(_context: Any, send: Any) -> Any:
            try:
                return send()
            except RuntimeError:
                return None

        def inner(_context: Any, _send: Any) -> Reply:
            raise RuntimeError("not now")

        worker = relay(push_middlewares=[outer, inner])
        worker.tell("ana")
        worker.dispatch()
        held_back(worker)

    def test_calling_next_twice_posts_once(self, relay) -> None:
        """The second call raises instead of sending; the first one's answer stands."""

        def middleware(_context: Any, send: Any) -> Reply:
            send()
            return send()

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana")
        worker.dispatch()
        assert (worker.posts(), worker.received("ana"), worker.delivery("ana")["status"]) == (1, 1, "sent")

    def test_not_calling_next_holds_the_request_back(self, relay) -> None:
        """A reply of its own is no answer of the push service: nothing was sent, nothing is spent."""
        worker = relay(push_middlewares=[lambda _context, _send: Reply("answered")])
        worker.tell("ana")
        report = worker.dispatch()
        assert held_back(worker)["last_error_code"] == "middleware_failed"
        assert "next() was not called" in report.error

    def test_what_it_returns_does_not_replace_the_answer(self, relay) -> None:
        """The push service's word stands, even where a middleware forgets to pass it on."""
        worker = relay(push_middlewares=[lambda _context, send: send() and None])
        worker.tell("ana", "bob!DeviceNotRegistered")
        worker.dispatch()
        assert [worker.delivery(name)["status"] for name in worker.phones] == ["sent", "invalid"]

    def test_a_wish_for_later(self, relay) -> None:
        """Reschedule before the request: next attempt then, no attempt spent, and it is no failure."""
        then = datetime.now(UTC) + timedelta(minutes=30)

        def middleware(_context: Any, send: Any) -> Reply:
            if worker.clock.now() < then:
                raise Reschedule(then, "quiet hours")
            return send()

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana")
        report = worker.dispatch()
        found = held_back(worker)
        assert found["next_attempt_at"] == then
        assert (found["last_error_code"], found["last_error_message"]) == ("rescheduled", "quiet hours")
        assert report.outcome == "ok"
        worker.travel(minutes=29)
        assert worker.dispatch().outcome == "idle"
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.delivery("ana")["attempt_count"]) == ("sent", 1)

    def test_a_wish_beyond_the_deadline(self, relay) -> None:
        """It would come too late, so it ends as expired now."""

        def middleware(_context: Any, _send: Any) -> Reply:
            raise Reschedule(datetime.now(UTC) + timedelta(hours=2))

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana", ttl_s=3_600)
        worker.tell("bob", ttl_s=3 * 3_600)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.delivery("ana")["attempt_count"]) == ("expired", 0)
        assert worker.delivery("bob")["status"] == "pending"

    def test_a_wish_after_the_request_cannot_lose_the_answer(self, relay) -> None:
        """What was sent was sent."""

        def middleware(_context: Any, send: Any) -> Reply:
            send()
            raise Reschedule(datetime.now(UTC) + timedelta(hours=2))

        worker = relay(push_middlewares=[middleware])
        worker.tell("ana")
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.received("ana")) == ("sent", 1)

    def test_a_wish_for_the_past_does_not_spin(self, relay) -> None:
        """It is tried again, but not a hundred times in the same moment."""
        calls: list[int] = []

        def middleware(_context: Any, _send: Any) -> Reply:
            calls.append(1)
            raise Reschedule(datetime(2020, 1, 1, tzinfo=UTC))

        worker = relay(push_middlewares=[middleware])
        tries_once_a_second(worker, calls)


class TestComposers:
    """Before each push request, for one delivery."""

    def test_they_make_the_push_the_phones_own(self, relay) -> None:
        """A composer sees the message and the delivery with its phone, and what it returns is sent; other types are not touched."""

        def compose(message: dict[str, Any], delivery: Any) -> dict[str, Any]:
            assert delivery.event_type == "greeting"
            return message | {"title": {"en": "Hello", "es": "Hola"}[delivery.locale], "subtitle": delivery.platform}

        worker = relay(composers={"greeting": compose})
        worker.register("ann", locale="en", platform="ios")
        worker.register("ana", locale="es", platform="android")
        worker.tell("ann", "ana", type="greeting", title="?")
        worker.tell("ann", type="notice", title="as it is")
        worker.dispatch()
        said = {
            name: [(each["title"], each.get("subtitle")) for each in worker.messages(name)] for name in ("ann", "ana")
        }
        assert sorted(said["ann"], key=str) == [("Hello", "ios"), ("as it is", None)]
        assert said["ana"] == [("Hola", "android")]

    @pytest.mark.parametrize("how", ["raises", "returns nothing"])
    def test_one_that_fails_is_bounded_and_hurts_nobody_else(self, relay, how: str) -> None:
        """Its delivery is tried again, up to its last attempt; the others of its batch arrive at once."""

        def compose(message: dict[str, Any], delivery: Any) -> Any:
            if delivery.locale != "xx":
                return message
            if how == "raises":
                raise KeyError("xx")
            return None

        worker = relay(composers={"notice": compose}, outbox_max_attempts=2)
        worker.register("bad", locale="xx")
        worker.tell("bad", "good")
        worker.dispatch()
        assert (worker.delivery("good")["status"], worker.received("good")) == ("sent", 1)
        found = worker.delivery("bad")
        assert (found["status"], found["attempt_count"]) == ("retryable", 1)
        assert found["last_error_code"] == "composer_failed"
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.delivery("bad")["status"], worker.delivery("bad")["attempt_count"]) == ("failed", 2)
        assert worker.received("bad") == 0

    def test_a_wish_for_later(self, relay) -> None:
        """Reschedule: next attempt then, no attempt spent; the others of the batch go out."""
        then = datetime.now(UTC) + timedelta(minutes=30)

        def compose(message: dict[str, Any], delivery: Any) -> dict[str, Any]:
            if delivery.locale == "es" and worker.clock.now() < then:
                raise Reschedule(then)
            return message

        worker = relay(composers={"notice": compose})
        worker.register("ana", locale="es")
        worker.tell("ana", "bob")
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"], found["next_attempt_at"]) == ("pending", 0, then)
        assert worker.delivery("bob")["status"] == "sent"
        worker.travel(minutes=31)
        worker.dispatch()
        worker.everyone_received(1)

    def test_a_wish_beyond_the_deadline(self, relay) -> None:
        """Never beyond the deadline: it ends as expired."""

        def compose(message: dict[str, Any], *_: Any) -> dict[str, Any]:
            raise Reschedule(datetime.now(UTC) + timedelta(hours=2))

        worker = relay(composers={"notice": compose})
        worker.tell("ana", ttl_s=3_600)
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"], worker.posts()) == ("expired", 0, 0)

    def test_a_wish_for_the_past_does_not_spin(self, relay) -> None:
        """It is asked again, but not a hundred times in the same moment."""
        calls: list[int] = []

        def compose(message: dict[str, Any], *_: Any) -> dict[str, Any]:
            calls.append(1)
            raise Reschedule(datetime(2020, 1, 1, tzinfo=UTC))

        worker = relay(composers={"notice": compose})
        tries_once_a_second(worker, calls)

    def test_what_it_makes_is_checked_too(self, relay) -> None:
        """A message grown too big never goes out, and the token is not blamed."""
        worker = relay(composers={"notice": lambda message, *_: message | {"body": "x" * 5_000}})
        worker.tell("ana")
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["last_error_code"], worker.posts()) == ("failed", "MessageTooBig", 0)
        assert not worker.is_disabled("ana")


class TestProviders:
    """What a provider of one's own may raise."""

    def test_a_wish_for_later(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """Reschedule from a provider means: not sent, next attempt then, no attempt spent."""
        then = datetime.now(UTC) + timedelta(minutes=30)

        def send(*_: Any) -> Reply:
            raise Reschedule(then)

        worker = relay()
        worker.tell("ana")
        with monkeypatch.context() as patched:
            patched.setattr(Expo, "send", send)
            worker.dispatch()
        assert held_back(worker)["next_attempt_at"] == then
        worker.travel(minutes=31)
        worker.dispatch()
        assert worker.delivery("ana")["status"] == "sent"

    @pytest.mark.parametrize("at_most_once", [False, True])
    def test_anything_else_is_ambiguous(self, relay, monkeypatch: pytest.MonkeyPatch, at_most_once: bool) -> None:
        """Nobody knows how far it came: at most once ends as unknown, at least once is sent again later."""

        def send(*_: Any) -> Reply:
            raise ZeroDivisionError

        worker = relay()
        worker.tell("ana", at_most_once=at_most_once)
        monkeypatch.setattr(Expo, "send", send)
        worker.dispatch()
        found = worker.delivery("ana")
        assert (found["status"], found["attempt_count"]) == ("unknown" if at_most_once else "retryable", 1)
        assert found["last_error_code"] == "provider_failed"

    def test_a_batch_that_fails_is_not_claimed_again_and_again(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """A surprise before the request hands the batch back, fails the run, and the run ends instead of spinning."""
        calls = []

        def refuse(*_: Any) -> None:
            calls.append(1)
            raise ZeroDivisionError

        worker = relay()
        worker.tell("ana")
        monkeypatch.setattr(Expo, "refuses_any", refuse)
        report = worker.dispatch()
        assert report.outcome in ("failed", "partial")
        assert "ZeroDivisionError" in report.error
        held_back(worker)
        assert len(calls) <= 3


class TestTypesOfAReplica:
    """A replica sends what it can make as it should be made, and what it is told to send."""

    def test_one_that_lacks_a_composer_leaves_its_type_to_who_has_it(self, relay) -> None:
        """While a replica with the composer lives the other claims nothing of that type; once it is gone, it does."""
        having = relay(composers={"special": lambda message, _delivery: message | {"title": "composed"}})
        lacking = relay()
        having.register("ana")
        having.tell_everyone(type="special")
        having.tell_everyone(type="plain")
        lacking.dispatch(at_most=1)
        assert [each["title"] for each in having.sandbox.received(token("ana"))] == ["Hola"]
        having.dispatch()
        assert {each["title"] for each in having.sandbox.received(token("ana"))} == {"Hola", "composed"}
        having.tell_everyone(type="special")
        having.conn.execute("update relevo.workers set stopped_at = now()")
        lacking.app.claims._foreign = (-60.0, [])
        lacking.dispatch()
        assert len(having.sandbox.received(token("ana"))) == 3

    def test_a_replica_can_be_limited_to_some_types(self, relay) -> None:
        """WORKER_EVENT_TYPES names the types it sends; the others wait for somebody else."""
        worker = relay(worker_event_types="mine,ours")
        worker.register("ana")
        worker.tell_everyone(type="mine")
        worker.tell_everyone(type="theirs")
        worker.dispatch(at_most=1)
        assert worker.states() == {"sent": 1, "pending": 1}
        assert worker.rows("select event_type from relevo.notification_deliveries where status = 'sent'") == [
            {"event_type": "mine"}
        ]
