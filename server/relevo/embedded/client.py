"""How a process becomes a user of the embedded server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from relevo.core import queries
from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries as programs
from relevo.embedded import cluster, failures
from relevo.embedded.layout import Layout, State, read_state
from relevo.embedded.locks import Lock

BEAT_S = 0.02
GUARDIANS = 3
DETACH_S = 30.0


@dataclass(frozen=True)
class Embedded:
    """A running server and our hold on it; the hold lasts until release() or the end of the process."""

    folder: Path
    bin: Path
    port: int
    version: int
    dsn: str = field(repr=False)
    _users: Lock = field(repr=False, compare=False)

    def release(self) -> None:
        """Use it no longer; the server stops soon after its last user. Twice is fine."""
        self._users.close()

    def inheritable(self) -> int:
        """Prepare the program that we exec to keep the server up in our place; return the descriptor that does it."""
        os.set_inheritable(self._users.fd, True)
        return self._users.fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(
    folder: Path,
    binaries: Path | None = None,
    wait_s: float = 60,
    *,
    settings: Mapping[str, str] | None = None,
    linger_s: float = 1.0,
) -> Embedded:
    """Make sure that the server with its data in `folder` runs, and that it runs as long as we need it.

    Programs, settings and linger are those of whoever starts the server; a running one is taken as it is.
    """
    cluster.check_settings(settings or {})
    layout = Layout(folder.expanduser().absolute())
    arrival = _Arrival(layout, binaries, settings or {}, linger_s)
    with failures.in_words(layout.folder):
        _make_folder(layout)
        users = Lock(layout.users_lock)
        try:
            return arrival.meet(users, wait_s)
        except BaseException:
            users.close()
            raise


def _make_folder(layout: Layout) -> None:
    """The folder, for our eyes only; the guardian closes it off, so it must not be someone else's."""
    layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = {entry.name for entry in layout.folder.iterdir()} - {"lost+found"}
    if inside and not inside & {layout.users_lock.name, layout.data.name}:
        raise EmbeddedError(
            f"{layout.folder} holds other files ({sorted(inside)[0]} for one) and no embedded server.",
            hint="Choose an empty folder, or one that does not exist yet.",
        )


@dataclass
class _Arrival:
    """A user on its way to the server: it finds a guardian, or starts one, and waits for its word."""

    layout: Layout
    binaries: Path | None
    settings: Mapping[str, str]
    linger_s: float
    waiting: bool = False
    guardians_started: int = 0

    def meet(self, users: Lock, wait_s: float) -> Embedded:
        """Hold the users' lock, then look, until the server answers or our patience ends."""
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            # Refused while a guardian shuts down: it keeps the lock for itself to its very end.
            if users.try_shared():
                self._still_ours(users)
                ready = self._look()
                if ready and (met := self._greet(ready, users)):
                    return met
            time.sleep(BEAT_S)
        said = failures.quote(failures.tail(self.layout.postgres_log), self.layout)
        raise EmbeddedError(
            f"The embedded PostgreSQL in {self.layout.folder} was not ready after {wait_s:g} s.{said}",
            hint=f"See {self.layout.guardian_log} and {self.layout.postgres_log}, or wait longer.",
        )

    def _still_ours(self, users: Lock) -> None:
        if not users.in_place():
            raise EmbeddedError(f"{self.layout.folder} was removed while we waited for its server.", hint="Try again.")

    def _look(self) -> State | None:
        """The state of a ready server. We look and start under a lock, so that no state is stale."""
        with Lock(self.layout.start_lock) as start, Lock(self.layout.guardian_lock) as guardian:
            if not start.try_exclusive():
                return None
            unguarded = guardian.try_exclusive()
            said = read_state(self.layout.state)
            if said and said.status == "failed" and self.waiting:
                raise EmbeddedError(said.message, hint=said.hint)
            if unguarded:
                self._start_guardian(guardian)
                said = None
            # A failure that a guardian reported before we came is meant for others.
            self.waiting = said is None or said.status != "failed"
            return said if said and said.status == "ready" else None

    def _greet(self, ready: State, users: Lock) -> Embedded | None:
        """Hand out a server only after it has answered, with our database in it."""
        password = self.layout.password.read_text().strip()
        if not _has_database(ready.port, password, self.layout.password):
            return None
        return Embedded(
            folder=self.layout.folder,
            bin=Path(ready.bin),
            port=ready.port,
            version=ready.version,
            dsn=_dsn(ready.port, password),
            _users=users,
        )

    def _start_guardian(self, lock: Lock) -> None:
        """Start a guardian that inherits its lock from us, and forget what an earlier one said."""
        if self.guardians_started == GUARDIANS:
            raise self._speechless()
        self.guardians_started += 1
        folder = programs.find(self.binaries)
        self.layout.state.unlink(missing_ok=True)
        with cluster.open_log(self.layout.guardian_log) as log:
            try:
                subprocess.run(
                    self._guardian_command(folder, lock),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=_with_our_code(),
                    pass_fds=(lock.fd,),
                    start_new_session=True,
                    timeout=DETACH_S,
                    check=True,
                )
            except OSError as error:
                hint = "Check that this Python can be run by this user."
                raise EmbeddedError(f"{sys.executable} cannot be started: {error}.", hint=hint) from error
            except subprocess.SubprocessError as error:
                raise self._speechless() from error

    def _guardian_command(self, folder: Path, lock: Lock) -> list[str]:
        asked = {"folder": str(self.layout.folder), "bin": str(folder), "lock_fd": lock.fd}
        asked |= {"linger_s": self.linger_s, "settings": dict(self.settings)}
        # -P: a file in the current folder must not stand in for a module of the same name.
        return [sys.executable, "-P", "-m", "relevo.embedded.guardian", json.dumps(asked)]

    def _speechless(self) -> EmbeddedError:
        """The guardian left without a word; a full disk takes even that from it."""
        if failures.nearly_full(self.layout.folder):
            return failures.disk_full(self.layout.folder)
        said = failures.quote(failures.tail(self.layout.guardian_log), self.layout)
        return EmbeddedError(
            f"The guardian of the embedded PostgreSQL in {self.layout.folder} ended without a message.{said}",
            hint=f"See {self.layout.guardian_log}.",
        )


def _with_our_code() -> dict[str, str]:
    """The environment, in which the guardian finds the same package that runs here."""
    root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, known] if known else [root])}


def _dsn(port: int, password: str, database: str = "relevo") -> str:
    """Where to connect."""
    return f"postgresql://postgres:{quote(password, safe='')}@127.0.0.1:{port}/{database}"


def _has_database(port: int, password: str, password_file: Path) -> bool:
    """Does the server answer with our database in it? It is made if it is not there."""
    import psycopg  # noqa: PLC0415 the guardian shares this package, and starts in half the time without the driver

    try:
        psycopg.connect(_dsn(port, password), connect_timeout=2).close()
    except psycopg.OperationalError as error:
        # A failed connection carries no SQLSTATE; the server speaks English, initdb saw to that.
        if "password authentication failed" in str(error):
            raise EmbeddedError(
                f"The embedded server refuses the password in {password_file}.",
                hint="Put the right password into that file, or remove the whole folder to start afresh.",
            ) from error
        return "does not exist" in str(error) and _create_database(port, password)
    return True


def _create_database(port: int, password: str) -> bool:
    """Make the database, unless someone else just did."""
    import psycopg  # noqa: PLC0415

    try:
        with psycopg.connect(_dsn(port, password, "postgres"), autocommit=True, connect_timeout=2) as maker:
            maker.execute(queries.load("embedded")["create_database"])
    except psycopg.errors.DuplicateDatabase:
        return True
    except psycopg.OperationalError:
        return False
    return True
