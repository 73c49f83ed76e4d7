"""Ingest end to end: a fake ChileCompra over HTTP, the real cycle, a real database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from relevo.app import App
from relevo.core.items import Fetched, Reject
from relevo.core.model import Budget, Report
from relevo.core.ports import SourceContext
from relevo.cycles.ingest import cycle
from relevo.delivery.composing.rendering import tender
from support.fake_chilecompra import BAD_TICKET, HTML, TICKET, FakeChileCompra

Build = Callable[..., App]
Conn = psycopg.Connection[Any]


def today() -> date:
    """Return the day that ChileCompra's clock shows."""
    return datetime.now(ZoneInfo("America/Santiago")).date()


@pytest.fixture
def fake() -> Iterator[FakeChileCompra]:
    """A ChileCompra that answers at once."""
    with FakeChileCompra() as server:
        yield server


@pytest.fixture
def relay(build: Build, fake: FakeChileCompra) -> App:
    """A worker that reads the fake ChileCompra as fast as it can."""
    return build(**asking(fake))


def asking(fake: FakeChileCompra, **more: object) -> dict[str, object]:
    """Return settings that lead to the fake."""
    return {
        "sources": "chilecompra",
        "chilecompra_ticket": TICKET,
        "chilecompra_base_url": fake.base_url,
        "chilecompra_pace_ms": 0,
        "http_allow_private": "true",
    } | more


def ingest(app: App, key: str = "ingest") -> Report:
    """Run ingest by hand."""
    return app.runner.run(app.cycles([key])[0], "manual")


def events(conn: Conn) -> dict[str, str]:
    """Return the state of each event by its item's code."""
    rows = conn.execute("select data ->> 'codigo', state from relevo.notification_events").fetchall()
    assert len(rows) == len({code for code, _ in rows}), "a tender has two events"
    return dict(rows)


def test_the_first_pass_is_silent_and_what_comes_later_is_told(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """What is there at the first run is stored without an event; what is new after it gets exactly one."""
    fake.publish("1-1-LE26", today(), "Antigua")
    assert ingest(relay).counts == {"licitaciones_found": 1, "licitaciones_new": 1}
    assert events(conn) == {}
    fake.publish("2-1-LE26", today(), "Nueva", monto=120_000_000.0)
    assert ingest(relay).counts["events_created"] == 1
    ingest(relay)
    assert events(conn) == {"2-1-LE26": "waiting"}
    title, body, deadline, rubros = conn.execute(
        "select title, body, deadline_at, match_rubros from relevo.notification_events"
    ).fetchone()
    assert (title, body) == ("📋 Nueva Licitación", "Nueva — $120.000.000")
    assert deadline.astimezone(ZoneInfo("America/Santiago")).hour == 15
    assert "25172503" in rubros


def test_the_first_pass_may_be_told_to_notify(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """INGEST_NOTIFY_FIRST_RUN tells of everything open at the first run, and of nothing that is closed."""
    fake.publish("1-1-LE26", today(), "Abierta")
    fake.publish("2-1-LE26", today(), "Cerrada", estado=6)
    ingest(build(**asking(fake, ingest_notify_first_run="true")))
    assert events(conn) == {"1-1-LE26": "waiting"}


def test_a_crash_during_the_silent_pass_tells_nobody(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """A first pass that breaks off in the middle goes on silently: nothing of it is notified."""
    fake.fill(today(), 120)
    app = build(**asking(fake, worker_tick_runner_max_items=1))
    cycle = app.cycles(["ingest"])[0]
    app.runner.run(cycle, "manual", budget=Budget(60_000, 1))
    assert conn.execute("select seeded_at from relevo.source_state").fetchone() == (None,)
    assert 0 < conn.execute("select count(*) from relevo.licitaciones").fetchone()[0] < 120
    ingest(build(**asking(fake)))
    assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (120,)
    assert events(conn) == {}
    fake.publish("9-9-LE26", today(), "Nueva")
    ingest(app)
    assert events(conn) == {"9-9-LE26": "waiting"}


def test_a_withdrawn_tender_cancels_its_event(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """A tender revoked before its deliveries went out cancels them: the event ends, and fan-out ends what is open."""
    ingest(relay)
    fake.publish("1-1-LE26", today(), "Puente")
    ingest(relay)
    conn.execute("""select relevo.register_installation('{"token": "ExponentPushToken[a]"}')""")
    relay.runner.run(relay.cycles(["fanout"])[0], "manual")
    assert conn.execute("select status from relevo.notification_deliveries").fetchall() == [("pending",)]
    fake.change("1-1-LE26", estado=15)
    assert ingest(relay).counts["events_cancelled"] == 1
    relay.runner.run(relay.cycles(["fanout"])[0], "manual")
    assert events(conn) == {"1-1-LE26": "cancelled"}
    assert conn.execute("select status from relevo.notification_deliveries").fetchall() == [("cancelled",)]


def test_a_changed_tender_is_updated_without_a_second_event(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """A later state changes the item, not the number of events; an event that has not fanned out learns of it."""
    ingest(relay)
    fake.publish("1-1-LE26", today(), "Puente", monto=None)
    ingest(relay)
    closes = datetime.combine(today() + timedelta(days=20), datetime.min.time())
    fake.change("1-1-LE26", cierre=closes, monto=5_000_000.0)
    assert ingest(relay).counts["licitaciones_changed"] == 1
    assert events(conn) == {"1-1-LE26": "waiting"}
    body, monto = conn.execute("select body, match_monto from relevo.notification_events").fetchone()
    assert (body, int(monto)) == ("Puente — $5.000.000", 5_000_000)


def test_details_are_asked_for_once(relay: App, fake: FakeChileCompra) -> None:
    """A pass that finds nothing changed asks for the day's list and for no detail."""
    fake.publish("1-1-LE26", today())
    ingest(relay)
    asked = len(fake.details())
    ingest(relay)
    assert len(fake.details()) == asked == 1


def test_items_of_two_sources_are_one_item(build: Build, fake: FakeChileCompra, conn: Conn, tmp_path: Path) -> None:
    """A tender that arrives by the API and by a folder of the same register is one item with one event."""
    line = {"codigo": "1-1-LE26", "nombre": "Puente", "namespace": "chilecompra", "cierra_en_dias": 5}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    app = build(
        **asking(fake, sources="chilecompra,folder", folder_source_dir=tmp_path, ingest_notify_first_run="true")
    )
    fake.publish("1-1-LE26", today(), "Puente", monto=1_000.0)
    for key in ("ingest:chilecompra", "ingest:folder"):
        assert ingest(app, key).outcome == "ok"
    row = conn.execute("select count(*), min(monto), min(array_length(sources, 1)) from relevo.licitaciones").fetchone()
    assert (row[0], int(row[1]), row[2]) == (1, 1_000, 2)
    assert events(conn) == {"1-1-LE26": "waiting"}


def test_what_another_source_saw_silently_is_still_told(
    build: Build, fake: FakeChileCompra, conn: Conn, tmp_path: Path
) -> None:
    """A source in its silent first pass does not swallow news that a source past its own would have told."""
    app = build(**asking(fake, sources="chilecompra,folder", folder_source_dir=tmp_path))
    ingest(app, "ingest:chilecompra")
    line = {"codigo": "7-7-LE26", "nombre": "Puente", "namespace": "chilecompra", "cierra_en_dias": 5}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    ingest(app, "ingest:folder")
    assert events(conn) == {}
    fake.publish("7-7-LE26", today(), "Puente")
    ingest(app, "ingest:chilecompra")
    assert events(conn) == {"7-7-LE26": "waiting"}


def test_a_failing_detail_is_kept_and_mended_later(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """One bad detail is a reject with its place and reason; the rest goes on, and a retry mends it."""
    ingest(relay)
    for code in ("1-1-LE26", "2-1-LE26", "3-1-LE26"):
        fake.publish(code, today())
    fake.fail(HTML, times=1, codigo="2-1-LE26")
    report = ingest(relay)
    assert report.counts["rejected"] == 1
    assert set(events(conn)) == {"1-1-LE26", "3-1-LE26"}
    place, reason = conn.execute("select place, reason from relevo.ingest_rejects where resolved_at is null").fetchone()
    assert "2-1-LE26" in place
    assert reason
    conn.execute("update relevo.ingest_rejects set retry_at = now()")
    ingest(relay)
    assert set(events(conn)) == {"1-1-LE26", "2-1-LE26", "3-1-LE26"}
    assert conn.execute("select count(*) from relevo.ingest_rejects where resolved_at is null").fetchone() == (0,)


def test_a_source_that_cannot_be_asked_fails_its_run(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """HTML instead of data, or a refused ticket, is a failed run that says so, and the cursor stays where it was."""
    ingest(relay)
    before = conn.execute("select cursor from relevo.source_state").fetchone()
    for answer, outcome in ((HTML, "unavailable"), (BAD_TICKET, "rejected")):
        fault = fake.fail(answer, times=None, fecha="")
        report = ingest(relay)
        assert report.outcome == "failed"
        assert outcome in report.error
        assert TICKET not in report.error
        fake.faults.remove(fault)
        assert conn.execute("select cursor, last_outcome from relevo.source_state").fetchone() == (*before, outcome)
        conn.execute("update relevo.source_lanes set not_before = now()")


def test_missed_days_are_read(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """After an outage of three days every missed day is asked for, and its tenders are told."""
    ingest(relay)
    past = [today() - timedelta(days=days) for days in (3, 2, 1)]
    last = (today() - timedelta(days=4)).isoformat()
    conn.execute("update relevo.source_state set cursor = cursor || jsonb_build_object('complete', %s::text)", [last])
    for number, day in enumerate(past):
        fake.publish(f"{number}-1-LE26", day)
    fake.asked.clear()
    ingest(relay)
    assert {f"{day:%d%m%Y}" for day in past} <= set(fake.lists())
    assert len(events(conn)) == 3


def test_the_daily_counter_survives_restarts_and_is_shared(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """Requests are counted per ticket in table state; when the day is spent nobody asks any more."""
    fake.fill(today(), 30)
    limits = {"chilecompra_daily_limit": 10}
    ingest(build(**asking(fake, **limits)))
    assert len(fake.asked) == 10
    ingest(build(**asking(fake, **limits)))
    assert len(fake.asked) == 10
    quota, requests = conn.execute("select lane, requests from relevo.source_lanes").fetchone()
    assert requests == 10
    assert TICKET not in quota


def test_no_personal_data_is_kept(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """Officials' names and numbers, which the detail holds, are in no table; the rest of the detail is."""
    ingest(relay)
    published = fake.publish("1-1-LE26", today())
    ingest(relay)
    persons = {"Juana Persona", "juana@example.cl", "11.111.111-1"}
    answered = json.dumps(published.full())
    assert fake.details() == ["1-1-LE26"]
    assert {person for person in persons if person in answered} == persons, "the detail names them"
    tables = conn.execute(
        "select relname from pg_class where relnamespace = 'relevo'::regnamespace and relkind in ('r', 'p')"
    )
    stored = {name: str(conn.execute(f"select * from relevo.{name}").fetchall()) for (name,) in tables.fetchall()}
    assert "Municipalidad de Prueba" in stored["licitaciones"], "what the same detail tells of the tender was kept"
    assert [name for name, text in stored.items() if any(person in text for person in persons)] == []


def test_a_placeholder_amount_blocks_nobody(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """An amount of all nines, as feeds write for "unknown", is kept exactly and told like any other."""
    ingest(relay)
    fake.publish("1-1-LE26", today(), monto=999_999_999_999_999_999)
    assert ingest(relay).outcome == "ok"
    assert conn.execute("select match_monto::bigint from relevo.notification_events").fetchone() == (10**18 - 1,)


def test_an_event_that_the_door_refuses_is_a_reject(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """One item whose push cannot be made is kept with its reason; the others of its batch are told."""
    app = build(
        **asking(fake), renderers={"new_licitacion": lambda item: ("x" * (501 if "mala" in item.nombre else 1), "")}
    )
    ingest(app)
    for code, nombre in (("1-1-LE26", "buena"), ("2-1-LE26", "mala"), ("3-1-LE26", "otra buena")):
        fake.publish(code, today(), nombre)
    assert ingest(app).outcome == "ok"
    assert set(events(conn)) == {"1-1-LE26", "3-1-LE26"}
    assert conn.execute("select external_id, reason ~ 'title' from relevo.ingest_rejects").fetchall() == [
        ("2-1-LE26", True)
    ]


def test_a_lane_that_rests_is_not_waited_for_beyond_the_budget(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """A long Retry-After closes the lane instead of holding the run, and costs no request of the day."""
    ingest(relay)
    conn.execute("update relevo.source_lanes set not_before = now() + interval '1 hour'")
    before = conn.execute("select requests from relevo.source_lanes").fetchone()
    started = time.monotonic()
    report = relay.runner.run(relay.cycles(["ingest"])[0], "manual", budget=Budget(1_000, 100))
    assert time.monotonic() - started < 30
    assert report.outcome == "failed"
    assert conn.execute("select requests from relevo.source_lanes").fetchone() == before


def test_the_end_of_a_budget_is_no_alarm(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """A run whose time is over before its next turn says what it did and no more; the rest is for the next run."""
    fake.fill(today(), 5)
    app = build(**asking(fake, chilecompra_pace_ms=400))
    for _ in range(60):
        report = app.runner.run(app.cycles(["ingest"])[0], "tick", budget=Budget(600, 1_000))
        assert (report.outcome in ("ok", "idle"), report.error) == (True, "")
        if conn.execute("select count(*) from relevo.licitaciones").fetchone() == (5,):
            break
    assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (5,)
    assert conn.execute("select last_outcome from relevo.source_state").fetchone()[0] in ("ok", "unchanged")


def test_a_clock_that_was_set_back_does_not_close_a_quota(relay: App, fake: FakeChileCompra, conn: Conn) -> None:
    """Where the last turn lies hours ahead, the pause after it does too, and nobody waits for it."""
    ingest(relay)
    ahead = "asked_at = clock_timestamp() + interval '2 hours', not_before = clock_timestamp() + interval '2 hours 3 seconds'"
    conn.execute(f"update relevo.source_lanes set {ahead}")
    asked = len(fake.asked)
    report = relay.runner.run(relay.cycles(["ingest"])[0], "manual", budget=Budget(60_000, 100))
    assert report.outcome in ("ok", "idle")
    assert len(fake.asked) > asked
    assert conn.execute("select asked_at <= clock_timestamp() from relevo.source_lanes").fetchone() == (True,)


def test_notifying_later_does_not_dig_up_the_silent_stock(build: Build, fake: FakeChileCompra, conn: Conn) -> None:
    """INGEST_NOTIFY_FIRST_RUN switched on after a silent first pass tells of nothing that pass took stock of."""
    fake.publish("1-1-LE26", today(), "Antigua")
    ingest(build(**asking(fake)))
    fake.change("1-1-LE26", nombre="Antigua, corregida")
    ingest(build(**asking(fake, ingest_notify_first_run="true")))
    assert events(conn) == {}


def test_two_rejects_at_one_place_are_one(build: Build, conn: Conn, tmp_path: Path) -> None:
    """Rejects whose places cannot be told apart, or are very long, are kept without stopping the source."""

    class Doubtful:
        """A source that offers the same unusable thing twice, and one at a very long place."""

        name, interval_ms, seeds_silently = "doubtful", 60_000, False

        def fetch(self, _cursor: Mapping[str, Any], _desk: SourceContext) -> Fetched:
            places = ("https://x/?ticket=1", "https://x/?ticket=2", "界" * 980)
            return Fetched("ok", {}, rejects=tuple(Reject(place, "no") for place in places))

    app = build(sources="none", cycles=[lambda settings, _claims: cycle(settings, Doubtful(), tender)])
    assert ingest(app).outcome == "ok"
    assert ingest(app).outcome == "ok"
    assert conn.execute("select count(*), max(attempts) from relevo.ingest_rejects").fetchone() == (2, 2)
