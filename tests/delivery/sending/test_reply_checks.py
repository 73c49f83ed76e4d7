"""What an adapter of anybody's returns: each part that is not what it should be is put right, and no other is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from relevo.core.model import ReceiptReply, Reply, Ticket
from relevo.delivery.sending.reply_checks import checked_receipts, checked_reply, checked_ticket

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
WHOLE = Ticket("invalid", "t1", "Gone", "It is gone.", True, 5_000, "phone", NOON)
A_WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize("rest", [WHOLE, Ticket("sent", "t1")], ids=["with a pause", "plain"])
@pytest.mark.parametrize(
    ("part", "said", "read"),
    [
        ("id", 7, "7"),
        ("code", 404, "404"),
        ("message", ValueError("gone"), "gone"),
        ("message", ["x" * 3_000], "['" + "x" * 1_998),
        ("retry_after_ms", "60000", 60_000),
        ("retry_after_ms", "soon", 0),
        ("retry_after_ms", None, 0),
        ("retry_after_ms", float("inf"), 0),
        ("retry_after_ms", -1, 0),
        ("retry_after_ms", A_WEEK_MS, A_WEEK_MS),
        ("retry_after_ms", A_WEEK_MS + 1, A_WEEK_MS),
        ("gone_at", "yesterday", None),
        ("gone_at", NOON.replace(tzinfo=None), None),
        ("gone_at", NOON, NOON),
    ],
)
def test_each_part_of_a_ticket_is_put_right_by_itself(rest: Ticket, part: str, said: Any, read: Any) -> None:
    """One that is no text becomes text, a pause is a number of milliseconds up to a week, a time has its zone."""
    assert checked_ticket(rest._replace(**{part: said})) == rest._replace(**{part: read})


@pytest.mark.parametrize("pauses", ["world", None, ["phone"]])
def test_whose_pause_it_is_is_known(pauses: Any) -> None:
    """A pause of nobody known is that of the message."""
    assert checked_ticket(WHOLE._replace(pauses=pauses)) == WHOLE._replace(pauses="message")


@pytest.mark.parametrize("said", [None, "sent", ("sent", "t1"), Ticket("taken"), Ticket(["sent"])])  # type: ignore[arg-type]
def test_what_is_no_ticket_is_unclear(said: Any) -> None:
    """Nobody knows what became of its message, and the ticket says what was said."""
    read = checked_ticket(said)
    assert (read.fate, read.code, read.id) == ("unclear", "provider_failed", None)


@pytest.mark.parametrize(
    ("part", "said", "read"),
    [
        ("code", 503, "503"),
        ("message", OSError("away"), "away"),
        ("retry_after_ms", "soon", 0),
        ("retry_after_ms", 2 * A_WEEK_MS, A_WEEK_MS),
        ("projects", None, {}),
        ("projects", {1: 2}, {"1": "2"}),
        ("not_before", NOON.replace(tzinfo=None), None),
        ("not_before", NOON, NOON),
    ],
)
def test_so_is_each_part_of_a_reply(part: str, said: Any, read: Any) -> None:
    """The same of what is said of a whole request, and of a question for receipts where that has the part."""
    sound = Reply("throttled", (), "429", "Wait.", 1_000)
    assert checked_reply(replace(sound, **{part: said})) == replace(sound, **{part: read})
    receipts = ReceiptReply("throttled", {"t1": WHOLE}, "429", "Wait.", 1_000)
    if hasattr(receipts, part):
        assert checked_receipts(replace(receipts, **{part: said})) == replace(receipts, **{part: read})


@pytest.mark.parametrize("said", [None, "answered", Reply("taken")])  # type: ignore[arg-type]
def test_what_is_no_reply_is_none(said: Any) -> None:
    """Neither to a request nor to a question for receipts."""
    assert (checked_reply(said), checked_receipts(said)) == (None, None)
