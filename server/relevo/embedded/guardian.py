"""The guardian: a process of its own that starts one folder's server and stops it after its last user.

    python -m relevo.embedded.guardian '{"folder": …, "bin": …, "lock_fd": 5, "linger_s": 1.0, "settings": {}}'

Its starter hands it the guardian's lock, already held, so there is never a second one. It is alone in its
session: a Ctrl-C meant for a user does not reach the server, and no user's end takes it along.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from relevo.core.errors import EmbeddedError
from relevo.embedded import binaries, cluster, failures, identity
from relevo.embedded.layout import Layout, State
from relevo.embedded.locks import Lock

log = logging.getLogger("relevo.embedded.guardian")

BEAT_S = 0.05
RESTARTS = 5
FIRST_BACKOFF_S = 0.1
STEADY_S = 60.0
PORT_ATTEMPTS = 3
STRANGER_S = 2.0
PATIENCE = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))


class _Leave(Exception):  # noqa: N818  (an order to go, not an error)
    """Nobody needs the server any more, or we were told to go."""


class Guardian:
    """Owns the server of one folder."""

    def __init__(self, layout: Layout, lock: Lock, folder: Path, settings: Mapping[str, str], linger_s: float) -> None:
        self.layout = layout
        self.lock = lock
        self.bin = folder
        self.settings = settings
        self.linger_s = linger_s
        self.users = Lock(layout.users_lock)
        self.identity = identity.Identity()
        self.end_with_us: tuple[str, ...] = ()
        self.told_to_go = False
        self.idle_since: float | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.leash: subprocess.Popen[bytes] | None = None
        self.ready_at = 0.0
        self.restarts = 0
        self.state = State("starting", os.getpid(), binaries.version(folder), str(folder))

    def run(self) -> int:
        """Serve until nobody is left; the exit code says whether that went well."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        try:
            with failures.in_words(self.layout.folder):
                self._serve()
        except _Leave:
            self._say(replace(self.state, status="stopping"))
            self._stop()
        except EmbeddedError as error:
            log.critical("giving up: %s", error)
            self._stop()
            self._say(replace(self.state, status="failed", message=error.message, hint=error.hint))
            return 1
        return 0

    def _serve(self) -> None:
        self._say(self.state)
        self.identity = identity.choose()
        self.end_with_us = identity.INTERRUPT_AT_OUR_END if identity.works(identity.INTERRUPT_AT_OUR_END) else ()
        self.identity.close_off(self.layout.folder)
        self._ensure_data()
        self._start()
        while True:
            self._pause()
            if self.server and self.server.poll() is not None:
                self._restart(self.server.returncode)

    def _ensure_data(self) -> None:
        """A complete data folder of our version, made now if there is none."""
        with self._server_lock() as lock:
            cluster.remove_half_made(self.layout)
            if self.layout.data.exists():
                cluster.check_version(self.layout, self.bin)
                if not self.layout.password.exists():
                    raise EmbeddedError(
                        f"The password file {self.layout.password} is gone.",
                        hint=f"Restore it, or remove {self.layout.folder} to start with an empty database.",
                    )
            else:
                self._make_data(lock)
        self.identity.own(self.layout.data)

    def _make_data(self, lock: Lock) -> None:
        log.info("making a data folder with the PostgreSQL %s in %s", self.state.version, self.bin)
        cluster.make_password(self.layout)
        self.identity.own(self.layout.password)
        self.layout.data_new.mkdir(mode=0o700)
        self.identity.own(self.layout.data_new)
        start = self._log_end()
        maker = self._spawn(cluster.initdb_command(self.bin, self.layout, self.settings), lock)
        try:
            while maker.poll() is None:
                self._pause()
        finally:
            maker.kill()
            maker.wait()
        if maker.returncode:
            output = failures.tail(self.layout.postgres_log, start)
            error = failures.explain("Making the data folder", output, self.layout)
            cluster.remove_half_made(self.layout)
            raise error
        cluster.settle(self.layout)

    def _start(self) -> None:
        """Start for the first time: if the port is snatched from us in between, another will do."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._launch(cluster.choose_port(self.layout))
            except failures.PortTakenError:
                if attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    def _restart(self, code: int) -> None:
        """The server ended without us: start it again where its users look for it, but not forever."""
        if time.monotonic() - self.ready_at > STEADY_S:
            self.restarts = 0
        error = EmbeddedError(
            f"PostgreSQL ended again and again, {RESTARTS} times.", hint=f"See {self.layout.postgres_log}."
        )
        self._end_leash()
        while self.restarts < RESTARTS:
            self.restarts += 1
            log.warning("PostgreSQL ended by itself (exit code %s), restart %s of %s", code, self.restarts, RESTARTS)
            self._say(replace(self.state, status="starting"))
            self._pause(FIRST_BACKOFF_S * 2 ** (self.restarts - 1))
            try:
                self._launch(self.state.port)
            except EmbeddedError as reason:
                log.warning("that did not work: %s", reason)
                error = reason
            else:
                return
        raise error

    def _launch(self, port: int) -> None:
        """Start the server and wait until it takes connections; its users' patience is the only limit."""
        with self._server_lock() as lock:
            self._await_stranger()
            cluster.remove_stale_pid(self.layout)
            start = self._log_end()
            command = cluster.postgres_command(self.bin, self.layout, port, self.settings)
            self.server = self._spawn(command, lock)
        if not self.end_with_us:
            self.leash = _leash(self.server.pid)
        while not cluster.is_ready(self.layout, self.server.pid):
            self._pause()
            if self.server.poll() is not None:
                self._end_leash()
                output = failures.tail(self.layout.postgres_log, start)
                raise failures.explain("Starting PostgreSQL", output, self.layout)
        self.layout.port.write_text(str(port))
        self.ready_at = time.monotonic()
        log.info("PostgreSQL %s is ready on port %s, process %s", self.state.version, port, self.server.pid)
        self._say(replace(self.state, status="ready", port=port, pid=self.server.pid))

    def _spawn(self, command: list[str], lock: Lock) -> subprocess.Popen[bytes]:
        """Start a server program that holds the server lock as long as it or a child of it lives."""
        with cluster.open_log(self.layout.postgres_log) as output:
            try:
                return subprocess.Popen(
                    [*self.identity.wrap, *self.end_with_us, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=cluster.environment(),
                    pass_fds=(lock.fd,),
                    **self.identity.popen(),
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise EmbeddedError(f"{command[0]} cannot be started: {error}.", hint=binaries.GET_ONE) from error

    def _server_lock(self) -> Lock:
        """The proof that nothing of an earlier server lives. We close our copy, its holders keep theirs."""
        lock = Lock(self.layout.server_lock)
        interrupted = None
        while not lock.try_exclusive():
            # We hold the guardian's lock: whoever serves here has lost its guardian and is to end.
            pid = cluster.running(self.layout)
            if pid and pid != interrupted:
                log.warning("waiting for an earlier PostgreSQL, process %s, to end", pid)
                interrupted = pid
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            self._pause()
        return lock

    def _await_stranger(self) -> None:
        """A server that holds no lock of ours may be on its way out, say after the locks were removed by hand."""
        until = time.monotonic() + STRANGER_S
        while time.monotonic() < until and cluster.running(self.layout):
            self._pause()

    def _stop(self) -> None:
        """Stop the server, quickly but in order; less politely if it does not listen."""
        if self.server is not None:
            for order, patience in PATIENCE:
                if self.server.poll() is None:
                    self.server.send_signal(order)
                    _wait(self.server, patience)
            log.info("PostgreSQL stopped, exit code %s", self.server.returncode)
        self._end_leash()

    def _end_leash(self) -> None:
        """Before its process id can belong to someone else."""
        if self.leash is not None:
            self.leash.kill()
            self.leash.communicate()
            self.leash = None

    def _pause(self, seconds: float = BEAT_S) -> None:
        """Wait for a short time, and leave if it is time to."""
        until = time.monotonic() + seconds
        while True:
            time.sleep(BEAT_S)
            if self.told_to_go or self._uprooted() or self._abandoned():
                raise _Leave
            if time.monotonic() >= until:
                return

    def _uprooted(self) -> bool:
        """Was the folder, or a lock in it, removed under us? Then others may already have begun anew."""
        return not (self.lock.in_place() and self.users.in_place())

    def _abandoned(self) -> bool:
        """Has nobody used the server for a while? If so we keep the users' lock, and newcomers wait."""
        if not self.users.try_exclusive():
            self.idle_since = None
            return False
        now = time.monotonic()
        if self.idle_since is None:
            self.idle_since = now
        if now - self.idle_since >= self.linger_s:
            return True
        self.users.unlock()
        return False

    def _say(self, state: State) -> None:
        """Inform the users, unless the folder is no longer ours to write in."""
        self.state = state
        if not self.lock.in_place():
            return
        try:
            state.publish(self.layout.state)
        except OSError as error:
            log.warning("cannot write %s: %s", self.layout.state, error)

    def _log_end(self) -> int:
        """Where the words of what we start next will begin."""
        with cluster.open_log(self.layout.postgres_log) as log_file:
            return log_file.tell()

    def _on_signal(self, *_: object) -> None:
        self.told_to_go = True


def _leash(pid: int) -> subprocess.Popen[bytes]:
    """Where the kernel does not do it: a shell that interrupts the server when our end of its pipe closes."""
    return subprocess.Popen(["/bin/sh", "-c", 'read _; kill -INT "$0"', str(pid)], stdin=subprocess.PIPE)


def _wait(process: subprocess.Popen[bytes], patience: float) -> None:
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        log.warning("process %s has not ended after %s s", process.pid, patience)


def main(asked: Mapping[str, Any]) -> int:
    """Detach from our starter, who waits for no more than that, and guard."""
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    layout, lock_fd = Layout(Path(asked["folder"])), asked["lock_fd"]
    os.set_inheritable(lock_fd, False)
    lock = Lock(layout.guardian_lock, lock_fd)
    return Guardian(layout, lock, Path(asked["bin"]), asked["settings"], asked["linger_s"]).run()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
