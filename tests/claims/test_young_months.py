"""A month that was empty when plans were made for it, and then fills up before anybody looked at its statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from claiming import NOW, add, answers, journal, take

from relevo.app import App
from relevo.delivery.claim import Claim
from relevo.model import SentRequest

FETCHED = (
    "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::int from pg_stat_xact_user_tables"
    " where schemaname = 'relevo' and relname like 'notification_deliveries_%'"
)
UNSEEN = """
do $$ declare part regclass; begin
  for part in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'relevo.notification_deliveries'::regclass loop
    execute format('alter table %s set (autovacuum_enabled = false)', part);
  end loop;
end $$
"""
MANY = 100
"""As many as a request may hold."""


@pytest.fixture
def fetched(build, conn: psycopg.Connection[Any]) -> tuple[App, list[int]]:
    """A worker, and how many deliveries each transaction of its claims has read, while nobody looks at statistics."""
    conn.execute(UNSEEN)
    worker = build()
    transaction, read = worker.claims._transaction, []

    @contextmanager
    def counting(*manner: Any) -> Iterator[Any]:
        with transaction(*manner) as connection:
            yield connection
            read.append(connection.execute(FETCHED).fetchone()[0])

    worker.claims._transaction = counting
    return worker, read


def _send_all(worker: App, claim: Claim) -> None:
    request = journal(worker, claim)
    tickets = [str(answer.ticket_id) for answer in answers(claim)]
    assert worker.claims.settle_sent(claim, [SentRequest(request, tickets)], NOW, finish=True) is not None


def _refuse_all(worker: App, claim: Claim) -> None:
    request = journal(worker, claim)
    worker.claims.settle(claim, answers(claim, "failed", error_code="x"), [request.id], NOW, finish=True)


def _retry_all(worker: App, claim: Claim) -> None:
    request = journal(worker, claim)
    worker.claims.settle(claim, answers(claim, "retryable", error_code="x"), [request.id], NOW, finish=True)


def _hand_back(worker: App, claim: Claim) -> None:
    worker.claims.release(claim, NOW)


@pytest.mark.parametrize("end", [_send_all, _refuse_all, _retry_all, _hand_back])
def test_writes_go_by_the_key_of_each_delivery(fetched: Any, conn: psycopg.Connection[Any], end: Any) -> None:
    """What is settled or handed back reads each of its deliveries a few times, however many others the day holds."""
    worker, read = fetched
    for _ in range(12):
        add(conn, 1)
        end(worker, take(worker, limit=1))
    add(conn, 30 * MANY, project="many")
    read.clear()
    claim = take(worker, project="many", limit=MANY)
    end(worker, claim)
    assert max(read) <= 20 * MANY
