"""One event's trouble, and one event's size, is its own: the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event
from relevo.core.model import Report
from relevo.operators import events, fleet
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end, one_step, reached
from support.relevo_command import Command, make_command

POISON = """
create function public.poison() returns trigger language plpgsql as $$
begin
  raise exception 'no room for %, password=hunter2', new.notification_event_id;
end $$;
create trigger poison before insert on relevo.notification_deliveries
  for each row when (new.event_type = 'poison') execute function public.poison()
"""


def run_fan_out(app: App) -> Report:
    """Run the fan-out cycle once, whatever it comes to."""
    return app.runner.run(app.registry["fanout"], "manual")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dsn: str) -> Command:
    """The command `relevo`, on the test's database."""
    return make_command(monkeypatch, capsys, dsn)


class TestPoison:
    """An event whose fan-out always fails."""

    @pytest.fixture(autouse=True)
    def _taken_back(self, conn) -> Iterator[None]:
        """Leave the database to the next test as it was."""
        yield
        conn.execute("drop function if exists public.poison cascade")

    @pytest.mark.parametrize("whom", ["everyone", "named"])
    def test_others_are_fanned_out_in_the_same_run(self, build, conn, whom: str) -> None:
        """One event fails, those before and behind it are fanned out, and it is left alone until its next try."""
        phones = add_phones(conn, 3)
        audience = "everyone" if whom == "everyone" else phones
        conn.execute(POISON)
        kinds = ("notice", "poison", "notice")
        made = [verbs.enqueue(conn, Event(kind, str(n), "t", audience=audience)) for n, kind in enumerate(kinds)]
        report = run_fan_out(build())
        assert report.outcome == "partial"
        assert "no room" in report.error
        assert [reached(conn, each.event_id) for each in made] == [phones, [], phones]
        row = event_row(conn, made[1].event_id)
        assert (row["state"], row["fanout_failures"]) == ("waiting", 1)
        assert row["fanout_retry_at"] > datetime.now(UTC)
        assert "no room" in row["fanout_error"]
        assert "hunter2" not in row["fanout_error"]
        assert run_fan_out(build()).outcome == "idle", "until then nobody tries"

    def test_it_is_tried_again_later_and_later_and_then_goes_out(self, build, conn) -> None:
        """Each failure doubles the wait; once what broke it is mended it goes out, and its failures are forgotten."""
        phones = add_phones(conn, 3)
        conn.execute(POISON)
        made = verbs.enqueue(conn, Event("poison", "1", "t", audience="everyone"))
        waits = []
        at = datetime.now(UTC)
        for failures in (1, 2, 3):
            assert run_fan_out(build(now=at)).outcome == "failed"
            row = event_row(conn, made.event_id)
            assert row["fanout_failures"] == failures
            waits.append(row["fanout_retry_at"] - at)
            at = row["fanout_retry_at"] + timedelta(seconds=1)
        assert waits[0] * 4 == waits[1] * 2 == waits[2]
        conn.execute("drop function public.poison cascade")
        fan_out(build(now=at))
        assert reached(conn, made.event_id) == phones
        row = event_row(conn, made.event_id)
        assert (row["fanout_failures"], row["fanout_retry_at"], row["fanout_error"]) == (None, None, None)

    def test_a_run_knows_when_the_next_try_is_due(self, build, conn) -> None:
        """Fan-out looks again when the next try is due, not at its next slot."""
        add_phones(conn, 1)
        conn.execute(POISON)
        verbs.enqueue(conn, Event("poison", "1", "t", audience="everyone"))
        app = build()
        run_fan_out(app)
        due_in_s = one_step(app).due_in_s
        assert due_in_s is not None
        assert 0 < due_in_s <= 10

    def test_it_is_told(self, build, conn, command: Command) -> None:
        """Status, the event's saga and `relevo event` say that it fails, how often, why, and when it is tried again."""
        add_phones(conn, 1)
        conn.execute(POISON)
        made = verbs.enqueue(conn, Event("poison", "1", "t", audience="everyone"))
        app = build()
        run_fan_out(app)
        problems = fleet.status(app.database, app.settings).problems
        (problem,) = [str(each) for each in problems if each.code == "fanout_fails"]
        assert f"event {made.event_id}" in problem
        assert "no room" in problem
        story = events.story(app.database, made.event_id)
        assert story is not None
        assert [each.detail for each in story.moments if each.what == "fan-out failed"]
        told = command("event", made.event_id).out
        assert "fan-out failed once" in told
        assert "no room" in told

    def test_a_cancelled_event_that_cannot_be_swept_keeps_no_other_from_it(self, build, conn) -> None:
        """What is left of ended events is ended one by one: an error with one of them is that one's."""
        add_phones(conn, 3)
        made = [verbs.enqueue(conn, Event(kind, "1", "t", audience="everyone")) for kind in ("stuck", "notice")]
        app = build()
        fan_out_to_the_end(app)
        conn.execute(
            """
            create function public.stuck() returns trigger language plpgsql as $$ begin raise 'stuck'; end $$;
            create trigger stuck before update on relevo.notification_deliveries
              for each row when (new.event_type = 'stuck') execute function public.stuck()
            """
        )
        for each in made:
            verbs.cancel(conn, each.event_id)
        report = run_fan_out(app)
        assert report.outcome == "partial"
        assert "stuck" in report.error
        swept = [event_row(conn, each.event_id)["swept_at"] is not None for each in made]
        assert swept == [False, True]
        conn.execute("drop function public.stuck cascade")
        fan_out_to_the_end(app)
        assert event_row(conn, made[0].event_id)["swept_at"] is not None


def steps_until(app: App, conn: psycopg.Connection[Any], event_id: int, most: int = 60) -> int:
    """Return how many steps fan-out takes until an event is fanned out."""
    for steps in range(1, most + 1):
        one_step(app)
        if event_row(conn, event_id)["state"] == "fanned":
            return steps
    raise AssertionError(f"after {most} steps it still waits")


class TestTurns:
    """Slices take turns: by event, then by project."""

    @pytest.mark.parametrize("broadcasts", [1, 5])
    def test_a_small_event_does_not_wait_for_a_large_one(self, build, conn, broadcasts: int) -> None:
        """An event for one phone that comes while broadcasts fan out waits for a slice or two, not for all of them."""
        phones = add_phones(conn, 40)
        large = [verbs.enqueue(conn, Event("notice", str(n), "t", audience="everyone")) for n in range(broadcasts)]
        app = build(fanout_slice_size=2)
        for _ in range(broadcasts + 1):
            one_step(app)
        small = verbs.enqueue(conn, Event("chat", "1", "t", audience=phones[:1]))
        assert steps_until(app, conn, small.event_id) <= 2
        fan_out_to_the_end(app)
        assert [reached(conn, each.event_id) for each in large] == [phones] * broadcasts

    def test_large_events_take_turns(self, build, conn) -> None:
        """Of two broadcasts neither is done before the other has begun."""
        add_phones(conn, 20)
        large = [verbs.enqueue(conn, Event("notice", str(n), "t", audience="everyone")) for n in range(2)]
        app = build(fanout_slice_size=2)
        for _ in range(8):
            one_step(app)
        assert [len(reached(conn, each.event_id)) for each in large] == [8, 8]

    def test_a_large_event_goes_on_though_small_ones_keep_coming(self, build, conn) -> None:
        """Who comes later goes first for some seconds only: a broadcast is not put off for good."""
        phones = add_phones(conn, 6)
        at = datetime.now(UTC)
        large = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone", scheduled_at=at))
        one_step(build(fanout_slice_size=2, now=at))
        later = at + timedelta(seconds=30)
        for n in range(10):
            verbs.enqueue(conn, Event("chat", str(n), "t", audience=phones[:3], scheduled_at=later))
        one_step(build(fanout_slice_size=2, now=later))
        assert len(reached(conn, large.event_id)) == 4

    @pytest.mark.parametrize("kind", ["broad", "personal"])
    def test_projects_take_turns(self, build, conn, kind: str) -> None:
        """A project with many events waiting, each begun or not, keeps another one's waiting for a slice or two."""
        phones = add_phones(conn, 6, project="loud")
        quiet = add_phones(conn, 1, project="quiet")
        loud: Any = "everyone" if kind == "broad" else phones[:3]
        many = verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience=loud) for n in range(20)])
        conn.execute("update relevo.notification_events set project = 'loud'")
        app = build(fanout_slice_size=2)
        one_step(app)
        small = verbs.enqueue(conn, Event("chat", "1", "t", audience=quiet))
        conn.execute("update relevo.notification_events set project = 'quiet' where id = %s", [small.event_id])
        assert steps_until(app, conn, small.event_id) <= 2
        fan_out_to_the_end(app)
        assert {event_row(conn, each.event_id)["state"] for each in many} == {"fanned"}

    def test_replicas_take_turns_each(self, build, conn) -> None:
        """With two replicas, of which one is at a broadcast, an event of another project waits no longer."""
        phones = add_phones(conn, 40, project="loud")
        quiet = add_phones(conn, 1, project="quiet")
        verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience=phones) for n in range(20)])
        conn.execute("update relevo.notification_events set project = 'loud'")
        apps = [build(worker_id=name, fanout_slice_size=2) for name in ("a", "b")]
        for app in apps:
            one_step(app)
        small = verbs.enqueue(conn, Event("chat", "1", "t", audience=quiet))
        conn.execute("update relevo.notification_events set project = 'quiet' where id = %s", [small.event_id])
        for app in apps:
            one_step(app)
        assert event_row(conn, small.event_id)["state"] == "fanned"

    def test_small_events_of_many_projects_are_fanned_out_together(self, build, conn) -> None:
        """Turns by project do not take apart what fits into one step."""
        phones = add_phones(conn, 30)
        verbs.enqueue_many(conn, [Event("chat", str(n), "t", audience=[phone]) for n, phone in enumerate(phones)])
        conn.execute("update relevo.notification_events set project = 'p' || id % 7")
        conn.execute(
            "update relevo.device_installations set project = e.project from relevo.event_audience a"
            " join relevo.notification_events e on e.id = a.event_id"
            " where a.installation_id = relevo.device_installations.installation_id"
        )
        step = one_step(build())
        assert step.counts["events_fanned_out"] == 30
