"""A machine whose clock is wrong is named: workers compare their clock with the database's at every beat."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from relevo.app import build
from relevo.config import Settings
from relevo.operators import fleet

HOUR_S = 3_600.0


@pytest.mark.parametrize(
    ("off_s", "said"), [(HOUR_S, " ahead of the database's"), (-HOUR_S, " behind the database's"), (5.0, "")]
)
def test_status_names_the_host(make_settings: Callable[..., Settings], off_s: float, said: str) -> None:
    """An hour ahead or behind is told with the host; some seconds are not."""
    with build(make_settings()) as app:
        app.worker._clock = lambda: time.time() + off_s
        app.worker.record_start("run", ["reaper", "dispatch"])
        problems = fleet.status(app.database, app.settings).problems
        told = [str(each) for each in problems if each.code == "clock_wrong"]
    assert [f"the clock of {socket.gethostname()} is" in each and said in each for each in told] == [True] * bool(said)


def test_a_clock_that_is_right_again_is_told_with_the_next_beat(make_settings: Callable[..., Settings]) -> None:
    """The sentence goes away by the heartbeat, without a restart."""
    with build(make_settings()) as app:
        app.worker._clock = lambda: time.time() + HOUR_S
        app.worker.record_start("run", ["reaper", "dispatch"])

        def codes() -> list[str]:
            return [each.code for each in fleet.status(app.database, app.settings).problems]

        assert "clock_wrong" in codes()
        ended = "update relevo.workers set {0} = now() where worker_id = %s"
        for when in ("stopped_at", "lost_at"):  # the clock of a worker that is gone is nobody's trouble
            with app.database.transaction() as connection:
                connection.execute(ended.format(when).encode(), [app.worker.worker_id])
            assert "clock_wrong" not in codes()
            with app.database.transaction() as connection:
                connection.execute(ended.format(when).replace("now()", "null").encode(), [app.worker.worker_id])
        assert "clock_wrong" in codes()
        app.worker._clock = time.time
        with app.database.transaction() as connection:
            app.worker.beat(connection)
        assert "clock_wrong" not in codes()
