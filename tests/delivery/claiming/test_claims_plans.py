"""The plans behind claims: a batch of 1,000 costs what 1,000 rows cost, whatever the table's size and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relevo import app, config
from relevo.core import queries
from relevo.core.model import Delivery
from relevo.delivery.claiming.columns import Chunk, deliveries_of
from support.claim_steps import NOW, SECOND, answers, journal, take
from support.deliveries import TODAY, add_event
from support.query_plans import BY_KEY, nodes, rows_read_so_far

SQL = queries.load("claims", "journal", "settle")
BATCH = 1_000
CHUNKS = BATCH // 100

LOAD = """
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project, status,
  attempt_count, completed_at, provider_ticket_id)
select %(day)s::date - n %% 3, (%(events)s::bigint[])[n %% 3 + 1], lpad(to_hex(n), 32, '0')::uuid, 'tender.new',
       case n %% 2 when 0 then 'default' else 'other' end, case when %(done)s then 'ok' else 'pending' end, %(done)s::int,
       case when %(done)s then %(now)s::timestamptz end, case when %(done)s then 'ticket' end
  from generate_series(1, %(count)s) n
"""
QUEUE = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
  ids, installations)
select o.project, 'bulk', %(now)s::timestamptz - interval '1 hour' + o.piece * interval '1 millisecond', o.event_day,
       o.notification_event_id, 'tender.new', o.created_at, 0, 0, false, array_agg(o.id), array_agg(o.installation_id)
  from (select d.*, row_number() over (partition by d.project, d.notification_event_id order by d.id) / 100 as piece
          from relevo.notification_deliveries d where d.notification_event_id = any (%(events)s)) o
 group by o.project, o.event_day, o.notification_event_id, o.created_at, o.piece
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
    loaded: int = 0

    def load(self, count: int, *, done: bool) -> None:
        """Insert deliveries of three events, set-based as fan-out does, finished ones or due ones."""
        days = [TODAY - timedelta(days=n) for n in range(3)]
        self.loaded += 1
        events = [add_event(self.conn, event=3 * self.loaded + n, day=day) for n, day in enumerate(days)]
        rows = {"day": TODAY, "events": events, "done": done, "count": count, "now": NOW}
        self.conn.execute(LOAD, rows)
        if not done:
            self.conn.execute(QUEUE, rows)

    def load_phones(self, count: int) -> None:
        """Insert the installations of the first deliveries; each was handled in the app, before these were made."""
        self.conn.execute(PHONES, {"count": count, "now": NOW - 30 * SECOND})

    def analyze(self) -> None:
        """Bring the statistics up to date."""
        self.conn.execute("analyze relevo.notification_deliveries, relevo.due_chunks, relevo.device_installations")


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
        table.load(2 * BATCH + 100, done=False)
        table.load_phones(2 * BATCH + 100)
        yield table


@pytest.fixture(scope="module")
def big(server, admin, template) -> Iterator[Table]:
    """40,000 deliveries, 30,000 of them completed; the statistics are from when there were a thousand."""
    for table in _open(server, admin, template, "plans_big"):
        table.load(1_000, done=True)
        table.analyze()
        table.load(29_000, done=True)
        table.load(10_000, done=False)
        table.load_phones(10_000)
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
    """What a statement touched: rows read from each table, the busiest node's rows, and pages."""

    read: dict[str, int]
    busiest: float
    buffers: int
    plan: str

    @property
    def rows(self) -> int:
        """How many rows it read in all."""
        return sum(self.read.values())


READ = """
select regexp_replace(relname, '_\\d{4}_\\d{2}$', ''), sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int
  from pg_stat_xact_user_tables where schemaname = 'relevo' group by 1
"""


def explain(conn: psycopg.Connection[Any], name: str, parameters: dict[str, Any]) -> Cost:
    """Run a statement the way claims run it and return what it cost.

    The rows are those that PostgreSQL counted in this transaction, so those that functions read are among them.
    """
    before = dict(conn.execute(READ).fetchall())
    ((report,),) = conn.execute(b"explain (analyze, buffers, format json) " + SQL[name], parameters).fetchall()
    read = {table: rows - before.get(table, 0) for table, rows in conn.execute(READ).fetchall()}
    every = list(nodes(report[0]["Plan"]))
    root = every[0]
    buffers = sum(root.get(f"Shared {kind} Blocks", 0) for kind in ("Hit", "Read"))
    outline = "\n".join(
        f"{_seen(n):>9.0f} {n['Node Type']} {n.get('Relation Name', '')} {n.get('Index Name', '')}" for n in every
    )
    found = {table: rows for table, rows in read.items() if rows}
    return Cost(found, max(map(_seen, every)), buffers, f"{found}, {buffers} pages\n{outline}")


def _seen(node: dict[str, Any]) -> float:
    """Return how many rows a node looked at in all its loops, those it threw away included."""
    thrown = sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Join Filter", "Index Recheck"))
    return float((node["Actual Rows"] + thrown) * node["Actual Loops"])


@dataclass
class Batch:
    """A claim of 1,000, taken in a transaction that is rolled back at the end."""

    conn: psycopg.Connection[Any]
    token: UUID
    deliveries: list[Delivery]
    requests: list[UUID] = field(default_factory=lambda: [uuid4() for _ in range(10)])

    @property
    def ids(self) -> list[int]:
        """The ids of its deliveries."""
        return [d.id for d in self.deliveries]

    def cost(self, name: str, **more: Any) -> Cost:
        """Explain one of the statements that come after the claim."""
        return explain(self.conn, name, self.parameters | more)

    def journal(self) -> Cost:
        """Write its requests down, as if each delivery had an event of its own."""
        return self.cost("journal_wave", kinds=list(range(1, len(self.ids) + 1)))

    @property
    def parameters(self) -> dict[str, Any]:
        """Return every parameter any of those statements takes."""
        size = len(self.ids)
        return {
            "token": self.token, "now": NOW, "lease_ms": 60_000, "timeout_ms": 10_000, "project": "default", "lapsed": True,
            "days": [d.event_day for d in self.deliveries], "ids": self.ids, "due": [NOW] * size,
            "installations": [d.installation_id for d in self.deliveries], "versions": [d.token_version for d in self.deliveries],
            "kind_days": [d.event_day for d in self.deliveries], "kind_made": [d.created_at for d in self.deliveries],
            "kind_events": [d.notification_event_id for d in self.deliveries],
            "requests": [n // 100 + 1 for n in range(size)], "request_ids": self.requests,
            "request_outcomes": ["answered"] * len(self.requests), "tickets": [f"ticket-{n}" for n in self.ids],
            "kinds": [1] * size, "statuses": ["sent"], "spent": [1], "paced": [True], "codes": [None], "messages": [None],
            "floors_ms": [0], "projects": [None], "not_befores": [None], "types": ["tender.new"], "formers": ["pending"], "in_requests": [None],
            "events": [d.notification_event_id for d in self.deliveries], "made": NOW, "attempts": [1] * size,
            "counts": [1] * size, "firsts": list(range(1, size + 1, 100)), "lasts": list(range(100, size + 1, 100)),
            "receipt_ms": 900_000, "finish": False, "only_ids": None, "unsent": [], "max_attempts": 9,
            "retry_base_ms": 60_000, "retry_max_ms": 3_600_000, "retry_jitter_ms": 500, "poison_lapses": 5,
        }  # fmt: skip


def due(**more: Any) -> dict[str, Any]:
    """Return the parameters of a claim of 1,000."""
    usual = {
        "token": uuid4(), "worker_id": "a", "cycle": "dispatch", "project": "default", "lane": "bulk", "now": NOW, "limit": BATCH,
        "shard_count": None, "shard_index": None, "only_types": None, "not_types": None, "not_worded": None, "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000,
        "look_at": 5_000,
    }  # fmt: skip
    return usual | more


def claim_some(conn: psycopg.Connection[Any], **more: Any) -> Batch:
    """Claim as a worker does."""
    asked = due(**more)
    chunks = [Chunk(*row) for row in conn.execute(SQL["claim_due"], asked).fetchall()]
    return Batch(conn, asked["token"], list(deliveries_of("default", "bulk", chunks)))


@pytest.fixture
def conn(table: Table) -> Iterator[psycopg.Connection[Any]]:
    """A transaction on the table, as a claim opens it, rolled back at the end."""
    with table.conn.transaction(force_rollback=True):
        table.conn.execute(BY_KEY)
        yield table.conn


@pytest.fixture
def batch(conn) -> Batch:
    """A claim of 1,000 deliveries that stand behind one another in the queue."""
    taken = claim_some(conn)
    assert len(taken.ids) == BATCH
    return taken


@pytest.fixture
def claimed(batch: Batch) -> Batch:
    """The same, journalled."""
    batch.journal()
    return batch


def assert_in_the_order_of_the_batch(cost: Cost, *, reads: int, buffers: int) -> None:
    """Hold a statement to so many reads and pages per delivery.

    `reads` counts how many rows it has to visit for each delivery, with a tenth on top for rows in passing; no
    node may see more than twice the batch (a union of its two lists), else something is multiplied. A visit costs up
    to four pages (three levels of index and the row), a new row version up to four indexes of four more; `buffers` is
    that, rounded up. The big table has 1,200 pages and 40,000 rows: a scan of it breaks the bound on rows at once.
    """
    assert cost.rows <= reads * BATCH * 1.1, cost.plan
    assert cost.busiest <= 2.1 * BATCH, cost.plan
    assert cost.buffers <= buffers * BATCH, cost.plan


@pytest.mark.parametrize(("name", "most"), [("claim_due", BATCH), ("claim_probe", 1)])
def test_claiming_reads_its_chunks(conn, name, most) -> None:
    """A claim of 1,000 out of 40,000 reads ten chunks, and those that a look ahead brings along, their events and
    phones, and no delivery; a probe looks at so many of the oldest due ones and the last twenty of each phone, and takes one."""
    looks = 5 * CHUNKS
    cost = explain(conn, name, due(limit=most, look_at=looks))
    assert cost.read.get("notification_deliveries", 0) <= (3 * (looks + 100) if name == "claim_probe" else 0), cost.plan
    assert cost.read["due_chunks"] <= 10 * CHUNKS, cost.plan
    assert cost.read["notification_events"] <= 3 * CHUNKS, cost.plan
    assert cost.rows <= 1.1 * BATCH + 10 * CHUNKS, cost.plan
    assert cost.buffers <= 12 * BATCH, cost.plan


def test_a_small_claim_reads_one_chunk(conn) -> None:
    """A claim of one reads the head of the queue, whatever stands behind it."""
    claim_some(conn, limit=1)  # plans are made, catalogs read
    cost = explain(conn, "claim_due", due(limit=1))
    assert cost.rows <= 30, cost.plan
    assert cost.buffers <= 200, cost.plan


def test_journalling_touches_the_batch(batch) -> None:
    """The journal looks each event up by its key, and no delivery; as many events as deliveries multiply nothing."""
    cost = batch.journal()
    assert_in_the_order_of_the_batch(cost, reads=1, buffers=6)
    assert "notification_deliveries" not in cost.read, cost.plan


def test_the_usual_wave_touches_the_batch(batch) -> None:
    """What is journalled, looked at and settled whole is looked up by key, each event and phone once, and written by key.

    As many events as deliveries multiply nothing, and no phone of others is read.
    """
    journalled = batch.cost("journal_plain_wave")
    assert_in_the_order_of_the_batch(journalled, reads=1, buffers=6)
    assert "notification_deliveries" not in journalled.read, journalled.plan
    looked_at = batch.cost("phones_unchanged")
    assert_in_the_order_of_the_batch(looked_at, reads=2, buffers=12)
    assert looked_at.read["device_installations"] == BATCH
    settled = batch.cost("settle_sent", formers=["retryable"] * BATCH)
    assert_in_the_order_of_the_batch(settled, reads=5, buffers=50)
    assert settled.read["notification_deliveries"] <= BATCH * 1.1, settled.plan
    awaited = "select count(*) from relevo.awaited_receipts r cross join unnest(r.ids) as u(id) where u.id = any (%s)"
    assert batch.conn.execute(awaited, [batch.ids]).fetchall() == [(BATCH,)], "it was written"


def test_looking_at_the_phones_touches_the_batch(claimed) -> None:
    """The look after the journal reads each phone and event of the wave once, by key.

    It reads no phone of others, though all of them were handled in the app within the last minute.
    """
    cost = claimed.cost("look_at_phones", kinds=list(range(1, BATCH + 1)))
    assert_in_the_order_of_the_batch(cost, reads=2, buffers=12)
    assert "device_installations_pkey" in cost.plan


@pytest.mark.parametrize(("status", "reads"), [("sent", 1), ("failed", 1), ("retryable", 4)])
def test_settling_touches_the_batch(claimed, status, reads) -> None:
    """A settle writes each delivery by its key; a retry is looked up before, with its event's deadline, and for the queue."""
    tickets = [f"ticket-{n}" if status == "sent" else None for n in claimed.ids]
    cost = claimed.cost("settle_deliveries", statuses=[status], tickets=tickets)
    assert_in_the_order_of_the_batch(cost, reads=reads, buffers=30)


@pytest.mark.parametrize("journalled", [False, True])
def test_ending_a_claim_touches_the_batch(batch, journalled) -> None:
    """Releasing or reaping a claim finds its requests by its token, each delivery by its key, also for the queue, and its
    event."""
    if journalled:
        batch.journal()
    assert_in_the_order_of_the_batch(batch.cost("end_claim"), reads=4, buffers=42)


@pytest.mark.parametrize("unknown", [False, True])
def test_late_tickets_touch_the_batch(batch, unknown) -> None:
    """Evidence for 1,000 deliveries, closed at once or kept, looks each of them up by its key."""
    batch.journal()
    if unknown:
        given_up = "update relevo.notification_deliveries set status = 'unknown', completed_at = now()"
        keys = "(event_day, id) in (select * from unnest(%(days)s::date[], %(ids)s::bigint[]))"
        batch.conn.execute(f"{given_up} where {keys}".encode(), batch.parameters)
    assert_in_the_order_of_the_batch(batch.cost("keep_late_tickets"), reads=2, buffers=50)


def test_saying_that_nothing_was_begun_touches_the_batch(claimed) -> None:
    """What ended unknown for requests that were never begun is opened again by key, after a look for what waits."""
    claimed.conn.execute("update relevo.notification_events set at_most_once = true")
    claimed.conn.execute(SQL["end_claim"], claimed.parameters)
    assert_in_the_order_of_the_batch(claimed.cost("mark_unsent", outcome="held_back"), reads=3, buffers=30)


def test_adopting_a_claim_touches_the_batch(claimed) -> None:
    """Adopting a claim looks each delivery, its event and its phone up by key."""
    assert_in_the_order_of_the_batch(claimed.cost("adopt_claim"), reads=3, buffers=12)


def test_explaining_a_loss_touches_the_batch(claimed) -> None:
    """Explaining the loss of a claim looks each delivery up by its key."""
    assert_in_the_order_of_the_batch(claimed.cost("explain_loss"), reads=1, buffers=6)


@pytest.mark.parametrize("table", ["big with stale statistics"], indirect=True)
def test_a_workers_whole_round_reads_the_batch(table) -> None:
    """Claim, journal, settle and release, called as a worker calls them, read a few thousand of the 40,000 rows: each
    half of the batch once to settle it, or three times to hand it back.

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
    assert BATCH <= read <= 2.5 * BATCH


HOT = """
select sum(pg_stat_get_xact_tuples_updated(inhrelid))::int, sum(pg_stat_get_xact_tuples_hot_updated(inhrelid))::int
  from pg_inherits where inhparent = 'relevo.notification_deliveries'::regclass
"""


@pytest.mark.parametrize("name", ["settle_deliveries", "end_claim"])
def test_writing_a_delivery_touches_no_index(server, admin, template, name) -> None:
    """A claim writes no delivery; where pages have room, as fillfactor leaves it, neither a settle nor a lapse touches
    any index, for none is over a column that changes."""
    for table in _open(server, admin, template, "plans_hot"):
        table.load(4_000, done=False)
        with table.conn.transaction(force_rollback=True):
            conn = table.conn
            share = claim_some(conn, limit=2_000)
            assert conn.execute(HOT).fetchone() == (0, 0)
            share.deliveries = share.deliveries[::8]
            conn.execute(
                "update relevo.claims set days = %(days)s::date[], ids = %(ids)s::bigint[] where token = %(token)s",
                share.parameters,
            )
            conn.execute(SQL[name], share.parameters)
            assert conn.execute(HOT).fetchone() == (250, 250)


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
