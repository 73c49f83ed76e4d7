"""Projects beside projects: locked phones, locked rows and slow push services of some cost the others no time."""

from __future__ import annotations

import psycopg
from relaying import Relay, token
from structlog.testing import capture_logs

from relevo.client import verbs
from relevo.client.values import Installation

POOL = 6
"""How many connections of the pool a worker has by default."""


def register_gone(worker: Relay, many: int) -> list[str]:
    """Register one phone in each of many projects, all of one owner name, that the push service calls gone."""
    names = [f"gone{n}!DeviceNotRegistered" for n in range(many)]
    for n, name in enumerate(names):
        worker.register(name, project=f"gone-{n}", owner="ana")
    return names


class TestOpenRegistrations:
    """An app that registers phones and leaves its transaction open."""

    def test_they_hold_up_no_other_project(self, relay, dsn: str) -> None:
        """While an app holds the phones of six projects, which are gone, all answers are written and nobody waits for it."""
        worker: Relay = relay()
        names = register_gone(worker, POOL)
        worker.register("ana", "bob", project="sound", owner="ana")
        worker.tell(*names, "ana")
        with psycopg.connect(dsn) as app, capture_logs() as lines:
            for n, name in enumerate(names):
                verbs.register(app, Installation(token(name), project=f"gone-{n}", owner="bob"))
            worker.dispatch()
            app.rollback()
        assert worker.states() == {"invalid": POOL, "sent": 1}
        assert "tokens_not_disabled" not in {line["event"] for line in lines}, "nobody waited for a lock"
        assert worker.disabled() == 0, "the app has them"

    def test_a_token_that_was_locked_is_disabled_by_a_later_answer(self, relay, dsn: str) -> None:
        """The next push to the same phones finds them free and disables their tokens; the other phone keeps its own."""
        worker: Relay = relay()
        names = register_gone(worker, 2)
        worker.tell(*names, "ana")
        with psycopg.connect(dsn) as app:
            app.execute("select from relevo.device_installations for update")
            worker.dispatch()
            app.rollback()
        assert worker.disabled() == 0
        worker.tell(*names, "ana")
        worker.dispatch()
        assert [worker.is_disabled(name) for name in (*names, "ana")] == [True, True, False]
