"""What ingest makes of what a source tells, pass by pass, with a source that says what it is given to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from phones import add_phones, fan_out, prefer, reached
from relevo.app import App
from relevo.cycles import ingest
from relevo.delivery import rendering
from relevo.model import Fetched, Item
from relevo.ports import SourceContext

Build = Callable[..., App]
Conn = psycopg.Connection[Any]


@dataclass
class Script:
    """A source that answers what the test wrote down next."""

    name: str = "script"
    seeds_silently: bool = False
    interval_ms: int = 60_000
    answers: list[Fetched] = field(default_factory=list)

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Answer."""
        return self.answers.pop(0)


def tender(code: str = "1-1-LE26", **told: Any) -> Item:
    """Make a tender."""
    return Item("register", code, "Aseo de oficinas", told.pop("fingerprint", "1"), **told)


@dataclass
class Relay:
    """A worker with one scripted source."""

    app: App
    script: Script

    def tell(self, *items: Item, more: bool = False) -> Mapping[str, int]:
        """Let the source tell these items and run ingest once."""
        self.script.answers = [Fetched("ok", {"n": 1}, items, more=more)]
        if more:  # the rest of the pass could not be asked
            self.script.answers.append(Fetched("unavailable", {"n": 1}, detail="gone"))
        report = self.app.runner.run(self.app.cycles([f"ingest:{self.script.name}"])[0], "manual")
        assert report.outcome in ("ok", "partial"), report
        return report.counts


@pytest.fixture
def relay(build: Build) -> Callable[..., Relay]:
    """Make a worker with one scripted source."""

    def make(**changes: Any) -> Relay:
        script = Script(**changes)
        return Relay(build(cycles=[lambda known, _: ingest.cycle(known, script, rendering.tender)]), script)

    return make


def events(conn: Conn) -> list[str]:
    """Return the codes that were announced, in order."""
    return [row[0] for row in conn.execute("select data ->> 'codigo' from relevo.notification_events order by id")]


class TestSilentFirstPass:
    """Nobody is told of what was there before."""

    def test_what_the_last_batch_of_it_told_is_old_too(self, relay, conn: Conn) -> None:
        """An item of the silent pass told again later is no news, not even if it came with the pass's last batch."""
        silent = relay(seeds_silently=True)
        silent.tell(tender("old"))
        silent.tell(tender("old", fingerprint="2", organismo="Hospital"), tender("new"))
        silent.tell(tender("old", fingerprint="3"), tender("new"))
        assert events(conn) == ["new"]

    def test_a_pass_that_breaks_off_is_not_over(self, relay, conn: Conn) -> None:
        """Only a pass that came to its end makes the next one speak."""
        silent = relay(seeds_silently=True)
        silent.tell(tender("first"), more=True)
        silent.tell(tender("second"))
        assert events(conn) == []
        silent.tell(tender("third"))
        assert events(conn) == ["third"]


class TestOneEventPerTender:
    """However often and however differently it is told."""

    def test_told_again_and_changed(self, relay, build: Build, conn: Conn) -> None:
        """An event that waits learns what changed; one that went out stays as it is, and there is no second one."""
        add_phones(conn, 1)
        phones = add_phones(conn, 2)
        prefer(conn, phones[:1], region="Maule")
        prefer(conn, phones[1:], region="Ñuble")
        talking = relay()
        talking.tell(tender(region="Región del Ñuble"))
        counts = talking.tell(tender(region="Región del Maule", monto=Decimal(5), moneda="CLP", fingerprint="2"))
        assert (counts["licitaciones_changed"], counts.get("events_created", 0)) == (1, 0)
        fan_out(build())
        talking.tell(tender(region="Región del Ñuble", fingerprint="3"))
        rows = conn.execute("select id, body from relevo.notification_events").fetchall()
        assert [row[1] for row in rows] == ["Aseo de oficinas — $5"]
        assert reached(conn, rows[0][0]) == phones[:1]

    def test_withdrawn_and_back(self, relay, conn: Conn) -> None:
        """A withdrawn tender's event is cancelled once, and its return is not announced again."""
        talking = relay()
        talking.tell(tender())
        assert talking.tell(tender(withdrawn=True, fingerprint="2"))["events_cancelled"] == 1
        assert "events_cancelled" not in talking.tell(tender(withdrawn=True, fingerprint="3"))
        talking.tell(tender(fingerprint="4"))
        states = conn.execute("select state, end_reason from relevo.notification_events").fetchall()
        assert states == [("cancelled", "the tender was withdrawn")]

    def test_closed_or_withdrawn_from_the_start(self, relay, conn: Conn) -> None:
        """What is closed, past or withdrawn when first told is stored and not announced; once it opens, it is."""
        past = datetime.now(UTC) - timedelta(minutes=1)
        quiet = [tender("closed", announces=False), tender("past", cierra_at=past), tender("gone", withdrawn=True)]
        talking = relay()
        talking.tell(*quiet)
        assert events(conn) == []
        assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (3,)
        talking.tell(replace(quiet[0], announces=True, fingerprint="2"))
        assert events(conn) == ["closed"]

    def test_the_closing_time_is_the_deadline(self, relay, conn: Conn) -> None:
        """An event's deadline is its tender's closing time, and follows it while the event waits."""
        soon, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
        talking = relay()
        talking.tell(tender(cierra_at=soon))
        assert conn.execute("select deadline_at from relevo.notification_events").fetchone() == (soon,)
        talking.tell(tender(cierra_at=later, fingerprint="2"))
        assert conn.execute("select deadline_at from relevo.notification_events").fetchone() == (later,)


def test_whatever_a_tender_says_its_push_fits(conn: Conn) -> None:
    """No name, code or label that an item may hold makes a push that the door refuses: one such would stop its source."""
    storable = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
    words = st.sampled_from(["x", "ñ", "한", "📋", '"', "\\", "\x01"]) | st.text(storable, min_size=1)

    def long(most: int) -> st.SearchStrategy[str]:
        length = st.sampled_from([most, most // 2]) | st.integers(1, most)
        return st.tuples(words, length).map(lambda pair: (pair[0] * most)[: pair[1]])

    @settings(
        max_examples=150, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(long(2_000), long(300), st.none() | long(100))
    def check(nombre: str, code: str, label: str | None) -> None:
        item = Item("register", code, nombre if nombre.strip() else "x", "1", monto_label=label)
        event = ingest.Ingest(Script(), rendering.tender)._event(item, 2**63 - 1)
        conn.execute("select relevo.check_event(%s)", [psycopg.types.json.Jsonb(event)])

    check()
