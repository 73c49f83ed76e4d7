"""What fan-out and the claim after it read: as much as they need, not as much as there is."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.app import App
from relevo.client import values, verbs
from relevo.client.values import Event, Installation, Matching, TenderMatching
from relevo.core import queries
from support import soak
from support.phones import add_phones, event_row, fan_out_to_the_end, reached
from support.query_plans import BY_KEY, NOT_YET_HANDED_IN, explain, rows_read, rows_read_by_table

FANOUT = queries.load("fanout")
CLAIMS = queries.load("claims")
MANY = soak.cases(10_000, whole=100_000)  # what is read must not follow it: a tenth shows that as well
BURST = soak.cases(6_000, whole=60_000)
NARROW = TenderMatching(
    text="ampliación sala cuna", rubros=("72131500",), region="Región del Ñuble", tipo="LE", monto=100, moneda="CLP"
)
NO_HELP_FROM_AUTOVACUUM = """
do $$ begin
  execute 'alter table relevo.notification_deliveries' || to_char(now() at time zone 'UTC', '_YYYY_MM')
       || ' set (autovacuum_enabled = off)';
end $$
"""


@pytest.fixture
def many_phones(conn) -> psycopg.Connection[Any]:
    """Many phones, each with one preference, of which five times three and some concern the narrow event."""
    for table in ("device_installations", "notification_preferences", "preference_index"):
        conn.execute(f"alter table relevo.{table} set (autovacuum_enabled = off)")
    add_phones(conn, MANY)
    conn.execute(
        """
        insert into relevo.notification_preferences
               (installation_id, keywords, rubro_prefix, region, tipo, monto_min, moneda)
        select installation_id,
               case seq %% 4 when 0 then array[case nth when 0 then 'Sala Cuna' else 'no' || seq %% 997 end] end,
               case seq %% 4 when 1 then case nth when 1 then '7213' else (10000000 + seq)::text end end,
               case seq %% 4 when 2 then case nth when 2 then 'Ñuble' else 'Maule' end end,
               case seq %% 4 when 3 then case nth when 3 then 'le' else 'LP' end end,
               case seq %% (2 * %(every)s) when 2 then 101 end, case seq %% (2 * %(every)s) when 2 then 'CLP' end
          from relevo.device_installations, lateral (select seq %% %(every)s as nth)
        """,
        {"every": MANY // 5},
    )
    return conn


def test_a_narrow_event_reads_in_the_order_of_its_matches(many_phones, build) -> None:
    """Among many phones an event with a few dozen matches reads a few rows each, with statistics and without."""
    app = build()
    compare(many_phones, app, "without statistics")
    many_phones.execute("analyze relevo.device_installations, relevo.notification_preferences, relevo.preference_index")
    compare(many_phones, app, "with statistics")


KILL = """
update relevo.device_installations set invalidated_at = now(), invalid_reason = 'DeviceNotRegistered'
 where seq %% (%(phones)s / 50) <> 0
"""


def test_dead_phones_are_not_read(conn) -> None:
    """Of many phones all but 50 are gone: an event for everyone, or for who asked, reads the pages of those 50."""
    conn.execute("alter table relevo.device_installations set (autovacuum_enabled = off)")
    phones = add_phones(conn, soak.cases(20_000, whole=50_000))  # so many that all their pages are too many
    conn.execute("insert into relevo.notification_preferences (installation_id) select unnest(%s::uuid[])", [phones])
    conn.execute(KILL, {"phones": len(phones)})
    conn.execute("vacuum relevo.device_installations, relevo.preference_index")
    whom: dict[str, Any] = {"everyone": "everyone", "matching": Matching(text="sala cuna")}
    made = {key: verbs.enqueue(conn, Event("tender", key, "t", audience=each)) for key, each in whom.items()}
    for statistics in ("without", "with"):
        for key, event in made.items():
            assert slice_reads(conn, event.event_id)["device_installations"] <= 110, (key, statistics)
            assert pages_read(conn, event.event_id) < 1_500, (key, statistics)
        conn.execute("analyze relevo.device_installations, relevo.preference_index")


def test_everyone_of_a_project_is_that_projects_phones(conn) -> None:
    """Ten phones of one project are found among 20,000 of others without reading those."""
    add_phones(conn, 10_000, project="large")
    mine = add_phones(conn, 5, project="mine")
    add_phones(conn, 10_000, project="large")
    mine += add_phones(conn, 5, project="mine")
    conn.execute("vacuum relevo.device_installations")
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
    conn.execute("update relevo.notification_events set project = 'mine'")
    for statistics in ("without", "with"):
        assert slice_reads(conn, made.event_id)["device_installations"] <= 25, statistics
        assert pages_read(conn, made.event_id) < 400, statistics
        conn.execute("analyze relevo.device_installations")


def test_a_slice_of_an_event_with_many_words_reads_its_window(conn) -> None:
    """Of many phones that each ask for one of 400 words of an event, a slice of 1,000 reads a few thousand."""
    phones = add_phones(conn, soak.cases(8_000, whole=40_000))
    conn.execute(
        """
        insert into relevo.notification_preferences (installation_id, keywords)
        select u.phone, array['word' || u.n %% 400] from unnest(%s::uuid[]) with ordinality as u(phone, n)
        """,
        [phones],
    )
    conn.execute("vacuum analyze relevo.preference_index, relevo.device_installations")
    text = " ".join(f"word{n}" for n in range(400))
    made = verbs.enqueue(conn, Event("tender", "1", "t", audience=Matching(text=text)))
    asked = slice_asked(made.event_id) | {"most": 1_000}
    with conn.transaction(force_rollback=True):
        conn.execute(BY_KEY)
        read = rows_read_by_table(conn, FANOUT["fan_out_slice"], asked)
    assert read["preference_index"] <= 5_000
    assert reads_to_the_end(conn, made.event_id, most=5_000)["preference_index"] <= 4 * len(phones)


def test_a_named_audience_is_read_once(conn) -> None:
    """An event that names 2,000 phones reads each of them a few times, however many slices they come to."""
    phones = add_phones(conn, 2_000)
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience=phones))
    read = reads_to_the_end(conn, made.event_id, most=200)
    assert read["event_audience"] <= 3 * len(phones) + 100
    assert read["device_installations"] <= 5 * len(phones)
    assert conn.execute("select count(*) from relevo.fanout_slices").fetchone() == (0,)


def reads_to_the_end(conn: psycopg.Connection[Any], event_id: int, most: int) -> dict[str, int]:
    """Return how many rows of which table all slices of an event read, and undo them."""
    asked = slice_asked(event_id) | {"most": most}
    total: Counter[str] = Counter()
    with conn.transaction(force_rollback=True):
        conn.execute(BY_KEY)
        while event_row(conn, event_id)["state"] != "fanned":
            before = Counter(dict(conn.execute(NOT_YET_HANDED_IN).fetchall()))
            conn.execute(FANOUT["fan_out_slice"], asked)
            total += Counter(dict(conn.execute(NOT_YET_HANDED_IN).fetchall())) - before
    return dict(total)


def test_a_plan_made_for_few_phones_reads_each_once(conn) -> None:
    """A connection that fanned out to three phones reads those registered since once each, before any are analysed."""
    for table in ("device_installations", "notification_preferences", "preference_index"):
        conn.execute(f"alter table relevo.{table} set (autovacuum_enabled = off)")
    verbs.register_many(conn, [Installation(f"ExponentPushToken[{n}]") for n in range(3)])
    made = verbs.enqueue(conn, Event("tender", "1", "Sala cuna", audience=NARROW))
    assert slice_reads(conn, made.event_id)["device_installations"] < 10
    verbs.register_many(conn, [Installation(f"ExponentPushToken[late-{n}]") for n in range(1_000)])
    assert slice_reads(conn, made.event_id)["device_installations"] < 1_100


def test_a_personal_event_by_itself_reads_its_phones(conn, build) -> None:
    """Among 6,000 phones an event that names two, or their owner, reads those, statistics or not."""
    phones = add_phones(conn, 6_000)
    conn.execute("update relevo.device_installations set owner = 'ana' where installation_id = any (%s)", [phones[-2:]])
    conn.execute("vacuum relevo.device_installations")
    for kind in ("without statistics", "with statistics"):
        for audience in (phones[-2:], values.Owners("ana")):
            made = verbs.enqueue(conn, Event("chat", f"{kind} {audience}"[:300], "t", audience=audience))
            assert sum(slice_reads(conn, made.event_id).values()) <= 30, kind
            fan_out_to_the_end(build())
            assert reached(conn, made.event_id) == phones[-2:]
        conn.execute("analyze")


def slice_asked(event_id: int) -> dict[str, Any]:
    """Tell what a slice of an event is asked with."""
    return {"event_id": event_id, "most": 10_000, "watched": True, "step_aside": False, "enough": 100, "now": None}


def slice_reads(conn: psycopg.Connection[Any], event_id: int) -> dict[str, int]:
    """Return how many rows of which table an event's next slice reads on this connection, and undo it."""
    with conn.transaction(force_rollback=True):
        conn.execute(BY_KEY)
        return rows_read_by_table(conn, FANOUT["fan_out_slice"], slice_asked(event_id))


def pages_read(conn: psycopg.Connection[Any], event_id: int) -> int:
    """Return how many pages an event's next slice reads, and undo it."""
    with conn.transaction(force_rollback=True):
        conn.execute(BY_KEY)
        plan = explain(conn, FANOUT["fan_out_slice"], slice_asked(event_id))
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def compare(conn: psycopg.Connection[Any], app: App, key: str) -> None:
    """Look at what a slice reads, then compare with how many there were to find."""
    made = verbs.enqueue(conn, Event("tender", key, "Sala cuna", audience=NARROW))
    read = slice_reads(conn, made.event_id)
    fan_out_to_the_end(app)
    matches = len(reached(conn, made.event_id))
    assert 10 < matches < 50
    candidates = 3 * matches  # looked at to find the slice's end, and then for its targets
    assert read.pop("preference_index") <= candidates, read
    assert read.pop("notification_preferences", 0) <= candidates
    assert read.pop("device_installations") <= matches + 5
    assert read.pop("notification_events") <= 2 * matches + 20, "each count of a phone looks at its event"
    assert sum(read.values()) <= 2 * matches + 20, read


def test_the_claim_after_a_burst_reads_what_it_takes(build, conn) -> None:
    """After many deliveries in several slices a claim reads the chunks it takes, their phones, and no delivery."""
    conn.execute(NO_HELP_FROM_AUTOVACUUM)
    add_phones(conn, BURST)
    app = build(fanout_slice_size=BURST // 6)
    fan_out_and_finish(conn, app, "old news, after which the planner knows of nothing that is open")
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
    fan_out_to_the_end(app)
    assert event_row(conn, made.event_id)["deliveries_created"] == BURST
    batch = app.settings.outbox_batch_size
    asked = {
        "token": uuid4(), "worker_id": "w", "cycle": "dispatch", "project": "default", "lane": "bulk", "limit": batch,
        "only_types": None, "not_types": None, "not_worded": None, "shard_index": None, "shard_count": None, "now": None,
        "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000,
    }  # fmt: skip
    assert reads(conn, asked) <= batch + batch // 5, "each one's installation; chunks and events are few"
    claim = app.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    assert len(claim.deliveries) == batch
    assert reads(conn, asked) <= batch + batch // 5, "with a batch claimed in front"


def reads(conn: psycopg.Connection[Any], asked: dict[str, Any]) -> int:
    """Return how many rows a claim reads, planned as claims are; none of them is a delivery."""
    with conn.transaction():
        conn.execute(BY_KEY)
        read = rows_read_by_table(conn, CLAIMS["claim_due"], asked)
    assert "due_chunks" in read
    assert not [table for table in read if table.startswith("notification_deliveries")]
    return sum(read.values())


def fan_out_and_finish(conn: psycopg.Connection[Any], app: App, key: str) -> None:
    """Let an event go out to some of the phones and be confirmed, and have the planner look at that."""
    some = "select array_agg(installation_id) from relevo.device_installations where seq % 12 = 0"
    verbs.enqueue(conn, Event("notice", key, "t", audience=conn.execute(some).fetchone()[0]))
    fan_out_to_the_end(app)
    conn.execute("delete from relevo.due_chunks")
    conn.execute(
        "update relevo.notification_deliveries set status = 'ok', provider_ticket_id = 't', completed_at = now()"
    )
    conn.execute("analyze relevo.notification_deliveries")


LATE = """
insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
select d.event_day, d.id, 'late', gen_random_uuid(), now()
  from relevo.notification_deliveries d where d.notification_event_id <> %s limit 2000
"""


def test_ending_a_small_event_among_many_goes_by_the_event(build, conn) -> None:
    """Ending the deliveries of a small event, and looking whether any is left, does not read those of the others."""
    add_phones(conn, 6_000)
    verbs.enqueue(conn, Event("notice", "big", "t", audience="everyone"))
    small = verbs.enqueue(conn, Event("notice", "small", "t", audience=add_phones(conn, 5)))
    fan_out_to_the_end(build())
    day = event_row(conn, small.event_id)["event_day"]
    asked = {"event_id": small.event_id, "day": day, "limit": 10_000, "now": None}
    with conn.transaction(force_rollback=True):
        conn.execute(BY_KEY)  # as sweeping does
        assert rows_read(conn, FANOUT["cancel_deliveries"], asked) <= 5 * 5
        conn.execute(LATE, [small.event_id])  # tickets that came late, for others
        assert rows_read(conn, FANOUT["cancel_deliveries"], asked) <= 5 * 5 + 5
        assert rows_read(conn, FANOUT["mark_swept"], asked) <= 5 + 5
