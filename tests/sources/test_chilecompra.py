"""ChileCompra's API: real answers, every way to say no, the pace, the days, the details."""

from __future__ import annotations

import itertools
import json
import logging
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes import chilecompra as fake
from fakes.chilecompra import TICKET, FakeChileCompra
from fakes.server import Answer
from relevo.sources import text
from relevo.sources.chilecompra import DETAILS_PER_FETCH, MAX_PACE_MS, ChileCompra, judge
from relevo.sources.chilecompra_rows import read_detail, read_summary
from relevo.sources.http import Response
from sources.source_context import FIXTURES, MemorySourceContext, settings_for

TODAY = date(2026, 2, 9)
NOW = datetime(2017, 1, 1, tzinfo=UTC)


def real_details() -> list[Any]:
    """Return every real detail, as its place and the detail."""
    found = []
    for path in sorted((FIXTURES / "detail").iterdir()):
        documents = path.read_text(encoding="utf-8")
        lines = documents.splitlines() if path.suffix == ".jsonl" else [documents]
        for line in lines:
            detail = text.loads(line.encode())["Listado"][0]
            found.append(pytest.param(detail, id=f"{path.stem}:{detail['CodigoExterno']}"))
    return found


class TestRealAnswers:
    """What the service really said."""

    @pytest.mark.parametrize("detail", real_details())
    def test_nothing_that_matters_is_lost(self, detail: dict[str, Any]) -> None:
        """Every real detail gives name, state, type, buyer, region, dates, amount and the rubros of all its items."""
        item = read_detail(detail, NOW)
        assert item
        assert item.external_id == detail["CodigoExterno"]
        assert item.nombre == " ".join(detail["Nombre"].split())
        assert item.estado == detail["Estado"].partition(" ")[0]
        assert item.tipo == detail["Tipo"]
        assert item.organismo == " ".join(detail["Comprador"]["NombreOrganismo"].split())
        assert item.region == detail["Comprador"]["RegionUnidad"].strip()
        assert item.descripcion
        for product in detail["Items"]["Listado"]:
            assert str(product["CodigoProducto"]) in item.rubros
            assert product["CodigoCategoria"] in item.rubros
        assert item.rubro_scheme == "UNSPSC"
        assert (item.monto is None) == (detail["MontoEstimado"] is None)
        assert item.moneda == "CLP"
        assert item.cierra_at
        assert item.publicada_at
        closes = datetime.fromisoformat(detail["Fechas"]["FechaCierre"])
        assert item.cierra_at.astimezone(text.SANTIAGO).replace(tzinfo=None) == closes
        assert item.announces == (detail["CodigoEstado"] == 5)

    @pytest.mark.parametrize("detail", real_details())
    def test_no_people_are_kept(self, detail: dict[str, Any]) -> None:
        """Nothing of the redacted fields, which hold people, gets into an item."""
        assert "REDACTED" not in repr(read_detail(detail, NOW))

    @pytest.mark.parametrize("name", [path.name for path in sorted((FIXTURES / "summary").iterdir())])
    def test_every_row_of_real_lists_is_read(self, name: str) -> None:
        """Each row of each real list is a summary with a clean name, whatever its state."""
        body = (FIXTURES / "summary" / name).read_bytes()
        said = judge(Response(200, {}, body, "u"))
        assert said.kind == "ok"
        assert len(said.rows) == json.loads(body)["Cantidad"]
        for row in said.rows:
            summary = read_summary(row)
            assert summary
            assert summary.code == row["CodigoExterno"]
            assert summary.nombre == " ".join(row["Nombre"].split())
            assert (summary.cierra_at is not None) == (row["CodigoEstado"] == 5 and row["FechaCierre"] is not None)

    def test_the_time_is_chiles(self) -> None:
        """A naive time is Santiago's, in summer three hours behind UTC, in winter four."""
        summer, winter = (
            {"CodigoExterno": "1-1-LE26", "CodigoEstado": 5, "FechaCierre": at}
            for at in ("2026-02-19T15:00:00.1234567", "2026-07-19T15:00:00")
        )
        assert read_summary(summer).cierra_at == datetime(2026, 2, 19, 18, 0, 0, 123456, tzinfo=UTC)  # type: ignore[union-attr]
        assert read_summary(winter).cierra_at == datetime(2026, 7, 19, 19, 0, tzinfo=UTC)  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        "items",
        [
            {"Listado": {"CodigoProducto": 72141003, "CodigoCategoria": "72141000"}},
            {"Listado": {"Item": {"CodigoProducto": "72141003", "CodigoCategoria": 72141000}}},
            {"Item": [{"CodigoProducto": 72141003.0, "CodigoCategoria": "72141000"}]},
            [{"CodigoProducto": 72141003, "CodigoCategoria": " 72141000 "}],
        ],
    )
    def test_a_lone_item_counts(self, items: object) -> None:
        """However a translation from XML wraps the items, their rubros are found, as text."""
        body = json.dumps({"CodigoExterno": "1-1-LE26", "CodigoEstado": 5, "Items": items}).encode()
        item = read_detail(text.loads(body), NOW)
        assert item
        assert item.rubros == ("72141003", "72141000")

    @pytest.mark.parametrize(
        ("changes", "wanted"),
        [
            ({"MontoEstimado": "1500,5", "Moneda": "CLF"}, (Decimal("1500.50"), "CLF")),
            ({"MontoEstimado": "43050000", "Moneda": "USD "}, (Decimal(43050000), "USD")),
            ({"MontoEstimado": 0}, (None, "CLP")),
            ({"MontoEstimado": -5}, (None, "CLP")),
            ({"MontoEstimado": "a convenir", "Moneda": None}, (None, None)),
            ({"MontoEstimado": Decimal("1e400")}, (None, "CLP")),
        ],
    )
    def test_amounts_keep_their_currency(self, changes: dict[str, Any], wanted: tuple[Any, Any]) -> None:
        """Amounts are exact and carry their currency; what is no amount is none."""
        item = read_detail({"CodigoExterno": "1-1-LE26", "Moneda": "CLP"} | changes, NOW)
        assert item
        assert (item.monto, item.moneda) == wanted

    @pytest.mark.parametrize("value", [None, [], "x", {"a": 1}, 5, "\x00", "\ud800", True])
    def test_fields_may_be_anything(self, value: object) -> None:
        """A field of another kind than ever seen is left out; the rest is read."""
        names = (
            "Nombre",
            "Descripcion",
            "CodigoEstado",
            "Comprador",
            "Fechas",
            "Items",
            "MontoEstimado",
            "Moneda",
            "Tipo",
        )
        item = read_detail({"CodigoExterno": "1-1-LE26"} | dict.fromkeys(names, value), NOW)
        assert item
        assert item.tipo == "LE"
        repr(item).encode()

    @pytest.mark.parametrize(("state", "name", "withdrawn"), [
        (15, "Revocada", True), (18, "Revocada", True), (19, "Suspendida", True), (16, "16", False), (99, "99", False),
        ("8", "Adjudicada", False),
    ])  # fmt: skip
    def test_states(self, state: object, name: str, withdrawn: bool) -> None:
        """Revoked and suspended ones are withdrawn; states nobody documented are accepted and not open."""
        summary = read_summary({"CodigoExterno": "1-1-LE26", "CodigoEstado": state, "FechaCierre": None})
        assert summary
        assert not summary.is_open(NOW)
        assert (summary.item(NOW).estado, summary.item(NOW).withdrawn) == (name, withdrawn)


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
        """While old days are made up for, what is published meanwhile is told in the next batch."""
        context.run(source)
        context.time += timedelta(days=3)
        chile.fill(TODAY + timedelta(days=1), 3 * DETAILS_PER_FETCH)
        context.step(source)
        chile.publish("1-1-LP26", TODAY + timedelta(days=3))
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
        assert len(chile.lists()) <= 411 // DETAILS_PER_FETCH + 2


def test_notify_first_run() -> None:
    """INGEST_NOTIFY_FIRST_RUN makes the first pass speak."""
    assert not ChileCompra(settings_for(chilecompra_ticket=TICKET, ingest_notify_first_run="true")).seeds_silently


def test_its_own_interval() -> None:
    """CHILECOMPRA_INTERVAL_MINUTES wins over WORKER_INTERVAL_MINUTES."""
    given = {"chilecompra_ticket": TICKET, "worker_interval_minutes": 7}
    assert ChileCompra(settings_for(**given)).interval_ms == 420_000
    assert ChileCompra(settings_for(**given, chilecompra_interval_minutes=3)).interval_ms == 180_000
