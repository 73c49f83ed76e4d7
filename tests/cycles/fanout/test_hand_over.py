"""A phone changes owner, project or zone, or is forgotten, exactly while fan-out works on its event: nobody is told another's, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import relevo
from relevo import Event, Installation, Owners
from relevo.app import App
from support.phones import fan_out, fan_out_to_the_end, one_step
from support.processes import eventually

HELD = 4_711
WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'advisory'"
MADE_FOR = """
select b.owner, d.installation_id from relevo.notification_deliveries d left join relevo.inboxes b on b.id = d.inbox_id
 where d.notification_event_id = %s order by 1, 2
"""
LOCKED = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and wait_event <> 'advisory'"
LEFT_OF_ANA = """
select 'owners', count(*) from relevo.event_owners where owner = 'ana'
union all select 'inboxes', count(*) from relevo.inboxes where owner = 'ana'
union all select 'phones', count(*) from relevo.device_installations where owner = 'ana'
union all select 'rules', count(*) from relevo.owner_rules where owner = 'ana'
union all select 'former', count(*) from relevo.former_phones f where not exists (select from relevo.inboxes b where b.id = f.inbox_id)
"""
SOURCE = "select pg_get_functiondef(to_regproc(%s))"


@contextmanager
def held(conn: psycopg.Connection[Any], app: App, function: str, before: str) -> Iterator[None]:
    """Run fan-out beside the block, which begins when fan-out has come to this place of a function, and lets it go on at its end."""
    [source] = conn.execute(SOURCE, [function]).fetchone() or [""]
    assert before in source
    conn.execute(source.replace(before, f"perform pg_advisory_xact_lock({HELD}); {before}", 1))
    conn.execute("select pg_advisory_lock(%s)", [HELD])
    try:
        with ThreadPoolExecutor(1) as threads:
            try:
                run = threads.submit(fan_out, app)
                eventually(lambda: run.done() or conn.execute(WAITS).fetchone() == (1,), "fan-out comes to the place")
                assert not run.done(), run.result()
                yield
            finally:
                conn.execute("select pg_advisory_unlock(%s)", [HELD])
            run.result(60)
    finally:
        conn.execute(source)


def register(conn: psycopg.Connection[Any], owner: str | None, phone: UUID | None = None, **more: Any) -> UUID:
    """Register a phone, or a known one for its next owner."""
    phone = phone or uuid4()
    told = {"token": f"ExponentPushToken[{phone}]"} | more
    return relevo.register(conn, Installation(installation_id=phone, owner=owner, **told))


def titles(conn: psycopg.Connection[Any], owner: str) -> list[str]:
    """Return what is in an owner's inbox."""
    return [item.title for item in relevo.inbox(conn, owner=owner).items]


@pytest.mark.parametrize("slices", [2, 100])
def test_a_phone_that_is_handed_over_while_its_slice_is_read(
    build: Callable[..., App], conn: psycopg.Connection[Any], slices: int
) -> None:
    """Between two statements of fan-out the phone gets another owner: nothing is made for that one, and the first finds the event."""
    phone, others = register(conn, "ana"), [register(conn, "carla") for _ in range(3)]
    app = build(fanout_slice_size=slices)
    event = relevo.enqueue(conn, Event("result", "1", "Yours alone", audience=Owners("ana", "carla"))).event_id
    with held(conn, app, "relevo.named_targets", "last_seq := seqs["):
        register(conn, "bea", phone)
    fan_out_to_the_end(app)
    assert conn.execute(MADE_FOR, [event]).fetchall() == sorted(("carla", each) for each in others)
    assert (titles(conn, "ana"), titles(conn, "bea")) == (["Yours alone"], [])


def test_a_phone_goes_from_one_named_owner_to_another(build: Callable[..., App], conn: psycopg.Connection[Any]) -> None:
    """A phone that was told as one owner's and is another's before the last slice does not count for the other, who finds the event in the inbox."""
    phone, *_ = [register(conn, "bea") for _ in range(3)]
    app = build(fanout_slice_size=1)
    relevo.enqueue(conn, Event("result", "1", "For both", audience=Owners("ana", "bea")))
    one_step(app)
    register(conn, "ana", phone)
    fan_out_to_the_end(app)
    assert (titles(conn, "ana"), titles(conn, "bea")) == (["For both"], ["For both"])


@pytest.mark.parametrize("delivery", ["now", "daily 08:00"])
def test_a_phone_that_is_handed_over_after_its_preference_matched(
    build: Callable[..., App], conn: psycopg.Connection[Any], delivery: str
) -> None:
    """An event that the former owner's preference matched is neither pushed nor shown to the next owner, who did not ask for it."""
    phone, other = register(conn, "ana"), register(conn, "carla")
    for each in (phone, other):
        relevo.set_preference(conn, each, "default", relevo.Preference(topics=["clinic"], delivery=delivery))
    app = build()
    relevo.enqueue(conn, Event("result", "1", "Clinic", audience=relevo.Matching(), topics=["clinic"]))
    with held(conn, app, "relevo.matching_targets", "is_last := candidates < most"):
        register(conn, "bea", phone)
    fan_out_to_the_end(app)
    assert (titles(conn, "bea"), titles(conn, "carla")) == ([], ["Clinic"])


def test_a_phone_that_goes_to_another_project_while_its_slice_is_read(
    build: Callable[..., App], conn: psycopg.Connection[Any]
) -> None:
    """An owner of the same name in another project gets nothing of it, by push or inbox; the first project's inbox has the event."""
    phone, *_ = [register(conn, "ana", project="shop") for _ in range(3)]
    app = build(fanout_slice_size=2)
    event = relevo.enqueue(conn, Event("result", "1", "Shop", audience=Owners("ana"), project="shop")).event_id
    with held(conn, app, "relevo.named_targets", "last_seq := seqs["):
        register(conn, "ana", phone, project="bank")
    fan_out_to_the_end(app)
    assert phone not in [row[1] for row in conn.execute(MADE_FOR, [event]).fetchall()]
    assert [len(relevo.inbox(conn, owner="ana", project=each).items) for each in ("shop", "bank")] == [1, 0]


@pytest.mark.parametrize("place", ["last_seq := seqs[", "last_seq := coalesce(last_seq"])
def test_an_owner_who_is_forgotten_while_fan_out_has_the_slice(
    build: Callable[..., App], conn: psycopg.Connection[Any], dsn: str, place: str
) -> None:
    """Forgetting waits for the slice or comes before it: afterwards nothing names the owner, and nothing can be pushed to the phones."""
    for owner in ("ana", "bea"):
        for _ in range(3):
            register(conn, owner)
    app = build(fanout_slice_size=2)
    for key, owners in (("1", Owners("ana")), ("2", Owners("ana", "bea"))):
        relevo.enqueue(conn, Event("result", key, f"Event {key}", audience=owners))
    with psycopg.connect(dsn, autocommit=True) as app_conn, ThreadPoolExecutor(1) as threads:
        with held(conn, app, "relevo.named_targets", place):
            forgetting = threads.submit(relevo.forget, app_conn, owner="ana")
            eventually(lambda: forgetting.done() or conn.execute(LOCKED).fetchone() == (1,), "it waits or is done")
        assert forgetting.result(60) == 3
    fan_out_to_the_end(app)
    assert [row for row in conn.execute(LEFT_OF_ANA).fetchall() if row[1]] == []
    assert titles(conn, "bea") == ["Event 2"]
    assert conn.execute("select title from relevo.notification_events order by id").fetchall() == [
        ("forgotten",),
        ("Event 2",),
    ]
    open_rows = "select count(*) from relevo.notification_deliveries d where completed_at is null and not exists (select from relevo.device_installations i where i.installation_id = d.installation_id)"
    app.runner.run(app.registry["dispatch"], "manual")
    assert conn.execute(open_rows).fetchone() == (0,)


@pytest.mark.parametrize("whose", ["owner", "phone", "zone"])
def test_quiet_hours_that_begin_while_fan_out_has_the_slice(
    build: Callable[..., App], conn: psycopg.Connection[Any], whose: str
) -> None:
    """Hours, or a time zone, that fan-out did not see are read at the claim: the push waits for their end and rings nobody."""
    [(hour,)] = conn.execute("select extract(hour from now() at time zone 'UTC')::int").fetchall()
    begin, day = (hour - 2) % 24, (hour + 10) % 24
    night = {"windows": [f"{begin:02}:00-{(hour + 3) % 24:02}:00"]}
    phones = [register(conn, "ana", timezone="UTC") for _ in range(3)]
    if whose == "zone":  # twelve hours away it is night there
        away = {"windows": [f"{(begin + 12) % 24:02}:00-{(day + 5) % 24:02}:00"]}
        relevo.set_quiet(conn, owner="ana", zone="UTC", **away)
    app = build(fanout_slice_size=2)
    relevo.enqueue(conn, Event("note", "1", "Hush", audience=Owners("ana")))
    with held(conn, app, "relevo.write_slice", "if exists (select from relevo.caps)"):
        for phone in phones:
            match whose:
                case "owner":
                    relevo.set_quiet(conn, owner="ana", zone="UTC", **night)
                case "phone":
                    relevo.set_quiet(conn, installation_id=phone, **night)
                case _:
                    register(conn, "ana", phone, timezone="Etc/GMT-12")
    fan_out_to_the_end(app)
    app.runner.run(app.registry["dispatch"], "manual")
    rows = conn.execute("select status, attempt_count from relevo.notification_deliveries").fetchall()
    assert rows == [("pending", 0)] * 3
    assert conn.execute(
        "select count(*) from relevo.due_chunks where due_at < now() + interval '30 min'"
    ).fetchone() == (0,)
