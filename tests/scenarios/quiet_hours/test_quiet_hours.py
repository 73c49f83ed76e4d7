"""Quiet hours: what comes meanwhile waits for their end, goes silently or expires, as its type says; and it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Installation, Matching, Owners
from support.processes import eventually
from support.sending_worker import Relay, beside, token

AUDIENCES: dict[str, Any] = {"everyone": "everyone", "matching": Matching(), "owners": Owners("ana", "eva")}


def window(begins: float, ends: float) -> str:
    """Return a window of UTC that begins and ends in so many hours."""
    times = [datetime.now(UTC) + timedelta(hours=each) for each in (begins, ends)]
    return "-".join(f"{each:%H:%M}" for each in times)


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with a phone each of ana, who has quiet hours now and for two hours, and of eva, who has none."""
    made: Relay = relay()
    quiet.set_quiet(made.conn, [window(-1, 2)], owner="ana", zone="UTC")
    for name in ("ana", "eva"):
        made.phones[name] = verbs.register(made.conn, Installation(token(name), owner=name, platform="ios"))
    return made


def send(worker: Relay, audience: Any = "everyone", **more: Any) -> int:
    """Enqueue an event, fan it out, and send what may be sent."""
    key = str(len(worker.rows("select id from relevo.notification_events")))
    told = verbs.enqueue(worker.conn, Event("notice", key, title="Hello", audience=audience, **more))
    worker.fan_out()
    worker.dispatch()
    return told.event_id


def received(worker: Relay) -> list[int]:
    """Return how many pushes ana and eva got."""
    return [worker.received(name) for name in ("ana", "eva")]


@pytest.mark.parametrize("audience", AUDIENCES.values(), ids=AUDIENCES)
def test_what_comes_in_quiet_hours_waits_for_their_end(worker: Relay, audience: Any) -> None:
    """By every way of fan-out it is due within some minutes after they end; then it is sent, with no attempt spent before."""
    send(worker, audience)
    assert received(worker) == [0, 1]
    due_in = worker.delivery("ana")["next_attempt_at"] - datetime.now(UTC)
    assert timedelta(hours=2, minutes=-2) < due_in < timedelta(hours=2, minutes=5)
    assert worker.delivery("ana")["attempt_count"] == 0
    worker.travel(hours=2, minutes=6)
    worker.dispatch()
    assert received(worker) == [1, 1]


@pytest.mark.parametrize("audience", AUDIENCES.values(), ids=AUDIENCES)
def test_phones_of_one_slice_wait_for_their_own_hours(worker: Relay, audience: Any) -> None:
    """Two kinds of hours in one slice: from fan-out on each phone is due at the end of its own, and one without hours at once."""
    for name, ends in (("ida", 4), ("leo", 6)):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
        quiet.set_quiet(worker.conn, [window(-1, ends)], owner=name, zone="UTC")
    to = Owners("ana", "eva", "ida", "leo") if isinstance(audience, Owners) else audience
    verbs.enqueue(worker.conn, Event("notice", "hours", title="Hello", audience=to))
    worker.fan_out()
    now = datetime.now(UTC)
    hours = {name: (worker.delivery(name)["next_attempt_at"] - now) / timedelta(hours=1) for name in worker.phones}
    assert hours == pytest.approx({"ana": 2, "eva": 0, "ida": 4, "leo": 6}, abs=0.1)


def test_phones_of_several_small_events_wait_for_their_own_hours(worker: Relay) -> None:
    """Two events for several owners that are fanned out together: each push is due at the end of its own phone's hours."""
    for name, ends in (("ida", 4), ("leo", 6)):
        worker.phones[name] = verbs.register(worker.conn, Installation(token(name), owner=name))
        quiet.set_quiet(worker.conn, [window(-1, ends)], owner=name, zone="UTC")
    for key, owners in (("one", ("ana", "eva", "ida", "leo")), ("two", ("eva", "leo", "ida"))):
        verbs.enqueue(worker.conn, Event("notice", key, title="Hello", audience=Owners(*owners)))
    worker.fan_out()
    due = worker.rows(
        "select e.event_key, i.owner, extract(epoch from q.due_at - now()) / 3600 as hours from relevo.due_chunks q"
        " cross join lateral unnest(q.installations, q.events) as u(phone, event_id)"
        " join relevo.notification_events e on e.id = coalesce(u.event_id, q.event_id)"
        " join relevo.device_installations i on i.installation_id = u.phone"
    )
    found = {(row["event_key"], row["owner"]): float(row["hours"]) for row in due}
    ends_in = {"ana": 2, "eva": 0, "ida": 4, "leo": 6}
    wanted = {("one", name): hours for name, hours in ends_in.items()}
    wanted |= {("two", name): hours for name, hours in ends_in.items() if name != "ana"}
    assert found == pytest.approx(wanted, abs=0.1)


def sounds(worker: Relay, name: str) -> list[Any]:
    """Return how loud the pushes to a phone were: sound, priority and interruption level."""
    pushes = worker.messages(name)
    return [(each.get("sound"), each.get("priority"), each.get("interruptionLevel")) for each in pushes]


def set_type(worker: Relay, **columns: Any) -> None:
    """Set what quiet hours mean for the type of these events."""
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    worker.conn.execute(
        f"insert into relevo.event_types (event_type, {names}) values ('notice', {marks})".encode(),
        list(columns.values()),
    )


HUSHED = (None, "normal", "passive")
LOUD = ("default", "default", None)
URGENT = ("default", "high", "time-sensitive")


@pytest.mark.parametrize(
    ("of_type", "event", "expected"),
    [
        ({"quiet": "silent"}, {}, [HUSHED]),
        ({"quiet": "ignore"}, {}, [LOUD]),
        ({"lane": "bulk"}, {"lane": "urgent"}, [URGENT]),
        (
            {"lane": "bulk"},
            {"lane": "urgent", "push": {"interruptionLevel": "active"}},
            [("default", "high", "active")],
        ),
        ({"quiet": "wait"}, {"lane": "urgent"}, []),
        ({"lane": "bulk"}, {"ttl_s": 3_600}, [HUSHED]),
        ({"quiet_deadline": "expired"}, {"ttl_s": 3_600}, []),
    ],
)
def test_a_type_says_what_quiet_hours_mean(
    worker: Relay, of_type: dict[str, Any], event: dict[str, Any], expected: list[Any]
) -> None:
    """It waits, goes without a sound, or rings; what is urgent rings; a deadline at night is silent, or the end."""
    set_type(worker, **of_type)
    send(worker, **event)
    assert sounds(worker, "ana") == expected
    assert len(sounds(worker, "eva")) == 1
    if "quiet_deadline" in of_type:
        assert (worker.delivery("ana")["status"], worker.delivery("ana")["last_error_code"]) == (
            "expired",
            "quiet_hours",
        )
        told = verbs.explain(worker.conn, ("notice", "0"), worker.phones["ana"])
        assert (told.gets_it, told.rule) == (False, "quiet_expired")


def test_what_waited_longest_goes_silently(worker: Relay) -> None:
    """After the longest wait of its type a push goes out in the midst of the night, without a sound."""
    set_type(worker, quiet_max_wait_s=1_800)
    send(worker)
    worker.travel(minutes=29)
    worker.dispatch()
    assert sounds(worker, "ana") == []
    worker.travel(minutes=7)
    worker.dispatch()
    assert sounds(worker, "ana") == [HUSHED]


def test_what_slides_into_the_night_waits(worker: Relay) -> None:
    """A push that was due before, and is claimed only in quiet hours, waits for their end, and no attempt is spent."""
    quiet.set_quiet(worker.conn, [window(1, 3)], owner="eva", zone="UTC")
    verbs.enqueue(worker.conn, Event("notice", "late", title="Hello", audience=[worker.phones["eva"]]))
    worker.fan_out()
    worker.travel(hours=1, minutes=30)
    worker.dispatch()
    found = worker.delivery("eva")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("pending", 0, "quiet_hours")
    worker.travel(hours=1, minutes=36)
    worker.dispatch()
    assert received(worker) == [0, 1]


def test_what_slides_into_the_night_after_its_claim_waits(relay: Any) -> None:
    """Quiet hours that begin between claim and request are seen by the last look: it waits for their end, the others go."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        quiet.set_quiet(worker.conn, [window(-1, 2)], installation_id=worker.phones["eva"], zone="UTC")
        return message

    worker: Relay = relay(composers={"notice": compose})
    worker.register("ana", "eva")
    send(worker)
    found = worker.delivery("eva")
    assert (received(worker), found["status"], found["attempt_count"]) == ([1, 0], "pending", 0)
    assert found["last_error_code"] == "quiet_hours"
    assert found["next_attempt_at"] > datetime.now(UTC) + timedelta(hours=1)
    sizes = worker.rows("select cardinality(ids) as n from relevo.push_requests")
    assert sizes == [{"n": 1}], "the journal holds what was sent"


def test_changed_hours_hold_at_once_for_what_is_personal(worker: Relay) -> None:
    """What waits for an owner alone goes as soon as the hours are taken back; what went out to many keeps its time."""
    send(worker, Owners("ana"))
    send(worker, "everyone")
    assert quiet.set_quiet(worker.conn, None, owner="ana")
    worker.dispatch()
    assert received(worker) == [1, 1]
    assert not quiet.set_quiet(worker.conn, None, owner="ana")


def test_hours_of_nobody_are_refused(worker: Relay) -> None:
    """Asking for quiet hours without naming anybody is refused by a sentence that names who may be."""
    with pytest.raises(psycopg.Error, match="owner, installation or project must be given"):
        worker.conn.execute("select relevo.get_quiet('{}')")


def test_whose_hours_and_whose_zone(worker: Relay) -> None:
    """A phone's own hours come before its owner's, those before its project's; its zone before theirs; each is told."""

    def told() -> tuple[Any, ...]:
        found = quiet.get_quiet(worker.conn, installation_id=worker.phones["ana"])
        return found.hours_of, found.zone_of, found.zone, found.windows, found.quiet_until is not None

    here = tuple(quiet.get_quiet(worker.conn, owner="ana").windows or ())
    assert told() == ("owner", "owner", "UTC", here, True)
    quiet.set_quiet(worker.conn, ["01:00-01:01"], project="default", zone="Asia/Kathmandu")
    assert told()[:3] == ("owner", "owner", "UTC")
    quiet.set_quiet(worker.conn, None, owner="ana")
    assert told()[:4] == ("project", "project", "Asia/Kathmandu", ("01:00-01:01",))
    quiet.set_quiet(worker.conn, ["03:00-03:01"], installation_id=worker.phones["ana"])
    assert told()[:3] == ("phone", "project", "Asia/Kathmandu")
    quiet.set_quiet(worker.conn, ["02:00-02:01"], owner="ana", zone="Europe/Madrid")
    assert told()[:3] == ("phone", "owner", "Europe/Madrid"), "its owner's zone is nearer than the project's"
    quiet.set_quiet(worker.conn, None, installation_id=worker.phones["ana"])
    assert told()[:3] == ("owner", "owner", "Europe/Madrid")
    verbs.register(
        worker.conn, Installation(token("ana"), worker.phones["ana"], owner="ana", timezone="America/Santiago")
    )
    assert told()[:3] == ("owner", "phone", "America/Santiago")
    quiet.set_quiet(worker.conn, [], installation_id=worker.phones["ana"])
    assert told() == ("phone", "phone", "America/Santiago", (), False)


@pytest.mark.parametrize("first", ["", "shop"])
def test_an_owner_s_hours_of_a_project_come_before_those_of_all(worker: Relay, first: str) -> None:
    """An owner has hours for all projects and others for the shop: these hold there, whichever were set first."""
    hours = {"": ["01:00-02:00"], "shop": ["03:00-04:00"]}
    for project in sorted(hours, key=lambda each: each != first):
        quiet.set_quiet(worker.conn, hours[project], owner="bea", project=project or None, zone="UTC")
    phones = {
        project: verbs.register(worker.conn, Installation(token(project), owner="bea", project=project))
        for project in ("shop", "club")
    }

    def told(project: str) -> tuple[str, ...] | None:
        return quiet.get_quiet(worker.conn, installation_id=phones[project]).windows

    assert (told("shop"), told("club")) == (("03:00-04:00",), ("01:00-02:00",))
    quiet.set_quiet(worker.conn, ["05:00-06:00"], owner="bea", zone="UTC")
    assert (told("shop"), told("club")) == (("03:00-04:00",), ("05:00-06:00",))
    quiet.set_quiet(worker.conn, None, owner="bea", project="shop")
    assert (told("shop"), told("club")) == (("05:00-06:00",), ("05:00-06:00",))


def test_a_default_of_the_project_holds_for_who_has_none(worker: Relay) -> None:
    """Phones without hours of their own, nor of their owner, have those of their project."""
    quiet.set_quiet(worker.conn, [window(-1, 2)], project="default", zone="UTC")
    send(worker)
    assert received(worker) == [0, 0]


def test_a_wait_is_explained(worker: Relay, command: Any) -> None:
    """The phone's explanation says until when, in which zone and whose that is; the event's page and command say it, too."""
    event_id = send(worker)
    told = verbs.explain(worker.conn, event_id, worker.phones["ana"])
    assert (told.gets_it, told.rule) == (True, "quiet_hours")
    assert "in UTC (the zone of the owner)" in told.reason
    values = told.raw["values"]
    assert (values["zone"], values["zone_of"], values["hours_of"]) == ("UTC", "owner", "owner")
    assert "quiet hours, the first until" in " ".join(command("event", str(event_id)).out.split())
    set_type(worker, quiet="silent")
    draft = verbs.explain(worker.conn, Event("notice", "new", title="Hello", audience="everyone"), worker.phones["ana"])
    assert (draft.gets_it, draft.rule) == (True, "everyone")
    assert "without a sound" in draft.reason


def test_what_went_silently_is_told(worker: Relay, command: Any) -> None:
    """A push without a sound is a moment of its event, a count of the run, and a part of the phone's explanation; others are not."""
    set_type(worker, quiet="silent")
    event_id = send(worker)
    worker.drain()
    assert worker.rows("select count(*) as silent from relevo.silent_pushes where event_id = %s", event_id) == [
        {"silent": 1}
    ]
    counts = worker.rows("select sum((counts ->> 'notifications_silent')::int) as silent from relevo.worker_runs")
    assert counts == [{"silent": 1}]
    assert "1 push, because of quiet hours" in " ".join(command("event", str(event_id)).out.split())
    told = [verbs.explain(worker.conn, event_id, worker.phones[name]).reason for name in ("ana", "eva")]
    assert ["without a sound" in each for each in told] == [True, False]


def test_an_export_has_hours_in_words(worker: Relay) -> None:
    """What is exported of an owner and their phones says the hours, not a number."""
    hours = {"windows": list(quiet.get_quiet(worker.conn, owner="ana").windows or ()), "zone": "UTC"}
    [rules] = consent.export_owner(worker.conn, "rules", owner="ana").items
    [phone] = consent.export_owner(worker.conn, "installations", owner="ana").items
    assert (rules["quiet"], phone["quiet"], phone["owner_quiet"]) == (hours, None, hours)


def test_a_zone_that_this_server_does_not_know_stops_nobody(worker: Relay) -> None:
    """After a failover to older time zones a phone's counts as not set: the zone of its hours applies, caps too, and others get theirs."""
    quiet.set_cap(worker.conn, 9, per="day")
    worker.conn.execute("update relevo.device_installations set timezone = 'America/Nowhere' where owner = 'ana'")
    event_id = send(worker)
    assert received(worker) == [0, 1]
    told = verbs.explain(worker.conn, event_id, worker.phones["ana"])
    assert (told.raw["values"]["zone"], told.raw["values"]["zone_of"]) == ("UTC", "owner")
    worker.conn.execute("update relevo.due_chunks set due_at = now()")
    worker.app.services.projects.lanes._full_read_at = 0.0  # only a full look finds what was changed behind its back
    worker.dispatch()
    assert (received(worker), worker.delivery("ana")["last_error_code"]) == ([0, 1], "quiet_hours")


def test_hours_that_nobody_has_are_deleted(worker: Relay) -> None:
    """Cleanup deletes shared hours once no phone, owner or project has them, a few at a time, and none that somebody takes."""
    for n in range(3):
        quiet.set_quiet(worker.conn, [window(-1, 3 + n)], owner="ana", zone="UTC")
    quiet.set_quiet(worker.conn, [window(-1, 7)], project="shop", zone="UTC")
    quiet.set_quiet(worker.conn, [window(-1, 8)], installation_id=worker.phones["eva"], zone="UTC")
    many = "select relevo.prune_profiles(%s) as gone, (select count(*) from relevo.quiet_profiles) as before"
    assert worker.rows(many, 2) == [{"gone": 2, "before": 6}]
    with worker.app.database.transaction() as taking:
        quiet.set_quiet(taking, [window(-1, 4)], owner="eva", zone="UTC")
        assert worker.rows(many, 9) == [{"gone": 0, "before": 4}]
    assert worker.rows(many, 9) == [{"gone": 0, "before": 4}]
    quiet.set_quiet(worker.conn, None, owner="ana")
    assert worker.rows(many, 9) == [{"gone": 1, "before": 4}]


def test_hours_that_somebody_takes_meanwhile_stay(worker: Relay, dsn: str) -> None:
    """Cleanup has seen that nobody has them when somebody takes them again: they stay."""
    hours = [window(-1, 5)]
    for given in (hours, None):
        quiet.set_quiet(worker.conn, given, owner="eva", zone="UTC")
    prune = "select relevo.prune_profiles(9) as gone"
    with psycopg.connect(dsn) as taking:
        taking.execute("lock table relevo.quiet_profiles in exclusive mode")
        with beside(lambda: worker.rows(prune)) as pruned:
            eventually(
                lambda: taking.execute("select from pg_locks where not granted").fetchall(), "it has looked, and waits"
            )
            quiet.set_quiet(taking, hours, owner="eva", zone="UTC")
            taking.commit()
    assert pruned == [[{"gone": 0}]]
    quiet.set_quiet(worker.conn, None, owner="eva")
    assert worker.rows(prune) == [{"gone": 1}]


def test_where_nobody_has_quiet_hours_a_claim_does_not_ask_for_them(relay: Any) -> None:
    """The lookup of a claim's phones calls no function of quiet hours until somebody has some, for each personal push is a chunk."""
    worker = relay()
    worker.tell("a")
    asked = "select count(*)::int as calls from pg_stat_xact_user_functions where funcname like '%%quiet%%'"
    with worker.conn.transaction():
        worker.conn.execute("set local track_functions = 'all'")
        worker.rows("select relevo.look_up_phones(array_agg(c), now(), 1) from relevo.due_chunks c")
        assert worker.rows(asked) == [{"calls": 0}]
