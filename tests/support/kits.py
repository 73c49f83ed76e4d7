"""The kits of server/clients: how they are installed, built and tested, all by Node.js, against a whole Relevo."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from relevo.access import api_tokens
from relevo.config import load
from relevo.database.pool import Database
from relevo.sandbox import Sandbox
from support.http_server import free_port
from support.optional_parts import KITS_INSTALLED, find_part
from support.processes import PATIENCE_S, Processes

CLIENTS = Path(__file__).parents[2] / "server" / "clients"
KEY_NAME, KEY = "2026-11", b64encode(bytes(range(32))).decode()
_MODULES = CLIENTS / "node_modules"


def call(program: str, *words: str, cwd: Path = CLIENTS, **settings: str) -> str:
    """Run a program of Node.js to its good end, and return what it said."""
    environ = {**os.environ, "NO_PROXY": "*", "npm_config_update_notifier": "false", **settings}
    command = [find_part(program), *words]
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    return done.stdout


def build(done: Path) -> Path:
    """Install what the lock file names, unless that is there, and compile, unless another process of this run did."""
    with _installed():
        if not done.exists():
            call("node", str(_MODULES / "typescript" / "bin" / "tsc"), "-b")
            done.touch()
    return CLIENTS


def install() -> Path:
    """Install what the lock file names, unless that is there, and return the folder that programs find it from."""
    with _installed():
        return CLIENTS


@contextmanager
def _installed() -> Iterator[None]:
    with (CLIENTS / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = sha256(lock.read()).hexdigest()
        if not KITS_INSTALLED.exists() or KITS_INSTALLED.read_text() != wanted:
            shutil.rmtree(_MODULES, ignore_errors=True)
            call("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error")
            KITS_INSTALLED.write_text(wanted)
        yield


def run_tests(name: str, **settings: str) -> str:
    """Run one compiled file of tests, such as `pg/transactions`; the first that fails is told."""
    kit, _, file = name.partition("/")
    hooks = CLIENTS / kit / "dist" / "test" / "hooks.js"
    fakes = ("--import", hooks.as_uri()) if hooks.exists() else ()
    return call("node", *fakes, "--test", f"{kit}/dist/test/{file}.test.js", **settings)


@dataclass(frozen=True)
class Running:
    """A Relevo that runs, its sandbox, and what a kit has to know of them."""

    url: str
    sandbox: Sandbox
    dsn: str
    app_token: str

    def environ(self) -> dict[str, str]:
        """Return it as the settings of a program."""
        told: dict[str, Any] = {
            "RELEVO_URL": self.url,
            "RELEVO_APP_TOKEN": self.app_token,
            "RELEVO_KEY_NAME": KEY_NAME,
            "RELEVO_KEY": KEY,
            "SANDBOX_URL": self.sandbox.url,
            "DATABASE_URL": self.dsn,
        }
        return told


@contextmanager
def run(dsn: str, folder: Path, *, native: bool = False, **settings: object) -> Iterator[Running]:
    """Run Relevo with its workers and a sandbox, of Expo alone or of all push services."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps({KEY_NAME: {"secret": KEY}}))
    keys.chmod(0o600)
    database = Database(dsn, dsn, load({}, None))
    token = api_tokens.make(database, "kits", "app")[0]
    database.close()
    port = free_port()
    processes = Processes(dsn, folder)
    with Sandbox(rate_per_s=0, receipt_delay_s=0, native=native) as sandbox:
        usual = {"expo_base_url": sandbox.url, "http_signing_keys_file": keys, "http_rate_per_second": 0}
        chosen = usual | {name.lower(): value for name, value in sandbox.settings().items()} | settings
        relevo = processes.relevo("run", http_enabled=True, http_port=port, **chosen)
        try:
            relevo.hears("http_serving", within=PATIENCE_S)
            yield Running(f"http://127.0.0.1:{port}", sandbox, dsn, token)
        finally:
            processes.close()
