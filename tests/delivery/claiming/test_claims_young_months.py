"""Tables that were small when plans were made for them, analysed or not, and then fill up: connections keep their plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from relevo.app import App
from relevo.core import queries
from relevo.core.model import PushRequest, ReceiptAnswer, SentRequest
from relevo.cycles.reaper import reap_one
from relevo.database.pool import Database
from relevo.delivery.claiming.claim import Claim
from support import soak
from support.claim_steps import LATER, NOW, add, answers, journal, take

READ = (
    "select relname, (coalesce(idx_tup_fetch, 0) + seq_tup_read)::int from pg_stat_xact_user_tables"
    " where schemaname = 'relevo' and (relname like 'notification_deliveries_%' or relname = 'device_installations')"
)
UNSEEN = """
do $$ declare part regclass; begin
  for part in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'relevo.notification_deliveries'::regclass
              union all select 'relevo.device_installations'::regclass loop
    execute format('alter table %s set (autovacuum_enabled = false)', part);
  end loop;
end $$
"""
MANY = 100
"""As many as a request may hold."""
TURNS = ("ok", "failed", "retryable", "waiting", "invalid")


def _claim(worker: App, project: str) -> tuple[Claim, PushRequest]:
    claim = take(worker, project=project, limit=MANY)
    return claim, journal(worker, claim)


def send(worker: App, project: str) -> None:
    """All are sent."""
    claim, request = _claim(worker, project)
    tickets = [str(answer.ticket_id) for answer in answers(claim)]
    assert worker.claims.settle_sent(claim, [SentRequest(request, tickets)], NOW, finish=True) is not None


def refuse(worker: App, project: str) -> None:
    """All fail for good."""
    claim, request = _claim(worker, project)
    worker.claims.settle(claim, answers(claim, "failed", error_code="x"), [request.id], NOW, finish=True)


def retry(worker: App, project: str) -> None:
    """All are tried again."""
    claim, request = _claim(worker, project)
    worker.claims.settle(claim, answers(claim, "retryable", error_code="x"), [request.id], NOW, finish=True)


def mix(worker: App, project: str) -> None:
    """Some are sent, some fail, some are tried again."""
    claim, request = _claim(worker, project)
    kinds = answers(claim), answers(claim, "failed", error_code="x"), answers(claim, "retryable", error_code="x")
    said = [each[n % 3] for n, each in enumerate(zip(*kinds, strict=True))]
    worker.claims.settle(claim, said, [request.id], NOW, finish=True)


def _gone(worker: App, project: str, may_prune: bool) -> None:
    claim, request = _claim(worker, project)
    said = [
        answer._replace(installation_id=delivery.installation_id, token_version=delivery.token_version)
        for answer, delivery in zip(answers(claim, "invalid", error_code="gone"), claim.deliveries, strict=True)
    ]
    worker.claims.settle(claim, said, [request.id], NOW, finish=True, may_prune=lambda *_: may_prune)


def disable(worker: App, project: str) -> None:
    """The phones are gone."""
    _gone(worker, project, may_prune=True)


def doubt(worker: App, project: str) -> None:
    """The phones are said to be gone, and that is doubted."""
    _gone(worker, project, may_prune=False)


def hand_back(worker: App, project: str) -> None:
    """All are handed back."""
    worker.claims.release(take(worker, project=project, limit=MANY), NOW)


def _reap(worker: App) -> None:
    with worker.database.transaction("bound_by_key") as connection:
        assert reap_one(connection, worker.settings, LATER) is not None


def lapse(worker: App, project: str) -> None:
    """Their worker died before a request."""
    take(worker, project=project, limit=MANY)
    _reap(worker)


def answer_late(worker: App, project: str) -> None:
    """Their worker was taken for dead, and has tickets."""
    claim, request = _claim(worker, project)
    _reap(worker)
    worker.claims.settle(claim, answers(claim), [request.id], LATER)


def begin_none(worker: App, project: str) -> None:
    """Their worker was taken for dead, and had begun no request."""
    claim, request = _claim(worker, project)
    _reap(worker)
    worker.claims.mark_unsent(claim, [request.id], LATER)


def ask_receipts(worker: App, project: str) -> None:
    """They are sent, and their receipts say all there is."""
    send(worker, project)
    later = NOW + timedelta(hours=1)
    claim = worker.claims.claim_awaiting(project, limit=MANY, now=later)
    assert claim is not None
    said = [ReceiptAnswer(each, TURNS[n % len(TURNS)]) for n, each in enumerate(claim.deliveries)]
    worker.claims.settle_receipts(claim, said, later)


def confirm(worker: App, project: str) -> None:
    """They are sent, and all arrived."""
    send(worker, project)
    later = NOW + timedelta(hours=1)
    claim = worker.claims.claim_awaiting(project, limit=MANY, now=later)
    assert claim is not None
    worker.claims.settle_receipts(claim, [ReceiptAnswer(each, "ok") for each in claim.deliveries], later)


def sweep(worker: App, project: str) -> None:
    """Their event is cancelled."""
    find = "select event_id from relevo.due_chunks where project = %s limit 1"
    with worker.database.transaction("bound_by_key") as connection:
        (event,) = connection.execute(find, [project]).fetchone()
        ending = {"event_id": event, "limit": MANY, "now": NOW}
        connection.execute(queries.load("fanout")["cancel_deliveries"], ending)


WAYS = (
    send,
    refuse,
    retry,
    mix,
    disable,
    doubt,
    hand_back,
    lapse,
    answer_late,
    begin_none,
    ask_receipts,
    confirm,
    sweep,
)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many deliveries or phones each transaction has read of a table, at most."""
    begin, most = Database.begin, []

    @contextmanager
    def counting(self: Database, connection: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        with begin(self, connection, *args, **kwargs):
            before = dict(connection.execute(READ).fetchall())
            yield
            after = dict(connection.execute(READ).fetchall())
            most.append(max((rows - before.get(table, 0) for table, rows in after.items()), default=0))

    monkeypatch.setattr(Database, "begin", counting)
    return most


@pytest.mark.parametrize("analyzed", soak.cases([None, 1], whole=[None, 0, 1, 2, 6]))
def test_writes_go_by_the_key_of_each_delivery(build, conn, read, analyzed: int | None) -> None:
    """Whatever becomes of a claim, each of its deliveries is read a few times, however many others there are, and however
    many there were when somebody last looked at statistics and the plans were made. Before PostgreSQL 17 receipts that
    all say ok are left out: of a young month they may read a day at once.
    """
    conn.execute(UNSEEN)
    worker = build()
    ways = WAYS if conn.info.server_version >= 170000 else [way for way in WAYS if way is not confirm]
    add(conn, analyzed or 0, project="first")
    if analyzed is not None:
        conn.execute("analyze")
    for way in ways:
        for n in range(3):
            add(conn, 1, project=way.__name__, event=n, at_most_once=way in (answer_late, begin_none))
            way(worker, way.__name__)
    for n, way in enumerate(ways):
        add(conn, MANY, project=way.__name__, event=100 + n, at_most_once=way in (answer_late, begin_none))
    add(conn, 20 * MANY, project="others")
    found = {}
    for way in ways:
        read.clear()
        way(worker, way.__name__)
        found[way.__name__] = max(read)
    assert {name: rows for name, rows in found.items() if rows > 5 * MANY} == {}
