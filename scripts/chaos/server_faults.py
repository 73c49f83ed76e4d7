"""Faults of the server as a whole, and of the fleet: a full disk, a restore, the last release beside this one."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import released
from chaos.fault_context import FaultContext
from chaos.system import until

ROOT = Path(__file__).parents[2]
_FULL = re.compile(rb"No space left on device")
_LAST_DELIVERY = "select last_value from relevo.delivery_ids"
_JOURNALLED = "select count(*) from relevo.push_requests"
_BY_PROCESS = """
select count(*) from relevo.push_requests r join relevo.workers w on w.worker_id = r.worker_id where w.pid = %(pid)s
"""
_BY_PROCESSES_SINCE = """
select count(*) from relevo.push_requests r join relevo.workers w on w.worker_id = r.worker_id
 where w.pid = any (%(pids)s) and r.journalled_at > to_timestamp(%(since)s)
"""
_RESTS = b'"database_belongs_elsewhere"'


def fill_disk(context: FaultContext) -> None:
    """Fill the server's disk for a while."""
    server = context.system.server
    assert server.disk is not None

    def refused() -> int:
        return len(_FULL.findall(server.log.read_bytes()))

    before = refused()
    if server.disk.fill():
        until(lambda: refused() > before + 3, patience_s=8)
        time.sleep(context.chance.random() * 2)
    context.hit("writes refused, for the disk was full", max(0, refused() - before))
    server.disk.make_room()
    server.up()


def restore(context: FaultContext) -> None:
    """Put the database back to a backup from a while ago: what was done since is gone, and its numbers are given again.

    As the pages say: nobody works on it meanwhile, it has another name then, and rests until it is adopted.
    """
    system = context.system
    with context.acknowledged.reading:  # nobody reads news that are taken back
        since = time.time()
        system.server.back_up()
        time.sleep(2 + context.chance.random() * 3)
        for replica in system.replicas:
            replica.send(signal.SIGKILL)
            replica.end()
        at = system.server.restore()
        [(last,)] = system.ask(_LAST_DELIVERY)
        context.acknowledged.note("restored", since=since, until=at, last_delivery=last)
    system.rename()
    first, *others = system.replicas
    rested = first.said(_RESTS)
    first.start()
    if until(lambda: first.said(_RESTS) > rested, patience_s=60):
        before = system.ask(_JOURNALLED)
        time.sleep(2)
        if system.ask(_JOURNALLED) == before:
            context.hit("restored databases that rested until they were adopted")
    context.acknowledged.note("adopted")
    assert until(lambda: system.run("adopt", "--yes", "--force").wait(120) == 0, patience_s=300), "adopt failed"
    for replica in others:
        replica.start()


def restore_under_workers(context: FaultContext) -> None:
    """Put the database back to a backup from a while ago under replicas that run on, and know of what is gone.

    They stand still for the moment in which it starts, until it is known which numbers are given again.
    """
    system = context.system

    def all_get(number: signal.Signals) -> None:
        for replica in system.replicas:
            replica.send(number)

    with context.acknowledged.reading:  # nobody reads news that are taken back
        since = time.time()
        system.server.back_up()
        time.sleep(2 + context.chance.random() * 3)
        pids = [replica.process.pid for replica in system.replicas if replica.process is not None and replica.runs()]
        at = system.server.restore(before_up=lambda: all_get(signal.SIGSTOP))
        [(last,)] = system.ask(_LAST_DELIVERY)
        context.acknowledged.note("restored", since=since, until=at, last_delivery=last, under_workers=True)
        all_get(signal.SIGCONT)
    if until(lambda: system.ask(_BY_PROCESSES_SINCE, pids=pids, since=at) != [(0,)], patience_s=30):
        context.hit("restored databases on which replicas went on")


def run_last_release(context: FaultContext) -> None:
    """Start a process of the last release beside the others, as in the middle of an upgrade."""
    package, replica = _unpack(context.system.folder), context.any_replica()
    if package is None or replica is None:
        return
    replica.send(signal.SIGTERM)
    replica.end()
    since = time.time()
    replica.start(package, WORKER_CYCLES="fanout,dispatch,receipt,reaper")
    assert replica.process is not None
    pid = replica.process.pid
    until(lambda: context.system.ask(_BY_PROCESS, pid=pid) != [(0,)], patience_s=40)
    time.sleep(3)
    [(sent,)] = context.system.ask(_BY_PROCESS, pid=pid)
    context.hit("requests of a process of the last release", sent)
    replica.send(signal.SIGTERM)
    replica.end()
    context.acknowledged.note("older", since=since)
    replica.start()


def _release() -> str | None:
    """Return the commit of the last release; None where git does not know it."""
    version = released.versions()[-1]
    command = ["git", "log", "-1", "--format=%H", "--fixed-strings", f"--grep=Release {version}"]
    if shutil.which("git") is None:
        return None
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def _unpack(folder: Path) -> Path | None:
    """Write the package of the last release to a folder, once; return where it is."""
    into, commit = folder / "released", _release()
    if commit is not None and not into.exists():
        packed = subprocess.run(["git", "archive", commit, "server", "sql"], cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(into, filter="data")
    return None if commit is None else into / "server"


def kinds(context: FaultContext, skipped: dict[str, str]) -> dict[str, Callable[[FaultContext], None]]:
    """Return what can be done here; what cannot is named with the reason."""
    found: dict[str, Callable[[FaultContext], None]] = {}
    if context.system.server.disk is not None:
        found["disk full"] = fill_disk
    else:
        skipped["disk full"] = "only root may mount a small file system"
    if context.system.server.can_be_backed_up():
        found |= {"restored from a base backup": restore, "restored under running replicas": restore_under_workers}
    else:
        why = "pg_basebackup is not among PostgreSQL's programs"
        skipped |= {"restored from a base backup": why, "restored under running replicas": why}
    if _release() is not None:
        found["the last release beside this one"] = run_last_release
    else:
        skipped["the last release beside this one"] = "git does not know its commit"
    return found
