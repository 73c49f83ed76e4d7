"""Dead letters are opened again: by id, error code or event, shown first if asked, never past their deadline."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.client import verbs
from relevo.core.errors import UsageError
from relevo.operators import actions, audit, deliveries, events
from relevo.operators.actions import DeadLetters
from support.deliveries import mark_failed
from support.sending_worker import Relay


@pytest.fixture
def dead(relay) -> Relay:
    """A relay with dead letters of two codes and three events; their faults are over, and one came too late."""
    worker: Relay = relay(outbox_max_attempts=1)
    worker.tell("big!MessageTooBig*1", "dev!DeveloperError*1", "fine")
    worker.tell("big2!MessageTooBig*1", ttl_s=3_600)
    worker.tell("late!MessageTooBig*1", ttl_s=3_600)
    worker.dispatch()
    assert worker.states() == {"failed": 4, "sent": 1}
    worker.conn.execute(
        "update relevo.notification_events set scheduled_at = now() - interval '2 hours', deadline_at = now() - interval '1 minute' where id = %s",
        [worker.delivery("late!MessageTooBig*1")["notification_event_id"]],
    )
    return worker


def redrive(worker: Relay, **which: Any) -> int:
    """Redrive by the action itself."""
    return actions.redrive(worker.app.database, DeadLetters(**which))


def test_by_id(dead: Relay) -> None:
    """Only the one that is named goes out again, as if it had never been tried, and arrives."""
    name = "big!MessageTooBig*1"
    assert redrive(dead, ids=[dead.delivery(name)["id"]]) == 1
    found = dead.delivery(name)
    assert (found["status"], found["attempt_count"], found["completed_at"]) == ("pending", 0, None)
    dead.dispatch()
    assert (dead.delivery(name)["status"], dead.received(name)) == ("sent", 1)
    assert dead.states() == {"failed": 3, "sent": 2}


def test_each_counts_once_where_it_would_not_be_opened(dead: Relay) -> None:
    """What a redrive would do is told by one reason for each: archived before too late, too late before ended."""
    late = dead.delivery("late!MessageTooBig*1")["notification_event_id"]
    ended = dead.delivery("big2!MessageTooBig*1")["notification_event_id"]
    dead.conn.execute(
        "update relevo.notification_events set state = 'cancelled', ended_at = now() where id = any (%s)",
        [[late, ended]],
    )
    names = ("found", "archived", "too_late", "ended", "looked", "silent")

    def told() -> tuple[int, ...]:
        tried = actions.try_redrive(dead.app.database, DeadLetters(project="default"))
        return tuple(tried[name] for name in names)

    assert told() == (4, 0, 1, 1, 2, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(actions, "_REDRIVE_LOOK", 1)
        assert told() == (4, 0, 1, 1, 1, 0), "of many it looks at some"
    dead.conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
        " values ('notification_deliveries', date_trunc('month', now() at time zone 'UTC')::date, 'sealed', 'x', 1, now())"
    )
    assert told() == (4, 4, 0, 0, 0, 0)


def test_the_story_tells_of_it(dead: Relay) -> None:
    """Whoever asks why a push came late finds that it was opened again."""
    event = dead.delivery("fine")["notification_event_id"]
    assert redrive(dead, event_id=event) == 2
    dead.dispatch()
    story = events.story(dead.app.database, event)
    assert story is not None
    assert [m.detail for m in story.moments if m.what == "redriven"] == ["default: 2 dead letters were opened again"]


def test_the_story_of_others_does_not(dead: Relay, command) -> None:
    """A redrive is told of the events and the deliveries it opened, in good grammar and by whom, and of no others."""
    opened, other = dead.delivery("big!MessageTooBig*1"), dead.delivery("dev!DeveloperError*1")
    waiting = dead.delivery("big2!MessageTooBig*1")["notification_event_id"]
    dead.conn.execute("update relevo.notification_deliveries set last_attempt_at = now() + interval '1 hour'")
    with audit.acting_as("ana@host", "cli"):
        assert redrive(dead, ids=[opened["id"]]) == 1
    told = [events.story(dead.app.database, each) for each in (opened["notification_event_id"], waiting)]
    assert [[m.detail for m in story.moments if m.what == "redriven"] for story in told if story] == [
        ["default: 1 dead letter was opened again"],
        [],
    ]
    for _ in ("before it is sent anew", "and after"):
        seen = [deliveries.push(dead.app.database, each["id"]) for each in (opened, other)]
        assert [[row["by"] for row in each.redriven] for each in seen if each] == [["ana@host"], []]
        assert "by ana@host" in command("delivery", opened["id"]).out
        dead.dispatch()


def test_by_error_code(dead: Relay) -> None:
    """All with this code, but what is past its deadline stays as it is."""
    assert redrive(dead, error_code="MessageTooBig") == 2
    dead.dispatch()
    assert dead.states() == {"failed": 2, "sent": 3}
    assert dead.delivery("late!MessageTooBig*1")["status"] == "failed"
    assert dead.delivery("dev!DeveloperError*1")["status"] == "failed"
    assert redrive(dead, error_code="MessageTooBig") == 0


def test_by_event(dead: Relay) -> None:
    """All of one event, whatever their code; and its counts follow."""
    event = dead.delivery("fine")["notification_event_id"]
    assert redrive(dead, event_id=event) == 2
    assert verbs.get(dead.conn, event).deliveries == {"sent": 1, "pending": 2}
    dead.dispatch()
    assert verbs.get(dead.conn, event).deliveries == {"sent": 3}


def test_what_is_given_must_all_hold(dead: Relay) -> None:
    """Id, code and event narrow each other; nothing given would mean everything, and is refused."""
    event = dead.delivery("fine")["notification_event_id"]
    big, dev = dead.delivery("big!MessageTooBig*1")["id"], dead.delivery("dev!DeveloperError*1")["id"]
    assert redrive(dead, ids=[big, dev], error_code="DeveloperError", event_id=event) == 1
    assert dead.delivery("big!MessageTooBig*1")["status"] == "failed"
    with pytest.raises(UsageError, match="No dead letters are selected"):
        redrive(dead)


def test_counting_changes_nothing(dead: Relay) -> None:
    """A dry run counts by code, and says how many are too late."""
    before = dead.deliveries()
    found = actions.dead_letters(dead.app.database, DeadLetters(error_code="MessageTooBig"))
    assert [(row["error_code"], row["deliveries"], row["too_late"]) for row in found] == [("MessageTooBig", 3, 1)]
    assert dead.deliveries() == before


def test_only_dead_letters(relay) -> None:
    """What was sent, is invalid or unknown is never opened again, even by its id."""
    worker = relay()
    worker.tell("ana", "gone!DeviceNotRegistered")
    worker.tell("eva!500", at_most_once=True)
    for _ in range(2):
        worker.dispatch()
        worker.travel(minutes=2)
    ids = [row["id"] for row in worker.deliveries() if row["status"] in ("sent", "invalid", "unknown")]
    assert len(ids) >= 2
    assert redrive(worker, ids=ids) == 0


def test_in_batches(relay) -> None:
    """More than a thousand are opened in one call."""
    worker = relay()
    worker.add_phones(1_200)
    worker.tell_everyone()
    mark_failed(
        worker.conn, [row["id"] for row in worker.rows("select id from relevo.notification_deliveries")], code="x"
    )
    assert redrive(worker, error_code="x") == 1_200
    assert worker.states() == {"pending": 1_200}


class TestCommand:
    """relevo redrive and relevo release."""

    def test_dry_run_then_redrive(self, dead: Relay, command: Any) -> None:
        """A dry run shows what would be sent and changes nothing; without it they are opened and said so."""
        shown = command("redrive", "--error-code", "MessageTooBig", "--dry-run")
        assert shown.code == 0, shown.err
        assert "MessageTooBig" in shown.out
        assert "Nothing was changed." in shown.out
        names = ("big!MessageTooBig*1", "late!MessageTooBig*1", "big2!MessageTooBig*1")
        assert ", ".join(map(str, sorted(dead.delivery(name)["id"] for name in names))) in shown.out
        assert dead.states() == {"failed": 4, "sent": 1}
        done = command("redrive", "--error-code", "MessageTooBig")
        assert "2 will be sent again." in done.out
        assert dead.states() == {"failed": 2, "sent": 1, "pending": 2}

    def test_by_id_and_event(self, dead: Relay, command: Any) -> None:
        """Ids can be given several times, and an event beside them."""
        big, dev = dead.delivery("big!MessageTooBig*1"), dead.delivery("dev!DeveloperError*1")
        done = command("redrive", "--id", big["id"], "--id", dev["id"], "--event", big["notification_event_id"])
        assert "2 will be sent again." in done.out
        assert command("redrive", "--id", big["id"]).out == "No dead letter matches.\n"

    def test_wrong_usage(self, command: Any) -> None:
        """Nothing named, or a project that is not there, leaves with 2 and a next step."""
        shown = command("redrive", "--dry-run")
        assert (shown.code, shown.out) == (0, "No dead letter matches.\n")
        refused = command("redrive")
        assert (refused.code, refused.out) == (2, "")
        assert "--error-code" in refused.err
        unknown = command("release", "nowhere")
        assert unknown.code == 2
        assert "There is no project nowhere." in unknown.err
