"""What the tests of claims share."""

from __future__ import annotations

import pytest

from support.claim_steps import add, answers, journal, reap, take, ticket_of
from support.lost_claims import REAPED_AT


@pytest.fixture
def lost(build, conn):
    """Return a worker with a claim it sent and lost; `lost.answer(now)` hands in its tickets."""

    class Lost:
        def __init__(self) -> None:
            self.worker = build(worker_id="slow")
            self.other = build(worker_id="other")
            self.delivery = 0

        def send(self, **columns):
            (self.delivery,) = add(conn, 1, **columns)
            self.claim = take(self.worker)
            self.request = journal(self.worker, self.claim)
            reap(self.other, REAPED_AT)
            return self

        def answer(self, now):
            return self.worker.claims.settle(self.claim, answers(self.claim), [self.request.id], now)

        @property
        def ticket(self):
            return ticket_of(self.claim, self.delivery)

    return Lost()
