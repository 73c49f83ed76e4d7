"""Wake-ups: heard promptly, proven by a self-test, sent only to sleepers, and never needed for correctness."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from relevo.core.errors import DatabaseUnavailableError
from relevo.operators import actions
from relevo.runtime import wakeups
from relevo.runtime.wakeups import Listener
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S, Process, eventually, never

# Nothing but a wake-up makes this cycle look again within a test.
SLEEPER = {"name": "sleeper", "every_ms": 3_600_000, "singleton": False, "wakeable": True, "takes_work": True}
SLOW = {"worker_idle_backoff_min_ms": 600_000, "worker_idle_backoff_max_ms": 600_000}


@pytest.fixture
def hear(dsn: str) -> Iterator[Any]:
    """Hear who is woken by a statement: `hear("select …")` returns the names called out."""
    with psycopg.connect(dsn, autocommit=True) as ear, psycopg.connect(dsn, autocommit=True) as caller:
        ear.execute("listen relevo_wake")

        def calls(statement: str) -> list[str]:
            caller.execute(statement)
            caller.execute("select pg_notify('relevo_wake', 'end')")
            heard: list[str] = []
            while not heard or heard[-1] != "end":
                heard += [call.payload for call in ear.notifies(timeout=PATIENCE_S, stop_after=1)]
            return heard[:-1]

        yield calls


@pytest.mark.parametrize(
    ("asleep", "expected"), [("true", ["probe"]), ("false", []), (None, [])], ids=["asleep", "awake", "never seen"]
)
def test_wake_knocks_only_at_a_sleeper_s_door(conn, hear, asleep: str | None, expected: list[str]) -> None:
    """relevo.wake() notifies while the fleet's row says asleep, and costs no NOTIFY otherwise."""
    if asleep is not None:
        conn.execute(f"insert into relevo.cycle_state (cycle, asleep) values ('probe', {asleep}), ('other', true)")
    assert hear("select relevo.wake('probe')") == expected


def test_wake_waits_for_the_commit(conn, hear) -> None:
    """A knock in a transaction that is rolled back is never heard; many knocks in one transaction are one."""
    conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('probe', true)")
    assert hear("begin; select relevo.wake('probe'); rollback") == []
    assert hear("begin; select relevo.wake('probe') from generate_series(1, 100); commit") == ["probe"]


FLEET = """
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, wakeups, started_at, last_seen_at, lease_ms, asleep, stopped_at,
  lost_at, stopping_at)
select w.worker_id, 'host', 1, '0', 'run', '{probe}', case w.worker_id when 'deaf' then 'polling' else 'listening' end, now(),
       case w.worker_id when 'silent' then now() - interval '1 hour' else now() end, 60000,
       case w.worker_id when 'busy' then '{other}' else '{other,probe}' end::text[], case w.worker_id when 'stopped' then now() end,
       case w.worker_id when 'lost' then now() end, case w.worker_id when 'stopping' then now() end
  from unnest(%s::text[]) as w(worker_id)
"""
NO_GOOD = ["deaf", "silent", "busy", "stopped", "lost", "stopping"]


def test_a_wake_up_is_for_two_that_sleep(conn, hear) -> None:
    """Of many replicas two are called by name, other ones by other transactions; who cannot come is not called."""
    conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('probe', true)")
    fleet = [f"w-{n}" for n in range(20)]
    conn.execute(FLEET, [[*NO_GOOD, *fleet]])
    many = "begin; select relevo.wake('probe') from generate_series(1, 100); commit"
    heard = [hear(many) for _ in range(10)]
    assert {len(calls) for calls in heard} == {2}
    called = {call for calls in heard for call in calls}
    assert called <= {f"probe {name}" for name in fleet}
    assert len(called) > 4, "not the same ones again and again"


def test_an_urgent_wake_up_is_for_two_sleepers_first(conn, hear) -> None:
    """Two are called though nobody may sleep: those that do first, then busy ones; who cannot come is not called."""
    conn.execute(FLEET, [NO_GOOD])
    assert hear("select relevo.wake_now('probe')") == ["probe busy"]
    conn.execute(FLEET, [["asleep"]])
    assert sorted(hear("select relevo.wake_now('probe')")) == ["probe asleep", "probe busy"]
    conn.execute(FLEET, [["asleep-2", "asleep-3"]])
    assert all(call.startswith("probe asleep") for call in hear("select relevo.wake_now('probe')"))
    assert hear("select relevo.wake_now('other')") == ["other"], "nobody is known to run it: all are asked"


def test_what_is_resumed_is_called(conn, build) -> None:
    """What waited for a paused cycle goes on at once, and not at its next look; resuming what runs calls nobody."""
    database = build().database
    conn.execute("listen relevo_wake")
    actions.pause(database, "dispatch", "a wrong text")
    assert actions.resume(database, "dispatch")
    assert [call.payload for call in conn.notifies(timeout=PATIENCE_S, stop_after=1)] == ["dispatch"]
    assert not actions.resume(database, "dispatch")
    conn.execute("select pg_notify('relevo_wake', 'end')")
    assert [call.payload for call in conn.notifies(timeout=PATIENCE_S, stop_after=1)] == ["end"]


def test_if_nobody_is_known_to_sleep_all_are_called(conn, hear) -> None:
    """A call is never lost because of what a row says of a worker."""
    conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('probe', true)")
    conn.execute(FLEET, [NO_GOOD])
    assert hear("select relevo.wake('probe')") == ["probe"]


def test_replicas_that_are_not_called_sleep_on(processes, probed, conn, rows) -> None:
    """Of four replicas at most two look when there is work, and it is taken at once."""
    for n in range(4):
        processes.relay("run", probes=[SLEEPER], worker_id=f"w-{n}", **SLOW)
    sleeping = "select from relevo.workers where 'sleeper' = any (asleep) and wakeups = 'listening'"
    eventually(lambda: len(rows(sleeping)) == 4, "all sleep")
    rounds = "select rounds from relevo.cycle_state where cycle = 'sleeper'"

    def looks() -> int:
        """Enqueue some work, and return how many rounds the fleet made of it."""
        (before,) = rows(rounds)
        with conn.transaction():
            conn.execute("insert into public.probe_work (cycle) values ('sleeper')")
            conn.execute("select relevo.wake('sleeper')")
        eventually(lambda: not rows("select 1 from public.probe_work"), "the work was taken")
        eventually(lambda: len(rows(sleeping)) == 4, "all sleep again")
        return int(rows(rounds)[0]["rounds"] - before["rounds"])

    # Its round and two looks before it sleeps; one more. A transaction that happens to be open then costs another look.
    eventually(lambda: looks() <= 2 + 3, "who is not called sleeps on")


def test_work_whose_writer_did_not_know_of_the_sleep_is_found(processes, probed, conn, dsn: str) -> None:
    """Who enqueued while the cycle was awake calls nobody; if he commits only once it sleeps, it is found all the same."""
    with psycopg.connect(dsn) as slow:
        slow.execute("insert into public.probe_work (cycle) values ('sleeper')")
        slow.execute("select relevo.wake('sleeper')")  # nobody sleeps yet: this calls nobody
        relay = processes.relay("run", probes=[SLEEPER], worker_id="w-1", **SLOW)
        listening(relay, conn, looks=4)
        assert not probed("sleeper", "took")
        slow.commit()
        eventually(lambda: probed("sleeper", "took"), "it was found long before the next poll")
    assert relay.stops() == 0


def test_no_call_is_lost_to_the_self_test(build, conn, dsn: str) -> None:
    """While the listener tests itself all the time, every call of others still arrives, in order."""
    woken: list[str] = []
    lost: list[UUID] = []
    changes: list[str] = []
    listener = Listener(
        build().database, on_wake=woken.append, on_lost=lost.append, on_change=changes.append, test_every_s=0.001
    )
    listener.start()
    try:
        eventually(lambda: changes == ["listening"], "the self-test was heard")
        token = uuid4()
        for number in range(400):
            conn.execute("select pg_notify('relevo_wake', %s)", [str(number)])
        conn.execute("select pg_notify('relevo_lost', 'no token'), pg_notify('relevo_lost', %s)", [str(token)])
        eventually(lambda: lost == [token], "the last call")
        assert woken == [str(number) for number in range(400)]
        assert changes == ["listening"]
    finally:
        listener.stop()


def backends(conn: psycopg.Connection[Any]) -> list[int]:
    """Find the listeners' backends."""
    return [
        row[0]
        for row in conn.execute(
            "select pid from pg_stat_activity where datname = current_database()"
            " and query like '%listen relevo_selftest%' and pid <> pg_backend_pid()"
        )
    ]


def listening(process: Process, conn: psycopg.Connection[Any], looks: int) -> None:
    """Wait until a process hears, has seen at least so often that there is no work (twice before each sleep), and sleeps."""
    process.hears("wakeups_listening")
    asleep = "select 1 from relevo.cycle_state where cycle = 'sleeper' and asleep and idle_rounds >= %s"
    eventually(lambda: conn.execute(asleep, [looks]).fetchone(), "the cycle sleeps")


WRITE_DOWN = """
create table public.told (id int generated always as identity, wakeups text);
create function public.tell() returns trigger language plpgsql as $$
begin insert into public.told (wakeups) values (new.wakeups); return new; end $$;
create trigger tell after update of wakeups on relevo.workers for each row
  when (new.wakeups is distinct from old.wakeups) execute function public.tell();
"""


def test_a_call_runs_a_sleeping_cycle_and_a_deaf_listener_recovers(processes, probed, conn, rows) -> None:
    """Work is taken at once after a knock; a listener whose backend dies says so once, recovers, says so, and hears."""
    conn.execute(WRITE_DOWN)  # a word that stands for a moment only is read afterwards
    relay = processes.relay("run", probes=[SLEEPER], worker_id="w-1", **SLOW)

    def knock() -> bool:
        """Enqueue some work once the cycle sleeps, wait until all is taken, and tell whether the call made it look."""
        sleeps = "select from relevo.cycle_state where cycle = 'sleeper' and asleep"
        eventually(lambda: conn.execute(sleeps).fetchall(), "the cycle sleeps")
        with conn.transaction():
            conn.execute("insert into public.probe_work (cycle) select 'sleeper' from generate_series(1, 3)")
            conn.execute("select relevo.wake('sleeper')")
        eventually(lambda: not rows("select 1 from public.probe_work"), "the work was taken")
        return bool(probed("sleeper", "took")[-1]["trigger"] == "wake-up")

    listening(relay, conn, looks=2)
    # Once more it looks by itself when a transaction ends that was open as it fell asleep, whoever's that is, and a few
    # times after work: a call that comes just then finds nothing left to do.
    eventually(knock, "a call is heard", every=1.0)
    listening(relay, conn, looks=2)
    assert rows("select wakeups from relevo.workers") == [{"wakeups": "listening"}]
    [pid] = backends(conn)
    conn.execute("select pg_terminate_backend(%s)", [pid])
    reported = [{"wakeups": "listening"}, {"wakeups": "polling"}, {"wakeups": "listening"}]
    eventually(lambda: rows("select wakeups from public.told order by id") == reported, "polling is told, then hearing")
    # It also looks by itself for calls that it may have missed.
    eventually(knock, "a call is heard again", every=1.0)
    assert [line["event"] for line in relay.lines() if line["event"].startswith("wakeups_")] == [
        "wakeups_listening",
        "wakeups_degraded",
        "wakeups_listening",
    ]
    assert relay.stops() == 0


def test_without_wake_ups_polling_is_enough(processes, probed, conn) -> None:
    """Work that nobody knocked for is found by the next look."""
    sleeper = SLEEPER | {"every_ms": 400}
    relay = processes.relay("run", probes=[sleeper], worker_idle_backoff_min_ms=300)
    relay.hears("worker_started")
    conn.execute("insert into public.probe_work (cycle) values ('sleeper')")
    eventually(lambda: probed("sleeper", "took"), "polling found it")


def test_nothing_but_a_worker_processes_rows(probed, conn, rows, dsn: str) -> None:
    """Importing all of Relevo and enqueueing work opens no connection, starts no thread and runs no cycle."""
    conn.execute("insert into public.probe_work (cycle) values ('sleeper')")
    conn.execute("select relevo.wake('sleeper')")
    program = (
        "import importlib, pkgutil, threading, relevo\n"
        "for module in pkgutil.walk_packages(relevo.__path__, 'relevo.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(threading.active_count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"DATABASE_URL": dsn, "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.strip() == "1", done.stderr
    never(lambda: probed("sleeper"), "somebody took it", during=0.3)
    assert rows("select * from relevo.workers") == []
    assert rows("select * from relevo.worker_runs") == []


def test_a_listener_that_lost_its_connection_tries_again_when_prompted(build, dsn: str, monkeypatch) -> None:
    """However long it would rest after a failure: once it is told that the database is back it listens again, and says
    that calls may have been missed; while it listens a prompt only has it prove once more that it hears."""
    monkeypatch.setattr(wakeups, "_RETRY_S", 600.0)
    changes: list[str] = []
    resumed: list[str] = []
    with Proxy(dsn) as proxy:
        listener = Listener(
            build(database_url=proxy.dsn, database_connect_timeout_ms=2_000).database,
            on_wake=lambda _: None,
            on_lost=lambda _: None,
            on_change=changes.append,
            on_resumed=lambda: resumed.append("missed"),
        )
        listener.start()
        try:
            eventually(lambda: changes == ["listening"], "it listens")
            listener.prompt()
            eventually(lambda: not listener._prompted.is_set(), "it proves that it hears")
            proxy.shut()
            eventually(lambda: listener._hearing == "polling", "it notices")
            proxy.open()
            assert resumed == []
            listener.prompt()
            eventually(lambda: changes[-1] == "listening" and resumed == ["missed"], "it listens again")
        finally:
            listener.stop()


def test_a_listener_that_fell_silent_is_found_out_when_another_connection_is_lost(build, dsn: str) -> None:
    """All connections fall silent while new ones work: whoever loses his makes the listener prove that it hears, long
    before its own time to do so; it listens again, and says that calls may have been missed."""
    resumed: list[str] = []
    with Proxy(dsn) as proxy:
        worker = build(
            database_url=proxy.dsn, database_statement_timeout_ms=1_000, database_idle_transaction_timeout_ms=500
        )
        listener = Listener(
            worker.database,
            on_wake=lambda _: None,
            on_lost=lambda _: None,
            on_change=lambda _: None,
            on_resumed=lambda: resumed.append("missed"),
            test_every_s=3_600,
        )

        def lose_connection() -> None:
            with worker.database.connection() as connection:
                proxy.silence()
                connection.execute("select 1")

        worker.database.on_reachable(listener.prompt)
        worker.heartbeat.start()
        listener.start()
        try:
            eventually(lambda: listener._hearing == "listening", "it listens")
            with pytest.raises(DatabaseUnavailableError):
                lose_connection()
            eventually(lambda: resumed, "it listens again")
        finally:
            listener.stop()
