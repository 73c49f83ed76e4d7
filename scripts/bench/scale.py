"""The cost of sending, reading and cleaning up beside few deliveries, and beside as many as the disk bears."""

from __future__ import annotations

import tempfile
import time
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import requests

from bench import enqueue, personal, processes
from bench.environment import Environment, relevo_run, sandbox_process, statements
from bench.http import await_port, free_port
from bench.measuring import Cost, Row
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo.access import api_tokens
from relevo.app import App
from relevo.database.pool import Database

SCALE, AT = "scale: ", "cpu_ms_at_"
"""How the names of these rows begin, and those of their figures at each size."""
_SQL = statements(__file__)
_HOT_MONTHS = 4
_RETENTION_DAYS = 100  # of the months that are filled, the oldest is over for 92 at most
_OLD = 5
_OWN = 250
"""Events a month that the one owner gets whose inbox is read, whatever the size."""
_SERVER = {"shared_buffers": "2GB", "max_wal_size": "8GB", "wal_level": "minimal", "max_wal_senders": "0"}
_PAGES = {
    "the first page": "/dashboard",
    "events": "/dashboard/events",
    "an event for many phones, of last month": "/dashboard/events/{broad}",
    "· its failed deliveries": "/dashboard/events/{broad}?status=failed",
    "· deliveries of a state it has none of": "/dashboard/events/{broad}?status=expired",
    "an event for one phone": "/dashboard/events/{single}",
    "a delivery that failed": "/dashboard/deliveries/{failed}",
    "a phone": "/dashboard/installations/{phone}",
    "why it did not get an event": "/dashboard/installations/{phone}?event={single}",
    "an owner": "/dashboard/owners/user-1",
    "dead letters": "/dashboard/dead-letters",
    "archive": "/dashboard/archive",
    "stats": "/v1/ops/stats",
}
_INBOX = {"inbox: a page": "read_page", "inbox: a page of unread": "read_unread", "inbox: counts": "count_items"}


@dataclass(frozen=True)
class Spent:
    """The cost of one unit of work: a worker's CPU, PostgreSQL's, and wall time, in milliseconds."""

    worker_ms: float
    postgres_ms: float
    elapsed_ms: float

    @property
    def cpu_ms(self) -> float:
        """The CPU time."""
        return self.worker_ms + self.postgres_ms

    def __str__(self) -> str:
        return f"{_brief(self.worker_ms)} + {_brief(self.postgres_ms)} ({_brief(self.elapsed_ms)})"


def _brief(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"  # noqa: PLR2004 three digits tell


Measured = tuple[str, Spent]


def rows(sizes: Sizes) -> Iterator[Row]:
    """Measure the same work beside few deliveries and beside many."""
    if not processes.are_counted():
        say("  scale is left out; it needs /proc/PID/schedstat, as Linux has it.")
        return
    found: dict[str, dict[int, Spent]] = {}
    for hot in (sizes.scale_beside, sizes.scale_hot):
        for name, spent in _measure(hot, sizes):
            say(f"  {name}, beside {hot:,}: {spent}")
            found.setdefault(name, {})[hot] = spent
    for name, at in found.items():
        yield _row(name, at)


def _row(name: str, at: Mapping[int, Spent]) -> Row:
    figures: dict[str, float] = {}
    for hot, spent in at.items():
        figures |= {f"{AT}{hot}": spent.cpu_ms, f"worker_ms_at_{hot}": spent.worker_ms}
        figures |= {f"postgres_ms_at_{hot}": spent.postgres_ms, f"elapsed_ms_at_{hot}": spent.elapsed_ms}
    costs = [spent.cpu_ms for spent in at.values()]
    figures["ratio"] = costs[-1] / costs[0]
    said = " → ".join(map(str, at.values()))
    return Row(SCALE + name, name, f"{said}: {figures['ratio']:.2f} x", None, figures)


def _measure(hot: int, sizes: Sizes) -> Iterator[Measured]:
    with (
        tempfile.TemporaryDirectory(prefix="relevo-bench-scale-") as given,
        sandbox_process() as url,
        fresh_database(server=_SERVER) as (dsn, _),
    ):
        folder = Path(given)
        folder.chmod(0o777)  # the server writes here, maybe as somebody else
        (folder / "cold").mkdir()
        env = Environment(dsn, url, replace(sizes, phones=sizes.scale_phones))
        try:
            env.load()
            world = fill(env.conn, hot, sizes, folder)
            _tell_sizes(env.conn, hot)
            yield from _inbox(env, sizes.looks)
            yield from _pages(env, world, sizes.looks)
            yield from _sending(env, sizes)
            with env.worker(archive_folder=folder / "cold", deliveries_retention_days=_RETENTION_DAYS) as built:
                yield from _leaving(env, built)
        finally:
            env.conn.close()


def month_ago(months: int) -> date:
    """Return the first day of the month so many months ago."""
    today = datetime.now(UTC).date()
    count = today.year * 12 + today.month - 1 - months
    return date(count // 12, count % 12 + 1, 1)


def fill(conn: psycopg.Connection[Any], hot: int, sizes: Sizes, folder: Path) -> dict[str, object]:
    """Fill four months, and an old one that is to leave, two at a time; return what pages are asked for."""
    conn.execute(_SQL["number_phones"], {})
    shape: dict[str, Any] = {"first_event": 0, "first_id": 0, "phones": sizes.scale_phones}
    shape["each"] = sizes.scale_phones // 10
    months = []
    for ago in (_OLD, *reversed(range(_HOT_MONTHS))):
        shape |= _shape(month_ago(ago), sizes.scale_month if ago == _OLD else hot // _HOT_MONTHS, shape["each"])
        shape["path"] = str(folder / f"{shape['month']:%Y_%m}")
        shape["relation"] = f"relevo.notification_deliveries_{shape['month']:%Y_%m}"
        months.append(dict(shape))
        conn.execute(_SQL["make_month"], shape)
        _written(conn, "compose_leaving", shape)
        shape["first_event"] += shape["broad"] + shape["personal"]
        shape["first_id"] += shape["broad"] * shape["each"] + shape["personal"]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(partial(_fill_month, conn.info.dsn, conn.info.password), months))
    for month in months:
        _written(conn, "compose_joining", month)
    conn.execute(_SQL["number_on"], shape)
    for name in ("take_stock", "write_out"):
        conn.execute(_SQL[name])
    return _world(conn, months[-2])


def _shape(month: date, count: int, each: int) -> dict[str, Any]:
    """Return what a month of so many deliveries is made of: nearly all belong to events for a tenth of the phones."""
    today = datetime.now(UTC).date()
    days = (
        today.day if (today.year, today.month) == (month.year, month.month) else monthrange(month.year, month.month)[1]
    )
    broad = max(1, count * 49 // 50 // each)
    alone = max(_OWN, count - broad * each)
    return {"month": month, "days": days, "broad": broad, "personal": alone, "every": alone // _OWN}


def _fill_month(dsn: str, password: str, shape: dict[str, Any]) -> None:
    started = time.monotonic()
    with psycopg.connect(dsn, password=password, autocommit=True) as conn:
        for name in ("fill_events", "fill_audiences"):
            conn.execute(_SQL[name], shape)
        psycopg.ClientCursor(conn).execute(_SQL["copy_deliveries"], shape)
        with conn.transaction():
            conn.execute(_SQL["work_in_memory"])
            _written(conn, "compose_filling", shape)
        Path(shape["path"]).unlink()
        for name in ("fill_progress", "fill_dead_letters", "fill_requests"):
            conn.execute(_SQL[name], shape)
    made = shape["broad"] * shape["each"] + shape["personal"]
    say(f"  {shape['month']:%Y-%m}: {made:,} deliveries in {time.monotonic() - started:.0f} s")


def _written(conn: psycopg.Connection[Any], name: str, shape: Mapping[str, Any]) -> None:
    """Run statements that PostgreSQL writes itself."""
    for (statement,) in conn.execute(_SQL[name], shape).fetchall():
        conn.execute(statement.encode())


def _world(conn: psycopg.Connection[Any], shape: Mapping[str, Any]) -> dict[str, object]:
    broad = shape["first_event"] + shape["broad"]
    [(failed,)] = conn.execute(_SQL["pick_failed"], {"event": broad}).fetchall()
    [(phone,)] = conn.execute("select p.installation_id from public.bench_phones p where p.k = 7").fetchall()
    return {"broad": broad, "single": broad + 1, "failed": failed, "phone": phone}


def _tell_sizes(conn: psycopg.Connection[Any], hot: int) -> None:
    [(rows_bytes, index_bytes)] = conn.execute(_SQL["read_sizes"]).fetchall()
    say(f"  {rows_bytes / 1e9:.1f} GB of rows and {index_bytes / 1e9:.1f} GB of indexes, beside {hot:,}")


def _of(cost: Cost, per: int) -> Spent:
    """Return what so many took."""
    share = per / cost.count
    return Spent(cost.worker_ms * share, cost.postgres_ms * share, cost.seconds * 1_000 * share)


def _least(costs: Sequence[Cost], per: int) -> Spent:
    """Return the cheapest: what else the machine does only adds to it."""
    return min((_of(cost, per) for cost in costs), key=lambda spent: spent.cpu_ms)


def _inbox(env: Environment, looks: int) -> Iterator[Measured]:
    pid = env.conn.info.backend_pid
    for name, statement in _INBOX.items():
        spent = []
        for _ in range(looks + 2):  # at first plans are made, and pages are read from the disk
            before, started = processes.backend_us(pid), time.perf_counter()
            env.conn.execute(_SQL[statement]).fetchall()
            spent.append(Spent(0.0, (processes.backend_us(pid) - before) / 1_000, _ms_since(started)))
        yield f"{name}, the first time", spent[0]
        yield name, min(spent[2:], key=lambda each: each.cpu_ms)


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1_000


def _pages(env: Environment, world: Mapping[str, object], looks: int) -> Iterator[Measured]:
    database = Database(env.dsn, env.dsn, env.settings())
    token, _ = api_tokens.make(database, "bench", "operator")
    database.close()
    port = free_port()
    with (
        relevo_run(env.dsn, env.url, "serve", http_port=port, http_rate_per_second=0) as server,
        requests.Session() as session,
    ):
        await_port(port)
        session.headers["Authorization"] = f"Bearer {token}"
        for name, path in _PAGES.items():
            look = partial(_look, session, f"http://127.0.0.1:{port}{path.format_map(world)}")
            look(1)
            before = processes.threads_ms(server.pid)
            cost = env.meter.measure(partial(look, looks))
            yield f"page: {name}", _of(replace(cost, worker_ms=processes.threads_ms(server.pid) - before), 1)


def _look(session: requests.Session, address: str, times: int) -> int:
    for _ in range(times):
        answer = session.get(address, timeout=60)
        assert answer.ok, f"{address} was answered with {answer.status_code}: {answer.text[:300]}"
    return times


def _sending(env: Environment, sizes: Sizes) -> Iterator[Measured]:
    """An event for every phone, from fan-out to receipts, and events for one phone each."""
    costs: dict[str, list[Cost]] = {}

    def note(name: str, work: Callable[[], int]) -> None:
        costs.setdefault(name, []).append(env.meter.measure(work))

    with env.worker(receipt_first_poll_ms=1) as built:
        for turn in range(sizes.rounds):
            note("1,000 fanned out, of an event for every phone", partial(env.queue, built))
            costs.setdefault("1,000 dispatched", []).append(env.drain(built))
            receipts = partial(env.run, built, built.registry["receipt"], "notifications_confirmed")
            note("1,000 receipts", receipts)
            events = enqueue.personal(env, f"alone {turn}", sizes.scale_events)
            note("1,000 events for one phone each, enqueued", partial(_enqueue, env, events))
            note("· fanned out", partial(personal.fan_out, env, built, len(events)))
            costs.setdefault("· dispatched", []).append(env.drain(built))
            env.run(built, built.registry["receipt"], "notifications_confirmed")
    for name, found in costs.items():
        yield name, _least(found, 1_000)


def _enqueue(env: Environment, events: Sequence[Any]) -> int:
    return len(enqueue.many(env.conn, events))


def _leaving(env: Environment, built: App) -> Iterator[Measured]:
    """An old month leaves, and a night on which none does."""
    for name, cycle, counted in (
        ("1,000 retired by cleanup", "cleanup", "archived_deliveries"),
        ("1,000 exported and verified", "archive-export", "rows_verified"),
    ):
        yield name, _of(env.meter.measure(partial(env.run, built, built.registry[cycle], counted)), 1_000)
    yield "a night's cleanup, nothing is old", _of(env.meter.measure(partial(_quiet_night, built)), 1)
    yield "the reaper's round", _of(env.meter.measure(partial(_quiet_night, built, "reaper")), 1)


def _quiet_night(built: App, cycle: str = "cleanup") -> int:
    report = built.runner.run(built.registry[cycle], "manual")
    assert report.outcome in ("ok", "idle", "partial"), report
    if report.error:
        say(f"  {report.error}")
    return 1
