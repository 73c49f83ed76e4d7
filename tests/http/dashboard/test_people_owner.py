"""The page of an owner tells of each event whether it came: told in a digest or a batch, or kept back by a cap."""

from __future__ import annotations

from uuid import uuid4

import pytest

from relevo.client import quiet, values, verbs
from support.dashboard_events import Connection, make_event, make_phone, text_of
from support.dashboard_person import Person
from support.http_server import Served
from support.phones import fan_out


def close_digests(served: Served, conn: Connection) -> None:
    """Close the open digests now."""
    conn.execute("update relevo.digest_slots set closes_at = now() - interval '1 second'")
    served.app.runner.run(served.app.registry["digest"], "manual")


def gather(conn: Connection, key: str) -> int:
    """Enqueue an event for who asked for it."""
    given = values.Event("tender.new", key, f"Bridge {key}", audience=values.Matching())
    return verbs.enqueue(conn, given).event_id


@pytest.fixture
def gathered(served: Served, conn: Connection) -> int:
    """An event that the daily digests of ana's phone and of bo's tell; ana has a second phone without digests."""
    for owner in ("ana", "bo"):
        one = make_phone(conn, owner=owner)
        verbs.set_preference(conn, one, "default", values.Preference(delivery="daily 08:00"))
    number = gather(conn, "7")
    fan_out(served.app)
    return number


@pytest.mark.parametrize("rule", ["in_digest", "digested"])
def test_what_a_digest_tells_is_said_with_its_time(
    served: Served, conn: Connection, person: Person, gathered: int, rule: str
) -> None:
    """On the pages of owner, phone and push, the digest's time is a time; no markup is shown as text.

    An event that waits for its digest, or was told in it, is "Together with others", and never "It will get it"."""
    if rule == "digested":
        close_digests(served, conn)
    (row,) = conn.execute(
        "select d.id, d.installation_id from relevo.deliveries d join relevo.device_installations i using (installation_id)"
        " where i.owner = 'ana' and d.notification_event_id = %s",
        [gathered],
    ).fetchall()
    phrase = "included it." if rule == "digested" else "includes it."
    pages = [
        "owners/ana",
        f"owners/ana?event={gathered}",
        f"installations/{row[1]}?event={gathered}",
        f"deliveries/{row[0]}",
    ]
    for page in pages:
        said = text_of(person, f"/dashboard/{page}")
        assert phrase in said, page
        assert "<time" not in said, page
        assert "It will get it" not in said, page
    assert "Together with others." in text_of(person, "/dashboard/owners/ana")


def test_what_a_digest_told_long_ago_was_told(served: Served, conn: Connection, person: Person, gathered: int) -> None:
    """A digest told it and its delivery is gone, as after its month was archived: still told, and not to come."""
    close_digests(served, conn)
    conn.execute("delete from relevo.notification_deliveries where notification_event_id = %s", [gathered])
    said = text_of(person, f"/dashboard/owners/ana?event={gathered}")
    assert "It will get it" not in said


def test_history_has_the_owners_own_pushes(served: Served, conn: Connection, person: Person) -> None:
    """A phone that ana lends to eva and has back: each owner's history has what was made for that owner; the phone's has both."""
    lent, other = make_phone(conn, owner="ana", token="ExponentPushToken[lent]"), make_phone(conn, owner="eva")
    for owner in ("ana", "eva", "ana"):
        make_phone(conn, installation_id=str(lent), token="ExponentPushToken[lent]", owner=owner)
        given = values.Event("t", uuid4().hex, f"For {owner}", audience=values.Owners(owner))
        verbs.enqueue(conn, given)
        fan_out(served.app)
    assert "For eva" in text_of(person, f"/dashboard/installations/{lent}")
    assert "For ana" in text_of(person, f"/dashboard/installations/{lent}")
    history = text_of(person, "/dashboard/owners/ana").partition("History")[2]
    assert ("For ana" in history, "For eva" in history) == (True, False)
    history = text_of(person, "/dashboard/owners/eva").partition("History")[2]
    assert ("For ana" in history, "For eva" in history) == (False, True)
    assert other != lent


def test_a_capped_push_was_not_pushed(served: Served, conn: Connection, person: Person) -> None:
    """Latest events and history say that the second push of a day was not pushed, in both languages."""
    quiet.set_cap(conn, 1, per="day", category="ads")
    eva, _bo = make_phone(conn, owner="eva"), make_phone(conn, owner="bo")
    for number in range(2):
        make_event(conn, f"ad-{number}", [eva], category="ads")
    fan_out(served.app)
    said = text_of(person, "/dashboard/owners/eva")
    assert "No. It was not pushed: a cap of its owner was reached (at most 1 a day of category ads)." in said
    assert "skipped It was not pushed: a cap of its owner was reached. It is in the inbox." in said
    assert "was sent" not in said
    spanish = person.get("/dashboard/owners/eva", headers={"accept-language": "es"}).text
    assert "No se envió: se alcanzó un límite de su dueño." in spanish
