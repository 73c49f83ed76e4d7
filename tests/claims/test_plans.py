"""The plans behind claims: a batch of 1,000 costs what 1,000 rows cost, whatever the table's size and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from claiming import NOW, SECOND, answers, journal, take
from psycopg.conninfo import make_conninfo

from deliveries import TODAY
from plans import nodes, rows_read_so_far
from relevo import app, config, queries

SQL = queries.load("claims")
BATCH = 1_000

LOAD = """
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project, status,
  attempt_count, next_attempt_at, completed_at, provider_ticket_id)
select %(day)s::date - n %% 3, %(event)s, lpad(to_hex(n), 32, '0')::uuid, 'tender.new', case n %% 2 when 0 then 'default' else 'other' end,
       case when %(done)s then 'ok' else 'pending' end, %(done)s::int,
       case when %(done)s then null else %(now)s::timestamptz - interval '1 hour' + n * interval '1 millisecond' end,
       case when %(done)s then %(now)s::timestamptz end, case when %(done)s then 'ticket' end
  from generate_series(1, %(count)s) n
"""
PHONES = """
insert into relevo.device_installations (installation_id, token, handled_before)
select lpad(to_hex(n), 32, '0')::uuid, 'ExponentPushToken[' || n || ']', %(now)s::timestamptz from generate_series(1, %(count)s) n
"""
TABLES = "select oid::regclass::text from pg_class where relnamespace = 'relevo'::regnamespace and relkind = 'r'"


@dataclass
class Table:
    """A database with deliveries in it."""

    dsn: str
    conn: psycopg.Connection[Any]

    def load(self, count: int, *, done: bool, event: int) -> None:
        """Insert deliveries of one event, set-based as fan-out does, finished ones or due ones."""
        self.conn.execute(LOAD, {"day": TODAY, "event": event, "done": done, "count": count, "now": NOW})

    def load_phones(self, count: int) -> None:
        """Insert the installations of the first deliveries; each was handled in the app, before these were made."""
        self.conn.execute(PHONES, {"count": count, "now": NOW - 30 * SECOND})

    def analyze(self) -> None:
        """Bring the statistics up to date."""
        self.conn.execute("analyze relevo.notification_deliveries")


def _open(server: Any, admin: psycopg.Connection[Any], template: str, name: str) -> Iterator[Table]:
    admin.execute(f"create database {name} template {template}".encode())
    dsn = make_conninfo(server.dsn, dbname=name)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
        for (table,) in conn.execute(TABLES).fetchall():  # nobody mends the statistics behind our back
            conn.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
        yield Table(dsn, conn)
    admin.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(scope="module")
def small(server, admin, template) -> Iterator[Table]:
    """A freshly loaded table that was never analyzed and holds little more than one batch."""
    for table in _open(server, admin, template, "plans_small"):
        table.load(2 * BATCH + 100, done=False, event=1)
        table.load_phones(2 * BATCH + 100)
        yield table


@pytest.fixture(scope="module")
def big(server, admin, template) -> Iterator[Table]:
    """300,000 deliveries, 250,000 of them completed; the statistics are from when there were a thousand."""
    for table in _open(server, admin, template, "plans_big"):
        table.load(1_000, done=True, event=1)
        table.analyze()
        table.load(249_000, done=True, event=2)
        table.load(50_000, done=False, event=3)
        table.load_phones(50_000)
        yield table


@pytest.fixture(scope="module", params=["small", "big with stale statistics", "big and analyzed"])
def table(request) -> Table:
    """Each of the situations a plan must stand."""
    chosen: Table = request.getfixturevalue(request.param.split(maxsplit=1)[0])
    if request.param == "big and analyzed":
        chosen.analyze()
    return chosen


@dataclass(frozen=True)
class Cost:
    """What a statement touched: rows read from tables, the busiest node's rows, and pages."""

    rows: float
    busiest: float
    buffers: int
    plan: str


def explain(conn: psycopg.Connection[Any], name: str, parameters: dict[str, Any]) -> Cost:
    """Run a statement the way claims run it and return what it cost."""
    ((report,),) = conn.execute(b"explain (analyze, buffers, format json) " + SQL[name], parameters).fetchall()
    every = list(nodes(report[0]["Plan"]))
    root = every[0]
    buffers = sum(root.get(f"Shared {kind} Blocks", 0) for kind in ("Hit", "Read"))
    scans = [_seen(node) for node in every if "Scan" in node["Node Type"] and "Relation Name" in node]
    outline = "\n".join(
        f"{_seen(n):>9.0f} {n['Node Type']} {n.get('Relation Name', '')} {n.get('Index Name', '')}" for n in every
    )
    return Cost(sum(scans), max(map(_seen, every)), buffers, outline)


def _seen(node: dict[str, Any]) -> float:
    """Return how many rows a node looked at in all its loops, those it threw away included."""
    thrown = sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Join Filter", "Index Recheck"))
    return float((node["Actual Rows"] + thrown) * node["Actual Loops"])


@dataclass
class Batch:
    """A claim of 1,000, taken in a transaction that is rolled back at the end."""

    conn: psycopg.Connection[Any]
    token: UUID
    days: list[Any]
    ids: list[int]
    requests: list[UUID]
    installations: list[UUID]

    def cost(self, name: str, **more: Any) -> Cost:
        """Explain one of the statements that come after the claim."""
        return explain(self.conn, name, self.parameters | more)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return every parameter any of those statements takes."""
        size = len(self.ids)
        return {
            "token": self.token, "worker_id": "a", "cycle": "dispatch", "now": NOW, "lease_ms": 60_000, "timeout_ms": 10_000,
            "days": self.days, "ids": self.ids, "request_ids": [self.requests[n // 100] for n in range(size)],
            "kinds": [1] * size, "statuses": ["sent"], "spent": [1], "paced": [True], "codes": [None], "messages": [None],
            "floors_ms": [0], "projects": [None], "not_befores": [None], "types": ["tender.new"], "formers": ["pending"], "events": [1], "tickets": [f"ticket-{n}" for n in self.ids], "versions": [1] * size,
            "installations": self.installations, "project": "default", "request_outcomes": ["answered"] * len(self.requests), "receipt_ms": 900_000, "finish": False, "mixed": False,
            "max_attempts": 9, "lapsed": True,
            "retry_base_ms": 60_000, "retry_max_ms": 3_600_000, "retry_jitter_ms": 500, "poison_lapses": 5,
        }  # fmt: skip


DUE = {
    "project": "default", "lane": "bulk", "now": NOW, "shard_count": None, "shard_index": None, "only_types": None,
    "not_types": None, "limit": BATCH,
}  # fmt: skip


@pytest.fixture
def conn(table: Table) -> Iterator[psycopg.Connection[Any]]:
    """A transaction on the table, as a claim opens it, rolled back at the end."""
    with table.conn.transaction(force_rollback=True):
        table.conn.execute(
            queries.load("db")["bound_by_key"], {"statement_ms": 60_000, "lock_ms": 60_000, "idle_ms": 60_000}
        )
        yield table.conn


@pytest.fixture
def batch(conn) -> Batch:
    """A claim of 1,000 deliveries that stand behind one another in the queue."""
    rows = conn.execute(SQL["pick_due"], DUE).fetchall()
    days, ids, _, installations = ([row[n] for row in rows] for n in range(4))
    taken = Batch(conn, uuid4(), days, ids, [uuid4() for _ in range(10)], installations)
    assert len(taken.ids) == BATCH
    return taken


@pytest.fixture
def claimed(batch: Batch) -> Batch:
    """The same, claimed and journalled."""
    batch.conn.execute(SQL["claim_picked"], batch.parameters)
    batch.conn.execute(SQL["journal_wave"], batch.parameters)
    return batch


def assert_in_the_order_of_the_batch(cost: Cost, *, reads: int, buffers: int) -> None:
    """Hold a statement to so many reads and pages per delivery.

    `reads` counts how often a statement has to visit each delivery's row, with a tenth on top for rows in passing; no
    node may see more than twice the batch (a union of its two lists), else something is multiplied. A visit costs up
    to four pages (three levels of index and the row), a new row version up to four indexes of four more; `buffers` is
    that, rounded up. The big table has 9,000 pages and 300,000 rows: a scan of it breaks the bound on rows at once.
    """
    assert cost.rows <= reads * BATCH * 1.1, cost.plan
    assert cost.busiest <= 2.1 * BATCH, cost.plan
    assert cost.buffers <= buffers * BATCH, cost.plan


def test_claiming_reads_the_batch(conn) -> None:
    """A claim of 1,000 out of 300,000 reads 1,000 rows, in the order of the due index, without sorting, and their phones."""
    cost = explain(conn, "pick_due", DUE)
    assert_in_the_order_of_the_batch(cost, reads=2, buffers=12)
    assert "Sort" not in cost.plan


def test_finding_the_oldest_reads_one_row(conn) -> None:
    """Which lease class comes next is known from one row."""
    cost = explain(conn, "find_oldest_type", DUE)
    assert cost.rows <= 10, cost.plan
    assert cost.buffers <= 40


def test_marking_a_claim_touches_the_batch(batch) -> None:
    """The picked rows are updated by their keys."""
    assert_in_the_order_of_the_batch(batch.cost("claim_picked"), reads=1, buffers=20)


def test_journalling_touches_the_batch(batch) -> None:
    """The journal looks each delivery and its phone up once, by key, and once for a late ticket.

    It reads no phone of others, though all of them were handled in the app within the last minute.
    """
    batch.conn.execute(SQL["claim_picked"], batch.parameters)
    cost = batch.cost("journal_wave")
    assert_in_the_order_of_the_batch(cost, reads=2, buffers=20)
    assert "device_installations_pkey" in cost.plan


def test_looking_again_after_the_journal_touches_the_batch(claimed) -> None:
    """The second look reads each phone of the wave once, by key."""
    cost = claimed.cost("recheck_journalled")
    assert_in_the_order_of_the_batch(cost, reads=1, buffers=8)
    assert "device_installations_pkey" in cost.plan


@pytest.mark.parametrize("status", ["sent", "retryable", "failed"])
def test_settling_touches_the_batch(claimed, status) -> None:
    """A settle looks each delivery up, writes it by its key, and looks once for a ticket it used."""
    tickets = [f"ticket-{n}" if status == "sent" else None for n in claimed.ids]
    answered = {"statuses": [status], "tickets": tickets, "request_ids": claimed.requests}
    assert_in_the_order_of_the_batch(claimed.cost("settle_deliveries", **answered), reads=3, buffers=50)


@pytest.mark.parametrize("journalled", [False, True])
def test_ending_a_claim_touches_the_batch(batch, journalled) -> None:
    """Releasing or reaping a claim finds its requests by its token and each delivery by its key."""
    batch.conn.execute(SQL["claim_picked"], batch.parameters)
    if journalled:
        batch.conn.execute(SQL["journal_wave"], batch.parameters)
    assert_in_the_order_of_the_batch(batch.cost("end_claim"), reads=3, buffers=50)


@pytest.mark.parametrize("held", [False, True])
def test_late_tickets_touch_the_batch(batch, held) -> None:
    """Evidence for 1,000 deliveries, closed at once or kept, looks each of them up by its key."""
    if held:
        batch.conn.execute(SQL["claim_picked"], batch.parameters | {"token": uuid4()})
    assert_in_the_order_of_the_batch(batch.cost("keep_late_tickets"), reads=2, buffers=50)


@pytest.mark.parametrize("name", ["adopt_claim", "explain_loss"])
def test_looking_back_at_a_claim_touches_the_batch(claimed, name) -> None:
    """Adopting a claim or explaining its loss looks each delivery up by its key."""
    assert_in_the_order_of_the_batch(claimed.cost(name), reads=2, buffers=12)


@pytest.mark.parametrize("table", ["big with stale statistics"], indirect=True)
def test_a_workers_whole_round_reads_the_batch(table) -> None:
    """Claim, journal, settle and release, called as a worker calls them, read a few thousand of the 300,000 rows.

    By PostgreSQL's own count, so it also holds for what claims do around the statements explained above.
    """
    settings = config.load({"DATABASE_URL": table.dsn}, None)
    before = rows_read_so_far(table.conn, "notification_deliveries%")
    with app.build(settings) as worker:
        claim = take(worker)
        request = journal(worker, claim)
        worker.claims.settle(claim, answers(claim)[: BATCH // 2], [request.id], NOW)
        worker.claims.release(claim, NOW)
    read = rows_read_so_far(table.conn, "notification_deliveries%") - before
    assert BATCH <= read <= 12 * BATCH


HOT = """
select sum(pg_stat_get_xact_tuples_updated(inhrelid))::int, sum(pg_stat_get_xact_tuples_hot_updated(inhrelid))::int
  from pg_inherits where inhparent = 'relevo.notification_deliveries'::regclass
"""


def test_claiming_and_handing_back_are_hot_updates(server, admin, template) -> None:
    """Where pages have room, as fillfactor leaves it, neither a claim nor its hand-back touches any index."""
    for table in _open(server, admin, template, "plans_hot"):
        table.load(4_000, done=False, event=1)
        with table.conn.transaction(force_rollback=True):
            conn = table.conn
            rows = conn.execute(SQL["pick_due"], DUE | {"limit": 2_000}).fetchall()[::8]
            share = Batch(conn, uuid4(), [row[0] for row in rows], [row[1] for row in rows], [uuid4()] * 3, [])
            conn.execute(SQL["claim_picked"], share.parameters)
            assert conn.execute(HOT).fetchone() == (250, 250)
            conn.execute(SQL["end_claim"], share.parameters)
            assert conn.execute(HOT).fetchone() == (500, 500)


def test_renewing_a_lease_is_a_hot_update(server, admin, template) -> None:
    """The lease stands in no index: extending it writes one row version beside the old one."""
    for table in _open(server, admin, template, "plans_renew"):
        with table.conn.transaction(force_rollback=True):
            token = uuid4()
            table.conn.execute(
                """insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
                   values (%s, 'a', 'dispatch', %s, 60000, %s, '{}', '{}')""",
                [token, NOW, NOW],
            )
            for _ in range(5):
                table.conn.execute(SQL["renew_claims"], {"tokens": [token], "now": NOW})
            counted = "select pg_stat_get_xact_tuples_hot_updated('relevo.claims'::regclass)::int"
            assert table.conn.execute(counted).fetchone() == (5,)
