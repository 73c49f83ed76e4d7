"""ChileCompra's API: the pace, the days, the details."""

from __future__ import annotations

import itertools
import logging
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from relevo.sources.chilecompra import DETAILS_PER_FETCH, ChileCompra
from support import fake_chilecompra as fake
from support.fake_chilecompra import TICKET, FakeChileCompra
from support.fake_http_server import Answer
from support.source_context import MemorySourceContext, settings_for

TODAY = date(2026, 2, 9)


class TestPace:
    """One serial quota per ticket."""

    def test_every_request_takes_a_turn(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Requests are as far apart as the pace says, and the service never complains."""
        chile.fill(TODAY, 60)
        context.run(source)
        assert len(context.turns) == len(chile.asked)
        assert min(chile.gaps()) == pytest.approx(3.5)
        assert chile.refused == 0

    def test_it_recovers_slowly(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """After a complaint the pace shortens with each answer, down to the chosen one and no further."""
        chile.fill(TODAY, 100)
        chile.fail(fake.busy(), times=3)
        context.run(source)
        [quota] = context.paces
        gaps = chile.gaps()
        assert gaps[:3] == [pytest.approx(7), pytest.approx(14), pytest.approx(28)]
        assert all(earlier >= later - 1e-6 for earlier, later in itertools.pairwise(gaps[3:]))
        assert 5 < sum(gap > 3.6 for gap in gaps) < 60
        assert context.paces[quota] == 3_500

    def test_a_pace_too_short_is_found_out(self, chile: FakeChileCompra, context: MemorySourceContext) -> None:
        """Set below what the service bears, the pace adapts and everything is read."""
        source = ChileCompra(
            settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url, chilecompra_pace_ms=700)
        )
        chile.fill(TODAY, 40)
        context.run(source)
        assert len(context.items) == 40
        assert chile.refused < 20
        assert not context.rejects

    def test_a_longer_pace_is_taken_up(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """When the setting is raised, a quota that remembers a shorter pace follows."""
        context.run(source)
        slower = ChileCompra(
            settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url, chilecompra_pace_ms=9000)
        )
        context.run(slower)
        assert set(context.paces.values()) == {9_000}

    def test_the_lane_does_not_name_the_ticket(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """The quota is a fingerprint: the same for the same ticket, another for another."""
        context.run(source)
        other = ChileCompra(settings_for(chilecompra_ticket="other", chilecompra_base_url=chile.base_url))
        context.run(other)
        quotas = list(dict.fromkeys(quota for quota, _ in context.turns))
        assert len(quotas) == 2
        assert not any(part in quota for quota in quotas for part in (TICKET, "other"))

    def test_no_log_repeats_the_ticket(
        self, source: ChileCompra, context: MemorySourceContext, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not even at level debug does a library's line hold the ticket."""
        caplog.set_level(logging.DEBUG)
        context.run(source)
        assert TICKET not in caplog.text


class TestDays:
    """Today is read on every pass, each day once more on a later day."""

    def test_the_first_time_reads_today(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """The very first pass takes stock of today."""
        chile.publish("1-1-LE26", TODAY)
        chile.publish("2-1-LE26", TODAY - timedelta(days=1))
        context.run(source)
        assert chile.lists() == ["09022026"]
        assert context.cursor == {"complete": "2026-02-08"}

    def test_the_day_is_santiagos(self, chile: FakeChileCompra, source: ChileCompra) -> None:
        """At two in the morning UTC it is still yesterday in Chile."""
        context = MemorySourceContext(datetime(2026, 2, 10, 2, 0, tzinfo=UTC))
        chile._clock = context.seconds
        context.run(source)
        assert chile.lists() == ["09022026"]

    def test_midnight_loses_nothing(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """What appears after the last look of a day is found on the next, for the day is read once more."""
        context.run(source)
        chile.publish("1-1-LE26", TODAY)
        context.time += timedelta(hours=14)
        context.run(source)
        assert context.codes() == {"1-1-LE26"}
        assert context.cursor == {"complete": "2026-02-09"}
        context.run(source)
        assert chile.lists() == ["09022026", "10022026", "09022026", "10022026"]

    @pytest.mark.parametrize("missed", [1, 4, 12])
    def test_every_missed_day_is_read(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext, missed: int
    ) -> None:
        """After an outage of n days each of them is read, today before them, and then no more."""
        context.run(source)
        for n in range(missed + 1):
            chile.publish(f"{n + 1}-1-LE26", TODAY + timedelta(days=n))
        context.time += timedelta(days=missed)
        chile.asked.clear()
        context.run(source)
        assert context.codes() == {f"{n + 1}-1-LE26" for n in range(missed + 1)}
        assert chile.lists()[0] == f"{TODAY + timedelta(days=missed):%d%m%Y}"
        chile.asked.clear()
        assert context.run(source)[-1].outcome == "unchanged"
        assert len(chile.lists()) == 1

    def test_the_way_back_is_bounded(self, chile: FakeChileCompra, context: MemorySourceContext) -> None:
        """No more than INGEST_CATCHUP_DAYS are read again."""
        source = ChileCompra(
            settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url, ingest_catchup_days=3)
        )
        context.run(source)
        context.time += timedelta(days=20)
        chile.asked.clear()
        context.run(source)
        assert chile.lists() == ["01032026", "26022026", "27022026", "28022026"]

    def test_a_crash_during_the_catch_up_goes_on(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Days that were finished and kept are not read again; the others are."""
        context.run(source)
        for n in range(10):
            chile.publish(f"{n + 1}-1-LE26", TODAY + timedelta(days=n))
        context.time += timedelta(days=10)
        context.step(source)
        source.fetch(context.cursor, context)
        chile.asked.clear()
        context.run(source)
        assert len(context.items) == 10
        assert "09022026" not in chile.lists()

    def test_new_tenders_do_not_wait_for_old_days(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """While old days are made up for, what is published meanwhile is told within an interval, as ever."""
        context.run(source)
        context.time += timedelta(days=3)
        chile.fill(TODAY + timedelta(days=1), 3 * DETAILS_PER_FETCH)
        context.step(source)
        chile.publish("1-1-LP26", TODAY + timedelta(days=3))
        context.time += timedelta(milliseconds=source.interval_ms)
        assert "1-1-LP26" in [item.external_id for item in context.step(source).items]

    def test_a_clock_that_goes_back(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A cursor from the future is no harm."""
        context.cursor = {"complete": "2031-01-01"}
        chile.publish("1-1-LE26", TODAY)
        context.run(source)
        assert context.codes() == {"1-1-LE26"}


class TestDetails:
    """A detail is fetched once, and again only when the summary changed."""

    def test_once(self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext) -> None:
        """Passes after the first fetch no detail; a null amount is no reason to."""
        chile.fill(TODAY, 30)
        for _ in range(3):
            context.run(source)
        assert sorted(chile.details()) == sorted(chile.tenders)

    def test_again_when_the_summary_changed(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A new closing time is one more detail and one more telling."""
        chile.publish("1-1-LE26", TODAY)
        chile.publish("2-1-LE26", TODAY)
        context.run(source)
        chile.change("1-1-LE26", cierre=datetime(2026, 3, 30, 15, 0))  # noqa: DTZ001 the register's local time
        context.run(source)
        context.run(source)
        assert chile.details() == ["1-1-LE26", "2-1-LE26", "1-1-LE26"]
        assert context.items["chilecompra", "1-1-LE26"].cierra_at == datetime(2026, 3, 30, 18, 0, tzinfo=UTC)

    def test_what_closes_needs_no_detail(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A known tender that is closed, or withdrawn, is told from the list alone, and keeps what is known of it."""
        long = "Un nombre mucho más largo que los cincuenta caracteres de la lista"
        for code in ("1-1-LE26", "2-1-LE26", "3-1-LE26"):
            chile.publish(code, TODAY, long, monto=5e6)
        context.run(source)
        before = chile.details()
        chile.change("1-1-LE26", estado=8)
        chile.change("2-1-LE26", estado=15)
        chile.change("3-1-LE26", estado=19)
        context.run(source)
        context.run(source)
        assert chile.details() == before
        reported = {code: context.items["chilecompra", code] for code in sorted(context.codes())}
        assert [(item.estado, item.announces, item.withdrawn) for item in reported.values()] == [
            ("Adjudicada", False, False),
            ("Revocada", False, True),
            ("Suspendida", False, True),
        ]
        assert {(item.nombre, item.monto, item.region) for item in reported.values()} == {
            (long, Decimal(5_000_000), "Región del Biobío")
        }

    def test_what_was_never_seen_open_is_nobodys_news(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Tenders that are closed, or past their time, when first met cost no request and are not told."""
        for n, state in enumerate((6, 7, 8, 15, 16, 18, 19)):
            chile.publish(f"{n}-1-LE26", TODAY, estado=state)
        chile.publish("9-1-LE26", TODAY, cierre=datetime(2026, 2, 9, 9, 0))  # noqa: DTZ001
        [answer] = context.run(source)
        assert (answer.outcome, chile.details()) == ("unchanged", [])

    def test_one_that_opens_again(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A suspended tender that is published again is open again."""
        chile.publish("1-1-LE26", TODAY)
        context.run(source)
        chile.change("1-1-LE26", estado=19)
        context.run(source)
        chile.change("1-1-LE26", estado=5)
        context.run(source)
        item = context.items["chilecompra", "1-1-LE26"]
        assert (item.estado, item.announces, item.withdrawn) == ("Publicada", True, False)

    def test_no_close_date_is_open(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A published tender without a closing time is announced."""
        chile.publish("1-1-LS26", TODAY, cierre=None)
        context.run(source)
        assert context.items["chilecompra", "1-1-LS26"].announces

    @pytest.mark.parametrize("no", [Answer(503, b""), fake.HTML, fake.as_json(fake.envelope([]))])
    def test_one_that_fails_does_not_stop_the_rest(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext, no: Answer
    ) -> None:
        """A failing detail is recorded to be retried; the others are told; it is asked for again only when due."""
        chile.fill(TODAY, 6)
        bad = list(chile.tenders)[2]
        chile.fail(no, times=None, codigo=bad)
        context.run(source)
        assert context.codes() == set(chile.tenders) - {bad}
        assert [(each.place, each.external_id, each.retry) for each in context.rejects.values()] == [
            (f"codigo={bad}", bad, True)
        ]
        for _ in range(3):
            context.run(source)
        assert chile.details().count(bad) == 1
        context.due = {f"codigo={bad}"}
        context.run(source)
        assert chile.details().count(bad) == 2
        chile.faults.clear()
        context.due = {f"codigo={bad}"}
        context.run(source)
        assert context.codes() == set(chile.tenders)
        assert not context.rejects
        context.run(source)
        assert chile.details().count(bad) == 3

    def test_it_is_retried_after_its_day_too(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A detail that failed days ago is still made up for, and announced while it is open."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(Answer(503, b""))
        chile.fail(Answer(503, b""), codigo="")
        context.run(source)
        context.run(source)
        context.time += timedelta(days=3)
        context.run(source)
        assert "failed" not in context.cursor
        context.due = set(context.rejects)
        context.run(source)
        assert context.items["chilecompra", "1-1-LE26"].announces
        assert not context.rejects

    def test_a_refused_detail_is_tried_again(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A refusal of a well-formed request is the server's fault: it waits for its retry, and is read then."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(fake.WRONG_DATE, codigo="1-1-LE26")
        context.run(source)
        context.run(source)
        assert [reject.retry for reject in context.rejects.values()] == [True]
        assert chile.details() == ["1-1-LE26"]
        assert context.log[0].seen == (("chilecompra", "1-1-LE26"),), "so that a first pass knows of it"
        context.due = {"codigo=1-1-LE26"}
        context.run(source)
        assert (context.codes(), context.rejects) == ({"1-1-LE26"}, {})

    def test_a_changed_one_is_tried_at_once(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A failed detail whose summary changes is a new request."""
        chile.publish("1-1-LE26", TODAY)
        chile.fail(fake.WRONG_DATE, codigo="1-1-LE26")
        context.run(source)
        chile.change("1-1-LE26", nombre="Otro nombre")
        context.run(source)
        assert context.codes() == {"1-1-LE26"}

    def test_a_service_that_dies_is_not_asked_for_every_detail(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """After a few failures in a row the batch ends, and the next look says unavailable."""
        chile.fill(TODAY, 20)
        chile.fail(Answer(503, b""), times=None, codigo="")
        chile.fail(Answer(503, b""), times=None, fecha="", skip=1)
        first, second = context.run(source)
        assert (len(first.rejects), len(first.items)) == (3, 0)
        assert second.outcome == "unavailable"
        assert len(chile.details()) == 3

    def test_rows_without_a_code(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """A row that names no tender is recorded once; the others are read."""
        row = chile.publish("1-1-LE26", TODAY).summary()
        chile.fail(fake.as_json(fake.envelope([{"Nombre": "x"}, None, row])), times=None, fecha="")  # type: ignore[list-item]
        answers = [context.run(source)[0] for _ in range(2)]
        assert [len(answer.rejects) for answer in answers] == [2, 0]
        assert context.codes() == {"1-1-LE26"}

    def test_an_index_by_web_or_ocds_does_not_confuse(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Another teller of the same register changes an item without causing a detail to be fetched again."""
        chile.publish("1-1-LE26", TODAY)
        context.run(source)
        key = ("chilecompra", "1-1-LE26")
        reported = context.items[key]
        context.items[key] = type(reported)(**vars(reported) | {"fingerprint": f"web:12345678 {reported.fingerprint}"})
        context.run(source)
        assert chile.details() == ["1-1-LE26"]

    def test_a_full_day(self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext) -> None:
        """Of 1,500 summaries with 411 open ones, 411 details are fetched, with few lists besides."""
        chile.fill(TODAY, 1_500, published=411)
        context.run(source)
        assert len(context.items) == len(chile.details()) == 411
        assert len(chile.lists()) == 1, "it takes 17 batches, and its list is asked for once"

    def test_a_full_day_that_was_missed(
        self, chile: FakeChileCompra, source: ChileCompra, context: MemorySourceContext
    ) -> None:
        """Neither the list of a day that takes several batches nor today's is asked for with each batch."""
        context.run(source)
        context.time += timedelta(days=2)
        for day in (1, 2):
            chile.fill(TODAY + timedelta(days=day), 4 * DETAILS_PER_FETCH, series=1_000 * day)
        chile.asked.clear()
        context.run(source)
        assert len(chile.details()) == 8 * DETAILS_PER_FETCH
        missed, today = (f"{TODAY + timedelta(days=day):%d%m%Y}" for day in (1, 2))
        assert chile.lists().count(missed) == 1
        assert chile.lists().count(today) <= 4, "once, and once an interval while the other day is read"
        chile.asked.clear()
        context.run(source)
        assert len(chile.lists()) == 1, "the next pass asks for today's anew"


def test_notify_first_run() -> None:
    """INGEST_NOTIFY_FIRST_RUN makes the first pass speak."""
    assert not ChileCompra(settings_for(chilecompra_ticket=TICKET, ingest_notify_first_run="true")).seeds_silently


def test_its_own_interval() -> None:
    """CHILECOMPRA_INTERVAL_MINUTES wins over WORKER_INTERVAL_MINUTES."""
    given = {"chilecompra_ticket": TICKET, "worker_interval_minutes": 7}
    assert ChileCompra(settings_for(**given)).interval_ms == 420_000
    assert ChileCompra(settings_for(**given, chilecompra_interval_minutes=3)).interval_ms == 180_000
