"""Users come and go; the server is there as long as one of them is."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries, cluster, identity
from relevo.embedded.layout import Layout
from support import soak
from support.processes import PATIENCE_S

SUPPORTED = [folder for folder in binaries.candidates() if 15 <= binaries.version(folder) <= 18]
MADE = soak.cases(SUPPORTED[:1], whole=SUPPORTED)
"""The first is what a user gets; test_data_really_made_by_another_version has a server of another version made."""


@pytest.mark.parametrize("bin", MADE, ids=lambda folder: f"PostgreSQL {binaries.version(folder)}")
def test_a_server_is_made_from_nothing(scene: Any, tmp_path: Path, bin: Path, answers: Any) -> None:  # noqa: A002
    """Every PostgreSQL on this machine gives a server with the database, and says which one it is."""
    server = scene.acquire(tmp_path / "not" / "there yet", binaries=bin)
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute(
            "select current_database(), current_user, current_setting('timezone'), "
            "current_setting('server_encoding'), current_setting('server_version_num')::int / 10000"
        ).fetchone()
    assert row == ("relevo", "postgres", "UTC", "UTF8", binaries.version(bin))
    assert (server.bin, server.version) == (bin, binaries.version(bin))
    assert server.folder == tmp_path / "not" / "there yet"
    assert re.fullmatch(rf"postgresql://postgres:[^@]+@127\.0\.0\.1:{server.port}/relevo", server.dsn)


def test_durable_unless_told_otherwise(scene: Any, folder: Path) -> None:
    """Without settings of the caller the server flushes to disk and has room for a hundred connections."""
    server = scene.acquire(folder, settings=None)
    with psycopg.connect(server.dsn) as connection:
        for name, value in {"fsync": "on", "full_page_writes": "on", "max_connections": "100"}.items():
            row = connection.execute("select current_setting(%s)", (name,)).fetchone()
            assert row == (value,), name


def test_two_processes_meet_the_same_server(scene: Any, folder: Path, eventually: Any, unguarded: Any) -> None:
    """Two users that come at once share one server; it stays for the second and goes soon after it."""
    first, second = scene.user(folder), scene.user(folder)
    met = first.meets()
    assert met == second.meets()
    first.ends()
    scene.guardian_looks(folder)
    with psycopg.connect(met) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    second.ends()
    eventually(lambda: unguarded(folder), "the server stayed after its last user")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(met)


def test_killed_users_are_users_no_more(scene: Any, folder: Path, eventually: Any, unguarded: Any) -> None:
    """Users that are killed cannot say goodbye; the server goes all the same, in order."""
    users = [scene.user(folder) for _ in range(3)]
    for user in users:
        user.meets()
    for user in users:
        user.dies()
    eventually(lambda: unguarded(folder), "the server outlived its killed users")
    assert "database system is shut down" in (folder / "postgres.log").read_text()


def test_two_acquires_in_one_process(scene: Any, folder: Path, answers: Any, eventually: Any, unguarded: Any) -> None:
    """Threads of one process may each acquire; each hold counts, and releasing twice is fine."""
    threads = [threading.Thread(target=scene.acquire, args=(folder,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    first, *others = scene.servers
    assert len({server.dsn for server in scene.servers}) == 1
    for server in others:
        server.release()
        server.release()
    scene.guardian_looks(folder)
    assert answers(first.dsn)
    with first:
        pass
    eventually(lambda: unguarded(folder), "the server stayed after the last release")


def test_commands_in_a_row_reuse_the_server(scene: Any, folder: Path) -> None:
    """A user that comes within the linger finds the same server, not a new one."""
    scene.acquire(folder, linger_s=60).release()
    before = scene.state(folder)
    scene.guardian_looks(folder)  # and finds nobody
    scene.acquire(folder)
    assert (scene.state(folder).pid, scene.state(folder).guardian) == (before.pid, before.guardian)
    os.kill(before.guardian, signal.SIGTERM)


STORM = """
import random, sys, time
from pathlib import Path
import psycopg
from relevo.embedded import acquire

enough = Path(sys.argv[3])
while not enough.exists():
    settings = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "20"}
    with acquire(Path(sys.argv[1]), Path(sys.argv[2]), 90, settings=settings, linger_s=0) as server:
        with psycopg.connect(server.dsn) as connection:
            time.sleep(random.uniform(0, 0.03))
            connection.execute("select 1")
        psycopg.connect(server.dsn).close()
    time.sleep(random.uniform(0, 0.3))
"""


def test_nobody_meets_a_dying_server(scene: Any, folder: Path, eventually: Any) -> None:
    """Users that arrive in the very moment of the shutdown wait for the next server instead."""
    scene.folders.add(folder)
    enough = folder.with_name("enough")
    command = [sys.executable, "-c", STORM, str(folder), str(scene.bin), str(enough)]
    users = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    log = folder / "guardian.log"
    try:
        eventually(
            lambda: (
                (log.exists() and log.read_text().count("PostgreSQL stopped, exit code 0") >= 3)
                or any(user.poll() is not None for user in users)
            ),
            "the storm never hit a shutdown",
        )
    finally:
        enough.touch()
        said = [user.communicate(timeout=PATIENCE_S)[1] for user in users]
    assert [user.returncode for user in users] == [0, 0], said


def test_ctrl_c_does_not_reach_the_server(scene: Any, folder: Path, answers: Any) -> None:
    """A user that is interrupted with its whole process group can still finish its work."""
    user = scene.user(folder, drains=True)
    met = user.meets()
    before = scene.state(folder)
    os.killpg(user.process.pid, signal.SIGINT)
    user.wakes_up()
    assert user.says() == {"interrupted": True}
    scene.guardian_looks(folder)
    assert answers(met)
    assert scene.state(folder) == before


def test_a_program_we_become_holds_the_server(
    scene: Any, folder: Path, answers: Any, eventually: Any, unguarded: Any
) -> None:
    """After inheritable() and exec the new program is the user, to its end."""
    user = scene.user(folder, becomes=["cat"])
    met = user.meets()
    scene.guardian_looks(folder)
    assert answers(met)
    user.ends()
    eventually(lambda: unguarded(folder), "the server outlived the program")


def test_a_child_does_not_hold_the_server(scene: Any, folder: Path, eventually: Any, unguarded: Any) -> None:
    """Programs a user merely starts are no users."""
    server = scene.acquire(folder)
    with subprocess.Popen(["sleep", "30"], close_fds=False) as child:
        server.release()
        eventually(lambda: unguarded(folder), "a child held the server")
        child.kill()


@pytest.mark.needs("linux")
def test_nobody_else_gets_in(scene: Any, folder: Path) -> None:
    """A wrong password is refused, the right one is in a private file and not in a repr or a log; a folder that was open
    to others is closed; the kernel knows one listener on the port, on 127.0.0.1, and there is no socket file."""
    folder.chmod(0o755)
    server = scene.acquire(folder)
    password = (folder / "password").read_text()
    assert len(password) >= 32
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert password in server.dsn
    for wrong in (":wrong@", "@"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.dsn.replace(f":{password}@", wrong))
    said = repr(server) + str(server) + (folder / "guardian.log").read_text() + (folder / "postgres.log").read_text()
    assert password not in said
    assert password not in (folder / "state.json").read_text()
    port, listening = f":{server.port:04X}", "0A"
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()]
    local = [line[1] for line in lines if line[1].endswith(port) and line[3] == listening]
    assert local == [f"0100007F{port}"]
    assert not list(Path("/tmp").glob(f".s.PGSQL.{server.port}*"))


@pytest.mark.needs("ps")
def test_a_server_is_known_and_has_its_database(scene: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no /proc, ps tells our server from a stranger with its process id; and the address we hand out
    always leads to a database, also after somebody dropped it."""
    server = scene.acquire(folder)
    with psycopg.connect(server.dsn.replace("/relevo", "/postgres"), autocommit=True) as connection:
        connection.execute("drop database relevo")
    psycopg.connect(scene.acquire(folder).dsn).close()
    monkeypatch.setattr(cluster, "PROC", folder / "nowhere")
    assert cluster.running(Layout(folder)) == scene.state(folder).pid
    assert not cluster._serves(os.getpid(), folder / "data")


def reach(command: list[str]) -> bool:
    """Can a Python started like this import us?"""
    return subprocess.run([*command, "-c", "import relevo, psycopg"], capture_output=True, check=False).returncode == 0


@pytest.mark.needs("root")
def test_an_ordinary_user_can_run_it(
    scene: Any, common: Path, eventually: Any, unguarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root's rights it simply runs, and its files are its user's."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2] / 'server'}{os.pathsep}{packages}")
    # initdb wants a user that has a name; env, because setpriv itself still has root's rights when it starts us.
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"]
    pythons = [[*become, python] for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")]
    # Where no Python is readable for others: not root for all the process can tell, though it owns root's files.
    pythons.append(["unshare", "--user", "--map-user=65534", "--map-group=65534", sys.executable])
    python = next(command for command in pythons if reach(command))
    if python[0] == "setpriv":
        os.chown(common, 65534, 65534)
    folder, owner = common / "postgres", common.stat().st_uid
    user = scene.user(folder, python=python, env={"PYTHONPATH": os.environ["PYTHONPATH"]})
    psycopg.connect(user.meets()).close()
    assert folder.stat().st_uid == (folder / "data").stat().st_uid == owner
    assert Path("/proc", str(scene.state(folder).pid)).stat().st_uid == owner
    user.ends()
    eventually(lambda: unguarded(folder), "the server stayed after its last user")


@pytest.mark.needs("root")
def test_root_without_namespaces_lends_the_folder_to_nobody(
    scene: Any, common: Path, tools: Path, eventually: Any, unguarded: Any
) -> None:
    """Where unshare is not permitted the server runs as another user; moving between the two ways works."""
    folder = common / "postgres"
    nobody, root = (str(tools), 65534, 0o710), (os.environ["PATH"], 0, 0o700)
    for path, owner, mode in (nobody, root, nobody):
        user = scene.user(folder, env={"PATH": path})
        psycopg.connect(user.meets()).close()
        assert (folder / "data" / "PG_VERSION").stat().st_uid == owner
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
        user.ends()
        eventually(lambda: unguarded(folder), "the server stayed after its last user")


def test_root_that_may_do_nothing_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """When neither way works the error says why and what would."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "works", lambda *_, **__: False)
    with pytest.raises(EmbeddedError, match="refuses to run as root") as caught:
        identity.choose()
    assert "ordinary user" in caught.value.hint
