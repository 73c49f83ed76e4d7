"""What fits nothing, wrong names and wrong values: what commands and verbs say of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import relevo
from relevo.client.values import Event, Installation, Matching, Preference, TenderMatching, TenderPreference
from support.deliveries import mark_sent
from support.phones import add_phones, fan_out
from support.relevo_command import Command


def nested(levels: int) -> dict[str, Any]:
    """Return an object in an object in an object."""
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


class TestPlainAnswers:
    """What fits nothing says so, wrong names are refused with the known ones, and bad input names its field."""

    def test_filters_that_match_nothing(self, command: Command) -> None:
        """Nothing found by a filter is not called nothing at all."""
        assert command("events", "--type", "nope").out == "No event matches.\n"
        assert command("installations", "--owner", "nobody").out == "No installation matches.\n"
        assert "No events yet" in command("events").out

    def test_wrong_names(self, command: Command) -> None:
        """A cycle or a source that does not exist is refused, and those that do are named."""
        for words, known in ((("runs", "--cycle", "nope"), "dispatch"), (("rejects", "--source", "nope"), "none yet")):
            said = command(*words)
            assert (said.code, "There is no" in said.err, known in said.err) == (2, True, True)

    def test_a_phone_is_found(self, command: Command, conn) -> None:
        """By its token, its owner or its id; two tokens that begin alike can be told apart."""
        ids = [
            relevo.register(conn, Installation(f"ExponentPushToken[demo-{name}]", owner=name))
            for name in ("ana", "benja")
        ]
        rows = command("installations", "--json").lines
        assert len({row["token"] for row in rows}) == 2
        assert "demo-ana" not in str(rows)
        for words in (("--token", "ExponentPushToken[demo-ana]"), ("--owner", "ana"), ("--id", ids[0])):
            [found] = command("installations", "--json", *words).lines
            assert found["installation_id"] == str(ids[0])

    def test_bad_input_names_the_field(self, conn) -> None:
        """It is refused before a statement is sent, so that the caller's transaction survives."""
        for event, words in [
            (Event("t", "k", "a\0b", audience="everyone"), "title holds a NUL"),
            (Event("t", "k", "x", data={"a": ["b\0"]}, audience="everyone"), "data.a holds a NUL"),
            (Event("t", "k", "x", audience="evryone"), "audience must be Everyone"),  # type: ignore[arg-type]
            (Event("t", "k", "x\ud800", audience="everyone"), "title holds half a character"),
            (
                Event("t", "k", "x", data={"a": [{"b": "\udcff"}]}, audience="everyone"),
                "data.a.b holds half a character",
            ),
            (Event("t", "k", "x", data={"a": float("nan")}, audience="everyone"), "data.a must be a finite number"),
            (Event("t", "k", "x", data=nested(2_000), audience="everyone"), "is nested too deeply"),
            (Event("t", "k", "x", audience=Matching(text="\0")), "matching.text holds a NUL"),
            (
                Event("t", "k", "x", audience=TenderMatching(rubros=["\ud800"])),
                "matching.rubros holds half a character",
            ),
            (
                Event("t", "k", "x", audience=TenderMatching(monto=Decimal("Infinity"))),
                "matching.monto must be a finite",
            ),
            (Event("t", "k", "x", audience=None), "audience must be Everyone"),  # type: ignore[arg-type]
            (Event("t", "k", "x", audience=["7"]), "audience must hold UUIDs"),  # type: ignore[list-item]
        ]:
            with conn.transaction():
                with pytest.raises(relevo.InvalidInputError, match=words):
                    relevo.enqueue(conn, event)
                assert conn.execute("select 1").fetchone() == (1,), words

    def test_bad_input_elsewhere_names_the_field_too(self, conn) -> None:
        """Registering, preferring, cancelling: refused before a statement is sent."""
        phone = add_phones(conn, 1)[0]
        with conn.transaction():
            for tried, words in (
                (lambda: relevo.register(conn, Installation(token="a\0")), "token holds a NUL"),
                (lambda: relevo.register(conn, Installation(token="a\ud800")), "token holds half"),
                (lambda: relevo.set_preference(conn, phone, "a\ud800", Preference()), "name holds half"),
                (lambda: relevo.set_preference(conn, phone, "a", Preference(keywords=["\0"])), "keywords holds a NUL"),
                (
                    lambda: relevo.set_preference(conn, phone, "a", TenderPreference(monto_min=Decimal("NaN"))),
                    "monto_min must",
                ),
                (lambda: relevo.cancel(conn, 1, "a\ud800"), "reason holds half"),
                (lambda: relevo.complete(conn, 1, "a\0"), "reason holds a NUL"),
                (lambda: relevo.delete(conn, [2**63]), "event_id must be a whole number"),
            ):
                with pytest.raises(relevo.InvalidInputError, match=words):
                    tried()
            assert conn.execute("select 1").fetchone() == (1,)

    def test_an_id_out_of_range_names_its_option(self, command: Command) -> None:
        """It is wrong usage, and the option is named."""
        for words in ["redrive --id", "redrive --event", "rejects --retry --id"]:
            said = command(*words.split(), 2**63)
            assert said.code == 2, words
            assert words.rsplit(maxsplit=1)[-1] in said.err, words

    def test_a_number_out_of_range(self, conn) -> None:
        """An id that cannot be one is refused by name."""
        for number in [2**63, 0, -1, True]:
            with pytest.raises(relevo.InvalidInputError, match="event_id must be a whole number"):
                relevo.get(conn, number)

    def test_cancel_says_what_it_could_not_stop(self, command: Command, conn, build) -> None:
        """What was sent before, and what is being sent, is told with the cancellation."""
        worker = build()
        phones = add_phones(conn, 3)
        event = relevo.enqueue(conn, Event("t", "k", "x", audience=phones)).event_id
        fan_out(worker)
        [first, *_] = [row[0] for row in conn.execute("select id from relevo.notification_deliveries order by id")]
        mark_sent(conn, [first])
        conn.execute("update relevo.event_progress_deltas set deliveries = 2")
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'sent', 1)", [event]
        )
        claim = worker.claims.claim("dispatch", "default", "bulk")
        assert claim is not None
        said = command("cancel", event).out
        assert "1 push of it was already sent and stays sent." in said
        assert "2 pushes of it are being sent right now" in said
