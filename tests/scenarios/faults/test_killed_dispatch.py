"""A kill at every step of dispatch and receipts: nothing is lost, and nothing comes twice without need.

The kill points are made from the moments that a run without a kill counts: each named statement and each COMMIT,
before and after, each request before it, while it is under way and after its answer. A new one is covered by itself.
`make soak` strikes every time that they come, and on both sides; here each that leaves a world of its own is struck when
it comes first, and after it: a kill takes back all but what was committed or requested, so that one before a COMMIT is
the one after the COMMIT or the request that came last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest

from relevo.client import verbs
from relevo.core import queries
from support import soak
from support.dying_processes import SIGKILL, Fate, World, enqueue, fates, install, needless_resends, run, unanswered
from support.phones import fan_out

STEPS = ("claims", "journal", "settle", "receipts", "dispatch", "projects")

# Statements that no scenario below executes, each with its reason.
NOT_COVERED: dict[str, str] = {
    "claims.wait_for_locks": "only after the answer of a claim's COMMIT was lost: tests/delivery/claiming/test_claims_adoption.py",
    "claims.bar_claim": "likewise",
    "claims.adopt_claim": "likewise",
    "journal.read_journalled": "only where some of a batch are not ours any more; it reads inside the journal's transaction",
    "claims.renew_claims": "the heartbeat's, not a step of dispatch: a kill there is a kill during a request",
    "claims.explain_loss": "only where a claim was lost: test_stopped_dispatch.py",
    "settle.keep_late_tickets": "likewise",
    "journal.mark_unsent": "likewise, killed there, too",
    "claims.lock_claim_and_journal": "likewise, in the transaction of mark_unsent",
    "claims.queue_deliveries": "likewise, in the transaction of mark_unsent",
    "claims.list_claimed": "only where a claim cannot be ended whole; it reads, and writes nothing",
    "settle.fail_doubted": "only under the brake on tokens, and in the transaction of settle_deliveries",
    "settle.split_unsent": "only where part of a request was not sent: test_mixed_dispatch.py",
    "settle.reopen_unsent": "only where the claim of what was not sent was lost: likewise",
    "projects.pause_receipts": "only where a request for receipts failed; a pause, not a send",
    "projects.renew_connections": "only where a heartbeat beats; it extends a lease, and no more",
    "projects.lease_ahead": "only where dispatch is called ahead of its work; a lease, as lease_connections takes it",
    "projects.forget_credential_answers": "only where a fault was met more than an hour ago",
    "projects.list_witnesses": "only where a credential fault was met: it reads, in the transaction of save_credential_answers",
    "projects.was_taken_lately": "likewise",
    "projects.has_owners": "likewise",
    "settle.keep_tickets": "only where an answer cannot be written: tests/delivery/settling/test_recorder.py",
    "dispatch.read_names": "only for news: it reads, and writes nothing",
    "dispatch.count_unread": "only where a badge is asked for: it reads, and writes nothing",
    "settle.note_silent": "only in quiet hours, and in the transaction of a settle",
    "dispatch.retell_batches": "only for batches: it reads, and writes nothing",
    "dispatch.read_contents": "only after a lost COMMIT answer or for a probe: a claim tells what its events say",
}
# These come at every run, and every time that they came without a kill.
STEADY = (
    "claims.claim_due",
    "journal.journal_plain_wave",
    "journal.phones_unchanged",
    "POST send",
    "POST written",
    "settle.settle_deliveries",
    "receipts.claim_awaited",
    "POST receipts",
    "receipts.settle_confirmed",
)
# How often these come depends on how long the others take.
POLLED = (
    "projects.list_due_lanes",
    "projects.count_due",
    "projects.lock_project",
    "projects.save_project",
)


@pytest.fixture
def world(conn, sandbox, dying_processes, travelling, clock) -> Callable[..., World]:
    """Make the world: `world(push_rate_per_second=0)`."""
    conn.execute("insert into relevo.event_types (event_type, lease_ms) values ('another type', 30000)")

    def make(**settings: object) -> World:
        chosen = {"push_chunk_size": 2, "receipt_first_poll_ms": 1} | settings
        return World(conn, sandbox, dying_processes, travelling(**chosen), clock, chosen)

    return make


class Scene:
    """One event of each policy with two phones, a fifth phone that is gone, and what must come of them."""

    def __init__(self, world: World, name: str, *, gone: str = "!DeviceNotRegistered", once_first: bool = True) -> None:
        self.world = world
        once, again = install(world.conn, ["", ""], name), install(world.conn, ["", "", gone], name)
        self.gone: UUID = list(again)[-1]
        if once_first:
            self.once = enqueue(world.conn, list(once), type="once", at_most_once=True)
        self.again = enqueue(world.conn, list(again), type="again")
        if not once_first:
            self.once = enqueue(world.conn, list(once), type="once", at_most_once=True)
        fan_out(world.survivor)

    def check(self, point: object) -> int:
        """Look at phones, rows and journal; return how many pushes came a second time."""
        conn, sandbox = self.world.conn, self.world.sandbox
        for fate in fates(conn, sandbox, self.once):
            assert fate.received <= 1, (point, fate)
            assert fate.status in ("ok", "unknown"), (point, fate)
            assert fate.received or fate.status == "unknown", (point, fate)
            assert fate.requests == 1, (point, fate)  # what may have been sent is never tried again
        *reached, gone = fates(conn, sandbox, self.again)
        for fate in reached:
            assert fate.status == "ok", (point, fate)
            assert 1 <= fate.received <= fate.requests, (point, fate)
        assert (gone.status, gone.received) == ("invalid", 0), (point, gone)
        disabled = "select invalid_reason from relevo.device_installations where installation_id = %s"
        assert conn.execute(disabled, [self.gone]).fetchall() == [("DeviceNotRegistered",)], point
        twice = _more_than_one(reached)
        assert twice <= unanswered(conn, self.again), point
        self.check_progress(point)
        return twice

    def check_progress(self, point: object) -> None:
        """Compare what each event tells of itself with a count."""
        counted = """select status, count(*)::int from relevo.notification_deliveries
                      where notification_event_id = %s group by status"""
        for event in (self.once, self.again):
            status = verbs.get(self.world.conn, event)
            assert status is not None
            assert status.deliveries == dict(self.world.conn.execute(counted, [event]).fetchall()), point


def _more_than_one(reported: Iterable[Fate]) -> int:
    return sum(fate.received - 1 for fate in reported)


def kill_points(reported: Mapping[str, Any], *sides: str, every_time: bool = soak.WHOLE) -> list[dict[str, Any]]:
    """Name the moments: after each thing that lasts, when it comes first; in the whole matrix all, on each side, each time."""
    executed: Mapping[str, int] = reported["counts"]
    if not every_time:
        lasting = [each for each in executed if each.startswith(("COMMIT", "POST")) or each in reported["alone"]]
        return [{"name": name, "when": when, "nth": 1} for name in lasting for when in sides or ("after",)]
    return [
        {"name": name, "when": when, "nth": nth}
        for name, count in executed.items()
        for nth in range(1, min(count, _most(name)) + 1)
        for when in (("before", "after") if name != "POST written" else ("after",))
    ]


def between(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the moments from a claim to the end of it."""
    steps = ("claims.claim_due", "journal.journal_plain_wave", "settle.settle_deliveries")
    return [each for each in points if each["name"].startswith("POST") or each["name"].endswith(steps)]


def _most(name: str) -> int:
    """Return how often at most something is struck: how often these come depends on what else goes on."""
    if name == "POST written":  # on a new connection, of which there may be one or more
        return 1
    return 2 if name.endswith(POLLED) else 1_000


def uncovered(*runs: Iterable[str]) -> set[str]:
    """Return the named statements that no run executed."""
    named = {f"{step}.{name}" for step in STEPS for name in queries.load(step)}
    return named.difference(*runs)


def kill_everywhere(
    world: World, cycle: str, points: list[dict[str, Any]], scenes: Callable[[str], Scene]
) -> list[Any]:
    """Kill a process at each point, each in a scene of its own, clear up, and return the scenes with their points."""
    played, missed = [], []
    for n, point in enumerate(points):
        scene = scenes(f"killed {n}")
        if world.kill(cycle, point)["signal"] != SIGKILL:
            missed.append(point)
        world.clear_up(cycle)
        played.append((scene, point))
    assert not any(point["name"].endswith(STEADY) for point in missed), missed
    assert len(missed) <= max(3, len(points) / 10), missed  # of statements that come only now and then
    return played


@pytest.mark.parametrize("rate", [0, 50], ids=["one claim for all requests", "one claim for each request"])
def test_dispatch_survives_a_kill_at_every_step(world, conn, sandbox, rate) -> None:
    """Whatever moment a process dies at: no delivery is lost; at most once is never twice; at least once comes a second
    time only where the first answer was not recorded when the resend was journalled."""
    here = world(push_rate_per_second=rate)
    whole = Scene(here, "never killed")
    reported = here.kill("dispatch", None)
    points = kill_points(reported, every_time=rate == 0 and soak.WHOLE)
    if rate:  # the first scene has every moment; the second adds what is left behind between two claims
        points = soak.cases(between(points), whole=points)
    played = kill_everywhere(here, "dispatch", points, lambda name: Scene(here, name, once_first=rate == 0))
    here.clear_up("receipt")
    run(here.survivor, "reaper")
    assert whole.check("no kill") == 0
    twice = sum(scene.check(point) for scene, point in played)
    assert needless_resends(conn) == []
    assert twice == sandbox.totals()["duplicates"]
    assert 0 < twice <= 2 * len(points)  # some kills did come between a request and the record of its answer


def test_receipts_survive_a_kill_at_every_step(world, conn, sandbox) -> None:
    """Whatever moment a process dies at that asks for receipts, nothing is lost but time: nothing is sent again, no
    attempt is spent, and every delivery ends as its receipt says."""
    here = world(push_rate_per_second=0)

    def sent(name: str) -> Scene:
        scene = Scene(here, name, gone="!receipt-DeviceNotRegistered")
        run(here.survivor, "dispatch")
        return scene

    whole = sent("never killed")
    reported = here.kill("receipt", None)
    assert "POST receipts" in reported["counts"]
    played = kill_everywhere(here, "receipt", kill_points(reported), sent)
    run(here.survivor, "reaper")
    for scene, point in [(whole, "no kill"), *played]:
        ended = [*fates(conn, sandbox, scene.once), *fates(conn, sandbox, scene.again)]
        assert [(fate.status, fate.received) for fate in ended] == [*[("ok", 1)] * 4, ("invalid", 0)], point
        assert {(fate.attempts, fate.lapses, fate.requests) for fate in ended} == {(1, 0, 1)}, point
        scene.check_progress(point)
    assert sandbox.totals()["duplicates"] == 0


class Trouble:
    """Phones of three projects that were thought to be one, a credential fault and a 400 that last for a moment, and a
    project whose breaker is to be probed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        moved = [f"!project=@a/{name}", f"!project=@b/{name}", f"!project=@c/{name}!InvalidCredentials*1"]
        phones = install(world.conn, moved, name)
        phones |= install(world.conn, ["", "!400*2"], f"refused {name}")
        phones |= install(world.conn, [""], f"probed {name}")
        world.conn.execute(TO_BE_PROBED, [f"probed {name}"])
        self.event = enqueue(world.conn, list(phones))
        fan_out(world.survivor)

    def check(self, point: object) -> None:
        """Look at phones and rows: each phone got its push, a second one only if the first answer is not recorded."""
        reported = fates(self.world.conn, self.world.sandbox, self.event)
        assert all(fate.status == "ok" and fate.received for fate in reported), (point, reported)
        assert _more_than_one(reported) <= unanswered(self.world.conn, self.event), (point, reported)


TO_BE_PROBED = """
insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips)
values (%s, now(), 'open', 'an outage', 'request', now() - interval '1 minute', now() - interval '1 second', 1)
"""
TROUBLE = (
    "claims.claim_probe",
    "projects.move_tokens",
    "projects.tell_incident",
    "projects.read_credential_answers",
    "projects.save_credential_answers",
    "projects.find_another_installation",
    "projects.excuse_credential_answers",
    "projects.note_refusal",
    "projects.note_taken",
)

BESIDE_OTHERS = ("tell_incident", "read_credential_answers", "find_another_installation")
"""In the transactions of the others: a kill there is one before those."""


def test_dispatch_survives_a_kill_while_a_project_is_in_trouble(world) -> None:
    """Dying while it writes down whose a token or a fault is, or that a breaker opens or closes, loses nothing either."""
    here = world(push_rate_per_second=0, push_chunk_size=3)
    whole = Trouble(here, "whole")
    reported = here.kill("dispatch", None)
    played = [(whole, "no kill")]
    # Their transactions end with other statements, so that a kill after a COMMIT of theirs is none of the others.
    points = [{"name": name, "when": "before", "nth": 1} for name in TROUBLE if not name.endswith(BESIDE_OTHERS)]
    points += [each for each in kill_points(reported, every_time=False) if each["name"].endswith(TROUBLE)]
    for n, point in enumerate(points):
        here.clear_up("dispatch")
        scene = Trouble(here, f"killed-{n}")
        assert here.kill("dispatch", point)["signal"] == SIGKILL or point["nth"] > 1, point
        played.append((scene, point))
    here.clear_up("dispatch")
    here.clear_up("receipt")
    for scene, each in played:
        scene.check(each)
    assert reported["counts"].keys() >= set(TROUBLE)


def test_a_retry_that_a_receipt_asks_for_survives_a_kill(world, conn, sandbox) -> None:
    """What a receipt sends back to the queue stands there or still awaits its receipt, wherever the process dies: it
    arrives in the end, and the attempt is counted once."""
    here = world(push_rate_per_second=0)

    def sent(name: str) -> int:
        event = enqueue(conn, list(install(conn, ["!receipt-ExpoError*1"], name)))
        fan_out(here.survivor)
        run(here.survivor, "dispatch")
        return event

    events = {"no kill": sent("never killed")}
    reported = here.kill("receipt", None)
    points = [each for each in kill_points(reported, "before", "after") if each["name"].endswith(REQUEUED)]
    assert reported["counts"].keys() >= set(REQUEUED)
    assert points
    for n, point in enumerate(points):
        events[str(point)] = sent(f"killed {n}")
        assert here.kill("receipt", point)["signal"] == SIGKILL, point
        here.clear_up("receipt", "dispatch")
    here.clear_up("receipt", "dispatch")
    for point, event in events.items():
        [fate] = fates(conn, sandbox, event)
        assert (fate.status, fate.received, fate.attempts, fate.requests) == ("ok", 1, 2, 2), (point, fate)
    assert told_once(conn, "ExpoError") == len(events)
    assert sandbox.totals()["duplicates"] == 0


def told_once(conn, code: str) -> int:
    """Count the deliveries of which it is told that they failed with a code; each once, or the test fails."""
    told = "select count(*), count(distinct delivery_id), count(*) filter (where error_code = %s) from relevo.failed_attempts"
    ((rows, deliveries, with_code),) = conn.execute(told, [code]).fetchall()
    assert rows == deliveries == with_code
    return int(rows)


REQUEUED = ("receipts.settle_receipts",)
REAPED = ("claims.end_claim",)


@pytest.mark.parametrize("begun", [False, True], ids=["never journalled", "ambiguous"])
def test_the_reaper_survives_a_kill_at_every_step(world, conn, sandbox, begun) -> None:
    """A claim is taken back whole or not at all: what it held is in the queue, each once, or still the claim's."""
    here = world(push_rate_per_second=0)
    left_behind = {
        "name": "COMMIT of " + ("journal.journal_plain_wave" if begun else "claims.claim_due"),
        "when": "after",
        "nth": 1,
    }

    def abandoned(name: str) -> int:
        event = enqueue(conn, list(install(conn, ["", ""], name)), type="again")
        fan_out(here.survivor)
        assert here.kill("dispatch", left_behind)["signal"] == SIGKILL
        conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")
        return event

    events = {"no kill": abandoned("never killed")}
    reported = here.kill("reaper", None)
    points = [each for each in kill_points(reported, "before", "after") if each["name"].endswith(REAPED)]
    assert reported["counts"].keys() >= set(REAPED)
    assert points
    for n, point in enumerate(points):
        events[str(point)] = abandoned(f"killed {n}")
        assert here.kill("reaper", point)["signal"] == SIGKILL, point
        here.clear_up("dispatch")
    here.clear_up("dispatch")
    for point, event in events.items():
        for fate in fates(conn, sandbox, event):
            found = (fate.status, fate.received, fate.attempts, fate.requests)
            assert found == (("sent", 1, 2, 2) if begun else ("sent", 1, 1, 1)), (point, fate)
    assert told_once(conn, "answer_not_seen") == (2 * len(events) if begun else 0)
    assert sandbox.totals()["duplicates"] == 0


CHANGED = ("journal.journal_wave", "claims.lock_claim", "journal.look_at_phones", "journal.amend_journal")
CLAIMED = {"name": "COMMIT of claims.claim_due", "when": "after", "nth": 1, "signal": "SIGSTOP"}


class Changed:
    """A claim of three events, of which one is cancelled and another's phone gets a new token before the journal."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        phones = [list(install(world.conn, [""], name)) for _ in range(4)]
        self.ended, self.moved, self.again = (enqueue(world.conn, each) for each in phones[:3])
        self.once = enqueue(world.conn, phones[3], at_most_once=True)
        self._moved_phone = phones[1][0]
        self.former: list[str] = []
        fan_out(world.survivor)

    def play(self, point: Mapping[str, Any] | None) -> dict[str, Any]:
        """Let a process claim, change what it claimed, and let it go on to its end or to the moment it dies at."""
        conn = self.world.conn
        dying = self.world.dying_processes.begin("dispatch", CLAIMED, point, **self.world.settings)
        dying.stands()
        self.former = [fate.token for fate in fates(conn, self.world.sandbox, self.moved)]
        conn.execute(
            """update relevo.device_installations set token = 'ExponentPushToken[' || gen_random_uuid() || ']',
                 token_version = token_version + 1 where installation_id = %s""",
            [self._moved_phone],
        )
        assert verbs.cancel(conn, self.ended)
        dying.goes_on()
        reported = dying.ends()
        conn.execute("update relevo.workers set stopped_at = now() where role = 'run-cycle'")
        return reported

    def check(self, point: object) -> None:
        """Look at phones and rows: nothing went to a cancelled event or a former token, and all else came once."""
        conn, sandbox = self.world.conn, self.world.sandbox
        seen = sandbox.phones()
        assert [seen[token] for token in self.former if token in seen] == [], point
        assert [(fate.status, fate.received) for fate in fates(conn, sandbox, self.ended)] == [("cancelled", 0)], point
        for event in (self.moved, self.again):
            assert [(fate.status, fate.received) for fate in fates(conn, sandbox, event)] == [("ok", 1)], point
        [once] = fates(conn, sandbox, self.once)
        assert (once.status, once.received) in (("ok", 1), ("unknown", 0)), point


def test_dispatch_survives_a_kill_where_something_changed_since_the_claim(world, sandbox) -> None:
    """What stands in the way at the last look holds back itself alone, wherever the process dies that finds it: before a
    request is begun nothing is sent, so that nothing comes twice and only at most once is given up."""
    here = world(push_rate_per_second=0, push_chunk_size=4)
    played = [(Changed(here, "whole"), "no kill")]
    reported = played[0][0].play(None)
    points = [each for each in kill_points(reported) if each["name"].removeprefix("COMMIT of ").startswith(CHANGED)]
    assert reported["counts"].keys() >= set(CHANGED)
    assert points
    for n, point in enumerate(points):
        here.clear_up("fanout", "dispatch")
        scene = Changed(here, f"killed {n}")
        assert scene.play(point)["signal"] == SIGKILL, point
        played.append((scene, point))
    here.clear_up("fanout", "dispatch")
    here.clear_up("receipt")
    for each, point in played:
        each.check(point)
    assert sandbox.totals()["duplicates"] == 0


NEARLY_EMPTY = """
insert into relevo.projects (project, filled_at, urgent_tokens, bulk_tokens, rate_share)
values (%s, now() + interval '30 seconds', 0, 0, 0.01)
"""
"""A bucket that gets nothing for a while, and little afterwards: not worth waiting for, however slow the machine is."""


def test_every_statement_is_covered_or_excused(world, conn) -> None:
    """A statement that no scenario executes is named above with its reason, and no other is."""
    here = world(push_rate_per_second=50)
    Scene(here, "all")
    sending = here.kill("dispatch", None)["counts"]
    asking = here.kill("receipt", None)["counts"]
    conn.execute(NEARLY_EMPTY, ["waiting"])
    Scene(here, "waiting")
    waiting = here.kill("dispatch", None)["counts"]
    assert uncovered(sending, asking, waiting, TROUBLE, REAPED, REQUEUED, CHANGED) == NOT_COVERED.keys(), (
        "extend the scenario, or say why not"
    )
