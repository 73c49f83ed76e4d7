"""Real processes for tests: started with settings in their environment, heard by their JSON log, always ended."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

RELEVO = Path(sys.executable).with_name("relevo")
RELAY = Path(__file__).parent / "programs" / "relay.py"
WARM = Path(__file__).parent / "programs" / "warm.py"
PATIENCE_S = 240.0  # far more than anything takes, so that a busy machine fails no test
LONGEST_PAUSE_S = 0.15
NOWHERE = "http://127.0.0.1:9"
_NO_HTTP = {"http_enabled": False, "http_port": 0}  # to load it is nearly half of what a start costs
_PATIENT = {"database_connect_timeout_ms": 60_000}

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    what: str | Callable[[], str] = "it did not happen",
    within: float = PATIENCE_S,
    every: float = 0.03,
) -> T:
    """Look again and again until something true is seen, and return it; say what was missing after the deadline.

    A look that takes long is followed by a longer pause, so that waiting leaves the processor to what is waited for.
    """
    deadline = time.monotonic() + within
    while True:
        began = time.monotonic()
        if seen := look():
            return seen
        ended = time.monotonic()
        assert ended < deadline, f"not within {within} s: {what if isinstance(what, str) else what()}"
        time.sleep(max(every, min(3 * (ended - began), LONGEST_PAUSE_S)))


def never(look: Callable[[], object], what: str, during: float, every: float = 0.05) -> None:
    """Look again and again for a while; what must not happen does not."""
    deadline = time.monotonic() + during
    while time.monotonic() < deadline:
        seen = look()
        assert not seen, f"{what}: {seen}"
        time.sleep(every)


class Warm:
    """A process that programs/warm.py started, with what is used of subprocess.Popen."""

    _lock = threading.Lock()

    def __init__(self, words: list[str], environ: Mapping[str, str], folder: Path, log: Path, out: Path) -> None:
        self._code = out.with_suffix(".code")
        start = {"words": words, "environ": dict(environ), "folder": folder, "log": log, "out": out, "code": self._code}
        with self._lock:
            loaded = self._loaded()
            assert loaded.stdin is not None
            assert loaded.stdout is not None
            loaded.stdin.write(json.dumps(start, default=str) + "\n")
            loaded.stdin.flush()
            self.pid = int(loaded.stdout.readline())

    @staticmethod
    @cache
    def _loaded() -> subprocess.Popen[str]:
        """The one program of this session; it ends with us, who hold its standard input."""
        words, both = [sys.executable, "-u", str(WARM)], subprocess.PIPE
        started = subprocess.Popen(words, stdin=both, stdout=both, text=True)
        atexit.register(started.communicate)
        return started

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return int(self._code.read_text()) if self._code.exists() else None

    def wait(self, timeout: float) -> int:
        """Wait for its exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("relevo", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its code is being written
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Process:
    """A program under test: its log lines as they come, its signals, its end."""

    def __init__(
        self, arguments: list[str], environ: Mapping[str, str], folder: Path, name: str, *, warm: bool = False
    ) -> None:
        self.name = name
        self._log, self._out = folder / f"{name}.log", folder / f"{name}.out"
        self._log.touch()
        self._out.touch()
        self._popen: Warm | subprocess.Popen[bytes]
        if warm:
            self._popen = Warm(arguments, environ, folder, self._log, self._out)
            return
        with self._log.open("wb") as log, self._out.open("wb") as out:
            self._popen = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=dict(environ), cwd=folder
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def stdout(self) -> str:
        """What it printed so far."""
        return self._out.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """What it logged and complained about so far."""
        return self._log.read_text(encoding="utf-8")

    def lines(self, event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """The log lines so far, of one event and with these fields if asked."""
        whole = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{") and line.endswith("}")]
        return [
            line
            for line in whole
            if event in (None, line["event"]) and all(line.get(key) == value for key, value in fields.items())
        ]

    def hears(self, event: str, within: float = PATIENCE_S, **fields: object) -> dict[str, Any]:
        """Wait for a log line and return the first such one."""

        def look() -> list[dict[str, Any]]:
            found = self.lines(event, **fields)
            assert found or self._popen.poll() is None, f"{self.name} ended without {event} {fields}:\n{self.stderr}"
            return found

        return eventually(look, lambda: f"{event} {fields} of {self.name}, which said:\n{self.stderr}", within)[0]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def pause(self) -> None:
        """Stop it in its tracks, and wait until the kernel says that it stands."""
        self.signal(signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "it stands")

    def go_on(self) -> None:
        """Let a paused process go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a chance to say anything, and wait until it is gone."""
        self._popen.kill()
        self._popen.wait(PATIENCE_S)

    def ends(self, within: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code."""
        try:
            return self._popen.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {within} s and said:\n{self.stderr}") from None

    def stops(self, within: float = PATIENCE_S) -> int:
        """Ask it to stop and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.ends(within)


class Processes:
    """The processes of one test; none outlives it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        self._started: list[Process] = []

    def relevo(self, *arguments: str, **settings: object) -> Process:
        """Start the command `relevo`, loaded already; settings are keyword arguments."""
        return self._start([str(RELEVO), *arguments], settings, warm=True)

    def program(self, *arguments: str, **settings: object) -> Process:
        """Start any program with the same environment: a shell that starts `relevo` with limits, for one."""
        return self._start(list(arguments), settings)

    def module(self, *arguments: str, **settings: object) -> Process:
        """Start the same command as `python -m relevo`, from the beginning."""
        return self._start([sys.executable, "-m", "relevo", *arguments], settings)

    def relay(self, *arguments: str, probes: list[dict[str, Any]], **settings: object) -> Process:
        """Start `relevo` with probe cycles beside the reaper; see programs/relay.py."""
        cycles = ",".join(dict.fromkeys(["reaper", *(probe["name"] for probe in probes)]))
        chosen = {"probes": json.dumps(probes), "worker_cycles": cycles, **settings}
        return self._start([str(RELAY), *arguments], chosen, warm=True)

    def _start(self, arguments: list[str], settings: Mapping[str, object], *, warm: bool = False) -> Process:
        own = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "COLUMNS": "250", "PYTHONUNBUFFERED": "1"}
        ours = {"database_url": self._dsn, "expo_base_url": NOWHERE, "log_format": "json"}
        chosen = {**ours, **_NO_HTTP, **_PATIENT, **settings}
        environ = own | {name.upper(): str(value) for name, value in chosen.items()}
        words = "-".join(Path(word).name for word in arguments[-2:])[-40:]
        process = Process(arguments, environ, self._folder, f"{len(self._started) + 1}-{words}", warm=warm)
        self._started.append(process)
        return process

    def release(self) -> None:
        """End every wait of the probes, now and later."""
        (self._folder / "release").touch()

    def close(self) -> None:
        """End whatever still runs."""
        for process in self._started:
            process.kill()
