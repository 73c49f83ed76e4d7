"""Every way in which ChileCompra's API says no."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from structlog.testing import capture_logs

from relevo.sources.chilecompra import DETAILS_PER_FETCH, MAX_PACE_MS, ChileCompra
from support import fake_chilecompra as fake
from support.fake_chilecompra import TICKET, FakeChileCompra
from support.fake_http_server import Answer
from support.source_context import MemorySourceContext, settings_for

TODAY = date(2026, 2, 9)


class TestSayingNo:
    """Every row of the table of errors, over HTTP."""

    def test_a_bad_ticket_stops_and_alerts(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """203 is rejected at the first request, with one line at level error and no second request."""
        chile.ticket = "another"
        with capture_logs() as logs:
            [answer] = context.run(source)
        assert answer.outcome == "rejected"
        assert "Ticket no válido" in answer.detail
        assert len(chile.asked) == 1
        assert [line["log_level"] for line in logs] == ["error"]
        assert TICKET not in f"{logs} {answer}"

    def test_a_ticket_that_dies_in_the_middle(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """What was read before the ticket died is kept, then the source says that it is refused."""
        chile.fill(TODAY, 5)
        chile.fail(fake.BAD_TICKET, codigo="", skip=2, times=None)
        chile.fail(fake.BAD_TICKET, fecha="", skip=1, times=None)
        first, second = context.run(source)
        assert (first.outcome, len(first.items), first.more) == ("ok", 2, True)
        assert (second.outcome, second.items, second.more) == ("rejected", (), False)
        assert not context.rejects

    @pytest.mark.parametrize("status", [429, 500])
    def test_too_fast(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext, status: int
    ) -> None:
        """10500 doubles the pace and asks again; nothing is lost."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(fake.busy(status), times=2)
        context.run(source)
        assert context.codes() == {"1-1-LE26"}
        waits = chile.gaps()
        assert waits[0] == pytest.approx(7)
        assert waits[1] == pytest.approx(14)

    def test_retry_after_is_a_pause(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Nobody asks before the time the service names."""
        chile.fail(fake.busy(Retry_After="45"))
        context.run(source)
        assert chile.gaps()[0] == pytest.approx(45)

    def test_a_long_pause_is_not_waited_for(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Asked to wait ten minutes, it says unavailable at once; the quota stays closed for that long."""
        chile.fail(fake.busy(Retry_After="600"))
        [answer] = context.run(source)
        assert (answer.outcome, len(chile.asked)) == ("unavailable", 1)
        context.run(source)
        assert chile.gaps()[0] == pytest.approx(600)

    def test_it_does_not_ask_for_ever(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Complaints without end are unavailable after a few tries, and the pace stays bounded."""
        chile.fail(fake.busy(), times=None)
        for _ in range(5):
            [answer] = context.run(source)
            assert answer.outcome == "unavailable"
        assert max(context.paces.values()) <= MAX_PACE_MS

    @pytest.mark.parametrize(
        "no",
        [
            fake.WRONG_DATE,
            fake.WRONG_MONTH,
            Answer(500, "Mes inválido".encode()),
            Answer(400, b"<html>a proxy's page</html>"),
        ],
    )
    def test_one_refusal_does_not_lose_a_day(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext, no: Answer
    ) -> None:
        """A list that was refused, though its date is right, is asked for again: later, and on the days after it."""
        chile.publish("1-1-LE26", TODAY)
        fault = chile.fail(no, times=None, fecha="09022026")
        [answer] = context.run(source)
        assert answer.outcome == "rejected"
        assert [(reject.place, reject.retry) for reject in answer.rejects] == [("fecha=09022026", False)]
        [again] = context.run(source)
        assert (again.outcome, len(chile.asked), again.incomplete) == ("rejected", 1, True)
        chile.faults.remove(fault)
        chile.publish("2-1-LE26", TODAY + timedelta(days=1))
        context.time += timedelta(days=1)
        assert context.run(source)[-1].outcome == "ok"
        assert chile.lists() == ["09022026", "10022026", "09022026"]
        assert context.codes() == {"1-1-LE26", "2-1-LE26"}
        assert not context.rejects
        assert "missing" not in context.cursor

    def test_what_was_gathered_goes_before_a_refusal(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Today's list is refused, and yesterday's brings a tender: that is told first, the refusal afterwards."""
        chile.publish("1-1-LE26", TODAY - timedelta(days=1))
        chile.fail(fake.WRONG_DATE, times=None, fecha="09022026")
        context.cursor = {"complete": (TODAY - timedelta(days=2)).isoformat()}
        answers = context.run(source)
        assert [answer.outcome for answer in answers] == ["ok", "rejected"]
        assert context.codes() == {"1-1-LE26"}

    @pytest.mark.parametrize("asked_for_by_hand", [False, True])
    def test_a_long_list_that_was_refused_is_read_to_its_end(
        self,
        chile: FakeChileCompra,
        source: ChileCompra,
        context: MemorySourceContext,
        asked_for_by_hand: bool,
    ) -> None:
        """A day whose list was refused is missing until all of it was taken, however many batches that are."""
        count = 2 * DETAILS_PER_FETCH + 5
        chile.fill(TODAY, count)
        fault = chile.fail(fake.WRONG_DATE, times=None, fecha="09022026")
        context.run(source)
        context.time += timedelta(days=8 if asked_for_by_hand else 1)
        context.run(source)
        chile.faults.remove(fault)
        context.due = {"fecha=09022026"} if asked_for_by_hand else set()
        context.time += timedelta(hours=7)
        context.run(source)
        assert len(context.codes()) == count
        assert (context.rejects, context.log[-1].problems) == ({}, ())
        assert "missing" not in context.cursor

    def test_a_list_refused_for_days_is_given_up_and_stays_a_problem(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Tries are spaced out and bounded; what was given up is a problem until somebody has it asked for again."""
        chile.publish("1-1-LE26", TODAY)
        fault = chile.fail(fake.WRONG_DATE, times=None, fecha="09022026")
        for _ in range(7 * 24):
            context.run(source)
            context.time += timedelta(hours=1)
        tries = chile.lists().count("09022026")
        assert 15 <= tries <= 30
        assert "given up" in context.rejects["fecha=09022026"].reason
        [problem] = context.log[-1].problems
        assert "the list of 2026-02-09 was refused" in problem
        chile.faults.remove(fault)
        context.run(source)
        assert chile.lists().count("09022026") == tries, "nobody asked for it"
        context.due = {"fecha=09022026"}
        context.run(source)
        assert (context.codes(), context.rejects, context.log[-1].problems) == ({"1-1-LE26"}, {}, ())

    def test_a_refused_list_can_be_run_again(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """When an operator makes the reject due, the day is read and the reject resolved."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(fake.WRONG_DATE)
        context.run(source)
        context.due = {"fecha=09022026"}
        context.run(source)
        assert context.codes() == {"1-1-LE26"}
        assert not context.rejects
        assert context.run(source)[-1].outcome == "unchanged"

    @pytest.mark.parametrize(
        "no",
        [
            pytest.param(fake.HTML, id="html with 200"),
            pytest.param(Answer(200, b""), id="empty"),
            pytest.param(Answer(200, b'{"Cantidad": 2, "Listado": [{"CodigoExt'), id="truncated JSON"),
            pytest.param(Answer(200, b'{"Cantidad": 2, "Listado": []}' * 9, cut=20), id="broken off"),
            pytest.param(Answer(200, b'{"Cantidad": 2, "Listado": []}'), id="counts but lists none"),
            pytest.param(Answer(200, b'{"Cantidad": 0, "Listado": null}'), id="null is no empty list"),
            pytest.param(Answer(200, b"[]"), id="no object"),
            pytest.param(Answer(200, b'{"Mensaje": "hola"}'), id="no list"),
            pytest.param(Answer(502, b"<html>Bad gateway</html>"), id="502"),
            pytest.param(Answer(503, b""), id="503"),
            pytest.param(Answer(500, b"<html>error</html>"), id="500 without a code"),
            pytest.param(Answer(404, b"<html>not found</html>"), id="404"),
            pytest.param(
                fake.as_json({"Codigo": 1, "Mensaje": "otra cosa", "Listado": []}), id="list along with a code"
            ),
            pytest.param(Answer(200, b'{"Listado": []}', {"Content-Encoding": "gzip"}), id="not gzip"),
            pytest.param(Answer(200, b"[" * 100_000), id="deeply nested"),
        ],
    )
    def test_what_is_no_list_is_not_an_empty_list(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext, no: Answer
    ) -> None:
        """Whatever is no list is unavailable, today and as a missed day, and later everything is read."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(no)
        [answer] = context.run(source)
        assert (answer.outcome, answer.items) == ("unavailable", ())
        context.run(source)
        context.time += timedelta(days=1)
        chile.fail(no, fecha="09022026")
        [answer] = context.run(source)
        assert answer.outcome == "unavailable"
        assert context.cursor["complete"] == "2026-02-08"
        context.run(source)
        assert context.cursor["complete"] == "2026-02-09"

    def test_too_slow(self, chile: FakeChileCompra, context: MemorySourceContext) -> None:
        """An answer that takes longer than the limit is unavailable, soon after the limit."""
        source = ChileCompra(
            settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url, http_timeout_ms=200)
        )
        chile.fail(Answer(200, b"{}", delay_s=5))
        [answer] = context.run(source)
        assert answer.outcome == "unavailable"
        assert TICKET not in answer.detail

    def test_nobody_there(self, context: MemorySourceContext) -> None:
        """A service that cannot be reached is unavailable, and the complaint does not repeat the ticket."""
        source = ChileCompra(settings_for(chilecompra_ticket=TICKET, chilecompra_base_url="http://127.0.0.1:1/x"))
        [answer] = context.run(source)
        assert answer.outcome == "unavailable"
        assert TICKET not in repr(answer)

    def test_the_days_requests_are_spent(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """When the quota closes in the middle, what was read is kept and the rest follows the next day."""
        chile.fill(TODAY, 10)
        context.requests_left = 5
        first, second = context.run(source)
        assert (first.outcome, len(first.items)) == ("ok", 4)
        assert (second.outcome, second.detail) == ("unavailable", "today's requests are spent")
        context.requests_left = None
        context.run(source)
        assert len(context.items) == 10
        assert not context.rejects

    def test_the_daily_limit_is_handed_on(self, chile: FakeChileCompra, context: MemorySourceContext) -> None:
        """CHILECOMPRA_DAILY_LIMIT is the quota's."""
        source = ChileCompra(
            settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url, chilecompra_daily_limit=3)
        )
        chile.fill(TODAY, 10)
        context.run(source)
        assert len(chile.asked) == 3

    def test_the_services_own_quota(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A quota of the service is met with patience: unavailable, nothing lost, read when it is over."""
        chile.fill(TODAY, 6)
        chile.quota = 4
        answers = context.run(source)
        assert (len(context.items), answers[-1].outcome) == (3, "unavailable")
        chile.quota = None
        context.run(source)
        assert len(context.items) == 6
