"""A kill or a stop while phones of four push services are sent to: nothing is lost, and nothing comes twice without need.

Every scene has an Expo phone, Android phones, iPhones and browsers. In the midst of each native request a GOAWAY on each
of its connections turns away a stream and all that come after it, while a slow one before them is still to be answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from relevo.app import App
from relevo.core.known_services import NATIVE
from relevo.sandbox.server import Sandbox
from support import mixed_phones
from support.dying_processes import SIGKILL, DyingProcesses, World, enqueue, fates, needless_resends, outwait_lease, run
from support.phones import fan_out
from support.processes import eventually
from support.soak import cases

SLOW, TURNED_AWAY = ("slow=0.2",), ("goaway*3",)
"""One GOAWAY alone would have the rest go on over a new connection."""

KILLS = [
    ("COMMIT of journal.journal_plain_wave", "after"),
    ("POST apns written", "after"),
    ("POST fcm answered in part", "after"),
    ("POST webpush", "after"),
    ("COMMIT of settle.settle_deliveries", "after"),
]
"""Each window once; where several services have it, in turns. A kill before a request, or before the COMMIT of a
transaction, leaves what the moment before it left."""
MOMENTS = [("", "before"), ("", "after"), (" written", "after"), (" answered in part", "after")]
INSIDE = [
    ("settle.split_unsent", "after"),
    ("COMMIT of journal.journal_plain_wave", "before"),
    ("settle.split_unsent", "before"),
    ("settle.settle_deliveries", "after"),
]
ALL_KILLS = [*KILLS, *INSIDE, *((f"POST {service}{moment}", when) for service in NATIVE for moment, when in MOMENTS)]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """All push services, without a rate, with receipts at once."""
    with Sandbox(native=True, rate_per_s=0, receipt_delay_s=0, apns_token_interval_s=0) as started:
        yield started


@pytest.fixture
def dying_processes(program: DyingProcesses, dsn: str, sandbox: Sandbox) -> DyingProcesses:
    """The program on the test's database, before every push service."""
    addresses = {name.upper(): str(value) for name, value in mixed_phones.addresses(sandbox).items()}
    return program.on(DATABASE_URL=dsn, **addresses)


class Scene:
    """Four events for an Expo phone, an Android phone, an iPhone and a browser, in the order of their streams: the second
    is answered late, a GOAWAY turns away the third and, at most once, the fourth."""

    def __init__(self, conn: Any, sandbox: Sandbox, survivor: App, name: str) -> None:
        self.conn, self.sandbox = conn, sandbox
        self.again = [self._enqueue(survivor, f"{name}-{n}", *words) for n, words in enumerate(((), SLOW, TURNED_AWAY))]
        self.once = self._enqueue(survivor, f"{name}-once", at_most_once=True)

    def _enqueue(self, survivor: App, name: str, *faults: str, **how: Any) -> int:
        kinds = mixed_phones.NATIVE_PHONES if faults else mixed_phones.ONE_OF_EACH
        event = enqueue(
            self.conn, list(mixed_phones.register(self.conn, self.sandbox, kinds, name, *faults).values()), **how
        )
        fan_out(survivor)
        return event

    def check(self, point: object) -> int:
        """Look at phones, rows and journal; return how many pushes came a second time."""
        once = fates(self.conn, self.sandbox, self.once)
        for fate in once:
            assert fate.received <= 1, (point, fate)
            assert fate.status in ("ok", "unknown"), (point, fate)
            assert fate.received or fate.status == "unknown", (point, fate)
            assert fate.attempts == 1, (point, fate)
        assert sum(fate.status == "unknown" for fate in once) <= self._doubts(self.once), (point, once)
        return sum(self._check_again(event, point) for event in self.again)

    def _check_again(self, event: int, point: object) -> int:
        reached, doubts = fates(self.conn, self.sandbox, event), self._doubts(event)
        for fate in reached:
            assert fate.status == "ok", (point, fate)
            assert 1 <= fate.received <= fate.requests, (point, fate)
        # tried as often as it was answered, or nobody knew: what a GOAWAY turned away was not
        assert sum(fate.attempts - 1 for fate in reached) == doubts, (point, reached)
        twice = sum(fate.received - 1 for fate in reached)
        assert twice <= doubts, (point, reached)
        return twice

    def _doubts(self, event: int) -> int:
        """Count how often nobody knew of a delivery of an event whether it was sent; nothing else may have failed."""
        told = """select f.error_code from relevo.failed_attempts f join relevo.notification_deliveries d
                    on d.event_day = f.event_day and d.id = f.delivery_id where d.notification_event_id = %s"""
        codes = [code for (code,) in self.conn.execute(told, [event])]
        assert set(codes) <= {"answer_not_seen", "ConnectionBroken"}, codes
        return len(codes)


@pytest.fixture
def world(conn, sandbox, dying_processes, travelling, clock) -> World:
    """The world of workers that send by every push service."""
    survivor = travelling(receipt_first_poll_ms=1, push_rate_per_second=0, **mixed_phones.addresses(sandbox))
    return World(
        conn, sandbox, dying_processes, survivor, clock, {"receipt_first_poll_ms": 1, "push_rate_per_second": 0}
    )


def test_mixed_phones_survive_a_kill_in_every_window(world, conn, sandbox) -> None:
    """Whatever window of a request a process dies in: no phone of any push service is left out, at most once is never
    twice, and what a GOAWAY turned away is not counted as tried."""
    played = [(Scene(conn, sandbox, world.survivor, "whole"), "no kill")]
    executed = world.kill("dispatch", None)["counts"]
    points = cases(KILLS, whole=ALL_KILLS)
    assert {name for name, _ in points} <= executed.keys()
    for n, (name, when) in enumerate(points):
        world.clear_up("dispatch")
        played.append((Scene(conn, sandbox, world.survivor, f"k{n}"), f"{name} {when}"))
        assert world.kill("dispatch", {"name": name, "when": when, "nth": 1})["signal"] == SIGKILL, name
    world.clear_up("dispatch")
    world.clear_up("receipt")
    assert played[0][0].check("no kill") == 0
    twice = sum(scene.check(point) for scene, point in played[1:])
    assert needless_resends(conn) == []
    assert twice  # some kills did come between a request and the record of its answer


STOPPED: Mapping[str, object] = {
    "outbox_lease_duration_ms": 4_500,
    "push_request_timeout_ms": 1_500,
    "push_rate_per_second": 0,
    "receipt_first_poll_ms": 1,
}
"""A lease that a test can outwait, and that a busy machine can keep."""
STOPS = [("POST fcm answered in part", "after"), ("POST apns written", "after"), ("settle.split_unsent", "before")]
ALL_STOPS = [
    *STOPS,
    ("COMMIT of journal.journal_plain_wave", "after"),
    *((f"POST {service}", "before") for service in NATIVE),
    *((f"POST {service}{moment}", "after") for service in NATIVE for moment in ("", " written")),
]


@dataclass
class Overtaken:
    """A worker that stands still beyond its lease, and another one that does its work meanwhile."""

    dying_processes: DyingProcesses
    conn: Any
    survivor: App

    def play(self, name: str, when: str) -> None:
        """Stop a worker in a window, let the other take over, and let the first one go on to its end."""
        stop = {"name": name, "when": when, "nth": 1, "signal": "SIGSTOP"}
        dying = self.dying_processes.begin("dispatch", stop, heartbeat=True, **STOPPED)
        dying.stands()
        self.take_over()
        dying.goes_on()
        assert dying.ends()["signal"] == 0
        self.take_over()

    def take_over(self) -> None:
        """Let the other worker do what there is to do."""
        outwait_lease(self.conn)
        eventually(self._nothing_left, "the other worker takes over")

    def _nothing_left(self) -> bool:
        run(self.survivor, "reaper")
        self.conn.execute("update relevo.due_chunks set due_at = now() where due_at > now()")
        run(self.survivor, "dispatch")
        left = "select from relevo.due_chunks union all select from relevo.claims where ids <> '{}'"
        return not self.conn.execute(left).fetchall()


@pytest.fixture
def overtaken(conn, sandbox, dying_processes, build) -> Overtaken:
    """A worker that will be stopped, and one that will not."""
    return Overtaken(dying_processes, conn, build(**mixed_phones.addresses(sandbox) | STOPPED))


@pytest.mark.parametrize("stop", cases(STOPS, whole=ALL_STOPS), ids=" ".join)
def test_mixed_phones_survive_a_stop_beyond_the_lease(overtaken, conn, sandbox, stop) -> None:
    """A worker that goes on when another did its work sends nothing that it had not begun, and writes over nothing."""
    scene = Scene(conn, sandbox, overtaken.survivor, "stopped")
    overtaken.play(*stop)
    run(overtaken.survivor, "receipt")
    scene.check(stop)
    assert needless_resends(conn) == []


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        (((), TURNED_AWAY, ()), ("settle.split_unsent", "before")),
        ((TURNED_AWAY, (), ()), ("POST fcm", "after")),
    ],
    ids=["part of a request", "a whole request"],
)
def test_what_was_turned_away_is_sent_though_its_claim_was_lost(overtaken, conn, sandbox, words, stop) -> None:
    """Whoever ended the claim did not know that a GOAWAY turned it away, and gave it up at most once: once its worker says
    so it is opened again, comes once, and has one attempt."""
    phones = [mixed_phones.register(conn, sandbox, ["android"], f"p{n}", *each) for n, each in enumerate(words)]
    events = [enqueue(conn, list(each.values()), at_most_once=True) for each in phones]
    fan_out(overtaken.survivor)
    overtaken.play(*stop)
    reached = [fate for event in events for fate in fates(conn, sandbox, event)]
    assert {(fate.received, fate.attempts) for fate in reached} == {(1, 1)}
    assert {fate.status for fate in reached} <= {"ok", "sent"}
