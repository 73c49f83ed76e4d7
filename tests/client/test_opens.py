"""Taps: reported by phones once or twice, early or late, counted, told as news, and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import relevo
from relevo.core.errors import InvalidInputError
from support import news_subscriptions
from support.inboxes import sent
from support.news_subscriptions import reap
from support.phones import add_phones

TYPE = "insert into relevo.event_types (event_type, opens, complete_on) values (%s, %s, %s)"
ROW = "select opened_at, opened_action from relevo.notification_deliveries where id = %s"


def opening(
    conn: psycopg.Connection[Any], event_type: str = "t", *, opens: bool | None = True, on: str | None = None
) -> None:
    """Let a type ask for taps."""
    conn.execute(TYPE, [event_type, opens, on])


def delivery_of(conn: psycopg.Connection[Any], event: int, phone: UUID) -> int:
    """Return the id of an event's delivery to a phone."""
    row = conn.execute(
        "select id from relevo.notification_deliveries where notification_event_id = %s and installation_id = %s",
        [event, phone],
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def tapped(conn: psycopg.Connection[Any]) -> tuple[UUID, int, int]:
    """A phone of ana's, an event of a type that asks for taps, and its delivery."""
    opening(conn)
    [phone] = add_phones(conn, 1, owner="ana")
    event = sent(conn, [phone], at=datetime.now(UTC) - timedelta(hours=2))
    return phone, event, delivery_of(conn, event, phone)


def test_a_tap_is_noted_once(conn: psycopg.Connection[Any], tapped: tuple[UUID, int, int]) -> None:
    """The platforms report a tap twice: the first report stays, with its time and button."""
    phone, event, delivery = tapped
    at = datetime.now(UTC) - timedelta(hours=1)
    assert relevo.report_opened(conn, phone, delivery, at=at, action="reply") == "noted"
    assert relevo.report_opened(conn, phone, delivery, action="archive") == "known"
    assert conn.execute(ROW, [delivery]).fetchone() == (at, "reply")
    status = relevo.get(conn, event)
    assert status is not None
    assert status.reactions == {"taken": 0, "opened": 1, "read": 0}


@pytest.mark.parametrize(("by", "expected"), [(timedelta(days=400), "now"), (timedelta(days=-400), "made")])
def test_the_clock_of_a_phone_may_be_off(
    conn: psycopg.Connection[Any], tapped: tuple[UUID, int, int], by: timedelta, expected: str
) -> None:
    """It was opened neither in the future nor before it was sent, whatever the phone says."""
    phone, _, delivery = tapped
    assert relevo.report_opened(conn, phone, delivery, at=datetime.now(UTC) + by) == "noted"
    row = conn.execute(
        "select opened_at <= now() and opened_at > now() - interval '1 minute' as now, opened_at = created_at as made "
        "from relevo.notification_deliveries where id = %s", [delivery]
    ).fetchone()  # fmt: skip
    assert row == (expected == "now", expected == "made")


def test_what_is_not_asked_for_is_not_kept(conn: psycopg.Connection[Any]) -> None:
    """Taps on pushes of a type that does not ask leave no trace, nor do those on another's push."""
    mine, other = add_phones(conn, 2)
    event = sent(conn, [mine])
    delivery = delivery_of(conn, event, mine)
    assert relevo.report_opened(conn, mine, delivery) == "off"
    opening(conn)
    assert relevo.report_opened(conn, other, delivery) == "gone"
    assert relevo.report_opened(conn, uuid4(), delivery) == "gone"
    assert relevo.report_opened(conn, mine, delivery + 1000) == "gone"
    assert conn.execute(ROW, [delivery]).fetchone() == (None, None)
    assert conn.execute("select count(*) from relevo.event_reactions").fetchone() == (0,)


def test_reports_come_late_but_not_too_late(conn: psycopg.Connection[Any]) -> None:
    """A report counts for 30 days after the push was sent, and no more once its month is on its way to the archive."""
    opening(conn)
    [phone] = add_phones(conn, 1)
    now = datetime.now(UTC)
    late, too_late, sealed = (
        sent(conn, [phone], at=now - timedelta(days=days), day=(now - timedelta(days=days)).date())
        for days in (29, 31, 0)
    )
    assert relevo.report_opened(conn, phone, delivery_of(conn, late, phone)) == "noted"
    assert relevo.report_opened(conn, phone, delivery_of(conn, too_late, phone)) == "too_late"
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
        " values ('notification_deliveries', date_trunc('month', now() at time zone 'UTC')::date, 'sealed', 'x', 1, now())"
    )
    assert relevo.report_opened(conn, phone, delivery_of(conn, sealed, phone)) == "too_late"


def test_taps_that_are_counted_at_different_times_add_up(
    conn: psycopg.Connection[Any], build: Callable[..., Any]
) -> None:
    """Phones open an event and read it before and after Relevo summed up what was reported: all of it counts."""
    opening(conn)
    phones = [add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "bea", "eva")]
    event, worker = sent(conn, phones), build()
    for phone, owner in zip(phones, ("ana", "bea", "eva"), strict=True):
        assert relevo.report_opened(conn, phone, delivery_of(conn, event, phone)) == "noted"
        assert relevo.mark_inbox(conn, event, "read", owner=owner)
        reap(worker)
    relevo.mark_inbox(conn, event, "unread", owner="eva")
    reap(worker)
    status = relevo.get(conn, event)
    assert status is not None
    assert status.reactions == {"taken": 0, "opened": 3, "read": 2}


def test_two_reports_at_once_count_once(conn: psycopg.Connection[Any], dsn: str, tapped: tuple[UUID, int, int]) -> None:
    """Of two reports of one tap that come at the same time one is noted."""
    phone, event, delivery = tapped
    told: list[str] = []
    ready = threading.Barrier(2)

    def report() -> None:
        with psycopg.connect(dsn) as own:
            ready.wait(10)
            told.append(relevo.report_opened(own, phone, delivery))

    threads = [threading.Thread(target=report) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(told) == ["known", "noted"]
    status = relevo.get(conn, event)
    assert status is not None
    assert status.reactions == {"taken": 0, "opened": 1, "read": 0}


def test_reads_are_counted_where_taps_are(conn: psycopg.Connection[Any], build: Callable[..., Any]) -> None:
    """Marked as read counts, marked again not, unread takes it back; everything before an instant counts each once."""
    opening(conn)
    [ana] = add_phones(conn, 1, owner="ana")
    [bob] = add_phones(conn, 1, owner="bob")
    event, other = sent(conn, [ana, bob]), sent(conn, [ana], type="quiet")

    def read() -> Any:
        status = relevo.get(conn, event)
        assert status is not None
        assert status.reactions is not None
        return status.reactions["read"]

    for mark, count in (
        ("read", 1),
        ("read", 1),
        ("unread", 0),
        ("read", 1),
        ("unseen", 0),
        ("archive", 0),
        ("unarchive", 0),
    ):
        relevo.mark_inbox(conn, event, mark, owner="ana")
        assert read() == count, mark
    relevo.mark_inbox_before(conn, owner="ana")
    relevo.mark_inbox_before(conn, owner="ana")
    relevo.mark_inbox_before(conn, mark="seen", owner="bob")
    assert read() == 1
    relevo.mark_inbox_before(conn, owner="bob")
    reap(build())
    assert read() == 2
    assert conn.execute("select count(*) from relevo.event_reactions").fetchone() == (0,)
    assert conn.execute(
        "select read_count, opened_count from relevo.notification_events where id = %s", [event]
    ).fetchone() == (2, None)
    quiet = relevo.get(conn, other)
    assert quiet is not None
    assert quiet.reactions is None


def test_what_was_opened_is_news_for_who_asks(
    conn: psycopg.Connection[Any], build: Callable[..., Any], tapped: tuple[UUID, int, int]
) -> None:
    """`delivery.opened` is told to subscriptions that name it, once; those that name nothing do not hear of it."""
    phone, event, delivery = tapped
    news_subscriptions.subscribe(conn, "taps", "delivery.opened")
    relevo.subscribe_news(conn, "usual")
    relevo.report_opened(conn, phone, delivery, action="reply")
    relevo.report_opened(conn, phone, delivery)
    reap(build())
    [told] = news_subscriptions.read(conn, "taps")
    assert (told["kind"], told["event_id"], told["delivery_id"], told["data"]["action"]) == (
        "delivery.opened", event, delivery, "reply",
    )  # fmt: skip
    assert news_subscriptions.read(conn, "usual") == []


@pytest.mark.parametrize("how", ["owner", "installation"])
def test_taps_are_forgotten_with_the_person(
    conn: psycopg.Connection[Any], tapped: tuple[UUID, int, int], how: str
) -> None:
    """After forgetting nothing says when this phone opened what; how often the event was opened stays."""
    phone, event, delivery = tapped
    relevo.report_opened(conn, phone, delivery, action="reply")
    relevo.forget(conn, owner="ana") if how == "owner" else relevo.forget(conn, phone)
    assert conn.execute(ROW, [delivery]).fetchone() == (None, None)
    status = relevo.get(conn, event)
    assert status is not None
    assert status.reactions == {"taken": 0, "opened": 1, "read": 0}


def test_bad_reports_are_refused_by_name(conn: psycopg.Connection[Any], tapped: tuple[UUID, int, int]) -> None:
    """What is no phone, delivery, time or button is refused before a statement, and the SQL door says the same."""
    phone, _, delivery = tapped
    for given, said in (
        ((str(phone), delivery), "installation_id must be"),
        ((phone, True), "delivery_id must be"),
        ((phone, 0), "delivery_id must be"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            relevo.report_opened(conn, *given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="at must be"):
        relevo.report_opened(conn, phone, delivery, at=datetime(2026, 11, 17))  # noqa: DTZ001 that is what is wrong
    with pytest.raises(InvalidInputError, match="action must be text of 1 to 100"):
        relevo.report_opened(conn, phone, delivery, action="x" * 101)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="action must be text of 1 to 100"):
        conn.execute("select relevo.report_opened(%s, %s, null, %s)", [phone, delivery, "x" * 101])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="installation and delivery must be given"):
        conn.execute("select relevo.report_opened(null, 1)")


class TestCompleting:
    """What on one phone ends what still waits on the owner's others."""

    WAITING = "select owner, reason from relevo.event_completions where event_id = %s"

    def made(self, conn: psycopg.Connection[Any], status: str = "pending") -> tuple[UUID, int]:
        """Return a phone of ana's and an event that waits for both of hers."""
        phones = add_phones(conn, 2, owner="ana")
        event = sent(conn, phones, status=status)
        conn.execute(
            "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, 2)",
            [event, status],
        )
        return phones[0], event

    @pytest.mark.parametrize("how", ["one", "all"])
    def test_read(self, conn: psycopg.Connection[Any], how: str) -> None:
        """Marked as read, by itself or with all before: what waits ends for this owner, and nothing is counted unasked."""
        opening(conn, opens=None, on="read")
        _, event = self.made(conn)
        relevo.mark_inbox(conn, event, "seen", owner="ana")
        assert conn.execute(self.WAITING, [event]).fetchall() == []
        relevo.mark_inbox(conn, event, "read", owner="ana") if how == "one" else relevo.mark_inbox_before(
            conn, owner="ana"
        )
        assert conn.execute(self.WAITING, [event]).fetchall() == [("ana", "read")]
        assert conn.execute("select count(*) from relevo.event_reactions").fetchone() == (0,)

    def test_opened(self, conn: psycopg.Connection[Any]) -> None:
        """Opened: what waits ends; the tap itself is not kept unless the type asks for that, too."""
        opening(conn, opens=None, on="opened")
        phone, event = self.made(conn)
        relevo.mark_inbox(conn, event, "read", owner="ana")
        assert conn.execute(self.WAITING, [event]).fetchall() == []
        delivery = delivery_of(conn, event, phone)
        conn.execute(
            "update relevo.notification_deliveries set status = 'sent', provider_ticket_id = 'x' where id = %s",
            [delivery],
        )
        assert relevo.report_opened(conn, phone, delivery) == "noted"
        assert conn.execute(self.WAITING, [event]).fetchall() == [("ana", "opened")]
        assert conn.execute(ROW, [delivery]).fetchone() == (None, None)

    def test_nothing_is_written_where_nothing_waits(self, conn: psycopg.Connection[Any]) -> None:
        """Of an event that all phones got no row is left, nor for who has the phone since."""
        opening(conn, opens=None, on="opened")
        phone, event = self.made(conn, status="ok")
        assert relevo.report_opened(conn, phone, delivery_of(conn, event, phone)) == "noted"
        assert conn.execute(self.WAITING, [event]).fetchall() == []
        conn.execute("update relevo.event_progress_deltas set status = 'pending'")
        conn.execute("update relevo.device_installations set owner = 'bob', owner_since = now() + interval '1 second'")
        relevo.report_opened(conn, phone, delivery_of(conn, event, phone))
        assert conn.execute(self.WAITING, [event]).fetchall() == []


UNSENT = [
    ("pending", 0),
    ("retryable", 1),
    ("invalid", 1),
    ("failed", 1),
    ("expired", 0),
    ("skipped", 0),
    ("cancelled", 0),
]
LIKE = """
update relevo.notification_deliveries
   set status = %s, attempt_count = %s, provider_ticket_id = null,
       completed_at = case when %s in ('pending', 'retryable') then null else now() end
 where id = %s
"""


@pytest.mark.parametrize(("status", "attempts"), UNSENT)
def test_a_tap_of_a_push_that_was_never_sent(conn: psycopg.Connection[Any], status: str, attempts: int) -> None:
    """It is refused by name, kept nowhere, counted nowhere, and completes nothing on the owner's other phones."""
    opening(conn, on="opened")
    [one, other] = add_phones(conn, 2, owner="ana")
    event = sent(conn, [one, other], at=datetime.now(UTC) - timedelta(hours=2))
    delivery = delivery_of(conn, event, one)
    conn.execute(LIKE, [status, attempts, status, delivery])
    assert relevo.report_opened(conn, one, delivery) == "unsent"
    assert conn.execute(ROW, [delivery]).fetchone() == (None, None)
    found = relevo.get(conn, event)
    assert found is not None
    assert found.reactions is not None
    assert found.reactions["opened"] == 0
    assert conn.execute("select count(*) from relevo.event_completions").fetchone() == (0,)
    assert relevo.report_opened(conn, other, delivery_of(conn, event, other)) == "noted"


@pytest.mark.parametrize("status", ["sent", "ok", "unconfirmed", "unknown"])
def test_a_tap_of_a_push_that_was_sent(conn: psycopg.Connection[Any], tapped: Any, status: str) -> None:
    """Whatever is known of it afterwards, a push that a service took can be opened."""
    phone, _, delivery = tapped
    conn.execute(
        "update relevo.notification_deliveries set status = %s, provider_ticket_id = 'x',"
        " completed_at = case when %s = 'sent' then null else now() end where id = %s",
        [status, status, delivery],
    )
    assert relevo.report_opened(conn, phone, delivery) == "noted"


def test_a_tap_before_the_answer_is_written(conn: psycopg.Connection[Any], tapped: Any) -> None:
    """A push that is under way, or whose answer nobody saw, may have arrived: its tap counts."""
    phone, _, delivery = tapped
    conn.execute(LIKE, ["pending", 0, "pending", delivery])
    [[day]] = conn.execute("select event_day from relevo.notification_deliveries where id = %s", [delivery]).fetchall()
    claim = uuid4()
    conn.execute(
        "insert into relevo.claims (token, worker_id, cycle, claimed_at, leased_until, lease_ms, days, ids)"
        " values (%s, 'w', 'dispatch', now(), now() + interval '1 min', 60000, array[%s::date], array[%s::bigint])",
        [claim, day, delivery],
    )
    assert relevo.report_opened(conn, phone, delivery) == "unsent"
    conn.execute(
        "insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, days, ids)"
        " values ((now() at time zone 'UTC')::date, gen_random_uuid(), %s, 'w', now(), array[%s::date], array[%s::bigint])",
        [claim, day, delivery],
    )
    assert relevo.report_opened(conn, phone, delivery) == "noted"


def test_a_tap_after_an_answer_that_nobody_saw(conn: psycopg.Connection[Any], tapped: Any) -> None:
    """A push that is tried again because its answer was not seen can be opened; one that was refused cannot."""
    phone, _, delivery = tapped
    conn.execute(LIKE, ["retryable", 1, "retryable", delivery])
    attempt = (
        "insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code)"
        " select event_day, id, %s, now(), 1, 'reaper', 'retryable', %s from relevo.notification_deliveries where id = %s"
    )
    conn.execute(attempt, [1, "MismatchSenderId", delivery])
    assert relevo.report_opened(conn, phone, delivery) == "unsent"
    conn.execute(attempt, [2, "answer_not_seen", delivery])
    assert relevo.report_opened(conn, phone, delivery) == "noted"


def test_a_late_ticket_makes_a_tap_possible(conn: psycopg.Connection[Any], tapped: tuple[UUID, int, int]) -> None:
    """A delivery that ended unsent takes no tap, but one whose ticket came late does: the phone has its push."""
    phone, _, delivery = tapped
    ended = "update relevo.notification_deliveries set status = 'failed', completed_at = now(), provider_ticket_id = null, last_error_code = 'x' where id = %s"
    conn.execute(ended, [delivery])
    assert relevo.report_opened(conn, phone, delivery) == "unsent"
    conn.execute(
        "insert into relevo.late_tickets select d.event_day, d.id, 'ticket', gen_random_uuid(), now() from relevo.notification_deliveries d where d.id = %s",
        [delivery],
    )
    assert relevo.report_opened(conn, phone, delivery) == "noted"
