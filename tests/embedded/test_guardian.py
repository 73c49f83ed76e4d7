"""Whoever dies, nothing is left behind and the next user gets a server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.core.errors import EmbeddedError
from relevo.embedded import cluster, identity
from relevo.embedded.guardian import RESTARTS, STEADY_S, Guardian
from relevo.embedded.layout import Layout, read_state
from relevo.embedded.locks import Lock
from support.processes import PATIENCE_S


def server_free(folder: Path) -> bool:
    """Is every process of the server gone?"""
    with Lock(Layout(folder).server_lock) as lock:
        return lock.try_exclusive()


def guardian_gone(folder: Path) -> bool:
    """Is nobody there who looks after the server?"""
    with Lock(Layout(folder).guardian_lock) as lock:
        return lock.try_exclusive()


def test_a_killed_guardian_takes_the_server_along(scene: Any, folder: Path, eventually: Any, answers: Any) -> None:
    """The kernel interrupts the server; the next user starts a new one on the same port, old users find it."""
    old = scene.user(folder)
    met = old.meets()
    before = scene.state(folder)
    os.kill(before.guardian, signal.SIGKILL)
    eventually(lambda: server_free(folder), "PostgreSQL outlived its guardian")
    assert "database system is shut down" in (folder / "postgres.log").read_text()
    assert scene.acquire(folder).dsn == met
    assert scene.state(folder).guardian != before.guardian
    assert answers(met)


def test_a_killed_guardian_without_setpriv(
    scene: Any, folder: Path, eventually: Any, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel cannot be asked, a leash interrupts the server; a plain user has no other tools."""
    if os.geteuid() == 0:
        (tools / "unshare").symlink_to(str(shutil.which("unshare")))
    scene.user(folder, env={"PATH": str(tools)}).meets()
    os.kill(scene.state(folder).guardian, signal.SIGKILL)
    eventually(lambda: server_free(folder), "PostgreSQL outlived its guardian")
    assert "database system is shut down" in (folder / "postgres.log").read_text()


def test_arriving_right_after_the_guardian_was_killed(scene: Any, folder: Path, eventually: Any, answers: Any) -> None:
    """A user that comes while the orphaned server still stops waits for its end and gets a new one."""
    first = scene.acquire(folder)
    before = scene.state(folder)
    with psycopg.connect(first.dsn):
        os.kill(before.guardian, signal.SIGKILL)
        eventually(lambda: guardian_gone(folder), "the guardian outlived SIGKILL", every=0.001)
        again = scene.acquire(folder)
    assert scene.state(folder).pid != before.pid
    assert answers(again.dsn)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_dead_server_comes_back(scene: Any, folder: Path, eventually: Any, answers: Any, blow: int) -> None:
    """Killed or stopped by someone, the server is back on its port for its users, and the log says so."""
    server = scene.acquire(folder)
    before = scene.state(folder)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("drop table if exists kept")
        connection.execute("create table kept as select 7 as n")
    os.kill(before.pid, blow)
    eventually(lambda: scene.state(folder).pid != before.pid, "PostgreSQL was not started again")
    eventually(lambda: answers(server.dsn), "PostgreSQL is not back on its port")
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("select n from kept").fetchone() == (7,)
    assert scene.state(folder).guardian == before.guardian
    assert "PostgreSQL ended by itself" in (folder / "guardian.log").read_text()


def test_restarts_are_bounded(scene: Any, folder: Path, eventually: Any, unguarded: Any) -> None:
    """A server that cannot come back is given up; the next user is told why, in the server's words."""
    scene.acquire(folder)
    control = folder / "data" / "global" / "pg_control"
    control.rename(folder / "hidden")
    os.kill(scene.state(folder).pid, signal.SIGKILL)
    eventually(lambda: scene.state(folder).status == "failed", "the guardian never gave up")
    eventually(lambda: unguarded(folder), "the guardian stayed")
    log = (folder / "guardian.log").read_text()
    assert "restart 5 of 5" in log
    assert "giving up" in log
    with pytest.raises(EmbeddedError, match="pg_control"):
        scene.acquire(folder)
    (folder / "hidden").rename(control)
    psycopg.connect(scene.acquire(folder).dsn).close()


def test_restarts_of_a_steady_server_are_not_added_up(scene: Any, folder: Path, answers: Any) -> None:
    """A server that ran for a while before each of its deaths comes back any number of times; one that did not, not."""
    layout = Layout(folder)
    with Lock(layout.users_lock) as user, Lock(layout.guardian_lock) as lock:
        assert user.try_shared()
        assert lock.try_exclusive()
        guardian = Guardian(layout, lock, scene.bin, {"shared_buffers": "16MB", "fsync": "off"}, linger_s=0)
        guardian.identity = identity.choose()
        guardian._ensure_data()
        guardian._start()
        try:
            for _ in range(RESTARTS + 1):
                guardian.ready_at -= STEADY_S + 1
                restart(guardian)
            assert guardian.restarts == 1
            guardian.restarts = RESTARTS
            with pytest.raises(EmbeddedError, match="again and again"):
                restart(guardian)
        finally:
            guardian._stop()


def restart(guardian: Guardian) -> None:
    """Kill the guardian's server and let it do what it does then."""
    assert guardian.server is not None
    guardian.server.kill()
    guardian._restart(guardian.server.wait(PATIENCE_S))


def test_a_guardian_told_to_go_goes(scene: Any, folder: Path, eventually: Any, unguarded: Any, answers: Any) -> None:
    """SIGTERM stops the server in order even under its users; the next user starts anew."""
    server = scene.acquire(folder)
    before = scene.state(folder)
    with psycopg.connect(server.dsn):
        os.kill(before.guardian, signal.SIGTERM)
        eventually(lambda: unguarded(folder), "the guardian stayed")
    assert "database system is shut down" in (folder / "postgres.log").read_text()
    assert scene.state(folder).status == "stopping"
    assert answers(scene.acquire(folder).dsn)


def test_there_is_one_guardian(scene: Any, folder: Path) -> None:
    """However many come at once, one guardian and one server are started."""
    for user in [scene.user(folder) for _ in range(3)]:
        user.meets()
    log = (folder / "guardian.log").read_text()
    assert log.count("is ready on port") == log.count("\n") == 1


def test_a_stale_pid_file_with_a_living_stranger(scene: Any, folder: Path, answers: Any) -> None:
    """After a crash the process id in postmaster.pid may be anyone's, ours for instance."""
    stale = folder / "data" / "postmaster.pid"
    stale.write_text(
        f"{os.getpid()}\n{folder / 'data'}\n1700000000\n5432\n\n127.0.0.1\n  5432001    131072\nready   \n"
    )
    stale.chmod(0o600)
    assert answers(scene.acquire(folder).dsn)
    assert stale.read_text().splitlines()[0] == str(scene.state(folder).pid)


def test_locks_removed_by_hand(scene: Any, folder: Path, eventually: Any, is_gone: Any, answers: Any) -> None:
    """Whoever takes lock files for stale under a running server gets a new one; old users find it too."""
    old = scene.acquire(folder)
    before = scene.state(folder)
    for lock in folder.glob("*.lock"):
        lock.unlink()
    new = scene.acquire(folder)
    eventually(lambda: is_gone(before.guardian), "the old guardian leaves")
    scene.guardian_looks(folder)
    assert new.dsn == old.dsn
    assert answers(new.dsn)


def test_a_server_started_by_hand_is_left_alone(scene: Any, folder: Path, eventually: Any) -> None:
    """Someone's own postgres on our data is not ours to stop, and never gets a second one beside it."""
    layout = Layout(folder)
    command = cluster.postgres_command(scene.bin, layout, cluster.choose_port(layout), {"shared_buffers": "16MB"})
    by_hand = subprocess.Popen([*identity.choose().wrap, *command], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: cluster.is_ready(layout, by_hand.pid), "the server by hand did not start")
        with pytest.raises(EmbeddedError, match=f"process {by_hand.pid}\\) that we did not start") as caught:
            scene.acquire(folder)
        assert "pg_ctl stop" in caught.value.hint
        assert by_hand.poll() is None
    finally:
        by_hand.send_signal(signal.SIGINT)
        by_hand.wait(PATIENCE_S)


def test_a_half_made_folder_is_made_again(scene: Any, tmp_path: Path, answers: Any) -> None:
    """What an interrupted initdb left is removed; nobody ever starts on it."""
    folder = tmp_path / "postgres"
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18")
    (folder / "users.lock").touch()
    assert answers(scene.acquire(folder).dsn)
    assert not (folder / "data.new").exists()


def test_everyone_killed_while_the_data_is_made(scene: Any, tmp_path: Path, eventually: Any, answers: Any) -> None:
    """Killed in the middle of initdb, user and guardian leave nothing that a second try stumbles over."""
    folder = tmp_path / "postgres"
    user = scene.user(folder)
    eventually((folder / "data.new" / "base").exists, "initdb did not begin")
    os.kill(scene.state(folder).guardian, signal.SIGKILL)
    user.dies()
    assert not (folder / "data").exists()
    assert answers(scene.acquire(folder).dsn)


def test_the_folder_is_removed_under_a_server(
    scene: Any, folder: Path, tmp_path: Path, eventually: Any, is_gone: Any, answers: Any
) -> None:
    """rm -rf and a new start in one breath: the old guardian leaves without a word in the new folder."""
    old = scene.acquire(folder, linger_s=1)
    before = scene.state(folder)
    old.release()
    folder.rename(tmp_path / "elsewhere")
    scene.folders.add(tmp_path / "elsewhere")
    new = scene.acquire(folder)
    eventually(lambda: is_gone(before.guardian), "the old guardian leaves")
    assert scene.state(folder).status == "ready"
    assert scene.state(folder).guardian != before.guardian
    assert answers(new.dsn)


DAMAGED = [
    b"",
    b"\0" * 200,
    b"\xff\xfe{",
    b'{"status": "ready", "guard',
    b"[]",
    b"null",
    b'{"status": "ready"}',
    b'{"status": "ready", "guardian": 1, "version": 18, "bin": "/x", "port": "many"}',
    b'{"status": "well", "guardian": 1, "version": 18, "bin": "/x"}',
    b'{"status": "ready", "guardian": 1, "version": 18, "bin": "/x", "more": 1}',
    b"[" * 100_000,
]


def test_a_damaged_state_says_nothing(tmp_path: Path) -> None:
    """Whatever a crash or a hand made of state.json, it is read like none at all."""
    for damaged in DAMAGED:
        (tmp_path / "state.json").write_bytes(damaged)
        assert read_state(tmp_path / "state.json") is None, damaged


def test_a_server_starts_over_a_damaged_state(scene: Any, folder: Path, answers: Any) -> None:
    """A state.json that a power cut left empty is in nobody's way."""
    Layout(folder).users_lock.touch()
    Layout(folder).state.write_bytes(b"")
    Layout(folder).port.write_bytes(b"\xff70000")
    assert answers(scene.acquire(folder).dsn)
    assert scene.state(folder).status == "ready"
