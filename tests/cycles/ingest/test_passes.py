"""What ingest makes of what a source tells, pass by pass, with a source that says what it is given to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import relevo
from relevo.app import App
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.cycles import ingest
from relevo.delivery.composing import rendering
from relevo.operators import fleet
from support.deliveries import mark_sent
from support.phones import add_phones, fan_out, prefer, reached

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


def tender(code: str = "1-1-LE26", **reported: Any) -> Item:
    """Make a tender."""
    return Item("register", code, "Aseo de oficinas", reported.pop("fingerprint", "1"), **reported)


@dataclass
class Relay:
    """A worker with one scripted source."""

    app: App
    script: Script

    def answer(self, fetched: Fetched) -> None:
        """Let the source answer this and run ingest once."""
        self.script.answers = [fetched]
        self.app.runner.run(self.app.cycles([f"ingest:{self.script.name}"])[0], "manual")

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
        said = "select id, title, body, match_region, match_monto, match_words from relevo.notification_events"
        [before] = conn.execute(said).fetchall()
        assert before[2] == "Aseo de oficinas — $5"
        closes = datetime.now(UTC) + timedelta(days=9)
        later = tender(region="Región del Ñuble", monto=Decimal(7), moneda="CLP", fingerprint="3", cierra_at=closes)
        counts = talking.tell(replace(later, nombre="Aseo de escuelas"))
        assert counts["licitaciones_changed"] == 1
        assert conn.execute("select nombre, monto from relevo.licitaciones").fetchone() == (
            "Aseo de escuelas",
            Decimal(7),
        )
        assert conn.execute(said).fetchall() == [before]
        assert reached(conn, before[0]) == phones[:1]

    def test_a_deleted_event_is_not_announced_again(self, relay, conn: Conn) -> None:
        """An operator who deleted a tender's event does not get it back when the tender changes; others are told."""
        talking = relay()
        talking.tell(tender())
        [(event_id,)] = conn.execute("select id from relevo.notification_events").fetchall()
        with conn.transaction():
            assert relevo.delete(conn, [event_id]) == 1
        counts = talking.tell(tender(fingerprint="2", region="Región del Maule"), tender("2-1-LE26"))
        assert (counts["licitaciones_changed"], counts["events_created"]) == (1, 1)
        assert events(conn) == ["2-1-LE26"]

    def test_withdrawn_and_back(self, relay, build: Build, conn: Conn) -> None:
        """A withdrawn tender's event is cancelled once; when it is open again, those who missed it are told, no others."""
        reached_before, missed = add_phones(conn, 2)
        prefer(conn, [reached_before, missed])
        talking = relay()
        talking.tell(tender())
        fan_out(build())
        of_phone = "select id from relevo.notification_deliveries where installation_id = %s"
        mark_sent(conn, [row[0] for row in conn.execute(of_phone, [reached_before])])
        assert talking.tell(tender(withdrawn=True, fingerprint="2"))["events_cancelled"] == 1
        assert "events_cancelled" not in talking.tell(tender(withdrawn=True, fingerprint="3"))
        fan_out(build())
        assert talking.tell(tender(fingerprint="4"))["events_created"] == 1
        assert "events_created" not in talking.tell(tender(fingerprint="5"))
        rows = conn.execute(
            "select id, event_key, state, end_reason from relevo.notification_events order by id"
        ).fetchall()
        assert [row[1:] for row in rows] == [
            ("register:1-1-LE26", "cancelled", "the tender was withdrawn"),
            ("register:1-1-LE26#2", "waiting", None),
        ]
        fan_out(build())
        assert reached(conn, rows[1][0]) == [missed]
        [later] = add_phones(conn, 1)
        prefer(conn, [later])
        mark_sent(conn, [row[0] for row in conn.execute(of_phone, [missed])][1:])
        assert talking.tell(tender(withdrawn=True, fingerprint="6"))["events_cancelled"] == 1
        fan_out(build())
        assert talking.tell(tender(fingerprint="7"))["events_created"] == 1, "it may be open for the third time"
        [third] = conn.execute("select id from relevo.notification_events where event_key = 'register:1-1-LE26#3'")
        fan_out(build())
        assert reached(conn, third[0]) == [later]

    @pytest.mark.parametrize("estado", ["Cerrada", "Desierta", "Adjudicada", "16"])
    def test_a_tender_that_closed_is_not_announced(self, relay, build: Build, conn: Conn, estado: str) -> None:
        """Whatever state it is in, once a tender is no longer open what is left of its event is cancelled."""
        phones = add_phones(conn, 2)
        prefer(conn, phones)
        talking = relay()
        talking.tell(tender("fanned"))
        fan_out(build())
        talking.tell(tender("waiting"))
        closed = {"estado": estado, "announces": False, "fingerprint": "2"}
        assert talking.tell(tender("fanned", **closed), tender("waiting", **closed))["events_cancelled"] == 2
        fan_out(build())
        states = conn.execute("select distinct state, end_reason from relevo.notification_events").fetchall()
        assert states == [("cancelled", "the tender is no longer open")]
        assert conn.execute("select distinct status from relevo.notification_deliveries").fetchall() == [("cancelled",)]

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

    def test_the_deadline_follows_what_is_fanned_out(self, relay, build: Build, conn: Conn) -> None:
        """A closing that is brought forward or extended moves the deadline of what was fanned out already, too."""
        soon, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
        prefer(conn, add_phones(conn, 1))
        talking = relay()
        talking.tell(tender(cierra_at=later))
        fan_out(build())
        talking.tell(tender(cierra_at=soon, fingerprint="2"))
        assert conn.execute("select state, deadline_at from relevo.notification_events").fetchone() == ("fanned", soon)
        talking.tell(tender(cierra_at=later, fingerprint="3"))
        assert conn.execute("select deadline_at from relevo.notification_events").fetchone() == (later,)

    def test_a_closing_brought_forward_into_the_past(self, relay, build: Build, conn: Conn) -> None:
        """Whatever moment it names, even one before the event was made, nothing of it is worth sending any more."""
        prefer(conn, add_phones(conn, 1))
        talking = relay()
        talking.tell(tender(cierra_at=datetime.now(UTC) + timedelta(days=1)))
        fan_out(build())
        counts = talking.tell(tender(cierra_at=datetime.now(UTC) - timedelta(days=1), fingerprint="2"))
        assert "rejected" not in counts
        assert conn.execute("select deadline_at < now() from relevo.notification_events").fetchone() == (True,)


class TestOneBadItem:
    """What the database refuses costs itself and nothing else."""

    @pytest.mark.parametrize(
        "bad",
        [
            {"nombre": "x" * 3_000},
            {"cierra_at": datetime(2300, 1, 1, tzinfo=UTC)},
            {"nombre": "half a character \ud800"},
            {"nombre": "nul \x00"},
            {"moneda": "pesos"},
        ],
        ids=["too long", "too late", "surrogate", "nul", "currency"],
    )
    def test_it_is_a_reject(self, relay, conn: Conn, bad: dict[str, Any]) -> None:
        """The items around it are saved and announced, the culprit is named, and the cursor moves on."""
        talking = relay()
        counts = talking.tell(tender("1"), replace(tender("2"), **bad), tender("3"))
        assert (counts["licitaciones_new"], counts["events_created"], counts["rejected"]) == (2, 2, 1)
        assert events(conn) == ["1", "3"]
        assert conn.execute("select place from relevo.ingest_rejects").fetchall() == [("item register:2",)]
        assert conn.execute("select cursor from relevo.source_state").fetchone() == ({"n": 1},)


class TestOlderNews:
    """The last teller is not always the one with the newest news."""

    def test_older_news_do_not_undo_newer(self, relay, conn: Conn) -> None:
        """A telling older than what is stored fills blanks, and neither revives, moves nor announces anything."""
        newer, older = datetime(2026, 10, 9, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)
        closing = datetime.now(UTC) + timedelta(days=9)
        talking = relay()
        talking.tell(tender(as_of=older, cierra_at=closing))
        talking.tell(tender(as_of=newer, estado="Revocada", withdrawn=True, announces=False, fingerprint="2"))
        talking.tell(
            tender(
                as_of=older, estado="active", cierra_at=closing + timedelta(days=9), organismo="MOP", fingerprint="3"
            )
        )
        row = conn.execute("select estado, cierra_at, withdrawn, organismo, as_of from relevo.licitaciones").fetchone()
        assert row == ("Revocada", closing, True, "MOP", newer)
        assert conn.execute("select state from relevo.notification_events").fetchall() == [("cancelled",)]


class TestWholePasses:
    """A first pass is silent until it was whole."""

    def test_an_incomplete_pass_is_not_over(self, relay, conn: Conn) -> None:
        """A source that read only a part says so: the rest, which comes later, is no news either."""
        silent = relay(seeds_silently=True)
        silent.answer(Fetched("ok", {}, (tender("card"),), incomplete=True))
        silent.answer(Fetched("ok", {}, (tender("card"), tender("old"))))
        silent.answer(Fetched("ok", {}, (tender("new"),)))
        assert events(conn) == ["new"]

    def test_what_was_seen_and_not_read_is_no_news(self, relay, conn: Conn) -> None:
        """A detail of the first pass that can be read only later stays silent."""
        silent = relay(seeds_silently=True)
        silent.answer(Fetched("ok", {}, (tender("1"),), seen=(("register", "2"),)))
        silent.answer(Fetched("ok", {}, (tender("2"), tender("3"))))
        assert events(conn) == ["3"]


@pytest.mark.parametrize("code", ["a\ud800b", "a\0b", "://a:" * 100_000])
def test_a_name_that_cannot_be_stored_costs_no_other_item(relay, conn: Conn, code: str) -> None:
    """An item of a source of one's own whose very name is refused is a reject, and the others are kept."""
    relay().tell(tender("1"), tender(code), tender("2"))
    assert conn.execute("select external_id from relevo.licitaciones order by 1").fetchall() == [("1",), ("2",)]
    assert conn.execute("select count(*) from relevo.ingest_rejects").fetchone() == (1,)


def test_a_reject_is_kept_whatever_it_says(relay, conn: Conn) -> None:
    """Surrogates and NULs in a reject's words are replaced, not a reason to lose the batch."""
    odd = (Reject("a\ud800", "why\ud800", "1\0"), Reject("b\0", "\0", "2\ud800"))
    relay().answer(Fetched("ok", {}, (tender("1"),), rejects=odd))
    assert conn.execute("select place, reason, external_id from relevo.ingest_rejects order by 1").fetchall() == [
        ("a?", "why?", "1"),
        ("b", "unusable", "2?"),
    ]


def test_what_stays_wrong_is_a_problem_in_health(relay, conn: Conn) -> None:
    """What a source gave up, and rejects that were tried in vain, are told by health until they are mended."""
    talking = relay()
    talking.answer(Fetched("ok", {}, (tender("1"),), problems=("the list of 2026-02-09 was given up",)))
    problems = fleet.status(talking.app.database, talking.app.settings).problems
    assert "source script: the list of 2026-02-09 was given up" in problems
    reject = Reject("codigo=2", "refused", retry=True)
    for _ in range(ingest.REJECT_ATTEMPTS + 1):
        talking.answer(Fetched("ok", {}, rejects=(reject,)))
    [problem] = [each for each in fleet.status(talking.app.database, talking.app.settings).problems if "script" in each]
    assert problem.startswith("source script: 1 reject was tried")
    talking.answer(Fetched("ok", {}, resolved=("codigo=2",)))
    assert not any("script" in each for each in fleet.status(talking.app.database, talking.app.settings).problems)


def test_keys_of_different_items_are_different() -> None:
    """No two pairs of namespace and name make the same event key, whatever they hold."""
    pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("a", "c#2"),
        ("a", "c%232"),
        ("x" * 100, "y" * 300),
        ("a", "c"),
    ]
    keys = [ingest._event_key(Item(namespace, name, "n", "1")) for namespace, name in pairs]
    assert len(set(keys)) == len(pairs)
    assert keys[-1] == "a:c"
    assert all(len(key) <= 300 for key in keys)


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
        event = ingest.Ingest(cast("Any", None), Script(), rendering.tender)._event(item, 2**63 - 1)
        conn.execute("select relevo.check_event(%s)", [psycopg.types.json.Jsonb(event)])

    check()
