"""An answer that cannot be written: it is that delivery's own trouble, and nothing that was accepted is pushed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relevo.core.model import Accepted, Reply, Ticket
from relevo.providers.expo.provider import Expo
from support.sending_worker import Relay

REFUSES = """
create function public.refuse_it() returns trigger language plpgsql as $f$
begin
  if new.installation_id in ({}) and new.status <> 'pending' then
    raise exception 'this row cannot be written' using errcode = 'check_violation';
  end if;
  return new;
end $f$;
create trigger refuse_it before update on relevo.notification_deliveries for each row execute function public.refuse_it();
"""
ODD_TOO_BIG = "odd!MessageTooBig"


@pytest.fixture
def refuse(conn: psycopg.Connection[Any]) -> Iterator[Any]:
    """Let nothing be written of the deliveries to some phones until the test is over: `refuse(worker, "odd")`."""

    def put(worker: Relay, *names: str) -> None:
        conn.execute(REFUSES.format(", ".join(f"'{worker.phones[name]}'" for name in names)).encode())

    yield put
    conn.execute("drop function if exists public.refuse_it() cascade")


def goes_on(worker: Relay, rounds: int = 6) -> None:
    """Let time pass, claims lapse and reapers come, round after round."""
    for _ in range(rounds):
        worker.travel(hours=2)
        worker.conn.execute("update relevo.claims set claimed_at = now() - interval '1 hour', leased_until = now()")
        worker.reap()
        worker.dispatch()


def test_a_stray_dead_letter_costs_nobody_a_second_push(relay) -> None:
    """What fails although a dead letter of it lies there already fails all the same, and the phone beside it gets one push."""
    worker = relay()
    worker.tell("ana", ODD_TOO_BIG)
    stray = """insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
               select event_day, id, notification_event_id, project, 'stray', now() - interval '1 day'
                 from relevo.notification_deliveries where installation_id = %s"""
    worker.conn.execute(stray, [worker.phones[ODD_TOO_BIG]])
    report = worker.dispatch()
    assert (report.outcome, worker.received("ana")) == ("ok", 1)
    assert (worker.delivery("ana")["status"], worker.delivery(ODD_TOO_BIG)["status"]) == ("sent", "failed")
    goes_on(worker, 2)
    assert worker.received("ana") == 1
    assert [row["error_code"] for row in worker.rows("select error_code from relevo.dead_letters")] == ["MessageTooBig"]


@pytest.mark.parametrize("odd", ["odd", ODD_TOO_BIG])
def test_one_answer_that_cannot_be_written_is_its_deliverys_own_trouble(relay, refuse, odd: str) -> None:
    """The other forty are written in the same run, which is partial and names the one; nobody gets a second push."""
    worker = relay()
    names = worker.add_phones(40)
    worker.register(odd)
    worker.tell_everyone()
    refuse(worker, odd)
    report = worker.dispatch()
    assert {worker.delivery(name)["status"] for name in names} == {"sent"}
    assert report.outcome == "partial"
    assert report.counts["answers_not_written"] == 1
    assert f"({worker.delivery(odd)['id']})" in report.error
    assert "this row cannot be written" in report.error
    goes_on(worker, 2)
    assert {worker.received(name) for name in names} == {1}
    assert worker.received(odd) == (1 if odd == "odd" else 0)


def test_what_was_accepted_is_not_pushed_again_once_its_row_can_be_written(relay, refuse) -> None:
    """Its ticket was kept before anything else was tried: the claim's end finds it, and its receipt is awaited."""
    worker = relay()
    worker.tell("ana", "odd")
    refuse(worker, "odd")
    worker.dispatch()
    ((ticket,),) = worker.conn.execute("select ticket_id from relevo.late_tickets").fetchall()
    worker.conn.execute("drop function public.refuse_it() cascade")
    goes_on(worker, 2)
    found = worker.delivery("odd")
    assert (found["status"], found["provider_ticket_id"], worker.received("odd")) == ("sent", ticket, 1)
    assert worker.conn.execute("select count(*) from relevo.late_tickets").fetchone() == (0,)
    worker.ask()
    assert worker.states() == {"ok": 2}


def test_answers_of_which_none_can_be_written_are_not_looked_for_one_by_one(relay, refuse) -> None:
    """Whatever is wrong with all of them, few statements are tried, and every ticket is kept."""
    worker = relay()
    names = worker.add_phones(200)
    worker.tell_everyone()
    refuse(worker, *names)
    report = worker.dispatch()
    assert report.counts["answers_not_written"] == 200
    assert worker.conn.execute("select count(*) from relevo.late_tickets").fetchone() == (200,)
    goes_on(worker, 1)
    worker.everyone_received(1)


class TestPlugs:
    """A push service's adapter of somebody's own, which says odd things of pushes that it made."""

    @pytest.mark.parametrize(
        "odd",
        [
            Ticket("failed", code=413, message=ValueError("no")),  # type: ignore[arg-type]
            Ticket("sent", id=17),  # type: ignore[arg-type]
            Ticket("sent", id="seventeen", code=200, message=b"fine", alert=3),  # type: ignore[arg-type]
            Ticket(["sent"]),  # type: ignore[arg-type]
            {"status": "ok"},
            None,
        ],
        ids=["numbers", "a number for an id", "odd words", "no fate", "no ticket", "nothing"],
    )
    def test_what_it_says_of_one_push_costs_no_other(self, relay, monkeypatch, odd: Any) -> None:
        """What can be read as it was meant is; what cannot is that delivery's own trouble. Nobody beside it is pushed twice."""
        post = Expo.send

        def send(self: Expo, messages: Any, *of: Any) -> Reply:
            said = list(post(self, messages, *of).tickets)
            said[[each["to"] for each in messages].index("ExponentPushToken[odd]")] = odd
            return Reply("answered", said)

        monkeypatch.setattr(Expo, "send", send)
        worker = relay()
        worker.tell("ana", "odd", "eva")
        worker.dispatch()
        assert (worker.delivery("ana")["status"], worker.delivery("eva")["status"]) == ("sent", "sent")
        known = {"failed": "failed", "sent": "sent"}
        fate = odd.fate if isinstance(odd, Ticket) and isinstance(odd.fate, str) else ""
        assert worker.delivery("odd")["status"] == known.get(fate, "retryable")
        if fate == "failed":
            assert worker.delivery("odd")["last_error_code"] == "413"
        monkeypatch.undo()
        goes_on(worker, 2)
        assert (worker.received("ana"), worker.received("eva")) == (1, 1)
        assert worker.received("odd") == (1 if fate else 2)

    @pytest.mark.parametrize(
        "odd",
        [
            {"tickets": Accepted([1, 2])},  # type: ignore[list-item]
            {"retry_after_ms": "soon", "code": 5, "message": 7, "not_before": "later", "projects": [1]},
        ],
        ids=["numbers for all ids", "odd words of all"],
    )
    def test_what_it_says_of_a_request_sends_nothing_twice(self, relay, monkeypatch, odd: dict[str, Any]) -> None:
        """It was accepted, whatever else was said: each phone gets it once."""
        post = Expo.send

        def send(self: Expo, *asked: Any) -> Reply:
            said = post(self, *asked)
            return Reply("answered", **{"tickets": said.tickets} | odd)

        monkeypatch.setattr(Expo, "send", send)
        worker = relay()
        worker.tell("ana", "eva")
        worker.dispatch()
        assert worker.states() == {"sent": 2}
        goes_on(worker, 2)
        assert (worker.received("ana"), worker.received("eva")) == (1, 1)
