"""What holds a project back: its bucket, breaker, brakes and connections; that it goes on by itself, and can be seen."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import psycopg
import pytest
from relaying import Relay, at_once, beside

from processes import PATIENCE_S, eventually
from relevo.core.errors import DatabaseUnavailableError, UsageError
from relevo.core.model import Reply, Step
from relevo.cycles.dispatch.claiming import Claiming, PendingClaim
from relevo.delivery.connection_leases import ConnectionLease
from relevo.delivery.report import Report
from relevo.operators import actions, events, fleet
from relevo.operators.actions import DeadLetters
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

PROJECT = "@relevo/app"
"""The sandbox's name for the project of a token without a word."""


def peak(worker: Relay) -> int:
    """Return the most requests that were in flight at once."""
    return int(worker.sandbox.totals()["peakConnections"].get(PROJECT, 0))


def problems(worker: Relay) -> str:
    """Return what is wrong with projects, as `relevo status` tells it."""
    found = fleet.health(worker.app.database, worker.app.settings).problems
    return "; ".join(problem for problem in found if problem.startswith("project"))


def duration(workers: list[Relay]) -> float:
    """Let workers send at once, and return how many seconds that took."""
    began = time.monotonic()
    at_once(*(worker.dispatch for worker in workers))
    return time.monotonic() - began


def counted_looks(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note when a worker looks for due lanes."""
    looks: list[float] = []
    projects = worker.app.services.projects
    look = projects.due_lanes

    def due_lanes(now: Any = None) -> Any:
        looks.append(time.monotonic())
        return look(now)

    monkeypatch.setattr(projects, "due_lanes", due_lanes)
    return looks


def counted_unlocked(workers: list[Relay], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note what workers take without a lock, which they try first, having leased their connections a moment ago."""
    taken: list[Any] = []
    for worker in workers:
        projects = worker.app.services.projects
        projects.connections._leased["default"] = ConnectionLease(
            "default", 60_000, 2, taken_at=math.inf, since=math.inf
        )

        def reserve_unlocked(*asked: Any, reserve: Any = projects._reserve_unlocked) -> Any:
            allowance = reserve(*asked)
            taken.extend([allowance] if allowance else [])
            return allowance

        monkeypatch.setattr(projects, "_reserve_unlocked", reserve_unlocked)
    return taken


class TestBucket:
    """The rate, shared by the fleet."""

    def test_two_workers_share_one_rate(self, relay, sandbox) -> None:
        """A service that bears 300 a second is never asked for more, and gets nearly that."""
        sandbox.set(rate_per_s=300)
        workers = [relay(push_rate_per_second=300, push_chunk_size=20) for _ in range(2)]
        first = workers[0]
        first.add_phones(500)
        first.tell_everyone()
        took = duration(workers)
        first.everyone_received(1)
        assert sandbox.totals()["rateLimited"] == 0
        assert took >= (500 - 40) / 300 * 0.9
        assert first.project()["rate_share"] == 1.0
        sandbox.set(rate_per_s=0)
        first.tell_everyone()
        unlimited = duration([relay(push_chunk_size=20) for _ in range(2)])
        assert took <= 500 / 300 * 1.5 + 3 * unlimited, "most of the rate is used"
        assert first.project()["rate_share"] == 1.0

    def test_of_tokens_that_many_want_each_is_taken_once(self, relay, conn, monkeypatch) -> None:
        """Three workers with two threads each take what they saw without a lock, if it is as they saw it: none is taken
        twice, and none is left."""
        workers = [relay(push_rate_per_second=600) for _ in range(3)]
        for worker in workers:
            worker.app.services.projects.reserve("default", "bulk", 1)  # from then on the row is there
        conn.execute(  # from a clock that is ahead: nothing is added meanwhile
            "update relevo.projects set bulk_tokens = 60, urgent_tokens = 0, filled_at = now() + interval '1 minute'"
        )
        unlocked = counted_unlocked(workers, monkeypatch)

        def take(worker: Relay) -> int:
            taken = 0
            while grant := worker.app.services.projects.reserve("default", "bulk", 1).grant.count:
                taken += grant
            return taken

        got = at_once(*(lambda worker=each: take(worker) for each in workers * 2))
        assert sum(got) == 60
        assert conn.execute("select bulk_tokens from relevo.projects").fetchall() == [(0,)]
        assert unlocked

    def test_a_service_that_bears_less_is_adapted_to(self, relay, sandbox) -> None:
        """A 429 halves the rate; everything arrives once in the end, without an attempt spent for it."""
        sandbox.set(rate_per_s=40)
        worker = relay(push_rate_per_second=600, push_chunk_size=20)
        worker.add_phones(150)
        worker.tell_everyone()

        def done() -> bool:
            worker.dispatch(at_most_s=5)
            return worker.states() == {"sent": 150}

        eventually(done, "all are sent")
        worker.everyone_received(1)
        assert {row["attempt_count"] for row in worker.deliveries()} == {1}
        assert 1 <= sandbox.totals()["rateLimited"] <= 12
        assert worker.project()["rate_share"] < 1

    def test_nothing_is_claimed_while_it_is_empty(self, relay, conn) -> None:
        """Not a delivery is marked; the run says how long it takes to fill; and claiming resumes by itself."""
        worker = relay(push_rate_per_second=1, push_chunk_size=10)
        worker.add_phones(20)
        worker.tell_everyone()
        worker.clock.stop()
        worker.dispatch(at_most=1)
        assert worker.states() == {"sent": 1, "pending": 19}
        conn.execute("update relevo.projects set rest_until = now() + interval '1 hour'")
        before = worker.deliveries()
        report = worker.dispatch()
        assert report.outcome == "idle"
        assert 3_000 <= report.due_in_s <= 3_700
        assert worker.deliveries() == before
        worker.travel(hours=1, seconds=5)
        worker.dispatch(at_most=1)
        assert worker.states() == {"sent": 2, "pending": 18}

    def test_nobody_looks_again_and_again_while_it_fills(self, relay, monkeypatch) -> None:
        """A run that waits for its rate looks a few times for each request it makes, not twenty times a second."""
        worker = relay(push_rate_per_second=10, push_chunk_size=10)
        looks = counted_looks(worker, monkeypatch)
        worker.add_phones(40)
        worker.tell_everyone()
        worker.dispatch()
        worker.everyone_received(1)
        assert worker.posts() >= 3
        assert len(looks) <= 6 * worker.posts(), "one that looks every 50 ms looks twenty times for each"

    def test_who_waits_hears_of_others_work(self, relay, conn, monkeypatch) -> None:
        """A run that waits says that it is to be woken, and a call makes it look: other projects do not wait with it."""
        monkeypatch.setattr("relevo.cycles.dispatch.lanes._LONGEST_REST_S", 3_600.0)
        worker = relay()
        worker.tell("ana")
        conn.execute(
            "insert into relevo.push_connections (project, worker_id, connections, leased_until)"
            " values ('default', 'other', %s, now() + interval '1 hour')",
            [worker.app.settings.outbox_concurrency],
        )
        asleep = "select from relevo.cycle_state where cycle = 'dispatch' and asleep"
        with beside(worker.dispatch):
            eventually(lambda: worker.rows(asleep), "the run says that it rests")
            worker.add_phones(1, "elsewhere", project="elsewhere")
            worker.tell("elsewhere0")
            worker.app.runner.call(worker.app.registry["dispatch"])
            eventually(lambda: worker.received("elsewhere0"), "the other project's push is sent")
            assert worker.received("ana") == 0
            conn.execute("delete from relevo.push_connections where worker_id = 'other'")
        worker.everyone_received(1)

    def test_each_project_has_its_own(self, relay) -> None:
        """One whose bucket is empty holds up no other."""
        worker = relay(push_rate_per_second=100, push_chunk_size=10)
        worker.add_phones(5, "a", "!project=@acme/a", project="@acme/a")
        worker.add_phones(5, "b", "!project=@acme/b", project="@acme/b")
        worker.tell("a0!project=@acme/a")
        worker.dispatch()
        worker.conn.execute("update relevo.projects set rest_until = now() + interval '1 hour'")
        worker.tell_everyone()
        worker.dispatch()
        assert {row["status"] for row in worker.deliveries() if row["project"] == "@acme/b"} == {"sent"}
        assert {row["status"] for row in worker.deliveries()[1:] if row["project"] == "@acme/a"} == {"pending"}

    def test_no_run_ends_before_what_it_took_in_vain_is_back(self, relay, monkeypatch) -> None:
        """Tokens reserved for what another worker claims are given back when the run is over, however long it takes."""
        worker = relay(push_rate_per_second=100, worker_event_types=["another"])
        worker.tell("ana")
        worker.clock.stop()
        projects, returned = worker.app.services.projects, list[int]()
        give_back = projects.give_back

        def slowly(project: str, lane: Any, count: int, now: Any = None) -> None:
            time.sleep(0.2)
            give_back(project, lane, count, now)
            returned.append(count)

        monkeypatch.setattr(projects, "give_back", slowly)
        worker.dispatch()
        assert returned
        assert returned[0] > 0

    def test_a_claim_that_nobody_waits_for_is_handed_back(self, relay) -> None:
        """One that comes back after it was given up keeps neither its deliveries nor its tokens, and sends nothing."""
        worker = relay(push_rate_per_second=100)
        worker.tell("ana")
        worker.tell("bob")
        worker.clock.stop()
        worker.dispatch(at_most=1)
        before = worker.project()["bulk_tokens"]
        (lane,) = worker.app.services.projects.due_lanes(worker.clock())

        def step(run: Run) -> Step:
            claim = PendingClaim(lane, 10)
            claim.result.cancel()
            Claiming(worker.app.services, run, Report()).reserve_and_claim(claim)
            return Step()

        worker.app.runner.run(Cycle("probe", Every(60_000), step), "manual")
        assert (worker.states(), worker.claims(), worker.posts()) == ({"sent": 1, "pending": 1}, 0, 1)
        assert worker.project()["bulk_tokens"] == before
        worker.dispatch()
        worker.everyone_received(1)


class TestBreaker:
    """Open, half-open, closed."""

    def test_open_probe_reopen_close_and_ramp(self, relay, sandbox) -> None:
        """Nothing while it is open; then one; if that fails a longer pause; if it goes well the rest, at a quarter's rate."""
        worker = relay()
        worker.add_phones(30)
        worker.tell_everyone()
        sandbox.add_fault("401")
        worker.dispatch()
        assert worker.project()["breaker"] == "open"
        posts = worker.posts()
        worker.travel(seconds=20)
        report = worker.dispatch()
        assert (report.outcome, worker.posts(), worker.claims()) == ("idle", posts, 0)
        assert 0 < report.due_in_s <= 11, "until the probe"
        sandbox.reset()
        worker.travel(seconds=11)
        worker.dispatch()
        assert sandbox.totals()["messages"] == 1, "a probe is one push"
        project = worker.project()
        assert (project["breaker"], project["trips"]) == ("open", 2)
        assert round((project["probe_at"] - project["breaker_since"]).total_seconds()) == 60
        sandbox.clear_faults()
        worker.travel(seconds=61)
        worker.drain()
        worker.everyone_received(1)
        project = worker.project()
        assert (project["breaker"], project["trips"]) == ("closed", 0)
        assert project["rate_share"] < 0.3
        assert worker.incidents() == ["breaker_opened", "breaker_opened", "breaker_closed"]

    def test_two_workers_send_one_probe(self, relay, sandbox) -> None:
        """The fleet decides on one row: at once, exactly one push is tried."""
        workers = [relay() for _ in range(2)]
        first = workers[0]
        first.add_phones(10)
        first.tell_everyone()
        sandbox.add_fault("InvalidCredentials")
        first.dispatch()
        sandbox.reset()
        first.travel(seconds=31)
        at_once(*(worker.dispatch for worker in workers))
        assert sandbox.totals()["messages"] == 1
        assert {(row["status"], row["attempt_count"]) for row in first.deliveries()} == {("pending", 0)}

    def test_an_outage_opens_it_after_some_failures(self, relay, sandbox) -> None:
        """One or two accidents do not, though health tells of two; so many in a row do; what was not tried spent nothing."""
        worker = relay(push_breaker_failures=3)

        def told() -> list[str]:
            return [each.code for each in fleet.health(worker.app.database, worker.app.settings).problems]

        sandbox.add_fault("503", times=2)
        worker.tell("a")
        worker.dispatch()
        worker.tell("b")
        worker.dispatch()
        assert (worker.project()["breaker"], worker.project()["failures"]) == ("closed", 2)
        assert "requests_failing" in told()
        worker.tell("c")
        worker.dispatch()
        assert (worker.project()["breaker"], worker.project()["failures"]) == ("closed", 0), "a success forgets them"
        assert "requests_failing" not in told()
        sandbox.add_fault("503")
        for name in ("d", "e", "f", "g"):
            worker.tell(name)
            worker.dispatch()
        assert worker.project()["breaker"] == "open"
        assert (worker.delivery("g")["status"], worker.delivery("g")["attempt_count"]) == ("pending", 0)

    def test_no_connection_counts_as_an_outage(self, relay) -> None:
        """A service that is not there opens it as well, and nothing is spent."""
        worker = relay(expo_base_url="http://127.0.0.1:9", push_breaker_failures=2, push_chunk_size=1)
        worker.tell("a", "b", "c")
        worker.dispatch()
        assert worker.project()["breaker"] == "open"
        assert {(row["status"], row["attempt_count"]) for row in worker.deliveries()} == {("pending", 0)}

    def test_one_project_does_not_hold_up_another(self, relay) -> None:
        """A project with bad credentials stands still; the other goes on."""
        worker = relay()
        worker.add_phones(3, "bad", "!InvalidCredentials!project=@acme/bad", project="@acme/bad")
        worker.add_phones(3, "good", "!project=@acme/good", project="@acme/good")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.states() == {"pending": 3, "sent": 3}
        assert (worker.project("@acme/bad")["breaker"], worker.project("@acme/good")["breaker"]) == ("open", "closed")

    def test_it_resumes_by_itself_in_a_running_worker(self, relay, sandbox, rules) -> None:
        """Round after round, with short pauses: nobody has to do anything but mend the credentials."""
        rules(breaker_pause_ms=100, breaker_pause_max_ms=200)
        worker = relay()
        worker.add_phones(10)
        worker.tell_everyone()
        sandbox.add_fault("403", times=2)

        def done() -> bool:
            worker.dispatch()
            return worker.states() == {"sent": 10}

        eventually(done, "all are sent")
        worker.everyone_received(1)
        assert worker.project()["breaker"] == "closed"


class TestPruningBrake:
    """Too many tokens are said to be gone."""

    @pytest.mark.parametrize(
        ("gone", "there", "trips"), [(49, 0, False), (50, 0, True), (50, 200, False), (51, 200, True)]
    )
    def test_when_it_trips(self, relay, gone: int, there: int, trips: bool) -> None:
        """At least fifty and more than a fifth: then no token is disabled, and their pushes can be redriven."""
        worker = relay()
        worker.add_phones(gone, "gone", "!DeviceNotRegistered")
        worker.add_phones(there, "there")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.states() == {"failed" if trips else "invalid": gone} | ({"sent": there} if there else {})
        assert worker.disabled() == (0 if trips else gone)
        assert (worker.project()["pruning_stopped_at"] is not None) == trips
        assert ("unregistered" in problems(worker)) == trips

    def test_it_is_released_by_itself(self, relay) -> None:
        """Once the window has passed and answers are normal, tokens are disabled again, and that is told."""
        worker = relay()
        worker.add_phones(60, "gone", "!DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.disabled() == 0
        worker.travel(minutes=11)
        worker.tell("fine", "gone0!DeviceNotRegistered")
        worker.dispatch()
        assert worker.disabled() == 1
        assert worker.project()["pruning_stopped_at"] is None
        assert worker.incidents() == ["pruning_stopped", "pruning_resumed"]

    def test_what_it_doubts_can_be_sent_again(self, relay, sandbox) -> None:
        """The credentials were another app's: once they are right and the brake is released, a redrive loses none."""
        worker = relay()
        worker.add_phones(60)
        worker.tell_everyone()
        sandbox.add_fault("DeviceNotRegistered")
        worker.dispatch()
        codes = {(row["status"], row["last_error_code"]) for row in worker.deliveries()}
        assert codes == {("failed", "DeviceNotRegistered")}
        assert worker.rows("select distinct became from relevo.failed_attempts") == [{"became": "failed"}]
        sandbox.clear_faults()
        actions.release_project(worker.app.database, "default")
        assert actions.redrive(worker.app.database, DeadLetters(error_code="DeviceNotRegistered")) == 60
        worker.drain()
        worker.everyone_received(1)

    def test_a_malformed_token_is_not_doubted(self, relay) -> None:
        """No credentials make it a token: while the brake is on, a push to it ends as invalid all the same."""
        worker = relay()
        worker.add_phones(60, "gone", "!DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        worker.tell("ana")
        worker.conn.execute("update relevo.device_installations set token = 'none' where token like '%[ana]'")
        worker.dispatch()
        assert worker.states() == {"failed": 60, "invalid": 1}

    def test_sending_goes_on(self, relay) -> None:
        """The brake stops pruning, not pushes."""
        worker = relay()
        worker.add_phones(60, "gone", "!DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        worker.tell("fine")
        worker.dispatch()
        assert worker.received("fine") == 1


class TestOperators:
    """What can be seen and done."""

    def test_status_shows_what_holds_a_project_up(self, relay, command) -> None:
        """Breaker and reason, rate and answers of the last minutes; and `relevo status` is not healthy."""
        worker = relay()
        worker.reap()
        worker.tell("ana")
        worker.dispatch()
        (row,) = fleet.status(worker.app.database, worker.app.settings).projects
        assert (row["project"], row["breaker"], row["sent"], row["answers"]) == ("default", "closed", 1, 1)
        assert command("status").code == 0
        worker.tell(*(f"p{n}!InvalidCredentials" for n in range(5)))
        worker.dispatch()
        seen = fleet.status(worker.app.database, worker.app.settings)
        assert (seen.projects[0]["breaker"], seen.health.ok) == ("open", False)
        assert "InvalidCredentials" in problems(worker)
        said = command("status")
        assert said.code == 1
        assert "InvalidCredentials" in said.out + said.err

    def test_release_probes_a_breaker_at_once(self, relay, sandbox, command) -> None:
        """It is not closed blindly: one push goes first, and if that goes well the rest."""
        worker = relay()
        worker.add_phones(5)
        worker.tell_everyone()
        sandbox.add_fault("401")
        worker.dispatch()
        assert (
            "A probe of default goes out now; once it is taken, the rest follows" in command("release", "default").out
        )
        sandbox.reset()
        worker.dispatch()
        assert (sandbox.totals()["messages"], worker.project()["breaker"]) == (1, "open")
        sandbox.clear_faults()
        actions.release_project(worker.app.database, "default")
        worker.drain()
        worker.everyone_received(1)

    def test_release_tells_what_was_on(self, relay, command) -> None:
        """A brake on tokens had stopped no push, and a rate none: neither is called so; then nothing is left."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()
        worker.conn.execute("update relevo.projects set pruning_stopped_at = now()")
        told = command("release", "default").out
        assert "The brake on disabling tokens of default is off; it had not stopped sending." in told
        assert "relevo redrive --error-code DeviceNotRegistered --project default" in told
        worker.conn.execute("update relevo.projects set rate_share = 0.5")
        assert "default sends at its full rate again" in command("release", "default").out
        assert "Nothing held default up." in command("release", "default").out

    def test_release_takes_the_pruning_brake_off(self, relay) -> None:
        """After it tokens are disabled again, as if nothing had been said before."""
        worker = relay()
        worker.add_phones(60, "gone", "!DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        actions.release_project(worker.app.database, "default")
        assert problems(worker) == ""
        worker.tell("gone0!DeviceNotRegistered")
        worker.dispatch()
        assert worker.disabled() == 1

    def test_release_of_nobody(self, relay) -> None:
        """A project that is not there is wrong usage; one that nothing held is told so, and no incident."""
        worker = relay()
        with pytest.raises(UsageError, match="no project nowhere"):
            actions.release_project(worker.app.database, "nowhere")
        worker.tell("ana")
        worker.dispatch()
        assert not actions.release_project(worker.app.database, "default")
        assert worker.incidents() == []

    def test_the_story_of_an_event_tells_of_it(self, relay, sandbox) -> None:
        """What happened to its project while it was sent stands in its saga."""
        worker = relay()
        event = worker.tell("ana")
        sandbox.add_fault("401", times=1)
        worker.dispatch()
        actions.release_project(worker.app.database, "default")
        worker.drain()
        reported = [moment.what for moment in events.story(worker.app.database, event).moments]
        assert reported.index("breaker opened") < reported.index("breaker closed")
        assert "first push sent" in reported


class TestConnections:
    """OUTBOX_CONCURRENCY: so many requests at once for one project, in the whole fleet."""

    @pytest.mark.parametrize("most", [6, 2, 1])
    def test_two_workers_together(self, relay, sandbox, most: int) -> None:
        """Never more than the setting, whoever sends; everything arrives once."""
        sandbox.set(latency_ms=30)
        workers = [relay(outbox_concurrency=most, push_chunk_size=2) for _ in range(2)]
        first = workers[0]
        first.add_phones(50)
        first.tell_everyone()
        at_once(*(worker.dispatch for worker in workers))
        first.drain(1)
        first.everyone_received(1)
        assert 1 <= peak(first) <= most

    def test_one_worker_uses_all_of_them(self, relay, sandbox) -> None:
        """Alone it need not share: six requests at once."""
        six = threading.Barrier(6)

        def meet(_context: Any, send: Any) -> Reply:
            six.wait(PATIENCE_S)
            return send()

        worker = relay(push_chunk_size=1, push_middlewares=[meet])
        worker.add_phones(30)
        worker.tell_everyone()
        worker.dispatch()
        worker.everyone_received(1)
        assert peak(worker) <= 6

    def test_a_worker_that_comes_later(self, relay, sandbox) -> None:
        """While the first has six requests under way, a second one must wait for its share, not exceed the bound."""
        sandbox.set(latency_ms=450)  # about as long as whoever found none free waits before it looks again
        first = relay(push_chunk_size=1)
        first.add_phones(36)
        first.tell_everyone()
        with beside(first.dispatch):
            eventually(lambda: peak(first) >= 6, "six are under way")
            second = relay(push_chunk_size=1)
            second.dispatch()
        first.everyone_received(1)
        assert peak(first) <= 6

    def test_what_is_in_flight_is_not_shared_yet(self, relay) -> None:
        """A worker that holds six busy connections when a second one joins keeps all of them until some are free."""
        first = relay()
        now = first.clock.now()

        def leased(worker: Relay, in_flight: int) -> int:
            projects = worker.app.services.projects
            return projects.reserve("default", "bulk", 100, now, in_flight=in_flight).connections

        assert leased(first, 0) == 6
        second = relay()
        assert (leased(first, 6), leased(second, 0)) == (3, 0), "from the next request on it uses three"
        assert (leased(first, 4), leased(second, 0)) == (3, 0)
        assert (leased(first, 3), leased(second, 0)) == (3, 3)
        ((held,),) = first.conn.execute("select sum(connections) from relevo.push_connections").fetchall()
        assert held == 6

    @pytest.mark.parametrize(
        "gone",
        ["stopped_at = now()", "lost_at = now()", "last_seen_at = now() - interval '1 day'", "cycles = '{receipt}'"],
    )
    def test_only_who_sends_has_a_share(self, relay, conn, gone: str) -> None:
        """A worker that stopped, was lost, fell silent, or does not send leaves all connections to the others."""
        first, second = relay(), relay()
        projects = first.app.services.projects
        assert projects.reserve("default", "bulk", 100, first.clock.now()).connections == 3
        conn.execute(f"update relevo.workers set {gone} where worker_id = %s", [second.app.worker.worker_id])
        assert projects.reserve("default", "bulk", 100, first.clock.now()).connections == 6

    def test_a_worker_that_only_asks_for_receipts_keeps_none(self, relay) -> None:
        """When it has asked, another worker's dispatch finds connections free."""
        asking, sending = relay(cycles=["receipt"]), relay()
        sending.tell("ana")
        sending.dispatch()
        asking.ask()
        assert sending.delivery("ana")["status"] == "ok"
        sending.tell("bob", lane="urgent")
        sending.dispatch()
        assert sending.delivery("bob")["status"] == "sent"

    def test_a_run_that_stays_keeps_none_that_others_lack(self, relay, monkeypatch) -> None:
        """Where there are more workers than connections, one that waits for more to do leaves its own to the others."""
        monkeypatch.setattr("relevo.runtime.idle_wait._LONGEST_S", PATIENCE_S)
        first, second = (relay(outbox_concurrency=1, worker_stay_ms=60_000) for _ in range(2))
        runner, cycle = first.app.runner, first.app.registry["dispatch"]
        first.tell("ana")
        with beside(lambda: runner.run(cycle, "schedule", idle_mode="asleep")) as reports:
            eventually(lambda: first.received("ana"), "it is sent")
            eventually(lambda: not first.rows("select from relevo.push_connections"), "its connection is free")
            assert first.rows("select from relevo.worker_runs where outcome = 'running'"), "though it stays"
            projects = second.app.services.projects
            assert projects.reserve("default", "bulk", 1).connections == 1
            projects.drop_connections("default", "dispatch")
            first.tell("ana")
            runner.call(cycle)
            eventually(lambda: first.received("ana") == 2, "it takes it again")
            runner.stopping.set()
            runner.call(cycle)
        assert [report.counts["notifications_sent"] for report in reports] == [2]

    def test_who_is_called_ahead_has_its_own_by_then(self, relay, conn, monkeypatch) -> None:
        """It leases those of the project it served last before there is anything to send, and gives them back."""
        worker = relay(worker_stay_ms=1_000)
        worker.tell("ana")
        worker.dispatch()
        monkeypatch.setattr("relevo.runtime.runner._AHEAD_S", PATIENCE_S)
        runner, cycle = worker.app.runner, worker.app.registry["dispatch"]
        looks = counted_looks(worker, monkeypatch)
        with beside(lambda: runner.run(cycle, "wake-up", idle_mode="ahead")) as reports:
            leased = "select connections from relevo.push_connections where project = 'default'"
            assert eventually(lambda: worker.rows(leased), "it has them") == [{"connections": 6}]
            assert not looks, "it does not look before it is called"
            conn.execute("update relevo.projects set breaker = 'closed' where project = 'default'")  # a new version
            worker.tell("ana")
            runner.call(cycle)
            eventually(lambda: worker.received("ana") == 2, "it is sent")
            runner.stopping.set()
            runner.call(cycle)
        assert [report.counts["notifications_sent"] for report in reports] == [1]
        assert not worker.rows("select from relevo.push_connections")

    def test_who_is_called_ahead_in_vain_has_looked_once(self, relay, monkeypatch) -> None:
        """No call comes: it looks all the same before it ends, idle, and keeps nothing."""
        worker = relay(worker_stay_ms=1_000)
        worker.tell("ana")
        worker.dispatch()
        looks = counted_looks(worker, monkeypatch)
        report = worker.app.runner.run(worker.app.registry["dispatch"], "wake-up", idle_mode="ahead")
        assert (report.outcome, len(looks)) == ("idle", 1)
        assert not worker.rows("select from relevo.push_connections")

    def test_what_could_not_be_got_ready_is_done_by_the_claim(self, relay, monkeypatch) -> None:
        """A connection that is lost meanwhile costs the run nothing."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()

        def lose(*_args: object, **_more: object) -> None:
            raise DatabaseUnavailableError("The connection to PostgreSQL was lost.")

        monkeypatch.setattr(worker.app.services.projects, "get_ready", lose)
        worker.tell("ana")
        report = worker.app.runner.run(worker.app.registry["dispatch"], "wake-up", idle_mode="ahead")
        assert (report.outcome, report.counts["notifications_sent"]) == ("ok", 1)

    @pytest.mark.parametrize("limited", [0, 600])
    def test_what_was_seen_ahead_is_good_for_one_claim(self, relay, conn, limited: int) -> None:
        """Tokens are taken of what was seen ahead, once, and only if nothing changed since."""
        worker = relay(push_rate_per_second=limited)
        projects = worker.app.services.projects
        assert projects.served is None
        assert projects.reserve("default", "bulk", 10).grant.count == 10
        assert projects.served == "default"
        projects.drop_connections("default", "dispatch")
        assert projects.get_ready("default") == []
        version = "select xmin::text from relevo.projects where project = 'default'"
        before = worker.rows(version)
        assert projects.reserve("default", "bulk", 10).connections == 6
        assert (worker.rows(version) != before) is bool(limited), "tokens are taken where there are any"
        assert projects.get_ready("default") == []
        conn.execute("update relevo.projects set rest_until = now() + interval '1 hour' where project = 'default'")
        after = projects.reserve("default", "bulk", 10).grant
        assert not limited or (after.count, after.why) == (0, "rest"), "that it rests is found out"

    def test_those_taken_ahead_are_a_fair_share(self, relay, conn) -> None:
        """As many as at the time of a claim: of all that others leave, and none while one of ours is in flight."""
        first, second = relay(), relay()
        projects = first.app.services.projects
        assert projects.reserve("default", "bulk", 1).connections == 3
        conn.execute(
            "insert into relevo.push_connections values ('default', 'other', 4, now() + interval '60 seconds')"
        )

        def held() -> list[int]:
            statement = "select connections from relevo.push_connections where worker_id = %s"
            return [row["connections"] for row in first.rows(statement, first.app.worker.worker_id)]

        projects.drop_connections("default", "dispatch")
        assert (projects.get_ready("default", in_flight=1), held()) == (None, [])
        assert (projects.get_ready("default"), held()) == ([], [2])
        projects.drop_connections("default", "dispatch")
        conn.execute("update relevo.push_connections set connections = 6 where worker_id = 'other'")
        assert (projects.get_ready("default"), held()) == (None, [])
        conn.execute("delete from relevo.push_connections")
        special = "update relevo.workers set composers = '{special}' where worker_id = %s"
        conn.execute(special, [second.app.worker.worker_id])
        assert (projects.get_ready("default"), held()) == (["special"], [3])

    def test_a_single_one_is_not_taken_ahead_again(self, relay) -> None:
        """Workers came meanwhile: who finds its share to be one leaves it to those who have something to send."""
        worker = relay(outbox_concurrency=2)
        projects = worker.app.services.projects
        assert (projects.reserve("default", "bulk", 1).connections, projects.served) == (2, "default")
        projects.drop_connections("default", "dispatch")
        relay(outbox_concurrency=2)
        assert projects.get_ready("default") == []
        assert projects.served is None

    def test_nobody_waits_for_them_ahead(self, relay, conn) -> None:
        """While somebody else decides about the project, nothing is taken."""
        worker = relay()
        projects = worker.app.services.projects
        assert projects.reserve("default", "bulk", 1).connections == 6
        projects.drop_connections("default", "dispatch")
        with conn.transaction():
            conn.execute("select from relevo.projects where project = 'default' for no key update")
            assert projects.get_ready("default") is None

    def test_no_request_begins_without_a_leased_connection(self, relay, conn) -> None:
        """A process that stood still while others took its connections, or whose lease has too little left for a
        request, sends nothing: what it had claimed waits, unspent, and goes out with the next lease."""

        def lose(_context: Any, send: Any) -> Reply:
            if not lost:
                lost.append(True)
                conn.execute("update relevo.push_connections set leased_until = now() - interval '1 second'")
                worker.app.heartbeat.beat()
            return send()

        lost: list[bool] = []
        worker: Relay = relay(push_middlewares=[lose])
        worker.tell("ana")
        worker.dispatch(at_most=1)
        found = worker.delivery("ana")
        assert (worker.received("ana"), found["status"], found["attempt_count"]) == (0, "pending", 0)
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.received("ana"), worker.delivery("ana")["status"]) == (1, "sent")

    def test_connections_are_kept_while_they_are_used(self, relay, conn) -> None:
        """A batch that lasts longer than a lease keeps its connections: the heartbeat extends their lease, but not
        once it ran out, or once they were left to requests that hang."""
        worker: Relay = relay()
        projects, beat = worker.app.services.projects, worker.app.heartbeat.beat
        left = "select extract(epoch from leased_until - now())::float8 from relevo.push_connections"

        def renewed() -> bool:
            conn.execute("update relevo.push_connections set leased_until = now() + interval '5 seconds'")
            beat()
            ((seconds,),) = conn.execute(left).fetchall()
            return bool(seconds > 10)

        assert projects.reserve("default", "bulk", 1).connections == 6
        assert renewed()
        projects.drop_connections("default", "dispatch", in_flight=1)
        assert not renewed()
        assert projects.reserve("default", "bulk", 1).connections == 6
        assert renewed()
        assert projects.connections.may_connect("default")
        conn.execute("update relevo.push_connections set leased_until = now()")
        beat()
        assert not projects.connections.may_connect("default")
        assert not renewed()
        assert projects.reserve("default", "bulk", 1).connections == 6
        assert projects.connections.may_connect("default"), "what is lost is leased again, not remembered"

    def test_a_beat_that_missed_a_lease_takes_no_newer_one(self, relay, conn) -> None:
        """A process that stood still leases its connections anew while a beat finds the old lease gone: it has them, and
        journals nothing that it may not send."""
        worker: Relay = relay()
        projects, heartbeat = worker.app.services.projects, worker.app.heartbeat
        projects.reserve("default", "bulk", 1)
        lease = projects.connections._leased["default"]
        lease.taken_at = lease.since = -math.inf
        conn.execute("update relevo.push_connections set leased_until = now()")
        heartbeat.announce(lambda _: projects.reserve("default", "bulk", 1))  # it has looked, and has not said so yet
        heartbeat.beat()
        assert projects.connections.may_connect("default")

    def test_a_lease_that_was_not_committed_is_none(self, relay, conn, monkeypatch) -> None:
        """A transaction that fails after it took connections leaves nothing behind, in this process neither."""
        worker: Relay = relay(push_rate_per_second=100)
        projects = worker.app.services.projects
        monkeypatch.setattr("relevo.delivery.projects._Locked.save", lambda *_: conn.execute("select 1 / 0"))
        for _ in range(2):
            with pytest.raises(psycopg.errors.DivisionByZero):
                projects.reserve("default", "bulk", 1)
        assert worker.rows("select from relevo.push_connections") == []
        assert (projects.connections.leased_lately("default"), projects.connections.may_connect("default")) == (
            0,
            False,
        )

    def test_a_dead_workers_connections_come_back(self, relay, conn) -> None:
        """Their lease expires like every other: another worker can send then."""
        worker = relay()
        worker.tell("ana")
        conn.execute("insert into relevo.push_connections values ('default', 'dead', 6, now() + interval '60 seconds')")
        worker.dispatch(at_most_s=0.5)
        assert worker.delivery("ana")["status"] == "pending"
        worker.travel(seconds=61)
        worker.dispatch()
        assert worker.received("ana") == 1

    def test_projects_do_not_share_them(self, relay, sandbox) -> None:
        """A slow project's requests leave the other's connections alone."""
        both = threading.Barrier(2)

        def meet(_context: Any, send: Any) -> Reply:
            both.wait(PATIENCE_S)
            return send()

        worker = relay(push_chunk_size=1, outbox_concurrency=1, push_middlewares=[meet])
        worker.add_phones(4, "a", "!project=@acme/a", project="@acme/a")
        worker.add_phones(4, "b", "!project=@acme/b", project="@acme/b")
        worker.tell_everyone()
        worker.dispatch()
        worker.everyone_received(1)
        assert sandbox.totals()["peakConnections"] | {"@acme/a": 1, "@acme/b": 1} == sandbox.totals()["peakConnections"]


def test_a_slow_service_expires_no_lease(relay, sandbox) -> None:
    """Never more is claimed than can be sent within the lease: requests that take long lapse nothing, double nothing."""
    sandbox.set(latency_ms=750)
    tight = {
        "outbox_lease_duration_ms": 4_500,
        "push_request_timeout_ms": 1_500,
        "reaper_interval_ms": 1_500,
        "worker_shutdown_timeout_ms": 3_000,
    }
    worker = relay(push_chunk_size=2, **tight)
    worker.app.heartbeat.start()
    other = relay(**tight)
    worker.add_phones(48)
    worker.tell_everyone()
    reaped: list[Any] = []
    with beside(worker.dispatch) as ended:

        def look() -> bool:
            reaped.append(other.reap().counts.get("claims_reaped", 0))
            return bool(ended)

        eventually(look, "everything is sent", every=0.1)
    assert sum(reaped) == 0
    worker.everyone_received(1)
    assert {row["lapse_count"] for row in worker.deliveries()} == {0}


def test_stopping_hands_back_the_rest(relay, sandbox) -> None:
    """What is under way comes to its end and is settled; the rest is due again at once, nothing spent, nothing claimed."""
    sent: list[int] = []

    def watch(_context: Any, send: Any) -> Reply:
        reply = send()
        sent.append(1)
        assert len(sent) < 3 or worker.app.runner.stopping.wait(PATIENCE_S)
        return reply

    worker = relay(push_chunk_size=1, outbox_concurrency=2, push_middlewares=[watch])
    worker.add_phones(60)
    worker.tell_everyone()
    with beside(worker.dispatch):
        eventually(lambda: len(sent) >= 3, "some are sent")
        worker.app.runner.stopping.set()
    states = worker.states()
    assert set(states) == {"sent", "pending"}
    assert states["pending"] >= 30
    assert worker.claims() == 0
    assert {row["attempt_count"] for row in worker.deliveries() if row["status"] == "pending"} == {0}
    assert sum(phone["received"] for phone in sandbox.phones().values()) == states["sent"]
