"""Receipts: when they are asked for, what they mean, and that asking can never lose or double a push."""

from __future__ import annotations

import time
from typing import Any

import pytest

from relevo.core.model import ReceiptAnswer, ReceiptReply
from relevo.sandbox import messages
from support.receipt_requests import FIRST_MS, HOUR, asked, requests
from support.sending_worker import at_once, seconds_from

WRITTEN = """
select d.id, d.status, d.attempt_count, d.lapse_count, d.completed_at = d.updated_at as at_once, d.last_error_code, d.last_error_message,
       d.provider_receipt_id = d.provider_ticket_id as told,
       (select array_agg((p.status, p.deliveries)::text order by p.status, p.deliveries)
          from relevo.event_progress_deltas p where p.event_id = e.id) as progress,
       (select array_agg((t.answers, t.confirmed, t.failed, t.at = d.completed_at)::text order by t.at) from relevo.push_tallies t where t.project = d.project) as tallied,
       (select count(*) from relevo.claims) as claims, (select count(*) from relevo.awaited_receipts) as awaited
  from relevo.notification_deliveries d join relevo.notification_events e on e.id = d.notification_event_id
 order by d.id
"""


class TestConfirmed:
    """All that a claim holds arrived: the usual answer, which has a statement of its own."""

    def test_writes_what_the_general_statement_writes(self, relay, monkeypatch) -> None:
        """Whichever of the two settles it, the tables say the same afterwards."""
        worker = relay()
        told = []
        for by_hand in (False, True):
            for table in ("notification_deliveries", "event_progress_deltas", "push_tallies"):
                worker.conn.execute(f"delete from relevo.{table}")
            for name in ("ana", "bea", "cai"):
                worker.tell(name)
            worker.dispatch()
            worker.travel(seconds=1)
            worker.conn.execute("delete from relevo.push_tallies")
            worker.conn.execute("delete from relevo.event_progress_deltas")
            claim = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
            assert len(claim.deliveries) == 3
            if by_hand:
                monkeypatch.setattr(worker.app.claims, "_confirm", lambda *_: None)
            said = [ReceiptAnswer(each, "ok") for each in claim.deliveries]
            settled = worker.app.claims.settle_receipts(claim, said, worker.clock())
            assert settled.written == {"ok": 3}
            rows = worker.conn.execute(WRITTEN).fetchall()
            told.append([row[1:] for row in rows])
        assert told[0] == told[1]

    def test_what_is_confirmed_stays_on_its_page(self, relay) -> None:
        """A page that fan-out filled has room for what is sent and, of that again, for what is confirmed: the indexes
        hear of neither."""
        worker = relay()
        worker.add_phones(300)
        worker.tell_everyone()
        worker.fan_out()
        made = worker.rows("select d.id, (d.ctid::text::point)[0] as page from relevo.notification_deliveries d")
        worker.dispatch()
        worker.travel(seconds=1)
        worker.ask()
        ended = worker.rows(
            "select d.id, (d.ctid::text::point)[0] as page from relevo.notification_deliveries d where d.status = 'ok'"
        )
        assert len(made) == 300
        assert {each["id"]: each["page"] for each in ended} == {each["id"]: each["page"] for each in made}

    def test_only_of_just_what_was_asked_for(self, relay) -> None:
        """If the claim holds more than was answered, the rest goes on waiting for its receipt."""
        worker = relay()
        for name in ("ana", "bea"):
            worker.tell(name)
        worker.dispatch()
        worker.travel(seconds=1)
        claim = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
        [first, second] = claim.deliveries
        settled = worker.app.claims.settle_receipts(claim, [ReceiptAnswer(first, "ok")], worker.clock())
        assert settled.written == {"ok": 1, "sent": 1}
        again = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
        assert [each.id for each in again.deliveries] == [second.id]

    def test_what_was_not_asked_for_does_not_end(self, relay) -> None:
        """A day later, too, what the claim holds and nobody asked for goes on waiting: it does not end unconfirmed."""
        worker = relay()
        for name in ("ana", "bea"):
            worker.tell(name)
        worker.dispatch()
        worker.travel(hours=25)
        claim = worker.app.claims.claim_awaiting("default", limit=10, now=worker.clock())
        settled = worker.app.claims.settle_receipts(claim, [ReceiptAnswer(claim.deliveries[0], "ok")], worker.clock())
        assert settled.written == {"ok": 1, "sent": 1}


class TestWhen:
    """When receipts are asked for."""

    def test_first_after_a_quarter_of_an_hour(self, relay) -> None:
        """Not before, but then; and the run before says how long it is until then."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana")
        sent = worker.clock.now()
        worker.dispatch()
        assert 899 <= seconds_from(sent, worker.delivery("ana")["next_receipt_at"]) <= 910
        report = worker.ask()
        assert report.outcome == "idle"
        assert 880 <= report.due_in_s <= 900
        worker.travel(seconds=890)
        worker.ask()
        assert asked(worker) == 0
        worker.travel(seconds=20)
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (1, "ok")
        found = worker.delivery("ana")
        assert found["provider_receipt_id"] == found["provider_ticket_id"]
        assert found["completed_at"] is not None

    def test_spaced_with_backoff_up_to_a_day_then_unconfirmed(self, relay) -> None:
        """Each look comes about twice as long after the push as the one before, the last before 24 h; then it is over."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana!no-receipt")
        sent = worker.clock.now()
        worker.dispatch()
        looks = []
        for _ in range(20):
            found = worker.delivery("ana!no-receipt")
            if found["status"] != "sent":
                break
            worker.clock.travel_to(found["next_receipt_at"])
            looks.append(seconds_from(sent, worker.clock.now()) / HOUR)
            worker.ask()
        found = worker.delivery("ana!no-receipt")
        assert (found["status"], found["attempt_count"]) == ("unconfirmed", 1)
        assert asked(worker) == len(looks) <= 10
        assert looks[:5] == pytest.approx([0.25, 0.5, 1.0, 2.0, 4.0], abs=0.05)
        assert 22 <= looks[-2] < 24, "once more shortly before receipts are cleared"
        assert 24 <= looks[-1] < 24.2

    def test_unconfirmed_is_final_and_never_resent(self, relay) -> None:
        """After 24 h without a receipt nothing more is asked or sent, however much time goes by."""
        worker = relay(receipt_first_poll_ms=FIRST_MS)
        worker.tell("ana!no-receipt")
        worker.dispatch()
        worker.travel(hours=25)
        worker.ask()
        assert worker.delivery("ana!no-receipt")["status"] == "unconfirmed"
        before = (asked(worker), worker.posts())
        worker.travel(days=3)
        assert (worker.ask().outcome, worker.dispatch().outcome) == ("idle", "idle")
        worker.reap()
        assert (asked(worker), worker.posts()) == before
        assert worker.received("ana!no-receipt") == 1

    def test_nobody_asks_with_too_little_of_a_lease_left(self, relay, monkeypatch) -> None:
        """A claim that would lapse before its request can time out is left to the reaper, and another asks later."""
        worker = relay(outbox_lease_duration_ms=600_000, push_request_timeout_ms=200_000)
        worker.tell("ana")
        worker.dispatch()
        claims = worker.app.claims
        claim_awaiting = claims.claim_awaiting

        def claim_slowly(*given: Any, **more: Any) -> Any:
            claim = claim_awaiting(*given, **more)
            if claim is not None:
                claim.renewed(time.monotonic() - 500)
            return claim

        monkeypatch.setattr(claims, "claim_awaiting", claim_slowly)
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (0, "sent")
        monkeypatch.undo()
        worker.travel(minutes=11)
        worker.reap()
        worker.ask()
        assert (asked(worker), worker.delivery("ana")["status"]) == (1, "ok")

    def test_missing_ones_block_nobody(self, relay) -> None:
        """With many that never come and chunks of two, the ones behind them are asked for in the same run; those that are
        missing are told as such, and not as sent once more."""
        worker = relay(receipt_chunk_size=2)
        worker.add_phones(20, "silent", "!no-receipt")
        worker.add_phones(3, "fine")
        worker.tell_everyone()
        worker.dispatch()
        counts = worker.ask().counts
        assert worker.states() == {"sent": 20, "ok": 3}
        assert counts == {"receipts_processed": 3, "receipts_missing": 20, "notifications_confirmed": 3}
        before = asked(worker)
        worker.tell("new")
        worker.dispatch()
        worker.travel(seconds=0)
        worker.ask()
        assert worker.delivery("new")["status"] == "ok"
        assert asked(worker) < before + 23, "and those that are missing are left alone for a while"

    def test_in_chunks(self, relay) -> None:
        """No request asks for more than the chunk's size."""
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(25)
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert (asked(worker), requests(worker), worker.states()) == (25, 3, {"ok": 25})

    def test_what_was_told_counts_though_the_next_request_failed(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was sent together takes three requests; the second fails, so the third is not made; the first is settled."""
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(25)
        worker.tell_everyone()
        worker.dispatch()
        provider = worker.app.services.providers["expo"]
        fetch = provider.fetch_receipts
        replies = [fetch, lambda *_: ReceiptReply("unclear", code="500"), fetch]

        def answer(*given: Any) -> ReceiptReply:
            reply: ReceiptReply = replies.pop(0)(*given)
            return reply

        with monkeypatch.context() as patched:
            patched.setattr(provider, "fetch_receipts", answer)
            worker.travel(seconds=1)
            assert "unclear 500" in worker.ask().error
        assert (worker.states(), len(replies)) == ({"ok": 10, "sent": 15}, 1)
        worker.travel(minutes=1)
        worker.ask()
        assert (worker.states(), asked(worker), worker.claims()) == ({"ok": 25}, 25, 0)

    def test_requests_that_are_not_full_do_not_end_the_run(self, relay) -> None:
        """What was sent together is asked for together, so few requests are full: one run asks for all that is due."""
        worker = relay(receipt_chunk_size=10)
        names = worker.add_phones(84)
        for start in range(0, 84, 7):
            worker.enqueue(audience=[worker.phones[name] for name in names[start : start + 7]])
            worker.fan_out()
            worker.dispatch()
        worker.travel(seconds=1)
        worker.ask()
        assert (worker.states(), requests(worker)) == ({"ok": 84}, 12)

    def test_of_many_projects(self, relay) -> None:
        """One run asks for what is due in all projects, however many there are beside those asked at once."""
        worker = relay()
        for number in range(20):
            worker.register(f"p{number}", project=f"project-{number}")
        worker.tell(*worker.phones)
        worker.dispatch()
        worker.travel(seconds=1)
        worker.ask()
        assert (worker.states(), requests(worker)) == ({"ok": 20}, 20)

    def test_too_many_receipts_are_split(self, relay, monkeypatch: pytest.MonkeyPatch) -> None:
        """A service that answers fewer at once than we thought is asked in parts."""
        monkeypatch.setattr(messages, "MAX_RECEIPTS", 4)
        worker = relay(receipt_chunk_size=10)
        worker.add_phones(10)
        worker.tell_everyone()
        worker.dispatch()
        worker.ask()
        assert worker.states() == {"ok": 10}

    def test_two_workers_ask_for_each_receipt_once(self, relay, sandbox) -> None:
        """The same claims as dispatch: at once, none is asked for twice."""
        one, other = relay(receipt_chunk_size=5), relay(receipt_chunk_size=5)
        one.add_phones(60)
        one.tell_everyone()
        one.dispatch()
        sandbox.set(latency_ms=30)
        at_once(one.ask, other.ask)
        one.ask()
        assert (asked(one), one.states(), one.claims()) == (60, {"ok": 60}, 0)

    def test_a_worker_that_died_asking_lost_nothing(self, relay) -> None:
        """Its claim lapses, the delivery is still sent, no attempt is spent, and another worker asks."""
        dead, other = relay(), relay()
        dead.tell("ana")
        dead.dispatch()
        dead.travel(seconds=1)
        assert dead.app.claims.claim_awaiting("default", limit=10, now=dead.clock()) is not None
        other.ask()
        assert asked(dead) == 0, "it is held"
        dead.travel(minutes=2)
        other.reap()
        found = dead.delivery("ana")
        assert (found["status"], found["attempt_count"], found["claim_token"]) == ("sent", 1, None)
        other.ask()
        assert dead.delivery("ana")["status"] == "ok"
