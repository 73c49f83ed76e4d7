"""The listener behind PgBouncer: deaf, it says so once, however often it tries and whoever does not take its word."""

from __future__ import annotations

import psycopg
import pytest
from structlog.testing import capture_logs

from relevo.core.errors import DatabaseUnavailableError
from relevo.runtime.wakeups import Listener
from support.processes import eventually

pytestmark = pytest.mark.needs("pgbouncer")


def listener(worker, tell) -> Listener:
    """Make a listener that tests itself quickly."""
    return Listener(worker.database, on_wake=print, on_lost=print, on_change=tell, test_every_s=0.2, test_wait_s=0.2)


@pytest.fixture
def selftests(dsn):
    """Count the test calls that arrive on a direct connection."""
    with psycopg.connect(dsn, autocommit=True) as ears:
        ears.execute("listen relevo_selftest")
        heard: list[str] = []

        def count() -> int:
            heard.extend(call.payload for call in ears.notifies(timeout=0.01))
            return len(set(heard))

        yield count


def test_a_deaf_listener_says_so_once(build, selftests) -> None:
    """It tries again and again, for the address may be mended, and neither logs nor writes the same thing twice."""
    reported: list[str] = []
    ears = listener(build(), reported.append)
    with capture_logs() as lines:
        ears.start()
        eventually(lambda: selftests() >= 2, "two test calls were sent")
        ears.stop()
    assert reported == ["polling"]
    assert [line["event"] for line in lines if line["event"].startswith("wakeups")] == ["wakeups_degraded"]


@pytest.mark.parametrize("refusal", [DatabaseUnavailableError("not now"), psycopg.errors.LockNotAvailable("not now")])
def test_what_could_not_be_told_is_told_later(build, refusal) -> None:
    """A database that does not take the word neither ends the listener nor makes it log again; it is told later."""
    asked: list[str] = []

    def tell(hearing: str) -> None:
        asked.append(hearing)
        if len(asked) == 1:
            raise refusal

    ears = listener(build(), tell)
    with capture_logs() as lines:
        ears.start()
        eventually(lambda: len(asked) == 2, "it is told again")
        ears.stop()
    assert asked == ["polling"] * 2
    assert [line["event"] for line in lines if line["event"].startswith("wakeups")] == ["wakeups_degraded"]


def test_stopping_in_the_middle_of_a_test_is_no_degradation(build, selftests) -> None:
    """A test call that is not heard because the process stops says nothing about wake-ups."""
    reported: list[str] = []
    ears = Listener(build().database, on_wake=print, on_lost=print, on_change=reported.append, test_wait_s=30)
    with capture_logs() as lines:
        ears.start()
        eventually(selftests, "the test call was sent")
        ears.stop()
    assert reported == []
    assert [line for line in lines if line["event"].startswith("wakeups")] == []
