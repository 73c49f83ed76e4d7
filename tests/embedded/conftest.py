"""People for these tests: users of an embedded server in processes of their own, and a folder each."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.embedded import Embedded, acquire, binaries
from relevo.embedded.layout import Layout, State, read_state
from relevo.embedded.locks import Lock
from support.processes import PATIENCE_S, eventually

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": "20"}

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from relevo.embedded import acquire
from relevo.core.errors import EmbeddedError

asked = json.loads(sys.argv[1])
if asked["drains"]:
    # written past Python's buffer, which the line before may still hold
    signal.signal(signal.SIGINT, lambda *_: os.write(1, json.dumps({"interrupted": True}).encode() + b"\\n"))
try:
    server = acquire(Path(asked["folder"]), Path(asked["bin"]), asked["wait_s"], settings=asked["settings"],
                     linger_s=asked["linger_s"])
except EmbeddedError as error:
    print(json.dumps({"error": error.message, "hint": error.hint}), flush=True)
    sys.exit(1)
print(json.dumps({"dsn": server.dsn, "port": server.port}), flush=True)
if asked["becomes"]:
    server.inheritable()
    os.execvp(asked["becomes"][0], asked["becomes"])
for _line in sys.stdin:
    pass
"""


@dataclass
class User:
    """A process that acquires a server, says so, and holds it until it is told to end."""

    process: subprocess.Popen[bytes]

    def says(self, within: float = PATIENCE_S) -> dict[str, Any]:
        """The next line it prints."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            assert ready.select(within), "the user said nothing in time"
        line = self.process.stdout.readline()
        assert line, "the user ended without a word"
        return dict(json.loads(line))

    def meets(self) -> str:
        """The address of the server it was given."""
        said = self.says()
        assert "dsn" in said, said
        return str(said["dsn"])

    def wakes_up(self) -> None:
        """Get a line to read: Python handles a signal that came just before a read only after that read."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def ends(self) -> None:
        """Leave in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)

    def dies(self) -> None:
        """Leave without a chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def tidy(self) -> None:
        """Whatever happened: no process and no pipe stays."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass
class Scene:
    """One test's folders and everyone in them."""

    bin: Path
    users: list[User] = field(default_factory=list)
    servers: list[Embedded] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    def acquire(self, folder: Path, **asked: Any) -> Embedded:
        """Become a user in this very process."""
        self.folders.add(folder)
        wanted = {"binaries": self.bin, "wait_s": PATIENCE_S, "settings": FAST, "linger_s": 0, **asked}
        self.servers.append(acquire(folder, **wanted))
        return self.servers[-1]

    def user(
        self,
        folder: Path,
        *,
        drains: bool = False,
        becomes: Sequence[str] = (),
        python: Sequence[str] = (sys.executable,),
        env: Mapping[str, str] = {},
        **asked: Any,
    ) -> User:
        """Start a user in a process, and process group, of its own."""
        self.folders.add(folder)
        wanted = {"bin": str(self.bin), "wait_s": PATIENCE_S, "settings": FAST, "linger_s": 0, **asked}
        wanted |= {"folder": str(folder), "drains": drains, "becomes": list(becomes)}
        process = subprocess.Popen(
            [*python, "-c", PROGRAM, json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            env={**os.environ, **env},
        )
        self.users.append(User(process))
        return self.users[-1]

    def state(self, folder: Path) -> State:
        """What the guardian said last."""
        said = read_state(Layout(folder).state)
        assert said is not None
        return said

    def guardian_looks(self, folder: Path, times: int = 10) -> None:
        """Wait until the guardian has looked around so often, whatever the machine does; it sleeps before each look."""
        pid = self.state(folder).guardian
        so_far = _sleeps(pid)
        eventually(lambda: _sleeps(pid) >= so_far + times, "the guardian looks around")

    def tidy(self) -> None:
        """Everyone leaves, and every server must follow."""
        for server in self.servers:
            server.release()
        for user in self.users:
            user.tidy()
        for folder in self.folders:
            if folder.exists():
                eventually(lambda folder=folder: unguarded(folder), "the guardian stayed after its last user")


def _sleeps(pid: int) -> int:
    """How often a process went to sleep."""
    reported = Path(f"/proc/{pid}/status").read_text()
    return int(reported.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def is_gone(pid: int) -> bool:
    """Has a process ended, whether or not anybody took note of it?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def unguarded(folder: Path) -> bool:
    """Are the guardian and all processes of the server gone?"""
    layout = Layout(folder)
    with Lock(layout.guardian_lock) as guardian, Lock(layout.server_lock) as server:
        return guardian.try_exclusive() and server.try_exclusive()


def answers(dsn: str) -> bool:
    """Does a server take our connection and run a statement?"""
    try:
        with psycopg.connect(dsn, connect_timeout=2) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


@pytest.fixture(scope="session", name="found")
def _found() -> Path:
    """The programs that a user who asks for none in particular gets."""
    return binaries.find()


@pytest.fixture
def scene(found: Path) -> Iterator[Scene]:
    """A stage that is empty again after the test."""
    stage = Scene(found)
    try:
        yield stage
    finally:
        stage.tidy()


@pytest.fixture(scope="session")
def made(found: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a server once ran; initdb is half a second, a copy is a tenth."""
    folder = tmp_path_factory.mktemp("made") / "postgres"
    acquire(folder, found, 60, settings=FAST, linger_s=0).release()
    eventually(lambda: unguarded(folder), "the guardian stayed after its last user")
    return folder


@pytest.fixture
def folder(scene: Scene, made: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder of our own in which a server has run before."""
    target, worn = tmp_path / "postgres", made.parent / "worn"
    target.mkdir(mode=0o700)
    shutil.copy2(made / "password", target)
    if not worn.exists():
        # Not shutil: a data folder is more than a thousand files, and cp takes a third of the time.
        subprocess.run(["cp", "-a", str(made / "data"), str(worn)], check=True)
    worn.rename(target / "data")
    yield target
    scene.tidy()
    if _intact(target, made):
        (target / "data").rename(worn)
    else:
        shutil.rmtree(target / "data", ignore_errors=True)


def _intact(folder: Path, made: Path) -> bool:
    """Did the test leave the data it got, and such that another can start on it?"""
    same = [Path("password"), Path("data") / "PG_VERSION"]
    if not all((folder / name).exists() and (folder / name).read_text() == (made / name).read_text() for name in same):
        return False
    return (folder / "data/global/pg_control").exists() and not (folder / "data/postmaster.pid").exists()


@pytest.fixture
def common(tmp_path: Path) -> Iterator[Path]:
    """A folder that every user of this machine can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.fixture
def tools(common: Path) -> Path:
    """A PATH with a shell's bare necessities: neither unshare nor setpriv."""
    place = common / "tools"
    place.mkdir()
    for name in ("sh", "true"):
        (place / name).symlink_to(str(shutil.which(name)))
    return place


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., None]:
    return eventually


@pytest.fixture(name="unguarded")
def _unguarded() -> Callable[[Path], bool]:
    return unguarded


@pytest.fixture(name="is_gone")
def _is_gone() -> Callable[[int], bool]:
    return is_gone


@pytest.fixture(name="answers")
def _answers() -> Callable[[str], bool]:
    return answers
