"""A day in which everything goes wrong once, lived through in half a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event
from relevo.operators import events
from relevo.sandbox.server import Sandbox
from support import soak
from support.dying_processes import FINAL, install, run
from support.phones import add_phones

PHONES, WITHOUT_RECEIPT, REFUSED_LATER = 120, 5, 3
CYCLES = ("fanout", "dispatch", "receipt", "reaper")
PER_HOUR = soak.cases(3, whole=6)
STEP = timedelta(hours=1) / PER_HOUR
LONGER_STEP = timedelta(minutes=30)
OUTAGE, CREDENTIALS, UNREGISTERED, LATE_RECEIPTS, NO_RECEIPTS = 4, 10, 14, 16, 20
TOO_LATE, AT_MOST_ONCE, DELIVERED_ANYWAY = 5, 4, 2


class Day:
    """The day's hours, and what happens in them."""

    def __init__(self, conn: psycopg.Connection[Any], sandbox: Sandbox, worker: App, clock: Any) -> None:
        self.conn, self.sandbox, self.worker, self.clock = conn, sandbox, worker, clock
        self.events: list[int] = []
        self.plan: dict[int, list[Callable[[], None]]] = {
            DELIVERED_ANYWAY: [lambda: sandbox.add_fault("504-delivered", times=1)],
            OUTAGE: [lambda: sandbox.add_fault("503")],
            OUTAGE + 3: [sandbox.clear_faults],
            CREDENTIALS: [lambda: sandbox.add_fault("InvalidCredentials")],
            CREDENTIALS + 1: [sandbox.clear_faults],
            UNREGISTERED: [lambda: sandbox.add_fault("DeviceNotRegistered", share=0.8)],
            UNREGISTERED + 1: [sandbox.clear_faults],
            LATE_RECEIPTS: [lambda: sandbox.set(receipt_delay_s=86_400)],
            LATE_RECEIPTS + 3: [lambda: sandbox.set(receipt_delay_s=0)],
            NO_RECEIPTS: [lambda: sandbox.add_fault("503", on="receipts")],
            NO_RECEIPTS + 1: [sandbox.clear_faults],
        }

    def live(self) -> None:
        """Live through 24 hours with an event in each, then on until every receipt has come or is given up."""
        for hour in range(24):
            for happen in self.plan.get(hour, ()):
                happen()
            self.events.append(self.enqueue(hour))
            for _ in range(PER_HOUR):
                self.go_on(STEP)
        for _ in range(56):
            if not self.unfinished():
                break
            self.go_on(LONGER_STEP)
        run(self.worker, "reaper")

    def enqueue(self, hour: int) -> int:
        """Enqueue the hour's event."""
        deadline = self.clock() + timedelta(minutes=50) if hour == TOO_LATE else None
        event = Event(
            "day",
            f"hour {hour}",
            "Title",
            "Body",
            deadline_at=deadline,
            at_most_once=hour in (AT_MOST_ONCE, 12),
            audience="everyone",
        )
        return verbs.enqueue(self.conn, event).event_id

    def go_on(self, step: timedelta) -> None:
        """Let some time pass, and every cycle run once."""
        self.clock.ahead += step
        for cycle in CYCLES:
            report = self.worker.runner.run(self.worker.registry[cycle], "schedule")
            # getReceipts that fails, and nothing else, may make a run fail
            assert report.outcome in ("ok", "idle", "partial") or cycle == "receipt", report

    def unfinished(self) -> int:
        """Count the deliveries without an end."""
        query = "select count(*) from relevo.notification_deliveries where completed_at is null"
        [(count,)] = self.conn.execute(query).fetchall()
        return int(count)

    def states(self, hour: int | None = None) -> dict[str, int]:
        """Count the deliveries per status, of one hour or of all."""
        query = """select status, count(*)::int from relevo.notification_deliveries
                    where notification_event_id = any (%s) group by status"""
        return dict(self.conn.execute(query, [self.events if hour is None else [self.events[hour]]]).fetchall())

    def incidents(self, hour: int) -> list[str]:
        """List what an hour's story tells of its project."""
        story = events.story(self.worker.database, self.events[hour])
        assert story is not None
        return [moment.what for moment in story.moments]

    def counted(self) -> Counter[str]:
        """Sum up what the runs of the day told."""
        total: Counter[str] = Counter()
        for (counts,) in self.conn.execute("select counts from relevo.worker_runs").fetchall():
            total.update(counts)
        return total


@pytest.fixture
def day(conn, sandbox, travelling, clock, rules) -> Day:
    """A worker, its phones, and a day before them; the brake on tokens holds whichever request is answered first."""
    add_phones(conn, PHONES)
    install(conn, ["!no-receipt"] * WITHOUT_RECEIPT, "default")
    install(conn, ["!receipt-MessageTooBig"] * REFUSED_LATER, "default")
    rules(brake_min=10)
    return Day(conn, sandbox, travelling(push_rate_per_second=20_000), clock)


def test_a_day_in_which_everything_goes_wrong(day, conn, sandbox) -> None:
    """An outage of 3 hours, a credential fault, a wave of DeviceNotRegistered, receipts that are late, refused or never
    come: in the end every delivery has one final state, events tell what a count tells, nothing was sent twice but what
    an unclear answer made so, and the story can be read."""
    day.live()
    everyone = PHONES + WITHOUT_RECEIPT + REFUSED_LATER
    check_sums(day, conn, everyone)
    check_fates(day, everyone)
    check_phones(day, conn, sandbox)
    check_story(day, conn)


def check_sums(day: Day, conn: psycopg.Connection[Any], everyone: int) -> None:
    """Every delivery has a final state, the sums agree, and nothing is held any more."""
    total = day.states()
    assert sum(total.values()) == 24 * everyone == day.counted()["deliveries_created"]
    assert total.keys() <= set(FINAL)
    for hour, event in enumerate(day.events):
        status = verbs.get(conn, event)
        assert status is not None
        assert {name: count for name, count in status.deliveries.items() if count} == day.states(hour), hour
    assert conn.execute("select from relevo.claims").fetchall() == []
    assert not day.counted()["claims_reaped"], "nothing was left for the reaper"
    assert conn.execute("select breaker, pruning_stopped_at from relevo.projects").fetchall() == [("closed", None)]
    assert conn.execute("select from relevo.held_events").fetchall() == []


def check_fates(day: Day, everyone: int) -> None:
    """What each trouble came to."""
    quiet = {"ok": PHONES, "unconfirmed": WITHOUT_RECEIPT, "failed": REFUSED_LATER}
    for hour in set(range(24)) - {AT_MOST_ONCE, TOO_LATE, UNREGISTERED}:
        assert day.states(hour) == quiet, hour
    assert day.states(TOO_LATE) == {"expired": everyone}
    assert day.states(AT_MOST_ONCE)["unknown"] > 0
    assert day.states(AT_MOST_ONCE).keys() <= {"unknown", *quiet}
    assert day.states(UNREGISTERED)["failed"] > everyone / 2, "the brake doubts that so many phones are gone"


def check_phones(day: Day, conn: psycopg.Connection[Any], sandbox: Sandbox) -> None:
    """Phones got what the rows say: one for each that was sent, two only where the answer was a 504 that had delivered."""
    totals = sandbox.totals()
    sent = day.states()["ok"] + day.states()["unconfirmed"]
    unclear = "select coalesce(sum(cardinality(ids)), 0) from relevo.push_requests where outcome = 'unclear'"
    [(ambiguous,)] = conn.execute(unclear).fetchall()
    assert 0 < totals["duplicates"] <= 100 <= ambiguous
    assert totals["delivered"] == sent + totals["duplicates"]
    disabled = conn.execute("select count(*) from relevo.device_installations where invalidated_at is not null")
    assert disabled.fetchall() == [(0,)], "the brake held"


def check_story(day: Day, conn: psycopg.Connection[Any]) -> None:
    """What happened can be read: from an event's story, and from the sums of the runs."""
    assert {"probe failed", "breaker closed"} <= set(day.incidents(OUTAGE + 2)), "it was opened before"
    assert {"breaker opened", "breaker closed"} <= set(day.incidents(CREDENTIALS))
    assert "pruning stopped" in day.incidents(UNREGISTERED)
    assert "pruning resumed" in [what for (what,) in _incidents(conn, "replace(what, '_', ' ')")]
    reasons = [detail for (detail,) in _incidents(conn, "detail")]
    assert any("SERVICE_UNAVAILABLE" in reason for reason in reasons), reasons
    assert any("InvalidCredentials" in reason for reason in reasons), reasons
    errors = events.story(day.worker.database, day.events[UNREGISTERED])
    assert errors is not None
    assert ("failed", "DeviceNotRegistered") in [(row["status"], row["last_error_code"]) for row in errors.errors]
    total, counted = day.states(), day.counted()
    reported = {
        "ok": "notifications_confirmed",
        "unconfirmed": "notifications_unconfirmed",
        "failed": "notifications_failed",
        "expired": "notifications_expired",
        "unknown": "notifications_unknown",
    }
    assert {status: counted[name] for status, name in reported.items()} == total
    doubted = "select count(*) from relevo.notification_deliveries where last_error_code = 'DeviceNotRegistered'"
    [(refused,)] = conn.execute(doubted).fetchall()
    assert counted["notifications_sent"] == total["ok"] + total["unconfirmed"] + total["failed"] - refused
    failed = "select error_message from relevo.worker_runs where cycle = 'receipt' and outcome <> 'ok'"
    messages = {message.split("; ")[0] for (message,) in conn.execute(failed).fetchall()}
    assert messages == {"receipts of default were not told: unclear SERVICE_UNAVAILABLE"}


def _incidents(conn: psycopg.Connection[Any], column: str) -> list[tuple[str]]:
    return conn.execute(f"select {column} from relevo.project_incidents order by id").fetchall()
