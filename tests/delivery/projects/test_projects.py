"""What holds a project back: its bucket, its breaker and its brakes; that it goes on by itself, and can be seen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.core.model import Step
from relevo.cycles.dispatch.claiming import Claiming, PendingClaim
from relevo.delivery.projects.rate_and_breaker import Project
from relevo.delivery.report import Report
from relevo.operators import actions, events, fleet
from relevo.operators.actions import DeadLetters
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from support.processes import eventually
from support.sending_worker import Relay, at_once, beside, counted_looks

OF_0_3_0 = Path(__file__).parents[2] / "migrations" / "released" / "0.3.0" / "projects.sql"
PROJECT = [each.name for each in fields(Project)]
"""The columns of what is read of a project."""


def problems(worker: Relay) -> str:
    """Return what is wrong with projects, as `relevo status` tells it."""
    found = fleet.status(worker.app.database, worker.app.settings).problems
    return "; ".join(problem for problem in found if "project" in problem)


def duration(workers: list[Relay]) -> float:
    """Let workers send at once, and return how many seconds that took."""
    began = time.monotonic()
    at_once(*(worker.dispatch for worker in workers))
    return time.monotonic() - began


class TestBucket:
    """The rate, shared by the fleet."""

    def test_two_workers_share_one_rate(self, relay) -> None:
        """Two workers together send no faster than the rate, and get all that it allows, however they take turns."""
        workers = [relay(push_rate_per_second=300, push_chunk_size=20) for _ in range(2)]
        first = workers[0]
        first.add_phones(300)
        first.tell_everyone()
        assert duration(workers) >= (300 - 40) / 300 * 0.9
        first.everyone_received(1)
        moment, allowed = first.clock.now() + timedelta(hours=1), 0
        for _ in range(60):
            moment += timedelta(seconds=1 / 60)
            for worker in workers:
                allowed += worker.app.services.projects.reserve("default", "bulk", 4, moment).grant.count
        assert 270 <= allowed <= 330, "within a second"

    def test_of_tokens_that_many_want_each_is_taken_once(self, relay, conn) -> None:
        """Three workers with two threads each take tokens at once: none is taken twice, and none is left."""
        workers = [relay(push_rate_per_second=600) for _ in range(3)]
        for worker in workers:
            worker.app.services.projects.reserve("default", "bulk", 1)  # from then on the row is there
        conn.execute(  # from a clock that is ahead: nothing is added meanwhile
            "update relevo.projects set bulk_tokens = 60, urgent_tokens = 0, filled_at = now() + interval '1 minute'"
        )

        def take(worker: Relay) -> int:
            taken = 0
            while grant := worker.app.services.projects.reserve("default", "bulk", 1).grant.count:
                taken += grant
            return taken

        got = at_once(*(lambda worker=each: take(worker) for each in workers * 2))
        assert sum(got) == 60
        assert conn.execute("select bulk_tokens from relevo.projects").fetchall() == [(0,)]

    def test_who_waited_for_a_project_knows_what_was_noted_meanwhile(self, relay, conn) -> None:
        """While somebody holds a project nobody waits for it; a refusal noted there is known once the project is free."""
        projects = relay(push_rate_per_second=600).app.services.projects
        assert not projects.reserve("default", "bulk", 1).troubled
        conn.execute("begin")
        conn.execute("select from relevo.projects for no key update")
        assert projects.reserve("default", "bulk", 1).grant.why == "locked"
        conn.execute("insert into relevo.refused_events select project, 1, now(), now() from relevo.projects")
        conn.execute("commit")
        assert projects.reserve("default", "bulk", 1).troubled

    def test_a_worker_of_0_3_0_shares_it(self, relay, conn) -> None:
        """What it reads ahead, with its share of the connections, is what we wrote; it takes tokens by what it read, if
        nobody else took some since."""
        projects = relay(push_rate_per_second=600).app.services.projects
        theirs = queries.Statements(OF_0_3_0.read_text(encoding="utf-8"))
        asked = {"project": "default", "worker_id": "old", "most": 1, "lease_ms": 60_000}

        def take(seen: Sequence[Any]) -> int:
            row = dict(zip(PROJECT, seen, strict=False)) | {"version": seen[-1]}
            return conn.execute(theirs["take_tokens"], row | {"bulk_tokens": row["bulk_tokens"] - 1}).rowcount

        assert conn.execute(theirs["lease_ahead"], asked).fetchall() == []  # there is no such project
        projects.reserve("default", "bulk", 1)
        projects.drop_connections("default", "dispatch")
        connections, composed, *ahead = conn.execute(theirs["lease_ahead"], asked).fetchone()
        assert (connections, composed) == (1, [])
        assert take(ahead) == 1
        seen = conn.execute(theirs["look_at_project"], {"project": "default", "now": None}).fetchone()
        assert seen[2] == ahead[2] - 1
        assert projects.reserve("default", "bulk", 1).grant.count == 1
        assert take(seen) == 0

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
        assert (report.outcome, report.counts) == ("partial", {"projects_stopped": 1})
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
        (lane,) = worker.app.services.projects.lanes.read(worker.clock())

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
        assert (report.outcome, worker.posts(), worker.claims()) == ("partial", posts, 0)
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
            return [each.code for each in fleet.status(worker.app.database, worker.app.settings).problems]

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

    @pytest.mark.parametrize("gone", [[], ["gone0!DeviceNotRegistered"]])
    def test_it_is_released_by_itself(self, relay, gone: list[str]) -> None:
        """Once the window has passed and answers are normal, tokens are disabled again, and that is told."""
        worker = relay()
        worker.add_phones(60, "gone", "!DeviceNotRegistered")
        worker.tell_everyone()
        worker.dispatch()
        assert worker.disabled() == 0
        worker.travel(minutes=11)
        worker.tell("fine", *gone)
        worker.dispatch()
        assert worker.disabled() == len(gone)
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
        worker.travel(minutes=11)  # nobody was taken lately: else phones that never worked are not believed
        worker.tell(*(f"p{n}!InvalidCredentials" for n in range(5)))
        worker.dispatch()
        seen = fleet.status(worker.app.database, worker.app.settings)
        assert (seen.projects[0]["breaker"], bool(seen.problems)) == ("open", True)
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
            "A probe of default goes out now. Once its push service takes it, the other pushes follow"
            in command("release", "default").out
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
        assert "The brake on disabling tokens of default was released; sending had not stopped." in told
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
