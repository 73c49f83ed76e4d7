"""The second look at the phones goes to the places where the claim saw them: it says yes of the very same rows alone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from claiming import NOW, add, journal, take

from processes import eventually
from relevo.app import App
from relevo.core import queries
from relevo.core.model import PushRequest
from relevo.delivery.claim import Claim, Wave

SQL = queries.load("journal")
CHANGES = {
    "another token": "update relevo.device_installations set token = 'other', token_version = 2 where installation_id = %s",
    "no permission": "update relevo.device_installations set permission = 'denied' where installation_id = %s",
    "opted out": "update relevo.device_installations set opt_outs = '{news}' where installation_id = %s",
    "handled": "update relevo.device_installations set handled_before = now() where installation_id = %s",
    "gone": "delete from relevo.device_installations where installation_id = %s",
    "nothing that matters": "update relevo.device_installations set updated_at = now() where installation_id = %s",
}


def wave_of(claim: Claim, *parts: slice) -> Wave:
    """Return a wave of a claim's deliveries, in one request or in parts."""
    return Wave([PushRequest(uuid4(), claim.deliveries[part]) for part in parts or (slice(None),)])


def are_unmoved(conn: psycopg.Connection[Any], claim: Claim) -> bool:
    """Look at the phones of a whole claim where it saw them."""
    wave = wave_of(claim)
    seen = wave.places(claim.seen)
    assert seen is not None
    asked = {"as_of": seen[0], "places": seen[1], "events": wave.events}
    row = conn.execute(SQL["phones_unmoved"], asked).fetchone()
    assert row is not None
    return bool(row[0])


def taken(worker: App, conn: psycopg.Connection[Any]) -> Claim:
    """Claim after all who wrote phones are done, whoever else is at work on this server, and find nothing changed."""
    older = """select coalesce(bool_and(age(i.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)), true)
                 from relevo.device_installations i"""
    eventually(lambda: conn.execute(older).fetchone() == (True,), "a transaction began before the phones, and is open")
    claim = take(worker)
    assert are_unmoved(conn, claim)
    return claim


@pytest.mark.parametrize("change", CHANGES)
def test_a_phone_that_was_written_is_not_the_same(build, conn, change: str) -> None:
    """Whatever was written of one of the phones, even if it means nothing: they are looked at closely."""
    add(conn, 5)
    claim = taken(build(), conn)
    conn.execute(CHANGES[change], [claim.deliveries[3].installation_id])
    assert not are_unmoved(conn, claim)


def test_what_means_nothing_stops_nothing(build, conn) -> None:
    """A phone that was only written anew gets its push: it is found by its key."""
    add(conn, 5)
    worker = build()
    claim = taken(worker, conn)
    conn.execute(CHANGES["nothing that matters"], [claim.deliveries[3].installation_id])
    journal(worker, claim)


def test_another_phone_in_the_same_place_is_another(build, conn) -> None:
    """The place of a phone that is gone is given to a new one: that is not the one that was claimed."""
    add(conn, 5)
    claim = taken(build(), conn)
    gone = claim.deliveries[3].installation_id
    place = conn.execute(
        "delete from relevo.device_installations where installation_id = %s returning ctid", [gone]
    ).fetchone()

    def given_again() -> bool:
        conn.execute("vacuum relevo.device_installations")
        made = "insert into relevo.device_installations (token) values (gen_random_uuid()) returning ctid"
        return bool(conn.execute(made).fetchone() == place)

    eventually(given_again, "a row that is gone was not swept")
    assert not are_unmoved(conn, claim)


def test_rows_that_moved_into_another_file_are_looked_up(build, conn) -> None:
    """After the table was written anew other phones may lie in the same places, as old as they: that is no yes."""
    add(conn, 5)
    worker = build()
    claim = taken(worker, conn)
    conn.execute("vacuum full relevo.device_installations")
    assert not are_unmoved(conn, claim)
    journal(worker, claim)


def test_a_writer_who_may_not_be_done_proves_nothing(build, conn, dsn) -> None:
    """While an older transaction is open, a phone written since might not have been seen; it is looked up, and sent."""
    worker = build()
    with psycopg.connect(dsn) as other:
        other.execute("select pg_current_xact_id()")
        add(conn, 5)
        claim = take(worker)
    assert not are_unmoved(conn, claim)
    journal(worker, claim)


def test_an_event_handled_elsewhere_is_looked_at_closely(build, conn) -> None:
    """That an owner handled the event changes no phone, and is seen all the same."""
    add(conn, 5)
    claim = taken(build(), conn)
    conn.execute(
        "insert into relevo.event_completions (event_id, owner) values (%s, 'somebody')",
        [claim.deliveries[0].notification_event_id],
    )
    assert not are_unmoved(conn, claim)


def test_places_are_known_of_whole_chunks(build, conn) -> None:
    """Requests may be cut as they like as long as they are made of whole chunks; of a part the places are not known."""
    for count in (3, 1, 2):
        add(conn, count, event=count)
    worker = build()
    claim = take(worker)
    assert [len(seen.ids) for seen in claim.seen.values()] == [3, 1, 2]
    whole = wave_of(claim).places(claim.seen)
    assert whole is not None
    assert whole[1].count("(") == 6
    assert wave_of(claim, slice(2), slice(2, 5), slice(5, 6)).places(claim.seen) == whole
    assert wave_of(claim, slice(3, 4)).places(claim.seen) is not None
    for part in (slice(2), slice(1, 4), slice(4, 5), slice(2, None, -1)):
        assert wave_of(claim, part).places(claim.seen) is None
    journal(worker, claim, deliveries=claim.deliveries[:2])


def test_a_chunk_with_an_obstacle_is_looked_up(build, conn) -> None:
    """Where something stood in the way of one when it was claimed, it does not do to be as it was."""
    ids = add(conn, 3)
    conn.execute(
        "update relevo.device_installations set permission = 'denied' where seq = (select max(seq) from relevo.device_installations)"
    )
    worker = build()
    claim = take(worker)
    assert wave_of(claim).places(claim.seen) is None
    said = worker.claims.journal(claim, wave_of(claim).requests, NOW)
    assert {each.id: each.verdict for each in said} == dict(zip(ids, ("send", "send", "not_allowed"), strict=True))


def test_a_phone_of_two_events_is_looked_at_once(build, conn) -> None:
    """Two events for one phone in one wave: its place stands there once, and is one row."""
    add(conn, 1, event=1)
    add(conn, 1, event=2)
    conn.execute(
        """update relevo.due_chunks set installations = (select array_agg(i.installation_id)
             from (select * from relevo.device_installations i order by i.seq limit 1) i)"""
    )
    claim = taken(build(), conn)
    assert len(claim.deliveries) == 2
    seen = wave_of(claim).places(claim.seen)
    assert seen is not None
    assert seen[1].count("(") == 1


def test_nothing_is_known_of_a_claim_that_was_adopted(build, conn) -> None:
    """What was read back after a lost answer tells no places; its phones are looked up by their keys."""
    add(conn, 2)
    worker = build()
    claim = take(worker)
    adopted = Claim(claim.token, claim.cycle, claim.project, claim.lease_ms, claim.deliveries)
    assert wave_of(adopted).places(adopted.seen) is None
    journal(worker, adopted, NOW)
