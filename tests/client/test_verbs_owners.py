"""Owners: an event for people reaches the phones they have when it fans out, and what they handled on one is off the others."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners
from relevo.core.errors import InvalidInputError
from relevo.core.model import PushRequest
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end, one_step, reached


def told(kind: str, key: str, *owners: str, **fields: Any) -> Event:
    """Make an event for owners."""
    return Event(kind, key, "Hello", audience=Owners(*owners), **fields)


class TestAudience:
    """Whom an event for owners reaches."""

    def test_all_phones_of_an_owner_at_fan_out_time(self, build, conn) -> None:
        """Phones that came after the event are reached, those that left or may not receive are not, nor anybody else's."""
        mine, other = add_phones(conn, 2, owner="user-7"), add_phones(conn, 1, owner="user-8")
        add_phones(conn, 1)
        made = relevo.enqueue(conn, told("chat", "1", "user-7"))
        late = add_phones(conn, 1, owner="user-7")
        add_phones(conn, 1, owner="user-7", permission="denied")
        relevo.register(conn, Installation(None, installation_id=mine[0], owner="user-8"))
        fan_out(build())
        assert reached(conn, made.event_id) == [mine[1], *late]
        both = relevo.enqueue(conn, told("chat", "2", "user-7", "user-8", "nobody"))
        fan_out(build())
        assert reached(conn, both.event_id) == [*mine, *other, *late]
        status = relevo.get(conn, both.event_id)
        assert status is not None
        assert (status.raw["audience"], status.deliveries) == ("owners", {"pending": 4})

    def test_together_or_apart(self, build, conn) -> None:
        """Hundreds of small ones are fanned out in one step; an owner of more phones than a request holds, by slices."""
        for n in range(300):
            add_phones(conn, 1 + n % 2, owner=f"user-{n}")
        many = add_phones(conn, 120, owner="kiosk")
        relevo.enqueue_many(conn, [told("chat", str(n), f"user-{n}") for n in range(300)])
        app = build(fanout_slice_size=1_000)
        assert one_step(app).counts == {
            "targets_selected": 450, "deliveries_created": 450, "events_fanned_out": 300,
        }  # fmt: skip
        big = relevo.enqueue(conn, told("chat", "kiosk", "kiosk"))
        fan_out_to_the_end(build(fanout_slice_size=50))
        assert reached(conn, big.event_id) == many
        assert event_row(conn, big.event_id)["deliveries_created"] == 120

    def test_opt_outs_are_obeyed(self, build, conn) -> None:
        """A phone that opted out of the category is left out."""
        phones = add_phones(conn, 1, owner="ana")
        add_phones(conn, 1, owner="ana", opt_outs=["tips"])
        made = relevo.enqueue(conn, told("chat", "1", "ana", category="tips"))
        fan_out(build())
        assert reached(conn, made.event_id) == phones

    @pytest.mark.parametrize("audience", [[], Owners()])
    def test_nobody_is_an_audience(self, build, conn, audience: Any) -> None:
        """An empty audience is an event for nobody."""
        add_phones(conn, 2, owner="ana")
        made = relevo.enqueue(conn, Event("chat", "1", "Hello", audience=audience))
        fan_out(build())
        assert reached(conn, made.event_id) == []
        assert event_row(conn, made.event_id)["state"] == "fanned"

    def test_an_audience_must_be_given(self, conn) -> None:
        """Without a word about whom, nobody is told, in Python and in SQL."""
        with pytest.raises(TypeError, match="audience"):
            Event("chat", "1", "Hello")  # type: ignore[call-arg]
        with pytest.raises(
            psycopg.errors.InvalidParameterValue, match="audience must be given: everyone, installations"
        ):
            conn.execute("select relevo.enqueue(%s)", [Jsonb({"type": "chat", "key": "1", "title": "Hello"})])

    def test_a_bad_owner_is_refused_before_a_statement_is_sent(self, dsn: str) -> None:
        """The caller's transaction survives it."""
        for names in [(7,), ("",), ("x" * 201,), (["ana"],), (None,)]:
            with psycopg.connect(dsn) as app:
                relevo.enqueue(app, told("chat", "1", "ana"))
                with pytest.raises(
                    InvalidInputError, match="owners must be a list of at most 100000 texts of 1 to 200"
                ):
                    relevo.enqueue(app, told("chat", "2", *names))
                assert app.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS, names

    def test_unknown_installations_are_reported_back(self, conn) -> None:
        """Those that nobody registered are named, in the order given; the others are not."""
        (phone,) = add_phones(conn, 1)
        strangers = [uuid4(), uuid4()]
        made = relevo.enqueue(conn, Event("chat", "1", "Hello", audience=[strangers[0], phone, strangers[1]]))
        assert made.unknown_installations == tuple(strangers)
        again, nobody = relevo.enqueue_many(
            conn,
            [Event("chat", "1", "Hello", audience=[phone]), Event("chat", "2", "Hello", audience="everyone")],
            on_conflict="keep",
        )
        assert (again.created, again.unknown_installations, nobody.unknown_installations) == (False, (), ())


class TestCompletion:
    """Handled on one phone, withdrawn on the others."""

    def due(self, app: Any) -> dict[UUID, str | None]:
        """Claim what is due; return what stands in the way of each phone."""
        claim = app.claims.claim("dispatch", "default", "bulk")
        assert claim is not None
        return {delivery.installation_id: delivery.obstacle for delivery in claim.deliveries}

    def test_one_event_by_its_owner(self, build, conn) -> None:
        """The event goes on to others, to the owner's phones it does not; their other events do."""
        mine, other = add_phones(conn, 2, owner="ana"), add_phones(conn, 1, owner="bea")
        made = relevo.enqueue(conn, told("chat", "1", "ana", "bea"))
        app = build()
        fan_out(app)
        assert relevo.complete(conn, made.event_id, "read on the tablet", owner="ana")
        assert not relevo.complete(conn, made.event_id, owner="ana"), "once is enough"
        assert self.due(app) == {mine[0]: "handled_elsewhere", mine[1]: "handled_elsewhere", other[0]: None}
        kept = conn.execute("select owner, reason from relevo.event_completions").fetchall()
        assert kept == [("ana", "read on the tablet")]
        relevo.enqueue(conn, told("chat", "2", "ana"))
        fan_out(app)
        assert set(self.due(app).values()) == {None}

    def test_everything_by_its_owner(self, build, conn) -> None:
        """What was made for all the owner's phones until now ends; the reason is kept, as it is for one installation."""
        mine, other = add_phones(conn, 2, owner="ana"), add_phones(conn, 1, owner="bea")
        relevo.enqueue(conn, Event("chat", "1", "Hello", audience="everyone"))
        app = build()
        fan_out(app)
        assert relevo.complete(conn, owner="ana", reason="inbox emptied")
        assert not relevo.complete(conn, owner="nobody")
        assert relevo.complete(conn, other[0], "seen")
        assert set(self.due(app).values()) == {"handled_elsewhere"}
        asked = "select installation_id, handled_reason from relevo.device_installations order by seq"
        assert conn.execute(asked).fetchall() == [*[(each, "inbox emptied") for each in mine], (other[0], "seen")]

    def test_between_claim_and_request(self, build, conn) -> None:
        """A completion that comes after the claim is seen by the last look at the phones."""
        (phone,) = add_phones(conn, 1, owner="ana")
        made = relevo.enqueue(conn, Event("chat", "1", "Hello", audience=[phone]))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk")
        relevo.complete(conn, made.event_id, owner="ana")
        verdicts = app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
        assert [each.verdict for each in verdicts] == ["handled_elsewhere"]

    def test_something_must_be_named(self, conn) -> None:
        """Complete without event, installation and owner is refused."""
        with pytest.raises(InvalidInputError, match="needs an event, an installation or an owner"):
            relevo.complete(conn)
