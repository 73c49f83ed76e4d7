"""What is sent, in which order and with which words: lanes, schedules, leases, retries, re-checks, the message itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from relevo.client import values, verbs
from relevo.client.values import TenderMatching, TenderPreference
from relevo.core.model import Reply
from support.phones import event_row
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay, beside, seconds_from, token


class TestLanes:
    """Urgent before bulk, and bulk not starved."""

    def test_an_urgent_one_overtakes_a_queue_of_bulk(self, relay) -> None:
        """With much bulk queued, an urgent one goes out long before the bulk is through."""
        sent: Counter[str] = Counter()
        bulk_before_urgent: list[int] = []

        reported = threading.Event()

        def watch(context: Any, send: Any) -> Reply:
            if context.lane == "urgent":
                bulk_before_urgent.append(sent["bulk"])
            elif sent["bulk"] >= 100:
                assert reported.wait(PATIENCE_S)
            sent[context.lane] += context.messages
            return send()

        worker = relay(push_rate_per_second=300, push_chunk_size=20, push_middlewares=[watch])
        worker.add_phones(400)
        worker.register("vip")
        worker.tell_everyone(lane="bulk")
        with beside(worker.dispatch):
            eventually(lambda: sent["bulk"] >= 100, "the bulk is under way")
            worker.tell("vip", lane="urgent")
            reported.set()
        assert worker.received("vip") == 2
        assert bulk_before_urgent[0] <= 300, "with a quarter of the bulk still waiting"
        assert worker.states() == {"sent": 402}

    def test_a_flood_of_urgent_does_not_stop_bulk(self, relay) -> None:
        """While both lanes are full, neither waits until the other is empty; their shares are the bucket's."""
        order: list[str] = []
        worker = relay(
            push_rate_per_second=300,
            push_chunk_size=10,
            push_middlewares=[lambda context, send: order.append(context.lane) or send()],
        )
        worker.add_phones(120)
        worker.tell_everyone(lane="bulk")
        worker.tell_everyone(lane="urgent")
        worker.dispatch()
        worker.everyone_received(2)
        last = {lane: number for number, lane in enumerate(order)}
        assert order.index("bulk") < last["urgent"], order
        assert order.index("urgent") < last["bulk"], order

    def test_urgent_goes_first_without_any_limit(self, relay) -> None:
        """On one connection, an urgent batch that was made later is posted before most of the bulk."""
        order: list[str] = []
        worker = relay(
            push_chunk_size=1,
            outbox_concurrency=1,
            push_middlewares=[lambda context, send: order.append(context.lane) or send()],
        )
        worker.add_phones(30)
        worker.tell_everyone(lane="bulk")
        worker.tell("p0", lane="urgent")
        worker.dispatch()
        assert order.index("urgent") <= 10
        assert Counter(order) == {"bulk": 30, "urgent": 1}


class TestTimes:
    """When things are sent."""

    def test_a_scheduled_event_is_sent_on_time(self, relay) -> None:
        """Not before, and each run until then says how long it is; then once."""
        worker = relay()
        worker.register("ana")
        worker.enqueue(scheduled_at=datetime.now(UTC) + timedelta(hours=1))
        report = worker.fan_out()
        assert 3_500 <= report.due_in_s <= 3_600
        worker.travel(minutes=59)
        worker.fan_out()
        assert worker.dispatch().outcome == "idle"
        worker.travel(minutes=1, seconds=1)
        worker.fan_out()
        worker.dispatch()
        worker.everyone_received(1)

    def test_dispatch_says_when_the_next_retry_is_due(self, relay) -> None:
        """So that whoever schedules it sleeps until then, not for a fixed while."""
        worker = relay()
        worker.tell("ana!ExpoError")
        worker.dispatch()
        assert 50 <= worker.dispatch().due_in_s <= 61

    def test_retries_follow_the_types_policy(self, relay, conn) -> None:
        """Pauses and attempts of a type replace the settings', for events of that type alone."""
        worker = relay()
        conn.execute(
            "insert into relevo.event_types (event_type, retry_base_ms, retry_max_ms, max_attempts) values ('quick', 5000, 5000, 2)"
        )
        worker.tell("quick!ExpoError", type="quick")
        worker.tell("usual!ExpoError")
        before = worker.clock.now()
        worker.dispatch()
        waits = {name: seconds_from(before, worker.delivery(name)["next_attempt_at"]) for name in worker.phones}
        assert waits["quick!ExpoError"] <= 40
        assert waits["usual!ExpoError"] >= 59
        worker.travel(seconds=90)
        worker.dispatch()
        assert worker.delivery("quick!ExpoError")["status"] == "failed"
        assert worker.delivery("usual!ExpoError")["status"] == "retryable"

    def test_retries_follow_the_types_multiplier(self, relay, command) -> None:
        """Each pause is as much longer than the one before as the type says; twice as long for other types."""
        worker = relay(push_request_timeout_ms=1_000, outbox_retry_base_ms=10_000, relevo_instance="tests")
        assert command("event-type", "steady", "--retry-multiplier", "1").code == 0
        assert command("event-type", "slowing", "--retry-multiplier", "1.5").code == 0
        assert command("event-type", "slowing", "--retry-multiplier", "0.5").code == 2
        for name in ("steady", "slowing", "usual"):
            worker.tell(f"{name}!ExpoError", type=name)
        worker.clock.stop()
        waits: dict[str, list[int]] = {name: [] for name in worker.phones}
        for _ in range(3):
            before = worker.clock.now()
            worker.dispatch()
            for name, pauses in waits.items():
                pauses.append(round(seconds_from(before, worker.delivery(name)["next_attempt_at"])))
            worker.travel(minutes=2)
        assert [waits[f"{name}!ExpoError"] for name in ("steady", "slowing", "usual")] == [
            [10, 10, 10],
            [10, 15, 22],
            [10, 20, 40],
        ]

    def test_a_batch_holds_one_lease_class(self, relay, conn) -> None:
        """Types with leases of their own never share a claim with others, and each claim has its type's lease."""
        conn.execute(
            "insert into relevo.event_types (event_type, lease_ms) values ('slow', 600000), ('slower', 900000)"
        )
        seen: list[tuple[int, frozenset[str]]] = []

        def watch(_context: Any, send: Any) -> Reply:
            rows = worker.rows(
                "select c.lease_ms, array_agg(distinct d.event_type) as types from relevo.claims c "
                "join relevo.notification_deliveries d on d.id = any (c.ids) group by c.token"
            )
            seen.extend((row["lease_ms"], frozenset(row["types"])) for row in rows)
            return send()

        worker = relay(push_middlewares=[watch], outbox_concurrency=1)
        worker.add_phones(5)
        for kind in ("slow", "notice", "slower", "other"):
            worker.tell_everyone(type=kind)
        worker.dispatch()
        worker.everyone_received(4)
        assert set(seen) <= {
            (600_000, frozenset({"slow"})),
            (900_000, frozenset({"slower"})),
            (60_000, frozenset({"notice", "other"})),
            (60_000, frozenset({"notice"})),
            (60_000, frozenset({"other"})),
        }
        assert {lease for lease, _ in seen} == {60_000, 600_000, 900_000}


class TestProgress:
    """What an event, and its tender, are told."""

    def test_the_tender_is_marked_with_the_first_push(self, relay, conn) -> None:
        """Not by a push that failed, and never back."""
        (item,) = conn.execute(
            "insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint) "
            "values ('cl', '1-1-LE26', 'Puente', '{x}', 'x') returning id"
        ).fetchone()
        worker = relay()
        worker.register("bad!MessageTooBig")
        event = {"type": "tender.new", "key": "1", "title": "t", "audience": "everyone", "licitacion_id": item}

        def announced() -> bool:
            return bool(conn.execute("select notificada from relevo.licitaciones").fetchone()[0])

        conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])
        worker.fan_out()
        worker.dispatch()
        assert not announced()
        worker.register("ana")
        conn.execute("select relevo.enqueue(%s)", [Jsonb(event | {"key": "2"})])
        worker.fan_out()
        worker.dispatch()
        assert announced()
        worker.tell("bad!MessageTooBig")
        worker.dispatch()
        assert announced()

    def test_first_sent_at_is_set_once(self, relay) -> None:
        """With the first push that was accepted, and not moved by later ones."""
        worker = relay()
        event = worker.tell("bad!ExpoError*1", "worse!ExpoError*2")
        worker.dispatch()
        assert event_row(worker.conn, event)["first_sent_at"] is None
        worker.travel(minutes=2)
        worker.dispatch()
        first = event_row(worker.conn, event)["first_sent_at"]
        assert first is not None
        worker.travel(minutes=5)
        worker.dispatch()
        assert worker.states() == {"sent": 2}
        assert event_row(worker.conn, event)["first_sent_at"] == first

    def test_progress_is_told_without_counting(self, relay, conn) -> None:
        """Counts follow every settle, before and after they are folded; deliveries are not looked at for them."""
        worker = relay()
        event = worker.tell("a", "b", "c!MessageTooBig", "d!ExpoError", "e!DeviceNotRegistered", "f!receipt-ExpoError")
        assert verbs.get(conn, event).deliveries == {"pending": 6}
        worker.dispatch()
        reported = {"sent": 3, "failed": 1, "retryable": 1, "invalid": 1}
        assert verbs.get(conn, event).deliveries == reported
        worker.reap()
        assert verbs.get(conn, event).deliveries == reported
        worker.ask()
        reported = {"ok": 2, "failed": 1, "retryable": 2, "invalid": 1}
        assert verbs.get(conn, event).deliveries == reported == worker.states()
        worker.reap()
        conn.execute("delete from relevo.notification_deliveries")
        assert verbs.get(conn, event).deliveries == reported

    def test_waiting_for_an_event(self, relay, conn) -> None:
        """It ends as soon as nothing is left to send, or to confirm."""
        worker = relay()
        event = worker.tell("a", "b")
        worker.dispatch()
        assert not verbs.wait(conn, event, timeout_s=5).left_to_send
        worker.ask()
        assert verbs.wait(conn, event, timeout_s=5, until="confirmed").deliveries == {"ok": 2}


class TestTokens:
    """Which token a push goes to, and which one an answer speaks of."""

    def test_a_token_registered_during_the_request_is_left_alone(self, relay) -> None:
        """DeviceNotRegistered disables the token that was asked about, not the one that came meanwhile, which is tried next."""
        name = "ana!DeviceNotRegistered"

        def meanwhile(_context: Any, send: Any) -> Reply:
            reply = send()
            worker.register("new", installation_id=worker.phones[name])
            return reply

        worker = relay(push_middlewares=[meanwhile])
        worker.tell(name)
        worker.dispatch()
        found = worker.delivery(name)
        assert (found["status"], found["last_error_code"]) == ("retryable", "token_changed")
        assert not worker.is_disabled("new")

    def test_malformed_tokens_never_reach_a_chunk(self, relay, conn) -> None:
        """They end at once and unsent; the request holds the others alone, and is not refused for them."""
        worker = relay()
        worker.add_phones(5, "bad")
        worker.add_phones(3)
        for number, bad in enumerate(["fcm:APA91b", "ExponentPushToken[]", "ExponentPushToken[a b]", "a" * 64, "x"]):
            conn.execute(
                "update relevo.device_installations set token = %s where token = %s", [bad, token(f"bad{number}")]
            )
        worker.tell_everyone()
        worker.dispatch()
        assert worker.states() == {"invalid": 5, "sent": 3}
        found = worker.delivery("bad0")
        assert (found["last_error_code"], found["attempt_count"]) == ("MalformedToken", 0)
        assert worker.posts() == 1
        assert worker.sandbox.totals()["messages"] == 3

    def test_all_three_shapes_of_tokens_are_sent(self, relay, conn) -> None:
        """ExponentPushToken[…], ExpoPushToken[…] and a bare UUID."""
        worker = relay()
        shapes = ["ExponentPushToken[a]", "ExpoPushToken[b]", "5E0C1B0A-8f0d-4a41-9d9b-000000000001"]
        for shape in shapes:
            verbs.register(conn, values.Installation(shape))
        worker.tell_everyone()
        worker.dispatch()
        assert {shape: len(worker.sandbox.received(shape)) for shape in shapes} == dict.fromkeys(shapes, 1)


def _leave_the_preference(worker: Relay, _event: int) -> None:
    verbs.set_preference(worker.conn, worker.phones["ana"], "default", TenderPreference(region="Maule"))


def _remove_the_preference(worker: Relay, _event: int) -> None:
    verbs.set_preference(worker.conn, worker.phones["ana"], "default", None)


def _deny(worker: Relay, _event: int) -> None:
    worker.register("ana", installation_id=worker.phones["ana"], permission="denied")


def _opt_out(worker: Relay, _event: int) -> None:
    worker.register("ana", installation_id=worker.phones["ana"], opt_outs=["news"])


def _sign_off(worker: Relay, _event: int) -> None:
    worker.conn.execute("update relevo.device_installations set active = false")


def _forget(worker: Relay, _event: int) -> None:
    worker.conn.execute("delete from relevo.device_installations")


def _cancel(worker: Relay, event: int) -> None:
    verbs.cancel(worker.conn, event, "a mistake")


def _complete(worker: Relay, event: int) -> None:
    verbs.complete(worker.conn, event)


def _read_elsewhere(worker: Relay, _event: int) -> None:
    verbs.complete(worker.conn, worker.phones["ana"])


def _too_late(worker: Relay, _event: int) -> None:
    worker.travel(hours=2)


def _gone(worker: Relay, event: int) -> None:
    worker.conn.execute("delete from relevo.notification_events where id = %s", [event])


CHANGES: dict[Callable[[Relay, int], None], tuple[str, str]] = {
    _leave_the_preference: ("skipped", "preference_changed"),
    _remove_the_preference: ("skipped", "preference_changed"),
    _deny: ("skipped", "not_allowed"),
    _opt_out: ("skipped", "opted_out"),
    _sign_off: ("skipped", "not_allowed"),
    _forget: ("skipped", "installation_gone"),
    _cancel: ("cancelled", "event_ended"),
    _complete: ("cancelled", "event_ended"),
    _read_elsewhere: ("cancelled", "handled_elsewhere"),
    _gone: ("cancelled", "event_gone"),
    _too_late: ("expired", "deadline_passed"),  # the last: the others would be late, too
}
OF_ANA = (_leave_the_preference, _remove_the_preference, _deny, _opt_out, _read_elsewhere)


def test_what_changed_between_fan_out_and_dispatch(relay, sandbox) -> None:
    """It is looked at again before anything is sent: what must not be sent any more ends with its reason, unattempted."""
    worker = relay()
    for change, (status, code) in CHANGES.items():
        _forget(worker, 0)
        sandbox.reset()
        worker.phones.clear()
        worker.register("ana", "bob")
        event = worker.enqueue(audience=TenderMatching(region="Ñuble"), category="news", ttl_s=3_600)
        worker.fan_out()
        change(worker, event)
        worker.dispatch()
        found, said = worker.delivery("ana"), change.__name__
        assert (found["status"], found["last_error_code"], found["attempt_count"]) == (status, code, 0), said
        assert (worker.received("ana"), worker.received("bob")) == (0, int(change in OF_ANA)), said


class TestMessage:
    """What the phone receives."""

    def test_the_remaining_time_to_live(self, relay) -> None:
        """What is left until the deadline, not what the event began with; without a deadline the setting's."""
        worker = relay(push_ttl_s=777)
        worker.tell("ana", ttl_s=100)
        worker.tell("bob")
        worker.travel(seconds=40)
        worker.dispatch()
        assert 50 <= worker.messages("ana")[0]["ttl"] <= 60
        assert worker.messages("bob")[0]["ttl"] == 777

    @pytest.mark.parametrize(("wished", "expected"), [(30, 30), (5_000, 100), (0, 0)])
    def test_a_wish_for_a_time_to_live(self, relay, wished: int, expected: int) -> None:
        """An event's own wish holds, but never beyond its deadline."""
        worker = relay()
        worker.tell("ana", ttl_s=100, push={"ttl": wished})
        worker.dispatch()
        assert expected - 5 <= worker.messages("ana")[0]["ttl"] <= expected

    def test_a_repeat_replaces_what_is_shown(self, relay) -> None:
        """A tag on Android, a collapse id on iOS alone, the same for every repeat of an event and another for the next."""
        worker = relay()
        worker.register("android", platform="android")
        worker.register("ios", platform="ios")
        event = worker.tell("android", "ios")
        worker.dispatch()
        (android,), (ios,) = worker.messages("android"), worker.messages("ios")
        assert "collapseId" not in android
        assert "tag" not in ios
        assert android["tag"] == ios["collapseId"]
        assert str(event) in android["tag"]
        worker.tell("android")
        worker.dispatch()
        assert len({message["tag"] for message in worker.messages("android")}) == 2

    def test_fields_of_the_event_pass_through(self, relay) -> None:
        """Every further field of the push reaches the phone, a tag of its own included."""
        worker = relay()
        push = {
            "badge": 3,
            "channelId": "tenders",
            "subtitle": "s",
            "sound": "ding.wav",
            "priority": "normal",
            "tag": "mine",
        }
        worker.tell("ana", push=push)
        worker.dispatch()
        (message,) = worker.messages("ana")
        assert {name: message[name] for name in push} == push

    def test_what_they_cannot_override(self, relay) -> None:
        """Recipient, title, body and data are the event's own, whatever an event says that no door let in."""
        worker = relay()
        stray = {"to": token("stranger"), "title": "stray", "body": "stray", "data": {"stray": True}}
        event = worker.tell("ana", title="Hola", body="¿Qué tal?", data={"screen": "inbox"})
        worker.conn.execute("update relevo.notification_events set push = %s where id = %s", [Jsonb(stray), event])
        worker.dispatch()
        (message,) = worker.messages("ana")
        assert (message["to"], message["title"], message["body"]) == (token("ana"), "Hola", "¿Qué tal?")
        assert message["data"]["screen"] == "inbox"
        assert "stray" not in message["data"]
        assert worker.received("stranger") == 0

    def test_the_ids_in_its_data(self, relay) -> None:
        """Event, delivery, installation and provider, so that the app can say what it opened; they win over the event's."""
        worker = relay()
        event = worker.tell("ana", data={"notificationEventId": "forged", "more": [1, {"a": None}]})
        worker.dispatch()
        (message,) = worker.messages("ana")
        assert message["data"] == {
            "notificationEventId": event,
            "notificationDeliveryId": worker.delivery("ana")["id"],
            "installationId": str(worker.phones["ana"]),
            "pushProvider": "expo",
            "more": [1, {"a": None}],
        }

    @pytest.mark.parametrize(("lane", "priority"), [("urgent", "high"), ("bulk", "default")])
    def test_priority_follows_the_lane(self, relay, lane: str, priority: str) -> None:
        """Urgent is high, bulk is not, unless the event says otherwise."""
        worker = relay()
        worker.tell("ana", lane=lane)
        worker.dispatch()
        assert worker.messages("ana")[0]["priority"] == priority

    def test_full_requests(self, relay, sandbox) -> None:
        """Deliveries travel in as few requests as the chunk's size allows."""
        worker = relay()
        worker.add_phones(250)
        worker.tell_everyone()
        worker.dispatch()
        assert worker.posts() == 3
        worker.everyone_received(1)


class TestDeadlinesOfEvents:
    """The deadline is the event's, as long as anything of it is open."""

    SOON = "update relevo.notification_events set deadline_at = scheduled_at + interval '1 minute'"

    def test_one_brought_forward_stops_what_is_fanned_out(self, relay, conn) -> None:
        """A closing that was moved to an earlier moment lets nothing of it be sent after that."""
        worker = relay()
        worker.tell("ana", deadline_at=datetime.now(UTC) + timedelta(hours=5))
        conn.execute(self.SOON)
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.posts()) == ("expired", 0)

    def test_one_brought_forward_after_the_claim_stops_it_too(self, relay, conn) -> None:
        """The journal looks at the event once more."""

        def meanwhile(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
            conn.execute(self.SOON)
            return message

        worker = relay(composers={"notice": meanwhile})
        worker.tell("ana", deadline_at=datetime.now(UTC) + timedelta(hours=5))
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.posts()) == ("expired", 0)

    def test_one_extended_lets_it_be_sent(self, relay, conn) -> None:
        """What was fanned out with an earlier closing is sent until the later one."""
        worker = relay()
        worker.tell("ana", deadline_at=datetime.now(UTC) + timedelta(minutes=5))
        conn.execute(self.SOON.replace("1 minute", "5 days"))
        worker.travel(minutes=30)
        worker.dispatch()
        assert worker.delivery("ana")["status"] == "sent"
