"""A fleet of many projects with a push each: what each of these costs the database does not add up."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from relevo.database.pool import Connection
from support.sending_worker import Relay

MANY = 30
MOST_EACH = 4.5
"""Transactions of a push: reserved and claimed, journalled, looked at once more, settled."""
MOST_BESIDE = 15
"""Those of a run, however much it sends: its row, the first and the last look, connections given back."""


def count_transactions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each transaction that a pool's connections begin from now on, but for looks at what is due: time makes those."""
    begun: list[str] = []
    execute = Connection.execute

    def noted(self: Connection, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else str(query)
        if self.info.transaction_status == TransactionStatus.IDLE and "relevo.due_lanes(" not in text:
            begun.append(text)
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(Connection, "execute", noted)
    return begun


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_push_of_each_costs_few_transactions(relay, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Thirty projects with a push each take less than five transactions a push, whether they sent before or not."""
    worker: Relay = relay(push_rate_per_second=600)
    for n in range(MANY):
        worker.register(f"p{n}", project=f"project-{n}")
    if known:
        worker.tell(*worker.phones)
        worker.dispatch()
    worker.tell(*worker.phones)
    begun = count_transactions(monkeypatch)
    worker.dispatch()
    monkeypatch.undo()
    worker.everyone_received(2 if known else 1)
    assert len(begun) <= MOST_EACH * MANY + MOST_BESIDE, f"{len(begun) / MANY:.1f} a push"


def test_no_token_is_spent_in_vain(relay) -> None:
    """A push of a project with a rate takes one of its tokens, and leaves the others where they were."""
    worker: Relay = relay(push_rate_per_second=600)
    worker.tell("ana")
    worker.clock.stop()
    worker.travel(seconds=1)
    worker.dispatch()
    full = worker.app.services.projects.rules.of("default").chunk
    assert worker.project()["bulk_tokens"] == full - 1
